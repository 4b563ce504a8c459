/* SPDX-License-Identifier: MIT */
/*
 * The part of a handler's section that depends on its kind. Nothing here knows
 * any kind: the key is the name of a row, the value is a mapping of the row's
 * options, or the value of the first one alone.
 */

#include "server/config_section.h"

#include <inttypes.h>
#include <postern/sys/handler.h>
#include <postern/sys/option.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/option.h"
#include "base/text.h"
#include "core/box.h"
#include "handler/kinds.h"
#include "server/config_options.h"
#include "server/config_path.h"
#include "server/store_open.h"
#include "store/store.h"

static const struct postern_handler_kind *kind_named(const char *name) {
	const struct postern_handler_kind *kind = postern__kind_find(name);
	return kind && kind->option_count > 0 ? kind : NULL;
}

const struct postern_handler_kind *
postern__config_kind_of(const struct postern__yaml_node *entry,
		const struct postern__yaml_node **options_out) {
	char name[2 * POSTERN_HANDLER_KIND_NAME_LEN_MAX + 2];
	const struct postern_handler_kind *kind = kind_named(entry->key);
	if (options_out) {
		*options_out = entry;
	}
	if (kind || entry->kind != POSTERN__YAML_MAPPING || entry->count != 1 ||
			strlen(entry->key) > POSTERN_HANDLER_KIND_NAME_LEN_MAX ||
			strlen(entry->first->key) > POSTERN_HANDLER_KIND_NAME_LEN_MAX) {
		return kind;
	}
	(void)snprintf(name, sizeof name, "%.*s_%.*s",
			POSTERN_HANDLER_KIND_NAME_LEN_MAX, entry->key,
			POSTERN_HANDLER_KIND_NAME_LEN_MAX, entry->first->key);
	if (options_out) {
		*options_out = entry->first;
	}
	return kind_named(name);
}

/* Whether the kind has an option of this name that is written beside it. */
static bool is_beside(const struct postern_handler_kind *kind,
		const char *name) {
	bool found = false;
	for (size_t i = 0; !found && i < kind->option_count; i++) {
		found = (kind->options[i].flags & POSTERN_OPTION_BESIDE) &&
				strcmp(kind->options[i].name, name) == 0;
	}
	return found;
}

bool postern__config_kind_begins(const char *name) {
	const struct postern_handler_kind *kind;
	size_t len = strlen(name);
	for (size_t i = 0; (kind = postern__kind_at(i)); i++) {
		if (strncmp(kind->name, name, len) == 0 && kind->name[len] == '_') {
			return true;
		}
	}
	return false;
}

#define PUBLISH "publish"

bool postern__config_is_beside(const char *name) {
	const struct postern_handler_kind *kind;
	bool found = false;
	for (size_t i = 0; !found && (kind = postern__kind_at(i)); i++) {
		found = is_beside(kind, name);
	}
	return found;
}

/* As a configuration names it: 'publish' for publish_channel. */
static const char *key_of_kind(const struct postern_handler_kind *kind) {
	return strncmp(kind->name, PUBLISH "_", sizeof PUBLISH) == 0 ? PUBLISH
																 : kind->name;
}

void postern__config_list_kinds(char *out, size_t size) {
	const struct postern_handler_kind *kind;
	const char *names[POSTERN_HANDLER_KIND_COUNT_MAX + 8];
	size_t count = 0;
	size_t len = 0;
	for (size_t i = 0; (kind = postern__kind_at(i)); i++) {
		size_t n = 0;
		while (n < count && strcmp(names[n], key_of_kind(kind)) != 0) {
			n++;
		}
		if (kind->option_count > 0 && n == count) {
			names[count++] = key_of_kind(kind);
		}
	}
	out[0] = '\0';
	for (size_t i = 0; i < count && len < size; i++) {
		len += (size_t)snprintf(out + len, size - len, "%s'%s'",
				i == 0          ? ""
				: i + 1 < count ? ", "
								: " or ",
				names[i]);
	}
}

