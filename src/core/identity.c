/* SPDX-License-Identifier: MIT */
/*
 * The key rules, and the hash of what they make: see identity.h. There is one
 * rule, `id`.
 */

#include "core/identity.h"

#include <string.h>

struct postern_dedupe_key postern__dedupe_key_by_id(
		const struct postern_message *message) {
	return (struct postern_dedupe_key){
		.source = message->source,
		.value = message->id,
		.value_len = strlen(message->id),
		.is_id = true,
	};
}

static void put_64(uint8_t out[8], uint64_t value) {
	for (int i = 0; i < 8; i++) {
		out[i] = (uint8_t)(value >> (56 - 8 * i));
	}
}

void postern__key_hash(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		int64_t channel, const struct postern_dedupe_key *key,
		uint8_t out[POSTERN__KEY_LEN]) {
	/* The zero bytes after the channel are in the hashes of existing files. */
	uint8_t place[16] = { 0 };
	struct postern__siphash hash;
	put_64(place, (uint64_t)channel);
	postern__siphash_init_128(&hash, secret);
	postern__siphash_update(&hash, place, sizeof place);
	if (key->source) {
		postern__siphash_update_field(&hash, key->source, strlen(key->source));
	}
	postern__siphash_update_field(&hash, key->value, key->value_len);
	put_64(out, postern__siphash_of(secret, key->value, key->value_len));
	postern__siphash_finish_128(&hash, out + POSTERN__KEY_PREFIX_LEN);
}

int64_t postern__key_word(const uint8_t key[POSTERN__KEY_LEN], size_t index) {
	uint64_t word = 0;
	for (size_t i = 0; i < 8; i++) {
		word = word << 8 | key[8 * index + i];
	}
	return (int64_t)word;
}

void postern__key_scope(const uint8_t key[POSTERN__KEY_LEN], int64_t handler,
		uint8_t out[POSTERN__KEY_LEN]) {
	uint64_t word = (uint64_t)postern__key_word(key, 2) ^ (uint64_t)handler;
	memmove(out, key, POSTERN__KEY_LEN - 8);
	put_64(out + POSTERN__KEY_LEN - 8, word);
}

void postern__key_range(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const char *id, uint8_t first[POSTERN__KEY_LEN],
		uint8_t last[POSTERN__KEY_LEN]) {
	memset(first, 0, POSTERN__KEY_LEN);
	memset(last, 0xff, POSTERN__KEY_LEN);
	put_64(first, postern__siphash_of(secret, id, strlen(id)));
	memcpy(last, first, POSTERN__KEY_PREFIX_LEN);
}

void postern__body_digest(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const struct postern_message *message,
		uint8_t out[POSTERN__DIGEST_LEN]) {
	postern__siphash_128_of(secret, message->body, message->body_len, out);
}
