/* SPDX-License-Identifier: MIT */
/*
 * The option table, and the functions of a row: parse a text, format the value
 * as text.
 *
 * A row that is LATER is known, so that its name is not reported as unknown and
 * its default may be written, but any other value is refused with "not in this
 * version".
 */

#include "server/config_options.h"

#include <assert.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <postern/runner.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/redact.h"
#include "base/text.h"
#include "server/config.h"
#include "server/config_store.h"
#include "server/socket.h"

#define AT(member) offsetof(struct postern__config_values, member)
/* For a LATER row, whose value is not used. */
#define NOWHERE SIZE_MAX

#define ROOT POSTERN__IN_ROOT
#define DEFAULTS POSTERN__IN_DEFAULTS
#define STORES POSTERN__IN_STORE
#define CHANNEL POSTERN__IN_CHANNEL
#define HANDLER POSTERN__IN_HANDLER
/* Options of a store. */
#define BOX (DEFAULTS | STORES)
/* Options of a delivery. */
#define POLICY (DEFAULTS | STORES | CHANNEL | HANDLER)

#define NONE POSTERN__OPTION_NONE
#define AUTO POSTERN__OPTION_AUTO
#define SECRET POSTERN__OPTION_SECRET
#define LATER POSTERN__OPTION_LATER

#define TEXT POSTERN__OPTION_TEXT
#define STORE POSTERN__OPTION_STORE
#define LISTEN POSTERN__OPTION_LISTEN
#define DURATION POSTERN__OPTION_DURATION
#define SIZE POSTERN__OPTION_SIZE
#define COUNT POSTERN__OPTION_COUNT
#define SWITCH POSTERN__OPTION_SWITCH
#define CHOICE POSTERN__OPTION_CHOICE
#define BACKOFF POSTERN__OPTION_BACKOFF

#define MS_MAX ((uint64_t)POSTERN_DURATION_MS_MAX)
/* A larger number of deliveries is a typing error. */
#define MANY 1000000
/* 16 GiB: more memory for waiting work is not useful on any machine. */
#define QUEUE_BYTES_MAX ((uint64_t)16 << 30)

