/* SPDX-License-Identifier: MIT */

/*
 * Settling and accepting in the memory store.
 *
 * A batch is applied in two steps. The first allocates everything that its
 * items may need, which may fail and changes nothing; the second applies the
 * items one by one, which cannot fail. Allocations that were not needed,
 * because an item was stale or a duplicate, are freed at the end.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "base/point.h"
#include "store/common.h"
#include "store/memory.h"

/* The key of one accept, and the allocations that it may need. */
struct parts {
	uint8_t key[POSTERN__KEY_LEN];
	struct memory_key *handler_keys; /* for each id of each handler with one */
	size_t handler_key_count;
	struct memory_message *message;
	struct memory_conflict *conflict;
	struct postern__list
			deliveries; /* one per route, or one to park the message */
	/* One for each route that may end at once. */
	struct postern__list attempts;
	size_t refused_count;
};

static struct memory_conflict *conflict_create(
		const struct postern_message *message) {
	const char *transport = message->transport ? message->transport : "api";
	size_t len = strlen(transport) + 1;
	struct memory_conflict *conflict = calloc(1, sizeof *conflict + len);
	if (conflict) {
		postern__list_init(&conflict->link);
		conflict->body_len = message->body_len;
		conflict->transport = memcpy(conflict + 1, transport, len);
		conflict->bytes = sizeof *conflict + len;
	}
	return conflict;
}

/* The attempt of a route that is refused, or may be suppressed. */
static bool parts_add_attempt(struct parts *parts,
		const struct postern_route *route) {
	if (!route->key && !route->refusal) {
		return true;
	}
	struct memory_attempt *attempt =
			postern__mem_end_attempt_create(route->refusal);
	if (attempt) {
		postern__list_push_back(&parts->attempts, &attempt->link);
		parts->refused_count += route->refusal != NULL;
	}
	return attempt;
}

/* `accept_count` is the most deliveries of one handler that the batch may
   create. */
static bool parts_init(struct parts *parts, struct memory_store *self,
		const struct postern_accept *accept, size_t accept_count) {
	const struct postern_message *message = accept->message;
	*parts = (struct parts){ .conflict = conflict_create(message) };
	postern__list_init(&parts->deliveries);
	postern__list_init(&parts->attempts);
	postern__key_hash(self->hash_key, accept->channel, &accept->key,
			parts->key);
	if (!parts->conflict) {
		return false;
	}
	if (accept->fate != POSTERN_FATE_DROP &&
			!postern__mem_message_find(self, parts->key)) {
		parts->message = postern__mem_message_create(message);
		if (!parts->message) {
			return false;
		}
	}
	size_t count = accept->fate == POSTERN_FATE_PARK ? 1 : accept->route_count;
	for (size_t i = 0; i < count; i++) {
		struct memory_delivery *delivery = postern__mem_delivery_create();
		if (!delivery) {
			return false;
		}
		postern__list_push_back(&parts->deliveries, &delivery->of_message);
	}
	for (size_t i = 0; i < accept->route_count; i++) {
		struct memory_handler *handler =
				postern__mem_owner(self, accept->routes[i].handler);
		if (!postern__mem_pending_reserve(handler, accept_count)) {
			return false;
		}
		if (accept->routes[i].key &&
				!postern__mem_spare_keys_add(self, accept->routes[i].handler,
						&parts->handler_keys, &parts->handler_key_count)) {
			return false;
		}
		if (!parts_add_attempt(parts, &accept->routes[i])) {
			return false;
		}
	}
	return true;
}

static void parts_finish(struct parts *parts) {
	postern__mem_message_destroy(parts->message);
	postern__mem_keys_destroy(parts->handler_keys);
	free(parts->conflict);
	/* Still zeroed if the batch failed before this item was initialised. */
	while (parts->deliveries.next && !postern__list_empty(&parts->deliveries)) {
		postern__mem_delivery_destroy(
				container_of(postern__list_pop_front(&parts->deliveries),
						struct memory_delivery, of_message));
	}
	while (parts->attempts.next && !postern__list_empty(&parts->attempts)) {
		postern__mem_attempt_destroy(
				container_of(postern__list_pop_front(&parts->attempts),
						struct memory_attempt, link));
	}
}

static struct memory_delivery *parts_take_delivery(struct parts *parts) {
	return container_of(postern__list_pop_front(&parts->deliveries),
			struct memory_delivery, of_message);
}

