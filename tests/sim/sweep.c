/* SPDX-License-Identifier: MIT */
/*
 * The scenario: two nodes are running and the first executes every operation of
 * a node. At the site where the fault is injected the second node runs: it
 * waits until the first has expired, recovers its leases and works until
 * nothing is left. Only then does the first, if it was merely paused, continue
 * with the state it had before.
 */

#include "sim/sweep.h"

#include <stdlib.h>

/* The operations of the first node. */
static const struct sim_op scenario[] = {
	{ .kind = SIM_SEND_BATCH, .a = 0, .b = 0x5f1 },
	{ .kind = SIM_SEND_BATCH, .a = 1, .b = 0x5f1 },
	{ .kind = SIM_SEND_BATCH, .a = 2, .b = 0x5f1 },
	{ .kind = SIM_SWEEP },
	{ .kind = SIM_SEND, .a = 3, .b = 1 },
	{ .kind = SIM_SEND_ASYNC, .a = 4, .b = 1 },
	{ .kind = SIM_SEND_ASYNC, .a = 5, .b = 1 },
	{ .kind = SIM_REPLACE, .a = 4 }, /* with leases and sends of the old one */
	{ .kind = SIM_COMMIT },
	{ .kind = SIM_RUN, .a = 4 },
	{ .kind = SIM_COMMIT },
	{ .kind = SIM_CLAIM, .a = 4 },
	{ .kind = SIM_RUN, .a = 4 },
	{ .kind = SIM_PUMP, .b = 1 },
	{ .kind = SIM_SEND, .a = 0, .b = 1 }, /* a duplicate */
	{ .kind = SIM_WAIT, .a = 2 },
	{ .kind = SIM_PROCESS, .a = 0 },
	{ .kind = SIM_RETRY, .a = 0, .b = 0 },
	{ .kind = SIM_DISCARD, .a = 1, .b = 0 },
	{ .kind = SIM_WAIT, .a = 5 },
	{ .kind = SIM_WAIT, .a = 5 },
	{ .kind = SIM_PUMP, .b = 1 },
	{ .kind = SIM_CLEANUP },
	{ .kind = SIM_PROCESS, .a = 0 },
	{ .kind = SIM_STOP },
	{ .kind = SIM_START, .a = 2, .b = 1 },
	{ .kind = SIM_PUMP, .b = 1 },
};

/* The operations of the second node: enough rounds for every retry. */
#define ROUND_COUNT 6
static const struct sim_op second_round[] = {
	{ .kind = SIM_WAIT, .node = 1, .a = 5 },
	{ .kind = SIM_SWEEP, .node = 1 },
	{ .kind = SIM_PROCESS, .node = 1, .a = 0 },
};

/* Or only the beginning: the second node has leases when the first
   continues. */
static const struct sim_op second_half[] = {
	{ .kind = SIM_WAIT, .node = 1, .a = 5 },
	{ .kind = SIM_SWEEP, .node = 1 },
	{ .kind = SIM_CLAIM, .node = 1, .a = 7 },
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void append_ops(struct sim_plan *plan, const struct sim_op *ops,
		size_t count) {
	for (size_t i = 0; i < count; i++) {
		plan->ops[plan->op_count++] = ops[i];
	}
}

/* The scenario with the fault at the `at`-th site of operation `index`. */
static void make_plan(const struct sim_sweep *sweep, size_t index, unsigned at,
		struct sim_plan *plan) {
	*plan = (struct sim_plan){
		.seed = sweep->seed,
		.store = sweep->store,
		.nodes = 2,
		.node_lease_ms = SIM_NODE_LEASE_MS,
		.exclusive = sweep->exclusive,
		.retention = true,
		.instant = true,
	};
	static const struct sim_op begin[] = {
		{ .kind = SIM_START, .node = 0, .a = 2, .b = 1 },
		{ .kind = SIM_START, .node = 1, .a = 2, .b = 1 },
		{ .kind = SIM_PUMP, .node = 0, .b = 2 },
	};
	append_ops(plan, begin, COUNT(begin));
	for (size_t i = 0; i < COUNT(scenario); i++) {
		append_ops(plan, &scenario[i], 1);
		if (i != index) {
			continue;
		}
		struct sim_op *op = &plan->ops[plan->op_count - 1];
		op->fault = sweep->fault;
		op->at = at;
		op->code = sweep->code;
		if (sweep->halfway) {
			op->span = COUNT(second_half);
			append_ops(plan, second_half, COUNT(second_half));
			continue;
		}
		op->span = ROUND_COUNT * COUNT(second_round);
		for (size_t j = 0; j < ROUND_COUNT; j++) {
			append_ops(plan, second_round, COUNT(second_round));
		}
	}
}

/* The first node continues: by now the second has run everything. */
static void check_done(void *context, struct sim_node *node, const char *site) {
	(void)context;
	size_t forgotten;
	struct sim_oracle *oracle = &node->sim->oracle;
	size_t open = sim_oracle_count_open(oracle, NULL, &forgotten);
	if (open > 0) {
		sim_oracle_broken(oracle, "not-recovered",
				"%zu deliveries are open after a pause at %s", open, site);
	}
}

/* One run. *fault_done_out: whether there was such a site. */
static bool run_plan(const struct sim_plan *plan, const struct sim_sweep *sweep,
		const char *directory, struct sim_sweep_result *result,
		bool *fault_done_out) {
	struct sim_counts counts = { 0 };
	struct sim_options options = {
		.directory = directory,
		.sum = &counts,
		.resumed = sweep->halfway ? NULL : check_done,
	};
	char text[400];
	bool good = sim_run(plan, &options, NULL, text, sizeof(text));
	*fault_done_out = counts.errors + counts.crashes + counts.pauses > 0;
	result->runs += *fault_done_out;
	sim_counts_add(&result->sum, &counts);
	if (!good) {
		options.trace = stderr;
		(void)sim_run(plan, &options, NULL, text, sizeof(text));
	}
	return good;
}

bool sim_sweep(const struct sim_sweep *sweep, const char *directory,
		struct sim_sweep_result *result) {
	struct sim_plan *plan = malloc(sizeof(*plan));
	if (!plan) {
		abort();
	}
	bool good = true;
	for (size_t i = 0; good && i < COUNT(scenario); i++) {
		bool fault_done = true;
		for (unsigned at = 0; good && fault_done; at++) {
			make_plan(sweep, i, at, plan);
			good = run_plan(plan, sweep, directory, result, &fault_done);
		}
	}
	free(plan);
	return good;
}
