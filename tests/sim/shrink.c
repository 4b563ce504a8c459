/* SPDX-License-Identifier: MIT */
/*
 * Shrinking: ranges of operations are left out, long ones first, then single
 * faults, then operations are simplified, until nothing smaller breaks the same
 * rule. Every candidate is an ordinary plan and is simply run.
 */

#include "sim/shrink.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A limit, because a person may be waiting. */
#define RUN_COUNT_MAX 4000

/* Far longer than any plan takes. */
#define TIMEOUT_S 60

/* The result of the child, as sent through the pipe. */
struct child_result {
	bool good;
	char rule[SIM_RULE_LEN_MAX + 1];
	char text[400];
};

static void run_as_child(const struct sim_plan *plan,
		const struct sim_options *options, int to) {
	struct child_result child_result = { 0 };
	const char *rule = "";
	(void)signal(SIGABRT, SIG_DFL);
	(void)signal(SIGSEGV, SIG_DFL);
	(void)alarm(TIMEOUT_S);
	child_result.good = sim_run(plan, options, &rule, child_result.text,
			sizeof(child_result.text));
	(void)snprintf(child_result.rule, sizeof(child_result.rule), "%s", rule);
	if (options->trace) {
		(void)fflush(options->trace);
	}
	_exit(write(to, &child_result, sizeof(child_result)) == sizeof(child_result)
					? 0
					: 1);
}

bool sim_run_in_child(const struct sim_plan *plan,
		const struct sim_options *options, char *rule, char *text,
		size_t size) {
	struct child_result child_result = { 0 };
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
		run_as_child(plan, options, ends[1]);
	}
	(void)close(ends[1]);
	ssize_t len = read(ends[0], &child_result, sizeof(child_result));
	(void)close(ends[0]);
	int status = 0;
	(void)waitpid(child, &status, 0);
	if (len != sizeof(child_result)) {
		child_result.good = false;
		(void)snprintf(child_result.rule, sizeof(child_result.rule),
				"survives");
		(void)snprintf(child_result.text, sizeof(child_result.text),
				"the process ended by signal %d",
				WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	}
	(void)snprintf(rule, SIM_RULE_LEN_MAX + 1, "%s", child_result.rule);
	(void)snprintf(text, size, "%s", child_result.text);
	return child_result.good;
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
	bool good = sim_run_in_child(&self->candidate, &self->options, rule, text,
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

/* Returns true if anything was left out. */
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
		if (op.fault != SIM_FAULT_NONE) {
			struct sim_op quiet = op;
			quiet.fault = SIM_FAULT_NONE;
			any = try_op(self, i, &quiet) || any;
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
