/* SPDX-License-Identifier: MIT */

/*
 * The growing buffer: its contents, its limit, and that it records a failure.
 */

#include "base/buf.h"

#include <stdlib.h>

#include "dice.h"
#include "no_memory.h"
#include "tap.h"

static void empty(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 10);
	CHECK_STR(postern__buf_text(&buf), "");
	CHECK_INT(buf.len, 0);
	postern__buf_append(&buf, NULL, 0);
	postern__buf_append_text(&buf, "");
	postern__buf_printf(&buf, "%s", "");
	CHECK_INT(postern__buf_check(&buf, "it", NULL), POSTERN_OK);
	CHECK(!buf.data);
	postern__buf_finish(&buf);
}

static void appending(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 1000);
	postern__buf_append(&buf, "a\0b", 3);
	postern__buf_append_char(&buf, '-');
	postern__buf_append_text(&buf, "text");
	postern__buf_printf(&buf, " %d%s", 7, "x");
	CHECK_MEM(postern__buf_text(&buf), buf.len + 1, "a\0b-text 7x", 12);
	CHECK_INT(postern__buf_check(&buf, "it", NULL), POSTERN_OK);
	postern__buf_finish(&buf);
	CHECK_STR(postern__buf_text(&buf), "");
}

static void maximum(void) {
	struct postern__buf buf;
	struct postern_error error;
	postern__buf_init(&buf, 5);
	postern__buf_append_text(&buf, "12345");
	CHECK_OK(postern__buf_check(&buf, "it", NULL), NULL);
	postern__buf_append_char(&buf, '6');
	CHECK_INT(postern__buf_check(&buf, "the answer", &error),
			POSTERN_E_INVALID);
	CHECK_STR(error.text, "the answer is over 5 bytes");
	CHECK_STR(postern__buf_text(&buf), "12345");
	CHECK_INT(buf.cap, 6);
	postern__buf_finish(&buf);
}

static void whole_or_not(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 5);
	postern__buf_append_text(&buf, "123");
	postern__buf_printf(&buf, "%s", "456");
	CHECK_STR(postern__buf_text(&buf), "123");
	CHECK_INT(buf.len, 3);
	postern__buf_finish(&buf);
}

static void sticky(void) {
	struct postern__buf buf;
	size_t len;
	postern__buf_init(&buf, 5);
	postern__buf_append_text(&buf, "123456");
	postern__buf_append_text(&buf, "1");
	postern__buf_printf(&buf, "2");
	CHECK(!postern__buf_reserve(&buf, 1));
	CHECK(!postern__buf_detach(&buf, &len));
	CHECK_STR(postern__buf_text(&buf), "");
	CHECK_INT(postern__buf_check(&buf, "it", NULL), POSTERN_E_INVALID);
	postern__buf_reset(&buf);
	postern__buf_append_text(&buf, "12345");
	CHECK_INT(postern__buf_check(&buf, "it", NULL), POSTERN_OK);
	CHECK_STR(postern__buf_text(&buf), "12345");
	postern__buf_finish(&buf);
}

static void out_of_memory(void) {
	struct postern__buf buf;
	struct postern_error error;
	postern__buf_init(&buf, SIZE_MAX - 1);
	postern__buf_append_text(&buf, "kept");
	CHECK(!postern__buf_reserve(&buf, TOO_MANY_BYTES));
	CHECK_INT(postern__buf_check(&buf, "it", &error), POSTERN_E_NOMEM);
	CHECK_STR(error.text, "no memory for it");
	CHECK_STR(postern__buf_text(&buf), "kept");
	CHECK(!postern__buf_reserve(&buf, SIZE_MAX));
	postern__buf_finish(&buf);
}

static void reserving(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 100);
	postern__buf_append_text(&buf, "a");
	char *room = postern__buf_reserve(&buf, 99);
	if (!CHECK(room)) {
		return;
	}
	memset(room, 'b', 99);
	postern__buf_commit(&buf, 2);
	CHECK_STR(postern__buf_text(&buf), "abb");
	room = postern__buf_reserve(&buf, 97);
	CHECK(room);
	postern__buf_commit(&buf, 0);
	CHECK_INT(buf.len, 3);
	CHECK(!postern__buf_reserve(&buf, 98));
	postern__buf_finish(&buf);
}

static void dropping(void) {
	struct postern__buf buf;
	postern__buf_init(&buf, 6);
	postern__buf_drop(&buf, 0);
	postern__buf_append_text(&buf, "abcdef");
	postern__buf_drop(&buf, 2);
	CHECK_STR(postern__buf_text(&buf), "cdef");
	CHECK_INT(buf.len, 4);
	postern__buf_drop(&buf, 4);
	CHECK_STR(postern__buf_text(&buf), "");
	CHECK_INT(buf.len, 0);
	postern__buf_finish(&buf);
}

static void detaching(void) {
	struct postern__buf buf;
	size_t len = 99;
	postern__buf_init(&buf, 100);
	char *text = postern__buf_detach(&buf, &len);
	CHECK_STR(text, "");
	CHECK_INT(len, 0);
	free(text);
	postern__buf_append_text(&buf, "abc");
	text = postern__buf_detach(&buf, &len);
	CHECK_STR(text, "abc");
	CHECK_INT(len, 3);
	free(text);
	CHECK_STR(postern__buf_text(&buf), "");
	postern__buf_append_text(&buf, "d");
	CHECK_STR(postern__buf_text(&buf), "d");
	postern__buf_finish(&buf);
}

static void like_an_array(void) {
	struct dice dice = { 1 };
	for (unsigned round = 0; round < 200; round++) {
		size_t max = dice_below(&dice, 700);
		char expected[701] = "";
		size_t expected_len = 0;
		bool failed = false;
		struct postern__buf buf;
		postern__buf_init(&buf, max);
		for (unsigned i = 0; i < 60; i++) {
			char piece[32];
			size_t len = dice_below(&dice, sizeof piece);
			memset(piece, (int)('a' + i % 26), len);
			failed |= expected_len + len > max;
			if (!failed) {
				memcpy(expected + expected_len, piece, len);
				expected_len += len;
			}
			if (i % 2) {
				postern__buf_append(&buf, piece, len);
			} else {
				postern__buf_printf(&buf, "%.*s", (int)len, piece);
			}
			CHECK_INT(buf.failed != POSTERN_OK, failed);
		}
		expected[expected_len] = '\0';
		CHECK_MEM(postern__buf_text(&buf), buf.len + 1, expected,
				expected_len + 1);
		postern__buf_finish(&buf);
	}
}

static const struct tap_case cases[] = {
	{ "an empty buffer is an empty text and allocates nothing", empty },
	{ "appended bytes are followed by a zero byte", appending },
	{ "a buffer never exceeds its maximum", maximum },
	{ "an append is complete or has no effect", whole_or_not },
	{ "a buffer that failed ignores appends until it is reset", sticky },
	{ "running out of memory keeps the contents", out_of_memory },
	{ "reserved bytes count only when they are committed", reserving },
	{ "dropped bytes are removed from the front", dropping },
	{ "detached bytes belong to the caller", detaching },
	{ "any sequence of appends gives the same bytes as an array",
			like_an_array },
};

TAP_MAIN(cases)
