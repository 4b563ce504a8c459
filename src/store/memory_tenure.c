/* SPDX-License-Identifier: MIT */

/*
 * Nodes and locks of the memory store, and when they expire.
 *
 * If the clock was set back, an end time may be far in the future and keep an
 * expired node live. So each end time is stored with the time of its renewal,
 * and one that was renewed in the future starts again when it is checked.
 */

#include <postern/sys/clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "store/common.h"
#include "store/memory.h"

void postern__mem_expiry_set(struct memory_expiry *expiry, int64_t now,
		int64_t ttl_ms) {
	expiry->from_ms = now;
	expiry->until_ms = ttl_ms > INT64_MAX - now ? INT64_MAX : now + ttl_ms;
}

static bool expiry_has_passed(struct memory_expiry *expiry, int64_t now) {
	if (expiry->from_ms > now) {
		postern__mem_expiry_set(expiry, now,
				expiry->until_ms - expiry->from_ms);
	}
	return now >= expiry->until_ms;
}

struct memory_node *postern__mem_node(struct memory_store *self,
		uint64_t node) {
	for (size_t i = 0; i < self->node_count; i++) {
		if (self->nodes[i].node == node) {
			return &self->nodes[i];
		}
	}
	return NULL;
}

bool postern__mem_node_is_live(struct memory_store *self, uint64_t node,
		int64_t now) {
	struct memory_node *found = postern__mem_node(self, node);
	return found && !(found->leased && expiry_has_passed(&found->expiry, now));
}

void postern__mem_nodes_expire(struct memory_store *self, uint64_t self_node,
		int64_t now) {
	size_t kept = 0;
	for (size_t i = 0; i < self->node_count; i++) {
		struct memory_node *node = &self->nodes[i];
		if (node->node == self_node ||
				!(node->leased && expiry_has_passed(&node->expiry, now))) {
			self->nodes[kept++] = *node;
		} else {
			free(node->handlers);
		}
	}
	self->node_count = kept;
}

void postern__mem_renew(struct memory_store *self, uint64_t node,
		int64_t ttl_ms, bool *alive_out) {
	int64_t now = postern__mem_now(self);
	struct memory_node *found = postern__mem_node(self, node);
	*alive_out = found;
	if (!found) {
		return;
	}
	found->leased = true;
	postern__mem_expiry_set(&found->expiry, now, ttl_ms);
	if (ttl_ms == 0) {
		postern__mem_nodes_expire(self, 0, now);
	}
}

static struct memory_lock *find_lock(struct memory_store *self,
		const char *name) {
	for (size_t i = 0; i < self->lock_count; i++) {
		if (strcmp(self->locks[i].name, name) == 0) {
			return &self->locks[i];
		}
	}
	return NULL;
}

/* Adds a lock that is free; NULL: out of memory. */
static struct memory_lock *add_lock(struct memory_store *self,
		const char *name) {
	struct memory_lock *locks =
			realloc(self->locks, (self->lock_count + 1) * sizeof *locks);
	char *copy = strdup(name);
	self->locks = locks ? locks : self->locks;
	if (!locks || !copy) {
		free(copy);
		return NULL;
	}
	locks[self->lock_count] = (struct memory_lock){ .name = copy };
	return &locks[self->lock_count++];
}

int postern__mem_lock(struct memory_store *self, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error) {
	int64_t now = postern__mem_now(self);
	struct memory_lock *lock = find_lock(self, name);
	if (!lock && !(lock = add_lock(self, name))) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*held_out = lock->node == node || lock->node == 0 ||
				expiry_has_passed(&lock->expiry, now);
	if (!*held_out) {
		return POSTERN_OK;
	}
	if (lock->node != node) {
		lock->node = node;
		lock->fence++;
	}
	postern__mem_expiry_set(&lock->expiry, now, ttl_ms);
	*fence_out = lock->fence;
	return POSTERN_OK;
}

bool postern__mem_holds_lock(struct memory_store *self, uint64_t node,
		const struct postern_lock *lock) {
	if (!lock) {
		return true;
	}
	const struct memory_lock *found = find_lock(self, lock->name);
	return found && found->node == node && found->fence == lock->fence;
}

void postern__mem_unlock(struct memory_store *self,
		const struct postern_lock *lock, uint64_t node) {
	if (postern__mem_holds_lock(self, node, lock)) {
		find_lock(self, lock->name)->node = 0;
	}
}

