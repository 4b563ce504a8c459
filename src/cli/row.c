/* SPDX-License-Identifier: MIT */
/*
 * Cells of a delivery in a table.
 */

#include "cli/row.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/out.h"
#include "cli/reply.h"
#include "cli/table.h"
#include "cli/words.h"

void postern__row_state(struct postern__table *table, const json_t *row) {
	static const struct {
		const char *name;
		enum postern__colour colour;
	} colours[] = {
		{ "done", POSTERN__GOOD },
		{ "poisoned", POSTERN__BAD },
		{ "stuck", POSTERN__BAD },
		{ "waiting", POSTERN__WARM },
		{ "held", POSTERN__WARM },
		{ "running", POSTERN__BOLD },
		{ "discarded", POSTERN__FAINT },
	};
	const char *state = postern__reply_text(row, "shown");
	enum postern__colour colour = POSTERN__PLAIN;
	for (size_t i = 0; state && i < sizeof colours / sizeof colours[0]; i++) {
		if (strcmp(colours[i].name, state) == 0) {
			colour = colours[i].colour;
		}
	}
	postern__table_coloured(table, state, colour);
}

/* "HOST:PID", or the number of the node. */
static void node_text(const json_t *row, char *out, size_t size) {
	const char *host = postern__reply_text(row, "host");
	if (host) {
		(void)snprintf(out, size, "%.64s:%" PRIu64, host,
				postern__reply_count(row, "pid"));
	} else {
		const char *node = postern__reply_text(row, "node");
		(void)snprintf(out, size, "node %.16s", node ? node : "-");
	}
}

/* "started 5m ago on HOST:PID, as of 4s ago" */
static void leased_text(const json_t *row, int64_t now_ms, char *out,
		size_t size) {
	const char *shown = postern__reply_text(row, "shown");
	bool running = shown && (strcmp(shown, "running") == 0 ||
									strcmp(shown, "stuck") == 0);
	char since[POSTERN__AGO_TEXT_MAX];
	char as_of[POSTERN__AGO_TEXT_MAX];
	char node[128];
	int64_t reported_ms = postern__reply_time(row, "reported_at");
	postern__out_ago(postern__reply_time(row, "since"), now_ms, since);
	postern__out_ago(reported_ms, now_ms, as_of);
	node_text(row, node, sizeof node);
	bool fresh = reported_ms == 0 || now_ms - reported_ms < 1000;
	(void)snprintf(out, size, "%s%s on %s%s%s", running ? "started " : "",
			since, node, fresh ? "" : ", as of ", fresh ? "" : as_of);
}

void postern__row_detail(struct postern__table *table, const json_t *row,
		int64_t now_ms) {
	const char *shown = postern__reply_text(row, "shown");
	struct postern__buf text;
	char leased[256] = "";
	if (shown && strcmp(shown, "waiting") == 0) {
		postern__row_ago(table, row, "next_at", now_ms);
		return;
	}
	if (postern__reply_text(row, "node")) {
		leased_text(row, now_ms, leased, sizeof leased);
	}
	postern__buf_init(&text, POSTERN__HELD_TEXT_MAX);
	postern__buf_append_text(&text, leased);
	if (postern__reply_text(row, "reason")) {
		postern__buf_append_text(&text, *leased ? "; " : "");
		postern__held_text(row, &text);
	}
	postern__table_text(table, postern__buf_text(&text));
	postern__buf_finish(&text);
}

void postern__row_attempt(struct postern__table *table, const json_t *row) {
	uint64_t attempt = postern__reply_count(row, "attempt");
	uint64_t most = postern__reply_count(row, "max_attempts");
	char text[64];
	if (most > 0 && attempt > 0) {
		(void)snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64, attempt,
				most);
		postern__table_text(table, text);
	} else {
		postern__table_count(table, attempt);
	}
}

void postern__row_error(struct postern__table *table, const json_t *row) {
	const char *state = postern__reply_text(row, "state");
	bool done = state && strcmp(state, "done") == 0;
	postern__table_text(table,
			done ? NULL : postern__reply_text(row, "last_error"));
}

void postern__row_ago(struct postern__table *table, const json_t *row,
		const char *name, int64_t now_ms) {
	char text[POSTERN__AGO_TEXT_MAX];
	int64_t at_ms = postern__reply_time(row, name);
	if (at_ms == 0) {
		postern__table_text(table, NULL);
		return;
	}
	postern__out_ago(at_ms, now_ms, text);
	postern__table_text(table, text);
}
