/* SPDX-License-Identifier: MIT */

/*
 * RFC 3339 by arithmetic. Days are counted in the Gregorian calendar, extended
 * to the year 0, with years that begin in March: then the leap day is the last
 * of the year, and one formula gives the lengths of the months before it.
 */

#include "base/time.h"

#include <postern/error.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/fail.h"

#define MS_PER_SECOND INT64_C(1000)
#define MS_PER_MINUTE (60 * MS_PER_SECOND)
#define MS_PER_DAY (24 * 60 * MS_PER_MINUTE)

/* Days from 0000-03-01 to 1970-01-01, and in 400 years. */
#define DAYS_TO_1970 719468
#define DAYS_PER_ERA 146097

/* Days since 1970-01-01. year is 0 to 9999, month 1 to 12. */
static int64_t days_of_date(int year, int month, int day) {
	/* One era ahead, so that January of the year 0 is not negative. */
	int64_t y = year + 400 - (month <= 2);
	int64_t m = month > 2 ? month - 3 : month + 9; /* March is 0 */
	int64_t days = y * 365 + y / 4 - y / 100 + y / 400;
	days += (153 * m + 2) / 5 + day - 1;
	return days - DAYS_PER_ERA - DAYS_TO_1970;
}

/* The reverse, for days in the years 0 to 9999. */
static void date_of_days(int64_t days, int *year, int *month, int *day) {
	int64_t d = days + DAYS_TO_1970 + DAYS_PER_ERA;
	int64_t era = d / DAYS_PER_ERA;
	int64_t in_era = d % DAYS_PER_ERA;
	/* Take out the leap days before dividing by 365. */
	int64_t in_year = (in_era - in_era / 1460 + in_era / 36524 -
							  in_era / (DAYS_PER_ERA - 1)) /
					  365;
	int64_t rest = in_era - (in_year * 365 + in_year / 4 - in_year / 100);
	int64_t m = (5 * rest + 2) / 153;
	*day = (int)(rest - (153 * m + 2) / 5 + 1);
	*month = (int)(m < 10 ? m + 3 : m - 9);
	*year = (int)(era * 400 + in_year - 400 + (*month <= 2));
}

static int days_in_month(int year, int month) {
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30,
		31 };
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
	return days[month - 1] + (month == 2 && leap);
}

/* Write value as `width` digits and return the position after them. */
static char *put_digits(char *out, int64_t value, int width) {
	for (int i = width - 1; i >= 0; i--) {
		out[i] = (char)('0' + value % 10);
		value /= 10;
	}
	return out + width;
}

void postern__time_format(int64_t ms, char out[POSTERN__TIME_TEXT_MAX]) {
	if (ms < POSTERN__TIME_MS_MIN) {
		ms = POSTERN__TIME_MS_MIN;
	}
	if (ms > POSTERN__TIME_MS_MAX) {
		ms = POSTERN__TIME_MS_MAX;
	}
	int64_t days = ms / MS_PER_DAY;
	int64_t in_day = ms % MS_PER_DAY;
	if (in_day < 0) {
		in_day += MS_PER_DAY;
		days--;
	}
	int year;
	int month;
	int day;
	date_of_days(days, &year, &month, &day);
	out = put_digits(out, year, 4);
	*out++ = '-';
	out = put_digits(out, month, 2);
	*out++ = '-';
	out = put_digits(out, day, 2);
	*out++ = 'T';
	out = put_digits(out, in_day / (60 * MS_PER_MINUTE), 2);
	*out++ = ':';
	out = put_digits(out, in_day / MS_PER_MINUTE % 60, 2);
	*out++ = ':';
	out = put_digits(out, in_day / MS_PER_SECOND % 60, 2);
	*out++ = '.';
	out = put_digits(out, in_day % MS_PER_SECOND, 3);
	*out++ = 'Z';
	*out = '\0';
}

