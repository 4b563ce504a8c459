/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_SHRINK_H
#define POSTERN_TESTS_SIM_SHRINK_H

/* Making a plan that breaks a rule as small as possible. */

#include "sim/sim.h"

#define SIM_RULE_LEN_MAX 63

/*
 * As sim_run(), in a child process: one that crashes or hangs breaks the rule
 * "survives". `rule` has room for SIM_RULE_LEN_MAX + 1.
 */
bool sim_run_in_child(const struct sim_plan *plan,
		const struct sim_options *options, char *rule, char *text, size_t size);

/*
 * Leave out operations and faults as long as the plan still breaks the same
 * rule. Returns the number of runs.
 */
unsigned sim_shrink(struct sim_plan *plan, const struct sim_options *options,
		const char *rule);

#endif
