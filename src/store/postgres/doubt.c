/* SPDX-License-Identifier: MIT */

/*
 * Leases that this node may have and does not know of.
 *
 * A batch that leases what it accepts, and whose answer never came, may have
 * been carried out or not. Its sender was told that it failed and will send it
 * again; but the leases would stay with a node that lives on and never runs
 * them. So their numbers are kept, and with the next renewal the leases are
 * given back, if there are any.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

void postern__pg_doubt(struct pg_store *self, uint64_t node,
		const int64_t *seqs, size_t count) {
	struct pg_doubts *doubts = &self->doubts;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node != node) {
		/* What another life had leased is taken back when it is gone. */
		doubts->node = node;
		doubts->count = 0;
	}
	if (doubts->count + count > doubts->cap) {
		size_t cap = 2 * (doubts->count + count);
		int64_t *more = realloc(doubts->seqs, cap * sizeof *more);
		if (!more) {
			/* They stay until the node ends. */
			count = 0;
		} else {
			doubts->seqs = more;
			doubts->cap = cap;
		}
	}
	if (count > 0) {
		memcpy(doubts->seqs + doubts->count, seqs, count * sizeof *seqs);
		doubts->count += count;
	}
	(void)pthread_mutex_unlock(&self->lock);
}

/* A copy of what is in doubt; NULL: nothing, or no memory for it. */
static int64_t *take_copy(struct pg_store *self, uint64_t node,
		size_t *count_out) {
	struct pg_doubts *doubts = &self->doubts;
	int64_t *copy = NULL;
	(void)pthread_mutex_lock(&self->lock);
	if (doubts->node == node && doubts->count > 0) {
		copy = malloc(doubts->count * sizeof *copy);
	}
	if (copy) {
		memcpy(copy, doubts->seqs, doubts->count * sizeof *copy);
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
		memmove(doubts->seqs, doubts->seqs + count,
				doubts->count * sizeof *doubts->seqs);
	}
	(void)pthread_mutex_unlock(&self->lock);
}

int postern__pg_settle_doubts(struct pg_connection *connection, uint64_t node,
		struct postern_error *error) {
	size_t count = 0;
	int64_t *seqs = take_copy(connection->store, node, &count);
	if (!seqs) {
		return POSTERN_OK;
	}
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, node);
	postern__pg_now(&query);
	postern__pg_array(&query, PG_INT8);
	for (size_t i = 0; i < count; i++) {
		postern__pg_int8(&query, seqs[i]);
	}
	postern__pg_array_end(&query);
	free(seqs);
	int r = postern__pg_run(&query, "SELECT @give_back_1($1, $2, $3)", error);
	postern__pg_end(&query);
	if (r == POSTERN_OK) {
		forget(connection->store, node, count);
	}
	return r;
}
