/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_FILTERS_H
#define POSTERN_CLI_FILTERS_H

/*
 * Which deliveries a command is about: flags that are passed on to the API,
 * which reads them and says what is wrong with them.
 */

#include <stddef.h>

struct postern__cli;

/*
 * The filters that were given, one by one: *index is 0 at first. Returns the
 * value, with its name in the API in *name_out; NULL after the last.
 */
const char *postern__filter_next(const struct postern__cli *cli, size_t *index,
		const char **name_out);

#endif
