/* SPDX-License-Identifier: MIT */
/*
 * Threads of a runner that must not wait for each other, and changes that
 * another node makes while a runner runs. One operation of the store is
 * blocked; threads that must not depend on it continue. The threads use real
 * time, but no result depends on it: every wait is for an event.
 */

#include "tap.h"

#include "support/fault_store.h"

#include <postern/inspect.h>
#include <postern/postern.h>
#include <postern/sys/store.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define PATIENCE_MS 20000
#define LEASE_MS 300
/* More renewals than happen in several leases. */
#define RENEWALS 8

struct node {
	struct fault_plan plan;
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
	atomic_bool held[FAULT_OP_COUNT];  /* calls of this operation are blocked */
	atomic_bool fails[FAULT_OP_COUNT]; /* calls of it fail */
	atomic_int waiting;                /* calls that are blocked */
	atomic_int runs;
};

/* The processing mode of nodes opened from now on. */
static enum postern_processing processing;

static void sleep_1ms(void) {
	struct timespec ms = { .tv_nsec = 1000000 };
	(void)nanosleep(&ms, NULL);
}

static bool wait_for(const atomic_int *number, int least) {
	for (int i = 0; i < PATIENCE_MS && atomic_load(number) < least; i++) {
		sleep_1ms();
	}
	return atomic_load(number) >= least;
}

static bool wait_for_calls(struct node *node, enum fault_op op,
		unsigned least) {
	for (int i = 0;
			i < PATIENCE_MS && atomic_load(&node->plan.calls[op]) < least;
			i++) {
		sleep_1ms();
	}
	return atomic_load(&node->plan.calls[op]) >= least;
}

static int block_held_op(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct node *node = context;
	(void)batch;
	if (atomic_load(&node->fails[op])) {
		return POSTERN_E_UNAVAILABLE;
	}
	if (atomic_load(&node->held[op])) {
		atomic_fetch_add(&node->waiting, 1);
		while (atomic_load(&node->held[op])) {
			sleep_1ms();
		}
	}
	return POSTERN_OK;
}

static void handle(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct node *node = context;
	(void)message;
	(void)delivery;
	atomic_fetch_add(&node->runs, 1);
	outcome->kind = POSTERN_DONE;
}

/* A node with one handler on a store that several nodes share. */
static bool node_open(struct node *node, struct postern_store *store) {
	*node = (struct node){ .plan = { .decide = block_held_op,
								   .shared = true } };
	node->plan.context = node;
	struct postern_box_options options = {
		.size = sizeof(options),
		.node_lease_ms = LEASE_MS,
		.processing = processing,
	};
	struct postern_channel_options channel = {
		.size = sizeof(channel),
		.retention_payload_ms = 3600000,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = handle,
		.context = node,
	};
	return CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
													&node->plan),
							&options, &node->box, &node->error),
				   &node->error) &&
		   CHECK_OK(postern_box_add_channel(node->box, "orders", &channel,
							&node->error),
				   &node->error) &&
		   CHECK_OK(postern_box_add_handler(node->box, "orders", &handler,
							&node->error),
				   &node->error) &&
		   CHECK_OK(postern_box_start(node->box, &node->error), &node->error);
}

static bool node_run(struct node *node) {
	struct postern_runner_options options = {
		.size = sizeof(options),
		.polling_interval_ms = 20,
		.cleanup_interval_ms = 20,
		.restart_delay_ms = 20,
	};
	return CHECK_OK(postern_runner_create(node->box, &options, &node->runner,
							&node->error),
				   &node->error) &&
		   CHECK_OK(postern_runner_start(node->runner, &node->error),
				   &node->error);
}

static void node_close(struct node *node) {
	for (int i = 0; i < FAULT_OP_COUNT; i++) {
		atomic_store(&node->held[i], false);
		atomic_store(&node->fails[i], false);
	}
	postern_runner_destroy(node->runner);
	postern_box_destroy(node->box);
}

static int send(struct node *node, const char *id) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = "order.placed",
		.body = "body",
		.body_len = 4,
	};
	return postern_box_accept(node->box, "orders", &message, NULL,
			&node->error);
}

static struct postern_store *open_store(void) {
	struct postern_store *store = NULL;
	struct postern_error error = { 0 };
	CHECK_OK(postern_store_open("memory:", NULL, &store, &error), &error);
	return store;
}

static void renewed_beside(enum fault_op op) {
	struct node node;
	struct postern_store *store = open_store();
	if (store && node_open(&node, store) && node_run(&node)) {
		atomic_store(&node.held[op], true);
		CHECK(wait_for(&node.waiting, 1));
		unsigned before = atomic_load(&node.plan.calls[FAULT_RENEW]);
		CHECK(wait_for_calls(&node, FAULT_RENEW, before + RENEWALS));
	}
	node_close(&node);
	postern_store_destroy(store);
}

static void renewed_beside_recovery(void) {
	renewed_beside(FAULT_RECOVER);
}

/* The new owner of the lock recovers leases of the former one; that recovery is
   blocked from the beginning. */
