/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CLI_WORDS_H
#define POSTERN_CLI_WORDS_H

/*
 * The words of the command line. Everybody on the machine can read them while
 * the process runs, so it works with a copy, and secrets are taken out of the
 * originals.
 */

#include <stddef.h>

struct postern__args;

/* A copy, to be freed by postern__words_free(). NULL: no memory. */
char **postern__words_copy(char *const *words, size_t count);
/* NULL is fine. */
void postern__words_free(char **copy, size_t count);

/* Overwrite, in the words, the secrets in the values of flags; `args` were
   parsed from the copy. The words move up, and are of no use afterwards. */
void postern__words_hide(char *const *words, char *const *copy, size_t count,
		const struct postern__args *args);

#endif
