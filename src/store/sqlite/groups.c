/* SPDX-License-Identifier: MIT */

/*
 * Groups of errors: their examples, and how many deliveries have which.
 *
 * A delivery has the number of its group; the text of the group is in an
 * example, of which there are at most POSTERN_GROUP_COUNT_MAX. An error that is
 * no example yet is kept as one if there is room; otherwise group 0 of its
 * handler is marked as used, and its deliveries are counted there.
 */

#include "base/fail.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

/* *last_at_out: -1 if there is no example. */
static int sample_find(struct sqlite_store *self, uint64_t group,
		int64_t handler, int64_t *last_at_out, struct postern_error *error) {
	struct sqlite_query query;
	*last_at_out = -1;
	postern__sqlite_query(&query, &self->writer,
			"SELECT last_at FROM postern_sample"
			" WHERE error_group = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, (int64_t)group);
	postern__sqlite_bind_int(&query, 2, handler);
	if (postern__sqlite_row(&query)) {
		*last_at_out = postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

/* Records that the group was used. A used group is not written for a while, so
   that many errors in a row cost one write. */
static int sample_use(struct sqlite_store *self, uint64_t group,
		int64_t handler, int64_t last_at, int64_t now,
		struct postern_error *error) {
	if (now - last_at < POSTERN__SAMPLE_STEP_MS) {
		return POSTERN_OK;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_sample SET last_at = ?3"
			" WHERE error_group = ?1 AND handler = ?2");
	postern__sqlite_bind_int(&query, 1, (int64_t)group);
	postern__sqlite_bind_int(&query, 2, handler);
	postern__sqlite_bind_int(&query, 3, now);
	return postern__sqlite_end(&query, error);
}

static int sample_insert(struct sqlite_store *self, uint64_t group,
		int64_t handler, const char *text, int64_t now,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT OR REPLACE INTO postern_sample VALUES"
			" (?1, ?2, ?3, ?3, ?4)");
	postern__sqlite_bind_int(&query, 1, (int64_t)group);
	postern__sqlite_bind_int(&query, 2, handler);
	postern__sqlite_bind_int(&query, 3, now);
	postern__sqlite_bind_text(&query, 4, text);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_samples_purge(struct sqlite_store *self, int64_t now,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_sample AS s WHERE handler <> 0"
			" AND NOT EXISTS (SELECT 1 FROM postern_open d"
			" WHERE d.error_group IS NOT NULL"
			" AND (s.error_group = 0 OR d.error_group = s.error_group))"
			" AND NOT EXISTS (SELECT 1 FROM postern_ledger d"
			" WHERE d.error_group IS NOT NULL"
			" AND (s.error_group = 0 OR d.error_group = s.error_group))");
	int r = postern__sqlite_end(&query, error);
	/* The row without a handler keeps the time. */
	return r == POSTERN_OK ? sample_insert(self, 0, 0, "", now, error) : r;
}

/* *room_out: whether there is room for one more. */
static int sample_room(struct sqlite_store *self, int64_t now, bool *room_out,
		struct postern_error *error) {
	static const char count[] =
			"SELECT count(*) FROM postern_sample WHERE error_group <> 0";
	int64_t used = 0;
	int64_t purged_at;
	int r = postern__sqlite_number(&self->writer, count, &used, error);
	*room_out = used < POSTERN_GROUP_COUNT_MAX;
	if (r != POSTERN_OK || *room_out) {
		return r;
	}
	r = sample_find(self, 0, 0, &purged_at, error);
	if (r != POSTERN_OK ||
			(purged_at >= 0 && purged_at <= now &&
					now - purged_at < POSTERN__SAMPLE_PURGE_MS)) {
		return r;
	}
	r = postern__sqlite_samples_purge(self, now, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_number(&self->writer, count, &used, error);
	}
	*room_out = used < POSTERN_GROUP_COUNT_MAX;
	return r;
}

int postern__sqlite_sample_keep(struct sqlite_store *self, uint64_t group,
		int64_t handler, const char *text, int64_t now,
		struct postern_error *error) {
	int64_t last_at;
	bool room = true;
	if (group == 0 || !text) {
		return POSTERN_OK;
	}
	int r = sample_find(self, group, handler, &last_at, error);
	if (r == POSTERN_OK && last_at < 0) {
		r = sample_room(self, now, &room, error);
	}
	if (r == POSTERN_OK && !room) {
		group = 0;
		r = sample_find(self, group, handler, &last_at, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	return last_at < 0 ? sample_insert(self, group, handler, text, now, error)
					   : sample_use(self, group, handler, last_at, now, error);
}

/* Adds the count of one group and stored handler to that of its owner. */
static int group_add(struct postern__tally *tally,
		struct sqlite_connection *connection, sqlite3_stmt *row,
		struct postern_error *error) {
	const char *key = (const char *)sqlite3_column_text(row, 3);
	struct postern_group group = {
		.handler = key ? key : "",
		.count = (uint64_t)sqlite3_column_int64(row, 2),
		.example = "",
	};
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, connection,
			"SELECT error_group, first_at, last_at, text FROM postern_sample"
			" WHERE error_group IN (?1, 0) AND handler = ?2"
			" ORDER BY error_group = 0 LIMIT 1");
	postern__sqlite_bind_int(&query, 1, sqlite3_column_int64(row, 0));
	postern__sqlite_bind_int(&query, 2, sqlite3_column_int64(row, 1));
	if (postern__sqlite_row(&query)) {
		const char *text =
				(const char *)sqlite3_column_text(query.statement, 3);
		group.group = (uint64_t)postern__sqlite_int(&query, 0);
		group.first_at_ms = postern__sqlite_int(&query, 1);
		group.last_at_ms = postern__sqlite_int(&query, 2);
		group.example = text ? text : "";
		ok = postern__tally_add(tally, &group);
	} else if (query.code == SQLITE_OK) {
		ok = postern__tally_add(tally, &group);
	}
	int r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int groups_read(struct sqlite_store *self,
		const struct postern_filter *filter, struct postern__tally *tally,
		struct postern_error *error) {
	struct postern_query query = { .filter = filter };
	struct sqlite_listing listing;
	int r = postern__sqlite_listing_begin(&listing, &self->reader,
			SQLITE_LISTING_GROUPS, &query,
			POSTERN__STATES_OPEN | POSTERN__STATE_BIT(POSTERN_STATE_POISONED),
			error);
	for (int i = 0; r == POSTERN_OK && i < SQLITE_LISTING_SOURCES; i++) {
		sqlite3_stmt *statement = listing.sources[i].statement;
		int code = SQLITE_DONE;
		while (r == POSTERN_OK && statement &&
				(code = sqlite3_step(statement)) == SQLITE_ROW) {
			r = group_add(tally, &self->reader, statement, error);
		}
		if (r == POSTERN_OK && code != SQLITE_DONE) {
			r = postern__sqlite_fail(&self->reader, code, error);
		}
	}
	postern__sqlite_listing_end(&listing);
	return r;
}

int postern__sqlite_groups(struct postern_store *store,
		const struct postern_filter *filter, struct postern_memory *memory,
		struct postern_group **out, size_t *count_out,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	struct postern__tally tally = { .memory = memory };
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = groups_read(self, filter, &tally, error);
	postern__sqlite_read_end(self);
	if (r == POSTERN_OK) {
		postern__tally_sort(&tally);
		*out = tally.groups;
		*count_out = tally.count;
	}
	return r;
}
