/* SPDX-License-Identifier: MIT */

/* JSON pointers, and random ones on random texts compared with Jansson. */

#include <stdint.h>
#include <stdio.h>

#include "support/pointer_peer.h"
#include "tap.h"

static enum postern__json_found find(const char *text, const char *pointer,
		struct postern__json_value *out) {
	struct postern__json_value root;
	CHECK_INT(postern__json_scan(text, strlen(text), &root, NULL), 0);
	return postern__json_find(&root, pointer, strlen(pointer), out);
}

static void check_found(const char *text, const char *pointer,
		const char *expected) {
	struct postern__json_value value = { 0 };
	CHECK_INT(find(text, pointer, &value), POSTERN__JSON_FOUND);
	CHECK_INT(value.len, strlen(expected));
	CHECK(value.len == strlen(expected) &&
			memcmp(value.text, expected, value.len) == 0);
}

/* The examples of RFC 6901, section 5. */
static void examples(void) {
	static const char text[] =
			"{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,"
			"\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" \":7,\"m~n\":8}";
	check_found(text, "", text);
	check_found(text, "/foo", "[\"bar\",\"baz\"]");
	check_found(text, "/foo/0", "\"bar\"");
	check_found(text, "/", "0");
	check_found(text, "/a~1b", "1");
	check_found(text, "/c%d", "2");
	check_found(text, "/e^f", "3");
	check_found(text, "/g|h", "4");
	check_found(text, "/i\\j", "5");
	check_found(text, "/k\"l", "6");
	check_found(text, "/ ", "7");
	check_found(text, "/m~0n", "8");
}

static void nothing(void) {
	static const char *const pointers[] = { "/b", "/a/2", "/a/01", "/a/-",
		"/a/+0", "/a/1/x", "/a/18446744073709551616", "/n/x", "/a/" };
	struct postern__json_value value;
	for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) {
		CHECK_INT(find("{\"a\":[1,2],\"n\":null}", pointers[i], &value),
				POSTERN__JSON_ABSENT);
	}
	CHECK_INT(find("{\"a\":1,\"\\u0061\":2}", "/a", &value),
			POSTERN__JSON_TWICE);
	CHECK_INT(find("{\"a\":{\"b\":1},\"a\":2}", "/a/b", &value),
			POSTERN__JSON_TWICE);
}

struct maker {
	uint64_t state;
	char text[4096];
	size_t len;
};

static size_t below(struct maker *maker, size_t bound) {
	maker->state = maker->state * UINT64_C(6364136223846793005) + 1;
	return (size_t)(maker->state >> 33) % bound;
}

static void put(struct maker *maker, const char *text) {
	size_t len = strlen(text);
	if (maker->len + len < sizeof maker->text - 64) {
		memcpy(maker->text + maker->len, text, len + 1);
		maker->len += len;
	}
}

/* Few names, so that pointers often meet them, and some occur twice. */
static void put_value(struct maker *maker, int depth) {
	static const char *const names[] = { "\"a\"", "\"b\"", "\"\\u0061b\"",
		"\"\"", "\"0\"", "\"~\"", "\"/\"" };
	static const char *const leaves[] = { "1", "-0.5e3", "\"x\"", "true",
		"null", "\"\\ud83d\\ude00\"", "[]", "{}" };
	size_t kind = depth > 4 ? 2 : below(maker, 3);
	if (kind == 2) {
		put(maker, leaves[below(maker, 8)]);
		return;
	}
	put(maker, kind ? "{" : "[");
	for (size_t i = below(maker, 4); i > 0; i--) {
		if (kind) {
			put(maker, names[below(maker, 7)]);
			put(maker, ":");
		}
		put_value(maker, depth + 1);
		put(maker, i > 1 ? "," : "");
	}
	put(maker, kind ? "}" : "]");
}

static void random_pointers(void) {
	static const char *const tokens[] = { "/a", "/b", "/ab", "/", "/0", "/1",
		"/~0", "/~1", "/00" };
	struct maker maker = { .state = 1 };
	for (int i = 0; i < 20000; i++) {
		char pointer[32] = "";
		size_t len = 0;
		maker.len = 0;
		put_value(&maker, 0);
		for (size_t n = below(&maker, 5); n > 0; n--) {
			const char *token = tokens[below(&maker, 9)];
			memcpy(pointer + len, token, strlen(token) + 1);
			len += strlen(token);
		}
		if (!CHECK(peer_agrees(pointer, maker.text, maker.len))) {
			(void)fprintf(stderr, "%s in %s\n", pointer, maker.text);
			return;
		}
	}
}

static const struct tap_case cases[] = {
	{ "the pointers of RFC 6901 find what it says", examples },
	{ "what is absent or ambiguous is not found", nothing },
	{ "random pointers find what Jansson finds", random_pointers },
};

TAP_MAIN(cases)
