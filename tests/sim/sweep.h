/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_SWEEP_H
#define POSTERN_TESTS_SIM_SWEEP_H

/*
 * A short scenario with two nodes, run once for every site that the first node
 * passes: there a fault is injected, and the other node recovers.
 */

#include "sim/sim.h"

struct sim_sweep {
	uint64_t seed; /* decides the outcomes of handlers */
	enum sim_store store;
	bool exclusive;
	bool halfway; /* a paused node continues before the other has finished */
	enum sim_fault fault;
	int code; /* of SIM_FAULT_ERROR */
};

struct sim_sweep_result {
	unsigned runs; /* one for each site */
	struct sim_counts sum;
};

/* Inject the fault at every site. Returns false at the first run that breaks a
   rule, after tracing it to stderr. */
bool sim_sweep(const struct sim_sweep *sweep, const char *directory,
		struct sim_sweep_result *result);

#endif
