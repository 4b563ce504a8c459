/* SPDX-License-Identifier: MIT */
/* A renewer and a watchdog for processing without a runner: the thread that
   runs a handler cannot do their work meanwhile. */

#include "runner/renewer.h"

#include "base/wait.h"
#include "core/box.h"
#include "core/cancel.h"
#include "core/maintenance.h"
#include "core/run.h"
#include "core/tenure.h"

#include <pthread.h>
#include <stdbool.h>

/* The delay after a failure, and before the first renewal where there is a lock
   but no node lease. */
#define AGAIN_MS ((int64_t)1000)

struct renewer {
	struct postern_box *box;
	pthread_t thread;
	bool started;
	pthread_t watchdog;
	bool watchdog_started;
	bool watchdog_stopping; /* guarded by the box's mutex */
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	bool stopping; /* guarded by `mutex` */
};

/* With renewer->mutex. */
static void renewer_sleep(struct renewer *renewer, int64_t ms) {
	if (!renewer->stopping && ms > 0) {
		postern__wait(&renewer->wake, &renewer->mutex, ms);
	}
}

static void *renew_loop(void *context) {
	struct renewer *renewer = context;
	struct postern_box *box = renewer->box;
	int64_t third = box->options.node_lease_ms / 3;
	/* postern__process() renews at its beginning. */
	int64_t next = postern__box_after_ms(box, third > 0 ? third : AGAIN_MS);
	(void)pthread_mutex_lock(&renewer->mutex);
	while (!renewer->stopping) {
		int64_t left = next - postern__box_now_ms(box);
		renewer_sleep(renewer, left < AGAIN_MS ? left : AGAIN_MS);
		(void)pthread_mutex_unlock(&renewer->mutex);
		/* Errors are left to postern__process(), which renews too. */
		if (postern__box_now_ms(box) >= next &&
				postern__renew(box, &next, NULL)) {
			next = postern__box_after_ms(box, AGAIN_MS);
		}
		(void)postern__cancels_poll(box, NULL);
		(void)pthread_mutex_lock(&renewer->mutex);
	}
	(void)pthread_mutex_unlock(&renewer->mutex);
	return NULL;
}

/* Cancel runs that are past their deadline. */
static void *process_watchdog_loop(void *context) {
	struct renewer *renewer = context;
	struct postern_box *box = renewer->box;
	int64_t next;
	do {
		next = postern__watchdog_step(box);
	} while (postern__watchdog_sleep(box, next, &renewer->watchdog_stopping));
	return NULL;
}

static void renewer_start(struct renewer *renewer) {
	/* Neither can fail on Linux. */
	(void)pthread_mutex_init(&renewer->mutex, NULL);
	(void)postern__wait_init(&renewer->wake);
	renewer->started =
			postern__needs_renewal(renewer->box) &&
			pthread_create(&renewer->thread, NULL, renew_loop, renewer) == 0;
	renewer->watchdog_started = pthread_create(&renewer->watchdog, NULL,
										process_watchdog_loop, renewer) == 0;
}

static void renewer_stop(struct renewer *renewer) {
	(void)pthread_mutex_lock(&renewer->mutex);
	renewer->stopping = true;
	(void)pthread_cond_signal(&renewer->wake);
	(void)pthread_mutex_unlock(&renewer->mutex);
	(void)pthread_mutex_lock(&renewer->box->mutex);
	renewer->watchdog_stopping = true;
	(void)pthread_cond_signal(&renewer->box->watch);
	(void)pthread_mutex_unlock(&renewer->box->mutex);
	if (renewer->started) {
		(void)pthread_join(renewer->thread, NULL);
	}
	if (renewer->watchdog_started) {
		(void)pthread_join(renewer->watchdog, NULL);
	}
	(void)pthread_cond_destroy(&renewer->wake);
	(void)pthread_mutex_destroy(&renewer->mutex);
}

int postern__process_renewing(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error) {
	struct renewer renewer = { .box = box };
	renewer_start(&renewer);
	int r = postern__process(box, max, count_out, error);
	renewer_stop(&renewer);
	postern__lock_release(box);
	return r;
}
