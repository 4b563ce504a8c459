/* SPDX-License-Identifier: MIT */
/*
 * One mapping of the file: the top level, `defaults`, a store, a channel or a
 * handler. All are read in the same way: a key is a part (a section of its own,
 * left to the caller), an option of the table, or unknown, which is reported
 * with the closest name.
 */

#include "server/config_section.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/expand.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"
#include "handler/kinds.h"
#include "server/config_options.h"
#include "server/config_path.h"

/* Variables could multiply the size of a file of 1 MiB; that is refused. */
#define MEMORY_BYTES_MAX ((size_t)64 * 1024 * 1024)

#define NAME_SIZE 48

/* A flag of parts: known, but not in this version. */
#define NEVER 1U

static const struct part {
	const char *name;
	unsigned scope;
	unsigned flags;
} parts[POSTERN__PART_COUNT] = {
	[POSTERN__PART_DEFAULTS] = { "defaults", POSTERN__IN_ROOT, 0 },
	[POSTERN__PART_STORES] = { "stores", POSTERN__IN_ROOT, 0 },
	[POSTERN__PART_CHANNELS] = { "channels", POSTERN__IN_ROOT, 0 },
	[POSTERN__PART_AUTH] = { "auth", POSTERN__IN_ROOT, 0 },
	[POSTERN__PART_URL] = { "url", POSTERN__IN_STORE, 0 },
	[POSTERN__PART_URL_FILE] = { "url_file", POSTERN__IN_STORE, 0 },
	[POSTERN__PART_STORE] = { "store", POSTERN__IN_CHANNEL, 0 },
	[POSTERN__PART_FORMER_NAMES] = { "former_names", POSTERN__IN_CHANNEL, 0 },
	[POSTERN__PART_KEY] = { "key", POSTERN__IN_CHANNEL | POSTERN__IN_HANDLER,
			0 },
	[POSTERN__PART_GUARD] = { "guard", POSTERN__IN_CHANNEL, 0 },
	[POSTERN__PART_SOURCES] = { "sources", POSTERN__IN_CHANNEL, 0 },
	[POSTERN__PART_HANDLERS] = { "handlers", POSTERN__IN_CHANNEL, 0 },
	[POSTERN__PART_TYPES] = { "types", POSTERN__IN_HANDLER, 0 },
	[POSTERN__PART_LEGACY_KEYS] = { "legacy_keys", POSTERN__IN_HANDLER, 0 },
	[POSTERN__PART_WEBHOOK] = { "webhook", POSTERN__IN_HANDLER, NEVER },
	[POSTERN__PART_PUBLISH] = { "publish", POSTERN__IN_HANDLER, NEVER },
	[POSTERN__PART_PLUGIN] = { "plugin", POSTERN__IN_HANDLER, NEVER },
};

/* The section that is being read. */
struct section {
	struct postern__config *config;
	const struct postern__yaml_node *node;
	unsigned scope;
	unsigned level;
	struct postern__config_values *values;
};

/* The meaning of a key. */
struct meaning {
	const struct postern_option *option;
	bool is_file;    /* the option's NAME_file */
	bool group;      /* "retention": its options have dots */
	unsigned places; /* 0: unknown */
};

static bool is_in_group(const struct postern_option *option, const char *name) {
	size_t len = strlen(name);
	return strncmp(option->name, name, len) == 0 && option->name[len] == '.';
}

