/* SPDX-License-Identifier: MIT */

/*
 * Filling a struct postern_error. Texts carry bytes that came from elsewhere
 * (ids, server answers, file names), so they are cleaned here, once, and a
 * log line or a terminal cannot be forged by any of them.
 */

#include "base/fail.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/redact.h"
#include "base/utf8.h"

#undef postern__fail

/*
 * What is formatted before it is cleaned and cut. Cleaning can make a text
 * shorter, so there must be more of it than fits: 2 bytes of a control
 * character become 1, hence more than twice the size is enough that the end
 * of this buffer, which may split a character, is never seen.
 */
#define RAW_SIZE 1024
_Static_assert(RAW_SIZE > 2 * POSTERN_ERROR_TEXT_MAX + 4, "raw text too short");

int postern__fail(struct postern_error *error, int code, const char *format,
		...) {
	assert(code < 0);
	if (!error) {
		return code;
	}
	int saved_errno = errno;
	char raw[RAW_SIZE];
	va_list args;
	va_start(args, format);
	int len = vsnprintf(raw, sizeof raw, format, args);
	va_end(args);
	if (len >= 0) {
		postern__redact_within(raw);
	}
	const char *text = len < 0 ? postern_error_text(code) : raw;
	error->code = code;
	(void)postern__utf8_clean(text, strlen(text), error->text,
			sizeof error->text);
	errno = saved_errno;
	return code;
}
