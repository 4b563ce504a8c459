/* SPDX-License-Identifier: MIT */
/*
 * Only version 00 and what looks like it: 55 characters.
 */

#include "base/trace.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* "00-", 32 digits of the trace, "-", 16 of the span, "-", 2 of the flags. */
#define SPAN_AT 36
#define SPAN_LEN 16

static bool is_digit(char c) {
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool is_valid(const char *text) {
	bool valid = strlen(text) == POSTERN__TRACE_LEN;
	for (size_t i = 0; valid && i < POSTERN__TRACE_LEN; i++) {
		bool dash = i == 2 || i == SPAN_AT - 1 || i == SPAN_AT + SPAN_LEN;
		valid = dash ? text[i] == '-' : is_digit(text[i]);
	}
	return valid;
}

bool postern__trace_continue(const char *traceparent, uint64_t random,
		char out[POSTERN__TRACE_LEN + 1]) {
	char digits[SPAN_LEN + 1];
	if (!traceparent || !is_valid(traceparent)) {
		return false;
	}
	memcpy(out, traceparent, POSTERN__TRACE_LEN + 1);
	(void)snprintf(digits, sizeof digits, "%016" PRIx64, random | 1);
	memcpy(out + SPAN_AT, digits, SPAN_LEN);
	return true;
}
