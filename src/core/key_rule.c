/* SPDX-License-Identifier: MIT */
/*
 * Key rules: parsed once, when a channel or handler is added, and applied to
 * each message. A body is scanned once for each part that reads it; rules have
 * few.
 */

#include "core/key_rule.h"

#include "base/fail.h"
#include "base/json_pointer.h"
#include "base/utf8.h"
#include "core/identity.h"

#include <string.h>
#include <strings.h>

struct word {
	const char *text;
	enum postern__key_part_kind kind;
	bool has_argument; /* the text is a prefix */
	bool alone;        /* cannot be joined */
};

static const struct word words[] = {
	{ "id", POSTERN__KEY_ID, false, true },
	{ "header:", POSTERN__KEY_HEADER, true, false },
	{ "correlation-id", POSTERN__KEY_CORRELATION_ID, false, false },
	{ "composite", POSTERN__KEY_COMPOSITE, false, false },
	{ "json:", POSTERN__KEY_JSON, true, false },
	{ "hash:body", POSTERN__KEY_HASH_BODY, false, true },
	{ "callback", POSTERN__KEY_CALLBACK, false, true },
};
#define WORD_COUNT (sizeof(words) / sizeof(words[0]))

static const struct word *find_word(const char *part, size_t len) {
	for (size_t i = 0; i < WORD_COUNT; i++) {
		size_t word_len = strlen(words[i].text);
		bool fits = words[i].has_argument ? len > word_len : len == word_len;
		if (fits && memcmp(part, words[i].text, word_len) == 0) {
			return &words[i];
		}
	}
	return NULL;
}

/* A header's name consists of the characters that HTTP allows in one. */
static bool is_header_name(const char *text, size_t len) {
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
					  (c >= '0' && c <= '9');
		if (!letter && (!c || !strchr("!#$%&'*-.^_`|~", c))) {
			return false;
		}
	}
	return len > 0 && len <= POSTERN_HEADER_NAME_LEN_MAX;
}

static int parse_part(struct postern__key_rule *rule, const char *part,
		size_t len, bool *alone_out, struct postern_error *error) {
	const struct word *word = find_word(part, len);
	if (!word) {
		return postern__fail(error, POSTERN_E_INVALID,
				"unknown key rule '%.*s': use id, header:NAME, correlation-id, "
				"composite, json:/POINTER, hash:body, or callback in a program",
				(int)len, part);
	}
	if (rule->part_count == POSTERN__KEY_PART_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the key rule '%s' has more than %d parts", rule->text,
				POSTERN__KEY_PART_COUNT_MAX);
	}
	size_t word_len = strlen(word->text);
	struct postern__key_part *added = &rule->parts[rule->part_count++];
	*added = (struct postern__key_part){
		.kind = word->kind,
		.text = part + word_len,
		.len = len - word_len,
	};
	*alone_out = word->alone;
	if (word->kind == POSTERN__KEY_JSON) {
		return postern__json_pointer_check(added->text, added->len, error);
	}
	if (word->kind == POSTERN__KEY_HEADER &&
			!is_header_name(added->text, added->len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.*s' is not the name of a header", (int)added->len,
				added->text);
	}
	return POSTERN_OK;
}

/* The end of the part at `at`: before a '+' that begins another rule. A pointer
   may contain one. */
static size_t part_end(const char *text, size_t at) {
	for (; text[at]; at++) {
		if (text[at] == '+' &&
				find_word(text + at + 1, strcspn(text + at + 1, "+"))) {
			break;
		}
	}
	return at;
}

int postern__key_rule_parse(struct postern__key_rule *rule, const char *text,
		struct postern_error *error) {
	const char *given = text ? text : "id";
	size_t len = strnlen(given, POSTERN__KEY_RULE_LEN_MAX + 1);
	if (len > POSTERN__KEY_RULE_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the key rule is longer than %d bytes",
				POSTERN__KEY_RULE_LEN_MAX);
	}
	*rule = (struct postern__key_rule){ 0 };
	memcpy(rule->text, given, len);
	bool alone = false;
	int r = POSTERN_OK;
	size_t at = 0;
	do {
		size_t end = part_end(rule->text, at);
		bool this_alone = false;
		r = parse_part(rule, rule->text + at, end - at, &this_alone, error);
		alone = alone || this_alone;
		at = end + 1;
	} while (!r && at <= len);
	if (!r && alone && rule->part_count > 1) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"key rule '%s': id, hash:body and callback cannot be joined "
				"with others",
				rule->text);
	}
	return r;
}

