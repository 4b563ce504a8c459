/* SPDX-License-Identifier: MIT */

/*
 * Settling: how a lease ends, and that only its owner can end it.
 */

#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

/* One message leased to the stand's node under fence 1. */
static int64_t open_leased(struct stand *stand) {
	stand_open(stand, "a", "b", NULL);
	return stand_accept_leased(stand, "1", stand->handlers[0]);
}

static void check_untouched(struct stand *stand, int64_t seq) {
	const struct postern_delivery_detail *delivery =
			stand_delivery(stand, seq, "a");
	if (CHECK(delivery)) {
		CHECK_INT(delivery->row.state, POSTERN_STATE_LEASED);
		CHECK_INT(delivery->row.fence, 1);
		CHECK_INT(delivery->row.failures, 0);
		CHECK_INT(delivery->row.starts, 1);
		CHECK_INT(delivery->attempt_count, 0);
	}
}

static const enum postern_settle_to all_ways[] = {
	POSTERN_SETTLE_DONE,
	POSTERN_SETTLE_POISONED,
	POSTERN_SETTLE_DISCARDED,
	POSTERN_SETTLE_PENDING,
	POSTERN_SETTLE_RETURNED,
};
#define WAY_COUNT (sizeof all_ways / sizeof all_ways[0])

static void done(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	fake_clock_advance(&stand.clock, 100);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	const struct postern_delivery_detail *delivery =
			stand_delivery(&stand, seq, "a");
	if (CHECK(delivery)) {
		CHECK_INT(delivery->row.state, POSTERN_STATE_DONE);
		CHECK_INT(delivery->row.fence, 1);
		CHECK_INT(delivery->row.starts, 1);
		CHECK_INT(delivery->row.finished_at_ms, stand_now(&stand));
		CHECK_INT(delivery->row.leased_at_ms, 0);
		CHECK_INT(delivery->row.next_at_ms, 0);
		CHECK_STR(delivery->row.last_error, NULL);
		CHECK_INT(delivery->attempt_count, 0);
	}
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	stand_close(&stand);
}

static void done_earlier(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	fake_clock_advance(&stand.clock, 1000);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_DONE,
							  .duration_ms = 50,
							  .lag_ms = 300,
							  .outcome = "done",
					  }),
			POSTERN_OK);
	CHECK_INT(stand_row(&stand, seq, "a").finished_at_ms,
			stand_now(&stand) - 300);
	stand_close(&stand);
}

/* At the first run and at later runs. */
static void ended_earlier(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	for (uint64_t fence = 1; fence <= 3; fence++) {
		fake_clock_advance(&stand.clock, 1000);
		CHECK_INT(stand_settle(&stand,
						  (struct postern_settlement){
								  .seq = seq,
								  .handler = stand.handlers[0],
								  .fence = fence,
								  .to = POSTERN_SETTLE_DISCARDED,
								  .failures = 2,
								  .duration_ms = 50,
								  .lag_ms = 300,
								  .outcome = "discard",
						  }),
				POSTERN_OK);
		const struct postern_delivery_detail *delivery =
				stand_delivery(&stand, seq, "a");
		if (CHECK(delivery) && CHECK_INT(delivery->attempt_count, fence)) {
			const struct postern_attempt *attempt =
					&delivery->attempts[fence - 1];
			CHECK_INT(delivery->row.fence, fence);
			CHECK_INT(delivery->row.starts, fence);
			CHECK_INT(delivery->row.failures, 2);
			CHECK_INT(delivery->row.finished_at_ms, stand_now(&stand) - 300);
			CHECK_INT(attempt->finished_at_ms, stand_now(&stand) - 300);
			CHECK_INT(attempt->started_at_ms, stand_now(&stand) - 350);
		}
		CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
				&stand.error);
		CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	}
	stand_close(&stand);
}

