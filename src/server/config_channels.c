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

#include "base/fail.h"
#include "base/pattern.h"
#include "core/box.h"
#include "handler/kinds.h"
#include "server/config_options.h"
#include "server/config_yaml.h"
#include "server/store_open.h"

/* Check a key or legacy key and remember where it was written. */
static int read_key(struct postern__config *config,
		const struct postern__config_channel *channel, const char *key,
		const char *legacy_of, const struct postern__yaml_place *place,
		struct postern_error *error) {
	int r = postern__handler_key_check(key, error);
	if (r != POSTERN_OK) {
		return postern__yaml_fail_at(error, r, place);
	}
	struct postern__config_use *use =
			postern__arena_alloc(&config->arena, sizeof *use);
	if (!use) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	use->key = key;
	use->legacy_of = legacy_of;
	use->channel = channel->name;
	use->place = *place;
	use->order = config->use_count++;
	use->next = config->uses;
	config->uses = use;
	return POSTERN_OK;
}

static int read_types(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_handler *handler, struct postern_error *error) {
	int r = postern__config_list_read(config, node,
			POSTERN_TYPE_PATTERN_COUNT_MAX, &handler->types,
			&handler->type_count, error);
	const struct postern__yaml_node *entry = node->first;
	for (size_t i = 0; r == POSTERN_OK && i < handler->type_count; i++) {
		r = postern__pattern_check(handler->types[i], strlen(handler->types[i]),
				error);
		if (r != POSTERN_OK) {
			r = postern__yaml_fail_at(error, r, &entry->place);
		}
		entry = entry->next;
	}
	return r;
}

static int read_legacy_keys(struct postern__config *config,
		const struct postern__config_channel *channel,
		const struct postern__yaml_node *node,
		struct postern__config_handler *handler, struct postern_error *error) {
	if (node->kind == POSTERN__YAML_LIST && node->count == 0) {
		return POSTERN_OK; /* an empty list: no legacy keys */
	}
	int r = postern__config_list_read(config, node,
			POSTERN_LEGACY_KEY_COUNT_MAX, &handler->legacy_keys,
			&handler->legacy_key_count, error);
	const struct postern__yaml_node *entry = node->first;
	for (size_t i = 0; r == POSTERN_OK && i < handler->legacy_key_count; i++) {
		r = read_key(config, channel, handler->legacy_keys[i], handler->key,
				&entry->place, error);
		entry = entry->next;
	}
	return r;
}

/* Validated in the dialect of its store. */
static int create_sql(const struct postern__config_handler *handler,
		struct postern_handler **out, struct postern_error *error) {
#ifdef POSTERN_POSTGRES
	if (strncmp(handler->values.store, "postgres", strlen("postgres")) == 0) {
		return postern__sql_postgres_create(handler->sql, out, error);
	}
#endif
	return postern__sql_create(handler->sql, out, error);
}

static int read_sql(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_handler *handler, struct postern_error *error) {
	int r = postern__config_text_read(config, node, &handler->sql, error);
	if (r == POSTERN_OK &&
			strspn(handler->sql, " \t\r\n;") == strlen(handler->sql)) {
		r = postern__yaml_fail(error, &node->place, "'sql' is empty");
	}
	if (r != POSTERN_OK) {
		return r;
	}
	/* Validate the handler by creating it; it is created again for the box. */
	struct postern_handler *kind;
	r = create_sql(handler, &kind, error);
	if (r == POSTERN_OK) {
		kind->ops->destroy(kind);
	}
	if (r == POSTERN_OK && postern__store_file(handler->values.store)) {
		r = postern__sql_syntax_check(handler->sql, error);
	}
	if (r != POSTERN_OK && error) {
		(void)postern__fail(error, r, "sql: %s", error->text);
	}
	return r == POSTERN_OK ? r : postern__yaml_fail_at(error, r, &node->place);
}

static int read_exec(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_handler *handler, struct postern_error *error) {
	if (node->kind == POSTERN__YAML_SCALAR && !postern__yaml_empty(node)) {
		return postern__yaml_fail(error, &node->place,
				"'exec' must be a list, because no shell is involved: "
				"[\"/bin/prog\", \"arg\"]");
	}
	int r = postern__config_list_read(config, node, POSTERN__EXEC_ARG_COUNT_MAX,
			&handler->exec, &handler->exec_count, error);
	if (r == POSTERN_OK && handler->exec[0][0] != '/') {
		r = postern__yaml_fail(error, &node->first->place,
				"the program '%.80s' must have an absolute path",
				handler->exec[0]);
	}
	return r;
}

static bool is_behind(const struct postern__yaml_node *node,
		const struct postern__yaml_node *other) {
	const struct postern__yaml_place *a = &node->key_place;
	const struct postern__yaml_place *b = &other->key_place;
	return a->line > b->line || (a->line == b->line && a->column > b->column);
}

static int read_kind(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern__config_parts *parts,
		struct postern__config_handler *handler, struct postern_error *error) {
	const struct postern__yaml_node *sql = parts->nodes[POSTERN__PART_SQL];
	const struct postern__yaml_node *exec = parts->nodes[POSTERN__PART_EXEC];

	if (!sql && !exec) {
		return postern__yaml_fail(error, &node->key_place,
				"handler '%.60s' has no kind; add 'sql' or 'exec'", node->key);
	}
	if (sql && exec) {
		return postern__yaml_fail(error,
				is_behind(exec, sql) ? &exec->key_place : &sql->key_place,
				"handler '%.60s' has two kinds, 'sql' and 'exec'; remove one",
				node->key);
	}
	return sql ? read_sql(config, sql, handler, error)
			   : read_exec(config, exec, handler, error);
}

