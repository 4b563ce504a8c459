/* SPDX-License-Identifier: MIT */

/*
 * Nodes and locks, and when they expire.
 *
 * The file has one owner; when a process opens it, all nodes of earlier
 * processes expire and all locks are freed, so no process has to wait for a
 * lease of another. Within one process several nodes may share the store, each
 * with its lease, as on a database server.
 *
 * If the clock was set back, an end time may be far in the future and keep an
 * expired node live. So each end time is stored with the time of its renewal,
 * and one that was renewed in the future starts again before it is checked.
 */

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "store/sqlite/sqlite.h"

int postern__sqlite_nodes_expire_all(struct sqlite_store *self,
		struct postern_error *error) {
	int64_t any = 0;
	int r = postern__sqlite_number(&self->writer,
			"SELECT EXISTS (SELECT 1 FROM postern_node)"
			" OR EXISTS (SELECT 1 FROM postern_lock WHERE node <> 0)",
			&any, error);
	return r == POSTERN_OK && any ? postern__sqlite_exec(&self->writer,
											"BEGIN IMMEDIATE;"
											"DELETE FROM postern_node;"
											"DELETE FROM postern_node_handler;"
											"DELETE FROM postern_node_channel;"
											"UPDATE postern_lock SET node = 0;"
											"COMMIT",
											error)
								  : r;
}

/* Inside a transaction: restarts the leases and locks that were renewed before
   the clock went back. */
static int expiries_repair(struct sqlite_store *self, int64_t now,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_node SET lives_until = lives_until - renewed_at"
			" + ?1, renewed_at = ?1"
			" WHERE renewed_at > ?1 AND lives_until IS NOT NULL");
	postern__sqlite_bind_int(&query, 1, now);
	int r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK) {
		postern__sqlite_query(&query, &self->writer,
				"UPDATE postern_lock SET held_until = held_until - renewed_at"
				" + ?1, renewed_at = ?1 WHERE renewed_at > ?1");
		postern__sqlite_bind_int(&query, 1, now);
		r = postern__sqlite_end(&query, error);
	}
	return r;
}

int postern__sqlite_nodes_expire(struct sqlite_store *self, uint64_t except,
		int64_t now, struct postern_error *error) {
	int r = expiries_repair(self, now, error);
	struct sqlite_query query;
	if (r == POSTERN_OK) {
		postern__sqlite_query(&query, &self->writer,
				"DELETE FROM postern_node"
				" WHERE lives_until <= ?1 AND node <> ?2");
		postern__sqlite_bind_int(&query, 1, now);
		postern__sqlite_bind_int(&query, 2, (int64_t)except);
		r = postern__sqlite_end(&query, error);
	}
	if (r == POSTERN_OK) {
		postern__sqlite_query(&query, &self->writer,
				"DELETE FROM postern_node_handler"
				" WHERE node NOT IN (SELECT node FROM postern_node)");
		r = postern__sqlite_end(&query, error);
	}
	if (r == POSTERN_OK) {
		postern__sqlite_query(&query, &self->writer,
				"DELETE FROM postern_node_channel"
				" WHERE node NOT IN (SELECT node FROM postern_node)");
		r = postern__sqlite_end(&query, error);
	}
	return r;
}

