/* SPDX-License-Identifier: MIT */
/*
 * Claims for workers outside of the nodes. Each pull handler has a queue of
 * claims that wait. One thread, the claimer of a runner or a caller without
 * one, serves them: if the handler may have deliveries due, by the same hints
 * as for other claims, it claims in the store for the first in the queue and
 * answers it if there were any. Nothing else holds a thread.
 *
 * A claim that has just come is always asked for, because a hint may be
 * missing; after that the handler's next hint is waited for.
 */

#include "core/pull.h"

#include "core/accept.h"
#include "core/breaker.h"
#include "core/maintenance.h"
#include "core/rate.h"
#include "core/reason.h"
#include "core/run.h"
#include "core/tenure.h"

#include "base/fail.h"
#include "base/point.h"
#include "base/sized.h"

#include <postern/sys/memory.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX_DEFAULT ((size_t)4 * 1024 * 1024)
/* How often a store that nodes share is asked again, if it may not notify. */
#define SHARED_POLL_MS 1000
/* Claims that are served before the caller does what else it has to do. */
#define SERVED_MAX 64
/* How long a call without a runner sleeps at most: hints of other threads do
   not wake it. */
#define UNAIDED_WAIT_MS 100

struct postern_pull_batch {
	struct postern_memory *memory;
	struct postern_claimed *claimed;
	struct postern_pulled *items;
	size_t count;
	size_t bytes;
};

/* A claim that waits. */
struct postern__pull {
	struct postern__list link; /* the queue of its handler */
	char *handler;
	uint32_t max;
	int64_t lease_ms;
	size_t bytes_max;
	int64_t until_ms; /* monotonic: the end of the wait */
	bool counted;     /* in box->pulls_waiting */
	bool asked;       /* the store had nothing for it */
	bool (*wanted)(void *context);
	void *wanted_context;
	postern_pull_done *done;
	void *context;
};

size_t postern_pull_batch_count(const struct postern_pull_batch *batch) {
	return batch->count;
}

const struct postern_pulled *
postern_pull_batch_get(const struct postern_pull_batch *batch, size_t index) {
	return index < batch->count ? &batch->items[index] : NULL;
}

void postern_pull_batch_destroy(struct postern_pull_batch *batch) {
	if (batch) {
		postern_memory_destroy(batch->memory);
		free(batch->claimed);
		free(batch->items);
		free(batch);
	}
}

static struct postern_pull_batch *batch_create(size_t max) {
	struct postern_pull_batch *batch = calloc(1, sizeof(*batch));
	if (!batch) {
		return NULL;
	}
	batch->memory = postern_memory_create();
	batch->claimed = calloc(max + 1, sizeof(*batch->claimed));
	batch->items = calloc(max + 1, sizeof(*batch->items));
	if (!batch->memory || !batch->claimed || !batch->items) {
		postern_pull_batch_destroy(batch);
		return NULL;
	}
	return batch;
}

bool postern__handler_is_pulled(const struct postern__handler *handler) {
	return handler->impl->kind->pull != NULL;
}

struct postern__handler *
postern__pull_handler(const struct postern_generation *generation,
		const char *key) {
	for (size_t i = 0; i < generation->handler_count; i++) {
		struct postern__handler *handler = generation->handlers[i];
		bool is = strcmp(handler->key, key) == 0;
		for (size_t n = 0; !is && n < handler->legacy_key_count; n++) {
			is = strcmp(handler->legacy_keys[n], key) == 0;
		}
		if (is) {
			return handler;
		}
	}
	return NULL;
}

bool postern__box_has_handler(struct postern_box *box, const char *key,
		bool pulled) {
	struct postern_generation *generation = postern__generation_acquire(box);
	const struct postern__handler *handler =
			postern__pull_handler(generation, key);
	bool has = handler && (!pulled || postern__handler_is_pulled(handler));
	postern__generation_release(generation);
	return has;
}

