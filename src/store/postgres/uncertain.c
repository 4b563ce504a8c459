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
static struct pg_uncertain *find_uncertain(struct pg_store *self,
		uint64_t node) {
	for (size_t i = 0; i < PG_UNCERTAIN_NODE_MAX; i++) {
		struct pg_uncertain *uncertain = &self->uncertain[i];
		if (uncertain->count > 0 && uncertain->node == node) {
			return uncertain;
		}
	}
	return NULL;
}

/* The caller holds the mutex. Returns a free slot, or else that of the node
   whose last addition is the oldest, which is a former node. */
static struct pg_uncertain *make_uncertain(struct pg_store *self,
		uint64_t node) {
	struct pg_uncertain *found = &self->uncertain[0];
	for (size_t i = 1; i < PG_UNCERTAIN_NODE_MAX && found->count > 0; i++) {
		struct pg_uncertain *uncertain = &self->uncertain[i];
		if (uncertain->count == 0 || uncertain->noted < found->noted) {
			found = uncertain;
		}
	}
	found->node = node;
	found->count = 0;
	found->claimed = false;
	return found;
}

void postern__pg_note_uncertain_leases(struct pg_store *self, uint64_t node,
		const struct pg_lease *leases, size_t count, bool claimed) {
	(void)pthread_mutex_lock(&self->mutex);
	struct pg_uncertain *uncertain = find_uncertain(self, node);
	if (!uncertain) {
		uncertain = make_uncertain(self, node);
	}
	uncertain->noted = ++self->uncertain_last;
	if (uncertain->count + count > uncertain->cap) {
		size_t cap = 2 * (uncertain->count + count);
		struct pg_uncertain_lease *more =
				realloc(uncertain->items, cap * sizeof *more);
		if (!more) {
			/* Out of memory: the leases stay until the node ends. */
			count = 0;
		} else {
			uncertain->items = more;
			uncertain->cap = cap;
		}
	}
	for (size_t i = 0; i < count; i++) {
		uncertain->items[uncertain->count++] =
				(struct pg_uncertain_lease){ leases[i], claimed };
		uncertain->claimed = uncertain->claimed || claimed;
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

void postern__pg_forget_uncertain_leases(struct pg_store *self, uint64_t node) {
	(void)pthread_mutex_lock(&self->mutex);
	struct pg_uncertain *uncertain = find_uncertain(self, node);
	if (uncertain) {
		uncertain->count = 0;
		uncertain->claimed = false;
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
struct returning {
	uint64_t node;
	bool only_claimed;
	struct pg_uncertain_lease *uncertain; /* NULL: none */
	size_t count;
	int64_t round; /* the round that starts with it */
};

/* Copy the uncertain leases of the node. What is sent from now on belongs to a
   new round. */
static int returning_begin(struct pg_store *self, struct returning *returning,
		struct postern_error *error) {
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&self->mutex);
	const struct pg_uncertain *uncertain =
			find_uncertain(self, returning->node);
	if (uncertain && (uncertain->claimed || !returning->only_claimed)) {
		returning->uncertain =
				malloc(uncertain->count * sizeof *returning->uncertain);
		r = returning->uncertain ? POSTERN_OK : postern__pg_no_memory(error);
	}
	if (returning->uncertain) {
		memcpy(returning->uncertain, uncertain->items,
				uncertain->count * sizeof *returning->uncertain);
		returning->count = uncertain->count;
		returning->round = ++self->round;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

/* Forget the leases that were returned; others may have been added meanwhile.
   With only_claimed no batch was waited for, so leases of batches are kept. */
static void forget_returned(struct pg_store *self,
		const struct returning *returning) {
	size_t kept = 0;
	(void)pthread_mutex_lock(&self->mutex);
	struct pg_uncertain *uncertain = find_uncertain(self, returning->node);
	if (uncertain) {
		uncertain->claimed = false;
		for (size_t i = 0; i < uncertain->count; i++) {
			const struct pg_uncertain_lease item = uncertain->items[i];
			if (i >= returning->count ||
					(returning->only_claimed && !item.claimed)) {
				uncertain->items[kept++] = item;
				uncertain->claimed = uncertain->claimed || item.claimed;
			}
		}
		uncertain->count = kept;
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

#define EACH_LEASE(type, add)                                              \
	do {                                                                   \
		postern__pg_array(&query, (type));                                 \
		for (size_t i = 0; i < returning->count; i++) {                    \
			const struct pg_lease *lease = &returning->uncertain[i].lease; \
			add;                                                           \
		}                                                                  \
		postern__pg_array_end(&query);                                     \
	} while (0)

static int return_leases(struct pg_connection *connection,
		const struct returning *returning, struct postern_error *error) {
	char timeout[24];
	(void)snprintf(timeout, sizeof timeout, "%lld",
			(long long)connection->store->lock_timeout_ms);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, returning->node);
	postern__pg_int8(&query, returning->round);
	postern__pg_now(&query);
	postern__pg_text(&query, timeout);
	postern__pg_bool(&query, !returning->only_claimed);
	EACH_LEASE(PG_INT8, postern__pg_int8(&query, lease->seq));
	EACH_LEASE(PG_INT4, postern__pg_int4(&query, lease->handler));
	EACH_LEASE(PG_INT8, postern__pg_int8(&query, (int64_t)lease->fence));
	postern__pg_array(&query, PG_BOOL);
	for (size_t i = 0; i < returning->count; i++) {
		postern__pg_bool(&query, returning->uncertain[i].claimed);
	}
	postern__pg_array_end(&query);
	int r = postern__pg_run(&query,
			"SELECT @give_back_1($1, $2, $3, $4, $5, $6, $7, $8, $9)", error);
	postern__pg_end(&query);
	return r;
}

int postern__pg_return_uncertain_leases(struct pg_connection *connection,
		uint64_t node, bool only_claimed, struct postern_error *error) {
	struct pg_store *self = connection->store;
	struct returning returning = { .node = node, .only_claimed = only_claimed };
	if (only_claimed) {
		(void)pthread_mutex_lock(&self->return_mutex);
	} else if (pthread_mutex_trylock(&self->return_mutex)) {
		/* A renewal does not wait for a claim: the next renewal returns them.
		 */
		return POSTERN_OK;
	}
	int r = returning_begin(self, &returning, error);
	if (r == POSTERN_OK && returning.uncertain) {
		r = return_leases(connection, &returning, error);
		if (r == POSTERN_OK) {
			forget_returned(self, &returning);
		}
	}
	free(returning.uncertain);
	(void)pthread_mutex_unlock(&self->return_mutex);
	return r;
}
