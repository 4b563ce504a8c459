/* SPDX-License-Identifier: MIT */

/*
 * The kernel's random numbers, and uniform numbers below a bound from any
 * generator.
 */

#include "base/random.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <sys/random.h>

static uint64_t system_next(void *context) {
	(void)context;
	uint64_t value;
	for (;;) {
		ssize_t len = getrandom(&value, sizeof value, 0);
		if (len == (ssize_t)sizeof value) {
			return value;
		}
		/* A signal can interrupt it only before the pool is initialised. */
		assert(len < 0 && errno == EINTR);
	}
}

const struct postern_random *postern_random_system(void) {
	static const struct postern_random random = {
		.context = NULL,
		.next = system_next,
	};
	return &random;
}

uint64_t postern__random_below(const struct postern_random *random,
		uint64_t bound) {
	assert(random);
	if (bound <= 1) {
		return 0;
	}
	/*
	 * 2^64 is not a multiple of every bound, so the lowest 2^64 mod bound
	 * values would make some results more likely. They are rejected.
	 */
	uint64_t surplus = (0 - bound) % bound;
	uint64_t value;
	do {
		value = random->next(random->context);
	} while (value < surplus);
	return value % bound;
}