/* The handler's delivery of a message, under any of its ids. */
static struct memory_delivery *route_find(struct memory_store *self,
		const struct memory_message *message,
		const struct postern_route *route) {
	postern__mem_each_id(self, id, route->handler) {
		struct memory_delivery *delivery =
				postern__mem_delivery_find(message, id);
		if (delivery) {
			return delivery;
		}
	}
	return NULL;
}

static int64_t route_owner_id(struct memory_store *self,
		const struct postern_route *route) {
	return postern__mem_handler(self, route->handler)->owner;
}

/* Takes the attempt that was made for a route that is suppressed or refused. */
static struct memory_attempt *parts_take_attempt(struct parts *parts,
		const struct postern_route *route) {
	const char *outcome = route->refusal ? "poison" : "discard";
	struct memory_attempt *found = NULL;
	postern__list_each(item, &parts->attempts) {
		struct memory_attempt *attempt =
				container_of(item, struct memory_attempt, link);
		if (!found && strcmp(attempt->outcome, outcome) == 0 &&
				(!route->refusal ||
						strcmp(attempt->error, route->refusal) == 0)) {
			found = attempt;
		}
	}
	assert(found);
	postern__list_remove(&found->link);
	return found;
}

/* Creates the delivery of a route, or reopens a poisoned one, unless the route
   is suppressed or refused. Node 0: the delivery is not leased. */
static void route_open(struct memory_store *self, struct parts *parts,
		struct memory_message *message, struct postern_route *route,
		uint64_t node, int64_t now) {
	struct memory_delivery *delivery = route_find(self, message, route);
	if (route->key) {
		uint8_t key[POSTERN__KEY_LEN];
		postern__key_hash(self->hash_key, message->channel, route->key, key);
		route->suppressed_by = postern__mem_route_key_take(self, message,
				route->handler, key, &parts->handler_keys);
	}
	if (route->suppressed_by > 0 || route->refusal) {
		if (!delivery) {
			postern__mem_delivery_end(self, message,
					route_owner_id(self, route), parts_take_delivery(parts),
					parts_take_attempt(parts, route), route->suppressed_by,
					now);
		}
		return;
	}
	if (!delivery) {
		const struct memory_handler *owner =
				postern__mem_owner(self, route->handler);
		delivery = parts_take_delivery(parts);
		postern__mem_delivery_add(self, message, route_owner_id(self, route),
				delivery);
		route->leased = route->lease && node &&
						!postern__halt_holds(&owner->pause, now);
		if (route->leased) {
			postern__mem_make_leased(self, delivery, node, now);
		} else {
			postern__mem_make_pending(self, delivery, now, now, 0);
		}
	} else if (route->retry_poisoned &&
			   delivery->state == POSTERN_STATE_POISONED) {
		delivery->failures = 0;
		delivery->crashes = 0;
		delivery->breaks = 0;
		delivery->error_group = 0;
		postern__mem_make_pending(self, delivery, now, now, 0);
	} else {
		return;
	}
	route->opened = true;
	route->stored = delivery->handler;
	route->fence = delivery->fence;
}

static void accept_new(struct memory_store *self, struct postern_accept *accept,
		struct parts *parts, uint64_t node, int64_t now) {
	struct memory_channel *channel = &self->channels[accept->channel - 1];
	if (accept->fate == POSTERN_FATE_DROP) {
		channel->dropped++;
		return;
	}
	struct memory_message *message = parts->message;
	assert(message);
	parts->message = NULL; /* the store owns it now */
	message->data.received_at_ms = now;
	postern__mem_message_add(self, message, accept->channel, parts->key);
	channel->accepted++;
	accept->seq = message->seq;
	if (accept->fate == POSTERN_FATE_PARK) {
		struct memory_delivery *delivery = parts_take_delivery(parts);
		postern__mem_delivery_add(self, message, 0, delivery);
		postern__mem_make_parked(self, delivery);
	}
	for (size_t i = 0; i < accept->route_count; i++) {
		route_open(self, parts, message, &accept->routes[i], node, now);
	}
}