/* The relative paths of a file start at its directory. */
static int resolve_paths(struct postern__config *config,
		const struct postern_option *option, const char *const *texts,
		size_t count, const char *const **out, struct postern_error *error) {
	int r = POSTERN_OK;
	*out = texts;
	if (!(option->flags & POSTERN_OPTION_PATH)) {
		return r;
	}
	const char **resolved =
			postern__arena_array(&config->arena, count, sizeof *resolved);
	for (size_t i = 0; resolved && !r && i < count; i++) {
		resolved[i] = texts[i];
		r = postern__config_path_resolve(config->base, POSTERN__CONFIG_FILE, 0,
				&config->arena, &resolved[i], error);
	}
	*out = resolved;
	return resolved ? r
					: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

/* A mapping as texts "NAME=value"; mistakes of a value are reported. */
static int read_pairs(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_option *option, void *settings,
		struct postern_error *error) {
	const char **pairs = postern__arena_array(&config->arena, node->count + 1,
			sizeof *pairs);
	size_t count = 0;
	if (node->kind != POSTERN__YAML_MAPPING || node->count > option->max) {
		return postern__fail(error, POSTERN_E_INVALID,
				"must be a mapping of at most %" PRIu64 " entries, as in %s",
				option->max, option->form ? option->form : "{NAME: value}");
	}
	for (const struct postern__yaml_node *entry = node->first; pairs && entry;
			entry = entry->next) {
		const char *text = postern__config_text_read(config, entry);
		size_t size = strlen(entry->key) + (text ? strlen(text) : 0) + 2;
		char *pair = postern__arena_alloc(&config->arena, size);
		if (!pair) {
			return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
		(void)snprintf(pair, size, "%s=%s", entry->key, text ? text : "");
		pairs[count++] = pair;
	}
	return pairs ? postern__option_set_list(option, pairs, count, settings,
						   &config->arena, error)
				 : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

static void read_value(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_option *option, void *settings) {
	struct postern_error error;
	const char *const *texts;
	const char *text;
	size_t count;
	int r = POSTERN_OK;
	if (option->flags & POSTERN_OPTION_PAIRS) {
		r = read_pairs(config, node, option, settings, &error);
	} else if (option->type == POSTERN_OPTION_TEXTS &&
			   node->kind != POSTERN__YAML_LIST) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"'%s' must be a list: %s", node->key,
				option->form ? option->form : "[a, b]");
	} else if (node->kind == POSTERN__YAML_LIST &&
			   (option->type == POSTERN_OPTION_TEXTS ||
					   option->type == POSTERN_OPTION_DURATIONS)) {
		if (postern__config_list_read(config, node,
					option->type == POSTERN_OPTION_TEXTS
							? (size_t)option->max
							: POSTERN_OPTION_DURATION_COUNT_MAX,
					&texts, &count)) {
			r = resolve_paths(config, option, texts, count, &texts, &error);
			r = r ? r
				  : postern__option_set_list(option, texts, count, settings,
							&config->arena, &error);
		}
	} else if ((text = postern__config_text_read(config, node))) {
		r = resolve_paths(config, option, &text, 1, &texts, &error);
		r = r ? r
			  : postern__option_set(option, texts[0], settings, &config->arena,
						&error);
	}
	if (r != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, node->key,
				&error);
	}
}

static const struct postern_option *
find_option(const struct postern_handler_kind *kind, const char *name,
		size_t *index_out) {
	for (size_t i = 0; i < kind->option_count; i++) {
		if (strcmp(kind->options[i].name, name) == 0) {
			*index_out = i;
			return &kind->options[i];
		}
	}
	return NULL;
}

