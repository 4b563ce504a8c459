/* SPDX-License-Identifier: MIT */

/*
 * Time and randomness under control of the test.
 */

#include "support/fake_clock.h"

#include <assert.h>

/* A fixed moment that differs from the wall clock's, so that confusing them is
   noticed. */
#define MONOTONIC_START_MS 1000000

static int64_t read_wall(void *context) {
	struct fake_clock *clock = context;
	return atomic_load(&clock->wall_ms);
}

static int64_t read_monotonic(void *context) {
	struct fake_clock *clock = context;
	return atomic_load(&clock->monotonic_ms);
}

void fake_clock_init(struct fake_clock *clock) {
	clock->base = (struct postern_clock){
		.context = clock,
		.wall_ms = read_wall,
		.monotonic_ms = read_monotonic,
	};
	atomic_init(&clock->wall_ms, FAKE_CLOCK_START_MS);
	atomic_init(&clock->monotonic_ms, MONOTONIC_START_MS);
}

void fake_clock_advance(struct fake_clock *clock, int64_t ms) {
	assert(ms >= 0);
	atomic_fetch_add(&clock->wall_ms, ms);
	atomic_fetch_add(&clock->monotonic_ms, ms);
}

void fake_clock_jump(struct fake_clock *clock, int64_t ms) {
	atomic_fetch_add(&clock->wall_ms, ms);
}

int64_t fake_clock_now(struct fake_clock *clock) {
	return atomic_load(&clock->wall_ms);
}

/* A step of a counter by an odd constant, well mixed. */
static uint64_t next(void *context) {
	struct fake_random *random = context;
	uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
	uint64_t x = atomic_fetch_add(&random->state, step) + step;
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

void fake_random_init(struct fake_random *random, uint64_t seed) {
	random->base = (struct postern_random){
		.context = random,
		.next = next,
	};
	atomic_init(&random->state, seed);
}
