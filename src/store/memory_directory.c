/* SPDX-License-Identifier: MIT */

/*
 * The channels, handlers, keys and nodes of a memory store.
 *
 * A key names one stored handler permanently. A stored handler owns itself
 * until its key is enrolled as a legacy key of another handler; then that
 * handler owns it, and it is an alias. An owner is never an alias.
 *
 * An enrolment appends names, handlers and channels, and changes owners. If it
 * fails, the appended items are removed and the owners restored.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/common.h"
#include "store/memory.h"

struct memory_handler *postern__mem_handler(struct memory_store *self,
		int64_t id) {
	assert(id >= 1 && (uint64_t)id <= self->handler_count);
	return &self->handlers[id - 1];
}

struct memory_handler *postern__mem_owner(struct memory_store *self,
		int64_t id) {
	return postern__mem_handler(self, postern__mem_handler(self, id)->owner);
}

static const struct memory_name *name_find(const struct memory_store *self,
		const char *key) {
	for (size_t i = 0; i < self->name_count; i++) {
		if (strcmp(self->names[i].key, key) == 0) {
			return &self->names[i];
		}
	}
	return NULL;
}

int64_t postern__mem_resolve(const struct memory_store *self, const char *key) {
	const struct memory_name *name = name_find(self, key);
	return name ? self->handlers[name->handler - 1].owner : 0;
}

static void node_destroy(struct memory_node *node) {
	free(node->handlers);
}

void postern__mem_directory_finish(struct memory_store *self) {
	postern__mem_channels_finish(self);
	for (size_t i = 0; i < self->handler_count; i++) {
		free(self->handlers[i].pending.items);
		postern__mem_halt_finish(&self->handlers[i].pause);
	}
	for (size_t i = 0; i < self->name_count; i++) {
		free(self->names[i].key);
	}
	for (size_t i = 0; i < self->node_count; i++) {
		node_destroy(&self->nodes[i]);
	}
	free(self->handlers);
	free(self->names);
	free(self->nodes);
}

/* Returns the array with room for `more` items; NULL: out of memory, and the
   old array stays valid. */
static void *array_grow(void *items, size_t count, size_t more, size_t size) {
	return realloc(items, (count + more + 1) * size);
}

/* Reserves room for everything that the enrolment may add to the arrays. */
static bool enrolment_reserve(struct memory_store *self,
		const struct postern_enrolment *enrolment) {
	size_t name_count = enrolment->handler_count;
	for (size_t i = 0; i < enrolment->handler_count; i++) {
		name_count += enrolment->handlers[i].legacy_key_count;
	}
	void *channels = array_grow(self->channels, self->channel_count,
			enrolment->channel_count, sizeof *self->channels);
	self->channels = channels ? channels : self->channels;
	void *handlers = array_grow(self->handlers, self->handler_count,
			enrolment->handler_count, sizeof *self->handlers);
	self->handlers = handlers ? handlers : self->handlers;
	void *names = array_grow(self->names, self->name_count, name_count,
			sizeof *self->names);
	self->names = names ? names : self->names;
	void *nodes =
			array_grow(self->nodes, self->node_count, 1, sizeof *self->nodes);
	self->nodes = nodes ? nodes : self->nodes;
	return channels && handlers && names && nodes;
}

/* The directory before an enrolment, to restore it if that fails. */
struct directory_saved {
	struct memory_channels_saved channels;
	size_t handler_count;
	size_t name_count;
	struct memory_handler *handlers; /* for their owners and pauses */
};

static bool directory_save(struct directory_saved *saved,
		struct memory_store *self, const struct postern_enrolment *enrolment) {
	saved->handler_count = self->handler_count;
	saved->name_count = self->name_count;
	saved->handlers =
			malloc((self->handler_count + 1) * sizeof *saved->handlers);
	for (size_t i = 0; saved->handlers && i < self->handler_count; i++) {
		saved->handlers[i] = self->handlers[i];
	}
	return postern__mem_channels_save(&saved->channels, self, enrolment) &&
		   saved->handlers;
}

/* Links the ids of each owner in a list. */
static void chain_ids(struct memory_store *self) {
	for (size_t i = 0; i < self->handler_count; i++) {
		self->handlers[i].next_id = 0;
	}
	for (size_t i = self->handler_count; i-- > 0;) {
		int64_t id = (int64_t)i + 1;
		struct memory_handler *owner = postern__mem_owner(self, id);
		if (self->handlers[i].owner != id) {
			self->handlers[i].next_id = owner->next_id;
			owner->next_id = id;
		}
	}
}

static void directory_restore(const struct directory_saved *saved,
		struct memory_store *self) {
	postern__mem_channels_restore(&saved->channels, self);
	while (self->name_count > saved->name_count) {
		free(self->names[--self->name_count].key);
	}
	self->handler_count = saved->handler_count;
	for (size_t i = 0; i < self->handler_count; i++) {
		self->handlers[i].owner = saved->handlers[i].owner;
		self->handlers[i].pause = saved->handlers[i].pause;
	}
	chain_ids(self);
}

static bool name_add(struct memory_store *self, const char *key,
		int64_t handler) {
	char *copy = strdup(key);
	if (!copy) {
		return false;
	}
	self->names[self->name_count] = (struct memory_name){
		.key = copy,
		.handler = handler,
	};
	self->name_count++;
	return true;
}

static int64_t handler_add(struct memory_store *self) {
	self->handlers[self->handler_count] = (struct memory_handler){ 0 };
	self->handler_count++;
	int64_t id = (int64_t)self->handler_count;
	postern__mem_handler(self, id)->owner = id;
	return id;
}

/* Makes `to` the owner of all ids that `from` owns. A pause of either one is a
   pause of both. */
