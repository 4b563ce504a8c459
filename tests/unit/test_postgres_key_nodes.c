/* SPDX-License-Identifier: MIT */

/*
 * A handler with a key of its own is renamed while nodes of both generations
 * run: the old one, the new one with the legacy key, and then the new one
 * without it. What runs is counted outside the database.
 */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tap.h"

#define SCHEMA "key_nodes"
#define KEYS 40
#define SENDERS 4
#define PATIENCE_S 120

static atomic_int runs[KEYS];
static atomic_int ended;

static const char *url_of(void) {
	const char *url = getenv("POSTERN_TEST_POSTGRES");
	return url ? url : "";
}

static void drop_schema(void) {
	PGconn *link = PQconnectdb(url_of());
	PQclear(PQexec(link, "SET client_min_messages = error;"
						 " DROP SCHEMA IF EXISTS " SCHEMA " CASCADE"));
	PQfinish(link);
}

/* The body is {"order":N}. */
static int order_of(const struct postern_message *message) {
	char text[32] = "";
	size_t len = message->body_len < sizeof text ? message->body_len
												 : sizeof text - 1;
	memcpy(text, message->body, len);
	return (int)strtol(text + strlen("{\"order\":"), NULL, 10);
}

static void charge(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)delivery;
	(void)outcome;
	atomic_fetch_add(&runs[order_of(message)], 1);
	atomic_fetch_add(&ended, 1);
}

struct node {
	struct postern_box *box;
	struct postern_runner *runner;
};

static bool node_open(struct node *node, const char *key, const char *legacy) {
	static const struct postern_key_rule rules[] = {
		{ .rule = "json:/order" },
	};
	const struct postern_box_options box = {
		.size = sizeof box,
		.schema = SCHEMA,
	};
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = key,
		.legacy_keys = &legacy,
		.legacy_key_count = legacy != NULL,
		.callback = charge,
		.key_rules = rules,
		.key_rule_count = 1,
	};
	struct postern_error error;
	*node = (struct node){ 0 };
	return CHECK_OK(postern_box_open(url_of(), &box, &node->box, &error),
				   &error) &&
		   CHECK_OK(postern_box_add_channel(node->box, "orders", NULL, &error),
				   &error) &&
		   CHECK_OK(postern_box_add_handler(node->box, "orders", &handler,
							&error),
				   &error) &&
		   CHECK_OK(postern_box_start(node->box, &error), &error) &&
		   CHECK_OK(postern_runner_create(node->box, NULL, &node->runner,
							&error),
				   &error) &&
		   CHECK_OK(postern_runner_start(node->runner, &error), &error);
}

static void node_close(struct node *node) {
	postern_runner_destroy(node->runner);
	postern_box_destroy(node->box);
}

/* Sends every key from..KEYS-1 to one node, under ids of its own. */
struct sender {
	struct postern_box *box;
	int from;
	int number;
	pthread_t thread;
};

static void *send_all(void *context) {
	const struct sender *sender = context;
	for (int i = sender->from; i < KEYS; i++) {
		struct postern_error error;
		char id[32];
		char body[32];
		(void)snprintf(id, sizeof id, "%d-%d-%d", sender->from, sender->number,
				i);
		(void)snprintf(body, sizeof body, "{\"order\":%d}", i);
		const struct postern_message message = {
			.size = sizeof message,
			.id = id,
			.type = "order",
			.body = body,
			.body_len = strlen(body),
		};
		CHECK_OK(postern_box_accept(sender->box, "orders", &message, NULL,
						 &error),
				&error);
	}
	return NULL;
}

static void send_from_all(struct node *nodes, size_t count, int from) {
	struct sender senders[SENDERS];
	for (int i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){
			.box = nodes[(size_t)i % count].box,
			.from = from,
			.number = i,
		};
		CHECK_INT(pthread_create(&senders[i].thread, NULL, send_all,
						  &senders[i]),
				0);
	}
	for (int i = 0; i < SENDERS; i++) {
		(void)pthread_join(senders[i].thread, NULL);
	}
}

/* Nothing is open any more, on any node. */
static void wait_until_done(struct postern_box *box) {
	const struct timespec pause = { .tv_nsec = 20 * 1000000L };
	time_t until = time(NULL) + PATIENCE_S;
	uint64_t open = 1;
	while (open > 0 && time(NULL) < until) {
		struct postern_stats *stats = NULL;
		struct postern_error error;
		if (!CHECK_OK(postern_box_stats(box, &stats, &error), &error)) {
			return;
		}
		open = 0;
		for (size_t i = 0; i < stats->handler_count; i++) {
			open += stats->handlers[i].pending + stats->handlers[i].leased;
		}
		postern_stats_destroy(stats);
		(void)nanosleep(&pause, NULL);
	}
	CHECK_INT(open, 0);
}

static void check_runs(int from, int to, int count) {
	for (int i = from; i < to; i++) {
		CHECK_INT(runs[i], count);
	}
}

static void renamed_side_by_side(void) {
	struct node nodes[2] = { 0 };
	drop_schema();
	if (node_open(&nodes[0], "charge", NULL)) {
		/* The second half of the keys is known to the old node already. */
		send_from_all(nodes, 1, KEYS / 2);
		wait_until_done(nodes[0].box);
		check_runs(KEYS / 2, KEYS, 1);
	}
	if (nodes[0].runner && node_open(&nodes[1], "charge-card", "charge")) {
		send_from_all(nodes, 2, 0);
		wait_until_done(nodes[0].box);
		check_runs(0, KEYS, 1);
	}
	node_close(&nodes[0]);
	node_close(&nodes[1]);
	/* The legacy key has left the configuration. */
	if (node_open(&nodes[0], "charge-card", NULL)) {
		send_from_all(nodes, 1, 1);
		wait_until_done(nodes[0].box);
		check_runs(0, KEYS, 1);
		CHECK_INT(ended, KEYS);
	}
	node_close(&nodes[0]);
	drop_schema();
}

static const struct tap_case cases[] = {
	{ "a handler renamed among running nodes runs each of its keys once",
			renamed_side_by_side },
};

TAP_MAIN(cases)
