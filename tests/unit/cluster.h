/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_UNIT_CLUSTER_H
#define POSTERN_TESTS_UNIT_CLUSTER_H

/*
 * A memory store and two boxes on it, as two nodes, with a handler that counts
 * its runs. The test calls each step itself, on a fake clock.
 */

#include <postern/event.h>
#include <postern/inspect.h>
#include <postern/postern.h>
#include <postern/sys/store.h>
#include <stdio.h>
#include <string.h>

#include "support/fake_clock.h"
#include "support/fault_store.h"
#include "tap.h"

#define LEASE_MS 9000
#define DEDUPE_MS 2000000
#define NODE_MAX 2

struct node {
	struct cluster *cluster;
	struct fault_plan plan;
	struct postern_box *box;
	bool down;        /* the store is unavailable for this node */
	bool no_recovery; /* the store is unavailable for its recoveries */
	int64_t slow_ms;  /* how long slow_op takes */
	enum fault_op slow_op;
	int asked;           /* how often it has asked for orphans */
	struct node *leaver; /* ends when `asked` reaches leaver_asked */
	int leaver_asked;
	int runs;
	int settled;
	int fenced;
	int locked;
	int lock_lost;
	const char *lock_name; /* NULL: the default */
	const char *key;       /* of its handler; NULL: "h" */
	char notices[1000];
};

/* One store, several nodes. */
struct cluster {
	struct fake_clock clock;
	struct fake_random random;
	struct postern_store *store;
	struct postern_error error;
	int64_t lease_ms;
	int64_t dedupe_ms; /* 0: ids are kept for good */
	struct node nodes[NODE_MAX];
};

__attribute__((unused)) static int inject_fault(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	(void)batch;
	struct node *node = context;
	node->asked += op == FAULT_ORPHANS;
	if (node->leaver && node->asked == node->leaver_asked) {
		postern_box_destroy(node->leaver->box);
		node->leaver->box = NULL;
		node->leaver = NULL;
	}
	bool fails = node->down || (node->no_recovery && op == FAULT_RECOVER);
	return fails ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
}

__attribute__((unused)) static int delay_reply(void *context,
		enum fault_op op) {
	struct node *node = context;
	if (op == node->slow_op) {
		fake_clock_advance(&node->cluster->clock, node->slow_ms);
	}
	return POSTERN_OK;
}

/* Events that tell people something, in the words of a log. The lock's and
   those of deliveries are counted by count_event(). */
__attribute__((unused)) static void keep_notice(void *context,
		const struct postern_event *event) {
	struct node *node = context;
	size_t len = strlen(node->notices);
	if (event->text || event->kind == POSTERN_EVENT_NODE_EXPIRED) {
		(void)snprintf(node->notices + len, sizeof(node->notices) - len, "%s\n",
				postern_event_text(event));
	}
}

__attribute__((unused)) static void count_event(void *context,
		const struct postern_event *event) {
	struct node *node = context;
	node->settled += event->state != POSTERN_STATE_ANY;
	node->fenced += event->kind == POSTERN_EVENT_FENCED;
	node->locked += event->kind == POSTERN_EVENT_LOCKED;
	node->lock_lost += event->kind == POSTERN_EVENT_LOCK_LOST;
}

__attribute__((unused)) static void handle(void *context,
		const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct node *node = context;
	(void)message;
	(void)delivery;
	node->runs++;
	outcome->kind = POSTERN_DONE;
}

__attribute__((unused)) static bool add_node(struct cluster *cluster,
		struct node *node, enum postern_processing processing) {
	node->cluster = cluster;
	node->plan.decide = inject_fault;
	node->plan.decide_after = delay_reply;
	node->plan.context = node;
	node->plan.shared = true;
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &cluster->clock.base,
		.random = &cluster->random.base,
		.processing = processing,
		.lock_name = node->lock_name,
		.node_lease_ms = cluster->lease_ms,
		.listener = keep_notice,
		.listener_context = node,
	};
	struct postern_channel_options channel = {
		.size = sizeof(channel),
		.retention_payload_ms = 1000,
		.retention_dedupe_ms = cluster->dedupe_ms,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = node->key ? node->key : "h",
		.callback = handle,
		.context = node,
	};
	struct postern_error *error = &cluster->error;
	return CHECK_OK(postern_box_open_taking(
							fault_store_create_taking(cluster->store,
									&node->plan),
							&options, &node->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(node->box, "orders", &channel,
							error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(node->box, "orders", &handler,
							error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(node->box, POSTERN_LEVEL_DEBUG,
							count_event, node, error),
				   error) &&
		   CHECK_OK(postern_box_start(node->box, error), error);
}

__attribute__((unused)) static bool open_empty(struct cluster *cluster,
		int64_t lease_ms, int64_t dedupe_ms) {
	*cluster = (struct cluster){ .lease_ms = lease_ms, .dedupe_ms = dedupe_ms };
	fake_clock_init(&cluster->clock);
	fake_random_init(&cluster->random, 7);
	struct postern_store_options options = {
		.size = sizeof(options),
		.clock = &cluster->clock.base,
		.random = &cluster->random.base,
	};
	return CHECK_OK(postern_store_open("memory:", &options, &cluster->store,
							&cluster->error),
			&cluster->error);
}

__attribute__((unused)) static bool open_cluster_with(struct cluster *cluster,
		enum postern_processing processing, int64_t lease_ms,
		int64_t dedupe_ms) {
	bool good = open_empty(cluster, lease_ms, dedupe_ms);
	for (size_t i = 0; good && i < NODE_MAX; i++) {
		good = add_node(cluster, &cluster->nodes[i], processing);
	}
	return good;
}

__attribute__((unused)) static bool open_cluster(struct cluster *cluster,
		enum postern_processing processing) {
	return open_cluster_with(cluster, processing, LEASE_MS, DEDUPE_MS);
}

__attribute__((unused)) static void close_cluster(struct cluster *cluster) {
	for (size_t i = 0; i < NODE_MAX; i++) {
		postern_box_destroy(cluster->nodes[i].box);
	}
	postern_store_destroy(cluster->store);
}

__attribute__((unused)) static int try_send(struct node *node, const char *id) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = "t",
	};
	return postern_box_accept(node->box, "orders", &message, NULL,
			&node->cluster->error);
}

__attribute__((unused)) static void send(struct node *node, const char *id) {
	CHECK_OK(try_send(node, id), &node->cluster->error);
}

__attribute__((unused)) static void sweep(struct node *node) {
	struct postern_error *error = &node->cluster->error;
	CHECK_OK(postern_box_sweep(node->box, NULL, error), error);
}

__attribute__((unused)) static size_t claim(struct node *node) {
	size_t count = 0;
	struct postern_error *error = &node->cluster->error;
	CHECK_OK(postern_box_claim(node->box, 10, &count, error), error);
	return count;
}

__attribute__((unused)) static size_t run(struct node *node) {
	size_t count = 0;
	struct postern_error *error = &node->cluster->error;
	CHECK_OK(postern_box_run(node->box, 10, &count, error), error);
	CHECK_OK(postern_box_commit(node->box, NULL, error), error);
	return count;
}

#endif
