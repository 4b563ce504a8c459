/* SPDX-License-Identifier: MIT */

/*
 * Applying a batch: settlements, then accepts, as one transaction.
 *
 * Accepting passes over the batch twice. The first pass finds or adds every
 * identity in the dedupe memory, in the order of the keys, which are random, so
 * that neighbours in the index are touched one after the other. The sort is
 * stable, so of two copies in one batch the first is the new one. Every message
 * gets its seq before that, in the order of the batch; messages that turn out
 * to be known leave a gap. The second pass, in the order of the batch, appends
 * messages and deliveries, and counts copies.
 *
 * An item that cannot be stored fails the batch; the caller then tries smaller
 * batches. There is no savepoint per item: savepoints cost more than the
 * inserts.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "core/error_group.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

struct sqlite_arrival {
	uint8_t key[POSTERN__KEY_LEN];
	uint8_t digest[POSTERN__DIGEST_LEN];
	size_t index; /* in the batch */
};

static int compare_keys(const void *a, const void *b) {
	const struct sqlite_arrival *left = a;
	const struct sqlite_arrival *right = b;
	int order = memcmp(left->key, right->key, sizeof left->key);
	if (order != 0) {
		return order;
	}
	return left->index < right->index ? -1 : left->index > right->index;
}

static int arrivals_reserve(struct sqlite_store *self, size_t count,
		struct postern_error *error) {
	if (count <= self->arrival_cap) {
		return POSTERN_OK;
	}
	struct sqlite_arrival *arrivals =
			realloc(self->arrivals, count * sizeof *arrivals);
	if (!arrivals) {
		return postern__sqlite_no_memory(error);
	}
	self->arrivals = arrivals;
	self->arrival_cap = count;
	return POSTERN_OK;
}

/* Sets the accept's code and seq if the dedupe memory has its key. */
static int seen_find(struct sqlite_store *self,
		const struct sqlite_arrival *arrival, struct postern_accept *accept,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT seq, digest = ?2 FROM postern_seen WHERE key = ?1");
	postern__sqlite_bind_blob(&query, 1, arrival->key, sizeof arrival->key);
	postern__sqlite_bind_blob(&query, 2, arrival->digest,
			sizeof arrival->digest);
	if (postern__sqlite_row(&query)) {
		accept->seq = postern__sqlite_int(&query, 0);
		bool same = postern__sqlite_int(&query, 1);
		accept->code = same ? POSTERN_E_DUPLICATE : POSTERN_E_CONFLICT;
	}
	return postern__sqlite_end(&query, error);
}

/* Adds the key to the dedupe memory; sets the accept's code, and its seq if it
   is known. */
static int seen_insert(struct sqlite_store *self,
		const struct sqlite_arrival *arrival, struct postern_accept *accept,
		struct postern_error *error) {
	if (accept->code == POSTERN_E_UNAVAILABLE) {
		return POSTERN_OK;
	}
	if (accept->fate == POSTERN_FATE_DROP) {
		return seen_find(self, arrival, accept, error);
	}
	struct sqlite_query query;
	int changes;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_seen VALUES (?1, ?2, ?3, ?4, ?5, 0)"
			" ON CONFLICT DO NOTHING");
	postern__sqlite_bind_blob(&query, 1, arrival->key, sizeof arrival->key);
	postern__sqlite_bind_int(&query, 2, accept->seq);
	postern__sqlite_bind_blob(&query, 3, arrival->digest,
			sizeof arrival->digest);
	postern__sqlite_bind_int(&query, 4, accept->received_at_ms);
	postern__sqlite_bind_int(&query, 5, accept->channel);
	int r = postern__sqlite_end_changes(&query, &changes, error);
	return r == POSTERN_OK && changes == 0
				   ? seen_find(self, arrival, accept, error)
				   : r;
}

/* The message that a key of a handler is remembered for. */
struct key_holder {
	int64_t seq;
	int64_t at; /* when it was received, by which its keys are removed */
};

/* Finds the key in the scopes of all ids of the handler. *out: the message it
   is remembered for, this one if possible; seq 0: none. */