/* The rest of the input. After the first error nothing more is read. */
struct reader {
	const char *at;
	const char *end;
	bool wrong;
};

static bool is_digit(const struct reader *reader) {
	return reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9';
}

static int read_number(struct reader *reader, int width, int min, int max) {
	int value = 0;
	for (int i = 0; i < width; i++) {
		if (!is_digit(reader)) {
			reader->wrong = true;
			return min;
		}
		value = value * 10 + (*reader->at++ - '0');
	}
	if (value < min || value > max) {
		reader->wrong = true;
		return min;
	}
	return value;
}

/* Skip the next byte if it is one of the two; returns whether it is. */
static bool read_either(struct reader *reader, char a, char b) {
	if (reader->at == reader->end || (*reader->at != a && *reader->at != b)) {
		return false;
	}
	reader->at++;
	return true;
}

static void read_separator(struct reader *reader, char a, char b) {
	if (!read_either(reader, a, b)) {
		reader->wrong = true;
	}
}

/* The fraction of a second in ms, 0 if there is none. */
static int read_fraction(struct reader *reader) {
	if (!read_either(reader, '.', '.')) {
		return 0;
	}
	if (!is_digit(reader)) {
		reader->wrong = true;
	}
	int ms = 0;
	for (int weight = 100; is_digit(reader); weight /= 10) {
		ms += (*reader->at++ - '0') * weight;
	}
	return ms;
}

/* How many minutes the local time is ahead of UTC. */
static int read_offset(struct reader *reader) {
	if (read_either(reader, 'Z', 'z')) {
		return 0;
	}
	int sign = 1;
	if (read_either(reader, '-', '-')) {
		sign = -1;
	} else {
		read_separator(reader, '+', '+');
	}
	int hours = read_number(reader, 2, 0, 23);
	read_separator(reader, ':', ':');
	int minutes = read_number(reader, 2, 0, 59);
	return sign * (hours * 60 + minutes);
}

static int64_t read_time(struct reader *reader) {
	int year = read_number(reader, 4, 0, 9999);
	read_separator(reader, '-', '-');
	int month = read_number(reader, 2, 1, 12);
	read_separator(reader, '-', '-');
	int day = read_number(reader, 2, 1, days_in_month(year, month));
	read_separator(reader, 'T', 't');
	int hour = read_number(reader, 2, 0, 23);
	read_separator(reader, ':', ':');
	int minute = read_number(reader, 2, 0, 59);
	read_separator(reader, ':', ':');
	int second = read_number(reader, 2, 0, 60);
	int fraction = read_fraction(reader);
	int offset = read_offset(reader);

	int64_t minutes = days_of_date(year, month, day) * 24 * 60 + hour * 60 +
					  minute - offset;
	int64_t ms = minutes * MS_PER_MINUTE + second * MS_PER_SECOND + fraction;
	if (reader->at != reader->end || ms < POSTERN__TIME_MS_MIN ||
			ms > POSTERN__TIME_MS_MAX) {
		reader->wrong = true;
	}
	if (second == 60 && !reader->wrong) {
		/* The second after it, in UTC, begins a month. */
		int64_t next_ms = ms - fraction;
		if (next_ms % MS_PER_DAY == 0) {
			date_of_days(next_ms / MS_PER_DAY, &year, &month, &day);
		}
		reader->wrong = next_ms % MS_PER_DAY != 0 || day != 1;
	}
	return ms;
}

int postern__time_parse(const char *text, size_t len, int64_t *ms_out,
		struct postern_error *error) {
	struct reader reader = {
		.at = text,
		.end = len > 0 ? text + len : text,
	};
	int64_t ms = read_time(&reader);
	if (reader.wrong) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.*s' is not a time such as 2026-11-15T21:09:24Z (RFC 3339)",
				len < 60 ? (int)len : 60, text ? text : "");
	}
	if (ms_out) {
		*ms_out = ms;
	}
	return POSTERN_OK;
}