static void pull_destroy(struct postern__pull *pull) {
	if (pull) {
		free(pull->handler);
		free(pull);
	}
}

/* Without the mutex: answer a claim, and end it. */
static void answer(struct postern_box *box, struct postern__pull *pull,
		struct postern_pull_batch *batch, const struct postern_error *error) {
	static const struct postern_error no_memory = {
		.code = POSTERN_E_NOMEM,
		.text = "out of memory",
	};
	if (!batch && !error && !(batch = batch_create(0))) {
		error = &no_memory;
	}
	(void)pthread_mutex_lock(&box->mutex);
	box->pulls_waiting -= pull->counted;
	(void)pthread_mutex_unlock(&box->mutex);
	postern__point("pull.answering");
	if (!pull->done(pull->context, batch, error)) {
		if (batch) {
			postern__pulls_return(box, batch->claimed, batch->count);
		}
		postern_pull_batch_destroy(batch);
	}
	pull_destroy(pull);
}

static struct postern__pull *first_pull(
		const struct postern__handler_state *state) {
	struct postern__list *first = postern__list_first(&state->pulls);
	return first ? container_of(first, struct postern__pull, link) : NULL;
}

/* Why nothing is claimed for the handler now. */
static enum postern__reason why_not_pull(const struct postern_box *box,
		const struct postern__handler *handler) {
	enum postern__reason reason = postern__why_not_process(box);
	if (!reason && postern__is_paused(box, handler->state)) {
		reason = POSTERN__REASON_PAUSED;
	}
	return reason;
}

int64_t postern__pull_at_ms(const struct postern_box *box,
		const struct postern__handler_state *state) {
	const struct postern__handler *handler = state->handler;
	if (!handler || postern__list_empty(&state->pulls) ||
			why_not_pull(box, handler)) {
		return POSTERN__NEVER;
	}
	int64_t at = state->due_at_ms;
	int64_t probe_at = postern__breaker_probe_at_ms(state);
	at = probe_at > at ? probe_at : at;
	if (postern__rate_is_set(&handler->policy) &&
			postern__rate_left(box, handler) == 0 && state->rate_at_ms > at) {
		at = state->rate_at_ms;
	}
	return at;
}

void postern__pulls_look(struct postern_box *box) {
	if (box->store->ops->read_pulls) {
		box->pull_ended_at_ms = 0;
	}
}

void postern__pulls_look_in(struct postern_box *box, int64_t delay_ms) {
	int64_t at = postern__box_after_ms(box, delay_ms);
	if (at < box->pull_ended_at_ms) {
		box->pull_ended_at_ms = at;
	}
}

int64_t postern__pulls_check_at_ms(const struct postern_box *box) {
	return box->pull_ended_at_ms < box->pull_until_ms ? box->pull_ended_at_ms
													  : box->pull_until_ms;
}

/* With the mutex: the next claim to ask the store for; its handler is that of a
   generation which the caller must release. */
static struct postern__pull *take_pull(struct postern_box *box,
		struct postern__handler **handler_out) {
	int64_t now = postern__box_now_ms(box);
	postern__list_each(link, &box->due) {
		struct postern__handler_state *state =
				container_of(link, struct postern__handler_state, due);
		if (postern__list_empty(&state->pulls) ||
				postern__pull_at_ms(box, state) > now) {
			continue;
		}
		struct postern__pull *pull = first_pull(state);
		postern__list_remove(&pull->link);
		/* A hint that arrives during the claim sets it again. */
		postern__claim_asked(box, state);
		atomic_fetch_add(&state->handler->generation->refs, 1);
		*handler_out = state->handler;
		return pull;
	}
	return NULL;
}

/* How many to claim now: a handler that is held is probed with one, and starts
   of one with a rate are reserved one by one, because what is not used is
   lost. */
