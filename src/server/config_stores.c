/* SPDX-License-Identifier: MIT */
/*
 * The stores. Each starts with a copy of the global values and overwrites those
 * that it sets itself; the channels then start with a copy of their store's.
 *
 * `store: URL` at the top level is short for a store named "default", which
 * exists unless `stores` has others and `store` is not set. A flag or a
 * variable with a URL sets that of "default", or of the only store.
 */

#include <postern/sys/store.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/text.h"
#include "server/config_options.h"
#include "server/config_section.h"
#include "server/store_open.h"
#include "store/store.h"

static struct postern__config_origin *url_origin(
		struct postern__config_values *values) {
	return &values->origins[postern__option_index(
			postern__option_named("store"))];
}

static void check_name(struct postern__config *config,
		const struct postern__yaml_node *node) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
								  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	const size_t alphabet = 52; /* the characters that a name may begin with */
	const char *first = node->key[0] ? strchr(letters, node->key[0]) : NULL;
	size_t len = strlen(node->key);
	if (first && first < letters + alphabet &&
			len <= POSTERN__STORE_NAME_LEN_MAX &&
			strspn(node->key, letters) == len) {
		return;
	}
	postern__mistakes_add(&config->mistakes, &node->key_place,
			"invalid store name '%.80s'; use 1 to %d letters, digits, '-', "
			"'_', '.', a letter first",
			node->key, POSTERN__STORE_NAME_LEN_MAX);
}

/* One entry of `stores`. */
static void read_store(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_store *store) {
	const struct postern_option *option = postern__option_named("store");
	struct postern__config_parts parts;

	store->name = node->key;
	store->line = node->key_place.line;
	store->column = node->key_place.column;
	store->values = config->values;
	*url_origin(&store->values) = (struct postern__config_origin){ 0 };
	check_name(config, node);
	bool good = postern__config_section_read(config, node, POSTERN__IN_STORE,
			POSTERN__LEVEL_STORE, &store->values, &parts);
	const struct postern__yaml_node *url = parts.nodes[POSTERN__PART_URL];
	const struct postern__yaml_node *file = parts.nodes[POSTERN__PART_URL_FILE];
	if (url) {
		postern__config_option_read(config, url, option, false,
				POSTERN__LEVEL_STORE, &store->values);
	}
	if (file) {
		postern__config_option_read(config, file, option, true,
				POSTERN__LEVEL_STORE, &store->values);
	}
	if (!url && !file) {
		url_origin(&store->values)->bad = true;
		if (good) {
			postern__mistakes_add(&config->mistakes, &node->key_place,
					"store '%.60s' has no 'url'", node->key);
		}
	}
	postern__config_timeout_check(config, &store->values, NULL);
}

static void read_all(struct postern__config *config,
		const struct postern__yaml_node *node) {
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		if (config->store_line > 0 &&
				strcmp(entry->key, POSTERN__STORE_DEFAULT) == 0) {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"the store 'default' is configured twice: 'store' (line "
					"%u) is short for it",
					config->store_line);
		}
		if (config->store_count == POSTERN__STORE_COUNT_MAX) {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"more than %d stores", POSTERN__STORE_COUNT_MAX);
			return;
		}
		read_store(config, entry, &config->stores[config->store_count++]);
	}
}

/* A flag or a variable sets the URL, and `store` is not in the file. */
static void override(struct postern__config *config) {
	struct postern__config_store *store =
			config->store_count == 1 ? &config->stores[0] : NULL;
	for (size_t i = 0; i < config->store_count; i++) {
		if (strcmp(config->stores[i].name, POSTERN__STORE_DEFAULT) == 0) {
			store = &config->stores[i];
		}
	}
	if (!store) {
		postern__config_mistake(config, &config->values, "store",
				"the file has several stores and none is named 'default', so "
				"this URL has no store to apply to");
		return;
	}
	store->values.store = config->values.store;
	*url_origin(&store->values) = *url_origin(&config->values);
}

