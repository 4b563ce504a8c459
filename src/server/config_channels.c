/* SPDX-License-Identifier: MIT */
/*
 * The channels and their handlers. Each starts with a copy of the values around
 * it and overwrites those that it sets itself, which implements "the nearest
 * wins". What a box would refuse is refused here first, because here the line
 * is known.
 */

#include "server/config_section.h"

#include <postern/sys/handler.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"
#include "base/text.h"
#include "core/box.h"
#include "server/config_options.h"
#include "server/publish_channel.h"

/* Check a key or legacy key and remember where it was written. */
static void read_key(struct postern__config *config,
		const struct postern__config_channel *channel, const char *key,
		const char *legacy_of, const struct postern__yaml_place *place) {
	struct postern_error error;
	if (postern__handler_key_check(key, &error) != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, place, NULL, &error);
		return;
	}
	struct postern__config_use *use =
			postern__arena_alloc(&config->arena, sizeof *use);
	if (!use) {
		config->mistakes.no_memory = true;
		return;
	}
	*use = (struct postern__config_use){
		.key = key,
		.legacy_of = legacy_of,
		.channel = channel->name,
		.place = *place,
		.order = config->use_count++,
		.next = config->uses,
	};
	config->uses = use;
}

static void read_types(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_handler *handler) {
	struct postern_error error;
	if (!postern__config_list_read(config, node, POSTERN_TYPE_PATTERN_COUNT_MAX,
				&handler->types, &handler->type_count)) {
		return;
	}
	const struct postern__yaml_node *entry = node->first;
	for (size_t i = 0; i < handler->type_count; i++, entry = entry->next) {
		const char *type = handler->types[i];
		if (postern__pattern_check(type, strlen(type), &error) != POSTERN_OK) {
			postern__mistakes_add_error(&config->mistakes, &entry->place, NULL,
					&error);
		}
	}
}

static void read_legacy_keys(struct postern__config *config,
		const struct postern__config_channel *channel,
		const struct postern__yaml_node *node,
		struct postern__config_handler *handler) {
	if ((node->kind == POSTERN__YAML_LIST && node->count == 0) ||
			!postern__config_list_read(config, node,
					POSTERN_LEGACY_KEY_COUNT_MAX, &handler->legacy_keys,
					&handler->legacy_key_count)) {
		return; /* an empty list: no legacy keys */
	}
	const struct postern__yaml_node *entry = node->first;
	for (size_t i = 0; i < handler->legacy_key_count; i++) {
		read_key(config, channel, handler->legacy_keys[i], handler->key,
				&entry->place);
		entry = entry->next;
	}
}

static void read_handler(struct postern__config *config,
		const struct postern__config_channel *channel,
		const struct postern__yaml_node *node,
		struct postern__config_handler *handler) {
	struct postern__config_parts parts;

	handler->key = node->key;
	handler->line = node->key_place.line;
	handler->column = node->key_place.column;
	handler->values = channel->values;
	read_key(config, channel, node->key, NULL, &node->key_place);
	bool complete =
			postern__config_section_read(config, node, POSTERN__IN_HANDLER,
					POSTERN__LEVEL_HANDLER, &handler->values, &parts);
	postern__config_kind_read(config, node, complete, handler);
	if (parts.nodes[POSTERN__PART_TYPES]) {
		read_types(config, parts.nodes[POSTERN__PART_TYPES], handler);
	}
	if (parts.nodes[POSTERN__PART_KEY]) {
		postern__config_key_read(config, parts.nodes[POSTERN__PART_KEY],
				&handler->key_rules, &handler->key_rule_count);
	}
	if (parts.nodes[POSTERN__PART_LEGACY_KEYS]) {
		read_legacy_keys(config, channel,
				parts.nodes[POSTERN__PART_LEGACY_KEYS], handler);
	}
	postern__config_timeout_check(config, &handler->values, handler->kind);
}

