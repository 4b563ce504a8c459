/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_FAIL_H
#define POSTERN_BASE_FAIL_H

#include <postern/error.h>

/*
 * Fill in an error and return its code, so that failing is one line:
 *
 *   return postern__fail(error, POSTERN_E_INVALID, "no channel '%s'", name);
 *
 * error   gets the code and the text; may be NULL.
 * code    one of the negative POSTERN_E_ codes, never POSTERN_OK.
 * format  as for printf. The arguments may point into error->text itself,
 *         which is how a caller adds context to an earlier text.
 *
 * The text is safe to log, whatever was formatted into it: one line, valid
 * UTF-8, no control characters, truncated between two characters.
 *
 * Does not change errno. Always returns code.
 */
int postern__fail(struct postern_error *error, int code, const char *format,
		...) __attribute__((format(printf, 3, 4)));

/*
 * The same, with a code that the compiler can see: compilers and analyzers know
 * that this is a failure and do not warn about outputs that were not written.
 * The code is evaluated twice, so it must have no side effects.
 */
#define postern__fail(error, code, ...) \
	(postern__fail((error), (code), __VA_ARGS__), (code))

#endif
