/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_SIZED_H
#define POSTERN_BASE_SIZED_H

/*
 * Structs that begin with their size, so that they can grow.
 *
 * A program that was compiled against an older header passes a shorter struct:
 * what it lacks keeps the default. One compiled against a newer header passes a
 * longer struct: it is taken if what this version does not know is zero, that
 * is, not used.
 */

#include <postern/error.h>
#include <stddef.h>

/*
 * Copy a struct of any version to `out`, which has `size` bytes and the
 * defaults; `what` names it in the error. Sets the copy's size.
 */
int postern__sized_copy(void *out, size_t size, const void *given,
		const char *what, struct postern_error *error);

#endif
