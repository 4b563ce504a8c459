/* SPDX-License-Identifier: MIT */

/*
 * Parked messages, which had no handler when they were accepted. A message is
 * read only if a handler that wants it has a key of its own.
 */

#include <assert.h>
#include <postern/sys/memory.h>
#include <stdlib.h>

#include "store/sqlite/sqlite.h"

struct unparking {
	struct sqlite_store *store;
	postern_router *router;
	void *context;
	struct postern_route *routes;
	int64_t now;
	uint64_t count;
};

static int read_message(struct sqlite_store *self, int64_t seq,
		struct postern_memory *memory, struct postern_message *out,
		struct postern_error *error) {
	int r = POSTERN_E_CORRUPT;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT " SQLITE_MESSAGE_COLUMNS " FROM postern_message m"
			" CROSS JOIN postern_channel c ON c.id = m.channel"
			" WHERE m.seq = ?1");
	postern__sqlite_bind_int(&query, 1, seq);
	if (postern__sqlite_row(&query)) {
		r = postern__sqlite_message_read(&query, 0, memory, out, error);
	}
	int ended = postern__sqlite_end(&query, r == POSTERN_OK ? error : NULL);
	return r == POSTERN_OK ? ended : r;
}

/* Creates the deliveries of a message, which is NULL if no key is made of
   it. */
static int open_routes(struct unparking *unparking, int64_t seq,
		int64_t channel, const struct postern_message *message, size_t count,
		struct postern_error *error) {
	struct sqlite_store *self = unparking->store;
	const struct postern_accept accept = {
		.message = message,
		.channel = channel,
		.seq = seq,
	};
	assert(count <= self->handler_count && unparking->routes);
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		if (!postern__sqlite_route_repeats(self, unparking->routes, i)) {
			r = postern__sqlite_route_add(self, 0, &accept,
					&unparking->routes[i], unparking->now, error);
		}
	}
	if (r != POSTERN_OK || count == 0) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_parked WHERE seq = ?1");
	postern__sqlite_bind_int(&query, 1, seq);
	unparking->count++;
	self->channels[channel].changes.parked--;
	return postern__sqlite_end(&query, error);
}

/* The same for routes some of which need the message. */
static int open_routes_by_message(struct unparking *unparking, int64_t seq,
		int64_t channel, const char *type, struct postern_error *error) {
	struct sqlite_store *self = unparking->store;
	struct postern_message message;
	struct postern_memory *memory = postern_memory_create();
	int r = memory ? read_message(self, seq, memory, &message, error)
				   : postern__sqlite_no_memory(error);
	if (r == POSTERN_OK) {
		size_t count = unparking->router(unparking->context, channel, type,
				&message, unparking->routes, self->handler_count);
		r = open_routes(unparking, seq, channel, &message, count, error);
	} else if (r == POSTERN_E_CORRUPT) {
		r = POSTERN_OK; /* it stays parked */
	}
	postern_memory_destroy(memory);
	return r;
}

static int unpark_message(struct unparking *unparking, int64_t seq,
		int64_t channel, const char *type, struct postern_error *error) {
	size_t count = unparking->router(unparking->context, channel, type, NULL,
			unparking->routes, unparking->store->handler_count);
	for (size_t i = 0; i < count; i++) {
		if (unparking->routes[i].by_message) {
			return open_routes_by_message(unparking, seq, channel, type, error);
		}
	}
	return open_routes(unparking, seq, channel, NULL, count, error);
}

/* The query stays open while rows of postern_parked that it has passed are
   deleted, which SQLite allows. */
static int unpark_some(struct unparking *unparking, size_t max, int64_t *cursor,
		struct postern_error *error) {
	struct sqlite_store *self = unparking->store;
	int r = POSTERN_OK;
	size_t visited = 0;
	int64_t last = 0;
	bool more = false;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT p.seq, m.channel, m.type FROM postern_parked p"
			" CROSS JOIN postern_message m ON m.seq = p.seq"
			" WHERE p.seq > ?1 ORDER BY p.seq");
	postern__sqlite_bind_int(&query, 1, *cursor);
	while (r == POSTERN_OK && !more && postern__sqlite_row(&query)) {
		const char *type =
				(const char *)sqlite3_column_text(query.statement, 2);
		int64_t channel = postern__sqlite_int(&query, 1);
		if (visited == max) {
			more = true;
		} else if (!type || !postern__sqlite_channel(self, channel)) {
			r = postern__sqlite_no_memory(error);
		} else {
			last = postern__sqlite_int(&query, 0);
			visited++;
			r = unpark_message(unparking, last, channel, type, error);
		}
	}
	int ended = postern__sqlite_end(&query, r == POSTERN_OK ? error : NULL);
	r = r == POSTERN_OK ? ended : r;
	if (r == POSTERN_OK) {
		*cursor = more ? last : 0;
	}
	return r;
}

int postern__sqlite_unpark(struct postern_store *store, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	int64_t place = *cursor;
	struct unparking unparking = {
		.store = self,
		.router = router,
		.context = context,
		.now = postern__sqlite_now(self),
		.routes = calloc(self->handler_count + 1, sizeof(struct postern_route)),
	};
	if (!unparking.routes) {
		postern__sqlite_gate_leave(self);
		return postern__sqlite_no_memory(error);
	}
	r = postern__sqlite_begin(self, error);
	if (r == POSTERN_OK) {
		r = unpark_some(&unparking, max, &place, error);
		if (r == POSTERN_OK && unparking.count == 0) {
			postern__sqlite_rollback(self); /* nothing to write */
		} else {
			r = postern__sqlite_finish(self, r, error);
		}
	}
	postern__sqlite_gate_leave(self);
	free(unparking.routes);
	if (r == POSTERN_OK) {
		*cursor = place;
		*count_out = unparking.count;
	}
	return r;
}
