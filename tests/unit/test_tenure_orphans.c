/* SPDX-License-Identifier: MIT */
/*
 * Nodes of one store that have different handlers, and start and end.
 */

#include "unit/cluster.h"

#include "core/box.h"
#include "core/maintenance.h"

#define MINUTE_MS ((int64_t)60 * 1000)
/* Steps of a minute, short enough that no lease expires. */
#define STEPS 12

static size_t poison_orphans(struct node *node) {
	size_t count = 0;
	struct postern_error *error = &node->cluster->error;
	CHECK_OK(postern__poison_orphans(node->box, &count, error), error);
	return count;
}

static void end_node(struct node *node) {
	postern_box_destroy(node->box);
	node->box = NULL;
}

/* The second node accepts a message for a handler that only it has. */
static bool open_different(struct cluster *cluster) {
	if (!open_empty(cluster, LEASE_MS, DEDUPE_MS)) {
		return false;
	}
	cluster->nodes[1].key = "other";
	if (!add_node(cluster, &cluster->nodes[0], POSTERN_PROCESSING_PARALLEL) ||
			!add_node(cluster, &cluster->nodes[1],
					POSTERN_PROCESSING_PARALLEL)) {
		return false;
	}
	send(&cluster->nodes[1], "1");
	CHECK_INT(poison_orphans(&cluster->nodes[0]), 0);
	return CHECK_STR(cluster->nodes[0].notices, "");
}

static void sweep_all(struct cluster *cluster) {
	for (size_t i = 0; i < NODE_MAX; i++) {
		if (cluster->nodes[i].box) {
			sweep(&cluster->nodes[i]);
		}
	}
}

/* Lets minutes pass and poisons orphans once in each; all nodes stay live. */
static size_t pass_minutes(struct cluster *cluster, int minutes) {
	size_t poisoned = 0;
	for (int step = 0; step < minutes * STEPS; step++) {
		sweep_all(cluster);
		if (step % STEPS == 0) {
			poisoned += poison_orphans(&cluster->nodes[0]);
		}
		fake_clock_advance(&cluster->clock, MINUTE_MS / STEPS);
	}
	sweep_all(cluster);
	return poisoned;
}

static void poisoned_after_delay(void) {
	struct cluster cluster;
	if (open_different(&cluster)) {
		struct node *a = &cluster.nodes[0];
		end_node(&cluster.nodes[1]);
		CHECK_INT(pass_minutes(&cluster, 10), 0);
		CHECK_STR(a->notices,
				"no running node has configured handler 'other'; 1 open "
				"delivery will be poisoned in 10 minutes unless a node "
				"configures it again\n");
		CHECK_INT(pass_minutes(&cluster, 1), 1);
		CHECK_INT(pass_minutes(&cluster, 20), 0);
	}
	close_cluster(&cluster);
}

/* Counting the deliveries of orphaned handlers may take long. */
static void counted_rarely(void) {
	struct cluster cluster;
	if (open_different(&cluster)) {
		struct node *a = &cluster.nodes[0];
		end_node(&cluster.nodes[1]);
		a->asked = 0;
		for (int second = 0; second < 60; second++) {
			sweep_all(&cluster);
			CHECK_INT(poison_orphans(a), 0);
			fake_clock_advance(&cluster.clock, 1000);
		}
		CHECK_INT(a->asked, 6);
	}
	close_cluster(&cluster);
}

static void restarted_in_time(void) {
	struct cluster cluster;
	if (open_different(&cluster)) {
		struct node *b = &cluster.nodes[1];
		for (int i = 0; i < 3; i++) {
			end_node(b);
			CHECK_INT(pass_minutes(&cluster, 6), 0);
			if (!add_node(&cluster, b, POSTERN_PROCESSING_PARALLEL)) {
				break;
			}
			CHECK_INT(pass_minutes(&cluster, 1), 0);
		}
		if (CHECK(b->box)) {
			sweep(b);
			CHECK_INT(claim(b), 1);
			CHECK_INT(run(b), 1);
			CHECK_INT(b->runs, 1);
		}
	}
	close_cluster(&cluster);
}

