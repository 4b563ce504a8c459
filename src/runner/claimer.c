/* SPDX-License-Identifier: MIT */
/*
 * The claimer: the thread that claims due deliveries. It is separate from the
 * writer, so that a claim that waits for the store delays no commit.
 */

#include "runner/runner.h"

#include "core/maintenance.h"
#include "core/pull.h"
#include "core/rate.h"
#include "core/run.h"

#include "base/point.h"

void postern__claimer_wake(struct postern_runner *runner) {
	struct postern_box *box = runner->box;
	(void)pthread_mutex_lock(&box->mutex);
	runner->pauses_stale = true;
	postern__claim_hint_all(box);
	(void)pthread_cond_signal(&box->claim);
	(void)pthread_mutex_unlock(&box->mutex);
}

/* Without the mutex. */
static int claim_batch(struct postern_runner *runner, bool pauses,
		struct postern_error *error) {
	struct postern_box *box = runner->box;
	size_t count;
	int r = POSTERN_OK;
	if (pauses) {
		r = postern__pauses_refresh(box, error);
	}
	if (!r) {
		postern__point("claimer.claiming");
		r = postern__claim(box, box->options.batch_size, false, &count, error);
	}
	if (!r) {
		r = postern__rates_reserve(box, error);
	}
	if (!r) {
		r = postern__pulls_serve(box, error);
	}
	return r;
}

/* With the mutex: sleep unless a claim is due now. Returns whether it slept. */
static bool claimer_sleep(struct postern_runner *runner, int64_t retry_at_ms) {
	struct postern_box *box = runner->box;
	int64_t at = runner->pauses_stale ? 0 : postern__claim_at_ms(box);
	int64_t until = at < retry_at_ms ? retry_at_ms : at;
	int64_t left = until - postern__box_now_ms(box);
	if (left <= 0) {
		return false;
	}
	/* After a failure a hint must not wake it before retry_at_ms. */
	box->claim_wait_until_ms = until == at ? at : 0;
	postern__wait(&box->claim, &box->mutex, left);
	box->claim_wait_until_ms = 0;
	return true;
}

void *postern__claimer_loop(void *context) {
	struct postern_runner *runner = context;
	struct postern_box *box = runner->box;
	int64_t retry_at_ms = 0; /* after a failure: no claim before */
	(void)pthread_mutex_lock(&box->mutex);
	while (!runner->stopping) {
		if (claimer_sleep(runner, retry_at_ms)) {
			continue;
		}
		bool pauses = runner->pauses_stale || postern__pauses_due(box);
		struct postern_error error = { 0 };
		runner->pauses_stale = false;
		(void)pthread_mutex_unlock(&box->mutex);
		int r = claim_batch(runner, pauses, &error);
		if (r) {
			postern__runner_store_result(runner, r, &error);
		}
		(void)pthread_mutex_lock(&box->mutex);
		if (r) {
			runner->pauses_stale = runner->pauses_stale || pauses;
			retry_at_ms = postern__box_after_ms(box,
					runner->options.restart_delay_ms);
		}
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return NULL;
}
