/* SPDX-License-Identifier: MIT */

/*
 * Leases that this node may have and does not know of.
 *
 * A batch that leases what it accepts, or a claim, whose answer never came may
 * have been carried out or not. Its sender was told that it failed; but the
 * leases would stay with a node that lives on and never runs them. So they are
 * kept in mind, and with the next renewal they are given back, if there are
 * any.
 *
 * Whoever gives back waits for what is under way. But a batch is one statement,
 * and the server may not even have begun with it: so what a batch may have
 * leased is looked for with every renewal, for as long as a statement may take.
 * That does no harm, for the number of a message is not used again.
 *
 * A claim has begun before it can be in doubt. But a delivery whose claim did
 * not take effect will be claimed once more, under the same fence, and that
 * lease must not be given back: nothing is claimed before the doubts about
 * claims are settled, by one at a time, and then they are forgotten. Only what
 * was claimed is waited for then: a handler that takes its time in a
 * transaction of the node must not hold up all claims.
 */

#include <postern/sys/clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

static int64_t now_ms(const struct pg_store *self) {
	return self->clock->monotonic_ms(self->clock->context);
}

void postern__pg_doubt(struct pg_store *self, uint64_t node,
		const struct pg_lease *leases, size_t count, bool claimed) {
	struct pg_doubts *doubts = &self->doubts;
	int64_t until = now_ms(self) + self->command_timeout_ms;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node != node) {
		/* What another life had leased is taken back when it is gone. */
		doubts->node = node;
		doubts->count = 0;
		doubts->claimed = false;
	}
	if (doubts->count + count > doubts->cap) {
		size_t cap = 2 * (doubts->count + count);
		struct pg_doubt *more = realloc(doubts->items, cap * sizeof *more);
		if (!more) {
			/* They stay until the node ends. */
			count = 0;
		} else {
			doubts->items = more;
			doubts->cap = cap;
		}
	}
	for (size_t i = 0; i < count; i++) {
		doubts->items[doubts->count++] =
				(struct pg_doubt){ leases[i], claimed ? 0 : until };
		doubts->claimed = doubts->claimed || claimed;
	}
	(void)pthread_mutex_unlock(&self->lock);
}

/* A copy of what is in doubt; NULL: nothing, or no memory for it. */
static struct pg_doubt *take_copy(struct pg_store *self, uint64_t node,
		bool only_claimed, size_t *count_out) {
	struct pg_doubts *doubts = &self->doubts;
	struct pg_doubt *copy = NULL;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node == node && doubts->count > 0 &&
			(doubts->claimed || !only_claimed)) {
		copy = malloc(doubts->count * sizeof *copy);
	}
	if (copy) {
		memcpy(copy, doubts->items, doubts->count * sizeof *copy);
		*count_out = doubts->count;
	}
	(void)pthread_mutex_unlock(&self->lock);
	return copy;
}

/* The first so many were looked for, at that time; others may have come
   meanwhile. `only_claimed`: no batch was waited for, so one of them may be
   under way still, however long ago that was. */
static void forget(struct pg_store *self, uint64_t node, bool only_claimed,
		size_t count, int64_t now) {
	struct pg_doubts *doubts = &self->doubts;
	size_t kept = 0;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node == node) {
		doubts->claimed = false;
		for (size_t i = 0; i < doubts->count; i++) {
			const struct pg_doubt doubt = doubts->items[i];
			bool batch = doubt.until_ms > 0;
			if (i >= count || doubt.until_ms > now || (only_claimed && batch)) {
				doubts->items[kept++] = doubt;
				doubts->claimed = doubts->claimed || !batch;
			}
		}
		doubts->count = kept;
	}
	(void)pthread_mutex_unlock(&self->lock);
}

#define EACH_LEASE(type, add)                                \
	do {                                                     \
		postern__pg_array(&query, (type));                   \
		for (size_t i = 0; i < count; i++) {                 \
			const struct pg_lease *lease = &doubts[i].lease; \
			add;                                             \
		}                                                    \
		postern__pg_array_end(&query);                       \
	} while (0)

static int give_back(struct pg_connection *connection, uint64_t node,
		bool batches, const struct pg_doubt *doubts, size_t count,
		struct postern_error *error) {
	char timeout[24];
	(void)snprintf(timeout, sizeof timeout, "%lld",
			(long long)connection->store->lock_timeout_ms);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, node);
	postern__pg_now(&query);
	postern__pg_text(&query, timeout);
	postern__pg_bool(&query, batches);
	EACH_LEASE(PG_INT8, postern__pg_int8(&query, lease->seq));
	EACH_LEASE(PG_INT4, postern__pg_int4(&query, lease->handler));
	EACH_LEASE(PG_INT8, postern__pg_int8(&query, (int64_t)lease->fence));
	int r = postern__pg_run(&query,
			"SELECT @give_back_1($1, $2, $3, $4, $5, $6, $7)", error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_settle_doubts(struct pg_connection *connection, uint64_t node,
		bool only_claimed, struct postern_error *error) {
	struct pg_store *self = connection->store;
	size_t count = 0;
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&self->settling);
	int64_t now = now_ms(self);
	struct pg_doubt *doubts = take_copy(self, node, only_claimed, &count);
	if (doubts) {
		r = give_back(connection, node, !only_claimed, doubts, count, error);
		if (r == POSTERN_OK) {
			forget(self, node, only_claimed, count, now);
		}
		free(doubts);
	}
	(void)pthread_mutex_unlock(&self->settling);
	return r;
}
