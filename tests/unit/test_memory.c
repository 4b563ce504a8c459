/* SPDX-License-Identifier: MIT */

/*
 * The public interface to the arena for implementers of stores. The arena has
 * its own tests; here only that the interface uses it.
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
	postern_memory_destroy(NULL); /* a failure would crash here */
}

static const struct tap_case cases[] = {
	{ "allocations are zeroed and aligned, and NULL without memory", pieces },
	{ "the copy of NULL is NULL", no_text },
	{ "destroying NULL does nothing", no_memory },
};

TAP_MAIN(cases)
