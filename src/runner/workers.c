/* SPDX-License-Identifier: MIT */
/*
 * The workers: threads that start runs.
 *
 * There are `workers` of them, and more as long as handlers hang: when a run
 * could start, no worker is idle, and none has taken a run for GROW_MS, the
 * watchdog adds a worker for each handler that waits, up to workers_max. So a
 * run of one handler starts soon, however many runs of others hang, while
 * handlers that are merely busy share the usual number. A worker beyond that
 * number ends when it was idle for IDLE_MS.
 *
 * core/reason.c keeps one handler from taking all of them.
 */

#include "base/fail.h"
#include "base/point.h"
#include "core/box.h"
#include "core/run.h"
#include "runner/runner.h"

#include <stdlib.h>
#include <string.h>

/* Long enough for handlers that are merely busy to take the next run. */
#define GROW_MS 100
#define IDLE_MS ((int64_t)10 * 1000)

enum worker_state { WORKER_NONE, WORKER_ALIVE, WORKER_ENDED };

struct postern__worker {
	struct postern_runner *runner;
	pthread_t thread;
	enum worker_state state; /* with the mutex */
};

/* With the mutex: how long an idle worker waits; -1: until it is woken. */
static int64_t idle_ms(const struct postern_runner *runner) {
	const struct postern_box *box = runner->box;
	int64_t retry = box->transact_retry_at_ms - postern__box_now_ms(box);
	int64_t most =
			runner->worker_count > runner->options.workers ? IDLE_MS : -1;
	return retry > 0 && (most < 0 || retry < most) ? retry : most;
}

/* With the mutex: wait for a run. False: this worker is not needed any more. */
static bool wait_for_work(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	bool ready = postern__run_ready(box);
	if (ready || runner->stopping) {
		return !runner->stopping;
	}
	int64_t since = postern__box_now_ms(box);
	box->idle_workers++;
	while (!runner->stopping && !(ready = postern__run_ready(box))) {
		/* Starts may have to be reserved. */
		postern__claim_nudge(box);
		if (runner->worker_count > runner->options.workers &&
				postern__box_now_ms(box) - since >= IDLE_MS) {
			break;
		}
		postern__wait(&box->work, &box->mutex, idle_ms(runner));
	}
	box->idle_workers--;
	return ready && !runner->stopping;
}

static void *worker_loop(void *context) {
	struct postern__worker *worker = context;
	struct postern_runner *runner = worker->runner;
	struct postern_box *box = runner->box;
	(void)pthread_mutex_lock(&box->mutex);
	while (wait_for_work(runner)) {
		box->worker_took_ms = postern__box_now_ms(box);
		(void)pthread_mutex_unlock(&box->mutex);
		size_t count;
		postern__point("worker.running");
		(void)postern__run_one(box, SIZE_MAX, &count);
		(void)pthread_mutex_lock(&box->mutex);
	}
	worker->state = WORKER_ENDED;
	runner->worker_count--;
	(void)pthread_mutex_unlock(&box->mutex);
	return NULL;
}

/* With the mutex: a place for a worker; those that have ended are joined. */
static struct postern__worker *free_place(struct postern_runner *runner) {
	for (size_t i = 0; i < runner->options.workers_max; i++) {
		struct postern__worker *worker = &runner->workers[i];
		if (worker->state == WORKER_ENDED) {
			/* The thread has nothing left to do but return. */
			(void)pthread_join(worker->thread, NULL);
			worker->state = WORKER_NONE;
		}
		if (worker->state == WORKER_NONE) {
			return worker;
		}
	}
	return NULL;
}

/* With the mutex. */
static int add_worker(struct postern_runner *runner,
		struct postern_error *error) {
	struct postern__worker *worker = free_place(runner);
	if (!worker) {
		return postern__fail(error, POSTERN_E_BUSY, "no place for a worker");
	}
	worker->runner = runner;
	int r = pthread_create(&worker->thread, NULL, worker_loop, worker);
	if (r) {
		return postern__fail(error, POSTERN_E_NOMEM,
				"cannot start a thread: %s", strerror(r));
	}
	worker->state = WORKER_ALIVE;
	runner->worker_count++;
	return POSTERN_OK;
}

int postern__workers_create(struct postern_runner *runner,
		struct postern_error *error) {
	runner->workers =
			calloc(runner->options.workers_max, sizeof(*runner->workers));
	return runner->workers
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

int postern__workers_start(struct postern_runner *runner,
		struct postern_error *error) {
	struct postern_box *box = runner->box;
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&box->mutex);
	box->workers = runner->options.workers;
	box->workers_max = runner->options.workers_max;
	box->worker_took_ms = postern__box_now_ms(box);
	while (!r && runner->worker_count < runner->options.workers) {
		r = add_worker(runner, error);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return r;
}

int64_t postern__workers_grow(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	int64_t next = POSTERN__NEVER;
	(void)pthread_mutex_lock(&box->mutex);
	if (!runner->stopping && box->idle_workers == 0 &&
			runner->worker_count < runner->options.workers_max) {
		size_t waiting = postern__run_ready_count(box);
		int64_t now = postern__box_now_ms(box);
		if (waiting > 0 && now - box->worker_took_ms < GROW_MS) {
			next = box->worker_took_ms + GROW_MS;
		} else if (waiting > 0) {
			while (waiting-- > 0 && add_worker(runner, NULL) == POSTERN_OK) {
			}
			next = now + GROW_MS;
		}
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return next;
}

void postern__workers_stop(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	for (size_t i = 0; i < runner->options.workers_max; i++) {
		struct postern__worker *worker = &runner->workers[i];
		(void)pthread_mutex_lock(&box->mutex);
		bool started = worker->state != WORKER_NONE;
		(void)pthread_mutex_unlock(&box->mutex);
		if (started) {
			(void)pthread_join(worker->thread, NULL);
			worker->state = WORKER_NONE;
		}
	}
	(void)pthread_mutex_lock(&box->mutex);
	box->workers = 0;
	(void)pthread_mutex_unlock(&box->mutex);
}
