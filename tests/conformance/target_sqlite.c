/* SPDX-License-Identifier: MIT */

/*
 * The SQLite store as a target of the suite: a file in a directory of its own,
 * one at a time. As the target sqlite_shared, it is shared with other
 * processes.
 */

#include <sqlite3.h>
#include <stdio.h>

#include "conformance/target.h"
#include "support/temp_dir.h"
#include "tap.h"

#ifdef TARGET_SHARED
#define FILE_NAME "store.db?shared=yes"
#else
#define FILE_NAME "store.db"
#endif

static struct temp_dir dir;

static struct postern_store *open_file(
		const struct postern_store_options *options) {
	char url[TEMP_DIR_PATH_MAX + 32];
	struct postern_store *store = NULL;
	struct postern_error error;

	temp_dir_name(&dir, "sqlite:", FILE_NAME, url, sizeof url);
	if (postern_store_open(url, options, &store, &error) != POSTERN_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		return NULL;
	}
	return store;
}

static struct postern_store *sqlite_open(
		const struct postern_store_options *options) {
	temp_dir_create(&dir);
	return open_file(options);
}

static struct postern_store *sqlite_reopen(struct postern_store *store,
		const struct postern_store_options *options) {
	postern_store_destroy(store);
	return open_file(options);
}

static void sqlite_close(struct postern_store *store) {
	postern_store_destroy(store);
	temp_dir_destroy(&dir);
}

static void execute_sql(void *transaction, const char *sql) {
	char *text = NULL;
	if (sqlite3_exec(transaction, sql, NULL, NULL, &text) != SQLITE_OK) {
		FAIL("%s: %s", sql, text);
	}
	sqlite3_free(text);
}

static void sqlite_write(void *transaction) {
	execute_sql(transaction, "CREATE TABLE IF NOT EXISTS effect (n INTEGER)");
	execute_sql(transaction, "INSERT INTO effect VALUES (1)");
}

static int64_t query_int(void *transaction, const char *sql) {
	sqlite3_stmt *statement = NULL;
	int64_t value = -1;
	if (sqlite3_prepare_v2(transaction, sql, -1, &statement, NULL) ==
					SQLITE_OK &&
			sqlite3_step(statement) == SQLITE_ROW) {
		value = sqlite3_column_int64(statement, 0);
	}
	(void)sqlite3_finalize(statement); /* repeats the step's result */
	return value;
}

static int64_t sqlite_count(void *transaction) {
	execute_sql(transaction, "CREATE TABLE IF NOT EXISTS effect (n INTEGER)");
	return query_int(transaction, "SELECT count(*) FROM effect");
}

static void sqlite_commit(void *transaction) {
	(void)sqlite3_exec(transaction, "COMMIT", NULL, NULL, NULL);
}

static void sqlite_roll_back(void *transaction) {
	(void)sqlite3_exec(transaction, "ROLLBACK", NULL, NULL, NULL);
}

const struct conformance_target conformance_target = {
	.name = "sqlite",
	.open = sqlite_open,
	.reopen = sqlite_reopen,
	.close = sqlite_close,
	.write = sqlite_write,
	.count = sqlite_count,
	.commit = sqlite_commit,
	.roll_back = sqlite_roll_back,
};
