/* SPDX-License-Identifier: MIT */

/*
 * A wall clock that is set back, or that was wrong and is corrected: no pending
 * delivery may wait until the time that the clock showed before.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define DAY_MS INT64_C(86400000)

/* Claim the due delivery and make it pending again, due after `delay_ms`. */
static void retry_after(struct stand *stand, int64_t delay_ms) {
	int64_t handler = stand->handlers[0];
	struct postern_claims claims = stand_claim(stand, handler, 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(stand_settle(stand,
						  (struct postern_settlement){
								  .seq = claims.items[0].seq,
								  .handler = handler,
								  .fence = claims.items[0].fence,
								  .to = POSTERN_SETTLE_PENDING,
								  .delay_ms = delay_ms,
								  .failures = 1,
								  .outcome = "retry",
						  }),
				POSTERN_OK);
	}
}

/* Every delivery can be claimed now, the oldest message first. */
static void check_all_claimed(struct stand *stand, size_t count) {
	struct postern_claims claims = stand_claim(stand, stand->handlers[0], 100);
	CHECK_INT(claims.count, count);
	CHECK_INT(claims.next_due_ms, -1);
	for (size_t i = 1; i < claims.count; i++) {
		CHECK(claims.items[i].seq > claims.items[i - 1].seq);
	}
}

static void fresh_before_the_step(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept_many(&stand, 20, stand.handlers[0]);
	fake_clock_jump(&stand.clock, -DAY_MS);
	check_all_claimed(&stand, 20);
	stand_close(&stand);
}

static void fresh_around_the_step(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	fake_clock_jump(&stand.clock, -DAY_MS);
	/* The first write after the step must not hide the step from the claim. */
	stand_accept(&stand, "2", stand.handlers[0]);
	fake_clock_advance(&stand.clock, 10);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	if (CHECK_INT(claims.count, 2)) {
		/* The second has been due since it was accepted, the first since this
		   claim. */
		CHECK_STR(claims.items[0].message->id, "2");
		CHECK_STR(claims.items[1].message->id, "1");
	}
	stand_accept(&stand, "3", stand.handlers[0]);
	check_all_claimed(&stand, 1);
	stand_close(&stand);
}

static void retry_before_the_step(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	retry_after(&stand, 5000);
	fake_clock_jump(&stand.clock, -DAY_MS);
	/* Another handler's claim may detect the step. */
	CHECK_INT(stand_claim_wants(&stand, NULL, 0, 10).count, 0);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.next_at_ms, stand_now(&stand));
	CHECK_INT(row.leased_at_ms, 0);
	CHECK_INT(row.failures, 1);
	check_all_claimed(&stand, 1);
	stand_close(&stand);
}

static void retry_after_the_step(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_accept(&stand, "2", stand.handlers[0]);
	fake_clock_jump(&stand.clock, -DAY_MS);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .delay_ms = 5000,
							  .outcome = "retry",
					  }),
			POSTERN_OK);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_STR(claims.items[0].message->id, "2");
	}
	CHECK_INT(claims.next_due_ms, 5000);
	fake_clock_advance(&stand.clock, 4999);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 0);
	fake_clock_advance(&stand.clock, 1);
	check_all_claimed(&stand, 1);
	stand_close(&stand);
}

static void retry_long_before(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	retry_after(&stand, 60000);
	fake_clock_advance(&stand.clock, 30000);
	stand_accept(&stand, "2", stand.handlers[0]);
	/* The clock goes back to a time when the first was already pending. */
	fake_clock_jump(&stand.clock, -10000);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_STR(claims.items[0].message->id, "2");
	}
	CHECK_INT(claims.next_due_ms, 40000);
	stand_close(&stand);
}

static void steered_clock(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	retry_after(&stand, 5000);
	fake_clock_jump(&stand.clock, -20);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 0);
	CHECK_INT(claims.next_due_ms, 5020);
	stand_close(&stand);
}

/* A clock that goes back in steps that are each too small to detect. */
static void many_small_steps(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	retry_after(&stand, 5000);
	for (int i = 0; i < 10; i++) {
		fake_clock_jump(&stand.clock, -500);
		if (stand_claim(&stand, stand.handlers[0], 1).count == 1) {
			CHECK(i < 3);
			stand_close(&stand);
			return;
		}
	}
	FAIL("the delivery was not claimed after 10 steps");
	stand_close(&stand);
}

static void corrected_while_open(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	fake_clock_jump(&stand.clock, 365 * DAY_MS);
	stand_accept(&stand, "1", stand.handlers[0]);
	fake_clock_jump(&stand.clock, -364 * DAY_MS);
	check_all_claimed(&stand, 1);
	stand_close(&stand);
}

