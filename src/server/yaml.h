/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_YAML_H
#define POSTERN_SERVER_YAML_H

/*
 * YAML text as a tree that knows the place of every node. Scalars are not
 * interpreted: each is text.
 *
 * Only a subset of YAML is supported: no anchors and aliases (so nothing can
 * multiply), no tags, no directives, one document, keys that are text and
 * unique in their mapping.
 */

#include <postern/error.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/config_mistakes.h"

/* Maximum depth of mappings and lists. */
#define POSTERN__YAML_DEPTH_MAX 32
#define POSTERN__YAML_NODE_COUNT_MAX 100000
/* Maximum of one mapping or list: as many as there may be channels. */
#define POSTERN__YAML_ENTRY_COUNT_MAX 1000

enum postern__yaml_kind {
	POSTERN__YAML_SCALAR,
	POSTERN__YAML_LIST,
	POSTERN__YAML_MAPPING
};

struct postern__yaml_node {
	enum postern__yaml_kind kind;
	struct postern__yaml_place place;
	/* In a mapping: the key of this value, and where it is written. */
	const char *key;
	struct postern__yaml_place key_place;

	const char *text; /* of a scalar; no zero byte inside; else NULL */
	bool plain;       /* written without quotes, not as a block */

	struct postern__yaml_node *first; /* of a list's or mapping's entries */
	struct postern__yaml_node *last;
	struct postern__yaml_node *next; /* after this one in its parent */
	size_t count;
};

/*
 * Read a text of at most POSTERN__CONFIG_BYTES_MAX bytes. False: the text
 * is not valid, and reading ended. Keys that occur twice are mistakes, too, but
 * the first is taken and reading goes on.
 *
 * name      for errors; must live as long as the tree.
 * mistakes  its arena is where the tree lives.
 * out       NULL for a text with nothing in it but comments.
 */
bool postern__yaml_read(const char *name, const char *text, size_t len,
		struct postern__mistakes *mistakes, struct postern__yaml_node **out);

/* Whether the node is empty: `key:`, `key: ~` or `key: null`. */
bool postern__yaml_empty(const struct postern__yaml_node *node);

/* The type of a node, for errors: "text", "a list", "a mapping". */
const char *postern__yaml_kind_name(const struct postern__yaml_node *node);

#endif
