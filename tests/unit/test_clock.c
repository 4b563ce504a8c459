/* SPDX-License-Identifier: MIT */

/*
 * The system clock, as far as a test can know the time.
 */

#include <postern/sys/clock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/temp_dir.h"
#include "tap.h"

static void wall(void) {
	/* The kernel sets the time of a new directory by the same clock, some ticks
	   old. */
	const struct postern_clock *clock = postern_clock_system();
	struct temp_dir dir;
	struct stat status = { 0 };
	temp_dir_create(&dir);
	CHECK_INT(stat(dir.path, &status), 0);
	temp_dir_destroy(&dir);
	int64_t file_ms = (int64_t)status.st_mtim.tv_sec * 1000 +
					  status.st_mtim.tv_nsec / 1000000;
	int64_t now_ms = clock->wall_ms(clock->context);
	CHECK(now_ms >= file_ms);
	CHECK(now_ms - file_ms < 60 * 1000);
}

static void monotonic(void) {
	const struct postern_clock *clock = postern_clock_system();
	int64_t before_ms = clock->monotonic_ms(clock->context);
	CHECK(before_ms > 0);
	for (unsigned i = 0; i < 10000; i++) {
		int64_t now_ms = clock->monotonic_ms(clock->context);
		if (!CHECK(now_ms >= before_ms)) {
			return;
		}
		before_ms = now_ms;
	}
}

static void uptime(void) {
	const struct postern_clock *clock = postern_clock_system();
	FILE *file = fopen("/proc/uptime", "r");
	char line[64] = "";
	if (CHECK(file && fgets(line, sizeof line, file))) {
		/* A container may show its own uptime, never a longer one. */
		int64_t uptime_ms = (int64_t)(strtod(line, NULL) * 1000);
		CHECK(clock->monotonic_ms(clock->context) >= uptime_ms - 10);
	}
	if (file) {
		(void)fclose(file);
	}
}

static const struct tap_case cases[] = {
	{ "wall time counts milliseconds since 1970", wall },
	{ "monotonic time never goes backwards", monotonic },
	{ "monotonic time counts from boot", uptime },
};

TAP_MAIN(cases)
