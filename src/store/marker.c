/* SPDX-License-Identifier: MIT */

/*
 * The decisions about markers, over rows that a store reads and writes.
 *
 * A marker has one row for each name of its handler. Its state is the strongest
 * of its rows, and every change writes all of them, so that a row that is
 * missing under a new name appears with the next change.
 *
 * A lease ends at its time. If the clock was set back by more than the lease
 * lasts, it has ended, too: otherwise it would last until the clock is there
 * again.
 */

#include "store/marker.h"

#include <string.h>

#include "base/fail.h"

void postern__mark_handler_hash(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const char *handler, uint8_t out[POSTERN__MARK_HANDLER_LEN]) {
	uint64_t hash = postern__siphash_of(secret, handler, strlen(handler));
	for (int i = 0; i < POSTERN__MARK_HANDLER_LEN; i++) {
		out[i] = (uint8_t)(hash >> (56 - 8 * i));
	}
}

static void hash_key(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const char *handler, const struct postern_mark *mark,
		uint8_t out[POSTERN__MARK_KEY_LEN]) {
	struct postern__siphash hash;
	postern__mark_handler_hash(secret, handler, out);
	postern__siphash_init_128(&hash, secret);
	postern__siphash_update_field(&hash, handler, strlen(handler));
	postern__siphash_update_field(&hash, mark->value, mark->value_len);
	postern__siphash_finish_128(&hash, out + POSTERN__MARK_HANDLER_LEN);
}

static bool has_key(const struct postern__mark_keys *keys,
		const uint8_t key[POSTERN__MARK_KEY_LEN]) {
	for (size_t i = 0; i < keys->count; i++) {
		if (memcmp(keys->items[i], key, POSTERN__MARK_KEY_LEN) == 0) {
			return true;
		}
	}
	return false;
}

void postern__mark_keys_init(struct postern__mark_keys *keys,
		const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const struct postern_mark *mark) {
	keys->count = 0;
	for (size_t i = 0; i < mark->handler_count; i++) {
		uint8_t key[POSTERN__MARK_KEY_LEN];
		hash_key(secret, mark->handlers[i], mark, key);
		if (has_key(keys, key)) {
			continue; /* a name that was given twice */
		}
		size_t at = keys->count++;
		for (; at > 0 && memcmp(keys->items[at - 1], key, sizeof key) > 0;
				at--) {
			memcpy(keys->items[at], keys->items[at - 1], sizeof key);
		}
		memcpy(keys->items[at], key, sizeof key);
	}
}

int postern__mark_fail_stale(struct postern_error *error) {
	return postern__fail(error, POSTERN_E_STALE,
			"the lease of the marker was lost");
}

static enum postern_mark_state row_state(const struct postern__mark_row *row,
		int64_t now) {
	int64_t lease_ms = row->until_ms - row->at_ms;
	if (row->until_ms == 0) {
		return POSTERN_MARK_DONE;
	}
	return now < row->until_ms && now >= row->at_ms - lease_ms
				   ? POSTERN_MARK_RUNNING
				   : POSTERN_MARK_UNKNOWN;
}

/* What all rows of a marker say together. */
struct summary {
	enum postern_mark_state state;
	int64_t left_ms;  /* running: how long, at the most */
	size_t row_count; /* that exist */
	bool fence_only;  /* all that exist have the fence */
	bool other_lease; /* one is running under another fence */
};

static int summarize(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, uint64_t fence,
		struct summary *out, struct postern_error *error) {
	*out = (struct summary){ .fence_only = true };
	for (size_t i = 0; i < keys->count; i++) {
		struct postern__mark_row row;
		bool found = false;
		int r = access->get(access->context, keys->items[i], &row, &found,
				error);
		if (r != POSTERN_OK) {
			return r;
		}
		if (!found) {
			continue;
		}
		enum postern_mark_state state = row_state(&row, access->now_ms);
		out->row_count++;
		out->fence_only = out->fence_only && row.fence == fence;
		out->other_lease = out->other_lease || (state == POSTERN_MARK_RUNNING &&
													   row.fence != fence);
		out->state = state > out->state ? state : out->state;
		if (state == POSTERN_MARK_RUNNING &&
				row.until_ms - access->now_ms > out->left_ms) {
			out->left_ms = row.until_ms - access->now_ms;
		}
	}
	return POSTERN_OK;
}

static int put_all(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys,
		const struct postern__mark_row *row, struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < keys->count; i++) {
		r = access->put(access->context, keys->items[i], row, error);
	}
	return r;
}

