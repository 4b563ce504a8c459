/* SPDX-License-Identifier: MIT */
/*
 * Short pauses of random length, so that commands that wait for each other do
 * not all come back together, and an end to them.
 */

#include "server/patience.h"

#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <time.h>

#include "base/random.h"

/* A command holds the store for some 20 ms: enough for a hundred of them. */
#define GIVE_UP_MS 2000
#define PAUSE_MS_MIN 5
#define PAUSE_MS_MAX 50

static int64_t now_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

void postern__patience_init(struct postern__patience *patience) {
	patience->end_ms = now_ms() + GIVE_UP_MS;
}

bool postern__patience_wait(const struct postern__patience *patience) {
	if (now_ms() >= patience->end_ms) {
		return false;
	}
	uint64_t ms = PAUSE_MS_MIN + postern__random_below(postern_random_system(),
										 PAUSE_MS_MAX - PAUSE_MS_MIN + 1);
	struct timespec pause = { .tv_nsec = (long)ms * 1000000L };
	(void)nanosleep(&pause, NULL); /* a shorter one is as good */
	return true;
}
