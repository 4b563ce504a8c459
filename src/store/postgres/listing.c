/* SPDX-License-Identifier: MIT */

/*
 * Deliveries that match a filter: newest message first, the deliveries of one
 * message by handler id.
 *
 * Deliveries are in three tables: open ones, ended ones, parked messages. Each
 * is scanned in the order of its primary key and no further than the page
 * needs, then the three are merged; all in one statement, so that a delivery
 * that moves from one table to another is seen in exactly one of them. The
 * other columns of a row are read for the rows of the page only. So a page
 * costs what is on it, not what is in the store, unless a filter matches few of
 * many deliveries.
 */

#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/utf8.h"
#include "store/common.h"
#include "store/postgres/listing.h"

#define SQL_LEN_MAX 16384
/* Longer than any valid pattern. */
#define PATTERN_LEN_MAX 8192

enum { PART_OPEN, PART_LEDGER, PART_PARKED, PART_COUNT };

static const unsigned states_of[PART_COUNT] = {
	[PART_OPEN] = POSTERN__STATES_OPEN,
	[PART_LEDGER] = POSTERN__STATES_ENDED,
	[PART_PARKED] = POSTERN__STATE_BIT(POSTERN_STATE_PARKED),
};

static const char *const columns[PART_COUNT] = {
	[PART_OPEN] = "d.seq, d.handler,"
				  " CASE WHEN d.node IS NULL THEN 1 ELSE 2 END AS state,"
				  " d.fence, d.failures, d.starts, d.crashes,"
				  " CASE WHEN d.node IS NULL OR d.node = -1 THEN d.due_at"
				  " ELSE 0 END"
				  " AS next_at,"
				  " CASE WHEN d.node IS NULL THEN 0 ELSE d.since END"
				  " AS leased_at, 0::bigint AS finished_at, d.node,"
				  " d.error_group, coalesce(d.returns, 0) AS returns",
	[PART_LEDGER] = "d.seq, d.handler, d.state::integer AS state,"
					" d.fence, d.failures, d.starts, d.crashes,"
					" 0::bigint AS next_at, 0::bigint AS leased_at,"
					" d.finished_at, NULL::bigint AS node, d.error_group,"
					" 0 AS returns",
	[PART_PARKED] = "d.seq, 0 AS handler, 6 AS state,"
					" 0::bigint AS fence, 0 AS failures, 0 AS starts,"
					" 0 AS crashes, 0::bigint AS next_at,"
					" 0::bigint AS leased_at, 0::bigint AS finished_at,"
					" NULL::bigint AS node, NULL::bigint AS error_group,"
					" 0 AS returns",
};

static const char *const tables[PART_COUNT] = {
	[PART_OPEN] = " FROM @open d",
	[PART_LEDGER] = " FROM @ledger d",
	[PART_PARKED] = " FROM @parked d",
};

_Static_assert(POSTERN_STATE_PENDING == 1 && POSTERN_STATE_LEASED == 2 &&
					   POSTERN_STATE_PARKED == 6,
		"these numbers are in the SQL above");

/* The newest error that is kept of an attempt. */
#define LAST_ERROR                                        \
	"(SELECT a.error FROM @attempt a WHERE a.seq = d.seq" \
	" AND a.handler = d.handler AND a.error IS NOT NULL"  \
	" ORDER BY a.id DESC LIMIT 1)"

/* With small ASCII letters only, as in add_error(). */
#define LOWER_ERROR                                           \
	"translate(" LAST_ERROR ", 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'," \
	" 'abcdefghijklmnopqrstuvwxyz')"

#define PAGE_BEGIN                                                            \
	"SELECT d.seq, d.handler, d.state, d.fence, d.failures, d.starts,"        \
	" d.crashes, d.next_at, d.leased_at, d.finished_at, d.node,"              \
	" d.error_group, d.returns, " LAST_ERROR ","                              \
	" h.key, m.id, coalesce(m.source, c.first_name, c.name), m.type, c.name," \
	" m.received_at FROM (SELECT * FROM ("
