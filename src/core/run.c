/* SPDX-License-Identifier: MIT */
/*
 * Runs: leased deliveries from the queue to their settlement.
 *
 *   QUEUED --start--> RUNNING --finish--> SETTLING --commit--> SETTLED
 *      |                 |                    ^
 *      +---- return -----+---- lease over ----+
 *
 * An implementation does not return an outcome: it finishes the run, from any
 * thread and at any time, so that hundreds of runs can be in progress without
 * a thread each. Each handler has its own queue and the queues are served round
 * robin, so that a slow handler delays no other.
 */

#include "core/run.h"
#include "core/accept.h"
#include "core/box.h"
#include "core/breaker.h"
#include "core/cancel.h"
#include "core/error_group.h"
#include "core/inline.h"
#include "core/rate.h"
#include "core/reason.h"
#include "core/tenure.h"
#include "core/window.h"

#include "base/point.h"
#include "base/random.h"
#include "base/text.h"
#include "base/utf8.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* When no worker is idle, how soon the watchdog checks whether all hang. */
#define STARVED_MS 100
/* So long may a transaction of a handler have the only writer unreported. */
#define WRITER_HELD_MS 1000

void postern_outcome_set(struct postern_outcome *outcome,
		enum postern_outcome_kind kind, int64_t delay_ms, const char *reason) {
	outcome->kind = kind;
	outcome->delay_ms = delay_ms;
	outcome->reason[0] = '\0';
	if (reason) {
		(void)postern__utf8_clean(reason, strlen(reason), outcome->reason,
				sizeof(outcome->reason));
	}
}

const struct postern_message *postern_run_message(
		const struct postern_run *run) {
	return &run->content->message;
}

const struct postern_delivery *postern_run_delivery(
		const struct postern_run *run) {
	return &run->delivery;
}

uint64_t postern_run_epoch(const struct postern_run *run) {
	return run->epoch;
}

int64_t postern_run_remaining_ms(const struct postern_run *run) {
	if (run->cancel) {
		return 0;
	}
	if (run->deadline_ms == POSTERN__NEVER) {
		return -1;
	}
	int64_t left = run->deadline_ms - postern__box_now_ms(run->box);
	return left > 0 ? left : 0;
}

void postern_run_set_data(struct postern_run *run, void *data) {
	run->data = data;
}

void *postern_run_data(const struct postern_run *run) {
	return run->data;
}

void postern__run_init(struct postern_run *run, struct postern_box *box,
		struct postern__content *content, struct postern__handler *handler,
		int64_t seq, int64_t stored_handler, uint64_t fence, uint32_t failures,
		enum postern_suspicion suspicion) {
	*run = (struct postern_run){
		.box = box,
		.content = content,
		.handler = handler,
		.stored_handler = stored_handler,
		.failures = failures,
		.suspicion = suspicion,
		.deadline_ms = POSTERN__NEVER,
		.lease_end_ms = POSTERN__NEVER,
		.delivery = {
			.size = sizeof(struct postern_delivery),
			.seq = seq,
			.channel = content->channel->name,
			.handler = handler->key,
			.attempt = failures + 1,
			.fence = fence,
		},
		.item = { .kind = POSTERN__ITEM_SETTLE },
	};
	content->refs++;
}

static void enqueue(struct postern_run *run, bool in_front) {
	struct postern__handler_state *state = run->handler->state;
	run->state = POSTERN__RUN_QUEUED;
	run->queued_round = run->box->share_round;
	if (in_front) {
		postern__list_push_front(&state->queue, &run->link);
	} else {
		postern__list_push_back(&state->queue, &run->link);
	}
	if (state->queued++ == 0) {
		state->queued_ms = postern__box_now_ms(run->box);
		postern__list_push_back(&run->box->ready, &state->ready);
	}
	if (run->suspicion == POSTERN_SUSPECT_SOLO) {
		run->box->solo_queued++;
	}
}

/* Wake the watchdog at this time, if it would sleep longer. */
static void watch_at(struct postern_box *box, int64_t at_ms) {
	if (at_ms < box->watch_at_ms) {
		box->watch_at_ms = at_ms;
		(void)pthread_cond_signal(&box->watch);
	}
}

static void return_lease(struct postern_run *run) {
	postern__run_settle_to(run, POSTERN_SETTLE_RETURNED, run->failures, 0,
			"returned", NULL);
}

