/* SPDX-License-Identifier: MIT */
/*
 * Shrinking: ranges of operations are left out, long ones first, then single
 * blows, then blows are made simpler, until nothing smaller breaks the same
 * rule. Every candidate is a plan like any other and is simply run.
 */

#include "sim/shrink.h"

#include <stdlib.h>
#include <string.h>

/* So that a person need not wait for the last operation. */
#define RUN_COUNT_MAX 4000

struct shrinker {
	struct sim_plan *plan; /* the smallest so far */
	struct sim_plan candidate;
	struct sim_options options;
	const char *rule;
	unsigned runs;
};

static bool still_breaks(struct shrinker *self) {
	const char *rule = NULL;
	char text[400];
	self->runs++;
	bool good = sim_run(&self->candidate, &self->options, &rule, text,
			sizeof(text));
	return !good && strcmp(rule, self->rule) == 0;
}

static bool try_without(struct shrinker *self, size_t from, size_t count) {
	self->candidate = *self->plan;
	struct sim_op *ops = self->candidate.ops;
	size_t rest = self->candidate.op_count - from - count;
	memmove(&ops[from], &ops[from + count], rest * sizeof(*ops));
	self->candidate.op_count -= count;
	if (!still_breaks(self)) {
		return false;
	}
	*self->plan = self->candidate;
	return true;
}

/* True if anything could be left out. */
static bool remove_ranges(struct shrinker *self) {
	bool any = false;
	for (size_t len = self->plan->op_count / 2; len > 0; len /= 2) {
		for (size_t from = 0; from + len <= self->plan->op_count &&
							  self->runs < RUN_COUNT_MAX;) {
			if (try_without(self, from, len)) {
				any = true;
			} else {
				from += len;
			}
		}
	}
	return any;
}

static bool try_op(struct shrinker *self, size_t index,
		const struct sim_op *op) {
	self->candidate = *self->plan;
	self->candidate.ops[index] = *op;
	if (self->runs >= RUN_COUNT_MAX || !still_breaks(self)) {
		return false;
	}
	*self->plan = self->candidate;
	return true;
}

static bool simplify_ops(struct shrinker *self) {
	bool any = false;
	for (size_t i = 0; i < self->plan->op_count; i++) {
		struct sim_op op = self->plan->ops[i];
		if (op.blow != SIM_BLOW_NONE) {
			struct sim_op calm = op;
			calm.blow = SIM_BLOW_NONE;
			any = try_op(self, i, &calm) || any;
		}
		if (op.kind == SIM_SEND_BATCH || op.kind == SIM_SEND_ASYNC) {
			struct sim_op plain = self->plan->ops[i];
			plain.kind = SIM_SEND;
			any = try_op(self, i, &plain) || any;
		}
	}
	return any;
}

unsigned sim_shrink(struct sim_plan *plan, const struct sim_options *options,
		const char *rule) {
	struct shrinker *self = calloc(1, sizeof(*self));
	if (!self) {
		abort();
	}
	self->plan = plan;
	self->options = (struct sim_options){
		.mutant = options->mutant,
		.directory = options->directory,
	};
	self->rule = rule;
	while (remove_ranges(self) || simplify_ops(self)) {
	}
	unsigned runs = self->runs;
	free(self);
	return runs;
}
