/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_ERROR_H
#define POSTERN_ERROR_H

/*
 * Error codes and texts.
 *
 * Functions return an int: POSTERN_OK or one of the negative codes below. A
 * code exists only where a caller would act differently; the text for people is
 * written to a struct postern_error that the caller owns. Pass NULL to ignore
 * the text. Nothing needs to be freed, and nothing is kept per thread.
 */

#include <postern/export.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
#define POSTERN_ERROR_MAP(X)                                          \
	/* name       value  transient  text */                       \
	X(INVALID,     -1, false, "invalid argument or input")        \
	X(NOMEM,       -2, true,  "out of memory")                    \
	X(NOTFOUND,    -3, false, "no such object")                   \
	X(DUPLICATE,   -4, false, "message already accepted")         \
	X(STALE,       -5, false, "lease expired or was taken over")  \
	X(BUSY,        -6, true,  "conflicting concurrent operation") \
	X(UNAVAILABLE, -7, true,  "backend cannot be reached")        \
	X(TIMEOUT,     -8, true,  "deadline exceeded")                \
	X(CORRUPT,     -9, false, "stored data failed validation")    \
	X(UNSUPPORTED, -10, false, "not implemented by this backend") \
	X(CONFLICT,    -11, false, "same identity, other body")       \
	X(FAILED,      -12, true,  "the function failed")
/* clang-format on */

enum postern_code {
	POSTERN_OK = 0,
#define POSTERN_ERROR_CODE(name, value, transient, text) \
	POSTERN_E_##name = (value),
	POSTERN_ERROR_MAP(POSTERN_ERROR_CODE)
#undef POSTERN_ERROR_CODE
};

/* The size of an error's text, including the terminating zero. */
#define POSTERN_ERROR_TEXT_MAX 252

/* Owned by the caller; written only when a call fails. */
struct postern_error {
	int code;
	char text[POSTERN_ERROR_TEXT_MAX];
};

/* The general meaning of a code: a static string, never NULL. */
POSTERN_EXPORT const char *postern_error_text(int code);

/* Whether the same call may succeed later without any change. */
POSTERN_EXPORT bool postern_error_transient(int code);

#ifdef __cplusplus
}
#endif

#endif