static int allowed(struct postern_box *box, struct postern__handler *handler,
		size_t wanted, size_t *out, struct postern_error *error) {
	int r = POSTERN_OK;
	bool rated = postern__rate_is_set(&handler->policy);
	(void)pthread_mutex_lock(&box->mutex);
	bool probes = postern__breaker_is_open(handler->state);
	size_t left = postern__rate_left(box, handler);
	(void)pthread_mutex_unlock(&box->mutex);
	if (rated && left == 0) {
		r = postern__rate_reserve(box, handler, 1, error);
		(void)pthread_mutex_lock(&box->mutex);
		left = postern__rate_left(box, handler);
		(void)pthread_mutex_unlock(&box->mutex);
	}
	wanted = probes && wanted > 1 ? 1 : wanted;
	*out = left < wanted ? left : wanted;
	return r;
}

/* A worker has the deliveries: report it, and count how long they waited. */
static void emit_pulled(struct postern_box *box,
		struct postern__handler *handler, const struct postern_claimed *claimed,
		const struct postern_pulled *item) {
	postern__emit(box, &(struct postern_event){
							   .kind = POSTERN_EVENT_STARTED,
							   .seq = item->seq,
							   .message_id = item->message->id,
							   .channel = item->channel,
							   .handler = item->handler,
							   .fence = item->fence,
							   .attempt = item->attempt,
					   });
	(void)pthread_mutex_lock(&box->mutex);
	postern__meter_pulled(box, handler, claimed);
	(void)pthread_mutex_unlock(&box->mutex);
}

/* Add what was claimed to the batch. False: out of memory. */
static bool batch_add(struct postern_box *box, struct postern_pull_batch *batch,
		struct postern__handler *handler, const struct postern_claims *claims) {
	for (size_t i = 0; i < claims->count; i++) {
		const struct postern_claimed *claimed = &claims->items[i];
		if (!claimed->message) {
			postern__pull_poison(box, handler, claimed);
			continue;
		}
		const struct postern__channel *channel =
				postern__generation_channel_by_id(handler->generation,
						claimed->channel);
		struct postern_pulled *item = &batch->items[batch->count];
		channel = channel ? channel : handler->channel;
		batch->claimed[batch->count++] = *claimed;
		*item = (struct postern_pulled){
			.seq = claimed->seq,
			.fence = claimed->fence,
			.attempt = claimed->failures + 1,
			.handler = postern_memory_text(batch->memory, handler->key),
			.channel = postern_memory_text(batch->memory, channel->name),
			.message = claimed->message,
		};
		if (!item->handler || !item->channel) {
			return false;
		}
		batch->bytes += item->message->body_len;
		emit_pulled(box, handler, claimed, item);
	}
	return true;
}

/* With the result of a claim: when to claim for the handler again. */
static void note_claimed(struct postern_box *box,
		struct postern__handler *handler, const struct postern__pull *pull,
		const struct postern_claims *claims) {
	(void)pthread_mutex_lock(&box->mutex);
	struct postern__handler_state *state = handler->state;
	for (size_t i = 0; i < claims->count; i++) {
		postern__rate_use(handler);
	}
	if (claims->count > 0) {
		postern__breaker_take_probe(box, state);
	}
	if (claims->next_due_ms >= 0) {
		postern__claim_hint(box, handler, claims->next_due_ms);
	}
	if (claims->count > 0) {
		postern__pulls_look_in(box, pull->lease_ms);
	}
	(void)pthread_mutex_unlock(&box->mutex);
}

/* The claim failed, or was not made: deliveries may still be due. */
static void restore_hint(struct postern_box *box,
		struct postern__handler *handler) {
	(void)pthread_mutex_lock(&box->mutex);
	postern__claim_hint(box, handler, 0);
	(void)pthread_mutex_unlock(&box->mutex);
}

