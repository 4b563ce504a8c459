/* SPDX-License-Identifier: MIT */
/*
 * The rate of a handler, which holds for all nodes of a store together.
 *
 * A period is divided into twenty slots. The store counts, for each handler,
 * the starts that were granted in the present slot and in the 21 before it, and
 * grants no more than the rate in all of them. A start may be used for as long
 * as a slot lasts, so that no period has more starts than the rate, and with
 * enough work it has at least ten elevenths of it. A bucket of tokens would
 * allow twice the rate in a period: those that were saved, and those that
 * arrive meanwhile.
 *
 * A node reserves starts for the deliveries that it could start now, before it
 * starts them. What it does not use in time is lost. Stores that one process
 * owns need no row for that: the box counts by itself.
 */

#include "core/rate.h"

#include "core/reason.h"
#include "core/run.h"

#include <string.h>

/* All slots that count: those of a period, one for the time in which a start
   may be used, and the present one. */
#define SLOTS POSTERN_RATE_SLOT_COUNT
#define PERIOD_SLOTS (SLOTS - 2)

bool postern__rate_is_set(const struct postern_policy *policy) {
	return policy->rate_count > 0;
}

static struct postern_rate rate_of(const struct postern_policy *policy) {
	return (struct postern_rate){
		.count = policy->rate_count,
		.period_ms = policy->rate_period_ms,
		.burst = policy->rate_burst > 0 ? policy->rate_burst
										: policy->rate_count,
	};
}

int64_t postern__rate_slot_ms(const struct postern_rate *rate) {
	/* Rounded up: all slots together are never shorter than the period. */
	int64_t ms = (rate->period_ms + PERIOD_SLOTS - 1) / PERIOD_SLOTS;
	return ms > 0 ? ms : 1;
}

uint32_t postern__rate_slot_max(const struct postern_rate *rate) {
	uint32_t even = rate->count / PERIOD_SLOTS + 1;
	return rate->burst > even ? rate->burst : even;
}

static uint64_t sum_of(const struct postern_rate_slots *slots) {
	uint64_t sum = 0;
	for (size_t i = 0; i < SLOTS; i++) {
		sum += slots->counts[i];
	}
	return sum;
}

/* Make `slot` the present one. What was granted in the future, before the clock
   was set back, counts as granted now. */
static void advance(struct postern_rate_slots *slots, int64_t slot) {
	uint32_t moved[SLOTS] = { 0 };
	int64_t shift = slot - slots->slot;
	for (int64_t i = 0; i < SLOTS && shift < SLOTS; i++) {
		int64_t age = i + shift > 0 ? i + shift : 0;
		if (age < SLOTS) {
			moved[age] += slots->counts[i];
		}
	}
	memcpy(slots->counts, moved, sizeof(moved));
	slots->slot = slot;
}

/* When the oldest slot with a start does not count any more. */
static int64_t oldest_ends_at_ms(const struct postern_rate_slots *slots,
		const struct postern_rate *rate) {
	int64_t age = SLOTS - 1;
	while (age > 0 && slots->counts[age] == 0) {
		age--;
	}
	return (slots->slot - age + SLOTS) * postern__rate_slot_ms(rate);
}

uint32_t postern__rate_grant(struct postern_rate_slots *slots, int64_t now_ms,
		const struct postern_rate *rate, uint32_t wanted,
		int64_t *wait_ms_out) {
	advance(slots, now_ms / postern__rate_slot_ms(rate));
	uint64_t used = sum_of(slots);
	uint32_t most = postern__rate_slot_max(rate);
	uint64_t left = used < rate->count ? rate->count - used : 0;
	uint64_t in_slot = slots->counts[0] < most ? most - slots->counts[0] : 0;
	uint64_t granted = left < in_slot ? left : in_slot;
	granted = granted < wanted ? granted : wanted;
	slots->counts[0] += (uint32_t)granted;
	int64_t at = left > 0 ? (slots->slot + 1) * postern__rate_slot_ms(rate)
						  : oldest_ends_at_ms(slots, rate);
	*wait_ms_out = granted > 0 || at <= now_ms ? 0 : at - now_ms;
	return (uint32_t)granted;
}

size_t postern__rate_left(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	if (!postern__rate_is_set(&handler->policy)) {
		return SIZE_MAX;
	}
	return postern__box_now_ms(box) < state->rate_until_ms ? state->rate_left
														   : 0;
}

void postern__rate_use(struct postern__handler *handler) {
	if (handler->state->rate_left > 0) {
		handler->state->rate_left--;
	}
}

/* With the mutex: whether starts must be reserved before a queued delivery of
   the handler can start. */
static bool waits_for_rate(const struct postern_box *box,
		const struct postern__handler *handler) {
	return postern__rate_is_set(&handler->policy) &&
		   postern__why_not_start(box, handler) == POSTERN__REASON_RATE;
}

static struct postern__handler *handler_of(struct postern__list *link) {
	return container_of(link, struct postern__handler_state, ready)->handler;
}

/* With the mutex: when to reserve starts for a handler. If it has some that no
   worker has used yet, when these are lost. */
