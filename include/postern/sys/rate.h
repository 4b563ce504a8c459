/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_RATE_H
#define POSTERN_SYS_RATE_H

/* The rate of a handler, as a store keeps it. Part of sys/store.h. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts of a handler per period, and the most of them at once. */
struct postern_rate {
	uint32_t count;
	uint32_t burst;
	int64_t period_ms;
};

#define POSTERN_RATE_SLOT_COUNT 22

/* The starts that were granted in a slot, a twentieth of the period, and in
   those before it. */
struct postern_rate_slots {
	int64_t slot; /* its number since 1970 */
	uint32_t counts[POSTERN_RATE_SLOT_COUNT];
};

struct postern_reservation {
	int64_t handler; /* a handler id */
	struct postern_rate rate;
	uint32_t wanted;
	/* out */
	uint32_t granted;
	int64_t wait_ms; /* if none is granted: after how long one may be */
};

#ifdef __cplusplus
}
#endif

#endif
