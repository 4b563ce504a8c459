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

/* For a program that is about to end. */
#define SOON_MS 2000
#define PAUSE_MS_MIN 5
#define PAUSE_MS_MAX 50

static int64_t now_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

void postern__patience_init(struct postern__patience *patience,
		int64_t passing_ms) {
	int64_t now = now_ms();
	patience->soon_ms = now + SOON_MS;
	patience->end_ms = now + (passing_ms > SOON_MS ? passing_ms : SOON_MS);
}

bool postern__patience_wait(const struct postern__patience *patience,
		bool passing) {
	if (now_ms() >= (passing ? patience->end_ms : patience->soon_ms)) {
		return false;
	}
	uint64_t ms = PAUSE_MS_MIN + postern__random_below(postern_random_system(),
										 PAUSE_MS_MAX - PAUSE_MS_MIN + 1);
	struct timespec pause = { .tv_nsec = (long)ms * 1000000L };
	(void)nanosleep(&pause, NULL); /* a shorter one is as good */
	return true;
}
