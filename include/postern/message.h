/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_MESSAGE_H
#define POSTERN_MESSAGE_H

/*
 * A message, as it comes in and as a handler sees it. It never changes after
 * it was accepted. The envelope is CloudEvents 1.0.
 *
 * All text is UTF-8 and ends with a zero byte. The body is bytes and reaches
 * every handler exactly as it was sent.
 */

#include <postern/export.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An id is 1 to 200 characters without control characters, kept byte for
   byte: never trimmed, never folded. */
#define POSTERN_ID_CHARACTERS_MAX 200
#define POSTERN_ID_LEN_MAX 800

/* source, type, subject, content type, correlation id: in bytes. */
#define POSTERN_ATTRIBUTE_LEN_MAX 1024
#define POSTERN_TIME_LEN_MAX 64
#define POSTERN_TRACEPARENT_LEN_MAX 256

#define POSTERN_HEADER_COUNT_MAX 64
#define POSTERN_HEADER_NAME_LEN_MAX 128
#define POSTERN_HEADER_VALUE_LEN_MAX 8192
/* All names and values of one message together. */
#define POSTERN_HEADERS_LEN_MAX 65536

/* What a box takes unless its options say otherwise, and the most they may:
   the server keeps no more than this of all bodies in memory at a time, and a
   longer one would be refused as "too much at once" for good. */
#define POSTERN_BODY_LEN_DEFAULT ((size_t)1024 * 1024)
#define POSTERN_BODY_LEN_MAX ((size_t)128 * 1024 * 1024)

struct postern_header {
	const char *name;
	const char *value;
};

/*
 * Zero the struct, set `size` to its size and whatever you have; what is
 * NULL is absent. Later versions add members at the end.
 */
struct postern_message {
	size_t size; /* sizeof(struct postern_message) */

	const char *id;             /* required */
	const char *source;         /* NULL: the channel's name */
	const char *type;           /* NULL: "" which only "*" matches */
	const char *subject;        /* may be NULL */
	const char *time;           /* RFC 3339, when it happened; may be NULL */
	const char *content_type;   /* may be NULL */
	const char *correlation_id; /* may be NULL */
	const char *traceparent;    /* may be NULL */
	const struct postern_header *headers;
	size_t header_count;
	const void *body;
	size_t body_len;

	/* Where it came in: "api" if NULL, else "http", "rabbitmq", … */
	const char *transport;
	/* When it came in, ms since 1970: set by the store, ignored on accept. */
	int64_t received_at_ms;
};

#ifdef __cplusplus
}
#endif

#endif
