/* SPDX-License-Identifier: MIT */
/*
 * The runner's maintenance thread: two runners on one store. They use real
 * time, but no result depends on it: every wait is for an event. Leases are
 * short, so that a recovery does not take long.
 */

#include "tap.h"

#include "core/identity.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"

#include <postern/event.h>
#include <postern/inspect.h>
#include <postern/postern.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

/* Long enough that no machine is too busy to renew it in time. */
#define LEASE_MS 2000
#define PATIENCE_MS 60000
#define NODE_MAX 2
#define STRANGER 12345
/* By a fake clock; long enough that a pause of some ms follows. */
#define CLEANING_MS 10
/* Practically never. */
#define HOUR_MS 3600000

struct node {
	struct fault_plan plan;
	atomic_bool down; /* the store is unavailable for this node */
	atomic_bool hold; /* its handlers wait */
	atomic_int bad_cleanings;
	atomic_int bad_renewals;
	struct fake_clock *clock; /* advanced by every cleanup */
	atomic_int running;
	atomic_int runs;
	atomic_int settled;
	atomic_int fenced;
	atomic_int locked;
	atomic_int lock_lost;
	struct postern_box *box;
	struct postern_runner *runner;
};

struct cluster {
	struct postern_store *store;
	struct postern_error error;
	struct node nodes[NODE_MAX];
	/* Settings of every node. */
	int64_t lease_ms;
	int64_t polling_interval_ms;
	int64_t cleanup_interval_ms;
	uint32_t cleanup_batch;
	struct fake_clock *clock; /* NULL: the system's */
	int bad_cleanings;
	int bad_renewals;
	int sent;
};

static int inject_fault(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	(void)batch;
	struct node *node = context;
	bool fails =
			atomic_load(&node->down) ||
			(op == FAULT_CLEAN &&
					atomic_fetch_sub(&node->bad_cleanings, 1) > 0) ||
			(op == FAULT_RENEW && atomic_fetch_sub(&node->bad_renewals, 1) > 0);
	if (op == FAULT_CLEAN && node->clock) {
		fake_clock_advance(node->clock, CLEANING_MS);
	}
	return fails ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
}

static void count_event(void *context, const struct postern_event *event) {
	struct node *node = context;
	if (event->state != POSTERN_STATE_ANY) {
		atomic_fetch_add(&node->settled, 1);
	}
	switch (event->kind) {
	case POSTERN_EVENT_FENCED: atomic_fetch_add(&node->fenced, 1); break;
	case POSTERN_EVENT_LOCKED: atomic_fetch_add(&node->locked, 1); break;
	case POSTERN_EVENT_LOCK_LOST: atomic_fetch_add(&node->lock_lost, 1); break;
	default: break;
	}
}

static void sleep_1ms(void) {
	struct timespec ms = { .tv_nsec = 1000000 };
	(void)nanosleep(&ms, NULL);
}

static void handle(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct node *node = context;
	(void)message;
	(void)delivery;
	atomic_fetch_add(&node->runs, 1);
	atomic_fetch_add(&node->running, 1);
	while (atomic_load(&node->hold)) {
		sleep_1ms();
	}
	atomic_fetch_sub(&node->running, 1);
	outcome->kind = POSTERN_DONE;
}

/* Waits until *number is at least `least`. */
static bool await(atomic_int *number, int least) {
	for (int i = 0; i < PATIENCE_MS && atomic_load(number) < least; i++) {
		sleep_1ms();
	}
	return atomic_load(number) >= least;
}

/* Waits until the node has called this operation of its store that often. */
static bool await_calls(struct node *node, enum fault_op op, unsigned least) {
	atomic_uint *calls = &node->plan.calls[op];
	for (int i = 0; i < PATIENCE_MS && atomic_load(calls) < least; i++) {
		sleep_1ms();
	}
	return atomic_load(calls) >= least;
}

