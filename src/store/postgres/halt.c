/* SPDX-License-Identifier: MIT */

/*
 * Paused handlers and closed channels. What an edit makes of one is decided in
 * store/halt.c; batches and claims read the result by themselves, so no node
 * acts on what it remembers.
 */

#include <assert.h>

#include "base/fail.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

bool postern__pg_halt(const struct pg_query *query, int row, int column,
		struct postern_memory *memory, struct postern_halt *out) {
	*out = (struct postern_halt){
		.on = postern__pg_get(query, row, column) != 0,
		.at_ms = postern__pg_get(query, row, column + 1),
		.until_ms = postern__pg_get(query, row, column + 2),
	};
	return !memory || (postern__pg_get_text(query, row, column + 3, memory,
							   &out->reason) &&
							  postern__pg_get_text(query, row, column + 4,
									  memory, &out->by));
}

static void add_halt(struct pg_query *query, const struct postern_halt *halt) {
	postern__pg_bool(query, halt->on);
	postern__pg_int8(query, halt->at_ms);
	postern__pg_int8(query, halt->until_ms);
	postern__pg_text(query, halt->reason);
	postern__pg_text(query, halt->by);
}

static int find_handler(struct pg_connection *connection,
		const struct postern_edit *edit, int64_t *id_out,
		struct postern_error *error) {
	bool found = false;
	int r = POSTERN_OK;
	if (postern__pg_is_text(edit->handler)) {
		struct pg_query query;
		postern__pg_query(&query, connection);
		postern__pg_text(&query, edit->handler);
		r = postern__pg_run(&query,
				"SELECT h.owner FROM @handler_key k"
				" JOIN @handler h ON h.id = k.handler WHERE k.key = $1",
				error);
		found = r == POSTERN_OK && postern__pg_rows(&query) > 0;
		if (found) {
			*id_out = postern__pg_get(&query, 0, 0);
		}
		postern__pg_end(&query);
	}
	return r != POSTERN_OK || found ? r
									: postern__fail(error, POSTERN_E_NOTFOUND,
											  "no handler '%s'", edit->handler);
}

/* The statement has one parameter, the id, and returns what postern__pg_halt()
   reads. */
static int read_halt(struct pg_connection *connection, const char *sql,
		int64_t id, struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, id);
	int r = postern__pg_run(&query, sql, error);
	if (r == POSTERN_OK && postern__pg_rows(&query) > 0 &&
			!postern__pg_halt(&query, 0, 0, memory, out)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

/* Notifies all nodes: they cache which handlers are paused. */
static int write_pause(struct pg_connection *connection, int64_t id,
		const struct postern_halt *pause, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, id);
	add_halt(&query, pause);
	int r = postern__pg_run(&query,
			"WITH changed AS (UPDATE @handler SET paused = $2, paused_at = $3,"
			" paused_until = $4, pause_reason = $5, pause_by = $6"
			" WHERE id = $1) SELECT pg_notify(@bell_1(), '')",
			error);
	postern__pg_end(&query);
	return r;
}

