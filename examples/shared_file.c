/* SPDX-License-Identifier: MIT */
/*
 * A consumer with an SQLite connection and transactions of its own, on a file
 * that other processes use too, for example a server: the marker is written in
 * the consumer's transaction, and a rolled-back mark leaves nothing.
 *
 * The first delivery fails after its insert and is rolled back. The second
 * commits row and marker together. The third finds the marker and skips the
 * work.
 *
 *   cc -o shared_file shared_file.c \
 *       $(pkg-config --cflags --libs postern sqlite3)
 */

#include <postern/postern.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_NAME "shop.db"

static void run(sqlite3 *db, const char *sql) {
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
		(void)fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
		exit(1);
	}
}

static void consume(struct postern_guard *guard, sqlite3 *db, bool fails) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "ship-order-v1",
		.key = "order-17",
	};
	struct postern_error error;
	run(db, "BEGIN IMMEDIATE");
	int r = postern_mark_in(guard, db, &guarded, &error);
	if (r == POSTERN_OK) {
		run(db, "INSERT INTO shipment VALUES ('order-17')");
		run(db, fails ? "ROLLBACK" : "COMMIT");
		(void)printf(fails ? "failed, requeue\n" : "shipped, acknowledge\n");
	} else if (r == POSTERN_E_DUPLICATE) {
		run(db, "COMMIT");
		(void)printf("duplicate, acknowledge\n");
	} else {
		run(db, "ROLLBACK");
		(void)printf("%s, requeue\n", error.text);
	}
}

static int count_shipments(sqlite3 *db) {
	sqlite3_stmt *statement = NULL;
	int count = -1;
	if (sqlite3_prepare_v2(db, "SELECT count(*) FROM shipment", -1, &statement,
				NULL) == SQLITE_OK &&
			sqlite3_step(statement) == SQLITE_ROW) {
		count = sqlite3_column_int(statement, 0);
	}
	(void)sqlite3_finalize(statement);
	return count;
}

int main(void) {
	struct postern_guard *guard = NULL;
	struct postern_error error;
	sqlite3 *db = NULL;
	/* The guard does not own the file: a server may have it open. */
	if (postern_guard_open("sqlite:" FILE_NAME "?shared=yes", NULL, &guard,
				&error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	if (sqlite3_open(FILE_NAME, &db) != SQLITE_OK) {
		(void)fprintf(stderr, "%s\n", sqlite3_errmsg(db));
		return 1;
	}
	(void)sqlite3_busy_timeout(db, 10000);
	run(db, "CREATE TABLE IF NOT EXISTS shipment (id TEXT)");
	consume(guard, db, true);
	consume(guard, db, false);
	consume(guard, db, false);
	(void)printf("shipments: %d\n", count_shipments(db));
	(void)sqlite3_close(db);
	postern_guard_destroy(guard);
	return 0;
}