/* The text of an option with the store's name instead of each "{store}". */
static const char *name_lock(struct postern__config *config,
		const struct postern__config_store *store, const char *option,
		const char *text) {
	static const char hole[] = "{store}";
	struct postern__buf buf;
	const char *name = NULL;
	postern__buf_init(&buf, POSTERN_LOCK_NAME_LEN_MAX + 1);
	for (const char *at = strstr(text, hole); at; at = strstr(text, hole)) {
		postern__buf_append(&buf, text, (size_t)(at - text));
		postern__buf_append_text(&buf, store->name);
		text = at + sizeof hole - 1;
	}
	postern__buf_append_text(&buf, text);
	if (postern__buf_check(&buf, "the name", NULL) != POSTERN_OK ||
			buf.len > POSTERN_LOCK_NAME_LEN_MAX) {
		postern__config_mistake(config, &store->values, option,
				"a lock name must have 1 to %d bytes",
				POSTERN_LOCK_NAME_LEN_MAX);
	} else {
		name = postern__arena_strdup(&config->arena, postern__buf_text(&buf));
		config->mistakes.no_memory = config->mistakes.no_memory || !name;
	}
	postern__buf_finish(&buf);
	return name;
}

static void name_locks(struct postern__config *config,
		struct postern__config_store *store) {
	const struct postern__config_values *values = &store->values;
	store->lock_name = name_lock(config, store, "lock_name", values->lock_name);
	store->cleanup_lock_name = name_lock(config, store, "cleanup_lock_name",
			values->cleanup_lock_name);
	const char *nearer =
			postern__config_nearer(values, "cleanup_lock_name", "lock_name");
	if (nearer && store->lock_name && store->cleanup_lock_name &&
			strcmp(store->lock_name, store->cleanup_lock_name) == 0) {
		postern__config_mistake(config, values, nearer,
				"lock_name and cleanup_lock_name must differ");
	}
}

/* Whether the store of the values is known. */
static bool has_url(const struct postern__config_values *values) {
	return !postern__config_origin_of(values, "store")->bad;
}

/* A file has one owner, and this process cannot own it twice; in a schema the
   process would be two nodes, and log everything twice. */
static void check_places(struct postern__config *config, size_t index) {
	const struct postern__config_store *store = &config->stores[index];
	struct postern_store_options options;
	struct postern_store_options others;
	postern__config_store_options(store, &options);
	for (size_t i = 0; has_url(&store->values) && i < index; i++) {
		const struct postern__config_store *other = &config->stores[i];
		postern__config_store_options(other, &others);
		const char *place =
				has_url(&other->values)
						? postern__store_same_place(store->values.store,
								  &options, other->values.store, &others)
						: NULL;
		char file[POSTERN__STORE_FILE_MAX];
		bool is_file = postern__store_file(store->values.store, file);
		if (place) {
			postern__config_mistake(config, &store->values, "store",
					"the stores '%s' and '%s' are in the same %s, '%.80s'",
					other->name, store->name, place,
					is_file ? file : store->values.schema);
		}
	}
}

bool postern__config_setting_given(const struct postern__config_values *values,
		const char *name) {
	const struct postern__config_origin *origin =
			postern__config_origin_of(values, name);
	return origin->source != POSTERN__CONFIG_DEFAULT && !origin->bad &&
		   (origin->source != POSTERN__CONFIG_FILE ||
				   origin->level != POSTERN__LEVEL_GLOBAL ||
				   !postern__option_is_fallback(postern__option_named(name),
						   values));
}

/* Refuse a setting that a store does not have, or that contradicts its URL. A
   setting for all stores applies to those that have it; at least one must.
   `only` returns a store's options with no other setting. */
static void check_setting(struct postern__config *config, const char *name,
		struct postern_store_options (*only)(
				const struct postern__config_values *values)) {
	const struct postern__config_store *lacks = NULL;
	struct postern_error error;
	bool concerns = false;
	for (size_t i = 0; i < config->store_count; i++) {
		const struct postern__config_values *values = &config->stores[i].values;
		struct postern_store_options options = only(values);
		options.size = sizeof options;
		bool set = options.schema || options.connections || options.listen_url;
		if (!set || !has_url(values) ||
				!postern__config_setting_given(values, name)) {
			continue;
		}
		int r = postern__store_check(values->store, &options, &error);
		if (r == POSTERN_E_UNSUPPORTED &&
				postern__config_origin_of(values, name)->level ==
						POSTERN__LEVEL_GLOBAL) {
			lacks = &config->stores[i];
			continue;
		}
		concerns = true;
		if (r != POSTERN_OK) {
			postern__config_mistake(config, values, name, "%s", error.text);
		}
	}
	if (lacks && !concerns) {
		postern__config_mistake(config, &lacks->values, name, "%s", error.text);
	}
}

