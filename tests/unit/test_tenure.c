/* SPDX-License-Identifier: MIT */
/*
 * Several nodes on one store, driven step by step: which node may process, what
 * happens to a node that does not renew, and what cleanup leaves.
 */

#include "unit/cluster.h"

#include "core/box.h"
#include "core/maintenance.h"

static void one_owner(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		send(b, "1");
		CHECK_INT(claim(a), 0);
		sweep(a);
		sweep(b);
		CHECK_INT(a->locked, 1);
		CHECK_INT(b->locked, 0);
		CHECK_INT(claim(b), 0);
		CHECK_INT(postern_box_process(b->box, 0, NULL, &cluster.error),
				POSTERN_E_BUSY);
		CHECK_CONTAINS(cluster.error.text, "InboxProcessor_default");
		CHECK_INT(claim(a), 1);
		CHECK_INT(run(a), 1);
		CHECK_INT(a->settled, 1);
	}
	close_cluster(&cluster);
}

static void renewed(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		for (int i = 0; i < 10; i++) {
			sweep(a);
			sweep(b);
			fake_clock_advance(&cluster.clock, LEASE_MS / 3);
		}
		CHECK_INT(a->locked, 1);
		CHECK_INT(a->lock_lost, 0);
		CHECK_INT(b->locked, 0);
		send(a, "1");
		CHECK_INT(claim(a), 1);
		run(a);
		CHECK_INT(a->settled, 1);
	}
	close_cluster(&cluster);
}

static void recovered_by_next_owner(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		send(a, "1");
		send(a, "2");
		sweep(a);
		CHECK_INT(claim(a), 2);
		fake_clock_advance(&cluster.clock, LEASE_MS);
		/* The node knows by its own clock, without asking the store. */
		CHECK_INT(run(a), 0);
		sweep(b);
		CHECK_INT(b->locked, 1);
		/* Callbacks of an expired node become claimable in two groups. */
		CHECK_INT(claim(b), 1);
		CHECK_INT(run(b), 1);
		CHECK_INT(claim(b), 1);
		CHECK_INT(run(b), 1);
		CHECK_INT(b->settled, 2);
		sweep(a);
		CHECK_INT(a->lock_lost, 1);
		CHECK_INT(run(a), 0);
		CHECK_INT(a->fenced, 2);
		CHECK_INT(claim(a), 0);
		CHECK_INT(a->runs, 0);
	}
	close_cluster(&cluster);
}

/* The run starts in time and ends after the lock was lost. */
static void late_result(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		send(a, "1");
		sweep(a);
		CHECK_INT(claim(a), 1);
		size_t count = 0;
		CHECK_OK(postern_box_run(a->box, 10, &count, &cluster.error),
				&cluster.error);
		CHECK_INT(a->runs, 1);
		fake_clock_advance(&cluster.clock, LEASE_MS);
		sweep(b);
		CHECK_INT(claim(b), 1);
		CHECK_OK(postern_box_commit(a->box, NULL, &cluster.error),
				&cluster.error);
		CHECK_INT(a->fenced, 1);
		CHECK_INT(a->settled, 0);
		run(b);
		CHECK_INT(b->settled, 1);
	}
	close_cluster(&cluster);
}

