/* SPDX-License-Identifier: MIT */
/*
 * The end of pull leases. A worker names a delivery by message, handler and
 * fence. What else its settlement needs is read from the store first; if the
 * lease changes in between, the store refuses the settlement by the fence. The
 * outcome becomes a settlement by the same steps as that of any run
 * (core/run.c), which is written here, in a batch of its own, because it is
 * written under POSTERN_NODE_PULL.
 *
 * A lease that has ended is taken over by a node, as an ordinary lease under a
 * higher fence, and settled as a failure.
 */

#include "core/pull.h"

#include "core/accept.h"
#include "core/breaker.h"
#include "core/cancel.h"
#include "core/reason.h"
#include "core/run.h"
#include "core/tenure.h"

#include "base/fail.h"
#include "base/point.h"
#include "base/sized.h"

#include <assert.h>
#include <inttypes.h>
#include <postern/sys/memory.h>
#include <stdlib.h>
#include <string.h>

/* Ended leases that are taken over by one call of the store. */
#define ENDED_BATCH 100

/* How far the times of a claim by the clocks of store and node may differ. */
#define CLAIM_CLOCKS_MS 5

static const char lease_ended[] =
		"the worker did not settle it before its lease ended";

/* Create a run that is settled without having been started. NULL: out of
   memory. */
static struct postern_run *create_run(struct postern_box *box,
		struct postern__handler *handler, const struct postern_claimed *claimed,
		const char *message_id) {
	assert(handler);
	const struct postern_message message = {
		.size = sizeof(message),
		.id = message_id ? message_id : "",
	};
	struct postern__channel *channel =
			postern__generation_channel_by_id(handler->generation,
					claimed->channel);
	struct postern__content *content =
			postern__content_create(channel ? channel : handler->channel,
					&message, 1);
	if (!content) {
		return NULL;
	}
	struct postern_run *run = &content->runs[0];
	(void)pthread_mutex_lock(&box->mutex);
	postern__run_init(run, box, content, handler, claimed->seq,
			claimed->handler, claimed->fence, claimed->failures,
			POSTERN_NO_SUSPECT);
	run->breaks = claimed->breaks;
	/* For the breaker, which compares the starts of runs. */
	int64_t started = postern__box_now_ms(box) - claimed->held_ms;
	run->started_ms = started > 0 ? started : 1;
	run->held_ms = claimed->held_ms;
	handler->state->held++;
	handler->state->held_bytes += content->bytes;
	postern__content_release(content); /* the run has a reference */
	(void)pthread_mutex_unlock(&box->mutex);
	return run;
}

/* With the mutex: make the outcome a settlement. */
static void decide(struct postern_run *run,
		const struct postern_outcome *outcome, const char *name) {
	postern__run_settle(run, outcome, name);
	run->settlement.duration_ms = run->held_ms;
}

/* With the mutex: end a run that was not decided. */
static void forget_run(struct postern_run *run) {
	run->handler->state->held--;
	run->handler->state->held_bytes -= run->content->bytes;
	postern__content_release(run->content);
}

/* With the mutex: the settlement was not written. */
static void drop_run(struct postern_run *run) {
	run->settlement.to = POSTERN_SETTLE_RETURNED; /* it is not counted */
	postern__run_settled(run);
}

/* Write settlements of pull leases, halving a batch that is refused until the
   item that is the cause is alone. */
static int write_settlements(struct postern_box *box,
		struct postern_settlement *settlements, size_t count,
		struct postern_error *error) {
	struct postern_batch batch = {
		.node = POSTERN_NODE_PULL,
		.settlements = settlements,
		.settlement_count = count,
	};
	postern__point("pull-settle.before");
	int r = box->store->ops->apply(box->store, &batch, error);
	postern__point("pull-settle.after");
	if (!r || r == POSTERN_E_UNAVAILABLE || r == POSTERN_E_TIMEOUT ||
			count == 1) {
		return r;
	}
	r = write_settlements(box, settlements, count / 2, error);
	return r ? r
			 : write_settlements(box, settlements + count / 2,
					   count - count / 2, error);
}

/* Without the mutex: write decided runs, report and end them, and set their
   codes. */