/* All workers may hang: the watchdog checks whether to add one. */
void postern__run_watch_starvation(struct postern_box *box) {
	if (box->leasing && box->idle_workers == 0) {
		watch_at(box, postern__box_after_ms(box, STARVED_MS));
	}
}

void postern__run_enqueue(struct postern_run *run) {
	assert(run->state == POSTERN__RUN_NONE);
	if (run->box->draining ||
			postern__is_paused(run->box, run->handler->state) ||
			!postern__handler_in_place(run->handler) ||
			!postern__breaker_admits(run->handler->state)) {
		/* The drain or the pause began, another generation was put in place,
		   or the handler was held, after the store had leased it. */
		return_lease(run);
		return;
	}
	/* In front: other runs wait for a solo suspect, never the reverse. */
	enqueue(run, run->suspicion == POSTERN_SUSPECT_SOLO);
	(void)pthread_cond_signal(&run->box->work);
	postern__run_watch_starvation(run->box);
	if (postern__rate_is_set(&run->handler->policy)) {
		postern__claim_nudge(run->box); /* the claimer reserves a start */
	}
}

static void dequeue(struct postern_run *run) {
	assert(run->state == POSTERN__RUN_QUEUED);
	postern__list_remove(&run->link);
	struct postern__handler_state *state = run->handler->state;
	if (--state->queued == 0) {
		postern__list_remove(&state->ready);
	}
	if (run->suspicion == POSTERN_SUSPECT_SOLO) {
		run->box->solo_queued--;
	}
}

int64_t postern__run_writer_due_ms(const struct postern_run *run) {
	bool has_it = run->in_unit && run->box->store->transactions == 0;
	return has_it && !run->writer_held ? run->started_ms + WRITER_HELD_MS
									   : POSTERN__NEVER;
}

void postern__run_watch(const struct postern_run *run) {
	watch_at(run->box, run->deadline_ms < run->lease_end_ms
							   ? run->deadline_ms
							   : run->lease_end_ms);
	watch_at(run->box, postern__run_writer_due_ms(run));
}

void postern__run_start(struct postern_run *run) {
	struct postern_box *box = run->box;
	dequeue(run);
	run->state = POSTERN__RUN_RUNNING;
	postern__rate_use(run->handler);
	run->in_impl = true;
	postern__list_push_back(&box->running, &run->link);
	box->running_count++;
	run->handler->state->running++;
	box->asynchronous_running += run->handler->impl->kind->asynchronous;
	box->workers_held += postern__handler_holds_worker(run->handler);
	if (run->handler->impl->kind->in_process) {
		box->in_process_running++;
		box->solo_running = run->suspicion == POSTERN_SUSPECT_SOLO;
	}
	const struct postern_policy *policy = &run->handler->policy;
	run->dequeued_ms = postern__box_now_ms(box);
	run->started_ms = run->dequeued_ms;
	run->lease_end_ms = postern__time_after(run->started_ms, policy->lease_ms);
	/* The time of a transactional run starts with its turn in the batch, that
	   of a guarded one when no copy is running. */
	if (policy->timeout_ms > 0 && !run->handler->impl->transactional &&
			!run->guarded) {
		run->deadline_ms =
				postern__time_after(run->started_ms, policy->timeout_ms);
		run->delivery.deadline_ms =
				box->clock.wall_ms(box->clock.context) + policy->timeout_ms;
	}
	postern__run_watch(run);
	postern__meter_start(run);
}

/* The run no longer keeps other in-process runs from starting. */
static void release_in_process(struct postern_run *run) {
	struct postern_box *box = run->box;
	if (run->handler->impl->kind->in_process && !run->overdue) {
		box->in_process_running--;
		if (run->suspicion == POSTERN_SUSPECT_SOLO) {
			box->solo_running = false;
		}
	}
}

static void release_suspect(struct postern_run *run) {
	struct postern_box *box = run->box;
	if (run->suspicion == POSTERN_NO_SUSPECT || run->overdue) {
		return;
	}
	box->suspects_held--;
	if (box->suspects_held == 0) {
		/* The next group may be claimed. */
		postern__claim_hint_all(box);
	}
}

void postern__run_overdue(struct postern_run *run) {
	release_in_process(run);
	release_suspect(run);
	run->overdue = true;
	(void)pthread_cond_broadcast(&run->box->work);
}

