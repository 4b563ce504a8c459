/* SPDX-License-Identifier: MIT */
/*
 * Claiming: leasing in batches the deliveries that were not leased when they
 * were accepted: backlog, retries, returned and recovered leases.
 *
 * Each handler records when the store may have a delivery due for it
 * (`due_at_ms`): at once after an accept that could not lease, after the delay
 * of a retry, never after a claim that found nothing. So an idle box does not
 * query the store, and a runner's polling interval is only a fallback.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/breaker.h"
#include "core/maintenance.h"
#include "core/pull.h"
#include "core/rate.h"
#include "core/reason.h"
#include "core/run.h"
#include "core/tenure.h"
#include "core/window.h"

#include "base/fail.h"
#include "base/point.h"

#include <postern/sys/memory.h>
#include <stdlib.h>

/* A handler is claimed for when its queue is at most half a batch. */
static bool needs_claim(const struct postern_box *box,
		const struct postern__handler *handler) {
	return handler->state->queued <= box->options.batch_size / 2 &&
		   !postern__why_not_lease(box, handler, 0);
}

/* When to claim for a handler that may have deliveries due: a handler that is
   held is probed later. POSTERN__NEVER: not as things are now. */
static int64_t handler_claim_at_ms(const struct postern_box *box,
		const struct postern__handler_state *state) {
	if (postern__handler_is_pulled(state->handler)) {
		return postern__pull_at_ms(box, state);
	}
	int64_t probe_at = postern__breaker_probe_at_ms(state);
	bool later = probe_at > postern__box_now_ms(box);
	if (!later && !needs_claim(box, state->handler)) {
		return POSTERN__NEVER;
	}
	return state->due_at_ms > probe_at ? state->due_at_ms : probe_at;
}

int64_t postern__claim_at_ms(const struct postern_box *box) {
	bool may = box->leasing && !postern__why_not_process(box);
	int64_t at = postern__pulls_check_at_ms(box);
	if (!may) {
		return at;
	}
	int64_t reserve_at = postern__rate_reserve_at_ms(box);
	at = reserve_at < at ? reserve_at : at;
	at = box->pauses_end_ms < at ? box->pauses_end_ms : at;
	postern__list_each(link, &box->due) {
		const struct postern__handler_state *state =
				container_of(link, struct postern__handler_state, due);
		int64_t handler_at =
				state->due_at_ms < at ? handler_claim_at_ms(box, state) : at;
		at = handler_at < at ? handler_at : at;
	}
	return at;
}

static void set_due(struct postern_box *box,
		struct postern__handler_state *state, int64_t at) {
	state->due_at_ms = at;
	postern__list_remove(&state->due);
	if (at != POSTERN__NEVER) {
		postern__list_push_back(&box->due, &state->due);
	}
}

void postern__claim_asked(struct postern_box *box,
		struct postern__handler_state *state) {
	set_due(box, state, POSTERN__NEVER);
}

/* The state by which the handler's deliveries are claimed: its own, or that of
   a handler which continues several; NULL: this node does not claim for it. */
static struct postern__handler_state *
state_in_place(const struct postern_box *box,
		const struct postern__handler *handler) {
	struct postern__handler_state *state = handler->state;
	if (state->handler && postern__handler_in_place(state->handler)) {
		return state;
	}
	const struct postern_generation *generation = box->generation;
	for (size_t i = 0; i < generation->handler_count; i++) {
		if (postern__handlers_share_key(generation->handlers[i], handler)) {
			return generation->handlers[i]->state;
		}
	}
	return NULL;
}

void postern__claim_hint(struct postern_box *box,
		struct postern__handler *handler, int64_t delay_ms) {
	struct postern__handler_state *state = state_in_place(box, handler);
	if (!state) {
		return;
	}
	int64_t at = postern__box_after_ms(box, delay_ms);
	if (at < state->due_at_ms) {
		set_due(box, state, at);
	}
	/* Also if due_at_ms did not change: needs_claim() may have become true
	   since. */
	if (handler_claim_at_ms(box, state) < box->claim_wait_until_ms) {
		(void)pthread_cond_signal(&box->claim);
	}
}

