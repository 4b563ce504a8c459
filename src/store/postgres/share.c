/* SPDX-License-Identifier: MIT */

/*
 * What nodes tell each other about their room: for which handlers they are
 * idle. The answer of the call that records it says who else is.
 */

#include "store/postgres/reports.h"

struct work {
	uint64_t node;
	struct postern_share *handlers;
	size_t count;
};

static int share(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	struct work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->node);
	postern__pg_now(&query);
	postern__pg_array(&query, PG_INT4);
	for (size_t i = 0; i < work->count; i++) {
		postern__pg_int4(&query, work->handlers[i].handler);
	}
	postern__pg_array_end(&query);
	postern__pg_array(&query, PG_BOOL);
	for (size_t i = 0; i < work->count; i++) {
		postern__pg_bool(&query, work->handlers[i].idle);
	}
	postern__pg_array_end(&query);
	postern__pg_array(&query, PG_BOOL);
	for (size_t i = 0; i < work->count; i++) {
		postern__pg_bool(&query, work->handlers[i].surplus);
	}
	postern__pg_array_end(&query);
	int r = postern__pg_run(&query, "SELECT @share_1($1, $2, $3, $4, $5)",
			error);
	if (r == POSTERN_OK) {
		struct pg_items items;
		int64_t nodes;
		postern__pg_items(&query, 0, 0, &items);
		for (size_t i = 0; i < work->count && postern__pg_next(&items, &nodes);
				i++) {
			work->handlers[i].idle_nodes = (uint32_t)nodes;
		}
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_share(struct postern_store *store, uint64_t node,
		struct postern_share *handlers, size_t count,
		struct postern_error *error) {
	struct work work = {
		.node = node,
		.handlers = handlers,
		.count = count,
	};
	return postern__pg_do(postern__pg_from_base(store), share, &work, error);
}
