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
 * and the server may not even have begun with it, nor do so for long; the same
 * goes for giving back itself. So each time begins a new round: all that is
 * sent says in which one, and the server refuses what is of an earlier one. A
 * batch that was sent in between is refused, too, and sent again.
 *
 * A claim has begun before it can be in doubt. But a delivery whose claim did
 * not take effect will be claimed once more, under the same fence, and that
 * lease must not be given back: nothing is claimed before the doubts about
 * claims are settled, by one at a time, and then they are forgotten. Only what
 * was claimed is waited for then: a handler that takes its time in a
 * transaction of the node must not hold up all claims.
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
				(struct pg_doubt){ leases[i], claimed };
		doubts->claimed = doubts->claimed || claimed;
	}
	(void)pthread_mutex_unlock(&self->lock);
}

int64_t postern__pg_round(struct pg_store *self) {
	(void)pthread_mutex_lock(&self->lock);
	int64_t round = self->round;
	(void)pthread_mutex_unlock(&self->lock);
	return round;
}

/* What is looked for. */
struct search {
	uint64_t node;
	bool only_claimed;
	struct pg_doubt *doubts; /* NULL: nothing */
	size_t count;
	int64_t round; /* that begins with it */
};

/* Take a copy of what is in doubt. What is sent from now on belongs to a new
   round. */
static int search_begin(struct pg_store *self, struct search *search,
		struct postern_error *error) {
	const struct pg_doubts *doubts = &self->doubts;
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node == search->node && doubts->count > 0 &&
			(doubts->claimed || !search->only_claimed)) {
		search->doubts = malloc(doubts->count * sizeof *search->doubts);
		r = search->doubts ? POSTERN_OK : postern__pg_no_memory(error);
	}
	if (search->doubts) {
		memcpy(search->doubts, doubts->items,
				doubts->count * sizeof *search->doubts);
		search->count = doubts->count;
		search->round = ++self->round;
	}
	(void)pthread_mutex_unlock(&self->lock);
	return r;
}

/* It was looked for; more may have come meanwhile. If only claims were meant,
   no batch was waited for. */
static void forget(struct pg_store *self, const struct search *search) {
	struct pg_doubts *doubts = &self->doubts;
	size_t kept = 0;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node == search->node) {
		doubts->claimed = false;
		for (size_t i = 0; i < doubts->count; i++) {
			const struct pg_doubt doubt = doubts->items[i];
			if (i >= search->count ||
					(search->only_claimed && !doubt.claimed)) {
				doubts->items[kept++] = doubt;
				doubts->claimed = doubts->claimed || doubt.claimed;
			}
		}
		doubts->count = kept;
	}
	(void)pthread_mutex_unlock(&self->lock);
}

#define EACH_LEASE(type, add)                                        \
	do {                                                             \
		postern__pg_array(&query, (type));                           \
		for (size_t i = 0; i < search->count; i++) {                 \
			const struct pg_lease *lease = &search->doubts[i].lease; \
			add;                                                     \
		}                                                            \
		postern__pg_array_end(&query);                               \
	} while (0)

static int give_back(struct pg_connection *connection,
		const struct search *search, struct postern_error *error) {
	char timeout[24];
	(void)snprintf(timeout, sizeof timeout, "%lld",
			(long long)connection->store->lock_timeout_ms);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, search->node);
	postern__pg_int8(&query, search->round);
	postern__pg_now(&query);
	postern__pg_text(&query, timeout);
	postern__pg_bool(&query, !search->only_claimed);
	EACH_LEASE(PG_INT8, postern__pg_int8(&query, lease->seq));
	EACH_LEASE(PG_INT4, postern__pg_int4(&query, lease->handler));
	EACH_LEASE(PG_INT8, postern__pg_int8(&query, (int64_t)lease->fence));
	int r = postern__pg_run(&query,
			"SELECT @give_back_1($1, $2, $3, $4, $5, $6, $7, $8)", error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_settle_doubts(struct pg_connection *connection, uint64_t node,
		bool only_claimed, struct postern_error *error) {
	struct pg_store *self = connection->store;
	struct search search = { .node = node, .only_claimed = only_claimed };
	(void)pthread_mutex_lock(&self->settling);
	int r = search_begin(self, &search, error);
	if (r == POSTERN_OK && search.doubts) {
		r = give_back(connection, &search, error);
		if (r == POSTERN_OK) {
			forget(self, &search);
		}
	}
	free(search.doubts);
	(void)pthread_mutex_unlock(&self->settling);
	return r;
}
