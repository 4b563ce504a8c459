/* SPDX-License-Identifier: MIT */

/*
 * Type patterns. Input: a pattern, a newline, a text. The match is compared
 * with a table over all prefixes of the pattern and of the text, the check with
 * a separate implementation of its rules.
 */

#include <postern/error.h>

#include "base/pattern.h"
#include "fuzz.h"

/* A limit, because the table is quadratic. */
#define LEN_MAX 512

static bool matches_naively(const char *pattern, size_t pattern_len,
		const char *text, size_t text_len) {
	/* row[j]: whether the pattern so far matches the first j bytes. */
	bool row[LEN_MAX + 1] = { true };
	for (size_t i = 0; i < pattern_len; i++) {
		bool next[LEN_MAX + 1] = { false };
		bool star = pattern[i] == '*';
		next[0] = star && row[0];
		for (size_t j = 0; j < text_len; j++) {
			next[j + 1] = star ? row[j + 1] || next[j]
							   : row[j] && pattern[i] == text[j];
		}
		memcpy(row, next, sizeof row);
	}
	return row[text_len];
}

static bool is_valid_pattern(const char *pattern, size_t len) {
	size_t characters = 0;
	size_t stars = 0;
	for (size_t at = 0; at < len; characters++) {
		size_t step = naive_utf8_len(pattern + at, len - at);
		if (step == 0) {
			return false;
		}
		uint32_t c = naive_utf8_character(pattern + at, step);
		if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
			return false;
		}
		stars += c == '*';
		at += step;
	}
	return characters > 0 && characters <= POSTERN__PATTERN_CHARS_MAX &&
		   stars <= POSTERN__PATTERN_STARS_MAX;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	const char *pattern = (const char *)data;
	const char *newline = size > 0 ? memchr(data, '\n', size) : NULL;
	size_t pattern_len = newline ? (size_t)(newline - pattern) : size;
	const char *text = newline ? newline + 1 : pattern + size;
	size_t text_len = newline ? size - pattern_len - 1 : 0;
	struct postern_error error = { 0 };

	int r = postern__pattern_check(pattern, pattern_len, &error);
	MUST(r == (is_valid_pattern(pattern, pattern_len) ? POSTERN_OK
													  : POSTERN_E_INVALID));
	MUST(r == POSTERN_OK || (error.text[0] && fuzz_is_clean(error.text)));
	if (pattern_len <= LEN_MAX && text_len <= LEN_MAX) {
		MUST(postern__pattern_match(pattern, pattern_len, text, text_len) ==
				matches_naively(pattern, pattern_len, text, text_len));
	}
	return 0;
}
