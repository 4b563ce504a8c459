/* SPDX-License-Identifier: MIT */

/*
 * Writing JSON. The input is written as one string, and again as a tree of
 * calls: each byte opens or closes a container or writes a value made of the
 * bytes that follow. Jansson parses both, and must get the same values.
 */

#include <jansson.h>

#include "base/buf.h"
#include "base/json_text.h"
#include "fuzz.h"

#define DEPTH_MAX 20

/* The expected string: the input with malformed bytes replaced. */
static json_t *expect_string(const char *text, size_t len) {
	char *valid = malloc(3 * len + 1);
	size_t valid_len = 0;
	MUST(valid);
	for (size_t at = 0; at < len;) {
		size_t step = naive_utf8_len(text + at, len - at);
		memcpy(valid + valid_len, step > 0 ? text + at : "\xef\xbf\xbd",
				step > 0 ? step : 3);
		valid_len += step > 0 ? step : 3;
		at += step > 0 ? step : 1;
	}
	json_t *string = json_stringn(valid, valid_len);
	MUST(string);
	free(valid);
	return string;
}

/* The text has no byte that ends a line, or a script in a page. */
static void check_escaped(const struct postern__buf *buf) {
	const char *text = postern__buf_text(buf);
	MUST(strlen(text) == buf->len && fuzz_is_clean(text));
	MUST(!strpbrk(text, "<>&"));
}

static void check_parsed_as(struct postern__buf *buf, json_t *expected) {
	json_error_t error;
	check_escaped(buf);
	json_t *json = json_loadb(postern__buf_text(buf), buf->len,
			JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
	if (!json || !json_equal(json, expected)) {
		(void)fprintf(stderr, "%s\n%s\n", postern__buf_text(buf),
				json ? "differs from the expected value" : error.text);
		abort();
	}
	json_decref(json);
}

/* A tree that is written by the code under test and built with jansson. */
struct tree {
	struct postern__buf buf;
	json_t *open[DEPTH_MAX]; /* borrowed, except the first */
	size_t depth;
	unsigned key_count;
};

/* Adds a value to the open container, in an object under a new key; takes
   ownership of the value. */
static void tree_add(struct tree *tree, json_t *value) {
	json_t *parent = tree->open[tree->depth - 1];
	MUST(value);
	if (json_is_object(parent)) {
		char key[32];
		(void)snprintf(key, sizeof key, "k\"%u", tree->key_count++);
		postern__json_key(&tree->buf, key);
		MUST(json_object_set_new(parent, key, value) == 0);
	} else {
		MUST(json_array_append_new(parent, value) == 0);
	}
}

static void tree_open(struct tree *tree, bool object) {
	json_t *value = object ? json_object() : json_array();
	tree_add(tree, value);
	postern__json_open(&tree->buf, object ? '{' : '[');
	tree->open[tree->depth++] = value;
}

static void tree_close(struct tree *tree) {
	json_t *value = tree->open[--tree->depth];
	postern__json_close(&tree->buf, json_is_object(value) ? '}' : ']');
}

static void tree_write(struct tree *tree, struct fuzz_input *input) {
	uint8_t kind = fuzz_byte(input);
	switch (kind % 8) {
	case 0:
	case 1:
		if (tree->depth < DEPTH_MAX) {
			tree_open(tree, kind % 8);
		}
		break;
	case 2:
		if (tree->depth > 1) {
			tree_close(tree);
		}
		break;
	case 3:
		tree_add(tree, json_boolean(kind & 0x10));
		postern__json_bool(&tree->buf, kind & 0x10);
		break;
	case 4:
		tree_add(tree, json_null());
		postern__json_text(&tree->buf, NULL);
		break;
	case 5: {
		int64_t number = 0;
		for (int i = 0; i < kind / 32; i++) {
			number = (int64_t)((uint64_t)number << 8 | fuzz_byte(input));
		}
		number = kind & 0x10 ? -number - 1 : number;
		tree_add(tree, json_integer(number));
		postern__json_int(&tree->buf, number);
		break;
	}
	case 6:
		tree_add(tree, json_integer(kind));
		postern__json_uint(&tree->buf, kind);
		break;
	default: {
		size_t len = kind / 8;
		len = len < input->len ? len : input->len;
		const char *text = (const char *)input->at;
		tree_add(tree, expect_string(text, len));
		postern__json_string(&tree->buf, text, len);
		input->at += len;
		input->len -= len;
		break;
	}
	}
}

static void check_tree(struct fuzz_input input) {
	struct tree tree = { .open = { json_array() }, .depth = 1 };
	postern__buf_init(&tree.buf, SIZE_MAX / 2);
	postern__json_open(&tree.buf, '[');
	while (input.len > 0) {
		tree_write(&tree, &input);
	}
	while (tree.depth > 0) {
		tree_close(&tree);
	}
	check_parsed_as(&tree.buf, tree.open[0]);
	postern__buf_finish(&tree.buf);
	json_decref(tree.open[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct postern__buf buf;
	json_t *expected = expect_string((const char *)data, size);
	postern__buf_init(&buf, SIZE_MAX / 2);
	postern__json_string(&buf, (const char *)data, size);
	check_parsed_as(&buf, expected);
	postern__buf_finish(&buf);
	json_decref(expected);
	check_tree((struct fuzz_input){ data, size });
	return 0;
}
