/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_HEADERS_H
#define POSTERN_BASE_HEADERS_H

/*
 * A message's headers as one blob, the format in which stores keep them:
 *
 *   name \0 value \0 name \0 value \0 …
 *
 * Without headers the blob is empty. A name is never empty, a value may be.
 * Order and repetition are kept. Names and values are validated when a message
 * is accepted, not here.
 */

#include <stddef.h>

struct postern__arena;
struct postern__buf;
struct postern_error;
struct postern_header; /* <postern/message.h> */

/*
 * Append the blob to buf, whose maximum is the limit of the blob.
 *
 * POSTERN_E_INVALID  a name is NULL or empty, a value is NULL, or too long
 * POSTERN_E_NOMEM
 *
 * On failure buf may contain a part of the blob.
 */
int postern__headers_pack(const struct postern_header *headers, size_t count,
		struct postern__buf *buf, struct postern_error *error);

/*
 * Read a blob. The array and its strings are copied into the arena.
 * *headers_out is NULL if there are none.
 *
 * POSTERN_E_CORRUPT  no zero byte at the end, a name without value, an empty
 *                    name, or more than count_max headers
 * POSTERN_E_NOMEM
 */
int postern__headers_unpack(const void *blob, size_t len, size_t count_max,
		struct postern__arena *arena, struct postern_header **headers_out,
		size_t *count_out, struct postern_error *error);

#endif
