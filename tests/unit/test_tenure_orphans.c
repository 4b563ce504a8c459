/* SPDX-License-Identifier: MIT */
/*
 * Nodes of one store that do not have the same handlers, and come and go.
 */

#include "unit/tenure_house.h"

#include "core/box.h"

#define MINUTE_MS ((int64_t)60 * 1000)
/* Of a minute, so that no lease is over. */
#define STEPS 12

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

static void sweep_all(struct house *house) {
	for (size_t i = 0; i < NODE_MAX; i++) {
		if (house->nodes[i].box) {
			sweep(&house->nodes[i]);
		}
	}
}

/* So many minutes, with a look at every one of them; all that are there live.
 */
static size_t watch_for(struct house *house, int minutes) {
	size_t poisoned = 0;
	for (int step = 0; step < minutes * STEPS; step++) {
		sweep_all(house);
		if (step % STEPS == 0) {
			poisoned += poison_orphans(&house->nodes[0]);
		}
		fake_clock_advance(&house->clock, MINUTE_MS / STEPS);
	}
	sweep_all(house);
	return poisoned;
}

static void poisoned_in_time(void) {
	struct house house;
	if (open_different(&house)) {
		struct node *a = &house.nodes[0];
		leave(&house.nodes[1]);
		CHECK_INT(watch_for(&house, 10), 0);
		CHECK_STR(a->remarks,
				"no running node has configured handler 'other'; 1 open "
				"delivery will be poisoned in 10 minutes unless a node "
				"configures it again\n");
		CHECK_INT(watch_for(&house, 1), 1);
		CHECK_INT(watch_for(&house, 20), 0);
	}
	close_house(&house);
}

/* Counting what they have may take long. */
static void counted_rarely(void) {
	struct house house;
	if (open_different(&house)) {
		struct node *a = &house.nodes[0];
		leave(&house.nodes[1]);
		a->asked = 0;
		for (int second = 0; second < 60; second++) {
			sweep_all(&house);
			CHECK_INT(poison_orphans(a), 0);
			fake_clock_advance(&house.clock, 1000);
		}
		CHECK_INT(a->asked, 6);
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

/* While this node cannot look, the other one is there, and goes again. */
static void back_unseen(void) {
	struct house house;
	if (open_different(&house)) {
		struct node *a = &house.nodes[0];
		struct node *b = &house.nodes[1];
		size_t count = 0;
		leave(b);
		CHECK_INT(watch_for(&house, 9), 0);
		a->down = true;
		CHECK_INT(postern__poison_orphans(a->box, NULL, NULL, &count, NULL),
				POSTERN_E_UNAVAILABLE);
		CHECK(move_in(&house, b, POSTERN_PROCESSING_PARALLEL));
		leave(b);
		a->down = false;
		CHECK_INT(watch_for(&house, 10), 0);
		CHECK_INT(watch_for(&house, 1), 1);
	}
	close_house(&house);
}

/* So long that others took it for gone. */
static void away_meanwhile(void) {
	struct house house;
	if (open_different(&house)) {
		struct node *b = &house.nodes[1];
		leave(b);
		CHECK_INT(watch_for(&house, 9), 0);
		CHECK(move_in(&house, b, POSTERN_PROCESSING_PARALLEL));
		fake_clock_advance(&house.clock, 2 * MINUTE_MS);
		sweep(b);
		leave(b);
		CHECK_INT(watch_for(&house, 10), 0);
		CHECK_INT(watch_for(&house, 1), 1);
	}
	close_house(&house);
}

/* The second node comes back with another handler. */
static bool come_as_third(struct house *house) {
	struct node *b = &house->nodes[1];
	b->key = "third";
	if (!CHECK(move_in(house, b, POSTERN_PROCESSING_PARALLEL))) {
		return false;
	}
	send(b, "2");
	return true;
}

static void each_in_its_time(void) {
	struct house house;
	if (open_different(&house)) {
		struct node *a = &house.nodes[0];
		leave(&house.nodes[1]);
		CHECK_INT(watch_for(&house, 5), 0);
		if (come_as_third(&house)) {
			leave(&house.nodes[1]);
			CHECK_INT(watch_for(&house, 5), 0);
			CHECK_CONTAINS(a->remarks, "configured handler 'third'; 1 open");
			CHECK_INT(watch_for(&house, 4), 1);
			CHECK_INT(watch_for(&house, 2), 1);
		}
	}
	close_house(&house);
}

static void gone_at_the_last_moment(void) {
	struct house house;
	if (open_different(&house)) {
		struct node *a = &house.nodes[0];
		leave(&house.nodes[1]);
		if (come_as_third(&house)) {
			CHECK_INT(watch_for(&house, 10), 0);
			/* It has looked, and asks to poison: that is the second time. */
			a->asked = 0;
			a->leaver = &house.nodes[1];
			a->leaver_asked = 2;
			CHECK_INT(watch_for(&house, 1), 1);
			CHECK(!a->leaver);
			CHECK_INT(watch_for(&house, 9), 0);
			CHECK_INT(watch_for(&house, 2), 1);
		}
	}
	close_house(&house);
}

static const struct tap_case cases[] = {
	{ "what belongs to a handler that stays away is poisoned after a while",
			poisoned_in_time },
	{ "while handlers are missing their deliveries are counted now and then",
			counted_rarely },
	{ "a node that is started again finds what belongs to its handlers",
			back_in_time },
	{ "what was there while nobody could look has its time again",
			back_unseen },
	{ "what was there while this node was gone has its time again",
			away_meanwhile },
	{ "each handler has its time, whatever others do", each_in_its_time },
	{ "a handler that goes when another's time is over has its own",
			gone_at_the_last_moment },
};

TAP_MAIN(cases)
