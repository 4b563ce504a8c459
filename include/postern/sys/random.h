/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_RANDOM_H
#define POSTERN_SYS_RANDOM_H

/*
 * The random numbers that Postern uses: node ids, hash keys, the jitter of a
 * retry. Passed in like the clock, so that a test can repeat a run with the
 * same seed.
 */

#include <postern/export.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_random {
	void *context; /* passed to the function as it is */

	/* 64 uniformly distributed bits. Cannot fail. */
	uint64_t (*next)(void *context);
};

/*
 * The kernel's generator (getrandom), fit for secrets. Static: never freed,
 * usable from any thread. It blocks only while a machine that has just booted
 * is still gathering entropy, and aborts the process if the kernel returns an
 * error: guessable node ids and hash keys would be worse.
 */
POSTERN_EXPORT const struct postern_random *postern_random_system(void);

#ifdef __cplusplus
}
#endif

#endif