#define PAGE_END(direction)                                     \
	") AS p ORDER BY seq" direction ", handler LIMIT $12) AS d" \
	" LEFT JOIN @handler s ON s.id = d.handler"                 \
	" LEFT JOIN @handler h ON h.id = s.owner"                   \
	" LEFT JOIN @message m ON m.seq = d.seq"                    \
	" LEFT JOIN @channel c ON c.id = m.channel"                 \
	" ORDER BY d.seq" direction ", d.handler"

/* A delivery whose group has no example is counted in group 0. */
#define GROUPS_BEGIN                                                  \
	"SELECT coalesce(s.error_group, 0), h.key, sum(d.count)::bigint," \
	" coalesce(min(coalesce(s.first_at, z.first_at)), 0),"            \
	" coalesce(max(coalesce(s.last_at, z.last_at)), 0),"              \
	" coalesce(max(coalesce(s.text, z.text)), '') FROM ("
#define GROUPS_END                                                        \
	") AS d LEFT JOIN @sample s ON s.error_group = d.error_group"         \
	" AND s.handler = d.handler AND d.error_group <> 0"                   \
	" LEFT JOIN @sample z ON z.error_group = 0 AND z.handler = d.handler" \
	" JOIN @handler a ON a.id = d.handler"                                \
	" JOIN @handler h ON h.id = a.owner"                                  \
	" GROUP BY coalesce(s.error_group, 0), h.key"

bool postern__pg_is_text(const char *text) {
	return !text || postern__utf8_valid(text, strlen(text));
}

static void add_states(struct postern__buf *sql, int part, unsigned states) {
	if (part == PART_OPEN) {
		postern__sql_add_open_states(sql, states);
	} else if (part == PART_LEDGER) {
		postern__sql_add_ended_states(sql, states);
	}
}

/*
 * The conditions on the message. The message is read for each delivery during
 * the scan: with a join, all messages might be read and sorted for one page.
 * The numbers of parameters are those of add_parameters().
 */
static void add_message_filter(struct postern__buf *sql,
		const struct postern_filter *filter) {
	const struct {
		bool wanted;
		const char *sql;
	} conditions[] = {
		{ filter->channel, "m.channel = ANY (ARRAY("
						   "SELECT channel FROM @channel_name"
						   " WHERE name = $5))" },
		{ filter->since_ms != 0, "m.received_at >= $6" },
		{ filter->until_ms != 0, "m.received_at < $7" },
		{ filter->message_id, "m.id = $8" },
		{ filter->message_id_count > 0, "m.id = ANY ($15)" },
		{ filter->type, "m.type LIKE $10" },
		{ filter->source, "(m.source = $11 OR (m.source IS NULL AND m.channel ="
						  " ANY (ARRAY(SELECT channel FROM @channel_name"
						  " WHERE name = $11))))" },
	};
	bool any = false;
	for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
		if (conditions[i].wanted) {
			postern__buf_append_text(sql, any ? " AND " : " AND (SELECT ");
			postern__buf_append_text(sql, conditions[i].sql);
			any = true;
		}
	}
	postern__buf_append_text(sql,
			any ? " FROM @message m WHERE m.seq = d.seq)" : "");
}

