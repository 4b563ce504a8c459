/* SPDX-License-Identifier: MIT */

/*
 * Pull leases of the memory store: leased deliveries whose owner is
 * POSTERN_NODE_PULL, and whose due_at_ms is the end of the lease.
 */

#include <stdlib.h>

#include "base/fail.h"
#include "base/list.h"
#include "store/memory.h"

static bool is_pulled(const struct memory_delivery *delivery) {
	return delivery->state == POSTERN_STATE_LEASED &&
		   delivery->node == POSTERN_NODE_PULL;
}

/* Since when the delivery has its lease; 0 if the clock went back. */
static int64_t held_ms(const struct memory_delivery *delivery, int64_t now) {
	return now > delivery->leased_at_ms ? now - delivery->leased_at_ms : 0;
}

/* The index of the want that includes the delivery, or want_count. */
static size_t want_of(struct memory_store *self,
		const struct postern_claim *claim,
		const struct memory_delivery *delivery) {
	const struct memory_handler *owner =
			postern__mem_owner(self, delivery->handler);
	size_t i = 0;
	while (i < claim->want_count &&
			postern__mem_owner(self, claim->wants[i].handler) != owner) {
		i++;
	}
	return i;
}

static bool ended_export(const struct memory_delivery *delivery, size_t want,
		int64_t now, struct postern_memory *memory,
		struct postern_claimed *out) {
	struct postern_message *message =
			postern_memory_alloc(memory, sizeof *message);
	*out = (struct postern_claimed){
		.seq = delivery->message->seq,
		.handler = delivery->handler,
		.want = want,
		.channel = delivery->message->channel,
		.fence = delivery->fence + 1,
		.failures = delivery->failures,
		.breaks = delivery->breaks,
		.message = message,
		.held_ms = held_ms(delivery, now),
	};
	return message &&
		   postern__mem_message_export(delivery->message, memory, message);
}

/* Makes an ended pull lease one of the node. */
static void ended_take(struct memory_store *self,
		struct memory_delivery *delivery, uint64_t node, int64_t now) {
	postern__mem_make_leased(self, delivery, node, now);
	delivery->starts--;
}

/* Lists the ended pull leases of the wanted handlers, at most claim->max;
 *next_out: the time until the next one ends, of those that are not listed. */
static int ended_find(struct memory_store *self,
		const struct postern_claim *claim, int64_t now,
		struct postern_memory *memory, struct memory_delivery **found,
		struct postern_claims *out) {
	postern__list_each(item, &self->leased) {
		struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, set);
		size_t want = is_pulled(delivery) ? want_of(self, claim, delivery)
										  : claim->want_count;
		if (want == claim->want_count) {
			continue;
		}
		if (delivery->due_at_ms <= now && out->count < claim->max) {
			found[out->count] = delivery;
			if (!ended_export(delivery, want, now, memory,
						&out->items[out->count++])) {
				return POSTERN_E_NOMEM;
			}
			continue;
		}
		int64_t left =
				delivery->due_at_ms > now ? delivery->due_at_ms - now : 0;
		if (out->next_due_ms < 0 || left < out->next_due_ms) {
			out->next_due_ms = left;
		}
	}
	return POSTERN_OK;
}

int postern__mem_claim_ended(struct memory_store *self,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error) {
	struct memory_delivery **found =
			calloc(claim->max + 1, sizeof(struct memory_delivery *));
	struct postern_claims claims = {
		.items = postern_memory_alloc(memory,
				(claim->max + 1) * sizeof(struct postern_claimed)),
		.next_due_ms = -1,
	};
	int64_t now = postern__mem_now(self);
	int r = found && claims.items
					? ended_find(self, claim, now, memory, found, &claims)
					: POSTERN_E_NOMEM;
	if (r) {
		free(found);
		return postern__fail(error, r, "out of memory");
	}
	for (size_t i = 0; i < claims.count; i++) {
		ended_take(self, found[i], claim->node, now);
	}
	free(found);
	*out = claims;
	return POSTERN_OK;
}

/* The delivery that a row is about: the one with its fence, if a handler and
   its alias have one each; NULL: there is none. */
static struct memory_delivery *row_find(struct memory_store *self,
		const struct postern_pull_row *row) {
	struct memory_message *message = postern__mem_message_get(self, row->seq);
	struct memory_delivery *found = NULL;
	if (!message) {
		return NULL;
	}
	postern__mem_each_id(self, id, row->handler) {
		struct memory_delivery *delivery =
				postern__mem_delivery_find(message, id);
		if (delivery && (!found || delivery->fence == row->fence)) {
			found = delivery;
		}
	}
	return found;
}

static void row_read(struct memory_store *self, struct postern_pull_row *row,
		const struct memory_delivery *delivery, const char *message_id) {
	bool same = delivery->fence == row->fence;
	row->code = same && is_pulled(delivery) ? POSTERN_OK : POSTERN_E_STALE;
	row->stored = delivery->handler;
	row->channel = delivery->message->channel;
	row->failures = delivery->failures;
	row->breaks = delivery->breaks;
	row->message_id = message_id;
	row->held_ms = held_ms(delivery, postern__mem_now(self));
	row->ended = same && delivery->finished_at_ms ? delivery->state
												  : POSTERN_STATE_ANY;
}

int postern__mem_read_pulls(struct memory_store *self,
		struct postern_pull_row *rows, size_t count,
		struct postern_memory *memory, struct postern_error *error) {
	for (size_t i = 0; i < count; i++) {
		const struct memory_delivery *delivery = row_find(self, &rows[i]);
		rows[i].code = POSTERN_E_NOTFOUND;
		rows[i].ended = POSTERN_STATE_ANY;
		if (!delivery) {
			continue;
		}
		const char *id =
				postern_memory_text(memory, delivery->message->data.id);
		if (!id) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
		row_read(self, &rows[i], delivery, id);
	}
	return POSTERN_OK;
}

void postern__mem_extend(struct memory_store *self,
		struct postern_pull_row *row, int64_t lease_ms, int64_t *until_ms_out) {
	struct memory_delivery *delivery = row_find(self, row);
	row->code = !delivery ? POSTERN_E_NOTFOUND
				: is_pulled(delivery) && delivery->fence == row->fence
						? POSTERN_OK
						: POSTERN_E_STALE;
	if (row->code == POSTERN_OK) {
		delivery->due_at_ms = postern__mem_now(self) + lease_ms;
		*until_ms_out = delivery->due_at_ms;
	}
}
