/* SPDX-License-Identifier: MIT */
/*
 * `postern key test`: the keys that the rules of a channel make of a message,
 * and of a guard the markers, as a word for `postern mark`. Only the
 * configuration is read.
 */

#include <jansson.h>
#include <postern/error.h>
#include <postern/message.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json_scan.h"
#include "base/pattern.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "cli/send.h"
#include "cli/table.h"
#include "core/identity.h"
#include "core/key_rules.h"
#include "server/config.h"
#include "source/cloudevent.h"

/* Longer than any key, with what stands before it. */
#define SHOWN_LEN_MAX \
	(POSTERN_ATTRIBUTE_LEN_MAX + POSTERN__KEY_TEXT_LEN_MAX + 64)

#define GENERATED_ID "(generated)"

struct trial {
	const struct postern__cli *cli;
	const struct postern__config_channel *channel;
	struct postern__key_rules rules; /* of the channel */
	struct postern_message message;
	struct postern_header headers[POSTERN_HEADER_COUNT_MAX];
	struct postern__arena arena;
	struct postern__buf body;
	json_t *items;
	bool missing; /* a key is */
};

/* A key as people read it. Writes a text that is never too long. */
static void show_key(const struct postern_message *message,
		const struct postern_dedupe_key *key, const char *handler,
		char out[SHOWN_LEN_MAX]) {
	if (key->is_id) {
		(void)snprintf(out, SHOWN_LEN_MAX, "%s of source %s", key->value,
				key->source);
	} else if (key->value == message->body) {
		(void)snprintf(out, SHOWN_LEN_MAX, "the body, %zu bytes",
				key->value_len);
	} else {
		(void)snprintf(out, SHOWN_LEN_MAX, "%s%s%.*s", handler ? handler : "",
				handler ? ":" : "", (int)key->value_len, key->value);
	}
}

/* Adds the key as the value of a marker, if people can type it. */
static void add_marker(const struct trial *trial,
		const struct postern_dedupe_key *key, json_t *item) {
	bool typed = key->value != trial->message.body &&
				 !(key->is_id && strcmp(key->value, GENERATED_ID) == 0);
	size_t len;
	char *marker =
			typed ? postern__marker_value(key, trial->channel->name, &len)
				  : NULL;
	if (marker) {
		(void)json_object_set_new(item, "marker", json_stringn(marker, len));
	}
	free(marker);
}

/* Adds a row: the key by a rule, or why there is none. rule NULL: the one that
   follows from the message's. */
static void add_item(struct trial *trial, const char *handler,
		const struct postern__typed_rule *rule, const char *rule_text) {
	struct postern__key_text room;
	struct postern_dedupe_key key;
	struct postern_error error;
	char shown[SHOWN_LEN_MAX];
	json_t *item = json_pack("{s:s?, s:s, s:s?, s:n, s:n}", "handler", handler,
			"rule", rule ? rule->rule.text : rule_text, "type",
			rule ? rule->type : NULL, "key", "reason");
	key = postern__dedupe_key_by_id(&trial->message);
	int r = rule ? postern__typed_rule_apply(rule, &trial->message, NULL, &room,
						   &key, &error)
				 : POSTERN_OK;
	if (r) {
		trial->missing = true;
		(void)json_object_set_new(item, "reason", json_string(error.text));
	} else {
		bool composite = rule && postern__key_rule_is_composite(&rule->rule);
		show_key(&trial->message, &key, composite ? handler : NULL, shown);
		(void)json_object_set_new(item, "key", json_string(shown));
		if (trial->channel->values.mode == POSTERN_MODE_GUARD) {
			add_marker(trial, &key, item);
		}
	}
	(void)json_array_append_new(trial->items, item);
}

