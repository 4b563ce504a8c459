/* SPDX-License-Identifier: MIT */
/* The worker of the pull handler. It records what it claims and what it is
   told of its results: what it was told is done must not be claimed again. */

#include <postern/pull.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash/faults.h"
#include "crash/world.h"

#define HANDLER "erp"
#define TRIES 5
#define REST_MS 5000

/* The first attempt of some fails. */
static enum postern_outcome_kind outcome_of(
		const struct postern_pulled *pulled) {
	const struct postern_message *message = pulled->message;
	bool fails = message->body_len == strlen("fail once") &&
				 memcmp(message->body, "fail once", message->body_len) == 0;
	return fails && pulled->attempt == 1 ? POSTERN_RETRY : POSTERN_DONE;
}

void world_post(struct world *world, const char *id, const char *body) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.body = body,
		.body_len = strlen(body),
	};
	int r = POSTERN_E_UNAVAILABLE;
	for (int i = 0; i < TRIES && r && r != POSTERN_E_DUPLICATE; i++) {
		faults_arm(true);
		r = postern_box_accept(world->box, "leavings", &message, NULL, NULL);
		faults_arm(false);
		if (r) {
			world_wait(world, REST_MS);
		}
	}
}

static struct postern_pull_batch *claim(struct world *world, size_t max) {
	const struct postern_pull_options options = {
		.size = sizeof options,
		.handler = HANDLER,
		.max = (uint32_t)max,
		.wait_ms = world->flowing ? 1000 : 0,
		.lease_ms = WORLD_PULL_LEASE_MS,
	};
	struct postern_pull_batch *batch = NULL;
	int r = POSTERN_E_UNAVAILABLE;
	for (int i = 0; i < TRIES && r; i++) {
		faults_arm(true);
		r = postern_box_pull(world->box, &options, &batch, NULL);
		faults_arm(false);
		if (r) {
			world_wait(world, REST_MS);
		}
	}
	return r ? NULL : batch;
}

static void settle(struct world *world, struct postern_pull_result *results,
		size_t count) {
	int r = POSTERN_E_UNAVAILABLE;
	for (int i = 0; i < TRIES && r; i++) {
		faults_arm(true);
		r = postern_box_settle(world->box, results, count, NULL);
		faults_arm(false);
		if (r) {
			world_wait(world, 1);
		}
	}
	for (size_t i = 0; !r && i < count; i++) {
		bool done = results[i].outcome == POSTERN_DONE && !results[i].code;
		history_write(&world->history,
				"{\"e\":\"pulled\",\"node\":%d,\"seq\":%lld,\"fence\":%llu,"
				"\"done\":%s}",
				world->life, (long long)results[i].seq,
				(unsigned long long)results[i].fence, done ? "true" : "false");
	}
}

size_t world_pull(struct world *world, size_t max, bool leave) {
	struct postern_pull_result results[WORLD_PULL_MAX];
	struct postern_pull_batch *batch = claim(world, max);
	size_t count = batch ? postern_pull_batch_count(batch) : 0;
	for (size_t i = 0; i < count; i++) {
		const struct postern_pulled *pulled = postern_pull_batch_get(batch, i);
		history_write(&world->history,
				"{\"e\":\"pull\",\"node\":%d,\"seq\":%lld,\"fence\":%llu}",
				world->life, (long long)pulled->seq,
				(unsigned long long)pulled->fence);
		results[i] = (struct postern_pull_result){
			.size = sizeof results[i],
			.seq = pulled->seq,
			.handler = HANDLER,
			.fence = pulled->fence,
			.outcome = outcome_of(pulled),
		};
	}
	if (count > 0) {
		faults_arm(true);
		(void)postern_box_extend(world->box, results[0].seq, HANDLER,
				results[0].fence, 2 * WORLD_PULL_LEASE_MS, NULL, NULL);
		faults_arm(false);
	}
	if (count > 0 && !leave) {
		settle(world, results, count);
	}
	postern_pull_batch_destroy(batch);
	return count;
}
