/* SPDX-License-Identifier: MIT */

/*
 * Groups of errors in a memory store: an array of examples, which is searched
 * from its beginning. Only errors pay for that, and the array is bounded.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/list.h"
#include "store/common.h"
#include "store/memory.h"

bool postern__mem_samples_reserve(struct memory_store *self, size_t count) {
	/* Besides the groups, each handler has group 0. */
	size_t most = POSTERN_GROUP_COUNT_MAX + self->handler_count;
	size_t need = self->sample_count + count;
	need = need < most ? need : most;
	if (need <= self->sample_cap) {
		return true;
	}
	size_t cap = need > 2 * self->sample_cap ? need : 2 * self->sample_cap;
	void *samples = realloc(self->samples, cap * sizeof *self->samples);
	if (!samples) {
		return false;
	}
	self->samples = samples;
	self->sample_cap = cap;
	return true;
}

static struct memory_sample *sample_find(const struct memory_store *self,
		uint64_t group, int64_t handler) {
	for (size_t i = 0; i < self->sample_count; i++) {
		if (self->samples[i].group == group &&
				self->samples[i].handler == handler) {
			return &self->samples[i];
		}
	}
	return NULL;
}

/* Marks the examples that the delivery uses. While any error has a group, group
   0 may be in use. */
static void mark_used(struct memory_store *self,
		const struct memory_delivery *delivery) {
	for (size_t i = 0; delivery->error_group && i < self->sample_count; i++) {
		struct memory_sample *sample = &self->samples[i];
		sample->used |=
				!sample->group || sample->group == delivery->error_group;
	}
}

void postern__mem_samples_purge(struct memory_store *self, int64_t now) {
	for (size_t i = 0; i < self->sample_count; i++) {
		self->samples[i].used = false;
	}
	for (size_t i = 0; i < self->message_count; i++) {
		if (!self->messages[i]) {
			continue;
		}
		postern__list_each(item, &self->messages[i]->deliveries) {
			mark_used(self,
					container_of(item, struct memory_delivery, of_message));
		}
	}
	size_t kept = 0;
	for (size_t i = 0; i < self->sample_count; i++) {
		if (self->samples[i].used) {
			self->samples[kept++] = self->samples[i];
		}
	}
	self->sample_count = kept;
	self->samples_purged_at_ms = now;
}

static size_t count_groups(const struct memory_store *self) {
	size_t count = 0;
	for (size_t i = 0; i < self->sample_count; i++) {
		count += self->samples[i].group != 0;
	}
	return count;
}

static bool has_room(struct memory_store *self, int64_t now) {
	int64_t at = self->samples_purged_at_ms;
	if (count_groups(self) < POSTERN_GROUP_COUNT_MAX) {
		return true;
	}
	if (at > 0 && at <= now && now - at < POSTERN__SAMPLE_PURGE_MS) {
		return false;
	}
	postern__mem_samples_purge(self, now);
	return count_groups(self) < POSTERN_GROUP_COUNT_MAX;
}

void postern__mem_error_group_set(struct memory_store *self,
		struct memory_delivery *delivery, uint64_t group, const char *text,
		int64_t now) {
	int64_t handler = delivery->handler;
	if (group == 0) {
		return;
	}
	delivery->error_group = group;
	struct memory_sample *sample = sample_find(self, group, handler);
	if (!sample && !has_room(self, now)) {
		group = 0;
		sample = sample_find(self, group, handler);
	}
	if (sample) {
		bool later = now - sample->last_at_ms >= POSTERN__SAMPLE_STEP_MS;
		sample->last_at_ms = later ? now : sample->last_at_ms;
		return;
	}
	sample = &self->samples[self->sample_count++];
	*sample = (struct memory_sample){
		.group = group,
		.handler = handler,
		.first_at_ms = now,
		.last_at_ms = now,
	};
	(void)snprintf(sample->text, sizeof sample->text, "%s", text);
}

static bool count_one(struct memory_store *self,
		const struct memory_delivery *delivery, struct postern__tally *tally) {
	const struct memory_sample *sample =
			sample_find(self, delivery->error_group, delivery->handler);
	if (!sample) {
		sample = sample_find(self, 0, delivery->handler);
	}
	const struct postern_group group = {
		.group = sample ? sample->group : 0,
		.handler = postern__mem_owner(self, delivery->handler)->key,
		.count = 1,
		.first_at_ms = sample ? sample->first_at_ms : 0,
		.last_at_ms = sample ? sample->last_at_ms : 0,
		.example = sample ? sample->text : "",
	};
	return postern__tally_add(tally, &group);
}

int postern__mem_groups(struct memory_store *self,
		const struct postern_filter *filter, struct postern_memory *memory,
		struct postern_group **out, size_t *count_out,
		struct postern_error *error) {
	struct postern__tally tally = { .memory = memory };
	struct memory_cursor cursor;
	const struct memory_delivery *delivery;
	postern__mem_cursor_init(&cursor, self, filter, 0, 0);
	while ((delivery = postern__mem_cursor_next(&cursor))) {
		if (delivery->error_group && !count_one(self, delivery, &tally)) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
	}
	postern__tally_sort(&tally);
	*out = tally.groups;
	*count_out = tally.count;
	return POSTERN_OK;
}
