/* SPDX-License-Identifier: MIT */

/*
 * Writing JSON. The buffer's last byte decides whether a comma is needed: a
 * string ends in a quote whatever it contains, so a bracket or colon at the end
 * is never part of a string.
 */

#include "base/json_text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/time.h"
#include "base/utf8.h"

static void put_comma(struct postern__buf *buf) {
	if (buf->len > 0 && !strchr("{[:\n", buf->data[buf->len - 1])) {
		postern__buf_append_char(buf, ',');
	}
}

void postern__json_open(struct postern__buf *buf, char bracket) {
	assert(bracket == '{' || bracket == '[');
	put_comma(buf);
	postern__buf_append_char(buf, bracket);
}

void postern__json_close(struct postern__buf *buf, char bracket) {
	assert(bracket == '}' || bracket == ']');
	postern__buf_append_char(buf, bracket);
}

static bool needs_escape(uint32_t c) {
	return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == '<' || c == '>' ||
		   c == '&' || c == 0x2028 || c == 0x2029;
}

static void put_escape(struct postern__buf *buf, uint32_t c) {
	switch (c) {
	case '\n': postern__buf_append_text(buf, "\\n"); break;
	case '\r': postern__buf_append_text(buf, "\\r"); break;
	case '\t': postern__buf_append_text(buf, "\\t"); break;
	default: postern__buf_printf(buf, "\\u%04" PRIx32, c); break;
	}
}

static void put_string(struct postern__buf *buf, const char *text, size_t len) {
	size_t at = 0;
	size_t done = 0; /* everything before this is in the buffer */
	postern__buf_append_char(buf, '"');
	while (at < len) {
		uint32_t c = 0;
		size_t step = postern__utf8_decode(text + at, len - at, &c);
		if (step > 0 && c != '"' && c != '\\' && !needs_escape(c)) {
			at += step;
			continue;
		}
		postern__buf_append(buf, text + done, at - done);
		if (step == 0) {
			postern__buf_append_text(buf, "\xef\xbf\xbd");
			step = 1;
		} else if (c == '"' || c == '\\') {
			postern__buf_append_char(buf, '\\');
			postern__buf_append_char(buf, (char)c);
		} else {
			put_escape(buf, c);
		}
		at += step;
		done = at;
	}
	if (len > done) {
		postern__buf_append(buf, text + done, len - done);
	}
	postern__buf_append_char(buf, '"');
}

void postern__json_key(struct postern__buf *buf, const char *key) {
	put_comma(buf);
	put_string(buf, key, strlen(key));
	postern__buf_append_char(buf, ':');
}

void postern__json_string(struct postern__buf *buf, const char *text,
		size_t len) {
	put_comma(buf);
	put_string(buf, text, len);
}

void postern__json_text(struct postern__buf *buf, const char *text) {
	if (!text) {
		postern__json_null(buf);
		return;
	}
	postern__json_string(buf, text, strlen(text));
}

void postern__json_int(struct postern__buf *buf, int64_t value) {
	put_comma(buf);
	postern__buf_printf(buf, "%" PRId64, value);
}

void postern__json_uint(struct postern__buf *buf, uint64_t value) {
	put_comma(buf);
	postern__buf_printf(buf, "%" PRIu64, value);
}

void postern__json_bool(struct postern__buf *buf, bool value) {
	put_comma(buf);
	postern__buf_append_text(buf, value ? "true" : "false");
}

void postern__json_null(struct postern__buf *buf) {
	put_comma(buf);
	postern__buf_append_text(buf, "null");
}

void postern__json_raw(struct postern__buf *buf, const char *json, size_t len) {
	put_comma(buf);
	postern__buf_append(buf, json, len);
}

void postern__json_time(struct postern__buf *buf, int64_t ms) {
	char text[POSTERN__TIME_TEXT_MAX];
	postern__time_format(ms, text);
	postern__json_text(buf, text);
}

void postern__json_pair_text(struct postern__buf *buf, const char *key,
		const char *text) {
	postern__json_key(buf, key);
	postern__json_text(buf, text);
}

void postern__json_pair_string(struct postern__buf *buf, const char *key,
		const char *text, size_t len) {
	postern__json_key(buf, key);
	postern__json_string(buf, text, len);
}

void postern__json_pair_int(struct postern__buf *buf, const char *key,
		int64_t value) {
	postern__json_key(buf, key);
	postern__json_int(buf, value);
}

void postern__json_pair_uint(struct postern__buf *buf, const char *key,
		uint64_t value) {
	postern__json_key(buf, key);
	postern__json_uint(buf, value);
}

void postern__json_pair_bool(struct postern__buf *buf, const char *key,
		bool value) {
	postern__json_key(buf, key);
	postern__json_bool(buf, value);
}

void postern__json_pair_null(struct postern__buf *buf, const char *key) {
	postern__json_key(buf, key);
	postern__json_null(buf);
}

void postern__json_pair_time(struct postern__buf *buf, const char *key,
		int64_t ms) {
	postern__json_key(buf, key);
	postern__json_time(buf, ms);
}