static void renewed_beside_takeover(void) {
	struct node node;
	struct postern_store *store = open_store();
	processing = POSTERN_PROCESSING_EXCLUSIVE;
	if (store && node_open(&node, store)) {
		atomic_store(&node.held[FAULT_RECOVER], true);
		if (node_run(&node)) {
			CHECK(wait_for(&node.waiting, 1));
			unsigned before = atomic_load(&node.plan.calls[FAULT_RENEW]);
			unsigned locks = atomic_load(&node.plan.calls[FAULT_LOCK]);
			CHECK(wait_for_calls(&node, FAULT_RENEW, before + RENEWALS));
			CHECK(wait_for_calls(&node, FAULT_LOCK, locks + RENEWALS));
		}
	}
	node_close(&node);
	postern_store_destroy(store);
	processing = POSTERN_PROCESSING_PARALLEL;
}

static void renewed_beside_cleanup(void) {
	renewed_beside(FAULT_CLEAN);
}

static void renewed_beside_claims(void) {
	renewed_beside(FAULT_CLAIM);
}

static void accepted_beside(enum fault_op op) {
	struct node node;
	struct postern_store *store = open_store();
	if (store && node_open(&node, store) && node_run(&node)) {
		atomic_store(&node.held[op], true);
		CHECK(wait_for(&node.waiting, 1));
		for (int i = 0; i < 10; i++) {
			char id[8];
			(void)snprintf(id, sizeof(id), "%d", i);
			CHECK_OK(send(&node, id), &node.error);
		}
	}
	node_close(&node);
	postern_store_destroy(store);
}

static void accepted_beside_claims(void) {
	accepted_beside(FAULT_CLAIM);
}

static void accepted_beside_renewal(void) {
	accepted_beside(FAULT_RENEW);
}

/* An operator reaches the store through another node. */
static void paused_by_another(void) {
	struct node node;
	struct node other;
	struct postern_store *store = open_store();
	if (store && node_open(&node, store) && node_open(&other, store) &&
			node_run(&node)) {
		CHECK_OK(send(&node, "1"), &node.error);
		CHECK(wait_for(&node.runs, 1));
		CHECK_OK(postern_box_pause(other.box, "h", &other.error), &other.error);
		CHECK_OK(send(&node, "2"), &node.error);
		CHECK_OK(send(&node, "3"), &node.error);
		/* After three more polls every poll that could have claimed them has
		   ended. */
		unsigned polls = atomic_load(&node.plan.calls[FAULT_READ_PAUSES]);
		CHECK(wait_for_calls(&node, FAULT_READ_PAUSES, polls + 3));
		CHECK_INT(atomic_load(&node.runs), 1);
		CHECK_OK(postern_box_resume(other.box, "h", &other.error),
				&other.error);
		CHECK(wait_for(&node.runs, 3));
	}
	node_close(&node);
	node_close(&other);
	postern_store_destroy(store);
}

/* A node that is started while the handler is paused. */
static void resumed_by_another(void) {
	struct node node;
	struct node other;
	struct postern_store *store = open_store();
	if (store && node_open(&other, store)) {
		CHECK_OK(postern_box_pause(other.box, "h", &other.error), &other.error);
		CHECK_OK(send(&other, "1"), &other.error);
		if (node_open(&node, store) && node_run(&node)) {
			unsigned polls = atomic_load(&node.plan.calls[FAULT_READ_PAUSES]);
			CHECK(wait_for_calls(&node, FAULT_READ_PAUSES, polls + 2));
			CHECK_INT(atomic_load(&node.runs), 0);
			CHECK_OK(postern_box_resume(other.box, "h", &other.error),
					&other.error);
			CHECK(wait_for(&node.runs, 1));
		}
		node_close(&node);
	}
	node_close(&other);
	postern_store_destroy(store);
}

static bool wait_until_ready(struct node *node, bool ready) {
	bool is = !ready;
	for (int i = 0; i < PATIENCE_MS && is != ready; i++) {
		is = postern_runner_ready(node->runner, NULL) == POSTERN_OK;
		sleep_1ms();
	}
	return is == ready;
}

/* Whoever sends only to a node that is ready sends nothing meanwhile. */
static void ready_without_writes(void) {
	static const enum fault_op ops[] = { FAULT_RECOVER, FAULT_CLAIM };
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct node node;
		struct postern_store *store = open_store();
		if (store && node_open(&node, store) && node_run(&node)) {
			CHECK(wait_until_ready(&node, true));
			atomic_store(&node.fails[ops[i]], true);
			CHECK(wait_until_ready(&node, false));
			atomic_store(&node.fails[ops[i]], false);
			CHECK(wait_until_ready(&node, true));
		}
		node_close(&node);
		postern_store_destroy(store);
	}
}

static const struct tap_case cases[] = {
	{ "a store that failed for a moment is ready again, though nobody writes",
			ready_without_writes },
	{ "a node is renewed while a recovery waits for the store",
			renewed_beside_recovery },
	{ "node and lock are renewed while the new owner's recovery waits",
			renewed_beside_takeover },
	{ "a node is renewed while a cleanup waits for the store",
			renewed_beside_cleanup },
	{ "a node is renewed while a claim waits for the store",
			renewed_beside_claims },
	{ "messages are accepted while a claim waits for the store",
			accepted_beside_claims },
	{ "messages are accepted while a renewal waits for the store",
			accepted_beside_renewal },
	{ "a handler that another node pauses does not run until it is resumed",
			paused_by_another },
	{ "a node started while a handler is paused runs it when it is resumed",
			resumed_by_another },
};

TAP_MAIN(cases)
