/* SPDX-License-Identifier: MIT */

/*
 * Locks and node leases: which node is live, which one holds a lock, and what
 * happens to a node or an owner that is late.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define TTL_MS 1000
#define DAY_MS INT64_C(86400000)
#define OTHER(stand) ((stand)->node + 50)

static bool acquire_lock(struct stand *stand, uint64_t node, uint64_t *fence) {
	bool held = false;
	CHECK_OK(stand->ops->lock(stand->store, "l", node, TTL_MS, &held, fence,
					 &stand->error),
			&stand->error);
	return held;
}

static void release_lock(struct stand *stand, uint64_t node, uint64_t fence) {
	struct postern_lock lock = { .name = "l", .fence = fence };
	CHECK_OK(stand->ops->unlock(stand->store, &lock, node, &stand->error),
			&stand->error);
}

static bool renew_node_lease(struct stand *stand, uint64_t node,
		int64_t ttl_ms) {
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
	CHECK(acquire_lock(&stand, stand.node, &first));
	CHECK(first > 0);
	fake_clock_advance(&stand.clock, TTL_MS - 1);
	CHECK(!acquire_lock(&stand, OTHER(&stand), &second));
	CHECK_INT(second, 0);
	stand_close(&stand);
}

static void kept_with_its_fence(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t again = 0;
	CHECK(acquire_lock(&stand, stand.node, &first));
	for (int i = 0; i < 5; i++) {
		fake_clock_advance(&stand.clock, TTL_MS - 1);
		CHECK(acquire_lock(&stand, stand.node, &again));
		CHECK_INT(again, first);
	}
	CHECK(!acquire_lock(&stand, OTHER(&stand), &again));
	stand_close(&stand);
}

static void time_is_over(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	uint64_t third = 0;
	CHECK(acquire_lock(&stand, stand.node, &first));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(acquire_lock(&stand, OTHER(&stand), &second));
	CHECK(second > first);
	CHECK(!acquire_lock(&stand, stand.node, &third));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(acquire_lock(&stand, stand.node, &third));
	CHECK(third > second);
	stand_close(&stand);
}

static void late_but_not_replaced(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t again = 0;
	CHECK(acquire_lock(&stand, stand.node, &first));
	fake_clock_advance(&stand.clock, 10 * TTL_MS);
	CHECK(acquire_lock(&stand, stand.node, &again));
	CHECK_INT(again, first);
	stand_close(&stand);
}

static void released(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	CHECK(acquire_lock(&stand, stand.node, &first));
	release_lock(&stand, stand.node, first);
	CHECK(acquire_lock(&stand, OTHER(&stand), &second));
	CHECK(second > first);
	stand_close(&stand);
}

static void released_by_others(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	uint64_t third = 0;
	CHECK(acquire_lock(&stand, stand.node, &first));
	release_lock(&stand, OTHER(&stand), first);
	release_lock(&stand, stand.node, first + 1);
	CHECK(!acquire_lock(&stand, OTHER(&stand), &second));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(acquire_lock(&stand, OTHER(&stand), &second));
	release_lock(&stand, stand.node, first);
	release_lock(&stand, stand.node, second);
	CHECK(!acquire_lock(&stand, stand.node, &third));
	stand_close(&stand);
}

static void fence_outlives_all(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t first = 0;
	uint64_t second = 0;
	CHECK(acquire_lock(&stand, stand.node, &first));
	stand_crash(&stand);
	/* A new process must see the lock unrenewed for its whole time, unless
	   opening the store released it. */
	fake_clock_advance(&stand.clock, TTL_MS);
	if (!acquire_lock(&stand, stand.node, &second)) {
		fake_clock_advance(&stand.clock, TTL_MS);
		CHECK(acquire_lock(&stand, stand.node, &second));
	}
	CHECK(second > first);
	stand_close(&stand);
}

static void locks_apart(void) {
	struct stand stand;
	stand_open(&stand, NULL);
	uint64_t fence = 0;
	bool held = false;
	CHECK(acquire_lock(&stand, stand.node, &fence));
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
	CHECK(acquire_lock(&stand, stand.node, &fence));
	fake_clock_jump(&stand.clock, -DAY_MS);
	CHECK(!acquire_lock(&stand, OTHER(&stand), &fence));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(acquire_lock(&stand, OTHER(&stand), &fence));
	stand_close(&stand);
}

