/* SPDX-License-Identifier: MIT */

/*
 * Durations, sizes, counts, and suggestions for misspelt names.
 */

#include "base/text.h"

#include "dice.h"
#include "tap.h"

static void durations(void) {
	static const struct {
		const char *text;
		int64_t ms;
	} rows[] = {
		{ "0", 0 },
		{ "00", 0 },
		{ "0s", 0 },
		{ "0d", 0 },
		{ "1ms", 1 },
		{ "250ms", 250 },
		{ "30s", 30000 },
		{ "5m", 300000 },
		{ "05m", 300000 },
		{ "2h", 7200000 },
		{ "7d", 604800000 },
		{ "9223372036854775807ms", INT64_MAX },
		{ "106751991167d", INT64_C(106751991167) * 86400000 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern_error error;
		int64_t ms = -1;
		CHECK_OK(postern__duration_parse(rows[i].text, &ms, &error), &error);
		CHECK_INT(ms, rows[i].ms);
	}
}

/* An invalid text, and a part of its error. */
struct refusal {
	const char *text;
	const char *part;
};

static void durations_refused(void) {
	static const struct refusal rows[] = {
		{ "", "'' is not a duration; write a number with one of the units "
			  "ms, s, m, h, d, such as 30s" },
		{ "30", "has no unit; write a number with one of the units ms, s, m, "
				"h, d" },
		{ "99999999999999999999", "has no unit" },
		{ "s", "is not a duration" },
		{ "1m30s", "'1m30s' is not a duration" },
		{ "1.5s", "has a fraction; write a whole number of a smaller unit" },
		{ "1,5s", "has a fraction" },
		{ "-1s", "is not a duration" },
		{ "+1s", "is not a duration" },
		{ " 1s", "is not a duration" },
		{ "1s ", "is not a duration" },
		{ "1 s", "is not a duration" },
		{ "1S", "is not a duration" },
		{ "1M", "is not a duration" },
		{ "1sec", "is not a duration" },
		{ "1w", "is not a duration" },
		{ "1us", "is not a duration" },
		{ "0x10s", "is not a duration" },
		{ "9223372036854775808ms", "is too large" },
		{ "18446744073709551616ms", "is too large" },
		{ "18446744073709551617ms", "is too large" },
		{ "99999999999999999999999999s", "is too large" },
		{ "106751991168d", "duration '106751991168d' is too large" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern_error error = { 0 };
		int64_t ms = 42;
		CHECK_INT(postern__duration_parse(rows[i].text, &ms, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, rows[i].part);
		CHECK_INT(ms, 42);
	}
}

static void durations_written(void) {
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {
		{ 0, "0" },
		{ 1, "1ms" },
		{ 999, "999ms" },
		{ 1000, "1s" },
		{ 1500, "1500ms" },
		{ 60000, "1m" },
		{ 90000, "90s" },
		{ 3600000, "1h" },
		{ 86400000, "1d" },
		{ 90000000, "25h" },
		{ 604800000, "7d" },
		{ -90000, "-90s" },
		{ INT64_MAX, "9223372036854775807ms" },
		{ INT64_MIN, "-9223372036854775808ms" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char text[POSTERN__DURATION_TEXT_MAX];
		postern__duration_format(rows[i].ms, text);
		CHECK_STR(text, rows[i].text);
	}
}

static void durations_round_trip(void) {
	struct dice dice = { 1 };
	static const int64_t units[] = { 1, 1000, 60000, 3600000, 86400000 };
	for (unsigned i = 0; i < 20000; i++) {
		/* All magnitudes, often a whole number of some unit. */
		int64_t unit = units[dice_below(&dice, 5)];
		int64_t ms = (int64_t)(dice_next(&dice) >> (1 + dice_below(&dice, 63)));
		ms -= ms % unit;
		char text[POSTERN__DURATION_TEXT_MAX];
		int64_t again = -1;
		postern__duration_format(ms, text);
		CHECK_OK(postern__duration_parse(text, &again, NULL), NULL);
		CHECK_INT(again, ms);
	}
}

static void sizes(void) {
	static const struct {
		const char *text;
		uint64_t bytes;
	} rows[] = {
		{ "0", 0 },
		{ "0GiB", 0 },
		{ "100B", 100 },
		{ "64KiB", 65536 },
		{ "1MiB", 1048576 },
		{ "2GiB", UINT64_C(2147483648) },
		{ "18446744073709551615B", UINT64_MAX },
		{ "17179869183GiB", UINT64_C(17179869183) << 30 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern_error error;
		uint64_t bytes = 42;
		CHECK_OK(postern__size_parse(rows[i].text, &bytes, &error), &error);
		CHECK(bytes == rows[i].bytes);
	}
}

static void sizes_refused(void) {
	static const struct refusal rows[] = {
		{ "", "is not a size; write a number with one of the units B, KiB, "
			  "MiB, GiB, such as 64KiB" },
		{ "65536", "has no unit" },
		{ "64KB", "'64KB' has a unit that is not clear; write KiB" },
		{ "64kb", "write KiB" },
		{ "64k", "write KiB" },
		{ "64kib", "write KiB" },
		{ "1MB", "write MiB" },
		{ "1m", "write MiB" },
		{ "1Gb", "write GiB" },
		{ "1G", "write GiB" },
		{ "1b", "is not a size" },
		{ "1mx", "is not a size" },
		{ "1mxb", "is not a size" },
		{ "1mix", "is not a size" },
		{ "1TiB", "is not a size" },
		{ "1KiBs", "is not a size" },
		{ "1.5MiB", "has a fraction" },
		{ "-1B", "is not a size" },
		{ "1 MiB", "is not a size" },
		{ "18446744073709551616B", "is too large" },
		{ "17179869184GiB", "is too large" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern_error error = { 0 };
		uint64_t bytes = 42;
		CHECK_INT(postern__size_parse(rows[i].text, &bytes, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, rows[i].part);
		CHECK_INT(bytes, 42);
	}
}

static void sizes_round_trip(void) {
	struct dice dice = { 2 };
	char text[POSTERN__SIZE_TEXT_MAX];
	postern__size_format(65536, text);
	CHECK_STR(text, "64KiB");
	postern__size_format(1025, text);
	CHECK_STR(text, "1025B");
	postern__size_format(0, text);
	CHECK_STR(text, "0");
	postern__size_format(UINT64_MAX, text);
	CHECK_STR(text, "18446744073709551615B");
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t bytes = dice_next(&dice) >> dice_below(&dice, 64);
		bytes &= ~((UINT64_C(1) << 10 * dice_below(&dice, 4)) - 1);
		uint64_t again = 42;
		postern__size_format(bytes, text);
		CHECK_OK(postern__size_parse(text, &again, NULL), NULL);
		CHECK(again == bytes);
	}
}

static void counts(void) {
	uint64_t count = 42;
	CHECK_OK(postern__count_parse("1", 1, 9, &count, NULL), NULL);
	CHECK_INT(count, 1);
	CHECK_OK(postern__count_parse("9", 1, 9, &count, NULL), NULL);
	CHECK_INT(count, 9);
	CHECK_OK(postern__count_parse("18446744073709551615", 0, UINT64_MAX, &count,
					 NULL),
			NULL);
	CHECK(count == UINT64_MAX);
}

static void counts_refused(void) {
	static const struct refusal rows[] = {
		{ "0", "'0' is out of range; write 1 to 9" },
		{ "10", "is out of range" },
		{ "18446744073709551617", "is out of range" },
		{ "", "'' is not a number from 1 to 9" },
		{ "-5", "is not a number" },
		{ "+5", "is not a number" },
		{ " 5", "is not a number" },
		{ "5 ", "is not a number" },
		{ "5s", "is not a number" },
		{ "5.0", "is not a number" },
		{ "0x5", "is not a number" },
		{ "five", "is not a number" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern_error error = { 0 };
		uint64_t count = 42;
		CHECK_INT(postern__count_parse(rows[i].text, 1, 9, &count, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, rows[i].part);
		CHECK_INT(count, 42);
	}
}

static void neighbours(void) {
	static const char *const names[] = { "lease", "listen", "store", "timeout",
		"max_attempts", "max_retry_delay", "on", "off" };
	size_t count = sizeof names / sizeof names[0];
	static const struct {
		const char *name;
		const char *closest;
	} rows[] = {
		{ "lease", "lease" },
		{ "leas", "lease" },
		{ "leese", "lease" },
		{ "elase", "lease" },
		{ "laese", "lease" },
		{ "leaseee", "lease" },
		{ "leaseeee", NULL },
		{ "lsiten", "listen" },
		{ "time_out", "timeout" },
		{ "max-attempts", "max_attempts" },
		{ "maxattempt", "max_attempts" },
		{ "max_attem", "max_attempts" },
		{ "max_atte", NULL },
		{ "max_retries_delay", "max_retry_delay" },
		{ "retry_delay", NULL },
		{ "of", "on" },
		{ "les", "lease" },
		{ "ease", "lease" },
		{ "eaze", NULL },
		{ "x", NULL },
		{ "zz", NULL },
		{ "", NULL },
		{ "concurrency", NULL },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_STR(postern__closest(rows[i].name, names, count),
				rows[i].closest);
	}
	CHECK_STR(postern__closest("lease", names, 0), NULL);
}

static void long_names(void) {
	char name[66];
	memset(name, 'a', sizeof name);
	name[64] = '\0';
	const char *const one[] = { name };
	CHECK_STR(postern__closest(name, one, 1), name);
	name[64] = 'a';
	name[65] = '\0';
	CHECK_STR(postern__closest(name, one, 1), NULL);
	CHECK_STR(postern__closest("aaa", one, 1), NULL);
}

/* The recursive definition of the distance, without a table. */
static size_t slow_distance(const char *a, size_t a_len, const char *b,
		size_t b_len) {
	if (a_len == 0 || b_len == 0) {
		return a_len + b_len;
	}
	size_t best = slow_distance(a, a_len - 1, b, b_len - 1) +
				  (a[a_len - 1] != b[b_len - 1]);
	size_t other = slow_distance(a, a_len - 1, b, b_len) + 1;
	best = other < best ? other : best;
	other = slow_distance(a, a_len, b, b_len - 1) + 1;
	best = other < best ? other : best;
	if (a_len > 1 && b_len > 1 && a[a_len - 1] == b[b_len - 2] &&
			a[a_len - 2] == b[b_len - 1]) {
		other = slow_distance(a, a_len - 2, b, b_len - 2) + 1;
		best = other < best ? other : best;
	}
	return best;
}

static void neighbours_by_definition(void) {
	struct dice dice = { 3 };
	for (unsigned i = 0; i < 2000; i++) {
		char texts[3][7] = { "" };
		for (size_t j = 0; j < 3; j++) {
			size_t len = dice_below(&dice, 7);
			for (size_t k = 0; k < len; k++) {
				texts[j][k] = (char)('a' + dice_below(&dice, 3));
			}
		}
		const char *const two[] = { texts[1], texts[2] };
		size_t len = strlen(texts[0]);
		size_t d[2];
		for (size_t j = 0; j < 2; j++) {
			d[j] = slow_distance(texts[0], len, two[j], strlen(two[j]));
		}
		bool may[2];
		for (size_t j = 0; j < 2; j++) {
			may[j] = d[j] <= 2 && d[j] < len &&
					 (d[j] <= 1 || len > 4 || texts[0][0] == two[j][0]);
		}
		size_t nearer = may[1] && (!may[0] || d[1] < d[0]);
		bool near = may[nearer];
		const char *closest = postern__closest(texts[0], two, 2);
		CHECK(closest == (near ? two[nearer] : NULL));
	}
}

static const struct tap_case cases[] = {
	{ "a duration is a number and one unit, or 0", durations },
	{ "other durations are refused and the error gives the reason",
			durations_refused },
	{ "a duration is formatted in the shortest exact way", durations_written },
	{ "a duration stays the same when it is formatted and parsed",
			durations_round_trip },
	{ "a size is a number and one binary unit, or 0", sizes },
	{ "other sizes are refused and the error gives the reason", sizes_refused },
	{ "a size stays the same when it is formatted and parsed",
			sizes_round_trip },
	{ "a count is digits within its range", counts },
	{ "other counts are refused and the error gives the reason",
			counts_refused },
	{ "a near name is found, a far one is not", neighbours },
	{ "a name over 64 bytes matches no other name", long_names },
	{ "the closest name agrees with the recursive definition",
			neighbours_by_definition },
};

TAP_MAIN(cases)
