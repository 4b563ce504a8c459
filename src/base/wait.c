/* SPDX-License-Identifier: MIT */
/*
 * Waiting with a timeout. A pthread condition needs a point in time and callers
 * have a duration, which is converted here, on CLOCK_MONOTONIC. A wait is
 * limited to an hour: callers loop anyway, and the sum cannot overflow.
 */

#include "base/wait.h"

#include "base/clock.h"

#define WAIT_MS_MAX ((int64_t)3600 * 1000)

int postern__wait_init(pthread_cond_t *condition) {
	pthread_condattr_t attributes;
	int r = pthread_condattr_init(&attributes);
	if (r) {
		return r;
	}
	r = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	if (!r) {
		r = pthread_cond_init(condition, &attributes);
	}
	(void)pthread_condattr_destroy(&attributes);
	return r;
}

static struct timespec limited(int64_t ms) {
	return postern__clock_deadline(
			ms < 0 || ms > WAIT_MS_MAX ? WAIT_MS_MAX : ms);
}

void postern__wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
		int64_t ms) {
	struct timespec until = limited(ms);
	(void)pthread_cond_timedwait(condition, mutex, &until);
}

bool postern__wait_posted(sem_t *semaphore, int64_t ms) {
	struct timespec until = limited(ms);
	return sem_clockwait(semaphore, CLOCK_MONOTONIC, &until) == 0;
}
