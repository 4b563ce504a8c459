/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_CLOCK_H
#define POSTERN_BASE_CLOCK_H

#include <postern/sys/clock.h>
#include <stdint.h>
#include <time.h>

/* The point of CLOCK_MONOTONIC that is ms (not negative) from now. */
struct timespec postern__clock_deadline(int64_t ms);

#endif
