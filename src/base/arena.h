/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_ARENA_H
#define POSTERN_BASE_ARENA_H

/*
 * An arena hands out memory that is all given back at once: a claimed batch,
 * a parsed request, a configuration. There is no free for a single piece.
 *
 * Every function that allocates returns NULL when memory has run out, and
 * leaves the arena usable; what was handed out before stays valid.
 *
 * Threads: one at a time.
 */

#include <stddef.h>

struct postern__arena_chunk;

struct postern__arena {
	struct postern__arena_chunk *chunks; /* newest first */
	size_t bytes_used; /* handed out since init or reset, padding included */
	size_t bytes_held; /* taken from the heap and not given back */
};

/* An empty arena. Allocates nothing; all zero bytes are an empty arena too. */
void postern__arena_init(struct postern__arena *arena);

/* Give all memory back. The arena is empty and may be used again. */
void postern__arena_finish(struct postern__arena *arena);

/*
 * Forget everything that was handed out but keep one chunk, so that an arena
 * used in a loop stops calling malloc. One over 64 KiB, made for one large
 * piece, is not kept.
 */
void postern__arena_reset(struct postern__arena *arena);

/*
 * len zero bytes, aligned for any type. A len of 0 gives a pointer that is not
 * NULL and must not be read.
 */
void *postern__arena_alloc(struct postern__arena *arena, size_t len);

/* count * size zero bytes; NULL also when the product overflows. */
void *postern__arena_array(struct postern__arena *arena, size_t count,
		size_t size);

/*
 * A copy of len bytes, not aligned, with a zero byte behind it that len does
 * not count. bytes may be NULL when len is 0.
 */
void *postern__arena_copy(struct postern__arena *arena, const void *bytes,
		size_t len);

/* A copy of a string. */
char *postern__arena_strdup(struct postern__arena *arena, const char *text);

#endif