static void wrong_fence(void) {
	static const uint64_t fences[] = { 0, 2, UINT32_MAX };
	struct stand stand;
	int64_t seq = open_leased(&stand);
	for (size_t i = 0; i < sizeof fences / sizeof fences[0]; i++) {
		for (size_t j = 0; j < WAY_COUNT; j++) {
			CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], fences[i],
							  all_ways[j]),
					POSTERN_E_STALE);
		}
	}
	check_untouched(&stand, seq);
	stand_close(&stand);
}

static void wrong_node(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	stand.node++;
	for (size_t i = 0; i < WAY_COUNT; i++) {
		CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
						  all_ways[i]),
				POSTERN_E_STALE);
	}
	check_untouched(&stand, seq);
	stand_close(&stand);
}

static void wrong_delivery(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[1], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	CHECK_INT(stand_settle_to(&stand, seq + 1, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	check_untouched(&stand, seq);
	stand_close(&stand);
}

static void twice(void) {
	for (size_t i = 0; i < WAY_COUNT; i++) {
		struct stand stand;
		int64_t seq = open_leased(&stand);
		CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
						  all_ways[i]),
				POSTERN_OK);
		struct postern_row row = stand_row(&stand, seq, "a");
		fake_clock_advance(&stand.clock, 100);
		for (size_t j = 0; j < WAY_COUNT; j++) {
			CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
							  all_ways[j]),
					POSTERN_E_STALE);
		}
		struct postern_row after = stand_row(&stand, seq, "a");
		CHECK_INT(after.state, row.state);
		CHECK_INT(after.starts, row.starts);
		CHECK_INT(after.finished_at_ms, row.finished_at_ms);
		CHECK_INT(after.next_at_ms, row.next_at_ms);
		stand_close(&stand);
	}
}

static void twice_in_one_batch(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	struct postern_settlement settlements[2] = {
		{
				.seq = seq,
				.handler = stand.handlers[0],
				.fence = 1,
				.to = POSTERN_SETTLE_PENDING,
				.failures = 1,
				.outcome = "retry",
		},
	};
	settlements[1] = settlements[0];
	settlements[1].to = POSTERN_SETTLE_DONE;
	settlements[1].outcome = "done";
	struct postern_batch batch = {
		.node = stand.node,
		.settlements = settlements,
		.settlement_count = 2,
	};
	CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error), &stand.error);
	CHECK_INT(settlements[0].code, POSTERN_OK);
	CHECK_INT(settlements[1].code, POSTERN_E_STALE);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void stale_before_good(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	struct postern_settlement settlements[] = {
		{ .seq = seq, .handler = stand.handlers[0], .fence = 9, .outcome = "" },
		{ .seq = seq, .handler = stand.handlers[0], .fence = 0, .outcome = "" },
		{ .seq = seq,
				.handler = stand.handlers[0],
				.fence = 1,
				.outcome = "done" },
	};
	struct postern_batch batch = {
		.node = stand.node,
		.settlements = settlements,
		.settlement_count = 3,
	};
	CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error), &stand.error);
	CHECK_INT(settlements[0].code, POSTERN_E_STALE);
	CHECK_INT(settlements[1].code, POSTERN_E_STALE);
	CHECK_INT(settlements[2].code, POSTERN_OK);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	stand_close(&stand);
}

static void not_leased(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 0,
					  POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void stale_among_others(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	int64_t other = stand_accept_leased(&stand, "2", stand.handlers[0]);
	struct postern_settlement settlements[] = {
		{ .seq = seq, .handler = stand.handlers[0], .fence = 9, .outcome = "" },
		{ .seq = other,
				.handler = stand.handlers[0],
				.fence = 1,
				.outcome = "done" },
	};
	struct postern_batch batch = {
		.node = stand.node,
		.settlements = settlements,
		.settlement_count = 2,
	};
	CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error), &stand.error);
	CHECK_INT(settlements[0].code, POSTERN_E_STALE);
	CHECK_INT(settlements[1].code, POSTERN_OK);
	check_untouched(&stand, seq);
	CHECK_INT(stand_state(&stand, other, "a"), POSTERN_STATE_DONE);
	stand_close(&stand);
}

