/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_RECENT_H
#define POSTERN_CORE_RECENT_H

/*
 * The keys that a handler with `dedupe: memory` has done: a set in memory that
 * is bounded by a count and by the age of its keys, with its own mutex. All of
 * it is lost with the process.
 */

#include <postern/sys/random.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kept by the caller, because a new generation may change them. */
struct postern__recent_limits {
	size_t count_max; /* at least 1 */
	int64_t keep_ms;
};

struct postern__recent;

/* NULL: out of memory. */
struct postern__recent *postern__recent_create(
		const struct postern_random *random);
void postern__recent_destroy(struct postern__recent *recent);

/* Times are monotonic. */
bool postern__recent_has(struct postern__recent *recent, const void *key,
		size_t len, const struct postern__recent_limits *limits,
		int64_t now_ms);
/* Add a key that is not in the set. Returns true the first time that a key is
   forgotten before its time: the oldest, because there are as many as allowed,
   or this one, because memory is short. */
bool postern__recent_add(struct postern__recent *recent, const void *key,
		size_t len, const struct postern__recent_limits *limits,
		int64_t now_ms);

/* The keys of the set now, and the bytes that it has allocated. */
size_t postern__recent_count(struct postern__recent *recent);
size_t postern__recent_bytes(struct postern__recent *recent);

#endif
