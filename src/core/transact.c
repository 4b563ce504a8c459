/* SPDX-License-Identifier: MIT */
/*
 * Transactional handlers: their writes and the completion of the delivery
 * commit together, inside the store. The store gets one unit per run; what it
 * did not complete is settled here afterwards.
 *
 * A unit may be called more than once for one transaction (the store runs a
 * batch again without the unit that failed it), so no run is settled before
 * transact() has returned.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/breaker.h"
#include "core/cancel.h"
#include "core/run.h"
#include "core/tenure.h"
#include "core/window.h"

#include "base/fail.h"
#include "base/point.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The delay after the store failed; no failure is counted. */
#define RETRY_MS 1000

/* Statements that are sent ahead may run this long before they are interrupted,
   so a handler with a shorter timeout is not sent ahead. */
#define AHEAD_MS 1000

/* How often the connection may be lost under a delivery before that counts as a
   failure; with 5 s between two runs, a server has enough time to restart. */
#define BREAKS_MAX 20

/* The box whose transactional handler this thread is running, or NULL. */
static _Thread_local const struct postern_box *transacting_box;

bool postern__in_transaction(const struct postern_box *box) {
	return transacting_box == box;
}

const struct postern_box *postern__transaction_enter(
		const struct postern_box *box) {
	const struct postern_box *before = transacting_box;
	transacting_box = box;
	return before;
}

size_t postern__transactions_max(const struct postern_box *box) {
	size_t most = box->store->transactions;
	return most > 0 ? most : 1;
}

/* Called by the store, with the transaction open. */
static void call_handler_in_unit(void *context, void *transaction,
		uint64_t epoch, struct postern_outcome *outcome) {
	struct postern_run *run = context;
	struct postern_box *box = run->box;
	const struct postern_policy *policy = &run->handler->policy;
	(void)pthread_mutex_lock(&box->mutex);
	/* A batch that takes long, or is stopped, ends before this unit, whose
	   lease is returned. */
	run->postponed = run->stopping || run->cancel ||
					 postern__box_now_ms(box) - run->dequeued_ms >
							 box->options.command_timeout_ms / 2;
	if (run->postponed) {
		(void)pthread_mutex_unlock(&box->mutex);
		postern_outcome_set(outcome, POSTERN_SNOOZE, 0, NULL);
		return;
	}
	/* Timeout and lease of a unit start with its turn in the batch. */
	run->cancelled = false;
	run->started_ms = postern__box_now_ms(box);
	run->lease_end_ms = postern__box_after_ms(box, policy->lease_ms);
	if (policy->timeout_ms > 0) {
		run->deadline_ms = postern__box_after_ms(box, policy->timeout_ms);
		run->delivery.deadline_ms =
				box->clock.wall_ms(box->clock.context) + policy->timeout_ms;
	}
	run->in_unit = true;
	postern__run_watch(run);
	(void)pthread_mutex_unlock(&box->mutex);

	if (!run->start_emitted) {
		run->start_emitted = true;
		postern__emit_started(run);
	}
	run->delivery.transaction = transaction;
	run->epoch = epoch;
	postern_outcome_set(outcome, POSTERN_RETRY, 0,
			"the handler returned without finishing");
	run->outcome_out = outcome;
	postern__point("unit.before");
	run->handler->impl->ops->start(run->handler->impl, run);
	postern__point("unit.after");
	run->outcome_out = NULL;
	run->delivery.transaction = NULL;

	(void)pthread_mutex_lock(&box->mutex);
	run->in_unit = false;
	run->timed_out = postern__run_timed_out(run, outcome);
	if (run->cancel) {
		/* Whatever it wrote is rolled back. */
		postern_outcome_set(outcome, POSTERN_RETRY, 0, NULL);
	}
	run->deadline_ms = POSTERN__NEVER;
	(void)pthread_mutex_unlock(&box->mutex);
}

/* The store completed the delivery in its transaction. */
static void emit_committed(struct postern_run *run,
		const struct postern_unit *unit) {
	bool done = unit->outcome.kind == POSTERN_DONE;
	run->settlement = (struct postern_settlement){
		.seq = unit->seq,
		.handler = unit->handler,
		.fence = unit->fence,
		.to = done ? POSTERN_SETTLE_DONE : POSTERN_SETTLE_DISCARDED,
		.duration_ms = unit->duration_ms,
		.outcome = done ? "done" : "discard",
	};
	postern__emit_settled(run);
}

static void emit_fenced(struct postern_run *run,
		const struct postern_unit *unit) {
	run->settlement = (struct postern_settlement){
		.seq = unit->seq,
		.handler = unit->handler,
		.fence = unit->fence,
		.outcome = "lost",
		.code = POSTERN_E_STALE,
	};
	postern__emit_fenced(run);
}

/* A lost connection is an error of the store, whatever outcome the handler set
   (other than poison): snooze. If it was lost under this delivery too often,
   count a failure, so that a message that crashes the server is not run
   forever. */
static void classify_lost_connection(const struct postern_run *run,
		const struct postern_unit *unit, struct postern_outcome *out) {
	const struct postern_outcome *outcome = &unit->outcome;
	if (run->breaks >= BREAKS_MAX) {
		char text[sizeof outcome->reason];
		(void)snprintf(text, sizeof text,
				"the connection is lost whenever this runs: %.*s",
				(int)sizeof text - 50, outcome->reason);
		postern_outcome_set(out, POSTERN_RETRY, 0, text);
		return;
	}
	postern_outcome_set(out, POSTERN_SNOOZE, POSTERN_HINDERED_DELAY_MS,
			outcome->reason);
}