/* The implementation has finished: its slot is free, with or without the
   lease. */
static void free_slot(struct postern_run *run) {
	struct postern_box *box = run->box;
	/* Only idle workers are woken. */
	bool wakes = box->idle_workers > 0 && !postern__run_ready(box);
	run->in_impl = false;
	run->handler->state->running--;
	box->asynchronous_running -= run->handler->impl->kind->asynchronous;
	box->workers_held -= postern__handler_holds_worker(run->handler);
	release_in_process(run);
	/* The worker that finished starts the next run itself; wake another one
	   only if this made a run ready that was not. */
	if (wakes && postern__run_ready(box)) {
		(void)pthread_cond_signal(&box->work);
	}
	if (postern__rate_is_set(&run->handler->policy)) {
		postern__claim_nudge(box);
	}
	if (box->draining || box->processors > 0) {
		(void)pthread_cond_broadcast(&box->committed);
	}
}

static void stop_running(struct postern_run *run) {
	assert(run->state == POSTERN__RUN_RUNNING);
	postern__list_remove(&run->link);
	run->box->running_count--;
}

void postern__run_requeue(struct postern_run *run) {
	stop_running(run);
	free_slot(run);
	run->cancelled = false;
	run->writer_held = false;
	if (run->cancel) {
		postern__run_settle_cancelled(run);
		return;
	}
	if (postern__handler_in_place(run->handler) &&
			!postern__breaker_is_open(run->handler->state)) {
		enqueue(run, true);
	} else {
		return_lease(run);
	}
}

void postern__run_detach(struct postern_run *run) {
	if (run->state == POSTERN__RUN_RUNNING) {
		stop_running(run);
		free_slot(run);
		return;
	}
	/* The run was past its lease and was settled by abandon_run(). */
	run->box->lost_slots--;
	run->handler->state->lost--;
	free_slot(run);
	if (run->state == POSTERN__RUN_SETTLED) {
		postern__content_release(run->content);
	}
}

void postern__run_abandon(struct postern_run *run) {
	stop_running(run);
	run->box->lost_slots++;
	run->handler->state->lost++;
	if (run->cancel) {
		postern__run_settle_cancelled(run);
		return;
	}
	struct postern_outcome outcome;
	postern_outcome_set(&outcome, POSTERN_RETRY, 0,
			"timed out, and the handler did not return before its lease "
			"ended");
	postern__run_settle(run, &outcome, "timeout");
}

void postern__run_settle_to(struct postern_run *run, enum postern_settle_to to,
		uint32_t failures, int64_t delay_ms, const char *outcome,
		const char *reason) {
	struct postern_box *box = run->box;
	if (to == POSTERN_SETTLE_POISONED) {
		postern__breaker_forget(run);
	}
	run->state = POSTERN__RUN_SETTLING;
	run->ended_ms = postern__box_now_ms(box);
	run->reason = reason && reason[0] ? strdup(reason) : NULL;
	run->settlement = (struct postern_settlement){
		.seq = run->delivery.seq,
		.handler = run->stored_handler,
		.fence = run->delivery.fence,
		.to = to,
		.delay_ms = delay_ms,
		.failures = failures,
		.duration_ms = run->started_ms ? run->ended_ms - run->started_ms : 0,
		.outcome = outcome,
		.error = run->reason,
		.group = postern__error_group(run->reason),
	};
	if (run->content->is_inline) {
		postern__inline_settled(run);
		return;
	}
	box->settling++;
	if (run->pulled) {
		return; /* the caller writes it */
	}
	postern__list_push_back(&box->settlements, &run->item.link);
	(void)pthread_cond_signal(&box->wake);
}

void postern__run_return_lease(struct postern_run *run) {
	dequeue(run);
	return_lease(run);
}

void postern__run_share_lease(struct postern_run *run) {
	postern__run_return_lease(run);
	run->settlement.shared = true;
	/* For the next claim: the store makes it due at once, for others. */
	run->settlement.delay_ms = POSTERN__RETURNED_MS;
}

static int64_t clamp_delay(int64_t delay_ms) {
	if (delay_ms < 0) {
		return 0;
	}
	return delay_ms > POSTERN_DURATION_MS_MAX ? POSTERN_DURATION_MS_MAX
											  : delay_ms;
}

