/* SPDX-License-Identifier: MIT */

/*
 * Parked messages, which wait for a handler that wants them. Only the caller
 * can route: the messages are read and locked, routed by its callback, and
 * their deliveries are written in the same transaction.
 */

#include <assert.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

struct delivery {
	int64_t seq;
	int64_t handler;
};

struct work {
	postern_router *router;
	void *context;
	size_t max;
	int64_t after;
	struct postern_route *routes; /* of one message */
	size_t route_max;
	struct delivery *found;
	size_t found_count;
	size_t found_cap;
	uint64_t unparked;
	int64_t cursor;
};

static bool add_delivery(struct work *work, int64_t seq, int64_t handler) {
	if (work->found_count == work->found_cap) {
		size_t cap = work->found_cap ? 2 * work->found_cap : 256;
		struct delivery *more = realloc(work->found, cap * sizeof *more);
		if (!more) {
			return false;
		}
		work->found = more;
		work->found_cap = cap;
	}
	work->found[work->found_count++] = (struct delivery){ seq, handler };
	return true;
}

static int route_all(const struct pg_query *query, struct work *work,
		struct postern_error *error) {
	int count = postern__pg_rows(query);
	bool more = (size_t)count > work->max;
	bool memory = true;
	work->found_count = 0;
	work->unparked = 0;
	work->cursor = 0;
	for (int row = 0; memory && row < count && (size_t)row < work->max; row++) {
		int64_t seq = postern__pg_get(query, row, 0);
		size_t len;
		const char *type = postern__pg_get_bytes(query, row, 2, &len);
		size_t wanted =
				work->router(work->context, postern__pg_get(query, row, 1),
						type, work->routes, work->route_max);
		assert(wanted <= work->route_max);
		for (size_t i = 0; memory && i < wanted; i++) {
			memory = add_delivery(work, seq, work->routes[i].handler);
		}
		work->unparked += wanted > 0;
		work->cursor = more ? seq : 0;
	}
	return memory ? POSTERN_OK : postern__pg_no_memory(error);
}

static int read_parked(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, work->after);
	postern__pg_int8(&query, (int64_t)work->max + 1);
	/* Messages that another node has locked are unparked by that node. */
	int r = postern__pg_run(&query,
			"SELECT p.seq, m.channel, m.type FROM @parked p"
			" JOIN @message m ON m.seq = p.seq WHERE p.seq > $1"
			" ORDER BY p.seq LIMIT $2 FOR UPDATE OF p SKIP LOCKED",
			error);
	if (r == POSTERN_OK) {
		r = route_all(&query, work, error);
	}
	postern__pg_end(&query);
	return r;
}

static int write_all(struct pg_connection *connection, const struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	postern__pg_array(&query, PG_INT8);
	for (size_t i = 0; i < work->found_count; i++) {
		postern__pg_int8(&query, work->found[i].seq);
	}
	postern__pg_array_end(&query);
	postern__pg_array(&query, PG_INT4);
	for (size_t i = 0; i < work->found_count; i++) {
		postern__pg_int4(&query, work->found[i].handler);
	}
	postern__pg_array_end(&query);
	int r = postern__pg_run(&query,
			"WITH t AS (SELECT coalesce($1, @now_ms()) AS now),"
			" removed AS (DELETE FROM @parked WHERE seq = ANY ($2))"
			" INSERT INTO @open (seq, fence, node, due_at, since, suspect,"
			" handler, failures, starts, crashes, solo)"
			" SELECT u.seq, 0, NULL, t.now, t.now, 0, h.owner, 0, 0, 0,"
			" false FROM unnest($2, $3) AS u (seq, handler)"
			" JOIN @handler h ON h.id = u.handler CROSS JOIN t"
			" ON CONFLICT DO NOTHING",
			error);
	postern__pg_end(&query);
	return r == POSTERN_OK
				   ? postern__pg_exec(connection, "SELECT @wake_1(0)", error)
				   : r;
}

/* Allocate as many routes as there are handlers, also those that other nodes
   enrolled. */
static int make_room(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_store *self = connection->store;
	int r = work->routes ? POSTERN_OK
						 : postern__pg_directory_load(connection, error);
	if (work->routes || r != POSTERN_OK) {
		return r;
	}
	(void)pthread_mutex_lock(&self->mutex);
	work->route_max = self->handler_count;
	(void)pthread_mutex_unlock(&self->mutex);
	work->routes = calloc(work->route_max + 1, sizeof *work->routes);
	return work->routes ? POSTERN_OK : postern__pg_no_memory(error);
}

static int unpark_once(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	(void)again;
	int r = make_room(connection, work, error);
	if (r == POSTERN_OK) {
		r = postern__pg_begin(connection, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	/* Keeps aliases from being made meanwhile. */
	r = postern__pg_exec(connection,
			"SELECT pg_advisory_xact_lock_shared(hashtext('@handler'), 0)",
			error);
	if (r == POSTERN_OK) {
		r = read_parked(connection, work, error);
	}
	postern__point("postgres-unpark.routed");
	if (r == POSTERN_OK && work->found_count > 0) {
		r = write_all(connection, work, error);
	}
	return postern__pg_finish(connection, r, error);
}

int postern__pg_unpark(struct postern_store *store, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	struct work work = {
		.router = router,
		.context = context,
		.max = max,
		.after = *cursor,
	};
	int r = postern__pg_do(self, unpark_once, &work, error);
	free(work.routes);
	free(work.found);
	if (r == POSTERN_OK) {
		*cursor = work.cursor;
		*count_out = work.unparked;
	}
	return r;
}
