/* SPDX-License-Identifier: MIT */

/*
 * Markers in memory. A row is one allocation in a hash table by its key, which
 * is a keyed hash already. A change makes the rows it needs before it writes
 * the first one, so that it cannot fail halfway.
 */

#include "store/memory_marker.h"

#include <assert.h>
#include <postern/sys/clock.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "store/marker.h"

#define BUCKET_COUNT_MIN 64
/* Some 100 bytes each: above this, new markers are refused. */
#define MARKER_COUNT_MAX ((size_t)10 * 1000 * 1000)

/* The end of the lease in a row that was made and not written yet. */
#define RESERVED_MS 1

struct memory_marker {
	struct memory_marker *next;
	uint8_t key[POSTERN__MARK_KEY_LEN];
	struct postern__mark_row row;
};

static const struct postern_marker_ops memory_marker_ops;

static struct memory_markers *from_base(struct postern_markers *markers) {
	assert(markers->ops == &memory_marker_ops);
	return container_of(markers, struct memory_markers, base);
}

int postern__mem_markers_init(struct memory_markers *markers,
		const struct postern_clock *clock,
		const uint8_t secret[POSTERN__SIPHASH_KEY_LEN]) {
	*markers = (struct memory_markers){
		.base.ops = &memory_marker_ops,
		.clock = clock,
		.count_max = MARKER_COUNT_MAX,
	};
	memcpy(markers->secret, secret, sizeof markers->secret);
	return pthread_mutex_init(&markers->mutex, NULL) ? POSTERN_E_NOMEM
													 : POSTERN_OK;
}

void postern__mem_markers_finish(struct memory_markers *markers) {
	for (size_t i = 0; i < markers->bucket_count; i++) {
		while (markers->buckets[i]) {
			struct memory_marker *marker = markers->buckets[i];
			markers->buckets[i] = marker->next;
			free(marker);
		}
	}
	free(markers->buckets);
	(void)pthread_mutex_destroy(&markers->mutex);
}

/* The place of the pointer to a row, or where it would be. */
static struct memory_marker **find(const struct memory_markers *self,
		const uint8_t key[POSTERN__MARK_KEY_LEN]) {
	uint64_t hash;
	memcpy(&hash, key + POSTERN__MARK_HANDLER_LEN, sizeof hash);
	struct memory_marker **place =
			&self->buckets[hash & (self->bucket_count - 1)];
	while (*place && memcmp((*place)->key, key, POSTERN__MARK_KEY_LEN) != 0) {
		place = &(*place)->next;
	}
	return place;
}

static bool grow(struct memory_markers *self) {
	size_t count =
			self->bucket_count ? 2 * self->bucket_count : BUCKET_COUNT_MIN;
	struct memory_marker **buckets =
			calloc(count, sizeof(struct memory_marker *));
	if (!buckets) {
		return false;
	}
	struct memory_marker **old = self->buckets;
	size_t old_count = self->bucket_count;
	self->buckets = buckets;
	self->bucket_count = count;
	for (size_t i = 0; i < old_count; i++) {
		while (old[i]) {
			struct memory_marker *marker = old[i];
			old[i] = marker->next;
			struct memory_marker **place = find(self, marker->key);
			marker->next = *place;
			*place = marker;
		}
	}
	free(old);
	return true;
}

static int get_row(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
		struct postern__mark_row *out, bool *found_out,
		struct postern_error *error) {
	const struct memory_markers *self = context;
	(void)error;
	const struct memory_marker *marker = *find(self, key);
	*found_out = marker && marker->row.until_ms != RESERVED_MS;
	if (*found_out) {
		*out = marker->row;
	}
	return POSTERN_OK;
}

static int put_row(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
		const struct postern__mark_row *row, struct postern_error *error) {
	struct memory_markers *self = context;
	(void)error;
	struct memory_marker *marker = *find(self, key);
	assert(marker); /* reserve() made it */
	marker->row = *row;
	return POSTERN_OK;
}

static int remove_row(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
		struct postern_error *error) {
	struct memory_markers *self = context;
	(void)error;
	struct memory_marker **place = find(self, key);
	struct memory_marker *marker = *place;
	if (marker) {
		*place = marker->next;
		free(marker);
		self->count--;
	}
	return POSTERN_OK;
}

