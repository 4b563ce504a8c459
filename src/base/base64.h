/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_BASE64_H
#define POSTERN_BASE_BASE64_H

/* Base64 of RFC 4648, with padding and without line breaks. */

#include <stdbool.h>
#include <stddef.h>

/* Bytes that `len` characters decode to, at most. */
#define POSTERN__BASE64_DECODED_MAX(len) ((len) / 4 * 3)

/* Bytes that `len` bytes encode to. */
#define POSTERN__BASE64_ENCODED(len) (((len) + 2) / 3 * 4)

/* Decode into `out`, which has room for POSTERN__BASE64_DECODED_MAX(len). False
   if the text is not base64, or has bits set that mean nothing. */
bool postern__base64_decode(const char *text, size_t len, void *out,
		size_t *len_out);

/* Encode into `out`, which has room for POSTERN__BASE64_ENCODED(len); no zero
   byte is added. */
void postern__base64_encode(const void *bytes, size_t len, char *out);

#endif
