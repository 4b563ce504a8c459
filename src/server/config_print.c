/* SPDX-License-Identifier: MIT */
/*
 * The effective configuration, for people and for programs. Every option that
 * has an effect in this version is shown with its value and where it was set;
 * of a handler's program only the path, because arguments may be secrets.
 *
 * For people it has the format of the file, so that it can be pasted into one.
 * What is not shown is left out there, or a comment.
 */

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_text.h"
#include "base/redact.h"
#include "handler/kinds.h"
#include "server/auth.h"
#include "server/config.h"
#include "server/config_options.h"
#include "server/config_section.h"
#include "source/kinds.h"

/* Longer than any value: a backoff has 64 delays of at most 23 bytes. */
#define VALUE_LEN_MAX 4096

/* What is open, as a place in the text and in the JSON. */
struct printer {
	const struct postern__config *config;
	struct postern__buf *out;
	bool json;
	int indent;
	const struct postern_option *left_out; /* NULL: none */
};

static void format_origin(const struct printer *self,
		const struct postern_option *option,
		const struct postern__config_origin *origin, struct postern__buf *out) {
	struct postern__config_option names;
	switch (origin->source) {
	case POSTERN__CONFIG_DEFAULT:
		postern__buf_append_text(out, "default");
		break;
	case POSTERN__CONFIG_FILE:
		postern__buf_printf(out, "%s:%u", self->config->name, origin->line);
		break;
	case POSTERN__CONFIG_KIND:
		postern__buf_append_text(out, "default of its kind");
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

/* Text as a value or key of the file: quoted if YAML could misread it, and so
   that no variable is expanded. */
static void put_scalar(struct postern__buf *out, const char *text) {
	static const char plain[] = "_/abcdefghijklmnopqrstuvwxyz"
								"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
								".:+-%@";
	size_t len = strlen(text);
	if (len > 0 && strspn(text, plain) == len && !strchr(".:+-%@", *text) &&
			text[len - 1] != ':' && strcmp(text, "null") != 0) {
		postern__buf_append_text(out, text);
		return;
	}
	postern__buf_append_char(out, '"');
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < ' ' || c == 0x7f) {
			postern__buf_printf(out, "\\x%02x", c);
			continue;
		}
		if (c == '"' || c == '\\' || (c == '$' && text[1] == '{')) {
			postern__buf_append_char(out, c == '$' ? '$' : '\\');
		}
		postern__buf_append_char(out, *text);
	}
	postern__buf_append_char(out, '"');
}

/* A line that opens a mapping. */
static void print_head(const struct printer *self, const char *name) {
	postern__buf_printf(self->out, "%*s", self->indent, "");
	put_scalar(self->out, name);
	postern__buf_append_text(self->out, ":\n");
}

/* Open a list of sections; as text without a line if it is empty. */
static void open_sections(struct printer *self, const char *name,
		size_t count) {
	if (self->json) {
		postern__json_key(self->out, name);
		postern__json_open(self->out, '[');
	} else if (count > 0) {
		print_head(self, name);
	}
	self->indent += 2;
}

/* Open a section of a list. */
static void open_section(struct printer *self, const char *key,
		const char *name, unsigned line) {
	if (self->json) {
		postern__json_open(self->out, '{');
		postern__json_pair_text(self->out, key, name);
		postern__json_pair_uint(self->out, "line", line);
	} else {
		print_head(self, name);
	}
	self->indent += 2;
}

static void close_one(struct printer *self, char bracket) {
	if (self->json) {
		postern__json_close(self->out, bracket);
	}
	self->indent -= 2;
}

static void print_option(const struct printer *self, const char *name,
		const struct postern_option *option,
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
		postern__buf_printf(self->out, "%*s%s: ", self->indent, "", name);
		put_scalar(self->out, postern__buf_text(&value));
		postern__buf_printf(self->out, "  # %s\n", postern__buf_text(&from));
	}
	postern__buf_finish(&value);
	postern__buf_finish(&from);
}

