/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_UNIT_DICE_H
#define POSTERN_TESTS_UNIT_DICE_H

/*
 * Numbers for tests that try many inputs: the same in every run, so that a
 * failure is reproducible. Biased for large bounds, which does not matter here.
 */

#include <stddef.h>
#include <stdint.h>

struct dice {
	uint64_t state; /* any seed */
};

/* The splitmix64 generator. */
__attribute__((unused)) static uint64_t dice_next(struct dice *dice) {
	uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* 0 to bound - 1. */
__attribute__((unused)) static size_t dice_below(struct dice *dice,
		size_t bound) {
	return (size_t)(dice_next(dice) % bound);
}

#endif
