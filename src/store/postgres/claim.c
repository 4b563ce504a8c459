/* SPDX-License-Identifier: MIT */

/*
 * Claiming: one call of claim_1, which leases due deliveries and returns them
 * with their messages. Nodes that claim at the same time skip rows that another
 * node has locked.
 *
 * A claim starts at the due time that the previous claim reached, and reads
 * deliveries that became due earlier only if it has not found enough. So its
 * cost does not depend on how many deliveries were claimed since the index was
 * vacuumed. A delivery that returned to an earlier due time, for example
 * because the claim of another node was rolled back, is found by the claim that
 * starts from the beginning: once a second.
 *
 * The claim commits only when the whole result was received. If the outcome of
 * the COMMIT cannot be determined, the leases are returned, see uncertain.c.
 */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include <postern/sys/clock.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

/* The columns of the result; those of the message are in between. */
enum {
	SEQ,
	HANDLER,
	FENCE,
	FAILURES,
	BREAKS,
	RETURNS,
	SUSPICION,
	WANT,
	CHANNEL,
	MESSAGE,
	HELD = MESSAGE + PG_MESSAGE_COLUMN_COUNT,
	NOW,
	NEXT_DUE,
	WAITING,
	XID,
	REACHED_HANDLER,
	REACHED
};

#define MARK_MS 1000

struct work {
	const struct postern_claim *claim;
	struct postern_memory *memory;
	struct postern_claims out;
	int64_t xid; /* 0: nothing was written */
	bool ending; /* COMMIT was reached, and may have taken effect */
};

static int read_row(const struct pg_query *query, int row,
		struct postern_memory *memory, struct postern_claimed *out,
		struct postern_error *error) {
	*out = (struct postern_claimed){
		.seq = postern__pg_get(query, row, SEQ),
		.handler = postern__pg_get(query, row, HANDLER),
		.want = (size_t)postern__pg_get(query, row, WANT) - 1,
		.channel = postern__pg_get(query, row, CHANNEL),
		.fence = (uint64_t)postern__pg_get(query, row, FENCE),
		.failures = (uint32_t)postern__pg_get(query, row, FAILURES),
		.breaks = (uint32_t)postern__pg_get(query, row, BREAKS),
		.returns = (uint32_t)postern__pg_get(query, row, RETURNS),
		.suspicion =
				(enum postern_suspicion)postern__pg_get(query, row, SUSPICION),
		.held_ms = postern__pg_get(query, row, WAITING),
	};
	if (postern__pg_is_null(query, row, CHANNEL)) {
		return POSTERN_OK; /* the message has been removed */
	}
	struct postern_message *message =
			postern_memory_alloc(memory, sizeof *message);
	int r = message ? postern__pg_message_read(query, row, MESSAGE, memory,
							  message, error)
					: postern__pg_no_memory(error);
	/* One corrupt row must not block all other deliveries. */
	out->message = r == POSTERN_OK ? message : NULL;
	return r == POSTERN_E_CORRUPT ? POSTERN_OK : r;
}

static int read_claim_result(const struct pg_query *query, struct work *work,
		struct postern_error *error) {
	int last = postern__pg_rows(query) - 1;
	if (last < 0) {
		return postern__fail(error, POSTERN_E_CORRUPT,
				"claim_1 of the database returned no row");
	}
	if (!postern__pg_get(query, last, HELD) && work->claim->lock) {
		return postern__pg_lost_lock(work->claim->lock, error);
	}
	work->out.next_due_ms = postern__pg_get(query, last, NEXT_DUE);
	work->out.suspects_waiting =
			(uint64_t)postern__pg_get(query, last, WAITING);
	struct postern_claimed *items = postern_memory_alloc(work->memory,
			((size_t)last + 1) * sizeof *items);
	if (!items) {
		return postern__pg_no_memory(error);
	}
	int r = POSTERN_OK;
	for (int row = 0; r == POSTERN_OK && row < last; row++) {
		r = read_row(query, row, work->memory, &items[row], error);
		assert(items[row].want < work->claim->want_count);
		work->out.count++;
	}
	work->out.items = items;
	return r;
}

