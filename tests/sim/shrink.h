/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_SHRINK_H
#define POSTERN_TESTS_SIM_SHRINK_H

/* Making a plan that breaks a rule as small as can be. */

#include "sim/sim.h"

/*
 * Leave out operations and blows for as long as the plan still breaks the
 * same rule. Returns how many runs it took.
 */
unsigned sim_shrink(struct sim_plan *plan, const struct sim_options *options,
		const char *rule);

#endif
