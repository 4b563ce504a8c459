/* SPDX-License-Identifier: MIT */

/*
 * The memory store's part of a sweep: recover the leases of expired nodes, find
 * and poison orphaned deliveries.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "core/error_group.h"
#include "store/common.h"
#include "store/memory.h"

struct lost {
	struct memory_delivery *delivery;
	bool in_process;
	struct memory_attempt *attempt; /* only for a crash */
};

/* Deliveries that are not in-process first, then by group, and by message
   within a group. */
static int lost_compare(const void *left, const void *right) {
	const struct lost *a = left;
	const struct lost *b = right;
	const struct memory_delivery *x = a->delivery;
	const struct memory_delivery *y = b->delivery;
	if (a->in_process != b->in_process) {
		return a->in_process ? 1 : -1;
	}
	if (x->group != y->group) {
		return x->group > y->group ? 1 : -1;
	}
	if (x->message->seq != y->message->seq) {
		return x->message->seq > y->message->seq ? 1 : -1;
	}
	return x->handler > y->handler ? 1 : -1;
}

static bool has_crashed(const struct lost *lost) {
	return lost->in_process && lost->delivery->solo;
}

static void memory_crash_record(struct memory_store *self, struct lost *lost,
		int64_t now, struct postern_recovered *out) {
	struct memory_delivery *delivery = lost->delivery;
	struct memory_handler *handler =
			postern__mem_owner(self, delivery->handler);
	delivery->crashes++;
	postern__mem_attempt_take(self, delivery, lost->attempt,
			delivery->leased_at_ms, now);
	lost->attempt = NULL; /* the delivery owns it now */
	postern__mem_error_group_set(self, delivery,
			postern__error_group(POSTERN__CRASH_ERROR), POSTERN__CRASH_ERROR,
			now);
	if (delivery->crashes >= handler->max_crashes) {
		postern__mem_make_ended(self, delivery, POSTERN_STATE_POISONED, now);
		out->poisoned++;
	} else {
		postern__mem_make_pending(self, delivery, now, now, ++self->last_group);
		out->suspects++;
	}
}

/* The lost members of one group become two groups: the first half, which is
   larger if the count is odd, will be run first. */
static void memory_group_split(struct memory_store *self, struct lost *lost,
		size_t count, int64_t now, struct postern_recovered *out) {
	for (size_t i = 0; i < count; i++) {
		if (i == 0 || i == (count + 1) / 2) {
			self->last_group++;
		}
		postern__mem_make_pending(self, lost[i].delivery, now, now,
				self->last_group);
		out->suspects++;
	}
}

/* Recovers one delivery, or all lost members of one group; returns how many. */
static size_t memory_lost_recover(struct memory_store *self, struct lost *lost,
		size_t count, int64_t now, struct postern_recovered *out) {
	if (has_crashed(lost)) {
		memory_crash_record(self, lost, now, out);
		return 1;
	}
	if (!lost->in_process) {
		postern__mem_make_pending(self, lost->delivery, now, now, 0);
		out->released++;
		return 1;
	}
	size_t members = 1;
	while (members < count && !has_crashed(&lost[members]) &&
			lost[members].delivery->group == lost->delivery->group) {
		members++;
	}
	memory_group_split(self, lost, members, now, out);
	return members;
}

/* Whether the lease is lost: its node is expired or, under a lock, is any node
   other than the lock's owner. */
static bool lease_is_lost(struct memory_store *self,
		const struct postern_recovery *recovery,
		const struct memory_delivery *delivery, int64_t now) {
	return delivery->node != recovery->node &&
		   (delivery->node == POSTERN_NODE_PULL
						   ? delivery->due_at_ms <=
									 now - POSTERN__PULL_ABANDONED_MS
						   : recovery->lock || !postern__mem_node_is_live(self,
													   delivery->node, now));
}

int postern__mem_recover(struct memory_store *self,
		const struct postern_recovery *recovery, struct postern_recovered *out,
		struct postern_error *error) {
	if (!postern__mem_holds_lock(self, recovery->node, recovery->lock)) {
		return postern__fail(error, POSTERN_E_STALE,
				"lock '%s' is no longer held by this node",
				recovery->lock->name);
	}
	int r = POSTERN_OK;
	size_t max = recovery->max;
	int64_t now = postern__mem_now(self);
	size_t count = 0;
	size_t room = 1;
	postern__list_each(item, &self->leased) {
		room++;
	}
	struct lost *lost = calloc(room, sizeof *lost);
	if (!lost) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	postern__list_each(item, &self->leased) {
		struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, set);
		if (lease_is_lost(self, recovery, delivery, now)) {
			lost[count].delivery = delivery;
			lost[count].in_process =
					postern__mem_owner(self, delivery->handler)->in_process;
			count++;
		}
	}
	qsort(lost, count, sizeof *lost, lost_compare);
	struct postern_recovered recovered = { .more = count > max };
	count = count > max ? max : count;
	for (size_t i = 0; i < count; i++) {
		if (has_crashed(&lost[i]) &&
				!(lost[i].attempt = postern__mem_attempt_create("crash",
						  POSTERN__CRASH_ERROR))) {
			r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
			goto out;
		}
	}
	if (!postern__mem_samples_reserve(self, count)) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	for (size_t i = 0; i < count;) {
		i += memory_lost_recover(self, &lost[i], count - i, now, &recovered);
	}
	postern__mem_nodes_expire(self, recovery->node, now);
	*out = recovered;
