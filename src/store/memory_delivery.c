/* SPDX-License-Identifier: MIT */

/*
 * Deliveries of the memory store: the sets they are in, and the four functions
 * that move them between sets.
 *
 * A handler's heap always has room for all of its deliveries, so that making
 * one pending cannot fail.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "core/error_group.h"
#include "store/common.h"
#include "store/memory.h"

struct memory_delivery *postern__mem_delivery_create(void) {
	struct memory_delivery *delivery = calloc(1, sizeof *delivery);
	if (delivery) {
		postern__list_init(&delivery->of_message);
		postern__list_init(&delivery->set);
		postern__list_init(&delivery->suspect);
		postern__list_init(&delivery->attempts);
	}
	return delivery;
}

void postern__mem_delivery_destroy(struct memory_delivery *delivery) {
	if (!delivery) {
		return;
	}
	postern__list_each(item, &delivery->attempts) {
		free(container_of(item, struct memory_attempt, link));
	}
	free(delivery);
}

struct memory_delivery *
postern__mem_delivery_find(const struct memory_message *message,
		int64_t handler) {
	postern__list_each(item, &message->deliveries) {
		struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, of_message);
		if (delivery->handler == handler) {
			return delivery;
		}
	}
	return NULL;
}

/* By due time; of equal due times, by seq. */
static bool is_before(const struct memory_delivery *a,
		const struct memory_delivery *b) {
	return a->due_at_ms != b->due_at_ms ? a->due_at_ms < b->due_at_ms
										: a->message->seq < b->message->seq;
}

static void heap_put(struct memory_heap *heap, size_t index,
		struct memory_delivery *delivery) {
	heap->items[index] = delivery;
	delivery->heap_index = index;
}

/* Moves a delivery to its position in the heap, starting at a free index. */
static void heap_place(struct memory_heap *heap, size_t index,
		struct memory_delivery *delivery) {
	while (index > 0 && is_before(delivery, heap->items[(index - 1) / 2])) {
		heap_put(heap, index, heap->items[(index - 1) / 2]);
		index = (index - 1) / 2;
	}
	for (;;) {
		size_t child = 2 * index + 1;
		if (child + 1 < heap->count &&
				is_before(heap->items[child + 1], heap->items[child])) {
			child++;
		}
		if (child >= heap->count || !is_before(heap->items[child], delivery)) {
			break;
		}
		heap_put(heap, index, heap->items[child]);
		index = child;
	}
	heap_put(heap, index, delivery);
}

static void heap_insert(struct memory_heap *heap,
		struct memory_delivery *delivery) {
	assert(heap->count < heap->cap);
	heap->count++;
	heap_place(heap, heap->count - 1, delivery);
}

static void heap_remove(struct memory_heap *heap,
		struct memory_delivery *delivery) {
	size_t index = delivery->heap_index;
	assert(index < heap->count && heap->items[index] == delivery);
	heap->count--;
	if (index < heap->count) {
		heap_place(heap, index, heap->items[heap->count]);
	}
}

bool postern__mem_pending_reserve(struct memory_handler *handler,
		size_t count) {
	struct memory_heap *heap = &handler->pending;
	size_t need = handler->delivery_count + count;
	if (need <= heap->cap) {
		return true;
	}
	size_t cap = need > 2 * heap->cap ? need : 2 * heap->cap;
	void *items = realloc(heap->items, cap * sizeof(struct memory_delivery *));
	if (!items) {
		return false;
	}
	heap->items = items;
	heap->cap = cap;
	return true;
}

void postern__mem_delivery_add(struct memory_store *self,
		struct memory_message *message, int64_t handler,
		struct memory_delivery *delivery) {
	struct postern__list *place = &message->deliveries;
	postern__list_each(item, &message->deliveries) {
		if (container_of(item, struct memory_delivery, of_message)->handler >
				handler) {
			break;
		}
		place = item;
	}
	postern__list_insert(place, &delivery->of_message);
	delivery->message = message;
	delivery->handler = handler;
	message->delivery_count++;
	if (handler) {
		postern__mem_handler(self, handler)->delivery_count++;
	}
	self->bytes += sizeof *delivery;
}

