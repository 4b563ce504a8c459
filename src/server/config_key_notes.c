/* SPDX-License-Identifier: MIT */
/*
 * Key rules that are valid and probably not what was meant: those that make two
 * messages of one correlation, or of two types, copies of each other, and those
 * that look at a header that no message has.
 */

#include <postern/message.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/pattern.h"
#include "core/key_rules.h"
#include "server/api.h"
#include "server/config.h"

#define TEXT_MAX 512

struct notes {
	const struct postern__config *config;
	postern__config_remark *note;
	void *context;
	const char *what; /* "channel" or "handler" */
	const char *name;
	unsigned line;
	unsigned column;
};

static void add(const struct notes *notes, const char *format, ...)
		__attribute__((format(printf, 2, 3)));

static void add(const struct notes *notes, const char *format, ...) {
	char text[TEXT_MAX];
	va_list args;
	int len = snprintf(text, sizeof text,
			"%s:%u:%u: %s '%s': ", postern__config_name(notes->config),
			notes->line, notes->column, notes->what, notes->name);
	if (len < 0 || (size_t)len >= sizeof text) {
		return; /* the names alone are longer than any note */
	}
	va_start(args, format);
	(void)vsnprintf(text + len, sizeof text - (size_t)len, format, args);
	va_end(args);
	notes->note(notes->context, text);
}

/* Attributes of a CloudEvent are not headers; its extensions are. */
static bool is_attribute(const char *name) {
	static const char *const attributes[] = { "id", "source", "type", "subject",
		"time", "specversion", "datacontenttype", "correlationid",
		"traceparent" };
	if (strncasecmp(name, "ce-", 3) != 0) {
		return false;
	}
	for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
		if (strcasecmp(name + 3, attributes[i]) == 0) {
			return true;
		}
	}
	return false;
}

static void note_header(const struct notes *notes,
		const struct postern__key_part *part) {
	char name[POSTERN_HEADER_NAME_LEN_MAX + 1];
	(void)snprintf(name, sizeof name, "%.*s", (int)part->len, part->text);
	bool is_correlation = strcasecmp(name, "x-correlation-id") == 0 ||
						  strcasecmp(name, "ce-correlationid") == 0;
	bool is_extension = strncasecmp(name, "ce-", 3) == 0 && !is_attribute(name);
	if (postern__api_keeps_header(name) || is_extension) {
		return;
	}
	add(notes,
			"the header '%s' of its key is not stored with a message that is "
			"sent over HTTP, which then has no key%s",
			name,
			is_correlation ? "; use the rule correlation-id"
						   : "; use another header");
}

/* Whether messages of several types have this rule. types: that a handler
   wants; NULL: all. */
static bool has_several_types(const char *pattern, const char *const *types,
		size_t type_count) {
	bool any = !pattern || strchr(pattern, '*');
	bool wants_one = types && type_count == 1 && !strchr(types[0], '*');
	return any && !wants_one;
}

static void note_rule(const struct notes *notes,
		const struct postern_key_rule *given, const char *const *types,
		size_t type_count) {
	struct postern__key_rule rule;
	if (postern__key_rule_parse(&rule, given->rule, NULL)) {
		return; /* refused elsewhere */
	}
	bool only_correlation = true;
	for (size_t i = 0; i < rule.part_count; i++) {
		enum postern__key_part_kind kind = rule.parts[i].kind;
		only_correlation =
				only_correlation && (kind == POSTERN__KEY_CORRELATION_ID ||
											kind == POSTERN__KEY_COMPOSITE);
		if (kind == POSTERN__KEY_HEADER) {
			note_header(notes, &rule.parts[i]);
		}
	}
	if (only_correlation && has_several_types(given->type, types, type_count)) {
		add(notes,
				"by its key '%s' two messages of one correlation are copies, "
				"also of different types: the second is %s; give each type a "
				"rule of its own: {order.placed: \"%s\", …}",
				rule.text,
				strcmp(notes->what, "channel") == 0 &&
								!postern__key_rule_is_composite(&rule)
						? "a duplicate"
						: "suppressed",
				rule.text);
	}
}

static bool has_json(const struct postern_key_rule *given) {
	struct postern__key_rule rule;
	bool found = false;
	if (postern__key_rule_parse(&rule, given->rule, NULL)) {
		return false;
	}
	for (size_t i = 0; i < rule.part_count; i++) {
		found = found || rule.parts[i].kind == POSTERN__KEY_JSON;
	}
	return found;
}

/* The rule of a channel that messages of a type have. */
static const struct postern_key_rule *
rule_of_type(const struct postern__config_channel *channel, const char *type) {
	for (size_t i = 0; i < channel->key_rule_count; i++) {
		const struct postern_key_rule *rule = &channel->key_rules[i];
		if (!rule->type || postern__pattern_match(rule->type,
								   strlen(rule->type), type, strlen(type))) {
			return rule;
		}
	}
	return NULL;
}

/* Two types that handlers of the channel name and that have this rule. */
static void note_joined_types(const struct notes *notes,
		const struct postern__config_channel *channel,
		const struct postern_key_rule *rule) {
	const char *first = NULL;
	for (size_t i = 0; i < channel->handler_count; i++) {
		const struct postern__config_handler *handler = &channel->handlers[i];
		for (size_t j = 0; j < handler->type_count; j++) {
			const char *type = handler->types[j];
			if (rule_of_type(channel, type) != rule ||
					(first && strcmp(first, type) == 0)) {
				continue;
			}
			if (first) {
				add(notes,
						"by its key '%s' messages of the types '%s' and '%s' "
						"with the same value are copies; give each type a rule "
						"of its own: {%s: \"%s\", …}",
						rule->rule, first, type, first, rule->rule);
				return;
			}
			first = type;
		}
	}
}

void postern__config_key_notes(const struct postern__config *config,
		postern__config_remark *note, void *context) {
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		struct notes notes = { config, note, context, "channel", channel->name,
			channel->line, channel->column };
		for (size_t j = 0; j < channel->key_rule_count; j++) {
			note_rule(&notes, &channel->key_rules[j], NULL, 0);
			if (has_json(&channel->key_rules[j])) {
				note_joined_types(&notes, channel, &channel->key_rules[j]);
			}
		}
		for (size_t j = 0; j < channel->handler_count; j++) {
			const struct postern__config_handler *handler =
					&channel->handlers[j];
			notes = (struct notes){ config, note, context, "handler",
				handler->key, handler->line, handler->column };
			for (size_t k = 0; k < handler->key_rule_count; k++) {
				note_rule(&notes, &handler->key_rules[k], handler->types,
						handler->type_count);
			}
		}
	}
}