/* One option of a mapping of its own, "retention.payload"; the head of the
   mapping is written before the first. */
static void print_grouped(const struct printer *self,
		const struct postern_option *option,
		const struct postern__config_values *values,
		const struct postern_option *before) {
	size_t len = strcspn(option->name, ".");
	struct printer inner = *self;
	char group[64];
	if (option->name[len] == '\0' || self->json) {
		print_option(self, option->name, option, values);
		return;
	}
	if (!before || strncmp(before->name, option->name, len + 1) != 0) {
		(void)snprintf(group, sizeof group, "%.*s", (int)len, option->name);
		print_head(self, group);
	}
	inner.indent += 2;
	print_option(&inner, option->name + len + 1, option, values);
}

/* The options of these places that were set at this level or nearer. */
static void print_options(const struct printer *self, unsigned places,
		unsigned level, const struct postern__config_values *values) {
	const struct postern_option *before = NULL;
	const struct postern_option *option;
	if (self->json) {
		postern__json_key(self->out, "options");
		postern__json_open(self->out, '[');
	}
	if (places == POSTERN__IN_STORE) {
		/* At the top level the option has another name. */
		print_option(self, "url", postern__option_named("store"), values);
	}
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if ((option->places & places) && option != self->left_out &&
				!(option->flags & POSTERN_OPTION_LATER) &&
				values->origins[i].level >= level) {
			print_grouped(self, option, values, before);
			before = option;
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
		postern__buf_printf(self->out, "%*s%s: [", self->indent, "", name);
		for (size_t i = 0; i < count; i++) {
			postern__buf_append_text(self->out, i > 0 ? ", " : "");
			put_scalar(self->out, texts[i]);
		}
		postern__buf_append_text(self->out, "]\n");
	}
}

/* Whether a setting has a value that may be shown. */
static bool is_shown(const struct postern_option *option,
		const void *settings) {
	const void *member = (const char *)settings + option->offset;
	bool is_text = option->type == POSTERN_OPTION_TEXT;
	if (is_text || option->type == POSTERN_OPTION_TEXTS) {
		unsigned hidden =
				is_text ? POSTERN_OPTION_HIDDEN : POSTERN_OPTION_SECRET;
		return *(const void *const *)member && !(option->flags & hidden);
	}
	return true;
}

/* A list in a struct: the pointer is directly before its count. */
struct texts {
	const char *const *items;
	size_t count;
};

static void print_texts(const struct printer *self,
		const struct postern_option *option, const struct texts *texts) {
	bool partly = (option->flags & POSTERN_OPTION_HIDDEN) && texts->count > 1;
	if (partly && !self->json) {
		postern__buf_printf(self->out, "%*s# %s: ", self->indent, "",
				option->name);
		put_scalar(self->out, texts->items[0]);
		postern__buf_append_text(self->out, ", and more that is not shown\n");
		return;
	}
	print_list(self, option->name, texts->items, partly ? 1 : texts->count);
}

/* One option of a handler's kind, as far as it is shown. */
static void print_kind_option(const struct printer *self,
		const struct postern_option *option, const void *settings) {
	struct postern__buf value;
	if (!is_shown(option, settings)) {
		if (!self->json && (option->flags & POSTERN_OPTION_HIDDEN)) {
			postern__buf_printf(self->out, "%*s# %s: is not shown\n",
					self->indent, "", option->name);
		}
		return;
	}
	if (option->type == POSTERN_OPTION_TEXTS) {
		print_texts(self, option,
				(const struct texts *)((const char *)settings +
									   option->offset));
		return;
	}
	postern__buf_init(&value, VALUE_LEN_MAX);
	postern__option_format(option, settings, &value);
	if (self->json) {
		postern__json_pair_text(self->out, option->name,
				postern__buf_text(&value));
	} else {
		postern__buf_printf(self->out, "%*s%s: ", self->indent, "",
				option->name);
		put_scalar(self->out, postern__buf_text(&value));
		postern__buf_append_char(self->out, '\n');
	}
	postern__buf_finish(&value);
}

