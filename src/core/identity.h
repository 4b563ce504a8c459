/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_IDENTITY_H
#define POSTERN_CORE_IDENTITY_H

/*
 * What a duplicate is. A key rule makes a dedupe key of a message; the key,
 * hashed with a channel and a scope, is what every store remembers.
 *
 * The scope is 0 for the key of the message itself, else the id of the handler
 * that has a key of its own.
 */

#include <postern/sys/store.h>
#include <stdint.h>

#include "base/siphash.h"

/*
 * A remembered key, in this order, most significant byte first:
 *
 *   8 bytes   the hash of the value alone: all keys of one id are neighbours,
 *             so that a message is found by its id
 *   16 bytes  the hash of channel, source and value, the last 8 combined with
 *             the scope by exclusive or
 *
 * So the keys of one value in several scopes differ in the scope's bits only,
 * and a store that resolves aliases while it accepts makes one from the other.
 */
#define POSTERN__KEY_LEN 24
#define POSTERN__KEY_PREFIX_LEN 8
#define POSTERN__DIGEST_LEN POSTERN__SIPHASH_128_LEN

/* The dedupe key of a message by the rule `id`. Borrows the message's texts;
   source and id are set. */
struct postern_dedupe_key postern__dedupe_key_by_id(
		const struct postern_message *message);

/* Hash a key of a message, in the scope 0. `secret` is the store's: random and
   kept with the data, so that no sender can make two keys collide. */
void postern__key_hash(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		int64_t channel, const struct postern_dedupe_key *key,
		uint8_t out[POSTERN__KEY_LEN]);
/* The same value in the scope of a handler, from its key in the scope 0. */
void postern__key_scope(const uint8_t key[POSTERN__KEY_LEN], int64_t handler,
		uint8_t out[POSTERN__KEY_LEN]);
/* The first and the last possible key of an id. */
void postern__key_range(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const char *id, uint8_t first[POSTERN__KEY_LEN],
		uint8_t last[POSTERN__KEY_LEN]);
/* The 8 bytes at 8 * index as a number, for stores whose columns are
   numbers. */
int64_t postern__key_word(const uint8_t key[POSTERN__KEY_LEN], size_t index);

/* The digest by which a copy with another body is recognised. */
void postern__body_digest(const uint8_t secret[POSTERN__SIPHASH_KEY_LEN],
		const struct postern_message *message,
		uint8_t out[POSTERN__DIGEST_LEN]);

#endif
