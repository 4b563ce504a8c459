/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_SECTION_H
#define POSTERN_SERVER_CONFIG_SECTION_H

/*
 * Shared by the files that read a configuration: the object that is filled, and
 * how one mapping of the file is read.
 *
 * The functions add what is wrong to config->mistakes and go on, with the value
 * that would be there without the wrong one. An option whose value is wrong has
 * an origin that is `bad`; nothing is concluded from it, so that one mistake is
 * reported once.
 */

#include <postern/error.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "server/config.h"
#include "server/config_mistakes.h"
#include "server/yaml.h"

struct postern_option;

/* A handler's key or legacy key and where it was written. */
struct postern__config_use {
	const char *key;
	const char *legacy_of; /* the key that replaced it; NULL: it is not a legacy
							  key */
	const char *channel;
	struct postern__yaml_place place;
	size_t order;
	struct postern__config_use *next;
};

struct postern__config {
	struct postern__arena arena; /* all that is below */
	const char *name;            /* NULL: no file */
	/* The directory of relative paths of the file; NULL: the working
	   directory. */
	const char *base;
	struct postern__config_values values; /* global ones */
	struct postern__config_store *stores;
	size_t store_count;
	const struct postern__config_channel *channels;
	size_t channel_count;
	const struct postern__stores *opened; /* NULL: this is no server */
	struct postern__config_listen listens[2 * POSTERN__LISTEN_COUNT_MAX];
	size_t listen_count;
	struct postern__token *tokens;
	size_t token_count;
	const char *warnings[POSTERN__CONFIG_WARNING_COUNT_MAX];
	size_t warning_count;

	/* While it is being loaded. */
	struct postern__mistakes mistakes;
	char *const *environment;
	const struct postern__yaml_node *auth_node; /* the list of tokens */
	unsigned store_line; /* of `store` at the top level; 0: not there */
	struct postern__config_use *uses; /* newest first */
	size_t use_count;
	size_t handler_count;
	const struct postern__config_channel_source *sources; /* newest first */
	size_t source_count;
};

/* What a section has besides options. The order is the one of the table in
   config_section.c. */
enum postern__config_part {
	POSTERN__PART_DEFAULTS,
	POSTERN__PART_STORES,
	POSTERN__PART_CHANNELS,
	POSTERN__PART_AUTH,
	POSTERN__PART_URL,
	POSTERN__PART_URL_FILE,
	POSTERN__PART_STORE,
	POSTERN__PART_FORMER_NAMES,
	POSTERN__PART_KEY,
	POSTERN__PART_GUARD,
	POSTERN__PART_SOURCES,
	POSTERN__PART_HANDLERS,
	POSTERN__PART_TYPES,
	POSTERN__PART_LEGACY_KEYS,
	POSTERN__PART_WEBHOOK,
	POSTERN__PART_PUBLISH,
	POSTERN__PART_PLUGIN,
	POSTERN__PART_COUNT
};

struct postern__config_parts {
	const struct postern__yaml_node *nodes[POSTERN__PART_COUNT];
};

/* The levels of an origin. */
#define POSTERN__LEVEL_GLOBAL 0
#define POSTERN__LEVEL_STORE 1
#define POSTERN__LEVEL_CHANNEL 2
#define POSTERN__LEVEL_HANDLER 3

/*
 * Read the mapping of one scope (POSTERN__IN_…): options are stored in the
 * values, parts are found and left to the caller. An empty node is valid.
 * Returns whether every key was known.
 */
bool postern__config_section_read(struct postern__config *config,
		const struct postern__yaml_node *node, unsigned scope, unsigned level,
		struct postern__config_values *values,
		struct postern__config_parts *parts_out);

/* Whether a node is a mapping of names, or nothing. */
bool postern__config_is_named(struct postern__config *config,
		const struct postern__yaml_node *node);

/* The text of a scalar, with its variables expanded; NULL: it has none. */
const char *postern__config_text_read(struct postern__config *config,
		const struct postern__yaml_node *node);

/* A list of texts, at most count_max; false: it is not a valid one. */
bool postern__config_list_read(struct postern__config *config,
		const struct postern__yaml_node *node, size_t count_max,
		const char *const **out, size_t *count_out);

/* config_listen.c: whether a text is a list of addresses. */
int postern__listen_check(const char *text, struct postern_error *error);
/* Resolve the relative paths in it. */
int postern__listen_resolve(struct postern__config *config,
		enum postern__config_source source, const char **text,
		struct postern_error *error);
/* The text of a list in the file; false: it has a mistake. */
bool postern__listen_join(struct postern__config *config,
		const struct postern__yaml_node *node, const char **out);