static void lose_and_win(int64_t lease_ms, int64_t lock_ms) {
	struct cluster cluster;
	if (open_cluster_with(&cluster, POSTERN_PROCESSING_EXCLUSIVE, lease_ms,
				DEDUPE_MS)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		send(a, "1");
		sweep(a);
		CHECK_INT(claim(a), 1);
		size_t count = 0;
		CHECK_OK(postern_box_run(a->box, 10, &count, &cluster.error),
				&cluster.error);
		fake_clock_advance(&cluster.clock, lock_ms);
		/* The second node acquires the lock and expires before it recovers
		   anything. */
		b->no_recovery = true;
		CHECK_INT(postern_box_sweep(b->box, NULL, &cluster.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(b->locked, 1);
		fake_clock_advance(&cluster.clock, lock_ms);
		sweep(a);
		sweep(a);
		CHECK_INT(a->locked, 2);
		CHECK_INT(a->lock_lost, 1);
		CHECK_OK(postern_box_commit(a->box, NULL, &cluster.error),
				&cluster.error);
		CHECK_INT(a->fenced, 1);
		/* The first node recovers its own old lease. */
		CHECK_INT(claim(a), 1);
		run(a);
		CHECK_INT(a->settled, 1);
	}
	close_cluster(&cluster);
}

static void owner_again(void) {
	lose_and_win(LEASE_MS, LEASE_MS);
	/* The lock expires also where nodes have no lease. */
	lose_and_win(0, 15000);
}

static void store_down(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		send(a, "1");
		sweep(a);
		CHECK_INT(claim(a), 1);
		a->down = true;
		fake_clock_advance(&cluster.clock, LEASE_MS / 2);
		CHECK_INT(postern_box_sweep(a->box, NULL, &cluster.error),
				POSTERN_E_UNAVAILABLE);
		size_t count = 0;
		fake_clock_advance(&cluster.clock, LEASE_MS / 2);
		CHECK_INT(postern_box_sweep(a->box, NULL, &cluster.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_OK(postern_box_run(a->box, 10, &count, &cluster.error),
				&cluster.error);
		CHECK_INT(count, 0);
		a->down = false;
		/* No other node acquired the lock meanwhile, so the node continues. */
		sweep(a);
		CHECK_INT(a->lock_lost, 0);
		run(a);
		CHECK_INT(claim(a), 1);
		CHECK_INT(run(a), 1);
		CHECK_INT(a->settled, 2);
		CHECK_INT(a->fenced, 0);
	}
	close_cluster(&cluster);
}

static void process_releases_lock(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		for (int i = 0; i < 3; i++) {
			char id[16];
			size_t count = 0;
			(void)snprintf(id, sizeof(id), "%d", i);
			send(a, id);
			struct node *node = i % 2 ? a : b;
			CHECK_OK(postern_box_process(node->box, 0, &count, &cluster.error),
					&cluster.error);
			CHECK_INT(count, 1);
		}
		CHECK_INT(a->runs + b->runs, 3);
		CHECK_INT(a->fenced + b->fenced, 0);
	}
	close_cluster(&cluster);
}

static void waiting_is_reported(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_EXCLUSIVE)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		for (int i = 0; i < 25; i++) {
			sweep(a);
			sweep(b);
			fake_clock_advance(&cluster.clock, LEASE_MS / 3);
		}
		const char *text = "which another node has held for";
		const char *first = strstr(b->notices, text);
		CHECK(first);
		CHECK(first && !strstr(first + 1, text));
		CHECK_STR(a->notices, "");
	}
	close_cluster(&cluster);
}

static void expired_node(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		send(a, "1");
		CHECK_INT(claim(a), 1);
		fake_clock_advance(&cluster.clock, LEASE_MS - 1);
		sweep(b);
		CHECK_INT(claim(b), 0);
		fake_clock_advance(&cluster.clock, 1);
		sweep(b);
		CHECK_INT(claim(b), 1);
		run(b);
		CHECK_INT(b->settled, 1);
		/* The node registers again, and its old lease is refused. */
		sweep(a);
		CHECK_CONTAINS(a->notices, "registering as a new node");
		CHECK_INT(run(a), 0);
		CHECK_INT(a->fenced, 1);
		send(b, "2");
		CHECK_INT(claim(a), 1);
		CHECK_INT(run(a), 1);
		CHECK_INT(a->settled, 1);
	}
	close_cluster(&cluster);
}

/* A runner leases deliveries at accept, but no callback beside suspects. */
static void alone_with_suspects(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		a->box->leasing = true;
		CHECK_INT(claim(a), 0);
		send(b, "1");
		CHECK_INT(claim(b), 1);
		fake_clock_advance(&cluster.clock, LEASE_MS);
		sweep(a);
		send(a, "2");
		CHECK_INT(run(a), 0);
		/* The suspect runs alone, then the others. */
		CHECK_INT(claim(a), 1);
		CHECK_INT(run(a), 1);
		CHECK_INT(claim(a), 1);
		CHECK_INT(run(a), 1);
		a->box->leasing = false;
	}
	close_cluster(&cluster);
}

static void graceful_end(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		struct node *b = &cluster.nodes[1];
		send(a, "1");
		CHECK_INT(claim(a), 1);
		postern_box_destroy(a->box);
		a->box = NULL;
		sweep(b);
		CHECK_INT(claim(b), 1);
	}
	close_cluster(&cluster);
}

static void cleaning(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		struct postern_cleanup cleanup = { .size = sizeof(cleanup) };
		send(a, "1");
		send(a, "2");
		claim(a);
		run(a);
		fake_clock_advance(&cluster.clock, 1000);
		sweep(a);
		bool held = false;
		uint64_t fence = 0;
		CHECK_OK(cluster.store->ops->lock(cluster.store, "InboxCleanup_default",
						 12345, 500, &held, &fence, &cluster.error),
				&cluster.error);
		CHECK(held);
		CHECK_OK(postern_box_cleanup(a->box, &cleanup, &cluster.error),
				&cluster.error);
		CHECK(cleanup.busy);
		CHECK_INT(cleanup.messages, 0);
		fake_clock_advance(&cluster.clock, 500);
		CHECK_OK(postern_box_cleanup(a->box, &cleanup, &cluster.error),
				&cluster.error);
		CHECK(!cleanup.busy);
		CHECK_INT(cleanup.messages, 2);
		CHECK_INT(cleanup.keys, 0);
		/* The cleanup has released the lock. */
		CHECK_OK(cluster.store->ops->lock(cluster.store, "InboxCleanup_default",
						 12345, 500, &held, &fence, &cluster.error),
				&cluster.error);
		CHECK(held);
	}
	close_cluster(&cluster);
}