static void owner_replace(struct memory_store *self, int64_t from, int64_t to) {
	struct postern_halt *former = &postern__mem_handler(self, from)->pause;
	struct postern_halt *pause = &postern__mem_handler(self, to)->pause;
	if (postern__halt_outlasts(former, pause)) {
		/* Exchanged, so that each has its own texts, also if the enrolment is
		   undone. */
		struct postern_halt other = *pause;
		*pause = *former;
		*former = other;
	}
	for (size_t i = 0; i < self->handler_count; i++) {
		if (self->handlers[i].owner == from) {
			self->handlers[i].owner = to;
		}
	}
}

static bool handler_enrol(struct memory_store *self,
		const struct postern_enrol_handler *handler) {
	int64_t id = postern__mem_resolve(self, handler->key);
	if (!id) {
		for (size_t i = 0; i < handler->legacy_key_count && !id; i++) {
			id = postern__mem_resolve(self, handler->legacy_keys[i]);
		}
		id = id ? id : handler_add(self);
		if (!name_add(self, handler->key, id)) {
			return false;
		}
	}
	for (size_t i = 0; i < handler->legacy_key_count; i++) {
		const char *key = handler->legacy_keys[i];
		int64_t known = postern__mem_resolve(self, key);
		if (known) {
			owner_replace(self, known, id);
		} else if (!name_add(self, key, id)) {
			return false;
		}
	}
	return true;
}

/* Returns the handler ids to the caller, now that all owners are final. */
static int resolve_all(struct memory_store *self,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	for (size_t i = 0; i < enrolment->handler_count; i++) {
		struct postern_enrol_handler *handler = &enrolment->handlers[i];
		handler->id = postern__mem_resolve(self, handler->key);
	}
	return postern__enrolment_check(enrolment, error);
}

/* Records the node and its handlers as the last step; cannot fail. Takes the
   array of ids. */
static void node_take_ids(struct memory_store *self,
		const struct postern_enrolment *enrolment, int64_t *ids) {
	for (size_t i = 0; i < enrolment->handler_count; i++) {
		const struct postern_enrol_handler *from = &enrolment->handlers[i];
		struct memory_handler *handler = postern__mem_handler(self, from->id);
		handler->key = name_find(self, from->key)->key;
		handler->in_process = from->in_process;
		handler->max_crashes = from->max_crashes;
		handler->dedupe_ms = from->dedupe_ms;
		ids[i] = from->id;
	}
	struct memory_node *node = self->nodes;
	while (node < self->nodes + self->node_count &&
			node->node != enrolment->node) {
		node++;
	}
	if (node == self->nodes + self->node_count) {
		self->node_count++;
		*node = (struct memory_node){ .node = enrolment->node };
	}
	node->leased = enrolment->node_lease_ms > 0;
	postern__mem_expiry_set(&node->expiry, postern__mem_now(self),
			enrolment->node_lease_ms);
	free(node->handlers);
	node->handlers = ids;
	node->handler_count = enrolment->handler_count;
}

static bool has_node(const struct memory_store *self, uint64_t node) {
	for (size_t i = 0; i < self->node_count; i++) {
		if (self->nodes[i].node == node) {
			return true;
		}
	}
	return false;
}

int postern__mem_enrol(struct memory_store *self,
		struct postern_enrolment *enrolment, struct postern_error *error) {
	if (enrolment->again && !has_node(self, enrolment->node)) {
		/* An expired node is never enrolled again. */
		return postern__fail(error, POSTERN_E_STALE, "node %016llx has expired",
				(unsigned long long)enrolment->node);
	}
	int r = POSTERN_OK;
	struct directory_saved saved = { 0 };
	int64_t *ids = malloc((enrolment->handler_count + 1) * sizeof(int64_t));
	bool ok = ids && enrolment_reserve(self, enrolment) &&
			  directory_save(&saved, self, enrolment);

	for (size_t i = 0; ok && r == POSTERN_OK && i < enrolment->channel_count;
			i++) {
		r = postern__mem_channel_enrol(self, &enrolment->channels[i], error);
	}
	for (size_t i = 0; ok && r == POSTERN_OK && i < enrolment->handler_count;
			i++) {
		ok = handler_enrol(self, &enrolment->handlers[i]);
	}
	chain_ids(self);
	if (!ok) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	} else if (r == POSTERN_OK) {
		r = resolve_all(self, enrolment, error);
	}
	if (r == POSTERN_OK) {
		node_take_ids(self, enrolment, ids);
		ids = NULL; /* the node owns them now */
	} else if (saved.handlers && saved.channels.channels) {
		directory_restore(&saved, self);
	}
	free(saved.channels.channels);
	free(saved.handlers);
	free(ids);
	return r;
}

void postern__mem_halt_finish(struct postern_halt *halt) {
	free((char *)(uintptr_t)halt->reason);
	free((char *)(uintptr_t)halt->by);
	*halt = (struct postern_halt){ 0 };
}

bool postern__mem_is_paused(struct memory_store *self, int64_t id) {
	return postern__halt_holds(&postern__mem_owner(self, id)->pause,
			postern__mem_now(self));
}

int postern__mem_read_pauses(struct memory_store *self, const int64_t *handlers,
		size_t count, struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	int64_t now = postern__mem_now(self);
	for (size_t i = 0; i < count; i++) {
		if (!postern__halt_read(&postern__mem_owner(self, handlers[i])->pause,
					now, memory, &out[i])) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
	}
	return POSTERN_OK;
}

int postern__mem_read_closed(struct memory_store *self, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error) {
	const struct memory_channel *stored = &self->channels[channel - 1];
	return postern__halt_read(&stored->closed, postern__mem_now(self), memory,
				   out)
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}
