/* SPDX-License-Identifier: MIT */
/*
 * The effective configuration, for people and for programs. Every option that
 * does anything in this version is shown with its value and where it was
 * said; of a handler's program only its path, as arguments may be secrets.
 */

#include <string.h>

#include "base/buf.h"
#include "base/json_text.h"
#include "server/config.h"
#include "server/config_options.h"
#include "server/config_section.h"

/* More than any value: a backoff has 64 delays of at most 23 bytes. */
#define VALUE_LEN_MAX 4096

struct printer {
	const struct postern__config *config;
	struct postern__buf *out;
	bool json;
	int indent;
	const struct postern__option *left_out; /* NULL: none */
};

static void format_origin(const struct printer *self,
		const struct postern__option *option,
		const struct postern__config_origin *origin, struct postern__buf *out) {
	struct postern__config_option names;
	switch (origin->source) {
	case POSTERN__CONFIG_DEFAULT:
		postern__buf_append_text(out, "default");
		break;
	case POSTERN__CONFIG_FILE:
		postern__buf_printf(out, "%s:%u", self->config->name, origin->line);
		break;
	case POSTERN__CONFIG_ENVIRONMENT:
		postern__option_names(option, origin->is_file, &names);
		postern__buf_printf(out, "$%s", names.environment);
		break;
	case POSTERN__CONFIG_FLAG:
		postern__option_names(option, origin->is_file, &names);
		postern__buf_printf(out, "--%s", names.flag);
		break;
	}
}

static void print_option(const struct printer *self, const char *name,
		const struct postern__option *option,
		const struct postern__config_values *values) {
	const struct postern__config_origin *origin =
			&values->origins[postern__option_index(option)];
	struct postern__buf value;
	struct postern__buf from;

	postern__buf_init(&value, VALUE_LEN_MAX);
	postern__buf_init(&from, VALUE_LEN_MAX * 2);
	postern__option_format(option, values, &value);
	format_origin(self, option, origin, &from);
	if (self->json) {
		postern__json_open(self->out, '{');
		postern__json_pair_text(self->out, "name", name);
		postern__json_pair_text(self->out, "value", postern__buf_text(&value));
		postern__json_pair_text(self->out, "from", postern__buf_text(&from));
		postern__json_close(self->out, '}');
	} else {
		postern__buf_printf(self->out, "%*s%s: %s", self->indent, "", name,
				postern__buf_text(&value));
		postern__buf_printf(self->out, "  # %s\n", postern__buf_text(&from));
	}
	postern__buf_finish(&value);
	postern__buf_finish(&from);
}

/* The options of these scopes that were said at this level or nearer. */
static void print_options(const struct printer *self, unsigned scopes,
		unsigned level, const struct postern__config_values *values) {
	const struct postern__option *option;
	if (self->json) {
		postern__json_key(self->out, "options");
		postern__json_open(self->out, '[');
	}
	if (scopes == POSTERN__IN_STORE) {
		/* At the top level it has another name. */
		print_option(self, "url", postern__option_named("store"), values);
	}
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if ((option->scopes & scopes) && option != self->left_out &&
				!(option->flags & POSTERN__OPTION_LATER) &&
				values->origins[i].level >= level) {
			print_option(self, option->name, option, values);
		}
	}
	if (self->json) {
		postern__json_close(self->out, ']');
	}
}

static void print_list(const struct printer *self, const char *name,
		const char *const *texts, size_t count) {
	if (self->json) {
		postern__json_key(self->out, name);
		postern__json_open(self->out, '[');
		for (size_t i = 0; i < count; i++) {
			postern__json_text(self->out, texts[i]);
		}
		postern__json_close(self->out, ']');
	} else if (count > 0) {
		postern__buf_printf(self->out, "%*s%s:", self->indent, "", name);
		for (size_t i = 0; i < count; i++) {
			postern__buf_printf(self->out, " %s", texts[i]);
		}
		postern__buf_append_char(self->out, '\n');
	}
}

