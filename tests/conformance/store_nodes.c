/* SPDX-License-Identifier: MIT */

/*
 * Stats of nodes and locks: the nodes with their leases, and the locks that are
 * held. And engage(): the nodes of a store process under one lock, or
 * none.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define TTL_MS 1000
#define OTHER(stand) ((stand)->node + 50)

/* Enrol another node than the stand's; 0: without a node lease. */
static void enrol_node(struct stand *stand, uint64_t node, int64_t lease_ms) {
	struct postern_enrol_handler handler = { .key = "a" };
	struct postern_enrolment enrolment = {
		.node = node,
		.node_lease_ms = lease_ms,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(stand->ops->enrol(stand->store, &enrolment, &stand->error),
			&stand->error);
}

static void renew_node(struct stand *stand, uint64_t node, int64_t ttl_ms) {
	bool alive = false;
	CHECK_OK(stand->ops->renew(stand->store, node, ttl_ms, &alive,
					 &stand->error),
			&stand->error);
}

static void acquire_named_lock(struct stand *stand, const char *name,
		uint64_t node) {
	bool held = false;
	uint64_t fence;
	CHECK_OK(stand->ops->lock(stand->store, name, node, TTL_MS, &held, &fence,
					 &stand->error),
			&stand->error);
	CHECK(held);
}

/* All zero if there is no such node. */
static struct postern_node_stats node_stats(struct stand *stand,
		uint64_t node) {
	struct postern_stats stats = stand_stats(stand);
	for (size_t i = 0; i < stats.node_count; i++) {
		if (stats.nodes[i].node == node) {
			return stats.nodes[i];
		}
	}
	return (struct postern_node_stats){ 0 };
}

static void those_enrolled(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	CHECK_INT(stand_stats(&stand).node_count, 1);
	for (uint64_t i = 9; i > 0; i--) {
		enrol_node(&stand, stand.node + i, TTL_MS);
	}
	struct postern_stats stats = stand_stats(&stand);
	if (CHECK_INT(stats.node_count, 10)) {
		for (size_t i = 0; i < 10; i++) {
			CHECK_INT(stats.nodes[i].node, stand.node + i);
			CHECK(!stats.nodes[i].own && !stats.nodes[i].processor);
		}
	}
	stand_close(&stand);
}

static void until_when(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t begin = stand_now(&stand);
	enrol_node(&stand, OTHER(&stand), TTL_MS);
	fake_clock_advance(&stand.clock, 300);
	struct postern_node_stats own = node_stats(&stand, stand.node);
	struct postern_node_stats other = node_stats(&stand, OTHER(&stand));
	CHECK_INT(own.renewed_at_ms, begin);
	CHECK_INT(own.lives_until_ms, 0);
	CHECK_INT(other.renewed_at_ms, begin);
	CHECK_INT(other.lives_until_ms, begin + TTL_MS);
	CHECK_INT(stand_stats(&stand).now_ms, begin + 300);
	renew_node(&stand, OTHER(&stand), 2 * TTL_MS);
	other = node_stats(&stand, OTHER(&stand));
	CHECK_INT(other.renewed_at_ms, begin + 300);
	CHECK_INT(other.lives_until_ms, begin + 300 + 2 * TTL_MS);
	stand_close(&stand);
}

static void late(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t begin = stand_now(&stand);
	enrol_node(&stand, OTHER(&stand), TTL_MS);
	fake_clock_advance(&stand.clock, 5 * TTL_MS);
	CHECK_INT(node_stats(&stand, OTHER(&stand)).lives_until_ms, begin + TTL_MS);
	(void)stand_recover(&stand);
	CHECK_INT(stand_stats(&stand).node_count, 1);
	stand_close(&stand);
}

static void ended(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	enrol_node(&stand, OTHER(&stand), 0);
	renew_node(&stand, OTHER(&stand), 0);
	CHECK_INT(stand_stats(&stand).node_count, 1);
	CHECK_INT(node_stats(&stand, OTHER(&stand)).node, 0);
	stand_close(&stand);
}

/* Counted before and after the store knows that there is only one node. */
static void leases(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	CHECK_INT(node_stats(&stand, stand.node).leased, 0);
	(void)stand_recover(&stand);
	(void)stand_accept_leased(&stand, "1", stand.handlers[0]);
	(void)stand_accept_leased(&stand, "2", stand.handlers[1]);
	(void)stand_accept(&stand, "3", stand.handlers[0]);
	CHECK_INT(node_stats(&stand, stand.node).leased, 2);
	enrol_node(&stand, OTHER(&stand), TTL_MS);
	uint64_t own = stand.node;
	stand.node = OTHER(&stand);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 1);
	CHECK_INT(node_stats(&stand, own).leased, 2);
	CHECK_INT(node_stats(&stand, stand.node).leased, 1);
	stand_close(&stand);
}

static void leases_of_others(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	(void)stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_crash(&stand);
	(void)stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(stand_stats(&stand).node_count, 1);
	CHECK_INT(node_stats(&stand, stand.node).leased, 0);
	CHECK_INT(stand_handler_stats(&stand, "a").leased, 1);
	stand_close(&stand);
}

