/* SPDX-License-Identifier: MIT */
/*
 * Nodes that would process one store under different locks: one of them waits
 * and recovers nothing of the other.
 */

#include "unit/cluster.h"

static void occurs_once(const char *text, const char *part) {
	const char *first = strstr(text, part);
	CHECK(first);
	CHECK(first && !strstr(first + 1, part));
}

/* The first node has a lease that the second one must not recover. */
static bool open_rivals(struct cluster *cluster, enum postern_processing first,
		enum postern_processing second, const char *second_lock) {
	if (!open_empty(cluster, LEASE_MS, DEDUPE_MS)) {
		return false;
	}
	cluster->nodes[1].lock_name = second_lock;
	if (!add_node(cluster, &cluster->nodes[0], first) ||
			!add_node(cluster, &cluster->nodes[1], second)) {
		return false;
	}
	send(&cluster->nodes[0], "1");
	sweep(&cluster->nodes[0]);
	return CHECK_INT(claim(&cluster->nodes[0]), 1);
}

/* The first node keeps its leases while it is live, and the second continues
   when it has ended. */
static void second_waits(struct cluster *cluster, const char *reason) {
	struct node *a = &cluster->nodes[0];
	struct node *b = &cluster->nodes[1];
	for (int i = 0; i < 5; i++) {
		sweep(a);
		sweep(b);
		CHECK_INT(claim(b), 0);
		fake_clock_advance(&cluster->clock, LEASE_MS / 3);
	}
	CHECK_INT(postern_box_process(b->box, 0, NULL, &cluster->error),
			POSTERN_E_BUSY);
	CHECK_CONTAINS(cluster->error.text, reason);
	CHECK_CONTAINS(cluster->error.text, "'processing' and 'lock_name'");
	occurs_once(b->notices, reason);
	CHECK_INT(b->locked, 0);
	send(b, "2");
	CHECK_INT(run(a), 1);
	CHECK_INT(a->fenced, 0);
	CHECK_INT(claim(a), 1);
	postern_box_destroy(a->box);
	a->box = NULL;
	sweep(b);
	CHECK_INT(claim(b), 1);
	CHECK_INT(run(b), 1);
	CHECK_INT(b->settled, 1);
}

static void exclusive_waits(void) {
	struct cluster cluster;
	if (open_rivals(&cluster, POSTERN_PROCESSING_PARALLEL,
				POSTERN_PROCESSING_EXCLUSIVE, NULL)) {
		second_waits(&cluster, "without a lock");
	}
	close_cluster(&cluster);
}

static void parallel_waits(void) {
	struct cluster cluster;
	if (open_rivals(&cluster, POSTERN_PROCESSING_EXCLUSIVE,
				POSTERN_PROCESSING_PARALLEL, NULL)) {
		second_waits(&cluster, "under the lock 'InboxProcessor_default'");
	}
	close_cluster(&cluster);
}

static void other_lock_waits(void) {
	struct cluster cluster;
	if (open_rivals(&cluster, POSTERN_PROCESSING_EXCLUSIVE,
				POSTERN_PROCESSING_EXCLUSIVE, "mine")) {
		second_waits(&cluster, "under the lock 'InboxProcessor_default'");
	}
	close_cluster(&cluster);
}

static void late_rival(void) {
	struct cluster cluster;
	if (open_rivals(&cluster, POSTERN_PROCESSING_PARALLEL,
				POSTERN_PROCESSING_EXCLUSIVE, NULL)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		fake_clock_advance(&cluster.clock, LEASE_MS);
		sweep(b);
		CHECK_INT(b->locked, 1);
		CHECK_INT(claim(b), 1);
		/* The late node has lost its leases, and waits now. */
		sweep(a);
		CHECK_INT(run(a), 0);
		CHECK_INT(a->fenced, 1);
		CHECK_CONTAINS(a->notices, "waiting to process: ");
		send(a, "2");
		CHECK_INT(claim(a), 0);
		CHECK_INT(run(b), 1);
		CHECK_INT(claim(b), 1);
		CHECK_INT(run(b), 1);
		CHECK_INT(b->settled, 2);
	}
	close_cluster(&cluster);
}

/* A node that only accepts does not make other nodes wait. */
static void sender_is_no_rival(void) {
	struct cluster cluster;
	if (open_empty(&cluster, LEASE_MS, DEDUPE_MS) &&
			add_node(&cluster, &cluster.nodes[0],
					POSTERN_PROCESSING_PARALLEL) &&
			add_node(&cluster, &cluster.nodes[1],
					POSTERN_PROCESSING_EXCLUSIVE)) {
		send(&cluster.nodes[0], "1");
		sweep(&cluster.nodes[1]);
		CHECK_INT(claim(&cluster.nodes[1]), 1);
		CHECK_INT(run(&cluster.nodes[1]), 1);
		CHECK_STR(cluster.nodes[1].notices, "");
	}
	close_cluster(&cluster);
}

static const struct tap_case cases[] = {
	{ "an exclusive node waits for a parallel one", exclusive_waits },
	{ "a parallel node waits for an exclusive one", parallel_waits },
	{ "an exclusive node waits for one with another lock", other_lock_waits },
	{ "nodes do not wait for a late one, which waits when it is back",
			late_rival },
	{ "nodes do not wait for a node that only accepts", sender_is_no_rival },
};

TAP_MAIN(cases)
