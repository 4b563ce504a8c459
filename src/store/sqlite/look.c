/* SPDX-License-Identifier: MIT */

/*
 * Reading: list, get and find, on the read-only connection, each in one
 * snapshot.
 */

#include <stdlib.h>

#include "base/fail.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

static int fill_page(struct sqlite_listing *listing, size_t limit,
		struct postern_memory *memory, struct postern_page *page,
		struct postern_error *error) {
	for (;;) {
		sqlite3_stmt *statement;
		int r = postern__sqlite_listing_next(listing, &statement, error);
		if (r != POSTERN_OK || !statement) {
			return r;
		}
		if (page->count == limit) {
			page->more = true;
			return POSTERN_OK;
		}
		if (!postern__sqlite_listing_read(statement, memory,
					&page->rows[page->count])) {
			return postern__sqlite_no_memory(error);
		}
		page->last_seq = page->rows[page->count].seq;
		page->last_handler =
				sqlite3_column_int64(statement, SQLITE_ROW_HANDLER);
		page->count++;
	}
}

int postern__sqlite_list(struct postern_store *store,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	size_t limit = query->filter->limit;
	struct postern_page page = {
		.rows = postern_memory_alloc(memory,
				limit * sizeof(struct postern_row)),
	};
	if (!page.rows) {
		return postern__sqlite_no_memory(error);
	}
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_listing listing;
	r = postern__sqlite_listing_begin(&listing, &self->reader,
			SQLITE_LISTING_ROWS, query, ~0u, error);
	if (r == POSTERN_OK) {
		r = fill_page(&listing, limit, memory, &page, error);
		postern__sqlite_listing_end(&listing);
	}
	postern__sqlite_read_end(self);
	if (r == POSTERN_OK) {
		*out = page;
	}
	return r;
}

static int read_message(struct sqlite_store *self,
		struct postern_memory *memory, struct postern_detail *detail,
		struct postern_error *error) {
	int r = POSTERN_OK;
	bool found = false;
	struct postern_message *message =
			postern_memory_alloc(memory, sizeof(*message));
	detail->message = message;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT c.name, d.duplicates, d.duplicate_at, d.conflicts,"
			" " SQLITE_MESSAGE_COLUMNS " FROM postern_message m"
			" CROSS JOIN postern_channel c ON c.id = m.channel"
			" LEFT JOIN postern_duplicate d ON d.seq = m.seq"
			" WHERE m.seq = ?1");
	postern__sqlite_bind_int(&query, 1, detail->seq);
	if (postern__sqlite_row(&query)) {
		found = true;
		detail->duplicate_count = (uint64_t)postern__sqlite_int(&query, 1);
		detail->duplicate_at_ms = postern__sqlite_int(&query, 2);
		detail->conflict_count = (uint64_t)postern__sqlite_int(&query, 3);
		r = message && postern__sqlite_text(query.statement, 0, memory,
							   &detail->channel)
					? postern__sqlite_message_read(&query, 4, memory, message,
							  error)
					: postern__sqlite_no_memory(error);
	}
	int ended = postern__sqlite_end(&query, r == POSTERN_OK ? error : NULL);
	r = r == POSTERN_OK ? ended : r;
	if (r == POSTERN_OK && !found) {
		r = postern__fail(error, POSTERN_E_NOTFOUND, "no message %lld",
				(long long)detail->seq);
	}
	return r;
}

