/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_RUNNER_H
#define POSTERN_RUNNER_RUNNER_H

/* What the runner's threads share; the box's lock guards what they meet in. */

#include "core/box.h"

#include <postern/runner.h>
#include <pthread.h>

struct postern_runner {
	struct postern_box *box;
	struct postern_runner_options options;
	pthread_t writer;
	pthread_t keeper;
	pthread_t *workers;
	size_t worker_count; /* started */
	bool writer_started;
	bool keeper_started;
	pthread_t claimer;
	bool claimer_started;
	pthread_t renewer;
	bool renewer_started;
	pthread_t steward;
	bool steward_started;
	pthread_t listener;
	bool listener_started;
	pthread_t collector;
	bool collector_started;
	/* The collector sleeps here, with the box's lock. */
	pthread_cond_t collector_wake;
	bool collector_called; /* guarded by the lock: something may be there */
	/* The steward and the renewer sleep here, with the box's lock. */
	pthread_cond_t steward_wake;
	pthread_cond_t renewer_wake;
	/* The steward's own. */
	int64_t recover_at_ms;
	int64_t poll_at_ms;
	int64_t clean_at_ms;
	struct postern__cleanup cleanup;
	/* The writer's own. */
	int64_t probe_at_ms;
	/* The first of the results that wait for messages to be committed with,
	   NULL if none do, and since when, by the machine's clock. Only compared:
	   it may be gone. */
	const struct postern__list *linger_first;
	int64_t linger_ns;

	/* Guarded by the box's lock. */
	bool stopping;
	bool pauses_stale; /* which handlers are paused is to be read again */
	bool in_trouble;
};

/* A line for the log. */
void postern__runner_report(struct postern_runner *runner, const char *text);
/*
 * What the last write said of the store. Only changes are news, and only
 * writes count: a store that can be read may still be full.
 */
void postern__runner_note(struct postern_runner *runner, int code,
		const struct postern_error *error);

/* claimer.c: the thread that claims. */
void *postern__claimer_loop(void *context);
/* There may be work in the store that this box does not know of, and handlers
   may have been paused or resumed. */
void postern__claimer_wake(struct postern_runner *runner);

/* steward.c: the threads that renew the node and keep house in the store. */
void *postern__renewer_loop(void *context);
void *postern__steward_loop(void *context);

/* listener.c: the thread that hears of work that other processes made. */
void *postern__listener_loop(void *context);

/* collector.c: the thread that accepts what was staged. */
void *postern__collector_loop(void *context);

#endif
