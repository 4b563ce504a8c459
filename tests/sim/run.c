/* SPDX-License-Identifier: MIT */
/*
 * A whole run: the plan, then peace. In peace no blow falls any more, every
 * handler is resumed, and the nodes go on until nothing is left to do; what
 * is true then is what was promised.
 */

#include "sim/sim.h"

#include <stdlib.h>

/* Far more than any backoff and any number of attempts takes. */
#define PEACE_ROUNDS 60
#define PEACE_STEP_MS ((int64_t)3 * 60 * 1000)

/* By an operator who needs no node for that: each has to find out by itself. */
static void resume_all(struct sim *sim) {
	for (unsigned i = 0; i < sim->oracle.stored_count; i++) {
		const struct sim_stored *stored = &sim->oracle.stored[i];
		struct postern_edit edit = {
			.kind = POSTERN_EDIT_RESUME,
			.handler = stored->key,
		};
		if (sim_stored_paused(&sim->oracle, i) &&
				sim->store->ops->edit(sim->store, &edit, NULL) == POSTERN_OK) {
			sim_oracle_paused(&sim->oracle, stored->key, false);
		}
	}
}

/* One round of every node. */
static void go_on(struct sim *sim) {
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		if (!node->box) {
			continue; /* another is left alone */
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
		/* The newest version, so that nobody's deliveries are nobody's. */
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

/* Until nothing is open any more that the nodes that are up can run; `alone`
   is the only one of them, NULL: all are up. */
static void work_off(struct sim *sim, const struct sim_node *alone) {
	size_t open = 1;
	size_t forgotten = 0;
	for (unsigned i = 0; i < PEACE_ROUNDS && open > 0; i++) {
		go_on(sim);
		open = sim_oracle_open(&sim->oracle, alone, &forgotten);
		if (!alone && open > 0 && open == forgotten) {
			/* A lease whose holder never heard of it ends with the holder. */
			restart_all(sim);
		}
		sim_advance(sim, PEACE_STEP_MS);
	}
}

/* All nodes stop but one, which goes on with what it believes: the ids that it
   learned when it started, and which handlers are paused. */
static void leave_alone(struct sim *sim, struct sim_node *survivor) {
	if (!survivor->box || survivor->dead) {
		return;
	}
	sim_say(sim, "node %u is left alone", survivor->index);
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		if (node != survivor && node->box) {
			sim_node_stop(node);
		}
	}
	work_off(sim, survivor);
	sim_oracle_survived(&sim->oracle, survivor);
}

static void drain(struct sim *sim) {
	sim->calm = true;
	sim_say(sim, "peace: no more blows");
	resume_all(sim);
	if (sim->plan->survivor > 0) {
		leave_alone(sim, &sim->nodes[sim->plan->survivor - 1]);
	}
	start_all(sim);
	if (sim->oracle.rule) {
		return;
	}
	work_off(sim, NULL);
	/* All of the newest version: now nothing is parked that it wants. */
	restart_all(sim);
	work_off(sim, NULL);
	sim_oracle_drained(&sim->oracle);
}

void sim_counts_add(struct sim_counts *sum, const struct sim_counts *counts) {
	sum->ops += counts->ops;
	sum->errors += counts->errors;
	sum->crashes += counts->crashes;
	sum->pauses += counts->pauses;
	sum->runs += counts->runs;
	sum->messages += counts->messages;
	sum->takeovers += counts->takeovers;
	sum->fenced += counts->fenced;
	sum->late_claims += counts->late_claims;
	sum->rivals += counts->rivals;
	sum->aliases += counts->aliases;
}

/* Everybody goes, and what is left is written down. */
static void end(struct sim *sim) {
	bool good = !sim->oracle.rule;
	for (unsigned i = 0; i < sim->plan->nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		if (node->box && good) {
			sim_node_stop(node);
		} else {
			sim_node_die(node);
			sim_node_bury(node);
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
			drain(sim);
		}
		sim_points_end();
	}
	end(sim);
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
