/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_PATIENCE_H
#define POSTERN_SERVER_PATIENCE_H

/*
 * How long a process waits for a store that somebody else holds.
 *
 * There is a moment in which a server has taken the store and does not listen
 * yet, or listens no more and still has it; or it is another command, which
 * will be done soon, and behind which others may wait. All of these pass and
 * are worth the wait. An embedding program may be about to end, but rarely is.
 */

#include <stdbool.h>
#include <stdint.h>

/* On the monotonic clock. */
struct postern__patience {
	int64_t soon_ms; /* the end for what may last */
	int64_t end_ms;  /* the end for what passes */
};

/* passing_ms  how long to wait for what passes: command_timeout, as it is a
			   turn that is waited for. */
void postern__patience_init(struct postern__patience *patience,
		int64_t passing_ms);

/*
 * Wait a little before the next try. False: no more tries.
 *
 * passing  whoever holds the store now will be done by itself.
 */
bool postern__patience_wait(const struct postern__patience *patience,
		bool passing);

#endif
