/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_CONFIG_YAML_H
#define POSTERN_SERVER_CONFIG_YAML_H

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

struct postern__arena;

/* Maximum depth of mappings and lists. */
#define POSTERN__YAML_DEPTH_MAX 32
#define POSTERN__YAML_NODE_COUNT_MAX 100000
/* Maximum of one mapping or list: as many as there may be channels. */
#define POSTERN__YAML_ENTRY_COUNT_MAX 1000

/* The file of an error, and the place in it. Lines and columns count from 1,
   columns in characters. */
struct postern__yaml_place {
	const char *name;
	unsigned line;
	unsigned column;
};

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
 * Read a text of at most POSTERN__CONFIG_BYTES_MAX bytes.
 *
 * name   for errors; must live as long as the tree.
 * arena  where the tree lives.
 * out    NULL for a text with nothing in it but comments.
 */
int postern__yaml_read(const char *name, const char *text, size_t len,
		struct postern__arena *arena, struct postern__yaml_node **out,
		struct postern_error *error);

/* Whether the node is empty: `key:`, `key: ~` or `key: null`. */
bool postern__yaml_empty(const struct postern__yaml_node *node);

/* The type of a node, for errors: "text", "a list", "a mapping". */
const char *postern__yaml_kind_name(const struct postern__yaml_node *node);

/*
 * Fail with "name:line:col: " in front. A very long name is cut at its start,
 * so that there is room for the sentence. Returns POSTERN_E_INVALID.
 */
int postern__yaml_fail(struct postern_error *error,
		const struct postern__yaml_place *place, const char *format, ...)
		__attribute__((format(printf, 3, 4)));

/* The same, with the code in sight of the caller, as in base/fail.h. */
#define postern__yaml_fail(error, place, ...) \
	(postern__yaml_fail((error), (place), __VA_ARGS__), POSTERN_E_INVALID)

/* The same for a text and a code that are already in `error` (may be NULL).
   Returns `code`. */
int postern__yaml_fail_at(struct postern_error *error, int code,
		const struct postern__yaml_place *place);

#endif
