/* SPDX-License-Identifier: MIT */

/*
 * Markers in SQLite. Changes are transactions of the writer; whether something
 * was done is read on the reader, without waiting for a commit.
 */

#include <assert.h>
#include <postern/sys/clock.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "base/point.h"
#include "store/common.h"
#include "store/marker.h"
#include "store/sqlite/sqlite.h"

static int get_row(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
		struct postern__mark_row *out, bool *found_out,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, context,
			"SELECT fence, lease_until, at FROM postern_marker WHERE key = ?1");
	postern__sqlite_bind_blob(&query, 1, key, POSTERN__MARK_KEY_LEN);
	*found_out = postern__sqlite_row(&query);
	if (*found_out) {
		*out = (struct postern__mark_row){
			.fence = (uint64_t)postern__sqlite_int(&query, 0),
			.until_ms = postern__sqlite_int(&query, 1),
			.at_ms = postern__sqlite_int(&query, 2),
		};
	}
	return postern__sqlite_end(&query, error);
}

static int put_row(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
		const struct postern__mark_row *row, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, context,
			"INSERT INTO postern_marker (key, fence, lease_until, at)"
			" VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO UPDATE"
			" SET fence = ?2, lease_until = ?3, at = ?4");
	postern__sqlite_bind_blob(&query, 1, key, POSTERN__MARK_KEY_LEN);
	postern__sqlite_bind_int(&query, 2, (int64_t)row->fence);
	postern__sqlite_bind_int(&query, 3, row->until_ms);
	postern__sqlite_bind_int(&query, 4, row->at_ms);
	return postern__sqlite_end(&query, error);
}

static int remove_row(void *context, const uint8_t key[POSTERN__MARK_KEY_LEN],
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, context,
			"DELETE FROM postern_marker WHERE key = ?1");
	postern__sqlite_bind_blob(&query, 1, key, POSTERN__MARK_KEY_LEN);
	return postern__sqlite_end(&query, error);
}

static struct postern__mark_access
access_by(struct sqlite_connection *connection, int64_t now) {
	return (struct postern__mark_access){
		.context = connection,
		.now_ms = now,
		.get = get_row,
		.put = put_row,
		.remove = remove_row,
	};
}

static struct sqlite_store *from_markers(struct postern_markers *markers) {
	struct sqlite_store *self =
			container_of(markers, struct sqlite_store, markers);
	assert(self->base.markers == markers);
	return self;
}

static int read_state(struct sqlite_store *self,
		const struct postern__mark_keys *keys,
		struct postern_mark_request *request, struct postern_error *error) {
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	const struct postern__mark_access access =
			access_by(&self->reader, postern__sqlite_now_read(self));
	r = postern__mark_change(&access, keys, request, error);
	postern__sqlite_read_end(self);
	return r;
}

static int write_change(struct sqlite_store *self,
		const struct postern__mark_keys *keys,
		struct postern_mark_request *request, struct postern_error *error) {
	int r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	const struct postern__mark_access access =
			access_by(&self->writer, postern__sqlite_now(self));
	r = postern__mark_change(&access, keys, request, error);
	return postern__sqlite_finish(self, r, error);
}

static int sqlite_mark_change(struct postern_markers *markers,
		const struct postern_mark *mark, struct postern_mark_request *request,
		struct postern_error *error) {
	struct sqlite_store *self = from_markers(markers);
	struct postern__mark_keys keys;
	postern__mark_keys_init(&keys, self->hash_key, mark);
	if (!postern__mark_writes(request->kind)) {
		return read_state(self, &keys, request, error);
	}
	struct postern_mark_request done = *request;
	int r = postern__sqlite_gate_enter(self, error);
	if (r == POSTERN_OK) {
		postern__point("sqlite-mark.before");
		r = write_change(self, &keys, &done, error);
		postern__point("sqlite-mark.after");
		postern__sqlite_gate_leave(self);
	}
	if (r == POSTERN_OK) {
		*request = done;
	}
	return r;
}

/* Keys after the cursor, in their order; the last one examined is the next
   cursor. */
struct expiry_cursor {
	uint8_t key[POSTERN__MARK_KEY_LEN];
	bool begun;
};
_Static_assert(sizeof(struct expiry_cursor) <= POSTERN_MARK_CURSOR_LEN,
		"the cursor must fit");