static void due_again(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .delay_ms = 1000,
							  .failures = 4,
							  .outcome = "retry",
					  }),
			POSTERN_OK);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_PENDING);
	CHECK_INT(row.failures, 4);
	CHECK_INT(row.next_at_ms, stand_now(&stand) + 1000);
	CHECK_INT(row.leased_at_ms, 0);
	CHECK_INT(row.fence, 1);

	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	fake_clock_advance(&stand.clock, 999);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	fake_clock_advance(&stand.clock, 1);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].failures, 4);
		CHECK_INT(claims.items[0].fence, 2);
	}
	stand_close(&stand);
}

static void longest_delay(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .delay_ms = POSTERN_DURATION_MS_MAX,
							  .outcome = "snooze",
					  }),
			POSTERN_OK);
	fake_clock_advance(&stand.clock, POSTERN_DURATION_MS_MAX - 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	fake_clock_advance(&stand.clock, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	stand_close(&stand);
}

static void returned(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = stand.handlers[0],
		.fence = 1,
		.to = POSTERN_SETTLE_PENDING,
		.failures = 1,
		.outcome = "retry",
		.error = "no luck",
	};
	CHECK_INT(stand_settle(&stand, settlement), POSTERN_OK);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	fake_clock_advance(&stand.clock, 100);
	settlement.fence = 2;
	settlement.to = POSTERN_SETTLE_RETURNED;
	settlement.delay_ms = 5000; /* has no effect here */
	settlement.outcome = "returned";
	settlement.error = NULL;
	CHECK_INT(stand_settle(&stand, settlement), POSTERN_OK);

	const struct postern_delivery_detail *delivery =
			stand_delivery(&stand, seq, "a");
	if (CHECK(delivery)) {
		CHECK_INT(delivery->row.state, POSTERN_STATE_PENDING);
		CHECK_INT(delivery->row.starts, 1);
		CHECK_INT(delivery->row.failures, 1);
		CHECK_INT(delivery->row.fence, 2);
		CHECK_INT(delivery->row.next_at_ms, stand_now(&stand));
		CHECK_INT(delivery->attempt_count, 1);
	}
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].fence, 3);
	}
	stand_close(&stand);
}

/* Runs that ended otherwise do not count; a reopened delivery begins again. */
static void breaks_are_counted(void) {
	static const struct {
		enum postern_settle_to to;
		bool broke;
		uint32_t breaks; /* in the next claim */
	} runs[] = {
		{ POSTERN_SETTLE_PENDING, false, 0 },
		{ POSTERN_SETTLE_PENDING, true, 1 },
		{ POSTERN_SETTLE_RETURNED, false, 1 },
		{ POSTERN_SETTLE_PENDING, true, 2 },
		{ POSTERN_SETTLE_PENDING, false, 2 },
		{ POSTERN_SETTLE_POISONED, true, 0 },
	};
	struct stand stand;
	int64_t seq = open_leased(&stand);
	for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
		CHECK_INT(stand_settle(&stand,
						  (struct postern_settlement){
								  .seq = seq,
								  .handler = stand.handlers[0],
								  .fence = i + 1,
								  .to = runs[i].to,
								  .broke = runs[i].broke,
								  .outcome = "snooze",
						  }),
				POSTERN_OK);
		if (runs[i].to == POSTERN_SETTLE_POISONED) {
			CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
					&stand.error);
		}
		struct postern_claims claims =
				stand_claim(&stand, stand.handlers[0], 1);
		if (CHECK_INT(claims.count, 1)) {
			CHECK_INT(claims.items[0].breaks, runs[i].breaks);
		}
	}
	stand_close(&stand);
}

