/* SPDX-License-Identifier: MIT */
/*
 * Loads a configuration: find the text, parse it, apply environment and flags,
 * then read the stores, which inherit from that, and the channels, which
 * inherit from their stores.
 */

#include "server/config.h"

#include <postern/sys/handler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/expand.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"
#include "server/config_options.h"
#include "server/config_path.h"
#include "server/config_section.h"
#include "server/demo.h"
#include "server/store_open.h"
#include "server/yaml.h"

/* Prefix of the environment variables. */
#define VARIABLE_PREFIX "POSTERN_"

static const char *const search_default[] = {
	"postern.yaml",
	"/etc/postern/postern.yaml",
	NULL,
};

static char *const environment_empty[] = { NULL };

void postern__config_timeout_check(struct postern__config *config,
		const struct postern__config_values *values,
		const struct postern_handler_kind *kind) {
	const char *nearer = postern__config_nearer(values, "timeout", "lease");
	char timeout_text[POSTERN__DURATION_TEXT_MAX];
	char lease_text[POSTERN__DURATION_TEXT_MAX];
	bool by_kind =
			kind && postern__config_origin_of(values, "timeout")->source ==
							POSTERN__CONFIG_KIND;

	if (values->timeout_ms < values->lease_ms || !nearer) {
		return;
	}
	postern__duration_format(values->timeout_ms, timeout_text);
	postern__duration_format(values->lease_ms, lease_text);
	bool unset = postern__config_origin_of(values, "lease")->source ==
				 POSTERN__CONFIG_DEFAULT;
	postern__config_mistake(config, values, nearer,
			"timeout (%s%s%s) must be less than lease (%s%s)%s", timeout_text,
			by_kind ? ", the default for " : "", by_kind ? kind->name : "",
			lease_text, unset ? ", the default" : "",
			unset ? "; raise 'lease', too" : "");
}

static void read_sections(struct postern__config *config,
		const struct postern__yaml_node *root,
		struct postern__config_parts *parts) {
	struct postern__config_parts none;
	(void)postern__config_section_read(config, root, POSTERN__IN_ROOT,
			POSTERN__LEVEL_GLOBAL, &config->values, parts);
	if (parts->nodes[POSTERN__PART_DEFAULTS]) {
		(void)postern__config_section_read(config,
				parts->nodes[POSTERN__PART_DEFAULTS], POSTERN__IN_DEFAULTS,
				POSTERN__LEVEL_GLOBAL, &config->values, &none);
	}
	config->store_line =
			postern__config_origin_of(&config->values, "store")->line;
}

/* Set the global option of this index from a flag or a variable. */
static void put_global(struct postern__config *config, size_t index,
		const char *text, enum postern__config_source source) {
	struct postern__config_origin origin = { .source = source };
	const struct postern_option *option =
			postern__option_global(index, &origin.is_file);
	struct postern_error error;
	if (postern__config_option_put(config, option, text, &origin,
				&config->values, &error) != POSTERN_OK) {
		(void)postern__config_fail_at(config, &config->values, option->name,
				&error);
		postern__mistakes_add_error(&config->mistakes, NULL, NULL, &error);
	}
}

static void read_environment(struct postern__config *config) {
	struct postern__config_option names;
	for (size_t i = 0; postern__config_option_get(i, &names); i++) {
		const char *text = postern__environment_get(config->environment,
				names.environment);
		/* Many tools set a variable to "" in order to unset it. */
		if (text && *text) {
			put_global(config, i, text, POSTERN__CONFIG_ENVIRONMENT);
		}
	}
}

/* Variables that are not options: of handlers, of tests. */
static bool is_other_variable(const char *name) {
	static const char *const others[] = { "ATTEMPT", "BUG", "CA_FILE", "CONFIG",
		"CRASH_AT", "FAIL_AT", "FENCE", "HANDLER", "PAUSE_AT", "SEED", "SERVER",
		"STEPS", "TOKEN_FILE" };
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		if (strcmp(others[i], name) == 0) {
			return true;
		}
	}
	return false;
}

