/* SPDX-License-Identifier: MIT */

/*
 * Uncertain leases: those that this node may have and does not know of.
 *
 * A batch that leases what it accepts, or a claim, whose response was lost may
 * have taken effect or not. The caller gets an error; but the leases would stay
 * with a live node that never runs them. So they are noted here, and the next
 * renewal of the node returns those that exist.
 *
 * Uncertain leases are kept per node id. A process whose node was found expired
 * continues under a new node id, and a batch of the former node may fail after
 * that: its leases must not displace those of the live node. The uncertain
 * leases of a node that is known to be expired are dropped, because recovery
 * makes their deliveries pending.
 *
 * Returning leases waits for transactions of the node that are running. But a
 * batch is one statement, and the server may not even have begun it, nor do so
 * for long; the same is true of the return itself. So each return starts a new
 * round: everything that is sent carries its round, and the server refuses an
 * earlier one. A batch that was sent in between is refused, too, and sent
 * again.
 *
 * A claim has begun before it can be uncertain. But a delivery whose claim did
 * not take effect will be claimed once more, under the same fence, and that
 * lease must not be returned: nothing is claimed before uncertain claims are
 * returned, by one thread at a time, and then they are forgotten. Before a
 * claim, only claims are waited for: a handler that runs long in a transaction
 * of the node must not block all claims.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

/* The caller holds the mutex. Returns NULL if the node has no uncertain leases.
 */
static struct pg_doubts *doubts_of(struct pg_store *self, uint64_t node) {
	for (size_t i = 0; i < PG_DOUBT_NODE_MAX; i++) {
		struct pg_doubts *doubts = &self->doubts[i];
		if (doubts->count > 0 && doubts->node == node) {
			return doubts;
		}
	}
	return NULL;
}

/* The caller holds the mutex. Returns a free slot, or else that of the node
   whose last addition is the oldest, which is a former node. */
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
			/* Out of memory: the leases stay until the node ends. */
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

/* One return of uncertain leases. */
struct search {
	uint64_t node;
	bool only_claimed;
	struct pg_doubt *doubts; /* NULL: none */
	size_t count;
	int64_t round; /* the round that starts with it */
};

/* Copy the uncertain leases of the node. What is sent from now on belongs to a
   new round. */
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

/* Forget the leases that were returned; others may have been added meanwhile.
   With only_claimed no batch was waited for, so leases of batches are kept. */
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
		/* A renewal does not wait for a claim: the next renewal returns them.
		 */
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