int postern__sqlite_holds_lock(struct sqlite_store *self, uint64_t node,
		const struct postern_lock *lock, bool *holds_out,
		struct postern_error *error) {
	*holds_out = true;
	if (!lock) {
		return POSTERN_OK;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT 1 FROM postern_lock"
			" WHERE name = ?1 AND node = ?2 AND fence = ?3");
	postern__sqlite_bind_text(&query, 1, lock->name);
	postern__sqlite_bind_int(&query, 2, (int64_t)node);
	postern__sqlite_bind_int(&query, 3, (int64_t)lock->fence);
	*holds_out = postern__sqlite_row(&query);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_check_lock(struct sqlite_store *self, uint64_t node,
		const struct postern_lock *lock, struct postern_error *error) {
	bool holds;
	int r = postern__sqlite_holds_lock(self, node, lock, &holds, error);
	return r == POSTERN_OK && !holds
				   ? postern__fail(error, POSTERN_E_STALE,
							 "lock '%s' is no longer held by this node",
							 lock->name)
				   : r;
}

static int64_t expiry_end(int64_t now, int64_t ttl_ms) {
	return ttl_ms > INT64_MAX - now ? INT64_MAX : now + ttl_ms;
}

static int node_renew(struct sqlite_store *self, uint64_t node, int64_t ttl_ms,
		bool *alive_out, struct postern_error *error) {
	int64_t now = postern__sqlite_now(self);
	int changes = 0;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_node SET renewed_at = ?2, lives_until = ?3"
			" WHERE node = ?1");
	postern__sqlite_bind_int(&query, 1, (int64_t)node);
	postern__sqlite_bind_int(&query, 2, now);
	postern__sqlite_bind_int(&query, 3, expiry_end(now, ttl_ms));
	int r = postern__sqlite_end_changes(&query, &changes, error);
	*alive_out = changes > 0;
	return r == POSTERN_OK && ttl_ms == 0
				   ? postern__sqlite_nodes_expire(self, 0, now, error)
				   : r;
}

int postern__sqlite_renew(struct postern_store *store, uint64_t node,
		int64_t ttl_ms, bool *alive_out, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	bool alive = false;
	r = postern__sqlite_begin(self, error);
	if (r == POSTERN_OK) {
		r = node_renew(self, node, ttl_ms, &alive, error);
		r = postern__sqlite_finish(self, r, error);
	}
	if (r == POSTERN_OK) {
		*alive_out = alive;
		if (ttl_ms == 0 && self->only_node == node) {
			self->only_node = 0; /* the node's leases are lost now */
		}
	}
	postern__sqlite_gate_leave(self);
	return r;
}

/* Acquires the lock if it is free or has expired; renews it if the node holds
   it. */
static int lock_acquire(struct sqlite_store *self, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error) {
	int64_t now = postern__sqlite_now(self);
	int r = expiries_repair(self, now, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_lock VALUES (?1, ?2, 1, ?3, ?4)"
			" ON CONFLICT DO UPDATE SET node = ?2,"
			" fence = fence + (node <> ?2), renewed_at = ?3, held_until = ?4"
			" WHERE node = ?2 OR node = 0 OR held_until <= ?3"
			" RETURNING fence");
	postern__sqlite_bind_text(&query, 1, name);
	postern__sqlite_bind_int(&query, 2, (int64_t)node);
	postern__sqlite_bind_int(&query, 3, now);
	postern__sqlite_bind_int(&query, 4, expiry_end(now, ttl_ms));
	*held_out = postern__sqlite_row(&query);
	if (*held_out) {
		*fence_out = (uint64_t)postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_lock(struct postern_store *store, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	bool held = false;
	uint64_t fence = 0;
	r = postern__sqlite_begin(self, error);
	if (r == POSTERN_OK) {
		r = lock_acquire(self, name, node, ttl_ms, &held, &fence, error);
		r = postern__sqlite_finish(self, r, error);
	}
	postern__sqlite_gate_leave(self);
	if (r == POSTERN_OK) {
		*held_out = held;
		if (held) {
			*fence_out = fence;
		}
	}
	return r;
}

int postern__sqlite_unlock(struct postern_store *store,
		const struct postern_lock *lock, uint64_t node,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_lock SET node = 0"
			" WHERE name = ?1 AND node = ?2 AND fence = ?3");
	postern__sqlite_bind_text(&query, 1, lock->name);
	postern__sqlite_bind_int(&query, 2, (int64_t)node);
	postern__sqlite_bind_int(&query, 3, (int64_t)lock->fence);
	r = postern__sqlite_end(&query, error);
	postern__sqlite_gate_leave(self);
	return r;
}
