/* SPDX-License-Identifier: MIT */

/*
 * Nodes and locks: their leases, by the clock of the database.
 *
 * A transaction that leases or settles holds a shared advisory lock on its node
 * id, and on the name of the lock it acts under, until its commit. A
 * transaction that ends a node or takes over a lock acquires it exclusively: it
 * waits for running transactions, and none can start afterwards. So the leases
 * of an expired node are all found by one recovery.
 *
 * Renewals use a connection of their own, and take no longer than a third of
 * the term: whatever the node is doing, it is renewed in time.
 */

#include "base/fail.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

struct work {
	const char *name;
	uint64_t node;
	int64_t ttl_ms;
	uint64_t fence;
	bool yes; /* live, or held */
};

static int renew(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	struct work *work = context;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->node);
	postern__pg_now(&query);
	postern__pg_int8(&query, work->ttl_ms);
	int r = postern__pg_run(&query, "SELECT * FROM @renew_1($1, $2, $3)",
			error);
	if (r == POSTERN_OK) {
		int64_t now = postern__pg_get(&query, 0, 1);
		postern__pg_saw(connection->store, now);
		postern__pg_saw_renewal(connection->store, work->node, now,
				work->ttl_ms);
		/* The first try may have ended the node. */
		work->yes = postern__pg_get(&query, 0, 0) != 0 ||
					(again && work->ttl_ms == 0);
	}
	postern__pg_end(&query);
	if (r == POSTERN_OK && (work->ttl_ms == 0 || !work->yes)) {
		postern__pg_forget_uncertain_leases(connection->store, work->node);
	}
	return r;
}

int postern__pg_renew(struct postern_store *store, uint64_t node,
		int64_t ttl_ms, bool *alive_out, struct postern_error *error) {
	struct work work = { .node = node, .ttl_ms = ttl_ms };
	int r = postern__pg_do_tenure(postern__pg_from_base(store), ttl_ms,
			ttl_ms == 0, renew, &work, error);
	if (r == POSTERN_OK) {
		*alive_out = work.yes;
	}
	return r;
}

/* Add the last renewal of the lock that this process read, if that was at least
   a term ago; else NULL. */
static void add_silence(struct pg_query *query, const struct work *work) {
	int64_t renewed_at;
	if (postern__pg_is_silent(query->connection->store,
				postern__pg_lock_key(query->connection->store, work->name),
				&renewed_at)) {
		postern__pg_int8(query, renewed_at);
	} else {
		postern__pg_null(query, PG_INT8);
	}
}

static int take(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	struct work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, work->name);
	postern__pg_node(&query, work->node);
	postern__pg_now(&query);
	postern__pg_int8(&query, work->ttl_ms);
	add_silence(&query, work);
	int r = postern__pg_run(&query, "SELECT * FROM @lock_1($1, $2, $3, $4, $5)",
			error);
	if (r == POSTERN_OK) {
		struct pg_store *self = connection->store;
		uint64_t key = postern__pg_lock_key(self, work->name);
		work->yes = !postern__pg_is_null(&query, 0, 0);
		work->fence = (uint64_t)postern__pg_get(&query, 0, 0);
		postern__pg_saw_renewal(self, key, postern__pg_get(&query, 0, 1),
				postern__pg_get(&query, 0, 2));
	}
	postern__pg_end(&query);
	if (r == POSTERN_OK && !work->yes) {
		/* A node that waits for the lock recovers nothing, but must know how
		   long the other nodes have not renewed when it acquires the lock. */
		(void)postern__pg_watch_nodes(connection, work->node, NULL);
	}
	return r;
}

int postern__pg_lock(struct postern_store *store, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	struct work work = { .name = name, .node = node, .ttl_ms = ttl_ms };
	(void)pthread_mutex_lock(&self->mutex);
	bool beside = self->node_lease_ms > 0 && ttl_ms > self->node_lease_ms;
	(void)pthread_mutex_unlock(&self->mutex);
	/* A lock with a longer term than the node's need not be renewed with the
	   node, and must not block the connection for renewals. */
	int r = beside ? postern__pg_do(self, take, &work, error)
				   : postern__pg_do_tenure(self, ttl_ms, false, take, &work,
							 error);
	if (r == POSTERN_OK) {
		*held_out = work.yes;
		if (work.yes) {
			*fence_out = work.fence;
		}
	}
	return r;
}

static int release(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	const struct work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, work->name);
	postern__pg_node(&query, work->node);
	postern__pg_int8(&query, (int64_t)work->fence);
	int r = postern__pg_run(&query,
			"UPDATE @lock SET node = 0"
			" WHERE name = $1 AND node = $2 AND fence = $3",
			error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_unlock(struct postern_store *store,
		const struct postern_lock *lock, uint64_t node,
		struct postern_error *error) {
	struct work work = {
		.name = lock->name,
		.node = node,
		.fence = lock->fence,
	};
	return postern__pg_do(postern__pg_from_base(store), release, &work, error);
}

static int tell_rival(const struct pg_query *query,
		struct postern_error *error) {
	size_t len; /* texts end with a zero byte */
	return postern__rival_fail((uint64_t)postern__pg_get(query, 0, 1),
			postern__pg_get_bytes(query, 0, 2, &len),
			postern__pg_get(query, 0, 3),
			postern__pg_is_null(query, 0, 4)
					? NULL
					: postern__pg_get_bytes(query, 0, 4, &len),
			error);
}

static int engage(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	const struct work *work = context;
	(void)again;
	bool lost;
	/* A late node that leases under another lock would not be expired by other
	   nodes before it renews. */
	int r = postern__pg_expire_nodes(connection, work->node, &lost, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->node);
	postern__pg_text(&query, work->name);
	r = postern__pg_run(&query, "SELECT * FROM @engage_1($1, $2)", error);
	if (r == POSTERN_OK && !postern__pg_is_null(&query, 0, 1)) {
		r = tell_rival(&query, error);
	} else if (r == POSTERN_OK && !postern__pg_get(&query, 0, 0)) {
		r = postern__fail(error, POSTERN_E_STALE, "the node is gone");
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_engage(struct postern_store *store, uint64_t node,
		const char *lock_name, struct postern_error *error) {
	struct work work = { .name = lock_name, .node = node };
	return postern__pg_do_tenure(postern__pg_from_base(store), 0, false, engage,
			&work, error);
}
