/* SPDX-License-Identifier: MIT */
/*
 * Nodes of one store that do not have the same handlers, and come and go.
 */

#include "unit/tenure_house.h"

#include "core/box.h"

#define MINUTE_MS ((int64_t)60 * 1000)

static size_t poison_orphans(struct node *node) {
	size_t count = 0;
	struct postern_error *error = &node->house->error;
	CHECK_OK(postern__poison_orphans(node->box, keep_remark, node, &count,
					 error),
			error);
	return count;
}

static void leave(struct node *node) {
	postern_box_destroy(node->box);
	node->box = NULL;
}

/* The second node has a message for a handler that only it has. */
static bool open_different(struct house *house) {
	if (!open_empty(house, LEASE_MS, DEDUPE_MS)) {
		return false;
	}
	house->nodes[1].key = "other";
	if (!move_in(house, &house->nodes[0], POSTERN_PROCESSING_PARALLEL) ||
			!move_in(house, &house->nodes[1], POSTERN_PROCESSING_PARALLEL)) {
		return false;
	}
	send(&house->nodes[1], "1");
	CHECK_INT(poison_orphans(&house->nodes[0]), 0);
	return CHECK_STR(house->nodes[0].remarks, "");
}

/* So many minutes, with a look at every one of them. */
static size_t watch_for(struct house *house, int minutes) {
	struct node *node = &house->nodes[0];
	size_t poisoned = 0;
	for (int i = 0; i < minutes; i++) {
		sweep(node);
		poisoned += poison_orphans(node);
		fake_clock_advance(&house->clock, MINUTE_MS);
		sweep(node);
	}
	return poisoned;
}

static void poisoned_in_time(void) {
	struct house house;
	if (open_different(&house)) {
		struct node *a = &house.nodes[0];
		leave(&house.nodes[1]);
		CHECK_INT(watch_for(&house, 10), 0);
		CHECK_STR(a->remarks,
				"no node registers 'other' any more; 1 open delivery will be "
				"poisoned in 10 minutes, unless one does so again\n");
		CHECK_INT(watch_for(&house, 1), 1);
		CHECK_INT(watch_for(&house, 20), 0);
	}
	close_house(&house);
}

static void back_in_time(void) {
	struct house house;
	if (open_different(&house)) {
		struct node *b = &house.nodes[1];
		for (int i = 0; i < 3; i++) {
			leave(b);
			CHECK_INT(watch_for(&house, 6), 0);
			if (!move_in(&house, b, POSTERN_PROCESSING_PARALLEL)) {
				break;
			}
			CHECK_INT(watch_for(&house, 1), 0);
		}
		if (CHECK(b->box)) {
			sweep(b);
			CHECK_INT(claim(b), 1);
			CHECK_INT(run(b), 1);
			CHECK_INT(b->runs, 1);
		}
	}
	close_house(&house);
}

static const struct tap_case cases[] = {
	{ "what belongs to a handler that stays away is poisoned after a while",
			poisoned_in_time },
	{ "a node that is started again finds what belongs to its handlers",
			back_in_time },
};

TAP_MAIN(cases)
