/* SPDX-License-Identifier: MIT */

/*
 * Pull leases: rows of postern_open whose node is -1, POSTERN_NODE_PULL as a
 * signed number, and whose due_at is the end of the lease. They have an index
 * of their own, so the next end is found whatever else is leased.
 */

#include "base/point.h"
#include "store/sqlite/sqlite.h"

_Static_assert((int64_t)POSTERN_NODE_PULL == -1, "this number is on disk");

/* One delivery whose pull lease has ended. */
struct ended {
	int64_t seq;
	int64_t handler;
	int64_t since;
	size_t want;
};

static int find_ended(struct sqlite_store *self, int64_t id, size_t want,
		int64_t now, size_t max, struct ended *found, size_t *count,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT seq, since FROM postern_open INDEXED BY postern_open_pull"
			" WHERE node = -1 AND handler = ?1 AND due_at <= ?2"
			" ORDER BY due_at LIMIT ?3");
	postern__sqlite_bind_int(&query, 1, id);
	postern__sqlite_bind_int(&query, 2, now);
	postern__sqlite_bind_int(&query, 3, (int64_t)(max - *count));
	while (postern__sqlite_row(&query)) {
		found[(*count)++] = (struct ended){
			.seq = postern__sqlite_int(&query, 0),
			.handler = id,
			.since = postern__sqlite_int(&query, 1),
			.want = want,
		};
	}
	return postern__sqlite_end(&query, error);
}

/* Lowers *next to the time until the next pull lease of this id ends. */
static int next_end_of(struct sqlite_store *self, int64_t id, int64_t now,
		int64_t *next, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT due_at FROM postern_open INDEXED BY postern_open_pull"
			" WHERE node = -1 AND handler = ?1 ORDER BY due_at LIMIT 1");
	postern__sqlite_bind_int(&query, 1, id);
	if (postern__sqlite_row(&query)) {
		int64_t end = postern__sqlite_int(&query, 0);
		int64_t left = end > now ? end - now : 0;
		*next = *next < 0 || left < *next ? left : *next;
	}
	return postern__sqlite_end(&query, error);
}

static int read_ended(struct sqlite_store *self, const struct ended *ended,
		int64_t now, struct postern_memory *memory, struct postern_claimed *out,
		struct postern_error *error) {
	int r = POSTERN_OK;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT o.fence, o.failures, o.breaks, m.channel,"
			" " SQLITE_MESSAGE_COLUMNS " FROM postern_open o"
			" LEFT JOIN postern_message m ON m.seq = o.seq"
			" LEFT JOIN postern_channel c ON c.id = m.channel"
			" WHERE o.seq = ?1 AND o.handler = ?2");
	postern__sqlite_bind_int(&query, 1, ended->seq);
	postern__sqlite_bind_int(&query, 2, ended->handler);
	if (postern__sqlite_row(&query)) {
		struct postern_message *message =
				postern_memory_alloc(memory, sizeof *message);
		*out = (struct postern_claimed){
			.seq = ended->seq,
			.handler = ended->handler,
			.want = ended->want,
			.channel = postern__sqlite_int(&query, 3),
			.fence = (uint64_t)postern__sqlite_int(&query, 0) + 1,
			.failures = (uint32_t)postern__sqlite_int(&query, 1),
			.breaks = (uint32_t)postern__sqlite_int(&query, 2),
			.held_ms = now > ended->since ? now - ended->since : 0,
		};
		r = !message       ? postern__sqlite_no_memory(error)
			: out->channel ? postern__sqlite_message_read(&query, 4, memory,
									 message, error)
						   : POSTERN_E_CORRUPT;
		out->message = r == POSTERN_OK ? message : NULL;
		/* One damaged row must not block all the others. */
		r = r == POSTERN_E_CORRUPT ? POSTERN_OK : r;
	}
	int ended_r = postern__sqlite_end(&query, r == POSTERN_OK ? error : NULL);
	return r == POSTERN_OK ? ended_r : r;
}

static int take_ended(struct sqlite_store *self, uint64_t node, int64_t now,
		const struct postern_claimed *item, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET node = ?3, since = ?4, fence = ?5"
			" WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, item->seq);
	postern__sqlite_bind_int(&query, 2, item->handler);
	postern__sqlite_bind_int(&query, 3, (int64_t)node);
	postern__sqlite_bind_int(&query, 4, now);
	postern__sqlite_bind_int(&query, 5, (int64_t)item->fence);
	return postern__sqlite_end(&query, error);
}

static int take_all(struct sqlite_store *self,
		const struct postern_claim *claim, const struct ended *found,
		int64_t now, struct postern_memory *memory, struct postern_claims *out,
		struct postern_error *error) {
	int r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	for (size_t i = 0; r == POSTERN_OK && i < out->count; i++) {
		r = read_ended(self, &found[i], now, memory, &out->items[i], error);
		if (r == POSTERN_OK) {
			r = take_ended(self, claim->node, now, &out->items[i], error);
		}
	}
	postern__point("sqlite-pull.taken");
	return postern__sqlite_finish(self, r, error);
}

