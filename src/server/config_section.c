/* SPDX-License-Identifier: MIT */
/*
 * One mapping of the file: the top level, `defaults`, a store, a channel or a
 * handler. All are read in the same way: a key is a part (a section of its own,
 * left to the caller), an option of the table, or unknown, which is reported
 * with the closest name.
 */

#include "server/config_section.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/text.h"
#include "server/config_expand.h"
#include "server/config_file.h"
#include "server/config_options.h"
#include "server/config_path.h"
#include "server/config_yaml.h"

/* Variables could multiply the size of a file of 1 MiB; that is refused. */
#define MEMORY_BYTES_MAX ((size_t)64 * 1024 * 1024)

/* Flags of parts: known, but must be empty; or not even that. */
#define LATER 1U
#define NEVER 2U

static const struct part {
	const char *name;
	unsigned scope;
	unsigned flags;
} parts[POSTERN__PART_COUNT] = {
	[POSTERN__PART_DEFAULTS] = { "defaults", POSTERN__IN_ROOT, 0 },
	[POSTERN__PART_STORES] = { "stores", POSTERN__IN_ROOT, 0 },
	[POSTERN__PART_CHANNELS] = { "channels", POSTERN__IN_ROOT, 0 },
	[POSTERN__PART_AUTH] = { "auth", POSTERN__IN_ROOT, LATER },
	[POSTERN__PART_URL] = { "url", POSTERN__IN_STORE, 0 },
	[POSTERN__PART_URL_FILE] = { "url_file", POSTERN__IN_STORE, 0 },
	[POSTERN__PART_STORE] = { "store", POSTERN__IN_CHANNEL, 0 },
	[POSTERN__PART_SOURCES] = { "sources", POSTERN__IN_CHANNEL, LATER },
	[POSTERN__PART_HANDLERS] = { "handlers", POSTERN__IN_CHANNEL, 0 },
	[POSTERN__PART_TYPES] = { "types", POSTERN__IN_HANDLER, 0 },
	[POSTERN__PART_LEGACY_KEYS] = { "legacy_keys", POSTERN__IN_HANDLER, 0 },
	[POSTERN__PART_SQL] = { "sql", POSTERN__IN_HANDLER, 0 },
	[POSTERN__PART_EXEC] = { "exec", POSTERN__IN_HANDLER, 0 },
	[POSTERN__PART_WEBHOOK] = { "webhook", POSTERN__IN_HANDLER, NEVER },
	[POSTERN__PART_PUBLISH] = { "publish", POSTERN__IN_HANDLER, NEVER },
	[POSTERN__PART_PLUGIN] = { "plugin", POSTERN__IN_HANDLER, NEVER },
};

/* The meaning of a key. */
struct meaning {
	const struct postern_option *option;
	bool is_file; /* the option's NAME_file */
	bool group;   /* "retention": its options have dots */
	unsigned scopes;
};

static bool is_group(const char *name, unsigned *scopes_out) {
	size_t len = strlen(name);
	const struct postern_option *option;
	*scopes_out = 0;
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if (strncmp(option->name, name, len) == 0 && option->name[len] == '.') {
			*scopes_out |= option->places;
		}
	}
	return *scopes_out != 0;
}

static struct meaning find_meaning(const char *name) {
	struct meaning meaning = { .option = postern__option_named(name) };
	char stem[64];
	size_t len = strlen(name);

	if (!meaning.option && len > 5 && len < sizeof stem &&
			strcmp(name + len - 5, "_file") == 0) {
		(void)snprintf(stem, sizeof stem, "%.*s", (int)len - 5, name);
		meaning.option = postern__option_named(stem);
		meaning.is_file = meaning.option != NULL;
		if (meaning.option &&
				!(meaning.option->flags & POSTERN_OPTION_SECRET)) {
			meaning.option = NULL;
		}
	}
	/* "retention.payload" is not a key; "payload" inside "retention" is. */
	if (meaning.option && strchr(name, '.')) {
		meaning.option = NULL;
	}
	if (meaning.option) {
		meaning.scopes = meaning.option->places;
	} else {
		meaning.group = is_group(name, &meaning.scopes);
	}
	return meaning;
}

static const char *scope_name(unsigned scope) {
	switch (scope) {
	case POSTERN__IN_ROOT: return "at the top level";
	case POSTERN__IN_DEFAULTS: return "in 'defaults'";
	case POSTERN__IN_STORE: return "in a store";
	case POSTERN__IN_CHANNEL: return "in a channel";
	default: return "in a handler";
	}
}

