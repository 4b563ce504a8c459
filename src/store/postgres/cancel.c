/* SPDX-License-Identifier: MIT */

/*
 * Requests to end a run. They are not in the row of the delivery: a settlement
 * that finds it changed would take its lease for lost.
 */

#include "store/postgres/reports.h"

#define IS_LEASED                                                    \
	" o.seq = c.seq AND o.handler = c.handler AND o.fence = c.fence" \
	" AND o.node IS NOT NULL"

struct request_work {
	const struct postern_cancel_request *request;
	bool withdraw;
	bool leased; /* result */
};

static int write_request(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct request_work *work = context;
	const struct postern_cancel_request *request = work->request;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, request->seq);
	postern__pg_int4(&query, request->handler);
	postern__pg_int8(&query, (int64_t)request->fence);
	if (!work->withdraw) {
		postern__pg_bool(&query, request->uncounted);
		postern__pg_text(&query, request->reason);
	}
	int r = postern__pg_run(&query,
			work->withdraw
					? "WITH removed AS (DELETE FROM @cancel WHERE seq = $1"
					  " AND handler = $2 AND fence = $3)"
					  " SELECT count(*) FROM @open o WHERE o.seq = $1"
					  " AND o.handler = $2 AND o.fence = $3"
					  " AND o.node IS NOT NULL"
					: "WITH kept AS (INSERT INTO @cancel"
					  " (seq, handler, fence, uncounted, reason)"
					  " SELECT o.seq, o.handler, o.fence, $4, $5 FROM @open o"
					  " WHERE o.seq = $1 AND o.handler = $2 AND o.fence = $3"
					  " AND o.node IS NOT NULL"
					  " ON CONFLICT (seq, handler) DO UPDATE"
					  " SET fence = excluded.fence,"
					  " uncounted = excluded.uncounted,"
					  " reason = excluded.reason RETURNING seq)"
					  " SELECT count(*), pg_notify(@bell_1(), '') FROM kept",
			error);
	if (r == POSTERN_OK) {
		work->leased = postern__pg_get(&query, 0, 0) > 0;
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_request_cancel(struct postern_store *store,
		const struct postern_cancel_request *request, bool withdraw,
		bool *leased_out, struct postern_error *error) {
	struct request_work work = { .request = request, .withdraw = withdraw };
	int r = postern__pg_do(postern__pg_from_base(store), write_request, &work,
			error);
	if (r == POSTERN_OK) {
		*leased_out = work.leased;
	}
	return r;
}

struct cancels_work {
	uint64_t node;
	struct postern_memory *memory;
	struct postern_cancel_request *requests;
	size_t count;
};

static bool copy_requests(const struct pg_query *query,
		struct cancels_work *work) {
	int count = postern__pg_rows(query);
	struct postern_cancel_request *requests = postern_memory_alloc(work->memory,
			(size_t)count * sizeof(*requests));
	bool ok = requests;
	for (int row = 0; ok && row < count; row++) {
		requests[row].seq = postern__pg_get(query, row, 0);
		requests[row].handler = postern__pg_get(query, row, 1);
		requests[row].fence = (uint64_t)postern__pg_get(query, row, 2);
		requests[row].uncounted = postern__pg_get(query, row, 3) != 0;
		ok = postern__pg_get_text(query, row, 4, work->memory,
				&requests[row].reason);
	}
	work->requests = requests;
	work->count = (size_t)count;
	return ok;
}

static int read_requests(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct cancels_work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->node);
	int r = postern__pg_run(&query,
			"WITH removed AS (DELETE FROM @cancel c WHERE NOT EXISTS"
			" (SELECT 1 FROM @open o WHERE" IS_LEASED " OFFSET 0))"
			" SELECT c.seq, c.handler, c.fence, c.uncounted, c.reason"
			" FROM @cancel c JOIN @open o ON" IS_LEASED " WHERE o.node = $1"
			" ORDER BY c.seq, c.handler",
			error);
	if (r == POSTERN_OK && !copy_requests(&query, work)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_read_cancels(struct postern_store *store, uint64_t node,
		struct postern_memory *memory, struct postern_cancel_request **out,
		size_t *count_out, struct postern_error *error) {
	struct cancels_work work = { .node = node, .memory = memory };
	int r = postern__pg_do(postern__pg_from_base(store), read_requests, &work,
			error);
	if (r == POSTERN_OK) {
		*out = work.requests;
		*count_out = work.count;
	}
	return r;
}
