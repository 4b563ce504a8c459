/* SPDX-License-Identifier: MIT */

/*
 * Nodes and locks: who is alive, who may, and what becomes of one that slept
 * past its end.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define TTL_MS 1000
#define DAY_MS INT64_C(86400000)
#define OTHER(stand) ((stand)->node + 50)

static bool take_lock(struct stand *stand, uint64_t node, uint64_t *fence) {
	bool held = false;
	CHECK_OK(stand->ops->lock(stand->store, "l", node, TTL_MS, &held, fence,
					 &stand->error),
			&stand->error);
	return held;
}

static void let_go(struct stand *stand, uint64_t node, uint64_t fence) {
	struct postern_lock lock = { .name = "l", .fence = fence };
	CHECK_OK(stand->ops->unlock(stand->store, &lock, node, &stand->error),
			&stand->error);
}

static bool renew(struct stand *stand, uint64_t node, int64_t ttl_ms) {
	bool alive = false;
	CHECK_OK(stand->ops->renew(stand->store, node, ttl_ms, &alive,
					 &stand->error),
			&stand->error);
	return alive;
}

static void one_at_a_time(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	CHECK(take_lock(&stand, stand.node, &first));
	CHECK(first > 0);
	fake_clock_advance(&stand.clock, TTL_MS - 1);
	CHECK(!take_lock(&stand, OTHER(&stand), &second));
	CHECK_INT(second, 0);
	stand_close(&stand);
}

static void kept_with_its_fence(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t again = 0;
	CHECK(take_lock(&stand, stand.node, &first));
	for (int i = 0; i < 5; i++) {
		fake_clock_advance(&stand.clock, TTL_MS - 1);
		CHECK(take_lock(&stand, stand.node, &again));
		CHECK_INT(again, first);
	}
	CHECK(!take_lock(&stand, OTHER(&stand), &again));
	stand_close(&stand);
}

static void time_is_over(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	uint64_t third = 0;
	CHECK(take_lock(&stand, stand.node, &first));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(take_lock(&stand, OTHER(&stand), &second));
	CHECK(second > first);
	CHECK(!take_lock(&stand, stand.node, &third));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(take_lock(&stand, stand.node, &third));
	CHECK(third > second);
	stand_close(&stand);
}

static void late_but_nobody_came(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t again = 0;
	CHECK(take_lock(&stand, stand.node, &first));
	fake_clock_advance(&stand.clock, 10 * TTL_MS);
	CHECK(take_lock(&stand, stand.node, &again));
	CHECK_INT(again, first);
	stand_close(&stand);
}

static void let_go_of(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	CHECK(take_lock(&stand, stand.node, &first));
	let_go(&stand, stand.node, first);
	CHECK(take_lock(&stand, OTHER(&stand), &second));
	CHECK(second > first);
	stand_close(&stand);
}

static void not_ours_to_let_go(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	uint64_t third = 0;
	CHECK(take_lock(&stand, stand.node, &first));
	let_go(&stand, OTHER(&stand), first);
	let_go(&stand, stand.node, first + 1);
	CHECK(!take_lock(&stand, OTHER(&stand), &second));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(take_lock(&stand, OTHER(&stand), &second));
	let_go(&stand, stand.node, first);
	let_go(&stand, stand.node, second);
	CHECK(!take_lock(&stand, stand.node, &third));
	stand_close(&stand);
}

static void fence_outlives_all(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	CHECK(take_lock(&stand, stand.node, &first));
	stand_crash(&stand);
	/* A process that has only just come must find the lock late for its whole
	   time, unless opening the store has freed it. */
	fake_clock_advance(&stand.clock, TTL_MS);
	if (!take_lock(&stand, stand.node, &second)) {
		fake_clock_advance(&stand.clock, TTL_MS);
		CHECK(take_lock(&stand, stand.node, &second));
	}
	CHECK(second > first);
	stand_close(&stand);
}

static void locks_apart(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t fence = 0;
	bool held = false;
	CHECK(take_lock(&stand, stand.node, &fence));
	CHECK_OK(stand.ops->lock(stand.store, "another", OTHER(&stand), TTL_MS,
					 &held, &fence, &stand.error),
			&stand.error);
	CHECK(held);
	stand_close(&stand);
}

static void lock_and_clock(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t fence = 0;
	CHECK(take_lock(&stand, stand.node, &fence));
	fake_clock_jump(&stand.clock, -DAY_MS);
	CHECK(!take_lock(&stand, OTHER(&stand), &fence));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(take_lock(&stand, OTHER(&stand), &fence));
	stand_close(&stand);
}

/* The stand's node has lost the lock to the other one. */
static struct postern_lock lose_lock(struct stand *stand) {
	uint64_t first = 0;
	uint64_t second = 0;
	CHECK(take_lock(stand, stand->node, &first));
	fake_clock_advance(&stand->clock, TTL_MS);
	CHECK(take_lock(stand, OTHER(stand), &second));
	return (struct postern_lock){ .name = "l", .fence = first };
}

