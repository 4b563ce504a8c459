/* SPDX-License-Identifier: MIT */

/*
 * UTF-8: every code point, the known kinds of malformed bytes, and cleaning.
 */

#include "base/utf8.h"

#include <stdlib.h>

#include "dice.h"
#include "support/naive_utf8.h"
#include "tap.h"

/* An independent encoder. */
static size_t encode(uint32_t c, char *out) {
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

static bool is_character(uint32_t c) {
	return c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);
}

static void every_code_point(void) {
	for (uint32_t c = 0; c < 0x120000; c++) {
		char bytes[5];
		uint32_t decoded = 0;
		size_t len = encode(c, bytes);
		size_t step = postern__utf8_decode(bytes, len, &decoded);
		if (step != (is_character(c) ? len : 0) || (step && decoded != c)) {
			FAIL("U+%04X decodes to %zu bytes, U+%04X", (unsigned)c, step,
					(unsigned)decoded);
		}
		bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
		if (postern__utf8_has_control(bytes, len) != control) {
			FAIL("U+%04X is wrongly classified as a control character, or not",
					(unsigned)c);
		}
		for (size_t i = 0; i < len; i++) {
			if (postern__utf8_decode(bytes, i, NULL) != 0) {
				FAIL("U+%04X decodes without its end", (unsigned)c);
			}
		}
	}
}

static bool decodes_as_naively(const char *bytes, size_t len) {
	uint32_t c = UINT32_MAX;
	size_t step = naive_utf8_len(bytes, len);
	uint32_t expected =
			step > 0 ? naive_utf8_character(bytes, step) : UINT32_MAX;
	return postern__utf8_decode(bytes, len, &c) == step && c == expected;
}

static void every_short_sequence(void) {
	for (uint32_t i = 0; i < 0x1000000; i++) {
		char bytes[4] = { (char)(i >> 16), (char)(i >> 8), (char)i };
		/* Also checks each first byte and each pair of first bytes, once. */
		if (!decodes_as_naively(bytes, 3) ||
				((i & 0xff) == 0 && !decodes_as_naively(bytes, 2)) ||
				((i & 0xffff) == 0 && !decodes_as_naively(bytes, 1))) {
			FAIL("%06x is misread", (unsigned)i);
			return;
		}
	}
}

/* The bytes at the boundaries of the rules for continuation bytes. */
static const char borders[] = "\x00\x1f\x20\x7e\x7f\x80\x8f\x90\x9f\xa0\xbf"
							  "\xc0\xc1\xc2\xed\xf0\xf4\xff";
#define BORDER_COUNT (sizeof borders - 1)

/* Compares the functions for whole texts with a loop over characters. */
static void check_text(const char *text, size_t len) {
	bool valid = true;
	bool control = false;
	size_t count = 0;
	char clean[64] = "";
	char out[64];
	for (size_t at = 0; at < len; count++) {
		size_t step = naive_utf8_len(text + at, len - at);
		uint32_t c = step > 0 ? naive_utf8_character(text + at, step) : 0xfffd;
		bool odd = is_character(c) && (c < 0x20 || (c >= 0x7f && c < 0xa0));
		bool blank = (c >= 0x09 && c <= 0x0d) || c == 0x85 || c == 0x2028 ||
					 c == 0x2029;
		valid = valid && step > 0;
		control = control || odd;
		size_t end = strlen(clean);
		clean[end + encode(blank ? ' ' : (odd ? '?' : c), clean + end)] = '\0';
		at += step > 0 ? step : 1;
	}
	if (postern__utf8_valid(text, len) != valid ||
			postern__utf8_has_control(text, len) != control ||
			postern__utf8_count(text, len) != count ||
			postern__utf8_clean(text, len, out, sizeof out) != strlen(clean) ||
			strcmp(out, clean) != 0) {
		FAIL("%02x %02x %02x %02x among %zu bytes is misclassified",
				(unsigned char)text[len - 4], (unsigned char)text[len - 3],
				(unsigned char)text[len - 2], (unsigned char)text[len - 1],
				len);
	}
}

/* All pairs of first bytes, followed by bytes at the boundaries, after plain
   text of every length that matters to code that reads eight bytes at a
   time. */
static void systematic_sequences(void) {
	for (uint32_t i = 0; i < 0x10000; i++) {
		for (size_t j = 0; j < BORDER_COUNT; j++) {
			char text[14] = "plain text";
			size_t before = (i + j) % 11;
			text[before] = (char)(i >> 8);
			text[before + 1] = (char)i;
			text[before + 2] = borders[j];
			text[before + 3] = borders[(i + 5 * j) % BORDER_COUNT];
			check_text(text, before + 4);
			if (!decodes_as_naively(text + before, 4) ||
					atomic_load(&tap_failures) > 0) {
				FAIL("the sequence that begins with %04x", (unsigned)i);
				return;
			}
		}
	}
}

static void four_bytes(void) {
	for (uint32_t i = 0; i < 0x10 * 0x100; i++) {
		for (size_t j = 0; j < BORDER_COUNT * BORDER_COUNT; j++) {
			char bytes[4] = { (char)(0xf0 | i >> 8), (char)i,
				borders[j / BORDER_COUNT], borders[j % BORDER_COUNT] };
			if (!decodes_as_naively(bytes, 4)) {
				FAIL("f%03x is misread", (unsigned)i);
				return;
			}
		}
	}
}

