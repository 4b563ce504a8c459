/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_HTTP_FRAMING_H
#define POSTERN_SERVER_HTTP_FRAMING_H

/*
 * A strict reader of HTTP/1.1 requests between a socket and libmicrohttpd. It
 * passes whole, well-formed units on, and nothing else.
 *
 * libmicrohttpd 0.9.75 reads a head as C strings, so a NUL cuts a header or a
 * path; it unfolds headers, accepts a bare LF everywhere, and answers some
 * malformed heads twice. No option changes that. So a request that is not
 * exactly what RFC 9112 defines never reaches it: the framing passes a request
 * of its own instead, or ends the body, and reports why. The exchange then
 * answers once and closes the connection.
 *
 * Refused beyond the RFC's own errors, where it leaves a choice: a bare LF,
 * folded headers, a repeated Content-Length, any Transfer-Encoding but chunked,
 * request targets that do not begin with '/', HTTP versions but 1.0 and 1.1.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole head, in bytes: the headers of the largest message
   (POSTERN_HEADERS_LEN_MAX), and what else a request has. */
#define POSTERN__FRAMING_HEAD_LEN_MAX ((size_t)72 * 1024)
/* One line of it: a header of the largest size, all of it percent-encoded. */
#define POSTERN__FRAMING_LINE_LEN_MAX ((size_t)32 * 1024)
/* A chunk's size with its extensions; also all trailers of a body. */
#define POSTERN__FRAMING_CHUNK_LINE_LEN_MAX ((size_t)1024)
#define POSTERN__FRAMING_TRAILERS_LEN_MAX ((size_t)8 * 1024)
/* libmicrohttpd allocates memory for each part of a query and each cookie,
   and answers twice when it has none left. */
#define POSTERN__FRAMING_QUERY_PART_COUNT_MAX 128
#define POSTERN__FRAMING_COOKIE_LEN_MAX ((size_t)8 * 1024)
#define POSTERN__FRAMING_COOKIE_COUNT_MAX 128

/* Bytes that pass() may need behind those it was given. */
#define POSTERN__FRAMING_ROOM ((size_t)32)

enum postern__framing_state {
	POSTERN__FRAMING_HEAD = 0,   /* of the next request */
	POSTERN__FRAMING_BODY,       /* of a known length */
	POSTERN__FRAMING_CHUNK_SIZE, /* the line before a chunk */
	POSTERN__FRAMING_CHUNK,      /* its bytes */
	POSTERN__FRAMING_CHUNK_END,  /* the empty line behind it */
	POSTERN__FRAMING_TRAILERS,   /* the lines behind the last chunk */
	POSTERN__FRAMING_ENDED       /* a request was refused; the rest is lost */
};

/* The head that is being read. */
struct postern__framing_head {
	bool blank; /* an empty line came before the request line */
	bool begun; /* the request line was read */
	bool version_1_0;
	bool chunked;
	bool has_length;
	bool has_host;
	unsigned field_count;
	uint64_t body_len;
};

/* The state of one connection. Zero it to begin. */
struct postern__framing {
	enum postern__framing_state state;
	struct postern__framing_head head;
	uint64_t left; /* of the body, or of the chunk */

	/* Offsets in the current unit, which is a head or a line. */
	size_t line_at;    /* where its last line begins */
	size_t scanned_at; /* up to where there is no further LF */
	size_t trailers_len;

	/* Heads that were passed on, the refused one included. */
	uint64_t request_count;
	/* Which of them was refused, counted from 1; 0: none. */
	uint64_t refused_number;
	int status;          /* why: 400, 413, 414, 431, 501 or 505 */
	const char *problem; /* static text */
};

/*
 * Validate the next bytes of the connection.
 *
 * bytes  the rest that the last call left, then what came since. Whitespace at
 *        the end of a header's value is moved to its beginning, and a request
 *        that is refused is overwritten; POSTERN__FRAMING_ROOM bytes more must
 *        be there.
 *
 * Returns how many bytes may be read by libmicrohttpd. The caller keeps the
 * others, *rest_len_out in number and at most POSTERN__FRAMING_HEAD_LEN_MAX,
 * until more bytes arrive.
 */
size_t postern__framing_pass(struct postern__framing *self, char *bytes,
		size_t len, size_t *rest_len_out);

#endif