static int64_t reserve_at_ms(const struct postern_box *box,
		const struct postern__handler *handler) {
	const struct postern__handler_state *state = handler->state;
	if (!postern__rate_is_set(&handler->policy) || state->rate_reserving) {
		return POSTERN__NEVER;
	}
	switch (postern__why_not_start(box, handler)) {
	case POSTERN__REASON_NONE: return state->rate_until_ms;
	case POSTERN__REASON_RATE: return state->rate_at_ms;
	default: return POSTERN__NEVER;
	}
}

int64_t postern__rate_reserve_at_ms(const struct postern_box *box) {
	int64_t at = POSTERN__NEVER;
	if (box->generation->rated_count == 0) {
		return at;
	}
	postern__list_each(link, &box->ready) {
		int64_t handler_at = reserve_at_ms(box, handler_of(link));
		at = handler_at < at ? handler_at : at;
	}
	return at;
}

/* With the mutex: how many runs of the handler could start now. */
static size_t free_slots(const struct postern_box *box,
		const struct postern__handler *handler) {
	size_t running = handler->state->running;
	size_t most = handler->policy.concurrency;
	size_t batch = postern__commit_batch_of(handler);
	if (handler->impl->transactional) {
		size_t transactions = postern__transactions_max(box);
		return transactions > box->transacting
					   ? (transactions - box->transacting) * batch
					   : batch;
	}
	if (postern__handler_holds_worker(handler)) {
		size_t workers = box->workers > 0 ? box->workers : 1;
		most = most > 0 && most < workers ? most : workers;
	}
	return most > running ? most - running : 1;
}

/* With the mutex: how many starts to reserve for a handler. */
static uint32_t wanted_starts(const struct postern_box *box,
		const struct postern__handler *handler) {
	size_t wanted = handler->state->queued;
	size_t slots = free_slots(box, handler);
	wanted = wanted < slots ? wanted : slots;
	return wanted < POSTERN_RATE_COUNT_MAX ? (uint32_t)wanted
										   : POSTERN_RATE_COUNT_MAX;
}

/* Without the mutex. */
static int reserve(struct postern_box *box, struct postern__handler *handler,
		struct postern_reservation *reservation, struct postern_error *error) {
	if (!box->store->ops->reserve) {
		(void)pthread_mutex_lock(&box->mutex);
		reservation->granted = postern__rate_grant(&handler->state->rate_slots,
				postern__box_now_ms(box), &reservation->rate,
				reservation->wanted, &reservation->wait_ms);
		(void)pthread_mutex_unlock(&box->mutex);
		return POSTERN_OK;
	}
	return box->store->ops->reserve(box->store, reservation, error);
}

/* With the mutex. */
static void take_reserved(struct postern_box *box,
		struct postern__handler *handler, int64_t until_ms,
		const struct postern_reservation *reservation) {
	struct postern__handler_state *state = handler->state;
	int64_t wait_ms = reservation->wait_ms > 0 ? reservation->wait_ms : 1;
	state->rate_left = reservation->granted;
	state->rate_until_ms = until_ms;
	state->rate_at_ms =
			reservation->granted > 0 ? 0 : postern__box_after_ms(box, wait_ms);
	if (reservation->granted > 0) {
		(void)pthread_cond_broadcast(&box->work);
		postern__run_watch_starvation(box);
	}
}

int postern__rate_reserve(struct postern_box *box,
		struct postern__handler *handler, uint32_t wanted,
		struct postern_error *error) {
	struct postern_reservation reservation = {
		.handler = handler->id,
		.rate = rate_of(&handler->policy),
		.wanted = wanted,
	};
	/* From before the call: it may take long. */
	int64_t until_ms = postern__box_after_ms(box,
			postern__rate_slot_ms(&reservation.rate));
	int r = reserve(box, handler, &reservation, error);
	(void)pthread_mutex_lock(&box->mutex);
	handler->state->rate_reserving = false;
	if (!r) {
		take_reserved(box, handler, until_ms, &reservation);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return r;
}

/* With the mutex: a handler for which starts should be reserved now, whose
   generation the caller must release; NULL: none. */
static struct postern__handler *acquire_waiting(struct postern_box *box,
		uint32_t *wanted_out) {
	int64_t now = postern__box_now_ms(box);
	postern__list_each(link, &box->ready) {
		struct postern__handler *handler = handler_of(link);
		struct postern__handler_state *state = handler->state;
		if (!state->rate_reserving && state->rate_at_ms <= now &&
				waits_for_rate(box, handler)) {
			*wanted_out = wanted_starts(box, handler);
			state->rate_reserving = true;
			atomic_fetch_add(&handler->generation->refs, 1);
			return handler;
		}
	}
	return NULL;
}

int postern__rates_reserve(struct postern_box *box,
		struct postern_error *error) {
	int r = POSTERN_OK;
	struct postern__handler *handler;
	/* No more than one call of the store for each handler: claims wait. */
	size_t most = 1;
	for (size_t i = 0; !r && i < most; i++) {
		uint32_t wanted = 0;
		(void)pthread_mutex_lock(&box->mutex);
		most = box->generation->rated_count;
		handler = most == 0 || postern__why_not_process(box)
						  ? NULL
						  : acquire_waiting(box, &wanted);
		(void)pthread_mutex_unlock(&box->mutex);
		if (!handler) {
			break;
		}
		r = postern__rate_reserve(box, handler, wanted, error);
		postern__generation_release(handler->generation);
	}
	return r;
}
