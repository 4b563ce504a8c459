/* SPDX-License-Identifier: MIT */
/* Retry delays: the documented formula over its whole range. */

#include "tap.h"

#include "support/fake_clock.h"

#include <postern/handler.h>

static int64_t min64(int64_t a, int64_t b) {
	return a < b ? a : b;
}

/* The documented formula, in floating point. */
static void expected_range(uint32_t failures, int64_t max_ms, int64_t *low,
		int64_t *high) {
	double power = 1;
	for (uint32_t i = 0; i < failures && power < 1e15; i++) {
		power *= 2;
	}
	double base = power * 1000;
	if (base > (double)max_ms) {
		base = (double)max_ms;
	}
	*high = (int64_t)base;
	*low = *high / 2;
}

static void backoff_stays_in_range(void) {
	struct fake_random random;
	fake_random_init(&random, 1);
	static const int64_t maxima[] = { 0, 1, 999, 1000, 1001, 300000, 86400000,
		POSTERN_DURATION_MS_MAX };
	static const uint32_t failures[] = { 0, 1, 2, 3, 4, 8, 9, 10, 31, 32, 33,
		34, 62, 63, 64, 65, 1000, 4294967295u };
	for (size_t m = 0; m < sizeof(maxima) / sizeof(maxima[0]); m++) {
		struct postern_policy policy;
		postern_policy_init(&policy);
		policy.max_retry_delay_ms = maxima[m];
		for (size_t f = 0; f < sizeof(failures) / sizeof(failures[0]); f++) {
			int64_t low;
			int64_t high;
			expected_range(failures[f], maxima[m], &low, &high);
			for (int i = 0; i < 200; i++) {
				int64_t ms = postern_policy_delay_ms(&policy, failures[f],
						random.base.next(random.base.context));
				if (!CHECK(ms >= low) || !CHECK(ms <= high)) {
					return;
				}
			}
		}
	}
}

static void backoff_reaches_both_ends(void) {
	struct postern_policy policy;
	postern_policy_init(&policy);
	/* The documented table: 1-2 s, 2-4 s, 4-8 s, 150-300 s. */
	static const struct {
		uint32_t failures;
		int64_t low;
		int64_t high;
	} rows[] = { { 1, 1000, 2000 }, { 2, 2000, 4000 }, { 3, 4000, 8000 },
		{ 9, 150000, 300000 }, { 100, 150000, 300000 } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int64_t low = INT64_MAX;
		int64_t high = -1;
		/* Covers every remainder of the span. */
		for (uint64_t n = 0; n <= 150000; n++) {
			int64_t ms = postern_policy_delay_ms(&policy, rows[i].failures, n);
			low = min64(low, ms);
			high = ms > high ? ms : high;
		}
		CHECK_INT(low, rows[i].low);
		CHECK_INT(high, rows[i].high);
	}
}

static void list_repeats_last(void) {
	static const int64_t list[] = { 1000, 10000, 60000 };
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.backoff_ms = list;
	policy.backoff_count = 3;
	CHECK_INT(postern_policy_delay_ms(&policy, 1, 7), 1000);
	CHECK_INT(postern_policy_delay_ms(&policy, 2, 7), 10000);
	CHECK_INT(postern_policy_delay_ms(&policy, 3, 7), 60000);
	CHECK_INT(postern_policy_delay_ms(&policy, 4, 7), 60000);
	CHECK_INT(postern_policy_delay_ms(&policy, 4294967295u, 7), 60000);
}

static void defaults_are_documented(void) {
	struct postern_policy policy;
	postern_policy_init(&policy);
	CHECK_INT(policy.max_attempts, POSTERN_ATTEMPTS_DEFAULT);
	CHECK_INT(policy.max_crashes, 3);
	CHECK_INT(policy.max_retry_delay_ms, 300000);
	CHECK_INT(policy.backoff_count, POSTERN_BACKOFF_DEFAULT);
	CHECK_INT(policy.lease_ms, 300000);
	CHECK_INT(policy.commit_batch, 1);
	CHECK_INT(policy.concurrency, POSTERN_CONCURRENCY_DEFAULT);
	CHECK_INT(policy.timeout_ms, POSTERN_TIMEOUT_DEFAULT);
}

static const struct tap_case cases[] = {
	{ "backoff is base/2 to base for any failures and any cap",
			backoff_stays_in_range },
	{ "backoff reaches both ends of the documented table",
			backoff_reaches_both_ends },
	{ "a list of delays repeats its last entry", list_repeats_last },
	{ "defaults are the documented ones", defaults_are_documented },
};

TAP_MAIN(cases)
