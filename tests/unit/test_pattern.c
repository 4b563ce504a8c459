/* SPDX-License-Identifier: MIT */

/*
 * Type patterns, compared with a matcher that is slow and obviously right.
 */

#include "base/pattern.h"

#include <stdlib.h>

#include "dice.h"
#include "tap.h"

static bool match(const char *pattern, const char *text) {
	return postern__pattern_match(pattern, strlen(pattern), text, strlen(text));
}

static bool slow_match(const char *pattern, const char *text) {
	if (*pattern == '\0') {
		return *text == '\0';
	}
	if (*pattern == '*') {
		return slow_match(pattern + 1, text) ||
			   (*text != '\0' && slow_match(pattern, text + 1));
	}
	return *pattern == *text && slow_match(pattern + 1, text + 1);
}

static void examples(void) {
	static const struct {
		const char *pattern;
		const char *text;
		bool matches;
	} rows[] = {
		{ "order.placed", "order.placed", true },
		{ "order.placed", "order.placed.v2", false },
		{ "order.placed", "Order.placed", false },
		{ "order.placed", "orderXplaced", false },
		{ "order.*", "order.placed", true },
		{ "order.*", "order.", true },
		{ "order.*", "order", false },
		{ "order.*", "order.placed.v2", true },
		{ "*.placed", "order.placed", true },
		{ "*.placed", "a.b.placed", true },
		{ "*.placed", ".placed", true },
		{ "*.placed", "placed", false },
		{ "*", "", true },
		{ "*", "anything.at all", true },
		{ "", "", true },
		{ "", "a", false },
		{ "a*a", "a", false },
		{ "a*a", "aa", true },
		{ "a*b*c", "a-b-b-c", true },
		{ "a*b*c", "a-c-b", false },
		{ "*ab*ab*", "abab", true },
		{ "*ab*ab*", "aba", false },
		{ "**", "", true },
		{ "a**b", "ab", true },
		{ "a?c", "abc", false },
		{ "[ab]", "a", false },
		{ "a\\*", "a*", false },
		{ "*\xc3\xa4", "gr\xc3\xa4", true },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (match(rows[i].pattern, rows[i].text) != rows[i].matches) {
			FAIL("'%s' on '%s' is not %d", rows[i].pattern, rows[i].text,
					rows[i].matches);
		}
	}
	CHECK(postern__pattern_match(NULL, 0, NULL, 0));
	CHECK(postern__pattern_match("*", 1, NULL, 0));
	CHECK(!postern__pattern_match("*a*", 3, NULL, 0));
}

static void by_definition(void) {
	struct dice dice = { 1 };
	unsigned matched = 0;
	for (unsigned i = 0; i < 300000; i++) {
		char pattern[9] = "";
		char text[11] = "";
		size_t pattern_len = dice_below(&dice, 9);
		size_t text_len = dice_below(&dice, 11);
		for (size_t j = 0; j < pattern_len; j++) {
			pattern[j] = "ab*"[dice_below(&dice, 3)];
		}
		for (size_t j = 0; j < text_len; j++) {
			text[j] = "ab"[dice_below(&dice, 2)];
		}
		bool expected = slow_match(pattern, text);
		if (match(pattern, text) != expected) {
			FAIL("'%s' on '%s' is not %d", pattern, text, expected);
			return;
		}
		matched += expected;
	}
	/* Both results must occur often, or the loop tests only one of them. */
	CHECK(matched > 50000 && matched < 250000);
}

static void hostile_patterns(void) {
	/* A backtracking matcher takes exponential time for this pattern. */
	size_t len = 1000000;
	char *text = malloc(len);
	memset(text, 'a', len);
	static const char pattern[] = "*a*a*a*a*a*a*a*b";
	CHECK(!postern__pattern_match(pattern, sizeof pattern - 1, text, len));

	/* A matcher that compares at every position takes quadratic time. */
	char *needle = malloc(len / 2 + 3);
	memset(needle, 'a', len / 2 + 3);
	needle[0] = '*';
	needle[len / 2 + 1] = 'b';
	needle[len / 2 + 2] = '*';
	CHECK(!postern__pattern_match(needle, len / 2 + 3, text, len));
	free(needle);
	free(text);
}

static void valid_patterns(void) {
	char text[POSTERN__PATTERN_CHARS_MAX * 4];
	CHECK_OK(postern__pattern_check("*", 1, NULL), NULL);
	CHECK_OK(postern__pattern_check("order.*", 7, NULL), NULL);
	CHECK_OK(postern__pattern_check("********", 8, NULL), NULL);
	for (size_t i = 0; i < sizeof text; i += 4) {
		memcpy(text + i, "\xf0\x9f\x98\x80", 4);
	}
	CHECK_OK(postern__pattern_check(text, sizeof text, NULL), NULL);
}

static void invalid_patterns(void) {
	struct postern_error error;
	char text[POSTERN__PATTERN_CHARS_MAX + 1];
	memset(text, 'a', sizeof text);
	CHECK_OK(postern__pattern_check(text, sizeof text - 1, NULL), NULL);
	CHECK_INT(postern__pattern_check(text, sizeof text, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "more than 200 characters");
	CHECK_INT(postern__pattern_check("", 0, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "is empty");
	CHECK_INT(postern__pattern_check("*********", 9, &error),
			POSTERN_E_INVALID);
	CHECK_STR(error.text,
			"pattern '*********' has 9 stars; at most 8 are allowed");
	CHECK_INT(postern__pattern_check("a\xff", 2, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "not valid UTF-8");
	CHECK_INT(postern__pattern_check("a\n", 2, &error), POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "control character");
	CHECK_INT(postern__pattern_check("a\0b", 3, &error), POSTERN_E_INVALID);
	CHECK_INT(postern__pattern_check("a\xc2\x80", 3, &error),
			POSTERN_E_INVALID);
}

static const struct tap_case cases[] = {
	{ "a star matches any run of bytes, any other byte itself", examples },
	{ "matching agrees with the recursive definition", by_definition },
	{ "matching time stays short for hostile patterns", hostile_patterns },
	{ "a pattern may have up to 200 characters and 8 stars", valid_patterns },
	{ "an invalid pattern is refused and the error gives the reason",
			invalid_patterns },
};

TAP_MAIN(cases)
