/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_GUARD_SCENE_H
#define POSTERN_TESTS_GUARD_SCENE_H

/* What the tests of the guard share: a guard on a store of its own, and
   functions that it runs. */

#include <postern/postern.h>
#include <postern/sys/clock.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/temp_dir.h"
#include "tap.h"

struct scene {
	struct temp_dir dir;
	char url[TEMP_DIR_PATH_MAX + 16];
	struct postern_guard *guard;
	struct postern_error error;
};

__attribute__((unused)) static bool scene_open(struct scene *scene,
		const char *kind, const struct postern_guard_options *options) {
	*scene = (struct scene){ 0 };
	temp_dir_create(&scene->dir);
	if (strcmp(kind, "sqlite") == 0) {
		(void)snprintf(scene->url, sizeof scene->url, "sqlite:%s/guard.db",
				scene->dir.path);
	} else {
		(void)snprintf(scene->url, sizeof scene->url, "memory:");
	}
	return CHECK_OK(postern_guard_open(scene->url, options, &scene->guard,
							&scene->error),
			&scene->error);
}

__attribute__((unused)) static void scene_close(struct scene *scene) {
	postern_guard_destroy(scene->guard);
	temp_dir_destroy(&scene->dir);
}

__attribute__((unused)) static struct postern_guarded
guarded_of(const char *key, bool transactional) {
	return (struct postern_guarded){
		.size = sizeof(struct postern_guarded),
		.handler = "charge-v1",
		.key = key,
		.transactional = transactional,
	};
}

/* What the function does, and what came of it. */
struct work {
	atomic_int calls;
	atomic_int ended;
	enum postern_outcome_kind outcome;
	const char *reason;
	int sleep_ms;
	bool writes; /* a row into the table `effect` */
	atomic_bool entered;
	atomic_bool *hold; /* wait until it is false */
};

__attribute__((unused)) static void sleep_ms(int ms) {
	struct timespec time = { ms / 1000, ms % 1000 * 1000000L };
	(void)nanosleep(&time, NULL);
}

__attribute__((unused)) static void write_effect(
		const struct postern_guard_call *call) {
	CHECK(call->transaction);
	CHECK_INT(sqlite3_exec(call->transaction,
					  "CREATE TABLE IF NOT EXISTS effect (x);"
					  "INSERT INTO effect VALUES (1)",
					  NULL, NULL, NULL),
			SQLITE_OK);
}

__attribute__((unused)) static void do_work(void *context,
		const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct work *work = context;
	work->calls++;
	work->entered = true;
	if (work->writes) {
		write_effect(call);
	}
	while (work->hold && *work->hold) {
		sleep_ms(1);
	}
	if (work->sleep_ms > 0) {
		sleep_ms(work->sleep_ms);
	}
	postern_outcome_set(outcome, work->outcome, 0, work->reason);
	work->ended++;
}

__attribute__((unused)) static int run(struct scene *scene, const char *key,
		bool transactional, struct work *work) {
	struct postern_guarded guarded = guarded_of(key, transactional);
	return postern_guard_run(scene->guard, &guarded, do_work, work, NULL,
			&scene->error);
}

/* Rows in the table `effect`, read by another connection. */
__attribute__((unused)) static int count_effects(const struct scene *scene) {
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	int count = 0;
	CHECK_INT(sqlite3_open_v2(scene->url + strlen("sqlite:"), &db,
					  SQLITE_OPEN_READONLY, NULL),
			SQLITE_OK);
	if (sqlite3_prepare_v2(db, "SELECT count(*) FROM effect", -1, &statement,
				NULL) == SQLITE_OK &&
			sqlite3_step(statement) == SQLITE_ROW) {
		count = sqlite3_column_int(statement, 0);
	}
	(void)sqlite3_finalize(statement);
	(void)sqlite3_close(db);
	return count;
}

/* A call on a thread of its own. */
struct caller {
	pthread_t thread;
	struct scene *scene;
	struct work *work;
	const char *key;
	bool transactional;
	int result;
};

__attribute__((unused)) static void *call_once(void *context) {
	struct caller *caller = context;
	struct postern_guarded guarded =
			guarded_of(caller->key, caller->transactional);
	caller->result = postern_guard_run(caller->scene->guard, &guarded, do_work,
			caller->work, NULL, NULL);
	return NULL;
}

__attribute__((unused)) static void start_caller(struct caller *caller) {
	(void)pthread_create(&caller->thread, NULL, call_once, caller);
	while (!caller->work->entered) {
		sleep_ms(1);
	}
}

#endif
