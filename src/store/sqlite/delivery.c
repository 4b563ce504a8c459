/* SPDX-License-Identifier: MIT */

/*
 * Deliveries and their attempts: the changes that several operations make. An
 * open delivery is a row of postern_open, an ended one a row of postern_ledger;
 * never both. All functions run inside the caller's transaction.
 */

#include "store/sqlite/sqlite.h"

static int find_open(struct sqlite_store *self, struct sqlite_delivery *out,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT fence, failures, starts, crashes, suspect, solo, node,"
			" since FROM postern_open WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, out->seq);
	postern__sqlite_bind_int(&query, 2, out->handler);
	if (postern__sqlite_row(&query)) {
		out->fence = (uint64_t)postern__sqlite_int(&query, 0);
		out->failures = (uint32_t)postern__sqlite_int(&query, 1);
		out->starts = (uint32_t)postern__sqlite_int(&query, 2);
		out->crashes = (uint32_t)postern__sqlite_int(&query, 3);
		out->suspect = postern__sqlite_int(&query, 4);
		out->solo = postern__sqlite_int(&query, 5) != 0;
		out->node = (uint64_t)postern__sqlite_int(&query, 6);
		out->since = postern__sqlite_int(&query, 7);
		out->state = out->node ? POSTERN_STATE_LEASED : POSTERN_STATE_PENDING;
	}
	return postern__sqlite_end(&query, error);
}

static int find_ended(struct sqlite_store *self, struct sqlite_delivery *out,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT state, fence, failures, starts, crashes"
			" FROM postern_ledger WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, out->seq);
	postern__sqlite_bind_int(&query, 2, out->handler);
	if (postern__sqlite_row(&query)) {
		out->state = (enum postern_state)postern__sqlite_int(&query, 0);
		out->fence = (uint64_t)postern__sqlite_int(&query, 1);
		out->failures = (uint32_t)postern__sqlite_int(&query, 2);
		out->starts = (uint32_t)postern__sqlite_int(&query, 3);
		out->crashes = (uint32_t)postern__sqlite_int(&query, 4);
	}
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_delivery_find(struct sqlite_store *self, int64_t seq,
		int64_t handler, struct sqlite_delivery *out,
		struct postern_error *error) {
	*out = (struct sqlite_delivery){ .seq = seq, .handler = handler };
	int r = find_open(self, out, error);
	if (r == POSTERN_OK && out->state == POSTERN_STATE_ANY) {
		r = find_ended(self, out, error);
	}
	return r;
}

int postern__sqlite_delivery_insert(struct sqlite_store *self, int64_t seq,
		int64_t handler, uint64_t node, int64_t now,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_open VALUES"
			" (?1, ?2, ?3, 0, ?3, 0, 0, 0, ?4, ?5, ?5, NULL, NULL)");
	postern__sqlite_bind_int(&query, 1, seq);
	postern__sqlite_bind_int(&query, 2, handler);
	postern__sqlite_bind_int(&query, 3, node ? 1 : 0); /* fence and starts */
	if (node) {
		postern__sqlite_bind_int(&query, 4, (int64_t)node);
	} else {
		postern__sqlite_bind_null(&query, 4);
	}
	postern__sqlite_bind_int(&query, 5, now); /* due_at and since */
	postern__sqlite_count(self, handler,
			node ? POSTERN_STATE_LEASED : POSTERN_STATE_PENDING, 0, 1);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_delivery_reopen(struct sqlite_store *self,
		const struct sqlite_delivery *delivery, int64_t now,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_open SELECT seq, handler, fence, 0, starts, 0,"
			" 0, 0, NULL, ?3, ?3, NULL, NULL FROM postern_ledger"
			" WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, delivery->seq);
	postern__sqlite_bind_int(&query, 2, delivery->handler);
	postern__sqlite_bind_int(&query, 3, now);
	int r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK) {
		return r;
	}
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_ledger WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, delivery->seq);
	postern__sqlite_bind_int(&query, 2, delivery->handler);
	postern__sqlite_count(self, delivery->handler, delivery->state,
			delivery->failures, -1);
	postern__sqlite_count(self, delivery->handler, POSTERN_STATE_PENDING, 0, 1);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_delivery_close(struct sqlite_store *self,
		const struct sqlite_delivery *delivery, enum postern_state state,
		uint64_t group, int64_t now, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_ledger SELECT seq, handler, ?3, fence,"
			" failures, starts, ?4, ?5, NULL, ?6 FROM postern_open"
			" WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, delivery->seq);
	postern__sqlite_bind_int(&query, 2, delivery->handler);
	postern__sqlite_bind_int(&query, 3, state);
	postern__sqlite_bind_int(&query, 4, delivery->crashes);
	postern__sqlite_bind_int(&query, 5, now);
	postern__sqlite_bind_group(&query, 6, group);
	int r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK) {
		return r;
	}
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_open WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, delivery->seq);
	postern__sqlite_bind_int(&query, 2, delivery->handler);
	postern__sqlite_count(self, delivery->handler, delivery->state,
			delivery->failures, -1);
	postern__sqlite_count(self, delivery->handler, state, 0, 1);
	return postern__sqlite_end(&query, error);
}

static int last_attempt(struct sqlite_store *self, int64_t seq, int64_t handler,
		int64_t *out, struct postern_error *error) {
	struct sqlite_query query;
	*out = 0;
	postern__sqlite_query(&query, &self->writer,
			"SELECT max(number) FROM postern_attempt"
			" WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, seq);
	postern__sqlite_bind_int(&query, 2, handler);
	if (postern__sqlite_row(&query)) {
		*out = postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_attempt_insert(struct sqlite_store *self, int64_t seq,
		int64_t handler, uint64_t fence, int64_t started_at,
		int64_t finished_at, const char *outcome, const char *text,
		struct postern_error *error) {
	int64_t last;
	int r = last_attempt(self, seq, handler, &last, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_attempt VALUES"
			" (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
	postern__sqlite_bind_int(&query, 1, seq);
	postern__sqlite_bind_int(&query, 2, handler);
	postern__sqlite_bind_int(&query, 3, last + 1);
	postern__sqlite_bind_int(&query, 4, (int64_t)fence);
	postern__sqlite_bind_int(&query, 5, started_at);
	postern__sqlite_bind_int(&query, 6, finished_at);
	postern__sqlite_bind_text(&query, 7, outcome);
	postern__sqlite_bind_text(&query, 8, text);
	r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK || last < POSTERN_ATTEMPTS_KEPT) {
		return r;
	}
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_attempt"
			" WHERE seq = ?1 AND handler = ?2 AND number <= ?3");
	postern__sqlite_bind_int(&query, 1, seq);
	postern__sqlite_bind_int(&query, 2, handler);
	postern__sqlite_bind_int(&query, 3, last + 1 - POSTERN_ATTEMPTS_KEPT);
	return postern__sqlite_end(&query, error);
}