static void malformed(void) {
	static const char *const texts[] = {
		"\x80",
		"a\xbf",
		"\xc0\x80",
		"\xc0\xaf",
		"\xc1\xbf",
		"\xe0\x80\xaf",
		"\xe0\x9f\xbf",
		"\xf0\x80\x80\xaf",
		"\xf0\x8f\xbf\xbf",
		"\xed\xa0\x80",
		"\xed\xbf\xbf",
		"\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80",
		"\xf8\x88\x80\x80\x80",
		"\xfe",
		"\xff",
		"\xc3",
		"\xe2\x82",
		"\xf0\x9f\x98",
		"\xc3\xc3\xa4",
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		CHECK(!postern__utf8_valid(texts[i], strlen(texts[i])));
	}
	CHECK(postern__utf8_valid(NULL, 0));
	CHECK(postern__utf8_valid("a\0b", 3));
	CHECK(postern__utf8_valid("\xef\xbb\xbf\xf0\x9f\x98\x80", 7));
}

static void counting(void) {
	CHECK_INT(postern__utf8_count(NULL, 0), 0);
	CHECK_INT(postern__utf8_count("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 10),
			4);
	CHECK_INT(postern__utf8_count("\xff\xe2\x82", 3), 3);
}

static void cutting(void) {
	static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";
	static const size_t cuts[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10 };
	for (size_t max = 0; max < sizeof cuts / sizeof cuts[0]; max++) {
		CHECK_INT(postern__utf8_cut(text, 10, max), cuts[max]);
	}
	CHECK_INT(postern__utf8_cut("\x80\x80", 2, 1), 0);
}

static void cleaning(void) {
	char out[32];
	static const char text[] =
			"a\tb\r\nc\0d\x1b\x7f\xc2\x85\xc2\x9f\xff\xe2\x80"
			"\xa9z";
	size_t len = postern__utf8_clean(text, sizeof text - 1, out, sizeof out);
	CHECK_STR(out, "a b  c?d?? ?\xef\xbf\xbd z");
	CHECK_INT(len, strlen(out));
	CHECK_INT(postern__utf8_clean(NULL, 0, out, 1), 0);
	CHECK_STR(out, "");
}

static void cleaning_cuts(void) {
	char out[8];
	CHECK_INT(postern__utf8_clean("ab\xe2\x82\xac", 5, out, 5), 2);
	CHECK_STR(out, "ab");
	CHECK_INT(postern__utf8_clean("ab\xe2\x82\xac", 5, out, 6), 5);
	CHECK_INT(postern__utf8_clean("ab\xff", 3, out, 5), 2);
	CHECK_STR(out, "ab");
	/* Nothing after a character that does not fit is copied either. */
	CHECK_INT(postern__utf8_clean("ab\xe2\x82\xacz", 6, out, 5), 2);
	CHECK_INT(postern__utf8_clean("a", 1, out, 1), 0);
	CHECK_STR(out, "");
}

static void cleaning_anything(void) {
	struct dice dice = { 1 };
	for (unsigned i = 0; i < 20000; i++) {
		/* Exact allocations, so that a sanitizer finds a read past the end. */
		size_t len = dice_below(&dice, 30);
		size_t size = dice_below(&dice, 40) + 1;
		char *text = malloc(len > 0 ? len : 1);
		char *out = malloc(size);
		for (size_t j = 0; j < len; j++) {
			/* Mostly bytes that form sequences. */
			static const char some[] = "\xe2\x82\xac\xc2\x9f\xf0\x9f\xed\xa0"
									   "a";
			text[j] = dice_below(&dice, 4) ? some[dice_below(&dice, 10)]
										   : (char)dice_below(&dice, 256);
		}
		size_t out_len = postern__utf8_clean(text, len, out, size);
		CHECK(out_len < size);
		CHECK_INT(strlen(out), out_len);
		CHECK(postern__utf8_valid(out, out_len));
		CHECK(!postern__utf8_has_control(out, out_len));
		CHECK(postern__utf8_count(text, len) <= len);
		bool clean = postern__utf8_valid(text, len) &&
					 !postern__utf8_has_control(text, len);
		if (clean && len < size) {
			CHECK_MEM(out, out_len, text, len);
		}
		free(text);
		free(out);
	}
}

/* One special byte at every position of plain text. */
static void one_odd_byte(void) {
	for (size_t len = 1; len <= 24; len++) {
		for (size_t at = 0; at < len; at++) {
			for (int byte = 0; byte < 256; byte++) {
				char text[24];
				memset(text, byte & 1 ? ' ' : '~', sizeof text);
				text[at] = (char)byte;
				bool plain = byte >= 0x20 && byte < 0x7f;
				bool valid = byte < 0x80;
				if (postern__utf8_valid(text, len) != valid ||
						postern__utf8_has_control(text, len) !=
								(valid && !plain) ||
						postern__utf8_count(text, len) != len) {
					FAIL("byte %02x at %zu of %zu is misclassified",
							(unsigned)byte, at, len);
				}
			}
		}
	}
}

static const struct tap_case cases[] = {
	{ "every code point but the surrogates is valid", every_code_point },
	{ "every sequence of up to three bytes decodes as the standard requires",
			every_short_sequence },
	{ "sequences of four bytes decode as the standard requires", four_bytes },
	{ "a sequence is classified the same at every position of a text",
			systematic_sequences },
	{ "overlong, surrogate, out-of-range, stray and truncated bytes are "
	  "malformed",
			malformed },
	{ "characters are counted, malformed bytes one by one", counting },
	{ "one special byte is found at every position", one_odd_byte },
	{ "a cut never splits a character", cutting },
	{ "cleaning replaces malformed bytes and control characters", cleaning },
	{ "cleaning cuts between characters", cleaning_cuts },
	{ "cleaned text is valid and fits", cleaning_anything },
};

TAP_MAIN(cases)