static struct meaning find_meaning(const char *name) {
	struct meaning meaning = { 0 };
	const struct postern_option *option;
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		size_t len = strlen(option->name);
		bool starts = strncmp(option->name, name, len) == 0;
		bool is_file = starts && strcmp(name + len, "_file") == 0 &&
					   (option->flags & POSTERN_OPTION_SECRET);
		/* "retention.payload" is not a key; "payload" in "retention" is. */
		if ((starts && !name[len] && !strchr(name, '.')) || is_file) {
			return (struct meaning){ .option = option,
				.is_file = is_file,
				.places = option->places };
		}
		if (is_in_group(option, name)) {
			meaning.group = true;
			meaning.places |= option->places;
		}
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

/* The keys that a mapping may have; in a group, those of the group. */
#define BESIDE_COUNT_MAX (2 * POSTERN_HANDLER_KIND_COUNT_MAX)
#define KEY_COUNT_MAX                                             \
	(2 * POSTERN__CONFIG_OPTION_COUNT_MAX + POSTERN__PART_COUNT + \
			BESIDE_COUNT_MAX + 8)
struct keys {
	char room[KEY_COUNT_MAX][NAME_SIZE];
	const char *names[KEY_COUNT_MAX];
	size_t count;
};

static void add_key(struct keys *keys, const char *name, size_t len,
		const char *end) {
	char *room = keys->room[keys->count];
	(void)snprintf(room, NAME_SIZE, "%.*s%s", (int)len, name, end);
	keys->names[keys->count++] = room;
}

/* Whether a key of a handler's section is a kind. */
static bool has_kind(const struct section *self) {
	const struct postern__yaml_node *entry = self->node->first;
	while (entry && !postern__config_kind_of(entry, NULL)) {
		entry = entry->next;
	}
	return entry != NULL;
}

/* Report an unknown key, with the closest one. */
static void report_unknown(const struct section *self,
		const struct postern__yaml_node *entry, const char *group) {
	const struct postern_handler_kind *kind;
	const struct postern_option *option;
	struct keys keys;
	keys.count = 0;
	for (size_t i = 0; !group && self->scope == POSTERN__IN_HANDLER &&
					   (kind = postern__kind_at(i));
			i++) {
		if (kind->option_count > 0) {
			add_key(&keys, kind->name, strlen(kind->name), "");
		}
		for (size_t n = 0; n < kind->option_count; n++) {
			const struct postern_option *beside = &kind->options[n];
			if ((beside->flags & POSTERN_OPTION_BESIDE) &&
					keys.count < BESIDE_COUNT_MAX) {
				add_key(&keys, beside->name, strlen(beside->name), "");
			}
		}
	}
	for (size_t i = 0; !group && i < POSTERN__PART_COUNT; i++) {
		if (parts[i].scope & self->scope) {
			add_key(&keys, parts[i].name, strlen(parts[i].name), "");
		}
	}
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if (group && is_in_group(option, group)) {
			const char *name = option->name + strlen(group) + 1;
			add_key(&keys, name, strlen(name), "");
		} else if (!group && (option->places & self->scope)) {
			add_key(&keys, option->name, strcspn(option->name, "."), "");
			if (option->flags & POSTERN_OPTION_SECRET) {
				add_key(&keys, option->name, strlen(option->name), "_file");
			}
		}
	}
	const char *near = postern__closest(entry->key, keys.names, keys.count);
	char kinds[POSTERN_ERROR_TEXT_MAX / 2] = "";
	bool mapping = entry->kind == POSTERN__YAML_MAPPING;
	if (!near && !group && self->scope == POSTERN__IN_HANDLER &&
			(mapping || !has_kind(self))) {
		postern__config_list_kinds(kinds, sizeof kinds);
	}
	postern__mistakes_add(&self->config->mistakes, &entry->key_place,
			"unknown key '%.60s' %s%s%s%s%s%s%s%s", entry->key,
			group ? "in '" : scope_name(self->scope), group ? group : "",
			group ? "'" : "", near ? "; did you mean '" : "", near ? near : "",
			near ? "'?" : "", kinds[0] ? "; a kind is " : "", kinds);
}

/* "retention.payload", the name in tables and flags, is a key in a mapping. */
static void report_dotted(const struct section *self,
		const struct postern__yaml_node *entry,
		const struct postern_option *option) {
	const char *dot = strchr(option->name, '.');
	bool misplaced = !(option->places & self->scope);
	char places[128];
	postern__option_places(option->places, places, sizeof places);
	postern__mistakes_add(&self->config->mistakes, &entry->key_place,
			"'%s' must be written as '%.*s: {%s: %.40s}'%s%s", option->name,
			(int)(dot - option->name), option->name, dot + 1,
			entry->text && *entry->text ? entry->text : option->fallback,
			misplaced ? ", and belongs to " : "", misplaced ? places : "");
}

static void report_place(const struct section *self,
		const struct postern__yaml_node *entry, const char *name,
		unsigned places) {
	char names[128];
	postern__option_places(places, names, sizeof names);
	postern__mistakes_add(&self->config->mistakes, &entry->key_place,
			"'%s' is not allowed %s; it belongs to %s", name,
			scope_name(self->scope), names);
}

