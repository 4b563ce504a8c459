/* SPDX-License-Identifier: MIT */
/* The guard in the scenario: functions that run once for a key, and their
   effects. */

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash/faults.h"
#include "crash/world.h"

#define HANDLER "job"
#define KEY_COUNT 3
#define TRIES 5
#define REST_MS 5000

static void key_of(int number, char out[16]) {
	(void)snprintf(out, 16, "job-%d", number);
}

static int open_guard(struct world *world, bool guest,
		struct postern_guard **out) {
	const struct postern_guard_options options = {
		.size = sizeof options,
		/* Without a timeout there is no thread, and every life is the same. */
		.timeout_ms = -1,
		.clock = &world->clock,
		.random = &world->random,
	};
	return guest ? postern_guard_open(world->url, &options, out, NULL)
				 : postern_guard_create(world->box, &options, out, NULL);
}

struct job {
	const struct world *world;
	int number;
};

static void run_job(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	const struct job *job = context;
	if (!effects_write(&job->world->effects, call->transaction, job->number,
				WORLD_JOB, call->fence)) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "no effect");
	}
}

/* Returns whether it is done, as far as is known. */
static bool run_guarded(struct world *world, struct postern_guard *guard,
		int number) {
	char key[16];
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = HANDLER,
		.key = key,
		.transactional = true,
	};
	struct job job = { .world = world, .number = number };
	key_of(number, key);
	int r = postern_guard_run(guard, &guarded, run_job, &job, NULL, NULL);
	return r == POSTERN_OK || r == POSTERN_E_DUPLICATE;
}

static void mark_each_way(struct postern_guard *guard) {
	(void)postern_mark_try(guard, "mark", "k-1", NULL);
	(void)postern_mark_forget(guard, "mark", "k-1", NULL);
	(void)postern_mark_record(guard, "mark", "k-1", NULL);
	(void)postern_mark_begin(guard, "mark", "k-2", 17, 60000, NULL, NULL);
	(void)postern_mark_extend(guard, "mark", "k-2", 17, 60000, NULL);
	(void)postern_mark_finish(guard, "mark", "k-2", 17, NULL);
}

void world_mark(struct world *world) {
	struct postern_guard *guard = NULL;
	faults_arm(true);
	if (open_guard(world, false, &guard) == POSTERN_OK) {
		mark_each_way(guard);
		(void)run_guarded(world, guard, 1);
		(void)run_guarded(world, guard, 2);
		(void)run_guarded(world, guard, 1);
	}
	postern_guard_destroy(guard);
	faults_arm(false);
}

static bool run_sql(sqlite3 *db, const char *sql) {
	return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* On a connection of the program. */
static void mark_own(struct world *world, struct postern_guard *guard,
		int number) {
	char key[16];
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = HANDLER,
		.key = key,
	};
	sqlite3 *db = NULL;
	key_of(number, key);
	if (sqlite3_open(world->path, &db) == SQLITE_OK &&
			run_sql(db, "BEGIN IMMEDIATE")) {
		bool good = postern_mark_in(guard, db, &guarded, NULL) == POSTERN_OK &&
					effects_write(&world->effects, db, number, WORLD_JOB, 1);
		/* If this fails, closing the connection rolls back. */
		(void)run_sql(db, good ? "COMMIT" : "ROLLBACK");
	}
	(void)sqlite3_close(db);
}

void world_mark_shared(struct world *world) {
	struct postern_guard *guard = NULL;
	faults_arm(true);
	if (open_guard(world, true, &guard) == POSTERN_OK) {
		mark_each_way(guard);
		(void)run_guarded(world, guard, 1);
		mark_own(world, guard, 2);
		mark_own(world, guard, 2);
		(void)run_guarded(world, guard, 2);
	}
	postern_guard_destroy(guard);
	faults_arm(false);
}

struct count {
	int number;
	int count;
};

static void count_effect(void *context, int64_t seq, const char *handler,
		uint64_t fence) {
	struct count *count = context;
	(void)fence;
	count->count += seq == count->number && strcmp(handler, WORLD_JOB) == 0;
}

/* How many effects there are, and whether the marker is done; false if that
   changed meanwhile, by another process. */
static bool read_job(const struct world *world, struct postern_guard *guard,
		int number, int *effects_out, bool *done_out) {
	struct count count = { .number = number };
	char key[16];
	bool done = false;
	bool after = false;
	key_of(number, key);
	if (postern_mark_has(guard, HANDLER, key, &done, NULL) != POSTERN_OK ||
			!effects_read(&world->effects, count_effect, &count) ||
			postern_mark_has(guard, HANDLER, key, &after, NULL) != POSTERN_OK) {
		return false;
	}
	*effects_out = count.count;
	*done_out = done;
	return done == after;
}

void world_check_marks(struct world *world, bool finish) {
	struct postern_guard *guard = NULL;
	if (open_guard(world, false, &guard) != POSTERN_OK) {
		(void)fputs("scenario: cannot open a guard\n", stderr);
		exit(3);
	}
	for (int number = 1; number <= KEY_COUNT; number++) {
		int effects = 0;
		bool done = false;
		for (int i = 0;
				finish && i < TRIES && !run_guarded(world, guard, number);
				i++) {
			world_wait(world, REST_MS);
		}
		bool known = read_job(world, guard, number, &effects, &done);
		if ((known && effects != done) || (finish && !(known && done))) {
			(void)fprintf(stderr, "scenario: job %d has %d effects and is %s\n",
					number, effects, done ? "done" : "not done");
			exit(3);
		}
	}
	postern_guard_destroy(guard);
}
