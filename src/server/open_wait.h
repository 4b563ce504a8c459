/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_OPEN_WAIT_H
#define POSTERN_SERVER_OPEN_WAIT_H

/*
 * How long a process waits for a store that another process owns.
 *
 * A server that starts owns the store before it listens, and one that stops
 * owns it after it has stopped listening; another command ends soon, but more
 * commands may wait behind it. All of these are transient and worth the wait.
 * An embedding program may be about to end, but rarely is.
 */

#include <stdbool.h>
#include <stdint.h>

/* On the monotonic clock. */
struct postern__open_wait {
	int64_t soon_ms;     /* the deadline for owners that may stay */
	int64_t end_ms;      /* the deadline for transient owners */
	int64_t back_off_ms; /* the next pause of postern__open_wait_back_off() */
};

/* passing_ms how long to wait for a transient owner: command_timeout. */
void postern__open_wait_init(struct postern__open_wait *patience,
		int64_t passing_ms);

/*
 * Wait a little before the next attempt. False: the time is up.
 *
 * passing  the present owner will release the store on its own.
 */
bool postern__open_wait_next(const struct postern__open_wait *patience,
		bool passing);

/*
 * The same for a server that responds, but whose store fails or that is
 * overloaded: each pause is longer than the one before, so that only a few
 * requests are made.
 */
bool postern__open_wait_back_off(struct postern__open_wait *patience);

#endif
