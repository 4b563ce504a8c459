/* SPDX-License-Identifier: MIT */
/*
 * A mark that is rolled back leaves nothing.
 *
 * The marker is written first, in the transaction of the consumer's writes. The
 * consumer inserts a row and then fails: row and marker vanish together, and
 * the next delivery runs as if there had been none.
 */

#include <postern/postern.h>
#include <sqlite3.h>
#include <stdio.h>

struct consumer {
	int calls;
	int rows_seen; /* in the table when it was called */
};

static int count_rows(sqlite3 *db) {
	sqlite3_stmt *count = NULL;
	int rows = -1;
	if (sqlite3_prepare_v2(db, "SELECT count(*) FROM shipments", -1, &count,
				NULL) == SQLITE_OK &&
			sqlite3_step(count) == SQLITE_ROW) {
		rows = sqlite3_column_int(count, 0);
	}
	(void)sqlite3_finalize(count);
	return rows;
}

static void ship(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct consumer *self = context;
	sqlite3 *db = call->transaction;
	(void)sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS shipments (id TEXT)",
			NULL, NULL, NULL);
	self->rows_seen = count_rows(db);
	(void)sqlite3_exec(db, "INSERT INTO shipments VALUES ('order-17')", NULL,
			NULL, NULL);
	if (++self->calls == 1) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0,
				"no label printer, after the insert");
	}
}

int main(void) {
	struct consumer consumer = { 0 };
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "ship-v1",
		.key = "order-17",
		.transactional = true,
	};
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (postern_guard_open("sqlite:shop.db", NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	for (int i = 1; i <= 3; i++) {
		bool done = false;
		int calls = consumer.calls;
		int r = postern_guard_run(guard, &guarded, ship, &consumer, NULL,
				&error);
		(void)postern_mark_has(guard, "ship-v1", "order-17", &done, NULL);
		(void)printf("delivery %d: %s", i, r == POSTERN_OK ? "ok" : error.text);
		if (consumer.calls > calls) {
			(void)printf("; rows before it: %d", consumer.rows_seen);
		}
		(void)printf("; marked: %s\n", done ? "yes" : "no");
	}
	postern_guard_destroy(guard);
	return 0;
}
