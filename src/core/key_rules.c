/* SPDX-License-Identifier: MIT */
/*
 * Key rules by type. A rule without a pattern is used last, wherever it was
 * given; of the others, the first that matches.
 */

#include "core/key_rules.h"

#include "base/fail.h"
#include "base/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the keys of a rule for some types begin with in place of a source. */
#define SPACE_MARK '\x01'

static int copy_rule(struct postern__typed_rule *out,
		const struct postern_key_rule *given, const char *what,
		struct postern_error *error) {
	struct postern_error failure;
	if (postern__key_rule_parse(&out->rule, given->rule, &failure)) {
		return postern__fail(error, POSTERN_E_INVALID, "%s: %s", what,
				failure.text);
	}
	if (!given->type) {
		return POSTERN_OK;
	}
	size_t size = strlen(given->type) + 2;
	out->type = strdup(given->type);
	out->space = malloc(size);
	if (!out->type || !out->space) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	(void)snprintf(out->space, size, "%c%s", SPACE_MARK, given->type);
	return POSTERN_OK;
}

static bool same_type(const char *a, const char *b) {
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static int check_types(const struct postern_key_rule *given, size_t count,
		const char *what, struct postern_error *error) {
	for (size_t i = 0; i < count; i++) {
		if (given[i].type &&
				(given[i].type[0] == '\0' ||
						strlen(given[i].type) > POSTERN_ATTRIBUTE_LEN_MAX)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"%s: the type of a key rule is empty or too long", what);
		}
		for (size_t j = 0; j < i; j++) {
			if (same_type(given[i].type, given[j].type)) {
				return postern__fail(error, POSTERN_E_INVALID,
						"%s: two key rules for the type '%s'", what,
						given[i].type ? given[i].type : "default");
			}
		}
	}
	return POSTERN_OK;
}

int postern__key_rules_init(struct postern__key_rules *rules,
		const struct postern_key_rule *given, size_t count, const char *what,
		struct postern_error *error) {
	*rules = (struct postern__key_rules){ 0 };
	if (count > POSTERN_KEY_RULE_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s: %zu key rules, the limit is %d", what, count,
				POSTERN_KEY_RULE_COUNT_MAX);
	}
	int r = check_types(given, count, what, error);
	if (r || count == 0) {
		return r;
	}
	rules->items = calloc(count, sizeof(*rules->items));
	if (!rules->items) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (int last = 0; last <= 1; last++) {
		for (size_t i = 0; !r && i < count; i++) {
			if ((given[i].type == NULL) == last) {
				r = copy_rule(&rules->items[rules->count++], &given[i], what,
						error);
			}
		}
	}
	return r;
}

int postern__key_rules_set_callback(struct postern__key_rules *rules,
		postern_key_callback *callback, void *context, const char *what,
		struct postern_error *error) {
	bool calls = false;
	for (size_t i = 0; i < rules->count; i++) {
		struct postern__key_rule *rule = &rules->items[i].rule;
		if (postern__key_rule_is_callback(rule)) {
			rule->callback = callback;
			rule->context = context;
			calls = true;
		}
	}
	return calls == (callback != NULL)
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_INVALID,
							 calls ? "%s: the key rule 'callback' needs "
									 "key_callback"
								   : "%s has a key_callback, and no key rule "
									 "'callback' that calls it",
							 what);
}

void postern__key_rules_finish(struct postern__key_rules *rules) {
	for (size_t i = 0; i < rules->count; i++) {
		free(rules->items[i].type);
		free(rules->items[i].space);
	}
	free(rules->items);
	*rules = (struct postern__key_rules){ 0 };
}

const struct postern__typed_rule *
postern__key_rules_find(const struct postern__key_rules *rules,
		const char *type) {
	size_t len = strlen(type);
	for (size_t i = 0; i < rules->count; i++) {
		const char *pattern = rules->items[i].type;
		if (!pattern ||
				postern__pattern_match(pattern, strlen(pattern), type, len)) {
			return &rules->items[i];
		}
	}
	return NULL;
}

const struct postern__typed_rule *
postern__key_rules_of_message(const struct postern__key_rules *channel,
		const char *type) {
	const struct postern__typed_rule *rule =
			postern__key_rules_find(channel, type);
	return rule && !postern__key_rule_is_composite(&rule->rule) ? rule : NULL;
}

const struct postern__typed_rule *
postern__key_rules_of_handler(const struct postern__key_rules *channel,
		const struct postern__key_rules *handler, const char *type) {
	const struct postern__typed_rule *rule =
			postern__key_rules_find(handler, type);
	const struct postern__typed_rule *of_message =
			postern__key_rules_of_message(channel, type);
	bool by_id = !of_message || postern__key_rule_is_id(&of_message->rule);
	if (rule && by_id && postern__key_rule_is_id(&rule->rule)) {
		return NULL; /* the message's own key says it already */
	}
	if (rule) {
		return rule;
	}
	rule = postern__key_rules_find(channel, type);
	return rule && postern__key_rule_is_composite(&rule->rule) ? rule : NULL;
}

int postern__typed_rule_apply(const struct postern__typed_rule *rule,
		const struct postern_message *message, const char *handler,
		struct postern__key_text *room, struct postern_dedupe_key *out,
		struct postern_error *error) {
	int r = postern__key_rule_apply(&rule->rule, message, handler, room, out,
			error);
	if (!r && !out->is_id) {
		out->source = rule->space;
	}
	return r;
}

/* Three kinds that cannot be taken for each other: an id has no line feed and
   is not empty, a source and a pattern are not empty either. */
char *postern__marker_value(const struct postern_dedupe_key *key,
		const char *own_source, size_t *len_out) {
	const char *source = key->source ? key->source : "";
	const char *after = "\n";
	if (key->is_id && strcmp(source, own_source) == 0) {
		source = after = "";
	} else if (*source == SPACE_MARK) {
		source++;
		after = "\n\n";
	}
	size_t source_len = strlen(source);
	size_t after_len = strlen(after);
	*len_out = source_len + after_len + key->value_len;
	char *text = malloc(*len_out + 1);
	if (text) {
		memcpy(text, source, source_len);
		memcpy(text + source_len, after, after_len);
		memcpy(text + source_len + after_len, key->value, key->value_len);
		text[*len_out] = '\0';
	}
	return text;
}
