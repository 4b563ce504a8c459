/* SPDX-License-Identifier: MIT */
/*
 * A complete run: the plan, then a quiet phase. In the quiet phase no fault is
 * injected, every handler is resumed, and the nodes run until nothing is left
 * to do; then the promises must hold.
 */

#include "sim/sim.h"

#include "core/box.h"

#include <stdlib.h>

/* Far more than all backoffs of all attempts take. */
#define QUIET_ROUNDS 60
#define QUIET_STEP_MS ((int64_t)3 * 60 * 1000)

/* Resume through the store, not through a node: each node has to detect it. */
static void resume_all(struct sim *sim) {
	for (unsigned i = 0; i < sim->oracle.stored_count; i++) {
		const struct sim_stored *stored = &sim->oracle.stored[i];
		struct postern_edit edit = {
			.kind = POSTERN_CHANGE_RESUME,
			.handler = stored->key,
		};
		if (sim_stored_paused(&sim->oracle, i) &&
				sim->store->ops->edit(sim->store, &edit, NULL) == POSTERN_OK) {
			sim_oracle_paused(&sim->oracle, stored->key, false, 0);
		}
	}
	for (unsigned i = 0; i < SIM_CHANNEL_COUNT; i++) {
		struct postern_edit edit = {
			.kind = POSTERN_CHANGE_OPEN,
			.channel = sim_channels[i].name,
		};
		if (sim->oracle.closed[i] &&
				sim->store->ops->edit(sim->store, &edit, NULL) == POSTERN_OK) {
			sim_oracle_closed(&sim->oracle, edit.channel, false);
		}
	}
}

/* Every node commits, sweeps and processes once. */
static void run_round(struct sim *sim) {
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		if (!node->box) {
			continue; /* another node is the survivor */
		}
		while (node->held_count > 0) {
			sim_node_finish(node, 0);
		}
		(void)postern_box_commit(node->box, NULL, NULL);
		(void)postern_box_sweep(node->box, NULL, NULL);
		(void)postern_box_process(node->box, 0, NULL, NULL);
	}
}

static void start_all(struct sim *sim) {
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		/* The newest generation has every handler, so that nothing is
		   orphaned. */
		if (!sim->nodes[i].box) {
			sim_node_start(&sim->nodes[i], SIM_GENERATION_COUNT - 1, true);
		}
	}
}

static void restart_all(struct sim *sim) {
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		sim_node_stop(&sim->nodes[i]);
	}
	start_all(sim);
}

/* Every node replaces its generation by the newest version; one that has
   expired registers again before. */
static void replace_all(struct sim *sim) {
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		(void)postern_box_sweep(node->box, NULL, NULL);
		if (!sim_node_replace(node, SIM_GENERATION_COUNT - 1)) {
			sim_oracle_broken(&sim->oracle, "not-replaced",
					"node %u keeps generation %u", i, node->generation);
		}
	}
}

/* Run until no delivery is open that a running node can run; `alone` is the
   only running node, NULL: all are running. */
static void run_until_ended(struct sim *sim, const struct sim_node *alone) {
	size_t open = 1;
	size_t forgotten = 0;
	for (unsigned i = 0; i < QUIET_ROUNDS && open > 0; i++) {
		run_round(sim);
		open = sim_oracle_count_open(&sim->oracle, alone, &forgotten);
		if (!alone && open > 0 && open == forgotten) {
			/* A lease whose node does not know it ends with the node. */
			restart_all(sim);
		}
		sim_advance(sim, QUIET_STEP_MS);
	}
}

/* With nothing left to do, former generations end. */
static void check_registered(struct sim *sim) {
	run_round(sim);
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		const struct sim_node *node = &sim->nodes[i];
		if (node->box) {
			sim_oracle_check_registered(&sim->oracle, node, node->box->node);
		}
	}
}

/* All nodes stop but one, which continues with what it knows: the handler ids
   and the pauses that it read. */
static void run_survivor(struct sim *sim, struct sim_node *survivor) {
	if (!survivor->box || survivor->dead) {
		return;
	}
	sim_trace(sim, "node %u continues alone", survivor->index);
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		if (node != survivor && node->box) {
			sim_node_stop(node);
		}
	}
	run_until_ended(sim, survivor);
	sim_oracle_check_survivor(&sim->oracle, survivor);
	if (sim->plan->replaces) {
		check_registered(sim);
	}
}

static void run_quiet_phase(struct sim *sim) {
	sim->quiet = true;
	sim_trace(sim, "quiet phase: no more faults");
	resume_all(sim);
	if (sim->plan->survivor > 0) {
		run_survivor(sim, &sim->nodes[sim->plan->survivor - 1]);
	}
	start_all(sim);
	if (sim->oracle.rule) {
		return;
	}
	if (sim->plan->replaces) {
		replace_all(sim);
	} else {
		run_until_ended(sim, NULL);
		restart_all(sim);
	}
	/* All nodes have the newest generation: now no message that it wants is
	   parked. */
	run_until_ended(sim, NULL);
	sim_oracle_check_drained(&sim->oracle);
	if (sim->plan->replaces) {
		check_registered(sim);
	}
}

void sim_counts_add(struct sim_counts *sum, const struct sim_counts *counts) {
	sum->ops += counts->ops;
	sum->errors += counts->errors;
	sum->crashes += counts->crashes;
	sum->pauses += counts->pauses;
	sum->runs += counts->runs;
	sum->messages += counts->messages;
	sum->recoveries += counts->recoveries;
	sum->fenced += counts->fenced;
	sum->late_claims += counts->late_claims;
	sum->double_owners += counts->double_owners;
	sum->aliases += counts->aliases;
	sum->refused += counts->refused;
	sum->replaced += counts->replaced;
	sum->replaced_busy += counts->replaced_busy;
	sum->calms += counts->calms;
	sum->calm_starts += counts->calm_starts;
}

/* Stop all nodes and write the dump. */
static void finish_run(struct sim *sim) {
	bool good = !sim->oracle.rule;
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		if (node->box && good) {
			sim_node_stop(node);
		} else {
			sim_node_kill(node);
			sim_node_close_dead(node);
		}
	}
	if (!sim->store) {
		return;
	}
	if (good) {
		sim_dump_begin(sim);
		sim_world_effects(sim);
		sim_dump_end(sim);
	}
	sim_world_close(sim);
}

bool sim_run(const struct sim_plan *plan, const struct sim_options *options,
		const char **rule_out, char *text, size_t size) {
	struct sim *sim = calloc(1, sizeof(*sim));
	if (!sim) {
		abort();
	}
	sim->plan = plan;
	sim->options = *options;
	sim->oracle.sim = sim;
	fake_clock_init(&sim->clock);
	fake_random_init(&sim->random, sim_hash(plan->seed, 3, 0, 0));
	for (unsigned i = 0; i < plan->nodes; i++) {
		sim_node_init(sim, &sim->nodes[i], i);
	}
	sim_history_config(sim);
	if (sim_world_open(sim) == POSTERN_OK) {
		sim_points_watch(sim);
		while (!sim->oracle.rule && sim_step_next(sim)) {
		}
		if (!sim->oracle.rule) {
			run_quiet_phase(sim);
		}
		sim_points_end();
	}
	finish_run(sim);
	if (options->sum) {
		sim_counts_add(options->sum, &sim->counts);
	}
	bool good = !sim->oracle.rule;
	if (!good) {
		if (rule_out) {
			*rule_out = sim->oracle.rule;
		}
		(void)snprintf(text, size, "%s", sim->oracle.text);
	}
	sim_oracle_finish(&sim->oracle);
	free(sim);
	return good;
}
