/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_WAIT_H
#define POSTERN_BASE_WAIT_H

/*
 * Conditions that are waited for by duration. They count on a clock that
 * never jumps, and may wake up early or for nothing: check and wait again.
 */

#include <pthread.h>
#include <stdint.h>

/* 0, or an errno as pthread_cond_init() gives it. */
int postern__wait_init(pthread_cond_t *condition);

/* Wait with `lock` held, at most about ms; negative: without end. */
void postern__wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
		int64_t ms);

#endif