static int write_runs(struct postern_box *box, struct postern_run **runs,
		size_t count, int *codes, struct postern_error *error) {
	struct postern_settlement *settlements =
			calloc(count + 1, sizeof(*settlements));
	int r = settlements
					? POSTERN_OK
					: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	for (size_t i = 0; !r && i < count; i++) {
		settlements[i] = runs[i]->settlement;
	}
	if (!r && count > 0) {
		r = write_settlements(box, settlements, count, error);
	}
	for (size_t i = 0; !r && i < count; i++) {
		runs[i]->settlement.code = settlements[i].code;
		codes[i] = settlements[i].code;
		if (settlements[i].code == POSTERN_OK) {
			postern__emit_settled(runs[i]);
		} else {
			postern__emit_fenced(runs[i]);
		}
	}
	(void)pthread_mutex_lock(&box->mutex);
	for (size_t i = 0; i < count; i++) {
		struct postern_run *run = runs[i];
		if (r) {
			drop_run(run);
			continue;
		}
		if (run->settlement.code == POSTERN_OK &&
				(run->settlement.to == POSTERN_SETTLE_PENDING ||
						run->settlement.to == POSTERN_SETTLE_RETURNED)) {
			postern__claim_hint(box, run->handler, run->settlement.delay_ms);
		}
		postern__run_settled(run);
	}
	(void)pthread_cond_broadcast(&box->committed);
	(void)pthread_mutex_unlock(&box->mutex);
	free(settlements);
	return r;
}

static void claimed_of(const struct postern_pull_row *row,
		struct postern_claimed *out) {
	*out = (struct postern_claimed){
		.seq = row->seq,
		.handler = row->stored,
		.channel = row->channel,
		.fence = row->fence,
		.failures = row->failures,
		.breaks = row->breaks,
		.held_ms = row->held_ms,
	};
}

/* A call that settles. */
struct settling {
	struct postern_generation *generation;
	struct postern_memory *memory;
	struct postern_pull_row *rows;
	struct postern__handler **handlers; /* NULL: not of this box */
	struct postern_run **runs;          /* of those that have a lease */
	size_t *indices;                    /* of their results */
	int *codes;                         /* of their settlements */
	size_t run_count;
};

static int settling_init(struct settling *self, struct postern_box *box,
		size_t count, struct postern_error *error) {
	*self = (struct settling){
		.generation = postern__generation_acquire(box),
		.memory = postern_memory_create(),
		.rows = calloc(count + 1, sizeof(*self->rows)),
		.handlers = calloc(count + 1, sizeof(struct postern__handler *)),
		.runs = calloc(count + 1, sizeof(struct postern_run *)),
		.indices = calloc(count + 1, sizeof(*self->indices)),
		.codes = calloc(count + 1, sizeof(*self->codes)),
	};
	return self->memory && self->rows && self->handlers && self->runs &&
						   self->indices && self->codes
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

static void settling_finish(struct settling *self) {
	postern__generation_release(self->generation);
	postern_memory_destroy(self->memory);
	free(self->rows);
	free(self->handlers);
	free(self->runs);
	free(self->indices);
	free(self->codes);
}

/* An element of the caller's array, whose elements may be shorter or longer
   than in this version. */
static struct postern_pull_result *
result_at(struct postern_pull_result *results, size_t stride, size_t index) {
	return (void *)((char *)results + index * stride);
}

/* Whether the delivery has ended under this fence as the outcome says: the
   answer to the first call was lost. */
static bool is_repetition(const struct postern_pull_row *row,
		enum postern_outcome_kind outcome) {
	switch (row->ended) {
	case POSTERN_STATE_DONE: return outcome == POSTERN_DONE;
	case POSTERN_STATE_DISCARDED: return outcome == POSTERN_DISCARD;
	case POSTERN_STATE_POISONED:
		return outcome != POSTERN_DONE && outcome != POSTERN_DISCARD;
	default: return false;
	}
}

/* Read what the store has of the results whose handler is known. */
static int read_rows(struct postern_box *box, struct settling *self,
		struct postern_pull_result *results, size_t stride, size_t count,
		struct postern_error *error) {
	for (size_t i = 0; i < count; i++) {
		const struct postern_pull_result *result =
				result_at(results, stride, i);
		self->handlers[i] = result->handler
									? postern__pull_handler(self->generation,
											  result->handler)
									: NULL;
		/* Handler 0 is none: the store finds nothing. */
		self->rows[i] = (struct postern_pull_row){
			.seq = result->seq,
			.handler = self->handlers[i] ? self->handlers[i]->id : 0,
			.fence = result->fence,
		};
	}
	return box->store->ops->read_pulls(box->store, self->rows, count,
			self->memory, error);
}

/* Set the codes of what has no lease, and create runs of the others. */
static int create_runs(struct postern_box *box, struct settling *self,
		struct postern_pull_result *results, size_t stride, size_t count,
		struct postern_error *error) {
	for (size_t i = 0; i < count; i++) {
		const struct postern_pull_row *row = &self->rows[i];
		struct postern_pull_result *result = result_at(results, stride, i);
		result->code = row->code == POSTERN_E_STALE &&
									   is_repetition(row, result->outcome)
							   ? POSTERN_OK
							   : row->code;
		if (row->code == POSTERN_E_STALE && result->code) {
			postern__meter_late(box, self->handlers[i]);
		}
		if (row->code != POSTERN_OK) {
			continue;
		}
		struct postern_claimed claimed;
		claimed_of(row, &claimed);
		struct postern_run *run =
				create_run(box, self->handlers[i], &claimed, row->message_id);
		if (!run) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
		run->pulled = true;
		self->indices[self->run_count] = i;
		self->runs[self->run_count++] = run;
	}
	return POSTERN_OK;
}

/* With the mutex. */
static void decide_all(struct settling *self,
		struct postern_pull_result *results, size_t stride) {
	for (size_t i = 0; i < self->run_count; i++) {
		const struct postern_pull_result *result =
				result_at(results, stride, self->indices[i]);
		struct postern_outcome outcome;
		postern_outcome_set(&outcome, result->outcome, result->delay_ms,
				result->reason);
		decide(self->runs[i], &outcome, NULL);
	}
}

static int settle_all(struct postern_box *box, struct settling *self,
		struct postern_pull_result *results, size_t stride, size_t count,
		struct postern_error *error) {
	int r = read_rows(box, self, results, stride, count, error);
	if (!r) {
		r = create_runs(box, self, results, stride, count, error);
	}
	(void)pthread_mutex_lock(&box->mutex);
	if (r) {
		for (size_t i = 0; i < self->run_count; i++) {
			forget_run(self->runs[i]);
		}
	} else {
		decide_all(self, results, stride);
	}
	(void)pthread_mutex_unlock(&box->mutex);
	if (!r) {
		r = write_runs(box, self->runs, self->run_count, self->codes, error);
	}
	for (size_t i = 0; !r && i < self->run_count; i++) {
		result_at(results, stride, self->indices[i])->code = self->codes[i];
	}
	return r;
}

static int check_results(struct postern_box *box,
		struct postern_pull_result *results, size_t count,
		struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = postern__check_no_transaction(box, error);
	}
	if (!r && !box->store->ops->read_pulls) {
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"a %s store has no pull leases", box->store->ops->name);
	}
	if (!r && count > POSTERN_PULL_COUNT_MAX) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"at most %d deliveries are settled at once",
				POSTERN_PULL_COUNT_MAX);
	}
	if (!r && count > 0 && results->size < sizeof(*results)) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"the size of struct postern_pull_result is not set");
	}
	return r;
}