static void lost_settles_nothing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct postern_lock lock = lose_lock(&stand);
	static const enum postern_settle_to ways[] = { POSTERN_SETTLE_DONE,
		POSTERN_SETTLE_POISONED, POSTERN_SETTLE_DISCARDED,
		POSTERN_SETTLE_PENDING, POSTERN_SETTLE_RETURNED };
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		struct postern_settlement settlement = {
			.seq = seq,
			.handler = stand.handlers[0],
			.fence = 1,
			.to = ways[i],
			.outcome = "done",
		};
		struct postern_batch batch = {
			.node = stand.node,
			.lock = &lock,
			.settlements = &settlement,
			.settlement_count = 1,
		};
		CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error),
				&stand.error);
		CHECK_INT(settlement.code, POSTERN_E_STALE);
		CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	}
	stand_close(&stand);
}

static void held_settles(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct postern_lock lock = { .name = "l" };
	CHECK(take_lock(&stand, stand.node, &lock.fence));
	/* Late, but nobody came: time decides when, never whether. */
	fake_clock_advance(&stand.clock, 10 * TTL_MS);
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = stand.handlers[0],
		.fence = 1,
		.to = POSTERN_SETTLE_DONE,
		.outcome = "done",
	};
	struct postern_batch batch = {
		.node = stand.node,
		.lock = &lock,
		.settlements = &settlement,
		.settlement_count = 1,
	};
	CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error), &stand.error);
	CHECK_INT(settlement.code, POSTERN_OK);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	stand_close(&stand);
}

