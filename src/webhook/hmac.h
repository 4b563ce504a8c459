/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_WEBHOOK_HMAC_H
#define POSTERN_WEBHOOK_HMAC_H

/* HMAC (RFC 2104), by OpenSSL. */

#include <stdbool.h>
#include <stddef.h>

enum postern__hmac {
	POSTERN__HMAC_SHA256,
	POSTERN__HMAC_SHA1,
	POSTERN__HMAC_SHA512
};

/* The longest result, in bytes. */
#define POSTERN__HMAC_LEN_MAX 64

/* A part of the text that is signed. */
struct postern__hmac_piece {
	const void *bytes;
	size_t len;
};

/*
 * Sign the pieces, one after the other. Returns the length of the result, or 0
 * if memory is exhausted or this OpenSSL does not offer the algorithm.
 */
size_t postern__hmac_sign(enum postern__hmac algorithm, const void *key,
		size_t key_len, const struct postern__hmac_piece *pieces, size_t count,
		unsigned char out[POSTERN__HMAC_LEN_MAX]);

/* Whether two texts of this length are equal; the time that this takes does not
   depend on where they differ. */
bool postern__hmac_equals(const void *a, const void *b, size_t len);

#endif
