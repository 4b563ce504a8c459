/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_MEMORY_H
#define POSTERN_BASE_MEMORY_H

#include <postern/sys/memory.h>

struct postern__arena;

/* The arena of this memory, for functions of src/base that allocate in one. */
struct postern__arena *postern__memory_arena(struct postern_memory *memory);

#endif
