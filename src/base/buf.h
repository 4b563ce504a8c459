/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_BUF_H
#define POSTERN_BASE_BUF_H

/*
 * A byte buffer that grows up to a maximum.
 *
 * Appending returns nothing: the first append that does not fit, or is out of
 * memory, marks the buffer as failed, and all later appends are ignored. So a
 * caller builds the whole text and calls postern__buf_check() once. An append
 * is done completely or not at all.
 *
 * The last byte is always followed by a zero byte, which len does not count.
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

/* Free the memory. The buffer is empty and may be used again. */
void postern__buf_finish(struct postern__buf *buf);

/* Empty the buffer, keep its memory, and clear its failure. */
void postern__buf_reset(struct postern__buf *buf);

/* The bytes of the buffer, never NULL; valid until it is changed. */
const char *postern__buf_text(const struct postern__buf *buf);

/*
 * POSTERN_OK if every append since init or reset was done; otherwise
 *   POSTERN_E_INVALID  "<what> is over <len_max> bytes"
 *   POSTERN_E_NOMEM    out of memory
 */
int postern__buf_check(const struct postern__buf *buf, const char *what,
		struct postern_error *error);

/* bytes may be NULL if len is 0. They must not be part of the buffer. */
void postern__buf_append(struct postern__buf *buf, const void *bytes,
		size_t len);
void postern__buf_append_text(struct postern__buf *buf, const char *text);
void postern__buf_append_char(struct postern__buf *buf, char c);
void postern__buf_printf(struct postern__buf *buf, const char *format, ...)
		__attribute__((format(printf, 2, 3)));
void postern__buf_vprintf(struct postern__buf *buf, const char *format,
		va_list args) __attribute__((format(printf, 2, 0)));

/*
 * Reserve room for len bytes, which the caller writes itself (for read(2)
 * directly into the buffer); it then calls _commit() with the number of bytes
 * written. NULL if the buffer has failed or fails now. len must not be 0.
 */
char *postern__buf_reserve(struct postern__buf *buf, size_t len);
void postern__buf_commit(struct postern__buf *buf, size_t len);

/* Remove the first len bytes (len <= buf->len); the others move up. */
void postern__buf_drop(struct postern__buf *buf, size_t len);

/*
 * Pass the bytes to the caller, who frees them with free(), and leave the
 * buffer empty. NULL if the buffer has failed, or is empty and there is no
 * memory for the zero byte.
 */
char *postern__buf_detach(struct postern__buf *buf, size_t *len_out);

#endif
