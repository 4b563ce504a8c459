/* SPDX-License-Identifier: MIT */

/*
 * Settling: the end of one lease. Every statement names the node and the fence;
 * the number of changed rows shows whether the lease was still held.
 */

#include <assert.h>

#include "store/sqlite/sqlite.h"

static void bind_lease(struct sqlite_query *query, uint64_t node,
		const struct postern_settlement *settlement) {
	postern__sqlite_bind_int(query, 1, settlement->seq);
	postern__sqlite_bind_int(query, 2, settlement->handler);
	postern__sqlite_bind_int(query, 3, (int64_t)settlement->fence);
	postern__sqlite_bind_int(query, 4, (int64_t)node);
}

static int keep_attempt(struct sqlite_store *self,
		const struct postern_settlement *settlement, int64_t now,
		struct postern_error *error) {
	int r = postern__sqlite_attempt_insert(self, settlement->seq,
			settlement->handler, settlement->fence,
			now - settlement->lag_ms - settlement->duration_ms,
			now - settlement->lag_ms, settlement->outcome, settlement->error,
			error);
	return r == POSTERN_OK && settlement->to != POSTERN_SETTLE_DISCARDED
				   ? postern__sqlite_sample_keep(self, settlement->group,
							 settlement->handler, settlement->error,
							 now - settlement->lag_ms, error)
				   : r;
}

static enum postern_state end_state(const struct postern_settlement *from) {
	switch (from->to) {
	case POSTERN_SETTLE_DONE: return POSTERN_STATE_DONE;
	case POSTERN_SETTLE_POISONED: return POSTERN_STATE_POISONED;
	default: return POSTERN_STATE_DISCARDED;
	}
}

static uint64_t ended_group(const struct postern_settlement *settlement) {
	return settlement->to == POSTERN_SETTLE_POISONED ? settlement->group : 0;
}

static int insert_ended(struct sqlite_store *self, uint32_t starts,
		const struct postern_settlement *settlement, int64_t now,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_ledger VALUES"
			" (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9)");
	postern__sqlite_bind_int(&query, 1, settlement->seq);
	postern__sqlite_bind_int(&query, 2, settlement->handler);
	postern__sqlite_bind_int(&query, 3, end_state(settlement));
	postern__sqlite_bind_int(&query, 4, (int64_t)settlement->fence);
	postern__sqlite_bind_int(&query, 5, settlement->failures);
	postern__sqlite_bind_int(&query, 6, starts);
	postern__sqlite_bind_int(&query, 7, now - settlement->lag_ms);
	postern__sqlite_bind_int(&query, 8, settlement->duration_ms);
	postern__sqlite_bind_group(&query, 9, ended_group(settlement));
	return postern__sqlite_end(&query, error);
}

static int delete_open(struct sqlite_store *self,
		const struct postern_settlement *settlement,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_open WHERE seq = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, settlement->seq);
	postern__sqlite_bind_int(&query, 2, settlement->handler);
	return postern__sqlite_end(&query, error);
}

/* Updates the counts and keeps the attempt, after the row was moved to the
   ledger. */
static int ended_record(struct sqlite_store *self,
		struct postern_settlement *settlement, int64_t now,
		struct postern_error *error) {
	enum postern_state state = end_state(settlement);
	postern__sqlite_count(self, settlement->handler, POSTERN_STATE_LEASED, 0,
			-1);
	postern__sqlite_count(self, settlement->handler, state, 0, 1);
	settlement->code = POSTERN_OK;
	return state == POSTERN_STATE_DONE
				   ? POSTERN_OK
				   : keep_attempt(self, settlement, now, error);
}

/* Moves a delivery after its first run: its other columns are known, so the row
   need not be read. */
static int move_first(struct sqlite_store *self, uint64_t node,
		const struct postern_settlement *settlement, int64_t now,
		int *changes_out, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_open WHERE seq = ?1 AND handler = ?2"
			" AND fence = ?3 AND node = ?4");
	bind_lease(&query, node, settlement);
	int r = postern__sqlite_end_changes(&query, changes_out, error);
	return r == POSTERN_OK && *changes_out > 0
				   ? insert_ended(self, 1, settlement, now, error)
				   : r;
}

static int move_later(struct sqlite_store *self, uint64_t node,
		const struct postern_settlement *settlement, int64_t now,
		int *changes_out, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_ledger SELECT seq, handler, ?5, fence, ?6,"
			" starts, 0, ?7, ?8, iif(?5 = 4, coalesce(?9, error_group), NULL)"
			" FROM postern_open WHERE seq = ?1"
			" AND handler = ?2 AND fence = ?3 AND node = ?4");
	bind_lease(&query, node, settlement);
	postern__sqlite_bind_int(&query, 5, end_state(settlement));
	postern__sqlite_bind_int(&query, 6, settlement->failures);
	postern__sqlite_bind_int(&query, 7, now - settlement->lag_ms);
	postern__sqlite_bind_int(&query, 8, settlement->duration_ms);
	postern__sqlite_bind_group(&query, 9, ended_group(settlement));
	int r = postern__sqlite_end_changes(&query, changes_out, error);
	return r == POSTERN_OK && *changes_out > 0
				   ? delete_open(self, settlement, error)
				   : r;
}

