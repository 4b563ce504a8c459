/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_MESSAGE_H
#define POSTERN_MESSAGE_H

/*
 * A message, as it is accepted and as it is passed to a handler. It never
 * changes after it was accepted. The envelope is CloudEvents 1.0.
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

/* An id has 1 to 200 characters without control characters and is stored byte
   for byte: never trimmed, never folded. */
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

/* The default and the largest value of max_message_size. The server keeps no
   more than POSTERN_BODY_LEN_MAX of all bodies in memory at a time, so a longer
   body could never be accepted. */
#define POSTERN_BODY_LEN_DEFAULT ((size_t)1024 * 1024)
#define POSTERN_BODY_LEN_MAX ((size_t)128 * 1024 * 1024)

struct postern_header {
	const char *name;
	const char *value;
};

/*
 * Zero the struct, set `size` to its size and the attributes you have; a NULL
 * attribute is absent. Later versions add members at the end.
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

	/* How it was received: "api" if NULL, else "http", "rabbitmq", … */
	const char *transport;
	/* When it was received, ms since 1970: set by the store, ignored by
	   accept. */
	int64_t received_at_ms;
};

#ifdef __cplusplus
}
#endif

#endif