/* clang-format off */
static const struct postern__option options[] = {
	/* The process. */
	{ "store", STORE, AT(store), ROOT, SECRET, 0, 0, NULL, "sqlite:postern.db", "where messages are kept: sqlite:FILE, postgres://USER@HOST/DATABASE; memory: beside other stores, or for bench" },
	{ "listen", LISTEN, AT(listen), ROOT, NONE, 0, 0, NULL, "none", "additional address for HTTP: unix:PATH" },
	{ "ingest_listen", TEXT, NOWHERE, ROOT, LATER, 0, 0, NULL, "none", "second address, for ingest only" },
	{ "metrics", SWITCH, NOWHERE, ROOT, LATER, 0, 0, NULL, "on", "serve /metrics" },
	{ "shutdown_grace", DURATION, AT(shutdown_grace_ms), ROOT, 0, 0, MS_MAX, NULL, "30s", "how long running handlers may finish at a stop" },

	/* The box and its runner. */
	{ "workers", COUNT, AT(workers), ROOT | STORES, 0, 1, POSTERN_WORKER_COUNT_MAX, NULL, "4", "threads that run handlers, for each store" },
	{ "polling_interval", DURATION, AT(polling_interval_ms), BOX, 0, 1, MS_MAX, NULL, "30s", "how often to poll for due work" },
	{ "restart_delay", DURATION, AT(restart_delay_ms), BOX, 0, 1, MS_MAX, NULL, "5s", "pause after an internal error" },
	{ "batch_size", COUNT, AT(batch_size), BOX, 0, 1, POSTERN_ACCEPT_BATCH_MAX, NULL, "100", "deliveries per claim" },
	{ "command_timeout", DURATION, AT(command_timeout_ms), BOX, 0, 1, MS_MAX, NULL, "30s", "how long a write may wait for the store" },
	{ "run_queue_max", COUNT, AT(run_queue_max), BOX, 0, 1, MANY, NULL, "10000", "leased deliveries in memory" },
	{ "run_queue_bytes_max", SIZE, AT(run_queue_bytes_max), BOX, 0, 1, QUEUE_BYTES_MAX, NULL, "64MiB", "leased deliveries in memory, in bytes" },
	{ "orphans", CHOICE, AT(orphans), BOX, 0, 0, 0, "poison|hold|fail", "poison", "open deliveries whose handler no running node has" },
	{ "require_inbox", CHOICE, AT(require_inbox), DEFAULTS, 0, 0, 0, "none|warn|fail", "none", "channels without an inbox, which a configuration cannot have in this version" },
	{ "command_retries", COUNT, AT(command_retries), BOX, 0, 0, 100, NULL, "3", "how often an operation of the store is retried if its connection is lost" },
	{ "schema", TEXT, AT(schema), BOX, 0, 0, 0, NULL, "postern", "PostgreSQL: schema of the store" },
	{ "connections", COUNT, AT(connections), BOX, 0, 2, 64, NULL, "8", "PostgreSQL: maximum number of connections" },
	{ "node_lease", DURATION, AT(node_lease_ms), BOX, 0, 1, MS_MAX, NULL, "15s", "how long a node counts as live after its last renewal" },
	{ "listen_url", TEXT, AT(listen_url), BOX, NONE | SECRET, 0, 0, NULL, "none", "PostgreSQL: URL for LISTEN, past a pooler (none: the URL of the store)" },
	{ "processing", CHOICE, AT(processing), BOX, 0, 0, 0, "parallel|exclusive", "parallel", "which nodes of a store run handlers: all, or the one that holds the lock" },
	{ "lock_name", TEXT, AT(lock_name), BOX, 0, 0, 0, NULL, "InboxProcessor_{store}", "name of the lock of exclusive processing" },
	{ "cleanup_lock_name", TEXT, AT(cleanup_lock_name), BOX, 0, 0, 0, NULL, "InboxCleanup_{store}", "name of the lock of the cleanup" },
	{ "lock_acquire_timeout", DURATION, AT(lock_acquire_timeout_ms), BOX, 0, 1, MS_MAX, NULL, "60s", "how long to wait for the lock before that is logged" },
	{ "cleanup_interval", DURATION, AT(cleanup_interval_ms), BOX, 0, 1, MS_MAX, NULL, "1h", "how often to remove what has expired" },
	{ "cleanup_batch", COUNT, AT(cleanup_batch), BOX, 0, 1, MANY, NULL, "10000", "maximum number of messages or ids removed in one commit" },
	{ "retention.payload", DURATION, AT(retention_payload_ms), BOX | CHANNEL, NONE, 1, MS_MAX, NULL, "none", "how long completed messages are kept" },
	{ "retention.dedupe", DURATION, AT(retention_dedupe_ms), BOX | CHANNEL, NONE, 1, MS_MAX, NULL, "none", "how long ids are remembered" },

	/* A delivery. */
	{ "max_attempts", COUNT, AT(max_attempts), POLICY, 0, 0, POSTERN_ATTEMPTS_MAX, NULL, "5", "attempts in total before a delivery is poisoned" },
	{ "max_retry_delay", DURATION, AT(max_retry_delay_ms), POLICY, 0, 0, MS_MAX, NULL, "5m", "longest pause between attempts" },
	{ "backoff", BACKOFF, AT(backoff_ms), POLICY, 0, 0, MS_MAX, NULL, "exponential", "pauses between attempts: exponential, or a list" },
	{ "lease", DURATION, AT(lease_ms), POLICY, 0, 1, MS_MAX, NULL, "5m", "when a handler that still runs is reported as stuck" },
	{ "timeout", DURATION, AT(timeout_ms), POLICY, NONE | AUTO, 1, MS_MAX, NULL, "default", "how long one attempt may take (default: none, sql 5s)" },
	{ "concurrency", COUNT, AT(concurrency), POLICY, NONE, 1, MANY, NULL, "none", "attempts of one handler at the same time" },
	{ "commit_batch", COUNT, AT(commit_batch), POLICY, 0, 1, POSTERN_COMMIT_BATCH_MAX, NULL, "1", "deliveries of a sql handler per commit" },
	{ "max_crashes", COUNT, AT(max_crashes), POLICY, 0, 1, POSTERN_ATTEMPTS_MAX, NULL, "3", "crashes of the process before a delivery is poisoned" },
	{ "on_poisoned_duplicate", CHOICE, AT(on_poisoned_duplicate), POLICY, 0, 0, 0, "ignore|retry", "ignore", "what a duplicate does to a poisoned delivery" },
	{ "rate", TEXT, NOWHERE, POLICY, LATER, 0, 0, NULL, "none", "attempts per time" },

	/* A channel. */
	{ "max_message_size", SIZE, AT(max_message_size), BOX | CHANNEL, 0, 1, POSTERN_BODY_LEN_MAX, NULL, "1MiB", "longest body that is accepted" },
	{ "unrouted", CHOICE, AT(unrouted), CHANNEL, 0, 0, 0, "park|drop|reject", "park", "messages of a type no handler wants" },
	{ "on_conflict", CHOICE, AT(on_conflict), CHANNEL, 0, 0, 0, "reject|ignore", "reject", "known id with another body" },
	{ "allow_without_inbox", SWITCH, AT(allow_without_inbox), CHANNEL, 0, 0, 0, NULL, "off", "exempt from require_inbox" },
	{ "mode", CHOICE, NOWHERE, CHANNEL, LATER, 0, 0, "inbox|guard|direct", "inbox", "how messages reach handlers" },
	{ "key", TEXT, NOWHERE, CHANNEL | HANDLER, LATER, 0, 0, NULL, "id", "what identifies a message" },
	{ "missing_key", CHOICE, NOWHERE, CHANNEL, LATER, 0, 0, "reject|process", "reject", "messages without a key" },
	{ "order_by", TEXT, NOWHERE, CHANNEL, LATER, 0, 0, NULL, "none", "exact order per value" },
	{ "on_poison", CHOICE, NOWHERE, CHANNEL, LATER, 0, 0, "block|skip", "block", "what happens to messages behind a poisoned one" },
};
/* clang-format on */

