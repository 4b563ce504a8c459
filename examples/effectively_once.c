/* SPDX-License-Identifier: MIT */
/*
 * The marker and the write are in two systems: effectively once.
 *
 * No transaction covers both, so the marker is recorded after the write. If the
 * process dies in between, the next delivery writes again. The write is an
 * upsert under an id that follows from the message: repeated, it changes
 * nothing. The death is played by forgetting the marker.
 */

#include <postern/postern.h>
#include <sqlite3.h>
#include <stdio.h>

/* The other system. */
static sqlite3 *documents;
static int write_count;

static void upsert(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	sqlite3_stmt *statement = NULL;
	(void)context;
	(void)sqlite3_prepare_v2(documents,
			"INSERT INTO invoice VALUES (?1, 12)"
			" ON CONFLICT (id) DO UPDATE SET total = excluded.total",
			-1, &statement, NULL);
	(void)sqlite3_bind_text(statement, 1, call->key, -1, SQLITE_STATIC);
	if (sqlite3_step(statement) == SQLITE_DONE) {
		write_count++;
	} else {
		postern_outcome_set(outcome, POSTERN_RETRY, 0,
				sqlite3_errmsg(documents));
	}
	(void)sqlite3_finalize(statement);
}

static int print_count(void *context, int count, char **values, char **names) {
	(void)context;
	(void)count;
	(void)names;
	(void)printf("writes: %d, invoices: %s\n", write_count, values[0]);
	return 0;
}

static void deliver(struct postern_guard *guard) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "invoice-v1",
		.key = "invoice-of-order-17",
	};
	int r = postern_guard_run(guard, &guarded, upsert, NULL, NULL, NULL);
	(void)printf("%s\n", r == POSTERN_OK ? "written" : postern_error_text(r));
	(void)sqlite3_exec(documents, "SELECT count(*) FROM invoice", print_count,
			NULL, NULL);
}

int main(void) {
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (sqlite3_open(":memory:", &documents) != SQLITE_OK ||
			postern_guard_open("memory:", NULL, &guard, &error)) {
		return 1;
	}
	(void)sqlite3_exec(documents,
			"CREATE TABLE invoice (id TEXT PRIMARY KEY, total INTEGER)", NULL,
			NULL, NULL);
	deliver(guard);
	deliver(guard);
	(void)printf("the process dies before the marker is recorded\n");
	(void)postern_mark_forget(guard, "invoice-v1", "invoice-of-order-17",
			&error);
	deliver(guard);
	postern_guard_destroy(guard);
	(void)sqlite3_close(documents);
	return 0;
}