static const char *find_near(const char *name, unsigned scope) {
	const char
			*names[POSTERN__CONFIG_OPTION_COUNT_MAX + POSTERN__PART_COUNT + 3];
	const struct postern_option *option;
	size_t count = 0;

	for (size_t i = 0; i < POSTERN__PART_COUNT; i++) {
		if (parts[i].scope == scope) {
			names[count++] = parts[i].name;
		}
	}
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if ((option->places & scope) && !strchr(option->name, '.')) {
			names[count++] = option->name;
		}
	}
	if (scope == POSTERN__IN_ROOT) {
		names[count++] = "store_file";
	}
	if (scope &
			(POSTERN__IN_DEFAULTS | POSTERN__IN_STORE | POSTERN__IN_CHANNEL)) {
		names[count++] = "retention";
	}
	if (scope & (POSTERN__IN_DEFAULTS | POSTERN__IN_STORE)) {
		names[count++] = "listen_url_file";
	}
	return postern__closest(name, names, count);
}

/* "retention.payload", the name in tables and flags, is a key in a mapping. */
static int fail_dotted(const struct postern__yaml_node *entry, unsigned scope,
		const struct postern_option *option, struct postern_error *error) {
	const char *dot = strchr(option->name, '.');
	char places[128];
	postern__option_places(option->places, places, sizeof places);
	return postern__yaml_fail(error, &entry->key_place,
			"'%s' must be written as '%.*s: {%s: %.40s}'%s%s", option->name,
			(int)(dot - option->name), option->name, dot + 1,
			entry->text && *entry->text ? entry->text : option->fallback,
			option->places & scope ? "" : ", and belongs to ",
			option->places & scope ? "" : places);
}

static int fail_unknown(const struct postern__yaml_node *entry, unsigned scope,
		const struct meaning *meaning, struct postern_error *error) {
	unsigned scopes = meaning->scopes;
	char places[128];

	for (size_t i = 0; i < POSTERN__PART_COUNT; i++) {
		if (strcmp(parts[i].name, entry->key) == 0) {
			scopes |= parts[i].scope;
		}
	}
	if (scopes) {
		postern__option_places(scopes, places, sizeof places);
		return postern__yaml_fail(error, &entry->key_place,
				"'%s' is not allowed %s; it belongs to %s", entry->key,
				scope_name(scope), places);
	}
	const struct postern_option *option = postern__option_named(entry->key);
	if (option && strchr(option->name, '.')) {
		return fail_dotted(entry, scope, option, error);
	}
	const char *near = find_near(entry->key, scope);
	if (near) {
		return postern__yaml_fail(error, &entry->key_place,
				"unknown key '%.60s' %s; did you mean '%s'?", entry->key,
				scope_name(scope), near);
	}
	return postern__yaml_fail(error, &entry->key_place,
			"unknown key '%.60s' %s", entry->key, scope_name(scope));
}

int postern__config_text_read(struct postern__config *config,
		const struct postern__yaml_node *node, const char **out,
		struct postern_error *error) {
	const char *what = node->key ? node->key : "an entry of the list";
	if (node->kind != POSTERN__YAML_SCALAR) {
		return postern__yaml_fail(error, &node->place,
				"%s must be one value, not %s", what,
				postern__yaml_kind_name(node));
	}
	if (postern__yaml_empty(node)) {
		return postern__yaml_fail(error, &node->place, "%s has no value", what);
	}
	int r = postern__config_expand(node->text, config->environment,
			&config->arena, out, error);
	if (r != POSTERN_OK) {
		return postern__yaml_fail_at(error, r, &node->place);
	}
	if (config->arena.bytes_used > MEMORY_BYTES_MAX) {
		return postern__yaml_fail(error, &node->place,
				"the configuration is too large after the variables are "
				"expanded");
	}
	return POSTERN_OK;
}