/* Report a key that this section does not have. */
static void report_key(const struct section *self,
		const struct postern__yaml_node *entry, unsigned places) {
	for (size_t i = 0; i < POSTERN__PART_COUNT; i++) {
		if (strcmp(parts[i].name, entry->key) == 0) {
			places |= parts[i].scope;
		}
	}
	if (postern__config_kind_of(entry, NULL) ||
			postern__config_is_beside(entry->key)) {
		places |= POSTERN__IN_HANDLER;
	}
	const struct postern_option *dotted = postern__option_named(entry->key);
	if (places) {
		report_place(self, entry, entry->key, places);
	} else if (dotted) {
		report_dotted(self, entry, dotted);
	} else {
		report_unknown(self, entry, NULL);
	}
}

bool postern__config_is_named(struct postern__config *config,
		const struct postern__yaml_node *node) {
	if (node->kind == POSTERN__YAML_MAPPING || postern__yaml_empty(node)) {
		return true;
	}
	postern__mistakes_add(&config->mistakes, &node->place,
			"'%s' must be a mapping of names, not %s", node->key,
			postern__yaml_kind_name(node));
	return false;
}

const char *postern__config_text_read(struct postern__config *config,
		const struct postern__yaml_node *node) {
	const char *what = node->key ? node->key : "an entry of the list";
	struct postern_error error;
	const char *text;
	if (node->kind != POSTERN__YAML_SCALAR) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"%s must be one value, not %s", what,
				postern__yaml_kind_name(node));
	} else if (postern__yaml_empty(node)) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"%s has no value", what);
	} else if (postern__expand(node->text, config->environment, &config->arena,
					   &text, &error) != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, NULL,
				&error);
	} else if (config->arena.bytes_used > MEMORY_BYTES_MAX) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"the configuration is too large after the variables are "
				"expanded");
	} else {
		return text;
	}
	return NULL;
}

bool postern__config_list_read(struct postern__config *config,
		const struct postern__yaml_node *node, size_t count_max,
		const char *const **out, size_t *count_out) {
	struct postern__mistakes *mistakes = &config->mistakes;
	size_t count = 0;
	bool good = true;
	if (node->kind != POSTERN__YAML_LIST) {
		postern__mistakes_add(mistakes, &node->place,
				"'%s' must be a list, as in [a, b]", node->key);
		return false;
	}
	if (node->count == 0 || node->count > count_max) {
		postern__mistakes_add(mistakes, &node->place,
				node->count == 0 ? "'%s' is empty"
								 : "'%s' has more than %zu entries",
				node->key, count_max);
		return false;
	}
	const char **texts =
			postern__arena_array(&config->arena, node->count, sizeof *texts);
	mistakes->no_memory = mistakes->no_memory || !texts;
	for (const struct postern__yaml_node *entry = node->first; texts && entry;
			entry = entry->next) {
		texts[count] = postern__config_text_read(config, entry);
		good = texts[count++] && good;
	}
	*out = texts;
	*count_out = count;
	return good && texts;
}

const struct postern__config_origin *
postern__config_origin_of(const struct postern__config_values *values,
		const char *name) {
	const struct postern_option *option = postern__option_named(name);
	assert(option);
	return &values->origins[postern__option_index(option)];
}

int postern__config_fail_at(const struct postern__config *config,
		const struct postern__config_values *values, const char *name,
		struct postern_error *error) {
	const struct postern__config_origin *origin =
			postern__config_origin_of(values, name);
	struct postern__config_option names;
	if (origin->source == POSTERN__CONFIG_FILE) {
		return postern__fail_at(error, error->code,
				&(struct postern__yaml_place){ config->name, origin->line,
						origin->column });
	}
	postern__option_names(postern__option_named(name), origin->is_file, &names);
	bool variable = origin->source == POSTERN__CONFIG_ENVIRONMENT;
	return postern__fail(error, error->code, "%s%s: %s", variable ? "$" : "--",
			variable ? names.environment : names.flag, error->text);
}

