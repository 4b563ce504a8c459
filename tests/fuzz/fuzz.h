/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_FUZZ_H
#define POSTERN_TESTS_FUZZ_H

/*
 * What the fuzz targets share. A target is one function that takes any bytes,
 * gives them to a parser, and compares what comes out with a second, naive
 * reading of the same bytes, or with what must hold for any answer. What does
 * not hold ends the program, which is what libFuzzer looks for.
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/naive_utf8.h"

/* The name is libFuzzer's. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unlike an assert() it says which of the values it is about. */
#define MUST(condition) fuzz_must((condition), __FILE__, __LINE__, #condition)

__attribute__((unused)) static void fuzz_must(bool held, const char *file,
		int line, const char *text) {
	if (!held) {
		(void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, text);
		abort();
	}
}

/* That two texts are the same. */
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

/* A part of the input, as text that ends in a zero byte; free it. Its size is
   exact, so that reading past it is seen. */
__attribute__((unused)) static char *fuzz_text(const void *bytes, size_t len) {
	char *text = calloc(len + 1, 1);
	MUST(text);
	if (len > 0) {
		memcpy(text, bytes, len);
	}
	return text;
}

/* The input, as it is used up. */
struct fuzz_input {
	const uint8_t *at;
	size_t len;
};

/* The next byte; 0 when there are none left. */
__attribute__((unused)) static uint8_t fuzz_byte(struct fuzz_input *input) {
	if (input->len == 0) {
		return 0;
	}
	input->len--;
	return *input->at++;
}

/* Up to the next such byte, which is passed over, or all that is left; free
   it. A zero byte before it ends the text early. */
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

/* Whether it is one line that any terminal, log and JSON may have. */
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
