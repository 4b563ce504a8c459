/* SPDX-License-Identifier: MIT */

/*
 * Claiming in the memory store: deliveries are chosen and leased first, then
 * copied for the caller. If a copy fails, all of them become pending as before.
 */

#include <stdlib.h>

#include "base/fail.h"
#include "base/list.h"
#include "store/memory.h"
#include "store/store.h"

/* A leased delivery and its values before the lease. */
struct chosen {
	struct memory_delivery *delivery;
	size_t want;
	int64_t since_ms;
	int64_t due_at_ms;
	uint64_t group;
};

struct choice {
	uint64_t node;
	int64_t now;
	int64_t lease_ms; /* of pull leases */
	struct chosen *items;
	size_t count;
	size_t body_bytes;
};

static void choose_delivery(struct memory_store *self, struct choice *choice,
		struct memory_delivery *delivery, size_t want) {
	choice->items[choice->count] = (struct chosen){
		.delivery = delivery,
		.want = want,
		.since_ms = delivery->since_ms,
		.due_at_ms = delivery->due_at_ms,
		.group = delivery->group,
	};
	choice->count++;
	choice->body_bytes += delivery->message->data.body_len;
	postern__mem_make_leased(self, delivery, choice->node, choice->now);
	if (choice->node == POSTERN_NODE_PULL) {
		delivery->due_at_ms = choice->now + choice->lease_ms;
	}
}

static void choice_roll_back(struct memory_store *self,
		const struct choice *choice) {
	for (size_t i = 0; i < choice->count; i++) {
		const struct chosen *chosen = &choice->items[i];
		chosen->delivery->fence--;
		chosen->delivery->starts--;
		postern__mem_make_pending(self, chosen->delivery, chosen->since_ms,
				chosen->due_at_ms, chosen->group);
	}
}

/* A paused handler gets nothing, and does not delay the others. */
static bool is_unpaused(struct memory_store *self,
		const struct postern_want *want) {
	return !postern__mem_is_paused(self, want->handler);
}

/* Whether a want of an in-process handler includes this suspect; *want_out is
   its index. */
static bool is_wanted_suspect(struct memory_store *self,
		const struct postern_claim *claim,
		const struct memory_delivery *delivery, size_t *want_out) {
	const struct memory_handler *owner =
			postern__mem_owner(self, delivery->handler);
	for (size_t i = 0; i < claim->want_count; i++) {
		const struct postern_want *want = &claim->wants[i];
		if (want->in_process &&
				postern__mem_owner(self, want->handler) == owner) {
			*want_out = i;
			return is_unpaused(self, want);
		}
	}
	return false;
}

/* Whether other members of its group are pending or leased: members whose
   handler is paused or not wanted remain when the others are claimed. */
static bool group_has_others(struct memory_store *self,
		const struct memory_delivery *delivery) {
	postern__list_each(item, &self->suspects) {
		if (container_of(item, struct memory_delivery, suspect)->group ==
				delivery->group) {
			return true;
		}
	}
	postern__list_each(item, &self->leased) {
		const struct memory_delivery *other =
				container_of(item, struct memory_delivery, set);
		if (other != delivery && other->group == delivery->group) {
			return true;
		}
	}
	return false;
}

/* Chooses the oldest group of wanted suspects, whole. */
static void choose_suspects(struct memory_store *self,
		const struct postern_claim *claim, struct choice *choice) {
	uint64_t group = 0;
	postern__list_each(item, &self->suspects) {
		struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, suspect);
		size_t want;
		if (is_wanted_suspect(self, claim, delivery, &want) &&
				(!group || group == delivery->group)) {
			group = delivery->group;
			choose_delivery(self, choice, delivery, want);
		}
	}
	if (choice->count == 1) {
		struct memory_delivery *delivery = choice->items[0].delivery;
		delivery->solo = !group_has_others(self, delivery);
	}
}

/* The handler's pending delivery that is due first, under any of its ids; NULL:
   none. */
static struct memory_delivery *first_due(struct memory_store *self,
		int64_t handler) {
	struct memory_delivery *first = NULL;
	postern__mem_each_id(self, id, handler) {
		const struct memory_heap *heap =
				&postern__mem_handler(self, id)->pending;
		if (heap->count > 0 &&
				(!first || heap->items[0]->due_at_ms < first->due_at_ms)) {
			first = heap->items[0];
		}
	}
	return first;
}

