/* SPDX-License-Identifier: MIT */

/*
 * The dedupe memory of the memory store: a hash table of all keys. A key
 * belongs to a message, or to what is left of it. The key of the message itself
 * is part of its allocation, so that the usual message costs no other.
 */

#include <stdlib.h>
#include <string.h>

#include "store/memory.h"

#define BUCKET_COUNT_MIN 64

/* The bytes are a keyed hash already. */
static struct memory_key **bucket_of(const struct memory_store *self,
		const uint8_t bytes[POSTERN__KEY_LEN]) {
	uint64_t hash = (uint64_t)postern__key_word(bytes, 2);
	return &self->buckets[hash & (self->bucket_count - 1)];
}

struct memory_key *postern__mem_key_find(const struct memory_store *self,
		const uint8_t bytes[POSTERN__KEY_LEN]) {
	if (self->bucket_count == 0) {
		return NULL;
	}
	struct memory_key *key = *bucket_of(self, bytes);
	while (key && memcmp(key->bytes, bytes, POSTERN__KEY_LEN) != 0) {
		key = key->bucket_next;
	}
	return key;
}

void postern__mem_key_insert(struct memory_store *self,
		struct memory_key *key) {
	struct memory_key **bucket = bucket_of(self, key->bytes);
	key->bucket_next = *bucket;
	*bucket = key;
	self->key_count++;
}

void postern__mem_key_remove(struct memory_store *self,
		struct memory_key *key) {
	struct memory_key **place = bucket_of(self, key->bytes);
	while (*place != key) {
		place = &(*place)->bucket_next;
	}
	*place = key->bucket_next;
	self->key_count--;
}

bool postern__mem_keys_reserve(struct memory_store *self, size_t count) {
	size_t old_count = self->bucket_count;
	size_t new_count = BUCKET_COUNT_MIN;
	while (new_count < self->key_count + count) {
		new_count *= 2;
	}
	if (new_count <= old_count) {
		return true;
	}
	struct memory_key **old = self->buckets;
	struct memory_key **buckets = calloc(new_count, sizeof *buckets);
	if (!buckets) {
		return false;
	}
	self->buckets = buckets;
	self->bucket_count = new_count;
	self->key_count = 0;
	for (size_t i = 0; i < old_count; i++) {
		for (struct memory_key *key = old[i]; key;) {
			struct memory_key *next = key->bucket_next;
			postern__mem_key_insert(self, key);
			key = next;
		}
	}
	free(old);
	return true;
}

void postern__mem_keys_destroy(struct memory_key *keys) {
	while (keys) {
		struct memory_key *next = keys->next;
		free(keys);
		keys = next;
	}
}

/* Whose the key of a route is already: this message, or else the first that had
   it in the scope of any id of the handler; 0: nobody's. */
static int64_t route_key_holder(struct memory_store *self, int64_t seq,
		int64_t handler, const uint8_t bytes[POSTERN__KEY_LEN]) {
	int64_t holder = 0;
	postern__mem_each_id(self, id, handler) {
		uint8_t scoped[POSTERN__KEY_LEN];
		postern__key_scope(bytes, id, scoped);
		const struct memory_key *key = postern__mem_key_find(self, scoped);
		if (key && key->seq == seq) {
			return seq;
		}
		if (key && (holder == 0 || key->seq < holder)) {
			holder = key->seq;
		}
	}
	return holder;
}

int64_t postern__mem_route_key_take(struct memory_store *self,
		const struct memory_message *message, int64_t handler,
		const uint8_t bytes[POSTERN__KEY_LEN], struct memory_key **spare) {
	int64_t holder = route_key_holder(self, message->seq, handler, bytes);
	if (holder == 0) {
		holder = message->seq;
	}
	struct memory_message *first = self->messages[holder - 1];
	postern__mem_each_id(self, id, handler) {
		struct memory_key *key = *spare;
		postern__key_scope(bytes, id, key->bytes);
		if (!postern__mem_key_find(self, key->bytes)) {
			*spare = key->next;
			key->seq = holder;
			key->scope = id;
			key->next = first->handler_keys;
			first->handler_keys = key;
			self->bytes += sizeof *key;
			postern__mem_key_insert(self, key);
		}
	}
	return holder == message->seq ? 0 : holder;
}

bool postern__mem_spare_keys_add(struct memory_store *self, int64_t handler,
		struct memory_key **spare, size_t *count) {
	postern__mem_each_id(self, id, handler) {
		struct memory_key *key = calloc(1, sizeof *key);
		if (!key) {
			return false;
		}
		key->next = *spare;
		*spare = key;
		(*count)++;
	}
	return true;
}
