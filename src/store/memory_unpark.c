/* SPDX-License-Identifier: MIT */

/*
 * Unparking in the memory store. All that the deliveries need is allocated
 * first, with the keys of handlers as hashes, because what the router returns
 * is not valid for long; then nothing can fail.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "store/common.h"
#include "store/memory.h"

/* A delivery that will be added. */
struct planned {
	struct postern__list link;
	struct memory_message *message;
	int64_t owner;
	struct memory_delivery *delivery;
	bool has_key;
	uint8_t key[POSTERN__KEY_LEN];
	struct memory_key *spare;       /* for the key in each scope */
	struct memory_attempt *attempt; /* NULL: neither a key nor a refusal */
};

struct plan {
	struct postern__list items;
	size_t key_count;
	size_t refused_count;
};

static void planned_destroy(struct planned *planned) {
	if (planned->delivery) {
		postern__mem_delivery_destroy(planned->delivery);
	}
	if (planned->attempt) {
		postern__mem_attempt_destroy(planned->attempt);
	}
	postern__mem_keys_destroy(planned->spare);
	free(planned);
}

static bool plan_delivery(struct memory_store *self, struct plan *plan,
		struct memory_message *message, const struct postern_route *route,
		size_t reserve) {
	struct memory_handler *owner = postern__mem_owner(self, route->handler);
	struct planned *planned = calloc(1, sizeof *planned);
	if (!planned) {
		return false;
	}
	postern__list_push_back(&plan->items, &planned->link);
	planned->message = message;
	planned->owner = owner->owner;
	planned->delivery = postern__mem_delivery_create();
	bool ok = planned->delivery && postern__mem_pending_reserve(owner, reserve);
	if (ok && (route->key || route->refusal)) {
		planned->attempt = postern__mem_end_attempt_create(route->refusal);
		plan->refused_count += route->refusal != NULL;
		ok = planned->attempt;
	}
	if (ok && route->key) {
		planned->has_key = true;
		postern__key_hash(self->hash_key, message->channel, route->key,
				planned->key);
		ok = postern__mem_spare_keys_add(self, planned->owner, &planned->spare,
				&plan->key_count);
	}
	return ok;
}

/* Plans the deliveries of one message; false: out of memory. */
static bool plan_message(struct memory_store *self, struct plan *plan,
		struct memory_message *message, const struct postern_route *routes,
		size_t count, size_t reserve) {
	for (size_t i = 0; i < count; i++) {
		const struct memory_handler *owner =
				postern__mem_owner(self, routes[i].handler);
		bool repeated = false;
		for (size_t j = 0; j < i && !repeated; j++) {
			repeated = postern__mem_owner(self, routes[j].handler) == owner;
		}
		if (!repeated &&
				!plan_delivery(self, plan, message, &routes[i], reserve)) {
			return false;
		}
	}
	return true;
}

static void add_planned(struct memory_store *self, struct planned *planned,
		int64_t now) {
	struct memory_message *message = planned->message;
	int64_t suppressed_by = 0;
	if (planned->has_key) {
		suppressed_by = postern__mem_route_key_take(self, message,
				planned->owner, planned->key, &planned->spare);
	}
	if (suppressed_by > 0 || (planned->attempt && !planned->has_key)) {
		postern__mem_delivery_end(self, message, planned->owner,
				planned->delivery, planned->attempt, suppressed_by, now);
		planned->attempt = NULL; /* the delivery owns it now */
	} else {
		postern__mem_delivery_add(self, message, planned->owner,
				planned->delivery);
		postern__mem_make_pending(self, planned->delivery, now, now, 0);
	}
	planned->delivery = NULL; /* the message owns it now */
}

/* Adds the planned deliveries; returns how many messages were unparked. */
static uint64_t add_all(struct memory_store *self, struct plan *plan) {
	uint64_t count = 0;
	int64_t now = postern__mem_now(self);
	postern__list_each(item, &plan->items) {
		struct planned *planned = container_of(item, struct planned, link);
		struct memory_delivery *parked =
				postern__mem_delivery_find(planned->message, 0);
		if (parked) {
			postern__mem_delivery_remove(self, parked);
			count++;
		}
		add_planned(self, planned, now);
	}
	return count;
}

static size_t route_message(struct memory_store *self,
		const struct memory_message *message, postern_router *router,
		void *context, struct postern_route *routes) {
	const char *type = message->data.type;
	size_t max = self->handler_count;
	size_t count = router(context, message->channel, type, NULL, routes, max);
	for (size_t i = 0; i < count; i++) {
		if (routes[i].by_message) {
			return router(context, message->channel, type, &message->data,
					routes, max);
		}
	}
	return count;
}

int postern__mem_unpark(struct memory_store *self, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error) {
	int r = POSTERN_OK;
	size_t visited = 0;
	int64_t last = 0;
	struct plan plan = { .key_count = 0 };
	postern__list_init(&plan.items);
	struct postern_route *routes =
			calloc(self->handler_count + 1, sizeof(struct postern_route));
	bool ok = routes;

	postern__list_each(item, &self->parked) {
		struct memory_message *message =
				container_of(item, struct memory_delivery, set)->message;
		if (message->seq <= *cursor) {
			continue;
		}
		if (!ok || visited == max) {
			break;
		}
		visited++;
		size_t count = route_message(self, message, router, context, routes);
		ok = plan_message(self, &plan, message, routes, count, visited);
		last = item->next == &self->parked ? 0 : message->seq;
	}
	if (!ok || !postern__mem_samples_reserve(self, plan.refused_count) ||
			!postern__mem_keys_reserve(self, plan.key_count)) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	*count_out = add_all(self, &plan);
	*cursor = last;
out:
	while (!postern__list_empty(&plan.items)) {
		planned_destroy(container_of(postern__list_pop_front(&plan.items),
				struct planned, link));
	}
	free(routes);
	return r;
}