static void print_handler(const struct printer *self,
		const struct postern__config_handler *handler) {
	const char *kind = handler->sql ? "sql" : "exec";
	struct printer inner = *self;

	if (self->json) {
		postern__json_open(self->out, '{');
		postern__json_pair_text(self->out, "key", handler->key);
		postern__json_pair_uint(self->out, "line", handler->line);
		postern__json_pair_text(self->out, "kind", kind);
		if (handler->exec) {
			postern__json_pair_text(self->out, "program", handler->exec[0]);
		}
	} else {
		postern__buf_printf(self->out, "%*shandler %s: %s%s%s\n", self->indent,
				"", handler->key, kind, handler->exec ? " " : "",
				handler->exec ? handler->exec[0] : "");
	}
	inner.indent += 2;
	print_list(&inner, "types", handler->types, handler->type_count);
	print_list(&inner, "legacy_keys", handler->legacy_keys,
			handler->legacy_key_count);
	print_options(&inner, POSTERN__IN_HANDLER, POSTERN__LEVEL_HANDLER,
			&handler->values);
	if (self->json) {
		postern__json_close(self->out, '}');
	}
}

/* Whether the stores are worth a section: not if there is but `store`. */
static bool has_stores(const struct postern__config *config) {
	return config->store_count > 1 ||
		   strcmp(config->stores[0].name, POSTERN__STORE_DEFAULT) != 0 ||
		   config->stores[0].line != config->store_line;
}

/* The URL, and what the store says for itself. */
static void print_store(const struct printer *self,
		const struct postern__config_store *store) {
	struct printer inner = *self;

	if (self->json) {
		postern__json_open(self->out, '{');
		postern__json_pair_text(self->out, "name", store->name);
		postern__json_pair_uint(self->out, "line", store->line);
	} else {
		postern__buf_printf(self->out, "store %s\n", store->name);
	}
	inner.indent += 2;
	print_options(&inner, POSTERN__IN_STORE, POSTERN__LEVEL_STORE,
			&store->values);
	if (self->json) {
		postern__json_close(self->out, '}');
	}
}

static void print_stores(const struct printer *self) {
	const struct postern__config *config = self->config;
	if (!self->json && !has_stores(config)) {
		return;
	}
	if (self->json) {
		postern__json_key(self->out, "stores");
		postern__json_open(self->out, '[');
	}
	for (size_t i = 0; i < config->store_count; i++) {
		print_store(self, &config->stores[i]);
	}
	if (self->json) {
		postern__json_close(self->out, ']');
	}
}

static void print_channel(const struct printer *self,
		const struct postern__config_channel *channel) {
	struct printer inner = *self;

	if (self->json) {
		postern__json_open(self->out, '{');
		postern__json_pair_text(self->out, "name", channel->name);
		postern__json_pair_uint(self->out, "line", channel->line);
		postern__json_pair_text(self->out, "store", channel->store->name);
	} else {
		postern__buf_printf(self->out, "channel %s\n", channel->name);
	}
	inner.indent += 2;
	if (!self->json && has_stores(self->config)) {
		postern__buf_printf(self->out, "%*sstore: %s\n", inner.indent, "",
				channel->store->name);
	}
	print_options(&inner, POSTERN__IN_CHANNEL, POSTERN__LEVEL_CHANNEL,
			&channel->values);
	if (self->json) {
		postern__json_key(self->out, "handlers");
		postern__json_open(self->out, '[');
	}
	for (size_t i = 0; i < channel->handler_count; i++) {
		print_handler(&inner, &channel->handlers[i]);
	}
	if (self->json) {
		postern__json_close(self->out, ']');
		postern__json_close(self->out, '}');
	}
}

void postern__config_print(const struct postern__config *config, bool json,
		struct postern__buf *out) {
	struct printer self = { .config = config, .out = out, .json = json };

	if (json) {
		postern__json_open(out, '{');
		postern__json_pair_text(out, "file", config->name);
	} else {
		postern__buf_printf(out, "# %s\n",
				config->name ? config->name : "no file: the defaults serve");
	}
	if (has_stores(config)) {
		/* It stands with the stores, if at all. */
		self.left_out = postern__option_named("store");
	}
	print_options(&self, POSTERN__IN_GLOBAL, POSTERN__LEVEL_GLOBAL,
			&config->values);
	self.left_out = NULL;
	print_stores(&self);
	if (json) {
		postern__json_key(out, "channels");
		postern__json_open(out, '[');
	}
	for (size_t i = 0; i < config->channel_count; i++) {
		print_channel(&self, &config->channels[i]);
	}
	if (json) {
		postern__json_close(out, ']');
		postern__json_close(out, '}');
	}
}
