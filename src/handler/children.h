/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_CHILDREN_H
#define POSTERN_HANDLER_CHILDREN_H

/*
 * The programs that run: one thread of this process starts all of them, waits
 * for all of them and reports their ends, so that a program that hangs holds up
 * nothing but itself.
 */

#include "base/list.h"
#include "handler/process.h"

#include <postern/error.h>

struct postern__child {
	/* Set by the owner, valid until ended() is called. */
	struct postern__process_order order;
	/* Called once on the thread of the children, when the program has ended;
	   the child may be freed in it. */
	void (*ended)(struct postern__child *child);

	struct postern__process_result result; /* for ended() */
	/* Used by the thread of the children. */
	struct postern__list link;
	struct postern__process process;
};

/* Start the thread, unless another owner has. Every call needs one of
   postern__children_release(), when no child of the caller runs; the last one
   ends the thread. */
int postern__children_acquire(struct postern_error *error);
void postern__children_release(void);

/* Start a program, soon. */
void postern__children_start(struct postern__child *child);
/* The cancel word of a child was set. */
void postern__children_wake(void);

#endif
