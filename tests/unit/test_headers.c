/* SPDX-License-Identifier: MIT */

/*
 * Headers packed and unpacked, and malformed blobs.
 */

#include "base/headers.h"

#include <postern/message.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "dice.h"
#include "tap.h"

static void layout(void) {
	static const struct postern_header headers[] = {
		{ "a", "1" },
		{ "b", "" },
		{ "a", "2" },
	};
	struct postern__buf buf;
	postern__buf_init(&buf, 100);
	CHECK_OK(postern__headers_pack(headers, 3, &buf, NULL), NULL);
	CHECK_MEM(postern__buf_text(&buf), buf.len, "a\0001\0b\0\0a\0002", 12 - 1);
	postern__buf_finish(&buf);
}

static void none(void) {
	struct postern__arena arena;
	struct postern__buf buf;
	struct postern_header *headers = (struct postern_header *)&buf;
	size_t count = 42;
	postern__arena_init(&arena);
	postern__buf_init(&buf, 0);
	CHECK_OK(postern__headers_pack(NULL, 0, &buf, NULL), NULL);
	CHECK_INT(buf.len, 0);
	CHECK_OK(postern__headers_unpack(NULL, 0, 64, &arena, &headers, &count,
					 NULL),
			NULL);
	CHECK(!headers);
	CHECK_INT(count, 0);
	postern__buf_finish(&buf);
	postern__arena_finish(&arena);
}

static void packing_refused(void) {
	static const struct {
		struct postern_header header;
		const char *part;
	} rows[] = {
		{ { NULL, "x" }, "header 1 has no name" },
		{ { "", "x" }, "header 1 has no name" },
		{ { "a", NULL }, "header 'a' has no value" },
		{ { "name", "value" }, "the header block is over 10 bytes" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern_error error = { 0 };
		struct postern__buf buf;
		postern__buf_init(&buf, 10);
		CHECK_INT(postern__headers_pack(&rows[i].header, 1, &buf, &error),
				POSTERN_E_INVALID);
		CHECK_STR(error.text, rows[i].part);
		postern__buf_finish(&buf);
	}
}

static void unpacking_refused(void) {
	static const struct {
		const char *blob;
		size_t len;
		const char *part;
	} rows[] = {
		{ "a", 1, "do not end in a zero byte" },
		{ "a\0b", 3, "do not end in a zero byte" },
		{ "a\0b\0c", 5, "do not end in a zero byte" },
		{ "a", 2, "has no value" },
		{ "a\0b\0c", 6, "has no value" },
		{ "", 1, "header 1 has no name" },
		{ "\0x", 3, "header 1 has no name" },
		{ "a\0b\0\0c", 7, "header 2 has no name" },
		{ "a\0\0b\0\0c\0", 9, "3 stored headers; at most 2 are allowed" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct postern_error error = { 0 };
		struct postern__arena arena;
		struct postern_header *headers = NULL;
		size_t count = 42;
		/* The exact size, so that a sanitizer detects a read past the end. */
		char *blob = malloc(rows[i].len);
		memcpy(blob, rows[i].blob, rows[i].len);
		postern__arena_init(&arena);
		CHECK_INT(postern__headers_unpack(blob, rows[i].len, 2, &arena,
						  &headers, &count, &error),
				POSTERN_E_CORRUPT);
		CHECK_CONTAINS(error.text, rows[i].part);
		CHECK_INT(count, 42);
		CHECK(!headers);
		postern__arena_finish(&arena);
		free(blob);
	}
}

static void round_trip(void) {
	struct dice dice = { 1 };
	for (unsigned round = 0; round < 500; round++) {
		char names[20][8] = { "" };
		char values[20][8] = { "" };
		struct postern_header headers[20];
		size_t count = dice_below(&dice, 21);
		for (size_t i = 0; i < count; i++) {
			memset(names[i], (int)(dice_below(&dice, 255) + 1),
					dice_below(&dice, 7) + 1);
			memset(values[i], (int)(dice_below(&dice, 255) + 1),
					dice_below(&dice, 8));
			headers[i] = (struct postern_header){ names[i], values[i] };
		}
		struct postern__buf buf;
		struct postern__arena arena;
		struct postern_header *again = NULL;
		size_t again_count = 42;
		postern__buf_init(&buf, 1000);
		postern__arena_init(&arena);
		CHECK_OK(postern__headers_pack(headers, count, &buf, NULL), NULL);
		CHECK_OK(postern__headers_unpack(postern__buf_text(&buf), buf.len, 20,
						 &arena, &again, &again_count, NULL),
				NULL);
		/* The headers do not point into the blob. */
		postern__buf_finish(&buf);
		if (CHECK_INT(again_count, count)) {
			for (size_t i = 0; i < count; i++) {
				CHECK_STR(again[i].name, names[i]);
				CHECK_STR(again[i].value, values[i]);
			}
		}
		postern__arena_finish(&arena);
	}
}

static void any_blob(void) {
	/* A blob that is not refused packs to the same bytes again. */
	struct dice dice = { 2 };
	unsigned good = 0;
	for (unsigned round = 0; round < 20000; round++) {
		size_t len = dice_below(&dice, 12);
		char *blob = malloc(len + 1);
		for (size_t i = 0; i < len; i++) {
			blob[i] = dice_below(&dice, 2) ? 'a' : '\0';
		}
		struct postern__arena arena;
		struct postern_header *headers = NULL;
		size_t count = 0;
		postern__arena_init(&arena);
		int r = postern__headers_unpack(blob, len, 64, &arena, &headers, &count,
				NULL);
		if (r == POSTERN_OK) {
			struct postern__buf buf;
			postern__buf_init(&buf, 100);
			CHECK_OK(postern__headers_pack(headers, count, &buf, NULL), NULL);
			CHECK_MEM(postern__buf_text(&buf), buf.len, blob, len);
			postern__buf_finish(&buf);
			good++;
		}
		postern__arena_finish(&arena);
		free(blob);
	}
	CHECK(good > 1000 && good < 19000);
}

static const struct tap_case cases[] = {
	{ "the blob has names and values, each with a zero byte", layout },
	{ "no headers pack to zero bytes", none },
	{ "headers without a name or value, or too long, are refused",
			packing_refused },
	{ "a malformed blob is refused as corrupt", unpacking_refused },
	{ "headers packed and unpacked are the same", round_trip },
	{ "a blob that is accepted packs to the same bytes", any_blob },
};

TAP_MAIN(cases)