static bool add_node(struct cluster *cluster, struct node *node,
		enum postern_processing processing) {
	node->plan.decide = inject_fault;
	node->plan.context = node;
	node->plan.shared = true;
	node->clock = cluster->clock;
	atomic_store(&node->bad_cleanings, cluster->bad_cleanings);
	atomic_store(&node->bad_renewals, cluster->bad_renewals);
	struct postern_box_options options = {
		.size = sizeof(options),
		.processing = processing,
		.clock = cluster->clock ? &cluster->clock->base : NULL,
		.cleanup_batch = cluster->cleanup_batch,
		.node_lease_ms = cluster->lease_ms ? cluster->lease_ms : LEASE_MS,
	};
	struct postern_channel_options channel = {
		.size = sizeof(channel),
		.retention_payload_ms = 1,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = handle,
		.context = node,
	};
	struct postern_runner_options runner = {
		.size = sizeof(runner),
		.workers = 2,
		.polling_interval_ms = cluster->polling_interval_ms
									   ? cluster->polling_interval_ms
									   : 50,
		.restart_delay_ms = 20,
		.cleanup_interval_ms = cluster->cleanup_interval_ms,
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
		   CHECK_OK(postern_box_start(node->box, error), error) &&
		   CHECK_OK(postern_runner_create(node->box, &runner, &node->runner,
							error),
				   error) &&
		   CHECK_OK(postern_runner_start(node->runner, error), error);
}

/* Adds one node, or two if they share the processing lock. */
static bool fill_cluster(struct cluster *cluster,
		enum postern_processing processing) {
	bool exclusive = processing == POSTERN_PROCESSING_EXCLUSIVE;
	size_t count = exclusive ? NODE_MAX : 1;
	bool good = CHECK_OK(postern_store_open("memory:", NULL, &cluster->store,
								 &cluster->error),
			&cluster->error);
	for (size_t i = 0; good && i < count; i++) {
		good = add_node(cluster, &cluster->nodes[i], processing);
		/* The first node must acquire the lock. */
		if (good && exclusive && i == 0) {
			good = CHECK(await(&cluster->nodes[0].locked, 1));
		}
	}
	return good;
}

static bool open_cluster(struct cluster *cluster,
		enum postern_processing processing) {
	*cluster = (struct cluster){ .cleanup_interval_ms = 20 };
	return fill_cluster(cluster, processing);
}

static void remove_node(struct node *node) {
	atomic_store(&node->hold, false);
	atomic_store(&node->down, false);
	postern_runner_destroy(node->runner);
	postern_box_destroy(node->box);
	node->runner = NULL;
	node->box = NULL;
}

static void close_cluster(struct cluster *cluster) {
	for (size_t i = 0; i < NODE_MAX; i++) {
		remove_node(&cluster->nodes[i]);
	}
	postern_store_destroy(cluster->store);
}

static void send(struct cluster *cluster, struct node *node, int count) {
	for (int i = 0; i < count; i++) {
		char id[32];
		(void)snprintf(id, sizeof(id), "m-%d", cluster->sent++);
		struct postern_message message = {
			.size = sizeof(message),
			.id = id,
			.type = "t",
		};
		CHECK_OK(postern_box_accept(node->box, "orders", &message, NULL,
						 &cluster->error),
				&cluster->error);
	}
}

static void one_processes(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		send(&cluster, a, 50);
		send(&cluster, b, 50);
		CHECK(await(&a->settled, 100));
		CHECK_INT(b->runs, 0);
		CHECK_INT(a->runs, 100);
		/* The first node stops, and the other need not wait for the lease to
		   expire. */
		remove_node(a);
		CHECK(await(&b->locked, 1));
		send(&cluster, b, 10);
		CHECK(await(&b->settled, 10));
		CHECK_INT(b->fenced, 0);
	}
	close_cluster(&cluster);
}

static void lost_in_the_middle(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		atomic_store(&a->hold, true);
		send(&cluster, a, 1);
		CHECK(await(&a->running, 1));
		atomic_store(&a->down, true);
		CHECK(await(&b->settled, 1));
		atomic_store(&a->hold, false);
		atomic_store(&a->down, false);
		CHECK(await(&a->fenced, 1));
		CHECK_INT(a->settled, 0);
		CHECK(await(&a->lock_lost, 1));
		CHECK_INT(b->settled, 1);
	}
	close_cluster(&cluster);
}

static void lost_node(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		atomic_store(&a->hold, true);
		send(&cluster, a, 5);
		CHECK(await(&a->running, 2));
		/* Add it only now, or it would claim deliveries, too. */
		CHECK(add_node(&cluster, b, POSTERN_PROCESSING_PARALLEL));
		atomic_store(&a->down, true);
		CHECK(await(&b->settled, 5));
		atomic_store(&a->hold, false);
		atomic_store(&a->down, false);
		/* The first node registers again and continues. */
		CHECK(await(&a->fenced, 2));
		/* Without the other one, which would claim some of these. */
		remove_node(b);
		send(&cluster, a, 5);
		CHECK(await(&a->settled, 5));
		CHECK_INT(a->settled + b->settled, 10);
	}
	close_cluster(&cluster);
}

static uint64_t message_count(struct cluster *cluster, struct node *node) {
	struct postern_filter filter = { .size = sizeof(filter), .limit = 100 };
	struct postern_listing *listing = NULL;
	uint64_t count = 0;
	if (CHECK_OK(postern_box_list(node->box, &filter, &listing,
						 &cluster->error),
				&cluster->error)) {
		count = postern_listing_count(listing);
	}
	postern_listing_destroy(listing);
	return count;
}

static void cleans_by_itself(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		send(&cluster, a, 20);
		for (int i = 0; i < PATIENCE_MS && message_count(&cluster, a) > 0;
				i++) {
			sleep_1ms();
		}
		CHECK_INT(message_count(&cluster, a), 0);
		CHECK_INT(a->settled, 20);
	}
	close_cluster(&cluster);
}

