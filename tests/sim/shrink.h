/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_SHRINK_H
#define POSTERN_TESTS_SIM_SHRINK_H

/* Making a plan that breaks a rule as small as can be. */

#include "sim/sim.h"

#define SIM_RULE_LEN_MAX 63

/*
 * As sim_run(), in a process of its own: one that dies or hangs breaks the
 * rule "survives". `rule` has room for SIM_RULE_LEN_MAX + 1.
 */
bool sim_run_apart(const struct sim_plan *plan,
		const struct sim_options *options, char *rule, char *text, size_t size);

/*
 * Leave out operations and blows for as long as the plan still breaks the
 * same rule. Returns how many runs it took.
 */
unsigned sim_shrink(struct sim_plan *plan, const struct sim_options *options,
		const char *rule);

#endif