static int route_key_find(struct sqlite_store *self,
		const struct postern_accept *accept, const struct postern_route *route,
		const uint8_t key[POSTERN__KEY_LEN], struct key_holder *out,
		struct postern_error *error) {
	int r = POSTERN_OK;
	*out = (struct key_holder){ 0 };
	postern__sqlite_each_id(self, id, route->handler) {
		uint8_t scoped[POSTERN__KEY_LEN];
		struct key_holder found = { 0 };
		struct sqlite_query query;
		postern__key_scope(key, id, scoped);
		postern__sqlite_query(&query, &self->writer,
				"SELECT seq, at FROM postern_seen WHERE key = ?1");
		postern__sqlite_bind_blob(&query, 1, scoped, sizeof scoped);
		if (postern__sqlite_row(&query)) {
			found.seq = postern__sqlite_int(&query, 0);
			found.at = postern__sqlite_int(&query, 1);
		}
		r = postern__sqlite_end(&query, error);
		if (r != POSTERN_OK) {
			break;
		}
		if (found.seq == accept->seq || out->seq == 0 ||
				(out->seq != accept->seq && found.seq > 0 &&
						found.seq < out->seq)) {
			*out = found;
		}
	}
	return r;
}

/* When the message of an accept, which is stored, was received. */
static int received_at_read(struct sqlite_store *self, int64_t seq,
		int64_t *out, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT received_at FROM postern_message WHERE seq = ?1");
	postern__sqlite_bind_int(&query, 1, seq);
	if (postern__sqlite_row(&query)) {
		*out = postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

/* Remembers the key of a route in the scopes of all ids of the handler, unless
   it is; sets suppressed_by if it is remembered for another message. */
static int route_key_insert(struct sqlite_store *self,
		const struct postern_accept *accept, struct postern_route *route,
		struct postern_error *error) {
	uint8_t key[POSTERN__KEY_LEN];
	uint8_t digest[POSTERN__DIGEST_LEN];
	struct key_holder holder;
	postern__key_hash(self->hash_key, accept->channel, route->key, key);
	postern__body_digest(self->hash_key, accept->message, digest);
	int r = route_key_find(self, accept, route, key, &holder, error);
	if (r == POSTERN_OK && holder.seq == 0) {
		holder.seq = accept->seq;
		r = received_at_read(self, accept->seq, &holder.at, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	postern__sqlite_each_id(self, id, route->handler) {
		uint8_t scoped[POSTERN__KEY_LEN];
		struct sqlite_query query;
		postern__key_scope(key, id, scoped);
		postern__sqlite_query(&query, &self->writer,
				"INSERT INTO postern_seen VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
				" ON CONFLICT DO NOTHING");
		postern__sqlite_bind_blob(&query, 1, scoped, sizeof scoped);
		postern__sqlite_bind_int(&query, 2, holder.seq);
		postern__sqlite_bind_blob(&query, 3, digest, sizeof digest);
		postern__sqlite_bind_int(&query, 4, holder.at);
		postern__sqlite_bind_int(&query, 5, accept->channel);
		postern__sqlite_bind_int(&query, 6, id);
		r = postern__sqlite_end(&query, error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	route->suppressed_by = holder.seq == accept->seq ? 0 : holder.seq;
	return POSTERN_OK;
}

/* Creates the delivery of a route that has none; node 0: it is not leased. */
static int open_route(struct sqlite_store *self, uint64_t node, int64_t seq,
		struct postern_route *route, int64_t now, struct postern_error *error) {
	int64_t owner = postern__sqlite_handler(self, route->handler)->owner;
	route->opened = true;
	route->stored = owner;
	route->leased = route->lease && node != 0 &&
					!postern__halt_holds(&self->handlers[owner].pause, now);
	route->fence = route->leased ? 1 : 0;
	return postern__sqlite_delivery_insert(self, seq, owner,
			route->leased ? node : 0, now, error);
}

/* Creates a delivery that has ended: of a suppressed route, or a refused one.
 */
static int end_route(struct sqlite_store *self, int64_t seq,
		const struct postern_route *route, int64_t now,
		struct postern_error *error) {
	char suppressed[POSTERN__SUPPRESSED_TEXT_MAX];
	struct sqlite_delivery delivery = {
		.seq = seq,
		.handler = postern__sqlite_handler(self, route->handler)->owner,
		.state = POSTERN_STATE_PENDING,
	};
	bool poison = route->suppressed_by == 0;
	const char *text = poison ? route->refusal : suppressed;
	uint64_t group = poison ? postern__error_group(text) : 0;
	postern__suppressed_text(route->suppressed_by, suppressed);
	int r = postern__sqlite_delivery_insert(self, seq, delivery.handler, 0, now,
			error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_attempt_insert(self, seq, delivery.handler, 0, now,
				now, poison ? "poison" : "discard", text, error);
	}
	if (r == POSTERN_OK) {
		r = postern__sqlite_sample_keep(self, group, delivery.handler, text,
				now, error);
	}
	return r == POSTERN_OK ? postern__sqlite_delivery_close(self, &delivery,
									 poison ? POSTERN_STATE_POISONED
											: POSTERN_STATE_DISCARDED,
									 group, now, error)
						   : r;
}

int postern__sqlite_route_add(struct sqlite_store *self, uint64_t node,
		const struct postern_accept *accept, struct postern_route *route,
		int64_t now, struct postern_error *error) {
	int r = route->key ? route_key_insert(self, accept, route, error)
					   : POSTERN_OK;
	if (r != POSTERN_OK) {
		return r;
	}
	return route->suppressed_by > 0 || route->refusal
				   ? end_route(self, accept->seq, route, now, error)
				   : open_route(self, node, accept->seq, route, now, error);
}

static int accept_insert(struct sqlite_store *self, uint64_t node,
		struct postern_accept *accept, int64_t now,
		struct postern_error *error) {
	struct sqlite_channel_counts *changes =
			&self->channels[accept->channel].changes;
	int r = postern__sqlite_message_insert(self, accept->seq, accept->channel,
			now, accept->message, error);
	for (size_t i = 0; r == POSTERN_OK && i < accept->route_count; i++) {
		struct postern_route *route = &accept->routes[i];
		if (!postern__sqlite_route_repeats(self, accept->routes, i)) {
			r = postern__sqlite_route_add(self, node, accept, route, now,
					error);
		}
	}
	if (r == POSTERN_OK && accept->fate == POSTERN_FATE_PARK) {
		struct sqlite_query query;
		postern__sqlite_query(&query, &self->writer,
				"INSERT INTO postern_parked (seq) VALUES (?1)");
		postern__sqlite_bind_int(&query, 1, accept->seq);
		r = postern__sqlite_end(&query, error);
		changes->parked++;
	}
	changes->accepted++;
	return r;
}

/* Reports whether the message is still stored; fails if the key was made of the
   id and the stored message has another. */
static int check_message(struct sqlite_store *self,
		const struct postern_accept *accept, bool *exists_out,
		struct postern_error *error) {
	bool exists = false;
	bool same = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT ?6 OR (channel = ?2 AND id = ?3 AND"
			" coalesce(source, ?5) = ?4) FROM postern_message WHERE seq = ?1");
	postern__sqlite_bind_int(&query, 1, accept->seq);
	postern__sqlite_bind_int(&query, 2, accept->channel);
	postern__sqlite_bind_text(&query, 3, accept->message->id);
	postern__sqlite_bind_text(&query, 4, accept->message->source);
	postern__sqlite_bind_text(&query, 5,
			self->channels[accept->channel].first_name);
	postern__sqlite_bind_int(&query, 6, !accept->key.is_id);
	if (postern__sqlite_row(&query)) {
		exists = true;
		same = postern__sqlite_int(&query, 0) != 0;
	}
	int r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK && !same) {
		r = postern__fail(error, POSTERN_E_CORRUPT,
				"'%s' is damaged: the remembered id of message %lld belongs to "
				"another message",
				self->file.path, (long long)accept->seq);
	}
	*exists_out = exists;
	return r;
}

static int parked_delete(struct sqlite_store *self,
		const struct postern_accept *accept, struct postern_error *error) {
	struct sqlite_query query;
	int changes;
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_parked WHERE seq = ?1");
	postern__sqlite_bind_int(&query, 1, accept->seq);
	int r = postern__sqlite_end_changes(&query, &changes, error);
	if (r == POSTERN_OK) {
		self->channels[accept->channel].changes.parked -= changes;
	}
	return r;
}

/* Finds the handler's delivery of a known message under any of its ids; the
   state is ANY if there is none. */
static int known_find_delivery(struct sqlite_store *self, int64_t seq,
		int64_t handler, struct sqlite_delivery *out,
		struct postern_error *error) {
	out->state = POSTERN_STATE_ANY;
	postern__sqlite_each_id(self, id, handler) {
		int r = postern__sqlite_delivery_find(self, seq, id, out, error);
		if (r != POSTERN_OK || out->state != POSTERN_STATE_ANY) {
			return r;
		}
	}
	return POSTERN_OK;
}

/* Creates or reopens the delivery of one route of a known message. */
static int known_add_route(struct sqlite_store *self,
		const struct postern_accept *accept, struct postern_route *route,
		int64_t now, struct postern_error *error) {
	struct sqlite_delivery delivery;
	int r = known_find_delivery(self, accept->seq, route->handler, &delivery,
			error);
	if (r == POSTERN_OK && delivery.state == POSTERN_STATE_ANY) {
		r = postern__sqlite_route_add(self, 0, accept, route, now, error);
		return r == POSTERN_OK ? parked_delete(self, accept, error) : r;
	}
	if (r == POSTERN_OK && route->key) {
		r = route_key_insert(self, accept, route, error);
	}
	bool reopens = delivery.state == POSTERN_STATE_POISONED &&
				   route->retry_poisoned && !route->refusal &&
				   route->suppressed_by == 0;
	if (r == POSTERN_OK && reopens) {
		route->opened = true;
		route->fence = delivery.fence;
		r = postern__sqlite_delivery_reopen(self, &delivery, now, error);
	}
	return r;
}

static int count_conflict(struct sqlite_store *self,
		const struct postern_accept *accept, int64_t now,
		struct postern_error *error) {
	self->channels[accept->channel].changes.conflicts++;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_conflict SELECT ?1, count(*) + 1, ?2, ?3, ?4"
			" FROM postern_conflict WHERE seq = ?1 HAVING count(*) < ?5");
	postern__sqlite_bind_int(&query, 1, accept->seq);
	postern__sqlite_bind_int(&query, 2, now);
	postern__sqlite_bind_int(&query, 3, (int64_t)accept->message->body_len);
	postern__sqlite_bind_text(&query, 4, accept->message->transport);
	postern__sqlite_bind_int(&query, 5, POSTERN_CONFLICTS_KEPT);
	int r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK) {
		return r;
	}
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_duplicate VALUES (?1, 0, 0, 1)"
			" ON CONFLICT DO UPDATE SET conflicts = conflicts + 1");
	postern__sqlite_bind_int(&query, 1, accept->seq);
	return postern__sqlite_end(&query, error);
}

static int count_duplicate(struct sqlite_store *self,
		const struct postern_accept *accept, int64_t now,
		struct postern_error *error) {
	self->channels[accept->channel].changes.duplicates++;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_duplicate VALUES (?1, 1, ?2, 0)"
			" ON CONFLICT DO UPDATE SET duplicates = duplicates + 1,"
			" duplicate_at = ?2");
	postern__sqlite_bind_int(&query, 1, accept->seq);
	postern__sqlite_bind_int(&query, 2, now);
	return postern__sqlite_end(&query, error);
}

static int accept_known(struct sqlite_store *self,
		struct postern_accept *accept, int64_t now,
		struct postern_error *error) {
	bool exists;
	int r = check_message(self, accept, &exists, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (accept->code == POSTERN_E_CONFLICT) {
		return count_conflict(self, accept, now, error);
	}
	r = count_duplicate(self, accept, now, error);
	for (size_t i = 0; r == POSTERN_OK && exists && i < accept->route_count;
			i++) {
		r = known_add_route(self, accept, &accept->routes[i], now, error);
	}
	return r;
}

static int check_accept(struct sqlite_store *self,
		const struct postern_accept *accept, struct postern_error *error) {
	bool known = postern__sqlite_channel(self, accept->channel);
	for (size_t i = 0; known && i < accept->route_count; i++) {
		known = postern__sqlite_handler(self, accept->routes[i].handler);
	}
	return known ? POSTERN_OK
				 : postern__fail(error, POSTERN_E_INVALID,
						   "message '%s' names a channel or handler that is "
						   "not enrolled",
						   accept->message->id);
}

static int accept_one(struct sqlite_store *self, uint64_t node,
		struct postern_accept *accept, int64_t now,
		struct postern_error *error) {
	if (accept->code == POSTERN_E_UNAVAILABLE) {
		accept->seq = 0;
		return POSTERN_OK;
	}
	if (accept->code != POSTERN_OK) {
		return accept_known(self, accept, now, error);
	}
	if (accept->fate == POSTERN_FATE_DROP) {
		accept->seq = 0;
		self->channels[accept->channel].changes.dropped++;
		return POSTERN_OK;
	}
	return accept_insert(self, node, accept, now, error);
}

/* Initialises the accept as a new message, and computes its key. */
static int arrival_prepare(struct sqlite_store *self,
		struct postern_batch *batch, size_t index, int64_t now,
		struct postern_error *error) {
	struct postern_accept *accept = &batch->accepts[index];
	struct sqlite_arrival *arrival = &self->arrivals[index];
	accept->code = POSTERN_OK;
	accept->received_at_ms = now;
	accept->seq = self->next_seq + (int64_t)index;
	for (size_t i = 0; i < accept->route_count; i++) {
		accept->routes[i].opened = false;
		accept->routes[i].leased = false;
		accept->routes[i].fence = 0;
		accept->routes[i].suppressed_by = 0;
	}
	arrival->index = index;
	postern__key_hash(self->hash_key, accept->channel, &accept->key,
			arrival->key);
	postern__body_digest(self->hash_key, accept->message, arrival->digest);
	int r = check_accept(self, accept, error);
	if (r == POSTERN_OK && self->channels[accept->channel].closed) {
		accept->code = POSTERN_E_UNAVAILABLE;
	}
	return r;
}

static int accept_all(struct sqlite_store *self, struct postern_batch *batch,
		uint64_t node, int64_t now, struct postern_error *error) {
	size_t count = batch->accept_count;
	int r = arrivals_reserve(self, count, error);
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		r = arrival_prepare(self, batch, i, now, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	qsort(self->arrivals, count, sizeof *self->arrivals, compare_keys);
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		const struct sqlite_arrival *arrival = &self->arrivals[i];
		r = seen_insert(self, arrival, &batch->accepts[arrival->index], error);
	}
	postern__point("sqlite-apply.remembered");
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		r = accept_one(self, node, &batch->accepts[i], now, error);
	}
	return r;
}

/* Advances next_seq past the last seq that was used; unused ones at the end of
   the batch are given to the next. */
static void next_seq_advance(struct sqlite_store *self,
		const struct postern_batch *batch) {
	for (size_t i = batch->accept_count; i > 0; i--) {
		if (batch->accepts[i - 1].code == POSTERN_OK &&
				batch->accepts[i - 1].seq > 0) {
			self->next_seq = batch->accepts[i - 1].seq + 1;
			return;
		}
	}
}

int postern__sqlite_batch_apply(struct sqlite_store *self,
		struct postern_batch *batch, int64_t now, struct postern_error *error) {
	bool holds;
	int r = postern__sqlite_holds_lock(self, batch->node, batch->lock, &holds,
			error);
	/* No lease belongs to node 0: under a lost lock nothing is settled or
	   leased. */
	uint64_t node = holds ? batch->node : 0;
	for (size_t i = 0; r == POSTERN_OK && i < batch->settlement_count; i++) {
		r = postern__sqlite_settle(self, node, &batch->settlements[i], now,
				error);
	}
	postern__point("sqlite-apply.settled");
	return r == POSTERN_OK && batch->accept_count > 0
				   ? accept_all(self, batch, node, now, error)
				   : r;
}

void postern__sqlite_batch_end(struct sqlite_store *self,
		const struct postern_batch *batch) {
	next_seq_advance(self, batch);
	if (self->only_node != batch->node && batch->node != POSTERN_NODE_PULL) {
		self->only_node = 0;
	}
}

int postern__sqlite_apply(struct postern_store *store,
		struct postern_batch *batch, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	int64_t now = postern__sqlite_now(self);
	r = postern__sqlite_begin(self, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_batch_apply(self, batch, now, error);
		r = postern__sqlite_finish(self, r, error);
	}
	if (r == POSTERN_OK) {
		postern__sqlite_batch_end(self, batch);
	}
	postern__sqlite_gate_leave(self);
	return r;
}
