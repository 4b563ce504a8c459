/* SPDX-License-Identifier: MIT */
/*
 * What a box counts while it works. A run is counted when its settlement is
 * durable, so a run whose result is lost is not counted. A lease that is
 * returned is not a run.
 */

#include "core/meter.h"

#include "core/accept.h"
#include "core/box.h"
#include "core/run.h"

#include <string.h>

/* From a fast handler to an hour. */
const int64_t postern__duration_bounds[POSTERN__BUCKET_COUNT] = { 1, 5, 10, 25,
	50, 100, 250, 500, 1000, 2500, 5000, 10 * 1000, 30 * 1000, 60 * 1000,
	300 * 1000, 3600 * 1000 };
/* To the largest group: POSTERN__COMMIT_ITEMS_MAX of both kinds. */
const int64_t postern__batch_bounds[POSTERN__BUCKET_COUNT] = { 1, 2, 3, 5, 10,
	20, 50, 100, 200, 300, 500, 1000, 1500, 2000, 3000, 4000 };

void postern__histogram_add(struct postern__histogram *histogram,
		const int64_t bounds[POSTERN__BUCKET_COUNT], int64_t value) {
	size_t bucket = 0;
	value = value > 0 ? value : 0; /* a wall clock may be set back */
	while (bucket < POSTERN__BUCKET_COUNT && value > bounds[bucket]) {
		bucket++;
	}
	histogram->counts[bucket]++;
	histogram->sum += (uint64_t)value;
}

void postern__meter_accept(const struct postern__content *content) {
	struct postern__channel_meter *meter = &content->channel->state->meter;
	switch (content->accept.code) {
	case POSTERN_OK:
		meter->accepted += content->accept.fate != POSTERN_FATE_DROP;
		meter->unrouted += content->accept.fate != POSTERN_FATE_KEEP;
		return;
	case POSTERN_E_DUPLICATE: meter->duplicates++; return;
	case POSTERN_E_CONFLICT: meter->conflicts++; return;
	default: return;
	}
}

void postern__meter_reject(struct postern_box *box,
		struct postern__channel *channel) {
	(void)pthread_mutex_lock(&box->mutex);
	channel->state->meter.unrouted++;
	(void)pthread_mutex_unlock(&box->mutex);
}

void postern__meter_missing_key(struct postern_box *box,
		struct postern__channel *channel) {
	(void)pthread_mutex_lock(&box->mutex);
	channel->state->meter.missing_keys++;
	(void)pthread_mutex_unlock(&box->mutex);
}

void postern__meter_commit(struct postern_box *box, size_t count, int64_t ms) {
	postern__histogram_add(&box->meter.commit_duration,
			postern__duration_bounds, ms);
	postern__histogram_add(&box->meter.batch_size, postern__batch_bounds,
			(int64_t)count);
}

/* Whether the delivery was leased before, other than by a node that returned it
   because another one was idle: it failed, was snoozed, or is retried. */
static bool was_leased(const struct postern_run *run) {
	return run->delivery.fence > 1 + (uint64_t)run->returns;
}

/* Whatever a delivery waits for after its first run is not a lag; and a run
   that the store puts back into the queue starts again. */
void postern__meter_start(struct postern_run *run) {
	const struct postern_clock *clock = &run->box->clock;
	if (was_leased(run) || run->lag_counted) {
		return;
	}
	run->lag_counted = true;
	postern__histogram_add(&run->handler->state->meter.lag,
			postern__duration_bounds,
			clock->wall_ms(clock->context) -
					run->content->message.received_at_ms);
}

void postern__meter_pulled(const struct postern_box *box,
		struct postern__handler *handler,
		const struct postern_claimed *claimed) {
	const struct postern_clock *clock = &box->clock;
	if (claimed->message && claimed->fence <= 1 + (uint64_t)claimed->returns) {
		postern__histogram_add(&handler->state->meter.lag,
				postern__duration_bounds,
				clock->wall_ms(clock->context) -
						claimed->message->received_at_ms);
	}
}

void postern__meter_late(struct postern_box *box,
		struct postern__handler *handler) {
	(void)pthread_mutex_lock(&box->mutex);
	handler->state->meter.ended[POSTERN__ENDED_FENCED]++;
	(void)pthread_mutex_unlock(&box->mutex);
}

static enum postern__ended ended_of(const struct postern_run *run) {
	const struct postern_settlement *settlement = &run->settlement;
	switch (settlement->to) {
	case POSTERN_SETTLE_DONE: return POSTERN__ENDED_DONE;
	case POSTERN_SETTLE_DISCARDED: return POSTERN__ENDED_DISCARD;
	case POSTERN_SETTLE_RETURNED: return POSTERN__ENDED_COUNT;
	case POSTERN_SETTLE_POISONED:
	case POSTERN_SETTLE_PENDING:
	default: break;
	}
	if (strcmp(settlement->outcome, "cancelled") == 0) {
		return POSTERN__ENDED_CANCELLED;
	}
	if (settlement->to == POSTERN_SETTLE_POISONED) {
		return POSTERN__ENDED_POISON;
	}
	if (settlement->failures == run->failures) {
		return run->on_hold ? POSTERN__ENDED_HOLD : POSTERN__ENDED_SNOOZE;
	}
	return run->retry_after ? POSTERN__ENDED_RETRY_AFTER : POSTERN__ENDED_RETRY;
}

void postern__meter_end(const struct postern_run *run) {
	struct postern__handler_meter *meter = &run->handler->state->meter;
	enum postern__ended ended = ended_of(run);
	if (ended == POSTERN__ENDED_COUNT) {
		return;
	}
	if (run->settlement.code != POSTERN_OK) {
		meter->ended[POSTERN__ENDED_FENCED]++;
		return;
	}
	meter->ended[ended]++;
	postern__histogram_add(&meter->duration, postern__duration_bounds,
			run->settlement.duration_ms);
}
