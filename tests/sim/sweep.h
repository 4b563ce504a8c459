/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_SWEEP_H
#define POSTERN_TESTS_SIM_SWEEP_H

/*
 * A short story with two nodes, told once for every site that the first one
 * passes: there it is struck, and the other takes over.
 */

#include "sim/sim.h"

struct sim_sweep {
	uint64_t seed; /* decides what handlers say */
	enum sim_store store;
	bool exclusive;
	bool halfway; /* a paused node goes on before the other is through */
	enum sim_blow blow;
	int code; /* of an error */
};

struct sim_swept {
	unsigned runs; /* one per site */
	struct sim_counts sum;
};

/* Strike everywhere. Returns false at the first run that breaks a rule, after
   telling it on stderr. */
bool sim_sweep(const struct sim_sweep *sweep, const char *directory,
		struct sim_swept *swept);

#endif
