/* SPDX-License-Identifier: MIT */
/*
 * The story: two nodes are up and the first does all that a node can do. At
 * the site where it is struck the second gets its turn: it waits until the
 * first must be taken for dead, takes over and works until nothing is left.
 * Only then does the first, if it was merely paused, go on with what it was
 * doing, and believes what it believed before.
 */

#include "sim/sweep.h"

#include <stdlib.h>

/* The first node's part. */
static const struct sim_op story[] = {
	{ .kind = SIM_SEND_BATCH, .a = 0, .b = 0x5f1 },
	{ .kind = SIM_SEND_BATCH, .a = 1, .b = 0x5f1 },
	{ .kind = SIM_SEND_BATCH, .a = 2, .b = 0x5f1 },
	{ .kind = SIM_SWEEP },
	{ .kind = SIM_SEND, .a = 3, .b = 1 },
	{ .kind = SIM_SEND_ASYNC, .a = 4, .b = 1 },
	{ .kind = SIM_SEND_ASYNC, .a = 5, .b = 1 },
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

/* The second's: enough rounds for every retry. */
#define ROUND_COUNT 6
static const struct sim_op turn[] = {
	{ .kind = SIM_WAIT, .node = 1, .a = 5 },
	{ .kind = SIM_SWEEP, .node = 1 },
	{ .kind = SIM_PROCESS, .node = 1, .a = 0 },
};

/* Or only its beginning: it has leases when the first goes on. */
static const struct sim_op half_turn[] = {
	{ .kind = SIM_WAIT, .node = 1, .a = 5 },
	{ .kind = SIM_SWEEP, .node = 1 },
	{ .kind = SIM_CLAIM, .node = 1, .a = 7 },
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void add(struct sim_plan *plan, const struct sim_op *ops, size_t count) {
	for (size_t i = 0; i < count; i++) {
		plan->ops[plan->op_count++] = ops[i];
	}
}

/* The story in which operation `index` is struck at its `at`-th site. */
static void make_plan(const struct sim_sweep *sweep, size_t index, unsigned at,
		struct sim_plan *plan) {
	*plan = (struct sim_plan){
		.seed = sweep->seed,
		.store = sweep->store,
		.nodes = 2,
		.node_lease_ms = SIM_NODE_LEASE_MS,
		.exclusive = sweep->exclusive,
		.retention = true,
		.prompt = true,
	};
	static const struct sim_op begin[] = {
		{ .kind = SIM_START, .node = 0, .a = 2, .b = 1 },
		{ .kind = SIM_START, .node = 1, .a = 2, .b = 1 },
		{ .kind = SIM_PUMP, .node = 0, .b = 2 },
	};
	add(plan, begin, COUNT(begin));
	for (size_t i = 0; i < COUNT(story); i++) {
		add(plan, &story[i], 1);
		if (i != index) {
			continue;
		}
		struct sim_op *op = &plan->ops[plan->op_count - 1];
		op->blow = sweep->blow;
		op->at = at;
		op->code = sweep->code;
		if (sweep->halfway) {
			op->span = COUNT(half_turn);
			add(plan, half_turn, COUNT(half_turn));
			continue;
		}
		op->span = ROUND_COUNT * COUNT(turn);
		for (size_t j = 0; j < ROUND_COUNT; j++) {
			add(plan, turn, COUNT(turn));
		}
	}
}

/* The first goes on: by now the second has done everything. */
static void check_done(void *context, struct sim_node *node, const char *site) {
	(void)context;
	size_t forgotten;
	struct sim_oracle *oracle = &node->sim->oracle;
	size_t open = sim_oracle_open(oracle, NULL, &forgotten);
	if (open > 0) {
		sim_oracle_broken(oracle, "not-taken-over",
				"%zu deliveries are open after a pause at %s", open, site);
	}
}

/* One run. *struck_out: whether there was such a site. */
static bool run(const struct sim_plan *plan, const struct sim_sweep *sweep,
		const char *directory, struct sim_swept *swept, bool *struck_out) {
	struct sim_counts counts = { 0 };
	struct sim_options options = {
		.directory = directory,
		.sum = &counts,
		.resumed = sweep->halfway ? NULL : check_done,
	};
	char text[400];
	bool good = sim_run(plan, &options, NULL, text, sizeof(text));
	*struck_out = counts.errors + counts.crashes + counts.pauses > 0;
	swept->runs += *struck_out;
	sim_counts_add(&swept->sum, &counts);
	if (!good) {
		options.words = stderr;
		(void)sim_run(plan, &options, NULL, text, sizeof(text));
	}
	return good;
}

bool sim_sweep(const struct sim_sweep *sweep, const char *directory,
		struct sim_swept *swept) {
	struct sim_plan *plan = malloc(sizeof(*plan));
	if (!plan) {
		abort();
	}
	bool good = true;
	for (size_t i = 0; good && i < COUNT(story); i++) {
		bool struck = true;
		for (unsigned at = 0; good && struck; at++) {
			make_plan(sweep, i, at, plan);
			good = run(plan, sweep, directory, swept, &struck);
		}
	}
	free(plan);
	return good;
}
