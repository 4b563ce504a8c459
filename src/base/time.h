/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_TIME_H
#define POSTERN_BASE_TIME_H

/*
 * Times as RFC 3339 text and as milliseconds since 1970-01-01T00:00:00Z.
 * Pure arithmetic: no time zone, no locale, no clock.
 */

#include <stddef.h>
#include <stdint.h>

struct postern_error;

/* "2026-11-15T21:09:24.123Z" and a zero byte. */
#define POSTERN__TIME_TEXT_MAX 25

/* The range of times that have a text: years 0000 to 9999. */
#define POSTERN__TIME_MS_MIN INT64_C(-62167219200000)
#define POSTERN__TIME_MS_MAX INT64_C(253402300799999)

/* In UTC with milliseconds. Times outside the range are clamped to it. */
void postern__time_format(int64_t ms, char out[POSTERN__TIME_TEXT_MAX]);

/*
 * Read a date-time of RFC 3339: `T` and `Z` in either case, any offset up to
 * 23:59, a fraction of any length (truncated to milliseconds), second 60 where
 * UTC may have a leap second: at 23:59 on the last day of a month. That counts
 * as the first second of the next day.
 *
 * ms_out  may be NULL to check only.
 *
 * POSTERN_E_INVALID if the text is not a date-time, the day does not exist, or
 * the time is outside the years 0000 to 9999 in UTC.
 */
int postern__time_parse(const char *text, size_t len, int64_t *ms_out,
		struct postern_error *error);

#endif