out:
	for (size_t i = 0; i < count; i++) {
		free(lost[i].attempt);
	}
	free(lost);
	return r;
}

/* Whether a live node has the handler configured; the asking node counts as
   live even if it is late. */
static bool handler_is_registered(struct memory_store *self, uint64_t asking,
		int64_t handler) {
	int64_t now = postern__mem_now(self);
	for (size_t i = 0; i < self->node_count; i++) {
		const struct memory_node *node = &self->nodes[i];
		if (node->node != asking &&
				!postern__mem_node_is_live(self, node->node, now)) {
			continue;
		}
		for (size_t j = 0; j < node->handler_count; j++) {
			if (postern__mem_owner(self, node->handlers[j]) ==
					postern__mem_owner(self, handler)) {
				return true;
			}
		}
	}
	return false;
}

static uint64_t orphan_count(struct memory_store *self, uint64_t asking,
		int64_t owner) {
	int64_t now = postern__mem_now(self);
	uint64_t count = 0;
	for (size_t i = 0; i < self->handler_count; i++) {
		if (self->handlers[i].owner == owner) {
			count += self->handlers[i].pending.count;
		}
	}
	postern__list_each(item, &self->leased) {
		struct memory_delivery *delivery =
				container_of(item, struct memory_delivery, set);
		count +=
				postern__mem_handler(self, delivery->handler)->owner == owner &&
				delivery->node != asking &&
				delivery->node != POSTERN_NODE_PULL &&
				!postern__mem_node_is_live(self, delivery->node, now);
	}
	return count;
}

static bool handler_is_selected(struct memory_store *self,
		const struct memory_handler *handler, const char *only) {
	return !only ||
		   strcmp(postern__mem_handler(self, handler->owner)->key, only) == 0;
}

/* A pending orphaned delivery; NULL: none. */
static struct memory_delivery *orphan_first(struct memory_store *self,
		uint64_t asking, const char *only) {
	for (size_t i = 0; i < self->handler_count; i++) {
		if (self->handlers[i].pending.count > 0 &&
				handler_is_selected(self, &self->handlers[i], only) &&
				!handler_is_registered(self, asking, (int64_t)i + 1)) {
			return self->handlers[i].pending.items[0];
		}
	}
	return NULL;
}

static int orphans_poison(struct memory_store *self, uint64_t asking,
		const char *only, uint64_t count, struct postern_error *error) {
	int r = POSTERN_OK;
	int64_t now = postern__mem_now(self);
	struct postern__list attempts;
	postern__list_init(&attempts);
	for (uint64_t i = 0; i < count; i++) {
		struct memory_attempt *attempt =
				postern__mem_attempt_create("poison", POSTERN__ORPHAN_ERROR);
		if (!attempt) {
			r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
			goto out;
		}
		postern__list_push_back(&attempts, &attempt->link);
	}
	if (!postern__mem_samples_reserve(self, (size_t)count)) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	const uint64_t group = postern__error_group(POSTERN__ORPHAN_ERROR);
	struct memory_delivery *delivery;
	while (!postern__list_empty(&attempts) &&
			(delivery = orphan_first(self, asking, only))) {
		postern__mem_attempt_take(self, delivery,
				container_of(postern__list_pop_front(&attempts),
						struct memory_attempt, link),
				now, now);
		postern__mem_error_group_set(self, delivery, group,
				POSTERN__ORPHAN_ERROR, now);
		postern__mem_make_ended(self, delivery, POSTERN_STATE_POISONED, now);
	}
out:
	postern__list_each(item, &attempts) {
		free(container_of(item, struct memory_attempt, link));
	}
	return r;
}

int postern__mem_orphans(struct memory_store *self, uint64_t node,
		const char *only, bool poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error) {
	size_t count = 0;
	uint64_t found = 0;
	bool is_enrolled = postern__mem_node(self, node);
	struct postern_orphan *orphans = postern_memory_alloc(memory,
			self->handler_count * sizeof(struct postern_orphan));
	for (size_t i = 0; orphans && is_enrolled && i < self->handler_count; i++) {
		int64_t id = (int64_t)i + 1;
		if (self->handlers[i].owner != id ||
				handler_is_registered(self, node, id) ||
				!handler_is_selected(self, &self->handlers[i], only)) {
			continue;
		}
		orphans[count].count = orphan_count(self, node, id);
		if (orphans[count].count == 0) {
			continue;
		}
		orphans[count].key = postern_memory_text(memory, self->handlers[i].key);
		if (!orphans[count].key) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
		found += orphans[count].count;
		count++;
	}
	if (!orphans) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (poison) {
		int r = orphans_poison(self, node, only, found < max ? found : max,
				error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	*orphans_out = orphans;
	*count_out = count;
	return POSTERN_OK;
}
