/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_CONTAINER_H
#define POSTERN_BASE_CONTAINER_H

#include <stddef.h>

/* The struct of the given type whose member `pointer` points at. */
#define container_of(pointer, type, member) \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
