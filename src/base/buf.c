/* SPDX-License-Identifier: MIT */

/*
 * A growable byte buffer with a maximum, which remembers a failure. The
 * allocation doubles, and always has room for the zero byte after the last.
 */

#include "base/buf.h"

#include <assert.h>
#include <postern/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

/* Most texts fit; a smaller one would grow several times in a row. */
#define CAP_MIN 64

void postern__buf_init(struct postern__buf *buf, size_t len_max) {
	/* The zero byte needs room as well. */
	assert(len_max < SIZE_MAX);
	*buf = (struct postern__buf){ .len_max = len_max };
}

void postern__buf_finish(struct postern__buf *buf) {
	free(buf->data);
	postern__buf_init(buf, buf->len_max);
}

void postern__buf_reset(struct postern__buf *buf) {
	buf->len = 0;
	buf->failed = POSTERN_OK;
	if (buf->data) {
		buf->data[0] = '\0';
	}
}

const char *postern__buf_text(const struct postern__buf *buf) {
	return buf->data ? buf->data : "";
}

int postern__buf_check(const struct postern__buf *buf, const char *what,
		struct postern_error *error) {
	switch (buf->failed) {
	case POSTERN_OK: return POSTERN_OK;
	case POSTERN_E_NOMEM:
		return postern__fail(error, POSTERN_E_NOMEM, "no memory for %s", what);
	default:
		return postern__fail(error, buf->failed, "%s is over %zu bytes", what,
				buf->len_max);
	}
}

/* Make room for len more bytes and the zero byte. */
static bool grow(struct postern__buf *buf, size_t len) {
	if (buf->failed) {
		return false;
	}
	if (len > buf->len_max - buf->len) {
		buf->failed = POSTERN_E_INVALID;
		return false;
	}
	size_t needed = buf->len + len + 1;
	if (needed <= buf->cap) {
		return true;
	}
	size_t cap = buf->cap < CAP_MIN / 2 ? CAP_MIN : buf->cap;
	if (buf->cap >= CAP_MIN / 2) {
		cap = buf->cap > SIZE_MAX / 2 ? SIZE_MAX : buf->cap * 2;
	}
	if (cap < needed) {
		cap = needed;
	}
	if (cap > buf->len_max + 1) {
		cap = buf->len_max + 1;
	}
	char *data = realloc(buf->data, cap);
	if (!data) {
		buf->failed = POSTERN_E_NOMEM;
		return false;
	}
	buf->data = data;
	buf->cap = cap;
	buf->data[buf->len] = '\0';
	return true;
}

void postern__buf_append(struct postern__buf *buf, const void *bytes,
		size_t len) {
	assert(bytes || len == 0);
	if (len == 0 || !grow(buf, len)) {
		return;
	}
	memcpy(buf->data + buf->len, bytes, len);
	buf->len += len;
	buf->data[buf->len] = '\0';
}

void postern__buf_append_text(struct postern__buf *buf, const char *text) {
	postern__buf_append(buf, text, strlen(text));
}

void postern__buf_append_char(struct postern__buf *buf, char c) {
	postern__buf_append(buf, &c, 1);
}

void postern__buf_vprintf(struct postern__buf *buf, const char *format,
		va_list args) {
	va_list again;
	va_copy(again, args);
	int len = vsnprintf(NULL, 0, format, args);
	if (len < 0) {
		if (!buf->failed) {
			buf->failed = POSTERN_E_INVALID;
		}
	} else if (len > 0 && grow(buf, (size_t)len)) {
		(void)vsnprintf(buf->data + buf->len, (size_t)len + 1, format, again);
		buf->len += (size_t)len;
	}
	va_end(again);
}

void postern__buf_printf(struct postern__buf *buf, const char *format, ...) {
	va_list args;
	va_start(args, format);
	postern__buf_vprintf(buf, format, args);
	va_end(args);
}

char *postern__buf_reserve(struct postern__buf *buf, size_t len) {
	assert(len > 0);
	return grow(buf, len) ? buf->data + buf->len : NULL;
}

void postern__buf_commit(struct postern__buf *buf, size_t len) {
	if (len == 0) {
		return;
	}
	assert(len < buf->cap - buf->len);
	buf->len += len;
	buf->data[buf->len] = '\0';
}

void postern__buf_drop(struct postern__buf *buf, size_t len) {
	assert(len <= buf->len);
	if (len == 0) {
		return;
	}
	memmove(buf->data, buf->data + len, buf->len - len + 1);
	buf->len -= len;
}

char *postern__buf_detach(struct postern__buf *buf, size_t *len_out) {
	if (!grow(buf, 0)) {
		return NULL;
	}
	char *data = buf->data;
	if (len_out) {
		*len_out = buf->len;
	}
	postern__buf_init(buf, buf->len_max);
	return data;
}
