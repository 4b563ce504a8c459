/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_MEMORY_H
#define POSTERN_SYS_MEMORY_H

/*
 * Memory for results: many small pieces, freed together. A store fills its
 * answers from the memory it is given and never frees a piece.
 */

#include <postern/export.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_memory;

/* NULL if there is none left. End it with postern_memory_destroy(). */
POSTERN_EXPORT struct postern_memory *postern_memory_create(void);
POSTERN_EXPORT void postern_memory_destroy(struct postern_memory *memory);

/* Zeroed and aligned for anything; NULL if there is none left. */
POSTERN_EXPORT void *postern_memory_alloc(struct postern_memory *memory,
		size_t len);
/* A copy of `len` bytes with a zero byte behind them. */
POSTERN_EXPORT void *postern_memory_copy(struct postern_memory *memory,
		const void *bytes, size_t len);
/* A copy of a text; NULL for NULL. */
POSTERN_EXPORT char *postern_memory_text(struct postern_memory *memory,
		const char *text);

#ifdef __cplusplus
}
#endif

#endif
