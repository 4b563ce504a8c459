/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_FUZZ_H
#define POSTERN_TESTS_FUZZ_H

/*
 * Shared by the fuzz targets. A target is one function that gets any bytes,
 * passes them to a parser, and compares the result with a second, naive parse
 * of the same bytes, or with conditions that hold for any result. A violation
 * aborts the program, which libFuzzer detects.
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/naive_utf8.h"

/* The name is required by libFuzzer. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Like assert(), but also with NDEBUG. */
#define MUST(condition) fuzz_must((condition), __FILE__, __LINE__, #condition)

__attribute__((unused)) static void fuzz_must(bool held, const char *file,
		int line, const char *text) {
	if (!held) {
		(void)fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
		abort();
	}
}

/* Requires that two texts are equal. */
#define MUST_EQUAL(actual, expected) \
	fuzz_must_equal((actual), (expected), __FILE__, __LINE__, #actual)

__attribute__((unused)) static void fuzz_must_equal(const char *actual,
		const char *expected, const char *file, int line, const char *text) {
	if (strcmp(actual, expected) != 0) {
		(void)fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", file, line,
				text, actual, expected);
		abort();
	}
}

/* Copies a part of the input as a text that ends in a zero byte; the caller
   frees it. Its size is exact, so that reading past it is detected. */
__attribute__((unused)) static char *fuzz_text(const void *bytes, size_t len) {
	char *text = calloc(len + 1, 1);
	MUST(text);
	if (len > 0) {
		memcpy(text, bytes, len);
	}
	return text;
}

/* The unread part of the input. */
struct fuzz_input {
	const uint8_t *at;
	size_t len;
};

/* Returns the next byte; 0 at the end of the input. */
__attribute__((unused)) static uint8_t fuzz_byte(struct fuzz_input *input) {
	if (input->len == 0) {
		return 0;
	}
	input->len--;
	return *input->at++;
}

/* Reads up to the next `end`, which is skipped, or all that is left; the caller
   frees it. A zero byte before it ends the text early. */
__attribute__((unused)) static char *fuzz_until(struct fuzz_input *input,
		char end) {
	const uint8_t *place =
			input->len > 0 ? memchr(input->at, end, input->len) : NULL;
	size_t len = place ? (size_t)(place - input->at) : input->len;
	char *text = fuzz_text(input->at, len);
	size_t used = place ? len + 1 : len;
	input->at += used;
	input->len -= used;
	return text;
}

/* Whether the text is one line without control characters, safe for terminals,
   logs and JSON. */
__attribute__((unused)) static bool fuzz_is_clean(const char *text) {
	size_t len = strlen(text);
	for (size_t at = 0; at < len;) {
		size_t step = naive_utf8_len(text + at, len - at);
		if (step == 0) {
			return false;
		}
		uint32_t c = naive_utf8_character(text + at, step);
		if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029) {
			return false;
		}
		at += step;
	}
	return true;
}

#endif