#define OPTION_COUNT (sizeof options / sizeof options[0])
_Static_assert(OPTION_COUNT <= POSTERN__CONFIG_OPTION_COUNT_MAX,
		"an origin for every option");
/* A backoff list is a pointer followed by its count. */
_Static_assert(AT(backoff_count) == AT(backoff_ms) + sizeof(int64_t *),
		"pointer before length");

/* Prefix of a path to listen on. */
static const char unix_prefix[] = "unix:";

/* A value of any type, before it is stored in its member. */
struct parsed {
	uint64_t number; /* AUTO: UINT64_MAX */
	const char *text;
	const int64_t *list;
	size_t list_count;
};

const struct postern__option *postern__option_at(size_t index) {
	return index < OPTION_COUNT ? &options[index] : NULL;
}

const struct postern__option *postern__option_named(const char *name) {
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (strcmp(options[i].name, name) == 0) {
			return &options[i];
		}
	}
	return NULL;
}

size_t postern__option_index(const struct postern__option *option) {
	return (size_t)(option - options);
}

/* Whether a text that is not a quantity would be one with a smaller number. */
static bool is_too_large(const struct postern__option *option,
		const char *text) {
	size_t len = strspn(text, "0123456789");
	char smaller[16];
	int64_t ms;
	uint64_t bytes;
	(void)snprintf(smaller, sizeof smaller, "1%.14s", text + len);
	return len > 0 &&
		   (option->type == SIZE ? postern__size_parse(smaller, &bytes, NULL) ==
										   POSTERN_OK
								 : postern__duration_parse(smaller, &ms,
										   NULL) == POSTERN_OK);
}