void postern__config_mistake(struct postern__config *config,
		const struct postern__config_values *values, const char *name,
		const char *format, ...) {
	const struct postern__config_origin *origin =
			postern__config_origin_of(values, name);
	const struct postern__yaml_place place = { NULL, origin->line,
		origin->column };
	struct postern_error error = { .code = POSTERN_E_INVALID };
	va_list args;
	va_start(args, format);
	(void)vsnprintf(error.text, sizeof error.text, format, args);
	va_end(args);
	(void)postern__config_fail_at(config, values, name, &error);
	postern__mistakes_add_error(&config->mistakes, &place, NULL, &error);
}

const char *postern__config_nearer(const struct postern__config_values *values,
		const char *first, const char *second) {
	const struct postern__config_origin *a =
			postern__config_origin_of(values, first);
	const struct postern__config_origin *b =
			postern__config_origin_of(values, second);
	if (a->bad || b->bad) {
		return NULL;
	}
	bool unset = a->source == POSTERN__CONFIG_DEFAULT ||
				 a->source == POSTERN__CONFIG_KIND;
	return unset || a->level < b->level ? second : first;
}

/* Read the file that a secret is in, and resolve relative paths. */
static int resolve(struct postern__config *config,
		const struct postern_option *option,
		const struct postern__config_origin *origin, const char **text,
		struct postern_error *error) {
	int r = POSTERN_OK;
	if (origin->is_file) {
		char *secret;
		r = postern__config_path_resolve(config->base, origin->source, 0,
				&config->arena, text, error);
		if (r == POSTERN_OK) {
			r = postern__secret_read(*text, &config->arena, &secret, error);
			*text = r == POSTERN_OK ? secret : *text;
		}
	}
	if (r == POSTERN_OK && postern__option_is_listen(option)) {
		return postern__listen_resolve(config, origin->source, text, error);
	}
	return r == POSTERN_OK
				   ? postern__config_path_resolve(config->base, origin->source,
							 postern__option_path(option, text), &config->arena,
							 text, error)
				   : r;
}

int postern__config_option_put(struct postern__config *config,
		const struct postern_option *option, const char *text,
		const struct postern__config_origin *origin,
		struct postern__config_values *values, struct postern_error *error) {
	struct postern__config_origin *place =
			&values->origins[postern__option_index(option)];
	bool both = (option->flags & POSTERN_OPTION_SECRET) &&
				place->source == origin->source &&
				place->level == origin->level &&
				place->is_file != origin->is_file;
	*place = *origin;
	place->bad = true;
	if (both) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' and '%s_file' cannot be combined", option->name,
				option->name);
	}
	char start[32];
	int r = resolve(config, option, origin, &text, error);
	if (r == POSTERN_E_NOTFOUND) {
		/* A missing file is an error of the configuration. */
		return postern__fail(error, POSTERN_E_INVALID, "%s", error->text);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__option_set(option, text, values, &config->arena, error);
	(void)snprintf(start, sizeof start, "%s", text);
	if (r != POSTERN_OK && origin->is_file && strstr(error->text, start)) {
		/* The content of the file may be a secret, so the error does not show
		   it. */
		return postern__fail(error, r,
				"the file does not contain a store URL; write sqlite:FILE");
	}
	place->bad = r != POSTERN_OK;
	return r;
}

void postern__config_option_read(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_option *option, bool is_file, unsigned level,
		struct postern__config_values *values) {
	const struct postern__config_origin origin = {
		.source = POSTERN__CONFIG_FILE,
		.level = level,
		.line = node->place.line,
		.column = node->place.column,
		.is_file = is_file,
	};
	struct postern__config_origin *place =
			&values->origins[postern__option_index(option)];
	struct postern_error error;
	const char *const *texts;
	const char *text;
	size_t count;
	int r = POSTERN_OK;

	if (node->kind != POSTERN__YAML_SCALAR &&
			(option->flags & POSTERN_OPTION_LATER)) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"'%s' other than '%s' is not in this version", node->key,
				option->fallback);
	} else if (node->kind == POSTERN__YAML_LIST &&
			   option->type == POSTERN_OPTION_DURATIONS) {
		*place = origin;
		place->bad = !postern__config_list_read(config, node,
				POSTERN_OPTION_DURATION_COUNT_MAX, &texts, &count);
		r = place->bad ? r
					   : postern__option_set_list(option, texts, count, values,
								 &config->arena, &error);
		place->bad = place->bad || r != POSTERN_OK;
	} else if (node->kind == POSTERN__YAML_LIST &&
							   postern__option_is_joined(option)
					   ? postern__listen_join(config, node, &text)
					   : (text = postern__config_text_read(config, node)) !=
								 NULL) {
		r = postern__config_option_put(config, option, text, &origin, values,
				&error);
	} else {
		place->bad = true;
	}
	if (r != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, node->key,
				&error);
	}
}