static void locks(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	CHECK_INT(stand_stats(&stand).lock_count, 0);
	int64_t begin = stand_now(&stand);
	acquire_named_lock(&stand, "m", stand.node);
	acquire_named_lock(&stand, "l", OTHER(&stand));
	struct postern_stats stats = stand_stats(&stand);
	if (CHECK_INT(stats.lock_count, 2)) {
		CHECK_STR(stats.locks[0].name, "l");
		CHECK_INT(stats.locks[0].node, OTHER(&stand));
		CHECK_INT(stats.locks[0].held_until_ms, begin + TTL_MS);
		CHECK_STR(stats.locks[1].name, "m");
		CHECK_INT(stats.locks[1].node, stand.node);
	}
	fake_clock_advance(&stand.clock, TTL_MS - 1);
	CHECK_INT(stand_stats(&stand).lock_count, 2);
	acquire_named_lock(&stand, "m", stand.node);
	fake_clock_advance(&stand.clock, 1);
	stats = stand_stats(&stand);
	if (CHECK_INT(stats.lock_count, 1)) {
		CHECK_STR(stats.locks[0].name, "m");
	}
	stand_close(&stand);
}

static void lock_released(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct postern_lock lock = { .name = "l" };
	bool held = false;
	CHECK_OK(stand.ops->lock(stand.store, "l", stand.node, TTL_MS, &held,
					 &lock.fence, &stand.error),
			&stand.error);
	CHECK_OK(stand.ops->unlock(stand.store, &lock, stand.node, &stand.error),
			&stand.error);
	CHECK_INT(stand_stats(&stand).lock_count, 0);
	stand_close(&stand);
}

/* Stats show what recovery would decide, but do not write it. */
static void clock_back(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	enrol_node(&stand, OTHER(&stand), TTL_MS);
	acquire_named_lock(&stand, "l", OTHER(&stand));
	fake_clock_jump(&stand.clock, -10 * TTL_MS);
	int64_t now = stand_now(&stand);
	struct postern_node_stats node = node_stats(&stand, OTHER(&stand));
	CHECK_INT(node.renewed_at_ms, now);
	CHECK_INT(node.lives_until_ms, now + TTL_MS);
	struct postern_stats stats = stand_stats(&stand);
	if (CHECK_INT(stats.lock_count, 1)) {
		CHECK_INT(stats.locks[0].held_until_ms, now + TTL_MS);
	}
	stand_close(&stand);
}

static int engage_node(struct stand *stand, uint64_t node, const char *lock) {
	return stand->ops->engage(stand->store, node, lock, &stand->error);
}

static void one_regime(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	uint64_t second = OTHER(&stand);
	uint64_t third = OTHER(&stand) + 1;
	enrol_node(&stand, second, 0);
	enrol_node(&stand, third, 0);
	CHECK_OK(engage_node(&stand, stand.node, NULL), &stand.error);
	CHECK_OK(engage_node(&stand, stand.node, NULL), &stand.error);
	CHECK_OK(engage_node(&stand, second, NULL), &stand.error);
	CHECK_INT(engage_node(&stand, third, "l"), POSTERN_E_BUSY);
	CHECK_CONTAINS(stand.error.text, "without a lock");
	/* A node that processes without a lock cannot switch while another does. */
	CHECK_INT(engage_node(&stand, second, "l"), POSTERN_E_BUSY);
	renew_node(&stand, stand.node, 0);
	CHECK_OK(engage_node(&stand, second, "l"), &stand.error);
	CHECK_INT(engage_node(&stand, third, NULL), POSTERN_E_BUSY);
	CHECK_CONTAINS(stand.error.text, "under the lock 'l'");
	CHECK_INT(engage_node(&stand, third, "L"), POSTERN_E_BUSY);
	CHECK_OK(engage_node(&stand, third, "l"), &stand.error);
	stand_close(&stand);
}

static void late_regime(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	enrol_node(&stand, OTHER(&stand), TTL_MS);
	CHECK_OK(engage_node(&stand, OTHER(&stand), "l"), &stand.error);
	fake_clock_advance(&stand.clock, TTL_MS - 1);
	CHECK_INT(engage_node(&stand, stand.node, NULL), POSTERN_E_BUSY);
	fake_clock_advance(&stand.clock, 1);
	CHECK_OK(engage_node(&stand, stand.node, NULL), &stand.error);
	/* The node is expired, so it cannot become live beside the other. */
	bool alive = true;
	CHECK_OK(stand.ops->renew(stand.store, OTHER(&stand), TTL_MS, &alive,
					 &stand.error),
			&stand.error);
	CHECK(!alive);
	CHECK_INT(engage_node(&stand, OTHER(&stand), NULL), POSTERN_E_STALE);
	stand_close(&stand);
}

static void late_leases(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	enrol_node(&stand, OTHER(&stand), TTL_MS);
	CHECK_OK(engage_node(&stand, OTHER(&stand), NULL), &stand.error);
	(void)stand_accept(&stand, "1", stand.handlers[0]);
	uint64_t own = stand.node;
	stand.node = OTHER(&stand);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 1);
	stand.node = own;
	fake_clock_advance(&stand.clock, TTL_MS);
	CHECK_OK(engage_node(&stand, stand.node, "l"), &stand.error);
	CHECK_INT(stand_recover(&stand).released, 1);
	stand_close(&stand);
}

const struct tap_case engage_cases[] = {
	{ "all nodes that process do so under the same lock, or all without",
			one_regime },
	{ "a late node does not keep others from engaging, and is expired",
			late_regime },
	{ "leases of a node that engage expired are recovered", late_leases },
	{ 0 },
};

const struct tap_case node_cases[] = {
	{ "enrolled nodes are listed in the order of their node ids",
			those_enrolled },
	{ "a node is listed with its last renewal and the end of its lease",
			until_when },
	{ "a late node is listed until it is expired", late },
	{ "a node that has ended is not listed", ended },
	{ "a node is listed with the number of its leases", leases },
	{ "leases of an expired node are counted for no other node",
			leases_of_others },
	{ "a lock is listed while it is held", locks },
	{ "a released lock is not listed", lock_released },
	{ "a clock that goes back shortens no node lease and no lock", clock_back },
	{ 0 },
};
