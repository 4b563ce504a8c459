/* SPDX-License-Identifier: MIT */
/*
 * The modes of channels: what a channel guards, and whether that fits its
 * store, its handlers and the channels that it names. A box would refuse the
 * same; here the line is known.
 */

#include "server/config_section.h"

#include <string.h>

#include "base/pattern.h"
#include "core/box.h"
#include "handler/kinds.h"
#include "server/store_open.h"

bool postern__config_lacks_inbox(
		const struct postern__config_channel *channel) {
	return channel->values.mode != POSTERN_MODE_INBOX &&
		   !channel->values.allow_without_inbox;
}

static void read_types(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel) {
	struct postern_error error;
	if (!postern__config_list_read(config, node, POSTERN_GUARDED_COUNT_MAX,
				&channel->guarded_types, &channel->guarded_type_count)) {
		return;
	}
	const struct postern__yaml_node *entry = node->first;
	for (size_t i = 0; i < channel->guarded_type_count;
			i++, entry = entry->next) {
		const char *type = channel->guarded_types[i];
		if (postern__pattern_check(type, strlen(type), &error) != POSTERN_OK) {
			postern__mistakes_add_error(&config->mistakes, &entry->place, NULL,
					&error);
		}
	}
}

static bool has_handler(const struct postern__config_channel *channel,
		const char *key) {
	for (size_t i = 0; i < channel->handler_count; i++) {
		if (strcmp(channel->handlers[i].key, key) == 0) {
			return true;
		}
	}
	return false;
}

static void read_handlers(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel) {
	if (!postern__config_list_read(config, node, POSTERN_GUARDED_COUNT_MAX,
				&channel->guarded_handlers, &channel->guarded_handler_count)) {
		return;
	}
	const struct postern__yaml_node *entry = node->first;
	for (size_t i = 0; i < channel->guarded_handler_count;
			i++, entry = entry->next) {
		const char *key = channel->guarded_handlers[i];
		if (!has_handler(channel, key)) {
			postern__mistakes_add(&config->mistakes, &entry->place,
					"the channel '%.60s' has no handler '%.60s' to guard",
					channel->name, key);
		}
	}
}

/* guard: {types: […], handlers: […]} */
static void read_lists(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel) {
	if (node->kind != POSTERN__YAML_MAPPING || node->count == 0) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"'guard' must be a mapping, such as {types: [payment.*]} or "
				"{handlers: [charge-v1]}, not %s",
				postern__yaml_kind_name(node));
		return;
	}
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		if (strcmp(entry->key, "types") == 0) {
			read_types(config, entry, channel);
		} else if (strcmp(entry->key, "handlers") == 0) {
			read_handlers(config, entry, channel);
		} else {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"unknown key '%.60s' in 'guard'; it has types and handlers",
					entry->key);
		}
	}
}

static void check_settings(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern__config_channel *channel) {
	const struct postern__config_values *values = &channel->values;
	if (values->mode == POSTERN_MODE_GUARD ||
			postern__config_origin_of(values, "mode")->bad) {
		return;
	}
	if (node) {
		postern__mistakes_add(&config->mistakes, &node->key_place,
				"'guard' is for channels in the mode guard: add 'mode: guard'");
	}
	if (values->marker) {
		postern__config_mistake(config, values, "marker",
				"'marker' is for channels in the mode guard: add 'mode: "
				"guard'");
	}
}

/* Refuse an inbox in a store that keeps markers only. */
static void check_store(struct postern__config *config,
		const struct postern__config_channel *channel) {
	const struct postern__config_values *values = &channel->values;
	const struct postern__yaml_place place = { config->name, channel->line,
		channel->column };
	if (values->mode != POSTERN_MODE_INBOX ||
			postern__config_origin_of(values, "store")->bad ||
			postern__config_origin_of(values, "mode")->bad ||
			postern__store_keeps_messages(values->store)) {
		return;
	}
	postern__mistakes_add(&config->mistakes, &place,
			"channel '%.60s' is an inbox, and its store '%s' (%s) keeps "
			"markers only: name a store in SQLite or PostgreSQL, or set mode "
			"to guard or direct",
			channel->name, channel->store->name,
			postern__store_kind_name(values->store));
}

/* require_inbox: fail; a server reports `warn` when it starts, and check. */
static void check_required(struct postern__config *config,
		const struct postern__config_channel *channel) {
	const struct postern__config_values *values = &channel->values;
	if (postern__config_lacks_inbox(channel) &&
			values->require_inbox == POSTERN_REQUIRE_INBOX_FAIL) {
		postern__config_mistake(config, values, "mode",
				"channel '%.60s' has no inbox, but require_inbox is set; set "
				"allow_without_inbox if that is intended",
				channel->name);
	}
}

static bool guards_handler(const struct postern__config_channel *channel,
		const char *key) {
	bool all = channel->guarded_type_count == 0 &&
			   channel->guarded_handler_count == 0;
	for (size_t i = 0; !all && i < channel->guarded_handler_count; i++) {
		all = strcmp(channel->guarded_handlers[i], key) == 0;
	}
	return all && channel->values.mode == POSTERN_MODE_GUARD;
}

/* What is transactional needs the transaction of a guard or of the inbox, and
   what is pulled needs the inbox. */