/* Sends a copy of a message that cleanup has removed. */
static int send_after_cleanup(int64_t dedupe_ms, uint64_t *keys_out) {
	struct cluster cluster;
	struct postern_cleanup cleanup = { .size = sizeof(cleanup) };
	int r = POSTERN_OK;
	if (open_cluster_with(&cluster, POSTERN_PROCESSING_PARALLEL, 0,
				dedupe_ms)) {
		struct node *a = &cluster.nodes[0];
		send(a, "1");
		claim(a);
		run(a);
		fake_clock_advance(&cluster.clock, 1000 * (int64_t)DEDUPE_MS);
		CHECK_OK(postern_box_cleanup(a->box, &cleanup, &cluster.error),
				&cluster.error);
		CHECK_INT(cleanup.messages, 1);
		r = try_send(a, "1");
	}
	close_cluster(&cluster);
	*keys_out = cleanup.keys;
	return r;
}

static void ids_for_good(void) {
	uint64_t keys = 0;
	CHECK_INT(send_after_cleanup(DEDUPE_MS, &keys), POSTERN_OK);
	CHECK_INT(keys, 1);
	CHECK_INT(send_after_cleanup(0, &keys), POSTERN_E_DUPLICATE);
	CHECK_INT(keys, 0);
}

/* How many of three messages a cleanup removes, in batches of one. */
static uint64_t clean_three(bool draining) {
	struct cluster cluster;
	struct postern_cleanup cleanup = { .size = sizeof(cleanup) };
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		send(a, "1");
		send(a, "2");
		send(a, "3");
		claim(a);
		run(a);
		fake_clock_advance(&cluster.clock, 1000);
		a->box->options.cleanup_batch = 1;
		a->box->draining = draining;
		CHECK_OK(postern_box_cleanup(a->box, &cleanup, &cluster.error),
				&cluster.error);
		CHECK(!cleanup.busy);
		CHECK_INT(cleanup.stopped, draining);
		a->box->draining = false;
	}
	close_cluster(&cluster);
	return cleanup.messages;
}

static void cleaning_stops(void) {
	CHECK_INT(clean_three(false), 3);
	CHECK_INT(clean_three(true), 1);
}

static void one_cleans(void) {
	struct cluster cluster;
	if (open_cluster(&cluster, POSTERN_PROCESSING_PARALLEL)) {
		struct node *a = &cluster.nodes[0];
		struct postern__cleanup state = { 0 };
		struct postern_cleanup cleanup = { .size = sizeof(cleanup) };
		bool more = false;
		send(a, "1");
		send(a, "2");
		claim(a);
		run(a);
		fake_clock_advance(&cluster.clock, 1000);
		sweep(a);
		a->box->options.cleanup_batch = 1;
		CHECK_OK(postern__cleanup_step(a->box, &state, &more, &cluster.error),
				&cluster.error);
		CHECK(more);
		CHECK_OK(postern_box_cleanup(a->box, &cleanup, &cluster.error),
				&cluster.error);
		CHECK(cleanup.busy);
		CHECK_INT(cleanup.messages, 0);
		CHECK_OK(postern__cleanup_step(a->box, &state, &more, &cluster.error),
				&cluster.error);
		CHECK_INT(state.total.messages, 2);
		postern__cleanup_end(a->box, &state);
		CHECK_OK(postern_box_cleanup(a->box, &cleanup, &cluster.error),
				&cluster.error);
		CHECK(!cleanup.busy);
	}
	close_cluster(&cluster);
}

static int add_channel(int64_t payload_ms, int64_t dedupe_ms,
		struct postern_error *error) {
	struct postern_box *box = NULL;
	CHECK_OK(postern_box_open("memory:", NULL, &box, error), error);
	struct postern_channel_options options = {
		.size = sizeof(options),
		.retention_payload_ms = payload_ms,
		.retention_dedupe_ms = dedupe_ms,
	};
	int r = postern_box_add_channel(box, "orders", &options, error);
	postern_box_destroy(box);
	return r;
}