/* The last key of the piece that is examined now; false: there is none. */
static int find_piece_end(struct sqlite_store *self,
		const struct expiry_cursor *cursor, const uint8_t *last, size_t max,
		uint8_t end[POSTERN__MARK_KEY_LEN], size_t *count_out,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT max(key), count(*) FROM (SELECT key FROM postern_marker"
			" WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT ?3)");
	postern__sqlite_bind_blob(&query, 1, cursor->key,
			cursor->begun ? sizeof cursor->key : 0);
	postern__sqlite_bind_blob(&query, 2, last, POSTERN__MARK_KEY_LEN);
	postern__sqlite_bind_int(&query, 3, (int64_t)max);
	*count_out = 0;
	if (postern__sqlite_row(&query) &&
			sqlite3_column_bytes(query.statement, 0) == POSTERN__MARK_KEY_LEN) {
		memcpy(end, sqlite3_column_blob(query.statement, 0),
				POSTERN__MARK_KEY_LEN);
		*count_out = (size_t)postern__sqlite_int(&query, 1);
	}
	return postern__sqlite_end(&query, error);
}

static int expire_piece(struct sqlite_store *self,
		const struct expiry_cursor *cursor, const uint8_t *end,
		int64_t before_ms, uint64_t *count_out, struct postern_error *error) {
	struct sqlite_query query;
	int changes = 0;
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_marker WHERE key > ?1 AND key <= ?2"
			" AND lease_until = 0 AND at <= ?3");
	postern__sqlite_bind_blob(&query, 1, cursor->key,
			cursor->begun ? sizeof cursor->key : 0);
	postern__sqlite_bind_blob(&query, 2, end, POSTERN__MARK_KEY_LEN);
	postern__sqlite_bind_int(&query, 3, before_ms);
	int r = postern__sqlite_end_changes(&query, &changes, error);
	*count_out = (uint64_t)changes;
	return r;
}

static int expire_inside(struct sqlite_store *self,
		struct postern_mark_expiry *expiry, struct postern_error *error) {
	struct expiry_cursor cursor;
	uint8_t last[POSTERN__MARK_KEY_LEN];
	uint8_t end[POSTERN__MARK_KEY_LEN];
	size_t examined = 0;
	memcpy(&cursor, expiry->cursor, sizeof cursor);
	memset(last, 0xff, sizeof last);
	if (expiry->handler) {
		postern__mark_handler_hash(self->hash_key, expiry->handler, last);
		if (!cursor.begun) {
			/* No key ends with zeroes only: it is a hash. */
			memset(cursor.key, 0, sizeof cursor.key);
			memcpy(cursor.key, last, POSTERN__MARK_HANDLER_LEN);
			cursor.begun = true;
		}
	}
	int64_t before_ms = postern__sqlite_now(self) - expiry->older_ms;
	expiry->count = 0;
	int r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = find_piece_end(self, &cursor, last, expiry->max, end, &examined, error);
	if (r == POSTERN_OK && examined > 0) {
		r = expire_piece(self, &cursor, end, before_ms, &expiry->count, error);
		memcpy(cursor.key, end, sizeof cursor.key);
		cursor.begun = true;
	}
	expiry->more = examined == expiry->max;
	memcpy(expiry->cursor, &cursor, sizeof cursor);
	return postern__sqlite_finish(self, r, error);
}

static int sqlite_mark_expire(struct postern_markers *markers,
		struct postern_mark_expiry *expiry, struct postern_error *error) {
	struct sqlite_store *self = from_markers(markers);
	struct postern_mark_expiry next = *expiry;
	int r = postern__sqlite_gate_enter(self, error);
	if (r == POSTERN_OK) {
		r = expire_inside(self, &next, error);
		postern__sqlite_gate_leave(self);
	}
	if (r == POSTERN_OK) {
		*expiry = next;
	}
	return r;
}

int postern__sqlite_mark_take(struct sqlite_store *self,
		struct postern_unit *unit, bool *taken_out,
		struct postern_error *error) {
	const struct postern__mark_access access =
			access_by(&self->writer, postern__sqlite_now(self));
	struct postern__mark_keys keys;
	enum postern_mark_state before = POSTERN_MARK_UNKNOWN;
	postern__mark_keys_init(&keys, self->hash_key, unit->mark);
	int r = postern__mark_take(&access, &keys, unit->fence, &before, error);
	*taken_out = r == POSTERN_OK && before == POSTERN_MARK_UNKNOWN;
	if (r == POSTERN_OK && before != POSTERN_MARK_UNKNOWN) {
		unit->code = before == POSTERN_MARK_DONE ? POSTERN_E_DUPLICATE
												 : POSTERN_E_BUSY;
	}
	return r;
}

