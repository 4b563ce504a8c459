/* SPDX-License-Identifier: MIT */

/*
 * Nodes and locks: who is there, and until when, by the clock of the database.
 *
 * Whoever leases or settles shares a lock on the number of its node, and on the
 * name of the lock it acts under, until its commit. Whoever ends a node or
 * takes a lock over has it alone: both wait for what is under way, and nothing
 * can begin afterwards. So a dead node's leases are found once and for all.
 *
 * All of it goes over a connection of its own, and takes no longer than a third
 * of the term: whatever the node is doing, it is renewed in time.
 */

#include "base/fail.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

struct work {
	const char *name;
	uint64_t node;
	int64_t ttl_ms;
	uint64_t fence;
	bool yes; /* alive, or held */
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
		/* The first try may have ended it. */
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

/* Add the last renewal of the lock that was seen, if it was seen that long ago;
   else NULL. */
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
		/* Who waits for the lock recovers nothing, but will have to know how
		   long the others have been silent when it has the lock. */
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
	/* A lock with a longer term than the node's is not one that must be renewed
	   with it, and must not hold up the connection that renews. */
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
	/* A late one of those that lease otherwise would not be found gone by
	   others before it is back. */
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