static int parse_duration(const struct postern__option *option,
		const char *text, uint64_t *out, struct postern_error *error) {
	int64_t ms = -1;
	int r = postern__duration_parse(text, &ms, error);
	if (r != POSTERN_OK && !is_too_large(option, text)) {
		return r;
	}
	if (r != POSTERN_OK || (uint64_t)ms < option->min ||
			(uint64_t)ms > option->max) {
		char min[POSTERN__DURATION_TEXT_MAX];
		char max[POSTERN__DURATION_TEXT_MAX];
		postern__duration_format((int64_t)option->min, min);
		postern__duration_format((int64_t)option->max, max);
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.60s' is out of range; write %s to %s", text, min, max);
	}
	*out = (uint64_t)ms;
	return POSTERN_OK;
}

static int parse_size(const struct postern__option *option, const char *text,
		uint64_t *out, struct postern_error *error) {
	uint64_t bytes = 0;
	int r = postern__size_parse(text, &bytes, error);
	if (r != POSTERN_OK && !is_too_large(option, text)) {
		return r;
	}
	if (r != POSTERN_OK || bytes < option->min || bytes > option->max) {
		char min[POSTERN__SIZE_TEXT_MAX];
		char max[POSTERN__SIZE_TEXT_MAX];
		postern__size_format(option->min, min);
		postern__size_format(option->max, max);
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.60s' is out of range; write %s to %s", text, min, max);
	}
	*out = bytes;
	return POSTERN_OK;
}

static int parse_switch(const char *text, uint64_t *out,
		struct postern_error *error) {
	static const char *const words[] = { "off", "on", "false", "true", "no",
		"yes" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (strcmp(text, words[i]) == 0) {
			*out = i % 2;
			return POSTERN_OK;
		}
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"'%.80s' is not a switch; write on or off", text);
}

/* Choices are few and short: "poison|hold|fail". */
#define CHOICE_COUNT_MAX 4
#define CHOICES_LEN_MAX 64

struct choices {
	char room[CHOICES_LEN_MAX];
	const char *words[CHOICE_COUNT_MAX];
	size_t count;
};

static void split_choices(const struct postern__option *option,
		struct choices *out) {
	int len = snprintf(out->room, sizeof out->room, "%s", option->choices);
	assert(len > 0 && len < CHOICES_LEN_MAX);
	(void)len;
	out->count = 0;
	char *rest = out->room;
	for (char *word = strsep(&rest, "|"); word; word = strsep(&rest, "|")) {
		assert(out->count < CHOICE_COUNT_MAX);
		out->words[out->count++] = word;
	}
}

static int parse_choice(const struct postern__option *option, const char *text,
		uint64_t *out, struct postern_error *error) {
	struct choices choices;
	split_choices(option, &choices);
	for (size_t i = 0; i < choices.count; i++) {
		if (strcmp(choices.words[i], text) == 0) {
			*out = i;
			return POSTERN_OK;
		}
	}
	const char *near = postern__closest(text, choices.words, choices.count);
	if (near) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' is not one of %s; did you mean '%s'?", text,
				option->choices, near);
	}
	return postern__fail(error, POSTERN_E_INVALID, "'%.80s' is not one of %s",
			text, option->choices);
}

/* "exponential", or delays with commas between them. */
static int parse_backoff(const struct postern__option *option, const char *text,
		struct postern__arena *arena, struct parsed *out,
		struct postern_error *error) {
	int64_t delays[POSTERN_BACKOFF_COUNT_MAX];
	size_t count = 0;

	if (strcmp(text, "exponential") == 0) {
		return POSTERN_OK;
	}
	char *copy = postern__arena_strdup(arena, text);
	if (!copy) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (char *word = strsep(&copy, ","); word; word = strsep(&copy, ",")) {
		uint64_t ms;
		word += strspn(word, " ");
		if (count == POSTERN_BACKOFF_COUNT_MAX) {
			return postern__fail(error, POSTERN_E_INVALID,
					"more than %d delays", POSTERN_BACKOFF_COUNT_MAX);
		}
		int r = parse_duration(option, word, &ms, error);
		if (r != POSTERN_OK && error && count == 0 && !copy) {
			return postern__fail(error, r,
					"%s; or write 'exponential', or a list of pauses",
					error->text);
		}
		if (r != POSTERN_OK) {
			return r;
		}
		delays[count++] = (int64_t)ms;
	}
	int64_t *list = postern__arena_array(arena, count, sizeof *list);
	if (!list) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	memcpy(list, delays, count * sizeof *list);
	out->list = list;
	out->list_count = count;
	return POSTERN_OK;
}

