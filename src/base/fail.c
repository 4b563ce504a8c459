/* SPDX-License-Identifier: MIT */

/*
 * Filling in a struct postern_error. Texts contain bytes from outside (ids,
 * responses of servers, file names), so they are cleaned here, once: none of
 * them can forge a log line or control a terminal.
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
 * The size of the text before it is cleaned and truncated. Cleaning can make a
 * text shorter: the 2 bytes of a control character become 1. So more than twice
 * the final size ensures that the end of this buffer, which may split a
 * character, is never part of the result.
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
