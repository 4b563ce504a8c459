/* SPDX-License-Identifier: MIT */
/*
 * The limit: how fast SQLite itself does the durable writes of the job, with
 * nothing else. One thread, prepared statements, no layers, and only the
 * checks that decide what is written.
 *
 *   bare_sqlite FILE MESSAGES BATCH [COMMIT]
 *
 * The file has the tables of Postern (created by `postern migrate`), so that
 * both write to the same ones; the settings below are those of the store's
 * writer. Ids are random, every tenth message is a copy of one of the last
 * thousand, bodies have 256 bytes.
 *
 * Without COMMIT, the completions of one batch and the messages of the next
 * share a commit. With it, all messages are accepted first; then each gets
 * one row in a business table together with its completion, COMMIT of them
 * in one transaction.
 */

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BODY_LEN 256
#define ID_LEN 36
#define WINDOW 1000
/* As large as the random node ids of Postern. */
#define NODE "7046029254386353131"

static const char settings[] = "PRAGMA journal_mode = WAL;"
							   "PRAGMA synchronous = FULL;"
							   "PRAGMA foreign_keys = ON;"
							   "PRAGMA secure_delete = FAST;"
							   "PRAGMA cache_size = -65536;"
							   "PRAGMA wal_autocheckpoint = 4096;"
							   "PRAGMA journal_size_limit = 67108864;"
							   "CREATE TABLE IF NOT EXISTS bench_effect"
							   " (id TEXT NOT NULL, body BLOB NOT NULL)";

enum {
	BEGIN,
	COMMIT,
	SEEN,
	FIND,
	AGAIN,
	MESSAGE,
	OPEN,
	CLOSE,
	LEDGER,
	READ,
	EFFECT,
	COUNT
};

static const char *const texts[COUNT] = {
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
	[SEEN] = "INSERT INTO postern_seen VALUES (?1, ?2, ?3, ?4, 1, 0)"
			 " ON CONFLICT DO NOTHING",
	[FIND] = "SELECT seq, digest = ?2 FROM postern_seen WHERE key = ?1",
	[AGAIN] = "INSERT INTO postern_duplicate VALUES (?1, 1, ?2, 0)"
			  " ON CONFLICT DO UPDATE SET duplicates = duplicates + 1,"
			  " duplicate_at = ?2",
	[MESSAGE] = "INSERT INTO postern_message VALUES (?1, 1, ?2, ?3, NULL,"
				" 'bench', NULL, NULL, 'application/json', NULL, NULL, NULL,"
				" NULL, ?4)",
	[OPEN] = "INSERT INTO postern_open (seq, handler, fence, failures, starts,"
			 " crashes, suspect, solo, node, due_at, since)"
			 " VALUES (?1, 1, 1, 0, 1, 0, 0, 0, " NODE ", ?2, ?2)",
	[CLOSE] = "DELETE FROM postern_open WHERE seq = ?1 AND handler = 1"
			  " AND fence = 1 AND node = " NODE,
	[LEDGER] = "INSERT INTO postern_ledger (seq, handler, state, fence,"
			   " failures, starts, crashes, finished_at, duration)"
			   " VALUES (?1, 1, 3, 1, 0, 1, 0, ?2, 0)",
	[READ] = "SELECT id, body FROM postern_message WHERE seq = ?1",
	[EFFECT] = "INSERT INTO bench_effect (id, body) VALUES (?1, ?2)",
};

static sqlite3 *database;
static sqlite3_stmt *statements[COUNT];

static void check(bool good, const char *what) {
	if (!good) {
		(void)fprintf(stderr, "bare_sqlite: %s: %s\n", what,
				database ? sqlite3_errmsg(database) : "no memory");
		exit(1);
	}
}

static bool step(int which) {
	int r = sqlite3_step(statements[which]);
	check(r == SQLITE_DONE || r == SQLITE_ROW, texts[which]);
	return r == SQLITE_ROW;
}

static void run(int which) {
	(void)step(which);
	(void)sqlite3_reset(statements[which]); /* repeats the code of the step */
}

static void bind_int(int which, int index, int64_t value) {
	check(sqlite3_bind_int64(statements[which], index, value) == SQLITE_OK,
			"bind");
}

