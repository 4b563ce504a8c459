/* SPDX-License-Identifier: MIT */

/*
 * Dedupe keys: which bytes are remembered for a message.
 */

#include <string.h>

#include "core/identity.h"
#include "tap.h"

static const uint8_t secret[POSTERN__SIPHASH_KEY_LEN] = { 0, 1, 2, 3, 4, 5, 6,
	7, 8, 9, 10, 11, 12, 13, 14, 15 };

static const struct postern_message message = {
	.size = sizeof message,
	.id = "order 17",
	.source = "shop",
	.type = "order.paid",
	.correlation_id = "c",
};

static void by_id(void) {
	struct postern_dedupe_key key = postern__dedupe_key_by_id(&message);
	CHECK_STR(key.source, "shop");
	CHECK_MEM(key.value, key.value_len, "order 17", 8);
	CHECK(key.is_id);
}

/* Files have these bytes: another result would make every copy new. */
static void remembered_bytes(void) {
	static const uint8_t expected[POSTERN__KEY_LEN] = { 0x0d, 0x99, 0x34, 0xdf,
		0xb1, 0xe7, 0xc6, 0xe0, 0x77, 0x26, 0x82, 0xbc, 0x3a, 0xf3, 0xb4, 0x2f,
		0xb4, 0xea, 0xe0, 0xf2, 0x62, 0x9c, 0x4f, 0x86 };
	struct postern_dedupe_key key = postern__dedupe_key_by_id(&message);
	uint8_t bytes[POSTERN__KEY_LEN];
	postern__key_hash(secret, 258, &key, bytes);
	CHECK_MEM(bytes, sizeof bytes, expected, sizeof expected);
}

static void hashed(int64_t channel, const char *source, const char *value,
		size_t len, uint8_t out[POSTERN__KEY_LEN]) {
	struct postern_dedupe_key key = {
		.source = source,
		.value = value,
		.value_len = len,
	};
	postern__key_hash(secret, channel, &key, out);
}

static void every_part_counts(void) {
	uint8_t keys[8][POSTERN__KEY_LEN];
	hashed(1, "ab", "c", 1, keys[0]);
	hashed(2, "ab", "c", 1, keys[1]);
	hashed(256, "ab", "c", 1, keys[2]);
	hashed(1, "a", "bc", 2, keys[3]);
	hashed(1, "", "c", 1, keys[4]);
	hashed(1, NULL, "c", 1, keys[5]);
	hashed(1, NULL, "c\0", 2, keys[6]);
	hashed(1, NULL, "", 0, keys[7]);
	for (size_t i = 0; i < 8; i++) {
		for (size_t j = 0; j < i; j++) {
			CHECK(memcmp(keys[i], keys[j], POSTERN__KEY_LEN) != 0);
		}
	}
}

static void scopes(void) {
	uint8_t key[POSTERN__KEY_LEN];
	uint8_t scoped[POSTERN__KEY_LEN];
	hashed(1, "shop", "17", 2, key);
	postern__key_scope(key, 0, scoped);
	CHECK_MEM(scoped, sizeof scoped, key, sizeof key);
	postern__key_scope(key, 0x0102, scoped);
	CHECK_MEM(scoped, sizeof scoped - 2, key, sizeof key - 2);
	CHECK_INT(scoped[22], key[22] ^ 1);
	CHECK_INT(scoped[23], key[23] ^ 2);
	CHECK_INT(postern__key_word(scoped, 2), postern__key_word(key, 2) ^ 0x0102);
	postern__key_scope(scoped, 0x0102, scoped);
	CHECK_MEM(scoped, sizeof scoped, key, sizeof key);
}

static void range(void) {
	uint8_t first[POSTERN__KEY_LEN];
	uint8_t last[POSTERN__KEY_LEN];
	uint8_t key[POSTERN__KEY_LEN];
	postern__key_range(secret, "17", first, last);
	for (int64_t channel = 1; channel < 100; channel++) {
		hashed(channel, "shop", "17", 2, key);
		CHECK(memcmp(first, key, sizeof key) <= 0);
		CHECK(memcmp(key, last, sizeof key) <= 0);
	}
	hashed(1, "shop", "18", 2, key);
	CHECK(memcmp(key, first, sizeof key) < 0 ||
			memcmp(last, key, sizeof key) < 0);
}

static void words(void) {
	uint8_t key[POSTERN__KEY_LEN] = { 0 };
	key[0] = 0xff;
	key[7] = 1;
	key[15] = 0xfe;
	key[16] = 1;
	CHECK_INT(postern__key_word(key, 0), INT64_MIN / 128 + 1);
	CHECK_INT(postern__key_word(key, 1), 0xfe);
	CHECK_INT(postern__key_word(key, 2), INT64_C(1) << 56);
}

static const struct tap_case cases[] = {
	{ "the key of a message is made of its source and id", by_id },
	{ "a key has the same bytes on every machine", remembered_bytes },
	{ "channel, source and every byte of the value count", every_part_counts },
	{ "the scope changes the last bytes and is added without the value",
			scopes },
	{ "all keys of an id are in one range", range },
	{ "a key is three numbers, most significant byte first", words },
};

TAP_MAIN(cases)