int postern__config_list_read(struct postern__config *config,
		const struct postern__yaml_node *node, size_t count_max,
		const char *const **out, size_t *count_out,
		struct postern_error *error) {
	size_t count = 0;

	if (node->kind != POSTERN__YAML_LIST) {
		return postern__yaml_fail(error, &node->place,
				"'%s' must be a list, as in [a, b]", node->key);
	}
	if (node->count == 0) {
		return postern__yaml_fail(error, &node->place, "'%s' is empty",
				node->key);
	}
	if (node->count > count_max) {
		return postern__yaml_fail(error, &node->place,
				"'%s' has more than %zu entries", node->key, count_max);
	}
	const char **texts =
			postern__arena_array(&config->arena, node->count, sizeof *texts);
	if (!texts) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		int r = postern__config_text_read(config, entry, &texts[count++],
				error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	*out = texts;
	*count_out = count;
	return POSTERN_OK;
}

/* Whether a text is longer than an error shows. */
static bool has_start(const char *sentence, const char *text) {
	char start[32];
	(void)snprintf(start, sizeof start, "%.31s", text);
	return strstr(sentence, start) != NULL;
}

/* Make the path in an option's value absolute, and complete "memory": in YAML
   a text that ends with a colon must be quoted. */
static int resolve_path(struct postern__config *config,
		const struct postern_option *option,
		const struct postern__config_origin *origin, const char **text,
		struct postern_error *error) {
	const char *prefix = NULL;
	if (strcmp(option->name, "store") == 0) {
		prefix = "sqlite:";
		*text = strcmp(*text, "memory") == 0 ? "memory:" : *text;
	} else if (strcmp(option->name, "listen") == 0) {
		prefix = POSTERN__LISTEN_PREFIX;
	}
	return prefix ? postern__config_path_resolve(config->base, origin->source,
							prefix, &config->arena, text, error)
				  : POSTERN_OK;
}

int postern__config_option_put(struct postern__config *config,
		const struct postern_option *option, bool is_file, const char *text,
		const struct postern__config_origin *origin,
		struct postern__config_values *values, struct postern_error *error) {
	struct postern__config_origin *place =
			&values->origins[postern__option_index(option)];
	char *secret;

	if ((option->flags & POSTERN_OPTION_SECRET) &&
			place->source == origin->source && place->level == origin->level &&
			place->is_file != is_file) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' and '%s_file' cannot be combined", option->name,
				option->name);
	}
	if (is_file) {
		int r = postern__config_path_resolve(config->base, origin->source, "",
				&config->arena, &text, error);
		if (r != POSTERN_OK) {
			return r;
		}
		r = postern__config_secret_read(text, &config->arena, &secret, error);
		if (r == POSTERN_E_NOTFOUND) {
			/* A missing file is an error of the configuration. */
			r = POSTERN_E_INVALID;
		}
		if (r != POSTERN_OK) {
			return r;
		}
		text = secret;
	}
	int r = resolve_path(config, option, origin, &text, error);
	if (r == POSTERN_OK) {
		r = postern__option_set(option, text, values, &config->arena, error);
	}
	if (r != POSTERN_OK && is_file && error && has_start(error->text, text)) {
		/* The content of the file may be a secret, so the error does not show
		   it. */
		return postern__fail(error, r,
				"the file does not contain a store URL; write sqlite:FILE");
	}
	if (r == POSTERN_OK) {
		*place = *origin;
		place->is_file = is_file;
	}
	return r;
}

/* A list of delays is parsed as the text it would be in a flag: "1s,10s". */
static int join_list(struct postern__config *config,
		const struct postern__yaml_node *node, const char **out,
		struct postern_error *error) {
	const char *const *texts;
	struct postern__buf buf;
	size_t count;

	int r = postern__config_list_read(config, node, POSTERN_BACKOFF_COUNT_MAX,
			&texts, &count, error);
	if (r != POSTERN_OK) {
		return r;
	}
	postern__buf_init(&buf, POSTERN__CONFIG_BYTES_MAX);
	for (size_t i = 0; i < count; i++) {
		postern__buf_printf(&buf, "%s%s", i > 0 ? "," : "", texts[i]);
	}
	r = postern__buf_check(&buf, "the list", error);
	if (r == POSTERN_OK) {
		*out = postern__arena_strdup(&config->arena, postern__buf_text(&buf));
		if (!*out) {
			r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		}
	}
	postern__buf_finish(&buf);
	return r;
}