/* A single option is the value of the kind's key, several are a mapping. */
static void print_kind(const struct printer *self,
		const struct postern__config_handler *handler) {
	const struct postern_handler_kind *kind = handler->kind;
	struct printer inner = *self;
	if (self->json) {
		postern__json_pair_text(self->out, "kind", kind->name);
		postern__json_key(self->out, "settings");
		postern__json_open(self->out, '{');
	} else if (postern__kind_has_mapping(kind)) {
		print_head(self, kind->name);
		inner.indent += 2;
	}
	for (size_t i = 0; i < kind->option_count; i++) {
		print_kind_option(&inner, &kind->options[i], handler->settings);
	}
	if (self->json) {
		postern__json_close(self->out, '}');
	}
}

static void print_rule(const struct printer *self,
		const struct postern_key_rule *rule, bool alone) {
	const char *type = rule->type ? rule->type : "default";
	if (self->json) {
		postern__json_pair_text(self->out, type, rule->rule);
		return;
	}
	if (!alone) {
		put_scalar(self->out, type);
		postern__buf_append_text(self->out, ": ");
	}
	put_scalar(self->out, rule->rule);
}

/* `key: RULE`, or `key: {TYPE: RULE, …}`. */
static void print_key(const struct printer *self,
		const struct postern_key_rule *rules, size_t count) {
	bool alone = count == 1 && !rules[0].type;
	if (count == 0) {
		return;
	}
	if (self->json) {
		postern__json_key(self->out, "key_rules");
		postern__json_open(self->out, '{');
	} else {
		postern__buf_printf(self->out, "%*skey: %s", self->indent, "",
				alone ? "" : "{");
	}
	for (size_t i = 0; i < count; i++) {
		if (!self->json && i > 0) {
			postern__buf_append_text(self->out, ", ");
		}
		print_rule(self, &rules[i], alone);
	}
	if (self->json) {
		postern__json_close(self->out, '}');
	} else {
		postern__buf_append_text(self->out, alone ? "\n" : "}\n");
	}
}

static void print_names(const struct printer *self, const char *name,
		const char *const *names, size_t count, bool *any) {
	if (self->json && count > 0) {
		print_list(self, name, names, count);
		return;
	}
	if (count == 0) {
		return;
	}
	postern__buf_printf(self->out, "%s%s: [", *any ? ", " : "", name);
	for (size_t i = 0; i < count; i++) {
		postern__buf_append_text(self->out, i > 0 ? ", " : "");
		put_scalar(self->out, names[i]);
	}
	postern__buf_append_text(self->out, "]");
	*any = true;
}

/* `guard: {types: [TYPE, …], handlers: [KEY, …]}` */
static void print_guard(const struct printer *self,
		const struct postern__config_channel *channel) {
	bool any = false;
	if (channel->guarded_type_count + channel->guarded_handler_count == 0) {
		return;
	}
	if (self->json) {
		postern__json_key(self->out, "guard");
		postern__json_open(self->out, '{');
	} else {
		postern__buf_printf(self->out, "%*sguard: {", self->indent, "");
	}
	print_names(self, "types", channel->guarded_types,
			channel->guarded_type_count, &any);
	print_names(self, "handlers", channel->guarded_handlers,
			channel->guarded_handler_count, &any);
	if (self->json) {
		postern__json_close(self->out, '}');
	} else {
		postern__buf_append_text(self->out, "}\n");
	}
}

static void print_handler(struct printer *self,
		const struct postern__config_handler *handler) {
	open_section(self, "key", handler->key, handler->line);
	print_kind(self, handler);
	print_list(self, "types", handler->types, handler->type_count);
	print_list(self, "legacy_keys", handler->legacy_keys,
			handler->legacy_key_count);
	print_key(self, handler->key_rules, handler->key_rule_count);
	print_options(self, POSTERN__IN_HANDLER, POSTERN__LEVEL_HANDLER,
			&handler->values);
	close_one(self, '}');
}