static void add_filter(struct postern__buf *sql, int part,
		const struct pg_listing *listing) {
	const struct postern_filter *filter = listing->query->filter;
	const char *handler = part == PART_PARKED ? "0" : "d.handler";
	const char *beyond = filter->oldest ? ">" : "<";
	if (listing->query->after_seq > 0) {
		postern__buf_printf(sql,
				" AND d.seq %s= $1 AND (d.seq %s $1 OR %s > $2)", beyond,
				beyond, handler);
	}
	if (filter->error) {
		postern__buf_append_text(sql,
				part == PART_PARKED ? " AND false"
									: " AND strpos(" LOWER_ERROR ", $13) > 0");
	}
	if (filter->group) {
		postern__buf_append_text(sql, part == PART_PARKED
											  ? " AND false"
											  : " AND d.error_group = $14");
	}
	if (filter->message_id_count > 0) {
		postern__buf_append_text(sql,
				" AND d.seq = ANY (ARRAY(SELECT seq FROM @seen"
				" WHERE k0 = ANY ($16)))");
	}
	if (filter->seq) {
		postern__buf_append_text(sql, " AND d.seq = $3");
	}
	if (filter->state == POSTERN_STATE_RETRYING) {
		postern__buf_append_text(sql, " AND d.failures > 0");
	}
	if (filter->handler) {
		postern__buf_append_text(sql,
				" AND d.handler = ANY (ARRAY(SELECT a.id FROM @handler_key k"
				" JOIN @handler s ON s.id = k.handler"
				" JOIN @handler a ON a.owner = s.owner WHERE k.key = $4))");
	}
	if (listing->handled) {
		postern__buf_printf(sql, " AND %s <> 0", handler);
	}
	if (filter->message_id) {
		postern__buf_append_text(sql,
				" AND d.seq = ANY (ARRAY(SELECT seq FROM @seen"
				" WHERE k0 = $9))");
	}
	add_message_filter(sql, filter);
}

static void add_part(struct postern__buf *sql, int part, unsigned states,
		const struct pg_listing *listing) {
	static const char *const begins[] = {
		[PG_LISTING_COUNT] = "count(*) AS count",
		[PG_LISTING_GROUPS] = "d.error_group, d.handler, count(*) AS count",
	};
	bool rows = listing->kind == PG_LISTING_ROWS;
	postern__buf_append_text(sql, "(SELECT ");
	postern__buf_append_text(sql, rows ? columns[part] : begins[listing->kind]);
	postern__buf_append_text(sql, tables[part]);
	postern__buf_append_text(sql, " WHERE true");
	add_states(sql, part, states);
	add_filter(sql, part, listing);
	if (rows) {
		postern__buf_append_text(sql, listing->query->filter->oldest
											  ? " ORDER BY d.seq"
											  : " ORDER BY d.seq DESC");
		postern__buf_append_text(sql,
				part == PART_PARKED ? " LIMIT $12" : ", d.handler LIMIT $12");
	} else if (listing->kind == PG_LISTING_GROUPS) {
		postern__buf_append_text(sql, " AND d.error_group IS NOT NULL"
									  " GROUP BY d.error_group, d.handler");
	}
	postern__buf_append_text(sql, ")");
}

/* Returns the number of parts. */
static int add_parts(struct postern__buf *sql,
		const struct pg_listing *listing) {
	unsigned states =
			listing->states & postern__filter_states(listing->query->filter);
	int count = 0;
	for (int part = 0; part < PART_COUNT; part++) {
		if (states & states_of[part]) {
			postern__buf_append_text(sql, count > 0 ? " UNION ALL " : "");
			add_part(sql, part, states, listing);
			count++;
		}
	}
	return count;
}

/* Translates stars to a LIKE pattern. */
static void translate_pattern(const char *pattern, struct postern__buf *out) {
	for (; *pattern; pattern++) {
		if (strchr("%_\\", *pattern)) {
			postern__buf_append_char(out, '\\');
		}
		postern__buf_append_char(out, *pattern == '*' ? '%' : *pattern);
	}
}

static int add_pattern(struct pg_query *query, const char *pattern,
		struct postern_error *error) {
	if (!pattern) {
		postern__pg_null(query, PG_TEXT);
		return POSTERN_OK;
	}
	struct postern__buf text;
	postern__buf_init(&text, PATTERN_LEN_MAX);
	translate_pattern(pattern, &text);
	int r = postern__buf_check(&text, "the pattern", error);
	postern__pg_text(query, postern__buf_text(&text));
	postern__buf_finish(&text);
	return r;
}

