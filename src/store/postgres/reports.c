/* SPDX-License-Identifier: MIT */

/*
 * What the nodes run, for people to see. A node writes its row with a renewal,
 * over the connection of the renewals, and only if it changed; so the age of a
 * report is that of the last renewal.
 */

#include "store/postgres/reports.h"

struct report_work {
	uint64_t node;
	const struct postern_run_report *runs;
	size_t count;
};

#define EACH_RUN(type, add, value)                                 \
	do {                                                           \
		postern__pg_array(&query, (type));                         \
		for (size_t i = 0; i < work->count; i++) {                 \
			const struct postern_run_report *run = &work->runs[i]; \
			add(&query, (value));                                  \
		}                                                          \
		postern__pg_array_end(&query);                             \
	} while (0)

static int write_report(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct report_work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->node);
	postern__pg_now(&query);
	EACH_RUN(PG_INT8, postern__pg_int8, run->seq);
	EACH_RUN(PG_INT4, postern__pg_int4, run->handler);
	EACH_RUN(PG_INT8, postern__pg_int8, (int64_t)run->fence);
	EACH_RUN(PG_INT8, postern__pg_int8, run->age_ms);
	EACH_RUN(PG_INT8, postern__pg_int8, run->lease_ms);
	int r = postern__pg_run(&query,
			"INSERT INTO @node_run (node, seq, handler, fence, started, lease)"
			" SELECT n.node, $3, $4, $5, ARRAY(SELECT coalesce($2, @now_ms())"
			" - u.age FROM unnest($6) WITH ORDINALITY AS u (age, i)"
			" ORDER BY u.i), $7 FROM @node n WHERE n.node = $1"
			" ON CONFLICT (node) DO UPDATE SET seq = excluded.seq,"
			" handler = excluded.handler, fence = excluded.fence,"
			" started = excluded.started, lease = excluded.lease",
			error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_report_runs(struct postern_store *store, uint64_t node,
		const struct postern_run_report *runs, size_t count,
		struct postern_error *error) {
	struct report_work work = { .node = node, .runs = runs, .count = count };
	return postern__pg_do_tenure(postern__pg_from_base(store), 0, false,
			write_report, &work, error);
}

/* The columns of the query below. */
enum {
	NOW,
	NODE,
	HOST,
	PID,
	RENEWED_AT,
	SEQ,
	HANDLER,
	FENCE,
	STARTED,
	LEASE,
	KEY
};

struct read_work {
	struct postern_memory *memory;
	struct postern_reports reports;
};

static struct postern_run_report read_run(const struct pg_query *query,
		int row) {
	int64_t age = postern__pg_get(query, row, NOW) -
				  postern__pg_get(query, row, STARTED);
	return (struct postern_run_report){
		.seq = postern__pg_get(query, row, SEQ),
		.handler = postern__pg_get(query, row, HANDLER),
		.fence = (uint64_t)postern__pg_get(query, row, FENCE),
		.age_ms = age > 0 ? age : 0,
		.lease_ms = postern__pg_get(query, row, LEASE),
	};
}

/* One row per run, or per node that runs none; the rows of a node follow one
   another. */
static bool copy_reports(const struct pg_query *query, struct read_work *work) {
	int rows = postern__pg_rows(query);
	struct postern_node_report *nodes =
			postern_memory_alloc(work->memory, (size_t)rows * sizeof(*nodes));
	struct postern_run_report *runs =
			postern_memory_alloc(work->memory, (size_t)rows * sizeof(*runs));
	bool ok = nodes && runs;
	size_t count = 0;
	for (int row = 0; ok && row < rows; row++) {
		uint64_t node = (uint64_t)postern__pg_get(query, row, NODE);
		if (node == 0) {
			break; /* the store has no nodes */
		}
		if (count == 0 || nodes[count - 1].node != node) {
			nodes[count++] = (struct postern_node_report){
				.node = node,
				.pid = postern__pg_get(query, row, PID),
				.reported_at_ms = postern__pg_get(query, row, RENEWED_AT),
				.runs = &runs[row],
			};
			ok = postern__pg_get_text(query, row, HOST, work->memory,
					&nodes[count - 1].host);
		}
		if (!postern__pg_is_null(query, row, SEQ)) {
			runs[row] = read_run(query, row);
			nodes[count - 1].run_count++;
			ok = ok && postern__pg_get_text(query, row, KEY, work->memory,
							   &runs[row].key);
		}
	}
	work->reports = (struct postern_reports){
		.now_ms = postern__pg_get(query, 0, NOW),
		.nodes = nodes,
		.node_count = count,
	};
	return ok;
}

static int read_reports(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct read_work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			"SELECT w.now, n.node, n.host, n.pid, least(t.renewed_at, w.now),"
			" u.seq, u.handler, u.fence, u.started, u.lease, o.key"
			" FROM (SELECT coalesce($1, @now_ms()) AS now) w"
			" LEFT JOIN @node n ON true"
			" LEFT JOIN @node_term t ON t.node = n.node"
			" LEFT JOIN @node_run r ON r.node = n.node"
			" LEFT JOIN LATERAL unnest(r.seq, r.handler, r.fence, r.started,"
			" r.lease) WITH ORDINALITY"
			" AS u (seq, handler, fence, started, lease, place) ON true"
			" LEFT JOIN @handler h ON h.id = u.handler"
			" LEFT JOIN @handler o ON o.id = h.owner"
			" ORDER BY n.node, u.place",
			error);
	if (r == POSTERN_OK && !copy_reports(&query, work)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_read_runs(struct postern_store *store,
		struct postern_memory *memory, struct postern_reports *out,
		struct postern_error *error) {
	struct read_work work = { .memory = memory };
	int r = postern__pg_do(postern__pg_from_base(store), read_reports, &work,
			error);
	if (r == POSTERN_OK) {
		*out = work.reports;
	}
	return r;
}
