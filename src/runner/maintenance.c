/* SPDX-License-Identifier: MIT */
/*
 * Two threads that maintain this node and the store.
 *
 * The renewer asks the store to let this node process, renews the node's lease
 * and the processing lock, and does nothing else: any other work could delay a
 * renewal. On a store that needs none of that it sleeps.
 *
 * The maintenance thread recovers the leases of expired nodes, poisons orphans
 * and cleans up.
 */

#include "runner/runner.h"

#include "base/point.h"
#include "core/cancel.h"
#include "core/pull.h"
#include "core/run.h"

/* A run is cancelled within a second also without a notification. */
#define CANCELS_INTERVAL_MS ((int64_t)1000)
/* How often leases are returned to nodes that are idle. */
#define SHARE_INTERVAL_MS ((int64_t)1000)

/* Recover, poison orphans, and make the claimer claim for all handlers. */
static void poll_store(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	struct postern_error error = { 0 };
	size_t count;
	postern__point("steward.polling");
	int r = postern__recover(box, NULL, &error);
	if (!r && box->options.orphans == POSTERN_ORPHANS_POISON) {
		r = postern__poison_orphans(box, &count, &error);
	}
	if (!r) {
		r = postern__generations_reap(box, &error);
	}
	if (r) {
		postern__runner_store_result(runner, r, &error);
	}
	(void)pthread_mutex_lock(&box->mutex);
	postern__pulls_look(box);
	(void)pthread_mutex_unlock(&box->mutex);
	postern__claimer_wake(runner);
	runner->poll_at_ms =
			postern__box_after_ms(box, runner->options.polling_interval_ms);
}

/* Between two polls: recover the leases of nodes soon after they are late. */
static void recover_leases(struct postern_runner *runner) {
	struct postern_error error = { 0 };
	int r = postern__recover(runner->box, NULL, &error);
	if (r) {
		postern__runner_store_result(runner, r, &error);
	}
	runner->recover_at_ms = postern__box_after_ms(runner->box,
			postern__renewal_interval_ms(runner->box));
}

/* Cancel the runs for which an operator requested it through another node. */
static void poll_cancels(struct postern_runner *runner) {
	struct postern_error error = { 0 };
	int r = postern__cancels_poll(runner->box, &error);
	if (r) {
		postern__runner_store_result(runner, r, &error);
	}
	runner->cancels_at_ms =
			postern__box_after_ms(runner->box, CANCELS_INTERVAL_MS);
}

static void share_leases(struct postern_runner *runner) {
	struct postern_error error = { 0 };
	int r = postern__share(runner->box, &error);
	if (r) {
		postern__runner_store_result(runner, r, &error);
	}
	runner->share_at_ms = postern__box_after_ms(runner->box, SHARE_INTERVAL_MS);
}

static void clean_next_batch(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	struct postern_error error = { 0 };
	bool more = false;
	postern__point("steward.cleaning");
	int r = postern__cleanup_step(box, &runner->cleanup, &more, &error);
	if (r) {
		postern__runner_store_result(runner, r, &error);
	}
	if (more) {
		runner->clean_at_ms = postern__box_after_ms(box,
				postern__cleanup_rest_ms(&runner->cleanup));
		return;
	}
	postern__cleanup_end(box, &runner->cleanup);
	runner->cleanup = (struct postern__cleanup){ 0 };
	runner->clean_at_ms =
			postern__box_after_ms(box, r ? runner->options.restart_delay_ms
										 : runner->options.cleanup_interval_ms);
}

/* Renew, and return when to renew again. */
static int64_t renew_and_report(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	struct postern_error error = { 0 };
	int64_t next;
	int r = postern__renew(box, &next, &error);
	if (r) {
		postern__runner_store_result(runner, r, &error);
		int64_t again =
				postern__box_after_ms(box, runner->options.restart_delay_ms);
		next = again < next ? again : next;
	}
	return next;
}

void *postern__renewer_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	int64_t next = 0;
	(void)pthread_mutex_lock(&box->mutex);
	while (!runner->stopping) {
		int64_t left = next - postern__box_now_ms(box);
		if (left > 0) {
			postern__wait(&runner->renewer_wake, &box->mutex, left);
			continue;
		}
		(void)pthread_mutex_unlock(&box->mutex);
		next = renew_and_report(runner);
		(void)pthread_mutex_lock(&box->mutex);
		if (box->recovery_due) {
			(void)pthread_cond_broadcast(&runner->maintenance_wake);
		}
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return NULL;
}

/* Run the duty that is due, or sleep until the next one is. */
void *postern__maintenance_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	runner->recover_at_ms = postern__needs_renewal(box) ? 0 : POSTERN__NEVER;
	runner->cancels_at_ms = box->store->ops->read_cancels ? 0 : POSTERN__NEVER;
	runner->share_at_ms = box->store->ops->share ? 0 : POSTERN__NEVER;
	const struct {
		int64_t *at;
		void (*go)(struct postern_runner *runner);
	} duties[] = {
		{ &runner->recover_at_ms, recover_leases },
		{ &runner->poll_at_ms, poll_store },
		{ &runner->clean_at_ms, clean_next_batch },
		{ &runner->cancels_at_ms, poll_cancels },
		{ &runner->share_at_ms, share_leases },
	};
	(void)pthread_mutex_lock(&box->mutex);
	while (!runner->stopping) {
		int64_t next = POSTERN__NEVER;
		size_t chosen = 0;
		for (size_t i = 0; i < sizeof(duties) / sizeof(duties[0]); i++) {
			if (*duties[i].at < next) {
				next = *duties[i].at;
				chosen = i;
			}
		}
		int64_t left = next - postern__box_now_ms(box);
		if (left > 0 && !box->recovery_due) {
			postern__wait(&runner->maintenance_wake, &box->mutex, left);
			continue;
		}
		if (box->recovery_due) {
			box->recovery_due = false;
			chosen = 0; /* recover_leases */
		}
		(void)pthread_mutex_unlock(&box->mutex);
		duties[chosen].go(runner);
		(void)pthread_mutex_lock(&box->mutex);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	postern__cleanup_end(box, &runner->cleanup);
	return NULL;
}