int postern_box_settle(struct postern_box *box,
		struct postern_pull_result *results, size_t count,
		struct postern_error *error) {
	struct settling settling;
	int r = check_results(box, results, count, error);
	if (r || count == 0) {
		return r;
	}
	r = settling_init(&settling, box, count, error);
	if (!r) {
		r = settle_all(box, &settling, results, postern__sized_stride(results),
				count, error);
	}
	settling_finish(&settling);
	return r;
}

static int check_lease(int64_t lease_ms, struct postern_error *error) {
	return lease_ms >= POSTERN_PULL_LEASE_MS_MIN &&
						   lease_ms <= POSTERN_PULL_LEASE_MS_MAX
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_INVALID,
							 "a lease is between 100ms and 24h");
}

/* The id of a handler of this box; 0: it has none with this key. */
static int64_t id_of(struct postern_box *box, const char *key) {
	struct postern_generation *generation = postern__generation_acquire(box);
	const struct postern__handler *handler =
			key ? postern__pull_handler(generation, key) : NULL;
	int64_t id = handler ? handler->id : 0;
	postern__generation_release(generation);
	return id;
}

int postern_box_extend(struct postern_box *box, int64_t seq,
		const char *handler, uint64_t fence, int64_t lease_ms,
		int64_t *until_ms_out, struct postern_error *error) {
	int64_t until_ms = 0;
	int r = check_results(box, NULL, 0, error);
	if (!r) {
		r = check_lease(lease_ms, error);
	}
	if (r) {
		return r;
	}
	struct postern_pull_row row = {
		.seq = seq,
		.handler = id_of(box, handler),
		.fence = fence,
		.code = POSTERN_E_NOTFOUND,
	};
	if (row.handler) {
		postern__point("pull-extend.before");
		r = box->store->ops->extend(box->store, &row, lease_ms, &until_ms,
				error);
		postern__point("pull-extend.after");
	}
	if (r) {
		return r;
	}
	if (row.code == POSTERN_E_NOTFOUND) {
		return postern__fail(error, row.code,
				"message %" PRId64 " has no delivery to '%s'", seq,
				handler ? handler : "");
	}
	if (row.code) {
		return postern__fail(error, row.code,
				"message %" PRId64 ", handler '%s': there is no lease under "
				"fence %" PRIu64 "; it has ended, or was taken over",
				seq, handler, fence);
	}
	(void)pthread_mutex_lock(&box->mutex);
	postern__pulls_look_in(box, lease_ms); /* it may end earlier than before */
	postern__claim_nudge(box);
	(void)pthread_mutex_unlock(&box->mutex);
	if (until_ms_out) {
		*until_ms_out = until_ms;
	}
	return POSTERN_OK;
}

