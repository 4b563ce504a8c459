/* SPDX-License-Identifier: MIT */
/* The inserts of an accepted message, into the tables of Postern in a file,
 * with the settings of the store's writer. */

#include <sqlite3.h>

#include "bare_http.h"

static const char settings[] = "PRAGMA journal_mode = WAL;"
							   "PRAGMA synchronous = FULL;"
							   "PRAGMA foreign_keys = ON;"
							   "PRAGMA secure_delete = FAST;"
							   "PRAGMA cache_size = -65536;"
							   "PRAGMA wal_autocheckpoint = 4096;"
							   "PRAGMA journal_size_limit = 67108864;";

enum { BEGIN, COMMIT, SEEN, MESSAGE, OPEN, COUNT };

static const char *const texts[COUNT] = {
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
	[SEEN] = "INSERT INTO postern_seen VALUES (?1, ?2, ?3, ?4, 1, 0)"
			 " ON CONFLICT DO NOTHING",
	[MESSAGE] = "INSERT INTO postern_message VALUES (?1, 1, ?2, ?3, NULL,"
				" '', NULL, NULL, 'text/plain', NULL, NULL, NULL,"
				" NULL, ?4)",
	[OPEN] = "INSERT INTO postern_open (seq, handler, fence, failures, starts,"
			 " crashes, suspect, solo, node, due_at, since)"
			 " VALUES (?1, 1, 0, 0, 0, 0, 0, 0, NULL, ?2, ?2)",
};

static sqlite3 *database;
static sqlite3_stmt *statements[COUNT];

static void check(bool good, const char *what) {
	if (!good) {
		(void)fprintf(stderr, "bare_http_sqlite: %s: %s\n", what,
				sqlite3_errmsg(database));
		exit(1);
	}
}

static void run(int which) {
	check(sqlite3_step(statements[which]) == SQLITE_DONE, texts[which]);
	(void)sqlite3_reset(statements[which]); /* repeats the code of the step */
}

static int64_t now_ms(void) {
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void bare_open(const char *url) {
	(void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* as the command does */
	check(sqlite3_open_v2(url, &database,
				  SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
				  NULL) == SQLITE_OK,
			url);
	check(sqlite3_exec(database, settings, NULL, NULL, NULL) == SQLITE_OK,
			"settings");
	for (int i = 0; i < COUNT; i++) {
		check(sqlite3_prepare_v3(database, texts[i], -1,
					  SQLITE_PREPARE_PERSISTENT, &statements[i],
					  NULL) == SQLITE_OK,
				texts[i]);
	}
}

static void bind_int(int which, int index, int64_t value) {
	(void)sqlite3_bind_int64(statements[which], index, value);
}

static void bind_blob(int which, int index, const void *bytes, size_t len) {
	(void)sqlite3_bind_blob(statements[which], index, bytes, (int)len,
			SQLITE_STATIC);
}

static void write_one(const struct arrival *arrival, int64_t now) {
	bind_blob(SEEN, 1, arrival->key, sizeof arrival->key);
	bind_int(SEEN, 2, arrival->seq);
	bind_blob(SEEN, 3, arrival->digest, sizeof arrival->digest);
	bind_int(SEEN, 4, now);
	run(SEEN);
	check(sqlite3_changes(database) == 1, "a copy");
	bind_int(MESSAGE, 1, arrival->seq);
	bind_int(MESSAGE, 2, now);
	(void)sqlite3_bind_text(statements[MESSAGE], 3, arrival->id,
			(int)arrival->id_len, SQLITE_STATIC);
	bind_blob(MESSAGE, 4, arrival->body, arrival->body_len);
	run(MESSAGE);
	bind_int(OPEN, 1, arrival->seq);
	bind_int(OPEN, 2, now);
	run(OPEN);
}

/* In index order, so that adjacent keys are written one after the other. */
static int compare(const void *a, const void *b) {
	const struct arrival *one = *(struct arrival *const *)a;
	const struct arrival *other = *(struct arrival *const *)b;
	return memcmp(one->key, other->key, sizeof one->key);
}

void bare_write(struct arrival **arrivals, size_t count) {
	int64_t now = now_ms();
	qsort(arrivals, count, sizeof(struct arrival *), compare);
	run(BEGIN);
	for (size_t i = 0; i < count; i++) {
		write_one(arrivals[i], now);
	}
	run(COMMIT);
}