/* The next regular cleanup would be in an hour. */
static void cleans_after_failure(void) {
	struct cluster cluster = {
		.cleanup_interval_ms = HOUR_MS,
		.bad_cleanings = 1,
	};
	if (fill_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		CHECK(await_calls(&cluster.nodes[0], FAULT_CLEAN, 2));
	}
	close_cluster(&cluster);
}

/* Whether another process, or another caller in this process, may clean up. */
static bool others_may_clean(struct cluster *cluster, struct node *node) {
	struct postern_lock lock = { .name = "InboxCleanup_default" };
	struct postern_store *store = cluster->store;
	struct postern_cleanup cleanup = { .size = sizeof(cleanup) };
	bool held = false;
	CHECK_OK(store->ops->lock(store, lock.name, STRANGER, HOUR_MS, &held,
					 &lock.fence, &cluster->error),
			&cluster->error);
	if (!held) {
		return false;
	}
	CHECK_OK(store->ops->unlock(store, &lock, STRANGER, &cluster->error),
			&cluster->error);
	CHECK_OK(postern_box_cleanup(node->box, &cleanup, &cluster->error),
			&cluster->error);
	return !cleanup.busy;
}

/* The runner removes one message and then pauses for ever: its clock stands
   still. */
static void stops_while_cleaning(void) {
	struct fake_clock clock;
	fake_clock_init(&clock);
	struct cluster cluster = {
		.lease_ms = HOUR_MS,
		.cleanup_interval_ms = 1,
		.cleanup_batch = 1,
		.clock = &clock,
	};
	if (fill_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		send(&cluster, a, 5);
		CHECK(await(&a->settled, 5));
		for (int i = 0; i < PATIENCE_MS && message_count(&cluster, a) == 5;
				i++) {
			fake_clock_advance(&clock, 1);
			sleep_1ms();
		}
		CHECK_INT(message_count(&cluster, a), 4);
		CHECK(!others_may_clean(&cluster, a));
		postern_runner_stop(a->runner);
		CHECK(others_may_clean(&cluster, a));
	}
	close_cluster(&cluster);
}

/* The next regular renewal would be in twenty minutes. */
static void renews_after_failure(void) {
	struct cluster cluster = {
		.lease_ms = HOUR_MS,
		.cleanup_interval_ms = HOUR_MS,
		.bad_renewals = 1,
	};
	if (fill_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		CHECK(await_calls(&cluster.nodes[0], FAULT_RENEW, 2));
	}
	close_cluster(&cluster);
}

/* Another node registers, leases a message and expires. */
static void leave_lease(struct cluster *cluster) {
	struct postern_store *store = cluster->store;
	struct postern_error *error = &cluster->error;
	struct postern_enrol_channel channel = { .name = "orders" };
	struct postern_enrol_handler handler = {
		.key = "h",
		.in_process = true,
		.max_crashes = 3,
	};
	struct postern_enrolment enrolment = {
		.node = STRANGER,
		.node_lease_ms = 1,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(store->ops->enrol(store, &enrolment, error), error);
	struct postern_message message = {
		.size = sizeof(message),
		.id = "left",
		.source = "orders",
		.type = "t",
	};
	struct postern_route route = { .handler = handler.id, .lease = true };
	struct postern_accept accept = {
		.message = &message,
		.key = postern__dedupe_key_by_id(&message),
		.channel = channel.id,
		.routes = &route,
		.route_count = 1,
	};
	struct postern_batch batch = {
		.node = STRANGER,
		.accepts = &accept,
		.accept_count = 1,
	};
	CHECK_OK(store->ops->apply(store, &batch, error), error);
	CHECK(route.leased);
}

/* The next poll would be in an hour. */
static void recovers_without_polling(void) {
	struct cluster cluster = {
		.polling_interval_ms = HOUR_MS,
		.cleanup_interval_ms = HOUR_MS,
	};
	if (fill_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		/* The recoveries of the start, of the node lease and of the first
		   poll. */
		if (CHECK(await_calls(a, FAULT_RECOVER, 3))) {
			leave_lease(&cluster);
			CHECK(await(&a->settled, 1));
		}
	}
	close_cluster(&cluster);
}

static const struct tap_case cases[] = {
	{ "of two runners under one lock one processes, then the other",
			one_processes },
	{ "a lock that is lost while a handler runs leads to one completion",
			lost_in_the_middle },
	{ "a node without its store loses its leases and continues later",
			lost_node },
	{ "a runner cleans up by itself", cleans_by_itself },
	{ "a failed cleanup is retried soon", cleans_after_failure },
	{ "a runner that stops during a cleanup releases the cleanup lock",
			stops_while_cleaning },
	{ "a failed renewal is retried soon", renews_after_failure },
	{ "leases of an expired node are recovered without polling",
			recovers_without_polling },
};

TAP_MAIN(cases)
