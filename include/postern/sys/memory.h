/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_MEMORY_H
#define POSTERN_SYS_MEMORY_H

/*
 * Memory for results: many small allocations that are freed together. A store
 * allocates its results from the memory that the caller passes in, and never
 * frees one.
 */

#include <postern/export.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_memory;

/* NULL if out of memory. End it with postern_memory_destroy(). */
POSTERN_EXPORT struct postern_memory *postern_memory_create(void);
POSTERN_EXPORT void postern_memory_destroy(struct postern_memory *memory);

/* Zeroed and aligned for any type; NULL if out of memory. */
POSTERN_EXPORT void *postern_memory_alloc(struct postern_memory *memory,
		size_t len);
/* A copy of `len` bytes, followed by a zero byte. */
POSTERN_EXPORT void *postern_memory_copy(struct postern_memory *memory,
		const void *bytes, size_t len);
/* A copy of a text; NULL for NULL. */
POSTERN_EXPORT char *postern_memory_text(struct postern_memory *memory,
		const char *text);

#ifdef __cplusplus
}
#endif

#endif
