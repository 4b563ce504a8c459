/* SPDX-License-Identifier: MIT */
/*
 * A node: a box on the shared store, with the channels and handlers of its
 * generation, until it is stopped or killed.
 */

#include "sim/handler.h"

#include "core/box.h"
#include "core/run.h"

#include <stdlib.h>
#include <string.h>

void sim_node_init(struct sim *sim, struct sim_node *node, unsigned index) {
	node->sim = sim;
	node->index = index;
	fake_clock_init(&node->clock);
	/* The nodes' clocks run at the same speed but show different times. */
	fake_clock_jump(&node->clock, (int64_t)index * 3333);
	fake_clock_advance(&node->clock, (int64_t)index * 12345);
	fake_random_init(&node->random, sim_hash(sim->plan->seed, index, 2, 0));
}

static void on_event(void *context, const struct postern_event *event) {
	struct sim_node *node = context;
	if (!node->dead) {
		sim_history_event(node, event);
	}
}

static int add_channels(struct sim_node *node, unsigned number,
		struct postern_generation *generation, struct postern_error *error) {
	int r = POSTERN_OK;
	for (unsigned i = 0; !r && i < SIM_CHANNEL_COUNT; i++) {
		if (!sim_cast_has_channel(i, number)) {
			continue;
		}
		struct postern_channel_options options = {
			.size = sizeof(options),
			.unrouted = sim_channels[i].unrouted,
			.on_conflict = node->sim->plan->ignore_conflicts
								   ? POSTERN_CONFLICT_IGNORE
								   : POSTERN_CONFLICT_REJECT,
		};
		if (node->sim->plan->retention) {
			options.retention_payload_ms = SIM_PAYLOAD_MS;
			options.retention_dedupe_ms = SIM_DEDUPE_MS;
		}
		r = postern_generation_add_channel(generation, sim_channels[i].name,
				&options, error);
	}
	return r;
}

static int add_handler(struct sim_node *node, struct sim_role *role,
		struct postern_generation *generation, struct postern_error *error) {
	const struct sim_handler *cast = &sim_handlers[role->handler];
	struct sim_version version =
			sim_cast_version(role->handler, role->generation->number);
	if (!version.exists) {
		return POSTERN_OK;
	}
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = version.max_attempts;
	policy.max_crashes = cast->max_crashes;
	policy.lease_ms = SIM_LEASE_MS;
	if (version.timeout_ms > 0) {
		policy.timeout_ms = version.timeout_ms;
	}
	if (version.commit_batch > 0) {
		policy.commit_batch = version.commit_batch;
	}
	if (version.concurrency > 0) {
		policy.concurrency = version.concurrency;
	}
	if (cast->retry_poisoned) {
		policy.on_poisoned_duplicate = POSTERN_POISONED_DUPLICATE_RETRY;
	}
	struct postern_handler_options options = {
		.size = sizeof(options),
		.key = version.key,
		.legacy_keys = &version.legacy_key,
		.legacy_key_count = version.legacy_key ? 1 : 0,
		.types = &version.type,
		.type_count = version.type ? 1 : 0,
		.transactional =
				cast->transactional && node->sim->plan->store != SIM_MEMORY,
		.policy = &policy,
	};
	const char *channel = sim_channels[cast->channel].name;
	if (cast->callback) {
		options.callback = sim_handler_call;
		options.context = role;
		return postern_generation_add_handler(generation, channel, &options,
				error);
	}
	return postern__generation_register_taking(generation, channel, &options,
			sim_handler_create(role, options.transactional), error);
}

/* Add the channels and handlers of the cast's generation `number`. Returns
   NULL if that failed. */
static struct sim_generation *fill_generation(struct sim_node *node,
		unsigned number, struct postern_generation *generation,
		struct postern_error *error) {
	struct sim_generation *made = calloc(1, sizeof(*made));
	if (!made) {
		abort();
	}
	made->number = number;
	int r = add_channels(node, number, generation, error);
	for (unsigned i = 0; !r && i < SIM_HANDLER_COUNT; i++) {
		made->roles[i] = (struct sim_role){ node, i, made };
		r = add_handler(node, &made->roles[i], generation, error);
	}
	if (r) {
		sim_oracle_broken(&node->sim->oracle, "set-up", "node %u: %s",
				node->index, error->text);
		free(made);
		return NULL;
	}
	return made;
}

/* Its roles may be in use until the box is closed, also if the box refused
   it. */
static void keep_generation(struct sim_node *node,
		struct sim_generation *generation, bool in_place) {
	struct sim_generation **place = &node->generations;
	if (!in_place && *place) {
		place = &(*place)->next;
	}
	generation->next = *place;
	*place = generation;
}

