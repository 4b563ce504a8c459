/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_TEXT_H
#define POSTERN_BASE_TEXT_H

/*
 * Values in a configuration or on the command line: durations, sizes, counts;
 * and suggestions for misspelled names.
 *
 * The parsers read the whole string, allow no blanks, signs or fractions, and
 * fail with POSTERN_E_INVALID and a text that quotes the input and describes
 * valid values. They do not know the option's name: the caller adds it.
 */

#include <stddef.h>
#include <stdint.h>

struct postern_error;

/*
 * A duration, to milliseconds: digits and one unit of ms, s, m, h, d; or just
 * "0". Two units ("1m30s"), no unit and more than INT64_MAX ms are refused.
 */
int postern__duration_parse(const char *text, int64_t *ms_out,
		struct postern_error *error);

/* Room for any formatted duration, the zero byte included. */
#define POSTERN__DURATION_TEXT_MAX 24

/*
 * The shortest text that is exactly this duration: "90s", "2h", "0". If it is
 * not negative, postern__duration_parse() reads it as the same number.
 */
void postern__duration_format(int64_t ms, char out[POSTERN__DURATION_TEXT_MAX]);

/*
 * A size, to bytes: digits and one unit of B, KiB, MiB, GiB; or just "0".
 * KB and the like are refused, because they are ambiguous.
 */
int postern__size_parse(const char *text, uint64_t *bytes_out,
		struct postern_error *error);

/* Room for any formatted size, the zero byte included. */
#define POSTERN__SIZE_TEXT_MAX 24

/* The shortest exact text: "64KiB", "100B", "0". */
void postern__size_format(uint64_t bytes, char out[POSTERN__SIZE_TEXT_MAX]);

/* A decimal number from min to max, both included. */
int postern__count_parse(const char *text, uint64_t min, uint64_t max,
		uint64_t *out, struct postern_error *error);

/*
 * A rate: a count of 1 to max, a slash, and s, m or h ("100/s"). On failure
 * the text says what would be right.
 */
int postern__rate_parse(const char *text, uint32_t max, uint32_t *count_out,
		int64_t *period_ms_out, struct postern_error *error);

/*
 * The candidate that was probably meant by name, for "did you mean": the one
 * with the fewest inserted, removed, replaced or swapped bytes, if these are
 * at most 2 or a third of name's length, whichever is more, and fewer than
 * name has bytes; at most 1 if name has less than 5 bytes and the first byte
 * differs. The first one of several with equal distance.
 *
 * Returns one of the pointers in candidates, or NULL if none is near, or name
 * has over 64 bytes.
 */
const char *postern__closest(const char *name, const char *const *candidates,
		size_t count);

/* The value of a hexadecimal digit, -1 for any other character. */
int postern__hex_value(char c);

#endif
