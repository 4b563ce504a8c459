/* SPDX-License-Identifier: MIT */
/*
 * Why deliveries of a handler do not start now: one function for each of the
 * two steps, leasing and starting. Nothing else decides it.
 */

#include "core/reason.h"

#include "core/accept.h"
#include "core/breaker.h"
#include "core/inline.h"
#include "core/pull.h"
#include "core/rate.h"
#include "core/run.h"
#include "core/tenure.h"

#include <postern/sys/memory.h>
#include <string.h>

const char *postern__reason_name(enum postern__reason reason) {
	static const char *const names[] = {
		[POSTERN__REASON_NONE] = "",
		[POSTERN__REASON_DRAINING] = "draining",
		[POSTERN__REASON_LOCK] = "lock",
		[POSTERN__REASON_PAUSED] = "paused",
		[POSTERN__REASON_RETRY_AFTER] = "retry-after",
		[POSTERN__REASON_BROKEN] = "broken",
		[POSTERN__REASON_RATE] = "rate",
		[POSTERN__REASON_REPLACED] = "replaced",
		[POSTERN__REASON_ROOM] = "room",
		[POSTERN__REASON_SUSPECTS] = "suspects",
		[POSTERN__REASON_CONCURRENCY] = "concurrency",
		[POSTERN__REASON_STORE] = "store",
		[POSTERN__REASON_PULL] = "pull",
	};
	return names[reason];
}

enum postern__reason postern__why_not_process(const struct postern_box *box) {
	if (box->draining) {
		return POSTERN__REASON_DRAINING;
	}
	return postern__may_process(box) ? POSTERN__REASON_NONE
									 : POSTERN__REASON_LOCK;
}

enum postern__reason postern__pause_reason(const char *by, int64_t until_ms) {
	return until_ms > 0 && by && strcmp(by, POSTERN_BY_POSTERN) == 0
				   ? POSTERN__REASON_RETRY_AFTER
				   : POSTERN__REASON_PAUSED;
}

enum postern__reason postern__why_held(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	if (postern__is_paused(box, state)) {
		return postern__pause_reason(state->pause_by, state->pause_until_ms);
	}
	enum postern__reason reason = postern__why_not_process(box);
	if (reason) {
		return reason;
	}
	if (postern__breaker_is_open(state)) {
		return POSTERN__REASON_BROKEN;
	}
	return state->queued > 0 && postern__why_not_start(box, handler) ==
										POSTERN__REASON_RATE
				   ? POSTERN__REASON_RATE
				   : POSTERN__REASON_NONE;
}

/* Deliveries of it wait for a suspect, which the rest of the product does not
   call a hold: health and metrics have no word for it. */
static bool waits_for_suspects(const struct postern_box *box,
		const struct postern__handler *handler) {
	return postern__why_not_lease(box, handler, 0) ==
				   POSTERN__REASON_SUSPECTS ||
		   (handler->state->queued > 0 &&
				   postern__why_not_start(box, handler) ==
						   POSTERN__REASON_SUSPECTS);
}

/* The wall clock of the store at a time of the monotonic clock; 0: never. */
static int64_t wall_at(const struct postern_box *box, int64_t now_ms,
		int64_t at_ms) {
	return at_ms <= 0 || at_ms == POSTERN__NEVER
				   ? 0
				   : now_ms + at_ms - postern__box_now_ms(box);
}

void postern__hold_find(const struct postern_box *box,
		const struct postern__handler *handler, int64_t now_ms,
		struct postern__hold *out) {
	const struct postern__handler_state *state = handler->state;
	*out = (struct postern__hold){ .reason = postern__why_held(box, handler) };
	if (!out->reason && waits_for_suspects(box, handler)) {
		out->reason = POSTERN__REASON_SUSPECTS;
	}
	switch (out->reason) {
	case POSTERN__REASON_PAUSED:
	case POSTERN__REASON_RETRY_AFTER:
		out->text = state->pause_reason;
		out->by = state->pause_by;
		out->at_ms = state->pause_at_ms;
		out->until_ms = state->pause_until_ms;
		break;
	case POSTERN__REASON_BROKEN:
		out->text = state->breaker->reason;
		out->at_ms = state->breaker->since_ms;
		out->until_ms = wall_at(box, now_ms, state->breaker->probe_at_ms);
		break;
	case POSTERN__REASON_RATE:
		out->text = "the rate of the handler is used up";
		out->until_ms = wall_at(box, now_ms, state->rate_at_ms);
		break;
	case POSTERN__REASON_LOCK:
		out->text = box->rival.text[0] ? box->rival.text
					: box->options.processing == POSTERN_PROCESSING_EXCLUSIVE
							? "another node has the processing lock"
							: NULL;
		break;
	case POSTERN__REASON_DRAINING: out->text = "the process is stopping"; break;
	case POSTERN__REASON_SUSPECTS:
		out->text = "a delivery whose process crashed runs alone";
		break;
	default: break;
	}
}

/* Out of memory: without the text. */
static const char *copy_text(struct postern_memory *memory, const char *text) {
	return text && text[0] ? postern_memory_text(memory, text) : NULL;
}

void postern__hold_copy(struct postern__hold *hold,
		struct postern_memory *memory) {
	hold->text = copy_text(memory, hold->text);
	hold->by = copy_text(memory, hold->by);
}

