/* SPDX-License-Identifier: MIT */
/*
 * Processing on the caller's thread: the steps of a runner's threads, one after
 * the other, until nothing is due.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/rate.h"
#include "core/run.h"
#include "core/tenure.h"

#include "base/fail.h"
#include "base/point.h"

static size_t queued_count(struct postern_box *box) {
	size_t count = 0;
	(void)pthread_mutex_lock(&box->mutex);
	postern__list_each(link, &box->ready) {
		count += container_of(link, struct postern__handler_state, ready)
						 ->queued;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return count;
}

/* How long settlements wait for those of the next runs: long enough for quick
   runs to share a commit, and a slow run is settled before the next starts. */
#define RESULT_WAIT_MS 20

/* How long to wait for a run at once: a fallback, the end of a run wakes. */
#define RUN_WAIT_MS 1000

/* The renewal of node lease and processing lock during a call. */
struct renewal {
	bool runner; /* a runner is active and does it */
	int64_t next;
};

/* Renew the node lease and the lock if that is due and no runner does it. */
static int renew_if_due(struct postern_box *box, struct renewal *renewal,
		struct postern_error *error) {
	if (renewal->runner || postern__box_now_ms(box) < renewal->next) {
		return POSTERN_OK;
	}
	return postern__renew(box, &renewal->next, error);
}

/* Run up to `max` queued deliveries and commit their settlements. */
static int run_queued(struct postern_box *box, size_t max,
		struct renewal *renewal, size_t *count_out,
		struct postern_error *error) {
	int64_t written_at = postern__box_now_ms(box);
	size_t total = 0;
	size_t count = 0;
	int r = POSTERN_OK;
	while (!r && total < max && postern__run_one(box, max - total, &count)) {
		total += count;
		if (postern__box_now_ms(box) - written_at >= RESULT_WAIT_MS) {
			r = postern_box_commit(box, NULL, error);
			written_at = postern__box_now_ms(box);
		}
		if (!r) {
			r = renew_if_due(box, renewal, error);
		}
	}
	postern__run_wake_worker(box);
	*count_out = total;
	return r;
}

/*
 * Wait until an asynchronous run has ended, or a renewal is due. Returns false
 * if there is none; a runner settles the runs by itself.
 */
static bool wait_for_run(struct postern_box *box,
		const struct renewal *renewal) {
	(void)pthread_mutex_lock(&box->mutex);
	size_t before = box->asynchronous_running;
	bool waits = before > 0 && !renewal->runner;
	while (waits && box->asynchronous_running >= before) {
		int64_t left = renewal->next - postern__box_now_ms(box);
		if (left <= 0) {
			break;
		}
		postern__wait(&box->committed, &box->mutex,
				left < RUN_WAIT_MS ? left : RUN_WAIT_MS);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return waits;
}

/* POSTERN_E_BUSY if this node may not process because another node does. */
static int check_right(struct postern_box *box, struct postern_error *error) {
	(void)pthread_mutex_lock(&box->mutex);
	bool barred = !box->draining && !postern__may_process(box);
	bool rival = !box->engaged && box->rival_reported;
	struct postern_error why = box->rival;
	(void)pthread_mutex_unlock(&box->mutex);
	if (!barred) {
		return POSTERN_OK;
	}
	return rival ? postern__fail(error, POSTERN_E_BUSY, "%s", why.text)
				 : postern__fail(error, POSTERN_E_BUSY,
						   "another node holds the lock '%s'; 'postern stats' "
						   "shows which",
						   box->lock_name);
}

/* Collect all staged messages, also after a batch that consists of copies and
   leaves nothing to run. */
static int collect_all(struct postern_box *box, struct postern_error *error) {
	struct postern__collected found;
	int r;
	do {
		r = postern__collect(box, true, &found, error);
	} while (!r && found.more && found.accepted > 0);
	return r;
}

/* Commit, collect, claim and run once; *count_out is the number of runs. */
static int process_round(struct postern_box *box, size_t max,
		struct renewal *renewal, size_t *count_out,
		struct postern_error *error) {
	*count_out = 0;
	int r = postern_box_commit(box, NULL, error);
	if (r) {
		return r;
	}
	r = collect_all(box, error);
	if (r) {
		return r;
	}
	size_t batch = box->options.batch_size;
	size_t wanted = max < batch ? max : batch;
	if (queued_count(box) < wanted) {
		r = postern_box_claim(box, wanted, NULL, error);
	}
	if (!r) {
		r = postern__rates_reserve(box, error);
	}
	if (!r) {
		r = run_queued(box, max, renewal, count_out, error);
	}
	if (!r) {
		r = postern_box_commit(box, NULL, error);
	}
	return r;
}

static int process_until_idle(struct postern_box *box, bool runner, size_t max,
		size_t *count_out, struct postern_error *error) {
	struct renewal renewal = { .runner = runner, .next = INT64_MIN };
	int r = renew_if_due(box, &renewal, error);
	if (!r) {
		r = check_right(box, error);
	}
	if (r) {
		return r;
	}
	size_t total = 0;
	size_t ran = 1;
	while (!r && (ran > 0 || wait_for_run(box, &renewal)) &&
			(max == 0 || total < max)) {
		r = process_round(box, max == 0 ? SIZE_MAX : max - total, &renewal,
				&ran, error);
		total += ran;
		if (!r) {
			r = renew_if_due(box, &renewal, error);
		}
	}
	postern__point("process.ran");
	postern__return_queued(box, false);
	while (wait_for_run(box, &renewal)) {
		/* Without the lease the runs end, and their results are refused. */
		(void)renew_if_due(box, &renewal, NULL);
	}
	postern__point("process.given-back");
	int returned = postern_box_commit(box, NULL, r ? NULL : error);
	if (count_out) {
		*count_out = total;
	}
	return r ? r : returned;
}

int postern__process(struct postern_box *box, size_t max, size_t *count_out,
		struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = postern__check_no_transaction(box, error);
	}
	if (r) {
		return r;
	}
	(void)pthread_mutex_lock(&box->mutex);
	bool runner = box->leasing;
	box->processors++;
	(void)pthread_mutex_unlock(&box->mutex);
	r = postern__generations_reap(box, error);
	if (!r) {
		r = process_until_idle(box, runner, max, count_out, error);
	}
	(void)pthread_mutex_lock(&box->mutex);
	box->processors--;
	(void)pthread_mutex_unlock(&box->mutex);
	return r;
}

int postern_box_process(struct postern_box *box, size_t max, size_t *count_out,
		struct postern_error *error) {
	int r = postern__process(box, max, count_out, error);
	if (box->started) {
		postern__lock_release(box);
	}
	return r;
}
