/* SPDX-License-Identifier: MIT */

/*
 * Times in RFC 3339. An accepted text is formatted in UTC and parsed back as
 * the same time; texts in the simplest form are also compared with the C
 * library. The first bytes are also used as a time to be formatted.
 */

#include <ctype.h>
#include <postern/error.h>
#include <time.h>

#include "base/time.h"
#include "fuzz.h"

static void check_time_round_trip(int64_t ms) {
	char text[POSTERN__TIME_TEXT_MAX];
	int64_t again;
	postern__time_format(ms, text);
	MUST(strlen(text) == POSTERN__TIME_TEXT_MAX - 1);
	MUST(postern__time_parse(text, strlen(text), &again, NULL) == POSTERN_OK);
	if (ms < POSTERN__TIME_MS_MIN) {
		ms = POSTERN__TIME_MS_MIN;
	} else if (ms > POSTERN__TIME_MS_MAX) {
		ms = POSTERN__TIME_MS_MAX;
	}
	MUST(again == ms);
}

/* Parses "2026-11-15T21:09:24Z" with timegm(); false for every other form. */
static bool parse_time_plainly(const char *text, size_t len, int64_t *out) {
	static const char form[] = "dddd-dd-ddTdd:dd:ddZ";
	struct tm tm = { 0 };
	if (len != sizeof form - 1) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		if (form[i] == 'd' ? !isdigit((unsigned char)text[i])
						   : form[i] != text[i]) {
			return false;
		}
	}
	char *copy = fuzz_text(text, len);
	tm.tm_year = (int)strtol(copy, NULL, 10) - 1900;
	tm.tm_mon = (int)strtol(copy + 5, NULL, 10) - 1;
	tm.tm_mday = (int)strtol(copy + 8, NULL, 10);
	tm.tm_hour = (int)strtol(copy + 11, NULL, 10);
	tm.tm_min = (int)strtol(copy + 14, NULL, 10);
	tm.tm_sec = (int)strtol(copy + 17, NULL, 10);
	free(copy);
	struct tm given = tm;
	*out = (int64_t)timegm(&tm) * 1000;
	/* A day that does not exist becomes another; only the parser under test
	   allows second 60. */
	return given.tm_sec < 60 && tm.tm_mday == given.tm_mday &&
		   tm.tm_mon == given.tm_mon && tm.tm_hour == given.tm_hour &&
		   tm.tm_min == given.tm_min;
}

static bool is_leap_second(const char *text, size_t len) {
	return len >= 19 && text[17] == '6';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	const char *text = (const char *)data;
	struct postern_error error = { 0 };
	int64_t expected;
	int64_t ms = 1;
	int r = postern__time_parse(text, size, &ms, &error);
	MUST(r == postern__time_parse(text, size, NULL, NULL));
	if (r == POSTERN_OK) {
		MUST(ms >= POSTERN__TIME_MS_MIN && ms <= POSTERN__TIME_MS_MAX);
		check_time_round_trip(ms);
	} else {
		MUST(r == POSTERN_E_INVALID && ms == 1);
		MUST(error.text[0] && fuzz_is_clean(error.text));
	}
	if (parse_time_plainly(text, size, &expected)) {
		MUST(r == POSTERN_OK && ms == expected);
	} else if (r == POSTERN_OK && size == strlen("2026-11-15T21:09:24Z") &&
			   !is_leap_second(text, size)) {
		MUST(text[10] == 't' || text[19] == 'z');
	}
	int64_t number = 0;
	memcpy(&number, data, size < sizeof number ? size : sizeof number);
	check_time_round_trip(number);
	check_time_round_trip(number % POSTERN__TIME_MS_MAX);
	return 0;
}
