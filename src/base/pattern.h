/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_PATTERN_H
#define POSTERN_BASE_PATTERN_H

/*
 * Type patterns, as in a handler's `types: ["order.*"]`. A `*` matches any
 * sequence of bytes, also dots and an empty one; every other byte matches
 * itself. There is no escape: `*` also matches a literal star.
 */

#include <stdbool.h>
#include <stddef.h>

struct postern_error;

/* The same limit as for the type of a message. */
#define POSTERN__PATTERN_CHARS_MAX 200
/* More are of no use; the limit bounds the cost of a match. */
#define POSTERN__PATTERN_STARS_MAX 8

/*
 * POSTERN_E_INVALID unless it is 1 to POSTERN__PATTERN_CHARS_MAX characters of
 * valid UTF-8 without control characters and with at most
 * POSTERN__PATTERN_STARS_MAX stars.
 */
int postern__pattern_check(const char *pattern, size_t len,
		struct postern_error *error);

/*
 * Whether the whole text matches. Takes time linear in both lengths, for any
 * pattern, checked or not.
 */
bool postern__pattern_match(const char *pattern, size_t pattern_len,
		const char *text, size_t text_len);

#endif
