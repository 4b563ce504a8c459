/* SPDX-License-Identifier: MIT */

/*
 * Durations, sizes and counts, as people write them. The input is parsed by the
 * code under test and by a plain multiplication in 128 bits; the result is
 * formatted and parsed again. The first bytes are also used as a number to be
 * formatted.
 */

#include <postern/error.h>

#include "base/text.h"
#include "fuzz.h"

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit durations[] = { { "ms", 1 }, { "s", 1000 },
	{ "m", 60000 }, { "h", 3600000 }, { "d", 86400000 }, { NULL, 0 } };
static const struct unit sizes[] = { { "B", 1 }, { "KiB", 1024 },
	{ "MiB", 1048576 }, { "GiB", 1073741824 }, { NULL, 0 } };
static const struct unit counts[] = { { "", 1 }, { NULL, 0 } };

/* Returns false if the text is malformed, or over max. */
static bool parse_quantity_naively(const char *text, const struct unit *units,
		uint64_t max, uint64_t *out) {
	size_t digits = strspn(text, "0123456789");
	unsigned __int128 number = 0;
	for (size_t i = 0; i < digits; i++) {
		number = number * 10 + (unsigned)(text[i] - '0');
		if (number > UINT64_MAX) {
			number = (unsigned __int128)UINT64_MAX + 1; /* saturated */
		}
	}
	if (digits == 0) {
		return false;
	}
	*out = 0;
	if (number == 0 && text[digits] == '\0') {
		return true;
	}
	for (; units->name; units++) {
		if (strcmp(text + digits, units->name) == 0) {
			number *= units->factor;
			*out = (uint64_t)number;
			return number <= max;
		}
	}
	return false;
}

/* The formatted text is no longer than the input. */
static void check_not_longer(const char *formatted, const char *text) {
	while (text[0] == '0' && text[1] != '\0') {
		text++;
	}
	MUST(strlen(formatted) <= strlen(text));
}

static void check_parse_error(int r, const struct postern_error *error) {
	MUST(r == POSTERN_OK || r == POSTERN_E_INVALID);
	MUST(r == POSTERN_OK || (error->text[0] && fuzz_is_clean(error->text)));
}

static void check_duration(const char *text) {
	char formatted[POSTERN__DURATION_TEXT_MAX];
	struct postern_error error = { 0 };
	uint64_t expected;
	int64_t ms = -1;
	int64_t again = -1;
	int r = postern__duration_parse(text, &ms, &error);
	check_parse_error(r, &error);
	bool good = parse_quantity_naively(text, durations, INT64_MAX, &expected);
	MUST(good == (r == POSTERN_OK));
	if (!good) {
		MUST(ms == -1);
		return;
	}
	MUST(ms == (int64_t)expected);
	postern__duration_format(ms, formatted);
	check_not_longer(formatted, text);
	MUST(postern__duration_parse(formatted, &again, NULL) == POSTERN_OK);
	MUST(again == ms);
}

static void check_size(const char *text) {
	char formatted[POSTERN__SIZE_TEXT_MAX];
	struct postern_error error = { 0 };
	uint64_t expected;
	uint64_t bytes;
	uint64_t again;
	int r = postern__size_parse(text, &bytes, &error);
	check_parse_error(r, &error);
	bool good = parse_quantity_naively(text, sizes, UINT64_MAX, &expected);
	MUST(good == (r == POSTERN_OK));
	if (good) {
		MUST(bytes == expected);
		postern__size_format(bytes, formatted);
		check_not_longer(formatted, text);
		MUST(postern__size_parse(formatted, &again, NULL) == POSTERN_OK);
		MUST(again == bytes);
	}
}

static void check_count(const char *text, uint64_t min, uint64_t max) {
	struct postern_error error = { 0 };
	uint64_t expected;
	uint64_t number;
	int r = postern__count_parse(text, min, max, &number, &error);
	check_parse_error(r, &error);
	bool good = parse_quantity_naively(text, counts, max, &expected) &&
				expected >= min;
	MUST(good == (r == POSTERN_OK));
	MUST(!good || number == expected);
}

static void check_number(int64_t number) {
	char formatted[POSTERN__DURATION_TEXT_MAX];
	char formatted_size[POSTERN__SIZE_TEXT_MAX];
	int64_t ms;
	uint64_t bytes;
	postern__duration_format(number, formatted);
	/* A negative duration is only for display and cannot be parsed. */
	const char *amount = number < 0 ? formatted + 1 : formatted;
	MUST((number < 0) == (formatted[0] == '-'));
	if (number != INT64_MIN) {
		MUST(postern__duration_parse(amount, &ms, NULL) == POSTERN_OK);
		MUST(number == (number < 0 ? -ms : ms));
	}
	postern__size_format((uint64_t)number, formatted_size);
	MUST(postern__size_parse(formatted_size, &bytes, NULL) == POSTERN_OK);
	MUST(bytes == (uint64_t)number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	char *text = fuzz_text(data, size);
	int64_t number = 0;
	memcpy(&number, text, size < sizeof number ? size : sizeof number);
	check_duration(text);
	check_size(text);
	check_count(text, 0, UINT64_MAX);
	check_count(text, 1, 1000);
	check_number(number);
	free(text);
	return 0;
}
