/* SPDX-License-Identifier: MIT */

/*
 * Matching with stars. The literal pieces between the stars are searched one
 * after the other, each for its first occurrence: an earlier occurrence leaves
 * more text for the pieces after it, so there is no backtracking. memmem() is
 * linear in glibc and musl, and so is the whole match.
 */

#include "base/pattern.h"

#include <postern/error.h>
#include <string.h>

#include "base/fail.h"
#include "base/utf8.h"

int postern__pattern_check(const char *pattern, size_t len,
		struct postern_error *error) {
	if (len == 0) {
		return postern__fail(error, POSTERN_E_INVALID, "a pattern is empty");
	}
	if (!postern__utf8_valid(pattern, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a pattern is not valid UTF-8");
	}
	if (postern__utf8_count(pattern, len) > POSTERN__PATTERN_CHARS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a pattern has more than %d characters",
				POSTERN__PATTERN_CHARS_MAX);
	}
	if (postern__utf8_has_control(pattern, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a pattern has a control character");
	}
	unsigned stars = 0;
	for (size_t i = 0; i < len; i++) {
		stars += pattern[i] == '*';
	}
	if (stars > POSTERN__PATTERN_STARS_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"pattern '%.*s' has %u stars; at most %d are allowed", (int)len,
				pattern, stars, POSTERN__PATTERN_STARS_MAX);
	}
	return POSTERN_OK;
}

static bool bytes_equal(const char *a, const char *b, size_t len) {
	return len == 0 || memcmp(a, b, len) == 0;
}

/* The number of bytes before the first star, or in total if there is none. */
static size_t piece_len(const char *pattern, size_t len) {
	const char *star = len > 0 ? memchr(pattern, '*', len) : NULL;
	return star ? (size_t)(star - pattern) : len;
}

bool postern__pattern_match(const char *pattern, size_t pattern_len,
		const char *text, size_t text_len) {
	size_t len = piece_len(pattern, pattern_len);
	if (len == pattern_len) {
		return text_len == len && bytes_equal(text, pattern, len);
	}
	if (text_len < len || !bytes_equal(text, pattern, len)) {
		return false;
	}
	text += len;
	text_len -= len;
	for (;;) {
		/* The pattern now begins with a star, after the part that matched. */
		pattern += len + 1;
		pattern_len -= len + 1;
		len = piece_len(pattern, pattern_len);
		if (len == pattern_len) {
			break;
		}
		if (len > 0) {
			const char *place =
					text_len > 0 ? memmem(text, text_len, pattern, len) : NULL;
			if (!place) {
				return false;
			}
			size_t passed = (size_t)(place - text) + len;
			text += passed;
			text_len -= passed;
		}
	}
	/* What follows the last star must be the text's end. */
	return text_len >= len &&
		   bytes_equal(text + (text_len - len), pattern, len);
}
