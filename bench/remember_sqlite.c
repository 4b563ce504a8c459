/* SPDX-License-Identifier: MIT */
/*
 * Fills the dedupe memory in a file that has the tables of Postern, as if COUNT
 * messages had been accepted DAYS ago and removed since.
 *
 *   remember_sqlite FILE COUNT [DAYS]
 *
 * Fast, because nothing is durable before the end and the whole table is in
 * memory; realistic, because the keys are random and sorted only within batches
 * of a thousand, so that the pages of the table are as full and as scattered as
 * after years of messages.
 */

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 1000
/* The size of a row in a page that is two thirds full, rounded up. */
#define ROW_BYTES 128

struct row {
	uint8_t key[24];
	uint8_t digest[16];
};

static sqlite3 *database;

static void check(bool good, const char *what) {
	if (!good) {
		(void)fprintf(stderr, "remember_sqlite: %s: %s\n", what,
				database ? sqlite3_errmsg(database) : "no memory");
		exit(1);
	}
}

static void exec(const char *sql) {
	check(sqlite3_exec(database, sql, NULL, NULL, NULL) == SQLITE_OK, sql);
}

static int compare(const void *a, const void *b) {
	return memcmp(((const struct row *)a)->key, ((const struct row *)b)->key,
			sizeof((struct row *)0)->key);
}

static uint64_t next_random(uint64_t *state) {
	uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static void make_rows(struct row *rows, uint64_t *state) {
	for (size_t i = 0; i < BATCH; i++) {
		uint64_t words[sizeof *rows / sizeof(uint64_t)];
		for (size_t j = 0; j < sizeof words / sizeof words[0]; j++) {
			words[j] = next_random(state);
		}
		memcpy(&rows[i], words, sizeof words);
	}
	qsort(rows, BATCH, sizeof *rows, compare);
}

static void fill(int64_t count, int64_t now) {
	static struct row rows[BATCH];
	uint64_t state = (uint64_t)now;
	sqlite3_stmt *insert;
	check(sqlite3_prepare_v3(database,
				  "INSERT INTO postern_seen VALUES (?1, ?2, ?3, ?4, 1, 0)", -1,
				  SQLITE_PREPARE_PERSISTENT, &insert, NULL) == SQLITE_OK,
			"prepare");
	for (int64_t done = 0; done < count; done++) {
		const struct row *row = &rows[done % BATCH];
		if (done % BATCH == 0) {
			make_rows(rows, &state);
		}
		check(sqlite3_bind_blob(insert, 1, row->key, sizeof row->key,
					  SQLITE_STATIC) == SQLITE_OK &&
						sqlite3_bind_int64(insert, 2, done + 1) == SQLITE_OK &&
						sqlite3_bind_blob(insert, 3, row->digest,
								sizeof row->digest,
								SQLITE_STATIC) == SQLITE_OK &&
						sqlite3_bind_int64(insert, 4, now) == SQLITE_OK &&
						sqlite3_step(insert) == SQLITE_DONE,
				"insert");
		(void)sqlite3_reset(insert); /* repeats the code of the step */
	}
	(void)sqlite3_finalize(insert); /* the same */
}

int main(int argc, char **argv) {
	int64_t count = argc > 2 ? strtoll(argv[2], NULL, 10) : -1;
	int64_t days = argc > 3 ? strtoll(argv[3], NULL, 10) : 0;
	if (argc > 4 || count < 0 || days < 0) {
		(void)fprintf(stderr, "usage: remember_sqlite FILE COUNT [DAYS]\n");
		return 2;
	}
	struct timespec now;
	char sql[128];
	(void)clock_gettime(CLOCK_REALTIME, &now);
	check(sqlite3_open_v2(argv[1], &database, SQLITE_OPEN_READWRITE, NULL) ==
					SQLITE_OK,
			argv[1]);
	(void)snprintf(sql, sizeof sql, "PRAGMA cache_size = -%lld",
			(long long)count * ROW_BYTES / 1024 + 65536);
	exec(sql);
	exec("PRAGMA journal_mode = OFF");
	exec("PRAGMA synchronous = OFF");
	exec("BEGIN");
	fill(count, ((int64_t)now.tv_sec - days * 86400) * 1000);
	(void)snprintf(sql, sizeof sql,
			"UPDATE postern_meta SET value = %lld WHERE name = 'last_seq'",
			(long long)count);
	exec(sql);
	exec("COMMIT");
	(void)sqlite3_close(database); /* nothing is open */
	return 0;
}
