/* SPDX-License-Identifier: MIT */

/*
 * Changes that an operator makes: retry, discard, pause, resume.
 */

#include <stdlib.h>

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
			"UPDATE postern_ledger SET state = 5, finished_at = ?3"
			" WHERE seq = ?1 AND handler = ?2 AND state = 4");
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
			" (?1, 0, 5, 0, 0, 0, 0, ?2, NULL)");
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
				POSTERN_STATE_DISCARDED, postern__sqlite_now(self), error);
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

static int edit_find_many(struct sqlite_store *self,
		const struct postern_edit *edit, struct found *found,
		struct postern_error *error) {
	bool retrying = edit->kind == POSTERN_CHANGE_RETRY;
	unsigned states = POSTERN__STATE_BIT(POSTERN_STATE_PENDING) |
					  POSTERN__STATE_BIT(POSTERN_STATE_POISONED) |
					  POSTERN__STATE_BIT(retrying ? POSTERN_STATE_DISCARDED
												  : POSTERN_STATE_PARKED);
	struct postern_query query = { .filter = edit->filter };
	struct sqlite_listing listing;
	int r = postern__sqlite_listing_begin(&listing, &self->writer, &query,
			states, error);
	if (r != POSTERN_OK) {
		return r;
	}
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

static int edit_handler(struct sqlite_store *self, struct postern_edit *edit,
		uint64_t *count_out, struct postern_error *error) {
	int64_t id;
	int r = postern__sqlite_resolve(&self->writer, edit->handler, &id, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (id == 0) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no handler '%s'",
				edit->handler);
	}
	bool paused = edit->kind == POSTERN_CHANGE_PAUSE;
	*count_out = self->handlers[id].paused != paused;
	if (*count_out == 0 || edit->dry_run) {
		return POSTERN_OK;
	}
	r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_handler SET paused = ?2 WHERE id = ?1");
	postern__sqlite_bind_int(&query, 1, id);
	postern__sqlite_bind_int(&query, 2, paused);
	r = postern__sqlite_finish(self, postern__sqlite_end(&query, error), error);
	if (r == POSTERN_OK) {
		self->handlers[id].paused = paused;
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
	uint64_t count = 0;
	bool handler = edit->kind == POSTERN_CHANGE_PAUSE ||
				   edit->kind == POSTERN_CHANGE_RESUME;
	r = handler ? edit_handler(self, edit, &count, error)
				: edit_deliveries(self, edit, &count, error);
	postern__sqlite_gate_leave(self);
	if (r == POSTERN_OK) {
		edit->count = count;
	}
	return r;
}
