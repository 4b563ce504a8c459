/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_HANDLER_H
#define POSTERN_TESTS_SIM_HANDLER_H

/* The simulated program's handlers; the context is a struct sim_role. */

#include "sim/sim.h"

#include <postern/sys/handler.h>

void sim_handler_call(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome);

/* The same as a kind of handler of its own, which can hold a run for later. */
struct postern_handler *sim_handler_create(const struct sim_role *role,
		bool transactional);

#endif
