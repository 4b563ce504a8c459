/* SPDX-License-Identifier: MIT */
/*
 * `postern show`: everything about one message: attributes, deliveries,
 * attempts and errors, body.
 */

#include <inttypes.h>
#include <jansson.h>
#include <postern/error.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/find_message.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "cli/row.h"
#include "cli/table.h"
#include "server/api.h"

/* The part of a body that is shown; --body prints all of it. */
#define TEXT_SHOWN_MAX ((size_t)16 * 1024)
#define BYTES_SHOWN_MAX 256
#define BYTES_PER_LINE 16

/* If the message row is missing, only the deliveries are known. */
static bool is_missing(const json_t *message) {
	return json_is_true(json_object_get(message, "message_missing"));
}

static void heading(const char *text) {
	(void)printf("\n%s%s%s\n", postern__out_colour(stdout, POSTERN__BOLD), text,
			postern__out_colour(stdout, POSTERN__PLAIN));
}

static void print_pair(const char *name, const char *value) {
	if (value && *value) {
		(void)printf("  %-15s", name);
		postern__out_text(value);
		(void)putchar('\n');
	}
}

/* "2026-…Z (5m ago)" */
static void print_moment(const char *name, const json_t *object,
		const char *member, int64_t now_ms) {
	const char *text = postern__reply_text(object, member);
	if (text) {
		char ago[POSTERN__AGO_TEXT_MAX];
		char value[128];
		postern__out_ago(postern__reply_time(object, member), now_ms, ago);
		(void)snprintf(value, sizeof value, "%.80s (%s)", text, ago);
		print_pair(name, value);
	}
}

static void print_headers(const json_t *message) {
	size_t index;
	json_t *header;
	json_array_foreach(json_object_get(message, "headers"), index, header) {
		(void)printf("  %-15s", "header");
		postern__out_text(postern__reply_text(header, "name"));
		(void)fputs(": ", stdout);
		postern__out_text(postern__reply_text(header, "value"));
		(void)putchar('\n');
	}
}

static void print_copies(const json_t *message, int64_t now_ms) {
	char text[64];
	uint64_t duplicates = postern__reply_count(message, "duplicates");
	uint64_t conflicts = postern__reply_count(message, "conflict_count");
	if (duplicates > 0) {
		(void)snprintf(text, sizeof text, "%" PRIu64 " suppressed", duplicates);
		print_pair("duplicates", text);
		print_moment("last duplicate", message, "duplicate_at", now_ms);
	}
	if (conflicts > 0) {
		(void)snprintf(text, sizeof text, "%" PRIu64 " with another body",
				conflicts);
		print_pair("conflicts", text);
	}
	size_t index;
	json_t *conflict;
	json_array_foreach(json_object_get(message, "conflicts"), index, conflict) {
		const char *at = postern__reply_text(conflict, "at");
		const char *transport = postern__reply_text(conflict, "transport");
		uint64_t len = postern__reply_count(conflict, "body_len");
		(void)snprintf(text, sizeof text, "%.30s, %" PRIu64 " byte%s by %.10s",
				at ? at : "-", len, len == 1 ? "" : "s",
				transport ? transport : "-");
		print_pair("conflict", text);
	}
}

/* The store is shown if there are several. */
static void print_attributes(const json_t *message, bool several,
		int64_t now_ms) {
	static const struct {
		const char *title;
		const char *name;
	} texts[] = {
		{ "store", "store" },
		{ "channel", "channel" },
		{ "source", "source" },
		{ "type", "type" },
		{ "subject", "subject" },
		{ "time", "time" },
		{ "content type", "content_type" },
		{ "correlation id", "correlation_id" },
		{ "traceparent", "traceparent" },
		{ "transport", "transport" },
	};
	(void)printf("%smessage #%" PRIu64 "%s  ",
			postern__out_colour(stdout, POSTERN__BOLD),
			postern__reply_count(message, "seq"),
			postern__out_colour(stdout, POSTERN__PLAIN));
	if (is_missing(message)) {
		(void)fputs("the message row is missing from the store; 'postern "
					"discard' ends its deliveries",
				stdout);
	}
	postern__out_text(postern__reply_text(message, "id"));
	(void)putchar('\n');
	for (size_t i = several ? 0 : 1; i < sizeof texts / sizeof texts[0]; i++) {
		print_pair(texts[i].title, postern__reply_text(message, texts[i].name));
	}
	print_headers(message);
	print_moment("received", message, "received_at", now_ms);
	print_moment("completed", message, "completed_at", now_ms);
	print_copies(message, now_ms);
}