static int read_option(struct postern__config *config,
		const struct postern__yaml_node *entry, const struct meaning *meaning,
		unsigned level, struct postern__config_values *values,
		struct postern_error *error) {
	const struct postern_option *option = meaning->option;
	const char *text;
	int r;

	if (entry->kind != POSTERN__YAML_SCALAR &&
			(option->flags & POSTERN_OPTION_LATER)) {
		return postern__yaml_fail(error, &entry->place,
				"'%s' other than '%s' is not in this version", entry->key,
				option->fallback);
	}
	if (entry->kind == POSTERN__YAML_LIST &&
			option->type == POSTERN_OPTION_DURATIONS) {
		r = join_list(config, entry, &text, error);
	} else {
		r = postern__config_text_read(config, entry, &text, error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	const struct postern__config_origin origin = {
		.source = POSTERN__CONFIG_FILE,
		.level = level,
		.line = entry->place.line,
		.column = entry->place.column,
	};
	r = postern__config_option_put(config, option, meaning->is_file, text,
			&origin, values, error);
	if (r != POSTERN_OK && error) {
		(void)postern__fail(error, r, "%s: %s", entry->key, error->text);
	}
	return r == POSTERN_OK ? r : postern__yaml_fail_at(error, r, &entry->place);
}

static int fail_unknown_in(const struct postern__yaml_node *group,
		const struct postern__yaml_node *entry, struct postern_error *error) {
	const char *names[POSTERN__CONFIG_OPTION_COUNT_MAX];
	const struct postern_option *option;
	size_t len = strlen(group->key);
	size_t count = 0;
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if (strncmp(option->name, group->key, len) == 0 &&
				option->name[len] == '.') {
			names[count++] = option->name + len + 1;
		}
	}
	const char *near = postern__closest(entry->key, names, count);
	return postern__yaml_fail(error, &entry->key_place,
			"unknown key '%.60s' in '%s'%s%s%s", entry->key, group->key,
			near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* An example of a mapping: "{payload: none, dedupe: none}". */
static void format_group(const char *name, struct postern__buf *out) {
	const struct postern_option *option;
	size_t len = strlen(name);
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if (strncmp(option->name, name, len) == 0 && option->name[len] == '.') {
			postern__buf_printf(out, "%s%s: %s", out->len > 0 ? ", " : "{",
					option->name + len + 1, option->fallback);
		}
	}
	postern__buf_append_char(out, '}');
}

static int fail_group(const struct postern__yaml_node *group,
		struct postern_error *error) {
	struct postern__buf form;
	postern__buf_init(&form, POSTERN_ERROR_TEXT_MAX);
	format_group(group->key, &form);
	int r = postern__yaml_fail(error, &group->place,
			"'%s' must be a mapping, such as %s, not %s", group->key,
			postern__buf_text(&form), postern__yaml_kind_name(group));
	postern__buf_finish(&form);
	return r;
}

/* "retention": a mapping whose keys are options with a dot. */
static int read_group(struct postern__config *config,
		const struct postern__yaml_node *group, unsigned scope, unsigned level,
		struct postern__config_values *values, struct postern_error *error) {
	if (postern__yaml_empty(group)) {
		return POSTERN_OK;
	}
	if (group->kind != POSTERN__YAML_MAPPING) {
		return fail_group(group, error);
	}
	for (const struct postern__yaml_node *entry = group->first; entry;
			entry = entry->next) {
		char name[64];
		(void)snprintf(name, sizeof name, "%s.%.40s", group->key, entry->key);
		const struct meaning meaning = {
			.option = postern__option_named(name),
		};
		if (!meaning.option || !(meaning.option->places & scope)) {
			return fail_unknown_in(group, entry, error);
		}
		int r = read_option(config, entry, &meaning, level, values, error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return POSTERN_OK;
}

static int read_part(const struct postern__yaml_node *entry,
		const struct part *part, struct postern_error *error) {
	bool empty = postern__yaml_empty(entry) ||
				 (entry->kind != POSTERN__YAML_SCALAR && entry->count == 0);
	if ((part->flags & NEVER) || ((part->flags & LATER) && !empty)) {
		return postern__yaml_fail(error, &entry->key_place,
				"'%s' is not in this version", entry->key);
	}
	return POSTERN_OK;
}

static int read_entry(struct postern__config *config,
		const struct postern__yaml_node *entry, unsigned scope, unsigned level,
		struct postern__config_values *values,
		struct postern__config_parts *parts_out, struct postern_error *error) {
	for (size_t i = 0; i < POSTERN__PART_COUNT; i++) {
		if (parts[i].scope == scope && strcmp(parts[i].name, entry->key) == 0) {
			parts_out->nodes[i] = entry;
			return read_part(entry, &parts[i], error);
		}
	}
	struct meaning meaning = find_meaning(entry->key);
	if (!(meaning.scopes & scope)) {
		return fail_unknown(entry, scope, &meaning, error);
	}
	if (meaning.group) {
		return read_group(config, entry, scope, level, values, error);
	}
	return read_option(config, entry, &meaning, level, values, error);
}

int postern__config_section_read(struct postern__config *config,
		const struct postern__yaml_node *node, unsigned scope, unsigned level,
		struct postern__config_values *values,
		struct postern__config_parts *parts_out, struct postern_error *error) {
	*parts_out = (struct postern__config_parts){ 0 };
	if (postern__yaml_empty(node)) {
		return POSTERN_OK;
	}
	if (node->kind != POSTERN__YAML_MAPPING) {
		return postern__yaml_fail(error, &node->place,
				"expected a mapping (key: value), not %s",
				postern__yaml_kind_name(node));
	}
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		int r = read_entry(config, entry, scope, level, values, parts_out,
				error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	return POSTERN_OK;
}
