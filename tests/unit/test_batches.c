/* SPDX-License-Identifier: MIT */
/*
 * Leases of an expired node that do not fit into one batch of a recovery.
 */

#include "unit/cluster.h"

#include <postern/sys/memory.h>

/* Three batches, the last one not full. */
#define LOST_COUNT 2500
#define LOST_NODE 12345

/* Another node leases everything that is pending. */
static void lease_all(struct cluster *cluster) {
	struct postern_error *error = &cluster->error;
	struct postern_enrol_handler handler = { .key = "h" };
	struct postern_enrolment enrolment = {
		.node = LOST_NODE,
		.node_lease_ms = LEASE_MS,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(cluster->store->ops->enrol(cluster->store, &enrolment, error),
			error);
	struct postern_want want = { .handler = handler.id, .max = LOST_COUNT };
	struct postern_claim claim = {
		.node = LOST_NODE,
		.wants = &want,
		.want_count = 1,
		.max = LOST_COUNT,
		.bytes_max = SIZE_MAX / 2,
	};
	struct postern_claims claims = { 0 };
	struct postern_memory *memory = postern_memory_create();
	if (CHECK(memory)) {
		CHECK_OK(cluster->store->ops->claim(cluster->store, &claim, memory,
						 &claims, error),
				error);
		CHECK_INT(claims.count, LOST_COUNT);
	}
	postern_memory_destroy(memory);
}

static uint64_t leased_count(struct node *node) {
	struct postern_stats *stats = NULL;
	uint64_t count = UINT64_MAX;
	if (CHECK_OK(postern_box_stats(node->box, &stats, &node->cluster->error),
				&node->cluster->error)) {
		count = stats->handlers[0].leased;
	}
	postern_stats_destroy(stats);
	return count;
}

/* One sweep recovers all of them: nothing would bring a second one soon. */
static void recover_many(enum postern_processing processing) {
	struct cluster cluster;
	if (open_cluster(&cluster, processing)) {
		struct node *a = &cluster.nodes[0];
		for (int i = 0; i < LOST_COUNT; i++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "%d", i);
			send(a, id);
		}
		lease_all(&cluster);
		CHECK_INT(leased_count(a), LOST_COUNT);
		fake_clock_advance(&cluster.clock, LEASE_MS);
		sweep(a);
		CHECK_INT(leased_count(a), 0);
	}
	close_cluster(&cluster);
}

static void recovery_parallel(void) {
	recover_many(POSTERN_PROCESSING_PARALLEL);
}

static void recovery_exclusive(void) {
	recover_many(POSTERN_PROCESSING_EXCLUSIVE);
}

static const struct tap_case cases[] = {
	{ "one sweep recovers all leases of an expired node", recovery_parallel },
	{ "the next owner of the lock recovers all leases in one sweep",
			recovery_exclusive },
};

TAP_MAIN(cases)
