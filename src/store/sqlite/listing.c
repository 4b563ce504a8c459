/* SPDX-License-Identifier: MIT */

/*
 * The iteration over deliveries that match a filter: newest message first, the
 * handlers of one message by stored id.
 *
 * Deliveries are in three tables: open ones, ended ones, parked messages. Each
 * is read by a statement of its own that returns rows in that order, and the
 * iteration returns the first of the three current rows. So the cost of a page
 * depends on its size and not on that of the store, unless a filter matches few
 * of many rows.
 */

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/json_text.h"
#include "base/pattern.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

#define SQL_LEN_MAX 8192
/* More than all ids that a filter may have, each byte escaped. */
#define IDS_LEN_MAX ((size_t)16 * 1024 * 1024)

enum { SOURCE_OPEN, SOURCE_LEDGER, SOURCE_PARKED };

/* The newest error text among the kept attempts. */
#define LAST_ERROR                                               \
	"(SELECT a.error FROM postern_attempt a WHERE a.seq = d.seq" \
	" AND a.handler = d.handler AND a.error IS NOT NULL"         \
	" ORDER BY a.number DESC LIMIT 1)"

#define MESSAGE_COLUMNS                                                       \
	" h.key, m.id, coalesce(m.source, c.first_name, c.name), m.type, c.name," \
	" m.received_at"

/* A message with one of the ids, which are a JSON array. */
#define ANY_ID                                                        \
	" AND m.id IN (SELECT value FROM json_each(:ids)) AND d.seq IN (" \
	"SELECT e.seq FROM json_each(:ids) j CROSS JOIN postern_seen e"   \
	" ON e.key BETWEEN postern_key(j.value, 0) AND postern_key(j.value, 1))"

#define MESSAGE_JOINS                                  \
	" LEFT JOIN postern_handler s ON s.id = d.handler" \
	" LEFT JOIN postern_handler h ON h.id = s.owner"   \
	" LEFT JOIN postern_message m ON m.seq = d.seq"    \
	" LEFT JOIN postern_channel c ON c.id = m.channel"

static const char *const columns[SQLITE_LISTING_SOURCES] = {
	[SOURCE_OPEN] = "SELECT d.seq, d.handler, iif(d.node IS NULL, 1, 2),"
					" d.fence, d.failures, d.starts, d.crashes,"
					" iif(d.node IS NULL OR d.node = -1, d.due_at, 0),"
					" iif(d.node IS NULL, 0, d.since), 0, d.node, " LAST_ERROR
					", d.error_group," MESSAGE_COLUMNS,
	[SOURCE_LEDGER] =
			"SELECT d.seq, d.handler, d.state, d.fence, d.failures,"
			" d.starts, d.crashes, 0, 0, d.finished_at, 0, " LAST_ERROR
			", d.error_group," MESSAGE_COLUMNS,
	[SOURCE_PARKED] =
			"SELECT d.seq, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL,"
			" NULL, m.id, coalesce(m.source, c.first_name, c.name), m.type,"
			" c.name, m.received_at",
};

static const char *const tables[SQLITE_LISTING_SOURCES] = {
	[SOURCE_OPEN] = " FROM postern_open d" MESSAGE_JOINS,
	[SOURCE_LEDGER] = " FROM postern_ledger d" MESSAGE_JOINS,
	[SOURCE_PARKED] = " FROM postern_parked d"
					  " LEFT JOIN postern_message m ON m.seq = d.seq"
					  " LEFT JOIN postern_channel c ON c.id = m.channel",
};

static const unsigned states_of[SQLITE_LISTING_SOURCES] = {
	[SOURCE_OPEN] = POSTERN__STATES_OPEN,
	[SOURCE_LEDGER] = POSTERN__STATES_ENDED,
	[SOURCE_PARKED] = POSTERN__STATE_BIT(POSTERN_STATE_PARKED),
};

_Static_assert(POSTERN_STATE_PENDING == 1 && POSTERN_STATE_LEASED == 2 &&
					   POSTERN_STATE_PARKED == 6,
		"these numbers are in the SQL above");

