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

/* Fill a caller's struct of `room` bytes from one of `size` bytes: what the
   caller does not know is left out, what this version does not know is 0. */
void postern__sized_fill(void *out, size_t room, const void *from, size_t size);

/* As postern__sized_fill(), for a struct that begins with its size, which the
   caller has set. */
int postern__sized_write(void *out, const void *from, size_t size,
		const char *what, struct postern_error *error);

/* The distance between the elements of an array of such structs, which all have
   the size of the first; 0: its size is not set. */
size_t postern__sized_stride(const void *first);

#endif