void postern__claim_hint_all(struct postern_box *box) {
	const struct postern_generation *generation = box->generation;
	if (generation->pulled_count > 0) {
		postern__pulls_look(box);
	}
	for (size_t i = 0; i < generation->handler_count; i++) {
		postern__claim_hint(box, generation->handlers[i], 0);
	}
}

void postern__claim_nudge(struct postern_box *box) {
	if (box->claim_wait_until_ms > 0 &&
			postern__claim_at_ms(box) < box->claim_wait_until_ms) {
		(void)pthread_cond_signal(&box->claim);
	}
}

struct wants {
	struct postern_generation *generation; /* with a reference */
	struct postern_want *list;
	struct postern__handler **handlers; /* whose wants they are */
	size_t count;
	size_t bytes_max;
	struct postern__right right;
};

static void add_want(struct wants *wants, struct postern__handler *handler,
		size_t max) {
	wants->handlers[wants->count] = handler;
	wants->list[wants->count++] = (struct postern_want){
		.handler = handler->id,
		.max = max > UINT32_MAX ? UINT32_MAX : (uint32_t)max,
		.in_process = handler->impl->kind->in_process,
	};
}

static bool wants_init(struct wants *wants, struct postern_box *box) {
	struct postern_generation *generation = postern__generation_acquire(box);
	size_t count = generation->handler_count + 1;
	*wants = (struct wants){
		.generation = generation,
		.list = calloc(count, sizeof(struct postern_want)),
		.handlers = calloc(count, sizeof(struct postern__handler *)),
	};
	return wants->list && wants->handlers;
}

static void wants_finish(struct wants *wants) {
	postern__generation_release(wants->generation);
	free(wants->list);
	free(wants->handlers);
}

/* With the mutex: list the handlers to claim for. */
static void fill_wants(struct postern_box *box, bool all, struct wants *wants) {
	int64_t now = postern__box_now_ms(box);
	wants->right = postern__right_of(box);
	const struct postern_generation *generation = wants->generation;
	if (postern__why_not_process(box) || generation != box->generation) {
		return;
	}
	size_t share_bytes = postern__share_bytes(box);
	size_t first = box->next_want++; /* the first may use up the whole claim */
	for (size_t i = 0; i < generation->handler_count; i++) {
		struct postern__handler *handler =
				generation->handlers[(first + i) % generation->handler_count];
		if (!needs_claim(box, handler) ||
				(!all && handler->state->due_at_ms > now)) {
			continue;
		}
		/* needs_claim() has checked that there is room. */
		size_t room =
				postern__window_count(box, handler) - handler->state->held;
		size_t max =
				room < box->options.batch_size ? room : box->options.batch_size;
		add_want(wants, handler,
				postern__breaker_is_open(handler->state) ? 1 : max);
		postern__breaker_take_probe(box, handler->state);
		if (handler->state->held_bytes < share_bytes) {
			wants->bytes_max += share_bytes - handler->state->held_bytes;
		}
		/* A hint that arrives during the claim sets it again. */
		postern__claim_asked(box, handler->state);
	}
}

/* Return the lease of a delivery at once: there is no memory to run it. */
static void return_claimed(struct postern_box *box, const struct wants *wants,
		const struct postern_claimed *claimed) {
	struct postern_settlement settlement = {
		.seq = claimed->seq,
		.handler = claimed->handler,
		.fence = claimed->fence,
		.to = POSTERN_SETTLE_RETURNED,
		.failures = claimed->failures,
		.outcome = "returned",
	};
	struct postern_batch batch = {
		.node = wants->right.node,
		.lock = postern__right_lock(&wants->right),
		.settlements = &settlement,
		.settlement_count = 1,
	};
	/* If this fails too, the lease is recovered after the node has ended. */
	(void)box->store->ops->apply(box->store, &batch, NULL);
}

