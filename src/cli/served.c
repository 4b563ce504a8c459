/* SPDX-License-Identifier: MIT */
/*
 * A server reads its configuration once. What it serves is told by name, which
 * is enough to see that the file has gone on without it.
 */

#include "cli/served.h"

#include <stdio.h>
#include <string.h>

#include "cli/answer.h"
#include "server/config.h"

struct comparison {
	const struct postern__config *config;
	const json_t *stats;
	char *text;
	size_t size;
};

static bool differ(const struct comparison *comparison, const char *how,
		const char *what, const char *name) {
	(void)snprintf(comparison->text, comparison->size, "it %s the %s '%.80s'",
			how, what, name);
	return false;
}

/* The entry of a list with this name; NULL: there is none, or the server only
   remembers it. */
static const json_t *entry_named(const struct comparison *comparison,
		const char *list, const char *member, const char *name) {
	size_t index;
	json_t *entry;
	json_array_foreach(json_object_get(comparison->stats, list), index, entry) {
		const char *text = postern__answer_text(entry, member);
		if (text && strcmp(text, name) == 0 &&
				!json_is_false(json_object_get(entry, "configured")) &&
				!json_is_false(json_object_get(entry, "registered"))) {
			return entry;
		}
	}
	return NULL;
}

/* Whether an entry is, or would be, in this store. */
static bool is_in(const json_t *entry, const struct postern__config_store *to) {
	const char *store = postern__answer_text(entry, "store");
	return store && strcmp(store, to->name) == 0;
}

/* What the configuration has and the server has not. */
static bool has_all(const struct comparison *comparison) {
	const struct postern__config *config = comparison->config;
	for (size_t i = 0; i < postern__config_store_count(config); i++) {
		const char *name = postern__config_store(config, i)->name;
		if (!entry_named(comparison, "stores", "name", name)) {
			return differ(comparison, "lacks", "store", name);
		}
	}
	for (size_t i = 0; i < postern__config_channel_count(config); i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(config, i);
		const json_t *entry =
				entry_named(comparison, "channels", "name", channel->name);
		if (!entry) {
			return differ(comparison, "lacks", "channel", channel->name);
		}
		if (!is_in(entry, channel->store)) {
			return differ(comparison, "has in another store", "channel",
					channel->name);
		}
		for (size_t j = 0; j < channel->handler_count; j++) {
			const char *key = channel->handlers[j].key;
			entry = entry_named(comparison, "handlers", "key", key);
			const char *in = postern__answer_text(entry, "channel");
			if (!entry) {
				return differ(comparison, "lacks", "handler", key);
			}
			if (!in || strcmp(in, channel->name) != 0) {
				return differ(comparison, "has in another channel", "handler",
						key);
			}
		}
	}
	return true;
}

static bool knows_store(const struct postern__config *config,
		const char *name) {
	return postern__config_store_named(config, name, NULL) != NULL;
}

static bool knows_channel(const struct postern__config *config,
		const char *name) {
	return postern__config_channel_named(config, name) != NULL;
}

static bool knows_handler(const struct postern__config *config,
		const char *key) {
	return postern__config_handler_named(config, key) != NULL;
}

/* What the server has and the configuration has not. */
static bool has_no_more(const struct comparison *comparison) {
	static const struct {
		const char *list;
		const char *member;
		const char *what;
		bool (*knows)(const struct postern__config *config, const char *name);
	} kinds[] = {
		{ "stores", "name", "store", knows_store },
		{ "channels", "name", "channel", knows_channel },
		{ "handlers", "key", "handler", knows_handler },
	};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		size_t index;
		json_t *entry;
		json_array_foreach(json_object_get(comparison->stats, kinds[i].list),
				index, entry) {
			const char *name = postern__answer_text(entry, kinds[i].member);
			if (name && !kinds[i].knows(comparison->config, name) &&
					entry_named(comparison, kinds[i].list, kinds[i].member,
							name)) {
				return differ(comparison, "still has", kinds[i].what, name);
			}
		}
	}
	return true;
}

bool postern__served_is_same(const struct postern__config *config,
		const json_t *stats, char *text, size_t size) {
	struct comparison comparison = {
		.config = config,
		.stats = stats,
		.size = size,
	};
	comparison.text = text;
	return has_all(&comparison) && has_no_more(&comparison);
}
