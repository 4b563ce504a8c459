/* SPDX-License-Identifier: MIT */

/*
 * Deliveries of orphaned handlers, which no running node has configured.
 */

#include "base/fail.h"
#include "base/point.h"
#include "core/error_group.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

struct work {
	uint64_t node;
	const char *only;
	bool poison;
	size_t max;
	struct postern_memory *memory;
	struct postern_orphan *orphans;
	size_t count;
};

static int read_orphans(const struct pg_query *query, struct work *work,
		struct postern_error *error) {
	size_t count = (size_t)postern__pg_rows(query);
	work->orphans = postern_memory_alloc(work->memory,
			(count + 1) * sizeof *work->orphans);
	bool ok = work->orphans;
	for (size_t i = 0; ok && i < count; i++) {
		ok = postern__pg_get_text(query, (int)i, 0, work->memory,
				&work->orphans[i].key);
		work->orphans[i].count = (uint64_t)postern__pg_get(query, (int)i, 1);
	}
	work->count = count;
	return ok ? POSTERN_OK : postern__pg_no_memory(error);
}

static int find_orphans(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->node);
	postern__pg_now(&query);
	postern__pg_text(&query, work->only);
	postern__pg_bool(&query, work->poison);
	postern__pg_int4(&query,
			work->max < INT32_MAX ? (int64_t)work->max : INT32_MAX);
	postern__pg_int4(&query, POSTERN_ATTEMPTS_KEPT);
	postern__pg_text(&query, POSTERN__ORPHAN_ERROR);
	postern__pg_group(&query, postern__error_group(POSTERN__ORPHAN_ERROR));
	int r = postern__pg_run(&query,
			"SELECT * FROM @orphans_1($1, $2, $3, $4, $5, $6, $7, $8)", error);
	if (r == POSTERN_OK) {
		r = read_orphans(&query, work, error);
	}
	postern__pg_end(&query);
	return r;
}

static int find_in_transaction(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)again;
	int r = postern__pg_begin(connection, error);
	if (r == POSTERN_OK) {
		r = find_orphans(connection, context, error);
		r = postern__pg_finish(connection, r, error);
	}
	return r;
}

int postern__pg_orphans(struct postern_store *store, uint64_t node,
		const char *only, bool poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error) {
	struct work work = {
		.node = node,
		.only = only,
		.poison = poison,
		.max = max,
		.memory = memory,
	};
	int r = postern__pg_do(postern__pg_from_base(store), find_in_transaction,
			&work, error);
	if (r == POSTERN_OK) {
		*orphans_out = work.orphans;
		*count_out = work.count;
	}
	return r;
}
