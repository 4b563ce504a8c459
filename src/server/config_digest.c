/* SPDX-License-Identifier: MIT */
/*
 * A digest is made of all names and values in a fixed order, as they could be
 * written in a file; lists with their lengths, so that no two configurations
 * have the same text.
 */

#include "server/config_digest.h"

#include <postern/sys/handler.h>
#include <postern/sys/option.h>
#include <postern/sys/source.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/option.h"
#include "base/siphash.h"
#include "server/config_options.h"
#include "server/config_section.h"
#include "source/kinds.h"

/* Longer than any value. */
#define VALUE_LEN_MAX ((size_t)64 * 1024)
/* A store's name, and the longest name of an option. */
#define FIXED_NAME_MAX 128

/* No secret: both sides must have the same. */
static const uint8_t digest_key[POSTERN__SIPHASH_KEY_LEN] = "postern digest";

static void add_text(struct postern__siphash *hash, const char *text) {
	postern__siphash_update_field(hash, text ? text : "",
			text ? strlen(text) : 0);
}

static void add_texts(struct postern__siphash *hash, const char *const *texts,
		size_t count) {
	uint64_t number = count;
	postern__siphash_update(hash, &number, sizeof number);
	for (size_t i = 0; i < count; i++) {
		add_text(hash, texts[i]);
	}
}

static void add_rules(struct postern__siphash *hash,
		const struct postern_key_rule *rules, size_t count) {
	uint64_t number = count;
	postern__siphash_update(hash, &number, sizeof number);
	for (size_t i = 0; i < count; i++) {
		add_text(hash, rules[i].type);
		add_text(hash, rules[i].rule);
	}
}

/* A list in a struct: the pointer is directly before its count. */
struct texts {
	const char *const *items;
	size_t count;
};

static void add_option(struct postern__siphash *hash,
		const struct postern_option *option, const void *object) {
	const void *member = (const char *)object + option->offset;
	struct postern__buf value;
	add_text(hash, option->name);
	if (option->type == POSTERN_OPTION_TEXTS) {
		const struct texts *texts = member;
		add_texts(hash, texts->items, texts->count);
		return;
	}
	if (option->type == POSTERN_OPTION_TEXT) {
		add_text(hash, *(const char *const *)member);
		return;
	}
	postern__buf_init(&value, VALUE_LEN_MAX);
	postern__option_format(option, object, &value);
	add_text(hash, postern__buf_text(&value));
	postern__buf_finish(&value);
}

/* The effective values of the options that may be set in this place, without
   those of the places in `but`. */
static void add_values(struct postern__siphash *hash, unsigned place,
		unsigned but, const struct postern__config_values *values) {
	const struct postern_option *option;
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		if ((option->places & place) && !(option->places & but) &&
				!(option->flags & POSTERN_OPTION_LATER)) {
			add_option(hash, option, values);
		}
	}
}

uint32_t postern__config_handler_digest(
		const struct postern__config_handler *handler) {
	struct postern__siphash hash;
	postern__siphash_init(&hash, digest_key);
	add_text(&hash, handler->kind->name);
	for (size_t i = 0; i < handler->kind->option_count; i++) {
		add_option(&hash, &handler->kind->options[i], handler->settings);
	}
	add_texts(&hash, handler->types, handler->type_count);
	add_texts(&hash, handler->legacy_keys, handler->legacy_key_count);
	add_rules(&hash, handler->key_rules, handler->key_rule_count);
	add_values(&hash, POSTERN__IN_HANDLER, 0, &handler->values);
	return (uint32_t)postern__siphash_finish(&hash);
}

static void add_sources(struct postern__siphash *hash,
		const struct postern__config_channel *channel) {
	for (size_t i = 0; i < channel->source_count; i++) {
		const struct postern__config_channel_source *source =
				&channel->sources[i];
		add_text(hash, source->name);
		add_text(hash, source->kind->name);
		for (size_t n = 0; n < source->setting_count; n++) {
			add_text(hash, source->settings[n].name);
			add_text(hash, source->settings[n].value);
		}
	}
}

uint32_t postern__config_channel_digest(
		const struct postern__config_channel *channel) {
	struct postern__siphash hash;
	postern__siphash_init(&hash, digest_key);
	add_texts(&hash, channel->former_names, channel->former_name_count);
	add_rules(&hash, channel->key_rules, channel->key_rule_count);
	add_values(&hash, POSTERN__IN_CHANNEL, POSTERN__IN_HANDLER,
			&channel->values);
	add_sources(&hash, channel);
	return (uint32_t)postern__siphash_finish(&hash);
}

/* Addresses; of a path what follows the last '/'. */
static void add_places(struct postern__siphash *hash, const char *text) {
	static const char unix_prefix[] = "unix:";
	while (text && *text) {
		size_t len = strcspn(text, ",");
		const char *end = text + len;
		const char *from = memrchr(text, '/', len);
		if (from) {
			from++;
		} else {
			bool is_unix = strncmp(text, unix_prefix, strlen(unix_prefix)) == 0;
			from = text + (is_unix ? strlen(unix_prefix) : 0);
		}
		postern__siphash_update_field(hash, from, (size_t)(end - from));
		text = *end ? end + 1 : end;
	}
}

static void report_values(const struct postern__config_values *values,
		unsigned places, const char *store, postern__config_fixed_each *each,
		void *context) {
	const struct postern_option *option;
	for (size_t i = 0; (option = postern__option_at(i)); i++) {
		enum postern__config_source source =
				postern__config_origin_of(values, option->name)->source;
		struct postern__siphash hash;
		char name[FIXED_NAME_MAX];
		if (!(option->places & places) ||
				postern__option_is_reloadable(option) ||
				(option->flags & POSTERN_OPTION_LATER) ||
				source == POSTERN__CONFIG_FLAG ||
				source == POSTERN__CONFIG_ENVIRONMENT ||
				strcmp(option->name, "store") == 0) {
			continue;
		}
		postern__siphash_init(&hash, digest_key);
		if (postern__option_is_listen(option)) {
			add_places(&hash, *(const char *const *)((const char *)values +
													 option->offset));
		} else {
			add_option(&hash, option, values);
		}
		(void)snprintf(name, sizeof name, "%s%s%s", store ? store : "",
				store ? ": " : "", option->name);
		each(context, name, (uint32_t)postern__siphash_finish(&hash));
	}
}

static void report_sources(const struct postern__config *config,
		postern__config_fixed_each *each, void *context) {
	struct postern__siphash hash;
	postern__siphash_init(&hash, digest_key);
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		if (channel->source_count > 0) {
			add_text(&hash, channel->name);
			add_sources(&hash, channel);
		}
	}
	each(context, "sources", (uint32_t)postern__siphash_finish(&hash));
}

void postern__config_fixed(const struct postern__config *config,
		postern__config_fixed_each *each, void *context) {
	const struct postern__config_values *global =
			postern__config_global(config);
	const size_t count = postern__config_store_count(config);
	report_values(global, POSTERN__IN_GLOBAL & ~POSTERN__IN_DEFAULTS, NULL,
			each, context);
	for (size_t i = 0; i < count; i++) {
		const struct postern__config_store *store =
				postern__config_store(config, i);
		report_values(&store->values, POSTERN__IN_STORE,
				count > 1 ? store->name : NULL, each, context);
	}
	report_sources(config, each, context);
	each(context, "tls", global->tls_cert_file != NULL);
}
