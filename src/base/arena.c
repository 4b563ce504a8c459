/* SPDX-License-Identifier: MIT */

/*
 * A bump allocator over a chain of chunks, newest first.
 *
 * Chunks double from 1 KiB to 64 KiB, so that a small arena stays small and a
 * large one makes few calls of malloc. An allocation that needs more than a
 * quarter of a chunk gets a chunk of exactly its size, inserted after the
 * newest, so that the room left in the newest is not lost.
 *
 * Memory is zeroed when a caller allocates it, not when its chunk is created:
 * after a reset the same bytes are allocated again.
 */

#include "base/arena.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES_MIN 1024
#define CHUNK_BYTES_MAX 65536

struct postern__arena_chunk {
	struct postern__arena_chunk *next;
	size_t len;  /* of bytes */
	size_t used; /* of bytes */
	_Alignas(max_align_t) unsigned char bytes[];
};

void postern__arena_init(struct postern__arena *arena) {
	*arena = (struct postern__arena){ 0 };
}

static void free_chunks(struct postern__arena_chunk *chunk) {
	while (chunk) {
		struct postern__arena_chunk *next = chunk->next;
		free(chunk);
		chunk = next;
	}
}

void postern__arena_finish(struct postern__arena *arena) {
	free_chunks(arena->chunks);
	postern__arena_init(arena);
}

void postern__arena_reset(struct postern__arena *arena) {
	struct postern__arena_chunk *kept = arena->chunks;
	if (!kept || kept->len > CHUNK_BYTES_MAX) {
		postern__arena_finish(arena);
		return;
	}
	free_chunks(kept->next);
	kept->next = NULL;
	kept->used = 0;
	arena->bytes_used = 0;
	arena->bytes_held = sizeof *kept + kept->len;
}

static struct postern__arena_chunk *make_chunk(struct postern__arena *arena,
		size_t len) {
	if (len > SIZE_MAX - sizeof(struct postern__arena_chunk)) {
		return NULL;
	}
	struct postern__arena_chunk *chunk = malloc(sizeof *chunk + len);
	if (!chunk) {
		return NULL;
	}
	chunk->next = NULL;
	chunk->len = len;
	chunk->used = 0;
	arena->bytes_held += sizeof *chunk + len;
	return chunk;
}

/* Add a chunk with room for len bytes: a shared one, or one for them alone. */
static struct postern__arena_chunk *add_chunk(struct postern__arena *arena,
		size_t len) {
	struct postern__arena_chunk *newest = arena->chunks;
	size_t common = CHUNK_BYTES_MIN;
	if (newest) {
		common = newest->len * 2;
	}
	if (common > CHUNK_BYTES_MAX) {
		common = CHUNK_BYTES_MAX;
	}
	if (common < CHUNK_BYTES_MIN) {
		common = CHUNK_BYTES_MIN;
	}
	bool own = len > common / 4;
	struct postern__arena_chunk *chunk = make_chunk(arena, own ? len : common);
	if (!chunk) {
		return NULL;
	}
	if (own && newest) {
		chunk->next = newest->next;
		newest->next = chunk;
	} else {
		chunk->next = newest;
		arena->chunks = chunk;
	}
	return chunk;
}

/* Allocate len bytes, not zeroed, at a multiple of align. */
static unsigned char *arena_bump(struct postern__arena *arena, size_t len,
		size_t align) {
	struct postern__arena_chunk *chunk = arena->chunks;
	size_t pad = 0;
	if (chunk) {
		pad = (align - chunk->used % align) % align;
	}
	if (!chunk || pad > chunk->len - chunk->used ||
			len > chunk->len - chunk->used - pad) {
		chunk = add_chunk(arena, len);
		if (!chunk) {
			return NULL;
		}
		pad = 0;
	}
	unsigned char *bytes = chunk->bytes + chunk->used + pad;
	chunk->used += pad + len;
	arena->bytes_used += pad + len;
	return bytes;
}

void *postern__arena_alloc(struct postern__arena *arena, size_t len) {
	/* One byte for an empty allocation, so that its address is unique. */
	size_t size = len > 0 ? len : 1;
	unsigned char *bytes = arena_bump(arena, size, _Alignof(max_align_t));
	if (bytes) {
		memset(bytes, 0, size);
	}
	return bytes;
}

void *postern__arena_array(struct postern__arena *arena, size_t count,
		size_t size) {
	size_t len;
	if (__builtin_mul_overflow(count, size, &len)) {
		return NULL;
	}
	return postern__arena_alloc(arena, len);
}

void *postern__arena_copy(struct postern__arena *arena, const void *bytes,
		size_t len) {
	assert(bytes || len == 0);
	if (len == SIZE_MAX) {
		return NULL;
	}
	unsigned char *copy = arena_bump(arena, len + 1, 1);
	if (!copy) {
		return NULL;
	}
	if (len > 0) {
		memcpy(copy, bytes, len);
	}
	copy[len] = '\0';
	return copy;
}

char *postern__arena_strdup(struct postern__arena *arena, const char *text) {
	return postern__arena_copy(arena, text, strlen(text));
}
