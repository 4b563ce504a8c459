/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_ARENA_H
#define POSTERN_BASE_ARENA_H

/*
 * An arena allocates memory that is freed all at once: a claimed batch, a
 * parsed request, a configuration. A single allocation cannot be freed.
 *
 * Every function that allocates returns NULL if it is out of memory, and
 * leaves the arena usable; earlier allocations stay valid.
 *
 * Threads: one at a time.
 */

#include <stddef.h>

struct postern__arena_chunk;

struct postern__arena {
	struct postern__arena_chunk *chunks; /* newest first */
	size_t bytes_used; /* allocated since init or reset, padding included */
	size_t bytes_held; /* allocated on the heap */
};

/* An empty arena. Allocates nothing; all zero bytes are an empty arena too. */
void postern__arena_init(struct postern__arena *arena);

/* Free all memory. The arena is empty and may be used again. */
void postern__arena_finish(struct postern__arena *arena);

/*
 * Free all allocations but keep one chunk, so that an arena used in a loop
 * does not call malloc every time. A chunk over 64 KiB, made for one large
 * allocation, is not kept.
 */
void postern__arena_reset(struct postern__arena *arena);

/*
 * Allocate len zero bytes, aligned for any type. For len 0 the pointer is not
 * NULL and must not be read.
 */
void *postern__arena_alloc(struct postern__arena *arena, size_t len);

/* count * size zero bytes; NULL also when the product overflows. */
void *postern__arena_array(struct postern__arena *arena, size_t count,
		size_t size);

/*
 * A copy of len bytes, not aligned, followed by a zero byte that len does not
 * count. bytes may be NULL if len is 0.
 */
void *postern__arena_copy(struct postern__arena *arena, const void *bytes,
		size_t len);

/* A copy of a string. */
char *postern__arena_strdup(struct postern__arena *arena, const char *text);

#endif
