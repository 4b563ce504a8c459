/* SPDX-License-Identifier: MIT */

/*
 * Changes that an operator makes: retry, discard, pause, resume, close, open.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

static int sqlite_edit_check(const struct postern_edit *edit,
		const struct sqlite_delivery *delivery, struct postern_error *error) {
	bool retry = edit->kind == POSTERN_CHANGE_RETRY;
	long long seq = (long long)delivery->seq;
	switch (delivery->state) {
	case POSTERN_STATE_LEASED:
		return postern__fail(error, POSTERN_E_BUSY,
				"message %lld is being handled right now", seq);
	case POSTERN_STATE_DONE:
		return postern__fail(error, POSTERN_E_INVALID,
				"the delivery of message %lld is done: not %s", seq,
				retry ? "retried" : "discarded");
	default:
		if (retry && delivery->handler == 0) {
			return postern__fail(error, POSTERN_E_INVALID,
					"message %lld has no handler to retry it", seq);
		}
		return POSTERN_OK;
	}
}

/* A discarded delivery stays discarded: discarding it again succeeds and
   changes nothing. */
static bool is_needed(const struct postern_edit *edit,
		const struct sqlite_delivery *delivery) {
	return edit->kind == POSTERN_CHANGE_RETRY ||
		   delivery->state != POSTERN_STATE_DISCARDED;
}

static int delivery_retry(struct sqlite_store *self,
		const struct sqlite_delivery *delivery, struct postern_error *error) {
	int64_t now = postern__sqlite_now(self);
	if (delivery->state != POSTERN_STATE_PENDING) {
		return postern__sqlite_delivery_reopen(self, delivery, now, error);
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET due_at = ?3, since = ?3"
			" WHERE seq = ?1 AND handler = ?2 AND node IS NULL");
	postern__sqlite_bind_int(&query, 1, delivery->seq);
	postern__sqlite_bind_int(&query, 2, delivery->handler);
	postern__sqlite_bind_int(&query, 3, now);
	return postern__sqlite_end(&query, error);
}

static int discard_poisoned(struct sqlite_store *self,
		const struct sqlite_delivery *delivery, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_ledger SET state = 5, finished_at = ?3,"
			" error_group = NULL WHERE seq = ?1 AND handler = ?2 AND state = "
			"4");
	postern__sqlite_bind_int(&query, 1, delivery->seq);
	postern__sqlite_bind_int(&query, 2, delivery->handler);
	postern__sqlite_bind_int(&query, 3, postern__sqlite_now(self));
	postern__sqlite_count(self, delivery->handler, POSTERN_STATE_POISONED, 0,
			-1);
	postern__sqlite_count(self, delivery->handler, POSTERN_STATE_DISCARDED, 0,
			1);
	return postern__sqlite_end(&query, error);
}

/* The ledger gets a row with handler 0. */
static int discard_parked(struct sqlite_store *self, int64_t seq,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_ledger VALUES"
			" (?1, 0, 5, 0, 0, 0, 0, ?2, NULL, NULL)");
	postern__sqlite_bind_int(&query, 1, seq);
	postern__sqlite_bind_int(&query, 2, postern__sqlite_now(self));
	int r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK) {
		return r;
	}
	postern__sqlite_query(&query, &self->writer,
			"SELECT channel FROM postern_message WHERE seq = ?1");
	postern__sqlite_bind_int(&query, 1, seq);
	if (postern__sqlite_row(&query)) {
		struct sqlite_channel *channel =
				postern__sqlite_channel(self, postern__sqlite_int(&query, 0));
		if (channel) {
			channel->changes.parked--;
		}
	}
	r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK) {
		return r;
	}
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_parked WHERE seq = ?1");
	postern__sqlite_bind_int(&query, 1, seq);
	return postern__sqlite_end(&query, error);
}

static int edit_one(struct sqlite_store *self, const struct postern_edit *edit,
		const struct sqlite_delivery *delivery, struct postern_error *error) {
	if (edit->kind == POSTERN_CHANGE_RETRY) {
		return delivery_retry(self, delivery, error);
	}
	switch (delivery->state) {
	case POSTERN_STATE_PARKED:
		return discard_parked(self, delivery->seq, error);
	case POSTERN_STATE_POISONED: return discard_poisoned(self, delivery, error);
	default:
		return postern__sqlite_delivery_close(self, delivery,
				POSTERN_STATE_DISCARDED, 0, postern__sqlite_now(self), error);
	}
}

static int find_parked(struct sqlite_store *self, int64_t seq,
		struct sqlite_delivery *out, struct postern_error *error) {
	int r = postern__sqlite_delivery_find(self, seq, 0, out, error);
	if (r != POSTERN_OK || out->state != POSTERN_STATE_ANY) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT 1 FROM postern_parked WHERE seq = ?1");
	postern__sqlite_bind_int(&query, 1, seq);
	if (postern__sqlite_row(&query)) {
		out->state = POSTERN_STATE_PARKED;
	}
	return postern__sqlite_end(&query, error);
}

/* A handler has two deliveries of a message if the handler and its alias each
   had one before they were merged; this returns the one that can be edited. */
