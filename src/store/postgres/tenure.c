/* SPDX-License-Identifier: MIT */

/*
 * Nodes and locks: who is there, and until when, by the clock of the database.
 *
 * Whoever leases or settles shares a lock on the number of its node, and on the
 * name of the lock it acts under, until its commit. Whoever ends a node or
 * takes a lock over has it alone: both wait for what is under way, and nothing
 * can begin afterwards. So a dead node's leases are found once and for all.
 */

#include "base/fail.h"
#include "base/point.h"
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
		postern__pg_saw(connection->store, postern__pg_get(&query, 0, 1));
		/* The first try may have ended it. */
		work->yes = postern__pg_get(&query, 0, 0) != 0 ||
					(again && work->ttl_ms == 0);
	}
	postern__pg_end(&query);
	if (r == POSTERN_OK && work->ttl_ms > 0) {
		/* It lives on in any case; if this fails, it is done another time. */
		(void)postern__pg_settle_doubts(connection, work->node, false, NULL);
	}
	return r;
}

int postern__pg_renew(struct postern_store *store, uint64_t node,
		int64_t ttl_ms, bool *alive_out, struct postern_error *error) {
	struct work work = { .node = node, .ttl_ms = ttl_ms };
	int r = postern__pg_do(postern__pg_from_base(store), renew, &work, error);
	if (r == POSTERN_OK) {
		*alive_out = work.yes || postern__bug("dead-node-lives");
	}
	return r;
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
	int r = postern__pg_run(&query, "SELECT @lock_1($1, $2, $3, $4)", error);
	if (r == POSTERN_OK) {
		work->yes = !postern__pg_is_null(&query, 0, 0);
		work->fence = (uint64_t)postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_lock(struct postern_store *store, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error) {
	struct work work = { .name = name, .node = node, .ttl_ms = ttl_ms };
	int r = postern__pg_do(postern__pg_from_base(store), take, &work, error);
	if (r == POSTERN_OK) {
		*held_out = work.yes;
		if (work.yes) {
			*fence_out = postern__bug("lock-keeps-fence") ? 1 : work.fence;
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
			postern__bug("lock-of-another-freed")
					? "UPDATE @lock SET node = 0 WHERE name = $1"
					  " AND $2::bigint <> 0 AND $3::bigint <> 0"
					: "UPDATE @lock SET node = 0"
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
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->node);
	postern__pg_now(&query);
	postern__pg_text(&query, work->name);
	int r = postern__pg_run(&query, "SELECT * FROM @engage_1($1, $2, $3)",
			error);
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
	return postern__pg_do(postern__pg_from_base(store), engage, &work, error);
}