/* The stand's node loses the lock to the other node. */
static struct postern_lock lose_lock(struct stand *stand) {
	uint64_t first = 0;
	uint64_t second = 0;
	CHECK(acquire_lock(stand, stand->node, &first));
	fake_clock_advance(&stand->clock, TTL_MS);
	CHECK(acquire_lock(stand, OTHER(stand), &second));
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
	CHECK(acquire_lock(&stand, stand.node, &lock.fence));
	/* Late, but no other node acquired it: the fence decides, not the time. */
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
	parcel_pack(&parcel);
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
	CHECK(acquire_lock(&stand, stand.node, &fence));
	struct postern_lock lock = { .name = "l", .fence = fence };
	CHECK_INT(recover_under(&stand, OTHER(&stand), &lock, &recovered),
			POSTERN_E_STALE);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

/* A store that knows that there is nothing to recover still checks the lock. */
static void lost_after_recovery(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct postern_recovered recovered;
	struct postern_lock lock = { .name = "l" };
	uint64_t second = 0;
	CHECK(acquire_lock(&stand, stand.node, &lock.fence));
	CHECK_OK(recover_under(&stand, stand.node, &lock, &recovered),
			&stand.error);
	CHECK_OK(recover_under(&stand, stand.node, &lock, &recovered),
			&stand.error);
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK(acquire_lock(&stand, OTHER(&stand), &second));
	CHECK_INT(recover_under(&stand, stand.node, &lock, &recovered),
			POSTERN_E_STALE);
	stand_close(&stand);
}

static void owner_recovers_all(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand.node = OTHER(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_recover(&stand).released, 0);
	struct postern_lock lock = { .name = "l" };
	struct postern_recovered recovered = { 0 };
	CHECK(acquire_lock(&stand, stand.node, &lock.fence));
	int64_t own = stand_accept_leased(&stand, "2", stand.handlers[0]);
	CHECK_OK(recover_under(&stand, stand.node, &lock, &recovered),
			&stand.error);
	CHECK_INT(recovered.released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_state(&stand, own, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

/* Enrol another node than the stand's, with a node lease. */
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

/* Enrol another node that has one lease. */
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
		CHECK(renew_node_lease(&stand, OTHER(&stand), TTL_MS));
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
	CHECK(!renew_node_lease(&stand, OTHER(&stand), TTL_MS));
	stand_close(&stand);
}

/* There was nothing to recover before the other node enrolled. */
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

/* The node does not know yet that it is expired. */
static void found_after_its_end(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	enrol_node(&stand, OTHER(&stand));
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK_INT(stand_recover(&stand).released, 0);
	/* A store may refuse the lease; then there is nothing to recover. */
	int64_t seq = accept_leased_as(&stand, OTHER(&stand), "1");
	bool leased = stand_state(&stand, seq, "a") == POSTERN_STATE_LEASED;
	CHECK_INT(stand_recover(&stand).released, leased);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void late_and_not_expired(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = add_node(&stand, OTHER(&stand), "1");
	fake_clock_advance(&stand.clock, 10 * TTL_MS);
	CHECK(renew_node_lease(&stand, OTHER(&stand), TTL_MS));
	CHECK_INT(stand_recover(&stand).released, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	stand_close(&stand);
}

static void ended(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = add_node(&stand, OTHER(&stand), "1");
	CHECK(renew_node_lease(&stand, OTHER(&stand), 0));
	CHECK_INT(stand_recover(&stand).released, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK(!renew_node_lease(&stand, OTHER(&stand), TTL_MS));
	stand_close(&stand);
}

static void never_enrolled(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	CHECK(!renew_node_lease(&stand, OTHER(&stand), TTL_MS));
	stand_close(&stand);
}

static void recovering_node_is_live(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	uint64_t node = OTHER(&stand);
	int64_t seq = add_node(&stand, node, "1");
	fake_clock_advance(&stand.clock, 10 * TTL_MS);
	struct postern_recovered recovered = { 0 };
	CHECK_OK(recover_under(&stand, node, NULL, &recovered), &stand.error);
	CHECK_INT(recovered.released, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	CHECK(renew_node_lease(&stand, node, TTL_MS));
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

const struct tap_case lock_cases[] = {
	{ "a lock has one owner at a time", one_at_a_time },
	{ "a renewed lock keeps its fence", kept_with_its_fence },
	{ "an expired lock is acquired with a higher fence", time_is_over },
	{ "a late owner keeps a lock that no other node acquired",
			late_but_not_replaced },
	{ "a released lock is acquired with a higher fence", released },
	{ "a lock is released only by its owner under its fence",
			released_by_others },
	{ "the fence of a lock grows across a crash", fence_outlives_all },
	{ "locks of different names are independent", locks_apart },
	{ "a clock that goes back does not extend a lock", lock_and_clock },
	{ "under a lost lock nothing is settled", lost_settles_nothing },
	{ "under an expired lock that no other node acquired settlements succeed",
			held_settles },
	{ "under a lost lock a message is accepted but not leased",
			lost_leases_nothing },
	{ "under a lost lock nothing is claimed", lost_claims_nothing },
	{ "under a lost lock nothing is recovered", lost_recovers_nothing },
	{ "under a lost lock even an empty recovery is refused",
			lost_after_recovery },
	{ "the owner of a lock recovers all leases but its own",
			owner_recovers_all },
	{ "a node that renews in time keeps its leases", renewed_in_time },
	{ "a late node loses its leases to recovery and is expired", too_late },
	{ "leases made by accepting are recovered from an expired node",
			found_after_accept },
	{ "leases made by claiming are recovered from an expired node",
			found_after_claim },
	{ "leases made after a node expired are recovered too",
			found_after_its_end },
	{ "a late node that is not expired can renew", late_and_not_expired },
	{ "a node that has ended is expired at once", ended },
	{ "a node that never enrolled cannot renew", never_enrolled },
	{ "a node that recovers is live", recovering_node_is_live },
	{ "a clock that goes back does not extend a node lease", node_and_clock },
	{ 0 },
};