static void queue_claimed(struct postern_box *box, const struct wants *wants,
		const struct postern_claimed *claimed) {
	static const struct postern_message missing = {
		.size = sizeof(missing),
		.id = "",
	};
	struct postern__handler *handler = wants->handlers[claimed->want];
	/* The handler may have moved to another channel since. */
	struct postern__channel *channel =
			postern__generation_channel_by_id(wants->generation,
					claimed->channel);
	struct postern__content *content =
			postern__content_create(channel ? channel : handler->channel,
					claimed->message ? claimed->message : &missing, 1);
	if (!content) {
		return_claimed(box, wants, claimed);
		return;
	}
	struct postern_run *run = &content->runs[0];
	(void)pthread_mutex_lock(&box->mutex);
	postern__run_init(run, box, content, handler, claimed->seq,
			claimed->handler, claimed->fence, claimed->failures,
			claimed->suspicion);
	run->breaks = claimed->breaks;
	run->returns = claimed->returns;
	handler->state->held++;
	handler->state->held_bytes += content->bytes;
	if (claimed->suspicion != POSTERN_NO_SUSPECT) {
		box->suspects_held++;
	}
	if (claimed->message) {
		postern__run_enqueue(run);
	} else {
		postern__run_settle_to(run, POSTERN_SETTLE_POISONED,
				claimed->failures + 1, 0, "poison",
				"the message is missing from the store");
	}
	postern__content_release(content);
	(void)pthread_mutex_unlock(&box->mutex);
}

static void update_next_due(struct postern_box *box, const struct wants *wants,
		const struct postern_claims *claims) {
	(void)pthread_mutex_lock(&box->mutex);
	bool suspects = claims->suspects_waiting > 0;
	bool asked = false;
	for (size_t i = 0; i < wants->count; i++) {
		asked = asked || wants->list[i].in_process;
		if (claims->next_due_ms >= 0) {
			postern__claim_hint(box, wants->handlers[i], claims->next_due_ms);
		}
	}
	if (asked) {
		box->suspects_waiting = suspects;
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

/* The claim failed: the handlers may still have deliveries due. */
static void restore_hints(struct postern_box *box, const struct wants *wants) {
	(void)pthread_mutex_lock(&box->mutex);
	for (size_t i = 0; i < wants->count; i++) {
		postern__claim_hint(box, wants->handlers[i], 0);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

int postern__claim(struct postern_box *box, size_t max, bool all,
		size_t *count_out, struct postern_error *error) {
	*count_out = 0;
	struct wants wants;
	struct postern_claims claims = { 0 };
	int r = POSTERN_OK;
	struct postern_memory *memory = postern_memory_create();
	if (!wants_init(&wants, box) || !memory) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	(void)pthread_mutex_lock(&box->mutex);
	fill_wants(box, all, &wants);
	(void)pthread_mutex_unlock(&box->mutex);
	if (wants.count == 0) {
		goto out;
	}
	struct postern_claim claim = {
		.node = wants.right.node,
		.lock = postern__right_lock(&wants.right),
		.wants = wants.list,
		.want_count = wants.count,
		.max = max,
		.bytes_max = wants.bytes_max,
	};
	postern__point("claim.before");
	r = box->store->ops->claim(box->store, &claim, memory, &claims, error);
	postern__point("claim.after");
	if (r) {
		restore_hints(box, &wants);
		if (r == POSTERN_E_STALE) {
			/* Another node has the lock; the next renewal finds out too. */
			postern__lock_invalidate(box, wants.right.lock.fence);
			r = POSTERN_OK;
		}
		goto out;
	}
	update_next_due(box, &wants, &claims);
	for (size_t i = 0; i < claims.count; i++) {
		queue_claimed(box, &wants, &claims.items[i]);
		postern__point("claim.taken");
	}
	*count_out = claims.count;
out:
	wants_finish(&wants);
	postern_memory_destroy(memory);
	return r;
}

int postern_box_claim(struct postern_box *box, size_t max, size_t *count_out,
		struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (r) {
		return r;
	}
	size_t count = 0;
	r = postern__engage(box, error);
	if (!r) {
		r = postern__pauses_refresh(box, error);
	}
	if (!r) {
		r = postern__claim(box, max, true, &count, error);
	}
	if (!r) {
		r = postern__rates_reserve(box, error);
	}
	if (!r && count_out) {
		*count_out = count;
	}
	return r;
}
