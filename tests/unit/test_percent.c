/* SPDX-License-Identifier: MIT */

/* Both dialects of percent-encoding, encoded and decoded. */

#include "base/percent.h"

#include <postern/error.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "tap.h"

static void check_segment(const char *text, const char *expected) {
	struct postern__buf buf;
	postern__buf_init(&buf, 10000);
	postern__percent_segment(&buf, text);
	CHECK_STR(postern__buf_text(&buf), expected);
	postern__buf_finish(&buf);
}

static void check_header(const char *text, const char *expected) {
	struct postern__buf buf;
	postern__buf_init(&buf, 10000);
	postern__percent_header(&buf, text);
	CHECK_STR(postern__buf_text(&buf), expected);
	postern__buf_finish(&buf);
}

static void segments(void) {
	check_segment("", "");
	check_segment("azAZ09-._~", "azAZ09-._~");
	check_segment("a/b?c#d%e+f g", "a%2Fb%3Fc%23d%25e%2Bf%20g");
	check_segment("\xc3\xa4\x7f\x01", "%C3%A4%7F%01");
}

static void headers(void) {
	check_header("a/b?c=d", "a/b?c=d");
	check_header("Euro \xe2\x82\xac \xf0\x9f\x98\x80",
			"Euro%20%E2%82%AC%20%F0%9F%98%80");
	check_header("say \"100%\"\r\n", "say%20%22100%25%22%0D%0A");
}

/* Returns NULL if the text is malformed. */
static const char *decode(struct postern__arena *arena, const char *text,
		size_t *len) {
	bool malformed = true;
	const char *out =
			postern__percent_decode(arena, text, strlen(text), len, &malformed);
	CHECK(malformed == !out);
	return out;
}

static void decoding(void) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	size_t len = 99;
	CHECK_STR(decode(&arena, "", &len), "");
	CHECK_INT(len, 0);
	CHECK_STR(decode(&arena, "a%2Fb%2fc", &len), "a/b/c");
	CHECK_STR(decode(&arena, "%25%32%46+", &len), "%2F+");
	CHECK_STR(decode(&arena, "%41", &len), "A");
	const char *zero = decode(&arena, "a%00b", &len);
	CHECK_MEM(zero, len, "a\0b", 3);
	postern__arena_finish(&arena);
}

static void malformed(void) {
	static const char *const texts[] = { "%", "a%", "%4", "%4g", "%g4", "%%41",
		"a%2", "%-1", "% 1", "%+1" };
	struct postern__arena arena;
	postern__arena_init(&arena);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		size_t len;
		if (decode(&arena, texts[i], &len)) {
			FAIL("'%s' was decoded", texts[i]);
		}
	}
	postern__arena_finish(&arena);
}

static void round_trip(void) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	for (unsigned c = 1; c < 256; c++) {
		const char text[] = { 'x', (char)c, 'y', '\0' };
		for (int header = 0; header < 2; header++) {
			struct postern__buf buf;
			postern__buf_init(&buf, 100);
			if (header) {
				postern__percent_header(&buf, text);
			} else {
				postern__percent_segment(&buf, text);
			}
			size_t len;
			CHECK_STR(decode(&arena, postern__buf_text(&buf), &len), text);
			postern__buf_finish(&buf);
		}
	}
	postern__arena_finish(&arena);
}

static const struct tap_case cases[] = {
	{ "a segment keeps only unreserved characters", segments },
	{ "a header keeps printable ASCII except quotes and percent", headers },
	{ "decoding runs once, reads hex digits of both cases and keeps zero bytes",
			decoding },
	{ "a percent without two hex digits is malformed", malformed },
	{ "every byte survives encoding and decoding", round_trip },
};

TAP_MAIN(cases)
