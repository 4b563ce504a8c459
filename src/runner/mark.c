/* SPDX-License-Identifier: MIT */

/*
 * Single markers: the arguments are checked here, so that stores need not.
 */

#include "runner/guard.h"

#include "base/fail.h"
#include "base/sized.h"
#include "core/box.h"

#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <string.h>

#define EXPIRE_BATCH 1000

int64_t postern__guard_now_ms(const struct postern_guard *guard) {
	return guard->clock->monotonic_ms(guard->clock->context);
}

uint64_t postern__guard_fence(const struct postern_guard *guard) {
	uint64_t fence = 0;
	while (fence == 0) {
		/* Positive in stores whose numbers have a sign. */
		fence = guard->random->next(guard->random->context) >> 1;
	}
	return fence;
}

int postern__mark_names_init(struct postern__mark_names *names,
		const char *handler, const char *const *legacy_keys,
		size_t legacy_key_count, const char *key, size_t key_len,
		struct postern_error *error) {
	size_t len = key && key_len == 0 ? strlen(key) : key_len;
	if (!key || len == 0) {
		return postern__fail(error, POSTERN_E_INVALID, "the key is empty");
	}
	if (len > POSTERN_GUARD_KEY_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the key has %zu bytes, the limit is %d", len,
				POSTERN_GUARD_KEY_LEN_MAX);
	}
	if (legacy_key_count > POSTERN_LEGACY_KEY_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%zu legacy keys, the limit is %d", legacy_key_count,
				POSTERN_LEGACY_KEY_COUNT_MAX);
	}
	int r = postern__handler_key_check(handler, error);
	names->handlers[0] = handler;
	for (size_t i = 0; !r && i < legacy_key_count; i++) {
		r = postern__handler_key_check(legacy_keys[i], error);
		names->handlers[i + 1] = legacy_keys[i];
	}
	names->mark = (struct postern_mark){
		.handlers = names->handlers,
		.handler_count = legacy_key_count + 1,
		.value = key,
		.value_len = len,
	};
	return r;
}

_Static_assert(POSTERN_MARK_NAME_COUNT_MAX > POSTERN_LEGACY_KEY_COUNT_MAX,
		"a handler's key and all its legacy keys");

int postern__guard_change(struct postern_guard *guard, const char *handler,
		const char *key, struct postern_mark_request *request,
		struct postern_error *error) {
	struct postern__mark_names names;
	int r = postern__mark_names_init(&names, handler, NULL, 0, key, 0, error);
	return r ? r
			 : guard->markers->ops->change(guard->markers, &names.mark, request,
					   error);
}

static int check_lease(uint64_t fence, int64_t lease_ms,
		struct postern_error *error) {
	if (fence == 0) {
		return postern__fail(error, POSTERN_E_INVALID, "the fence is 0");
	}
	if (lease_ms < POSTERN_GUARD_LEASE_MS_MIN ||
			lease_ms > POSTERN_DURATION_MS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a lease of %lld ms: it is 1 s to ten years",
				(long long)lease_ms);
	}
	return POSTERN_OK;
}

int postern__guard_fail_done(const char *handler, struct postern_error *error) {
	return postern__fail(error, POSTERN_E_DUPLICATE, "'%s' has done this key",
			handler);
}

int postern__guard_fail_running(const char *handler,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_BUSY,
			"'%s' is working on this key now", handler);
}

static int fail_known(const char *handler, enum postern_mark_state state,
		struct postern_error *error) {
	return state == POSTERN_MARK_DONE
				   ? postern__guard_fail_done(handler, error)
				   : postern__guard_fail_running(handler, error);
}

int postern_mark_try(struct postern_guard *guard, const char *handler,
		const char *key, struct postern_error *error) {
	struct postern_mark_request request = {
		.kind = POSTERN_MARK_TRY,
		.fence = postern__guard_fence(guard),
	};
	int r = postern__guard_change(guard, handler, key, &request, error);
	return r || request.before == POSTERN_MARK_UNKNOWN
				   ? r
				   : fail_known(handler, request.before, error);
}

int postern_mark_has(struct postern_guard *guard, const char *handler,
		const char *key, bool *done_out, struct postern_error *error) {
	struct postern_mark_request request = { .kind = POSTERN_MARK_READ };
	int r = postern__guard_change(guard, handler, key, &request, error);
	if (!r) {
		*done_out = request.before == POSTERN_MARK_DONE;
	}
	return r;
}

int postern_mark_record(struct postern_guard *guard, const char *handler,
		const char *key, struct postern_error *error) {
	struct postern_mark_request request = {
		.kind = POSTERN_MARK_RECORD,
		.fence = postern__guard_fence(guard),
	};
	return postern__guard_change(guard, handler, key, &request, error);
}

