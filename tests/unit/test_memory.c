/* SPDX-License-Identifier: MIT */

/*
 * The door to the arena for those who write a store. What an arena promises
 * is tested with the arena; here only that the door leads there.
 */

#include <postern/sys/memory.h>

#include "no_memory.h"
#include "tap.h"

static void pieces(void) {
	static const unsigned char zeros[100];
	struct postern_memory *memory = postern_memory_create();
	if (!CHECK(memory)) {
		return;
	}
	void *piece = postern_memory_alloc(memory, sizeof zeros);
	CHECK_MEM(piece, sizeof zeros, zeros, sizeof zeros);
	CHECK_INT((uintptr_t)piece % _Alignof(max_align_t), 0);
	CHECK_MEM(postern_memory_copy(memory, "a\0b", 3), 4, "a\0b", 4);
	CHECK_STR(postern_memory_text(memory, "text"), "text");
	CHECK(!postern_memory_alloc(memory, TOO_MANY_BYTES));
	postern_memory_destroy(memory);
}

static void no_text(void) {
	struct postern_memory *memory = postern_memory_create();
	if (!CHECK(memory)) {
		return;
	}
	CHECK_STR(postern_memory_text(memory, NULL), NULL);
	CHECK_STR(postern_memory_text(memory, ""), "");
	postern_memory_destroy(memory);
}

static void no_memory(void) {
	postern_memory_destroy(NULL); /* fails by not coming back */
}

static const struct tap_case cases[] = {
	{ "pieces are zeroed, aligned, copied, or NULL when there is none left",
			pieces },
	{ "the copy of no text is no text", no_text },
	{ "destroying NULL does nothing", no_memory },
};

TAP_MAIN(cases)