static int box_set_up(struct sim_node *node, struct postern_error *error) {
	struct postern_box_options options = {
		.size = sizeof(options),
		.batch_size = 4,
		/* Longer than any pause: a unit whose lease was recovered must be
		   refused by its fence, not skipped because its batch took too long. */
		.command_timeout_ms = (int64_t)60 * 60 * 1000,
		.run_queue_max = 40,
		.orphans = POSTERN_ORPHANS_HOLD,
		.processing = node->sim->plan->exclusive ? POSTERN_PROCESSING_EXCLUSIVE
												 : POSTERN_PROCESSING_PARALLEL,
		.node_lease_ms = node->sim->plan->node_lease_ms,
		.cleanup_batch = 5,
		.clock = &node->clock.base,
		.random = &node->random.base,
	};
	int r = postern_box_open_taking(sim_store_create(node), &options,
			&node->box, error);
	if (!r) {
		struct sim_generation *made = fill_generation(node, node->generation,
				node->box->generation, error);
		if (!made) {
			return POSTERN_E_INVALID;
		}
		keep_generation(node, made, true);
		r = postern_box_subscribe(node->box, POSTERN_LEVEL_DEBUG, on_event,
				node, error);
	}
	return r;
}

void sim_node_start(struct sim_node *node, unsigned generation, bool leasing) {
	struct postern_error error = { 0 };
	node->generation = generation;
	node->dead = false;
	node->sent_count = 0;
	memset(node->trouble, 0, sizeof(node->trouble));
	sim_history_node(node, "start");
	int r = box_set_up(node, &error);
	if (r) {
		sim_oracle_broken(&node->sim->oracle, "set-up", "node %u: %s",
				node->index, error.text);
		return;
	}
	r = postern_box_start(node->box, &error);
	if (r) {
		sim_trace(node->sim, "  node %u failed to start: %s", node->index,
				error.text);
		sim_node_kill(node);
		return;
	}
	/* As with a runner: messages are leased when they are accepted. */
	(void)pthread_mutex_lock(&node->box->mutex);
	node->box->leasing = leasing;
	if (leasing && node->sim->plan->calms) {
		node->box->workers = SIM_WORKERS;
		node->box->workers_max = SIM_WORKERS_MAX;
	}
	(void)pthread_mutex_unlock(&node->box->mutex);
}

bool sim_node_replace(struct sim_node *node, unsigned generation) {
	struct postern_error error = { 0 };
	struct postern_generation *next;
	if (postern_generation_create(node->box, &next, &error)) {
		abort();
	}
	struct sim_generation *made =
			fill_generation(node, generation, next, &error);
	if (!made) {
		postern_generation_destroy(next);
		return false;
	}
	int r = postern_box_replace_taking(node->box, next, &error);
	keep_generation(node, made, !r);
	if (r) {
		sim_trace(node->sim, "  node %u keeps generation %u: %s", node->index,
				node->generation, error.text);
		return false;
	}
	node->generation = generation;
	node->sim->counts.replaced++;
	sim_trace(node->sim, "  node %u has generation %u", node->index,
			generation);
	return true;
}

void sim_node_sent(struct sim_node *node, const struct sim_parcel *parcel) {
	if (node->sent_count < SIM_SENT_MAX) {
		node->sent[node->sent_count++] = (struct sim_sent){
			.number = parcel->number,
			.variant = parcel->variant,
			.generation = parcel->generation,
		};
	}
}

void sim_node_answered(struct sim_node *node, const struct sim_parcel *parcel) {
	for (size_t i = 0; i < node->sent_count; i++) {
		const struct sim_sent *sent = &node->sent[i];
		if (sent->number == parcel->number &&
				sent->variant == parcel->variant &&
				sent->generation == parcel->generation) {
			node->sent[i] = node->sent[--node->sent_count];
			return;
		}
	}
}

void sim_node_kill(struct sim_node *node) {
	if (!node->box || node->dead) {
		return;
	}
	node->dead = true;
	node->sim->counts.crashes++;
	sim_history_node(node, "crash");
}

static void close_box(struct sim_node *node) {
	while (node->held_count > 0) {
		sim_node_finish(node, 0);
	}
	node->box->workers = 0;
	postern_box_destroy(node->box);
	node->box = NULL;
	while (node->generations) {
		struct sim_generation *generation = node->generations;
		node->generations = generation->next;
		free(generation);
	}
	if (node->sim->plan->node_lease_ms == 0) {
		/* Such a node is the process, and the store's file is closed with
		   it. */
		sim_world_reopen(node->sim);
	}
}

void sim_node_close_dead(struct sim_node *node) {
	if (node->box && node->dead) {
		close_box(node);
	}
}

/* Drain as a runner does when it stops. */
static void drain_box(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	box->leasing = false;
	box->draining = true;
	(void)pthread_mutex_unlock(&box->mutex);
	postern__return_queued(box, true);
	postern__cancel_running(box, true);
	(void)postern_box_commit(box, NULL, NULL);
	(void)pthread_mutex_lock(&box->mutex);
	box->draining = false;
	(void)pthread_mutex_unlock(&box->mutex);
}

void sim_node_stop(struct sim_node *node) {
	uint64_t id = node->box->node;
	/* Without the lock the node can return no leases, even if it believes to
	   have the lock. */
	bool can_return =
			!node->sim->plan->exclusive ||
			sim_oracle_owns(&node->sim->oracle, &node->box->lock_held, id);
	while (node->held_count > 0) {
		sim_node_finish(node, 0);
	}
	drain_box(node->box);
	close_box(node);
	if (node->dead) {
		return;
	}
	sim_history_node(node, "stop");
	if (can_return && !node->fault_done) {
		sim_oracle_node_stopped(&node->sim->oracle, id);
	}
}
