/* SPDX-License-Identifier: MIT */

/*
 * The checks themselves. Each failing check is made on purpose, counted and
 * cleared, so the stderr of this program has lines that look like failures.
 */

#include <stdatomic.h>

#include "tap.h"

/* Clears the failures made since the last call and returns their count. */
static unsigned clear_failures(void) {
	return atomic_exchange(&tap_failures, 0);
}

static void checks_that_hold(void) {
	struct postern_error error = { 0 };

	CHECK(CHECK(1 + 1 == 2));
	CHECK(CHECK_INT(UINT32_MAX, UINT32_MAX));
	CHECK(CHECK_STR("a", "a"));
	CHECK(CHECK_STR(NULL, NULL));
	CHECK(CHECK_CONTAINS("abc", "b"));
	CHECK(CHECK_MEM("ab", 2, "ab", 2));
	CHECK(CHECK_OK(POSTERN_OK, &error));
}

static void checks_that_do_not_hold(void) {
	struct postern_error error = { .code = POSTERN_E_BUSY, .text = "busy" };
	bool results[] = {
		CHECK(1 + 1 == 3),
		CHECK_INT(-1, 1),
		CHECK_STR("a", "b"),
		CHECK_STR("a", NULL),
		CHECK_STR(NULL, "b"),
		CHECK_CONTAINS("abc", "d"),
		CHECK_CONTAINS(NULL, "d"),
		CHECK_MEM("ab", 2, "abc", 3),
		CHECK_MEM("ab", 2, "ac", 2),
		CHECK_OK(POSTERN_E_BUSY, &error),
		CHECK_OK(POSTERN_E_BUSY, NULL),
		FAIL("%d is not a number", 1),
	};
	unsigned count = clear_failures();

	CHECK_INT(count, sizeof results / sizeof results[0]);
	for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
		CHECK(!results[i]);
	}
}

static void nothing(void) {
}

static void names_are_filtered(void) {
	char program[] = "test";
	char part[] = "b c";
	char *arguments[] = { program, part, NULL };

	CHECK(tap_is_wanted(2, arguments, "a b c"));
	CHECK(!tap_is_wanted(2, arguments, "a b"));
	CHECK(tap_is_wanted(1, arguments, "a b"));
}

static const struct tap_case cases[] = {
	{ "a check that holds is true and does not mark the case",
			checks_that_hold },
	{ "a check that does not hold is false and marks the case",
			checks_that_do_not_hold },
	{ "a mark does not reach the next case", nothing },
	{ "a case is run if its name contains an argument", names_are_filtered },
};

TAP_MAIN(cases)
