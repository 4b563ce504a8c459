/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_RANDOM_H
#define POSTERN_BASE_RANDOM_H

#include <postern/sys/random.h>
#include <stdint.h>

/*
 * A number from 0 to bound - 1, each equally likely. A bound of 0 or 1 gives
 * 0. May draw more than once, twice at most on average.
 */
uint64_t postern__random_below(const struct postern_random *random,
		uint64_t bound);

#endif