/* "retention": a mapping whose keys are options with a dot. */
static bool read_group(const struct section *self,
		const struct postern__yaml_node *group) {
	const struct postern_option *option;
	char name[2 * NAME_SIZE];
	char form[POSTERN_ERROR_TEXT_MAX] = "";
	size_t len = 0;
	bool good = true;
	if (postern__yaml_empty(group)) {
		return true;
	}
	for (const struct postern__yaml_node *entry = group->first;
			group->kind == POSTERN__YAML_MAPPING && entry;
			entry = entry->next) {
		(void)snprintf(name, sizeof name, "%s.%.40s", group->key, entry->key);
		option = postern__option_named(name);
		if (option && (option->places & self->scope)) {
			postern__config_option_read(self->config, entry, option, false,
					self->level, self->values);
		} else if (option) {
			report_place(self, entry, name, option->places);
			good = false;
		} else {
			report_unknown(self, entry, group->key);
			good = false;
		}
	}
	if (group->kind == POSTERN__YAML_MAPPING) {
		return good;
	}
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if (is_in_group(option, group->key)) {
			len += (size_t)snprintf(form + len, sizeof form - len, "%s%s: %s",
					len > 0 ? ", " : "", strchr(option->name, '.') + 1,
					option->fallback);
		}
	}
	postern__mistakes_add(&self->config->mistakes, &group->place,
			"'%s' must be a mapping, such as {%s}, not %s", group->key, form,
			postern__yaml_kind_name(group));
	return false;
}

static bool read_part(const struct section *self,
		const struct postern__yaml_node *entry, const struct part *part) {
	bool refused = part->flags & NEVER;
	if (refused && part == &parts[POSTERN__PART_PUBLISH] &&
			postern__config_kind_begins(entry->key)) {
		postern__mistakes_add(&self->config->mistakes, &entry->key_place,
				"'%s' needs one target, as in {rabbitmq: {url: URL}}, "
				"{http: {url: URL}} or {channel: NAME}",
				entry->key);
	} else if (refused) {
		postern__mistakes_add(&self->config->mistakes, &entry->key_place,
				"'%s' is not in this version", entry->key);
	}
	return !refused;
}

static bool read_entry(const struct section *self,
		const struct postern__yaml_node *entry,
		struct postern__config_parts *parts_out) {
	if (self->scope == POSTERN__IN_HANDLER &&
			(postern__config_kind_of(entry, NULL) ||
					postern__config_is_beside(entry->key))) {
		return true; /* read with all that depends on the kind */
	}
	for (size_t i = 0; i < POSTERN__PART_COUNT; i++) {
		if ((parts[i].scope & self->scope) &&
				strcmp(parts[i].name, entry->key) == 0) {
			parts_out->nodes[i] = entry;
			return read_part(self, entry, &parts[i]);
		}
	}
	const struct meaning meaning = find_meaning(entry->key);
	if (!(meaning.places & self->scope)) {
		report_key(self, entry, meaning.places);
		return false;
	}
	if (meaning.group) {
		return read_group(self, entry);
	}
	postern__config_option_read(self->config, entry, meaning.option,
			meaning.is_file, self->level, self->values);
	return true;
}

bool postern__config_section_read(struct postern__config *config,
		const struct postern__yaml_node *node, unsigned scope, unsigned level,
		struct postern__config_values *values,
		struct postern__config_parts *parts_out) {
	const struct section self = { config, node, scope, level, values };
	bool good = true;
	*parts_out = (struct postern__config_parts){ 0 };
	if (postern__yaml_empty(node)) {
		return true;
	}
	if (node->kind != POSTERN__YAML_MAPPING) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"expected a mapping (key: value), not %s",
				postern__yaml_kind_name(node));
		return false;
	}
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		good = read_entry(&self, entry, parts_out) && good;
	}
	return good;
}
