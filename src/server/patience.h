/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_PATIENCE_H
#define POSTERN_SERVER_PATIENCE_H

/*
 * How long a process waits for a store that somebody else holds.
 *
 * There is a moment in which a server has taken the store and does not listen
 * yet, or listens no more and still has it; or it is another command, which
 * will be done soon. All of these pass. An embedding program does not.
 */

#include <stdbool.h>
#include <stdint.h>

struct postern__patience {
	int64_t end_ms; /* on the monotonic clock */
};

void postern__patience_init(struct postern__patience *patience);

/* Wait a little before the next try. False: no more tries. */
bool postern__patience_wait(const struct postern__patience *patience);

#endif
