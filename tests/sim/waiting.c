/* SPDX-License-Identifier: MIT */
/*
 * What waits, and why. In a calm time a node does what a runner's threads do,
 * and nothing disturbs it: at each poll every delivery starts that is due, or
 * there is a reason for it that the oracle knows without asking the box. A
 * delivery may be found waiting for as many polls as a node needs to notice
 * that it had expired, was resumed, or that a delay has passed.
 */

#include "sim/sim.h"

#include "core/box.h"

/* Of the polls of a calm time, which are a second apart. */
#define WAITED_MAX 2
/* The default of `break_after`. */
#define BREAK_AFTER 20

static unsigned count_held(const struct sim_node *node, unsigned handler) {
	unsigned count = 0;
	for (size_t i = 0; i < node->held_count; i++) {
		count += node->held[i].role->handler == handler;
	}
	return count;
}

/* Whether so many runs of the handler beside all others use up its share: those
   that its policy allows, or the usual number of workers; and who has one
   leaves the last to the others. */
static bool is_share_used(const struct sim_node *node, unsigned handler,
		unsigned generation) {
	unsigned held = count_held(node, handler);
	unsigned most = sim_cast_version(handler, generation).concurrency;
	bool last = node->held_count + 1 >= SIM_WORKERS_MAX;
	return held >= (most > 0 ? most : SIM_WORKERS) || (last && held > 0);
}

void sim_oracle_check_share(struct sim_oracle *oracle,
		const struct sim_role *role) {
	const struct sim_handler *cast = &sim_handlers[role->handler];
	if (role->node->box->workers > 0 && !cast->transactional &&
			is_share_used(role->node, role->handler,
					role->generation->number)) {
		sim_oracle_broken(oracle, "over-share",
				"node %u starts a run of '%s' beside %u of it and %zu in all",
				role->node->index, cast->key,
				count_held(role->node, role->handler), role->node->held_count);
	}
}

/* Whether the node that ran it will know the result in time. What a transaction
   did is known only when the store has committed it. */
static bool is_certain(const struct sim_oracle *oracle,
		const struct sim_node *node, unsigned handler,
		const struct sim_delivery *delivery, uint64_t fence) {
	bool transactional = sim_handlers[handler].transactional &&
						 oracle->sim->plan->store != SIM_MEMORY;
	return !transactional && delivery->state == POSTERN_STATE_LEASED &&
		   delivery->fence == fence && delivery->node == node->box->node &&
		   delivery->run_took_ms < SIM_LEASE_MS &&
		   delivery->run_took_ms < sim_oracle_timeout(oracle, handler,
										   delivery->run_generation);
}

void sim_oracle_note_trouble(struct sim_oracle *oracle, struct sim_node *node,
		unsigned stored, const struct postern_delivery *run,
		enum postern_outcome_kind kind) {
	unsigned handler = oracle->stored[stored].handler;
	struct sim_trouble *trouble = &node->trouble[handler];
	const struct sim_record *record = sim_oracle_find(oracle, run->seq);
	bool success = kind == POSTERN_DONE || kind == POSTERN_DISCARD;
	if (success && record &&
			is_certain(oracle, node, handler, &record->deliveries[stored],
					run->fence)) {
		*trouble = (struct sim_trouble){ 0 };
	} else {
		trouble->faulted = trouble->faulted || kind == POSTERN_HOLD;
		trouble->failures += kind != POSTERN_HOLD; /* it may be too late */
	}
}

static bool is_in_process(unsigned handler) {
	return sim_handlers[handler].callback || sim_handlers[handler].in_process;
}

static bool is_open(const struct sim_delivery *delivery) {
	return delivery->exists && (delivery->state == POSTERN_STATE_PENDING ||
									   delivery->state == POSTERN_STATE_LEASED);
}

static int64_t monotonic_ms(const struct sim_oracle *oracle) {
	struct fake_clock *clock = &oracle->sim->clock;
	return clock->base.monotonic_ms(clock->base.context);
}