static int add_error(struct pg_query *query, const char *part,
		struct postern_error *error) {
	struct postern__buf text;
	postern__buf_init(&text, POSTERN_FILTER_ERROR_LEN_MAX + 1);
	for (; part && *part; part++) {
		bool is_capital = *part >= 'A' && *part <= 'Z';
		postern__buf_append_char(&text,
				is_capital ? (char)(*part - 'A' + 'a') : *part);
	}
	int r = postern__buf_check(&text, "the text in the error", error);
	postern__pg_text(query, postern__buf_text(&text));
	postern__buf_finish(&text);
	return r;
}

/* Ids that are not UTF-8 match nothing, and cannot be sent. */
static void add_ids(struct pg_query *query,
		const struct postern_filter *filter) {
	postern__pg_array(query, PG_TEXT);
	for (size_t i = 0; i < filter->message_id_count; i++) {
		if (postern__pg_is_text(filter->message_ids[i])) {
			postern__pg_text(query, filter->message_ids[i]);
		}
	}
	postern__pg_array_end(query);
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < filter->message_id_count; i++) {
		postern__pg_int8(query, postern__pg_id_word(query->connection->store,
										filter->message_ids[i]));
	}
	postern__pg_array_end(query);
}

/* Adds all parameters, whether the text uses them or not. */
static int add_parameters(struct pg_query *query,
		const struct pg_listing *listing, struct postern_error *error) {
	const struct postern_filter *filter = listing->query->filter;
	postern__pg_int8(query, listing->query->after_seq);
	postern__pg_int8(query, listing->query->after_handler);
	postern__pg_int8(query, filter->seq);
	postern__pg_text(query, filter->handler);
	postern__pg_text(query, filter->channel);
	postern__pg_int8(query, filter->since_ms);
	postern__pg_int8(query, filter->until_ms);
	postern__pg_text(query, filter->message_id);
	postern__pg_int8(query,
			filter->message_id ? postern__pg_id_word(query->connection->store,
										 filter->message_id)
							   : 0);
	int r = add_pattern(query, filter->type, error);
	postern__pg_text(query, filter->source);
	if (listing->max > 0) {
		postern__pg_int8(query, listing->max);
	} else {
		postern__pg_null(query, PG_INT8);
	}
	if (r == POSTERN_OK) {
		r = add_error(query, filter->error, error);
	}
	postern__pg_int8(query, (int64_t)filter->group);
	add_ids(query, filter);
	return r;
}

static bool is_possible(const struct postern_filter *filter) {
	return postern__pg_is_text(filter->handler) &&
		   postern__pg_is_text(filter->channel) &&
		   postern__pg_is_text(filter->message_id) &&
		   postern__pg_is_text(filter->type) &&
		   postern__pg_is_text(filter->error) &&
		   postern__pg_is_text(filter->source);
}

int postern__pg_listing_run(struct pg_query *query,
		struct pg_connection *connection, const struct pg_listing *listing,
		struct postern_error *error) {
	static const char *const begins[] = {
		[PG_LISTING_ROWS] = PAGE_BEGIN,
		[PG_LISTING_COUNT] = "SELECT coalesce(sum(count), 0)::bigint FROM (",
		[PG_LISTING_GROUPS] = GROUPS_BEGIN,
	};
	static const char *const ends[] = {
		[PG_LISTING_ROWS] = PAGE_END(" DESC"),
		[PG_LISTING_COUNT] = ") AS d",
		[PG_LISTING_GROUPS] = GROUPS_END,
	};
	postern__pg_query(query, connection);
	if (!is_possible(listing->query->filter)) {
		return POSTERN_OK; /* without a result there are no rows */
	}
	struct postern__buf sql;
	postern__buf_init(&sql, SQL_LEN_MAX);
	postern__buf_append_text(&sql, begins[listing->kind]);
	int count = add_parts(&sql, listing);
	postern__buf_append_text(&sql,
			listing->kind == PG_LISTING_ROWS && listing->query->filter->oldest
					? PAGE_END("")
					: ends[listing->kind]);
	int r = postern__buf_check(&sql, "the query", error);
	if (r == POSTERN_OK && count > 0) {
		r = add_parameters(query, listing, error);
		if (r == POSTERN_OK) {
			r = postern__pg_run(query, postern__buf_text(&sql), error);
		}
	}
	postern__buf_finish(&sql);
	return r;
}

