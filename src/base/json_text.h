/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_JSON_TEXT_H
#define POSTERN_BASE_JSON_TEXT_H

/*
 * Writing JSON into a buffer. There is no parser here.
 *
 * Commas are added automatically: each value or key writes a comma first,
 * unless the last byte in the buffer is `{`, `[`, `:` or a newline, or the
 * buffer is empty. So several texts, separated by newlines, can share a buffer.
 *
 *   postern__json_open(&buf, '{');
 *   postern__json_pair_text(&buf, "id", message->id);
 *   postern__json_key(&buf, "attempts");
 *   postern__json_open(&buf, '[');
 *   postern__json_uint(&buf, 3);
 *   postern__json_close(&buf, ']');
 *   postern__json_close(&buf, '}');
 *
 * Failures are those of the buffer: call postern__buf_check() at the end.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct postern__buf;

/* Begin an object or array with '{' or '[', end it with '}' or ']'. */
void postern__json_open(struct postern__buf *buf, char bracket);
void postern__json_close(struct postern__buf *buf, char bracket);

/* A key and its colon; the next call writes the value. */
void postern__json_key(struct postern__buf *buf, const char *key);

/*
 * A string of len bytes. Quotes, backslashes and control characters are
 * escaped, malformed UTF-8 becomes U+FFFD, so that the result is always valid.
 * `<`, `>`, `&`, U+2028 and U+2029 are escaped as well, so that the text is
 * harmless inside an HTML page.
 */
void postern__json_string(struct postern__buf *buf, const char *text,
		size_t len);

/* A string that ends in a zero byte; null for NULL. */
void postern__json_text(struct postern__buf *buf, const char *text);

void postern__json_int(struct postern__buf *buf, int64_t value);
void postern__json_uint(struct postern__buf *buf, uint64_t value);
void postern__json_bool(struct postern__buf *buf, bool value);
void postern__json_null(struct postern__buf *buf);

/* Text that is JSON already, as one value. */
void postern__json_raw(struct postern__buf *buf, const char *json, size_t len);

/* Milliseconds since 1970 as an RFC 3339 string. */
void postern__json_time(struct postern__buf *buf, int64_t ms);

/* A key and its value. A NULL text is null. */
void postern__json_pair_text(struct postern__buf *buf, const char *key,
		const char *text);
void postern__json_pair_string(struct postern__buf *buf, const char *key,
		const char *text, size_t len);
void postern__json_pair_int(struct postern__buf *buf, const char *key,
		int64_t value);
void postern__json_pair_uint(struct postern__buf *buf, const char *key,
		uint64_t value);
void postern__json_pair_bool(struct postern__buf *buf, const char *key,
		bool value);
void postern__json_pair_null(struct postern__buf *buf, const char *key);
void postern__json_pair_time(struct postern__buf *buf, const char *key,
		int64_t ms);

#endif