static int edit_find_one(struct sqlite_store *self,
		const struct postern_edit *edit, struct sqlite_delivery *out,
		struct postern_error *error) {
	if (edit->handler[0] == '\0') {
		return find_parked(self, edit->seq, out, error);
	}
	int64_t owner;
	int r = postern__sqlite_resolve(&self->writer, edit->handler, &owner,
			error);
	*out = (struct sqlite_delivery){ 0 };
	for (size_t i = 1; r == POSTERN_OK && owner && i <= self->handler_count;
			i++) {
		if (self->handlers[i].owner != owner) {
			continue;
		}
		struct sqlite_delivery found;
		r = postern__sqlite_delivery_find(self, edit->seq, (int64_t)i, &found,
				error);
		if (r == POSTERN_OK && found.state != POSTERN_STATE_ANY &&
				(out->state == POSTERN_STATE_ANY ||
						sqlite_edit_check(edit, out, NULL) != POSTERN_OK)) {
			*out = found;
		}
	}
	return r;
}

static int edit_single(struct sqlite_store *self, struct postern_edit *edit,
		uint64_t *count_out, struct postern_error *error) {
	struct sqlite_delivery delivery;
	int r = edit_find_one(self, edit, &delivery, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (delivery.state == POSTERN_STATE_ANY) {
		return postern__fail(error, POSTERN_E_NOTFOUND,
				"message %lld has no delivery to '%s'", (long long)edit->seq,
				edit->handler);
	}
	r = sqlite_edit_check(edit, &delivery, error);
	if (r != POSTERN_OK) {
		return r;
	}
	*count_out = is_needed(edit, &delivery);
	return *count_out > 0 && !edit->dry_run
				   ? edit_one(self, edit, &delivery, error)
				   : POSTERN_OK;
}

struct found {
	struct sqlite_delivery *items;
	size_t count;
	size_t cap;
};

static bool found_add(struct found *found, sqlite3_stmt *statement) {
	if (found->count == found->cap) {
		size_t cap = found->cap ? 2 * found->cap : 256;
		struct sqlite_delivery *items =
				realloc(found->items, cap * sizeof *items);
		if (!items) {
			return false;
		}
		found->items = items;
		found->cap = cap;
	}
	found->items[found->count++] = (struct sqlite_delivery){
		.seq = sqlite3_column_int64(statement, SQLITE_ROW_SEQ),
		.handler = sqlite3_column_int64(statement, SQLITE_ROW_HANDLER),
		.state = (enum postern_state)sqlite3_column_int(statement,
				SQLITE_ROW_STATE),
		.failures =
				(uint32_t)sqlite3_column_int64(statement, SQLITE_ROW_FAILURES),
		.crashes =
				(uint32_t)sqlite3_column_int64(statement, SQLITE_ROW_CRASHES),
	};
	return true;
}

static unsigned edit_states(const struct postern_edit *edit) {
	return POSTERN__STATE_BIT(POSTERN_STATE_PENDING) |
		   POSTERN__STATE_BIT(POSTERN_STATE_POISONED) |
		   POSTERN__STATE_BIT(edit->kind == POSTERN_CHANGE_RETRY
									  ? POSTERN_STATE_DISCARDED
									  : POSTERN_STATE_PARKED);
}

static int edit_count_all(struct sqlite_store *self, struct postern_edit *edit,
		struct postern_error *error) {
	struct postern_query query = { .filter = edit->filter };
	struct sqlite_listing listing;
	int r = postern__sqlite_listing_begin(&listing, &self->writer,
			SQLITE_LISTING_COUNT, &query, edit_states(edit), error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_listing_count(&listing, &edit->total, error);
	}
	postern__sqlite_listing_end(&listing);
	return r;
}

static int edit_find_many(struct sqlite_store *self,
		const struct postern_edit *edit, struct found *found,
		struct postern_error *error) {
	bool retrying = edit->kind == POSTERN_CHANGE_RETRY;
	unsigned states = edit_states(edit);
	struct postern_query query = { .filter = edit->filter };
	struct sqlite_listing listing;
	int r = postern__sqlite_listing_begin(&listing, &self->writer,
			SQLITE_LISTING_ROWS, &query, states, error);
	while (r == POSTERN_OK && found->count < edit->filter->limit) {
		sqlite3_stmt *statement;
		r = postern__sqlite_listing_next(&listing, &statement, error);
		if (r != POSTERN_OK || !statement) {
			break;
		}
		/* A discarded parked message has no handler to retry it. */
		if (retrying &&
				sqlite3_column_int64(statement, SQLITE_ROW_HANDLER) == 0) {
			continue;
		}
		if (!found_add(found, statement)) {
			r = postern__sqlite_no_memory(error);
		}
	}
	postern__sqlite_listing_end(&listing);
	return r;
}

static int edit_many(struct sqlite_store *self, struct postern_edit *edit,
		uint64_t *count_out, struct postern_error *error) {
	struct found found = { 0 };
	int r = edit_find_many(self, edit, &found, error);
	edit->total = found.count;
	if (r == POSTERN_OK && found.count == edit->filter->limit) {
		r = edit_count_all(self, edit, error);
	}
	for (size_t i = 0; r == POSTERN_OK && !edit->dry_run && i < found.count;
			i++) {
		r = edit_one(self, edit, &found.items[i], error);
	}
	*count_out = found.count;
	free(found.items);
	return r;
}

static int edit_deliveries(struct sqlite_store *self, struct postern_edit *edit,
		uint64_t *count_out, struct postern_error *error) {
	int r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = edit->filter ? edit_many(self, edit, count_out, error)
					 : edit_single(self, edit, count_out, error);
	if (r == POSTERN_OK && (*count_out == 0 || edit->dry_run)) {
		postern__sqlite_rollback(self); /* nothing to write */
		return r;
	}
	return postern__sqlite_finish(self, r, error);
}

/* A row that can be paused or closed. The parameters of `update` are the id and
   the columns that postern__sqlite_halt() reads from `select`. */
struct halted {
	int64_t id;
	const char *select;
	const char *update;
};

static int write_halt(struct sqlite_store *self, const struct halted *row,
		const struct postern_halt *halt, struct postern_error *error) {
	int r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer, row->update);
	postern__sqlite_bind_int(&query, 1, row->id);
	postern__sqlite_bind_int(&query, 2, halt->on);
	postern__sqlite_bind_int(&query, 3, halt->at_ms);
	postern__sqlite_bind_int(&query, 4, halt->until_ms);
	postern__sqlite_bind_text(&query, 5, halt->reason);
	postern__sqlite_bind_text(&query, 6, halt->by);
	return postern__sqlite_finish(self, postern__sqlite_end(&query, error),
			error);
}

