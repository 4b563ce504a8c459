/* SPDX-License-Identifier: MIT */
/*
 * Cells of a delivery in a table.
 */

#include "cli/row.h"

#include <string.h>

#include "cli/out.h"
#include "cli/reply.h"
#include "cli/table.h"

void postern__row_state(struct postern__table *table, const json_t *row) {
	static const struct {
		const char *name;
		enum postern__colour colour;
	} colours[] = {
		{ "done", POSTERN__GOOD },
		{ "poisoned", POSTERN__BAD },
		{ "retrying", POSTERN__WARM },
		{ "discarded", POSTERN__FAINT },
	};
	const char *state = postern__reply_text(row, "state");
	enum postern__colour colour = POSTERN__PLAIN;
	if (state && strcmp(state, "pending") == 0 &&
			postern__reply_count(row, "failures") > 0) {
		state = "retrying";
	}
	for (size_t i = 0; state && i < sizeof colours / sizeof colours[0]; i++) {
		if (strcmp(colours[i].name, state) == 0) {
			colour = colours[i].colour;
		}
	}
	postern__table_coloured(table, state, colour);
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
