/* SPDX-License-Identifier: MIT */

/*
 * Reading JSON: what is refused and where, and what a walk finds. The fuzz
 * target of the same name compares it with another parser.
 */

#include "base/json_scan.h"

#include "tap.h"

static int scan(const char *text, struct postern__json_value *out,
		struct postern_error *error) {
	return postern__json_scan(text, strlen(text), out, error);
}

static void refuses_what_is_not_json(void) {
	static const struct {
		const char *text;
		const char *error;
	} rows[] = {
		{ "", "invalid JSON: the text is empty" },
		{ " \n", "invalid JSON: the text is empty" },
		{ "\xff", "invalid JSON: not valid UTF-8" },
		{ "nul", "invalid JSON at byte 1: not a value" },
		{ "NaN", "invalid JSON at byte 1: not a value" },
		{ "+1", "invalid JSON at byte 1: not a value" },
		{ "01", "invalid JSON at byte 2: more text behind the value" },
		{ "1.", "invalid JSON at byte 1: a number without decimals" },
		{ "[1e]", "invalid JSON at byte 2: a number without an exponent" },
		{ "[1,]", "invalid JSON at byte 4: not a value" },
		{ "[1 2]", "invalid JSON at byte 4: expected ',' or ']'" },
		{ "[1}", "invalid JSON at byte 3: expected ',' or ']'" },
		{ "{\"a\":1]", "invalid JSON at byte 7: expected ',' or '}'" },
		{ "{\"a\":1,}", "invalid JSON at byte 8: expected a member name" },
		{ "{a:1}", "invalid JSON at byte 2: expected a member name" },
		{ "{\"a\" 1}", "invalid JSON at byte 6: expected ':'" },
		{ "[", "invalid JSON at byte 2: not a value" },
		{ "\"a", "invalid JSON at byte 1: a string without an end" },
		{ "\"a\nb\"",
				"invalid JSON at byte 3: a control character in a string" },
		{ "\"\\x\"", "invalid JSON at byte 2: unknown escape" },
		{ "\"\\u12g4\"", "invalid JSON at byte 2: \\u needs four hex digits" },
		{ "\"\\ud800\"", "invalid JSON at byte 2: a lone surrogate" },
		{ "\"\\udc00\"", "invalid JSON at byte 2: a lone surrogate" },
		{ "\"\\ud800\\u0041\"", "invalid JSON at byte 2: a lone surrogate" },
		{ "{} {}", "invalid JSON at byte 4: more text behind the value" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern__json_value value;
		struct postern_error error = { 0 };
		CHECK_INT(scan(rows[i].text, &value, &error), POSTERN_E_INVALID);
		CHECK_STR(error.text, rows[i].error);
	}
}

static void refuses_what_is_nested_too_deeply(void) {
	char text[2 * (POSTERN__JSON_DEPTH_MAX + 1) + 1];
	for (size_t depth = POSTERN__JSON_DEPTH_MAX;
			depth <= POSTERN__JSON_DEPTH_MAX + 1; depth++) {
		struct postern__json_value value;
		struct postern_error error = { 0 };
		bool good = depth == POSTERN__JSON_DEPTH_MAX;
		memset(text, '[', depth);
		memset(text + depth, ']', depth);
		text[2 * depth] = '\0';
		CHECK_INT(scan(text, &value, &error),
				good ? POSTERN_OK : POSTERN_E_INVALID);
		CHECK_STR(error.text, good ? ""
								   : "invalid JSON at byte 101: nested too "
									 "deeply");
	}
}

static void check_slice(const struct postern__json_value *value,
		enum postern__json_type type, const char *text) {
	CHECK_INT(value->type, type);
	CHECK_MEM(value->text, value->len, text, strlen(text));
}

static void a_walk_returns_members_as_they_stand(void) {
	static const struct {
		const char *key;
		enum postern__json_type type;
		const char *text;
	} rows[] = {
		{ "\"a\"", POSTERN__JSON_NUMBER, "-1.50E+2" },
		{ "\"b\\u0063\"", POSTERN__JSON_STRING, "\"}\\\"]\"" },
		{ "\"c\"", POSTERN__JSON_OBJECT, "{ \"x\" : [ 1 , {} ] }" },
		{ "\"d\"", POSTERN__JSON_ARRAY, "[]" },
		{ "\"e\"", POSTERN__JSON_TRUE, "true" },
		{ "\"f\"", POSTERN__JSON_FALSE, "false" },
		{ "\"a\"", POSTERN__JSON_NULL, "null" },
	};
	static const char text[] =
			" {\"a\":-1.50E+2 , \"b\\u0063\" : \"}\\\"]\","
			"\"c\":{ \"x\" : [ 1 , {} ] },\"d\":[],\"e\":true,\"f\":false,"
			"\"a\":null\n} ";
	struct postern__json_value object, key, value;
	struct postern_error error;
	if (!CHECK_OK(scan(text, &object, &error), &error)) {
		return;
	}
	CHECK_MEM(object.text, object.len, text + 1, strlen(text) - 2);
	struct postern__json_walk walk = postern__json_enter(&object);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (!CHECK(postern__json_next(&walk, &key, &value))) {
			return;
		}
		check_slice(&key, POSTERN__JSON_STRING, rows[i].key);
		check_slice(&value, rows[i].type, rows[i].text);
	}
	CHECK(!postern__json_next(&walk, &key, &value));
	CHECK(!postern__json_next(&walk, &key, &value));
}

