/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_EXPAND_H
#define POSTERN_BASE_EXPAND_H

#include <postern/error.h>

struct postern__arena;

/* A longer result is refused. */
#define POSTERN__EXPAND_BYTES_MAX ((size_t)1024 * 1024)

/* The value of a variable in a list of "NAME=VALUE" that ends with NULL; NULL
   if it is not there. `environment` may be NULL. */
const char *postern__environment_get(char *const *environment,
		const char *name);

/*
 * Expand the variables of a text: ${NAME}, which must be set, and
 * ${NAME:-TEXT}, which is TEXT if the variable is unset or empty. TEXT ends at
 * the next '}' and is not expanded itself. "$${" stands for "${"; any other '$'
 * for itself.
 *
 * out  the text itself if it has no variables, else in the arena.
 */
int postern__expand(const char *text, char *const *environment,
		struct postern__arena *arena, const char **out,
		struct postern_error *error);

#endif