static void add_states(struct postern__buf *sql, int source, unsigned states) {
	if (source == SOURCE_OPEN) {
		postern__sql_add_open_states(sql, states);
	} else if (source == SOURCE_LEDGER) {
		postern__sql_add_ended_states(sql, states);
	}
}

static void add_filter(struct postern__buf *sql, int source,
		const struct postern_query *query) {
	const struct postern_filter *filter = query->filter;
	const char *beyond = filter->oldest ? ">" : "<";
	if (query->after_seq > 0 && source == SOURCE_PARKED) {
		/* A parked row has handler 0, so in the same message it comes after
		   (:seq, :handler) only if :handler is negative. */
		postern__buf_printf(sql,
				" AND (d.seq %s :seq OR (d.seq = :seq AND :handler < 0))",
				beyond);
	} else if (query->after_seq > 0) {
		postern__buf_printf(sql,
				" AND d.seq %s= :seq"
				" AND (d.seq %s :seq OR d.handler > :handler)",
				beyond, beyond);
	}
	if (filter->error) {
		postern__buf_append_text(sql,
				source == SOURCE_PARKED ? " AND 0"
										: " AND postern_contains(" LAST_ERROR
										  ", :error)");
	}
	if (filter->group) {
		postern__buf_append_text(sql, source == SOURCE_PARKED
											  ? " AND 0"
											  : " AND d.error_group = :group");
	}
	if (filter->message_id_count > 0) {
		postern__buf_append_text(sql, ANY_ID);
	}
	if (filter->seq) {
		postern__buf_append_text(sql, " AND d.seq = :only");
	}
	if (filter->state == POSTERN_STATE_RETRYING) {
		postern__buf_append_text(sql, " AND d.failures > 0");
	}
	if (filter->handler) {
		postern__buf_append_text(sql, " AND s.owner = :owner");
	}
	if (filter->channel) {
		postern__buf_append_text(sql,
				" AND m.channel = (SELECT channel FROM postern_channel_name"
				" WHERE name = :channel)");
	}
	if (filter->since_ms) {
		postern__buf_append_text(sql, " AND m.received_at >= :since");
	}
	if (filter->until_ms) {
		postern__buf_append_text(sql, " AND m.received_at < :until");
	}
	if (filter->message_id) {
		postern__buf_append_text(sql,
				" AND m.id = :id AND d.seq IN (SELECT seq FROM postern_seen"
				" WHERE key BETWEEN :first AND :last)");
	}
	if (filter->type) {
		postern__buf_append_text(sql, " AND postern_match(:type, m.type)");
	}
	if (filter->source) {
		postern__buf_append_text(sql,
				" AND (m.source = :source OR m.source IS NULL AND m.channel ="
				" (SELECT channel FROM postern_channel_name"
				" WHERE name = :source))");
	}
}

/* The bind_ functions do nothing if the statement has no such parameter. */
static void bind_int(sqlite3_stmt *statement, const char *name, int64_t value,
		int *code) {
	int index = sqlite3_bind_parameter_index(statement, name);
	if (index > 0 && *code == SQLITE_OK) {
		*code = sqlite3_bind_int64(statement, index, value);
	}
}

static void bind_text(sqlite3_stmt *statement, const char *name,
		const char *text, int *code) {
	int index = sqlite3_bind_parameter_index(statement, name);
	if (index > 0 && *code == SQLITE_OK) {
		*code = sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC);
	}
}

static void bind_key(sqlite3_stmt *statement, const char *name,
		const uint8_t key[POSTERN__KEY_LEN], int *code) {
	int index = sqlite3_bind_parameter_index(statement, name);
	if (index > 0 && *code == SQLITE_OK) {
		*code = sqlite3_bind_blob(statement, index, key, POSTERN__KEY_LEN,
				SQLITE_TRANSIENT);
	}
}

