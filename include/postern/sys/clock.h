/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_CLOCK_H
#define POSTERN_SYS_CLOCK_H

/*
 * The clock that Postern uses.
 *
 * The library reads no other clock: it is passed in, so that tests and programs
 * can replace it. The two functions must not be mixed: wall time is a point in
 * time and may jump; monotonic time measures durations and never goes
 * backwards.
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
	 * Milliseconds since a fixed moment, including the time that the machine
	 * was suspended (CLOCK_BOOTTIME): a lease must expire then, too.
	 */
	int64_t (*monotonic_ms)(void *context);
};

/* The machine's own clock. Static: never freed, usable from any thread. */
POSTERN_EXPORT const struct postern_clock *postern_clock_system(void);

#ifdef __cplusplus
}
#endif

#endif