/* The option that $POSTERN_`name` is probably a misspelling of; NULL: it is an
   option, or similar to none. */
static const char *near_variable(const char *name) {
	const char *names[POSTERN__CONFIG_OPTION_COUNT_MAX + 1];
	struct postern__config_option option;
	size_t count = 0;
	if (is_other_variable(name)) {
		return NULL;
	}
	for (size_t i = 0; postern__config_option_get(i, &option); i++) {
		const char *known = option.environment + strlen(VARIABLE_PREFIX);
		if (strcmp(known, name) == 0) {
			return NULL;
		}
		names[count++] = known;
	}
	names[count++] = "CONFIG";
	return postern__closest(name, names, count);
}

/* A misspelt variable would have no effect, so there is a warning. */
static void warn_of_variables(struct postern__config *config) {
	static const char prefix[] = VARIABLE_PREFIX;
	for (char *const *entry = config->environment; *entry; entry++) {
		char name[64];
		char text[256];
		size_t len = strcspn(*entry, "=");
		if (strncmp(*entry, prefix, sizeof prefix - 1) != 0 ||
				len >= sizeof name ||
				config->warning_count == POSTERN__CONFIG_WARNING_COUNT_MAX) {
			continue;
		}
		(void)snprintf(name, sizeof name, "%.*s", (int)len, *entry);
		const char *near = near_variable(name + sizeof prefix - 1);
		if (!near) {
			continue;
		}
		(void)snprintf(text, sizeof text,
				"unknown variable %s; did you mean %s%s?", name, prefix, near);
		const char *copy = postern__arena_strdup(&config->arena, text);
		config->mistakes.no_memory = config->mistakes.no_memory || !copy;
		config->warnings[config->warning_count++] = copy;
	}
}

static void read_flags(struct postern__config *config,
		const struct postern__config_input *input) {
	for (size_t i = 0; i < input->flag_count; i++) {
		const struct postern__config_flag *flag = &input->flags[i];
		const char *near;
		size_t index;
		if (postern__config_option_find(flag->name, &index, &near)) {
			put_global(config, index, flag->value, POSTERN__CONFIG_FLAG);
		} else {
			postern__mistakes_add(&config->mistakes, NULL,
					"unknown flag --%.60s%s%s%s", flag->name,
					near ? "; did you mean --" : "", near ? near : "",
					near ? "?" : "");
		}
	}
}

/* The directory of relative paths, including the default store. */
static int find_base(struct postern__config *config,
		struct postern_error *error) {
	const struct postern_option *option = postern__option_named("store");
	int r = postern__config_path_base(config->name, &config->arena,
			&config->base, error);
	return r == POSTERN_OK
				   ? postern__config_path_resolve(config->base,
							 POSTERN__CONFIG_DEFAULT,
							 postern__option_path(option,
									 &config->values.store),
							 &config->arena, &config->values.store, error)
				   : r;
}

/* What is unhealthy is degraded before that. */
static void check_health(struct postern__config *config) {
	const struct postern__config_values *values = &config->values;
	const char *nearer = postern__config_nearer(values,
			"health.unhealthy_after", "health.degraded_after");
	char degraded[POSTERN__DURATION_TEXT_MAX];
	char unhealthy[POSTERN__DURATION_TEXT_MAX];
	if (!nearer || values->health_unhealthy_ms == 0 ||
			values->health_degraded_ms <= values->health_unhealthy_ms) {
		return;
	}
	postern__duration_format(values->health_degraded_ms, degraded);
	postern__duration_format(values->health_unhealthy_ms, unhealthy);
	postern__config_mistake(config, values, nearer,
			"health.unhealthy_after (%s) must not be less than "
			"health.degraded_after (%s)",
			unhealthy, degraded);
}