/* A node that leases under another lock than this one; NULL: none. */
static const struct memory_node *find_rival(const struct memory_store *self,
		uint64_t node, const char *lock_name) {
	for (size_t i = 0; i < self->node_count; i++) {
		const struct memory_node *other = &self->nodes[i];
		if (other->node != node && other->engaged &&
				strcmp(other->lock_name, lock_name) != 0) {
			return other;
		}
	}
	return NULL;
}

int postern__mem_engage(struct memory_store *self, uint64_t node,
		const char *lock_name, struct postern_error *error) {
	const char *name = lock_name ? lock_name : "";
	postern__mem_nodes_expire(self, node, postern__mem_now(self));
	struct memory_node *found = postern__mem_node(self, node);
	if (!found) {
		return postern__fail(error, POSTERN_E_STALE, "node %016llx has expired",
				(unsigned long long)node);
	}
	const struct memory_node *rival = find_rival(self, node, name);
	if (rival) {
		return postern__rival_fail(rival->node, NULL, 0,
				*rival->lock_name ? rival->lock_name : NULL, error);
	}
	found->engaged = true;
	(void)snprintf(found->lock_name, sizeof found->lock_name, "%s", name);
	return POSTERN_OK;
}

/* The expiry as a check now would see it; the stored one is unchanged. */
static struct memory_expiry expiry_at(struct memory_expiry expiry,
		int64_t now) {
	(void)expiry_has_passed(&expiry, now);
	return expiry;
}

static int node_compare(const void *a, const void *b) {
	uint64_t left = ((const struct postern_node_stats *)a)->node;
	uint64_t right = ((const struct postern_node_stats *)b)->node;
	return (left > right) - (left < right);
}

static int lock_compare(const void *a, const void *b) {
	return strcmp(((const struct postern_lock_stats *)a)->name,
			((const struct postern_lock_stats *)b)->name);
}

/* Counts the deliveries that each node has leased. */
static void count_leases(const struct memory_store *self,
		struct postern_node_stats *nodes, size_t count) {
	for (size_t i = 0; i < self->message_count; i++) {
		if (!self->messages[i]) {
			continue;
		}
		postern__list_each(item, &self->messages[i]->deliveries) {
			const struct memory_delivery *delivery =
					container_of(item, struct memory_delivery, of_message);
			for (size_t n = 0; delivery->node && n < count; n++) {
				nodes[n].leased += nodes[n].node == delivery->node;
			}
		}
	}
}

bool postern__mem_node_stats(struct memory_store *self,
		struct postern_memory *memory, struct postern_stats *out) {
	int64_t now = self->clock->wall_ms(self->clock->context);
	struct postern_node_stats *nodes = postern_memory_alloc(memory,
			self->node_count * sizeof(struct postern_node_stats));
	struct postern_lock_stats *locks = postern_memory_alloc(memory,
			self->lock_count * sizeof(struct postern_lock_stats));
	if (!nodes || !locks) {
		return false;
	}
	for (size_t i = 0; i < self->node_count; i++) {
		const struct memory_node *node = &self->nodes[i];
		struct memory_expiry expiry = expiry_at(node->expiry, now);
		nodes[i] = (struct postern_node_stats){
			.node = node->node,
			.renewed_at_ms = expiry.from_ms,
			.lives_until_ms = node->leased ? expiry.until_ms : 0,
		};
	}
	count_leases(self, nodes, self->node_count);
	qsort(nodes, self->node_count, sizeof *nodes, node_compare);
	size_t count = 0;
	for (size_t i = 0; i < self->lock_count; i++) {
		const struct memory_lock *lock = &self->locks[i];
		struct memory_expiry expiry = expiry_at(lock->expiry, now);
		if (lock->node == 0 || now >= expiry.until_ms) {
			continue;
		}
		locks[count] = (struct postern_lock_stats){
			.name = postern_memory_text(memory, lock->name),
			.node = lock->node,
			.held_until_ms = expiry.until_ms,
		};
		if (!locks[count++].name) {
			return false;
		}
	}
	qsort(locks, count, sizeof *locks, lock_compare);
	out->now_ms = now;
	out->nodes = nodes;
	out->node_count = self->node_count;
	out->locks = locks;
	out->lock_count = count;
	return true;
}

void postern__mem_locks_finish(struct memory_store *self) {
	for (size_t i = 0; i < self->lock_count; i++) {
		free(self->locks[i].name);
	}
	free(self->locks);
}
