/* SPDX-License-Identifier: MIT */

/*
 * Parked messages, which wait for a handler that wants them. Only the caller
 * can route: the messages are locked, routed by its callback, and their
 * deliveries are written in the same transaction. A message is read as a whole
 * only if a handler that wants it has a key of its own.
 */

#include <assert.h>
#include <postern/sys/memory.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/point.h"
#include "core/error_group.h"
#include "store/postgres/postgres.h"

/* A route of a parked message. */
struct delivery {
	int64_t seq;
	int64_t handler;
	int64_t channel;
	bool has_key;
	struct pg_key key;
	uint8_t digest[POSTERN__DIGEST_LEN]; /* with a key: of the body */
	const char *refusal;                 /* in the memory of the work */
};

struct work {
	postern_router *router;
	void *context;
	size_t max;
	int64_t after;
	struct postern_memory *memory;
	struct postern_route *routes; /* of one message */
	size_t route_max;
	struct delivery *found;
	size_t found_count;
	size_t found_cap;
	uint64_t unparked;
	int64_t cursor;
};

static struct delivery *add_delivery(struct work *work) {
	if (work->found_count == work->found_cap) {
		size_t cap = work->found_cap ? 2 * work->found_cap : 256;
		struct delivery *more = realloc(work->found, cap * sizeof *more);
		if (!more) {
			return NULL;
		}
		work->found = more;
		work->found_cap = cap;
	}
	return &work->found[work->found_count++];
}

/* Adds the deliveries of one message, which is NULL if no key is made of it;
   false: out of memory. */
static bool add_routes(const struct pg_store *self, struct work *work,
		int64_t seq, int64_t channel, const struct postern_message *message,
		size_t count) {
	assert(count <= work->route_max);
	for (size_t i = 0; i < count; i++) {
		const struct postern_route *route = &work->routes[i];
		struct delivery *delivery = add_delivery(work);
		if (!delivery) {
			return false;
		}
		*delivery = (struct delivery){
			.seq = seq,
			.handler = route->handler,
			.channel = channel,
			.has_key = message && route->key,
		};
		if (delivery->has_key) {
			postern__pg_key(self, channel, route->key, &delivery->key);
			postern__body_digest(self->hash_key, message, delivery->digest);
		}
		if (route->refusal) {
			delivery->refusal =
					postern_memory_text(work->memory, route->refusal);
			if (!delivery->refusal) {
				return false;
			}
		}
	}
	work->unparked += count > 0;
	return true;
}

/* Routes a message some of whose routes need it. */
static int route_by_message(struct pg_connection *connection, struct work *work,
		int64_t seq, int64_t channel, const char *type,
		struct postern_error *error) {
	struct postern_message message;
	struct postern_memory *memory = postern_memory_create();
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, seq);
	int r = postern__pg_run(&query,
			"SELECT " PG_MESSAGE_COLUMNS " FROM @message m"
			" JOIN @channel c ON c.id = m.channel WHERE m.seq = $1",
			error);
	if (r == POSTERN_OK && postern__pg_rows(&query) == 1) {
		r = memory ? postern__pg_message_read(&query, 0, 0, memory, &message,
							 error)
				   : postern__pg_no_memory(error);
		if (r == POSTERN_OK) {
			size_t count = work->router(work->context, channel, type, &message,
					work->routes, work->route_max);
			r = add_routes(connection->store, work, seq, channel, &message,
						count)
						? POSTERN_OK
						: postern__pg_no_memory(error);
		}
	}
	postern__pg_end(&query);
	postern_memory_destroy(memory);
	return r == POSTERN_E_CORRUPT ? POSTERN_OK : r; /* it stays parked */
}

static int route_one(const struct pg_query *query, int row, struct work *work,
		struct postern_error *error) {
	int64_t seq = postern__pg_get(query, row, 0);
	int64_t channel = postern__pg_get(query, row, 1);
	size_t len;
	const char *type = postern__pg_get_bytes(query, row, 2, &len);
	size_t count = work->router(work->context, channel, type, NULL,
			work->routes, work->route_max);
	for (size_t i = 0; i < count; i++) {
		if (work->routes[i].by_message) {
			return route_by_message(query->connection, work, seq, channel, type,
					error);
		}
	}
	return add_routes(query->connection->store, work, seq, channel, NULL, count)
				   ? POSTERN_OK
				   : postern__pg_no_memory(error);
}

static int route_all(const struct pg_query *query, struct work *work,
		struct postern_error *error) {
	int r = POSTERN_OK;
	int count = postern__pg_rows(query);
	bool more = (size_t)count > work->max;
	work->found_count = 0;
	work->unparked = 0;
	work->cursor = 0;
	for (int row = 0; r == POSTERN_OK && row < count && (size_t)row < work->max;
			row++) {
		r = route_one(query, row, work, error);
		work->cursor = more ? postern__pg_get(query, row, 0) : 0;
	}
	return r;
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

/* An array of what `add` adds for each delivery `d` for which `when` holds. */
#define EACH_DELIVERY(type, when, add)                   \
	do {                                                 \
		postern__pg_array(&query, (type));               \
		for (size_t i = 0; i < work->found_count; i++) { \
			const struct delivery *d = &work->found[i];  \
			if (when) {                                  \
				add;                                     \
			}                                            \
		}                                                \
		postern__pg_array_end(&query);                   \
	} while (0)

static int write_all(struct pg_connection *connection, const struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	EACH_DELIVERY(PG_INT8, true, postern__pg_int8(&query, d->seq));
	EACH_DELIVERY(PG_INT4, true, postern__pg_int4(&query, d->handler));
	EACH_DELIVERY(PG_INT4, true, postern__pg_int4(&query, d->channel));
	EACH_DELIVERY(PG_UUID, true, postern__pg_uuid(&query, d->digest));
	EACH_DELIVERY(PG_INT4, d->has_key,
			postern__pg_int4(&query, (int64_t)i + 1));
	for (size_t word = 0; word < 3; word++) {
		EACH_DELIVERY(PG_INT8, d->has_key,
				postern__pg_int8(&query, d->key.words[word]));
	}
	EACH_DELIVERY(PG_INT4, d->refusal,
			postern__pg_int4(&query, (int64_t)i + 1));
	EACH_DELIVERY(PG_TEXT, d->refusal, postern__pg_text(&query, d->refusal));
	EACH_DELIVERY(PG_INT8, d->refusal,
			postern__pg_int8(&query,
					(int64_t)postern__error_group(d->refusal)));
	int r = postern__pg_run(&query,
			"SELECT @unpark_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,"
			" $12)",
			error);
	postern__pg_end(&query);
	return r;
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
		.memory = postern_memory_create(),
	};
	int r = work.memory ? postern__pg_do(self, unpark_once, &work, error)
						: postern__pg_no_memory(error);
	postern_memory_destroy(work.memory);
	free(work.routes);
	free(work.found);
	if (r == POSTERN_OK) {
		*cursor = work.cursor;
		*count_out = work.unparked;
	}
	return r;
}