bool postern__key_rule_is_id(const struct postern__key_rule *rule) {
	return rule->parts[0].kind == POSTERN__KEY_ID;
}

bool postern__key_rule_is_callback(const struct postern__key_rule *rule) {
	return rule->parts[0].kind == POSTERN__KEY_CALLBACK;
}

bool postern__key_rule_is_composite(const struct postern__key_rule *rule) {
	for (size_t i = 0; i < rule->part_count; i++) {
		if (rule->parts[i].kind == POSTERN__KEY_COMPOSITE) {
			return true;
		}
	}
	return false;
}

static int fail_none(const struct postern__key_part *part, const char *why,
		struct postern_error *error) {
	static const char *const names[] = {
		[POSTERN__KEY_ID] = "id",
		[POSTERN__KEY_HEADER] = "header:",
		[POSTERN__KEY_CORRELATION_ID] = "correlation-id",
		[POSTERN__KEY_COMPOSITE] = "composite",
		[POSTERN__KEY_JSON] = "json:",
		[POSTERN__KEY_HASH_BODY] = "hash:body",
		[POSTERN__KEY_CALLBACK] = "callback",
	};
	return postern__fail(error, POSTERN_E_NOTFOUND,
			"the message has no key: %s%.*s %s", names[part->kind],
			(int)part->len, part->text, why);
}

static int fail_long(struct postern_error *error) {
	return postern__fail(error, POSTERN_E_INVALID,
			"the message's key is longer than %d bytes",
			POSTERN__KEY_TEXT_LEN_MAX);
}

/* Append to the key. Joined parts are separated by '+', and '+' and '%' in them
   are escaped. */
static int append(struct postern__key_text *key, const char *text, size_t len,
		bool joined, struct postern_error *error) {
	for (size_t i = 0; i < len; i++) {
		bool escape = joined && (text[i] == '+' || text[i] == '%');
		if (key->len + (escape ? 3 : 1) > POSTERN__KEY_TEXT_LEN_MAX) {
			return fail_long(error);
		}
		if (escape) {
			memcpy(key->text + key->len, text[i] == '+' ? "%2B" : "%25", 3);
			key->len += 3;
		} else {
			key->text[key->len++] = text[i];
		}
	}
	return POSTERN_OK;
}

static int apply_header(const struct postern__key_part *part,
		const struct postern_message *message, const char **out,
		struct postern_error *error) {
	const char *value = NULL;
	for (size_t i = 0; i < message->header_count; i++) {
		const struct postern_header *header = &message->headers[i];
		if (strlen(header->name) != part->len ||
				strncasecmp(header->name, part->text, part->len) != 0) {
			continue;
		}
		if (value) {
			return fail_none(part, "is there twice", error);
		}
		value = header->value;
	}
	*out = value;
	return value ? POSTERN_OK : fail_none(part, "is missing", error);
}

static int apply_text(const struct postern__key_part *part, const char *text,
		bool joined, struct postern__key_text *key,
		struct postern_error *error) {
	if (!text) {
		return fail_none(part, "is missing", error);
	}
	return text[0] ? append(key, text, strlen(text), joined, error)
				   : fail_none(part, "is empty", error);
}

static int apply_composite(const struct postern__key_part *part,
		const struct postern_message *message, const char *handler, bool joined,
		struct postern__key_text *key, struct postern_error *error) {
	const char *id = message->correlation_id;
	if (!id || !id[0]) {
		return fail_none(part, "needs a correlation id", error);
	}
	int r = POSTERN_OK;
	if (handler) {
		r = append(key, handler, strlen(handler), joined, error);
		r = r ? r : append(key, ":", 1, false, error);
	}
	return r ? r : append(key, id, strlen(id), joined, error);
}

/* The characters of a string are at most as many as it has in the text. */
static int append_string(const struct postern__key_part *part,
		const struct postern__json_value *value, bool joined,
		struct postern__key_text *key, struct postern_error *error) {
	/* Each character may have been an escape of six bytes. */
	char text[6 * POSTERN__KEY_TEXT_LEN_MAX + 2];
	if (value->len > sizeof(text)) {
		return fail_long(error);
	}
	size_t len = postern__json_unescape(value, text);
	return len ? append(key, text, len, joined, error)
			   : fail_none(part, "is empty", error);
}