bool postern__pg_listing_read(const struct pg_query *query, int row,
		struct postern_memory *memory, struct postern_row *out) {
	struct postern_row read = {
		.seq = postern__pg_get(query, row, PG_ROW_SEQ),
		.state = (enum postern_state)postern__pg_get(query, row, PG_ROW_STATE),
		.failures = (uint32_t)postern__pg_get(query, row, PG_ROW_FAILURES),
		.starts = (uint32_t)postern__pg_get(query, row, PG_ROW_STARTS),
		.crashes = (uint32_t)postern__pg_get(query, row, PG_ROW_CRASHES),
		.fence = (uint64_t)postern__pg_get(query, row, PG_ROW_FENCE),
		.group = (uint64_t)postern__pg_get(query, row, PG_ROW_GROUP),
		.received_at_ms = postern__pg_get(query, row, PG_ROW_RECEIVED_AT),
		.next_at_ms = postern__pg_get(query, row, PG_ROW_NEXT_AT),
		.leased_at_ms = postern__pg_get(query, row, PG_ROW_LEASED_AT),
		.finished_at_ms = postern__pg_get(query, row, PG_ROW_FINISHED_AT),
		.node = (uint64_t)postern__pg_get(query, row, PG_ROW_NODE),
		.returns = (uint32_t)postern__pg_get(query, row, PG_ROW_RETURNS),
		.handler_id = postern__pg_get(query, row, PG_ROW_HANDLER),
	};
	const struct {
		int column;
		const char **text;
		bool optional;
	} texts[] = {
		{ PG_ROW_ID, &read.message_id, false },
		{ PG_ROW_SOURCE, &read.source, false },
		{ PG_ROW_CHANNEL, &read.channel, false },
		{ PG_ROW_KEY, &read.handler, false },
		{ PG_ROW_TYPE, &read.type, false },
		{ PG_ROW_ERROR, &read.last_error, true },
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		if (!postern__pg_get_text(query, row, texts[i].column, memory,
					texts[i].text)) {
			return false;
		}
		/* The message is parked, or was removed. */
		if (!*texts[i].text && !texts[i].optional) {
			*texts[i].text = "";
		}
	}
	*out = read;
	return true;
}

struct work {
	const struct postern_query *query;
	struct postern_memory *memory;
	struct postern_page page;
};

static int read_page(const struct pg_query *query, struct work *work,
		struct postern_error *error) {
	size_t limit = work->query->filter->limit;
	size_t found = (size_t)postern__pg_rows(query);
	struct postern_page page = {
		.count = found < limit ? found : limit,
		.more = found > limit,
	};
	page.rows = postern_memory_alloc(work->memory,
			page.count * sizeof(struct postern_row));
	if (!page.rows) {
		return postern__pg_no_memory(error);
	}
	for (size_t i = 0; i < page.count; i++) {
		if (!postern__pg_listing_read(query, (int)i, work->memory,
					&page.rows[i])) {
			return postern__pg_no_memory(error);
		}
		page.last_seq = page.rows[i].seq;
		page.last_handler = postern__pg_get(query, (int)i, PG_ROW_HANDLER);
	}
	work->page = page;
	return POSTERN_OK;
}

static int list_page(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	(void)again;
	struct pg_listing listing = {
		.query = work->query,
		.states = ~0u,
		/* One more, to detect whether there are more. */
		.max = (int64_t)work->query->filter->limit + 1,
	};
	struct pg_query query;
	int r = postern__pg_listing_run(&query, connection, &listing, error);
	if (r == POSTERN_OK) {
		r = read_page(&query, work, error);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_list(struct postern_store *store,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error) {
	struct work work = { .query = query, .memory = memory };
	int r = postern__pg_do(postern__pg_from_base(store), list_page, &work,
			error);
	if (r == POSTERN_OK) {
		*out = work.page;
	}
	return r;
}
