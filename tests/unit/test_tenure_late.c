/* SPDX-License-Identifier: MIT */
/*
 * Answers of the store that take long. The store counts a lease from when it
 * wrote it, so the node counts its own from before it asked: it must stop
 * before others may recover its deliveries.
 */

#include "unit/tenure_house.h"

#define SLOW_MS 2000
/* The life of a lock where nodes have no lease of their own. */
#define LOCK_MS 15000

static size_t run_one(struct node *node) {
	size_t count = 0;
	CHECK_OK(postern_box_run(node->box, 1, &count, &node->house->error),
			&node->house->error);
	return count;
}

/* Two deliveries are leased: the first begins in the last moment of the term,
   of which SLOW_MS are over, and the second does not begin after it. */
static void check_term(struct node *node, int64_t term_ms) {
	struct house *house = node->house;
	node->slow_ms = 0;
	CHECK_INT(claim(node), 2);
	fake_clock_advance(&house->clock, term_ms - SLOW_MS - 1);
	CHECK_INT(run_one(node), 1);
	fake_clock_advance(&house->clock, 1);
	CHECK_INT(run_one(node), 0);
}

static void be_slow(struct node *node, enum fault_op op) {
	node->slow_op = op;
	node->slow_ms = SLOW_MS;
}

/* Two messages, and a sweep in which this operation is slow. */
static void sweep_slowly(struct node *node, enum fault_op op) {
	send(node, "1");
	send(node, "2");
	be_slow(node, op);
	sweep(node);
}

static void late_enrolment(void) {
	struct house house;
	if (open_empty(&house, LEASE_MS, DEDUPE_MS)) {
		struct node *a = &house.nodes[0];
		be_slow(a, FAULT_ENROL);
		if (move_in(&house, a, POSTERN_PROCESSING_PARALLEL)) {
			send(a, "1");
			send(a, "2");
			check_term(a, LEASE_MS);
		}
	}
	close_house(&house);
}

static void late_renewal(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_PARALLEL)) {
		fake_clock_advance(&house.clock, LEASE_MS / 3);
		sweep_slowly(&house.nodes[0], FAULT_RENEW);
		check_term(&house.nodes[0], LEASE_MS);
	}
	close_house(&house);
}

/* The node expired, and enrols again. */
static void late_rebirth(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &house.nodes[0];
		fake_clock_advance(&house.clock, LEASE_MS);
		sweep(&house.nodes[1]);
		sweep_slowly(a, FAULT_ENROL);
		CHECK_CONTAINS(a->remarks, "registering as a new node");
		check_term(a, LEASE_MS);
	}
	close_house(&house);
}

static void late_lock(void) {
	struct house house;
	if (open_house_with(&house, POSTERN_PROCESSING_EXCLUSIVE, 0, DEDUPE_MS)) {
		struct node *a = &house.nodes[0];
		sweep_slowly(a, FAULT_LOCK);
		CHECK_INT(a->locked, 1);
		check_term(a, LOCK_MS);
	}
	close_house(&house);
}

static void late_lock_renewal(void) {
	struct house house;
	if (open_house_with(&house, POSTERN_PROCESSING_EXCLUSIVE, 0, DEDUPE_MS)) {
		struct node *a = &house.nodes[0];
		sweep(a);
		fake_clock_advance(&house.clock, LOCK_MS / 3);
		sweep_slowly(a, FAULT_LOCK);
		CHECK_INT(a->locked, 1);
		check_term(a, LOCK_MS);
	}
	close_house(&house);
}

static const struct tap_case cases[] = {
	{ "a node counts its lease from before its enrolment", late_enrolment },
	{ "a node counts its lease from before its renewal", late_renewal },
	{ "an expired node counts its lease from before it enrols again",
			late_rebirth },
	{ "an owner counts its lock from before it asked for it", late_lock },
	{ "an owner counts its lock from before it renewed it", late_lock_renewal },
};

TAP_MAIN(cases)
