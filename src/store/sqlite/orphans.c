/* SPDX-License-Identifier: MIT */

/*
 * Orphaned deliveries, whose handler no node has configured.
 */

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
