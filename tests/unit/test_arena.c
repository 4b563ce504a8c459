/* SPDX-License-Identifier: MIT */

/*
 * Allocations of an arena: separate, zeroed, aligned, freed together.
 */

#include "base/arena.h"

#include <stdlib.h>

#include "dice.h"
#include "no_memory.h"
#include "tap.h"

static bool is_zero(const unsigned char *bytes, size_t len) {
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] != 0) {
			return false;
		}
	}
	return true;
}

static void zeroed_and_aligned(void) {
	struct dice dice = { 1 };
	struct postern__arena arena;
	postern__arena_init(&arena);
	/* The second round allocates bytes that the first one wrote. */
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 2000; i++) {
			size_t len = dice_below(&dice, i % 50 == 0 ? 5000 : 60) + 1;
			unsigned char *bytes = postern__arena_alloc(&arena, len);
			if (!CHECK(bytes)) {
				return;
			}
			CHECK_INT((uintptr_t)bytes % _Alignof(max_align_t), 0);
			CHECK(is_zero(bytes, len));
			memset(bytes, 0xa5, len);
			CHECK(postern__arena_strdup(&arena, "x"));
		}
		postern__arena_reset(&arena);
	}
	postern__arena_finish(&arena);
}

static void apart(void) {
	struct dice dice = { 2 };
	struct postern__arena arena;
	unsigned char *pieces[500];
	size_t lens[500];
	postern__arena_init(&arena);
	for (unsigned i = 0; i < 500; i++) {
		lens[i] = dice_below(&dice, i % 20 == 0 ? 100000 : 300);
		pieces[i] = i % 2 ? postern__arena_alloc(&arena, lens[i])
						  : postern__arena_copy(&arena, "",
									lens[i] = dice_below(&dice, 2));
		if (!CHECK(pieces[i])) {
			return;
		}
		memset(pieces[i], (int)(i % 251), lens[i]);
	}
	for (unsigned i = 0; i < 500; i++) {
		for (size_t j = 0; j < lens[i]; j++) {
			if (!CHECK_INT(pieces[i][j], i % 251)) {
				break;
			}
		}
	}
	postern__arena_finish(&arena);
}

static void copies(void) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	const char *copy = postern__arena_copy(&arena, "a\0b", 3);
	CHECK_MEM(copy, 4, "a\0b", 4);
	CHECK_STR(postern__arena_copy(&arena, NULL, 0), "");
	const char text[] = "text";
	char *again = postern__arena_strdup(&arena, text);
	CHECK_STR(again, "text");
	CHECK(again != text);
	postern__arena_finish(&arena);
}

static void empty_pieces(void) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	void *a = postern__arena_alloc(&arena, 0);
	void *b = postern__arena_array(&arena, 0, 8);
	CHECK(a && b && a != b);
	postern__arena_finish(&arena);
}

static void out_of_memory(void) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	char *before = postern__arena_strdup(&arena, "before");
	size_t used = arena.bytes_used;
	size_t held = arena.bytes_held;
	CHECK(!postern__arena_alloc(&arena, TOO_MANY_BYTES));
	CHECK(!postern__arena_alloc(&arena, SIZE_MAX));
	CHECK(!postern__arena_alloc(&arena, SIZE_MAX - 8));
	CHECK(!postern__arena_copy(&arena, "", SIZE_MAX));
	CHECK(!postern__arena_array(&arena, SIZE_MAX / 8 + 2, 8));
	CHECK_INT(arena.bytes_used, used);
	CHECK_INT(arena.bytes_held, held);
	CHECK_STR(postern__arena_strdup(&arena, "after"), "after");
	CHECK_STR(before, "before");
	postern__arena_finish(&arena);
}

static void counted(void) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	CHECK_INT(arena.bytes_held, 0);
	CHECK(postern__arena_copy(&arena, "0123456789", 10));
	CHECK_INT(arena.bytes_used, 11);
	CHECK(arena.bytes_held >= 11);
	CHECK(postern__arena_alloc(&arena, 1000000));
	CHECK(arena.bytes_used >= 1000011);
	CHECK(arena.bytes_held >= 1000011 && arena.bytes_held < 1010000);
	postern__arena_finish(&arena);
	CHECK_INT(arena.bytes_used, 0);
	CHECK_INT(arena.bytes_held, 0);
}

static void reset_keeps_a_chunk(void) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	void *first = postern__arena_alloc(&arena, 100);
	CHECK(postern__arena_alloc(&arena, 1000000));
	postern__arena_reset(&arena);
	CHECK_INT(arena.bytes_used, 0);
	CHECK(arena.bytes_held > 0 && arena.bytes_held < 10000);
	CHECK(postern__arena_alloc(&arena, 100) == first);
	postern__arena_finish(&arena);
}

static void reset_drops_the_large(void) {
	struct postern__arena arena;
	postern__arena_init(&arena);
	postern__arena_reset(&arena);
	CHECK(postern__arena_alloc(&arena, 1000000));
	postern__arena_reset(&arena);
	CHECK_INT(arena.bytes_held, 0);
	CHECK(postern__arena_alloc(&arena, 10));
	postern__arena_finish(&arena);
}

static void waste(void) {
	/* Large allocations between small ones must not waste half-full chunks. */
	struct postern__arena arena;
	postern__arena_init(&arena);
	for (unsigned i = 0; i < 1000; i++) {
		CHECK(postern__arena_alloc(&arena, 16));
		CHECK(postern__arena_alloc(&arena, 70000));
	}
	CHECK(arena.bytes_held < arena.bytes_used + arena.bytes_used / 100);
	postern__arena_finish(&arena);
}

static const struct tap_case cases[] = {
	{ "every allocation is zeroed and aligned", zeroed_and_aligned },
	{ "allocations do not overlap", apart },
	{ "a copy ends with a zero byte", copies },
	{ "an empty allocation has an address of its own", empty_pieces },
	{ "running out of memory leaves the arena unchanged", out_of_memory },
	{ "used and held bytes are counted", counted },
	{ "a reset arena reuses its memory", reset_keeps_a_chunk },
	{ "a reset arena does not keep a large chunk", reset_drops_the_large },
	{ "large allocations waste no small chunks", waste },
};

TAP_MAIN(cases)