/* Whether the stores need a section: not if only `store` is set. */
static bool has_stores(const struct postern__config *config) {
	return config->store_count > 1 ||
		   strcmp(config->stores[0].name, POSTERN__STORE_DEFAULT) != 0 ||
		   config->stores[0].line != config->store_line;
}

static void print_stores(struct printer *self) {
	const struct postern__config *config = self->config;
	if (!self->json && !has_stores(config)) {
		return;
	}
	open_sections(self, "stores", config->store_count);
	for (size_t i = 0; i < config->store_count; i++) {
		const struct postern__config_store *store = &config->stores[i];
		open_section(self, "name", store->name, store->line);
		print_options(self, POSTERN__IN_STORE, POSTERN__LEVEL_STORE,
				&store->values);
		close_one(self, '}');
	}
	close_one(self, ']');
}

/* Values of one option of a source that are printed. */
#define SOURCE_TEXTS_MAX 64

/* An option of a source as it is written, as far as it is shown. */
static void print_setting(const struct printer *self,
		const struct postern_option *option, const char *value) {
	char redacted[POSTERN__REDACT_TEXT_MAX];
	const char *text = value;
	if (option->flags & POSTERN_OPTION_HIDDEN) {
		if (!self->json) {
			postern__buf_printf(self->out, "%*s# %s: is not shown\n",
					self->indent, "", option->name);
		}
		return;
	}
	if (option->flags & POSTERN_OPTION_SECRET) {
		postern__redact(value, redacted, sizeof redacted);
		text = redacted;
	}
	if (self->json) {
		postern__json_pair_text(self->out, option->name, text);
		return;
	}
	postern__buf_printf(self->out, "%*s%s: ", self->indent, "", option->name);
	put_scalar(self->out, text);
	postern__buf_append_char(self->out, '\n');
}

/* An option with several values, each of which is a setting. */
static void print_source_texts(const struct printer *self,
		const struct postern_option *option,
		const struct postern__config_channel_source *source) {
	const char *texts[SOURCE_TEXTS_MAX];
	size_t count = 0;
	for (size_t i = 0; i < source->setting_count && count < SOURCE_TEXTS_MAX;
			i++) {
		if (strcmp(source->settings[i].name, option->name) == 0) {
			texts[count++] = source->settings[i].value;
		}
	}
	print_list(self, option->name, texts, count);
}

static void print_source(struct printer *self,
		const struct postern__config_channel_source *source) {
	if (self->json) {
		open_section(self, "name", source->name, source->line);
		postern__json_pair_text(self->out, "kind", source->kind->name);
		postern__json_key(self->out, "settings");
		postern__json_open(self->out, '{');
	} else {
		postern__buf_printf(self->out, "%*s- name: ", self->indent, "");
		put_scalar(self->out, source->name);
		postern__buf_append_char(self->out, '\n');
		self->indent += 2;
		print_head(self, source->kind->name);
	}
	self->indent += 2;
	for (size_t i = 0; i < source->setting_count; i++) {
		const struct postern_option *option =
				postern__source_option(source->kind, source->settings[i].name);
		if (option->type != POSTERN_OPTION_TEXTS) {
			print_setting(self, option, source->settings[i].value);
		} else if (i == 0 ||
				   strcmp(source->settings[i - 1].name, option->name) != 0) {
			print_source_texts(self, option, source);
		}
	}
	close_one(self, '}');
	close_one(self, '}');
}

