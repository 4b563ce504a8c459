/* SPDX-License-Identifier: MIT */

/*
 * A clock that goes back. Only the database's clock counts, but it may be set
 * wrong, and then right again: deliveries that became pending in the future
 * would wait until then. The store compares the times that the database
 * returns; after a step back, the next claim checks all pending deliveries
 * once.
 */

#include <string.h>

#include "store/postgres/postgres.h"
#include "store/store.h"

int64_t postern__pg_latest(struct pg_store *self) {
	(void)pthread_mutex_lock(&self->mutex);
	int64_t latest = self->now_max_ms;
	(void)pthread_mutex_unlock(&self->mutex);
	return latest;
}

/* The caller holds the mutex. Deliveries accepted from now on may be due before
   those that were claimed, so the marks are reset. */
static bool has_gone_back(struct pg_store *self, int64_t now) {
	/* A clock that is being slewed has not gone back. */
	if (now >= self->now_max_ms - POSTERN__CLOCK_STEP_MS) {
		return false;
	}
	memset(self->marks, 0, sizeof self->marks);
	return true;
}

void postern__pg_set_latest(struct pg_store *self, int64_t now) {
	(void)pthread_mutex_lock(&self->mutex);
	if (now > self->now_max_ms || has_gone_back(self, now)) {
		self->now_max_ms = now;
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

void postern__pg_saw(struct pg_store *self, int64_t now) {
	(void)pthread_mutex_lock(&self->mutex);
	(void)has_gone_back(self, now);
	if (now > self->now_max_ms) {
		self->now_max_ms = now;
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

int postern__pg_clock_repair(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_store *self = connection->store;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			"WITH t AS (SELECT coalesce($1, @now_ms()) AS now),"
			" late AS (UPDATE @open SET due_at = t.now, since = t.now FROM t"
			" WHERE node IS NULL AND since > t.now)"
			" SELECT now FROM t",
			error);
	if (r == POSTERN_OK) {
		postern__pg_set_latest(self, postern__pg_get(&query, 0, 0));
	}
	postern__pg_end(&query);
	return r;
}