static int parse_text(const char *text, struct postern__arena *arena,
		const char **out, struct postern_error *error) {
	if (text[0] == '\0') {
		return postern__fail(error, POSTERN_E_INVALID, "the value is empty");
	}
	*out = postern__arena_strdup(arena, text);
	if (!*out) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return POSTERN_OK;
}

/* Only the path is kept. */
static int parse_listen(const char *text, struct postern__arena *arena,
		const char **out, struct postern_error *error) {
	if (strncmp(text, unix_prefix, strlen(unix_prefix)) != 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' is not in this version; write unix:PATH", text);
	}
	text += strlen(unix_prefix);
	int r = postern__socket_path_check(text, error);
	return r == POSTERN_OK ? parse_text(text, arena, out, error) : r;
}

static int parse(const struct postern__option *option, const char *text,
		struct postern__arena *arena, struct parsed *out,
		struct postern_error *error) {
	int r;

	*out = (struct parsed){ 0 };
	if ((option->flags & NONE) && strcmp(text, "none") == 0) {
		return POSTERN_OK;
	}
	if ((option->flags & AUTO) && strcmp(text, "default") == 0) {
		out->number = UINT64_MAX;
		return POSTERN_OK;
	}
	switch (option->type) {
	case STORE:
		/* In YAML a text that ends with a colon must be quoted. */
		text = strcmp(text, "memory") == 0 ? "memory:" : text;
		r = postern__config_store_check(text, error);
		return r != POSTERN_OK ? r : parse_text(text, arena, &out->text, error);
	case LISTEN: return parse_listen(text, arena, &out->text, error);
	case TEXT: return parse_text(text, arena, &out->text, error);
	case DURATION: return parse_duration(option, text, &out->number, error);
	case SIZE: return parse_size(option, text, &out->number, error);
	case COUNT:
		return postern__count_parse(text, option->min, option->max,
				&out->number, error);
	case SWITCH: return parse_switch(text, &out->number, error);
	case CHOICE: return parse_choice(option, text, &out->number, error);
	case BACKOFF: return parse_backoff(option, text, arena, out, error);
	}
	return postern__fail(error, POSTERN_E_INVALID, "no such type");
}

static void set_value(const struct postern__option *option,
		const struct parsed *parsed, struct postern__config_values *values) {
	void *place = (char *)values + option->offset;

	switch (option->type) {
	case TEXT:
	case LISTEN:
	case STORE: *(const char **)place = parsed->text; break;
	case DURATION: *(int64_t *)place = (int64_t)parsed->number; break;
	case SIZE: *(uint64_t *)place = parsed->number; break;
	case COUNT: *(uint32_t *)place = (uint32_t)parsed->number; break;
	case SWITCH: *(bool *)place = parsed->number != 0; break;
	case CHOICE: *(int *)place = (int)parsed->number; break;
	case BACKOFF:
		values->backoff_ms = parsed->list;
		values->backoff_count = parsed->list_count;
		break;
	}
}

/* Whether the text of a LATER option is equal to its default. */
static int check_later(const struct postern__option *option, const char *text,
		const struct parsed *parsed, struct postern__arena *arena,
		struct postern_error *error) {
	struct parsed fallback;
	int r = parse(option, option->fallback, arena, &fallback, error);
	if (r != POSTERN_OK) {
		return r;
	}
	bool same = parsed->text && fallback.text
						? strcmp(parsed->text, fallback.text) == 0
						: parsed->number == fallback.number;
	if (same) {
		return POSTERN_OK;
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"'%.80s' is not in this version", text);
}

