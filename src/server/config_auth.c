/* SPDX-License-Identifier: MIT */
/*
 * `auth`: the tokens. What is read from a file of its own is overwritten as
 * soon as it is hashed; a token in the configuration stays with that file's
 * text.
 */

#include "server/config_section.h"

#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/option.h"
#include "base/text.h"
#include "core/box.h"
#include "server/auth.h"
#include "server/config_path.h"

/* The keys of a token. */
enum key { NAME, ROLE, TOKEN, TOKEN_FILE, CHANNELS, PAYLOADS, KEY_COUNT };
static const char *const keys[KEY_COUNT] = { "name", "role", "token",
	"token_file", "channels", "payloads" };

struct entry {
	const struct postern__yaml_node *node;
	const struct postern__yaml_node *values[KEY_COUNT];
};

/* False: an unknown key was reported. */
static bool find_values(struct postern__config *config,
		const struct postern__yaml_node *node, struct entry *out) {
	bool good = true;
	*out = (struct entry){ .node = node };
	for (const struct postern__yaml_node *value = node->first; value;
			value = value->next) {
		size_t i = 0;
		while (i < KEY_COUNT && strcmp(keys[i], value->key) != 0) {
			i++;
		}
		if (i < KEY_COUNT) {
			out->values[i] = value;
			continue;
		}
		const char *near = postern__closest(value->key, keys, KEY_COUNT);
		postern__mistakes_add(&config->mistakes, &value->key_place,
				"unknown key '%.60s' in a token%s%s%s", value->key,
				near ? "; did you mean '" : "", near ? near : "",
				near ? "'?" : "");
		good = false;
	}
	return good;
}

/* The token's own text; NULL: reported. */
static const char *read_secret(struct postern__config *config,
		const struct entry *entry) {
	const struct postern__yaml_node *file = entry->values[TOKEN_FILE];
	const struct postern__yaml_node *written = entry->values[TOKEN];
	struct postern_error error;
	const char *path;
	char *secret;
	if (!file == !written) {
		postern__mistakes_add(&config->mistakes, &entry->node->place,
				"a token needs 'token_file: FILE' or 'token: TEXT'%s",
				file ? ", not both" : "");
		return NULL;
	}
	if (written) {
		return postern__config_text_read(config, written);
	}
	path = postern__config_text_read(config, file);
	if (!path) {
		return NULL;
	}
	int r = postern__config_path_resolve(config->base, POSTERN__CONFIG_FILE, 0,
			&config->arena, &path, &error);
	if (r == POSTERN_OK) {
		r = postern__secret_read(path, &config->arena, &secret, &error);
	}
	if (r != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &file->place,
				"token_file", &error);
		return NULL;
	}
	return secret;
}

static void read_hash(struct postern__config *config, const struct entry *entry,
		struct postern__token *token) {
	const struct postern__yaml_node *node = entry->values[TOKEN]
													? entry->values[TOKEN]
													: entry->values[TOKEN_FILE];
	const char *secret = read_secret(config, entry);
	struct postern_error error;
	if (secret &&
			postern__token_hash(secret, token->hash, &error) != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, NULL,
				&error);
	}
	if (secret && entry->values[TOKEN_FILE]) {
		explicit_bzero((char *)secret, strlen(secret)); /* ours */
	}
}

static void read_name(struct postern__config *config, const struct entry *entry,
		struct postern__token *token) {
	const struct postern__yaml_node *node = entry->values[NAME];
	struct postern_error error;
	if (!node) {
		postern__mistakes_add(&config->mistakes, &entry->node->place,
				"a token needs a 'name', which is logged");
		return;
	}
	token->grant.name = postern__config_text_read(config, node);
	if (token->grant.name && postern__handler_key_check(token->grant.name,
									 &error) != POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, "name",
				&error);
	}
}

static void read_role(struct postern__config *config, const struct entry *entry,
		struct postern__token *token) {
	const struct postern__yaml_node *node = entry->values[ROLE];
	const char *text = node ? postern__config_text_read(config, node) : NULL;
	const struct postern__role *role = text ? postern__role_named(text) : NULL;
	if (role) {
		token->grant.role = role->name;
		token->grant.permissions = role->permissions;
	} else if (text || !node) {
		postern__mistakes_add(&config->mistakes,
				node ? &node->place : &entry->node->place,
				"a token needs a 'role', one of " POSTERN__ROLE_NAMES
				"%s%.60s%s",
				text ? ", not '" : "", text ? text : "", text ? "'" : "");
	}
}

/* Whether the token shows bodies of messages. */
static void read_payloads(struct postern__config *config,
		const struct entry *entry, struct postern__token *token) {
	const struct postern_option payloads = { .type = POSTERN_OPTION_SWITCH };
	const struct postern__yaml_node *node = entry->values[PAYLOADS];
	const char *text = node ? postern__config_text_read(config, node) : NULL;
	struct postern_error error;
	bool shown = false;
	if (!text) {
		return;
	}
	if (postern__option_set(&payloads, text, &shown, &config->arena, &error) !=
			POSTERN_OK) {
		postern__mistakes_add_error(&config->mistakes, &node->place, "payloads",
				&error);
	} else if (shown && token->grant.role &&
			   !(token->grant.permissions & POSTERN__PERMIT_READ)) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"payloads: the role '%s' reads nothing; the roles read, "
				"operate and admin do",
				token->grant.role);
	} else if (shown) {
		token->grant.permissions |= POSTERN__PERMIT_BODIES;
	}
}