/* One claim in the store. *more_out: there may be more for the same batch. */
static int claim_once(struct postern_box *box, struct postern__handler *handler,
		const struct postern__pull *pull, struct postern_pull_batch *batch,
		bool *more_out, struct postern_error *error) {
	size_t max = 0;
	struct postern_claims claims = { .next_due_ms = -1 };
	*more_out = false;
	int r = allowed(box, handler, pull->max - batch->count, &max, error);
	if (r || max == 0) {
		restore_hint(box, handler);
		return r;
	}
	const struct postern_want want = {
		.handler = handler->id,
		.max = (uint32_t)max,
	};
	const struct postern_claim claim = {
		.node = POSTERN_NODE_PULL,
		.wants = &want,
		.want_count = 1,
		.max = max,
		.bytes_max = pull->bytes_max - batch->bytes,
		.lease_ms = pull->lease_ms,
	};
	(void)pthread_mutex_lock(&box->mutex);
	handler->state->pulled_ms = postern__box_now_ms(box);
	(void)pthread_mutex_unlock(&box->mutex);
	postern__point("pull.before");
	r = box->store->ops->claim(box->store, &claim, batch->memory, &claims,
			error);
	postern__point("pull.after");
	if (r) {
		return r;
	}
	note_claimed(box, handler, pull, &claims);
	if (!batch_add(box, batch, handler, &claims)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*more_out = claims.count == max && batch->count < pull->max &&
				batch->bytes < pull->bytes_max &&
				postern__rate_is_set(&handler->policy);
	return POSTERN_OK;
}

/* With the mutex: whether claims wait for the handler. A drain, or another
   generation, may have answered them while the store was asked for one. */
static bool may_wait(const struct postern_box *box,
		const struct postern__handler_state *state) {
	return !box->draining && state->handler &&
		   postern__handler_in_place(state->handler) &&
		   postern__handler_is_pulled(state->handler);
}

/* Put a claim back to wait, in front of those that came later. False: it is to
   be answered. */
static bool wait_on(struct postern_box *box, struct postern__handler *handler,
		struct postern__pull *pull) {
	(void)pthread_mutex_lock(&box->mutex);
	struct postern__handler_state *state = handler->state;
	if (!may_wait(box, state)) {
		(void)pthread_mutex_unlock(&box->mutex);
		return false;
	}
	pull->asked = true;
	postern__list_push_front(&state->pulls, &pull->link);
	if (state->due_at_ms == POSTERN__NEVER) {
		if (box->store->ops->share && box->generation->pulled_count <
											  box->generation->handler_count) {
			/* A node that is busy with other handlers is not notified. */
			postern__claim_hint(box, handler, SHARED_POLL_MS);
		}
		/* The store had nothing, which is so for all that wait. */
		postern__list_each(link, &state->pulls) {
			container_of(link, struct postern__pull, link)->asked = true;
		}
	}
	if (pull->until_ms < box->pull_until_ms) {
		box->pull_until_ms = pull->until_ms;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return true;
}

/* Without the mutex: ask the store for one claim. */
static int serve_pull(struct postern_box *box, struct postern__handler *handler,
		struct postern__pull *pull, struct postern_error *error) {
	struct postern_error why = { 0 };
	if (pull->wanted && !pull->wanted(pull->wanted_context)) {
		restore_hint(box, handler);
		answer(box, pull, NULL, NULL);
		return POSTERN_OK;
	}
	struct postern_pull_batch *batch = batch_create(pull->max);
	int r = batch ? POSTERN_OK
				  : postern__fail(&why, POSTERN_E_NOMEM, "out of memory");
	bool more = true;
	while (!r && more) {
		r = claim_once(box, handler, pull, batch, &more, &why);
	}
	if (r) {
		restore_hint(box, handler);
		if (batch) {
			postern__pulls_return(box, batch->claimed, batch->count);
		}
		postern_pull_batch_destroy(batch);
		answer(box, pull, NULL, &why);
		if (error) {
			*error = why;
		}
	} else if (batch->count > 0) {
		answer(box, pull, batch, NULL);
	} else {
		postern_pull_batch_destroy(batch);
		if (!wait_on(box, handler, pull)) {
			answer(box, pull, NULL, NULL);
		}
	}
	return r;
}

/* With the mutex: move the claims of a queue whose wait has ended. */
static void take_over(struct postern_box *box,
		struct postern__handler_state *state, bool all, int64_t now,
		struct postern__list *out) {
	bool blocked = postern__pull_at_ms(box, state) > now;
	bool gone = !postern__handler_is_pulled(state->handler);
	postern__list_each(link, &state->pulls) {
		struct postern__pull *pull =
				container_of(link, struct postern__pull, link);
		bool over = now >= pull->until_ms && (pull->asked || blocked);
		if (all || over || gone) {
			postern__list_remove(link);
			postern__list_push_back(out, link);
		} else if (pull->until_ms > now &&
				   pull->until_ms < box->pull_until_ms) {
			box->pull_until_ms = pull->until_ms;
		}
	}
}

/* Without the mutex: answer the claims whose wait has ended; all: every one. */
static void end_waits(struct postern_box *box, bool all) {
	struct postern__list over;
	postern__list_init(&over);
	(void)pthread_mutex_lock(&box->mutex);
	postern__list_each(link, &box->pulls_over) {
		postern__list_remove(link);
		postern__list_push_back(&over, link);
	}
	int64_t now = postern__box_now_ms(box);
	const struct postern_generation *generation = box->generation;
	box->pull_until_ms = POSTERN__NEVER;
	for (size_t i = 0; i < generation->handler_count; i++) {
		take_over(box, generation->handlers[i]->state, all, now, &over);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	struct postern__list *link;
	while ((link = postern__list_pop_front(&over))) {
		answer(box, container_of(link, struct postern__pull, link), NULL, NULL);
	}
}

void postern__pulls_abandon(struct postern_box *box,
		struct postern__handler_state *state) {
	postern__list_each(link, &state->pulls) {
		postern__list_remove(link);
		postern__list_push_back(&box->pulls_over, link);
		box->pull_until_ms = 0;
	}
}

void postern__pulls_end(struct postern_box *box) {
	end_waits(box, true);
}

/* Serve claims, but not those that come meanwhile: workers that claim again as
   soon as they are answered would keep the caller for ever. */
static int serve_some(struct postern_box *box, struct postern_error *error) {
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&box->mutex);
	size_t most =
			box->pulls_waiting < SERVED_MAX ? box->pulls_waiting : SERVED_MAX;
	(void)pthread_mutex_unlock(&box->mutex);
	for (size_t i = 0; !r && i < most; i++) {
		struct postern__handler *handler = NULL;
		(void)pthread_mutex_lock(&box->mutex);
		struct postern__pull *pull = take_pull(box, &handler);
		(void)pthread_mutex_unlock(&box->mutex);
		if (!pull) {
			break;
		}
		r = serve_pull(box, handler, pull, error);
		postern__generation_release(handler->generation);
	}
	return r;
}

int postern__pulls_serve(struct postern_box *box, struct postern_error *error) {
	int r = serve_some(box, error);
	(void)pthread_mutex_lock(&box->mutex);
	int64_t now = postern__box_now_ms(box);
	bool over = now >= box->pull_until_ms;
	bool ended = now >= box->pull_ended_at_ms;
	(void)pthread_mutex_unlock(&box->mutex);
	if (over) {
		end_waits(box, false);
	}
	return !r && ended ? postern__pulls_expire(box, error) : r;
}

static int check_options(const struct postern_pull_options *options,
		struct postern_error *error) {
	if (!options->handler) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the handler of the claim is missing");
	}
	if (options->max > POSTERN_PULL_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a claim is for at most %d deliveries, not %u",
				POSTERN_PULL_COUNT_MAX, options->max);
	}
	if (options->wait_ms < 0 || options->wait_ms > POSTERN_PULL_WAIT_MS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a claim waits for at most 5 minutes");
	}
	if (options->lease_ms != 0 &&
			(options->lease_ms < POSTERN_PULL_LEASE_MS_MIN ||
					options->lease_ms > POSTERN_PULL_LEASE_MS_MAX)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a lease is between 100ms and 24h");
	}
	return POSTERN_OK;
}