static void lost_leases_nothing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct postern_lock lock = lose_lock(&stand);
	struct parcel parcel;
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	parcel.accept.message = &parcel.message;
	parcel.accept.routes = parcel.routes;
	struct postern_batch batch = {
		.node = stand.node,
		.lock = &lock,
		.accepts = &parcel.accept,
		.accept_count = 1,
	};
	CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error), &stand.error);
	CHECK_INT(parcel.accept.code, POSTERN_OK);
	CHECK(parcel.routes[0].opened);
	CHECK(!parcel.routes[0].leased);
	CHECK_INT(parcel.routes[0].fence, 0);
	CHECK_INT(stand_state(&stand, parcel.accept.seq, "a"),
			POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void lost_claims_nothing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	struct postern_lock lock = lose_lock(&stand);
	struct postern_want want = { .handler = stand.handlers[0], .max = 10 };
	struct postern_claim claim = {
		.node = stand.node,
		.lock = &lock,
		.wants = &want,
		.want_count = 1,
		.max = 10,
		.bytes_max = 1000,
	};
	struct postern_claims claims;
	CHECK_INT(stand.ops->claim(stand.store, &claim, stand.memory, &claims,
					  &stand.error),
			POSTERN_E_STALE);
	CHECK_CONTAINS(stand.error.text, "lock");
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static int recover_under(struct stand *stand, uint64_t node,
		const struct postern_lock *lock, struct postern_recovered *out) {
	struct postern_recovery recovery = {
		.node = node,
		.lock = lock,
		.max = 100,
	};
	return stand->ops->recover(stand->store, &recovery, out, &stand->error);
}

static void lost_recovers_nothing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct postern_recovered recovered;
	uint64_t fence = 0;
	CHECK(take_lock(&stand, stand.node, &fence));
	struct postern_lock lock = { .name = "l", .fence = fence };
	CHECK_INT(recover_under(&stand, OTHER(&stand), &lock, &recovered),
			POSTERN_E_STALE);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

/* A store that knows nothing is left to recover still asks by what right. */
static void lost_after_recovery(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct postern_recovered recovered;
	struct postern_lock lock = { .name = "l" };
	uint64_t second = 0;
	CHECK(take_lock(&stand, stand.node, &lock.fence));
	CHECK_OK(recover_under(&stand, stand.node, &lock, &recovered),
			&stand.error);
	CHECK_OK(recover_under(&stand, stand.node, &lock, &recovered),
			&stand.error);
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(take_lock(&stand, OTHER(&stand), &second));
	CHECK_INT(recover_under(&stand, stand.node, &lock, &recovered),
			POSTERN_E_STALE);
	stand_close(&stand);
}

static void owner_takes_all(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand.node = OTHER(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 0);
	struct postern_lock lock = { .name = "l" };
	struct postern_recovered recovered = { 0 };
	CHECK(take_lock(&stand, stand.node, &lock.fence));
	int64_t own = stand_accept_leased(&stand, "2", stand.handlers[0]);
	CHECK_OK(recover_under(&stand, stand.node, &lock, &recovered),
			&stand.error);
	CHECK_INT(recovered.released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_state(&stand, own, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

/* A node beside the stand's, with a lease of its own. */
static void enrol_node(struct stand *stand, uint64_t node) {
	struct postern_enrol_handler handler = { .key = "a" };
	struct postern_enrolment enrolment = {
		.node = node,
		.node_lease_ms = TTL_MS,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(stand->ops->enrol(stand->store, &enrolment, &stand->error),
			&stand->error);
}

static int64_t accept_leased_as(struct stand *stand, uint64_t node,
		const char *id) {
	uint64_t former = stand->node;
	stand->node = node;
	int64_t seq = stand_accept_leased(stand, id, stand->handlers[0]);
	stand->node = former;
	return seq;
}

/* The same, with one delivery. */
static int64_t add_node(struct stand *stand, uint64_t node, const char *id) {
	enrol_node(stand, node);
	return accept_leased_as(stand, node, id);
}

static void renewed_in_time(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = add_node(&stand, OTHER(&stand), "1");
	for (int i = 0; i < 5; i++) {
		fake_clock_advance(&stand.clock, TTL_MS - 1);
		CHECK(renew(&stand, OTHER(&stand), TTL_MS));
		CHECK_INT(stand_recover(&stand).released, 0);
	}
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void too_late(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = add_node(&stand, OTHER(&stand), "1");
	int64_t own = stand_accept_leased(&stand, "2", stand.handlers[0]);
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_state(&stand, own, "a"), POSTERN_STATE_LEASED);
	CHECK(!renew(&stand, OTHER(&stand), TTL_MS));
	stand_close(&stand);
}

/* There was nothing to recover before the other node came. */
static void found_after_accept(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 0);
	int64_t seq = add_node(&stand, OTHER(&stand), "1");
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void found_after_claim(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(stand_recover(&stand).released, 0);
	enrol_node(&stand, OTHER(&stand));
	uint64_t node = stand.node;
	stand.node = OTHER(&stand);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 1);
	stand.node = node;
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

/* It does not know yet that it is gone. */
static void found_after_its_end(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	enrol_node(&stand, OTHER(&stand));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK_INT(stand_recover(&stand).released, 0);
	/* A store may refuse it the lease; then there is nothing to be found. */
	int64_t seq = accept_leased_as(&stand, OTHER(&stand), "1");
	bool leased = stand_state(&stand, seq, "a") == POSTERN_STATE_LEASED;
	CHECK_INT(stand_recover(&stand).released, leased);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void late_and_not_missed(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = add_node(&stand, OTHER(&stand), "1");
	fake_clock_advance(&stand.clock, 10 * TTL_MS);
	CHECK(renew(&stand, OTHER(&stand), TTL_MS));
	CHECK_INT(stand_recover(&stand).released, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void ended(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = add_node(&stand, OTHER(&stand), "1");
	CHECK(renew(&stand, OTHER(&stand), 0));
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK(!renew(&stand, OTHER(&stand), TTL_MS));
	stand_close(&stand);
}

static void never_enrolled(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	CHECK(!renew(&stand, OTHER(&stand), TTL_MS));
	stand_close(&stand);
}

static void whoever_recovers_lives(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	uint64_t node = OTHER(&stand);
	int64_t seq = add_node(&stand, node, "1");
	fake_clock_advance(&stand.clock, 10 * TTL_MS);
	struct postern_recovered recovered = { 0 };
	CHECK_OK(recover_under(&stand, node, NULL, &recovered), &stand.error);
	CHECK_INT(recovered.released, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	CHECK(renew(&stand, node, TTL_MS));
	stand_close(&stand);
}

static void node_and_clock(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = add_node(&stand, OTHER(&stand), "1");
	fake_clock_jump(&stand.clock, -DAY_MS);
	CHECK_INT(stand_recover(&stand).released, 0);
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

const struct tap_case tenure_cases[] = {
	{ "a lock has one owner at a time", one_at_a_time },
	{ "a lock that is kept keeps its fence", kept_with_its_fence },
	{ "a lock whose time is over is taken with a higher fence", time_is_over },
	{ "an owner that is late keeps a lock that nobody took",
			late_but_nobody_came },
	{ "a lock that was let go is taken with a higher fence", let_go_of },
	{ "a lock is let go by its owner under its fence only",
			not_ours_to_let_go },
	{ "the fence of a lock outlives its owners", fence_outlives_all },
	{ "locks of different names are apart", locks_apart },
	{ "a clock that goes back keeps no lock for longer than its time",
			lock_and_clock },
	{ "under a lost lock nothing is settled", lost_settles_nothing },
	{ "under a lock that nobody took everything is settled", held_settles },
	{ "under a lost lock a message is accepted and not leased",
			lost_leases_nothing },
	{ "under a lost lock nothing is claimed", lost_claims_nothing },
	{ "under a lost lock nothing is recovered", lost_recovers_nothing },
	{ "under a lost lock even an empty recovery is refused",
			lost_after_recovery },
	{ "the owner of a lock takes all leases but its own", owner_takes_all },
	{ "a node that renews itself in time keeps its leases", renewed_in_time },
	{ "a node that is too late loses its leases and is gone", too_late },
	{ "what a node leased by accepting is found when it is gone",
			found_after_accept },
	{ "what a node leased by claiming is found when it is gone",
			found_after_claim },
	{ "what a node leases after it was found gone is found, too",
			found_after_its_end },
	{ "a node that is late and was not missed lives on", late_and_not_missed },
	{ "a node that has ended is gone at once", ended },
	{ "a node that never enrolled is not alive", never_enrolled },
	{ "whoever recovers is alive", whoever_recovers_lives },
	{ "a clock that goes back keeps no dead node alive", node_and_clock },
	{ 0 },
};
