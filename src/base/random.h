/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_RANDOM_H
#define POSTERN_BASE_RANDOM_H

#include <postern/sys/random.h>
#include <stdint.h>

/*
 * A number from 0 to bound - 1, uniformly distributed; 0 for a bound of 0 or 1.
 * May call next() more than once, at most twice on average.
 */
uint64_t postern__random_below(const struct postern_random *random,
		uint64_t bound);

#endif