static int read_conflicts(struct sqlite_store *self,
		struct postern_memory *memory, struct postern_detail *detail,
		struct postern_error *error) {
	bool ok = true;
	struct postern_conflict *conflicts = postern_memory_alloc(memory,
			POSTERN_CONFLICTS_KEPT * sizeof(struct postern_conflict));
	if (!conflicts) {
		return postern__sqlite_no_memory(error);
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT at, body_len, coalesce(transport, 'api')"
			" FROM postern_conflict WHERE seq = ?1 ORDER BY number LIMIT ?2");
	postern__sqlite_bind_int(&query, 1, detail->seq);
	postern__sqlite_bind_int(&query, 2, POSTERN_CONFLICTS_KEPT);
	while (ok && postern__sqlite_row(&query)) {
		struct postern_conflict *conflict = &conflicts[detail->conflict_kept++];
		conflict->at_ms = postern__sqlite_int(&query, 0);
		conflict->body_len = (size_t)postern__sqlite_int(&query, 1);
		ok = postern__sqlite_text(query.statement, 2, memory,
				&conflict->transport);
	}
	detail->conflicts = conflicts;
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int read_attempts(struct sqlite_store *self,
		struct postern_memory *memory, int64_t seq, int64_t handler,
		struct postern_delivery_detail *out, struct postern_error *error) {
	bool ok = true;
	struct postern_attempt *attempts = NULL;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT fence, started_at, finished_at, outcome, error"
			" FROM postern_attempt WHERE seq = ?1 AND handler = ?2"
			" ORDER BY number LIMIT ?3");
	postern__sqlite_bind_int(&query, 1, seq);
	postern__sqlite_bind_int(&query, 2, handler);
	postern__sqlite_bind_int(&query, 3, POSTERN_ATTEMPTS_KEPT);
	while (ok && postern__sqlite_row(&query)) {
		if (!attempts) {
			attempts = postern_memory_alloc(memory,
					POSTERN_ATTEMPTS_KEPT * sizeof(struct postern_attempt));
		}
		ok = attempts;
		if (ok) {
			struct postern_attempt *attempt = &attempts[out->attempt_count++];
			attempt->fence = (uint64_t)postern__sqlite_int(&query, 0);
			attempt->started_at_ms = postern__sqlite_int(&query, 1);
			attempt->finished_at_ms = postern__sqlite_int(&query, 2);
			ok = postern__sqlite_text(query.statement, 3, memory,
						 &attempt->outcome) &&
				 postern__sqlite_text(query.statement, 4, memory,
						 &attempt->error);
		}
	}
	out->attempts = attempts;
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int count_deliveries(struct sqlite_store *self, int64_t seq, size_t *out,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT (SELECT count(*) FROM postern_open WHERE seq = ?1) +"
			" (SELECT count(*) FROM postern_ledger WHERE seq = ?1) +"
			" (SELECT count(*) FROM postern_parked WHERE seq = ?1)");
	postern__sqlite_bind_int(&query, 1, seq);
	if (postern__sqlite_row(&query)) {
		*out = (size_t)postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

static int read_deliveries(struct sqlite_store *self,
		struct postern_memory *memory, struct postern_detail *detail,
		struct postern_error *error) {
	size_t count = 0;
	int r = count_deliveries(self, detail->seq, &count, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_delivery_detail *details = postern_memory_alloc(memory,
			count * sizeof(struct postern_delivery_detail));
	if (!details) {
		return postern__sqlite_no_memory(error);
	}
	struct postern_filter filter = { .seq = detail->seq };
	struct postern_query query = { .filter = &filter };
	struct sqlite_listing listing;
	r = postern__sqlite_listing_begin(&listing, &self->reader,
			SQLITE_LISTING_ROWS, &query, ~0u, error);
	if (r != POSTERN_OK) {
		return r;
	}
	bool complete = true;
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		sqlite3_stmt *statement;
		r = postern__sqlite_listing_next(&listing, &statement, error);
		if (r != POSTERN_OK || !statement) {
			break;
		}
		struct postern_row *row = &details[i].row;
		r = postern__sqlite_listing_read(statement, memory, row)
					? read_attempts(self, memory, detail->seq,
							  sqlite3_column_int64(statement,
									  SQLITE_ROW_HANDLER),
							  &details[i], error)
					: postern__sqlite_no_memory(error);
		complete = complete && row->finished_at_ms != 0;
		if (row->finished_at_ms > detail->completed_at_ms) {
			detail->completed_at_ms = row->finished_at_ms;
		}
		detail->delivery_count++;
	}
	postern__sqlite_listing_end(&listing);
	detail->completed_at_ms = complete ? detail->completed_at_ms : 0;
	detail->deliveries = details;
	return r;
}

int postern__sqlite_get(struct postern_store *store, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	struct postern_detail detail = { .seq = seq };
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = read_message(self, memory, &detail, error);
	if (r == POSTERN_OK) {
		r = read_conflicts(self, memory, &detail, error);
	}
	if (r == POSTERN_OK) {
		r = read_deliveries(self, memory, &detail, error);
	}
	postern__sqlite_read_end(self);
	if (r == POSTERN_OK) {
		*out = detail;
	}
	return r;
}

#define FIND_PLACE                                               \
	" WHERE (?4 IS NULL OR m.source = ?4 OR m.source IS NULL"    \
	" AND m.channel = (SELECT channel FROM postern_channel_name" \
	" WHERE name = ?4))"                                         \
	" AND (?5 IS NULL OR m.channel = (SELECT channel"            \
	" FROM postern_channel_name WHERE name = ?5))"

struct found {
	int64_t *seqs;
	size_t max;
	size_t count;
};

static int read_found(struct sqlite_query *query, const char *source,
		const char *channel, struct found *found, struct postern_error *error) {
	postern__sqlite_bind_text(query, 4, source);
	postern__sqlite_bind_text(query, 5, channel);
	while (found->count < found->max && postern__sqlite_row(query)) {
		found->seqs[found->count++] = postern__sqlite_int(query, 0);
	}
	return postern__sqlite_end(query, error);
}

int postern__sqlite_find(struct postern_store *store, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	uint8_t first[POSTERN__KEY_LEN];
	uint8_t last[POSTERN__KEY_LEN];
	postern__key_range(self->hash_key, id, first, last);
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct found found = { .max = max };
	found.seqs = seqs;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT DISTINCT m.seq FROM postern_seen s"
			" CROSS JOIN postern_message m ON m.seq = s.seq" FIND_PLACE
			" AND s.key BETWEEN ?1 AND ?2 ORDER BY m.seq DESC");
	postern__sqlite_bind_blob(&query, 1, first, sizeof first);
	postern__sqlite_bind_blob(&query, 2, last, sizeof last);
	r = read_found(&query, source, channel, &found, error);
	if (r == POSTERN_OK && found.count == 0) {
		/* The id is no key under another rule. */
		postern__sqlite_query(&query, &self->reader,
				"SELECT m.seq FROM postern_message m" FIND_PLACE
				" AND m.seq > (SELECT max(seq) FROM postern_message) - ?1"
				" AND m.id = ?2 ORDER BY m.seq DESC");
		postern__sqlite_bind_int(&query, 1, POSTERN__FIND_SCAN_MAX);
		postern__sqlite_bind_text(&query, 2, id);
		r = read_found(&query, source, channel, &found, error);
	}
	postern__sqlite_read_end(self);
	if (r == POSTERN_OK) {
		*count_out = found.count;
	}
	return r;
}
