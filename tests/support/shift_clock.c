/* SPDX-License-Identifier: MIT */

/*
 * A library to be preloaded: the program's wall clock is wrong by $SHIFT_CLOCK
 * seconds. Monotonic clocks, and so all waits, are not changed.
 */

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int clock_gettime(clockid_t clock, struct timespec *now) {
	long r = syscall(SYS_clock_gettime, clock, now);
	const char *shift = getenv("SHIFT_CLOCK");
	if (r == 0 && shift &&
			(clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		now->tv_sec += strtol(shift, NULL, 10);
	}
	return (int)r;
}
