/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_BUF_H
#define POSTERN_BASE_BUF_H

/*
 * A byte buffer that grows up to a maximum.
 *
 * Appending returns nothing: the first append that does not fit, or finds no
 * memory, marks the buffer as failed, and everything after it is ignored. So
 * a caller builds the whole text and asks once, with postern__buf_check(). An
 * append is done whole or not at all.
 *
 * There is always a zero byte behind the last one, which len does not count.
 *
 * Threads: one at a time.
 */

#include <stdarg.h>
#include <stddef.h>

struct postern_error;

struct postern__buf {
	char *data;     /* NULL until the first append; read it by _text() */
	size_t len;     /* bytes in use */
	size_t cap;     /* bytes allocated, the zero byte included */
	size_t len_max; /* len never exceeds this */
	int failed;     /* POSTERN_OK, POSTERN_E_INVALID (too long) or _NOMEM */
};

/* An empty buffer of at most len_max bytes. Allocates nothing. */
void postern__buf_init(struct postern__buf *buf, size_t len_max);

/* Give the memory back. The buffer is empty and may be used again. */
void postern__buf_finish(struct postern__buf *buf);

/* Empty the buffer, keep its memory, and forget that it failed. */
void postern__buf_reset(struct postern__buf *buf);

/* What the buffer holds, never NULL; valid until it is next changed. */
const char *postern__buf_text(const struct postern__buf *buf);

/*
 * POSTERN_OK if every append since init or reset was done; otherwise
 *   POSTERN_E_INVALID  "<what> is over <len_max> bytes"
 *   POSTERN_E_NOMEM    no memory
 */
int postern__buf_check(const struct postern__buf *buf, const char *what,
		struct postern_error *error);

/* bytes may be NULL when len is 0. They must not lie inside the buffer. */
void postern__buf_append(struct postern__buf *buf, const void *bytes,
		size_t len);
void postern__buf_append_text(struct postern__buf *buf, const char *text);
void postern__buf_append_char(struct postern__buf *buf, char c);
void postern__buf_printf(struct postern__buf *buf, const char *format, ...)
		__attribute__((format(printf, 2, 3)));
void postern__buf_vprintf(struct postern__buf *buf, const char *format,
		va_list args) __attribute__((format(printf, 2, 0)));

/*
 * Room for len more bytes to be written by the caller, who then says with
 * _commit() how many it wrote (read(2) straight into the buffer). NULL if the
 * buffer failed or fails now. len must not be 0.
 */
char *postern__buf_reserve(struct postern__buf *buf, size_t len);
void postern__buf_commit(struct postern__buf *buf, size_t len);

/* Remove the first len bytes (len <= buf->len); the rest moves up. */
void postern__buf_drop(struct postern__buf *buf, size_t len);

/*
 * Hand the bytes to the caller, who frees them with free(), and leave the
 * buffer empty. NULL if the buffer failed, or no memory for an empty text.
 */
char *postern__buf_detach(struct postern__buf *buf, size_t *len_out);

#endif
