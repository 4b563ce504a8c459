/* SPDX-License-Identifier: MIT */

/*
 * The thread that hears of work that other processes made, where a store is
 * shared. What it misses the steward finds, who looks every now and then.
 */

#include "runner/runner.h"

#include <stdio.h>

/* Long, as it is woken to stop. */
#define WAIT_MS ((int64_t)60 * 1000)

static bool is_stopping(struct postern_runner *runner) {
	(void)pthread_mutex_lock(&runner->box->mutex);
	bool stopping = runner->stopping;
	(void)pthread_mutex_unlock(&runner->box->mutex);
	return stopping;
}

/* Until the store is tried again, or the runner stops. */
static void sleep_until_retry(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	int64_t until =
			postern__box_after_ms(box, runner->options.restart_delay_ms);
	(void)pthread_mutex_lock(&box->mutex);
	int64_t left = until - postern__box_now_ms(box);
	while (!runner->stopping && left > 0) {
		postern__wait(&runner->maintenance_wake, &box->mutex, left);
		left = until - postern__box_now_ms(box);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

/*
 * It fails where nothing else may: a connection of its own can lead elsewhere.
 * Whoever writes tells that the store as a whole is in trouble, perhaps in a
 * moment; so what worked before is told of when it has failed twice.
 */
static void report_wait_failure(struct postern_runner *runner, bool worked, unsigned failures,
		const struct postern_error *error) {
	char text[POSTERN_ERROR_TEXT_MAX + 96];
	(void)pthread_mutex_lock(&runner->box->mutex);
	bool reported = runner->store_unavailable || runner->stopping;
	(void)pthread_mutex_unlock(&runner->box->mutex);
	if (reported || failures != (worked ? 2 : 1)) {
		return;
	}
	(void)snprintf(text, sizeof(text),
			"new work of other nodes is not heard of, only looked for: %s",
			error->text);
	postern__runner_report(runner, text);
}

void *postern__wakeup_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	struct postern_error error;
	unsigned failures = 0;
	bool worked = false;
	while (!is_stopping(runner)) {
		bool woken = false;
		int r = box->store->ops->wait(box->store, WAIT_MS, &woken, &error);
		if (r == POSTERN_E_UNSUPPORTED) {
			postern__runner_report(runner, error.text);
			return NULL;
		}
		if (r) {
			report_wait_failure(runner, worked, ++failures, &error);
			sleep_until_retry(runner);
			continue;
		}
		worked = true;
		failures = 0;
		if (woken) {
			postern__claimer_wake(runner);
			(void)pthread_mutex_lock(&box->mutex);
			runner->collector_called = true;
			(void)pthread_cond_signal(&runner->collector_wake);
			(void)pthread_mutex_unlock(&box->mutex);
		}
	}
	return NULL;
}
