/* SPDX-License-Identifier: MIT */
/*
 * Shrinking: ranges of operations are left out, long ones first, then single
 * blows, then blows are made simpler, until nothing smaller breaks the same
 * rule. Every candidate is a plan like any other and is simply run.
 */

#include "sim/shrink.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* So that a person need not wait for the last operation. */
#define RUN_COUNT_MAX 4000

/* No plan takes nearly as long. */
#define HANGS_S 60

/* What the child found out, as it goes through the pipe. */
struct verdict {
	bool good;
	char rule[SIM_RULE_LEN_MAX + 1];
	char text[400];
};

static void run_and_tell(const struct sim_plan *plan,
		const struct sim_options *options, int to) {
	struct verdict verdict = { 0 };
	const char *rule = "";
	(void)signal(SIGABRT, SIG_DFL);
	(void)signal(SIGSEGV, SIG_DFL);
	(void)alarm(HANGS_S);
	verdict.good =
			sim_run(plan, options, &rule, verdict.text, sizeof(verdict.text));
	(void)snprintf(verdict.rule, sizeof(verdict.rule), "%s", rule);
	if (options->words) {
		(void)fflush(options->words);
	}
	_exit(write(to, &verdict, sizeof(verdict)) == sizeof(verdict) ? 0 : 1);
}

bool sim_run_apart(const struct sim_plan *plan,
		const struct sim_options *options, char *rule, char *text,
		size_t size) {
	struct verdict verdict = { 0 };
	int ends[2];
	(void)fflush(NULL);
	if (pipe(ends)) {
		abort();
	}
	pid_t child = fork();
	if (child < 0) {
		abort();
	}
	if (child == 0) {
		run_and_tell(plan, options, ends[1]);
	}
	(void)close(ends[1]);
	ssize_t len = read(ends[0], &verdict, sizeof(verdict));
	(void)close(ends[0]);
	int status = 0;
	(void)waitpid(child, &status, 0);
	if (len != sizeof(verdict)) {
		verdict.good = false;
		(void)snprintf(verdict.rule, sizeof(verdict.rule), "survives");
		(void)snprintf(verdict.text, sizeof(verdict.text),
				"the process ended by signal %d",
				WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	}
	(void)snprintf(rule, SIM_RULE_LEN_MAX + 1, "%s", verdict.rule);
	(void)snprintf(text, size, "%s", verdict.text);
	return verdict.good;
}

struct shrinker {
	struct sim_plan *plan; /* the smallest so far */
	struct sim_plan candidate;
	struct sim_options options;
	const char *rule;
	unsigned runs;
};

static bool still_breaks(struct shrinker *self) {
	char rule[SIM_RULE_LEN_MAX + 1];
	char text[400];
	self->runs++;
	bool good = sim_run_apart(&self->candidate, &self->options, rule, text,
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
