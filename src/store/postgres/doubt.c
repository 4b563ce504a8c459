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
 * The number of a message that was accepted is not used again. But a delivery
 * whose claim did not take effect will be claimed once more, under the same
 * fence, and that lease must not be given back: nothing is claimed before the
 * doubts about claims are settled, by one at a time.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

void postern__pg_doubt(struct pg_store *self, uint64_t node,
		const struct pg_lease *leases, size_t count, bool claimed) {
	struct pg_doubts *doubts = &self->doubts;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node != node) {
		/* What another life had leased is taken back when it is gone. */
		doubts->node = node;
		doubts->count = 0;
		doubts->claimed = false;
	}
	if (doubts->count + count > doubts->cap) {
		size_t cap = 2 * (doubts->count + count);
		struct pg_lease *more = realloc(doubts->leases, cap * sizeof *more);
		if (!more) {
			/* They stay until the node ends. */
			count = 0;
		} else {
			doubts->leases = more;
			doubts->cap = cap;
		}
	}
	if (count > 0) {
		memcpy(doubts->leases + doubts->count, leases, count * sizeof *leases);
		doubts->count += count;
		doubts->claimed = doubts->claimed || claimed;
	}
	(void)pthread_mutex_unlock(&self->lock);
}

/* A copy of what is in doubt; NULL: nothing, or no memory for it. */
static struct pg_lease *take_copy(struct pg_store *self, uint64_t node,
		bool only_claimed, size_t *count_out) {
	struct pg_doubts *doubts = &self->doubts;
	struct pg_lease *copy = NULL;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node == node && doubts->count > 0 &&
			(doubts->claimed || !only_claimed)) {
		copy = malloc(doubts->count * sizeof *copy);
	}
	if (copy) {
		memcpy(copy, doubts->leases, doubts->count * sizeof *copy);
		*count_out = doubts->count;
	}
	(void)pthread_mutex_unlock(&self->lock);
	return copy;
}

/* The first so many are settled; others may have come meanwhile. */
static void forget(struct pg_store *self, uint64_t node, size_t count) {
	struct pg_doubts *doubts = &self->doubts;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node == node) {
		doubts->count -= count;
		memmove(doubts->leases, doubts->leases + count,
				doubts->count * sizeof *doubts->leases);
		doubts->claimed = doubts->claimed && doubts->count > 0;
	}
	(void)pthread_mutex_unlock(&self->lock);
}

#define EACH_LEASE(type, add)                          \
	do {                                               \
		postern__pg_array(&query, (type));             \
		for (size_t i = 0; i < count; i++) {           \
			const struct pg_lease *lease = &leases[i]; \
			add;                                       \
		}                                              \
		postern__pg_array_end(&query);                 \
	} while (0)

static int give_back(struct pg_connection *connection, uint64_t node,
		const struct pg_lease *leases, size_t count,
		struct postern_error *error) {
	char timeout[24];
	(void)snprintf(timeout, sizeof timeout, "%lld",
			(long long)connection->store->lock_timeout_ms);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, node);
	postern__pg_now(&query);
	postern__pg_text(&query, timeout);
	EACH_LEASE(PG_INT8, postern__pg_int8(&query, lease->seq));
	EACH_LEASE(PG_INT4, postern__pg_int4(&query, lease->handler));
	EACH_LEASE(PG_INT8, postern__pg_int8(&query, (int64_t)lease->fence));
	int r = postern__pg_run(&query,
			"SELECT @give_back_1($1, $2, $3, $4, $5, $6)", error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_settle_doubts(struct pg_connection *connection, uint64_t node,
		bool only_claimed, struct postern_error *error) {
	struct pg_store *self = connection->store;
	size_t count = 0;
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&self->settling);
	struct pg_lease *leases = take_copy(self, node, only_claimed, &count);
	if (leases) {
		r = give_back(connection, node, leases, count, error);
		if (r == POSTERN_OK) {
			forget(self, node, count);
		}
		free(leases);
	}
	(void)pthread_mutex_unlock(&self->settling);
	return r;
}
