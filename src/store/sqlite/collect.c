/* SPDX-License-Identifier: MIT */

/*
 * Collecting staged messages: removing them from postern_staged and accepting
 * them in one transaction. Only the owner of the file does so, and the caller
 * inside the gate only, so no row is found twice.
 *
 * The collector asks many times a second. The version of the file's data, which
 * SQLite keeps in its first page, changes with every commit of any process, so
 * nothing else is read as long as it is what it was when nothing was staged.
 *
 * A message that cannot be stored fails the transaction. It is repeated with
 * half of the messages, until one is left, which stays staged with the reason.
 */

#include "base/fail.h"
#include "base/point.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

struct staged_row {
	int64_t n;
	int64_t channel;
	struct postern_message message;
	/* Why the message cannot be accepted; code 0: it can. */
	struct postern_error refusal;
};

struct collect_work {
	struct postern_collection *collection;
	struct postern_memory *memory;
	struct staged_row *rows;
	size_t row_count;
	/* The rows of the accepts. */
	struct staged_row **accepted;
	size_t bytes;
};

/* With the reader's mutex. */
static int find_staged(struct sqlite_store *self,
		const struct postern_collection *collection, bool *found_out,
		struct postern_error *error) {
	int64_t version = 0;
	int r = postern__sqlite_number(&self->reader, "PRAGMA data_version",
			&version, error);
	*found_out = false;
	if (r != POSTERN_OK ||
			(self->nothing_staged && self->nothing_staged_at == version)) {
		return r;
	}
	for (size_t i = 0;
			r == POSTERN_OK && !*found_out && i < collection->channel_count;
			i++) {
		struct sqlite_query query;
		postern__sqlite_query(&query, &self->reader,
				"SELECT 1 FROM postern_staged WHERE channel = ?1"
				" AND refused IS NULL AND NOT"
				" (SELECT closed FROM postern_channel WHERE id = ?1) LIMIT 1");
		postern__sqlite_bind_int(&query, 1, collection->channels[i]);
		*found_out = postern__sqlite_row(&query);
		r = postern__sqlite_end(&query, error);
	}
	self->nothing_staged = r == POSTERN_OK && !*found_out;
	self->nothing_staged_at = version;
	return r;
}

/* Reads one row; a message that cannot be read is refused. */
static int row_read(struct sqlite_query *query, struct collect_work *work,
		struct postern_error *error) {
	struct staged_row *row = &work->rows[work->row_count];
	*row = (struct staged_row){
		.n = postern__sqlite_int(query, 0),
		.channel = postern__sqlite_int(query, 1),
	};
	int r = postern__sqlite_message_read(query, 2, work->memory, &row->message,
			error);
	if (r == POSTERN_E_CORRUPT) {
		row->refusal = *error;
		row->refusal.code = r;
		r = POSTERN_OK;
	}
	if (r == POSTERN_OK) {
		work->bytes += row->message.body_len;
		work->row_count++;
	}
	return r;
}

static int channel_read(struct sqlite_store *self, int64_t channel,
		struct collect_work *work, struct postern_error *error) {
	const struct postern_collection *collection = work->collection;
	int r = POSTERN_OK;
	struct sqlite_query query;
	if (self->channels[channel].closed) {
		return POSTERN_OK;
	}
	postern__sqlite_query(&query, &self->writer,
			"SELECT m.n, m.channel, m.id,"
			" coalesce(m.source, c.first_name, c.name), m.type, m.subject,"
			" m.time, m.content_type, m.correlation_id, m.traceparent,"
			" 'publish', m.headers, m.body, 0"
			" FROM postern_staged m JOIN postern_channel c ON c.id = m.channel"
			" WHERE m.channel = ?1 AND m.refused IS NULL ORDER BY m.n");
	postern__sqlite_bind_int(&query, 1, channel);
	while (r == POSTERN_OK && work->row_count < collection->max &&
			work->bytes <= collection->bytes_max &&
			postern__sqlite_row(&query)) {
		r = row_read(&query, work, error);
	}
	struct postern_error ending = { 0 };
	int ended = postern__sqlite_end(&query, &ending);
	if (r == POSTERN_OK && ended != POSTERN_OK) {
		*error = ending;
		r = ended;
	}
	return r;
}

