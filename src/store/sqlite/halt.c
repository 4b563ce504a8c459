/* SPDX-License-Identifier: MIT */

/*
 * Paused handlers and closed channels. Whether one is paused or closed is in
 * memory, for accepts and claims; reason and author are read from the file.
 */

#include "base/fail.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

void postern__sqlite_halt(const struct sqlite_query *query, int column,
		struct postern_halt *out) {
	sqlite3_stmt *statement = query->statement;
	*out = (struct postern_halt){
		.on = postern__sqlite_int(query, column) != 0,
		.at_ms = postern__sqlite_int(query, column + 1),
		.until_ms = postern__sqlite_int(query, column + 2),
		.reason = (const char *)sqlite3_column_text(statement, column + 3),
		.by = (const char *)sqlite3_column_text(statement, column + 4),
	};
}

/* Read the halt of one row; texts go to the memory. */
static int read_halt(struct sqlite_store *self, const char *sql, int64_t id,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer, sql);
	postern__sqlite_bind_int(&query, 1, id);
	if (postern__sqlite_row(&query)) {
		struct postern_halt stored;
		postern__sqlite_halt(&query, 0, &stored);
		ok = postern__halt_read(&stored, postern__sqlite_now(self), memory,
				out);
	}
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int read_pause(struct sqlite_store *self, int64_t handler,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	const struct sqlite_handler *owner = postern__sqlite_owner(self, handler);
	int64_t now = postern__sqlite_now(self);
	*out = (struct postern_halt){ 0 };
	if (!owner || !postern__halt_holds(&owner->pause, now)) {
		return POSTERN_OK;
	}
	if (!memory) {
		(void)postern__halt_read(&owner->pause, now, NULL, out);
		return POSTERN_OK;
	}
	return read_halt(self,
			"SELECT paused, paused_at, paused_until, pause_reason, pause_by"
			" FROM postern_handler WHERE id = ?1",
			self->handlers[handler].owner, memory, out, error);
}

/* In a file that is open for reading only, where no handler is loaded. Without
   the texts. */
static int read_only_pauses(struct sqlite_store *self, const int64_t *handlers,
		size_t count, struct postern_halt *out, struct postern_error *error) {
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		struct sqlite_query query;
		out[i] = (struct postern_halt){ 0 };
		postern__sqlite_query(&query, &self->reader,
				"SELECT o.paused, o.paused_at, o.paused_until, NULL, NULL"
				" FROM postern_handler h"
				" JOIN postern_handler o ON o.id = h.owner WHERE h.id = ?1");
		postern__sqlite_bind_int(&query, 1, handlers[i]);
		if (postern__sqlite_row(&query)) {
			struct postern_halt stored;
			postern__sqlite_halt(&query, 0, &stored);
			(void)postern__halt_read(&stored, postern__sqlite_now(self), NULL,
					&out[i]);
		}
		r = postern__sqlite_end(&query, error);
	}
	postern__sqlite_read_end(self);
	return r;
}

int postern__sqlite_read_pauses(struct postern_store *store,
		const int64_t *handlers, size_t count, struct postern_memory *memory,
		struct postern_halt *out, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	if (self->read_only) {
		return read_only_pauses(self, handlers, count, out, error);
	}
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		r = read_pause(self, handlers[i], memory, &out[i], error);
	}
	postern__sqlite_gate_leave(self);
	return r;
}

int postern__sqlite_read_closed(struct postern_store *store, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	*out = (struct postern_halt){ 0 };
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = read_halt(self,
			"SELECT closed, closed_at, 0, closed_reason, closed_by"
			" FROM postern_channel WHERE id = ?1",
			channel, memory, out, error);
	postern__sqlite_gate_leave(self);
	return r;
}
