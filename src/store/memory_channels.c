/* SPDX-License-Identifier: MIT */

/*
 * The channels of a memory store and their names. The names of a channel point
 * into the list of all names, which only grows; an enrolment that fails
 * restores both arrays.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/common.h"
#include "store/memory.h"

int64_t postern__mem_channel_id(const struct memory_store *self,
		const char *name) {
	for (size_t i = 0; i < self->channel_name_count; i++) {
		if (strcmp(self->channel_names[i].name, name) == 0) {
			return self->channel_names[i].channel;
		}
	}
	return 0;
}

bool postern__mem_has_source(const struct memory_store *self,
		const struct memory_message *message, const char *source) {
	const struct memory_channel *channel =
			&self->channels[message->channel - 1];
	return strcmp(message->data.source, source) == 0 ||
		   (strcmp(message->data.source, channel->first_name) == 0 &&
				   postern__mem_channel_id(self, source) == message->channel);
}

static int channel_find(void *context, const char *name, int64_t *id_out,
		struct postern_error *error) {
	(void)error;
	*id_out = postern__mem_channel_id(context, name);
	return POSTERN_OK;
}

static int channel_add_name(void *context, int64_t id, const char *name,
		struct postern_error *error) {
	struct memory_store *self = context;
	char *copy = strdup(name);
	if (!copy) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->channel_names[self->channel_name_count++] =
			(struct memory_channel_name){
				.name = copy,
				.channel = id,
			};
	return POSTERN_OK;
}

static int channel_create(void *context, const char *name, int64_t *id_out,
		struct postern_error *error) {
	struct memory_store *self = context;
	int64_t id = (int64_t)self->channel_count + 1;
	int r = channel_add_name(self, id, name, error);
	if (r == POSTERN_OK) {
		const char *copy =
				self->channel_names[self->channel_name_count - 1].name;
		self->channels[self->channel_count++] = (struct memory_channel){
			.name = copy,
			.first_name = copy,
		};
		*id_out = id;
	}
	return r;
}

static int channel_rename(void *context, int64_t id, const char *name,
		const char *from, struct postern_error *error) {
	struct memory_store *self = context;
	struct memory_channel *channel = &self->channels[id - 1];
	(void)error;
	if (from && strcmp(channel->name, from) != 0) {
		return POSTERN_OK;
	}
	for (size_t i = 0; i < self->channel_name_count; i++) {
		if (strcmp(self->channel_names[i].name, name) == 0) {
			channel->name = self->channel_names[i].name;
		}
	}
	return POSTERN_OK;
}

static const struct postern__channel_namer namer = {
	.find = channel_find,
	.create = channel_create,
	.add = channel_add_name,
	.rename = channel_rename,
};

bool postern__mem_channels_save(struct memory_channels_saved *saved,
		struct memory_store *self, const struct postern_enrolment *enrolment) {
	size_t names = self->channel_name_count;
	for (size_t i = 0; i < enrolment->channel_count; i++) {
		names += 1 + enrolment->channels[i].former_name_count;
	}
	void *grown = realloc(self->channel_names,
			(names + 1) * sizeof *self->channel_names);
	self->channel_names = grown ? grown : self->channel_names;
	saved->name_count = self->channel_name_count;
	saved->count = self->channel_count;
	saved->channels = malloc((saved->count + 1) * sizeof *saved->channels);
	for (size_t i = 0; saved->channels && i < saved->count; i++) {
		saved->channels[i] = self->channels[i];
	}
	return grown && saved->channels;
}

void postern__mem_channels_restore(const struct memory_channels_saved *saved,
		struct memory_store *self) {
	while (self->channel_name_count > saved->name_count) {
		free(self->channel_names[--self->channel_name_count].name);
	}
	self->channel_count = saved->count;
	for (size_t i = 0; i < saved->count; i++) {
		self->channels[i] = saved->channels[i];
	}
}

int postern__mem_channel_enrol(struct memory_store *self,
		struct postern_enrol_channel *channel, struct postern_error *error) {
	int r = postern__channel_resolve(channel, &namer, self, error);
	if (r == POSTERN_OK) {
		struct memory_channel *stored = &self->channels[channel->id - 1];
		stored->retention = channel->retention;
		stored->retention.channel = channel->id;
		postern__channel_set_first(channel, stored->first_name);
	}
	return r;
}

int postern__mem_read_retention(struct memory_store *self,
		struct postern_memory *memory, struct postern_retention **out,
		size_t *count_out, struct postern_error *error) {
	struct postern_retention *rules = postern_memory_alloc(memory,
			(self->channel_count + 1) * sizeof *rules);
	size_t count = 0;
	if (!rules) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (size_t i = 0; i < self->channel_count; i++) {
		if (self->channels[i].retention.payload_ms > 0) {
			rules[count++] = self->channels[i].retention;
		}
	}
	*out = rules;
	*count_out = count;
	return POSTERN_OK;
}

void postern__mem_channels_finish(struct memory_store *self) {
	for (size_t i = 0; i < self->channel_name_count; i++) {
		free(self->channel_names[i].name);
	}
	for (size_t i = 0; i < self->channel_count; i++) {
		postern__mem_halt_finish(&self->channels[i].closed);
	}
	free(self->channel_names);
	free(self->channels);
}