/* With the mutex: settle a run that the store did not complete. */
static void settle_unit(struct postern_run *run,
		const struct postern_unit *unit) {
	const struct postern_outcome *outcome = &unit->outcome;
	struct postern_outcome failure;
	if (run->cancel) {
		postern__run_detach(run);
		postern__run_settle_cancelled(run);
		return;
	}
	bool interrupted_for_other =
			unit->code == POSTERN_E_TIMEOUT && !run->timed_out;
	bool stopped = run->stopping && !run->timed_out;
	if (interrupted_for_other || stopped || run->postponed) {
		/* The run was in time and was interrupted for another unit or for the
		   stop, or it was not called at all. */
		postern__run_detach(run);
		postern__run_settle_to(run, POSTERN_SETTLE_RETURNED, run->failures, 0,
				"returned", NULL);
		return;
	}
	bool broke = unit->code == POSTERN_E_UNAVAILABLE &&
				 outcome->kind != POSTERN_POISON;
	if (broke) {
		classify_lost_connection(run, unit, &failure);
		outcome = &failure;
	} else if (outcome->kind == POSTERN_DONE ||
			   outcome->kind == POSTERN_DISCARD) {
		/* The handler succeeded, but the store did not commit. */
		postern_outcome_set(&failure, POSTERN_RETRY, 0,
				outcome->reason[0] ? outcome->reason
								   : "the transaction was not committed");
		outcome = &failure;
	}
	postern__run_detach(run);
	postern__run_settle(run, outcome, run->timed_out ? "timeout" : NULL);
	run->settlement.broke = broke;
}

static void settle_units(struct postern_box *box, struct postern_run **runs,
		const struct postern_unit *units, size_t count) {
	(void)pthread_mutex_lock(&box->mutex);
	int64_t now_ms = postern__box_now_ms(box);
	for (size_t i = 0; i < count; i++) {
		if (units[i].committed) {
			postern__window_record(runs[i], now_ms);
			postern__breaker_success(runs[i]);
		}
	}
	(void)pthread_mutex_unlock(&box->mutex);
	for (size_t i = 0; i < count; i++) {
		if (units[i].committed) {
			emit_committed(runs[i], &units[i]);
		} else if (units[i].code == POSTERN_E_STALE) {
			emit_fenced(runs[i], &units[i]);
		}
	}
	(void)pthread_mutex_lock(&box->mutex);
	for (size_t i = 0; i < count; i++) {
		if (units[i].committed || units[i].code == POSTERN_E_STALE) {
			postern__run_end_unsettled(runs[i]);
		} else {
			settle_unit(runs[i], &units[i]);
		}
	}
	/* The queue has room, and no group commit will wake the claimer. */
	postern__claim_nudge(box);
	(void)pthread_mutex_unlock(&box->mutex);
}

/* Nothing was committed, and no unit caused that: requeue the runs. */
static void requeue_runs(struct postern_box *box, struct postern_run **runs,
		size_t count, bool store_failed) {
	(void)pthread_mutex_lock(&box->mutex);
	for (size_t i = count; i-- > 0;) {
		postern__run_requeue(runs[i]);
	}
	box->transact_retry_at_ms = postern__box_after_ms(box, RETRY_MS);
	if (store_failed) {
		box->store_failing = true;
		(void)pthread_cond_signal(&box->wake); /* for its test */
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

/* No worker is woken: the caller starts the next run itself. */
static void stop_transacting(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	box->transacting--;
	(void)pthread_mutex_unlock(&box->mutex);
}

static bool sends_ahead(const struct postern__handler *handler) {
	int64_t timeout_ms = handler->policy.timeout_ms;
	return handler->impl->ops->sends_ahead &&
		   (timeout_ms <= 0 || timeout_ms >= AHEAD_MS);
}

void postern__transact(struct postern_box *box, struct postern_run **runs,
		size_t count) {
	assert(count > 0);
	struct postern_unit *units = malloc(count * sizeof(*units));
	if (!units) {
		requeue_runs(box, runs, count, false);
		stop_transacting(box);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		runs[i]->start_emitted = false;
		units[i] = (struct postern_unit){
			.seq = runs[i]->delivery.seq,
			.handler = runs[i]->stored_handler,
			.fence = runs[i]->delivery.fence,
			.failures = runs[i]->failures,
			.sends_ahead = sends_ahead(runs[i]->handler),
			.body_len = runs[i]->content->message.body_len,
			.context = runs[i],
			.run = call_handler_in_unit,
		};
	}
	struct postern_error error = { 0 };
	(void)pthread_mutex_lock(&box->mutex);
	struct postern__right right = postern__right_of(box);
	(void)pthread_mutex_unlock(&box->mutex);
	postern__point("transact.before");
	const struct postern_box *before = postern__transaction_enter(box);
	int r = box->store->ops->transact(box->store, right.node,
			postern__right_lock(&right), units, count, &error);
	(void)postern__transaction_enter(before);
	postern__point("transact.after");
	stop_transacting(box);
	if (r == POSTERN_E_INVALID) {
		/* The commit itself failed, so no unit was committed. */
		for (size_t i = 0; i < count; i++) {
			units[i].committed = false;
			units[i].code = r;
			postern_outcome_set(&units[i].outcome, POSTERN_RETRY, 0,
					error.text);
		}
		r = POSTERN_OK;
	}
	if (r) {
		requeue_runs(box, runs, count, true);
	} else {
		settle_units(box, runs, units, count);
	}
	free(units);
}