static void bad_retention(void) {
	struct postern_error error = { 0 };
	CHECK_OK(add_channel(1000, 0, &error), &error);
	CHECK_OK(add_channel(1000, 1000, &error), &error);
	CHECK_INT(add_channel(1000, 999, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "retention.dedupe");
	CHECK_INT(add_channel(0, 1000, &error), POSTERN_E_INVALID);
	CHECK_INT(add_channel(-1, 0, &error), POSTERN_E_INVALID);
}

static void horizon(void) {
	struct node node = { 0 };
	struct postern_error error = { 0 };
	struct postern_box_options options = {
		.size = sizeof(options),
		.listener = keep_notice,
		.listener_context = &node,
	};
	struct postern_channel_options channel = {
		.size = sizeof(channel),
		.retention_payload_ms = 1000,
		.retention_dedupe_ms = 29999,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = handle,
		.context = &node,
	};
	/* Five attempts: 2 + 4 + 8 + 16 s at most between them. */
	struct postern_box *box = NULL;
	CHECK_OK(postern_box_open("memory:", &options, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "orders", &channel, &error), &error);
	CHECK_OK(postern_box_add_handler(box, "orders", &handler, &error), &error);
	CHECK_OK(postern_box_start(box, &error), &error);
	CHECK_CONTAINS(node.notices, "may retry for 30s");
	CHECK_CONTAINS(node.notices, "set retention.dedupe to 30s or more");
	postern_box_destroy(box);

	/* Each attempt may also take until its timeout. */
	node.notices[0] = '\0';
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = 60000;
	handler.policy = &policy;
	channel.retention_dedupe_ms = 329999;
	CHECK_OK(postern_box_open("memory:", &options, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "orders", &channel, &error), &error);
	CHECK_OK(postern_box_add_handler(box, "orders", &handler, &error), &error);
	CHECK_OK(postern_box_start(box, &error), &error);
	CHECK_CONTAINS(node.notices, "may retry for 330s");
	postern_box_destroy(box);
	handler.policy = NULL;

	node.notices[0] = '\0';
	channel.retention_dedupe_ms = 30000;
	CHECK_OK(postern_box_open("memory:", &options, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "orders", &channel, &error), &error);
	CHECK_OK(postern_box_add_handler(box, "orders", &handler, &error), &error);
	CHECK_OK(postern_box_start(box, &error), &error);
	CHECK_STR(node.notices, "");
	postern_box_destroy(box);
}

static int open_named(const char *lock_name, const char *cleanup_lock_name,
		struct postern_error *error) {
	struct postern_box *box = NULL;
	struct postern_box_options options = {
		.size = sizeof(options),
		.lock_name = lock_name,
		.cleanup_lock_name = cleanup_lock_name,
	};
	int r = postern_box_open("memory:", &options, &box, error);
	postern_box_destroy(box);
	return r;
}

static void bad_names(void) {
	struct postern_error error = { 0 };
	char text[POSTERN_LOCK_NAME_LEN_MAX + 2];
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	CHECK_INT(open_named("", NULL, &error), POSTERN_E_INVALID);
	CHECK_INT(open_named(text, NULL, &error), POSTERN_E_INVALID);
	CHECK_INT(open_named(NULL, text, &error), POSTERN_E_INVALID);
	CHECK_INT(open_named("same", "same", &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "must differ");
	text[POSTERN_LOCK_NAME_LEN_MAX] = '\0';
	CHECK_OK(open_named(text, NULL, &error), &error);
}

static const struct tap_case cases[] = {
	{ "only the owner of the lock processes", one_owner },
	{ "an owner that renews its lock keeps it", renewed },
	{ "the next owner recovers the leases of the last one",
			recovered_by_next_owner },
	{ "a settlement after the lock was lost is refused", late_result },
	{ "an owner that acquires its lost lock again recovers its own leases",
			owner_again },
	{ "an owner that cannot renew starts nothing, and continues afterwards",
			store_down },
	{ "postern_box_process acquires the lock and releases it",
			process_releases_lock },
	{ "a long wait for the lock is reported once", waiting_is_reported },
	{ "a node that does not renew loses its leases and registers again",
			expired_node },
	{ "no callback is leased beside suspects that were just recovered",
			alone_with_suspects },
	{ "leases of a node that ends are recovered at once", graceful_end },
	{ "cleanup removes what retention allows, on one node at a time",
			cleaning },
	{ "without a retention for ids they are kept for ever", ids_for_good },
	{ "cleanup ends early when the box stops", cleaning_stops },
	{ "of two cleanups in one process one runs", one_cleans },
	{ "a dedupe retention shorter than the payload retention is refused",
			bad_retention },
	{ "a dedupe retention shorter than the retries is reported", horizon },
	{ "names of locks have limits and must differ", bad_names },
};

TAP_MAIN(cases)
