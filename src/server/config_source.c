/* SPDX-License-Identifier: MIT */
/*
 * The sources of a channel. Nothing here knows any kind: the key is the name of
 * a row, the value is a mapping of the row's options, or the value of the first
 * one alone. A source is validated by creating it; it is created again for the
 * runner.
 */

#include "server/config_section.h"

#include <postern/source.h>
#include <stdio.h>
#include <string.h>

#include "core/box.h"
#include "server/config_path.h"
#include "server/store_open.h"
#include "source/kinds.h"

/* Room for the names of all kinds in an error. */
#define KINDS_TEXT_MAX 160

/* The name of the source of staged messages in a runner. */
#define RESERVED_NAME "staged"

/* The option that names a source among those of its kind in its channel. */
#define OWN_NAME "name"

/* Options that may be written beside the kind, because they are about messages
   and not about the transport. */
static const char *const beside[] = { "type", "subject" };
#define BESIDE_COUNT (sizeof beside / sizeof beside[0])

static bool is_beside(const struct postern_source_kind *kind,
		const char *name) {
	for (size_t i = 0; i < BESIDE_COUNT; i++) {
		if (strcmp(name, beside[i]) == 0) {
			return postern__source_option(kind, name) != NULL;
		}
	}
	return false;
}

static void report_kind(struct postern__config *config,
		const struct postern__yaml_place *place, const char *name) {
	const struct postern_source_kind *kind;
	char kinds[KINDS_TEXT_MAX] = "";
	size_t len = 0;
	for (size_t i = 0;
			(kind = postern__source_kind_at(i)) && len < sizeof kinds; i++) {
		len += (size_t)snprintf(kinds + len, sizeof kinds - len, "%s'%s'",
				i > 0 ? ", " : "", kind->name);
	}
	if (name) {
		postern__mistakes_add(&config->mistakes, place,
				"unknown key '%.60s' in a source; the kinds of sources are %s",
				name, kinds);
	} else {
		postern__mistakes_add(&config->mistakes, place,
				"a source needs a kind, one of %s", kinds);
	}
}

static const char *read_setting(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_source_kind *kind, const char *name) {
	const char *text = postern__config_text_read(config, node);
	struct postern_error error;
	for (size_t i = 0; text && i < kind->option_count; i++) {
		bool path = (kind->options[i].flags & POSTERN_OPTION_PATH) &&
					strcmp(kind->options[i].name, name) == 0 &&
					strcmp(text, "-") != 0;
		if (path &&
				postern__config_path_resolve(config->base, POSTERN__CONFIG_FILE,
						0, &config->arena, &text, &error) != POSTERN_OK) {
			config->mistakes.no_memory = true;
		}
	}
	return text;
}

/* Report what is wrong with one option, or with all of them. */
static void report(struct postern__config *config,
		const struct postern__yaml_node *node, int r,
		const struct postern_error *error) {
	if (r != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, NULL,
				error);
	}
}

/* Add one option as it is written, or one value of a list. */
static void add_setting(struct postern__config *config,
		const struct postern__yaml_node *node, const char *name,
		struct postern__config_channel_source *source,
		struct postern_source_setting *settings) {
	struct postern_error error;
	struct postern_source_setting *setting = &settings[source->setting_count++];
	*setting = (struct postern_source_setting){
		.name = name,
		.value = read_setting(config, node, source->kind, name),
	};
	int r = setting->value ? postern__source_setting_check(source->kind,
									 setting, &error)
						   : POSTERN_OK;
	report(config, node, r, &error);
}

/* Whether a value is a list that its option may be. */
static bool is_list(const struct postern__config_channel_source *source,
		const struct postern__yaml_node *node, const char *name) {
	const struct postern_option *option =
			postern__source_option(source->kind, name);
	return node->kind == POSTERN__YAML_LIST && option &&
		   option->type == POSTERN_OPTION_TEXTS;
}

static void add_settings(struct postern__config *config,
		const struct postern__yaml_node *node, const char *name,
		struct postern__config_channel_source *source,
		struct postern_source_setting *settings) {
	if (!is_list(source, node, name)) {
		add_setting(config, node, name, source, settings);
		return;
	}
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		add_setting(config, entry, name, source, settings);
	}
}

/* The most settings that a mapping makes. */
static size_t count_settings(const struct postern__yaml_node *node) {
	size_t count = node->count + 1;
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		count += entry->count;
	}
	return count;
}

/* NULL: it has none. */
static const char *
setting_named(const struct postern__config_channel_source *source,
		const char *name) {
	for (size_t i = 0; i < source->setting_count; i++) {
		if (strcmp(source->settings[i].name, name) == 0) {
			return source->settings[i].value;
		}
	}
	return NULL;
}

