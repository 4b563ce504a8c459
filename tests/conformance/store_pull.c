/* SPDX-License-Identifier: MIT */

/*
 * Pull leases: deliveries that are leased to workers outside of the nodes. The
 * lease belongs to the delivery, with its fence and its end.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define LEASE_MS 60000
#define HOUR_MS INT64_C(3600000)

static struct postern_claims pull(struct stand *stand, int64_t handler,
		uint32_t max) {
	const struct postern_want want = { .handler = handler, .max = max };
	return stand_claim_full(stand, &(struct postern_claim){
										   .node = POSTERN_NODE_PULL,
										   .wants = &want,
										   .want_count = 1,
										   .max = max,
										   .bytes_max = SIZE_MAX,
										   .lease_ms = LEASE_MS,
								   });
}

static struct postern_claims take_ended(struct stand *stand, int64_t handler,
		size_t max) {
	const struct postern_want want = { .handler = handler, .max = 100 };
	return stand_claim_full(stand, &(struct postern_claim){
										   .node = stand->node,
										   .wants = &want,
										   .want_count = 1,
										   .max = max,
										   .bytes_max = SIZE_MAX,
										   .ended = true,
								   });
}

/* Settle a pull lease; returns the code of the settlement. */
static int settle(struct stand *stand, int64_t seq, int64_t handler,
		uint64_t fence, enum postern_settle_to to) {
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = handler,
		.fence = fence,
		.to = to,
		.failures = to == POSTERN_SETTLE_DONE ? 0 : 1,
		.delay_ms = to == POSTERN_SETTLE_PENDING ? 1000 : 0,
		.outcome = to == POSTERN_SETTLE_DONE ? "done" : "retry",
	};
	struct postern_batch batch = {
		.node = POSTERN_NODE_PULL,
		.settlements = &settlement,
		.settlement_count = 1,
	};
	CHECK_OK(stand->ops->apply(stand->store, &batch, &stand->error),
			&stand->error);
	return settlement.code;
}

static struct postern_pull_row read_pull(struct stand *stand, int64_t seq,
		int64_t handler, uint64_t fence) {
	struct postern_pull_row row = {
		.seq = seq,
		.handler = handler,
		.fence = fence,
	};
	CHECK_OK(stand->ops->read_pulls(stand->store, &row, 1, stand->memory,
					 &stand->error),
			&stand->error);
	return row;
}

static int extend(struct stand *stand, int64_t seq, int64_t handler,
		uint64_t fence, int64_t lease_ms, int64_t *until_ms) {
	struct postern_pull_row row = {
		.seq = seq,
		.handler = handler,
		.fence = fence,
	};
	CHECK_OK(stand->ops->extend(stand->store, &row, lease_ms, until_ms,
					 &stand->error),
			&stand->error);
	return row.code;
}

static void claimed_once(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_many(&stand, 3, stand.handlers[0]);
	struct postern_claims claims = pull(&stand, stand.handlers[0], 2);
	CHECK_INT(claims.count, 2);
	CHECK_INT(claims.items[0].seq, seq);
	CHECK_INT(claims.items[0].fence, 1);
	CHECK_STR(claims.items[0].message->id, "m0");
	CHECK_INT(claims.next_due_ms, 0);
	claims = pull(&stand, stand.handlers[0], 2);
	CHECK_INT(claims.count, 1);
	CHECK_INT(claims.next_due_ms, -1);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_LEASED);
	CHECK(row.node == POSTERN_NODE_PULL);
	CHECK_INT(row.starts, 1);
	CHECK_INT(row.next_at_ms, stand_now(&stand) + LEASE_MS);
	stand_close(&stand);
}

static void nodes_leave_them(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 0);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void workers_leave_others(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 0);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 1, POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	CHECK_INT(read_pull(&stand, seq, stand.handlers[0], 1).code,
			POSTERN_E_STALE);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void paused_is_left(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	stand_pause(&stand, "a");
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 0);
	stand_resume(&stand, "a");
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	stand_close(&stand);
}