/* Everything but finding the text; `text` is NULL without a file. */
static int read_text(struct postern__config *config, const char *text,
		size_t len, const struct postern__config_input *input,
		struct postern_error *error) {
	struct postern__config_parts parts = { 0 };
	struct postern__yaml_node *root = NULL;

	int r = postern__option_defaults(&config->values, &config->arena, error);
	if (r == POSTERN_OK && text) {
		r = find_base(config, error);
	}
	if (r != POSTERN_OK || (text && !postern__yaml_read(config->name, text, len,
											&config->mistakes, &root))) {
		return r;
	}
	if (root) {
		read_sections(config, root, &parts);
	}
	read_environment(config);
	warn_of_variables(config);
	read_flags(config, input);
	postern__config_timeout_check(config, &config->values, NULL);
	check_health(config);
	postern__config_auth_read(config, parts.nodes[POSTERN__PART_AUTH]);
	postern__config_listens_read(config);
	postern__config_tls_check(config);
	postern__config_stores_read(config, parts.nodes[POSTERN__PART_STORES]);
	if (parts.nodes[POSTERN__PART_CHANNELS]) {
		postern__config_channels_read(config,
				parts.nodes[POSTERN__PART_CHANNELS]);
	}
	postern__config_auth_check(config);
	/* Borrowed for the call only. */
	config->environment = NULL;
	return POSTERN_OK;
}

/* End the loading of a configuration, with the result so far. */
static int finish(struct postern__config *config, int result,
		const struct postern__config_input *input, struct postern__config **out,
		struct postern_error *error) {
	int r = result;
	if (r == POSTERN_OK) {
		r = postern__mistakes_result(&config->mistakes, input->report,
				input->report_context, error);
	} else if (input->report) {
		input->report(input->report_context, error->text);
	}
	if (r == POSTERN_OK) {
		*out = config;
	} else {
		postern__config_destroy(config);
	}
	return r;
}

static struct postern__config *create(const struct postern__config_input *input,
		struct postern_error *error) {
	struct postern__config *config = calloc(1, sizeof *config);
	if (!config) {
		(void)postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		return NULL;
	}
	config->environment = input->environment ? input->environment : environ;
	config->mistakes.arena = &config->arena;
	return config;
}

