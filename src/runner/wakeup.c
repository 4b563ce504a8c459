/* SPDX-License-Identifier: MIT */

/*
 * The wake-up thread: waits for notifications of other nodes, in a store that
 * several nodes share, and wakes the claimer and the collector. If one is
 * missed, the maintenance thread finds the deliveries when it polls.
 */

#include "runner/runner.h"

#include "core/cancel.h"

/* Long: end_wait() ends the wait when the runner stops. */
#define WAIT_MS ((int64_t)60 * 1000)

static bool is_stopping(struct postern_runner *runner) {
	(void)pthread_mutex_lock(&runner->box->mutex);
	bool stopping = runner->stopping;
	(void)pthread_mutex_unlock(&runner->box->mutex);
	return stopping;
}

/* Sleep until the store is tried again, or the runner stops. */
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
 * A wait may fail while the store works, because it uses a connection of its
 * own, perhaps to another address. If the store as a whole is unavailable, the
 * writer reports that, perhaps a moment later; so a wait that worked before is
 * reported only after two failures.
 */
static void report_wait_failure(struct postern_runner *runner, bool worked,
		unsigned failures, const struct postern_error *error) {
	(void)pthread_mutex_lock(&runner->box->mutex);
	bool reported = runner->store_unavailable || runner->stopping;
	(void)pthread_mutex_unlock(&runner->box->mutex);
	if (reported || failures != (worked ? 2 : 1)) {
		return;
	}
	postern__emit_text(runner->box,
			&(struct postern_event){
					.kind = POSTERN_EVENT_NOTIFICATIONS_FAILED,
					.error = error->text,
			},
			"cannot wait for notifications of other nodes; polling instead: %s",
			error->text);
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
			postern__emit(box,
					&(struct postern_event){
							.kind = POSTERN_EVENT_NOTIFICATIONS_FAILED,
							.error = error.text,
							.text = error.text,
					});
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
			/* If it fails, the maintenance thread repeats it. */
			(void)postern__cancels_poll(box, NULL);
			postern__sources_store_notified(runner);
		}
	}
	return NULL;
}
