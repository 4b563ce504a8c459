/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_SQLSTATE_H
#define POSTERN_BASE_SQLSTATE_H

/*
 * What an error that PostgreSQL returned to a handler's statement is caused by,
 * read from its SQLSTATE.
 */

#include <stdbool.h>

enum postern__cause {
	/* The server or its machine: nothing is counted. */
	POSTERN__CAUSE_STORE,
	/* Another transaction: run again at once. */
	POSTERN__CAUSE_COLLISION,
	/* The handler: its statement fails whatever the message is. */
	POSTERN__CAUSE_HANDLER,
	/* The message, with the data as they are now. */
	POSTERN__CAUSE_MESSAGE,
	/* The message: the statement fails on it again in the same way. */
	POSTERN__CAUSE_MESSAGE_FOREVER
};

/*
 * state      five characters; NULL: the error is not the server's.
 * connected  whether the connection that the error came over still works.
 */
enum postern__cause postern__sqlstate_cause(const char *state, bool connected);

#endif