static void print_deliveries(const json_t *deliveries, int64_t now_ms) {
	static const struct postern__column columns[] = {
		{ "HANDLER", false },
		{ "STATE", false },
		{ "ATTEMPT", true },
		{ "STARTS", true | POSTERN__TABLE_OPTIONAL(2) },
		{ "CRASHES", true | POSTERN__TABLE_OPTIONAL(1) },
		{ "RETURNS", true },
		{ "FENCE", true },
		{ "DETAIL", POSTERN__TABLE_SHORTENED },
		{ "FINISHED", POSTERN__TABLE_OPTIONAL(4) },
		{ "LAST ERROR", false },
	};
	struct postern__table table;
	size_t index;
	json_t *row;
	heading("deliveries");
	postern__table_init(&table, columns, sizeof columns / sizeof columns[0]);
	json_array_foreach(deliveries, index, row) {
		postern__table_text(&table, postern__reply_text(row, "handler"));
		postern__row_state(&table, row);
		postern__row_attempt(&table, row);
		postern__table_count(&table, postern__reply_count(row, "starts"));
		postern__table_count(&table, postern__reply_count(row, "crashes"));
		postern__table_count(&table, postern__reply_count(row, "returns"));
		postern__table_count(&table, postern__reply_count(row, "fence"));
		postern__row_detail(&table, row, now_ms);
		postern__row_ago(&table, row, "finished_at", now_ms);
		postern__row_error(&table, row);
	}
	if (!postern__table_print(&table)) {
		postern__err_print("out of memory");
	}
	postern__table_finish(&table);
}

static void print_attempts(const json_t *row) {
	static const struct postern__column columns[] = {
		{ "FENCE", true },
		{ "STARTED", false },
		{ "TOOK", true },
		{ "OUTCOME", false },
		{ "ERROR", false },
	};
	const json_t *attempts = json_object_get(row, "attempts");
	struct postern__table table;
	size_t index;
	json_t *attempt;
	if (json_array_size(attempts) == 0) {
		return;
	}
	(void)printf("\n%sattempts of ",
			postern__out_colour(stdout, POSTERN__BOLD));
	postern__out_text(postern__reply_text(row, "handler"));
	(void)printf("%s\n", postern__out_colour(stdout, POSTERN__PLAIN));
	postern__table_init(&table, columns, sizeof columns / sizeof columns[0]);
	json_array_foreach(attempts, index, attempt) {
		int64_t started = postern__reply_time(attempt, "started_at");
		int64_t finished = postern__reply_time(attempt, "finished_at");
		char took[POSTERN__DURATION_TEXT_MAX] = "-";
		if (started && finished >= started) {
			postern__duration_format(finished - started, took);
		}
		postern__table_count(&table, postern__reply_count(attempt, "fence"));
		postern__table_text(&table, postern__reply_text(attempt, "started_at"));
		postern__table_text(&table, took);
		postern__table_text(&table, postern__reply_text(attempt, "outcome"));
		postern__table_text(&table, postern__reply_text(attempt, "error"));
	}
	if (!postern__table_print(&table)) {
		postern__err_print("out of memory");
	}
	postern__table_finish(&table);
}

/* Why a delivery is poisoned: its attempts are used up, or not. */
static void print_poisoned(const json_t *row) {
	const char *state = postern__reply_text(row, "state");
	uint64_t max = postern__reply_count(row, "max_attempts");
	uint64_t failures = postern__reply_count(row, "failures");
	if (!state || strcmp(state, "poisoned") != 0 || max == 0) {
		return;
	}
	(void)printf("  %s%" PRIu64 " of %" PRIu64 " attempt%s used%s%s\n",
			postern__out_colour(stdout, POSTERN__BAD), failures, max,
			max == 1 ? "" : "s", failures < max ? "" : " up",
			postern__out_colour(stdout, POSTERN__PLAIN));
}

static void print_bytes(const unsigned char *bytes, size_t len) {
	for (size_t at = 0; at < len; at += BYTES_PER_LINE) {
		(void)printf("  %08zx ", at);
		for (size_t i = at; i < at + BYTES_PER_LINE; i++) {
			if (i < len) {
				(void)printf(" %02x", bytes[i]);
			} else {
				(void)fputs("   ", stdout);
			}
		}
		(void)fputs("  ", stdout);
		for (size_t i = at; i < len && i < at + BYTES_PER_LINE; i++) {
			(void)putchar(bytes[i] >= 0x20 && bytes[i] < 0x7f ? bytes[i] : '.');
		}
		(void)putchar('\n');
	}
}