static int put_lease(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, uint64_t fence, int64_t lease_ms,
		struct postern_error *error) {
	const struct postern__mark_row row = {
		.fence = fence,
		.until_ms = access->now_ms + lease_ms,
		.at_ms = access->now_ms,
	};
	return put_all(access, keys, &row, error);
}

static int put_done(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, uint64_t fence,
		struct postern_error *error) {
	const struct postern__mark_row row = {
		.fence = fence,
		.at_ms = access->now_ms,
	};
	return put_all(access, keys, &row, error);
}

static int remove_all(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < keys->count; i++) {
		r = access->remove(access->context, keys->items[i], error);
	}
	return r;
}

/* Whether the caller may still change what it began: the rows exist, are not
   done, and nobody else has begun. */
static bool is_mine(const struct summary *now) {
	return now->row_count > 0 && now->state != POSTERN_MARK_DONE &&
		   now->fence_only;
}

static int begin_lease(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys,
		struct postern_mark_request *request, struct summary *now,
		struct postern_error *error) {
	/* Repeated: the caller has it already. */
	bool own = now->state == POSTERN_MARK_RUNNING && !now->other_lease;
	if (now->state != POSTERN_MARK_UNKNOWN && !own) {
		return POSTERN_OK;
	}
	now->state = POSTERN_MARK_UNKNOWN;
	now->left_ms = 0;
	return put_lease(access, keys, request->fence, request->lease_ms, error);
}

static int finish_lease(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, uint64_t fence,
		const struct summary *now, struct postern_error *error) {
	if (now->state == POSTERN_MARK_DONE && now->fence_only) {
		return POSTERN_OK; /* repeated */
	}
	return is_mine(now) ? put_done(access, keys, fence, error)
						: postern__mark_fail_stale(error);
}

static int record(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys,
		const struct postern_mark_request *request, struct summary *now,
		struct postern_error *error) {
	bool force = request->kind == POSTERN_MARK_RECORD;
	if (now->state == POSTERN_MARK_DONE && now->fence_only) {
		now->state = POSTERN_MARK_UNKNOWN; /* repeated */
		return POSTERN_OK;
	}
	bool writes = now->state == POSTERN_MARK_UNKNOWN ||
				  (force && now->state == POSTERN_MARK_RUNNING);
	return writes ? put_done(access, keys, request->fence, error) : POSTERN_OK;
}

bool postern__mark_writes(enum postern_mark_kind kind) {
	return kind != POSTERN_MARK_READ;
}

int postern__mark_change(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys,
		struct postern_mark_request *request, struct postern_error *error) {
	struct summary now;
	uint64_t fence = request->fence;
	int r = summarize(access, keys, fence, &now, error);
	if (r != POSTERN_OK) {
		return r;
	}
	switch (request->kind) {
	case POSTERN_MARK_BEGIN:
		r = begin_lease(access, keys, request, &now, error);
		break;
	case POSTERN_MARK_EXTEND:
		r = is_mine(&now) && now.state == POSTERN_MARK_RUNNING
					? put_lease(access, keys, fence, request->lease_ms, error)
					: postern__mark_fail_stale(error);
		break;
	case POSTERN_MARK_FINISH:
		r = finish_lease(access, keys, fence, &now, error);
		break;
	case POSTERN_MARK_RELEASE:
		r = is_mine(&now) ? remove_all(access, keys, error)
						  : postern__mark_fail_stale(error);
		break;
	case POSTERN_MARK_TRY:
	case POSTERN_MARK_RECORD:
		r = record(access, keys, request, &now, error);
		break;
	case POSTERN_MARK_FORGET: r = remove_all(access, keys, error); break;
	case POSTERN_MARK_READ: break;
	}
	if (r == POSTERN_OK) {
		request->before = now.state;
		request->left_ms = now.left_ms;
	}
	return r;
}

int postern__mark_take(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, uint64_t fence,
		enum postern_mark_state *state_out, struct postern_error *error) {
	struct summary now;
	int r = summarize(access, keys, fence, &now, error);
	if (r == POSTERN_OK && now.state == POSTERN_MARK_UNKNOWN) {
		r = put_done(access, keys, fence, error);
	}
	if (r == POSTERN_OK) {
		*state_out = now.state;
	}
	return r;
}

int postern__mark_is_taken(const struct postern__mark_access *access,
		const struct postern__mark_keys *keys, uint64_t fence, bool *taken_out,
		struct postern_error *error) {
	struct summary now;
	int r = summarize(access, keys, fence, &now, error);
	*taken_out = r == POSTERN_OK && now.state == POSTERN_MARK_DONE &&
				 now.fence_only && now.row_count == keys->count;
	return r;
}