static void accept_conflict(struct memory_store *self,
		struct postern_accept *accept, struct parts *parts,
		struct memory_message *message, int64_t now) {
	accept->code = POSTERN_E_CONFLICT;
	self->channels[accept->channel - 1].conflicts++;
	message->conflict_count++;
	if (message->conflict_kept < POSTERN_CONFLICTS_KEPT) {
		parts->conflict->at_ms = now;
		self->bytes += parts->conflict->bytes;
		postern__list_push_back(&message->conflicts, &parts->conflict->link);
		message->conflict_kept++;
		parts->conflict = NULL; /* the message owns it now */
	}
}

static void accept_duplicate(struct memory_store *self,
		struct postern_accept *accept, struct parts *parts,
		struct memory_message *message, int64_t now) {
	accept->code = POSTERN_E_DUPLICATE;
	self->channels[accept->channel - 1].duplicates++;
	message->duplicate_count++;
	message->duplicate_at_ms = now;
	for (size_t i = 0; !message->removed && i < accept->route_count; i++) {
		route_open(self, parts, message, &accept->routes[i], 0, now);
	}
	struct memory_delivery *parked = postern__mem_delivery_find(message, 0);
	if (accept->route_count > 0 && parked &&
			parked->state == POSTERN_STATE_PARKED) {
		postern__mem_delivery_remove(self, parked);
	}
}

static void accept_one(struct memory_store *self, struct postern_accept *accept,
		struct parts *parts, uint64_t node, int64_t now) {
	accept->code = POSTERN_OK;
	accept->seq = 0;
	accept->received_at_ms = now;
	for (size_t i = 0; i < accept->route_count; i++) {
		accept->routes[i].opened = false;
		accept->routes[i].leased = false;
		accept->routes[i].fence = 0;
		accept->routes[i].suppressed_by = 0;
	}
	if (self->channels[accept->channel - 1].closed.on) {
		accept->code = POSTERN_E_UNAVAILABLE;
		return;
	}
	struct memory_message *known = postern__mem_message_find(self, parts->key);
	if (!known) {
		accept_new(self, accept, parts, node, now);
		return;
	}
	accept->seq = known->seq;
	if (postern__mem_message_same_body(self, known, accept->message)) {
		accept_duplicate(self, accept, parts, known, now);
	} else {
		accept_conflict(self, accept, parts, known, now);
	}
}

static bool has_group(const struct postern_settlement *settlement) {
	return settlement->group && settlement->error &&
		   (settlement->to == POSTERN_SETTLE_PENDING ||
				   settlement->to == POSTERN_SETTLE_POISONED);
}

/* Returns the attempt if it was not used, else NULL. */
static struct memory_attempt *settle_one(struct memory_store *self,
		struct postern_settlement *settlement, struct memory_attempt *attempt,
		uint64_t node, int64_t now) {
	struct memory_message *message =
			postern__mem_message_get(self, settlement->seq);
	struct memory_delivery *delivery =
			message ? postern__mem_delivery_find(message, settlement->handler)
					: NULL;
	if (!delivery || delivery->state != POSTERN_STATE_LEASED ||
			delivery->node != node || delivery->fence != settlement->fence) {
		settlement->code = POSTERN_E_STALE;
		return attempt;
	}
	settlement->code = POSTERN_OK;
	int64_t ended = now - settlement->lag_ms;
	delivery->crashes = 0;
	if (settlement->to == POSTERN_SETTLE_RETURNED) {
		delivery->starts--;
	} else {
		delivery->failures = settlement->failures;
	}
	if (attempt) {
		postern__mem_attempt_take(self, delivery, attempt,
				ended - settlement->duration_ms, ended);
	}
	if (has_group(settlement)) {
		postern__mem_error_group_set(self, delivery, settlement->group,
				settlement->error, ended);
	}
	switch (settlement->to) {
	case POSTERN_SETTLE_DONE:
		postern__mem_make_ended(self, delivery, POSTERN_STATE_DONE, ended);
		break;
	case POSTERN_SETTLE_POISONED:
		postern__mem_make_ended(self, delivery, POSTERN_STATE_POISONED, ended);
		break;
	case POSTERN_SETTLE_DISCARDED:
		postern__mem_make_ended(self, delivery, POSTERN_STATE_DISCARDED, ended);
		break;
	case POSTERN_SETTLE_PENDING:
		delivery->breaks += settlement->broke;
		postern__mem_make_pending(self, delivery, now,
				now + settlement->delay_ms, 0);
		break;
	case POSTERN_SETTLE_RETURNED:
		postern__mem_make_pending(self, delivery, now, now, 0);
		break;
	}
	return NULL;
}