void postern__pulls_return(struct postern_box *box,
		const struct postern_claimed *items, size_t count) {
	struct postern_settlement *settlements =
			calloc(count + 1, sizeof(*settlements));
	/* If it cannot be written, the leases end by themselves. */
	for (size_t i = 0; settlements && i < count; i++) {
		settlements[i] = (struct postern_settlement){
			.seq = items[i].seq,
			.handler = items[i].handler,
			.fence = items[i].fence,
			.to = POSTERN_SETTLE_RETURNED,
			.failures = items[i].failures,
			.outcome = "returned",
		};
	}
	if (settlements && count > 0) {
		(void)write_settlements(box, settlements, count, NULL);
		(void)pthread_mutex_lock(&box->mutex);
		postern__claim_hint_all(box);
		(void)pthread_mutex_unlock(&box->mutex);
	}
	free(settlements);
}

void postern__pull_poison(struct postern_box *box,
		struct postern__handler *handler,
		const struct postern_claimed *claimed) {
	struct postern_run *run = create_run(box, handler, claimed, NULL);
	int code;
	if (!run) {
		return; /* the lease ends by itself */
	}
	(void)pthread_mutex_lock(&box->mutex);
	run->pulled = true;
	postern__run_settle_to(run, POSTERN_SETTLE_POISONED, claimed->failures + 1,
			0, "poison", "the message is missing from the store");
	(void)pthread_mutex_unlock(&box->mutex);
	/* As above, if it cannot be written. */
	(void)write_runs(box, &run, 1, &code, NULL);
}

/* Whether somebody has claimed for the handler here since the worker did: then
   that worker is at fault, and not the handler. */
static bool is_claimed_since(const struct postern_box *box,
		const struct postern__handler *handler, int64_t held_ms) {
	const struct postern__handler_state *state = handler->state;
	return !postern__list_empty(&state->pulls) ||
		   state->pulled_ms >
				   postern__box_now_ms(box) - held_ms + CLAIM_CLOCKS_MS;
}

