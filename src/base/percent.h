/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_PERCENT_H
#define POSTERN_BASE_PERCENT_H

/*
 * Percent-encoding, in the two dialects the API speaks: URIs (RFC 3986) and
 * header values of CloudEvents (HTTP binding 1.0, 3.1.3.2).
 */

#include <stdbool.h>
#include <stddef.h>

struct postern__arena;
struct postern__buf;

/*
 * Append text as one segment of a path or one value of a query: everything but
 * letters, digits, '-', '.', '_' and '~' is encoded, so '/' too.
 */
void postern__percent_segment(struct postern__buf *buf, const char *text);

/*
 * Append text as a ce-* header's value: space, '"', '%' and everything outside
 * printable ASCII is encoded.
 */
void postern__percent_header(struct postern__buf *buf, const char *text);

/*
 * Decode %XX once. Nothing else changes: '+' stays '+'.
 *
 * Returns a text in the arena and its length, which a %00 makes longer than
 * strlen() of it; NULL if '%' is not followed by two hex digits, with
 * *malformed_out true, or if memory has run out, with it false.
 */
char *postern__percent_decode(struct postern__arena *arena, const char *text,
		size_t len, size_t *len_out, bool *malformed_out);

#endif
