/* SPDX-License-Identifier: MIT */
/*
 * Which handlers a node has registered in the store: those of the generation in
 * place, and of former ones until nothing uses them any more.
 */

#include "sim/sim.h"

static bool is_registered(const struct sim_oracle *oracle,
		const struct sim_node_lease *lease, unsigned owner) {
	for (unsigned i = 0; i < oracle->stored_count; i++) {
		if (lease->registered[i] && oracle->stored[i].owner == owner) {
			return true;
		}
	}
	return false;
}

/* A handler of a generation that the node has in use. */
static void check_registered(struct sim_oracle *oracle,
		const struct sim_node_lease *lease, const struct sim_node *node,
		unsigned handler, unsigned generation) {
	unsigned owner = sim_stored_of(oracle, handler, generation);
	if (sim_cast_version(handler, generation).exists &&
			(owner == SIM_STORED_MAX || !is_registered(oracle, lease, owner))) {
		sim_oracle_broken(oracle, "not-registered",
				"node %u, which uses generation %u, has not registered '%s'",
				node->index, generation, sim_handlers[handler].key);
	}
}

/* A node registers the generation in place, and former ones until nothing uses
   them any more, unless the store refused them. */
void sim_oracle_record_registered(struct sim_oracle *oracle,
		struct sim_node_lease *lease, const struct sim_node *node,
		const struct postern_enrolment *enrolment) {
	for (size_t i = 0; i < enrolment->handler_count; i++) {
		unsigned stored = sim_stored_find(oracle, enrolment->handlers[i].id);
		if (stored < SIM_STORED_MAX) {
			lease->registered[stored] = true;
		}
	}
	if (node->enrol_refused) {
		return;
	}
	for (unsigned i = 0; i < SIM_HANDLER_COUNT; i++) {
		check_registered(oracle, lease, node, i, node->generation);
	}
	for (size_t i = 0; i < node->held_count; i++) {
		const struct sim_role *role = node->held[i].role;
		check_registered(oracle, lease, node, role->handler,
				role->generation->number);
	}
	for (size_t i = 0; i < node->sent_count; i++) {
		for (unsigned j = 0; j < SIM_HANDLER_COUNT; j++) {
			check_registered(oracle, lease, node, j, node->sent[i].generation);
		}
	}
}

void sim_oracle_check_registered(struct sim_oracle *oracle,
		const struct sim_node *node, uint64_t node_id) {
	const struct sim_node_lease *lease = sim_oracle_node_lease(oracle, node_id);
	for (unsigned i = 0; lease && i < oracle->stored_count; i++) {
		const struct sim_stored *stored = &oracle->stored[i];
		if (lease->registered[i] &&
				sim_stored_of(oracle, stored->handler, node->generation) !=
						stored->owner) {
			sim_oracle_broken(oracle, "still-registered",
					"node %u of generation %u has registered '%s'", node->index,
					node->generation, stored->key);
		}
	}
}