static void choose_due(struct memory_store *self,
		const struct postern_claim *claim, size_t index,
		struct choice *choice) {
	const struct postern_want *want = &claim->wants[index];
	for (uint32_t i = 0; i < want->max && choice->count < claim->max &&
						 choice->body_bytes <= claim->bytes_max;
			i++) {
		struct memory_delivery *delivery = first_due(self, want->handler);
		if (!delivery || delivery->due_at_ms > choice->now) {
			return;
		}
		choose_delivery(self, choice, delivery, index);
		/* A suspect whose handler is no longer in-process is no suspect any
		   more. */
		delivery->group = 0;
	}
}

static size_t chosen_count_max(struct memory_store *self,
		const struct postern_claim *claim) {
	size_t count = 1;
	for (size_t i = 0; i < claim->want_count; i++) {
		postern__mem_each_id(self, id, claim->wants[i].handler) {
			count += postern__mem_handler(self, id)->pending.count;
		}
	}
	return count;
}

static bool chosen_export(const struct choice *choice,
		struct postern_memory *memory, struct postern_claimed *items) {
	for (size_t i = 0; i < choice->count; i++) {
		const struct memory_delivery *delivery = choice->items[i].delivery;
		struct postern_message *message =
				postern_memory_alloc(memory, sizeof *message);
		if (!message || !postern__mem_message_export(delivery->message, memory,
								message)) {
			return false;
		}
		items[i] = (struct postern_claimed){
			.seq = delivery->message->seq,
			.handler = delivery->handler,
			.want = choice->items[i].want,
			.channel = delivery->message->channel,
			.fence = delivery->fence,
			.failures = delivery->failures,
			.breaks = delivery->breaks,
			.suspicion = delivery->solo    ? POSTERN_SUSPECT_SOLO
						 : delivery->group ? POSTERN_SUSPECT_GROUP
										   : POSTERN_NO_SUSPECT,
			.message = message,
		};
	}
	return true;
}

static int64_t next_due_ms(struct memory_store *self,
		const struct postern_claim *claim, int64_t now) {
	int64_t next = -1;
	for (size_t i = 0; i < claim->want_count; i++) {
		const struct postern_want *want = &claim->wants[i];
		const struct memory_delivery *first = first_due(self, want->handler);
		if (!first || !is_unpaused(self, want)) {
			continue;
		}
		int64_t due = first->due_at_ms;
		int64_t wait = due > now ? due - now : 0;
		next = next < 0 || wait < next ? wait : next;
	}
	return next;
}

static uint64_t suspects_waiting(struct memory_store *self,
		const struct postern_claim *claim) {
	uint64_t count = 0;
	postern__list_each(item, &self->suspects) {
		size_t want;
		count += is_wanted_suspect(self, claim,
				container_of(item, struct memory_delivery, suspect), &want);
	}
	return count;
}

int postern__mem_claim(struct memory_store *self,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error) {
	if (!postern__mem_holds_lock(self, claim->node, claim->lock)) {
		return postern__fail(error, POSTERN_E_STALE,
				"lock '%s' is no longer held by this node", claim->lock->name);
	}
	int r = POSTERN_OK;
	int64_t now = postern__mem_now(self);
	if (now < self->now_max_ms - POSTERN__CLOCK_STEP_MS) {
		postern__mem_pending_repair(self, now);
	}
	if (claim->ended) {
		return postern__mem_claim_ended(self, claim, memory, out, error);
	}
	struct choice choice = {
		.node = claim->node,
		.now = now,
		.lease_ms = claim->lease_ms,
		.items = malloc(chosen_count_max(self, claim) * sizeof(struct chosen)),
	};
	if (!choice.items) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (claim->max > 0) {
		choose_suspects(self, claim, &choice);
	}
	bool has_suspects = choice.count > 0;
	for (size_t i = 0; i < claim->want_count; i++) {
		const struct postern_want *want = &claim->wants[i];
		if (is_unpaused(self, want) && !(has_suspects && want->in_process)) {
			choose_due(self, claim, i, &choice);
		}
	}
	struct postern_claimed *items = postern_memory_alloc(memory,
			choice.count * sizeof(struct postern_claimed));
	if (!items || !chosen_export(&choice, memory, items)) {
		choice_roll_back(self, &choice);
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	*out = (struct postern_claims){
		.items = items,
		.count = choice.count,
		.next_due_ms = next_due_ms(self, claim, choice.now),
		.suspects_waiting = suspects_waiting(self, claim),
	};
out:
	free(choice.items);
	return r;
}