static void bind_text(int which, int index, const char *text) {
	check(sqlite3_bind_text(statements[which], index, text, ID_LEN,
				  SQLITE_STATIC) == SQLITE_OK,
			"bind");
}

static void bind_blob(int which, int index, const void *bytes, size_t len) {
	check(sqlite3_bind_blob(statements[which], index, bytes, (int)len,
				  SQLITE_STATIC) == SQLITE_OK,
			"bind");
}

static int64_t now_ns(clockid_t clock) {
	struct timespec now;
	(void)clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t now_ms(void) {
	return now_ns(CLOCK_REALTIME) / 1000000;
}

struct arrival {
	uint8_t key[24];
	uint8_t digest[16];
	char id[ID_LEN];
	char body[BODY_LEN];
};

static struct {
	uint64_t random;
	uint64_t sent;
	uint64_t made;
	struct arrival recent[WINDOW];
} feed;

static uint64_t next_random(void) {
	uint64_t x = feed.random += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static void next_arrival(struct arrival *out) {
	feed.sent++;
	if (feed.sent % 10 == 0) {
		uint64_t known = feed.made < WINDOW ? feed.made : WINDOW;
		*out = feed.recent[next_random() % known];
		return;
	}
	uint64_t words[5];
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		words[i] = next_random();
	}
	memcpy(out->key, words, sizeof out->key);
	memcpy(out->digest, words + 3, sizeof out->digest);
	for (size_t i = 0; i < ID_LEN; i++) {
		out->id[i] = "0123456789abcdef"[(words[i / 16] >> (i % 16 * 4)) & 15];
	}
	memset(out->body, 'x', sizeof out->body);
	memcpy(out->body, out->id, ID_LEN);
	feed.recent[feed.made % WINDOW] = *out;
	feed.made++;
}

/* In index order, so that adjacent keys are written one after the other. */
static int compare(const void *a, const void *b) {
	return memcmp(((const struct arrival *)a)->key,
			((const struct arrival *)b)->key, sizeof((struct arrival *)0)->key);
}

static void count_duplicate(const struct arrival *arrival, int64_t now) {
	bind_blob(FIND, 1, arrival->key, sizeof arrival->key);
	bind_blob(FIND, 2, arrival->digest, sizeof arrival->digest);
	bool same = step(FIND) && sqlite3_column_int(statements[FIND], 1);
	int64_t first = sqlite3_column_int64(statements[FIND], 0);
	(void)sqlite3_reset(statements[FIND]); /* it was only read */
	check(same, "another body");
	bind_int(AGAIN, 1, first);
	bind_int(AGAIN, 2, now);
	run(AGAIN);
}

/* Returns whether the message was new. */
static bool accept_one(const struct arrival *arrival, int64_t seq,
		int64_t now) {
	bind_blob(SEEN, 1, arrival->key, sizeof arrival->key);
	bind_int(SEEN, 2, seq);
	bind_blob(SEEN, 3, arrival->digest, sizeof arrival->digest);
	bind_int(SEEN, 4, now);
	run(SEEN);
	if (sqlite3_changes(database) == 0) {
		count_duplicate(arrival, now);
		return false;
	}
	bind_int(MESSAGE, 1, seq);
	bind_int(MESSAGE, 2, now);
	bind_text(MESSAGE, 3, arrival->id);
	bind_blob(MESSAGE, 4, arrival->body, sizeof arrival->body);
	run(MESSAGE);
	bind_int(OPEN, 1, seq);
	bind_int(OPEN, 2, now);
	run(OPEN);
	return true;
}

/* Returns the last seq. */
static int64_t accept_some(struct arrival *arrivals, size_t count, int64_t seq,
		int64_t now) {
	for (size_t i = 0; i < count; i++) {
		next_arrival(&arrivals[i]);
	}
	qsort(arrivals, count, sizeof *arrivals, compare);
	for (size_t i = 0; i < count; i++) {
		seq += accept_one(&arrivals[i], seq + 1, now);
	}
	return seq;
}

static void complete_one(int64_t seq, int64_t now) {
	bind_int(CLOSE, 1, seq);
	run(CLOSE);
	check(sqlite3_changes(database) == 1, "a lost lease");
	bind_int(LEDGER, 1, seq);
	bind_int(LEDGER, 2, now);
	run(LEDGER);
}

static void effect_one(int64_t seq) {
	bind_int(READ, 1, seq);
	check(step(READ), "a lost message");
	bind_text(EFFECT, 1,
			(const char *)sqlite3_column_text(statements[READ], 0));
	bind_blob(EFFECT, 2, sqlite3_column_blob(statements[READ], 1), BODY_LEN);
	run(EFFECT);
	(void)sqlite3_reset(statements[READ]); /* it was only read */
}

/* Complete the messages after `done` up to `seq`, and accept the next ones. */
static int64_t do_batch(struct arrival *arrivals, size_t count, int64_t *done,
		int64_t seq, bool complete) {
	int64_t now = now_ms();
	run(BEGIN);
	while (complete && *done < seq) {
		complete_one(++*done, now);
	}
	seq = accept_some(arrivals, count, seq, now);
	run(COMMIT);
	return seq;
}

static void transact(int64_t from, int64_t to, size_t commit) {
	while (from < to) {
		run(BEGIN);
		for (size_t i = 0; i < commit && from < to; i++) {
			from++;
			effect_one(from);
			complete_one(from, now_ms());
		}
		run(COMMIT);
	}
}

/* Continue after the numbers of messages that were removed. */
static int64_t last_seq(void) {
	sqlite3_stmt *statement;
	check(sqlite3_prepare_v2(database,
				  "SELECT value FROM postern_meta WHERE name = 'last_seq'", -1,
				  &statement, NULL) == SQLITE_OK,
			"prepare");
	int64_t seq = sqlite3_step(statement) == SQLITE_ROW
						  ? sqlite3_column_int64(statement, 0)
						  : 0;
	(void)sqlite3_finalize(statement); /* it was only read */
	return seq;
}

static void open_database(const char *path) {
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
	check(sqlite3_open_v2(path, &database, flags, NULL) == SQLITE_OK, path);
	check(sqlite3_exec(database, settings, NULL, NULL, NULL) == SQLITE_OK,
			"settings");
	for (int i = 0; i < COUNT; i++) {
		check(sqlite3_prepare_v3(database, texts[i], -1,
					  SQLITE_PREPARE_PERSISTENT, &statements[i],
					  NULL) == SQLITE_OK,
				texts[i]);
	}
}

static void close_database(void) {
	for (int i = 0; i < COUNT; i++) {
		(void)sqlite3_finalize(statements[i]); /* repeats an old code */
	}
	(void)sqlite3_close(database); /* nothing is open */
}

int main(int argc, char **argv) {
	size_t total = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
	size_t batch = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	size_t commit = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
	if (argc > 5 || total == 0 || batch == 0) {
		(void)fprintf(stderr,
				"usage: bare_sqlite FILE MESSAGES BATCH [COMMIT]\n");
		return 2;
	}
	struct arrival *arrivals = calloc(batch, sizeof *arrivals);
	check(arrivals, "batch");
	(void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* as the command does */
	open_database(argv[1]);
	feed.random = (uint64_t)now_ns(CLOCK_REALTIME);

	int64_t first = last_seq();
	int64_t seq = first;
	int64_t done = first;
	int64_t started = now_ns(CLOCK_MONOTONIC);
	for (size_t sent = 0; sent < total; sent += batch) {
		size_t count = total - sent < batch ? total - sent : batch;
		seq = do_batch(arrivals, count, &done, seq, commit == 0);
	}
	double accept_seconds = (double)(now_ns(CLOCK_MONOTONIC) - started) / 1e9;
	if (commit > 0) {
		transact(done, seq, commit);
	} else {
		(void)do_batch(arrivals, 0, &done, seq, true);
	}
	double seconds = (double)(now_ns(CLOCK_MONOTONIC) - started) / 1e9;

	uint64_t accepted = (uint64_t)(seq - first);
	(void)printf("{\"accepted\": %llu, \"duplicates\": %llu,"
				 " \"completed\": %llu, \"seconds\": %.6f,"
				 " \"messages_per_second\": %.0f, \"accept_seconds\": %.6f}\n",
			(unsigned long long)accepted,
			(unsigned long long)(total - accepted),
			(unsigned long long)accepted, seconds, (double)accepted / seconds,
			accept_seconds);
	close_database();
	free(arrivals);
	return 0;
}