static void read_handlers(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel) {
	if (!postern__config_is_named(config, node) || node->count == 0) {
		return;
	}
	struct postern__config_handler *handlers =
			postern__arena_array(&config->arena, node->count, sizeof *handlers);
	config->mistakes.no_memory = config->mistakes.no_memory || !handlers;
	channel->handlers = handlers;
	for (const struct postern__yaml_node *entry = node->first;
			handlers && entry; entry = entry->next) {
		if (config->handler_count++ == POSTERN_HANDLER_COUNT_MAX) {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"more than %d handlers", POSTERN_HANDLER_COUNT_MAX);
		}
		read_handler(config, channel, entry,
				&handlers[channel->handler_count++]);
	}
}

/* Refuse to forget ids before their messages. */
static void check_retention(struct postern__config *config,
		const struct postern__config_values *values) {
	int64_t payload_ms = values->retention_payload_ms;
	int64_t dedupe_ms = values->retention_dedupe_ms;
	char payload_text[POSTERN__DURATION_TEXT_MAX] = "none: unlimited";
	char dedupe_text[POSTERN__DURATION_TEXT_MAX];
	const char *nearer = postern__config_nearer(values, "retention.dedupe",
			"retention.payload");
	/* 0: unlimited. */
	if (!nearer || dedupe_ms == 0 ||
			(payload_ms > 0 && dedupe_ms >= payload_ms)) {
		return;
	}
	if (payload_ms > 0) {
		postern__duration_format(payload_ms, payload_text);
	}
	postern__duration_format(dedupe_ms, dedupe_text);
	postern__config_mistake(config, values, nearer,
			"retention.dedupe (%s) must not be less than retention.payload "
			"(%s): an id is remembered at least as long as its message is kept",
			dedupe_text, payload_text);
}

/* The section of a key; NULL: none. */
static const struct postern__yaml_node *
find_entry(const struct postern__yaml_node *node, const char *key) {
	const struct postern__yaml_node *entry = node->first;
	while (entry && !(entry->key && strcmp(entry->key, key) == 0)) {
		entry = entry->next;
	}
	return entry;
}

static void read_former_names(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel) {
	if ((node->kind == POSTERN__YAML_LIST && node->count == 0) ||
			!postern__config_list_read(config, node,
					POSTERN_FORMER_NAME_COUNT_MAX, &channel->former_names,
					&channel->former_name_count)) {
		return; /* an empty list: no former names */
	}
	const struct postern__yaml_node *entry = node->first;
	for (size_t i = 0; i < channel->former_name_count; i++) {
		struct postern_error error;
		if (postern__channel_name_check(channel->former_names[i], &error) !=
				POSTERN_OK) {
			postern__mistakes_add_error(&config->mistakes, &entry->place, NULL,
					&error);
		}
		entry = entry->next;
	}
}

/* How often channels have this name, or had it. *other_out is one of them, if
   possible not `self`. */
static size_t count_named(const struct postern__config *config,
		const char *name, const struct postern__config_channel *self,
		const struct postern__config_channel **other_out) {
	size_t count = 0;
	for (size_t i = 0; i < config->channel_count; i++) {
		const struct postern__config_channel *channel = &config->channels[i];
		size_t uses = strcmp(channel->name, name) == 0;
		for (size_t n = 0; n < channel->former_name_count; n++) {
			uses += strcmp(channel->former_names[n], name) == 0;
		}
		if (uses > 0 && (count == 0 || channel != self)) {
			*other_out = channel;
		}
		count += uses;
	}
	return count;
}

/* Names and former names of all channels share one name space. */
static void check_former_names(struct postern__config *config) {
	for (size_t i = 0; i < config->channel_count; i++) {
		const struct postern__config_channel *channel = &config->channels[i];
		const struct postern__yaml_place place = { config->name, channel->line,
			channel->column };
		for (size_t n = 0; n < channel->former_name_count; n++) {
			const struct postern__config_channel *other = NULL;
			if (count_named(config, channel->former_names[n], channel, &other) >
					1) {
				postern__mistakes_add(&config->mistakes, &place,
						"the former name '%.60s' of the channel '%.60s' is "
						"also a name of the channel '%.60s', line %u",
						channel->former_names[n], channel->name, other->name,
						other->line);
			}
		}
	}
}