int postern_mark_forget(struct postern_guard *guard, const char *handler,
		const char *key, struct postern_error *error) {
	struct postern_mark_request request = { .kind = POSTERN_MARK_FORGET };
	int r = postern__guard_change(guard, handler, key, &request, error);
	return r || request.before != POSTERN_MARK_UNKNOWN
				   ? r
				   : postern__fail(error, POSTERN_E_NOTFOUND,
							 "'%s' has not done this key", handler);
}

int postern_mark_expire(struct postern_guard *guard, const char *handler,
		int64_t older_ms, uint64_t *count_out, struct postern_error *error) {
	struct postern_mark_expiry expiry = {
		.handler = handler,
		.older_ms = older_ms,
		.max = EXPIRE_BATCH,
		.more = true,
	};
	uint64_t count = 0;
	int r = handler ? postern__handler_key_check(handler, error) : POSTERN_OK;
	if (!r && older_ms < 0) {
		r = postern__fail(error, POSTERN_E_INVALID, "the age is negative");
	}
	while (!r && expiry.more) {
		r = guard->markers->ops->expire(guard->markers, &expiry, error);
		count += r ? 0 : expiry.count;
	}
	if (!r && count_out) {
		*count_out = count;
	}
	return r;
}

int postern_mark_in(struct postern_guard *guard, void *transaction,
		const struct postern_guarded *given, struct postern_error *error) {
	const struct postern_marker_ops *ops = guard->markers->ops;
	struct postern_guarded guarded = { 0 };
	struct postern__mark_names names;
	enum postern_mark_state before = POSTERN_MARK_UNKNOWN;
	int r = postern__sized_copy(&guarded, sizeof(guarded), given,
			"struct postern_guarded", error);
	if (!r) {
		r = postern__mark_names_init(&names, guarded.handler,
				guarded.legacy_keys, guarded.legacy_key_count, guarded.key,
				guarded.key_len, error);
	}
	if (!r && !transaction) {
		r = postern__fail(error, POSTERN_E_INVALID, "the transaction is NULL");
	}
	if (!r && !ops->take) {
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"a %s store has no transactions", ops->name);
	}
	if (!r) {
		r = ops->take(guard->markers, transaction, &names.mark,
				postern__guard_fence(guard), guard->wait_ms, &before, error);
	}
	return r || before == POSTERN_MARK_UNKNOWN
				   ? r
				   : fail_known(guarded.handler, before, error);
}

int postern_mark_begin(struct postern_guard *guard, const char *handler,
		const char *key, uint64_t fence, int64_t lease_ms, int64_t *left_ms_out,
		struct postern_error *error) {
	struct postern_mark_request request = {
		.kind = POSTERN_MARK_BEGIN,
		.fence = fence,
		.lease_ms = lease_ms,
	};
	int r = check_lease(fence, lease_ms, error);
	if (!r) {
		r = postern__guard_change(guard, handler, key, &request, error);
	}
	if (r || request.before == POSTERN_MARK_UNKNOWN) {
		return r;
	}
	if (left_ms_out) {
		*left_ms_out = request.left_ms;
	}
	return fail_known(handler, request.before, error);
}

int postern_mark_extend(struct postern_guard *guard, const char *handler,
		const char *key, uint64_t fence, int64_t lease_ms,
		struct postern_error *error) {
	struct postern_mark_request request = {
		.kind = POSTERN_MARK_EXTEND,
		.fence = fence,
		.lease_ms = lease_ms,
	};
	int r = check_lease(fence, lease_ms, error);
	return r ? r : postern__guard_change(guard, handler, key, &request, error);
}

static int end_lease(struct postern_guard *guard, const char *handler,
		const char *key, enum postern_mark_kind kind, uint64_t fence,
		struct postern_error *error) {
	struct postern_mark_request request = { .kind = kind, .fence = fence };
	int r = check_lease(fence, POSTERN_GUARD_LEASE_MS_MIN, error);
	return r ? r : postern__guard_change(guard, handler, key, &request, error);
}

int postern_mark_finish(struct postern_guard *guard, const char *handler,
		const char *key, uint64_t fence, struct postern_error *error) {
	return end_lease(guard, handler, key, POSTERN_MARK_FINISH, fence, error);
}

int postern_mark_release(struct postern_guard *guard, const char *handler,
		const char *key, uint64_t fence, struct postern_error *error) {
	return end_lease(guard, handler, key, POSTERN_MARK_RELEASE, fence, error);
}