void postern__held_describe(const struct postern_box *box,
		const struct postern__handler *handler, int64_t now_ms,
		struct postern_memory *memory, struct postern_handler_stats *stats) {
	if (stats->paused) {
		stats->held = postern__reason_name(
				postern__pause_reason(stats->held_by, stats->held_until_ms));
		return;
	}
	/* A process without a runner starts nothing, and holds nothing. */
	struct postern__hold hold = { 0 };
	if (handler && box->leasing) {
		postern__hold_find(box, handler, now_ms, &hold);
	}
	/* This node may not have read yet that the handler was resumed. */
	if (hold.reason && hold.reason != POSTERN__REASON_PAUSED &&
			hold.reason != POSTERN__REASON_RETRY_AFTER) {
		postern__hold_copy(&hold, memory);
		stats->held = postern__reason_name(hold.reason);
		if (hold.reason == POSTERN__REASON_BROKEN) {
			stats->waiting = 0; /* all are held: shown.c */
		}
		stats->held_reason = hold.text;
		stats->held_by = hold.by;
		stats->held_at_ms = hold.at_ms;
		stats->held_until_ms = hold.until_ms;
	}
}

static enum postern__reason why_not_handler(
		const struct postern__handler *handler) {
	if (!postern__handler_in_place(handler)) {
		return POSTERN__REASON_REPLACED;
	}
	return handler->state->paused &&
						   postern__is_paused(handler->generation->box,
								   handler->state)
				   ? POSTERN__REASON_PAUSED
				   : POSTERN__REASON_NONE;
}

enum postern__reason postern__why_not_lease(const struct postern_box *box,
		const struct postern__handler *handler, size_t bytes) {
	enum postern__reason reason = why_not_handler(handler);
	if (!reason && postern__handler_is_pulled(handler)) {
		reason = POSTERN__REASON_PULL;
	}
	if (reason) {
		return reason;
	}
	if (postern__breaker_is_open(handler->state) &&
			postern__breaker_probe_at_ms(handler->state) >
					postern__box_now_ms(box)) {
		return POSTERN__REASON_BROKEN;
	}
	if (handler->impl->kind->in_process && box->suspects_held > 0) {
		return POSTERN__REASON_SUSPECTS; /* one group of them at a time */
	}
	return postern__handler_has_room(box, handler, bytes)
				   ? POSTERN__REASON_NONE
				   : POSTERN__REASON_ROOM;
}

bool postern__handler_holds_worker(const struct postern__handler *handler) {
	/* A guard waits for the end of the run, whatever its kind. */
	return !handler->impl->transactional &&
		   (!handler->impl->kind->asynchronous ||
				   handler->channel->mode == POSTERN_MODE_GUARD);
}

size_t postern__commit_batch_of(const struct postern__handler *handler) {
	return handler->impl->transactional && handler->impl->ops->batches &&
						   !postern__channel_is_inline(handler->channel)
				   ? handler->policy.commit_batch
				   : 1;
}

/* Whether the handler must leave the last free transaction to others: its own
   may take long, and transactions are few. */
static bool leaves_last_transaction(const struct postern_box *box,
		const struct postern__handler *handler) {
	return handler->state->running > 0 &&
		   handler->generation->transactional_count > 1 &&
		   box->transacting + 1 == postern__transactions_max(box);
}

/* A queue shorter than a full batch waits for the handler's transaction in
   progress, so that the next one includes the deliveries that arrive
   meanwhile. */
static enum postern__reason why_not_transact(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	if (box->transacting >= postern__transactions_max(box) ||
			postern__box_now_ms(box) < box->transact_retry_at_ms) {
		return POSTERN__REASON_STORE;
	}
	if (leaves_last_transaction(box, handler)) {
		return POSTERN__REASON_CONCURRENCY;
	}
	return state->running > 0 &&
						   state->queued < postern__commit_batch_of(handler)
				   ? POSTERN__REASON_CONCURRENCY
				   : POSTERN__REASON_NONE;
}

/* A solo suspect runs without any other in-process run. */
static bool suspects_allow(const struct postern_box *box,
		const struct postern_run *first) {
	if (!first->handler->impl->kind->in_process) {
		return true;
	}
	return first->suspicion == POSTERN_SUSPECT_SOLO
				   ? box->in_process_running == 0
				   : !box->solo_running && box->solo_queued == 0;
}

/* A handler without a limit may hold the usual number of workers, and one that
   holds a worker does not get the last one. Transactions have a limit of their
   own, and a batch of them has one worker. */
static enum postern__reason why_not_worker(const struct postern_box *box,
		const struct postern__handler *handler) {
	size_t running = handler->state->running;
	if (box->workers == 0 || !postern__handler_holds_worker(handler)) {
		return POSTERN__REASON_NONE;
	}
	bool at_limit = handler->policy.concurrency == 0 && running >= box->workers;
	bool last = box->workers_held + box->transacting + 1 >= box->workers_max;
	return at_limit || (last && running > 0) ? POSTERN__REASON_CONCURRENCY
											 : POSTERN__REASON_NONE;
}

enum postern__reason postern__why_not_start(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	uint32_t most = handler->policy.concurrency;
	enum postern__reason reason = why_not_handler(handler);
	if (!reason && most > 0 && state->running >= most) {
		reason = POSTERN__REASON_CONCURRENCY;
	}
	if (!reason) {
		reason = why_not_worker(box, handler);
	}
	if (!reason && handler->impl->transactional) {
		reason = why_not_transact(box, handler);
	}
	if (reason) {
		return reason;
	}
	const struct postern_run *first =
			container_of(postern__list_first(&state->queue),
					const struct postern_run, link);
	if (!suspects_allow(box, first)) {
		return POSTERN__REASON_SUSPECTS;
	}
	/* The last: starts are reserved only if nothing else is in the way. Other
	   deliveries wait for suspects, so these wait for no rate. */
	return first->suspicion != POSTERN_NO_SUSPECT ||
						   handler->policy.rate_count == 0 ||
						   postern__rate_left(box, handler) > 0
				   ? POSTERN__REASON_NONE
				   : POSTERN__REASON_RATE;
}
