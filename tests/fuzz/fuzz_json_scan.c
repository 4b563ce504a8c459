/* SPDX-License-Identifier: MIT */

/*
 * Reading JSON. Jansson reads the same text: both accept it or both refuse it,
 * and a tree built from the walks over the scanned text equals Jansson's.
 */

#include <jansson.h>
#include <postern/error.h>

#include "base/json_scan.h"
#include "fuzz.h"

#define FLAGS (JSON_DECODE_ANY | JSON_ALLOW_NUL)

static json_t *build(const struct postern__json_value *value);

static json_t *build_string(const struct postern__json_value *value) {
	char *text = malloc(value->len);
	MUST(text);
	size_t len = postern__json_unescape(value, text);
	MUST(len < value->len);
	json_t *json = json_stringn(text, len);
	MUST(json);
	bool whole = !memchr(text, 0, len);
	char *copy = malloc(len + 2);
	MUST(copy);
	memcpy(copy, text, len);
	copy[len] = '\0';
	MUST(postern__json_equals(value, copy) == whole);
	copy[len] = 'x';
	copy[len + 1] = '\0';
	MUST(!postern__json_equals(value, copy));
	if (len > 0) {
		copy[len - 1] = '\0';
		MUST(!postern__json_equals(value, copy));
	}
	free(copy);
	free(text);
	return json;
}

static json_t *build_object(const struct postern__json_value *object) {
	json_t *json = json_object();
	struct postern__json_value key, value;
	struct postern__json_walk walk = postern__json_enter(object);
	while (postern__json_next(&walk, &key, &value)) {
		char *name = malloc(key.len);
		MUST(name);
		name[postern__json_unescape(&key, name)] = '\0';
		MUST(json_object_set_new(json, name, build(&value)) == 0);
		free(name);
	}
	return json;
}

static json_t *build_array(const struct postern__json_value *array) {
	json_t *json = json_array();
	struct postern__json_value value;
	struct postern__json_walk walk = postern__json_enter(array);
	while (postern__json_next(&walk, NULL, &value)) {
		MUST(json_array_append_new(json, build(&value)) == 0);
	}
	return json;
}

static json_t *build(const struct postern__json_value *value) {
	switch (value->type) {
	case POSTERN__JSON_OBJECT: return build_object(value);
	case POSTERN__JSON_ARRAY: return build_array(value);
	case POSTERN__JSON_STRING: return build_string(value);
	case POSTERN__JSON_TRUE: return json_true();
	case POSTERN__JSON_FALSE: return json_false();
	case POSTERN__JSON_NULL: return json_null();
	case POSTERN__JSON_NUMBER:
	default: return json_loadb(value->text, value->len, FLAGS, NULL);
	}
}

/* What Jansson refuses and JSON allows: numbers that it cannot hold, and zero
   bytes in member names. */
static bool is_limit_of_jansson(const json_error_t *error) {
	enum json_error_code code = json_error_code(error);
	return code == json_error_numeric_overflow ||
		   code == json_error_null_byte_in_key ||
		   code == json_error_null_character;
}

/* Whether more brackets are open at once than the scanner follows. */
static bool is_too_deep(const struct postern_error *error) {
	return strstr(error->text, "nested too deeply") != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	const char *text = (const char *)data;
	struct postern__json_value value;
	struct postern_error mine = { 0 };
	json_error_t other;
	int r = postern__json_scan(text, size, &value, &mine);
	json_t *json = json_loadb(text, size, FLAGS, &other);
	if (r) {
		MUST(r == POSTERN_E_INVALID && fuzz_is_clean(mine.text));
		/* Jansson takes a zero byte behind a value for the end of the text. */
		MUST(!json || is_too_deep(&mine) || memchr(text, 0, size));
	} else if (json) {
		json_t *built = build(&value);
		MUST(built && json_equal(json, built));
		json_decref(built);
	} else {
		MUST(is_limit_of_jansson(&other));
	}
	json_decref(json);
	return 0;
}
