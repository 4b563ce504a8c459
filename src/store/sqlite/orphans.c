/* SPDX-License-Identifier: MIT */

/*
 * Orphaned deliveries, whose handler no node has configured, and parked
 * messages, which have no handler yet.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error_group.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

/* The handlers that some node has configured. */
#define REGISTERED                                \
	"(SELECT r.owner FROM postern_node_handler n" \
	" CROSS JOIN postern_handler r ON r.id = n.handler)"

/* Restricts to the owner with this key; NULL: no restriction. */
#define MEANT(key)                      \
	" AND (" key " IS NULL OR owner IN" \
	" (SELECT id FROM postern_handler WHERE key = " key "))"

/* Finds orphaned handlers and counts their open deliveries. Leases are read
   only if the handler has some. */
static int find_orphans(struct sqlite_store *self, const char *only,
		struct postern_memory *memory, struct postern_orphan *orphans,
		size_t *count_out, struct postern_error *error) {
	size_t count = 0;
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT h.key, o.open FROM postern_handler h CROSS JOIN"
			" (SELECT owner, sum(pending + iif(leased = 0, 0,"
			" (SELECT count(*) FROM postern_open WHERE handler = id"
			" AND node IS NOT NULL"
			" AND node NOT IN (SELECT node FROM postern_node)))) AS open"
			" FROM postern_handler WHERE owner NOT IN " REGISTERED MEANT(
					"?1") " GROUP BY owner) o ON o.owner = h.id"
						  " WHERE o.open > 0 ORDER BY h.id");
	postern__sqlite_bind_text(&query, 1, only);
	while (ok && postern__sqlite_row(&query)) {
		const char *key;
		ok = count < self->handler_count &&
			 postern__sqlite_text(query.statement, 0, memory, &key);
		if (ok) {
			orphans[count++] = (struct postern_orphan){
				.key = key,
				.count = (uint64_t)postern__sqlite_int(&query, 1),
			};
		}
	}
	*count_out = count;
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int orphan_poison(struct sqlite_store *self,
		const struct sqlite_delivery *delivery, int64_t now,
		struct postern_error *error) {
	const uint64_t group = postern__error_group(POSTERN__ORPHAN_ERROR);
	int r = postern__sqlite_attempt_insert(self, delivery->seq,
			delivery->handler, delivery->fence, now, now, "poison",
			POSTERN__ORPHAN_ERROR, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_sample_keep(self, group, delivery->handler,
				POSTERN__ORPHAN_ERROR, now, error);
	}
	return r == POSTERN_OK ? postern__sqlite_delivery_close(self, delivery,
									 POSTERN_STATE_POISONED, group, now, error)
						   : r;
}

/* Finds pending orphaned deliveries, at most `max`; the caller frees *out. */
static int pending_orphans(struct sqlite_store *self, const char *only,
		size_t max, struct sqlite_delivery **out, size_t *count_out,
		struct postern_error *error) {
	size_t cap = 0;
	size_t count = 0;
	bool ok = true;
	struct sqlite_delivery *found = NULL;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT o.seq, o.handler, o.fence, o.failures, o.crashes"
			" FROM postern_handler h"
			" CROSS JOIN postern_open o INDEXED BY postern_open_due"
			" ON o.handler = h.id WHERE o.node IS NULL AND o.suspect = 0"
			" AND h.pending > 0 AND h.owner NOT IN " REGISTERED MEANT(
					"?2") " UNION ALL"
						  " SELECT o.seq, o.handler, o.fence, o.failures, "
						  "o.crashes"
						  " FROM postern_open o INDEXED BY postern_open_suspect"
						  " CROSS JOIN postern_handler h ON h.id = o.handler"
						  " WHERE o.suspect > 0 AND o.node IS NULL"
						  " AND h.owner NOT IN " REGISTERED MEANT(
								  "?2") " LIMIT ?1");
	postern__sqlite_bind_text(&query, 2, only);
	postern__sqlite_bind_int(&query, 1,
			max > INT32_MAX ? INT32_MAX : (int64_t)max);
	while (ok && postern__sqlite_row(&query)) {
		if (count == cap) {
			cap = cap ? 2 * cap : 256;
			struct sqlite_delivery *more = realloc(found, cap * sizeof *more);
			ok = more;
			found = more ? more : found;
		}
		if (ok) {
			found[count++] = (struct sqlite_delivery){
				.seq = postern__sqlite_int(&query, 0),
				.handler = postern__sqlite_int(&query, 1),
				.fence = (uint64_t)postern__sqlite_int(&query, 2),
				.failures = (uint32_t)postern__sqlite_int(&query, 3),
				.crashes = (uint32_t)postern__sqlite_int(&query, 4),
				.state = POSTERN_STATE_PENDING,
			};
		}
	}
	*out = found;
	*count_out = count;
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int poison_orphans(struct sqlite_store *self, const char *only,
		size_t max, struct postern_error *error) {
	struct sqlite_delivery *found = NULL;
	size_t count = 0;
	int64_t now = postern__sqlite_now(self);
	int r = pending_orphans(self, only, max, &found, &count, error);
	if (r == POSTERN_OK && count > 0) {
		r = postern__sqlite_begin(self, error);
		if (r == POSTERN_OK) {
			for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
				r = orphan_poison(self, &found[i], now, error);
			}
			r = postern__sqlite_finish(self, r, error);
		}
	}
	free(found);
	return r;
}

static int find_node(struct sqlite_store *self, uint64_t node, bool *found_out,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT 1 FROM postern_node WHERE node = ?1");
	postern__sqlite_bind_int(&query, 1, (int64_t)node);
	*found_out = postern__sqlite_row(&query);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_orphans(struct postern_store *store, uint64_t node,
		const char *only, bool do_poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	size_t count = 0;
	struct postern_orphan *orphans = postern_memory_alloc(memory,
			self->handler_count * sizeof(struct postern_orphan));
	bool is_enrolled = false;
	r = orphans ? find_node(self, node, &is_enrolled, error)
				: postern__sqlite_no_memory(error);
	if (r == POSTERN_OK && is_enrolled) {
		r = find_orphans(self, only, memory, orphans, &count, error);
	}
	if (r == POSTERN_OK && do_poison && count > 0) {
		r = poison_orphans(self, only, max, error);
	}
	postern__sqlite_gate_leave(self);
	if (r == POSTERN_OK) {
		*orphans_out = orphans;
		*count_out = count;
	}
	return r;
}

struct unparking {
	struct sqlite_store *store;
	postern_router *router;
	void *context;
	struct postern_route *routes;
	int64_t now;
	uint64_t count;
};

static int unpark_message(struct unparking *unparking, int64_t seq,
		int64_t channel, const char *type, struct postern_error *error) {
	struct sqlite_store *self = unparking->store;
	size_t count = unparking->router(unparking->context, channel, type,
			unparking->routes, self->handler_count);
	if (count == 0) {
		return POSTERN_OK;
	}
	assert(count <= self->handler_count && unparking->routes);
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		if (!postern__sqlite_route_repeats(self, unparking->routes, i)) {
			int64_t id = unparking->routes[i].handler;
			r = postern__sqlite_delivery_insert(self, seq,
					postern__sqlite_handler(self, id)->owner, 0, unparking->now,
					error);
		}
	}
	if (r != POSTERN_OK) {
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
