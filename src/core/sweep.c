/* SPDX-License-Identifier: MIT */
/*
 * Leases that were not settled in time: recovers those of expired nodes, and
 * cancels, abandons or reports the runs of this node that take too long.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/maintenance.h"
#include "core/run.h"
#include "core/tenure.h"

#include "base/point.h"

/* Deliveries per call of the store, so that no call takes long. */
#define SWEEP_BATCH 1000
/* Runs cancelled per step; the next step cancels the others. */
#define WATCH_BATCH 64

static void report_recovered(struct postern_box *box, uint64_t count,
		uint64_t poisoned) {
	bool locked = box->options.processing == POSTERN_PROCESSING_EXCLUSIVE;
	if (count > 0) {
		postern__emit_text(box,
				&(struct postern_event){
						.kind = POSTERN_EVENT_RECOVERED,
						.count = count,
				},
				"recovered %llu deliver%s of %s", (unsigned long long)count,
				count == 1 ? "y" : "ies",
				locked ? "the node that held the lock before"
					   : "expired nodes");
	}
	if (poisoned > 0) {
		postern__emit(box, &(struct postern_event){
								   .kind = POSTERN_EVENT_SUSPECTS_POISONED,
								   .count = poisoned,
						   });
	}
}

int postern__recover(struct postern_box *box, size_t *count_out,
		struct postern_error *error) {
	size_t count = 0;
	uint64_t poisoned = 0;
	int r = POSTERN_OK;
	bool more = true;
	while (more) {
		struct postern_recovered recovered = { 0 };
		struct postern_recovery recovery = { .max = SWEEP_BATCH };
		(void)pthread_mutex_lock(&box->mutex);
		struct postern__right right = postern__right_of(box);
		(void)pthread_mutex_unlock(&box->mutex);
		recovery.node = right.node;
		recovery.lock = postern__right_lock(&right);
		if (recovery.lock && recovery.lock->fence == 0) {
			break; /* the node that holds the lock recovers */
		}
		postern__point("recover.before");
		r = box->store->ops->recover(box->store, &recovery, &recovered, error);
		postern__point("recover.after");
		if (r == POSTERN_E_STALE) {
			postern__lock_invalidate(box, right.lock.fence);
			r = POSTERN_OK;
			break;
		}
		if (r) {
			break;
		}
		count += (size_t)(recovered.released + recovered.suspects +
						  recovered.poisoned);
		poisoned += recovered.poisoned;
		more = recovered.more;
		(void)pthread_mutex_lock(&box->mutex);
		if (recovered.suspects > 0) {
			box->suspects_waiting = true;
		}
		if (recovered.released + recovered.suspects > 0) {
			postern__claim_hint_all(box);
		}
		(void)pthread_mutex_unlock(&box->mutex);
	}
	report_recovered(box, count, poisoned);
	if (!r && count_out) {
		*count_out = count;
	}
	return r;
}

struct overrun {
	struct postern_run *run;
	bool in_unit;
};

/* A run that has had the only writer of the store for long. */
struct writer_hold {
	struct postern_run *run; /* NULL: none */
	int64_t duration_ms;
};

/* Take the run for the report, once; one per step is enough, because the store
   has one writer. Returns when to check it. */
static int64_t take_writer_hold(struct postern_run *run, int64_t now,
		struct writer_hold *hold) {
	int64_t due = postern__run_writer_due_ms(run);
	if (now < due || hold->run) {
		return due;
	}
	run->writer_held = true;
	run->content->refs++;
	*hold = (struct writer_hold){
		.run = run,
		.duration_ms = now - run->started_ms,
	};
	return POSTERN__NEVER;
}

static void earliest(int64_t *next, int64_t at_ms) {
	*next = at_ms < *next ? at_ms : *next;
}

/* With the mutex: list the runs to cancel, one to report as stuck and one that
   has the writer; abandon those with a timeout that are past their lease. */