/* The options as they are written: those of the kind, and those beside it. */
static void read_settings(struct postern__config *config,
		const struct postern__yaml_node *outer,
		const struct postern__yaml_node *node,
		struct postern__config_channel_source *source) {
	struct postern_source_setting *settings =
			postern__arena_array(&config->arena,
					count_settings(node) + count_settings(outer),
					sizeof *settings);
	struct postern_error error;
	if (!settings) {
		config->mistakes.no_memory = true;
		return;
	}
	source->settings = settings;
	if (node->kind != POSTERN__YAML_MAPPING) {
		add_settings(config, node, source->kind->options[0].name, source,
				settings);
	}
	for (const struct postern__yaml_node *entry = node->first;
			node->kind == POSTERN__YAML_MAPPING && entry; entry = entry->next) {
		add_settings(config, entry, entry->key, source, settings);
	}
	for (const struct postern__yaml_node *entry = outer->first; entry;
			entry = entry->next) {
		if (!is_beside(source->kind, entry->key)) {
			continue;
		}
		if (setting_named(source, entry->key)) {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"'%s' is both inside and beside '%s'; remove one",
					entry->key, source->kind->name);
		}
		add_settings(config, entry, entry->key, source, settings);
	}
	report(config, node,
			postern__source_required_check(source->kind, settings,
					source->setting_count, &error),
			&error);
}

/* Create it once, to have its options validated. */
static void check_settings(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern__config_channel_source *source) {
	struct postern_source *created;
	struct postern_error error;
	int r = postern__source_create(source->kind, source->settings,
			source->setting_count, &created, &error);
	if (r == POSTERN_OK) {
		created->ops->destroy(created);
	}
	report(config, node, r, &error);
}

/* The kind of a source: what is neither its name nor beside it. */
static void find_kind(struct postern__config *config,
		const struct postern__yaml_node *outer,
		const struct postern__yaml_node **node_out,
		struct postern__config_channel_source *source) {
	for (const struct postern__yaml_node *entry = outer->first; entry;
			entry = entry->next) {
		const struct postern_source_kind *kind =
				postern__source_kind_find(entry->key);
		if (!kind || kind->option_count == 0) {
			continue;
		}
		if (source->kind) {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"the source has two kinds, '%s' and '%s'; remove one",
					source->kind->name, kind->name);
			return;
		}
		source->kind = kind;
		*node_out = entry;
	}
}

static void report_unknown(struct postern__config *config,
		const struct postern__yaml_node *outer,
		const struct postern__config_channel_source *source) {
	for (const struct postern__yaml_node *entry = outer->first; entry;
			entry = entry->next) {
		if (strcmp(entry->key, "name") == 0 ||
				postern__source_kind_find(entry->key)) {
			continue;
		}
		if (!source->kind) {
			report_kind(config, &entry->key_place, entry->key);
		} else if (!is_beside(source->kind, entry->key)) {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"unknown key '%.60s' beside a source of kind '%s'; its "
					"options are inside '%s'",
					entry->key, source->kind->name, source->kind->name);
		}
	}
}

/* "orders.lines", "orders.lines.2": unique as long as the list is. Of a kind
   whose sources have names of their own: "orders.webhook.shop". */
static const char *default_name(struct postern__config *config,
		const struct postern__config_channel *channel,
		const struct postern__config_channel_source *source) {
	const char *own = setting_named(source, OWN_NAME);
	size_t size = strlen(channel->name) + strlen(source->kind->name) +
				  (own ? strlen(own) : 0) + 32;
	char *name = postern__arena_alloc(&config->arena, size);
	if (!name) {
		config->mistakes.no_memory = true;
		return NULL;
	}
	int len = snprintf(name, size, "%s.%s", channel->name, source->kind->name);
	if (own) {
		(void)snprintf(name + len, size - (size_t)len, ".%s", own);
	} else if (channel->source_count > 0) {
		(void)snprintf(name + len, size - (size_t)len, ".%zu",
				channel->source_count + 1);
	}
	return name;
}

static void check_name(struct postern__config *config,
		const struct postern__yaml_place *place,
		const struct postern__config_channel_source *source) {
	if (strlen(source->name) > POSTERN_SOURCE_NAME_LEN_MAX) {
		postern__mistakes_add(&config->mistakes, place,
				"the name of a source has at most %d bytes; set a shorter "
				"'name'",
				POSTERN_SOURCE_NAME_LEN_MAX);
	}
	bool taken = strcmp(source->name, RESERVED_NAME) == 0;
	for (const struct postern__config_channel_source *other = config->sources;
			other && !taken; other = other->next) {
		taken = strcmp(other->name, source->name) == 0;
	}
	if (taken) {
		postern__mistakes_add(&config->mistakes, place,
				"the name '%.60s' of a source is already used", source->name);
	}
}