/* After the global values and the tokens were read. */
void postern__config_listens_read(struct postern__config *config);

/* config_auth.c: the tokens of `auth`, which may be NULL; and, after the
   channels were read, the channels of the tokens. */
void postern__config_auth_read(struct postern__config *config,
		const struct postern__yaml_node *node);
void postern__config_auth_check(struct postern__config *config);

/* config_tls.c: whether the certificate has a key. */
void postern__config_tls_check(struct postern__config *config);

/* config_guard.c: what a channel guards, and whether that fits its mode, store
   and handlers; `node` may be NULL. After the handlers were read. */
void postern__config_guard_read(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel);
/* After all channels were read: the channels that others name. */
void postern__config_guards_check(struct postern__config *config);

/* config_key.c: the key rules of a channel or handler: one rule, or a rule by
   type. */
void postern__config_key_read(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_key_rule **out, size_t *count_out);

/* Read the value of an option, or with `is_file` its NAME_file, which is
   called by the node's key. */
void postern__config_option_read(struct postern__config *config,
		const struct postern__yaml_node *node,
		const struct postern_option *option, bool is_file, unsigned level,
		struct postern__config_values *values);

/*
 * Set an option and remember where it was set. If the origin is a file's, the
 * text is the name of the file that contains the secret; both forms from the
 * same source are refused. Errors contain no place.
 */
int postern__config_option_put(struct postern__config *config,
		const struct postern_option *option, const char *text,
		const struct postern__config_origin *origin,
		struct postern__config_values *values, struct postern_error *error);

/* Where the option of this name was set. */
const struct postern__config_origin *
postern__config_origin_of(const struct postern__config_values *values,
		const char *name);

/* Put "file:line:col: ", "$VARIABLE: " or "--flag: " of an option's origin in
   front of the text in `error`. Returns its code. */
int postern__config_fail_at(const struct postern__config *config,
		const struct postern__config_values *values, const char *name,
		struct postern_error *error);

/* Add a mistake at the place of the option of this name. */
void postern__config_mistake(struct postern__config *config,
		const struct postern__config_values *values, const char *name,
		const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The nearer of two options, or `first` if they are equally near: a mistake
   about both is reported at its place. NULL: one of them is bad already. */
const char *postern__config_nearer(const struct postern__config_values *values,
		const char *first, const char *second);

/* Read the stores; the global values are complete. `node` is `stores`, or
   NULL if that is not there. */
void postern__config_stores_read(struct postern__config *config,
		const struct postern__yaml_node *node);

/*
 * Whether a setting that only some stores have was set. A default that is
 * written in `defaults`, as `check --print` does, does not count.
 */
bool postern__config_setting_given(const struct postern__config_values *values,
		const char *name);

/* The store that a channel names, or, with a node of NULL, the store of
   channels that name none. NULL: there is no such store. */
const struct postern__config_store *
postern__config_store_choose(struct postern__config *config,
		const struct postern__yaml_node *channel,
		const struct postern__yaml_node *node);

/* Read the sources of a channel. */
void postern__config_sources_read(struct postern__config *config,
		const struct postern__yaml_node *node,
		struct postern__config_channel *channel);

/* Read the channels with their handlers; the stores are complete. */
void postern__config_channels_read(struct postern__config *config,
		const struct postern__yaml_node *node);

/*
 * The kind that a key of a handler's section names, if a configuration can have
 * it; NULL: none. A kind "publish_rabbitmq" may also be written as
 * "publish: {rabbitmq: …}".
 *
 * options_out  the entry with its options; may be NULL.
 */
const struct postern_handler_kind *
postern__config_kind_of(const struct postern__yaml_node *entry,
		const struct postern__yaml_node **options_out);

/* Whether a kind has an option of this name beside its own key. */
bool postern__config_is_beside(const char *name);

/* Whether there is a kind NAME_…, so that NAME alone is not complete. */
bool postern__config_kind_begins(const char *name);

/* The keys of all kinds of handlers: "'sql', 'exec' or 'pull'". */
void postern__config_list_kinds(char *out, size_t size);

/* Read what depends on the kind of a handler; its other values are complete.
   `complete`: every key of the section was known. */
void postern__config_kind_read(struct postern__config *config,
		const struct postern__yaml_node *node, bool complete,
		struct postern__config_handler *handler);

/* Another kind takes the place of the one that was read, with its defaults. */
void postern__config_kind_change(struct postern__config *config,
		struct postern__config_handler *handler,
		const struct postern_handler_kind *kind);

/* Refuse a timeout that is not less than the lease. `kind` may be NULL. */
void postern__config_timeout_check(struct postern__config *config,
		const struct postern__config_values *values,
		const struct postern_handler_kind *kind);

#endif