static void settled_by_fence(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 2, POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 1, POSTERN_SETTLE_DONE),
			POSTERN_OK);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 1, POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	stand_close(&stand);
}

static void fails_and_returns(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 1, POSTERN_SETTLE_PENDING),
			POSTERN_OK);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_PENDING);
	CHECK_INT(row.failures, 1);
	CHECK_INT(row.next_at_ms, stand_now(&stand) + 1000);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 0);
	fake_clock_advance(&stand.clock, 1000);
	struct postern_claims claims = pull(&stand, stand.handlers[0], 1);
	CHECK_INT(claims.count, 1);
	CHECK_INT(claims.items[0].fence, 2);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 2,
					  POSTERN_SETTLE_RETURNED),
			POSTERN_OK);
	row = stand_row(&stand, seq, "a");
	CHECK_INT(row.failures, 1);
	CHECK_INT(row.starts, 1);
	stand_close(&stand);
}

static void survives_nodes(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	int64_t end = stand_now(&stand) + LEASE_MS;
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 0);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_LEASED);
	CHECK_INT(row.next_at_ms, end);
	CHECK_INT(read_pull(&stand, seq, stand.handlers[0], 1).code, POSTERN_OK);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 1, POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand_close(&stand);
}

static void survives_a_lock(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	bool held = false;
	uint64_t fence = 0;
	CHECK_OK(stand.ops->lock(stand.store, "l", stand.node, 10000, &held, &fence,
					 &stand.error),
			&stand.error);
	const struct postern_lock lock = { .name = "l", .fence = fence };
	const struct postern_recovery recovery = {
		.node = stand.node,
		.lock = &lock,
		.max = 100,
	};
	struct postern_recovered recovered = { 0 };
	CHECK_OK(stand.ops->recover(stand.store, &recovery, &recovered,
					 &stand.error),
			&stand.error);
	CHECK_INT(recovered.released, 0);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 1, POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand_close(&stand);
}

static void ended_is_taken_over(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	stand_accept(&stand, "2", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	struct postern_claims claims = take_ended(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 0);
	CHECK_INT(claims.next_due_ms, LEASE_MS);
	fake_clock_advance(&stand.clock, LEASE_MS);
	/* Until it is taken over, its worker may settle it. */
	CHECK_INT(read_pull(&stand, seq, stand.handlers[0], 1).code, POSTERN_OK);
	claims = take_ended(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 1);
	CHECK_INT(claims.items[0].seq, seq);
	CHECK_INT(claims.items[0].fence, 2);
	CHECK_INT(claims.items[0].held_ms, LEASE_MS);
	CHECK_STR(claims.items[0].message->id, "1");
	CHECK_INT(claims.next_due_ms, -1);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK(row.node == stand.node);
	CHECK_INT(row.starts, 1);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 1, POSTERN_SETTLE_DONE),
			POSTERN_E_STALE);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 2,
					  POSTERN_SETTLE_DISCARDED),
			POSTERN_OK);
	stand_close(&stand);
}

static void ended_up_to_max(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	stand_accept_many(&stand, 3, stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 3).count, 3);
	fake_clock_advance(&stand.clock, LEASE_MS);
	CHECK_INT(take_ended(&stand, stand.handlers[1], 10).count, 0);
	stand_pause(&stand, "a");
	struct postern_claims claims = take_ended(&stand, stand.handlers[0], 2);
	CHECK_INT(claims.count, 2);
	CHECK_INT(claims.next_due_ms, 0);
	CHECK_INT(take_ended(&stand, stand.handlers[0], 2).count, 1);
	stand_close(&stand);
}

