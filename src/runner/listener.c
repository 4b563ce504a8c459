/* SPDX-License-Identifier: MIT */

/*
 * The thread that hears of work that other processes made, where a store is
 * shared. What it misses the steward finds, who looks every now and then.
 */

#include "runner/runner.h"

/* Long, as it is woken to stop. */
#define WAIT_MS ((int64_t)60 * 1000)

static bool is_stopping(struct postern_runner *runner) {
	(void)pthread_mutex_lock(&runner->box->lock);
	bool stopping = runner->stopping;
	(void)pthread_mutex_unlock(&runner->box->lock);
	return stopping;
}

/* Until the store is tried again, or the runner stops. */
static void rest(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	int64_t until =
			postern__box_after_ms(box, runner->options.restart_delay_ms);
	(void)pthread_mutex_lock(&box->lock);
	int64_t left = until - postern__box_now_ms(box);
	while (!runner->stopping && left > 0) {
		postern__wait(&runner->steward_wake, &box->lock, left);
		left = until - postern__box_now_ms(box);
	}
	(void)pthread_mutex_unlock(&box->lock);
}

void *postern__listener_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	struct postern_error error;
	while (!is_stopping(runner)) {
		bool woken = false;
		int r = box->store->ops->wait(box->store, WAIT_MS, &woken, &error);
		if (r == POSTERN_E_UNSUPPORTED) {
			postern__runner_report(runner, error.text);
			return NULL;
		}
		if (r) {
			/* Whoever writes will tell that the store is in trouble. */
			rest(runner);
			continue;
		}
		if (woken) {
			(void)pthread_mutex_lock(&box->lock);
			postern__claim_hint_all(box);
			runner->collector_called = true;
			(void)pthread_cond_signal(&runner->collector_wake);
			(void)pthread_mutex_unlock(&box->lock);
		}
	}
	return NULL;
}