/* Another source of its kind in the channel must not have its own name. */
static void check_own_name(struct postern__config *config,
		const struct postern__yaml_place *place,
		const struct postern__config_channel *channel,
		const struct postern__config_channel_source *source) {
	const char *own = setting_named(source, OWN_NAME);
	for (size_t i = 0; own && i < channel->source_count; i++) {
		const struct postern__config_channel_source *other =
				&channel->sources[i];
		const char *others = setting_named(other, OWN_NAME);
		if (other->kind == source->kind && others && strcmp(own, others) == 0) {
			postern__mistakes_add(&config->mistakes, place,
					"the channel has another source '%s' named '%.60s'",
					source->kind->name, own);
			return;
		}
	}
}

/* Returns whether the source can be used. */
static bool read_source(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern__config_channel *channel,
		struct postern__config_channel_source *source) {
	const struct postern__yaml_place *place = &node->place;
	size_t before = config->mistakes.count;
	if (node->kind != POSTERN__YAML_MAPPING) {
		postern__mistakes_add(&config->mistakes, place,
				"a source must be a mapping, as in {lines: {file: FILE}}, not "
				"%s",
				postern__yaml_kind_name(node));
		return false;
	}
	source->line = node->place.line;
	const struct postern__yaml_node *options = NULL;
	find_kind(config, node, &options, source);
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		if (strcmp(entry->key, "name") == 0) {
			source->name = postern__config_text_read(config, entry);
			place = &entry->place;
		}
	}
	report_unknown(config, node, source);
	if (options) {
		read_settings(config, node, options, source);
	}
	if (config->mistakes.count == before && options &&
			!config->mistakes.no_memory) {
		check_settings(config, options, source);
	}
	if (config->mistakes.count > before) {
		return false;
	}
	if (!source->kind) {
		report_kind(config, place, NULL);
		return false;
	}
	if (!source->name) {
		source->name = default_name(config, channel, source);
	}
	if (source->name) {
		check_own_name(config, place, channel, source);
		check_name(config, place, source);
	}
	return source->name && config->mistakes.count == before;
}

/* "staged": transactions of other programs stage the channel's messages. The
   store collects them anyway; the entry demands that it can. */
static bool is_staged(const struct postern__yaml_node *node) {
	return node->kind == POSTERN__YAML_SCALAR &&
		   strcmp(node->text, RESERVED_NAME) == 0;
}

static void check_staged(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern__config_channel *channel) {
	const char *url = channel->values.store;
	if (postern__config_origin_of(&channel->values, "store")->bad) {
		return; /* the store was reported */
	}
	if (!postern__store_stages(url)) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"messages of channel '%.60s' cannot be staged by the "
				"transactions of other programs in a %s store; use "
				"postgres://… or sqlite:FILE?shared=yes",
				channel->name, postern__store_kind_name(url));
	} else if (channel->values.mode != POSTERN_MODE_INBOX) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"messages of channel '%.60s' cannot be staged: it has no "
				"inbox",
				channel->name);
	}
}

void postern__config_sources_read(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel) {
	if (postern__yaml_empty(node)) {
		return;
	}
	if (node->kind != POSTERN__YAML_LIST) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"'sources' must be a list, as in [{lines: {file: FILE}}]");
		return;
	}
	struct postern__config_channel_source *sources =
			postern__arena_array(&config->arena, node->count, sizeof *sources);
	config->mistakes.no_memory = config->mistakes.no_memory || !sources;
	channel->sources = sources;
	for (const struct postern__yaml_node *entry = node->first; sources && entry;
			entry = entry->next) {
		struct postern__config_channel_source *source =
				&sources[channel->source_count];
		*source = (struct postern__config_channel_source){ 0 };
		if (is_staged(entry)) {
			channel->staged = true;
			check_staged(config, entry, channel);
			continue;
		}
		if (!read_source(config, entry, channel, source)) {
			continue;
		}
		if (config->source_count++ == POSTERN_SOURCE_COUNT_MAX - 1) {
			postern__mistakes_add(&config->mistakes, &entry->place,
					"more than %d sources", POSTERN_SOURCE_COUNT_MAX - 1);
		}
		source->next = config->sources;
		config->sources = source;
		channel->source_count++;
	}
}
