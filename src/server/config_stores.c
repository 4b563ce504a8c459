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
#include "server/config_yaml.h"
#include "server/store_open.h"
#include "store/store.h"

static const struct postern_option *store_option(void) {
	return postern__option_named("store");
}

static struct postern__config_origin *origin_of(
		struct postern__config_values *values) {
	return &values->origins[postern__option_index(store_option())];
}

static int check_name(const struct postern__yaml_node *node,
		struct postern_error *error) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
								  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	const size_t alphabet = 52; /* the characters that a name may begin with */
	const char *first = node->key[0] ? strchr(letters, node->key[0]) : NULL;
	size_t len = strlen(node->key);
	if (first && first < letters + alphabet &&
			len <= POSTERN__STORE_NAME_LEN_MAX &&
			strspn(node->key, letters) == len) {
		return POSTERN_OK;
	}
	return postern__yaml_fail(error, &node->key_place,
			"invalid store name '%.80s'; use 1 to %d letters, digits, '-', "
			"'_', '.', a letter first",
			node->key, POSTERN__STORE_NAME_LEN_MAX);
}

static int read_url(struct postern__config *config,
		const struct postern__yaml_node *node, bool is_file,
		struct postern__config_values *values, struct postern_error *error) {
	const struct postern__config_origin origin = {
		.source = POSTERN__CONFIG_FILE,
		.level = POSTERN__LEVEL_STORE,
		.line = node->place.line,
		.column = node->place.column,
	};
	const char *text;
	int r = postern__config_text_read(config, node, &text, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__config_option_put(config, store_option(), is_file, text,
			&origin, values, error);
	if (r != POSTERN_OK && error) {
		(void)postern__fail(error, r, "%s: %s", node->key, error->text);
	}
	return r == POSTERN_OK ? r : postern__yaml_fail_at(error, r, &node->place);
}

/* One entry of `stores`. */
static int read_store(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_store *store, struct postern_error *error) {
	struct postern__config_parts parts;

	store->name = node->key;
	store->line = node->key_place.line;
	store->column = node->key_place.column;
	store->values = config->values;
	*origin_of(&store->values) = (struct postern__config_origin){ 0 };
	int r = check_name(node, error);
	if (r == POSTERN_OK) {
		r = postern__config_section_read(config, node, POSTERN__IN_STORE,
				POSTERN__LEVEL_STORE, &store->values, &parts, error);
	}
	for (int i = 0; r == POSTERN_OK && i < 2; i++) {
		const struct postern__yaml_node *url =
				parts.nodes[i == 0 ? POSTERN__PART_URL
								   : POSTERN__PART_URL_FILE];
		if (url) {
			r = read_url(config, url, i == 1, &store->values, error);
		}
	}
	if (r == POSTERN_OK &&
			origin_of(&store->values)->source != POSTERN__CONFIG_FILE) {
		r = postern__yaml_fail(error, &node->key_place,
				"store '%.60s' has no 'url'", node->key);
	}
	if (r == POSTERN_OK) {
		r = postern__config_timeout_check(config, &store->values, false, error);
	}
	return r;
}

/* A text with the store's name instead of each "{store}". */
static int put_name(struct postern__config *config, const char *text,
		const char *name, const char **out, struct postern_error *error) {
	static const char hole[] = "{store}";
	struct postern__buf buf;
	int r = POSTERN_OK;
	postern__buf_init(&buf, POSTERN__CONFIG_BYTES_MAX);
	for (const char *at = strstr(text, hole); at; at = strstr(text, hole)) {
		postern__buf_append(&buf, text, (size_t)(at - text));
		postern__buf_append_text(&buf, name);
		text = at + sizeof hole - 1;
	}
	postern__buf_append_text(&buf, text);
	if (postern__buf_check(&buf, "the name", error) != POSTERN_OK ||
			buf.len > POSTERN_LOCK_NAME_LEN_MAX) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"a lock name must have 1 to %d bytes",
				POSTERN_LOCK_NAME_LEN_MAX);
	}
	if (r == POSTERN_OK) {
		*out = postern__arena_strdup(&config->arena, postern__buf_text(&buf));
		r = *out ? r : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	postern__buf_finish(&buf);
	return r;
}

