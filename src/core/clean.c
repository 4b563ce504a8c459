/* SPDX-License-Identifier: MIT */
/*
 * Cleanup: removes what the retention of the channels allows, in batches small
 * enough not to delay accepts for long. A lock of its own, the cleanup lock,
 * keeps two nodes from doing the same work. A step is one batch; between two
 * steps the caller pauses, so that others can write. A batch is limited by a
 * count, by the bytes of the bodies it removes, and by the duration of the
 * batch before it.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/maintenance.h"

#include "base/fail.h"
#include "base/point.h"
#include "base/sized.h"

#include <postern/sys/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than any batch takes; the lock is renewed before each batch. */
#define CLEANUP_LOCK_MS ((int64_t)60 * 1000)
/* Cleanup uses at most a seventh of the time: each pause is six times as long
   as the batch before it, but never so long that the lock expires. */
#define REST_FACTOR 6
#define REST_MS_MAX ((int64_t)10 * 1000)
/* A batch ends with the body that exceeds this; removing so many bytes takes a
   database about a tenth of a second. */
#define BATCH_BYTES_MAX ((size_t)16 * 1024 * 1024)
/* A batch that took longer makes the next one smaller in proportion; one that
   took less than half of it makes the next one twice as large, up to the
   limits. The speed of the disk is not known in advance. */
#define BATCH_MS_MAX ((int64_t)250)
#define BATCH_SHIFT_MAX 16

/* The rules of a cleanup: of the channels of this node as it has them, and of
   others as they were enrolled last. */
static size_t fill_rules(const struct postern_generation *generation,
		const struct postern_retention *stored, size_t stored_count,
		struct postern_retention *rules) {
	size_t count = 0;
	for (size_t i = 0; i < generation->channel_count; i++) {
		const struct postern__channel *channel = generation->channels[i];
		if (channel->retention_payload_ms > 0) {
			int64_t dedupe = channel->retention_dedupe_ms;
			rules[count++] = (struct postern_retention){
				.channel = channel->id,
				.payload_ms = channel->retention_payload_ms,
				.dedupe_ms = dedupe > 0 ? dedupe : -1,
			};
		}
	}
	for (size_t i = 0; i < stored_count; i++) {
		if (!postern__generation_channel_by_id(generation, stored[i].channel)) {
			rules[count++] = stored[i];
		}
	}
	return count;
}

