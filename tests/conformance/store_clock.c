/* SPDX-License-Identifier: MIT */

/*
 * A wall clock that is set back, or was wrong and is set right: nothing that
 * is pending may wait for the time it stood at before.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define DAY_MS INT64_C(86400000)

/* Lease what is due and make it pending again, due after so long. */
static void put_off(struct stand *stand, int64_t delay_ms) {
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

/* Everything can be claimed now, the oldest message first. */
static void check_claimed(struct stand *stand, size_t count) {
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
	check_claimed(&stand, 20);
	stand_close(&stand);
}

static void fresh_around_the_step(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	fake_clock_jump(&stand.clock, -DAY_MS);
	/* Whoever writes first after the step may not hide it from the claim. */
	stand_accept(&stand, "2", stand.handlers[0]);
	fake_clock_advance(&stand.clock, 10);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	if (CHECK_INT(claims.count, 2)) {
		/* The second has been due since it came, the first since now. */
		CHECK_STR(claims.items[0].message->id, "2");
		CHECK_STR(claims.items[1].message->id, "1");
	}
	stand_accept(&stand, "3", stand.handlers[0]);
	check_claimed(&stand, 1);
	stand_close(&stand);
}

static void retry_before_the_step(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	put_off(&stand, 5000);
	fake_clock_jump(&stand.clock, -DAY_MS);
	/* Another handler's claim may be the one that finds out. */
	CHECK_INT(stand_claim_wants(&stand, NULL, 0, 10).count, 0);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.next_at_ms, stand_now(&stand));
	CHECK_INT(row.leased_at_ms, 0);
	CHECK_INT(row.failures, 1);
	check_claimed(&stand, 1);
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
	check_claimed(&stand, 1);
	stand_close(&stand);
}

static void retry_long_before(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	put_off(&stand, 60000);
	fake_clock_advance(&stand.clock, 30000);
	stand_accept(&stand, "2", stand.handlers[0]);
	/* Back to a time when the first was pending already. */
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
	put_off(&stand, 5000);
	fake_clock_jump(&stand.clock, -20);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 0);
	CHECK_INT(claims.next_due_ms, 5020);
	stand_close(&stand);
}

/* A clock that drifts back in steps too small to notice, one by one. */
static void many_small_steps(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	put_off(&stand, 5000);
	for (int i = 0; i < 10; i++) {
		fake_clock_jump(&stand.clock, -500);
		if (stand_claim(&stand, stand.handlers[0], 1).count == 1) {
			CHECK(i < 3);
			stand_close(&stand);
			return;
		}
	}
	FAIL("not claimed");
	stand_close(&stand);
}

static void corrected_while_open(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	fake_clock_jump(&stand.clock, 365 * DAY_MS);
	stand_accept(&stand, "1", stand.handlers[0]);
	fake_clock_jump(&stand.clock, -364 * DAY_MS);
	check_claimed(&stand, 1);
	stand_close(&stand);
}

static void corrected_over_reopen(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	fake_clock_jump(&stand.clock, 365 * DAY_MS);
	stand_accept(&stand, "1", stand.handlers[0]);
	put_off(&stand, 5000);
	stand_accept(&stand, "2", stand.handlers[0]);
	stand_accept_leased(&stand, "3", stand.handlers[0]);
	fake_clock_jump(&stand.clock, -365 * DAY_MS);
	stand_crash(&stand);
	CHECK_INT(stand_enrol_one(&stand, "a", NULL), stand.handlers[0]);
	CHECK_INT(stand_recover(&stand).released, 1);
	check_claimed(&stand, 3);
	stand_close(&stand);
}

static void waits_over_reopen(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	put_off(&stand, 5000);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 0);
	CHECK_INT(claims.next_due_ms, 5000);
	stand_close(&stand);
}

static void way_settled(struct stand *stand) {
	stand_accept(stand, "1", stand->handlers[0]);
	put_off(stand, 0);
}

static void way_returned(struct stand *stand) {
	int64_t seq = stand_accept_leased(stand, "1", stand->handlers[0]);
	CHECK_INT(stand_settle_to(stand, seq, stand->handlers[0], 1,
					  POSTERN_SETTLE_RETURNED),
			POSTERN_OK);
}

static void way_retried(struct stand *stand) {
	int64_t seq = stand_accept(stand, "1", stand->handlers[0]);
	fake_clock_advance(&stand->clock, 10 * DAY_MS);
	CHECK_OK(stand_edit(stand, POSTERN_EDIT_RETRY, seq, "a", NULL),
			&stand->error);
}

static void way_opened_again(struct stand *stand) {
	int64_t seq = stand_accept(stand, "1", stand->handlers[0]);
	stand_finish(stand, seq, stand->handlers[0], POSTERN_SETTLE_POISONED);
	CHECK_OK(stand_edit(stand, POSTERN_EDIT_RETRY, seq, "a", NULL),
			&stand->error);
}

static void way_duplicate(struct stand *stand) {
	struct parcel parcel;
	int64_t seq = stand_accept(stand, "1", stand->handlers[0]);
	stand_finish(stand, seq, stand->handlers[0], POSTERN_SETTLE_POISONED);
	parcel_init(&parcel, stand, "1", "body");
	parcel_add_route(&parcel, stand->handlers[0])->retry_poisoned = true;
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(parcel.routes[0].opened);
}

static void way_recovered(struct stand *stand) {
	stand_accept_leased(stand, "1", stand->handlers[0]);
	stand_crash(stand);
	stand_enrol_one(stand, "a", NULL);
	CHECK_INT(stand_recover(stand).released, 1);
}

static size_t route(void *context, int64_t channel, const char *type,
		struct postern_route *routes, size_t max) {
	const struct stand *stand = context;
	(void)channel;
	(void)type;
	(void)max;
	routes[0] = (struct postern_route){ .handler = stand->handlers[0] };
	return 1;
}

static void way_unparked(struct stand *stand) {
	int64_t cursor = 0;
	uint64_t count = 0;
	stand_park(stand, "1");
	CHECK_OK(stand->ops->unpark(stand->store, route, stand, 100, &cursor,
					 &count, &stand->error),
			&stand->error);
	CHECK_INT(count, 1);
}

static void every_way(void) {
	static void (*const ways[])(struct stand * stand) = {
		way_settled,
		way_returned,
		way_retried,
		way_opened_again,
		way_duplicate,
		way_recovered,
		way_unparked,
	};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		struct stand stand;
		stand_open(&stand, "a", NULL);
		ways[i](&stand);
		fake_clock_jump(&stand.clock, -DAY_MS);
		check_claimed(&stand, 1);
		stand_close(&stand);
	}
}

const struct tap_case clock_cases[] = {
	{ "what came before the clock went back is due at once",
			fresh_before_the_step },
	{ "what comes after the clock went back is due at once too",
			fresh_around_the_step },
	{ "a retry set before the clock went back is due at once",
			retry_before_the_step },
	{ "a retry set after the clock went back waits for its delay",
			retry_after_the_step },
	{ "a retry set before the time the clock went back to still waits",
			retry_long_before },
	{ "a clock that is back by milliseconds cuts no delay short",
			steered_clock },
	{ "a clock that goes back little by little hides nothing",
			many_small_steps },
	{ "a clock far in the future hides nothing when it is set right",
			corrected_while_open },
	{ "a clock far in the future that is set right over a reopen hides nothing",
			corrected_over_reopen },
	{ "a retry waits over a reopen if the clock is right", waits_over_reopen },
	{ "a clock that goes back hides nothing, however it became pending",
			every_way },
	{ 0 },
};