int postern__sqlite_mark_confirm(struct sqlite_store *self,
		struct postern_unit *unit, struct postern_error *error) {
	const struct postern__mark_access access =
			access_by(&self->writer, postern__sqlite_now(self));
	struct postern__mark_keys keys;
	bool taken = false;
	postern__mark_keys_init(&keys, self->hash_key, unit->mark);
	int r = postern__mark_is_taken(&access, &keys, unit->fence, &taken, error);
	if (r == POSTERN_OK && !taken) {
		postern__unit_refuse(unit, POSTERN_E_INVALID,
				"the function removed its own marker");
	}
	return r;
}

/* Whether the sandbox applies. */
static void set_running(struct sqlite_store *self, bool running) {
	(void)pthread_mutex_lock(&self->unit.mutex);
	self->unit.running = running;
	(void)pthread_mutex_unlock(&self->unit.mutex);
}

/* On the thread of a unit's function, which the sandbox keeps from writing the
   tables of this store. */
static int take_inside(struct sqlite_store *self,
		const struct postern_mark *mark, uint64_t fence,
		enum postern_mark_state *before_out, struct postern_error *error) {
	const struct postern__mark_access access =
			access_by(&self->writer, postern__sqlite_now(self));
	struct postern__mark_keys keys;
	postern__mark_keys_init(&keys, self->hash_key, mark);
	set_running(self, false);
	int r = postern__mark_take(&access, &keys, fence, before_out, error);
	set_running(self, true);
	if (r != POSTERN_OK) {
		/* Some of the rows may have been written. */
		self->unit.breach = "a marker could not be written";
	}
	return r;
}

struct foreign_mark {
	struct postern__mark_keys keys;
	uint64_t fence;
	enum postern_mark_state before;
};

static int take_foreign(struct sqlite_connection *connection, void *context,
		struct postern_error *error) {
	struct foreign_mark *foreign = context;
	const struct postern__mark_access access =
			access_by(connection, postern__sqlite_now_read(connection->store));
	return postern__mark_take(&access, &foreign->keys, foreign->fence,
			&foreign->before, error);
}

/* On a connection of the caller. */
static int take_outside(struct sqlite_store *self, void *transaction,
		const struct postern_mark *mark, uint64_t fence, int64_t wait_ms,
		enum postern_mark_state *before_out, struct postern_error *error) {
	struct foreign_mark foreign = { .fence = fence };
	postern__mark_keys_init(&foreign.keys, self->hash_key, mark);
	int r = postern__sqlite_foreign_take(self, transaction, wait_ms,
			take_foreign, &foreign, error);
	if (r == POSTERN_OK) {
		*before_out = foreign.before;
	}
	return r;
}

static int sqlite_mark_take(struct postern_markers *markers, void *transaction,
		const struct postern_mark *mark, uint64_t fence, int64_t wait_ms,
		enum postern_mark_state *before_out, struct postern_error *error) {
	struct sqlite_store *self = from_markers(markers);
	(void)pthread_mutex_lock(&self->unit.mutex);
	bool own = transaction == self->writer.db;
	bool inside = self->unit.running && own;
	(void)pthread_mutex_unlock(&self->unit.mutex);
	if (!own) {
		return take_outside(self, transaction, mark, fence, wait_ms, before_out,
				error);
	}
	if (!inside) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the connection belongs to this store, and its function has "
				"returned");
	}
	if (sqlite3_get_autocommit(self->writer.db)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the transaction was rolled back");
	}
	return take_inside(self, mark, fence, before_out, error);
}

static const struct postern_marker_ops sqlite_marker_ops = {
	.version = POSTERN_MARKER_OPS_VERSION,
	.name = "sqlite",
	.change = sqlite_mark_change,
	.expire = sqlite_mark_expire,
	.take = sqlite_mark_take,
};

void postern__sqlite_markers_init(struct sqlite_store *self) {
	self->markers.ops = &sqlite_marker_ops;
	self->base.markers = &self->markers;
}