static void print_channel(struct printer *self,
		const struct postern__config_channel *channel) {
	open_section(self, "name", channel->name, channel->line);
	if (self->json) {
		postern__json_pair_text(self->out, "store", channel->store->name);
	} else if (has_stores(self->config)) {
		postern__buf_printf(self->out, "%*sstore: ", self->indent, "");
		put_scalar(self->out, channel->store->name);
		postern__buf_append_char(self->out, '\n');
	}
	print_list(self, "former_names", channel->former_names,
			channel->former_name_count);
	print_key(self, channel->key_rules, channel->key_rule_count);
	print_guard(self, channel);
	print_options(self, POSTERN__IN_CHANNEL, POSTERN__LEVEL_CHANNEL,
			&channel->values);
	if (self->json && channel->staged) {
		postern__json_pair_bool(self->out, "staged", true);
	}
	open_sections(self, "sources",
			channel->source_count + (!self->json && channel->staged));
	if (!self->json && channel->staged) {
		postern__buf_printf(self->out, "%*s- staged\n", self->indent, "");
	}
	for (size_t i = 0; i < channel->source_count; i++) {
		print_source(self, &channel->sources[i]);
	}
	close_one(self, ']');
	open_sections(self, "handlers", channel->handler_count);
	for (size_t i = 0; i < channel->handler_count; i++) {
		print_handler(self, &channel->handlers[i]);
	}
	close_one(self, ']');
	close_one(self, '}');
}

/* The token itself is not known any more. */
static void print_token(struct printer *self,
		const struct postern__grant *grant) {
	bool payloads = grant->permissions & POSTERN__PERMIT_BODIES;
	if (self->json) {
		postern__json_open(self->out, '{');
		postern__json_pair_text(self->out, "name", grant->name);
		postern__json_pair_text(self->out, "role", grant->role);
		postern__json_pair_bool(self->out, "payloads", payloads);
	} else {
		postern__buf_printf(self->out, "%*s- name: ", self->indent, "");
		put_scalar(self->out, grant->name);
		postern__buf_printf(self->out, "\n%*srole: %s\n", self->indent + 2, "",
				grant->role);
		postern__buf_printf(self->out, "%*s# token: is not shown\n",
				self->indent + 2, "");
		if (payloads) {
			postern__buf_printf(self->out, "%*spayloads: on\n",
					self->indent + 2, "");
		}
	}
	self->indent += 2;
	print_list(self, "channels", grant->channels, grant->channel_count);
	close_one(self, '}');
}

static void print_tokens(struct printer *self) {
	const struct postern__config *config = self->config;
	if (config->token_count == 0) {
		return;
	}
	if (!self->json) {
		print_head(self, "auth");
		self->indent += 2;
	}
	open_sections(self, "tokens", config->token_count);
	for (size_t i = 0; i < config->token_count; i++) {
		print_token(self, &config->tokens[i].grant);
	}
	close_one(self, ']');
	self->indent -= self->json ? 0 : 2;
}

/* The options of the process: in the file they are in two places. */
static void print_global(struct printer *self) {
	const struct postern__config_values *values = &self->config->values;
	if (self->json) {
		print_options(self, POSTERN__IN_GLOBAL, POSTERN__LEVEL_GLOBAL, values);
		return;
	}
	print_options(self, POSTERN__IN_ROOT, POSTERN__LEVEL_GLOBAL, values);
	print_head(self, "defaults");
	self->indent += 2;
	print_options(self, POSTERN__IN_DEFAULTS, POSTERN__LEVEL_GLOBAL, values);
	self->indent -= 2;
}

void postern__config_print(const struct postern__config *config, bool json,
		struct postern__buf *out) {
	struct printer self = { .config = config, .out = out, .json = json };

	if (json) {
		postern__json_open(out, '{');
		postern__json_pair_text(out, "file", config->name);
	} else {
		postern__buf_printf(out, "# %s\n",
				config->name ? config->name : "no file: all defaults");
	}
	if (has_stores(config)) {
		/* Shown with the stores, if at all. */
		self.left_out = postern__option_named("store");
	}
	print_global(&self);
	print_tokens(&self);
	self.left_out = NULL;
	print_stores(&self);
	open_sections(&self, "channels", config->channel_count);
	for (size_t i = 0; i < config->channel_count; i++) {
		print_channel(&self, &config->channels[i]);
	}
	close_one(&self, ']');
	if (json) {
		postern__json_close(out, '}');
	}
}