static void check_kinds(struct postern__config *config,
		const struct postern__config_channel *channel) {
	for (size_t i = 0; i < channel->handler_count; i++) {
		const struct postern__config_handler *handler = &channel->handlers[i];
		const struct postern__yaml_place place = { config->name, handler->line,
			handler->column };
		if (channel->values.mode != POSTERN_MODE_INBOX && handler->kind &&
				handler->kind->transactional &&
				!guards_handler(channel, handler->key)) {
			postern__mistakes_add(&config->mistakes, &place,
					"handler '%.60s' is transactional, so all of its messages "
					"must be guarded or stored: use mode guard or inbox%s",
					handler->key,
					channel->values.mode == POSTERN_MODE_GUARD
							? ", and name the handler in guard.handlers"
							: "");
		}
		if (channel->values.mode != POSTERN_MODE_INBOX && handler->kind &&
				handler->kind->pull) {
			postern__mistakes_add(&config->mistakes, &place,
					"handler '%.60s' is of the kind '%s', whose workers claim "
					"what is stored: use mode inbox",
					handler->key, handler->kind->name);
		}
	}
}

int64_t postern__config_dedupe_ms(
		const struct postern__config_handler *handler) {
	const struct postern__config_values *values = &handler->values;
	return postern__config_origin_of(values, "retention.dedupe")->level ==
						   POSTERN__LEVEL_HANDLER
				   ? values->retention_dedupe_ms
				   : 0;
}

static bool has_own_keys(const struct postern__config_channel *channel,
		const struct postern__config_handler *handler) {
	bool any = handler->key_rule_count > 0;
	for (size_t i = 0; !any && i < channel->key_rule_count; i++) {
		any = strstr(channel->key_rules[i].rule, "composite") != NULL;
	}
	return any;
}

/* Why the handler cannot have a retention of its own; NULL: it can. */
static const char *lacks_window(const struct postern__config_channel *channel,
		const struct postern__config_handler *handler) {
	const struct postern__config_values *values = &channel->values;
	if (values->mode == POSTERN_MODE_INBOX) {
		return has_own_keys(channel, handler)
					   ? NULL
					   : "needs a key of its own: set 'key' of the handler, or "
						 "the retention of the channel";
	}
	if (values->mode == POSTERN_MODE_DIRECT) {
		return "is of no use in the mode direct, which remembers nothing";
	}
	if (handler->values.dedupe == POSTERN_DEDUPE_STORE &&
			!postern__config_origin_of(values, "store")->bad &&
			!postern__store_keeps_messages(values->store)) {
		return "is of no use in a store that expires markers by itself: set "
			   "the ttl in its URL";
	}
	return values->marker ? "is not its own: the channel's handlers share a "
							"marker"
						  : NULL;
}

static void check_dedupe(struct postern__config *config,
		const struct postern__config_channel *channel) {
	for (size_t i = 0; i < channel->handler_count; i++) {
		const struct postern__config_handler *handler = &channel->handlers[i];
		const char *why = NULL;
		if (handler->values.dedupe != POSTERN_DEDUPE_MEMORY) {
			continue;
		}
		if (channel->values.mode != POSTERN_MODE_GUARD) {
			why = "is for channels in the mode guard: an inbox stores each "
				  "message in any case";
		} else if (handler->kind && handler->kind->transactional) {
			why = "is not for transactional handlers: the marker is part of "
				  "the transaction";
		} else if (channel->values.marker) {
			why = "is not for handlers that share a marker";
		}
		if (why) {
			postern__config_mistake(config, &handler->values, "dedupe",
					"dedupe: memory of the handler '%.60s' %s", handler->key,
					why);
		}
	}
}

static void check_windows(struct postern__config *config,
		const struct postern__config_channel *channel) {
	for (size_t i = 0; i < channel->handler_count; i++) {
		const struct postern__config_handler *handler = &channel->handlers[i];
		const char *why = postern__config_dedupe_ms(handler) > 0
								  ? lacks_window(channel, handler)
								  : NULL;
		if (why) {
			postern__config_mistake(config, &handler->values,
					"retention.dedupe",
					"retention.dedupe of the handler '%.60s' %s", handler->key,
					why);
		}
	}
}

void postern__config_guard_read(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel) {
	if (node) {
		read_lists(config, node, channel);
	}
	check_settings(config, node, channel);
	check_store(config, channel);
	check_required(config, channel);
	check_kinds(config, channel);
	check_windows(config, channel);
	check_dedupe(config, channel);
}

void postern__config_guards_check(struct postern__config *config) {
	for (size_t i = 0; i < config->channel_count; i++) {
		const struct postern__config_channel *channel = &config->channels[i];
		const char *name = channel->values.fault_channel;
		const struct postern__config_channel *to =
				name ? postern__config_channel_named(config, name) : NULL;
		if (!name || (to && to != channel && to->store == channel->store)) {
			continue;
		}
		postern__config_mistake(config, &channel->values, "fault_channel",
				"fault_channel '%.60s' of the channel '%.60s' is %s", name,
				channel->name,
				!to             ? "no channel"
				: to == channel ? "the channel itself"
								: "a channel of another store");
	}
}