/* Removes the delivery from the set of its state; the state is then ANY. */
static void delivery_leave_set(struct memory_store *self,
		struct memory_delivery *delivery) {
	if (delivery->state == POSTERN_STATE_PENDING) {
		heap_remove(&postern__mem_handler(self, delivery->handler)->pending,
				delivery);
	} else if (delivery->state == POSTERN_STATE_PARKED) {
		self->channels[delivery->message->channel - 1].parked--;
	}
	postern__list_remove(&delivery->suspect);
	postern__list_remove(&delivery->set);
	delivery->state = POSTERN_STATE_ANY;
	delivery->node = 0;
	delivery->solo = false;
	delivery->due_at_ms = 0;
	delivery->since_ms = 0;
	delivery->leased_at_ms = 0;
	delivery->finished_at_ms = 0;
}

void postern__mem_delivery_remove(struct memory_store *self,
		struct memory_delivery *delivery) {
	assert(delivery->state != POSTERN_STATE_PENDING &&
			delivery->state != POSTERN_STATE_LEASED);
	delivery_leave_set(self, delivery);
	postern__list_remove(&delivery->of_message);
	delivery->message->delivery_count--;
	if (delivery->handler) {
		postern__mem_handler(self, delivery->handler)->delivery_count--;
	}
	postern__list_each(item, &delivery->attempts) {
		self->bytes -= container_of(item, struct memory_attempt, link)->bytes;
	}
	self->bytes -= sizeof *delivery;
	postern__mem_delivery_destroy(delivery);
}

/* The list is sorted by group; the group is almost always the newest. */
static void suspect_insert(struct memory_store *self,
		struct memory_delivery *delivery) {
	struct postern__list *place = self->suspects.prev;
	while (place != &self->suspects &&
			container_of(place, struct memory_delivery, suspect)->group >
					delivery->group) {
		place = place->prev;
	}
	postern__list_insert(place, &delivery->suspect);
}

void postern__mem_make_pending(struct memory_store *self,
		struct memory_delivery *delivery, int64_t since_ms, int64_t due_at_ms,
		uint64_t group) {
	delivery_leave_set(self, delivery);
	delivery->state = POSTERN_STATE_PENDING;
	delivery->since_ms = since_ms;
	delivery->due_at_ms = due_at_ms;
	delivery->group = group;
	heap_insert(&postern__mem_handler(self, delivery->handler)->pending,
			delivery);
	if (group) {
		suspect_insert(self, delivery);
	}
}

void postern__mem_pending_repair(struct memory_store *self, int64_t now) {
	for (size_t i = 0; i < self->handler_count; i++) {
		struct memory_heap *heap = &self->handlers[i].pending;
		size_t count = heap->count;
		/* Rebuild the heap in place: items up to heap->count are a heap. */
		for (heap->count = 0; heap->count < count;) {
			struct memory_delivery *delivery = heap->items[heap->count];
			if (delivery->since_ms > now) {
				delivery->since_ms = now;
				delivery->due_at_ms = now;
			}
			heap_insert(heap, delivery);
		}
	}
	postern__list_each(item, &self->leased) {
		struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, set);
		if (delivery->leased_at_ms > now) {
			if (delivery->node == POSTERN_NODE_PULL) {
				/* The lease is as long as before. */
				delivery->due_at_ms -= delivery->leased_at_ms - now;
			}
			delivery->leased_at_ms = now;
		}
	}
	self->now_max_ms = now;
}

void postern__mem_make_leased(struct memory_store *self,
		struct memory_delivery *delivery, uint64_t node, int64_t now) {
	delivery_leave_set(self, delivery);
	delivery->state = POSTERN_STATE_LEASED;
	delivery->node = node;
	delivery->leased_at_ms = now;
	delivery->fence++;
	delivery->starts++;
	postern__list_push_back(&self->leased, &delivery->set);
}