static int pause_handler(struct pg_connection *connection,
		struct postern_edit *edit, int64_t now, struct postern_memory *memory,
		struct postern_error *error) {
	int64_t id = 0;
	struct postern_halt stored = { 0 };
	struct postern_halt next;
	/* Keeps the key's handler from changing meanwhile, see enrol.c. */
	int r = postern__pg_exec(connection,
			"LOCK TABLE @handler IN ROW EXCLUSIVE MODE", error);
	if (r == POSTERN_OK) {
		r = find_handler(connection, edit, &id, error);
	}
	if (r == POSTERN_OK) {
		r = read_halt(connection,
				"SELECT paused, paused_at, paused_until, pause_reason, pause_by"
				" FROM @handler WHERE id = $1 FOR NO KEY UPDATE",
				id, memory, &stored, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	edit->count = postern__halt_edit(edit, &stored, now, &next);
	edit->until_ms = next.until_ms;
	return edit->count > 0 && !edit->dry_run
				   ? write_pause(connection, id, &next, error)
				   : POSTERN_OK;
}

int postern__pg_edit_handler(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	int64_t now;
	struct postern_memory *memory = postern_memory_create();
	(void)again;
	if (!memory) {
		return postern__pg_no_memory(error);
	}
	int r = postern__pg_begin_change(connection, &now, error);
	if (r == POSTERN_OK) {
		r = postern__pg_finish(connection,
				pause_handler(connection, context, now, memory, error), error);
	}
	postern_memory_destroy(memory);
	return r;
}

static int find_channel(struct pg_connection *connection, const char *name,
		struct postern_memory *memory, int64_t *id_out, int64_t *now_out,
		struct postern_halt *out, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			"SELECT id, coalesce($2, @now_ms()), closed, closed_at, 0,"
			" closed_reason, closed_by FROM @channel WHERE id ="
			" (SELECT channel FROM @channel_name WHERE name = $1)",
			error);
	if (r == POSTERN_OK && postern__pg_rows(&query) == 0) {
		r = postern__fail(error, POSTERN_E_NOTFOUND, "no channel '%s'", name);
	} else if (r == POSTERN_OK) {
		*id_out = postern__pg_get(&query, 0, 0);
		*now_out = postern__pg_get(&query, 0, 1);
		r = postern__pg_halt(&query, 0, 2, memory, out)
					? POSTERN_OK
					: postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

static int close_or_open(struct pg_connection *connection,
		struct postern_edit *edit, struct postern_memory *memory,
		struct postern_error *error) {
	int64_t id;
	int64_t now;
	struct postern_halt stored;
	struct postern_halt next;
	if (!postern__pg_is_text(edit->channel)) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "no channel '%s'",
				edit->channel);
	}
	int r = find_channel(connection, edit->channel, memory, &id, &now, &stored,
			error);
	if (r != POSTERN_OK) {
		return r;
	}
	edit->count = postern__halt_edit(edit, &stored, now, &next);
	if (edit->count == 0 || edit->dry_run) {
		return POSTERN_OK;
	}
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, id);
	add_halt(&query, &next);
	r = postern__pg_run(&query,
			"SELECT @close_channel_1($1::integer, $2, $3, $4, $5, $6)", error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_edit_channel(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct postern_memory *memory = postern_memory_create();
	(void)again;
	int r = memory ? close_or_open(connection, context, memory, error)
				   : postern__pg_no_memory(error);
	postern_memory_destroy(memory);
	return r;
}

struct reading {
	const int64_t *ids;
	size_t count;
	struct postern_memory *memory;
	struct postern_halt *out;
};

static int read_pauses(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct reading *reading = context;
	bool ok = true;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_array(&query, PG_INT4);
	for (size_t i = 0; i < reading->count; i++) {
		postern__pg_int4(&query, reading->ids[i]);
	}
	postern__pg_array_end(&query);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			"SELECT u.n, coalesce($2, @now_ms()), o.paused, o.paused_at,"
			" o.paused_until, o.pause_reason, o.pause_by"
			" FROM unnest($1) WITH ORDINALITY AS u (id, n)"
			" JOIN @handler h ON h.id = u.id"
			" JOIN @handler o ON o.id = h.owner WHERE o.paused",
			error);
	for (size_t i = 0; r == POSTERN_OK && i < reading->count; i++) {
		reading->out[i] = (struct postern_halt){ 0 };
	}
	for (int row = 0; r == POSTERN_OK && row < postern__pg_rows(&query);
			row++) {
		int64_t position = postern__pg_get(&query, row, 0);
		struct postern_halt stored;
		assert(position >= 1 && (size_t)position <= reading->count);
		ok = ok && postern__pg_halt(&query, row, 2, reading->memory, &stored) &&
			 postern__halt_read(&stored, postern__pg_get(&query, row, 1),
					 reading->memory, &reading->out[position - 1]);
	}
	postern__pg_end(&query);
	return ok ? r : postern__pg_no_memory(error);
}

int postern__pg_read_pauses(struct postern_store *store,
		const int64_t *handlers, size_t count, struct postern_memory *memory,
		struct postern_halt *out, struct postern_error *error) {
	struct reading reading = { handlers, count, memory, out };
	return postern__pg_do(postern__pg_from_base(store), read_pauses, &reading,
			error);
}

static int read_closed(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct reading *reading = context;
	struct postern_halt stored = { 0 };
	(void)again;
	int r = read_halt(connection,
			"SELECT closed, closed_at, 0, closed_reason, closed_by"
			" FROM @channel WHERE id = $1",
			reading->ids[0], reading->memory, &stored, error);
	return r == POSTERN_OK && !postern__halt_read(&stored, stored.at_ms,
									  reading->memory, reading->out)
				   ? postern__pg_no_memory(error)
				   : r;
}

int postern__pg_read_closed(struct postern_store *store, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	struct reading reading = { &channel, 1, memory, out };
	return postern__pg_do(postern__pg_from_base(store), read_closed, &reading,
			error);
}
