/* SPDX-License-Identifier: MIT */

/*
 * What was published and is not confirmed yet, by tag. Tags are 1, 2, 3 … as
 * messages are published on a channel; confirms name one of them or all up to
 * one, in any order. A ring of entries: those before `first` are confirmed, and
 * those from `next` on are not published.
 */

#include <assert.h>
#include <string.h>

#include "rabbitmq/confirms.h"

void postern__rabbitmq_confirms_reset(struct postern__rabbitmq_confirms *self) {
	memset(self->entries, 0, sizeof self->entries);
	self->first = 1;
	self->next = 1;
}

bool postern__rabbitmq_confirms_full(
		const struct postern__rabbitmq_confirms *self) {
	return self->next - self->first == RABBITMQ_UNCONFIRMED_MAX;
}

static struct postern__rabbitmq_unconfirmed *
entry_at(struct postern__rabbitmq_confirms *self, uint64_t tag) {
	return &self->entries[tag % RABBITMQ_UNCONFIRMED_MAX];
}

uint64_t postern__rabbitmq_confirms_add(struct postern__rabbitmq_confirms *self,
		void *item) {
	assert(!postern__rabbitmq_confirms_full(self));
	*entry_at(self, self->next) = (struct postern__rabbitmq_unconfirmed){
		.open = true,
		.item = item,
	};
	return self->next++;
}

struct postern__rabbitmq_unconfirmed *
postern__rabbitmq_confirms_at(struct postern__rabbitmq_confirms *self,
		uint64_t tag) {
	bool known = tag >= self->first && tag < self->next;
	return known && entry_at(self, tag)->open ? entry_at(self, tag) : NULL;
}

static void close_entry(struct postern__rabbitmq_confirms *self, uint64_t tag,
		postern__rabbitmq_confirmed *call, void *context) {
	struct postern__rabbitmq_unconfirmed *entry = entry_at(self, tag);
	if (entry->open) {
		entry->open = false;
		if (entry->item) {
			call(context, entry->item);
		}
		entry->item = NULL;
	}
}

bool postern__rabbitmq_confirms_take(struct postern__rabbitmq_confirms *self,
		uint64_t tag, bool multiple, postern__rabbitmq_confirmed *call,
		void *context) {
	uint64_t last = tag == 0 && multiple ? self->next - 1 : tag;
	if (last >= self->next || (last == 0 && !multiple)) {
		return false;
	}
	for (uint64_t i = multiple ? self->first : last; i <= last; i++) {
		if (i >= self->first) {
			close_entry(self, i, call, context);
		}
	}
	while (self->first < self->next && !entry_at(self, self->first)->open) {
		self->first++;
	}
	return true;
}