/* Shown as text if the whole shown part is; the end may split a character. */
static void print_body(const struct postern__buf *body) {
	const char *text = postern__buf_text(body);
	size_t shown = body->len < TEXT_SHOWN_MAX ? body->len : TEXT_SHOWN_MAX;
	char title[64];
	(void)snprintf(title, sizeof title, "body, %zu byte%s", body->len,
			body->len == 1 ? "" : "s");
	heading(title);
	while (shown > 0 && shown < body->len && shown + 4 > TEXT_SHOWN_MAX &&
			!postern__utf8_valid(text, shown)) {
		shown--;
	}
	if (postern__utf8_valid(text, shown) && !memchr(text, '\0', shown)) {
		postern__out_lines(text, shown, "  ");
	} else {
		shown = body->len < BYTES_SHOWN_MAX ? body->len : BYTES_SHOWN_MAX;
		print_bytes((const unsigned char *)text, shown);
	}
	if (shown < body->len) {
		(void)printf("  … %zu more bytes; --body prints all\n",
				body->len - shown);
	}
}

/* What a server answers with 403: other attributes of the message are shown. */
static const char no_bodies[] =
		"the token may not read bodies, which needs the role operate or "
		"'payloads: true'";

/* Get the body itself, which may be too long for JSON. */
static int get_body(const struct postern__cli *cli,
		struct postern__client *client, const json_t *message,
		struct postern__response *response) {
	char path[64];
	char query[POSTERN__STORE_NAME_LEN_MAX + 16];
	struct postern_error error;
	(void)snprintf(path, sizeof path, "/v1/messages/%" PRIu64 "/body",
			postern__reply_count(message, "seq"));
	postern__reply_store_query(message, query);
	const struct postern__request request = {
		.method = "GET",
		.path = path,
		.query = query,
		.transport = "cli",
	};
	if (postern__client_request(client, &request, false, response, &error)) {
		return postern__print_error(cli, &error);
	}
	if (response->status != 200 && response->status != 403) {
		postern__err_print("show: cannot read the body: %s",
				postern__status_text(response->status));
		return POSTERN__EXIT_FAILED;
	}
	return POSTERN__EXIT_OK;
}

static void print_message(const json_t *message, bool several,
		const struct postern__response *body) {
	const struct postern_clock *clock = postern_clock_system();
	int64_t now_ms = clock->wall_ms(clock->context);
	const json_t *deliveries = json_object_get(message, "deliveries");
	size_t index;
	json_t *row;
	print_attributes(message, several, now_ms);
	if (json_array_size(deliveries) > 0) {
		print_deliveries(deliveries, now_ms);
	}
	json_array_foreach(deliveries, index, row) {
		print_attempts(row);
		print_poisoned(row);
	}
	if (body->status == 403) {
		(void)printf("\nbody\n  not shown: %s\n", no_bodies);
	} else if (!is_missing(message)) {
		print_body(&body->body);
	}
}

int postern__command_show(struct postern__cli *cli) {
	struct postern__client *client = NULL;
	struct postern__response body;
	json_t *message = NULL;
	bool body_only = postern__args_has(&cli->args, "body");
	postern__response_init(&body);
	int r = postern__client_begin(cli, POSTERN__NEED_READ, &client);
	if (r == POSTERN__EXIT_OK) {
		r = postern__find_message(cli, client, &message);
	}
	if (r == POSTERN__EXIT_OK &&
			(body_only || (!cli->json && !is_missing(message)))) {
		r = get_body(cli, client, message, &body);
	}
	if (r) {
		goto out;
	}
	if (body_only && body.status == 403) {
		postern__err_print("show: cannot read the body: %s", no_bodies);
		r = POSTERN__EXIT_FAILED;
	} else if (body_only) {
		(void)fwrite(postern__buf_text(&body.body), 1, body.body.len, stdout);
	} else if (cli->json) {
		postern__reply_print(message);
	} else {
		print_message(message, postern__config_store_count(cli->config) > 1,
				&body);
	}
out:
	json_decref(message);
	postern__response_finish(&body);
	postern__client_destroy(client);
	return r;
}
