/* SPDX-License-Identifier: MIT */

/*
 * The codes, and the version.
 */

#include <postern/error.h>
#include <postern/version.h>

#include "tap.h"

/* The numbers are the ABI: they are written out here and never change. */
static const struct {
	int code;
	int value;
	bool transient;
} rows[] = {
	{ POSTERN_OK, 0, false },
	{ POSTERN_E_INVALID, -1, false },
	{ POSTERN_E_NOMEM, -2, true },
	{ POSTERN_E_NOTFOUND, -3, false },
	{ POSTERN_E_DUPLICATE, -4, false },
	{ POSTERN_E_STALE, -5, false },
	{ POSTERN_E_BUSY, -6, true },
	{ POSTERN_E_UNAVAILABLE, -7, true },
	{ POSTERN_E_TIMEOUT, -8, true },
	{ POSTERN_E_CORRUPT, -9, false },
	{ POSTERN_E_UNSUPPORTED, -10, false },
	{ POSTERN_E_CONFLICT, -11, false },
};

#define ROW_COUNT (sizeof rows / sizeof rows[0])

static void numbers(void) {
	for (size_t i = 0; i < ROW_COUNT; i++) {
		CHECK_INT(rows[i].code, rows[i].value);
	}
}

static void transient(void) {
	for (size_t i = 0; i < ROW_COUNT; i++) {
		CHECK_INT(postern_error_transient(rows[i].code), rows[i].transient);
	}
	CHECK(!postern_error_transient(-1000));
	CHECK(!postern_error_transient(1));
}

static void texts(void) {
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const char *text = postern_error_text(rows[i].code);
		CHECK(strlen(text) > 0);
		CHECK(strcmp(text, "unknown error") != 0);
		for (size_t j = 0; j < i; j++) {
			CHECK(strcmp(text, postern_error_text(rows[j].code)) != 0);
		}
	}
	CHECK_STR(postern_error_text(POSTERN_E_STALE),
			"lease expired or was taken over");
	CHECK_STR(postern_error_text(-1000), "unknown error");
	CHECK_STR(postern_error_text(1), "unknown error");
}

static void version(void) {
	CHECK_STR(postern_version(), POSTERN_VERSION);
}

static const struct tap_case cases[] = {
	{ "the numbers of the codes do not change", numbers },
	{ "a code is transient or permanent", transient },
	{ "every code has a text of its own", texts },
	{ "the version of the library is that of the header", version },
};

TAP_MAIN(cases)
