/* SPDX-License-Identifier: MIT */

/*
 * UTF-8 as Unicode defines it: the shortest form only, no surrogates, nothing
 * above U+10FFFF.
 */

#include "base/utf8.h"

#include <assert.h>
#include <string.h>

/* The replacement of malformed bytes: U+FFFD. */
static const char replacement[] = "\xef\xbf\xbd";

static bool is_continuation(unsigned char byte) {
	return (byte & 0xc0) == 0x80;
}

size_t postern__utf8_decode(const char *text, size_t len, uint32_t *out) {
	if (len == 0) {
		return 0;
	}
	const unsigned char *bytes = (const unsigned char *)text;
	uint32_t c = bytes[0];
	uint32_t min; /* anything below had a shorter form */
	size_t need;
	if (c < 0x80) { /* nearly always */
		if (out) {
			*out = c;
		}
		return 1;
	}
	if (c >= 0xf0 && c <= 0xf4) {
		need = 4;
		c &= 0x07;
		min = 0x10000;
	} else if (c >= 0xe0 && c < 0xf0) {
		need = 3;
		c &= 0x0f;
		min = 0x800;
	} else if (c >= 0xc2 && c < 0xe0) {
		need = 2;
		c &= 0x1f;
		min = 0x80;
	} else {
		return 0;
	}
	if (len < need) {
		return 0;
	}
	for (size_t i = 1; i < need; i++) {
		if (!is_continuation(bytes[i])) {
			return 0;
		}
		c = c << 6 | (bytes[i] & 0x3f);
	}
	if (c < min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
		return 0;
	}
	if (out) {
		*out = c;
	}
	return need;
}

/*
 * The number of bytes at the start that are printable ASCII, which every check
 * accepts. Eight at a time: nearly all text is printable ASCII only.
 */
static size_t plain_len(const char *text, size_t len) {
	const uint64_t ones = UINT64_C(0x0101010101010101);
	size_t at = 0;
	while (len - at >= sizeof(uint64_t)) {
		uint64_t word;
		memcpy(&word, text + at, sizeof word);
		/* The top bit of a byte, from the lowest that is not plain on. */
		uint64_t below_blank = (word - ones * 0x20) & ~word;
		uint64_t delete = ((word ^ ones * 0x7f) - ones) & ~(word ^ ones * 0x7f);
		if ((word | below_blank | delete) & ones * 0x80) {
			break;
		}
		at += sizeof word;
	}
	while (at < len && text[at] >= 0x20 && text[at] < 0x7f) {
		at++;
	}
	return at;
}

bool postern__utf8_valid(const char *text, size_t len) {
	size_t at = plain_len(text, len);
	while (at < len) {
		size_t step = postern__utf8_decode(text + at, len - at, NULL);
		if (step == 0) {
			return false;
		}
		at += step;
	}
	return true;
}

size_t postern__utf8_count(const char *text, size_t len) {
	size_t at = plain_len(text, len);
	size_t count = at;
	while (at < len) {
		size_t step = postern__utf8_decode(text + at, len - at, NULL);
		at += step > 0 ? step : 1;
		count++;
	}
	return count;
}

static bool is_control(uint32_t c) {
	return c < 0x20 || (c >= 0x7f && c <= 0x9f);
}

bool postern__utf8_has_control(const char *text, size_t len) {
	size_t at = plain_len(text, len);
	while (at < len) {
		uint32_t c;
		size_t step = postern__utf8_decode(text + at, len - at, &c);
		if (step > 0 && is_control(c)) {
			return true;
		}
		at += step > 0 ? step : 1;
	}
	return false;
}

size_t postern__utf8_cut(const char *text, size_t len, size_t len_max) {
	if (len <= len_max) {
		return len;
	}
	size_t at = len_max;
	while (at > 0 && is_continuation((unsigned char)text[at])) {
		at--;
	}
	return at;
}

/* VT, FF, NEL, LS and PS break lines as well, at least for some readers. */
static bool is_blank(uint32_t c) {
	return (c >= 0x09 && c <= 0x0d) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

size_t postern__utf8_clean(const char *text, size_t len, char *out,
		size_t size) {
	assert(size > 0);
	size_t at = plain_len(text, len);
	if (at > size - 1) {
		at = size - 1;
		len = at; /* cut where it is full; no character is split */
	}
	if (at > 0) {
		memcpy(out, text, at);
	}
	size_t out_len = at;
	while (at < len) {
		uint32_t c = 0;
		size_t step = postern__utf8_decode(text + at, len - at, &c);
		const char *piece = text + at;
		size_t piece_len = step;
		if (step == 0) {
			step = 1;
			piece = replacement;
			piece_len = sizeof replacement - 1;
		} else if (is_blank(c)) {
			piece = " ";
			piece_len = 1;
		} else if (is_control(c)) {
			piece = "?";
			piece_len = 1;
		}
		if (piece_len > size - 1 - out_len) {
			break;
		}
		memcpy(out + out_len, piece, piece_len);
		out_len += piece_len;
		at += step;
	}
	out[out_len] = '\0';
	return out_len;
}
