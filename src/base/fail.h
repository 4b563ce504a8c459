/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_FAIL_H
#define POSTERN_BASE_FAIL_H

#include <postern/error.h>

/*
 * Say what went wrong and return the code, so that failing is one line:
 *
 *   return postern__fail(error, POSTERN_E_INVALID, "no channel '%s'", name);
 *
 * error   filled with the code and the text; may be NULL, then only the code
 *         is passed on.
 * code    one of the negative POSTERN_E_ codes, never POSTERN_OK.
 * format  as for printf. The arguments may point into error->text itself,
 *         which is how a caller puts context in front of an earlier text.
 *
 * The text is safe to log whatever was formatted into it: one line, valid
 * UTF-8, no control characters, cut between two characters if it is too long.
 *
 * Does not change errno. Always returns code.
 */
int postern__fail(struct postern_error *error, int code, const char *format,
		...) __attribute__((format(printf, 3, 4)));

/*
 * The same, with the code in sight of the caller: compilers and analyzers see
 * that this is a failure and do not worry about outputs that were not written.
 * The code is evaluated twice, so it must have no side effects.
 */
#define postern__fail(error, code, ...) \
	(postern__fail((error), (code), __VA_ARGS__), (code))

#endif