static size_t find_overruns(struct postern_box *box, struct overrun *overruns,
		struct postern_run **stuck, struct writer_hold *hold, int64_t *next) {
	int64_t now = postern__box_now_ms(box);
	size_t count = 0;
	postern__list_each(link, &box->running) {
		struct postern_run *run = container_of(link, struct postern_run, link);
		int64_t due = run->cancelled ? POSTERN__NEVER : run->deadline_ms;
		if (now >= due && count < WATCH_BATCH) {
			run->cancelled = true;
			run->content->refs++;
			overruns[count++] =
					(struct overrun){ .run = run, .in_unit = run->in_unit };
			due = POSTERN__NEVER;
		}
		bool over = now >= run->lease_end_ms && !run->reported;
		/* The sender of an inline message waits for its answer. */
		bool bounded =
				run->handler->policy.timeout_ms > 0 || run->content->is_inline;
		if (over && bounded && !run->handler->impl->transactional) {
			run->reported = true;
			postern__run_overdue(run);
			postern__run_abandon(run);
			continue;
		}
		/* One run is reported per step; the next step follows at once. */
		if (over && !*stuck) {
			run->reported = true;
			postern__run_overdue(run);
			run->content->refs++;
			*stuck = run;
		}
		int64_t end = run->reported ? POSTERN__NEVER : run->lease_end_ms;
		earliest(next, due);
		earliest(next, end);
		earliest(next, take_writer_hold(run, now, hold));
	}
	return count;
}

int64_t postern__watchdog_step(struct postern_box *box) {
	struct overrun overruns[WATCH_BATCH];
	struct postern_run *stuck = NULL;
	struct writer_hold hold = { 0 };
	int64_t next = POSTERN__NEVER;
	(void)pthread_mutex_lock(&box->mutex);
	size_t count = find_overruns(box, overruns, &stuck, &hold, &next);
	(void)pthread_mutex_unlock(&box->mutex);

	for (size_t i = 0; i < count; i++) {
		struct postern_run *run = overruns[i].run;
		if (overruns[i].in_unit) {
			box->store->ops->interrupt(box->store, run);
		}
		struct postern_handler *impl = run->handler->impl;
		impl->ops->cancel(impl, run, POSTERN_CANCEL_TIMEOUT);
	}
	if (stuck) {
		postern__emit_stuck(stuck);
	}
	if (hold.run) {
		postern__emit_writer_held(hold.run, hold.duration_ms);
	}
	(void)pthread_mutex_lock(&box->mutex);
	for (size_t i = 0; i < count; i++) {
		postern__content_release(overruns[i].run->content);
	}
	if (stuck) {
		postern__content_release(stuck->content);
	}
	if (hold.run) {
		postern__content_release(hold.run->content);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return next;
}

bool postern__watchdog_sleep(struct postern_box *box, int64_t at_ms,
		const bool *stopping) {
	(void)pthread_mutex_lock(&box->mutex);
	box->watch_at_ms = at_ms < box->watch_at_ms ? at_ms : box->watch_at_ms;
	int64_t left = box->watch_at_ms - postern__box_now_ms(box);
	while (!*stopping && left > 0) {
		postern__wait(&box->watch, &box->mutex, left);
		left = box->watch_at_ms - postern__box_now_ms(box);
	}
	/* Deadlines of runs that start from now on shorten the next sleep. */
	box->watch_at_ms = POSTERN__NEVER;
	bool go_on = !*stopping;
	(void)pthread_mutex_unlock(&box->mutex);
	return go_on;
}

int postern_box_sweep(struct postern_box *box, size_t *count_out,
		struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = postern__check_no_transaction(box, error);
	}
	if (r) {
		return r;
	}
	(void)postern__watchdog_step(box);
	(void)postern__right_watch(box);
	size_t count = 0;
	int64_t next;
	r = postern__renew(box, &next, error);
	if (!r) {
		r = postern__recover(box, &count, error);
	}
	if (!r) {
		r = postern__generations_reap(box, error);
	}
	if (!r && count_out) {
		*count_out = count;
	}
	return r;
}
