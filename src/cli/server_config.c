/* SPDX-License-Identifier: MIT */
/*
 * A server reads its configuration once. The names that it reports, and the
 * digests of their settings, show that the file was changed since.
 */

#include "cli/server_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/redact.h"
#include "cli/remote.h"
#include "cli/reply.h"
#include "server/api.h"
#include "server/config.h"
#include "server/config_digest.h"
#include "server/store_open.h"
#include "store/store.h"

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

/* The entry of a list with this name; NULL: there is none, or it is in the
   store but not in the server's configuration. */
static const json_t *entry_named(const struct comparison *comparison,
		const char *list, const char *member, const char *name) {
	size_t index;
	json_t *entry;
	json_array_foreach(json_object_get(comparison->stats, list), index, entry) {
		const char *text = postern__reply_text(entry, member);
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
	const char *store = postern__reply_text(entry, "store");
	return store && strcmp(store, to->name) == 0;
}

/* Whether an entry has this definition; a server that does not say has it. */
static bool is_defined(const json_t *entry, uint32_t digest) {
	const char *definition = postern__reply_text(entry, "definition");
	char text[9];
	(void)snprintf(text, sizeof text, "%08" PRIx32, digest);
	return !definition || strcmp(definition, text) == 0;
}

static bool has_stores(const struct comparison *comparison) {
	const struct postern__config *config = comparison->config;
	for (size_t i = 0; i < postern__config_store_count(config); i++) {
		const char *name = postern__config_store(config, i)->name;
		if (!entry_named(comparison, "stores", "name", name)) {
			return differ(comparison, "lacks", "store", name);
		}
	}
	return true;
}

/* Find what the configuration has and the server has not. */
static bool has_all(const struct comparison *comparison) {
	const struct postern__config *config = comparison->config;
	if (!has_stores(comparison)) {
		return false;
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
		if (!is_defined(entry, postern__config_channel_digest(channel))) {
			return differ(comparison, "has other settings of", "channel",
					channel->name);
		}
		for (size_t j = 0; j < channel->handler_count; j++) {
			const char *key = channel->handlers[j].key;
			entry = entry_named(comparison, "handlers", "key", key);
			const char *in = postern__reply_text(entry, "channel");
			if (!entry) {
				return differ(comparison, "lacks", "handler", key);
			}
			if (!in || strcmp(in, channel->name) != 0) {
				return differ(comparison, "has in another channel", "handler",
						key);
			}
			if (!is_defined(entry, postern__config_handler_digest(
										   &channel->handlers[j]))) {
				return differ(comparison, "has other settings of", "handler",
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

/* What has a name, in the server's lists and in a configuration. */
static const struct kind {
	const char *list;
	const char *member;
	const char *what;
	bool (*knows)(const struct postern__config *config, const char *name);
} kinds[] = {
	{ "stores", "name", "store", knows_store },
	{ "channels", "name", "channel", knows_channel },
	{ "handlers", "key", "handler", knows_handler },
};

/* Find what the server has and the configuration has not. */
static bool has_no_more_of(const struct comparison *comparison,
		const struct kind *kind) {
	size_t index;
	json_t *entry;
	json_array_foreach(json_object_get(comparison->stats, kind->list), index,
			entry) {
		const char *name = postern__reply_text(entry, kind->member);
		if (name && !kind->knows(comparison->config, name) &&
				entry_named(comparison, kind->list, kind->member, name)) {
			return differ(comparison, "still has", kind->what, name);
		}
	}
	return true;
}

static bool has_no_more(const struct comparison *comparison) {
	bool none = true;
	for (size_t i = 0; none && i < sizeof kinds / sizeof kinds[0]; i++) {
		none = has_no_more_of(comparison, &kinds[i]);
	}
	return none;
}

bool postern__server_config_matches(const struct postern__config *config,
		const json_t *stats, char *text, size_t size) {
	struct comparison comparison = {
		.config = config,
		.stats = stats,
		.size = size,
	};
	comparison.text = text;
	return has_all(&comparison) && has_no_more(&comparison);
}

/* What the server does not report was set by a flag or a variable. */
static void compare_fixed(void *context, const char *name, uint32_t digest) {
	struct comparison *comparison = context;
	const char *known =
			postern__reply_text(json_object_get(comparison->stats, "fixed"),
					name);
	char text[9];
	(void)snprintf(text, sizeof text, "%08" PRIx32, digest);
	if (known && strcmp(known, text) != 0 && !*comparison->text) {
		(void)snprintf(comparison->text, comparison->size,
				"it has another '%.80s'", name);
	}
}

bool postern__server_needs_restart(const struct postern__config *config,
		const json_t *stats, char *text, size_t size) {
	struct comparison comparison = {
		.config = config,
		.stats = stats,
		.size = size,
	};
	comparison.text = text;
	*text = '\0';
	if (has_stores(&comparison) && has_no_more_of(&comparison, &kinds[0])) {
		postern__config_fixed(config, compare_fixed, &comparison);
	}
	return *text != '\0';
}

/* Ask the server about one store. Returns the status of the response; 0:
   none. */
static int request_store(const struct postern__socket *socket, const char *path,
		const struct postern__config_store *store, json_t **out) {
	char id[POSTERN__STORE_ID_MAX];
	bool known = postern__store_id(store->values.store, store->name, id);
	const struct postern_header header = {
		.name = POSTERN__API_STORE_HEADER,
		.value = known ? id : "?",
	};
	const struct postern__request request = {
		.method = "GET",
		.path = path,
		.headers = &header,
		.header_count = 1,
	};
	struct postern__response response;
	int status = 0;
	postern__response_init(&response);
	if (!postern__remote_request(socket, &request, &response, NULL)) {
		status = response.status;
		*out = json_loadb(postern__buf_text(&response.body), response.body.len,
				0, NULL);
	}
	postern__response_finish(&response);
	return status;
}

/* Whether a shared store that the server has under the same name is in the
   same database and schema, as far as the server reports it. */
static bool is_same_place(const struct postern__config_store *store,
		const json_t *stats) {
	char url[POSTERN__REDACT_TEXT_MAX];
	char schema[POSTERN_SCHEMA_NAME_MAX];
	size_t index;
	json_t *entry;
	postern__redact(store->values.store, url, sizeof url);
	postern__config_schema_name(store, schema, sizeof schema);
	json_array_foreach(json_object_get(stats, "stores"), index, entry) {
		const char *name = postern__reply_text(entry, "name");
		const char *its_url = postern__reply_text(entry, "url");
		const char *its_schema = postern__reply_text(entry, "schema");
		if (name && strcmp(name, store->name) == 0) {
			return !its_url ||
				   (strcmp(its_url, url) == 0 &&
						   (!its_schema || strcmp(its_schema, schema) == 0));
		}
	}
	return true;
}

static bool has_store(const struct postern__config_store *store,
		const struct postern__socket *socket) {
	const bool shared = postern__store_is_shared(store->values.store);
	json_t *json = NULL;
	/* This route responds in any state of the store. */
	int status = request_store(socket, shared ? "/v1/stats" : "/healthz", store,
			&json);
	bool has = status != 421 &&
			   !(shared && status == 200 && !is_same_place(store, json));
	json_decref(json);
	return has;
}

bool postern__server_shares_store(const struct postern__config *config,
		const struct postern__socket *socket) {
	for (size_t i = 0; i < postern__config_store_count(config); i++) {
		const struct postern__config_store *store =
				postern__config_store(config, i);
		if (postern__store_is_durable(store->values.store) &&
				has_store(store, socket)) {
			return true;
		}
	}
	return false;
}
