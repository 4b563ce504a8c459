/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_FAKE_CLOCK_H
#define POSTERN_TESTS_FAKE_CLOCK_H

/*
 * A clock that stands still until the test advances it, and numbers that are
 * the same in every run with the same seed. Both may be used from any thread.
 *
 *   struct fake_clock clock;
 *   fake_clock_init(&clock);
 *   options.clock = &clock.base;
 *   fake_clock_advance(&clock, 1000);
 */

#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <stdatomic.h>
#include <stdint.h>

/* 2026-01-02T03:04:05.678Z: the wall clock at the start. */
#define FAKE_CLOCK_START_MS INT64_C(1767323045678)

struct fake_clock {
	struct postern_clock base;
	_Atomic int64_t wall_ms;
	_Atomic int64_t monotonic_ms;
};

void fake_clock_init(struct fake_clock *clock);
/* Both clocks advance by ms, which must not be negative. */
void fake_clock_advance(struct fake_clock *clock, int64_t ms);
/* Only the wall clock moves, also backwards, as when it is set. */
void fake_clock_jump(struct fake_clock *clock, int64_t ms);
int64_t fake_clock_now(struct fake_clock *clock);

struct fake_random {
	struct postern_random base;
	_Atomic uint64_t state;
};

void fake_random_init(struct fake_random *random, uint64_t seed);

#endif