static void attempts_are_kept(void) {
	static const struct {
		enum postern_settle_to to;
		const char *outcome;
		const char *error;
	} runs[] = {
		{ POSTERN_SETTLE_PENDING, "retry", "connection refused" },
		{ POSTERN_SETTLE_PENDING, "snooze", NULL },
		{ POSTERN_SETTLE_PENDING, "timeout", "over 5s \xc3\xbc" },
		{ POSTERN_SETTLE_POISONED, "poison", "bad order" },
	};
	const size_t count = sizeof runs / sizeof runs[0];
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	int64_t start = stand_now(&stand);
	for (size_t i = 0; i < count; i++) {
		CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
		fake_clock_advance(&stand.clock, 1000);
		CHECK_INT(stand_settle(&stand,
						  (struct postern_settlement){
								  .seq = seq,
								  .handler = stand.handlers[0],
								  .fence = i + 1,
								  .to = runs[i].to,
								  .failures = (uint32_t)i,
								  .duration_ms = 300,
								  .outcome = runs[i].outcome,
								  .error = runs[i].error,
						  }),
				POSTERN_OK);
	}
	const struct postern_delivery_detail *delivery =
			stand_delivery(&stand, seq, "a");
	if (CHECK(delivery) && CHECK_INT(delivery->attempt_count, count)) {
		for (size_t i = 0; i < count; i++) {
			const struct postern_attempt *attempt = &delivery->attempts[i];
			int64_t finished_at = start + ((int64_t)i + 1) * 1000;
			CHECK_INT(attempt->fence, i + 1);
			CHECK_INT(attempt->finished_at_ms, finished_at);
			CHECK_INT(attempt->started_at_ms, finished_at - 300);
			CHECK_STR(attempt->outcome, runs[i].outcome);
			CHECK_STR(attempt->error, runs[i].error);
		}
		CHECK_STR(delivery->row.last_error, "bad order");
	}
	stand_close(&stand);
}

static void attempts_are_capped(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	for (uint64_t i = 1; i <= POSTERN_ATTEMPTS_KEPT + 7; i++) {
		CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
		CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], i,
						  POSTERN_SETTLE_PENDING),
				POSTERN_OK);
	}
	const struct postern_delivery_detail *delivery =
			stand_delivery(&stand, seq, "a");
	if (CHECK(delivery) &&
			CHECK_INT(delivery->attempt_count, POSTERN_ATTEMPTS_KEPT)) {
		for (size_t i = 0; i < POSTERN_ATTEMPTS_KEPT; i++) {
			CHECK_INT(delivery->attempts[i].fence, i + 8);
		}
		CHECK_INT(delivery->row.starts, POSTERN_ATTEMPTS_KEPT + 7);
	}
	stand_close(&stand);
}

static void attempts_are_of_one_delivery(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	int64_t other = stand_accept_leased(&stand, "2", stand.handlers[0]);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_PENDING),
			POSTERN_OK);
	CHECK_INT(stand_delivery(&stand, seq, "a")->attempt_count, 1);
	CHECK_INT(stand_delivery(&stand, other, "a")->attempt_count, 0);
	stand_close(&stand);
}

static void last_error_outlives(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = stand.handlers[0],
		.fence = 1,
		.to = POSTERN_SETTLE_PENDING,
		.failures = 1,
		.outcome = "retry",
		.error = "no luck",
	};
	CHECK_INT(stand_settle(&stand, settlement), POSTERN_OK);
	CHECK_STR(stand_row(&stand, seq, "a").last_error, "no luck");
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	CHECK_STR(stand_row(&stand, seq, "a").last_error, "no luck");
	settlement.fence = 2;
	settlement.outcome = "snooze";
	settlement.error = NULL;
	CHECK_INT(stand_settle(&stand, settlement), POSTERN_OK);
	CHECK_STR(stand_row(&stand, seq, "a").last_error, "no luck");
	stand_close(&stand);
}

