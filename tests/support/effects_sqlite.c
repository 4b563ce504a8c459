/* SPDX-License-Identifier: MIT */
/* Effects in a SQLite file. Handlers create the tables, because only the store
   uses its file while it is open. */

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/effects.h"

#define PATH_LEN_MAX 4096

static void init(struct effects *effects) {
	(void)snprintf(effects->table, sizeof effects->table, "effect");
	(void)snprintf(effects->sums, sizeof effects->sums,
			"CREATE TABLE IF NOT EXISTS sums (id);"
			"INSERT INTO sums VALUES (:id)");
	effects->publishes = strchr(effects->url, '?') != NULL; /* it is shared */
}

static void name_file(const struct effects *effects, char out[PATH_LEN_MAX]) {
	const char *file = effects->url + strlen(effects_sqlite.scheme);
	(void)snprintf(out, PATH_LEN_MAX, "%.*s", (int)strcspn(file, "?"), file);
}

static bool prepare(const struct effects *effects) {
	(void)effects;
	return true;
}

static bool write_row(const struct effects *effects, void *transaction,
		const char *sql) {
	(void)effects;
	int r = sqlite3_exec(transaction,
			"CREATE TABLE IF NOT EXISTS effect (seq, handler, fence)", NULL,
			NULL, NULL);
	if (r == SQLITE_OK) {
		r = sqlite3_exec(transaction, sql, NULL, NULL, NULL);
	}
	return r == SQLITE_OK;
}

static bool read_rows(const struct effects *effects, effects_reader *reader,
		void *context) {
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	char path[PATH_LEN_MAX];
	name_file(effects, path);
	int r = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
	/* A missing table means no effects. */
	if (r == SQLITE_OK &&
			sqlite3_prepare_v2(db, "SELECT seq, handler, fence FROM effect", -1,
					&statement, NULL) == SQLITE_OK) {
		while ((r = sqlite3_step(statement)) == SQLITE_ROW) {
			reader(context, sqlite3_column_int64(statement, 0),
					(const char *)sqlite3_column_text(statement, 1),
					(uint64_t)sqlite3_column_int64(statement, 2));
		}
		r = r == SQLITE_DONE ? SQLITE_OK : r;
	}
	(void)sqlite3_finalize(statement);
	(void)sqlite3_close(db);
	return r == SQLITE_OK;
}

static bool publish_with_row(const struct effects *effects, const char *channel,
		const struct postern_message *message) {
	sqlite3 *db = NULL;
	char path[PATH_LEN_MAX];
	name_file(effects, path);
	char *sql = sqlite3_mprintf("BEGIN IMMEDIATE;"
								"CREATE TABLE IF NOT EXISTS published (id);"
								"INSERT INTO published VALUES (%Q);"
								"INSERT INTO postern_publish (channel, type, "
								"body, id, source)"
								" VALUES (%Q, %Q, '%.*q', %Q, %Q);"
								"COMMIT",
			message->id, channel, message->type, (int)message->body_len,
			(const char *)message->body, message->id, message->source);
	/* Closing the connection of a transaction that failed rolls it back. */
	bool good = sql && sqlite3_open(path, &db) == SQLITE_OK &&
				sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
	(void)sqlite3_close(db);
	sqlite3_free(sql);
	return good;
}

static void remove_nothing(const struct effects *effects) {
	(void)effects;
}

const struct effects_ops effects_sqlite = {
	.scheme = "sqlite:",
	.init = init,
	.prepare = prepare,
	.write = write_row,
	.read = read_rows,
	.publish = publish_with_row,
	.remove = remove_nothing,
};
