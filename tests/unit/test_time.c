/* SPDX-License-Identifier: MIT */

/*
 * RFC 3339: its examples and edge cases.
 */

#include "base/time.h"

#include <stdlib.h>

#include "dice.h"
#include "tap.h"

static int parse(const char *text, int64_t *ms_out) {
	return postern__time_parse(text, strlen(text), ms_out, NULL);
}

static void known_moments(void) {
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {
		{ 0, "1970-01-01T00:00:00.000Z" },
		{ -1, "1969-12-31T23:59:59.999Z" },
		{ INT64_C(951782400000), "2000-02-29T00:00:00.000Z" },
		{ INT64_C(951868800000), "2000-03-01T00:00:00.000Z" },
		{ INT64_C(1000000000001), "2001-09-09T01:46:40.001Z" },
		{ INT64_C(2147483648000), "2038-01-19T03:14:08.000Z" },
		{ INT64_C(4294967296000), "2106-02-07T06:28:16.000Z" },
		{ INT64_C(4107542400000), "2100-03-01T00:00:00.000Z" },
		{ INT64_C(1794777864123), "2026-11-15T21:24:24.123Z" },
		{ POSTERN__TIME_MS_MIN, "0000-01-01T00:00:00.000Z" },
		{ POSTERN__TIME_MS_MAX, "9999-12-31T23:59:59.999Z" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char text[POSTERN__TIME_TEXT_MAX];
		int64_t ms = 42;
		postern__time_format(rows[i].ms, text);
		CHECK_STR(text, rows[i].text);
		CHECK_OK(parse(rows[i].text, &ms), NULL);
		CHECK_INT(ms, rows[i].ms);
	}
}

static void far_moments(void) {
	char text[POSTERN__TIME_TEXT_MAX];
	postern__time_format(INT64_MIN, text);
	CHECK_STR(text, "0000-01-01T00:00:00.000Z");
	postern__time_format(POSTERN__TIME_MS_MAX + 1, text);
	CHECK_STR(text, "9999-12-31T23:59:59.999Z");
	postern__time_format(INT64_MAX, text);
	CHECK_STR(text, "9999-12-31T23:59:59.999Z");
}

static void every_day(void) {
	/* Counts day by day, by the rules of the calendar. */
	static const int lengths[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30,
		31 };
	int64_t ms = POSTERN__TIME_MS_MIN;
	for (int year = 0; year <= 9999; year++) {
		bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
		for (int month = 1; month <= 12; month++) {
			int days = lengths[month - 1] + (leap && month == 2);
			for (int day = 1; day <= days; day++, ms += 86400000) {
				char expected[40];
				char text[POSTERN__TIME_TEXT_MAX];
				int64_t parsed = 42;
				(void)snprintf(expected, sizeof expected,
						"%04d-%02d-%02dT00:00:00.000Z", year, month, day);
				postern__time_format(ms, text);
				if (strcmp(text, expected) != 0 ||
						parse(expected, &parsed) != POSTERN_OK ||
						parsed != ms) {
					FAIL("%s is %s", expected, text);
					return;
				}
			}
		}
	}
	CHECK_INT(ms, POSTERN__TIME_MS_MAX + 1);
}

static void no_day_too_many(void) {
	static const char *const texts[] = {
		"2026-01-32",
		"2026-02-29",
		"2024-02-30",
		"1900-02-29",
		"2000-02-30",
		"2026-03-32",
		"2026-04-31",
		"2026-05-32",
		"2026-06-31",
		"2026-07-32",
		"2026-08-32",
		"2026-09-31",
		"2026-10-32",
		"2026-11-31",
		"2026-12-32",
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		char text[40];
		(void)snprintf(text, sizeof text, "%sT00:00:00Z", texts[i]);
		CHECK_INT(parse(text, NULL), POSTERN_E_INVALID);
	}
}

static void forms(void) {
	static const struct {
		const char *text;
		const char *utc;
	} rows[] = {
		/* The examples of RFC 3339, section 5.8. */
		{ "1985-04-12T23:20:50.52Z", "1985-04-12T23:20:50.520Z" },
		{ "1996-12-19T16:39:57-08:00", "1996-12-20T00:39:57.000Z" },
		{ "1990-12-31T23:59:60Z", "1991-01-01T00:00:00.000Z" },
		{ "1990-12-31T15:59:60-08:00", "1991-01-01T00:00:00.000Z" },
		{ "1937-01-01T12:00:27.87+00:20", "1937-01-01T11:40:27.870Z" },
		{ "1985-04-12t23:20:50z", "1985-04-12T23:20:50.000Z" },
		{ "1985-04-12T23:20:50-00:00", "1985-04-12T23:20:50.000Z" },
		{ "1985-04-12T23:20:50+23:59", "1985-04-11T23:21:50.000Z" },
		{ "1985-04-12T23:20:50-23:59", "1985-04-13T23:19:50.000Z" },
		{ "1985-04-12T23:20:50.1Z", "1985-04-12T23:20:50.100Z" },
		{ "1985-04-12T23:20:50.9999999999999999999999Z",
				"1985-04-12T23:20:50.999Z" },
		{ "1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z" },
		{ "2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.500Z" },
		{ "2017-01-01T08:59:60+09:00", "2017-01-01T00:00:00.000Z" },
		{ "1969-11-30T23:59:60.25Z", "1969-12-01T00:00:00.250Z" },
		{ "2024-02-29T23:59:60Z", "2024-03-01T00:00:00.000Z" },
		{ "0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z" },
		{ "0000-02-29T00:00:00Z", "0000-02-29T00:00:00.000Z" },
		{ "2000-02-29T00:00:00Z", "2000-02-29T00:00:00.000Z" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char utc[POSTERN__TIME_TEXT_MAX];
		int64_t ms = 42;
		if (CHECK_OK(parse(rows[i].text, &ms), NULL)) {
			postern__time_format(ms, utc);
			CHECK_STR(utc, rows[i].utc);
		}
	}
}

static void refused(void) {
	static const char *const texts[] = {
		"",
		"2026",
		"2026-11-15",
		"21:09:24Z",
		"2026-11-15T21:09:24",
		"2026-11-15T21:09Z",
		"2026-11-15 21:09:24Z",
		"2026-11-15T21:09:24Z ",
		" 2026-11-15T21:09:24Z",
		"2026-11-15T21:09:24ZZ",
		"2026-11-15T21:09:24.Z",
		"2026-11-15T21:09:24,5Z",
		"2026-11-15T21:09:24+0100",
		"2026-11-15T21:09:24+01",
		"2026-11-15T21:09:24+24:00",
		"2026-11-15T21:09:24+01:60",
		"2026-11-15T21:09:24+1:00",
		"2026-11-15T24:00:00Z",
		"2026-11-15T21:60:24Z",
		"2026-11-15T21:09:61Z",
		"2026-11-15T21:09:60Z",
		"2026-11-15T23:59:60Z",
		"2016-12-31T23:59:60+01:00",
		"2016-12-31T22:59:60Z",
		"1969-12-30T23:59:60Z",
		"2026-00-15T21:09:24Z",
		"2026-13-15T21:09:24Z",
		"2026-11-00T21:09:24Z",
		"2026-11-31T21:09:24Z",
		"2026-02-29T21:09:24Z",
		"2100-02-29T21:09:24Z",
		"2026-1-15T21:09:24Z",
		"26-11-15T21:09:24Z",
		"+2026-11-15T21:09:24Z",
		"-2026-11-15T21:09:24Z",
		"12026-11-15T21:09:24Z",
		"2026-11-15T21:09:2\xd9\xa4Z",
		"2026/11/15T21:09:24Z",
		"20261115T210924Z",
		"2026-W46-7T21:09:24Z",
		"0000-01-01T00:00:00+00:01",
		"9999-12-31T23:59:59-00:01",
		"9999-12-31T23:59:60Z",
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct postern_error error = { 0 };
		int64_t ms = 42;
		if (postern__time_parse(texts[i], strlen(texts[i]), &ms, &error) !=
				POSTERN_E_INVALID) {
			FAIL("'%s' is accepted", texts[i]);
		}
		CHECK_CONTAINS(error.text, "is not a time such as");
		CHECK_INT(ms, 42);
	}
	CHECK_INT(postern__time_parse(NULL, 0, NULL, NULL), POSTERN_E_INVALID);
	CHECK_INT(postern__time_parse("2026-11-15T21:09:24Z\0", 21, NULL, NULL),
			POSTERN_E_INVALID);
}

static void checking_only(void) {
	CHECK_OK(parse("2026-11-15T21:09:24Z", NULL), NULL);
}

static void every_prefix(void) {
	/* Exact allocations, so that a sanitizer finds a read past the end. */
	static const char text[] = "2026-11-15T21:09:24.123456+01:30";
	for (size_t len = 0; len < sizeof text - 1; len++) {
		char *copy = malloc(len > 0 ? len : 1);
		memcpy(copy, text, len);
		CHECK_INT(postern__time_parse(copy, len, NULL, NULL),
				POSTERN_E_INVALID);
		free(copy);
	}
	CHECK_OK(parse(text, NULL), NULL);
}

static void round_trip(void) {
	struct dice dice = { 1 };
	uint64_t span = (uint64_t)(POSTERN__TIME_MS_MAX - POSTERN__TIME_MS_MIN) + 1;
	for (unsigned i = 0; i < 50000; i++) {
		int64_t ms = POSTERN__TIME_MS_MIN + (int64_t)(dice_next(&dice) % span);
		char text[POSTERN__TIME_TEXT_MAX];
		int64_t again = 42;
		postern__time_format(ms, text);
		CHECK_OK(parse(text, &again), NULL);
		CHECK_INT(again, ms);
	}
}

static const struct tap_case cases[] = {
	{ "known moments have their known texts", known_moments },
	{ "moments out of range are formatted as the ends of the range",
			far_moments },
	{ "every day of ten thousand years has its date", every_day },
	{ "no month has a day too many", no_day_too_many },
	{ "every form of RFC 3339 is parsed", forms },
	{ "what RFC 3339 does not allow is refused", refused },
	{ "a time can be validated without an output", checking_only },
	{ "no prefix of a time is a time", every_prefix },
	{ "a moment stays the same when it is formatted and parsed", round_trip },
};

TAP_MAIN(cases)
