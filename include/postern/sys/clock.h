/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_CLOCK_H
#define POSTERN_SYS_CLOCK_H

/*
 * Where Postern gets the time from.
 *
 * Nothing in the library reads a clock of its own: a clock is passed in, so
 * that a test can own time and a program can replace it. The two functions
 * answer two different questions and must not be mixed: wall time says when
 * something happened and may jump; monotonic time says how long something
 * took and never goes backwards.
 *
 * Threads: both functions may be called from any thread at once.
 */

#include <postern/export.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_clock {
	void *context; /* passed to both functions as it is */

	/* Milliseconds since 1970-01-01T00:00:00Z, leap seconds not counted. */
	int64_t (*wall_ms)(void *context);

	/*
	 * Milliseconds since some fixed moment, time spent suspended included
	 * (CLOCK_BOOTTIME): a lease must run out while a laptop sleeps.
	 */
	int64_t (*monotonic_ms)(void *context);
};

/* The machine's own clock. Static: never freed, usable from any thread. */
POSTERN_EXPORT const struct postern_clock *postern_clock_system(void);

#ifdef __cplusplus
}
#endif

#endif
