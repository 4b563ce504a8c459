/* SPDX-License-Identifier: MIT */

/*
 * Percent-encoding. Both encoders work byte by byte on UTF-8, which is what
 * RFC 3986 and the CloudEvents binding both ask for; they differ only in which
 * bytes may stay as they are.
 */

#include "base/percent.h"

#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/text.h"

static bool is_unreserved(unsigned char c) {
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
		   (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '_' ||
		   c == '~';
}

static bool is_plain_in_header(unsigned char c) {
	return c > 0x20 && c < 0x7f && c != '"' && c != '%';
}

static void encode(struct postern__buf *buf, const char *text,
		bool (*is_plain)(unsigned char c)) {
	static const char hex[] = "0123456789ABCDEF";

	for (size_t i = 0; text[i]; i++) {
		unsigned char c = (unsigned char)text[i];
		if (is_plain(c)) {
			postern__buf_append_char(buf, (char)c);
		} else {
			postern__buf_append(buf, (char[]){ '%', hex[c >> 4], hex[c & 15] },
					3);
		}
	}
}

void postern__percent_segment(struct postern__buf *buf, const char *text) {
	encode(buf, text, is_unreserved);
}

void postern__percent_header(struct postern__buf *buf, const char *text) {
	encode(buf, text, is_plain_in_header);
}

char *postern__percent_decode(struct postern__arena *arena, const char *text,
		size_t len, size_t *len_out, bool *malformed_out) {
	*malformed_out = false;
	/* Decoding never makes a text longer. */
	char *out = postern__arena_copy(arena, text, len);
	if (!out) {
		return NULL;
	}

	size_t n = 0;
	for (size_t i = 0; i < len; i++) {
		if (text[i] != '%') {
			out[n++] = text[i];
			continue;
		}
		int high = len - i > 2 ? postern__hex_value(text[i + 1]) : -1;
		int low = len - i > 2 ? postern__hex_value(text[i + 2]) : -1;
		if (high < 0 || low < 0) {
			*malformed_out = true;
			return NULL;
		}
		out[n++] = (char)(high * 16 + low);
		i += 2;
	}
	out[n] = '\0';
	*len_out = n;
	return out;
}