/* Pauses or resumes a handler, closes or opens a channel; *out: what was
   written. */
static int edit_halt(struct sqlite_store *self, struct postern_edit *edit,
		const struct halted *row, struct postern_halt *out,
		struct postern_error *error) {
	struct sqlite_query query;
	struct postern_halt stored = { 0 };
	postern__sqlite_query(&query, &self->writer, row->select);
	postern__sqlite_bind_int(&query, 1, row->id);
	if (postern__sqlite_row(&query)) {
		postern__sqlite_halt(&query, 0, &stored);
	}
	edit->count =
			postern__halt_edit(edit, &stored, postern__sqlite_now(self), out);
	int r = postern__sqlite_end(&query, error);
	edit->until_ms = out->until_ms;
	return r == POSTERN_OK && edit->count > 0 && !edit->dry_run
				   ? write_halt(self, row, out, error)
				   : r;
}

static int edit_handler(struct sqlite_store *self, struct postern_edit *edit,
		struct postern_error *error) {
	int64_t id;
	int r = postern__sqlite_resolve(&self->writer, edit->handler, &id, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (id == 0) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no handler '%s'",
				edit->handler);
	}
	const struct halted handler = {
		.id = id,
		.select = "SELECT paused, paused_at, paused_until, pause_reason,"
				  " pause_by FROM postern_handler WHERE id = ?1",
		.update = "UPDATE postern_handler SET paused = ?2, paused_at = ?3,"
				  " paused_until = ?4, pause_reason = ?5, pause_by = ?6"
				  " WHERE id = ?1",
	};
	struct postern_halt pause;
	r = edit_halt(self, edit, &handler, &pause, error);
	if (r == POSTERN_OK && edit->count > 0 && !edit->dry_run) {
		pause.reason = NULL;
		pause.by = NULL;
		self->handlers[id].pause = pause;
	}
	return r;
}

static int edit_channel(struct sqlite_store *self, struct postern_edit *edit,
		struct postern_error *error) {
	int64_t id = 0;
	int r = postern__sqlite_channel_find(self, edit->channel, &id, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (!postern__sqlite_channel(self, id)) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no channel '%s'",
				edit->channel);
	}
	const struct halted channel = {
		.id = id,
		.select = "SELECT closed, closed_at, 0, closed_reason, closed_by"
				  " FROM postern_channel WHERE id = ?1",
		.update = "UPDATE postern_channel SET closed = ?2, closed_at = ?3,"
				  " closed_reason = ?5, closed_by = ?6"
				  " WHERE id = ?1 AND ?4 = 0",
	};
	struct postern_halt closed;
	r = edit_halt(self, edit, &channel, &closed, error);
	if (r == POSTERN_OK && edit->count > 0 && !edit->dry_run) {
		self->channels[id].closed = closed.on;
	}
	return r;
}

int postern__sqlite_edit(struct postern_store *store, struct postern_edit *edit,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_edit done = *edit;
	done.count = 0;
	switch (edit->kind) {
	case POSTERN_CHANGE_PAUSE:
	case POSTERN_CHANGE_RESUME: r = edit_handler(self, &done, error); break;
	case POSTERN_CHANGE_CLOSE:
	case POSTERN_CHANGE_OPEN: r = edit_channel(self, &done, error); break;
	default: r = edit_deliveries(self, &done, &done.count, error); break;
	}
	postern__sqlite_gate_leave(self);
	if (r == POSTERN_OK) {
		*edit = done;
	}
	return r;
}
