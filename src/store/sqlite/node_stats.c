/* SPDX-License-Identifier: MIT */

/*
 * The nodes and the locks they hold, for people to read.
 *
 * The leases of each node are not counted as they change; but usually one node
 * has them all, which is known, and then the handlers' counts give the number.
 */

#include <postern/sys/clock.h>

#include "store/sqlite/sqlite.h"

/* How far a renewal is in the future because the clock went back; ?1 is now. */
#define SKEW "max(renewed_at - ?1, 0)"

static int count_rows(struct sqlite_store *self, const char *sql, size_t *out,
		struct postern_error *error) {
	int64_t count = 0;
	int r = postern__sqlite_number(&self->reader, sql, &count, error);
	*out = (size_t)count;
	return r;
}

/* Counts the leases of one node; `stats` has the handlers. */
static int count_leases(struct sqlite_store *self,
		const struct postern_stats *stats, struct postern_node_stats *node,
		struct postern_error *error) {
	if (atomic_load(&self->only_node) == node->node) {
		for (size_t i = 0; i < stats->handler_count; i++) {
			node->leased += stats->handlers[i].leased;
		}
		size_t pulled = 0;
		int r = count_rows(self,
				"SELECT count(*) FROM postern_open INDEXED BY postern_open_pull"
				" WHERE node = -1",
				&pulled, error);
		node->leased -= pulled < node->leased ? pulled : node->leased;
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT count(*) FROM postern_open WHERE node = ?1");
	postern__sqlite_bind_int(&query, 1, (int64_t)node->node);
	if (postern__sqlite_row(&query)) {
		node->leased = (uint64_t)postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

static int read_nodes(struct sqlite_store *self, struct postern_memory *memory,
		struct postern_stats *out, struct postern_error *error) {
	size_t room = 0;
	int r = count_rows(self, "SELECT count(*) FROM postern_node", &room, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_node_stats *nodes = postern_memory_alloc(memory,
			room * sizeof(struct postern_node_stats));
	if (!nodes) {
		return postern__sqlite_no_memory(error);
	}
	size_t count = 0;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT node, renewed_at - " SKEW ", lives_until - " SKEW
			" FROM postern_node ORDER BY node");
	postern__sqlite_bind_int(&query, 1, out->now_ms);
	while (r == POSTERN_OK && count < room && postern__sqlite_row(&query)) {
		struct postern_node_stats *node = &nodes[count++];
		node->node = (uint64_t)postern__sqlite_int(&query, 0);
		node->renewed_at_ms = postern__sqlite_int(&query, 1);
		node->lives_until_ms = postern__sqlite_int(&query, 2);
		r = count_leases(self, out, node, error);
	}
	out->nodes = nodes;
	out->node_count = count;
	int ended = postern__sqlite_end(&query, r == POSTERN_OK ? error : NULL);
	return r == POSTERN_OK ? ended : r;
}

static int read_locks(struct sqlite_store *self, struct postern_memory *memory,
		struct postern_stats *out, struct postern_error *error) {
	size_t room = 0;
	int r = count_rows(self,
			"SELECT count(*) FROM postern_lock WHERE node <> 0", &room, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_lock_stats *locks = postern_memory_alloc(memory,
			room * sizeof(struct postern_lock_stats));
	if (!locks) {
		return postern__sqlite_no_memory(error);
	}
	size_t count = 0;
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT name, node, held_until - " SKEW " AS until"
			" FROM postern_lock WHERE node <> 0 AND until > ?1 ORDER BY name");
	postern__sqlite_bind_int(&query, 1, out->now_ms);
	while (ok && count < room && postern__sqlite_row(&query)) {
		struct postern_lock_stats *lock = &locks[count++];
		ok = postern__sqlite_text(query.statement, 0, memory, &lock->name);
		lock->node = (uint64_t)postern__sqlite_int(&query, 1);
		lock->held_until_ms = postern__sqlite_int(&query, 2);
	}
	out->locks = locks;
	out->lock_count = count;
	r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

int postern__sqlite_node_stats(struct sqlite_store *self,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	out->now_ms = postern__sqlite_now_read(self);
	if (!postern__sqlite_file_owned(&self->file)) {
		/* These are rows of a process that was killed; the next owner removes
		   them. */
		return POSTERN_OK;
	}
	int r = read_nodes(self, memory, out, error);
	return r == POSTERN_OK ? read_locks(self, memory, out, error) : r;
}