static void check_twice(struct postern__config *config,
		const struct entry *entry, const struct postern__token *token,
		size_t before_count) {
	for (size_t i = 0; i < before_count; i++) {
		const struct postern__token *other = &config->tokens[i];
		if (token->grant.name && other->grant.name &&
				strcmp(token->grant.name, other->grant.name) == 0) {
			postern__mistakes_add(&config->mistakes, &entry->node->place,
					"there are two tokens with the name '%.60s'",
					token->grant.name);
		} else if (config->mistakes.count == 0 &&
				   memcmp(token->hash, other->hash, sizeof token->hash) == 0) {
			postern__mistakes_add(&config->mistakes, &entry->node->place,
					"the tokens '%.60s' and '%.60s' are the same text",
					other->grant.name, token->grant.name);
		}
	}
}

static void read_token(struct postern__config *config,
		const struct postern__yaml_node *node, struct postern__token *token,
		size_t index) {
	struct entry entry;
	if (node->kind != POSTERN__YAML_MAPPING) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"a token must be a mapping, as in {name: ops, role: operate, "
				"token_file: ops.token}, not %s",
				postern__yaml_kind_name(node));
		return;
	}
	if (!find_values(config, node, &entry)) {
		return;
	}
	read_name(config, &entry, token);
	read_role(config, &entry, token);
	read_payloads(config, &entry, token);
	read_hash(config, &entry, token);
	if (entry.values[CHANNELS] &&
			!postern__config_list_read(config, entry.values[CHANNELS],
					POSTERN_CHANNEL_COUNT_MAX, &token->grant.channels,
					&token->grant.channel_count)) {
		token->grant.channel_count = 0;
	}
	check_twice(config, &entry, token, index);
}

static const struct postern__yaml_node *
find_tokens(struct postern__config *config,
		const struct postern__yaml_node *node) {
	const struct postern__yaml_node *tokens = NULL;
	if (node->kind != POSTERN__YAML_MAPPING) {
		postern__mistakes_add(&config->mistakes, &node->place,
				"'auth' must be a mapping, as in {tokens: [...]}, not %s",
				postern__yaml_kind_name(node));
		return NULL;
	}
	for (const struct postern__yaml_node *entry = node->first; entry;
			entry = entry->next) {
		if (strcmp(entry->key, "tokens") == 0) {
			tokens = entry;
		} else {
			postern__mistakes_add(&config->mistakes, &entry->key_place,
					"unknown key '%.60s' in 'auth'; it has 'tokens'",
					entry->key);
		}
	}
	if (tokens && tokens->kind != POSTERN__YAML_LIST) {
		postern__mistakes_add(&config->mistakes, &tokens->place,
				"'tokens' must be a list, as in [{name: ops, role: operate, "
				"token_file: ops.token}], not %s",
				postern__yaml_kind_name(tokens));
		return NULL;
	}
	return tokens;
}

void postern__config_auth_read(struct postern__config *config,
		const struct postern__yaml_node *node) {
	if (!node || postern__yaml_empty(node)) {
		return;
	}
	const struct postern__yaml_node *list = find_tokens(config, node);
	if (!list || list->count == 0) {
		return;
	}
	config->auth_node = list;
	if (list->count > POSTERN__TOKEN_COUNT_MAX) {
		postern__mistakes_add(&config->mistakes, &list->place,
				"more than %d tokens", POSTERN__TOKEN_COUNT_MAX);
		return;
	}
	struct postern__token *tokens =
			postern__arena_array(&config->arena, list->count, sizeof *tokens);
	config->mistakes.no_memory = config->mistakes.no_memory || !tokens;
	config->tokens = tokens;
	const struct postern__yaml_node *entry = list->first;
	for (size_t i = 0; tokens && i < list->count; i++, entry = entry->next) {
		tokens[i] = (struct postern__token){ 0 };
		read_token(config, entry, &tokens[i], i);
	}
	config->token_count = tokens ? list->count : 0;
}

/* Each channel of a token, by its present name. */
void postern__config_auth_check(struct postern__config *config) {
	for (size_t i = 0; i < config->token_count; i++) {
		struct postern__grant *grant = &config->tokens[i].grant;
		const char **names = postern__arena_array(&config->arena,
				grant->channel_count + 1, sizeof *names);
		config->mistakes.no_memory = config->mistakes.no_memory || !names;
		for (size_t n = 0; names && n < grant->channel_count; n++) {
			const struct postern__config_channel *channel =
					postern__config_channel_named(config, grant->channels[n]);
			if (!channel) {
				postern__mistakes_add(&config->mistakes,
						&config->auth_node->place,
						"the token '%.60s' is for a channel '%.60s', which is "
						"not configured",
						grant->name ? grant->name : "", grant->channels[n]);
			}
			names[n] = channel ? channel->name : "";
		}
		grant->channels = names;
	}
}

void postern__config_auth(const struct postern__config *config,
		struct postern__auth *out) {
	*out = (struct postern__auth){
		.tokens = config->tokens,
		.token_count = config->token_count,
		.hosts = config->values.hosts,
	};
}
