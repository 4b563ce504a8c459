/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_MEMORY_MARKER_H
#define POSTERN_STORE_MEMORY_MARKER_H

/*
 * Markers in memory: a hash table with a mutex of its own. The simplest
 * implementation of postern/sys/marker.h, and the reference for the others.
 */

#include <postern/sys/marker.h>
#include <pthread.h>

#include "base/siphash.h"

struct postern_clock;
struct memory_marker;

struct memory_markers {
	struct postern_markers base;
	pthread_mutex_t mutex;
	const struct postern_clock *clock;
	uint8_t secret[POSTERN__SIPHASH_KEY_LEN];
	struct memory_marker **buckets;
	size_t bucket_count; /* a power of two, or 0 */
	size_t count;
	size_t count_max;
};

/* POSTERN_E_NOMEM: the mutex could not be created. */
int postern__mem_markers_init(struct memory_markers *markers,
		const struct postern_clock *clock,
		const uint8_t secret[POSTERN__SIPHASH_KEY_LEN]);
void postern__mem_markers_finish(struct memory_markers *markers);

#endif