/* Settle what this node has taken over. */
static int fail_ended(struct postern_box *box, struct postern__handler *handler,
		const struct postern_claimed *claimed, struct postern_error *error) {
	struct postern_run *run = create_run(box, handler, claimed,
			claimed->message ? claimed->message->id : NULL);
	if (!run) {
		/* The lease is recovered when the node ends. */
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	struct postern_outcome outcome;
	postern_outcome_set(&outcome, POSTERN_RETRY, 0, lease_ended);
	(void)pthread_mutex_lock(&box->mutex);
	run->unblamed = !postern__handler_is_pulled(handler) ||
					is_claimed_since(box, handler, claimed->held_ms);
	decide(run, &outcome, "lost");
	(void)pthread_mutex_unlock(&box->mutex);
	return POSTERN_OK;
}

/* The handlers of a generation, all of which may have pull leases: from when
   they were of this kind. */
static size_t list_pulled(const struct postern_generation *generation,
		struct postern_want *wants, struct postern__handler **handlers) {
	for (size_t i = 0; i < generation->handler_count; i++) {
		handlers[i] = generation->handlers[i];
		wants[i] = (struct postern_want){
			.handler = handlers[i]->id,
			.max = ENDED_BATCH,
		};
	}
	return generation->handler_count;
}

/* When to look for ended leases again. */
static void note_ended(struct postern_box *box,
		const struct postern_claims *claims) {
	int64_t at = claims->count == ENDED_BATCH ? postern__box_now_ms(box)
				 : claims->next_due_ms < 0
						 ? POSTERN__NEVER
						 : postern__box_after_ms(box, claims->next_due_ms + 1);
	(void)pthread_mutex_lock(&box->mutex);
	box->pull_ended_at_ms =
			at < box->pull_ended_at_ms ? at : box->pull_ended_at_ms;
	(void)pthread_mutex_unlock(&box->mutex);
}

static int expire(struct postern_box *box,
		struct postern_generation *generation, struct postern_memory *memory,
		struct postern_want *wants, struct postern__handler **handlers,
		struct postern_error *error) {
	struct postern_claims claims = { .next_due_ms = -1 };
	(void)pthread_mutex_lock(&box->mutex);
	/* A claim that is made meanwhile, and all hints, set it again. */
	box->pull_ended_at_ms = POSTERN__NEVER;
	bool may = !postern__why_not_process(box);
	struct postern__right right = postern__right_of(box);
	size_t count = list_pulled(generation, wants, handlers);
	(void)pthread_mutex_unlock(&box->mutex);
	const struct postern_claim claim = {
		.node = right.node,
		.lock = postern__right_lock(&right),
		.wants = wants,
		.want_count = count,
		.max = ENDED_BATCH,
		.bytes_max = SIZE_MAX,
		.ended = true,
	};
	if (!may || count == 0) {
		return POSTERN_OK;
	}
	postern__point("pull-ended.before");
	int r = box->store->ops->claim(box->store, &claim, memory, &claims, error);
	postern__point("pull-ended.after");
	if (r == POSTERN_E_STALE) {
		postern__lock_invalidate(box, right.lock.fence);
		return POSTERN_OK;
	}
	if (r) {
		/* Another attempt follows with the next claim that fails or not. */
		(void)pthread_mutex_lock(&box->mutex);
		box->pull_ended_at_ms = 0;
		(void)pthread_mutex_unlock(&box->mutex);
		return r;
	}
	note_ended(box, &claims);
	for (size_t i = 0; !r && i < claims.count; i++) {
		r = fail_ended(box, handlers[claims.items[i].want], &claims.items[i],
				error);
	}
	return r;
}

int postern__pulls_expire(struct postern_box *box,
		struct postern_error *error) {
	struct postern_generation *generation = postern__generation_acquire(box);
	size_t count = generation->handler_count + 1;
	struct postern_memory *memory = postern_memory_create();
	struct postern_want *wants = calloc(count, sizeof(*wants));
	struct postern__handler **handlers =
			calloc(count, sizeof(struct postern__handler *));
	int r = memory && wants && handlers
					? expire(box, generation, memory, wants, handlers, error)
					: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	postern_memory_destroy(memory);
	free(wants);
	free(handlers);
	postern__generation_release(generation);
	return r;
}

static int cancel_row(struct postern_box *box, struct settling *self,
		const struct postern_edit *edit, struct postern_error *error) {
	struct postern_pull_row *row = &self->rows[0];
	int code = POSTERN_E_STALE;
	int r = box->store->ops->read_pulls(box->store, row, 1, self->memory,
			error);
	if (!r && row->code == POSTERN_OK) {
		struct postern_claimed claimed;
		claimed_of(row, &claimed);
		struct postern_run *run =
				create_run(box, self->handlers[0], &claimed, row->message_id);
		if (!run) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
		(void)pthread_mutex_lock(&box->mutex);
		run->pulled = true;
		run->cancel_uncounted = edit->uncounted;
		run->cancel_reason = edit->reason ? strdup(edit->reason) : NULL;
		postern__run_settle_cancelled(run);
		run->settlement.duration_ms = run->held_ms;
		(void)pthread_mutex_unlock(&box->mutex);
		r = write_runs(box, &run, 1, &code, error);
	}
	if (!r && code) {
		r = postern__fail(error, POSTERN_E_STALE,
				"message %" PRId64 ", handler '%s': not cancelled, because its "
				"worker has settled it, or its lease has ended",
				edit->seq, edit->handler);
	}
	return r;
}

int postern__pull_cancel(struct postern_box *box,
		const struct postern_edit *edit, const struct postern_row *row,
		struct postern_error *error) {
	struct settling settling;
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = settling_init(&settling, box, 1, error);
	} else {
		return r;
	}
	if (!r) {
		settling.handlers[0] =
				postern__pull_handler(settling.generation, row->handler);
		settling.rows[0] = (struct postern_pull_row){
			.seq = row->seq,
			.handler = row->handler_id,
			.fence = row->fence,
		};
		r = settling.handlers[0]
					? cancel_row(box, &settling, edit, error)
					: postern__fail(error, POSTERN_E_UNSUPPORTED,
							  "this process does not have the handler '%s', "
							  "whose worker has the delivery: cancel it "
							  "through a server that has",
							  row->handler);
	}
	settling_finish(&settling);
	return r;
}
