/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_NAIVE_UTF8_H
#define POSTERN_TESTS_NAIVE_UTF8_H

/*
 * A second UTF-8 decoder to compare with: the table of well-formed byte
 * sequences of the Unicode Standard (3.9, table 3-7) as printed there, searched
 * row by row. It shares nothing with src/base/utf8.c.
 */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* The length of the character at the start; 0 if there is none or it is
   malformed. */
__attribute__((unused)) static size_t naive_utf8_len(const char *text,
		size_t len) {
	static const struct {
		size_t len;
		unsigned char bytes[4][2]; /* from and to */
	} rows[] = {
		{ 1, { { 0x00, 0x7f } } },
		{ 2, { { 0xc2, 0xdf }, { 0x80, 0xbf } } },
		{ 3, { { 0xe0, 0xe0 }, { 0xa0, 0xbf }, { 0x80, 0xbf } } },
		{ 3, { { 0xe1, 0xec }, { 0x80, 0xbf }, { 0x80, 0xbf } } },
		{ 3, { { 0xed, 0xed }, { 0x80, 0x9f }, { 0x80, 0xbf } } },
		{ 3, { { 0xee, 0xef }, { 0x80, 0xbf }, { 0x80, 0xbf } } },
		{ 4, { { 0xf0, 0xf0 }, { 0x90, 0xbf }, { 0x80, 0xbf },
					 { 0x80, 0xbf } } },
		{ 4, { { 0xf1, 0xf3 }, { 0x80, 0xbf }, { 0x80, 0xbf },
					 { 0x80, 0xbf } } },
		{ 4, { { 0xf4, 0xf4 }, { 0x80, 0x8f }, { 0x80, 0xbf },
					 { 0x80, 0xbf } } },
	};
	for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
		size_t i = 0;
		if (rows[row].len > len) {
			continue;
		}
		while (i < rows[row].len &&
				(unsigned char)text[i] >= rows[row].bytes[i][0] &&
				(unsigned char)text[i] <= rows[row].bytes[i][1]) {
			i++;
		}
		if (i == rows[row].len) {
			return i;
		}
	}
	return 0;
}

/* The character of a well-formed sequence. */
__attribute__((unused)) static uint32_t naive_utf8_character(const char *text,
		size_t len) {
	static const unsigned char masks[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	assert(len > 0 && len < sizeof masks);
	uint32_t c = (unsigned char)text[0] & masks[len];
	for (size_t i = 1; i < len; i++) {
		c = c * 64 + ((unsigned char)text[i] - 0x80u);
	}
	return c;
}

#endif