/* Make the rows that do not exist. */
static int reserve(struct memory_markers *self,
		const struct postern__mark_keys *keys, struct postern_error *error) {
	for (size_t i = 0; i < keys->count; i++) {
		struct memory_marker **place = find(self, keys->items[i]);
		if (*place) {
			continue;
		}
		if (self->count >= self->count_max) {
			return postern__fail(error, POSTERN_E_UNAVAILABLE,
					"the memory store is full: it has %zu markers",
					self->count);
		}
		struct memory_marker *marker = calloc(1, sizeof *marker);
		if (!marker) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
		memcpy(marker->key, keys->items[i], sizeof marker->key);
		marker->row.until_ms = RESERVED_MS;
		*place = marker;
		self->count++;
	}
	return POSTERN_OK;
}

/* Remove the rows of reserve() that were not written. */
static void trim(struct memory_markers *self,
		const struct postern__mark_keys *keys) {
	for (size_t i = 0; i < keys->count; i++) {
		const struct memory_marker *marker = *find(self, keys->items[i]);
		if (marker && marker->row.until_ms == RESERVED_MS) {
			(void)remove_row(self, keys->items[i], NULL);
		}
	}
}

/* Room for the rows of a change. */
static int prepare(struct memory_markers *self,
		const struct postern__mark_keys *keys, bool writes,
		struct postern_error *error) {
	if (self->count + keys->count > self->bucket_count && !grow(self) &&
			self->bucket_count == 0) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	return writes ? reserve(self, keys, error) : POSTERN_OK;
}

static int memory_mark_change(struct postern_markers *markers,
		const struct postern_mark *mark, struct postern_mark_request *request,
		struct postern_error *error) {
	struct memory_markers *self = from_base(markers);
	struct postern__mark_keys keys;
	postern__mark_keys_init(&keys, self->secret, mark);
	(void)pthread_mutex_lock(&self->mutex);
	struct postern__mark_access access = {
		.context = self,
		.now_ms = self->clock->wall_ms(self->clock->context),
		.get = get_row,
		.put = put_row,
		.remove = remove_row,
	};
	int r = prepare(self, &keys, postern__mark_writes(request->kind), error);
	if (r == POSTERN_OK) {
		r = postern__mark_change(&access, &keys, request, error);
	}
	if (self->bucket_count > 0) {
		trim(self, &keys);
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

/* Remove what has expired from one bucket. Returns how many were examined. */
static size_t expire_bucket(struct memory_markers *self, size_t index,
		const uint8_t *handler, int64_t before_ms, uint64_t *count) {
	struct memory_marker **place = &self->buckets[index];
	size_t examined = 0;
	while (*place) {
		struct memory_marker *marker = *place;
		bool matches = !handler || memcmp(marker->key, handler,
										   POSTERN__MARK_HANDLER_LEN) == 0;
		examined++;
		if (matches && marker->row.until_ms == 0 &&
				marker->row.at_ms <= before_ms) {
			*place = marker->next;
			free(marker);
			self->count--;
			(*count)++;
		} else {
			place = &marker->next;
		}
	}
	return examined;
}

static int memory_mark_expire(struct postern_markers *markers,
		struct postern_mark_expiry *expiry, struct postern_error *error) {
	struct memory_markers *self = from_base(markers);
	(void)error;
	uint8_t handler[POSTERN__MARK_HANDLER_LEN];
	if (expiry->handler) {
		postern__mark_handler_hash(self->secret, expiry->handler, handler);
	}
	size_t next;
	memcpy(&next, expiry->cursor, sizeof next);
	expiry->count = 0;
	(void)pthread_mutex_lock(&self->mutex);
	int64_t before_ms =
			self->clock->wall_ms(self->clock->context) - expiry->older_ms;
	for (size_t examined = 0;
			next < self->bucket_count && examined < expiry->max; next++) {
		examined += expire_bucket(self, next, expiry->handler ? handler : NULL,
				before_ms, &expiry->count);
	}
	expiry->more = next < self->bucket_count;
	(void)pthread_mutex_unlock(&self->mutex);
	memcpy(expiry->cursor, &next, sizeof next);
	return POSTERN_OK;
}

static const struct postern_marker_ops memory_marker_ops = {
	.version = POSTERN_MARKER_OPS_VERSION,
	.name = "memory",
	.change = memory_mark_change,
	.expire = memory_mark_expire,
};