/* The claim of checked options; NULL: out of memory. */
static struct postern__pull *pull_create(
		const struct postern_pull_options *options) {
	struct postern__pull *pull = calloc(1, sizeof(*pull));
	char *handler = strdup(options->handler);
	if (!pull || !handler) {
		free(pull);
		free(handler);
		return NULL;
	}
	pull->handler = handler;
	pull->max = options->max > 0 ? options->max : 1;
	pull->lease_ms = options->lease_ms;
	pull->bytes_max =
			options->bytes_max > 0 ? options->bytes_max : BYTES_MAX_DEFAULT;
	pull->wanted = options->wanted;
	pull->wanted_context = options->wanted_context;
	return pull;
}

/* With the mutex: queue the claim. POSTERN_E_UNAVAILABLE: the box is draining,
   and the claim is to be answered with nothing. */
static int queue_pull(struct postern_box *box, struct postern__pull *pull,
		int64_t wait_ms, struct postern_error *error) {
	struct postern__handler *handler =
			postern__pull_handler(box->generation, pull->handler);
	if (!handler) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no handler '%s'",
				pull->handler);
	}
	if (!postern__handler_is_pulled(handler)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the handler '%s' is of the kind '%s': only deliveries of "
				"handlers of the kind 'pull' can be claimed",
				pull->handler, handler->impl->kind->name);
	}
	struct postern_pull_limits limits = { 0 };
	handler->impl->kind->pull(handler->impl, &limits);
	if (pull->max > limits.max) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the handler '%s' allows at most %u deliveries in a claim, not "
				"%u: see its 'pull.max'",
				pull->handler, limits.max, pull->max);
	}
	if (box->pulls_waiting >= POSTERN_PULL_WAITING_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_BUSY,
				"%d claims are waiting; retry later",
				POSTERN_PULL_WAITING_COUNT_MAX);
	}
	if (box->draining) {
		return POSTERN_E_UNAVAILABLE;
	}
	pull->lease_ms = pull->lease_ms > 0 ? pull->lease_ms : limits.lease_ms;
	pull->until_ms = postern__box_after_ms(box, wait_ms);
	postern__list_push_back(&handler->state->pulls, &pull->link);
	box->pulls_waiting++;
	pull->counted = true;
	if (pull->until_ms < box->pull_until_ms) {
		box->pull_until_ms = pull->until_ms;
	}
	if (!box->leasing) {
		postern__pulls_look(box); /* without a runner nobody polls */
	}
	postern__claim_hint(box, handler, 0);
	postern__claim_nudge(box);
	return POSTERN_OK;
}