/* Settle as pending, or as poisoned after the last attempt. */
static void settle_failure(struct postern_run *run, int64_t delay_ms,
		const char *name, const char *reason) {
	const struct postern_policy *policy = &run->handler->policy;
	uint32_t failures = run->failures + 1;
	/* An inline run is tried again as long as its sender sends it. */
	bool last = failures >= policy->max_attempts && !run->content->is_inline;
	if (!run->unblamed) {
		postern__breaker_failure(run, reason);
	}
	postern__run_settle_to(run,
			last ? POSTERN_SETTLE_POISONED : POSTERN_SETTLE_PENDING, failures,
			last ? 0 : delay_ms, name, reason);
}

int64_t postern__run_backoff_ms(const struct postern_run *run) {
	const struct postern_random *random = &run->box->random;
	return postern_policy_delay_ms(&run->handler->policy, run->failures + 1,
			random->next(random->context));
}

/* The handler is at fault: no attempt is spent, unless the breaker says that
   this delivery is the cause. */
static void settle_fault(struct postern_run *run, const char *name,
		const char *reason) {
	int64_t delay_ms = postern__breaker_fault(run, reason);
	if (delay_ms < 0) {
		settle_failure(run, postern__run_backoff_ms(run), name, reason);
		return;
	}
	run->on_hold = true;
	postern__run_settle_to(run, POSTERN_SETTLE_PENDING, run->failures, delay_ms,
			name, reason);
}

static void settle_outcome(struct postern_run *run,
		const struct postern_outcome *outcome, const char *name,
		const char *reason) {
	switch (outcome->kind) {
	case POSTERN_DONE:
		postern__breaker_success(run);
		postern__run_settle_to(run, POSTERN_SETTLE_DONE, run->failures, 0,
				name ? name : "done", reason);
		return;
	case POSTERN_SNOOZE:
		postern__run_settle_to(run, POSTERN_SETTLE_PENDING, run->failures,
				clamp_delay(outcome->delay_ms), name ? name : "snooze", reason);
		return;
	case POSTERN_HOLD: settle_fault(run, name ? name : "hold", reason); return;
	case POSTERN_POISON:
		postern__breaker_failure(run, reason);
		postern__run_settle_to(run, POSTERN_SETTLE_POISONED, run->failures + 1,
				0, name ? name : "poison", reason);
		return;
	case POSTERN_DISCARD:
		postern__breaker_success(run);
		postern__run_settle_to(run, POSTERN_SETTLE_DISCARDED, run->failures, 0,
				name ? name : "discard", reason);
		return;
	case POSTERN_RETRY_AFTER:
		run->retry_after = true;
		settle_failure(run, clamp_delay(outcome->delay_ms),
				name ? name : "retry", reason);
		return;
	case POSTERN_RETRY:
	default: break;
	}
	settle_failure(run, postern__run_backoff_ms(run), name ? name : "retry",
			reason);
}

void postern__run_settle(struct postern_run *run,
		const struct postern_outcome *outcome, const char *name) {
	if (outcome->reason[0] == '\0') {
		settle_outcome(run, outcome, name, "");
	} else {
		/* The reason comes from a handler: make it valid UTF-8 before it is
		   stored. */
		char reason[POSTERN_REASON_LEN_MAX + 1];
		(void)postern__utf8_clean(outcome->reason,
				strnlen(outcome->reason, POSTERN_REASON_LEN_MAX), reason,
				sizeof(reason));
		settle_outcome(run, outcome, name, reason);
	}
	if (outcome->kind != POSTERN_HOLD) {
		postern__window_record(run, run->ended_ms);
	}
}

static bool is_late(const struct postern_run *run) {
	return run->deadline_ms != POSTERN__NEVER &&
		   postern__box_now_ms(run->box) >= run->deadline_ms;
}

bool postern__run_timed_out(const struct postern_run *run,
		struct postern_outcome *outcome) {
	if (!is_late(run)) {
		return false;
	}
	if (outcome->kind == POSTERN_RETRY && outcome->reason[0]) {
		return true; /* the handler's own reason has more detail */
	}
	char timeout[POSTERN__DURATION_TEXT_MAX];
	postern__duration_format(run->handler->policy.timeout_ms, timeout);
	char text[64];
	(void)snprintf(text, sizeof(text), "timed out after %s", timeout);
	postern_outcome_set(outcome, POSTERN_RETRY, 0, text);
	return true;
}