void postern__mem_make_ended(struct memory_store *self,
		struct memory_delivery *delivery, enum postern_state state,
		int64_t now) {
	delivery_leave_set(self, delivery);
	delivery->state = state;
	delivery->finished_at_ms = now;
	delivery->group = 0;
	if (state != POSTERN_STATE_POISONED) {
		delivery->error_group = 0;
	}
	if (delivery->handler == 0) {
		return;
	}
	struct memory_handler *handler =
			postern__mem_handler(self, delivery->handler);
	handler->done += state == POSTERN_STATE_DONE;
	handler->discarded += state == POSTERN_STATE_DISCARDED;
}

void postern__mem_make_parked(struct memory_store *self,
		struct memory_delivery *delivery) {
	delivery_leave_set(self, delivery);
	delivery->state = POSTERN_STATE_PARKED;
	self->channels[delivery->message->channel - 1].parked++;
	/* Only a new message is parked, so the list stays sorted by seq. */
	postern__list_push_back(&self->parked, &delivery->set);
}

void postern__mem_attempt_destroy(struct memory_attempt *attempt) {
	free(attempt);
}

struct memory_attempt *postern__mem_attempt_create(const char *outcome,
		const char *text) {
	size_t outcome_len = strlen(outcome) + 1;
	size_t text_len = text ? strlen(text) + 1 : 0;
	size_t bytes = sizeof(struct memory_attempt) + outcome_len + text_len;
	struct memory_attempt *attempt = calloc(1, bytes);
	if (!attempt) {
		return NULL;
	}
	postern__list_init(&attempt->link);
	char *place = (char *)(attempt + 1);
	attempt->outcome = memcpy(place, outcome, outcome_len);
	if (text) {
		attempt->error = memcpy(place + outcome_len, text, text_len);
	}
	attempt->bytes = bytes;
	return attempt;
}

void postern__mem_attempt_take(struct memory_store *self,
		struct memory_delivery *delivery, struct memory_attempt *attempt,
		int64_t started_at_ms, int64_t finished_at_ms) {
	attempt->fence = delivery->fence;
	attempt->started_at_ms = started_at_ms;
	attempt->finished_at_ms = finished_at_ms;
	postern__list_push_back(&delivery->attempts, &attempt->link);
	self->bytes += attempt->bytes;
	if (delivery->attempt_count < POSTERN_ATTEMPTS_KEPT) {
		delivery->attempt_count++;
		return;
	}
	struct memory_attempt *oldest =
			container_of(postern__list_pop_front(&delivery->attempts),
					struct memory_attempt, link);
	self->bytes -= oldest->bytes;
	free(oldest);
}

const char *postern__mem_last_error(const struct memory_delivery *delivery) {
	const char *text = NULL;
	postern__list_each(item, &delivery->attempts) {
		struct memory_attempt *attempt =
				container_of(item, struct memory_attempt, link);
		text = attempt->error ? attempt->error : text;
	}
	return text;
}

struct memory_attempt *postern__mem_end_attempt_create(const char *refusal) {
	char room[POSTERN__SUPPRESSED_TEXT_MAX];
	postern__suppressed_text(INT64_MAX, room);
	return postern__mem_attempt_create(refusal ? "poison" : "discard",
			refusal ? refusal : room);
}

void postern__mem_delivery_end(struct memory_store *self,
		struct memory_message *message, int64_t owner,
		struct memory_delivery *delivery, struct memory_attempt *attempt,
		int64_t suppressed_by, int64_t now) {
	const char *text = attempt->error;
	if (suppressed_by > 0) {
		char suppressed[POSTERN__SUPPRESSED_TEXT_MAX];
		postern__suppressed_text(suppressed_by, suppressed);
		/* The text belongs to the attempt and has room for the largest number;
		   only its readers see it const. */
		memcpy((char *)(uintptr_t)text, suppressed, strlen(suppressed) + 1);
	}
	postern__mem_delivery_add(self, message, owner, delivery);
	postern__mem_make_pending(self, delivery, now, now, 0);
	postern__mem_attempt_take(self, delivery, attempt, now, now);
	if (suppressed_by == 0) {
		postern__mem_error_group_set(self, delivery, postern__error_group(text),
				text, now);
	}
	postern__mem_make_ended(self, delivery,
			suppressed_by > 0 ? POSTERN_STATE_DISCARDED
							  : POSTERN_STATE_POISONED,
			now);
}
