/* SPDX-License-Identifier: MIT */

/*
 * Reading one message with its deliveries in one snapshot of the database, and
 * finding messages by id.
 */

#include "base/fail.h"
#include "store/common.h"
#include "store/postgres/listing.h"

struct detail_work {
	int64_t seq;
	struct postern_memory *memory;
	struct postern_detail detail;
};

/* The columns before those of the message. */
enum { CHANNEL, DUPLICATES, DUPLICATE_AT, CONFLICTS, MESSAGE };

static int read_message(struct pg_connection *connection,
		struct detail_work *work, struct postern_error *error) {
	struct postern_detail *detail = &work->detail;
	struct postern_message *message =
			postern_memory_alloc(work->memory, sizeof(*message));
	detail->message = message;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, work->seq);
	int r = postern__pg_run(&query,
			"SELECT c.name, d.duplicates, d.duplicate_at, d.conflicts,"
			" " PG_MESSAGE_COLUMNS " FROM @message m"
			" JOIN @channel c ON c.id = m.channel"
			" LEFT JOIN @duplicate d ON d.seq = m.seq WHERE m.seq = $1",
			error);
	if (r == POSTERN_OK && postern__pg_rows(&query) == 0) {
		r = postern__fail(error, POSTERN_E_NOTFOUND, "no message %lld",
				(long long)work->seq);
	}
	if (r == POSTERN_OK) {
		detail->duplicate_count =
				(uint64_t)postern__pg_get(&query, 0, DUPLICATES);
		detail->duplicate_at_ms = postern__pg_get(&query, 0, DUPLICATE_AT);
		detail->conflict_count =
				(uint64_t)postern__pg_get(&query, 0, CONFLICTS);
		r = message && postern__pg_get_text(&query, 0, CHANNEL, work->memory,
							   &detail->channel)
					? postern__pg_message_read(&query, 0, MESSAGE, work->memory,
							  message, error)
					: postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

static bool copy_conflicts(const struct pg_query *query,
		struct detail_work *work) {
	int count = postern__pg_rows(query);
	struct postern_conflict *conflicts = postern_memory_alloc(work->memory,
			(size_t)count * sizeof(struct postern_conflict));
	bool ok = conflicts;
	for (int row = 0; ok && row < count; row++) {
		conflicts[row].at_ms = postern__pg_get(query, row, 0);
		conflicts[row].body_len = (size_t)postern__pg_get(query, row, 1);
		ok = postern__pg_get_text(query, row, 2, work->memory,
				&conflicts[row].transport);
	}
	work->detail.conflicts = conflicts;
	work->detail.conflict_kept = (size_t)count;
	return ok;
}

static int read_conflicts(struct pg_connection *connection,
		struct detail_work *work, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, work->seq);
	postern__pg_int8(&query, POSTERN_CONFLICTS_KEPT);
	int r = postern__pg_run(&query,
			"SELECT at, body_len, coalesce(transport, 'api') FROM @conflict"
			" WHERE seq = $1 ORDER BY number LIMIT $2",
			error);
	if (r == POSTERN_OK && !copy_conflicts(&query, work)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

static bool copy_attempts(const struct pg_query *query,
		struct postern_memory *memory, struct postern_attempt *out) {
	bool ok = true;
	for (int row = 0; ok && row < postern__pg_rows(query); row++) {
		out[row].fence = (uint64_t)postern__pg_get(query, row, 1);
		out[row].started_at_ms = postern__pg_get(query, row, 2);
		out[row].finished_at_ms = postern__pg_get(query, row, 3);
		ok = postern__pg_get_text(query, row, 4, memory, &out[row].outcome) &&
			 postern__pg_get_text(query, row, 5, memory, &out[row].error);
	}
	return ok;
}

/* Assign each delivery its attempts: both are in the order of handlers. */
static void assign_attempts(const struct pg_query *query,
		const struct postern_attempt *attempts,
		const struct pg_query *deliveries,
		struct postern_delivery_detail *details) {
	int row = 0;
	for (int i = 0; i < postern__pg_rows(deliveries); i++) {
		int64_t handler = postern__pg_get(deliveries, i, PG_ROW_HANDLER);
		while (row < postern__pg_rows(query) &&
				postern__pg_get(query, row, 0) < handler) {
			row++;
		}
		int first = row;
		while (row < postern__pg_rows(query) &&
				postern__pg_get(query, row, 0) == handler) {
			row++;
		}
		details[i].attempts = row > first ? &attempts[first] : NULL;
		details[i].attempt_count = (size_t)(row - first);
	}
}

static int read_attempts(struct pg_connection *connection,
		const struct detail_work *work, const struct pg_query *deliveries,
		struct postern_delivery_detail *details, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, work->seq);
	int r = postern__pg_run(&query,
			"SELECT handler, fence, started_at, finished_at, outcome, error"
			" FROM @attempt WHERE seq = $1 ORDER BY handler, id",
			error);
	if (r == POSTERN_OK) {
		struct postern_attempt *attempts = postern_memory_alloc(work->memory,
				(size_t)postern__pg_rows(&query) *
						sizeof(struct postern_attempt));
		if (attempts && copy_attempts(&query, work->memory, attempts)) {
			assign_attempts(&query, attempts, deliveries, details);
		} else {
			r = postern__pg_no_memory(error);
		}
	}
	postern__pg_end(&query);
	return r;
}

static bool copy_deliveries(const struct pg_query *query,
		struct detail_work *work, struct postern_delivery_detail *out) {
	struct postern_detail *detail = &work->detail;
	int count = postern__pg_rows(query);
	bool complete = true;
	for (int i = 0; i < count; i++) {
		struct postern_row *row = &out[i].row;
		if (!postern__pg_listing_read(query, i, work->memory, row)) {
			return false;
		}
		complete = complete && row->finished_at_ms != 0;
		if (row->finished_at_ms > detail->completed_at_ms) {
			detail->completed_at_ms = row->finished_at_ms;
		}
	}
	detail->completed_at_ms = complete ? detail->completed_at_ms : 0;
	detail->deliveries = out;
	detail->delivery_count = (size_t)count;
	return true;
}

static int read_deliveries(struct pg_connection *connection,
		struct detail_work *work, struct postern_error *error) {
	struct postern_filter filter = { .seq = work->seq };
	struct postern_query of_message = { .filter = &filter };
	struct pg_listing listing = { .query = &of_message, .states = ~0u };
	struct pg_query query;
	int r = postern__pg_listing_run(&query, connection, &listing, error);
	if (r == POSTERN_OK) {
		struct postern_delivery_detail *details =
				postern_memory_alloc(work->memory,
						(size_t)postern__pg_rows(&query) *
								sizeof(struct postern_delivery_detail));
		if (!details || !copy_deliveries(&query, work, details)) {
			r = postern__pg_no_memory(error);
		} else {
			r = read_attempts(connection, work, &query, details, error);
		}
	}
	postern__pg_end(&query);
	return r;
}

static int read_detail(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct detail_work *work = context;
	(void)again;
	work->detail = (struct postern_detail){ .seq = work->seq };
	int r = postern__pg_begin_read(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = read_message(connection, work, error);
	if (r == POSTERN_OK) {
		r = read_conflicts(connection, work, error);
	}
	if (r == POSTERN_OK) {
		r = read_deliveries(connection, work, error);
	}
	return postern__pg_finish(connection, r, error);
}

int postern__pg_get_detail(struct postern_store *store, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error) {
	struct detail_work work = { .seq = seq, .memory = memory };
	int r = postern__pg_do(postern__pg_from_base(store), read_detail, &work,
			error);
	if (r == POSTERN_OK) {
		*out = work.detail;
	}
	return r;
}

struct find_work {
	const char *id;
	const char *source;
	const char *channel;
	int64_t *seqs;
	size_t max;
	size_t count;
};

static int find_by(struct pg_connection *connection, struct find_work *work,
		const char *sql, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, postern__pg_id_word(connection->store, work->id));
	postern__pg_text(&query, work->id);
	postern__pg_text(&query, work->source);
	postern__pg_text(&query, work->channel);
	postern__pg_int8(&query,
			work->max < INT32_MAX ? (int64_t)work->max : INT32_MAX);
	postern__pg_int8(&query, POSTERN__FIND_SCAN_MAX);
	int r = postern__pg_run(&query, sql, error);
	work->count = r == POSTERN_OK ? (size_t)postern__pg_rows(&query) : 0;
	for (size_t i = 0; i < work->count; i++) {
		work->seqs[i] = postern__pg_get(&query, (int)i, 0);
	}
	postern__pg_end(&query);
	return r;
}

#define FIND_PLACE                                                      \
	" WHERE ($3 IS NULL OR m.source = $3 OR m.source IS NULL AND"       \
	" m.channel = (SELECT channel FROM @channel_name WHERE name = $3))" \
	" AND ($4 IS NULL OR m.channel ="                                   \
	" (SELECT channel FROM @channel_name WHERE name = $4))"

static int find_seqs(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct find_work *work = context;
	(void)again;
	int r = find_by(connection, work,
			"SELECT DISTINCT m.seq FROM @seen s"
			" JOIN @message m ON m.seq = s.seq" FIND_PLACE
			" AND s.k0 = $1 AND $2::text IS NOT NULL AND $6::bigint > 0"
			" ORDER BY m.seq DESC LIMIT $5",
			error);
	if (r != POSTERN_OK || work->count > 0) {
		return r;
	}
	/* The id is no key under another rule. */
	return find_by(connection, work,
			"SELECT m.seq FROM @message m" FIND_PLACE
			" AND m.seq > (SELECT max(seq) FROM @message) - $6"
			" AND m.id = $2 AND $1::bigint IS NOT NULL"
			" ORDER BY m.seq DESC LIMIT $5",
			error);
}

int postern__pg_find(struct postern_store *store, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error) {
	struct find_work work = {
		.id = id,
		.source = source,
		.channel = channel,
		.max = max,
	};
	work.seqs = seqs;
	int r = POSTERN_OK;
	if (postern__pg_is_text(id) && postern__pg_is_text(source) &&
			postern__pg_is_text(channel)) {
		r = postern__pg_do(postern__pg_from_base(store), find_seqs, &work,
				error);
	}
	if (r == POSTERN_OK) {
		*count_out = work.count;
	}
	return r;
}
