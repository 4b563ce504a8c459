/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_WAIT_H
#define POSTERN_BASE_WAIT_H

/*
 * Condition variables with a timeout as a duration, on a clock that never
 * jumps. A wait may end early or without a signal: check and wait again.
 */

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns 0, or an error number as pthread_cond_init() does. */
int postern__wait_init(pthread_cond_t *condition);

/* Wait with `mutex` held, at most about ms; negative: without a timeout. */
void postern__wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
		int64_t ms);

/* The same for a semaphore, which needs no mutex. True: it took a post. */
bool postern__wait_posted(sem_t *semaphore, int64_t ms);

#endif