static void a_walk_returns_items_in_order(void) {
	struct postern__json_value array, value;
	struct postern_error error;
	if (!CHECK_OK(scan("[ \"a\" ,2, [3] ]", &array, &error), &error)) {
		return;
	}
	struct postern__json_walk walk = postern__json_enter(&array);
	CHECK(postern__json_next(&walk, NULL, &value));
	check_slice(&value, POSTERN__JSON_STRING, "\"a\"");
	CHECK(postern__json_next(&walk, NULL, &value));
	check_slice(&value, POSTERN__JSON_NUMBER, "2");
	CHECK(postern__json_next(&walk, NULL, &value));
	check_slice(&value, POSTERN__JSON_ARRAY, "[3]");
	CHECK(!postern__json_next(&walk, NULL, &value));
}

static void escapes_are_resolved(void) {
	static const struct {
		const char *json;
		const char *text;
		size_t len;
	} rows[] = {
		{ "\"\"", "", 0 },
		{ "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8 },
		{ "\"\\u0041\\u00e9\\u20AC\"", "A\xc3\xa9\xe2\x82\xac", 6 },
		{ "\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4 },
		{ "\"a\\u0000b\"", "a\0b", 3 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern__json_value value;
		struct postern_error error;
		char out[64];
		if (CHECK_OK(scan(rows[i].json, &value, &error), &error)) {
			CHECK_MEM(out, postern__json_unescape(&value, out), rows[i].text,
					rows[i].len);
		}
	}
}

static void a_zero_byte_does_not_end_a_comparison(void) {
	struct postern__json_value value;
	struct postern_error error;
	if (CHECK_OK(scan("\"id\\u0000\"", &value, &error), &error)) {
		CHECK(!postern__json_equals(&value, "id"));
	}
	if (CHECK_OK(scan("\"i\\u0064\"", &value, &error), &error)) {
		CHECK(postern__json_equals(&value, "id"));
		CHECK(!postern__json_equals(&value, "i"));
		CHECK(!postern__json_equals(&value, "idx"));
	}
}

static const struct tap_case cases[] = {
	{ "what is not JSON is refused with its position",
			refuses_what_is_not_json },
	{ "a text nested deeper than the limit is refused",
			refuses_what_is_nested_too_deeply },
	{ "a walk returns the members of an object as they stand",
			a_walk_returns_members_as_they_stand },
	{ "a walk returns the items of an array in order",
			a_walk_returns_items_in_order },
	{ "escapes are resolved", escapes_are_resolved },
	{ "a zero byte does not end a comparison",
			a_zero_byte_does_not_end_a_comparison },
};

TAP_MAIN(cases)