static void read_channel(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel) {
	struct postern__config_parts parts;
	struct postern_error error;

	channel->name = node->key;
	channel->line = node->key_place.line;
	channel->column = node->key_place.column;
	if (postern__channel_name_check(node->key, &error) != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->key_place, NULL,
				&error);
	}
	const struct postern__config_store *store =
			postern__config_store_choose(config, node,
					find_entry(node, "store"));
	channel->store = store ? store : &config->stores[0];
	channel->values = channel->store->values;
	if (!store) {
		channel->values
				.origins[postern__option_index(postern__option_named("store"))]
				.bad = true;
	}
	(void)postern__config_section_read(config, node, POSTERN__IN_CHANNEL,
			POSTERN__LEVEL_CHANNEL, &channel->values, &parts);
	postern__config_timeout_check(config, &channel->values, NULL);
	check_retention(config, &channel->values);
	if (parts.nodes[POSTERN__PART_FORMER_NAMES]) {
		read_former_names(config, parts.nodes[POSTERN__PART_FORMER_NAMES],
				channel);
	}
	if (parts.nodes[POSTERN__PART_KEY]) {
		postern__config_key_read(config, parts.nodes[POSTERN__PART_KEY],
				&channel->key_rules, &channel->key_rule_count);
	}
	if (parts.nodes[POSTERN__PART_SOURCES]) {
		postern__config_sources_read(config, parts.nodes[POSTERN__PART_SOURCES],
				channel);
	}
	if (parts.nodes[POSTERN__PART_HANDLERS]) {
		read_handlers(config, parts.nodes[POSTERN__PART_HANDLERS], channel);
	}
	postern__config_guard_read(config, parts.nodes[POSTERN__PART_GUARD],
			channel);
}

static int compare_uses(const void *a, const void *b) {
	const struct postern__config_use *left = a;
	const struct postern__config_use *right = b;
	int r = strcmp(left->key, right->key);
	if (r != 0) {
		return r;
	}
	return left->order < right->order ? -1 : left->order > right->order;
}

/* Keys are unique among all keys and legacy keys of all channels. */
static void check_uses(struct postern__config *config) {
	struct postern__config_use *uses = postern__arena_array(&config->arena,
			config->use_count, sizeof *uses);
	size_t count = 0;
	if (!uses) {
		config->mistakes.no_memory = true;
		return;
	}
	for (const struct postern__config_use *use = config->uses; use;
			use = use->next) {
		uses[count++] = *use;
	}
	qsort(uses, count, sizeof *uses, compare_uses);
	for (size_t i = 1; i < count; i++) {
		const struct postern__config_use *first = &uses[i - 1];
		if (strcmp(first->key, uses[i].key) == 0) {
			postern__mistakes_add(&config->mistakes, &uses[i].place,
					"the handler key '%.60s' is already used%s%.60s%s: line "
					"%u, channel '%.60s'",
					first->key,
					first->legacy_of ? ", as a legacy key of '" : "",
					first->legacy_of ? first->legacy_of : "",
					first->legacy_of ? "'" : "", first->place.line,
					first->channel);
		}
	}
}

void postern__config_channels_read(struct postern__config *config,
		const struct postern__yaml_node *node) {
	if (!config->stores || !postern__config_is_named(config, node) ||
			node->count == 0) {
		return;
	}
	struct postern__config_channel *channels =
			postern__arena_array(&config->arena, node->count, sizeof *channels);
	config->mistakes.no_memory = config->mistakes.no_memory || !channels;
	config->channels = channels;
	for (const struct postern__yaml_node *entry = node->first;
			channels && entry; entry = entry->next) {
		read_channel(config, entry, &channels[config->channel_count++]);
	}
	check_uses(config);
	check_former_names(config);
	postern__config_guards_check(config);
	postern__config_publish_check(config);
}
