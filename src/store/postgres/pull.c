/* SPDX-License-Identifier: MIT */

/*
 * Pull leases: rows of the table open whose node is -1, POSTERN_NODE_PULL as a
 * signed number, and whose due_at is the end of the lease. They are claimed by
 * claim_1 and taken over by claim_ended_1, see claim.c.
 */

#include "store/postgres/pull.h"

#include "base/point.h"

_Static_assert((int64_t)POSTERN_NODE_PULL == -1, "this number is in the SQL");

/* The delivery of a row under any id of its handler; the one with the fence, if
   there are several. */
#define ROWS                                                             \
	"WITH u AS (SELECT * FROM unnest($2::bigint[], $3::integer[],"       \
	" $4::bigint[]) WITH ORDINALITY AS u (seq, handler, fence, n)),"     \
	" ids AS (SELECT u.n, u.seq, u.fence, k.id FROM u"                   \
	" JOIN @handler h ON h.id = u.handler JOIN @handler k"               \
	" ON k.owner = h.owner), d AS (SELECT DISTINCT ON (i.n) i.n,"        \
	" a.seq, a.handler, a.state, a.node, a.failures, a.breaks, a.since," \
	" a.fence = i.fence AS same FROM ids i JOIN LATERAL ("               \
	"SELECT o.seq, o.handler, o.fence, CASE WHEN o.node IS NULL THEN 1"  \
	" ELSE 2 END AS state, o.node, o.failures, coalesce(o.breaks, 0)"    \
	" AS breaks, o.since FROM @open o WHERE o.seq = i.seq"               \
	" AND o.handler = i.id UNION ALL SELECT l.seq, l.handler, l.fence,"  \
	" l.state::integer, NULL, l.failures, 0, 0 FROM @ledger l"           \
	" WHERE l.seq = i.seq AND l.handler = i.id) AS a ON true"            \
	" ORDER BY i.n, (a.fence = i.fence) DESC)"

enum { N, HANDLER, STATE, PULLED, FAILURES, BREAKS, HELD, SAME, CHANNEL, ID };

struct work {
	struct postern_pull_row *rows;
	size_t count;
	struct postern_memory *memory;
	int64_t lease_ms;
	int64_t until_ms; /* result */
};

static void add_rows(struct pg_query *query, const struct work *work) {
	postern__pg_now(query);
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < work->count; i++) {
		postern__pg_int8(query, work->rows[i].seq);
	}
	postern__pg_array_end(query);
	postern__pg_array(query, PG_INT4);
	for (size_t i = 0; i < work->count; i++) {
		postern__pg_int4(query, work->rows[i].handler);
	}
	postern__pg_array_end(query);
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < work->count; i++) {
		postern__pg_int8(query, (int64_t)work->rows[i].fence);
	}
	postern__pg_array_end(query);
}

/* False: out of memory. */
static bool read_row(const struct pg_query *query, int row,
		const struct work *work) {
	struct postern_pull_row *out =
			&work->rows[postern__pg_get(query, row, N) - 1];
	bool same = postern__pg_get(query, row, SAME) != 0;
	int64_t state = postern__pg_get(query, row, STATE);
	out->code = same && postern__pg_get(query, row, PULLED) ? POSTERN_OK
															: POSTERN_E_STALE;
	out->ended = same && state > POSTERN_STATE_LEASED
						 ? (enum postern_state)state
						 : POSTERN_STATE_ANY;
	out->stored = postern__pg_get(query, row, HANDLER);
	out->failures = (uint32_t)postern__pg_get(query, row, FAILURES);
	out->breaks = (uint32_t)postern__pg_get(query, row, BREAKS);
	out->held_ms = postern__pg_get(query, row, HELD);
	out->channel = postern__pg_get(query, row, CHANNEL);
	return postern__pg_get_text(query, row, ID, work->memory, &out->message_id);
}

static int read_pulls(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	(void)again;
	for (size_t i = 0; i < work->count; i++) {
		work->rows[i].code = POSTERN_E_NOTFOUND;
		work->rows[i].ended = POSTERN_STATE_ANY;
	}
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_rows(&query, work);
	int r = postern__pg_run(&query,
			ROWS
			" SELECT d.n, d.handler, d.state, coalesce(d.node = -1, false),"
			" d.failures, d.breaks,"
			" greatest(coalesce($1, @now_ms()) - d.since, 0), d.same,"
			" m.channel, m.id FROM d"
			" LEFT JOIN @message m ON m.seq = d.seq",
			error);
	bool ok = true;
	for (int row = 0; r == POSTERN_OK && ok && row < postern__pg_rows(&query);
			row++) {
		ok = read_row(&query, row, work);
	}
	postern__pg_end(&query);
	return r == POSTERN_OK && !ok ? postern__pg_no_memory(error) : r;
}

int postern__pg_read_pulls(struct postern_store *store,
		struct postern_pull_row *rows, size_t count,
		struct postern_memory *memory, struct postern_error *error) {
	struct work work = { .rows = rows, .count = count, .memory = memory };
	return postern__pg_do(postern__pg_from_base(store), read_pulls, &work,
			error);
}

static int extend(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	struct work *work = context;
	struct postern_pull_row *row = &work->rows[0];
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_rows(&query, work);
	postern__pg_int8(&query, work->lease_ms);
	postern__point("postgres-extend.before");
	int r = postern__pg_run(&query,
			ROWS ", changed AS (UPDATE @open o"
				 " SET due_at = coalesce($1, @now_ms()) + $5 FROM d"
				 " WHERE o.seq = d.seq AND o.handler = d.handler AND d.same"
				 " AND o.fence = ($4::bigint[])[1] AND o.node = -1"
				 " RETURNING o.due_at)"
				 " SELECT (SELECT count(*) FROM d),"
				 " (SELECT due_at FROM changed)",
			error);
	if (r == POSTERN_OK) {
		bool changed = !postern__pg_is_null(&query, 0, 1);
		row->code = changed                             ? POSTERN_OK
					: postern__pg_get(&query, 0, 0) > 0 ? POSTERN_E_STALE
														: POSTERN_E_NOTFOUND;
		work->until_ms = changed ? postern__pg_get(&query, 0, 1) : 0;
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_extend(struct postern_store *store,
		struct postern_pull_row *row, int64_t lease_ms, int64_t *until_ms_out,
		struct postern_error *error) {
	struct work work = { .rows = row, .count = 1, .lease_ms = lease_ms };
	int r = postern__pg_do(postern__pg_from_base(store), extend, &work, error);
	if (r == POSTERN_OK && row->code == POSTERN_OK) {
		*until_ms_out = work.until_ms;
	}
	return r;
}
