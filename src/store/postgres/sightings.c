/* SPDX-License-Identifier: MIT */

/*
 * How long other nodes have not renewed their leases.
 *
 * The terms of nodes and locks end by the clock of the database. That clock may
 * be set forward, and then all terms are over at once, though all nodes are
 * live. So a term counts as over only if it was also not renewed for so long by
 * the monotonic clock of this process, from when it first read the last
 * renewal.
 *
 * A process that runs for less than a lease cannot observe that. It leaves a
 * mark in the database instead (late_since), which the next renewal removes; a
 * process that finds the mark a whole lease later need not have waited itself.
 */

#include <stdlib.h>
#include <string.h>

#include <postern/sys/clock.h>

#include "base/point.h"
#include "base/siphash.h"
#include "store/postgres/postgres.h"

/* Node ids have 63 bits. */
#define LOCK_BIT (UINT64_C(1) << 63)

static int64_t monotonic_ms(const struct pg_store *self) {
	const struct postern_clock *clock =
			self->test_clock ? self->test_clock : self->clock;
	return clock->monotonic_ms(clock->context);
}

/* The caller holds the mutex. */
static struct pg_sighting *find(const struct pg_sightings *seen, uint64_t key) {
	for (size_t i = 0; i < seen->count; i++) {
		if (seen->items[i].key == key) {
			return &seen->items[i];
		}
	}
	return NULL;
}

/* The caller holds the mutex. Returns NULL if out of memory; then the renewal
   is noted the next time. */
static struct pg_sighting *add(struct pg_sightings *seen, uint64_t key) {
	if (seen->count == seen->cap) {
		size_t cap = seen->cap ? 2 * seen->cap : 16;
		struct pg_sighting *more = realloc(seen->items, cap * sizeof *more);
		if (!more) {
			return NULL;
		}
		seen->items = more;
		seen->cap = cap;
	}
	seen->items[seen->count] = (struct pg_sighting){ .key = key };
	return &seen->items[seen->count++];
}

/* The caller holds the mutex. */
static void note_renewal(struct pg_store *self, uint64_t key,
		int64_t renewed_at, int64_t term_ms) {
	struct pg_sighting *sighting = find(&self->sightings, key);
	bool is_new = !sighting || sighting->renewed_at != renewed_at;
	if (!sighting) {
		sighting = add(&self->sightings, key);
	}
	if (sighting && is_new) {
		sighting->renewed_at = renewed_at;
		sighting->since_ms = monotonic_ms(self);
	}
	if (sighting) {
		sighting->term_ms = term_ms;
		sighting->look = self->sightings.look;
	}
}

void postern__pg_saw_renewal(struct pg_store *self, uint64_t key,
		int64_t renewed_at, int64_t term_ms) {
	(void)pthread_mutex_lock(&self->mutex);
	note_renewal(self, key, renewed_at, term_ms);
	(void)pthread_mutex_unlock(&self->mutex);
}