static int settle_ended(struct sqlite_store *self, uint64_t node,
		struct postern_settlement *settlement, int64_t now,
		struct postern_error *error) {
	int changes = 0;
	/* The fence and the number of starts begin together, and a start that is
	   returned keeps its fence used: under fence 1 this is the first start. */
	int r = settlement->fence == 1
					? move_first(self, node, settlement, now, &changes, error)
					: move_later(self, node, settlement, now, &changes, error);
	if (r != POSTERN_OK || changes == 0) {
		settlement->code = POSTERN_E_STALE;
		return r;
	}
	return ended_record(self, settlement, now, error);
}

int postern__sqlite_settle_held(struct sqlite_store *self, uint32_t starts,
		bool deleted, struct postern_settlement *settlement, int64_t now,
		struct postern_error *error) {
	int r = insert_ended(self, starts, settlement, now, error);
	if (r == POSTERN_OK && !deleted) {
		r = delete_open(self, settlement, error);
	}
	return r == POSTERN_OK ? ended_record(self, settlement, now, error) : r;
}

void postern__sqlite_uncount_ended(struct sqlite_store *self, int64_t handler,
		bool done) {
	struct sqlite_handler *known = postern__sqlite_handler(self, handler);
	assert(known); /* its end was counted */
	known->changes.leased++;
	known->changes.done -= done;
	known->changes.discarded -= !done;
}

static int settle_pending(struct sqlite_store *self, uint64_t node,
		struct postern_settlement *settlement, int64_t now,
		struct postern_error *error) {
	struct sqlite_query query;
	int changes;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET node = NULL, since = ?7, due_at = ?5,"
			" failures = ?6, crashes = 0, suspect = 0, solo = 0,"
			" error_group = coalesce(?8, error_group),"
			" breaks = iif(?9, coalesce(breaks, 0) + 1, breaks)"
			" WHERE seq = ?1 AND handler = ?2 AND fence = ?3 AND node = ?4");
	bind_lease(&query, node, settlement);
	postern__sqlite_bind_int(&query, 5, now + settlement->delay_ms);
	postern__sqlite_bind_int(&query, 6, settlement->failures);
	postern__sqlite_bind_int(&query, 7, now);
	postern__sqlite_bind_group(&query, 8, settlement->group);
	postern__sqlite_bind_int(&query, 9, settlement->broke);
	int r = postern__sqlite_end_changes(&query, &changes, error);
	if (r != POSTERN_OK || changes == 0) {
		settlement->code = POSTERN_E_STALE;
		return r;
	}
	postern__sqlite_count(self, settlement->handler, POSTERN_STATE_LEASED, 0,
			-1);
	postern__sqlite_count(self, settlement->handler, POSTERN_STATE_PENDING,
			settlement->failures, 1);
	settlement->code = POSTERN_OK;
	return keep_attempt(self, settlement, now, error);
}

static int settle_returned(struct sqlite_store *self, uint64_t node,
		struct postern_settlement *settlement, int64_t now,
		struct postern_error *error) {
	struct sqlite_delivery delivery;
	int r = postern__sqlite_delivery_find(self, settlement->seq,
			settlement->handler, &delivery, error);
	settlement->code = POSTERN_E_STALE;
	bool held = delivery.state == POSTERN_STATE_LEASED &&
				delivery.node == node && delivery.fence == settlement->fence;
	if (r != POSTERN_OK || !held) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET node = NULL, since = ?5, due_at = ?5,"
			" starts = starts - 1, crashes = 0, suspect = 0, solo = 0"
			" WHERE seq = ?1 AND handler = ?2 AND fence = ?3 AND node = ?4");
	bind_lease(&query, node, settlement);
	postern__sqlite_bind_int(&query, 5, now);
	postern__sqlite_count(self, settlement->handler, POSTERN_STATE_LEASED, 0,
			-1);
	postern__sqlite_count(self, settlement->handler, POSTERN_STATE_PENDING,
			delivery.failures, 1);
	settlement->code = POSTERN_OK;
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_settle(struct sqlite_store *self, uint64_t node,
		struct postern_settlement *settlement, int64_t now,
		struct postern_error *error) {
	if (!postern__sqlite_handler(self, settlement->handler)) {
		settlement->code =
				POSTERN_E_STALE; /* an unknown handler has no lease */
		return POSTERN_OK;
	}
	switch (settlement->to) {
	case POSTERN_SETTLE_DONE:
	case POSTERN_SETTLE_POISONED:
	case POSTERN_SETTLE_DISCARDED:
		return settle_ended(self, node, settlement, now, error);
	case POSTERN_SETTLE_PENDING:
		return settle_pending(self, node, settlement, now, error);
	case POSTERN_SETTLE_RETURNED:
		return settle_returned(self, node, settlement, now, error);
	}
	assert(false); /* all values are handled above */
	return POSTERN_E_INVALID;
}