static int bind_all(struct sqlite_listing *listing, sqlite3_stmt *statement,
		const struct postern_query *query, int64_t owner,
		struct postern_error *error) {
	const struct postern_filter *filter = query->filter;
	int code = SQLITE_OK;
	bind_int(statement, ":seq", query->after_seq, &code);
	bind_int(statement, ":handler", query->after_handler, &code);
	bind_int(statement, ":only", filter->seq, &code);
	bind_int(statement, ":owner", owner, &code);
	bind_int(statement, ":since", filter->since_ms, &code);
	bind_int(statement, ":until", filter->until_ms, &code);
	bind_text(statement, ":channel", filter->channel, &code);
	bind_text(statement, ":source", filter->source, &code);
	bind_text(statement, ":id", filter->message_id, &code);
	bind_text(statement, ":type", filter->type, &code);
	bind_text(statement, ":error", filter->error, &code);
	bind_int(statement, ":group", (int64_t)filter->group, &code);
	if (filter->message_id_count > 0) {
		bind_text(statement, ":ids", postern__buf_text(&listing->ids), &code);
	}
	if (filter->message_id) {
		uint8_t first[POSTERN__KEY_LEN];
		uint8_t last[POSTERN__KEY_LEN];
		postern__key_range(listing->connection->store->hash_key,
				filter->message_id, first, last);
		bind_key(statement, ":first", first, &code);
		bind_key(statement, ":last", last, &code);
	}
	return code == SQLITE_OK
				   ? POSTERN_OK
				   : postern__sqlite_fail(listing->connection, code, error);
}

/* Moves a source to its next row. */
static int source_advance(struct sqlite_listing *listing, int source,
		struct postern_error *error) {
	sqlite3_stmt *statement = listing->sources[source].statement;
	int code = sqlite3_step(statement);
	if (code == SQLITE_ROW) {
		listing->sources[source].seq =
				sqlite3_column_int64(statement, SQLITE_ROW_SEQ);
		listing->sources[source].handler =
				sqlite3_column_int64(statement, SQLITE_ROW_HANDLER);
		return POSTERN_OK;
	}
	int r = code == SQLITE_DONE
					? POSTERN_OK
					: postern__sqlite_fail(listing->connection, code, error);
	(void)sqlite3_finalize(statement); /* repeats the code */
	listing->sources[source].statement = NULL;
	return r;
}

static void add_select(struct postern__buf *sql,
		const struct sqlite_listing *listing, int source,
		const struct postern_query *query, unsigned states) {
	static const char *const begins[] = {
		[SQLITE_LISTING_COUNT] = "SELECT count(*)",
		[SQLITE_LISTING_GROUPS] =
				"SELECT d.error_group, d.handler, count(*), h.key",
	};
	bool rows = listing->kind == SQLITE_LISTING_ROWS;
	postern__buf_append_text(sql,
			rows ? columns[source] : begins[listing->kind]);
	postern__buf_append_text(sql, tables[source]);
	postern__buf_append_text(sql, " WHERE 1");
	add_states(sql, source, states);
	add_filter(sql, source, query);
	if (listing->kind == SQLITE_LISTING_COUNT && source == SOURCE_LEDGER) {
		/* A parked message that was discarded cannot be edited. */
		postern__buf_append_text(sql, " AND d.handler <> 0");
	} else if (listing->kind == SQLITE_LISTING_GROUPS) {
		postern__buf_append_text(sql, " AND d.error_group IS NOT NULL"
									  " GROUP BY d.error_group, d.handler");
	} else if (rows) {
		postern__buf_append_text(sql, query->filter->oldest
											  ? " ORDER BY d.seq"
											  : " ORDER BY d.seq DESC");
		postern__buf_append_text(sql,
				source == SOURCE_PARKED ? "" : ", d.handler");
	}
}

static int source_begin(struct sqlite_listing *listing, int source,
		const struct postern_query *query, unsigned states, int64_t owner,
		struct postern_error *error) {
	struct postern__buf sql;
	postern__buf_init(&sql, SQL_LEN_MAX);
	add_select(&sql, listing, source, query, states);
	int r = postern__buf_check(&sql, "the query", error);
	if (r == POSTERN_OK) {
		int code = sqlite3_prepare_v2(listing->connection->db,
				postern__buf_text(&sql), -1,
				&listing->sources[source].statement, NULL);
		r = code == SQLITE_OK
					? bind_all(listing, listing->sources[source].statement,
							  query, owner, error)
					: postern__sqlite_fail(listing->connection, code, error);
	}
	postern__buf_finish(&sql);
	return r == POSTERN_OK && listing->kind == SQLITE_LISTING_ROWS
				   ? source_advance(listing, source, error)
				   : r;
}