static void report_unknown(struct postern__config *config,
		const struct postern_handler_kind *kind,
		const struct postern__yaml_node *entry) {
	const char *names[POSTERN_HANDLER_KIND_OPTION_COUNT_MAX];
	for (size_t i = 0; i < kind->option_count; i++) {
		names[i] = kind->options[i].name;
	}
	const char *near = postern__closest(entry->key, names, kind->option_count);
	postern__mistakes_add(&config->mistakes, &entry->key_place,
			"unknown key '%.60s' in '%s'%s%s%s", entry->key, kind->name,
			near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* "pull:" without a value, where every option has a default. False: not so. */
static bool report_empty(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_handler_kind *kind) {
	bool required = false;
	for (size_t i = 0; i < kind->option_count; i++) {
		required =
				required || (kind->options[i].flags & POSTERN_OPTION_REQUIRED);
	}
	if (required || !postern__yaml_empty(node)) {
		return false;
	}
	postern__mistakes_add(&config->mistakes, &node->place,
			"%s has no value; write {} for its defaults", node->key);
	return true;
}

/* The options of a handler, by its kind's rows. */
static void read_options(struct postern__config *config,
		const struct postern__yaml_node *section,
		const struct postern__yaml_node *node,
		const struct postern_handler_kind *kind, void *settings) {
	bool given[POSTERN_HANDLER_KIND_OPTION_COUNT_MAX] = { 0 };
	size_t index = 0;
	bool several = postern__kind_has_mapping(kind) &&
				   node->kind == POSTERN__YAML_MAPPING;
	if (report_empty(config, node, kind)) {
		return;
	}
	if (!several) {
		given[0] = true;
		read_value(config, node, &kind->options[0], settings);
	}
	for (const struct postern__yaml_node *entry = node->first; several && entry;
			entry = entry->next) {
		const struct postern_option *option =
				find_option(kind, entry->key, &index);
		if (option && !(option->flags & POSTERN_OPTION_BESIDE)) {
			given[index] = true;
			read_value(config, entry, option, settings);
		} else {
			report_unknown(config, kind, entry);
		}
	}
	for (const struct postern__yaml_node *entry = section->first; entry;
			entry = entry->next) {
		const struct postern_option *option =
				find_option(kind, entry->key, &index);
		if (option && (option->flags & POSTERN_OPTION_BESIDE)) {
			given[index] = true;
			read_value(config, entry, option, settings);
		}
	}
	for (size_t i = 0; i < kind->option_count; i++) {
		if ((kind->options[i].flags & POSTERN_OPTION_REQUIRED) && !given[i]) {
			postern__mistakes_add(&config->mistakes, &node->key_place,
					"'%s' needs '%s': %s", kind->name, kind->options[i].name,
					kind->options[i].help ? kind->options[i].help
										  : "it has no default");
		}
	}
}

void postern__config_handler_setup(const struct postern__config_handler
										   *handler,
		struct postern_handler_setup *out) {
	const struct postern_store_kind *store =
			postern__store_kind_of(handler->values.store, NULL);
	*out = (struct postern_handler_setup){
		.size = sizeof *out,
		.kind = handler->kind,
		.key = handler->key,
		.settings = handler->settings,
		.dialect = store ? store->ops->dialect : POSTERN_SQL_NONE,
	};
}

/* Whether the settings can be validated. A store that does not support the kind
   is reported by postern__config_check(); of an unknown store the dialect is
   unknown, too. */
static bool can_validate(const struct postern__config_handler *handler) {
	return !handler->kind->transactional ||
		   (!postern__config_origin_of(&handler->values, "store")->bad &&
				   postern__store_is_transactional(handler->values.store));
}

static void read_settings(struct postern__config *config,
		const struct postern__yaml_node *section,
		const struct postern__yaml_node *node,
		const struct postern_handler_kind *kind,
		struct postern__config_handler *handler) {
	struct postern_handler_setup setup;
	struct postern_error error;
	size_t before = config->mistakes.count;
	void *settings = postern__arena_alloc(&config->arena, kind->settings_size);
	/* The fallbacks were validated with the row, so memory is exhausted. */
	if (!settings ||
			postern__option_set_fallbacks(kind->options, kind->option_count,
					settings, &config->arena, &error) != POSTERN_OK) {
		config->mistakes.no_memory = true;
		return;
	}
	handler->kind = kind;
	handler->settings = settings;
	read_options(config, section, node, kind, settings);
	if (config->mistakes.count > before || !can_validate(handler)) {
		return;
	}
	postern__config_handler_setup(handler, &setup);
	if (postern__kind_validate(&setup, &error) != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, kind->name,
				&error);
	}
}

/* Where an option that its kind has a default for was set; NULL: somewhere, so
   that the default does not apply. */
static struct postern__config_origin *
find_unset(struct postern__config_values *values, const char *name) {
	struct postern__config_origin *origin =
			&values->origins[postern__option_index(
					postern__option_named(name))];
	return origin->source == POSTERN__CONFIG_DEFAULT ? origin : NULL;
}

/* Take the defaults of the kind where they differ from those of all kinds. */
static void take_defaults(const struct postern_handler_kind *kind,
		struct postern__config_values *values) {
	const struct postern__config_origin by_kind = {
		.source = POSTERN__CONFIG_KIND,
		.level = POSTERN__LEVEL_HANDLER,
	};
	struct postern__config_origin *origin;
	struct postern_policy policy;
	postern_policy_init(&policy);
	postern__policy_complete(&policy, kind, kind->transactional);
	if (values->timeout_ms == POSTERN_TIMEOUT_DEFAULT) {
		values->timeout_ms = policy.timeout_ms;
		if ((origin = find_unset(values, "timeout")) && policy.timeout_ms > 0) {
			*origin = by_kind;
		}
	}
	if ((origin = find_unset(values, "max_attempts")) &&
			values->max_attempts != policy.max_attempts) {
		values->max_attempts = policy.max_attempts;
		*origin = by_kind;
	}
	if ((origin = find_unset(values, "concurrency")) &&
			values->concurrency != policy.concurrency) {
		values->concurrency = policy.concurrency;
		*origin = by_kind;
	}
	if ((origin = find_unset(values, "backoff")) && policy.backoff_count > 0) {
		values->backoff_ms = policy.backoff_ms;
		values->backoff_count = policy.backoff_count;
		*origin = by_kind;
	}
}

/* What the former kind had a default for. */
static bool unset_default(struct postern__config_values *values,
		const char *name) {
	struct postern__config_origin *origin =
			&values->origins[postern__option_index(
					postern__option_named(name))];
	bool by_kind = origin->source == POSTERN__CONFIG_KIND;
	if (by_kind) {
		origin->source = POSTERN__CONFIG_DEFAULT;
	}
	return by_kind;
}

void postern__config_kind_change(struct postern__config *config,
		struct postern__config_handler *handler,
		const struct postern_handler_kind *kind) {
	struct postern__config_values *values = &handler->values;
	handler->kind = kind;
	bool timeout = unset_default(values, "timeout");
	if (timeout) {
		values->timeout_ms = POSTERN_TIMEOUT_DEFAULT;
	}
	(void)unset_default(values, "max_attempts");
	(void)unset_default(values, "concurrency");
	if (unset_default(values, "backoff")) {
		values->backoff_count = 0;
	}
	take_defaults(kind, values);
	if (timeout) {
		postern__config_timeout_check(config, values, kind);
	}
}

/* Report options of other kinds beside this one. */
static void check_beside(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_handler_kind *kind) {
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		if (postern__config_is_beside(entry->key) &&
				!is_beside(kind, entry->key)) {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"'%s' is not an option of handlers of the kind '%s'",
					entry->key, kind->name);
		}
	}
}

void postern__config_kind_read(struct postern__config *config,
		const struct postern__yaml_node *node, bool complete,
		struct postern__config_handler *handler) {
	const struct postern_handler_kind *first = NULL;
	char names[POSTERN_ERROR_TEXT_MAX / 2];
	for (const struct postern__yaml_node *entry = node->first;
			node->kind == POSTERN__YAML_MAPPING && entry; entry = entry->next) {
		const struct postern__yaml_node *options;
		const struct postern_handler_kind *kind =
				postern__config_kind_of(entry, &options);
		if (kind && first) {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"handler '%.60s' has two kinds, '%s' and '%s'; remove one",
					node->key, first->name, kind->name);
		}
		if (kind) {
			first = first ? first : kind;
			read_settings(config, node, options, kind, handler);
		}
	}
	if (!first && complete) {
		postern__config_list_kinds(names, sizeof names);
		postern__mistakes_add(&config->mistakes, &node->key_place,
				"handler '%.60s' has no kind; add %s", node->key, names);
	}
	if (first) {
		take_defaults(first, &handler->values);
		check_beside(config, node, first);
	}
}
