/* SPDX-License-Identifier: MIT */

/*
 * The handlers "publish: {channel: NAME}" of a configuration, which join its
 * channels: a message must not come back to a channel that it has left. Which
 * kind such a handler has depends on the store of that channel, which is known
 * when all channels have been read.
 */

#include <string.h>

#include "server/config_section.h"
#include "server/publish_channel.h"

/* The channel that a handler publishes to; NULL: it publishes to none. */
static const char *target_of(const struct postern__config_handler *handler) {
	if (!handler->kind || !handler->settings) {
		return NULL;
	}
	if (strcmp(handler->kind->name, postern__publish_channel_kind.name) == 0) {
		const struct postern__publish_channel *settings = handler->settings;
		return settings->channel;
	}
	if (strcmp(handler->kind->name, postern__publish_elsewhere_kind.name) ==
			0) {
		const struct postern__publish_elsewhere *settings = handler->settings;
		return settings->channel;
	}
	return NULL;
}

static size_t index_of(const struct postern__config *config,
		const struct postern__config_channel *channel) {
	return (size_t)(channel - config->channels);
}

/* Marks all channels that messages of `from` reach. */
static void mark_reached(const struct postern__config *config,
		const struct postern__config_channel *from, bool *reached) {
	bool more = true;
	reached[index_of(config, from)] = true;
	while (more) {
		more = false;
		for (size_t i = 0; i < config->channel_count; i++) {
			const struct postern__config_channel *channel =
					&config->channels[i];
			for (size_t j = 0; reached[i] && j < channel->handler_count; j++) {
				const char *name = target_of(&channel->handlers[j]);
				const struct postern__config_channel *to =
						name ? postern__config_channel_named(config, name)
							 : NULL;
				if (to && !reached[index_of(config, to)]) {
					reached[index_of(config, to)] = true;
					more = true;
				}
			}
		}
	}
}

static bool comes_back(struct postern__config *config,
		const struct postern__config_channel *from,
		const struct postern__config_channel *to) {
	bool *reached = postern__arena_array(&config->arena, config->channel_count,
			sizeof *reached);
	if (!reached) {
		config->mistakes.no_memory = true;
		return false;
	}
	memset(reached, 0, config->channel_count * sizeof *reached);
	mark_reached(config, to, reached);
	return reached[index_of(config, from)];
}

static const char *fault_of(struct postern__config *config,
		const struct postern__config_channel *from,
		const struct postern__config_channel *to) {
	if (!to) {
		return "which is not in the configuration";
	}
	if (to == from) {
		return "its own channel: each message would be published again";
	}
	if (to->values.mode != POSTERN_MODE_INBOX) {
		return "which has no inbox";
	}
	return comes_back(config, from, to)
				   ? "from which its messages come back: remove one of the "
					 "publish handlers of this cycle"
				   : NULL;
}

void postern__config_set_opened(struct postern__config *config,
		const struct postern__stores *stores) {
	config->opened = stores;
}

/* The handler publishes to a channel of another store. */
static void publish_elsewhere(struct postern__config *config,
		struct postern__config_handler *handler,
		const struct postern__config_channel *to) {
	struct postern__publish_elsewhere *settings =
			postern__arena_alloc(&config->arena, sizeof *settings);
	if (!settings) {
		config->mistakes.no_memory = true;
		return;
	}
	*settings = (struct postern__publish_elsewhere){
		.channel = to->name,
		.store = to->store->name,
		.stores = &config->opened,
	};
	handler->settings = settings;
	postern__config_kind_change(config, handler,
			&postern__publish_elsewhere_kind);
}

static void check_target(struct postern__config *config,
		const struct postern__config_channel *channel,
		struct postern__config_handler *handler) {
	const char *name = target_of(handler);
	const struct postern__config_channel *to =
			name ? postern__config_channel_named(config, name) : NULL;
	const char *fault = name ? fault_of(config, channel, to) : NULL;
	const struct postern__yaml_place place = {
		.line = handler->line,
		.column = handler->column,
	};
	if (fault) {
		postern__mistakes_add(&config->mistakes, &place,
				"handler '%.60s' of channel '%.60s' publishes to the "
				"channel '%.60s', %s",
				handler->key, channel->name, name, fault);
	} else if (to && to->store != channel->store) {
		publish_elsewhere(config, handler, to);
	}
}

void postern__config_publish_check(struct postern__config *config) {
	for (size_t i = 0; i < config->channel_count; i++) {
		const struct postern__config_channel *channel = &config->channels[i];
		for (size_t j = 0; j < channel->handler_count; j++) {
			check_target(config, channel, &channel->handlers[j]);
		}
	}
}