/* The SQL function postern_match(pattern, type). */
static void sql_match(sqlite3_context *context, int count,
		sqlite3_value **values) {
	const char *texts[2];
	size_t lens[2];
	(void)count; /* declared with two */
	for (int i = 0; i < 2; i++) {
		texts[i] = (const char *)sqlite3_value_text(values[i]);
		lens[i] = (size_t)sqlite3_value_bytes(values[i]);
	}
	sqlite3_result_int(context, texts[0] && texts[1] &&
										postern__pattern_match(texts[0],
												lens[0], texts[1], lens[1]));
}

/* The SQL function postern_contains(error, text). */
static void sql_contains(sqlite3_context *context, int count,
		sqlite3_value **values) {
	(void)count; /* declared with two */
	const char *part = (const char *)sqlite3_value_text(values[1]);
	sqlite3_result_int(context,
			part && postern__error_contains((const char *)sqlite3_value_text(
													values[0]),
							part));
}

/* The SQL function postern_key(id, last): the first or last key of an id. */
static void sql_key(sqlite3_context *context, int count,
		sqlite3_value **values) {
	(void)count; /* declared with two */
	const struct sqlite_connection *connection = sqlite3_user_data(context);
	const char *id = (const char *)sqlite3_value_text(values[0]);
	uint8_t keys[2][POSTERN__KEY_LEN];
	if (!id) {
		sqlite3_result_null(context);
		return;
	}
	postern__key_range(connection->store->hash_key, id, keys[0], keys[1]);
	sqlite3_result_blob(context, keys[sqlite3_value_int(values[1]) != 0],
			POSTERN__KEY_LEN, SQLITE_TRANSIENT);
}

int postern__sqlite_listing_set_up(struct sqlite_connection *connection,
		struct postern_error *error) {
	static const struct {
		const char *name;
		void (*run)(sqlite3_context *context, int count,
				sqlite3_value **values);
	} functions[] = {
		{ "postern_match", sql_match },
		{ "postern_contains", sql_contains },
		{ "postern_key", sql_key },
	};
	int code = SQLITE_OK;
	for (size_t i = 0;
			code == SQLITE_OK && i < sizeof functions / sizeof functions[0];
			i++) {
		code = sqlite3_create_function_v2(connection->db, functions[i].name, 2,
				SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
				connection, functions[i].run, NULL, NULL, NULL);
	}
	return code == SQLITE_OK ? POSTERN_OK
							 : postern__sqlite_fail(connection, code, error);
}

/* The filter's ids as a JSON array. */
static int add_ids(struct postern__buf *json,
		const struct postern_filter *filter, struct postern_error *error) {
	postern__json_open(json, '[');
	for (size_t i = 0; i < filter->message_id_count; i++) {
		postern__json_text(json, filter->message_ids[i]);
	}
	postern__json_close(json, ']');
	return postern__buf_check(json, "the list of ids", error);
}

int postern__sqlite_listing_begin(struct sqlite_listing *listing,
		struct sqlite_connection *connection, enum sqlite_listing_kind kind,
		const struct postern_query *query, unsigned states,
		struct postern_error *error) {
	*listing = (struct sqlite_listing){
		.connection = connection,
		.kind = kind,
		.oldest = query->filter->oldest,
		.current = -1,
	};
	postern__buf_init(&listing->ids, IDS_LEN_MAX);
	int64_t owner = 0;
	int r = POSTERN_OK;
	states &= postern__filter_states(query->filter);
	if (query->filter->handler) {
		states &= ~POSTERN__STATE_BIT(
				POSTERN_STATE_PARKED); /* it has no handler */
		r = postern__sqlite_resolve(connection, query->filter->handler, &owner,
				error);
		if (r != POSTERN_OK || owner == 0) {
			return r;
		}
	}
	if (r == POSTERN_OK && query->filter->message_id_count > 0) {
		r = add_ids(&listing->ids, query->filter, error);
	}
	for (int i = 0; r == POSTERN_OK && i < SQLITE_LISTING_SOURCES; i++) {
		if (states & states_of[i]) {
			r = source_begin(listing, i, query, states, owner, error);
		}
	}
	if (r != POSTERN_OK) {
		postern__sqlite_listing_end(listing);
	}
	return r;
}