static int read_handler(struct postern__config *config,
		const struct postern__config_channel *channel,
		const struct postern__yaml_node *node,
		struct postern__config_handler *handler, struct postern_error *error) {
	struct postern__config_parts parts;

	handler->key = node->key;
	handler->line = node->key_place.line;
	handler->column = node->key_place.column;
	handler->values = channel->values;
	int r = read_key(config, channel, node->key, NULL, &node->key_place, error);
	if (r == POSTERN_OK) {
		r = postern__config_section_read(config, node, POSTERN__IN_HANDLER,
				POSTERN__LEVEL_HANDLER, &handler->values, &parts, error);
	}
	if (r == POSTERN_OK) {
		r = read_kind(config, node, &parts, handler, error);
	}
	if (r == POSTERN_OK && parts.nodes[POSTERN__PART_TYPES]) {
		r = read_types(config, parts.nodes[POSTERN__PART_TYPES], handler,
				error);
	}
	if (r == POSTERN_OK && parts.nodes[POSTERN__PART_LEGACY_KEYS]) {
		r = read_legacy_keys(config, channel,
				parts.nodes[POSTERN__PART_LEGACY_KEYS], handler, error);
	}
	if (r == POSTERN_OK) {
		r = postern__config_timeout_check(config, &handler->values,
				handler->sql != NULL, error);
	}
	return r;
}

/* A mapping from names to sections, or nothing. */
static int check_named(const struct postern__yaml_node *node,
		struct postern_error *error) {
	if (node->kind == POSTERN__YAML_MAPPING || postern__yaml_empty(node)) {
		return POSTERN_OK;
	}
	return postern__yaml_fail(error, &node->place,
			"'%s' must be a mapping of names, not %s", node->key,
			postern__yaml_kind_name(node));
}

static int read_handlers(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel, struct postern_error *error) {
	int r = check_named(node, error);
	if (r != POSTERN_OK || node->count == 0) {
		return r;
	}
	struct postern__config_handler *handlers =
			postern__arena_array(&config->arena, node->count, sizeof *handlers);
	if (!handlers) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	channel->handlers = handlers;
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		if (config->handler_count++ == POSTERN_HANDLER_COUNT_MAX) {
			return postern__yaml_fail(error, &entry->key_place,
					"more than %d handlers", POSTERN_HANDLER_COUNT_MAX);
		}
		r = read_handler(config, channel, entry,
				&handlers[channel->handler_count++], error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return POSTERN_OK;
}

/* The section of a key; NULL: none. */
static const struct postern__yaml_node *
find_entry(const struct postern__yaml_node *node, const char *key) {
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		if (entry->key && strcmp(entry->key, key) == 0) {
			return entry;
		}
	}
	return NULL;
}

static int read_channel(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel, struct postern_error *error) {
	struct postern__config_parts parts;

	channel->name = node->key;
	channel->line = node->key_place.line;
	channel->column = node->key_place.column;
	int r = postern__channel_name_check(node->key, error);
	if (r != POSTERN_OK) {
		return postern__yaml_fail_at(error, r, &node->key_place);
	}
	r = postern__config_store_choose(config, node, find_entry(node, "store"),
			&channel->store, error);
	if (r != POSTERN_OK) {
		return r;
	}
	channel->values = channel->store->values;
	r = postern__config_section_read(config, node, POSTERN__IN_CHANNEL,
			POSTERN__LEVEL_CHANNEL, &channel->values, &parts, error);
	if (r == POSTERN_OK) {
		r = postern__config_timeout_check(config, &channel->values, false,
				error);
	}
	if (r == POSTERN_OK) {
		r = postern__config_retention_check(config, &channel->values, error);
	}
	if (r == POSTERN_OK && parts.nodes[POSTERN__PART_HANDLERS]) {
		r = read_handlers(config, parts.nodes[POSTERN__PART_HANDLERS], channel,
				error);
	}
	return r;
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

/* Keys are unique among all keys and legacy keys of all channels. Of several
   duplicates the first in the file is reported. */
static int check_uses(struct postern__config *config,
		struct postern_error *error) {
	struct postern__config_use *uses = postern__arena_array(&config->arena,
			config->use_count, sizeof *uses);
	const struct postern__config_use *first = NULL;
	const struct postern__config_use *second = NULL;
	size_t count = 0;

	if (!uses) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (const struct postern__config_use *use = config->uses; use;
			use = use->next) {
		uses[count++] = *use;
	}
	qsort(uses, count, sizeof *uses, compare_uses);
	for (size_t i = 1; i < count; i++) {
		if (strcmp(uses[i - 1].key, uses[i].key) == 0 &&
				(!second || uses[i].order < second->order)) {
			first = &uses[i - 1];
			second = &uses[i];
		}
	}
	if (!second) {
		return POSTERN_OK;
	}
	return postern__yaml_fail(error, &second->place,
			"the handler key '%.60s' is already used%s%.60s%s: line %u, "
			"channel '%.60s'",
			second->key, first->legacy_of ? ", as a legacy key of '" : "",
			first->legacy_of ? first->legacy_of : "",
			first->legacy_of ? "'" : "", first->place.line, first->channel);
}

int postern__config_channels_read(struct postern__config *config,
		const struct postern__yaml_node *node, struct postern_error *error) {
	int r = check_named(node, error);
	if (r != POSTERN_OK || node->count == 0) {
		return r;
	}
	struct postern__config_channel *channels =
			postern__arena_array(&config->arena, node->count, sizeof *channels);
	if (!channels) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	config->channels = channels;
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		r = read_channel(config, entry, &channels[config->channel_count++],
				error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return check_uses(config, error);
}
