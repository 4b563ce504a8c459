/* SPDX-License-Identifier: MIT */

/*
 * Headers to a blob and back. The blob comes from a store, so it is not
 * trusted: its last byte is checked first, which ensures that every string in
 * it ends inside it.
 */

#include "base/headers.h"

#include <assert.h>
#include <postern/error.h>
#include <postern/message.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fail.h"

int postern__headers_pack(const struct postern_header *headers, size_t count,
		struct postern__buf *buf, struct postern_error *error) {
	for (size_t i = 0; i < count; i++) {
		if (!headers[i].name || headers[i].name[0] == '\0') {
			return postern__fail(error, POSTERN_E_INVALID,
					"header %zu has no name", i + 1);
		}
		if (!headers[i].value) {
			return postern__fail(error, POSTERN_E_INVALID,
					"header '%s' has no value", headers[i].name);
		}
		postern__buf_append(buf, headers[i].name, strlen(headers[i].name) + 1);
		postern__buf_append(buf, headers[i].value,
				strlen(headers[i].value) + 1);
	}
	return postern__buf_check(buf, "the header block", error);
}

static int count_headers(const char *blob, size_t len, size_t count_max,
		size_t *count_out, struct postern_error *error) {
	if (len > 0 && blob[len - 1] != '\0') {
		return postern__fail(error, POSTERN_E_CORRUPT,
				"the stored headers do not end in a zero byte");
	}
	size_t strings = 0;
	for (size_t at = 0; at < len; strings++) {
		size_t string_len = strlen(blob + at);
		if (strings % 2 == 0 && string_len == 0) {
			return postern__fail(error, POSTERN_E_CORRUPT,
					"stored header %zu has no name", strings / 2 + 1);
		}
		at += string_len + 1;
	}
	if (strings % 2 != 0) {
		return postern__fail(error, POSTERN_E_CORRUPT,
				"the last stored header has no value");
	}
	if (strings / 2 > count_max) {
		return postern__fail(error, POSTERN_E_CORRUPT,
				"%zu stored headers; at most %zu are allowed", strings / 2,
				count_max);
	}
	*count_out = strings / 2;
	return POSTERN_OK;
}

int postern__headers_unpack(const void *blob, size_t len, size_t count_max,
		struct postern__arena *arena, struct postern_header **headers_out,
		size_t *count_out, struct postern_error *error) {
	assert(blob || len == 0);
	size_t count;
	int r = count_headers(blob, len, count_max, &count, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (count == 0) {
		*headers_out = NULL;
		*count_out = 0;
		return POSTERN_OK;
	}
	struct postern_header *headers =
			postern__arena_array(arena, count, sizeof *headers);
	const char *at = postern__arena_copy(arena, blob, len);
	if (!headers || !at) {
		return postern__fail(error, POSTERN_E_NOMEM,
				"no memory for %zu headers", count);
	}
	for (size_t i = 0; i < count; i++) {
		headers[i].name = at;
		at += strlen(at) + 1;
		headers[i].value = at;
		at += strlen(at) + 1;
	}
	*headers_out = headers;
	*count_out = count;
	return POSTERN_OK;
}
