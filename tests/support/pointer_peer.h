/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_POINTER_PEER_H
#define POSTERN_TESTS_POINTER_PEER_H

/*
 * JSON pointers evaluated on Jansson's tree of a text, to compare with the
 * scanner.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_pointer.h"

#define PEER_FLAGS (JSON_DECODE_ANY | JSON_ALLOW_NUL)

/* The next token of a pointer, its escapes resolved. Returns the rest. */
static inline const char *peer_token(const char *at, char *out) {
	for (; *at && *at != '/'; at++) {
		if (at[0] == '~' && (at[1] == '0' || at[1] == '1')) {
			at++;
			*out++ = *at == '0' ? '~' : '/';
		} else {
			*out++ = *at;
		}
	}
	*out = '\0';
	return at;
}

/* What the pointer names in Jansson's tree; NULL: nothing. */
static inline json_t *peer_find(json_t *root, const char *pointer) {
	char token[POSTERN__JSON_POINTER_LEN_MAX + 1];
	json_t *value = root;
	while (value && *pointer) {
		pointer = peer_token(pointer + 1, token);
		if (json_is_object(value)) {
			value = json_object_get(value, token);
		} else if (json_is_array(value)) {
			char *end = NULL;
			bool digits =
					token[0] && strspn(token, "0123456789") == strlen(token);
			bool one_way = digits && (token[0] != '0' || !token[1]);
			unsigned long index = one_way ? strtoul(token, &end, 10) : 0;
			value = one_way ? json_array_get(value, index) : NULL;
		} else {
			value = NULL;
		}
	}
	return value;
}

/*
 * Whether the scanner and Jansson find the same. Jansson takes the last of
 * members with one name, and cannot read some texts: then there is nothing to
 * compare.
 */
static inline bool peer_agrees(const char *pointer, const char *text,
		size_t len) {
	struct postern__json_value root;
	struct postern__json_value found;
	json_t *tree = json_loadb(text, len, PEER_FLAGS, NULL);
	bool agrees = true;
	if (tree && postern__json_scan(text, len, &root, NULL) == 0) {
		json_t *expected = peer_find(tree, pointer);
		json_t *actual = NULL;
		switch (postern__json_find(&root, pointer, strlen(pointer), &found)) {
		case POSTERN__JSON_FOUND:
			actual = json_loadb(found.text, found.len, PEER_FLAGS, NULL);
			agrees = expected && actual && json_equal(actual, expected);
			break;
		case POSTERN__JSON_ABSENT: agrees = !expected; break;
		case POSTERN__JSON_TWICE: {
			json_t *strict = json_loadb(text, len,
					PEER_FLAGS | JSON_REJECT_DUPLICATES, NULL);
			agrees = !strict;
			json_decref(strict);
			break;
		}
		}
		json_decref(actual);
	}
	json_decref(tree);
	return agrees;
}

#endif
