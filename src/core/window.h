/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_WINDOW_H
#define POSTERN_CORE_WINDOW_H

/*
 * How many deliveries of a handler this node leases in advance. With the box's
 * mutex held.
 */

#include "core/box.h"

struct postern_run;

/* How many deliveries of the handler can run at the same time. */
size_t postern__parallel_count(const struct postern_box *box,
		const struct postern__handler *handler);
/* A second of work by the latest runs, and at least what can run at the same
   time. */
size_t postern__window_estimate(const struct postern_box *box,
		const struct postern__handler *handler);
/* The most leases that the handler may have in memory. */
size_t postern__window_count(const struct postern_box *box,
		const struct postern__handler *handler);

/* A run ended at this monotonic time: its duration changes the window of its
   handler. */
void postern__window_record(const struct postern_run *run, int64_t now_ms);

#endif