/* Whether the row of source a comes before that of source b. */
static bool is_before(const struct sqlite_listing *listing, int a, int b) {
	int64_t left = listing->sources[a].seq;
	int64_t right = listing->sources[b].seq;
	return left != right
				   ? (left > right) != listing->oldest
				   : listing->sources[a].handler < listing->sources[b].handler;
}

int postern__sqlite_listing_next(struct sqlite_listing *listing,
		sqlite3_stmt **statement_out, struct postern_error *error) {
	if (listing->current >= 0) {
		int r = source_advance(listing, listing->current, error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	int best = -1;
	for (int i = 0; i < SQLITE_LISTING_SOURCES; i++) {
		if (listing->sources[i].statement &&
				(best < 0 || is_before(listing, i, best))) {
			best = i;
		}
	}
	listing->current = best;
	*statement_out = best < 0 ? NULL : listing->sources[best].statement;
	return POSTERN_OK;
}

void postern__sqlite_listing_end(struct sqlite_listing *listing) {
	for (int i = 0; i < SQLITE_LISTING_SOURCES; i++) {
		(void)sqlite3_finalize(listing->sources[i].statement);
		listing->sources[i].statement = NULL;
	}
	postern__buf_finish(&listing->ids);
}

int postern__sqlite_listing_count(struct sqlite_listing *listing,
		uint64_t *count_out, struct postern_error *error) {
	*count_out = 0;
	for (int i = 0; i < SQLITE_LISTING_SOURCES; i++) {
		sqlite3_stmt *statement = listing->sources[i].statement;
		int code = statement ? sqlite3_step(statement) : SQLITE_ROW;
		if (code != SQLITE_ROW) {
			return postern__sqlite_fail(listing->connection, code, error);
		}
		*count_out +=
				statement ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
	}
	return POSTERN_OK;
}

bool postern__sqlite_listing_read(sqlite3_stmt *statement,
		struct postern_memory *memory, struct postern_row *out) {
	struct postern_row row = {
		.seq = sqlite3_column_int64(statement, SQLITE_ROW_SEQ),
		.state = (enum postern_state)sqlite3_column_int(statement,
				SQLITE_ROW_STATE),
		.failures =
				(uint32_t)sqlite3_column_int64(statement, SQLITE_ROW_FAILURES),
		.starts = (uint32_t)sqlite3_column_int64(statement, SQLITE_ROW_STARTS),
		.crashes =
				(uint32_t)sqlite3_column_int64(statement, SQLITE_ROW_CRASHES),
		.fence = (uint64_t)sqlite3_column_int64(statement, SQLITE_ROW_FENCE),
		.group = (uint64_t)sqlite3_column_int64(statement, SQLITE_ROW_GROUP),
		.received_at_ms =
				sqlite3_column_int64(statement, SQLITE_ROW_RECEIVED_AT),
		.next_at_ms = sqlite3_column_int64(statement, SQLITE_ROW_NEXT_AT),
		.leased_at_ms = sqlite3_column_int64(statement, SQLITE_ROW_LEASED_AT),
		.finished_at_ms =
				sqlite3_column_int64(statement, SQLITE_ROW_FINISHED_AT),
		.node = (uint64_t)sqlite3_column_int64(statement, SQLITE_ROW_NODE),
		.handler_id = sqlite3_column_int64(statement, SQLITE_ROW_HANDLER),
	};
	const struct {
		int column;
		const char **text;
		bool optional;
	} texts[] = {
		{ SQLITE_ROW_ID, &row.message_id, false },
		{ SQLITE_ROW_SOURCE, &row.source, false },
		{ SQLITE_ROW_CHANNEL, &row.channel, false },
		{ SQLITE_ROW_KEY, &row.handler, false },
		{ SQLITE_ROW_TYPE, &row.type, false },
		{ SQLITE_ROW_ERROR, &row.last_error, true },
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		if (!postern__sqlite_text(statement, texts[i].column, memory,
					texts[i].text)) {
			return false;
		}
		/* Parked, or the message was removed. */
		if (!*texts[i].text && !texts[i].optional) {
			*texts[i].text = "";
		}
	}
	*out = row;
	return true;
}