/* The handler's own key; none if only the key of the message counts. */
static int add_handler(struct trial *trial,
		const struct postern__config_handler *handler,
		struct postern_error *error) {
	struct postern__key_rules rules;
	bool wants = handler->type_count == 0;
	const char *type = trial->message.type;
	for (size_t i = 0; !wants && i < handler->type_count; i++) {
		wants = postern__pattern_match(handler->types[i],
				strlen(handler->types[i]), type, strlen(type));
	}
	int r = postern__key_rules_init(&rules, handler->key_rules,
			handler->key_rule_count, handler->key, error);
	if (r == POSTERN_OK) {
		const struct postern__typed_rule *rule =
				postern__key_rules_of_handler(&trial->rules, &rules, type);
		if (wants && rule) {
			add_item(trial, handler->key, rule, NULL);
		} else {
			(void)json_array_append_new(trial->items,
					json_pack("{s:s, s:n, s:n, s:n, s:s}", "handler",
							handler->key, "rule", "type", "key", "reason",
							wants ? "as the message"
								  : "does not want the type"));
		}
	}
	postern__key_rules_finish(&rules);
	return r;
}

static int make_keys(struct trial *trial, struct postern_error *error) {
	const struct postern__config_channel *channel = trial->channel;
	int r = postern__key_rules_init(&trial->rules, channel->key_rules,
			channel->key_rule_count, channel->name, error);
	if (r == POSTERN_OK) {
		add_item(trial, NULL,
				postern__key_rules_of_message(&trial->rules,
						trial->message.type),
				"id");
	}
	for (size_t i = 0; r == POSTERN_OK && i < channel->handler_count; i++) {
		r = add_handler(trial, &channel->handlers[i], error);
	}
	return r;
}

static int add_header(struct trial *trial, const char *pair) {
	char *name = postern__arena_strdup(&trial->arena, pair);
	char *value = name ? strchr(name, '=') : NULL;
	size_t count = trial->message.header_count;
	if (!value || value == name) {
		return postern__cli_usage(trial->cli,
				"--header '%.80s' is not NAME=VALUE", pair);
	}
	if (count == POSTERN_HEADER_COUNT_MAX) {
		return postern__cli_usage(trial->cli, "too many headers");
	}
	*value++ = '\0';
	trial->headers[count] =
			(struct postern_header){ .name = name, .value = value };
	trial->message.headers = trial->headers;
	trial->message.header_count++;
	return POSTERN__EXIT_OK;
}

/* A body with its attributes as flags. */
static int take_raw(struct trial *trial) {
	const struct postern__args *args = &trial->cli->args;
	const char *id = postern__args_value(args, "id");
	const char *type = postern__args_value(args, "type");
	trial->message.id = id ? id : GENERATED_ID;
	trial->message.source = postern__args_value(args, "source");
	trial->message.type = type ? type : "message";
	trial->message.correlation_id = postern__args_value(args, "correlation-id");
	trial->message.body = postern__buf_text(&trial->body);
	trial->message.body_len = trial->body.len;
	size_t index = 0;
	const char *pair;
	int r = POSTERN__EXIT_OK;
	while (r == POSTERN__EXIT_OK &&
			(pair = postern__args_next(args, "header", &index))) {
		r = add_header(trial, pair);
	}
	return r;
}

static int take_event(struct trial *trial, const char *path) {
	static const char *const raw_flags[] = { "id", "type", "source", "header",
		"correlation-id" };
	struct postern__json_value event;
	struct postern_error error;
	for (size_t i = 0; i < sizeof raw_flags / sizeof raw_flags[0]; i++) {
		if (postern__args_has(&trial->cli->args, raw_flags[i])) {
			return postern__cli_usage(trial->cli,
					"--%s is for --raw: a CloudEvent has its own attributes",
					raw_flags[i]);
		}
	}
	int r = postern__json_scan(postern__buf_text(&trial->body), trial->body.len,
			&event, &error);
	if (r == POSTERN_OK) {
		r = postern__cloudevent_read(&event, &trial->arena, &trial->message,
				&error);
	}
	if (r) {
		postern__err_print("%s is not a CloudEvent in JSON: %s; for a body by "
						   "itself use --raw",
				path, error.text);
		return POSTERN__EXIT_FAILED;
	}
	return POSTERN__EXIT_OK;
}

