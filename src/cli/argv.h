/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_ARGV_H
#define POSTERN_CLI_ARGV_H

/*
 * The words of the command line. Other users can read them while the process
 * runs, so the process works with a copy and removes secrets from the
 * originals.
 */

#include <stddef.h>

struct postern__args;

/* A copy, to be freed by postern__argv_free(). NULL: no memory. */
char **postern__argv_copy(char *const *words, size_t count);
/* NULL is fine. */
void postern__argv_free(char **copy, size_t count);

/* Overwrite, in the words, the secrets in the values of flags; `args` were
   parsed from the copy. The words move up, and must not be used afterwards. */
void postern__argv_hide(char *const *words, char *const *copy, size_t count,
		const struct postern__args *args);

#endif
