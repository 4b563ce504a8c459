/* SPDX-License-Identifier: MIT */
/*
 * Slow replies of the store. The store counts a lease from when it wrote it, so
 * the node counts it from before its request: it must stop before other nodes
 * may recover its deliveries.
 */

#include "unit/cluster.h"

#define SLOW_MS 2000
/* How long a lock lasts where nodes have no lease. */
#define LOCK_MS 15000

static size_t run_one(struct node *node) {
	size_t count = 0;
	CHECK_OK(postern_box_run(node->box, 1, &count, &node->cluster->error),
			&node->cluster->error);
	return count;
}

/* Two deliveries are leased. The first starts in the last moment of the lease,
   of which SLOW_MS have passed; the second does not start after it. */
static void check_lease_end(struct node *node, int64_t lease_ms) {
	struct cluster *cluster = node->cluster;
	node->slow_ms = 0;
	CHECK_INT(claim(node), 2);
	fake_clock_advance(&cluster->clock, lease_ms - SLOW_MS - 1);
	CHECK_INT(run_one(node), 1);
	fake_clock_advance(&cluster->clock, 1);
	CHECK_INT(run_one(node), 0);
}

static void slow_down(struct node *node, enum fault_op op) {
	node->slow_op = op;
	node->slow_ms = SLOW_MS;
}

/* Sends two messages and sweeps while this operation is slow. */
static void sweep_slowly(struct node *node, enum fault_op op) {
	send(node, "1");
	send(node, "2");
	slow_down(node, op);
	sweep(node);
}

static void late_enrolment(void) {
	struct cluster cluster;
	if (open_empty(&cluster, LEASE_MS, DEDUPE_MS)) {
		struct node *a = &cluster.nodes[0];
		slow_down(a, FAULT_ENROL);
		if (add_node(&cluster, a, POSTERN_PROCESSING_PARALLEL)) {
			send(a, "1");
			send(a, "2");
			check_lease_end(a, LEASE_MS);
		}
	}
	close_cluster(&cluster);
}

static void late_renewal(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		fake_clock_advance(&cluster.clock, LEASE_MS / 3);
		sweep_slowly(&cluster.nodes[0], FAULT_RENEW);
		check_lease_end(&cluster.nodes[0], LEASE_MS);
	}
	close_cluster(&cluster);
}

/* The node has expired and enrols again. */
static void late_second_enrolment(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		fake_clock_advance(&cluster.clock, LEASE_MS);
		sweep(&cluster.nodes[1]);
		sweep_slowly(a, FAULT_ENROL);
		CHECK_CONTAINS(a->notices, "registering as a new node");
		check_lease_end(a, LEASE_MS);
	}
	close_cluster(&cluster);
}

static void late_lock(void) {
	struct cluster cluster;
	if (open_cluster_with(&cluster, POSTERN_PROCESSING_EXCLUSIVE, 0,
				DEDUPE_MS)) {
		struct node *a = &cluster.nodes[0];
		sweep_slowly(a, FAULT_LOCK);
		CHECK_INT(a->locked, 1);
		check_lease_end(a, LOCK_MS);
	}
	close_cluster(&cluster);
}

static void late_lock_renewal(void) {
	struct cluster cluster;
	if (open_cluster_with(&cluster, POSTERN_PROCESSING_EXCLUSIVE, 0,
				DEDUPE_MS)) {
		struct node *a = &cluster.nodes[0];
		sweep(a);
		fake_clock_advance(&cluster.clock, LOCK_MS / 3);
		sweep_slowly(a, FAULT_LOCK);
		CHECK_INT(a->locked, 1);
		check_lease_end(a, LOCK_MS);
	}
	close_cluster(&cluster);
}

static const struct tap_case cases[] = {
	{ "a node counts its lease from before its enrolment", late_enrolment },
	{ "a node counts its lease from before its renewal", late_renewal },
	{ "an expired node counts its lease from before it enrols again",
			late_second_enrolment },
	{ "an owner counts its lock from before it asked for it", late_lock },
	{ "an owner counts its lock from before it renewed it", late_lock_renewal },
};

TAP_MAIN(cases)