int postern__option_set(const struct postern__option *option, const char *text,
		struct postern__config_values *values, struct postern__arena *arena,
		struct postern_error *error) {
	struct parsed parsed;
	int r = parse(option, text, arena, &parsed, error);
	if (r == POSTERN_OK && (option->flags & LATER)) {
		r = check_later(option, text, &parsed, arena, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	if (option->offset != NOWHERE) {
		set_value(option, &parsed, values);
	}
	return POSTERN_OK;
}

int postern__option_defaults(struct postern__config_values *values,
		struct postern__arena *arena, struct postern_error *error) {
	*values = (struct postern__config_values){ 0 };
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		int r = postern__option_set(&options[i], options[i].fallback, values,
				arena, error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return POSTERN_OK;
}

static void format_backoff(const struct postern__config_values *values,
		struct postern__buf *out) {
	char text[POSTERN__DURATION_TEXT_MAX];
	if (!values->backoff_ms) {
		postern__buf_append_text(out, "exponential");
		return;
	}
	for (size_t i = 0; i < values->backoff_count; i++) {
		postern__duration_format(values->backoff_ms[i], text);
		postern__buf_printf(out, "%s%s", i > 0 ? "," : "", text);
	}
}

static void format_text(const struct postern__option *option, const char *text,
		struct postern__buf *out) {
	if (!text) {
		postern__buf_append_text(out, "none");
	} else if (option->flags & SECRET) {
		char redacted[POSTERN__REDACT_TEXT_MAX];
		postern__redact(text, redacted, sizeof redacted);
		postern__buf_append_text(out, redacted);
	} else {
		postern__buf_append_text(out, text);
	}
}

static void format_number(const struct postern__option *option, uint64_t number,
		struct postern__buf *out) {
	char text[POSTERN__DURATION_TEXT_MAX];
	struct choices choices;

	if ((option->flags & NONE) && number == 0) {
		postern__buf_append_text(out, "none");
		return;
	}
	if ((option->flags & AUTO) && number == UINT64_MAX) {
		postern__buf_append_text(out, "default");
		return;
	}
	switch (option->type) {
	case DURATION:
		postern__duration_format((int64_t)number, text);
		postern__buf_append_text(out, text);
		break;
	case SIZE:
		postern__size_format(number, text);
		postern__buf_append_text(out, text);
		break;
	case CHOICE:
		split_choices(option, &choices);
		postern__buf_append_text(out, choices.words[number]);
		break;
	case SWITCH: postern__buf_append_text(out, number ? "on" : "off"); break;
	default: postern__buf_printf(out, "%llu", (unsigned long long)number);
	}
}

void postern__option_format(const struct postern__option *option,
		const struct postern__config_values *values, struct postern__buf *out) {
	const void *place = (const char *)values + option->offset;

	if (option->offset == NOWHERE) {
		postern__buf_append_text(out, option->fallback);
		return;
	}
	switch (option->type) {
	case LISTEN:
		postern__buf_append_text(out,
				*(const char *const *)place ? unix_prefix : "");
		format_text(option, *(const char *const *)place, out);
		break;
	case TEXT:
	case STORE: format_text(option, *(const char *const *)place, out); break;
	case DURATION:
		format_number(option, (uint64_t) * (const int64_t *)place, out);
		break;
	case SIZE: format_number(option, *(const uint64_t *)place, out); break;
	case COUNT: format_number(option, *(const uint32_t *)place, out); break;
	case SWITCH: format_number(option, *(const bool *)place, out); break;
	case CHOICE:
		format_number(option, (uint64_t) * (const int *)place, out);
		break;
	case BACKOFF: format_backoff(values, out); break;
	}
}

void postern__option_places(unsigned scopes, char *out, size_t size) {
	static const char *const names[] = { "the top level", "'defaults'",
		"a store", "a channel", "a handler" };
	const size_t count = sizeof names / sizeof names[0];
	size_t len = 0;

	out[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		if (!(scopes & 1U << i)) {
			continue;
		}
		bool last = (scopes >> i) == 1;
		int n = snprintf(out + len, size - len, "%s%s",
				len == 0 ? ""
				: last   ? " or "
						 : ", ",
				names[i]);
		len += (size_t)n;
		assert(len < size);
	}
}