/* Copy only the used part of the reason: most outcomes have none. */
static void copy_outcome(struct postern_outcome *out,
		const struct postern_outcome *from) {
	size_t len = strnlen(from->reason, sizeof(from->reason) - 1);
	out->kind = from->kind;
	out->delay_ms = from->delay_ms;
	memcpy(out->reason, from->reason, len);
	out->reason[len] = '\0';
}

/* The guard that waits for the outcome goes on. */
static void wake_guard(struct postern_run *run) {
	if (run->guarded) {
		struct postern_box *box = run->box;
		(void)pthread_mutex_lock(&box->mutex);
		run->finished = true;
		(void)pthread_cond_signal(run->finish_wake);
		(void)pthread_mutex_unlock(&box->mutex);
	}
}

void postern_run_finish(struct postern_run *run,
		const struct postern_outcome *outcome) {
	if (run->outcome_out) {
		/* Inside a transaction the store completes the delivery. */
		copy_outcome(run->outcome_out, outcome);
		wake_guard(run);
		return;
	}
	postern__point("finish.before");
	struct postern_box *box = run->box;
	(void)pthread_mutex_lock(&box->mutex);
	bool ours = run->state == POSTERN__RUN_RUNNING;
	bool late = ours && is_late(run);
	postern__run_detach(run);
	if (ours && run->cancel) {
		postern__run_settle_cancelled(run);
	} else if (late) {
		struct postern_outcome final = *outcome;
		(void)postern__run_timed_out(run, &final);
		postern__run_settle(run, &final, "timeout");
	} else if (ours) {
		postern__run_settle(run, outcome, NULL);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

void postern_run_return(struct postern_run *run) {
	if (run->outcome_out) {
		/* Inside a transaction a single lease cannot be returned: retry at
		   once, without counting a failure. */
		postern_outcome_set(run->outcome_out, POSTERN_SNOOZE, 0, NULL);
		wake_guard(run);
		return;
	}
	struct postern_box *box = run->box;
	(void)pthread_mutex_lock(&box->mutex);
	bool ours = run->state == POSTERN__RUN_RUNNING;
	postern__run_detach(run);
	if (ours && run->cancel) {
		postern__run_settle_cancelled(run);
	} else if (ours) {
		return_lease(run);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

void postern__run_settled(struct postern_run *run) {
	struct postern_box *box = run->box;
	assert(run->state == POSTERN__RUN_SETTLING);
	run->state = POSTERN__RUN_SETTLED;
	postern__meter_end(run);
	box->settling--;
	run->handler->state->held--;
	run->handler->state->held_bytes -= run->content->bytes;
	release_suspect(run);
	free(run->reason);
	run->reason = NULL;
	free(run->cancel_reason);
	run->cancel_reason = NULL;
	run->settlement.error = NULL;
	if (!run->in_impl) {
		postern__content_release(run->content);
	}
}

void postern__run_end_unsettled(struct postern_run *run) {
	postern__run_detach(run);
	run->state = POSTERN__RUN_SETTLING;
	run->box->settling++;
	postern__run_settled(run);
}

static struct postern__handler *ready_handler(struct postern__list *link) {
	return container_of(link, struct postern__handler_state, ready)->handler;
}

/* Whether the right to process, or the lack of it, concerns the handler: inline
   runs need none. */
static bool may_process(const struct postern_box *box,
		const struct postern__handler *handler, enum postern__reason barred) {
	return !barred ||
		   (postern__channel_is_inline(handler->channel) && !box->draining);
}

bool postern__run_ready(const struct postern_box *box) {
	if (postern__list_empty(&box->ready)) {
		return false;
	}
	enum postern__reason barred = postern__why_not_process(box);
	postern__list_each(link, &box->ready) {
		const struct postern__handler *handler = ready_handler(link);
		if (may_process(box, handler, barred) &&
				!postern__why_not_start(box, handler)) {
			return true;
		}
	}
	return false;
}

size_t postern__run_ready_count(const struct postern_box *box) {
	size_t count = 0;
	enum postern__reason barred = postern__why_not_process(box);
	postern__list_each(link, &box->ready) {
		const struct postern__handler *handler = ready_handler(link);
		if (!may_process(box, handler, barred)) {
			continue;
		}
		/* Starts that are reserved are lost if there is no worker soon. */
		enum postern__reason reason = postern__why_not_start(box, handler);
		count += !reason || reason == POSTERN__REASON_RATE;
	}
	return count;
}

/* The next handler, round robin, with a run that may start, or NULL. */
static struct postern__handler *next_handler(struct postern_box *box) {
	enum postern__reason barred = postern__why_not_process(box);
	postern__list_each(link, &box->ready) {
		struct postern__handler *handler = ready_handler(link);
		if (may_process(box, handler, barred) &&
				!postern__why_not_start(box, handler)) {
			postern__list_remove(link);
			postern__list_push_back(&box->ready, link);
			return handler;
		}
	}
	return NULL;
}

static size_t start_batch(struct postern__handler *handler,
		struct postern_run **runs, size_t max) {
	size_t batch = postern__commit_batch_of(handler);
	size_t left = postern__rate_left(handler->generation->box, handler);
	max = max < batch ? max : batch;
	/* That one may start is decided, even if its time has passed since. */
	left = left > 0 ? left : 1;
	max = max < left ? max : left;
	size_t count = 0;
	while (count < max) {
		struct postern__list *first =
				postern__list_first(&handler->state->queue);
		if (!first) {
			break;
		}
		runs[count] = container_of(first, struct postern_run, link);
		postern__run_start(runs[count]);
		count++;
	}
	return count;
}

/* Without the mutex. */
static void execute_one(struct postern_box *box,
		struct postern__handler *handler, struct postern_run *run) {
	postern__emit_started(run);
	postern__point("run.before");
	handler->impl->ops->start(handler->impl, run);
	postern__point("run.after");
	if (postern__channel_is_inline(handler->channel)) {
		(void)pthread_mutex_lock(&box->mutex);
		postern__inline_answer(box);
		(void)pthread_mutex_unlock(&box->mutex);
	}
}

void postern__run_execute(struct postern_box *box,
		struct postern__handler *handler, struct postern_run **runs,
		size_t count) {
	if (runs[0]->guarded) {
		postern__inline_run_guarded(runs[0]);
	} else if (handler->impl->transactional) {
		postern__transact(box, runs, count);
	} else {
		execute_one(box, handler, runs[0]);
	}
	/* start() may still use the implementation after the run has finished. */
	postern__generation_release(handler->generation);
}

/* With the mutex, which is released: start runs of this handler, for which
   `runs` has room, and execute them. */
static void run_some(struct postern_box *box, struct postern__handler *handler,
		struct postern_run **runs, size_t max, size_t *count_out) {
	atomic_fetch_add(&handler->generation->refs, 1);
	size_t count = start_batch(handler, runs, max);
	assert(count > 0);
	if (handler->impl->transactional) {
		box->transacting++;
	}
	if (postern__run_ready(box)) {
		/* Each worker wakes the next, until no run is ready. */
		(void)pthread_cond_signal(&box->work);
		postern__run_watch_starvation(box);
	}
	/* The queue has room, and the next commit, which would wake the claimer,
	   may be far away. */
	postern__claim_nudge(box);
	(void)pthread_mutex_unlock(&box->mutex);
	*count_out = count;
	postern__run_execute(box, handler, runs, count);
}

bool postern__run_one(struct postern_box *box, size_t max, size_t *count_out) {
	(void)pthread_mutex_lock(&box->mutex);
	struct postern__handler *handler = next_handler(box);
	if (!handler) {
		postern__claim_nudge(box);
		(void)pthread_mutex_unlock(&box->mutex);
		*count_out = 0;
		return false;
	}
	if (postern__commit_batch_of(handler) > 1) {
		/* Large: the compiler clears it. */
		struct postern_run *runs[POSTERN_COMMIT_BATCH_MAX];
		run_some(box, handler, runs, max, count_out);
	} else {
		struct postern_run *run;
		run_some(box, handler, &run, 1, count_out);
	}
	return true;
}

void postern__run_wake_worker(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	if (postern__run_ready(box)) {
		(void)pthread_cond_signal(&box->work);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

int postern_box_run(struct postern_box *box, size_t max, size_t *count_out,
		struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (r) {
		return r;
	}
	size_t total = 0;
	size_t count;
	while (total < max && postern__run_one(box, max - total, &count)) {
		total += count;
	}
	postern__run_wake_worker(box);
	if (count_out) {
		*count_out = total;
	}
	return POSTERN_OK;
}
