/* SPDX-License-Identifier: MIT */
/*
 * A transactional guard on SQLite, or the limit: the same writes with nothing
 * around them.
 *
 *   guarded_sqlite guard|bare FILE MESSAGES
 *
 * The file has the tables of Postern (created by `postern init`); the settings
 * of the bare program are those of the store's writer.
 */

#include <sqlite3.h>
#include <sys/stat.h>

#include "guarded.h"

#define TABLE                                 \
	"CREATE TABLE IF NOT EXISTS bench_effect" \
	" (id TEXT NOT NULL, body BLOB NOT NULL)"
#define EFFECT "INSERT INTO bench_effect (id, body) VALUES (?1, ?2)"

static const char settings[] = "PRAGMA journal_mode = WAL;"
							   "PRAGMA synchronous = FULL;"
							   "PRAGMA foreign_keys = ON;"
							   "PRAGMA secure_delete = FAST;"
							   "PRAGMA cache_size = -65536;"
							   "PRAGMA wal_autocheckpoint = 4096;" TABLE;

enum { BEGIN, MARK, ROW, COMMIT, COUNT };

static const char *const texts[COUNT] = {
	[BEGIN] = "BEGIN IMMEDIATE",
	[MARK] = ("INSERT INTO postern_marker (key, fence, lease_until, at)"
			  " VALUES (?1, ?2, 0, ?3)"),
	[ROW] = EFFECT,
	[COMMIT] = "COMMIT",
};

static void check(sqlite3 *db, int code) {
	if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW) {
		guarded_fail("sqlite", sqlite3_errmsg(db));
	}
}

static void bind_row(sqlite3_stmt *statement,
		const struct guarded_message *message) {
	(void)sqlite3_bind_text(statement, 1, message->id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_blob(statement, 2, message->body, BODY_LEN,
			SQLITE_STATIC);
}

/* As the function of a program would: it prepares what it runs. */
static bool write_row(void *transaction,
		const struct guarded_message *message) {
	sqlite3_stmt *statement = NULL;
	if (sqlite3_prepare_v2(transaction, EFFECT, -1, &statement, NULL) !=
			SQLITE_OK) {
		return false;
	}
	bind_row(statement, message);
	bool done = sqlite3_step(statement) == SQLITE_DONE;
	(void)sqlite3_finalize(statement); /* repeats the code of the step */
	return done;
}

static void write_bare(sqlite3 *db, sqlite3_stmt *const statements[COUNT],
		const struct guarded_message *message) {
	uint8_t key[24];
	/* The first bytes of the id are as random as a hash. */
	memcpy(key, message->id, sizeof key);
	(void)sqlite3_bind_blob(statements[MARK], 1, key, sizeof key,
			SQLITE_STATIC);
	(void)sqlite3_bind_int64(statements[MARK], 2, INT64_C(7046029254386353131));
	(void)sqlite3_bind_int64(statements[MARK], 3, INT64_C(1700000000000));
	bind_row(statements[ROW], message);
	for (int i = 0; i < COUNT; i++) {
		check(db, sqlite3_step(statements[i]));
		(void)sqlite3_reset(statements[i]); /* repeats the code */
	}
}

static void run_bare(const char *path, size_t count) {
	sqlite3 *db = NULL;
	sqlite3_stmt *statements[COUNT];
	struct guarded_message message;
	check(db, sqlite3_open_v2(path, &db,
					  SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL));
	check(db, sqlite3_exec(db, settings, NULL, NULL, NULL));
	for (int i = 0; i < COUNT; i++) {
		check(db, sqlite3_prepare_v3(db, texts[i], -1,
						  SQLITE_PREPARE_PERSISTENT, &statements[i], NULL));
	}
	double started = guarded_now();
	for (size_t i = 0; i < count; i++) {
		guarded_message_init(&message, i);
		write_bare(db, statements, &message);
	}
	guarded_print(count, guarded_now() - started, 0, false);
	for (int i = 0; i < COUNT; i++) {
		(void)sqlite3_finalize(statements[i]); /* repeats an old code */
	}
	(void)sqlite3_close(db); /* nothing is open */
}

/* When the file and its log were written last. */
static int64_t written_at(const char *path) {
	int64_t latest = 0;
	for (int i = 0; i < 2; i++) {
		char name[4096];
		struct stat status;
		(void)snprintf(name, sizeof name, "%s%s", path, i ? "-wal" : "");
		if (stat(name, &status) == 0) {
			int64_t at = status.st_mtim.tv_sec * INT64_C(1000000000) +
						 status.st_mtim.tv_nsec;
			latest = at > latest ? at : latest;
		}
	}
	return latest;
}

static void create_table(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	(void)outcome;
	check(call->transaction,
			sqlite3_exec(call->transaction, TABLE, NULL, NULL, NULL));
}

static void run_guard(const char *path, size_t count) {
	struct postern_guard *guard = NULL;
	struct postern_error error;
	char url[4096];
	const struct postern_guarded table = {
		.size = sizeof table,
		.handler = "table",
		.key = "bench_effect",
		.transactional = true,
	};
	(void)snprintf(url, sizeof url, "sqlite:%s", path);
	if (postern_guard_open(url, NULL, &guard, &error) ||
			postern_guard_run(guard, &table, create_table, NULL, NULL,
					&error)) {
		guarded_fail(url, error.text);
	}
	double first = guarded_deliver(guard, write_row, count, POSTERN_OK);
	int64_t before = written_at(path);
	double again =
			guarded_deliver(guard, write_row, count, POSTERN_E_DUPLICATE);
	guarded_print(count, first, again, written_at(path) != before);
	postern_guard_destroy(guard);
}

int main(int argc, char **argv) {
	size_t count = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	if (count == 0) {
		(void)fprintf(stderr,
				"usage: guarded_sqlite guard|bare FILE MESSAGES\n");
		return 2;
	}
	(void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* as the command does */
	if (strcmp(argv[1], "guard") == 0) {
		run_guard(argv[2], count);
	} else {
		run_bare(argv[2], count);
	}
	return 0;
}