static int set_name(struct postern__config *config, const char *name,
		struct postern_error *error) {
	config->name = postern__arena_strdup(&config->arena, name);
	return config->name
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

int postern__config_parse(const char *name, const char *text, size_t len,
		const struct postern__config_input *input, struct postern__config **out,
		struct postern_error *error) {
	static const struct postern__config_input none = {
		.environment = environment_empty
	};
	struct postern_error ignored;
	error = error ? error : &ignored;
	if (!input) {
		input = &none;
	}
	struct postern__config *config = create(input, error);
	if (!config) {
		return POSTERN_E_NOMEM;
	}
	int r = set_name(config, name, error);
	if (r == POSTERN_OK) {
		r = read_text(config, text, len, input, error);
	}
	return finish(config, r, input, out, error);
}

/* Read the configuration file; *text_out is NULL if there is none. */
static int find_text(struct postern__config *config,
		const struct postern__config_input *input, const char **text_out,
		size_t *len_out, struct postern_error *error) {
	const char *path = input->path;
	const char *const *search = input->search ? input->search : search_default;
	const char *hint = "";
	char *text;
	int r;

	if (!path) {
		path = postern__environment_get(config->environment, "POSTERN_CONFIG");
		path = path && *path ? path : NULL;
		hint = "$POSTERN_CONFIG: ";
	}
	if (path) {
		r = postern__file_read(path, POSTERN__CONFIG_BYTES_MAX, &config->arena,
				&text, len_out, error);
		if (r != POSTERN_OK) {
			return postern__fail(error, r, "%s%s", hint, error->text);
		}
		*text_out = text;
		return set_name(config, path, error);
	}
	for (; *search; search++) {
		r = postern__file_read(*search, POSTERN__CONFIG_BYTES_MAX,
				&config->arena, &text, len_out, error);
		if (r == POSTERN_OK) {
			*text_out = text;
			return set_name(config, *search, error);
		}
		if (r != POSTERN_E_NOTFOUND) {
			return r;
		}
	}
	*text_out = NULL;
	*len_out = 0;
	return POSTERN_OK;
}

static int load_demo(const struct postern__config_input *input,
		struct postern__config **out, struct postern_error *error) {
	struct postern__buf text;
	postern__buf_init(&text, POSTERN__CONFIG_BYTES_MAX);
	postern__demo_write(input, &text);
	int r = postern__buf_check(&text, "the demo", error);
	if (r == POSTERN_OK) {
		r = postern__config_parse(POSTERN__CONFIG_DEMO_NAME,
				postern__buf_text(&text), text.len, input, out, error);
	}
	postern__buf_finish(&text);
	return r;
}

int postern__config_load(const struct postern__config_input *input,
		struct postern__config **out, struct postern_error *error) {
	struct postern_error ignored;
	const char *text;
	size_t len;

	error = error ? error : &ignored;
	if (input->demo) {
		if (input->path) {
			return postern__fail(error, POSTERN_E_INVALID,
					"--demo has its own configuration: remove -c");
		}
		return load_demo(input, out, error);
	}
	struct postern__config *config = create(input, error);
	if (!config) {
		return POSTERN_E_NOMEM;
	}
	int r = find_text(config, input, &text, &len, error);
	if (r == POSTERN_OK) {
		r = read_text(config, text, len, input, error);
	}
	return finish(config, r, input, out, error);
}

void postern__config_destroy(struct postern__config *config) {
	if (config) {
		postern__arena_finish(&config->arena);
		free(config);
	}
}

const struct postern__config_values *postern__config_global(
		const struct postern__config *config) {
	return &config->values;
}

size_t postern__config_store_count(const struct postern__config *config) {
	return config->store_count;
}

const struct postern__config_store *
postern__config_store(const struct postern__config *config, size_t index) {
	return index < config->store_count ? &config->stores[index] : NULL;
}

size_t postern__config_channel_count(const struct postern__config *config) {
	return config->channel_count;
}

const struct postern__config_channel *
postern__config_channel(const struct postern__config *config, size_t index) {
	return index < config->channel_count ? &config->channels[index] : NULL;
}

bool postern__config_store_has_box(const struct postern__config *config,
		const struct postern__config_store *store) {
	bool has = postern__store_keeps_messages(store->values.store);
	for (size_t i = 0; !has && i < config->channel_count; i++) {
		has = config->channels[i].store == store;
	}
	return has;
}

bool postern__config_channel_has_name(const struct postern__config_channel
											  *channel,
		const char *name) {
	bool has = strcmp(channel->name, name) == 0;
	for (size_t i = 0; !has && i < channel->former_name_count; i++) {
		has = strcmp(channel->former_names[i], name) == 0;
	}
	return has;
}

const struct postern__config_channel *
postern__config_channel_named(const struct postern__config *config,
		const char *name) {
	for (size_t i = 0; i < config->channel_count; i++) {
		if (postern__config_channel_has_name(&config->channels[i], name)) {
			return &config->channels[i];
		}
	}
	return NULL;
}

static bool has_key(const struct postern__config_handler *handler,
		const char *key) {
	for (size_t i = 0; i < handler->legacy_key_count; i++) {
		if (strcmp(handler->legacy_keys[i], key) == 0) {
			return true;
		}
	}
	return strcmp(handler->key, key) == 0;
}

const struct postern__config_handler *
postern__config_handler_named(const struct postern__config *config,
		const char *key) {
	for (size_t i = 0; i < config->channel_count; i++) {
		const struct postern__config_channel *channel = &config->channels[i];
		for (size_t n = 0; n < channel->handler_count; n++) {
			if (has_key(&channel->handlers[n], key)) {
				return &channel->handlers[n];
			}
		}
	}
	return NULL;
}

const char *postern__config_warning(const struct postern__config *config,
		size_t index) {
	return index < config->warning_count ? config->warnings[index] : NULL;
}

const char *postern__config_name(const struct postern__config *config) {
	return config->name;
}

bool postern__config_is_missing(const struct postern__config *config) {
	return !config->name &&
		   postern__config_origin_of(postern__config_global(config), "store")
						   ->source == POSTERN__CONFIG_DEFAULT;
}
