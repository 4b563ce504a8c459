/* SPDX-License-Identifier: MIT */
/*
 * Keys are kept as their hashes, in the order in which they came, in a ring.
 * All have the same age to live, so the oldest expires first and nothing has to
 * be searched for. A table of 32-bit positions finds a hash in the ring: open
 * addressing, and whoever removes a position moves those behind it, so that
 * there are no marks of removed ones. That is 32 bytes for a key, and at most
 * twice that after the ring has grown.
 */

#include "core/recent.h"

#include "base/siphash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CAP_MIN ((size_t)64)
/* Of the ring: a position plus one fits into 32 bits. */
#define CAP_MAX ((size_t)1 << 31)

struct entry {
	uint64_t hash[2];
	int64_t at_ms;
};

struct postern__recent {
	pthread_mutex_t mutex;
	uint8_t secret[POSTERN__SIPHASH_KEY_LEN];
	struct entry *ring;
	size_t cap; /* a power of two, or 0 */
	size_t first;
	size_t count;
	uint32_t *table; /* positions in the ring plus one; 0: empty */
	bool reported;
};

/* The places of the table: twice as many as the ring has. */
static size_t mask_of(const struct postern__recent *recent) {
	return 2 * recent->cap - 1;
}

struct postern__recent *postern__recent_create(
		const struct postern_random *random) {
	struct postern__recent *recent = calloc(1, sizeof(*recent));
	if (!recent) {
		return NULL;
	}
	/* This cannot fail on Linux. */
	(void)pthread_mutex_init(&recent->mutex, NULL);
	for (size_t i = 0; i < sizeof(recent->secret); i++) {
		recent->secret[i] = (uint8_t)random->next(random->context);
	}
	return recent;
}

void postern__recent_destroy(struct postern__recent *recent) {
	if (recent) {
		(void)pthread_mutex_destroy(&recent->mutex);
		free(recent->ring);
		free(recent->table);
		free(recent);
	}
}

static void hash_key(const struct postern__recent *recent, const void *key,
		size_t len, uint64_t out[2]) {
	uint8_t bytes[POSTERN__SIPHASH_128_LEN];
	postern__siphash_128_of(recent->secret, key, len, bytes);
	memcpy(out, bytes, sizeof(bytes));
}

/* The place of the hash in the table, or the empty one where it would be. */
static size_t find_place(const struct postern__recent *recent,
		const uint64_t hash[2]) {
	size_t place = hash[0] & mask_of(recent);
	while (recent->table[place]) {
		const struct entry *entry = &recent->ring[recent->table[place] - 1];
		if (entry->hash[0] == hash[0] && entry->hash[1] == hash[1]) {
			break;
		}
		place = (place + 1) & mask_of(recent);
	}
	return place;
}

/* Close the gap, so that a search never ends before what it looks for. */
static void clear_place(struct postern__recent *recent, size_t gap) {
	size_t mask = mask_of(recent);
	for (size_t place = (gap + 1) & mask; recent->table[place];
			place = (place + 1) & mask) {
		size_t home = recent->ring[recent->table[place] - 1].hash[0] & mask;
		if (((place - home) & mask) >= ((place - gap) & mask)) {
			recent->table[gap] = recent->table[place];
			gap = place;
		}
	}
	recent->table[gap] = 0;
}

static void forget_first(struct postern__recent *recent) {
	clear_place(recent, find_place(recent, recent->ring[recent->first].hash));
	recent->first = (recent->first + 1) & (recent->cap - 1);
	recent->count--;
}

static void expire(struct postern__recent *recent,
		const struct postern__recent_limits *limits, int64_t now_ms) {
	while (recent->count > 0 &&
			now_ms - recent->ring[recent->first].at_ms >= limits->keep_ms) {
		forget_first(recent);
	}
}

static void append(struct postern__recent *recent, const struct entry *entry) {
	size_t position = (recent->first + recent->count) & (recent->cap - 1);
	recent->ring[position] = *entry;
	recent->table[find_place(recent, entry->hash)] = (uint32_t)position + 1;
	recent->count++;
}

/* Room for one more; false: out of memory, and nothing changed. */
static bool grow(struct postern__recent *recent) {
	if (recent->count < recent->cap) {
		return true;
	}
	struct postern__recent old = *recent;
	size_t cap = old.cap ? 2 * old.cap : CAP_MIN;
	struct entry *ring = cap <= CAP_MAX ? malloc(cap * sizeof(*ring)) : NULL;
	uint32_t *table = ring ? calloc(2 * cap, sizeof(*table)) : NULL;
	if (!table) {
		free(ring);
		return false;
	}
	recent->ring = ring;
	recent->table = table;
	recent->cap = cap;
	recent->first = 0;
	recent->count = 0;
	for (size_t i = 0; i < old.count; i++) {
		append(recent, &old.ring[(old.first + i) & (old.cap - 1)]);
	}
	free(old.ring);
	free(old.table);
	return true;
}

bool postern__recent_has(struct postern__recent *recent, const void *key,
		size_t len, const struct postern__recent_limits *limits,
		int64_t now_ms) {
	uint64_t hash[2];
	hash_key(recent, key, len, hash);
	(void)pthread_mutex_lock(&recent->mutex);
	expire(recent, limits, now_ms);
	bool found = recent->count > 0 && recent->table[find_place(recent, hash)];
	(void)pthread_mutex_unlock(&recent->mutex);
	return found;
}

bool postern__recent_add(struct postern__recent *recent, const void *key,
		size_t len, const struct postern__recent_limits *limits,
		int64_t now_ms) {
	struct entry entry = { .at_ms = now_ms };
	bool early = false;
	hash_key(recent, key, len, entry.hash);
	(void)pthread_mutex_lock(&recent->mutex);
	expire(recent, limits, now_ms);
	while (recent->count >= limits->count_max) {
		forget_first(recent);
		early = true;
	}
	if (grow(recent)) {
		append(recent, &entry);
	} else {
		early = true;
	}
	bool first = early && !recent->reported;
	recent->reported |= early;
	(void)pthread_mutex_unlock(&recent->mutex);
	return first;
}

size_t postern__recent_count(struct postern__recent *recent) {
	(void)pthread_mutex_lock(&recent->mutex);
	size_t count = recent->count;
	(void)pthread_mutex_unlock(&recent->mutex);
	return count;
}

size_t postern__recent_bytes(struct postern__recent *recent) {
	(void)pthread_mutex_lock(&recent->mutex);
	size_t bytes = sizeof(*recent) + recent->cap * sizeof(*recent->ring) +
				   2 * recent->cap * sizeof(*recent->table);
	(void)pthread_mutex_unlock(&recent->mutex);
	return bytes;
}