static void extended(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t until = 0;
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	fake_clock_advance(&stand.clock, LEASE_MS - 1);
	CHECK_INT(extend(&stand, seq, stand.handlers[0], 2, 5000, &until),
			POSTERN_E_STALE);
	CHECK_INT(extend(&stand, seq, stand.handlers[0], 1, 5000, &until),
			POSTERN_OK);
	CHECK_INT(until, stand_now(&stand) + 5000);
	fake_clock_advance(&stand.clock, 4999);
	struct postern_claims claims = take_ended(&stand, stand.handlers[0], 10);
	CHECK_INT(claims.count, 0);
	CHECK_INT(claims.next_due_ms, 1);
	/* One that has ended is extended, too, while nobody has taken it. */
	fake_clock_advance(&stand.clock, 1);
	CHECK_INT(extend(&stand, seq, stand.handlers[0], 1, 5000, &until),
			POSTERN_OK);
	fake_clock_advance(&stand.clock, 5000);
	CHECK_INT(take_ended(&stand, stand.handlers[0], 10).count, 1);
	until = 7;
	CHECK_INT(extend(&stand, seq, stand.handlers[0], 1, 5000, &until),
			POSTERN_E_STALE);
	CHECK_INT(extend(&stand, seq, stand.handlers[0], 2, 5000, &until),
			POSTERN_E_STALE);
	CHECK_INT(extend(&stand, seq + 1, stand.handlers[0], 1, 5000, &until),
			POSTERN_E_NOTFOUND);
	CHECK_INT(until, 7);
	stand_close(&stand);
}

static void read_as_stored(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	fake_clock_advance(&stand.clock, 1500);
	struct postern_pull_row row = read_pull(&stand, seq, stand.handlers[0], 1);
	CHECK_INT(row.code, POSTERN_OK);
	CHECK_INT(row.stored, stand.handlers[0]);
	CHECK_INT(row.channel, stand.orders);
	CHECK_INT(row.failures, 0);
	CHECK_INT(row.held_ms, 1500);
	CHECK_INT(row.ended, POSTERN_STATE_ANY);
	CHECK_STR(row.message_id, "1");
	CHECK_INT(read_pull(&stand, seq, stand.handlers[1], 1).code,
			POSTERN_E_NOTFOUND);
	CHECK_INT(read_pull(&stand, seq + 1, stand.handlers[0], 1).code,
			POSTERN_E_NOTFOUND);
	CHECK_INT(settle(&stand, seq, stand.handlers[0], 1, POSTERN_SETTLE_DONE),
			POSTERN_OK);
	row = read_pull(&stand, seq, stand.handlers[0], 1);
	CHECK_INT(row.code, POSTERN_E_STALE);
	CHECK_INT(row.ended, POSTERN_STATE_DONE);
	CHECK_INT(read_pull(&stand, seq, stand.handlers[0], 2).ended,
			POSTERN_STATE_ANY);
	stand_close(&stand);
}

static void under_an_alias(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	int64_t old = stand.handlers[0];
	int64_t seq = stand_accept(&stand, "1", old);
	stand_enrol_one(&stand, "new", NULL);
	CHECK_INT(pull(&stand, old, 1).count, 1);
	int64_t renamed = stand_enrol_one(&stand, "new", "old");
	struct postern_pull_row row = read_pull(&stand, seq, renamed, 1);
	CHECK_INT(row.code, POSTERN_OK);
	CHECK_INT(row.stored, old);
	int64_t until = 0;
	CHECK_INT(extend(&stand, seq, renamed, 1, 1000, &until), POSTERN_OK);
	fake_clock_advance(&stand.clock, 1000);
	struct postern_claims claims = take_ended(&stand, renamed, 10);
	CHECK_INT(claims.count, 1);
	CHECK_INT(claims.items[0].handler, old);
	CHECK_INT(claims.items[0].want, 0);
	stand_close(&stand);
}

static void abandoned_is_recovered(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	fake_clock_advance(&stand.clock, LEASE_MS + HOUR_MS - 1);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 0);
	fake_clock_advance(&stand.clock, 1);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	/* Each process reads all leases once, not at its first recovery. */
	for (int i = 0; i < 3; i++) {
		stand_recover(&stand);
	}
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void recovered_later(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	/* The process goes on, and recovers now and then. */
	for (int i = 0; i < 5; i++) {
		CHECK_INT(stand_recover(&stand).released, 0);
	}
	fake_clock_advance(&stand.clock, LEASE_MS + HOUR_MS - 1);
	CHECK_INT(stand_recover(&stand).released, 0);
	fake_clock_advance(&stand.clock, 1);
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_recover(&stand).released, 0);
	stand_close(&stand);
}