/* Reads staged messages in the order of their channels, which begins with
   another one each time, so that a channel with many does not hold up the
   others. */
static int rows_read(struct sqlite_store *self, struct collect_work *work,
		struct postern_error *error) {
	const struct postern_collection *collection = work->collection;
	size_t count = collection->channel_count;
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		int64_t channel = collection->channels[(self->collected + i) % count];
		if (postern__sqlite_channel(self, channel)) {
			r = channel_read(self, channel, work, error);
		}
	}
	self->collected++;
	work->collection->more = work->row_count == collection->max ||
							 work->bytes > collection->bytes_max;
	return r;
}

/* Has each message routed. */
static int rows_place(struct collect_work *work, struct postern_error *error) {
	struct postern_collection *collection = work->collection;
	for (size_t i = 0; i < work->row_count; i++) {
		struct staged_row *row = &work->rows[i];
		if (row->refusal.code) {
			continue;
		}
		struct postern_error why = { 0 };
		int r = collection->place(collection->context, row->channel,
				&row->message, &collection->accepts[collection->accept_count],
				&why);
		if (r == POSTERN_E_INVALID || r == POSTERN_E_CORRUPT) {
			row->refusal = why;
			row->refusal.code = r;
		} else if (r != POSTERN_OK) {
			*error = why;
			return r;
		} else {
			work->accepted[collection->accept_count++] = row;
		}
	}
	return POSTERN_OK;
}

/* Records why a message stays staged, for people who read the table. */
static int rows_refuse(struct sqlite_store *self,
		const struct collect_work *work, struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < work->row_count; i++) {
		struct sqlite_query query;
		if (!work->rows[i].refusal.code) {
			continue;
		}
		postern__sqlite_query(&query, &self->writer,
				"UPDATE postern_staged SET refused = ?2 WHERE n = ?1");
		postern__sqlite_bind_int(&query, 1, work->rows[i].n);
		postern__sqlite_bind_text(&query, 2, work->rows[i].refusal.text);
		r = postern__sqlite_end(&query, error);
	}
	return r;
}

/* Removes the first `count` accepts from staging, but not those of a channel
   that is closed. */
static int rows_delete(struct sqlite_store *self,
		const struct collect_work *work, size_t count,
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		struct sqlite_query query;
		if (work->collection->accepts[i].code == POSTERN_E_UNAVAILABLE) {
			continue;
		}
		postern__sqlite_query(&query, &self->writer,
				"DELETE FROM postern_staged WHERE n = ?1");
		postern__sqlite_bind_int(&query, 1, work->accepted[i]->n);
		r = postern__sqlite_end(&query, error);
	}
	return r;
}

/* Accepts the first `count` of the routed messages, in the open transaction,
   and ends it. */
static int accept_first(struct sqlite_store *self, struct collect_work *work,
		size_t count, struct postern_error *error) {
	struct postern_collection *collection = work->collection;
	struct postern_batch batch = {
		.node = collection->node,
		.lock = collection->lock,
		.accepts = collection->accepts,
		.accept_count = count,
	};
	int64_t now = postern__sqlite_now(self);
	int r = rows_refuse(self, work, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_batch_apply(self, &batch, now, error);
	}
	postern__point("sqlite-collect.accepted");
	if (r == POSTERN_OK) {
		r = rows_delete(self, work, count, error);
	}
	postern__point("sqlite-collect.removed");
	r = postern__sqlite_finish(self, r, error);
	if (r == POSTERN_OK) {
		postern__sqlite_batch_end(self, &batch);
	}
	return r;
}

/* Whether one of the messages may be the cause. */
static bool is_its_fault(int code) {
	return code == POSTERN_E_INVALID || code == POSTERN_E_CORRUPT;
}

/* After the transaction of `count` messages failed: tries fewer, or refuses the
   only one. The others stay staged. */
