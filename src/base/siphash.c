/* SPDX-License-Identifier: MIT */

/*
 * SipHash-2-4 after "SipHash: a fast short-input PRF" by Jean-Philippe
 * Aumasson and Daniel J. Bernstein, section 2, and the authors' later variant
 * with twice the output.
 *
 * The input is taken as 64-bit words, least byte first. The last word holds
 * the bytes that are left and, in its highest byte, the input's length.
 */

#include "base/siphash.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#define ROUNDS_PER_WORD 2
#define ROUNDS_AT_END 4

static uint64_t load_le(const uint8_t bytes[8]) {
	uint64_t word;
	memcpy(&word, bytes, sizeof word);
	return le64toh(word);
}

static void store_le(uint64_t word, uint8_t bytes[8]) {
	word = htole64(word);
	memcpy(bytes, &word, sizeof word);
}

static uint64_t rotate(uint64_t word, unsigned bits) {
	return word << bits | word >> (64 - bits);
}

static void mix(uint64_t v[4], unsigned rounds) {
	for (unsigned i = 0; i < rounds; i++) {
		v[0] += v[1];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[0] = rotate(v[0], 32);
		v[2] += v[3];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[2] = rotate(v[2], 32);
	}
}

static void absorb(uint64_t v[4], uint64_t word) {
	v[3] ^= word;
	mix(v, ROUNDS_PER_WORD);
	v[0] ^= word;
}

void postern__siphash_init(struct postern__siphash *hash,
		const uint8_t key[POSTERN__SIPHASH_KEY_LEN]) {
	uint64_t k0 = load_le(key);
	uint64_t k1 = load_le(key + 8);
	/* The constants are "somepseudorandomlygeneratedbytes". */
	*hash = (struct postern__siphash){
		.v = {
			k0 ^ UINT64_C(0x736f6d6570736575),
			k1 ^ UINT64_C(0x646f72616e646f6d),
			k0 ^ UINT64_C(0x6c7967656e657261),
			k1 ^ UINT64_C(0x7465646279746573),
		},
	};
}

void postern__siphash_init_128(struct postern__siphash *hash,
		const uint8_t key[POSTERN__SIPHASH_KEY_LEN]) {
	postern__siphash_init(hash, key);
	hash->v[1] ^= 0xee;
	hash->wide = true;
}

void postern__siphash_update(struct postern__siphash *hash, const void *bytes,
		size_t len) {
	assert(bytes || len == 0);
	const uint8_t *from = bytes;
	hash->len += len;
	if (hash->tail_len > 0) {
		while (hash->tail_len < 8 && len > 0) {
			hash->tail[hash->tail_len++] = *from++;
			len--;
		}
		if (hash->tail_len < 8) {
			return;
		}
		absorb(hash->v, load_le(hash->tail));
		hash->tail_len = 0;
	}
	for (; len >= 8; from += 8, len -= 8) {
		absorb(hash->v, load_le(from));
	}
	if (len > 0) {
		memcpy(hash->tail, from, len);
		hash->tail_len = len;
	}
}

void postern__siphash_update_field(struct postern__siphash *hash,
		const void *bytes, size_t len) {
	uint8_t prefix[8];
	store_le(len, prefix);
	postern__siphash_update(hash, prefix, sizeof prefix);
	postern__siphash_update(hash, bytes, len);
}

/* Absorb the last word and mix out the first 64 bits. */
static uint64_t close_hash(struct postern__siphash *hash) {
	memset(hash->tail + hash->tail_len, 0, 8 - hash->tail_len);
	absorb(hash->v, load_le(hash->tail) | hash->len << 56);
	hash->v[2] ^= hash->wide ? 0xee : 0xff;
	mix(hash->v, ROUNDS_AT_END);
	return hash->v[0] ^ hash->v[1] ^ hash->v[2] ^ hash->v[3];
}

uint64_t postern__siphash_finish(struct postern__siphash *hash) {
	assert(!hash->wide);
	return close_hash(hash);
}

void postern__siphash_finish_128(struct postern__siphash *hash,
		uint8_t out[POSTERN__SIPHASH_128_LEN]) {
	assert(hash->wide);
	store_le(close_hash(hash), out);
	hash->v[1] ^= 0xdd;
	mix(hash->v, ROUNDS_AT_END);
	store_le(hash->v[0] ^ hash->v[1] ^ hash->v[2] ^ hash->v[3], out + 8);
}

uint64_t postern__siphash_of(const uint8_t key[POSTERN__SIPHASH_KEY_LEN],
		const void *bytes, size_t len) {
	struct postern__siphash hash;
	postern__siphash_init(&hash, key);
	postern__siphash_update(&hash, bytes, len);
	return postern__siphash_finish(&hash);
}

void postern__siphash_128_of(const uint8_t key[POSTERN__SIPHASH_KEY_LEN],
		const void *bytes, size_t len, uint8_t out[POSTERN__SIPHASH_128_LEN]) {
	struct postern__siphash hash;
	postern__siphash_init_128(&hash, key);
	postern__siphash_update(&hash, bytes, len);
	postern__siphash_finish_128(&hash, out);
}
