/* SPDX-License-Identifier: MIT */
/*
 * JSON pointers. A pointer is a list of tokens, each behind a slash; in a token
 * ~1 is a slash and ~0 a tilde. A token names a member of an object, or an item
 * of an array by its number without leading zeroes.
 */

#include "base/json_pointer.h"

#include "base/fail.h"
#include "base/utf8.h"

#include <postern/error.h>
#include <string.h>

int postern__json_pointer_check(const char *pointer, size_t len,
		struct postern_error *error) {
	if (len > POSTERN__JSON_POINTER_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the JSON pointer is longer than %d bytes",
				POSTERN__JSON_POINTER_LEN_MAX);
	}
	if (len > 0 && pointer[0] != '/') {
		return postern__fail(error, POSTERN_E_INVALID,
				"the JSON pointer '%.*s' does not begin with '/'", (int)len,
				pointer);
	}
	if (!postern__utf8_valid(pointer, len) || memchr(pointer, 0, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the JSON pointer is not valid UTF-8");
	}
	for (size_t i = 0; i < len; i++) {
		bool escape =
				i + 1 < len && (pointer[i + 1] == '0' || pointer[i + 1] == '1');
		if (pointer[i] == '~' && !escape) {
			return postern__fail(error, POSTERN_E_INVALID,
					"in the JSON pointer '%.*s' a '~' is not followed by 0 or "
					"1",
					(int)len, pointer);
		}
	}
	return POSTERN_OK;
}

/* Copy the next token, its escapes resolved, and end it with a zero byte.
   Returns the position behind it. */
static size_t read_token(const char *pointer, size_t len, size_t at,
		char out[POSTERN__JSON_POINTER_LEN_MAX + 1]) {
	size_t count = 0;
	for (; at < len && pointer[at] != '/'; at++) {
		if (pointer[at] == '~') {
			at++;
			out[count++] = pointer[at] == '0' ? '~' : '/';
		} else {
			out[count++] = pointer[at];
		}
	}
	out[count] = '\0';
	return at;
}

static enum postern__json_found
find_member(const struct postern__json_value *object, const char *name,
		struct postern__json_value *out) {
	enum postern__json_found found = POSTERN__JSON_ABSENT;
	struct postern__json_walk walk = postern__json_enter(object);
	struct postern__json_value key;
	struct postern__json_value value;
	while (postern__json_next(&walk, &key, &value)) {
		if (!postern__json_equals(&key, name)) {
			continue;
		}
		if (found == POSTERN__JSON_FOUND) {
			return POSTERN__JSON_TWICE;
		}
		found = POSTERN__JSON_FOUND;
		*out = value;
	}
	return found;
}

/* An index is written in one way only. */
static bool read_index(const char *token, size_t *out) {
	size_t index = 0;
	if (token[0] == '\0' || (token[0] == '0' && token[1] != '\0')) {
		return false;
	}
	for (; *token; token++) {
		if (*token < '0' || *token > '9' || index > SIZE_MAX / 10 - 1) {
			return false;
		}
		index = index * 10 + (size_t)(*token - '0');
	}
	*out = index;
	return true;
}

static enum postern__json_found
find_item(const struct postern__json_value *array, const char *token,
		struct postern__json_value *out) {
	size_t index;
	if (!read_index(token, &index)) {
		return POSTERN__JSON_ABSENT;
	}
	struct postern__json_walk walk = postern__json_enter(array);
	struct postern__json_value value;
	for (size_t i = 0; postern__json_next(&walk, NULL, &value); i++) {
		if (i == index) {
			*out = value;
			return POSTERN__JSON_FOUND;
		}
	}
	return POSTERN__JSON_ABSENT;
}

enum postern__json_found
postern__json_find(const struct postern__json_value *root, const char *pointer,
		size_t len, struct postern__json_value *out) {
	struct postern__json_value value = *root;
	enum postern__json_found found = POSTERN__JSON_FOUND;
	for (size_t at = 0; found == POSTERN__JSON_FOUND && at < len;) {
		char token[POSTERN__JSON_POINTER_LEN_MAX + 1];
		at = read_token(pointer, len, at + 1, token);
		if (value.type == POSTERN__JSON_OBJECT) {
			found = find_member(&value, token, &value);
		} else if (value.type == POSTERN__JSON_ARRAY) {
			found = find_item(&value, token, &value);
		} else {
			found = POSTERN__JSON_ABSENT;
		}
	}
	if (found == POSTERN__JSON_FOUND) {
		*out = value;
	}
	return found;
}