int postern__sqlite_claim_ended(struct sqlite_store *self,
		const struct postern_claim *claim, int64_t now,
		struct postern_memory *memory, struct postern_claims *out,
		struct postern_error *error) {
	struct ended *found =
			postern_memory_alloc(memory, (claim->max + 1) * sizeof *found);
	struct postern_claims claims = {
		.items = postern_memory_alloc(memory,
				(claim->max + 1) * sizeof(struct postern_claimed)),
		.next_due_ms = -1,
	};
	if (!found || !claims.items) {
		return postern__sqlite_no_memory(error);
	}
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < claim->want_count; i++) {
		if (!postern__sqlite_handler(self, claim->wants[i].handler)) {
			continue;
		}
		postern__sqlite_each_id(self, id, claim->wants[i].handler) {
			r = r == POSTERN_OK ? find_ended(self, id, i, now, claim->max,
										  found, &claims.count, error)
								: r;
		}
	}
	if (r == POSTERN_OK && claims.count > 0) {
		r = take_all(self, claim, found, now, memory, &claims, error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < claim->want_count; i++) {
		if (!postern__sqlite_handler(self, claim->wants[i].handler)) {
			continue;
		}
		postern__sqlite_each_id(self, id, claim->wants[i].handler) {
			r = r == POSTERN_OK
						? next_end_of(self, id, now, &claims.next_due_ms, error)
						: r;
		}
	}
	*out = claims;
	return r;
}

/* Finds the delivery that a row is about: the one with its fence, if a handler
   and its alias have one each. The state is ANY if there is none. */
static int find_row(struct sqlite_store *self,
		const struct postern_pull_row *row, struct sqlite_delivery *out,
		struct postern_error *error) {
	*out = (struct sqlite_delivery){ .state = POSTERN_STATE_ANY };
	int r = POSTERN_OK;
	if (!postern__sqlite_handler(self, row->handler)) {
		return r;
	}
	postern__sqlite_each_id(self, id, row->handler) {
		struct sqlite_delivery found;
		r = r == POSTERN_OK ? postern__sqlite_delivery_find(self, row->seq, id,
									  &found, error)
							: r;
		if (r == POSTERN_OK && found.state != POSTERN_STATE_ANY &&
				(out->state == POSTERN_STATE_ANY ||
						found.fence == row->fence)) {
			*out = found;
		}
	}
	return r;
}

static bool has_lease(const struct sqlite_delivery *delivery,
		const struct postern_pull_row *row) {
	return delivery->state == POSTERN_STATE_LEASED &&
		   delivery->node == POSTERN_NODE_PULL && delivery->fence == row->fence;
}

static int read_message_of(struct sqlite_store *self,
		struct postern_pull_row *row, struct postern_memory *memory,
		struct postern_error *error) {
	bool ok = true;
	struct sqlite_query query;
	row->channel = 0;
	row->message_id = NULL;
	row->breaks = 0;
	postern__sqlite_query(&query, &self->writer,
			"SELECT m.channel, m.id, o.breaks FROM postern_message m"
			" LEFT JOIN postern_open o ON o.seq = m.seq AND o.handler = ?2"
			" WHERE m.seq = ?1");
	postern__sqlite_bind_int(&query, 1, row->seq);
	postern__sqlite_bind_int(&query, 2, row->stored);
	if (postern__sqlite_row(&query)) {
		row->channel = postern__sqlite_int(&query, 0);
		ok = postern__sqlite_text(query.statement, 1, memory, &row->message_id);
		row->breaks = (uint32_t)postern__sqlite_int(&query, 2);
	}
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int read_row(struct sqlite_store *self, struct postern_pull_row *row,
		int64_t now, struct postern_memory *memory,
		struct postern_error *error) {
	struct sqlite_delivery found;
	int r = find_row(self, row, &found, error);
	row->code = found.state == POSTERN_STATE_ANY ? POSTERN_E_NOTFOUND
				: has_lease(&found, row)         ? POSTERN_OK
												 : POSTERN_E_STALE;
	bool open = found.state == POSTERN_STATE_PENDING ||
				found.state == POSTERN_STATE_LEASED;
	row->ended = !open && found.fence == row->fence ? found.state
													: POSTERN_STATE_ANY;
	row->stored = found.handler;
	row->failures = found.failures;
	row->held_ms = now > found.since ? now - found.since : 0;
	return r == POSTERN_OK && row->code == POSTERN_OK
				   ? read_message_of(self, row, memory, error)
				   : r;
}

int postern__sqlite_read_pulls(struct postern_store *store,
		struct postern_pull_row *rows, size_t count,
		struct postern_memory *memory, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	int64_t now = postern__sqlite_now(self);
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		r = read_row(self, &rows[i], now, memory, error);
	}
	postern__sqlite_gate_leave(self);
	return r;
}

static int extend(struct sqlite_store *self, struct postern_pull_row *row,
		int64_t until, struct postern_error *error) {
	struct sqlite_delivery found;
	int r = find_row(self, row, &found, error);
	row->code = found.state == POSTERN_STATE_ANY ? POSTERN_E_NOTFOUND
				: has_lease(&found, row)         ? POSTERN_OK
												 : POSTERN_E_STALE;
	if (r != POSTERN_OK || row->code != POSTERN_OK) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET due_at = ?3"
			" WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, found.seq);
	postern__sqlite_bind_int(&query, 2, found.handler);
	postern__sqlite_bind_int(&query, 3, until);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_extend(struct postern_store *store,
		struct postern_pull_row *row, int64_t lease_ms, int64_t *until_ms_out,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	int64_t until = postern__sqlite_now(self) + lease_ms;
	r = postern__sqlite_begin(self, error);
	if (r == POSTERN_OK) {
		r = extend(self, row, until, error);
		postern__point("sqlite-pull.extended");
		r = postern__sqlite_finish(self, r, error);
	}
	postern__sqlite_gate_leave(self);
	if (r == POSTERN_OK && row->code == POSTERN_OK) {
		*until_ms_out = until;
	}
	return r;
}
