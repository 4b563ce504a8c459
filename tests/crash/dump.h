/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CRASH_DUMP_H
#define POSTERN_TESTS_CRASH_DUMP_H

/*
 * What is in the store in the end, for the checker: all messages and
 * deliveries, seen through the box, and the effects, seen past it.
 */

#include "crash/world.h"

/* Write the dump of an open box, which is closed. Ends the program if that
   cannot be done. */
void dump_write(struct world *world, bool drained, const char *path);

#endif