/* A marker as one word for a shell; NULL without one. */
static void add_word(struct postern__table *table, const char *marker) {
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
								"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
								"0123456789-_.:/@%+=,";
	struct postern__buf word;
	if (!marker || !marker[strspn(marker, plain)]) {
		postern__table_text(table, marker);
		return;
	}
	postern__buf_init(&word, 2 * strlen(marker) + 8);
	postern__buf_append_text(&word, "$'");
	for (const char *at = marker; *at; at++) {
		if (*at == '\n' || *at == '\'' || *at == '\\') {
			postern__buf_append_char(&word, '\\');
		}
		postern__buf_append_char(&word, *at == '\n' ? 'n' : *at);
	}
	postern__buf_append_text(&word, "'");
	postern__table_text(table, postern__buf_text(&word));
	postern__buf_finish(&word);
}

static void print_table(const struct trial *trial) {
	static const struct postern__column columns[] = {
		{ "HANDLER", false },
		{ "RULE", false },
		{ "FOR TYPE", false },
		{ "KEY", false },
		{ "MARKER", false },
	};
	bool guards = trial->channel->values.mode == POSTERN_MODE_GUARD;
	struct postern__table table;
	size_t index;
	json_t *item;
	postern__table_init(&table, columns,
			sizeof columns / sizeof columns[0] - (guards ? 0 : 1));
	json_array_foreach(trial->items, index, item) {
		const char *handler = postern__reply_text(item, "handler");
		const char *key = postern__reply_text(item, "key");
		const char *rule = postern__reply_text(item, "rule");
		postern__table_text(&table, handler ? handler : "(message)");
		postern__table_text(&table, rule);
		postern__table_text(&table, postern__reply_text(item, "type"));
		postern__table_coloured(&table,
				key ? key : postern__reply_text(item, "reason"),
				key    ? POSTERN__PLAIN
				: rule ? POSTERN__BAD
					   : POSTERN__FAINT);
		if (guards) {
			add_word(&table, postern__reply_text(item, "marker"));
		}
	}
	if (!postern__table_print(&table)) {
		postern__err_print("out of memory");
	}
	postern__table_finish(&table);
}

static int run_trial(struct trial *trial, const char *path) {
	struct postern_error error;
	size_t len_max = 2 * trial->channel->values.max_message_size + 65536;
	postern__buf_init(&trial->body, len_max + 1);
	int r = postern__send_read_file(path, len_max, &trial->body);
	if (r == POSTERN__EXIT_OK) {
		r = postern__args_has(&trial->cli->args, "raw")
					? take_raw(trial)
					: take_event(trial, path);
	}
	if (r) {
		return r;
	}
	if (!trial->message.source) {
		trial->message.source = trial->channel->name;
	}
	if (make_keys(trial, &error)) {
		postern__err_print("%s", error.text);
		return POSTERN__EXIT_FAILED;
	}
	if (trial->cli->json) {
		json_t *answer =
				json_pack("{s:s, s:s, s:O}", "channel", trial->channel->name,
						"type", trial->message.type, "keys", trial->items);
		postern__reply_print(answer);
		json_decref(answer);
	} else {
		print_table(trial);
	}
	if (trial->missing) {
		postern__err_print("key: the message has no key by one of the rules");
		return POSTERN__EXIT_FAILED;
	}
	return POSTERN__EXIT_OK;
}

int postern__command_key(struct postern__cli *cli) {
	const char *verb = postern__args_operand(&cli->args, 0);
	const char *name = postern__args_operand(&cli->args, 1);
	if (strcmp(verb, "test") != 0) {
		return postern__cli_usage(cli, "unknown '%.80s'; it is 'test'", verb);
	}
	int r = postern__cli_configure(cli);
	if (r) {
		return r;
	}
	struct trial *trial = calloc(1, sizeof *trial);
	if (!trial) {
		postern__err_print("out of memory");
		return POSTERN__EXIT_FAILED;
	}
	trial->cli = cli;
	trial->message.size = sizeof trial->message;
	trial->items = json_array();
	trial->channel = postern__config_channel_named(cli->config, name);
	postern__arena_init(&trial->arena);
	r = POSTERN__EXIT_NOTFOUND;
	if (trial->channel) {
		r = run_trial(trial, postern__args_operand(&cli->args, 2));
	} else {
		postern__err_print("key: no channel '%s'", name);
	}
	json_decref(trial->items);
	postern__key_rules_finish(&trial->rules);
	postern__buf_finish(&trial->body);
	postern__arena_finish(&trial->arena);
	free(trial);
	return r;
}
