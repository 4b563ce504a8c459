/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_MARKS_H
#define POSTERN_CLI_MARKS_H

/*
 * Changes of markers, for the commands `mark` and `once`: each is one request,
 * with a client of its own, so that a store of one process is open only for
 * moments.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct postern__cli;

/* What is changed; members that are NULL or 0 are left out. */
struct postern__marks_order {
	const char *verb; /* "try", "begin", …: see server/api_marks.c */
	const char *handler;
	const char *key;
	uint64_t fence;
	const char *lease;
	const char *older_than;
};

/* Reduce the stores of the command to the one that has the markers. Returns
   POSTERN__EXIT_OK, or another exit status after printing why. */
int postern__marks_begin(struct postern__cli *cli);

/*
 * Make the request. With a fence it may be repeated.
 *
 * status_out  of HTTP: 200, or 409 if the lease was lost. NULL: that is an
 *             error, too.
 * out         the response; json_decref() it.
 *
 * Returns POSTERN__EXIT_OK, or another exit status after printing why.
 */
int postern__marks_change(struct postern__cli *cli,
		const struct postern__marks_order *order, int *status_out,
		json_t **out);

/* A random number that is not 0. */
uint64_t postern__marks_fence(void);

/* The value of --duplicate-exit, 0 if it is left out. */
int postern__marks_duplicate_exit(const struct postern__cli *cli,
		unsigned long *out);

#endif
