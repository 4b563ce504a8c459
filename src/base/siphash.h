/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_SIPHASH_H
#define POSTERN_BASE_SIPHASH_H

/*
 * SipHash-2-4, a keyed hash of 64 or 128 bits. Without the secret key nobody
 * can choose inputs that collide, as required for hash tables and identities
 * with input from the network. It is not a signature or a public digest.
 *
 * The result is the same on every machine, whatever its byte order.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POSTERN__SIPHASH_KEY_LEN 16
#define POSTERN__SIPHASH_128_LEN 16

struct postern__siphash {
	uint64_t v[4];
	uint8_t tail[8]; /* bytes that do not fill a word yet */
	size_t tail_len;
	uint64_t len; /* of everything hashed */
	bool wide;    /* 128 bits */
};

/* Begin a hash of 64 bits, or with _init_128 one of 128. Copies the key. */
void postern__siphash_init(struct postern__siphash *hash,
		const uint8_t key[POSTERN__SIPHASH_KEY_LEN]);
void postern__siphash_init_128(struct postern__siphash *hash,
		const uint8_t key[POSTERN__SIPHASH_KEY_LEN]);

/* Add bytes. How they are split over calls makes no difference. */
void postern__siphash_update(struct postern__siphash *hash, const void *bytes,
		size_t len);

/*
 * Add one field of several: its length as eight bytes, least first, then its
 * bytes, so that ("ab", "c") and ("a", "bc") differ.
 */
void postern__siphash_update_field(struct postern__siphash *hash,
		const void *bytes, size_t len);

/* The result; use the function that matches the init. Ends the hash. */
uint64_t postern__siphash_finish(struct postern__siphash *hash);
void postern__siphash_finish_128(struct postern__siphash *hash,
		uint8_t out[POSTERN__SIPHASH_128_LEN]);

/* All in one call. */
uint64_t postern__siphash_of(const uint8_t key[POSTERN__SIPHASH_KEY_LEN],
		const void *bytes, size_t len);
void postern__siphash_128_of(const uint8_t key[POSTERN__SIPHASH_KEY_LEN],
		const void *bytes, size_t len, uint8_t out[POSTERN__SIPHASH_128_LEN]);

#endif
