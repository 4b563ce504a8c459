/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_RUNNER_RUNNER_H
#define POSTERN_RUNNER_RUNNER_H

/* What the runner's threads share. */

#include "core/box.h"
#include "core/maintenance.h"

#include <postern/runner.h>
#include <pthread.h>

struct postern_runner {
	struct postern_box *box;
	struct postern_runner_options options;
	pthread_t writer;
	pthread_t watchdog;
	struct postern__worker *workers; /* workers_max of them */
	size_t worker_count;             /* alive; with the mutex */
	bool writer_started;
	bool watchdog_started;
	pthread_t claimer;
	bool claimer_started;
	pthread_t renewer;
	bool renewer_started;
	pthread_t maintenance;
	bool maintenance_started;
	pthread_t wakeup;
	bool wakeup_started;
	/* Fixed once the runner is started. */
	struct postern_sink **sinks;
	size_t sink_count;
	struct postern_source *staged; /* one of them; NULL: no staging */
	/* The maintenance thread and the renewer wait for these, with the box's
	   mutex. */
	pthread_cond_t maintenance_wake;
	pthread_cond_t renewer_wake;
	/* Used by the maintenance thread alone. */
	int64_t recover_at_ms;
	int64_t cancels_at_ms;
	int64_t share_at_ms;
	int64_t poll_at_ms;
	int64_t clean_at_ms;
	struct postern__cleanup cleanup;
	/* Used by the writer alone. */
	int64_t probe_at_ms;
	/* The first settlement that waits for accepts to be committed with, NULL
	   if none does, and since when, by the machine's clock. Compared, never
	   dereferenced: it may be freed. */
	const struct postern__list *linger_first;
	int64_t linger_ns;

	/* Guarded by the box's mutex. */
	bool stopping;
	bool pauses_stale; /* the pauses must be read again before the next claim */
	bool store_unavailable;
};

/*
 * Record the result of a write, and report when the store becomes unavailable
 * and when it is available again. A read that succeeded must not be recorded:
 * a store that can be read may still be full.
 */
void postern__runner_store_result(struct postern_runner *runner, int code,
		const struct postern_error *error);

/* workers.c: the threads that start runs. */
struct postern__worker;
int postern__workers_create(struct postern_runner *runner,
		struct postern_error *error);
int postern__workers_start(struct postern_runner *runner,
		struct postern_error *error);
/* Add workers if handlers wait for one; by the watchdog. Returns when to call
   again, POSTERN__NEVER unless handlers wait. */
int64_t postern__workers_grow(struct postern_runner *runner);
/* Join all of them, after `stopping` was set. */
void postern__workers_stop(struct postern_runner *runner);

/* claimer.c: the thread that claims. */
void *postern__claimer_loop(void *context);
/* Make the claimer read the pauses and claim for all handlers: the store may
   have deliveries that this node does not know of. */
void postern__claimer_wake(struct postern_runner *runner);

/* maintenance.c: the threads that renew the node and maintain the store. */
void *postern__renewer_loop(void *context);
void *postern__maintenance_loop(void *context);

/* wakeup.c: the thread that waits for notifications of other nodes. */
void *postern__wakeup_loop(void *context);

/* sources.c, without the mutex. */
/* Add the source of staged messages, if the store has staging. */
int postern__sources_add_staged(struct postern_runner *runner,
		struct postern_error *error);
/* Another node has notified this one: messages may be staged. */
void postern__sources_store_notified(struct postern_runner *runner);
int postern__sources_start(struct postern_runner *runner,
		struct postern_error *error);
/* Take no further messages. Does not wait; again is fine. */
void postern__sources_stop(struct postern_runner *runner);
/* Whether the completion of a message was not delivered yet. */
bool postern__sources_in_flight(const struct postern_runner *runner);
/* End the sources; messages in flight are completed as unavailable. */
void postern__sources_end(struct postern_runner *runner);
void postern__sources_destroy(struct postern_runner *runner);
/* The sources one after the other, and the channel that each feeds; NULL: no
   more. */
struct postern_source *postern__sources_at(const struct postern_runner *runner,
		size_t index, const char **channel_out);

#endif