static int accept_fewer(struct sqlite_store *self, struct collect_work *work,
		size_t count, int code, struct postern_error *error) {
	struct postern_collection *collection = work->collection;
	while (is_its_fault(code) && count > 0) {
		if (count == 1) {
			work->accepted[0]->refusal = *error;
			work->accepted[0]->refusal.code = code;
		}
		count /= 2;
		code = postern__sqlite_begin(self, error);
		if (code == POSTERN_OK) {
			code = accept_first(self, work, count, error);
		}
	}
	for (size_t i = count; i < collection->accept_count; i++) {
		int refused = work->accepted[i]->refusal.code;
		collection->accepts[i].code = refused ? refused : POSTERN_E_BUSY;
	}
	collection->more = true;
	return code;
}

static int collect_inside(struct sqlite_store *self, struct collect_work *work,
		struct postern_error *error) {
	struct postern_collection *collection = work->collection;
	int r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = rows_read(self, work, error);
	postern__point("sqlite-collect.taken");
	if (r == POSTERN_OK) {
		r = rows_place(work, error);
	}
	if (r != POSTERN_OK || work->row_count == 0) {
		postern__sqlite_rollback(self);
		return r;
	}
	struct postern_error failure = { 0 };
	r = accept_first(self, work, collection->accept_count, &failure);
	if (is_its_fault(r) && collection->accept_count > 0) {
		r = accept_fewer(self, work, collection->accept_count, r, &failure);
	}
	if (r != POSTERN_OK) {
		*error = failure;
		return r;
	}
	for (size_t i = 0; i < work->row_count; i++) {
		collection->refused += work->rows[i].refusal.code != 0;
	}
	return POSTERN_OK;
}

static int collect_found(struct sqlite_store *self, struct collect_work *work,
		struct postern_error *error) {
	struct postern_collection *collection = work->collection;
	size_t max = collection->max;
	collection->accepts = postern_memory_alloc(work->memory,
			max * sizeof *collection->accepts);
	work->rows = postern_memory_alloc(work->memory, max * sizeof *work->rows);
	work->accepted = postern_memory_alloc(work->memory,
			max * sizeof(struct staged_row *));
	if (!collection->accepts || !work->rows || !work->accepted) {
		return postern__sqlite_no_memory(error);
	}
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = collect_inside(self, work, error);
	postern__sqlite_gate_leave(self);
	return r;
}

int postern__sqlite_collect(struct postern_store *store,
		struct postern_collection *collection, struct postern_memory *memory,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	struct postern_error failure = { 0 };
	struct collect_work work = { .collection = collection, .memory = memory };
	bool found = false;
	collection->accept_count = 0;
	collection->refused = 0;
	collection->more = false;
	int r = postern__sqlite_read_begin(self, &failure);
	if (r == POSTERN_OK) {
		r = find_staged(self, collection, &found, &failure);
		postern__sqlite_read_end(self);
	}
	if (r == POSTERN_OK && found) {
		r = collect_found(self, &work, &failure);
	}
	if (r != POSTERN_OK && error) {
		*error = failure;
	}
	return r;
}

static int read_stranded(struct sqlite_store *self, size_t max,
		struct postern_memory *memory, struct postern_stranded *items,
		size_t *count_out, struct postern_error *error) {
	size_t count = 0;
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT c.id, c.name, count(*) FROM postern_staged s"
			" JOIN postern_channel c ON c.id = s.channel"
			" WHERE s.refused IS NULL AND s.channel NOT IN"
			" (SELECT channel FROM postern_node_channel)"
			" GROUP BY c.id ORDER BY c.id");
	while (ok && count < max && postern__sqlite_row(&query)) {
		struct postern_stranded *item = &items[count++];
		item->channel = postern__sqlite_int(&query, 0);
		ok = postern__sqlite_text(query.statement, 1, memory, &item->name);
		item->count = (uint64_t)postern__sqlite_int(&query, 2);
	}
	int r = postern__sqlite_end(&query, error);
	*count_out = count;
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

int postern__sqlite_stranded(struct postern_store *store, size_t max,
		struct postern_memory *memory, struct postern_stranded **out,
		size_t *count_out, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	struct postern_stranded *items =
			postern_memory_alloc(memory, max * sizeof *items);
	if (!items) {
		return postern__sqlite_no_memory(error);
	}
	int r = postern__sqlite_read_begin(self, error);
	if (r == POSTERN_OK) {
		r = read_stranded(self, max, memory, items, count_out, error);
		postern__sqlite_read_end(self);
	}
	*out = items;
	return r;
}