static void longest_error(void) {
	char text[POSTERN_REASON_LEN_MAX + 1];
	struct stand stand;
	int64_t seq = open_leased(&stand);
	memset(text, 'x', sizeof text);
	memcpy(text + sizeof text - 4, "\xe2\x82\xac", 4);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_POISONED,
							  .outcome = "poison",
							  .error = text,
					  }),
			POSTERN_OK);
	CHECK_STR(stand_row(&stand, seq, "a").last_error, text);
	stand_close(&stand);
}

static void other_ends(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	int64_t other = stand_accept_leased(&stand, "2", stand.handlers[0]);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_POISONED),
			POSTERN_OK);
	CHECK_INT(stand_settle_to(&stand, other, stand.handlers[0], 1,
					  POSTERN_SETTLE_DISCARDED),
			POSTERN_OK);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_POISONED);
	CHECK_INT(row.finished_at_ms, stand_now(&stand));
	row = stand_row(&stand, other, "a");
	CHECK_INT(row.state, POSTERN_STATE_DISCARDED);
	CHECK_INT(row.finished_at_ms, stand_now(&stand));
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 0);
	stand_close(&stand);
}

static void others_are_not_touched(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	parcel_add_route(&parcel, stand.handlers[1])->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[1], 1,
					  POSTERN_SETTLE_POISONED),
			POSTERN_OK);
	check_untouched(&stand, seq);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	CHECK_INT(stand_state(&stand, seq, "b"), POSTERN_STATE_POISONED);
	stand_close(&stand);
}

static void complete(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	parcel_add_route(&parcel, stand.handlers[1])->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	CHECK_INT(stand_get(&stand, seq).completed_at_ms, 0);
	fake_clock_advance(&stand.clock, 10);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[1], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	CHECK_INT(stand_get(&stand, seq).completed_at_ms, 0);
	fake_clock_advance(&stand.clock, 10);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_POISONED),
			POSTERN_OK);
	CHECK_INT(stand_get(&stand, seq).completed_at_ms, stand_now(&stand));
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
			&stand.error);
	CHECK_INT(stand_get(&stand, seq).completed_at_ms, 0);
	stand_close(&stand);
}

static void settled_for_good(void) {
	struct stand stand;
	int64_t seq = open_leased(&stand);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	stand_close(&stand);
}

const struct tap_case settle_cases[] = {
	{ "done ends a delivery without recording an attempt", done },
	{ "a done delivery ended `lag_ms` before it was written", done_earlier },
	{ "an attempt records when the run ended, not when that was written",
			ended_earlier },
	{ "a settlement under another fence is stale and changes nothing",
			wrong_fence },
	{ "a settlement by another node is stale and changes nothing", wrong_node },
	{ "a settlement of another delivery is stale", wrong_delivery },
	{ "a second settlement is stale and changes nothing", twice },
	{ "a second settlement in one batch is stale", twice_in_one_batch },
	{ "a stale settlement does not replace a later one of its batch",
			stale_before_good },
	{ "a settlement of a delivery that is not leased is stale", not_leased },
	{ "a stale settlement does not affect the others of its batch",
			stale_among_others },
	{ "a retried delivery is due after its delay, by the store's clock",
			due_again },
	{ "a delay can be ten years", longest_delay },
	{ "a returned lease does not count as a start", returned },
	{ "broken connections are counted until a delivery ends",
			breaks_are_counted },
	{ "attempts are stored with fence, times, outcome and error",
			attempts_are_kept },
	{ "the last fifty attempts are kept", attempts_are_capped },
	{ "attempts belong to one delivery", attempts_are_of_one_delivery },
	{ "the last error is kept until there is another", last_error_outlives },
	{ "the longest error is stored completely", longest_error },
	{ "poisoned and discarded deliveries have ended", other_ends },
	{ "settling one delivery does not change the others of its message",
			others_are_not_touched },
	{ "a message is complete when its last delivery has ended", complete },
	{ "a settlement is durable", settled_for_good },
	{ 0 },
};