int64_t sim_oracle_suspect_until_ms(struct sim_oracle *oracle, unsigned stored,
		int64_t seq) {
	const struct sim_record *record = sim_oracle_find(oracle, seq);
	bool suspect = record && record->deliveries[stored].suspect &&
				   is_in_process(oracle->stored[stored].handler);
	return suspect ? monotonic_ms(oracle) + SIM_LEASE_MS : 0;
}

/* Whether a delivery may have killed a process: then runs in the process wait
   for one another. A run that has lost its lease may still kill this one. */
static bool any_suspect(const struct sim_oracle *oracle,
		const struct sim_node *node) {
	for (size_t i = 0; i < node->held_count; i++) {
		if (node->held[i].suspect_until_ms > monotonic_ms(oracle)) {
			return true;
		}
	}
	for (size_t i = 0; i < oracle->count; i++) {
		for (unsigned j = 0; j < oracle->stored_count; j++) {
			const struct sim_delivery *delivery =
					&oracle->records[i].deliveries[j];
			if (is_open(delivery) && delivery->suspect &&
					is_in_process(oracle->stored[j].handler)) {
				return true;
			}
		}
	}
	return false;
}

/* Whether deliveries under this id have a reason to wait on the node. */
static bool has_reason(const struct sim_oracle *oracle,
		const struct sim_node *node, unsigned stored, bool suspects) {
	unsigned handler = oracle->stored[stored].handler;
	const struct sim_trouble *trouble = &node->trouble[handler];
	return sim_stored_paused(oracle, stored) ||
		   is_share_used(node, handler, node->generation) ||
		   (suspects && is_in_process(handler)) || trouble->faulted ||
		   trouble->failures >= BREAK_AFTER;
}

static bool is_waiting(const struct sim_oracle *oracle,
		const struct sim_node *node, const struct sim_delivery *delivery,
		unsigned stored) {
	if (!is_open(delivery) || !sim_oracle_has_handler(oracle, node, stored)) {
		return false;
	}
	if (delivery->state == POSTERN_STATE_LEASED) {
		return delivery->node == node->box->node && !delivery->reply_lost &&
			   delivery->run_fence != delivery->fence;
	}
	return delivery->due_ms > 0 &&
		   delivery->due_ms <= fake_clock_now(&oracle->sim->clock);
}

void sim_oracle_calm_begin(struct sim_oracle *oracle) {
	for (size_t i = 0; i < oracle->count; i++) {
		for (unsigned j = 0; j < oracle->stored_count; j++) {
			oracle->records[i].deliveries[j].waited = 0;
		}
	}
}

static void note_waiting(struct sim_oracle *oracle, const struct sim_node *node,
		size_t record, unsigned stored, bool excused) {
	struct sim_delivery *delivery = &oracle->records[record].deliveries[stored];
	bool same = delivery->waited_fence == delivery->fence;
	bool waits = !excused && is_waiting(oracle, node, delivery, stored);
	delivery->waited = waits ? (same ? delivery->waited : 0) + 1 : 0;
	delivery->waited_fence = delivery->fence;
	if (delivery->waited > WAITED_MAX) {
		sim_oracle_broken(oracle, "waits",
				"message %lld of '%s' is %s and waits without a reason, which "
				"node %u could run",
				(long long)oracle->records[record].seq,
				oracle->stored[stored].key, postern_state_name(delivery->state),
				node->index);
	}
}

void sim_oracle_calm(struct sim_oracle *oracle, const struct sim_node *node) {
	const struct postern_box *box = node->box;
	/* Only the owner of the lock runs anything; and when the store's clock was
	   set back, nobody knows what is due. */
	bool owner = !oracle->sim->plan->exclusive ||
				 sim_oracle_owns(oracle, &box->lock_held, box->node);
	bool excused = node->dead || !owner || oracle->set_back;
	bool suspects = any_suspect(oracle, node);
	for (unsigned j = 0; j < oracle->stored_count; j++) {
		bool reason = excused || has_reason(oracle, node, j, suspects);
		for (size_t i = 0; i < oracle->count; i++) {
			note_waiting(oracle, node, i, j, reason);
		}
	}
}
