/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_JSON_SCAN_H
#define POSTERN_BASE_JSON_SCAN_H

/*
 * Reading JSON where it lies, without allocating.
 *
 * postern__json_scan() validates a whole text by RFC 8259 and returns its
 * value, a slice of the text. Objects and arrays are walked by an iterator,
 * which relies on that validation, so nothing is checked twice and no tree is
 * built:
 *
 *   struct postern__json_value event, key, value;
 *   int r = postern__json_scan(text, len, &event, error);
 *   ...
 *   struct postern__json_walk walk = postern__json_enter(&event);
 *   while (postern__json_next(&walk, &key, &value)) { ... }
 *
 * Numbers stay text: nothing here rounds them.
 */

#include <stdbool.h>
#include <stddef.h>

struct postern_error;

/* Nested objects and arrays; a text with more is refused. */
#define POSTERN__JSON_DEPTH_MAX 100

enum postern__json_type {
	POSTERN__JSON_OBJECT,
	POSTERN__JSON_ARRAY,
	POSTERN__JSON_STRING,
	POSTERN__JSON_NUMBER,
	POSTERN__JSON_TRUE,
	POSTERN__JSON_FALSE,
	POSTERN__JSON_NULL
};

/* A value as it stands in the text: brackets, braces and quotes included. */
struct postern__json_value {
	enum postern__json_type type;
	const char *text;
	size_t len;
};

/*
 * Validate a text that is one JSON value with blanks around it.
 *
 * The text must be valid UTF-8, and its strings must have no lone surrogates.
 * A member name that occurs twice in an object is not an error here.
 *
 * Returns POSTERN_OK, or POSTERN_E_INVALID; the error names the position, from
 * 1, in bytes.
 */
int postern__json_scan(const char *text, size_t len,
		struct postern__json_value *out, struct postern_error *error);

/* The place of an iterator in an object or array. */
struct postern__json_walk {
	const char *at;
	bool object;
};

/* Begin to walk over the members of an object or the items of an array, which
   must be from postern__json_scan() or from another walk. */
struct postern__json_walk postern__json_enter(
		const struct postern__json_value *value);

/* The next member or item; false after the last. `key` is a string; it is not
   set for the items of an array and may be NULL. */
bool postern__json_next(struct postern__json_walk *walk,
		struct postern__json_value *key, struct postern__json_value *value);

/*
 * The characters of a string, its escapes resolved. `out` must have room for
 * string->len bytes, and gets no zero byte at its end. Returns how many bytes
 * were written; U+0000 is a byte like any other.
 */
size_t postern__json_unescape(const struct postern__json_value *string,
		char *out);

/* Whether a string, its escapes resolved, equals this text. */
bool postern__json_equals(const struct postern__json_value *string,
		const char *text);

#endif
