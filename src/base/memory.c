/* SPDX-License-Identifier: MIT */

/*
 * The memory in which stores allocate their results: an arena with a public
 * interface.
 */

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct postern_memory {
	struct postern__arena arena;
};

struct postern_memory *postern_memory_create(void) {
	struct postern_memory *memory = malloc(sizeof *memory);
	if (memory) {
		postern__arena_init(&memory->arena);
	}
	return memory;
}

void postern_memory_destroy(struct postern_memory *memory) {
	if (memory) {
		postern__arena_finish(&memory->arena);
		free(memory);
	}
}

void *postern_memory_alloc(struct postern_memory *memory, size_t len) {
	assert(memory);
	return postern__arena_alloc(&memory->arena, len);
}

void *postern_memory_copy(struct postern_memory *memory, const void *bytes,
		size_t len) {
	assert(memory);
	return postern__arena_copy(&memory->arena, bytes, len);
}

char *postern_memory_text(struct postern_memory *memory, const char *text) {
	assert(memory);
	return text ? postern__arena_strdup(&memory->arena, text) : NULL;
}

struct postern__arena *postern__memory_arena(struct postern_memory *memory) {
	assert(memory);
	return &memory->arena;
}
