/* SPDX-License-Identifier: MIT */

/*
 * The machine's clock. This is the only file that reads the kernel's clocks;
 * all other code uses a struct postern_clock.
 */

#include "base/clock.h"

#include <assert.h>
#include <stddef.h>

static int64_t read_ms(clockid_t id) {
	struct timespec now;
	int r = clock_gettime(id, &now);
	assert(r == 0); /* both clocks are in every kernel since 2.6.39 */
	(void)r;
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t system_wall_ms(void *context) {
	(void)context;
	return read_ms(CLOCK_REALTIME);
}

static int64_t system_monotonic_ms(void *context) {
	(void)context;
	return read_ms(CLOCK_BOOTTIME);
}

const struct postern_clock *postern_clock_system(void) {
	static const struct postern_clock clock = {
		.context = NULL,
		.wall_ms = system_wall_ms,
		.monotonic_ms = system_monotonic_ms,
	};
	return &clock;
}

struct timespec postern__clock_deadline(int64_t ms) {
	struct timespec now;
	int r = clock_gettime(CLOCK_MONOTONIC, &now);
	assert(r == 0);
	(void)r;
	now.tv_sec += (time_t)(ms / 1000);
	now.tv_nsec += (long)(ms % 1000) * 1000000;
	if (now.tv_nsec >= 1000000000) {
		now.tv_sec++;
		now.tv_nsec -= 1000000000;
	}
	return now;
}

int64_t postern__clock_ns(void) {
	struct timespec now;
	int r = clock_gettime(CLOCK_MONOTONIC, &now);
	assert(r == 0);
	(void)r;
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void postern__clock_sleep_until_ns(int64_t ns) {
	struct timespec until = {
		.tv_sec = (time_t)(ns / 1000000000),
		.tv_nsec = (long)(ns % 1000000000),
	};
	(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}