int postern_box_pull_async(struct postern_box *box,
		const struct postern_pull_options *given, postern_pull_done *done,
		void *context, struct postern_error *error) {
	struct postern_pull_options options = { 0 };
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = postern__sized_copy(&options, sizeof(options), given,
				"struct postern_pull_options", error);
	}
	if (!r) {
		r = check_options(&options, error);
	}
	if (!r && !box->store->ops->read_pulls) {
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"a %s store has no pull leases", box->store->ops->name);
	}
	if (r) {
		return r;
	}
	struct postern__pull *pull = pull_create(&options);
	if (!pull) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	pull->done = done;
	pull->context = context;
	(void)pthread_mutex_lock(&box->mutex);
	r = queue_pull(box, pull, options.wait_ms, error);
	(void)pthread_mutex_unlock(&box->mutex);
	if (r == POSTERN_E_UNAVAILABLE) {
		answer(box, pull, NULL, NULL);
		return POSTERN_OK;
	}
	if (r) {
		pull_destroy(pull);
	}
	return r;
}

/* A caller that waits for the answer. */
struct waiting {
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	bool over;
	struct postern_pull_batch *batch;
	struct postern_error error;
};

static bool wake_waiting(void *context, struct postern_pull_batch *batch,
		const struct postern_error *error) {
	struct waiting *waiting = context;
	(void)pthread_mutex_lock(&waiting->mutex);
	waiting->batch = batch;
	if (error) {
		waiting->error = *error;
	}
	waiting->over = true;
	(void)pthread_cond_signal(&waiting->wake);
	(void)pthread_mutex_unlock(&waiting->mutex);
	return true;
}