static int append_value(const struct postern__key_part *part,
		const struct postern__json_value *value, bool joined,
		struct postern__key_text *key, struct postern_error *error) {
	switch (value->type) {
	case POSTERN__JSON_STRING:
		return append_string(part, value, joined, key, error);
	case POSTERN__JSON_NUMBER:
	case POSTERN__JSON_TRUE:
	case POSTERN__JSON_FALSE:
		return append(key, value->text, value->len, joined, error);
	case POSTERN__JSON_NULL: return fail_none(part, "is null", error);
	case POSTERN__JSON_OBJECT: return fail_none(part, "is an object", error);
	case POSTERN__JSON_ARRAY:
	default: return fail_none(part, "is an array", error);
	}
}

static int apply_json(const struct postern__key_part *part,
		const struct postern_message *message, bool joined,
		struct postern__key_text *key, struct postern_error *error) {
	struct postern__json_value root;
	struct postern__json_value value;
	if (postern__json_scan(message->body ? message->body : "",
				message->body_len, &root, NULL)) {
		return fail_none(part, "needs a body in JSON", error);
	}
	switch (postern__json_find(&root, part->text, part->len, &value)) {
	case POSTERN__JSON_FOUND:
		return append_value(part, &value, joined, key, error);
	case POSTERN__JSON_TWICE: return fail_none(part, "is there twice", error);
	case POSTERN__JSON_ABSENT:
	default: return fail_none(part, "is missing", error);
	}
}

static int apply_callback(const struct postern__key_rule *rule,
		const struct postern_message *message, struct postern__key_text *key,
		struct postern_error *error) {
	int len =
			rule->callback(rule->context, message, key->text, sizeof key->text);
	if (len <= 0) {
		return fail_none(&rule->parts[0], "found none", error);
	}
	if (len > POSTERN__KEY_TEXT_LEN_MAX) {
		return fail_long(error);
	}
	key->len = (size_t)len;
	return POSTERN_OK;
}

static int apply_part(const struct postern__key_part *part,
		const struct postern_message *message, const char *handler, bool joined,
		struct postern__key_text *key, struct postern_error *error) {
	const char *text = message->correlation_id;
	int r = POSTERN_OK;
	switch (part->kind) {
	case POSTERN__KEY_HEADER:
		r = apply_header(part, message, &text, error);
		return r ? r : apply_text(part, text, joined, key, error);
	case POSTERN__KEY_CORRELATION_ID:
		return apply_text(part, text, joined, key, error);
	case POSTERN__KEY_COMPOSITE:
		return apply_composite(part, message, handler, joined, key, error);
	case POSTERN__KEY_JSON:
		return apply_json(part, message, joined, key, error);
	case POSTERN__KEY_ID:
	case POSTERN__KEY_HASH_BODY:
	case POSTERN__KEY_CALLBACK:
	default: return POSTERN_OK; /* alone: not made of parts */
	}
}

static int check_text(const struct postern__key_text *key,
		struct postern_error *error) {
	/* A header may be of another encoding; a string in JSON may have escaped
	   control characters. */
	if (!postern__utf8_valid(key->text, key->len) ||
			postern__utf8_has_control(key->text, key->len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the message's key is not valid UTF-8 without control "
				"characters");
	}
	return POSTERN_OK;
}

int postern__key_rule_apply(const struct postern__key_rule *rule,
		const struct postern_message *message, const char *handler,
		struct postern__key_text *room, struct postern_dedupe_key *out,
		struct postern_error *error) {
	if (postern__key_rule_is_id(rule)) {
		*out = postern__dedupe_key_by_id(message);
		return POSTERN_OK;
	}
	if (rule->parts[0].kind == POSTERN__KEY_HASH_BODY) {
		*out = (struct postern_dedupe_key){
			.value = message->body_len ? message->body : "",
			.value_len = message->body_len,
		};
		return POSTERN_OK;
	}
	bool joined = rule->part_count > 1;
	bool calls = postern__key_rule_is_callback(rule);
	room->len = 0;
	int r = calls ? apply_callback(rule, message, room, error) : POSTERN_OK;
	for (size_t i = 0; !r && !calls && i < rule->part_count; i++) {
		if (i > 0) {
			r = append(room, "+", 1, false, error);
		}
		if (!r) {
			r = apply_part(&rule->parts[i], message, handler, joined, room,
					error);
		}
	}
	if (!r) {
		r = check_text(room, error);
	}
	if (r) {
		return r;
	}
	room->text[room->len] = '\0';
	*out = (struct postern_dedupe_key){
		.value = room->text,
		.value_len = room->len,
	};
	return POSTERN_OK;
}
