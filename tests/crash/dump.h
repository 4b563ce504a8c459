/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CRASH_DUMP_H
#define POSTERN_TESTS_CRASH_DUMP_H

/*
 * The final content of the store, for the checker: all messages and deliveries,
 * read through the box, and the effects, read directly from the database.
 */

#include "crash/world.h"

/* Write the dump of an open box and close the box. Ends the program on
   failure. */
void dump_write(struct world *world, bool drained, const char *path);

#endif
