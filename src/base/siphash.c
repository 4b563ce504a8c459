/* SPDX-License-Identifier: MIT */

/*
 * SipHash-2-4 after "SipHash: a fast short-input PRF" by Jean-Philippe
 * Aumasson and Daniel J. Bernstein, section 2, and the authors' later variant
 * with twice the output.
 *
 * The input is read as 64-bit words, least significant byte first. The last
 * word contains the remaining bytes and, in its highest byte, the input's
 * length.
 */

#include "base/siphash.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

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

static inline void mix(uint64_t v[4]) {
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

static inline void absorb(uint64_t v[4], uint64_t word) {
	v[3] ^= word;
	mix(v);
	mix(v);
	v[0] ^= word;
}

/* Whole words only. A copy of the state stays in registers. */
static void absorb_words(uint64_t state[4], const uint8_t *bytes,
		size_t count) {
	uint64_t v[4] = { state[0], state[1], state[2], state[3] };
	for (size_t i = 0; i < count; i++) {
		absorb(v, load_le(bytes + 8 * i));
	}
	memcpy(state, v, sizeof v);
}

static uint64_t squeeze(uint64_t v[4]) {
	mix(v);
	mix(v);
	mix(v);
	mix(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
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
	if (len == 0) {
		return;
	}
	const uint8_t *from = bytes;
	hash->len += len;
	if (hash->tail_len > 0) {
		size_t missing = 8 - hash->tail_len;
		if (len < missing) {
			memcpy(hash->tail + hash->tail_len, from, len);
			hash->tail_len += len;
			return;
		}
		memcpy(hash->tail + hash->tail_len, from, missing);
		from += missing;
		len -= missing;
		absorb(hash->v, load_le(hash->tail));
		hash->tail_len = 0;
	}
	absorb_words(hash->v, from, len / 8);
	hash->tail_len = len % 8;
	if (hash->tail_len > 0) {
		memcpy(hash->tail, from + len - hash->tail_len, hash->tail_len);
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
	return squeeze(hash->v);
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
	store_le(squeeze(hash->v), out + 8);
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
