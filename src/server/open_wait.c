/* SPDX-License-Identifier: MIT */
/*
 * Short pauses of random length, so that commands that wait for each other do
 * not retry at the same time, and a limit for them.
 */

#include "server/open_wait.h"

#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <time.h>

#include "base/random.h"

/* How long to wait for a program that may end soon. */
#define SOON_MS 2000
#define PAUSE_MS_MIN 5
#define PAUSE_MS_MAX 50
/* About five attempts in SOON_MS. */
#define BACK_OFF_MS_FIRST 100
#define BACK_OFF_FACTOR 3

static int64_t now_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

void postern__open_wait_init(struct postern__open_wait *patience,
		int64_t passing_ms) {
	int64_t now = now_ms();
	patience->soon_ms = now + SOON_MS;
	patience->end_ms = now + (passing_ms > SOON_MS ? passing_ms : SOON_MS);
	patience->back_off_ms = BACK_OFF_MS_FIRST;
}

static void pause_for(int64_t ms) {
	struct timespec pause = {
		.tv_sec = (time_t)(ms / 1000),
		.tv_nsec = (long)(ms % 1000) * 1000000L,
	};
	(void)nanosleep(&pause, NULL); /* a shorter one is as good */
}

bool postern__open_wait_next(const struct postern__open_wait *patience,
		bool passing) {
	if (now_ms() >= (passing ? patience->end_ms : patience->soon_ms)) {
		return false;
	}
	uint64_t ms = PAUSE_MS_MIN + postern__random_below(postern_random_system(),
										 PAUSE_MS_MAX - PAUSE_MS_MIN + 1);
	pause_for((int64_t)ms);
	return true;
}

bool postern__open_wait_back_off(struct postern__open_wait *patience) {
	int64_t left = patience->soon_ms - now_ms();
	if (left <= 0) {
		return false;
	}
	uint64_t half = (uint64_t)patience->back_off_ms / 2;
	int64_t ms = (int64_t)(half + postern__random_below(postern_random_system(),
										  half + 1));
	patience->back_off_ms *= BACK_OFF_FACTOR;
	pause_for(ms < left ? ms : left);
	return true;
}