/* The other node starts and ends while this node cannot read the store. */
static void restarted_unseen(void) {
	struct cluster cluster;
	if (open_different(&cluster)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		size_t count = 0;
		end_node(b);
		CHECK_INT(pass_minutes(&cluster, 9), 0);
		a->down = true;
		CHECK_INT(postern__poison_orphans(a->box, &count, NULL),
				POSTERN_E_UNAVAILABLE);
		CHECK(add_node(&cluster, b, POSTERN_PROCESSING_PARALLEL));
		end_node(b);
		a->down = false;
		CHECK_INT(pass_minutes(&cluster, 10), 0);
		CHECK_INT(pass_minutes(&cluster, 1), 1);
	}
	close_cluster(&cluster);
}

/* The first node does not renew for so long that the second one expires it. */
static void restarted_while_expired(void) {
	struct cluster cluster;
	if (open_different(&cluster)) {
		struct node *b = &cluster.nodes[1];
		end_node(b);
		CHECK_INT(pass_minutes(&cluster, 9), 0);
		CHECK(add_node(&cluster, b, POSTERN_PROCESSING_PARALLEL));
		fake_clock_advance(&cluster.clock, 2 * MINUTE_MS);
		sweep(b);
		end_node(b);
		CHECK_INT(pass_minutes(&cluster, 10), 0);
		CHECK_INT(pass_minutes(&cluster, 1), 1);
	}
	close_cluster(&cluster);
}

/* The second node starts again with another handler. */
static bool restart_with_third(struct cluster *cluster) {
	struct node *b = &cluster->nodes[1];
	b->key = "third";
	if (!CHECK(add_node(cluster, b, POSTERN_PROCESSING_PARALLEL))) {
		return false;
	}
	send(b, "2");
	return true;
}

static void delay_per_handler(void) {
	struct cluster cluster;
	if (open_different(&cluster)) {
		struct node *a = &cluster.nodes[0];
		end_node(&cluster.nodes[1]);
		CHECK_INT(pass_minutes(&cluster, 5), 0);
		if (restart_with_third(&cluster)) {
			end_node(&cluster.nodes[1]);
			CHECK_INT(pass_minutes(&cluster, 5), 0);
			CHECK_CONTAINS(a->notices, "configured handler 'third'; 1 open");
			CHECK_INT(pass_minutes(&cluster, 4), 1);
			CHECK_INT(pass_minutes(&cluster, 2), 1);
		}
	}
	close_cluster(&cluster);
}

static void orphaned_at_the_last_moment(void) {
	struct cluster cluster;
	if (open_different(&cluster)) {
		struct node *a = &cluster.nodes[0];
		end_node(&cluster.nodes[1]);
		if (restart_with_third(&cluster)) {
			CHECK_INT(pass_minutes(&cluster, 10), 0);
			/* The node has read the orphans, and its second request poisons
			   them. */
			a->asked = 0;
			a->leaver = &cluster.nodes[1];
			a->leaver_asked = 2;
			CHECK_INT(pass_minutes(&cluster, 1), 1);
			CHECK(!a->leaver);
			CHECK_INT(pass_minutes(&cluster, 9), 0);
			CHECK_INT(pass_minutes(&cluster, 2), 1);
		}
	}
	close_cluster(&cluster);
}

static const struct tap_case cases[] = {
	{ "deliveries of an orphaned handler are poisoned after a delay",
			poisoned_after_delay },
	{ "deliveries of orphaned handlers are counted at intervals",
			counted_rarely },
	{ "a node that restarts in time finds the deliveries of its handlers",
			restarted_in_time },
	{ "a handler that was back while the store was unavailable gets a new "
	  "delay",
			restarted_unseen },
	{ "a handler that was back while this node was expired gets a new delay",
			restarted_while_expired },
	{ "each orphaned handler has a delay of its own", delay_per_handler },
	{ "a handler orphaned when another's delay ends gets its own delay",
			orphaned_at_the_last_moment },
};

TAP_MAIN(cases)