/* Adds two arrays: the ids of handlers with a valid mark, and the due time at
   which the claim of each starts. */
static void add_marks(struct pg_query *query) {
	struct pg_store *self = query->connection->store;
	const struct postern_clock *clock = self->clock;
	int64_t now = clock->monotonic_ms(clock->context);
	struct pg_mark marks[PG_MARK_COUNT];
	size_t count = 0;
	(void)pthread_mutex_lock(&self->mutex);
	for (size_t i = 0; i < PG_MARK_COUNT; i++) {
		if (now < self->marks[i].until_ms) {
			marks[count++] = self->marks[i];
		}
	}
	(void)pthread_mutex_unlock(&self->mutex);
	postern__pg_array(query, PG_INT4);
	for (size_t i = 0; i < count; i++) {
		postern__pg_int4(query, marks[i].handler);
	}
	postern__pg_array_end(query);
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < count; i++) {
		postern__pg_int8(query, marks[i].due_at);
	}
	postern__pg_array_end(query);
}

static void note_marks(const struct pg_query *query) {
	struct pg_store *self = query->connection->store;
	const struct postern_clock *clock = self->clock;
	int64_t now = clock->monotonic_ms(clock->context);
	struct pg_items ids;
	struct pg_items dues;
	int64_t id;
	int64_t due_at;
	int last = postern__pg_rows(query) - 1;
	if (postern__pg_is_null(query, last, REACHED_HANDLER)) {
		return; /* none of the wanted handlers may run */
	}
	postern__pg_items(query, last, REACHED_HANDLER, &ids);
	postern__pg_items(query, last, REACHED, &dues);
	(void)pthread_mutex_lock(&self->mutex);
	while (postern__pg_next(&ids, &id) && postern__pg_next(&dues, &due_at)) {
		struct pg_mark *mark = &self->marks[(uint64_t)id % PG_MARK_COUNT];
		if (mark->handler != id || now >= mark->until_ms) {
			*mark = (struct pg_mark){ .handler = id,
				.until_ms = now + MARK_MS };
		}
		mark->due_at = due_at > mark->due_at ? due_at : mark->due_at;
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

#define EACH_WANT(type, add)                                    \
	do {                                                        \
		postern__pg_array(&query, (type));                      \
		for (size_t i = 0; i < claim->want_count; i++) {        \
			const struct postern_want *want = &claim->wants[i]; \
			add;                                                \
		}                                                       \
		postern__pg_array_end(&query);                          \
	} while (0)

static int claim_due(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	const struct postern_claim *claim = work->claim;
	char timeout[24];
	(void)snprintf(timeout, sizeof timeout, "%lld",
			(long long)connection->store->lock_timeout_ms);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, claim->node);
	postern__pg_now(&query);
	postern__pg_int8(&query, postern__pg_latest(connection->store));
	postern__pg_lock_of(&query, claim->lock);
	postern__pg_text(&query, timeout);
	EACH_WANT(PG_INT4, postern__pg_int4(&query, want->handler));
	EACH_WANT(PG_INT4, postern__pg_int4(&query,
							   want->max < INT32_MAX ? want->max : INT32_MAX));
	EACH_WANT(PG_BOOL, postern__pg_bool(&query, want->in_process));
	add_marks(&query);
	postern__pg_int4(&query,
			claim->max < INT32_MAX ? (int64_t)claim->max : INT32_MAX);
	postern__pg_int8(&query, claim->bytes_max < INT64_MAX
									 ? (int64_t)claim->bytes_max
									 : INT64_MAX);
	postern__pg_int8(&query, claim->lease_ms);
	postern__point("postgres-claim.before");
	int r = postern__pg_run(&query,
			"SELECT * FROM @claim_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,"
			" $11, $12, $13, $14)",
			error);
	postern__point("postgres-claim.after");
	if (r == POSTERN_OK) {
		r = read_claim_result(&query, work, error);
	}
	if (r == POSTERN_OK) {
		note_marks(&query);
		work->xid = postern__pg_get(&query, postern__pg_rows(&query) - 1, XID);
		/* If the clock went back, claim_1 has checked all pending deliveries.
		 */
		postern__pg_set_latest(connection->store,
				postern__pg_get(&query, postern__pg_rows(&query) - 1, NOW));
	}
	postern__pg_end(&query);
	return r;
}

/* Takes over deliveries whose pull lease has ended. */
static int claim_ended(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	const struct postern_claim *claim = work->claim;
	char timeout[24];
	(void)snprintf(timeout, sizeof timeout, "%lld",
			(long long)connection->store->lock_timeout_ms);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, claim->node);
	postern__pg_now(&query);
	postern__pg_lock_of(&query, claim->lock);
	postern__pg_text(&query, timeout);
	EACH_WANT(PG_INT4, postern__pg_int4(&query, want->handler));
	postern__pg_int4(&query,
			claim->max < INT32_MAX ? (int64_t)claim->max : INT32_MAX);
	postern__point("postgres-ended.before");
	int r = postern__pg_run(&query,
			"SELECT * FROM @claim_ended_1($1, $2, $3, $4, $5, $6, $7)", error);
	postern__point("postgres-ended.after");
	if (r == POSTERN_OK) {
		r = read_claim_result(&query, work, error);
	}
	if (r == POSTERN_OK) {
		work->xid = postern__pg_get(&query, postern__pg_rows(&query) - 1, XID);
	}
	postern__pg_end(&query);
	return r;
}