static int name_locks(struct postern__config *config,
		struct postern__config_store *store, struct postern_error *error) {
	const struct {
		const char *option;
		const char *text;
		const char **out;
	} locks[] = {
		{ "lock_name", store->values.lock_name, &store->lock_name },
		{ "cleanup_lock_name", store->values.cleanup_lock_name,
				&store->cleanup_lock_name },
	};
	for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
		const struct postern_option *option =
				postern__option_named(locks[i].option);
		int r = put_name(config, locks[i].text, store->name, locks[i].out,
				error);
		if (r != POSTERN_OK) {
			return postern__config_fail_at(config, option,
					&store->values.origins[postern__option_index(option)], r,
					error);
		}
	}
	if (strcmp(store->lock_name, store->cleanup_lock_name) != 0) {
		return POSTERN_OK;
	}
	(void)postern__fail(error, POSTERN_E_INVALID,
			"lock_name and cleanup_lock_name must differ");
	return postern__config_fail_nearer(config, &store->values,
			"cleanup_lock_name", "lock_name", error);
}

static int read_all(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_store *stores, struct postern_error *error) {
	for (const struct postern__yaml_node *entry = node ? node->first : NULL;
			entry; entry = entry->next) {
		if (config->store_line > 0 &&
				strcmp(entry->key, POSTERN__STORE_DEFAULT) == 0) {
			return postern__yaml_fail(error, &entry->key_place,
					"the store 'default' is configured twice: 'store' (line "
					"%u) is short for it",
					config->store_line);
		}
		if (config->store_count == POSTERN__STORE_COUNT_MAX) {
			return postern__yaml_fail(error, &entry->key_place,
					"more than %d stores", POSTERN__STORE_COUNT_MAX);
		}
		int r = read_store(config, entry, &stores[config->store_count++],
				error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return POSTERN_OK;
}

/* A flag or a variable sets the URL, and `store` is not in the file. */
static int override(struct postern__config *config,
		struct postern__config_store *stores, struct postern_error *error) {
	const struct postern__config_origin *origin = origin_of(&config->values);
	struct postern__config_store *store =
			config->store_count == 1 ? &stores[0] : NULL;

	for (size_t i = 0; i < config->store_count; i++) {
		if (strcmp(stores[i].name, POSTERN__STORE_DEFAULT) == 0) {
			store = &stores[i];
		}
	}
	if (!store) {
		(void)postern__fail(error, POSTERN_E_INVALID,
				"the file has several stores and none is named 'default', so "
				"this URL has no store to apply to");
		return postern__config_fail_at(config, store_option(), origin,
				POSTERN_E_INVALID, error);
	}
	store->values.store = config->values.store;
	*origin_of(&store->values) = *origin;
	return POSTERN_OK;
}

/* The options that a store is opened with, as far as they name its place. */
static struct postern_store_options place_options(
		const struct postern__config_store *store) {
	struct postern_box_options box;
	postern__config_box_options(store, &box);
	return (struct postern_store_options){
		.size = sizeof(struct postern_store_options),
		.schema = box.schema
	};
}

/* A file has one owner, and this process cannot own it twice; in a schema the
   process would be two nodes, and log everything twice. */
static int check_places(const struct postern__config *config,
		struct postern__config_store *stores, struct postern_error *error) {
	for (size_t i = 1; i < config->store_count; i++) {
		struct postern__config_values *values = &stores[i].values;
		const char *file = postern__store_file(values->store);
		const struct postern_store_options options = place_options(&stores[i]);
		for (size_t n = 0; n < i; n++) {
			const struct postern_store_options other =
					place_options(&stores[n]);
			const char *place = postern__store_same_place(values->store,
					&options, stores[n].values.store, &other);
			if (place) {
				(void)postern__fail(error, POSTERN_E_INVALID,
						"the stores '%s' and '%s' are in the same %s, '%.80s'",
						stores[n].name, stores[i].name, place,
						file ? file : values->schema);
				return postern__config_fail_at(config, store_option(),
						origin_of(values), POSTERN_E_INVALID, error);
			}
		}
	}
	return POSTERN_OK;
}

bool postern__config_setting_given(const struct postern__config_values *values,
		const char *name) {
	const struct postern_option *option = postern__option_named(name);
	const struct postern__config_origin *origin =
			&values->origins[postern__option_index(option)];
	if (origin->source != POSTERN__CONFIG_FILE ||
			origin->level != POSTERN__LEVEL_GLOBAL) {
		return origin->source != POSTERN__CONFIG_DEFAULT;
	}
	return !postern__option_is_fallback(option, values);
}

/* Options with one of the settings of PostgreSQL. False: it was not set. */
static bool read_setting(const struct postern__config_values *values,
		const struct postern_option *option,
		struct postern_store_options *out) {
	*out = (struct postern_store_options){ .size = sizeof *out };
	if (!postern__config_setting_given(values, option->name)) {
		return false;
	}
	if (strcmp(option->name, "schema") == 0) {
		out->schema = values->schema;
	} else if (strcmp(option->name, "connections") == 0) {
		out->connections = values->connections;
	} else if (strcmp(option->name, "listen_url") == 0) {
		out->listen_url = values->listen_url;
	}
	return out->schema || out->connections || out->listen_url;
}

/* Refuse a setting that a store does not have, or that contradicts its URL. A
   setting for all stores applies to those that have it; at least one must. */
static int check_setting(const struct postern__config *config,
		const struct postern_option *option, struct postern_error *error) {
	struct postern_store_options options;
	const struct postern__config_store *lacks = NULL;
	bool concerns = false;
	for (size_t i = 0; i < config->store_count; i++) {
		const struct postern__config_store *store = &config->stores[i];
		const struct postern__config_origin *origin =
				&store->values.origins[postern__option_index(option)];
		if (!read_setting(&store->values, option, &options)) {
			continue;
		}
		int r = postern__store_check(store->values.store, &options, error);
		if (r == POSTERN_E_UNSUPPORTED &&
				origin->level == POSTERN__LEVEL_GLOBAL) {
			lacks = store;
			continue;
		}
		if (r != POSTERN_OK) {
			r = r == POSTERN_E_UNSUPPORTED ? POSTERN_E_INVALID : r;
			return postern__config_fail_at(config, option, origin, r, error);
		}
		concerns = true;
	}
	return lacks && !concerns
				   ? postern__config_fail_at(config, option,
							 &lacks->values
									  .origins[postern__option_index(option)],
							 POSTERN_E_INVALID, error)
				   : POSTERN_OK;
}

static int check_settings(const struct postern__config *config,
		struct postern_error *error) {
	static const char *const names[] = { "schema", "connections",
		"listen_url" };
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < sizeof names / sizeof names[0];
			i++) {
		r = check_setting(config, postern__option_named(names[i]), error);
	}
	return r;
}

int postern__config_stores_read(struct postern__config *config,
		const struct postern__yaml_node *node, struct postern_error *error) {
	const struct postern__config_origin *origin = origin_of(&config->values);
	if (node && node->kind != POSTERN__YAML_MAPPING &&
			!postern__yaml_empty(node)) {
		return postern__yaml_fail(error, &node->place,
				"'stores' must be a mapping of names, not %s",
				postern__yaml_kind_name(node));
	}
	size_t count = node ? node->count : 0;
	struct postern__config_store *stores =
			postern__arena_array(&config->arena, count + 1, sizeof *stores);
	if (!stores) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	config->stores = stores;
	bool has_default = count == 0 || config->store_line > 0;
	if (has_default) {
		stores[config->store_count++] = (struct postern__config_store){
			.name = POSTERN__STORE_DEFAULT,
			.line = origin->line,
			.column = origin->column,
			.values = config->values,
		};
	}
	int r = read_all(config, node, stores, error);
	if (r == POSTERN_OK && !has_default &&
			origin->source != POSTERN__CONFIG_DEFAULT) {
		r = override(config, stores, error);
	}
	for (size_t i = 0; r == POSTERN_OK && i < config->store_count; i++) {
		r = name_locks(config, &stores[i], error);
	}
	if (r == POSTERN_OK) {
		r = check_places(config, stores, error);
	}
	return r == POSTERN_OK ? check_settings(config, error) : r;
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

int postern__config_store_choose(struct postern__config *config,
		const struct postern__yaml_node *channel,
		const struct postern__yaml_node *node,
		const struct postern__config_store **out, struct postern_error *error) {
	const char *name = POSTERN__STORE_DEFAULT;
	const char *near;

	if (!node && config->store_count == 1) {
		*out = &config->stores[0];
		return POSTERN_OK;
	}
	if (node) {
		int r = postern__config_text_read(config, node, &name, error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	*out = postern__config_store_named(config, name, &near);
	if (*out) {
		return POSTERN_OK;
	}
	if (!node) {
		return postern__yaml_fail(error, &channel->key_place,
				"channel '%.60s' needs 'store: NAME': there are several "
				"stores, and none is named 'default'",
				channel->key);
	}
	if (near) {
		return postern__yaml_fail(error, &node->place,
				"no store '%.60s'; did you mean '%s'?", name, near);
	}
	if (config->store_count == 1) {
		return postern__yaml_fail(error, &node->place,
				"no store '%.60s', only '%s'", name, config->stores[0].name);
	}
	return postern__yaml_fail(error, &node->place, "no store '%.60s'", name);
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
