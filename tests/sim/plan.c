/* SPDX-License-Identifier: MIT */
/*
 * Drawing a plan. Some seeds have few faults and some many, some send many
 * messages and some few: a rate of its own for each seed finds more bugs than
 * one average for all.
 */

#include "sim/plan.h"

#include "sim/cast.h"

#include "unit/dice.h"

#include <postern/error.h>

static const struct {
	const char *name;
	unsigned weight;
} kinds[SIM_KIND_COUNT] = {
	[SIM_SEND] = { "send", 20 },
	[SIM_SEND_BATCH] = { "send-batch", 8 },
	[SIM_SEND_ASYNC] = { "send-async", 8 },
	[SIM_COMMIT] = { "commit", 8 },
	[SIM_CLAIM] = { "claim", 8 },
	[SIM_RUN] = { "run", 8 },
	[SIM_PUMP] = { "pump", 14 },
	[SIM_PROCESS] = { "process", 8 },
	[SIM_SWEEP] = { "sweep", 6 },
	[SIM_FINISH] = { "finish", 5 },
	[SIM_RETRY] = { "retry", 2 },
	[SIM_DISCARD] = { "discard", 2 },
	[SIM_RETRY_ALL] = { "retry-all", 1 },
	[SIM_DISCARD_ALL] = { "discard-all", 1 },
	[SIM_PAUSE] = { "pause", 1 },
	[SIM_RESUME] = { "resume", 2 },
	[SIM_COMPARE] = { "compare", 1 },
	[SIM_START] = { "start", 8 },
	[SIM_STOP] = { "stop", 2 },
	[SIM_CRASH] = { "crash", 2 },
	[SIM_CRASH_ALL] = { "crash-all", 1 },
	[SIM_WAIT] = { "wait", 10 },
	[SIM_JUMP] = { "jump", 1 },
	[SIM_CLEANUP] = { "cleanup", 2 },
	[SIM_REPLACE] = { "replace", 0 }, /* see draw_replacements() */
	[SIM_CALM] = { "calm", 0 },       /* see draw_calms() */
};

const char *sim_store_name(enum sim_store store) {
	static const char *const names[] = {
		[SIM_MEMORY] = "memory",
		[SIM_SQLITE] = "sqlite",
		[SIM_POSTGRES] = "postgres",
	};
	return names[store];
}

const char *sim_kind_name(enum sim_kind kind) {
	return kinds[kind].name;
}

uint64_t sim_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
	struct dice dice = { a };
	dice.state = dice_next(&dice) ^ b;
	dice.state = dice_next(&dice) ^ c;
	dice.state = dice_next(&dice) ^ d;
	return dice_next(&dice);
}

static enum sim_kind draw_kind(struct dice *dice) {
	unsigned total = 0;
	for (size_t i = 0; i < SIM_KIND_COUNT; i++) {
		total += kinds[i].weight;
	}
	size_t drawn = dice_below(dice, total);
	size_t kind = 0;
	while (drawn >= kinds[kind].weight) {
		drawn -= kinds[kind].weight;
		kind++;
	}
	return (enum sim_kind)kind;
}

static int draw_code(struct dice *dice) {
	static const int codes[] = { POSTERN_E_UNAVAILABLE, POSTERN_E_UNAVAILABLE,
		POSTERN_E_TIMEOUT, POSTERN_E_NOMEM, POSTERN_E_BUSY };
	return codes[dice_below(dice, sizeof(codes) / sizeof(codes[0]))];
}

static void draw_fault(struct dice *dice, size_t fault_percent,
		struct sim_op *op) {
	if (dice_below(dice, 100) >= fault_percent) {
		return;
	}
	static const enum sim_fault faults[] = { SIM_FAULT_ERROR, SIM_FAULT_ERROR,
		SIM_FAULT_CRASH, SIM_FAULT_PAUSE, SIM_FAULT_PAUSE, SIM_FAULT_PAUSE };
	op->fault = faults[dice_below(dice, sizeof(faults) / sizeof(faults[0]))];
	/* Most operations pass few sites. */
	op->at = (unsigned)dice_below(dice,
			1 + dice_below(dice, 1 + dice_below(dice, 12)));
	op->code = draw_code(dice);
	op->span = (unsigned)(1 + dice_below(dice, 16));
}

