/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_FILTERS_H
#define POSTERN_CLI_FILTERS_H

/*
 * Filter flags, which are passed on to the API; the API validates them.
 */

#include <stddef.h>

#include "server/route.h"

struct postern__cli;

/*
 * The filters that were given, one by one: *index is 0 at first. Returns the
 * value, with its name in the API in *name_out; NULL after the last.
 */
const char *postern__filter_next(const struct postern__cli *cli, size_t *index,
		const char **name_out);

/*
 * Validate the filters and --limit as the API will, before a store is opened.
 * Returns POSTERN__EXIT_OK, or POSTERN__EXIT_USAGE after printing the error.
 */
int postern__filters_check(const struct postern__cli *cli,
		enum postern__edit edit);

#endif
