/* SPDX-License-Identifier: MIT */
/*
 * The delay before a retry. The documented formula, exactly:
 *
 *   base  = min(2^failures seconds, max_retry_delay)
 *   delay = base/2 + random(0..base/2)
 *
 * computed so that no number of failures overflows, or a list of delays whose
 * last entry repeats.
 */

#include "core/box.h"

#include <stdlib.h>
#include <string.h>

/* How often a delivery is attempted, unless its kind has another default. */
#define ATTEMPTS_DEFAULT 5

void postern_policy_init_sized(struct postern_policy *policy, size_t size) {
	const struct postern_policy full = {
		.size = size,
		.max_attempts = POSTERN_ATTEMPTS_DEFAULT,
		.max_crashes = 3,
		.max_retry_delay_ms = (int64_t)5 * 60 * 1000,
		.backoff_count = POSTERN_BACKOFF_DEFAULT,
		.timeout_ms = POSTERN_TIMEOUT_DEFAULT,
		.lease_ms = (int64_t)5 * 60 * 1000,
		.concurrency = POSTERN_CONCURRENCY_DEFAULT,
		.commit_batch = 1,
		.break_after = 20,
	};
	if (size > sizeof(full)) {
		memset((char *)policy + sizeof(full), 0, size - sizeof(full));
	}
	memcpy(policy, &full, size < sizeof(full) ? size : sizeof(full));
}

/* A transactional handler blocks the store's writer while it runs, so it has a
   timeout by default; other handlers have none. */
static int64_t default_timeout_ms(const struct postern_handler_kind *kind,
		bool transactional) {
	if (kind->timeout_ms != POSTERN_TIMEOUT_DEFAULT) {
		return kind->timeout_ms;
	}
	return transactional ? POSTERN_TRANSACTION_TIMEOUT_MS : 0;
}

void postern__policy_complete(struct postern_policy *policy,
		const struct postern_handler_kind *kind, bool transactional) {
	if (policy->max_attempts == POSTERN_ATTEMPTS_DEFAULT) {
		policy->max_attempts =
				kind->max_attempts > 0 ? kind->max_attempts : ATTEMPTS_DEFAULT;
	}
	if (policy->backoff_count == POSTERN_BACKOFF_DEFAULT) {
		policy->backoff_ms = kind->backoff_ms;
		policy->backoff_count = kind->backoff_count;
	}
	if (policy->timeout_ms == POSTERN_TIMEOUT_DEFAULT) {
		policy->timeout_ms = default_timeout_ms(kind, transactional);
	}
	/* Nothing else limits the runs of an asynchronous kind. */
	if (policy->concurrency == POSTERN_CONCURRENCY_DEFAULT ||
			(policy->concurrency == 0 && kind->asynchronous)) {
		policy->concurrency = kind->concurrency;
	}
}

/* Whether there is a list of delays, and not only the kind's default. */
static bool has_list(const struct postern_policy *policy) {
	return policy->backoff_count > 0 &&
		   policy->backoff_count != POSTERN_BACKOFF_DEFAULT;
}

static int64_t base_ms(const struct postern_policy *policy, uint32_t failures) {
	/* 2^33 s is longer than POSTERN_DURATION_MS_MAX. */
	if (failures > 32) {
		return policy->max_retry_delay_ms;
	}
	int64_t ms = ((int64_t)1 << failures) * 1000;
	return ms < policy->max_retry_delay_ms ? ms : policy->max_retry_delay_ms;
}

int64_t postern_policy_delay_ms(const struct postern_policy *policy,
		uint32_t failures, uint64_t random) {
	if (has_list(policy)) {
		size_t index = failures > 0 ? failures - 1 : 0;
		if (index >= policy->backoff_count) {
			index = policy->backoff_count - 1;
		}
		return policy->backoff_ms[index];
	}
	int64_t base = base_ms(policy, failures);
	int64_t half = base / 2;
	/* An odd base keeps its last millisecond in the random part, so that
	   the longest delay is the base itself. */
	uint64_t span = (uint64_t)(base - half) + 1;
	return half + (int64_t)(random % span);
}

static int64_t add_ms(int64_t a, int64_t b) {
	return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static int64_t times_ms(int64_t ms, int64_t count) {
	return count > 0 && ms > INT64_MAX / count ? INT64_MAX : ms * count;
}

int64_t postern__policy_horizon_ms(const struct postern_policy *policy) {
	int64_t timeout_ms = policy->timeout_ms > 0 ? policy->timeout_ms : 0;
	int64_t total = times_ms(timeout_ms,
			policy->max_attempts > 0 ? policy->max_attempts : 1);
	for (uint32_t failures = 1; failures < policy->max_attempts; failures++) {
		/* After that many failures all delays are the same. */
		bool constant = failures > 33 && failures > policy->backoff_count;
		int64_t delay = policy->backoff_count > 0
								? postern_policy_delay_ms(policy, failures, 0)
								: base_ms(policy, failures);
		if (constant) {
			int64_t rest = policy->max_attempts - failures;
			return add_ms(total, times_ms(delay, rest));
		}
		total = add_ms(total, delay);
	}
	return total;
}

int postern__policy_copy(const struct postern_policy *from,
		struct postern_policy *to) {
	int64_t *list = NULL;
	if (has_list(from)) {
		list = malloc(from->backoff_count * sizeof(*list));
		if (!list) {
			return POSTERN_E_NOMEM;
		}
		memcpy(list, from->backoff_ms, from->backoff_count * sizeof(*list));
	}
	*to = *from;
	to->backoff_ms = list;
	return POSTERN_OK;
}

void postern__policy_finish(struct postern_policy *policy) {
	free((void *)(uintptr_t)policy->backoff_ms);
	policy->backoff_ms = NULL;
	policy->backoff_count = 0;
}