/* The number of a new message, or of an earlier one. */
static uint32_t draw_message(struct dice *dice, size_t again,
		uint32_t *number) {
	if (*number > 0 &&
			(*number == SIM_MESSAGE_MAX || dice_below(dice, 100) < again)) {
		return (uint32_t)dice_below(dice, *number);
	}
	return (*number)++;
}

/* A rolling upgrade: the nodes start one after the other, each with the next
   generation, and keep what they read when they started. */
static void roll_out(struct sim_plan *plan) {
	for (size_t i = 0; i < plan->nodes; i++) {
		size_t later = i * plan->op_count / 6;
		plan->ops[i].a = (uint32_t)i;
		if (later >= plan->nodes) {
			struct sim_op start = plan->ops[i];
			plan->ops[i] = plan->ops[later];
			plan->ops[later] = start;
		}
	}
}

/* Turn some operations into replacements. Their dice are separate, so that
   the other operations stay as they are. */
static void draw_replacements(struct sim_plan *plan) {
	struct dice dice = { sim_hash(plan->seed, 4, 0, 0) };
	size_t percent = 4 + dice_below(&dice, 20);
	for (size_t i = 0; i < plan->op_count; i++) {
		struct sim_op *op = &plan->ops[i];
		if (op->kind != SIM_START && dice_below(&dice, 100) < percent) {
			op->kind = SIM_REPLACE;
			op->a = (uint32_t)dice_next(&dice);
		}
	}
}

/* The same for calm times, in which no fault is injected. */
static void draw_calms(struct sim_plan *plan) {
	struct dice dice = { sim_hash(plan->seed, 5, 0, 0) };
	size_t percent = 2 + dice_below(&dice, 10);
	for (size_t i = 0; i < plan->op_count; i++) {
		struct sim_op *op = &plan->ops[i];
		if (op->kind != SIM_START && dice_below(&dice, 100) < percent) {
			op->kind = SIM_CALM;
			op->fault = SIM_FAULT_NONE;
		}
	}
}

void sim_plan_make(struct sim_plan *plan, uint64_t seed, enum sim_store store) {
	struct dice dice = { seed };
	*plan = (struct sim_plan){
		.seed = seed,
		.store = store,
		.nodes = 1 + (unsigned)dice_below(&dice, SIM_NODE_MAX),
		.node_lease_ms = SIM_NODE_LEASE_MS,
		.exclusive = dice_below(&dice, 3) == 0,
		.retention = dice_below(&dice, 3) == 0,
		.ignore_conflicts = dice_below(&dice, 4) == 0,
		/* One seed in three has neither. */
		.replaces = seed % 3 == 0,
		.holds = seed % 3 != 1,
		.calms = seed % 2 == 0,
		.op_count = 20 + dice_below(&dice, SIM_OP_MAX - 20),
	};
	if (store == SIM_SQLITE && plan->nodes == 1 && dice_below(&dice, 2) == 0) {
		plan->node_lease_ms = 0;
	}
	/* After an edit of many deliveries the oracle knows less of each. */
	bool many = dice_below(&dice, 4) == 0;
	size_t fault_percent = dice_below(&dice, 40);
	size_t again = 10 + dice_below(&dice, 21);
	uint32_t number = 0;
	for (size_t i = 0; i < plan->op_count; i++) {
		struct sim_op *op = &plan->ops[i];
		op->kind = draw_kind(&dice);
		op->node = (unsigned)dice_below(&dice, plan->nodes);
		op->a = (uint32_t)dice_next(&dice);
		op->b = (uint32_t)dice_next(&dice);
		if (!many && op->kind == SIM_RETRY_ALL) {
			op->kind = SIM_RETRY;
		} else if (!many && op->kind == SIM_DISCARD_ALL) {
			op->kind = SIM_DISCARD;
		}
		if (i < plan->nodes) {
			op->kind = SIM_START; /* at first all nodes start */
			op->node = (unsigned)i;
			continue;
		}
		if (op->kind == SIM_SEND || op->kind == SIM_SEND_ASYNC ||
				op->kind == SIM_SEND_BATCH) {
			op->a = draw_message(&dice, again, &number);
		}
		draw_fault(&dice, fault_percent, op);
	}
	if (dice_below(&dice, 3) > 0 && plan->nodes == SIM_GENERATION_COUNT) {
		roll_out(plan);
	}
	plan->survivor = (unsigned)dice_below(&dice, plan->nodes + 1);
	if (plan->replaces) {
		draw_replacements(plan);
	}
	if (plan->calms) {
		draw_calms(plan);
	}
}
