/* SPDX-License-Identifier: MIT */

/*
 * The names of channels: one rule for all stores, which keep them. A name is
 * never taken from a channel, so a message that is sent to a former name always
 * has the identity it had before.
 */

#include <stdio.h>

#include "base/fail.h"
#include "store/common.h"

struct naming {
	struct postern_enrol_channel *channel;
	const struct postern__channel_namer *namer;
	void *context;
	int64_t id; /* 0: no name belongs to a channel yet */
	/* The name by which the channel was found. */
	const char *known_by;
};

static int find_one(struct naming *self, const char *name,
		struct postern_error *error) {
	int64_t id = 0;
	int r = self->namer->find(self->context, name, &id, error);
	if (r != POSTERN_OK || id == 0) {
		return r;
	}
	if (self->id != 0 && self->id != id) {
		return postern__fail(error, POSTERN_E_INVALID,
				"channel '%s' cannot continue '%s' (former_names): both "
				"have identities of their own in the store; remove the former "
				"name, or keep both channels",
				self->known_by, name);
	}
	self->id = id;
	self->known_by = self->known_by ? self->known_by : name;
	return POSTERN_OK;
}

static int find_all(struct naming *self, struct postern_error *error) {
	const struct postern_enrol_channel *channel = self->channel;
	int r = find_one(self, channel->name, error);
	for (size_t i = 0; r == POSTERN_OK && i < channel->former_name_count; i++) {
		r = find_one(self, channel->former_names[i], error);
	}
	return r;
}

static int add_missing(struct naming *self, const char *name,
		struct postern_error *error) {
	int64_t id = 0;
	int r = self->namer->find(self->context, name, &id, error);
	return r == POSTERN_OK && id == 0
				   ? self->namer->add(self->context, self->id, name, error)
				   : r;
}

/* The present name of a channel changes if its name is new, or if its present
   one is listed as a former one. */
static int name_channel(struct naming *self, bool is_new,
		struct postern_error *error) {
	const struct postern_enrol_channel *channel = self->channel;
	int r = is_new ? self->namer->rename(self->context, self->id, channel->name,
							 NULL, error)
				   : POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < channel->former_name_count; i++) {
		r = add_missing(self, channel->former_names[i], error);
		if (r == POSTERN_OK) {
			r = self->namer->rename(self->context, self->id, channel->name,
					channel->former_names[i], error);
		}
	}
	return r;
}

int postern__channel_resolve(struct postern_enrol_channel *channel,
		const struct postern__channel_namer *namer, void *context,
		struct postern_error *error) {
	struct naming self = {
		.channel = channel,
		.namer = namer,
		.context = context,
	};
	int r = find_all(&self, error);
	bool created = r == POSTERN_OK && self.id == 0;
	bool is_new = created || self.known_by != channel->name;
	if (created) {
		r = namer->create(context, channel->name, &self.id, error);
	} else if (r == POSTERN_OK && is_new) {
		r = namer->add(context, self.id, channel->name, error);
	}
	if (r == POSTERN_OK) {
		r = name_channel(&self, is_new && !created, error);
	}
	channel->id = self.id;
	return r;
}

void postern__channel_set_first(struct postern_enrol_channel *channel,
		const char *name) {
	(void)snprintf(channel->first_name, sizeof channel->first_name, "%s", name);
}
