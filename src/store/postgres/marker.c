/* SPDX-License-Identifier: MIT */

/*
 * Markers in PostgreSQL: each change is one call of a function of the schema.
 * Whether something was done is read without a transaction id.
 */

#include <assert.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "store/marker.h"
#include "store/postgres/postgres.h"

int64_t postern__pg_mark_handler(const uint8_t *key) {
	uint64_t number = 0;
	for (size_t i = 0; i < POSTERN__MARK_HANDLER_LEN; i++) {
		number = number << 8 | key[i];
	}
	return (int64_t)number;
}

static int compare_parts(const uint8_t *a, const uint8_t *b) {
	int64_t first = postern__pg_mark_handler(a);
	int64_t second = postern__pg_mark_handler(b);
	return first < second   ? -1
		   : first > second ? 1
							: memcmp(a, b, POSTERN__MARK_KEY_LEN);
}

/* In the order of the database, whose numbers have a sign. */
static void sort_keys(struct postern__mark_keys *keys) {
	for (size_t i = 1; i < keys->count; i++) {
		uint8_t key[POSTERN__MARK_KEY_LEN];
		size_t at = i;
		memcpy(key, keys->items[i], sizeof key);
		for (; at > 0 && compare_parts(keys->items[at - 1], key) > 0; at--) {
			memcpy(keys->items[at], keys->items[at - 1], sizeof key);
		}
		memcpy(keys->items[at], key, sizeof key);
	}
}

void postern__pg_mark_keys(const struct pg_store *self,
		const struct postern_mark *mark, struct postern__mark_keys *out) {
	postern__mark_keys_init(out, self->hash_key, mark);
	sort_keys(out);
}

void postern__pg_mark(struct pg_query *query, const struct postern_mark *mark) {
	struct postern__mark_keys keys;
	postern__pg_mark_keys(query->connection->store, mark, &keys);
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < keys.count; i++) {
		postern__pg_int8(query, postern__pg_mark_handler(keys.items[i]));
	}
	postern__pg_array_end(query);
	postern__pg_array(query, PG_UUID);
	for (size_t i = 0; i < keys.count; i++) {
		postern__pg_uuid(query, keys.items[i] + POSTERN__MARK_HANDLER_LEN);
	}
	postern__pg_array_end(query);
}

struct change {
	const struct postern_mark *mark;
	struct postern_mark_request *request;
};

static int read_marker(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct change *change = context;
	struct pg_query query;
	(void)again;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	postern__pg_mark(&query, change->mark);
	int r = postern__pg_run(&query,
			"SELECT before, remaining FROM @mark_read_1($1, $2, $3, 0)", error);
	if (r == POSTERN_OK) {
		change->request->before =
				(enum postern_mark_state)postern__pg_get(&query, 0, 0);
		change->request->left_ms = postern__pg_get(&query, 0, 1);
	}
	postern__pg_end(&query);
	return r;
}

static int change_marker(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct change *change = context;
	struct postern_mark_request *request = change->request;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	postern__pg_int8(&query, connection->store->lock_timeout_ms);
	postern__pg_int4(&query, request->kind);
	postern__pg_mark(&query, change->mark);
	postern__pg_int8(&query, (int64_t)request->fence);
	postern__pg_int8(&query, request->lease_ms);
	int r = postern__pg_run(&query,
			"SELECT before, remaining, stale"
			" FROM @mark_change_1($1, $2, $3, $4, $5, $6, $7)",
			error);
	if (r == POSTERN_OK) {
		request->before =
				(enum postern_mark_state)postern__pg_get(&query, 0, 0);
		request->left_ms = postern__pg_get(&query, 0, 1);
		bool stale = postern__pg_get(&query, 0, 2) != 0;
		/* The first try may have released it. */
		bool released = again && request->kind == POSTERN_MARK_RELEASE &&
						request->before == POSTERN_MARK_UNKNOWN;
		r = stale && !released ? postern__mark_fail_stale(error) : POSTERN_OK;
	}
	postern__pg_end(&query);
	return r;
}

struct pg_store *postern__pg_from_markers(struct postern_markers *markers) {
	struct pg_store *self = container_of(markers, struct pg_store, markers);
	assert(self->base.markers == markers);
	return self;
}

static int pg_mark_change(struct postern_markers *markers,
		const struct postern_mark *mark, struct postern_mark_request *request,
		struct postern_error *error) {
	struct pg_store *self = postern__pg_from_markers(markers);
	struct postern_mark_request done = *request;
	struct change change = { .mark = mark, .request = &done };
	int r = postern__pg_do(self,
			postern__mark_writes(request->kind) ? change_marker : read_marker,
			&change, error);
	if (r == POSTERN_OK) {
		*request = done;
	}
	return r;
}

struct cursor {
	int64_t handler;
	uint8_t key[16];
	bool begun;
};
_Static_assert(sizeof(struct cursor) <= POSTERN_MARK_CURSOR_LEN,
		"the cursor must fit");

static int expire_piece(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct postern_mark_expiry *expiry = context;
	struct cursor cursor;
	struct pg_query query;
	uint8_t only[POSTERN__MARK_HANDLER_LEN];
	(void)again;
	memcpy(&cursor, expiry->cursor, sizeof cursor);
	if (!cursor.begun) {
		cursor = (struct cursor){ .handler = INT64_MIN, .begun = true };
	}
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	postern__pg_int8(&query, expiry->older_ms);
	postern__pg_int4(&query, (int64_t)expiry->max);
	if (expiry->handler) {
		postern__mark_handler_hash(connection->store->hash_key, expiry->handler,
				only);
		postern__pg_int8(&query, postern__pg_mark_handler(only));
	} else {
		postern__pg_null(&query, PG_INT8);
	}
	postern__pg_int8(&query, cursor.handler);
	postern__pg_uuid(&query, cursor.key);
	int r = postern__pg_run(&query,
			"SELECT * FROM @mark_expire_1($1, $2, $3, $4, $5, $6)", error);
	if (r == POSTERN_OK) {
		size_t len = 0;
		expiry->count = (uint64_t)postern__pg_get(&query, 0, 0);
		expiry->more = postern__pg_get(&query, 0, 1) >= (int64_t)expiry->max;
		if (!postern__pg_is_null(&query, 0, 2)) {
			cursor.handler = postern__pg_get(&query, 0, 2);
			memcpy(cursor.key, postern__pg_get_bytes(&query, 0, 3, &len),
					sizeof cursor.key);
		}
		memcpy(expiry->cursor, &cursor, sizeof cursor);
	}
	postern__pg_end(&query);
	return r;
}

static int pg_mark_expire(struct postern_markers *markers,
		struct postern_mark_expiry *expiry, struct postern_error *error) {
	struct postern_mark_expiry next = *expiry;
	int r = postern__pg_do(postern__pg_from_markers(markers), expire_piece,
			&next, error);
	if (r == POSTERN_OK) {
		*expiry = next;
	}
	return r;
}

static const struct postern_marker_ops pg_marker_ops = {
	.version = POSTERN_MARKER_OPS_VERSION,
	.name = "postgres",
	.change = pg_mark_change,
	.expire = pg_mark_expire,
	.take = postern__pg_mark_take,
};

void postern__pg_markers_init(struct pg_store *self) {
	self->markers.ops = &pg_marker_ops;
	self->base.markers = &self->markers;
}