static void corrected_over_reopen(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	fake_clock_jump(&stand.clock, 365 * DAY_MS);
	stand_accept(&stand, "1", stand.handlers[0]);
	retry_after(&stand, 5000);
	stand_accept(&stand, "2", stand.handlers[0]);
	stand_accept_leased(&stand, "3", stand.handlers[0]);
	fake_clock_jump(&stand.clock, -365 * DAY_MS);
	stand_crash(&stand);
	CHECK_INT(stand_enrol_one(&stand, "a", NULL), stand.handlers[0]);
	CHECK_INT(stand_recover(&stand).released, 1);
	check_all_claimed(&stand, 3);
	stand_close(&stand);
}

static void waits_over_reopen(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	retry_after(&stand, 5000);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 0);
	CHECK_INT(claims.next_due_ms, 5000);
	stand_close(&stand);
}

static void pend_by_settlement(struct stand *stand) {
	stand_accept(stand, "1", stand->handlers[0]);
	retry_after(stand, 0);
}

static void pend_by_return(struct stand *stand) {
	int64_t seq = stand_accept_leased(stand, "1", stand->handlers[0]);
	CHECK_INT(stand_settle_to(stand, seq, stand->handlers[0], 1,
					  POSTERN_SETTLE_RETURNED),
			POSTERN_OK);
}

static void pend_by_retry(struct stand *stand) {
	int64_t seq = stand_accept(stand, "1", stand->handlers[0]);
	fake_clock_advance(&stand->clock, 10 * DAY_MS);
	CHECK_OK(stand_edit(stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
			&stand->error);
}

static void pend_by_reopening(struct stand *stand) {
	int64_t seq = stand_accept(stand, "1", stand->handlers[0]);
	stand_finish(stand, seq, stand->handlers[0], POSTERN_SETTLE_POISONED);
	CHECK_OK(stand_edit(stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
			&stand->error);
}

static void pend_by_duplicate(struct stand *stand) {
	struct parcel parcel;
	int64_t seq = stand_accept(stand, "1", stand->handlers[0]);
	stand_finish(stand, seq, stand->handlers[0], POSTERN_SETTLE_POISONED);
	parcel_init(&parcel, stand, "1", "body");
	parcel_add_route(&parcel, stand->handlers[0])->retry_poisoned = true;
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(parcel.routes[0].opened);
}

static void pend_by_recovery(struct stand *stand) {
	stand_accept_leased(stand, "1", stand->handlers[0]);
	stand_crash(stand);
	stand_enrol_one(stand, "a", NULL);
	CHECK_INT(stand_recover(stand).released, 1);
}

static size_t route_to_first(void *context, int64_t channel, const char *type,
		const struct postern_message *message, struct postern_route *routes,
		size_t max) {
	const struct stand *stand = context;
	(void)channel;
	(void)type;
	(void)max;
	(void)message;
	routes[0] = (struct postern_route){ .handler = stand->handlers[0] };
	return 1;
}

static void pend_by_unparking(struct stand *stand) {
	int64_t cursor = 0;
	uint64_t count = 0;
	stand_park(stand, "1");
	CHECK_OK(stand->ops->unpark(stand->store, route_to_first, stand, 100,
					 &cursor, &count, &stand->error),
			&stand->error);
	CHECK_INT(count, 1);
}

static void every_way(void) {
	static void (*const ways[])(struct stand * stand) = {
		pend_by_settlement,
		pend_by_return,
		pend_by_retry,
		pend_by_reopening,
		pend_by_duplicate,
		pend_by_recovery,
		pend_by_unparking,
	};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		struct stand stand;
		stand_open(&stand, "a", NULL);
		ways[i](&stand);
		fake_clock_jump(&stand.clock, -DAY_MS);
		check_all_claimed(&stand, 1);
		stand_close(&stand);
	}
}

const struct tap_case clock_cases[] = {
	{ "a message accepted before the clock went back is due at once",
			fresh_before_the_step },
	{ "a message accepted after the clock went back is due at once",
			fresh_around_the_step },
	{ "a retry scheduled before the clock went back is due at once",
			retry_before_the_step },
	{ "a retry scheduled after the clock went back waits for its delay",
			retry_after_the_step },
	{ "a retry scheduled before the time the clock went back to still waits",
			retry_long_before },
	{ "a clock that goes back by milliseconds shortens no delay",
			steered_clock },
	{ "a clock that goes back in small steps delays no delivery",
			many_small_steps },
	{ "a clock that was far in the future delays nothing when it is corrected",
			corrected_while_open },
	{ "a clock that is corrected while the store is closed delays nothing",
			corrected_over_reopen },
	{ "a retry still waits after a reopen if the clock is correct",
			waits_over_reopen },
	{ "a clock that goes back delays no delivery, however it became pending",
			every_way },
	{ 0 },
};
