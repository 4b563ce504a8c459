/* SPDX-License-Identifier: MIT */

/*
 * Nodes and the locks they hold, for people to see. All times are by the clock
 * of the database, which is returned with them.
 */

#include "store/postgres/postgres.h"

/* How far a renewal lies ahead of the clock, if that went back. */
#define SKEW "greatest(renewed_at - (SELECT t FROM now), 0)"
#define NOW "WITH now AS (SELECT coalesce($1, @now_ms()) AS t)"

static int read_nodes(struct pg_connection *connection,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			NOW ", leased AS (SELECT node, count(*) AS leased FROM @open"
				" WHERE node IS NOT NULL GROUP BY node)"
				" SELECT n.node, t.renewed_at - " SKEW ", t.lives_until - " SKEW
				", s.sleeps AND n.works AND l.leased IS NULL, l.leased,"
				" n.host, n.pid FROM @node n"
				" JOIN @node_term t ON t.node = n.node"
				" JOIN @node_sleep s ON s.node = n.node"
				" LEFT JOIN leased l ON l.node = n.node ORDER BY n.node",
			error);
	int count = r == POSTERN_OK ? postern__pg_rows(&query) : 0;
	struct postern_node_stats *nodes = postern_memory_alloc(memory,
			(size_t)count * sizeof(struct postern_node_stats));
	bool ok = nodes;
	for (int row = 0; ok && row < count; row++) {
		nodes[row] = (struct postern_node_stats){
			.node = (uint64_t)postern__pg_get(&query, row, 0),
			.renewed_at_ms = postern__pg_get(&query, row, 1),
			.lives_until_ms = postern__pg_get(&query, row, 2),
			.sleeping = postern__pg_get(&query, row, 3) != 0,
			.leased = (uint64_t)postern__pg_get(&query, row, 4),
			.pid = postern__pg_get(&query, row, 6),
		};
		ok = postern__pg_get_text(&query, row, 5, memory, &nodes[row].host);
	}
	if (r == POSTERN_OK && !ok) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	out->nodes = nodes;
	out->node_count = (size_t)count;
	return r;
}

/* The first row has no lock, only the time. */
static int read_locks(struct pg_connection *connection,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			NOW ", held AS (SELECT name, node, held_until - " SKEW " AS until"
				" FROM @lock WHERE node <> 0)"
				" SELECT t, NULL AS name, 0::bigint, 0::bigint FROM now"
				" UNION ALL SELECT t, h.name, h.node, h.until"
				" FROM held h CROSS JOIN now WHERE h.until > t"
				" ORDER BY name NULLS FIRST",
			error);
	int count = r == POSTERN_OK ? postern__pg_rows(&query) - 1 : 0;
	struct postern_lock_stats *locks = postern_memory_alloc(memory,
			(size_t)count * sizeof(struct postern_lock_stats));
	bool ok = locks;
	for (int row = 0; ok && row < count; row++) {
		ok = postern__pg_get_text(&query, row + 1, 1, memory, &locks[row].name);
		locks[row].node = (uint64_t)postern__pg_get(&query, row + 1, 2);
		locks[row].held_until_ms = postern__pg_get(&query, row + 1, 3);
	}
	if (r == POSTERN_OK && !ok) {
		r = postern__pg_no_memory(error);
	}
	if (r == POSTERN_OK) {
		out->now_ms = postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	out->locks = locks;
	out->lock_count = (size_t)count;
	return r;
}

int postern__pg_node_stats(struct pg_connection *connection,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	int r = read_nodes(connection, memory, out, error);
	return r == POSTERN_OK ? read_locks(connection, memory, out, error) : r;
}
