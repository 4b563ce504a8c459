/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BASE_CLOCK_H
#define POSTERN_BASE_CLOCK_H

#include <postern/sys/clock.h>
#include <stdint.h>
#include <time.h>

/* The point of CLOCK_MONOTONIC that is ms (not negative) from now. */
struct timespec postern__clock_deadline(int64_t ms);

/* CLOCK_MONOTONIC in nanoseconds, for measuring: always the machine's clock,
   never the one of a box. */
int64_t postern__clock_ns(void);

/* Sleep until postern__clock_ns() is at least ns; a signal may end it. */
void postern__clock_sleep_until_ns(int64_t ns);

#endif