static bool keeps_attempt(const struct postern_settlement *settlement) {
	return settlement->to != POSTERN_SETTLE_DONE &&
		   settlement->to != POSTERN_SETTLE_RETURNED;
}

/* Allocates for all items; false: out of memory. */
static bool batch_allocate(struct memory_store *self,
		const struct postern_batch *batch, struct parts *parts,
		struct memory_attempt **attempts) {
	size_t samples = 0;
	for (size_t i = 0; i < batch->settlement_count; i++) {
		const struct postern_settlement *settlement = &batch->settlements[i];
		samples += has_group(settlement);
		if (keeps_attempt(settlement)) {
			attempts[i] = postern__mem_attempt_create(settlement->outcome,
					settlement->error);
			if (!attempts[i]) {
				return false;
			}
		}
	}
	size_t keys = batch->accept_count;
	for (size_t i = 0; i < batch->accept_count; i++) {
		if (!parts_init(&parts[i], self, &batch->accepts[i],
					batch->accept_count)) {
			return false;
		}
		keys += parts[i].handler_key_count;
		samples += parts[i].refused_count;
	}
	return postern__mem_samples_reserve(self, samples) &&
		   postern__mem_messages_reserve(self, batch->accept_count) &&
		   postern__mem_keys_reserve(self, keys);
}

/* Fails if a key that was made of an id belongs to a message with another. */
static int check_ids(const struct memory_store *self,
		const struct postern_batch *batch, const struct parts *parts,
		struct postern_error *error) {
	for (size_t i = 0; i < batch->accept_count; i++) {
		const struct postern_accept *accept = &batch->accepts[i];
		const struct memory_message *known =
				postern__mem_message_find(self, parts[i].key);
		if (known && !known->removed && accept->key.is_id &&
				(strcmp(known->data.id, accept->message->id) != 0 ||
						strcmp(known->data.source, accept->message->source) !=
								0)) {
			return postern__fail(error, POSTERN_E_CORRUPT,
					"the remembered id of message %lld belongs to another "
					"message",
					(long long)known->seq);
		}
	}
	return POSTERN_OK;
}

/* The most bytes that the accepts may add to the store. */
static size_t batch_growth(const struct parts *parts,
		const struct postern_batch *batch) {
	size_t bytes = 0;
	for (size_t i = 0; i < batch->accept_count; i++) {
		if (parts[i].message) {
			bytes += parts[i].message->bytes +
					 parts[i].handler_key_count * sizeof(struct memory_key) +
					 (batch->accepts[i].route_count + 1) *
							 sizeof(struct memory_delivery);
		}
	}
	return bytes;
}

int postern__mem_apply(struct memory_store *self, struct postern_batch *batch,
		struct postern_error *error) {
	int r = POSTERN_OK;
	int64_t now = postern__mem_now(self);
	struct parts *parts = calloc(batch->accept_count + 1, sizeof *parts);
	struct memory_attempt **attempts = calloc(batch->settlement_count + 1,
			sizeof(struct memory_attempt *));

	if (!parts || !attempts || !batch_allocate(self, batch, parts, attempts)) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	r = check_ids(self, batch, parts, error);
	if (r) {
		goto out;
	}
	postern__point("memory-apply.prepared");
	size_t bytes = batch_growth(parts, batch);
	if (bytes > 0 && self->bytes + bytes > self->bytes_max) {
		r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"the memory store is full: it holds %zu of %zu bytes",
				self->bytes, self->bytes_max);
		goto out;
	}
	/* No lease belongs to node 0: under a lost lock nothing is settled or
	   leased. */
	uint64_t node = postern__mem_holds_lock(self, batch->node, batch->lock)
							? batch->node
							: 0;
	for (size_t i = 0; i < batch->settlement_count; i++) {
		attempts[i] = settle_one(self, &batch->settlements[i], attempts[i],
				node, now);
	}
	postern__point("memory-apply.settled");
	for (size_t i = 0; i < batch->accept_count; i++) {
		accept_one(self, &batch->accepts[i], &parts[i], node, now);
	}
out:
	for (size_t i = 0; parts && i < batch->accept_count; i++) {
		parts_finish(&parts[i]);
	}
	for (size_t i = 0; attempts && i < batch->settlement_count; i++) {
		free(attempts[i]);
	}
	free(parts);
	free(attempts);
	return r;
}