/* Wait for at most ms (negative: as long as it takes); whether it is over. */
static bool wait_over(struct waiting *waiting, int64_t ms) {
	(void)pthread_mutex_lock(&waiting->mutex);
	if (!waiting->over) {
		postern__wait(&waiting->wake, &waiting->mutex, ms);
	}
	bool over = waiting->over;
	(void)pthread_mutex_unlock(&waiting->mutex);
	return over;
}

/* What the threads of a runner would do for waiting claims. */
static int serve_unaided(struct postern_box *box, int64_t *renew_at,
		struct postern_error *error) {
	int r = POSTERN_OK;
	if (postern__box_now_ms(box) >= *renew_at) {
		r = postern__renew(box, renew_at, error);
	}
	if (!r) {
		r = postern__engage(box, error);
	}
	if (!r) {
		r = postern__pauses_refresh(box, error);
	}
	if (!r) {
		r = postern__pulls_serve(box, error);
	}
	return r ? r : postern_box_commit(box, NULL, error);
}

static bool has_runner(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	bool has = box->leasing || box->draining;
	(void)pthread_mutex_unlock(&box->mutex);
	return has;
}

/* What a call returns. trouble: why it waits no longer, NULL if that is not so;
   it does not matter if the claim has got something before. */
static int take_answer(struct waiting *waiting,
		const struct postern_error *trouble, struct postern_pull_batch **out,
		struct postern_error *error) {
	const struct postern_error *why =
			waiting->error.code ? &waiting->error : trouble;
	if (waiting->batch && (!why || waiting->batch->count > 0)) {
		*out = waiting->batch;
		return POSTERN_OK;
	}
	postern_pull_batch_destroy(waiting->batch);
	if (error) {
		*error = *why;
	}
	return why->code;
}

int postern_box_pull(struct postern_box *box,
		const struct postern_pull_options *options,
		struct postern_pull_batch **out, struct postern_error *error) {
	struct waiting waiting = { .over = false };
	int r = postern__check_no_transaction(box, error);
	if (!r && pthread_mutex_init(&waiting.mutex, NULL)) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (r) {
		return r;
	}
	/* On Linux this fails only when memory is exhausted. */
	r = postern__wait_init(&waiting.wake)
				? postern__fail(error, POSTERN_E_NOMEM, "out of memory")
				: postern_box_pull_async(box, options, wake_waiting, &waiting,
						  error);
	int64_t renew_at = INT64_MIN;
	int served = POSTERN_OK;
	struct postern_error trouble = { 0 };
	while (!r && !wait_over(&waiting, has_runner(box) ? -1 : 0)) {
		if (!served) {
			served = serve_unaided(box, &renew_at, &trouble);
		}
		if (served) {
			/* The claim may be answered by now; else with nothing. */
			postern__pulls_end(box);
		}
		(void)wait_over(&waiting, UNAIDED_WAIT_MS);
	}
	(void)pthread_cond_destroy(&waiting.wake);
	(void)pthread_mutex_destroy(&waiting.mutex);
	return r ? r : take_answer(&waiting, served ? &trouble : NULL, out, error);
}