static void recovered_under_a_lock(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	bool held = false;
	uint64_t fence = 0;
	CHECK_OK(stand.ops->lock(stand.store, "l", stand.node, 10 * HOUR_MS, &held,
					 &fence, &stand.error),
			&stand.error);
	const struct postern_lock lock = { .name = "l", .fence = fence };
	const struct postern_recovery recovery = {
		.node = stand.node,
		.lock = &lock,
		.max = 100,
	};
	for (int i = 0; i < 5; i++) {
		struct postern_recovered recovered = { 0 };
		CHECK_OK(stand.ops->recover(stand.store, &recovery, &recovered,
						 &stand.error),
				&stand.error);
		CHECK_INT(recovered.released, i == 4);
		fake_clock_advance(&stand.clock, i == 3 ? LEASE_MS + HOUR_MS : 0);
	}
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void clock_set_back(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	fake_clock_jump(&stand.clock, -HOUR_MS);
	/* A claim sees that, and the lease is as long as before. */
	stand_claim(&stand, stand.handlers[0], 1);
	CHECK_INT(take_ended(&stand, stand.handlers[0], 10).next_due_ms, LEASE_MS);
	fake_clock_advance(&stand.clock, LEASE_MS);
	CHECK_INT(take_ended(&stand, stand.handlers[0], 10).count, 1);
	stand_close(&stand);
}

static void held_for_no_less_than_nothing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	fake_clock_jump(&stand.clock, -HOUR_MS);
	CHECK_INT(read_pull(&stand, seq, stand.handlers[0], 1).held_ms, 0);
	stand_close(&stand);
}

static void counted_as_leased(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept_many(&stand, 2, stand.handlers[0]);
	CHECK_INT(pull(&stand, stand.handlers[0], 1).count, 1);
	struct postern_handler_stats stats = stand_handler_stats(&stand, "a");
	CHECK_INT(stats.pending, 1);
	CHECK_INT(stats.leased, 1);
	struct postern_stats all = stand_stats(&stand);
	for (size_t i = 0; i < all.node_count; i++) {
		CHECK_INT(all.nodes[i].leased, 0);
	}
	stand_close(&stand);
}

const struct tap_case pull_cases[] = {
	{ "a delivery is claimed for one worker, with the end of its lease",
			claimed_once },
	{ "a node neither claims nor settles what a worker has", nodes_leave_them },
	{ "a worker neither claims nor settles what a node has",
			workers_leave_others },
	{ "workers get nothing of a paused handler", paused_is_left },
	{ "a pull lease is settled under its fence, once", settled_by_fence },
	{ "a worker's failure is due again after its delay", fails_and_returns },
	{ "a pull lease survives the death of the process", survives_nodes },
	{ "the owner of a lock does not recover pull leases", survives_a_lock },
	{ "an ended pull lease is taken over under a higher fence",
			ended_is_taken_over },
	{ "ended pull leases are taken over up to the maximum, also while paused",
			ended_up_to_max },
	{ "a pull lease is extended under its fence", extended },
	{ "a pull lease is read with what settles it", read_as_stored },
	{ "a pull lease under an alias belongs to the handler", under_an_alias },
	{ "a pull lease that ended an hour ago is recovered by a process that runs",
			recovered_later },
	{ "a pull lease that ended an hour ago is recovered by the owner of a lock",
			recovered_under_a_lock },
	{ "a pull lease that ended an hour ago is recovered",
			abandoned_is_recovered },
	{ "a pull lease does not become longer if the clock is set back",
			clock_set_back },
	{ "no worker has a delivery since a time in the future",
			held_for_no_less_than_nothing },
	{ "a pull lease is counted as leased, by no node", counted_as_leased },
	{ 0 },
};
