/* SPDX-License-Identifier: MIT */

/*
 * Filling an error: code, text, and characters that a text must never have.
 */

#include "base/fail.h"

#include <errno.h>

#include "base/utf8.h"
#include "dice.h"
#include "tap.h"

static void filled(void) {
	struct postern_error error = { 0 };
	int r = postern__fail(&error, POSTERN_E_BUSY, "lock %s: %d", "a", 7);
	CHECK_INT(r, POSTERN_E_BUSY);
	CHECK_INT(error.code, POSTERN_E_BUSY);
	CHECK_STR(error.text, "lock a: 7");
	(void)postern__fail(&error, POSTERN_E_BUSY, "%s", "");
	CHECK_STR(error.text, "");
	(void)postern__fail(&error, POSTERN_E_BUSY, "%s", "x");
	CHECK_STR(error.text, "x");
}

static void without_error(void) {
	CHECK_INT(postern__fail(NULL, POSTERN_E_STALE, "%d", 1), POSTERN_E_STALE);
}

static void lines(void) {
	struct postern_error error;
	(void)postern__fail(&error, POSTERN_E_INVALID, "%s",
			"id\r\nlevel=info\x1b[2J\x7f\xc2\x9b\xe2\x80\xa8.");
	CHECK_STR(error.text, "id  level=info?[2J?? .");
}

static void malformed(void) {
	struct postern_error error;
	(void)postern__fail(&error, POSTERN_E_INVALID, "<%s>", "\xff\xc3");
	CHECK_STR(error.text, "<\xef\xbf\xbd\xef\xbf\xbd>");
}

static void cut_between_characters(void) {
	/* 0, 1 and 2 bytes of padding put the cut at each byte of a "€". */
	for (int pad = 0; pad < 3; pad++) {
		char euros[1000];
		struct postern_error error;
		for (size_t i = 0; i + 3 < sizeof euros; i += 3) {
			memcpy(euros + i, "\xe2\x82\xac", 4);
		}
		(void)postern__fail(&error, POSTERN_E_INVALID, "%.*s%s", pad, "...",
				euros);
		size_t len = strlen(error.text);
		CHECK(postern__utf8_valid(error.text, len));
		CHECK(len > sizeof error.text - 1 - 3);
		CHECK(!strstr(error.text, "\xef\xbf\xbd"));
	}
}

static void long_texts(void) {
	/* Characters that become shorter when cleaned must not shorten the text. */
	char text[4096];
	struct postern_error error;
	for (size_t i = 0; i + 2 < sizeof text; i += 2) {
		memcpy(text + i, "\xc2\x80", 3);
	}
	(void)postern__fail(&error, POSTERN_E_INVALID, ".%s", text);
	CHECK_INT(strlen(error.text), sizeof error.text - 1);
	CHECK_INT(strspn(error.text + 1, "?"), sizeof error.text - 2);
}

static void wrapped(void) {
	struct postern_error error;
	(void)postern__fail(&error, POSTERN_E_INVALID, "bad unit");
	(void)postern__fail(&error, POSTERN_E_INVALID, "line 3: %s", error.text);
	CHECK_STR(error.text, "line 3: bad unit");
}

static void errno_is_kept(void) {
	struct postern_error error;
	errno = EAGAIN;
	(void)postern__fail(&error, POSTERN_E_BUSY, "%s", strerror(ENOENT));
	CHECK_INT(errno, EAGAIN);
}

static void any_bytes(void) {
	struct dice dice = { 1 };
	for (unsigned i = 0; i < 5000; i++) {
		char text[600];
		size_t len = dice_below(&dice, sizeof text);
		for (size_t j = 0; j < len; j++) {
			text[j] = (char)(dice_below(&dice, 255) + 1);
		}
		text[len] = '\0';
		struct postern_error error;
		(void)postern__fail(&error, POSTERN_E_INVALID, "%s", text);
		len = strnlen(error.text, sizeof error.text);
		CHECK(len < sizeof error.text);
		CHECK(postern__utf8_valid(error.text, len));
		CHECK(!postern__utf8_has_control(error.text, len));
	}
}

static const struct tap_case cases[] = {
	{ "an error gets the code and the text", filled },
	{ "without an error struct the code is still returned", without_error },
	{ "control characters and line breaks do not reach the text", lines },
	{ "malformed bytes become replacement characters", malformed },
	{ "a long text is cut between two characters", cut_between_characters },
	{ "a text of control characters fills the error's text", long_texts },
	{ "the text of an error can be part of its new text", wrapped },
	{ "errno is not changed", errno_is_kept },
	{ "any bytes become one clean line", any_bytes },
};

TAP_MAIN(cases)