/* Returns POSTERN_OK if any of the deliveries is leased as in the result: all
   of them are, or none. Else POSTERN_E_STALE. */
static int confirm_leases(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_node(&query, work->claim->node);
	postern__pg_array(&query, PG_INT8);
	for (size_t i = 0; i < work->out.count; i++) {
		postern__pg_int8(&query, work->out.items[i].seq);
	}
	postern__pg_array_end(&query);
	postern__pg_array(&query, PG_INT4);
	for (size_t i = 0; i < work->out.count; i++) {
		postern__pg_int4(&query, work->out.items[i].handler);
	}
	postern__pg_array_end(&query);
	postern__pg_array(&query, PG_INT8);
	for (size_t i = 0; i < work->out.count; i++) {
		postern__pg_int8(&query, (int64_t)work->out.items[i].fence);
	}
	postern__pg_array_end(&query);
	int r = postern__pg_run(&query,
			"SELECT 1 FROM unnest($2, $3, $4) AS u (seq, handler, fence)"
			" JOIN @open o ON o.seq = u.seq AND o.handler = u.handler"
			" AND o.fence = u.fence AND o.node = $1 LIMIT 1",
			error);
	if (r == POSTERN_OK && postern__pg_rows(&query) == 0) {
		r = postern__fail(error, POSTERN_E_STALE, "nothing was leased");
	}
	postern__pg_end(&query);
	return r;
}

/* Claims in a transaction, which commits when the result was read. */
static int claim_in_transaction(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct work *work = context;
	(void)again;
	int r = postern__pg_return_uncertain_leases(connection, work->claim->node,
			true, error);
	if (r == POSTERN_OK) {
		r = postern__pg_begin(connection, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	r = work->claim->ended ? claim_ended(connection, work, error)
						   : claim_due(connection, work, error);
	work->ending = r == POSTERN_OK;
	postern__point("postgres-claim.read");
	return work->xid ? postern__pg_finish_known(connection, work->xid,
							   confirm_leases, work, r, error)
					 : postern__pg_finish(connection, r, error);
}

static void note_claimed_leases(struct pg_store *self,
		const struct work *work) {
	for (size_t i = 0; i < work->out.count; i++) {
		const struct postern_claimed *item = &work->out.items[i];
		const struct pg_lease lease = { item->seq, item->handler, item->fence };
		postern__pg_note_uncertain_leases(self, work->claim->node, &lease, 1,
				true);
	}
}

int postern__pg_claim(struct postern_store *store,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	struct work work = {
		.claim = claim,
		.memory = memory,
		.out = { .next_due_ms = -1 },
	};
	int r = postern__pg_do_once(self, claim_in_transaction, &work, error);
	if (r == POSTERN_OK) {
		*out = work.out;
	} else if (work.ending) {
		note_claimed_leases(self, &work);
	}
	return r;
}
