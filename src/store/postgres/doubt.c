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
 * Doubts are kept per node number. A process whose node was found gone lives on
 * under a new number, and a batch of the former one may be given up after that:
 * it must not displace what the living node has in doubt. The doubts of a node
 * that is known to be gone are dropped, because recovery takes back its leases.
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

/* With the lock. NULL: the node has nothing in doubt. */
static struct pg_doubts *doubts_of(struct pg_store *self, uint64_t node) {
	for (size_t i = 0; i < PG_DOUBT_NODE_MAX; i++) {
		struct pg_doubts *doubts = &self->doubts[i];
		if (doubts->count > 0 && doubts->node == node) {
			return doubts;
		}
	}
	return NULL;
}

/* With the lock: an empty place, or else that of the node that was added to
   longest ago, which is a former one. */
static struct pg_doubts *make_doubts(struct pg_store *self, uint64_t node) {
	struct pg_doubts *found = &self->doubts[0];
	for (size_t i = 1; i < PG_DOUBT_NODE_MAX && found->count > 0; i++) {
		struct pg_doubts *doubts = &self->doubts[i];
		if (doubts->count == 0 || doubts->noted < found->noted) {
			found = doubts;
		}
	}
	found->node = node;
	found->count = 0;
	found->claimed = false;
	return found;
}

void postern__pg_doubt(struct pg_store *self, uint64_t node,
		const struct pg_lease *leases, size_t count, bool claimed) {
	(void)pthread_mutex_lock(&self->mutex);
	struct pg_doubts *doubts = doubts_of(self, node);
	if (!doubts) {
		doubts = make_doubts(self, node);
	}
	doubts->noted = ++self->doubt_last;
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
	(void)pthread_mutex_unlock(&self->mutex);
}

void postern__pg_forget_doubts(struct pg_store *self, uint64_t node) {
	(void)pthread_mutex_lock(&self->mutex);
	struct pg_doubts *doubts = doubts_of(self, node);
	if (doubts) {
		doubts->count = 0;
		doubts->claimed = false;
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

int64_t postern__pg_round(struct pg_store *self) {
	(void)pthread_mutex_lock(&self->mutex);
	int64_t round = self->round;
	(void)pthread_mutex_unlock(&self->mutex);
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
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&self->mutex);
	const struct pg_doubts *doubts = doubts_of(self, search->node);
	if (doubts && (doubts->claimed || !search->only_claimed)) {
		search->doubts = malloc(doubts->count * sizeof *search->doubts);
		r = search->doubts ? POSTERN_OK : postern__pg_no_memory(error);
	}
	if (search->doubts) {
		memcpy(search->doubts, doubts->items,
				doubts->count * sizeof *search->doubts);
		search->count = doubts->count;
		search->round = ++self->round;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

/* It was looked for; more may have come meanwhile. If only claims were meant,
   no batch was waited for. */
static void forget(struct pg_store *self, const struct search *search) {
	size_t kept = 0;
	(void)pthread_mutex_lock(&self->mutex);
	struct pg_doubts *doubts = doubts_of(self, search->node);
	if (doubts) {
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
	(void)pthread_mutex_unlock(&self->mutex);
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
	postern__pg_array(&query, PG_BOOL);
	for (size_t i = 0; i < search->count; i++) {
		postern__pg_bool(&query, search->doubts[i].claimed);
	}
	postern__pg_array_end(&query);
	int r = postern__pg_run(&query,
			"SELECT @give_back_1($1, $2, $3, $4, $5, $6, $7, $8, $9)", error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_settle_doubts(struct pg_connection *connection, uint64_t node,
		bool only_claimed, struct postern_error *error) {
	struct pg_store *self = connection->store;
	struct search search = { .node = node, .only_claimed = only_claimed };
	if (only_claimed) {
		(void)pthread_mutex_lock(&self->settling);
	} else if (pthread_mutex_trylock(&self->settling)) {
		/* A renewal does not wait for a claim: the next one settles. */
		return POSTERN_OK;
	}
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