bool postern__pg_is_silent(struct pg_store *self, uint64_t key,
		int64_t *renewed_at_out) {
	(void)pthread_mutex_lock(&self->mutex);
	const struct pg_sighting *sighting = find(&self->sightings, key);
	bool silent = sighting &&
				  monotonic_ms(self) - sighting->since_ms >= sighting->term_ms;
	if (silent) {
		*renewed_at_out = sighting->renewed_at;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return silent;
}

uint64_t postern__pg_lock_key(const struct pg_store *self, const char *name) {
	uint8_t digest[16];
	uint64_t key;
	postern__siphash_128_of(self->hash_key, name, strlen(name), digest);
	memcpy(&key, digest, sizeof key);
	return key | LOCK_BIT;
}

static bool is_lock(uint64_t key) {
	return key & LOCK_BIT;
}

/* The columns of watch_nodes_1. */
enum { NODE, RENEWED_AT, LEASE, LATE, LONG_LATE, LOST };

/* Note the last renewal of every node, and remove nodes that do not exist any
   more. */
static void note_nodes(const struct pg_query *nodes) {
	struct pg_store *self = nodes->connection->store;
	struct pg_sightings *seen = &self->sightings;
	(void)pthread_mutex_lock(&self->mutex);
	seen->look++;
	for (int row = 0; row < postern__pg_rows(nodes); row++) {
		if (!postern__pg_is_null(nodes, row, NODE)) {
			note_renewal(self, (uint64_t)postern__pg_get(nodes, row, NODE),
					postern__pg_get(nodes, row, RENEWED_AT),
					postern__pg_get(nodes, row, LEASE));
		}
	}
	for (size_t i = 0; i < seen->count;) {
		if (is_lock(seen->items[i].key) || seen->items[i].look == seen->look) {
			i++;
		} else {
			seen->items[i] = seen->items[--seen->count];
		}
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

/* Whether the node is late, and did not renew for its lease. */
static bool is_gone(const struct pg_query *nodes, int row) {
	int64_t renewed_at;
	return postern__pg_get(nodes, row, LATE) != 0 &&
		   (postern__pg_get(nodes, row, LONG_LATE) != 0 ||
				   postern__pg_is_silent(nodes->connection->store,
						   (uint64_t)postern__pg_get(nodes, row, NODE),
						   &renewed_at));
}

/* Add the nodes to expire to two arrays of a query: their ids and their last
   renewals. Returns how many. */
static size_t add_gone(const struct pg_query *nodes, uint64_t own,
		struct pg_query *out) {
	int count = postern__pg_rows(nodes);
	size_t gone = 0;
	for (int pass = 0; pass < 2; pass++) {
		gone = 0;
		postern__pg_array(out, PG_INT8);
		for (int row = 0; row < count; row++) {
			uint64_t node = (uint64_t)postern__pg_get(nodes, row, NODE);
			int64_t renewed_at = postern__pg_get(nodes, row, RENEWED_AT);
			if (postern__pg_is_null(nodes, row, NODE)) {
				continue;
			}
			if (node != own && is_gone(nodes, row)) {
				gone++;
				postern__pg_int8(out, pass == 0 ? (int64_t)node : renewed_at);
			}
		}
		postern__pg_array_end(out);
	}
	return gone;
}

static int expire(struct pg_connection *connection,
		const struct pg_query *nodes, uint64_t own, bool *any_out,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	int r = POSTERN_OK;
	*any_out = add_gone(nodes, own, &query) > 0;
	if (*any_out) {
		r = postern__pg_run(&query, "SELECT @expire_nodes_1($1, $2, $3)",
				error);
	}
	postern__pg_end(&query);
	return r;
}

static int watch_nodes(struct pg_query *query, struct pg_connection *connection,
		uint64_t node, struct postern_error *error) {
	postern__pg_query(query, connection);
	postern__pg_node(query, node);
	postern__pg_now(query);
	return postern__pg_run(query, "SELECT * FROM @watch_nodes_1($1, $2)",
			error);
}

int postern__pg_watch_nodes(struct pg_connection *connection, uint64_t node,
		struct postern_error *error) {
	struct pg_query query;
	int r = watch_nodes(&query, connection, node, error);
	if (r == POSTERN_OK) {
		note_nodes(&query);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_expire_nodes(struct pg_connection *connection, uint64_t node,
		bool *lost_out, struct postern_error *error) {
	struct pg_query query;
	bool any = false;
	int r = watch_nodes(&query, connection, node, error);
	if (r == POSTERN_OK) {
		note_nodes(&query);
		*lost_out = postern__pg_get(&query, postern__pg_rows(&query) - 1,
							LOST) != 0;
		r = expire(connection, &query, node, &any, error);
		*lost_out = *lost_out || any;
	}
	postern__pg_end(&query);
	return r;
}