/* Creates the rules in the memory. */
static int read_rules(struct postern_box *box, struct postern_memory *memory,
		struct postern_cleaning *out, struct postern_error *error) {
	struct postern_retention *stored = NULL;
	size_t stored_count = 0;
	int r = box->store->ops->read_retention
					? box->store->ops->read_retention(box->store, memory,
							  &stored, &stored_count, error)
					: POSTERN_OK;
	if (r) {
		return r;
	}
	struct postern_generation *generation = postern__generation_acquire(box);
	struct postern_retention *rules = postern_memory_alloc(memory,
			(generation->channel_count + stored_count + 1) * sizeof(*rules));
	out->rules = rules;
	out->rule_count =
			rules ? fill_rules(generation, stored, stored_count, rules) : 0;
	postern__generation_release(generation);
	return rules ? POSTERN_OK
				 : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

static uint64_t read_node_id(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	uint64_t node = box->node;
	(void)pthread_mutex_unlock(&box->mutex);
	return node;
}

static size_t halved(size_t limit, unsigned shift) {
	return limit >> shift > 0 ? limit >> shift : 1;
}

/* How often the limits are halved for the next batch. A failed batch counts
   too: otherwise one that exceeds the command timeout would fail forever. */
static unsigned next_shift(unsigned shift, int64_t step_ms, bool failed) {
	if (step_ms < BATCH_MS_MAX / 2) {
		return shift > 0 && !failed ? shift - 1 : shift;
	}
	for (; step_ms > BATCH_MS_MAX && shift < BATCH_SHIFT_MAX; step_ms /= 2) {
		shift++;
	}
	return shift;
}

static int clean_batch(struct postern_box *box, struct postern__cleanup *state,
		struct postern_error *error) {
	state->cleaning.max =
			halved(box->options.cleanup_batch, box->cleanup_shift);
	state->cleaning.bytes_max = halved(BATCH_BYTES_MAX, box->cleanup_shift);
	int64_t started = postern__box_now_ms(box);
	postern__point("clean.before");
	int r = box->store->ops->clean(box->store, &state->cleaning, error);
	postern__point("clean.after");
	state->step_ms = postern__box_now_ms(box) - started;
	box->cleanup_shift = next_shift(box->cleanup_shift, state->step_ms, r != 0);
	if (!r) {
		state->total.messages += state->cleaning.messages;
		state->total.keys += state->cleaning.keys;
	}
	return r;
}

/* Whether no other cleanup of this process is in progress: the store's lock
   does not distinguish two cleanups of one node. */
static bool acquire_cleanup_turn(struct postern_box *box,
		const struct postern__cleanup *state) {
	(void)pthread_mutex_lock(&box->mutex);
	bool free = !box->cleaner || box->cleaner == state;
	if (free) {
		box->cleaner = state;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	return free;
}

/* The markers of a handler that expire, under one of its names. */
struct expiring {
	char name[POSTERN_KEY_LEN_MAX + 1];
	int64_t older_ms;
};

/* The names of all guarded handlers with a retention, in their order; false:
   there are not so many. */
static bool find_expiring(struct postern_box *box, size_t index,
		struct expiring *out) {
	struct postern_generation *generation = postern__generation_acquire(box);
	bool found = false;
	for (size_t i = 0; !found && i < generation->handler_count; i++) {
		const struct postern__handler *handler = generation->handlers[i];
		size_t names = 1 + handler->legacy_key_count;
		if (handler->channel->mode != POSTERN_MODE_GUARD ||
				handler->dedupe != POSTERN_DEDUPE_STORE ||
				handler->retention_dedupe_ms == 0) {
			continue;
		}
		found = index < names;
		if (found) {
			(void)snprintf(out->name, sizeof(out->name), "%s",
					index == 0 ? handler->key
							   : handler->legacy_keys[index - 1]);
			out->older_ms = handler->retention_dedupe_ms;
		}
		index -= found ? 0 : names;
	}
	postern__generation_release(generation);
	return found;
}

static int expire_batch(struct postern_box *box, struct postern__cleanup *state,
		bool *more_out, struct postern_error *error) {
	struct postern_markers *markers = box->store->markers;
	struct expiring expiring;
	if (!markers || !find_expiring(box, state->name, &expiring)) {
		*more_out = false;
		return POSTERN_OK;
	}
	struct postern_mark_expiry expiry = {
		.handler = expiring.name,
		.older_ms = expiring.older_ms,
		.max = halved(box->options.cleanup_batch, box->cleanup_shift),
	};
	memcpy(expiry.cursor, state->cursor, sizeof(expiry.cursor));
	int64_t started = postern__box_now_ms(box);
	int r = markers->ops->expire(markers, &expiry, error);
	state->step_ms = postern__box_now_ms(box) - started;
	if (r) {
		return r;
	}
	state->total.keys += expiry.count;
	state->name += !expiry.more;
	memset(state->cursor, 0, sizeof(state->cursor));
	if (expiry.more) {
		memcpy(state->cursor, expiry.cursor, sizeof(state->cursor));
	}
	*more_out = true;
	return POSTERN_OK;
}

/* The store first, then the markers. */
static int clean_next(struct postern_box *box, struct postern__cleanup *state,
		bool *more_out, struct postern_error *error) {
	if (state->stored) {
		return expire_batch(box, state, more_out, error);
	}
	int r = clean_batch(box, state, error);
	struct expiring expiring;
	state->stored = !r && !state->cleaning.more;
	*more_out = !r && (!state->stored || find_expiring(box, 0, &expiring));
	return r;
}

/* With the rules: acquire or renew the lock, and clean up a batch. */
static int step_with_rules(struct postern_box *box,
		struct postern__cleanup *state, bool *more_out,
		struct postern_error *error) {
	bool held = false;
	if (!acquire_cleanup_turn(box, state)) {
		state->total.busy = true;
		return POSTERN_OK;
	}
	state->lock.name = box->cleanup_lock_name;
	state->node = read_node_id(box);
	int r = box->store->ops->lock(box->store, box->cleanup_lock_name,
			state->node, CLEANUP_LOCK_MS, &held, &state->lock.fence, error);
	postern__point("cleanup.locked");
	if (r) {
		return r;
	}
	if (!held) {
		state->lock.fence = 0;
		state->total.busy = true;
		return POSTERN_OK;
	}
	return clean_next(box, state, more_out, error);
}

/* Whether a handler has a retention of its own. */
static bool has_windows(struct postern_box *box) {
	struct postern_generation *generation = postern__generation_acquire(box);
	bool found = false;
	for (size_t i = 0; !found && i < generation->handler_count; i++) {
		found = generation->handlers[i]->retention_dedupe_ms > 0;
	}
	postern__generation_release(generation);
	return found;
}

int postern__cleanup_step(struct postern_box *box,
		struct postern__cleanup *state, bool *more_out,
		struct postern_error *error) {
	*more_out = false;
	struct postern_memory *memory = postern_memory_create();
	if (!memory) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = read_rules(box, memory, &state->cleaning, error);
	if (!r && (state->cleaning.rule_count > 0 || has_windows(box))) {
		r = step_with_rules(box, state, more_out, error);
	}
	state->cleaning.rules = NULL;
	postern_memory_destroy(memory);
	return r;
}

static void report_cleaned(struct postern_box *box,
		const struct postern_cleanup *total) {
	if (total->messages == 0 && total->keys == 0) {
		return;
	}
	postern__emit_text(box,
			&(struct postern_event){
					.kind = POSTERN_EVENT_CLEANED,
					.count = total->messages,
					.id_count = total->keys,
			},
			"cleaned up %llu message%s and %llu remembered id%s",
			(unsigned long long)total->messages,
			total->messages == 1 ? "" : "s", (unsigned long long)total->keys,
			total->keys == 1 ? "" : "s");
}

void postern__cleanup_end(struct postern_box *box,
		struct postern__cleanup *state) {
	if (state->lock.fence > 0) {
		/* If this fails, the lock expires by itself. */
		(void)box->store->ops->unlock(box->store, &state->lock, state->node,
				NULL);
		postern__point("cleanup.unlocked");
		state->lock.fence = 0;
	}
	(void)pthread_mutex_lock(&box->mutex);
	if (box->cleaner == state) {
		box->cleaner = NULL;
	}
	(void)pthread_mutex_unlock(&box->mutex);
	report_cleaned(box, &state->total);
}

int64_t postern__cleanup_rest_ms(const struct postern__cleanup *state) {
	int64_t rest = REST_FACTOR * state->step_ms;
	return rest < REST_MS_MAX ? rest : REST_MS_MAX;
}

/* Pause between two batches, if a runner is active. Returns false if the
   runner stops: the remaining batches are left for the next cleanup. */
static bool pause_between_batches(struct postern_box *box,
		const struct postern__cleanup *state) {
	(void)pthread_mutex_lock(&box->mutex);
	int64_t until = postern__box_after_ms(box, postern__cleanup_rest_ms(state));
	int64_t left;
	while (box->leasing && (left = until - postern__box_now_ms(box)) > 0) {
		postern__wait(&box->committed, &box->mutex, left);
	}
	bool go_on = !box->draining;
	(void)pthread_mutex_unlock(&box->mutex);
	return go_on;
}

int postern_box_cleanup(struct postern_box *box, struct postern_cleanup *out,
		struct postern_error *error) {
	int r = postern__box_check_started(box, error);
	if (!r) {
		r = postern__check_no_transaction(box, error);
	}
	struct postern__cleanup state = { 0 };
	bool more = !r;
	while (!r && more) {
		r = postern__cleanup_step(box, &state, &more, error);
		state.total.stopped = !r && more && !pause_between_batches(box, &state);
		more = !r && more && !state.total.stopped;
	}
	postern__cleanup_end(box, &state);
	if (!r && out) {
		r = postern__sized_write(out, &state.total, sizeof(state.total),
				"cleanup result", error);
	}
	return r;
}