static struct postern_store_options only_schema(
		const struct postern__config_values *values) {
	return (struct postern_store_options){ .schema = values->schema };
}

static struct postern_store_options only_connections(
		const struct postern__config_values *values) {
	return (struct postern_store_options){ .connections = values->connections };
}

static struct postern_store_options only_listen_url(
		const struct postern__config_values *values) {
	return (struct postern_store_options){ .listen_url = values->listen_url };
}

void postern__config_stores_read(struct postern__config *config,
		const struct postern__yaml_node *node) {
	const struct postern__config_origin *origin = url_origin(&config->values);
	if (node && !postern__config_is_named(config, node)) {
		node = NULL;
	}
	size_t count = node ? node->count : 0;
	config->stores = postern__arena_array(&config->arena, count + 1,
			sizeof *config->stores);
	if (!config->stores) {
		config->mistakes.no_memory = true;
		return;
	}
	bool has_default = count == 0 || config->store_line > 0;
	if (has_default) {
		config->stores[config->store_count++] = (struct postern__config_store){
			.name = POSTERN__STORE_DEFAULT,
			.line = origin->line,
			.column = origin->column,
			.values = config->values,
		};
	}
	if (node) {
		read_all(config, node);
	}
	if (!has_default && origin->source != POSTERN__CONFIG_DEFAULT) {
		override(config);
	}
	for (size_t i = 0; i < config->store_count; i++) {
		name_locks(config, &config->stores[i]);
		check_places(config, i);
	}
	check_setting(config, "schema", only_schema);
	check_setting(config, "connections", only_connections);
	check_setting(config, "listen_url", only_listen_url);
}

const struct postern__config_store *
postern__config_store_named(const struct postern__config *config,
		const char *name, const char **near_out) {
	const char *names[POSTERN__STORE_COUNT_MAX];
	for (size_t i = 0; i < config->store_count; i++) {
		if (strcmp(config->stores[i].name, name) == 0) {
			return &config->stores[i];
		}
		names[i] = config->stores[i].name;
	}
	if (near_out) {
		*near_out = postern__closest(name, names, config->store_count);
	}
	return NULL;
}

const struct postern__config_store *
postern__config_store_choose(struct postern__config *config,
		const struct postern__yaml_node *channel,
		const struct postern__yaml_node *node) {
	const char *name = POSTERN__STORE_DEFAULT;
	const char *near;
	if (!node && config->store_count == 1) {
		return &config->stores[0];
	}
	if (node && !(name = postern__config_text_read(config, node))) {
		return NULL;
	}
	const struct postern__config_store *store =
			postern__config_store_named(config, name, &near);
	if (!store && !node) {
		postern__mistakes_add(&config->mistakes, &channel->key_place,
				"channel '%.60s' needs 'store: NAME': there are several "
				"stores, and none is named 'default'",
				channel->key);
	} else if (!store) {
		bool only = !near && config->store_count == 1;
		near = only ? config->stores[0].name : near;
		postern__mistakes_add(&config->mistakes, &node->place,
				"no store '%.60s'%s%s%s", name,
				only   ? ", only '"
				: near ? "; did you mean '"
					   : "",
				near ? near : "",
				only   ? "'"
				: near ? "'?"
					   : "");
	}
	return store;
}

int postern__config_store_fail(const struct postern__config *config,
		const struct postern__config_store *store, int code,
		struct postern_error *error) {
	if (error && config->store_count > 1) {
		(void)postern__fail(error, code, "store '%s': %s", store->name,
				error->text);
	}
	return code;
}
