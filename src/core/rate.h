/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_RATE_H
#define POSTERN_CORE_RATE_H

/*
 * The rate of a handler: how many of its deliveries start in a period, on all
 * nodes of a store together.
 */

#include "core/box.h"

/* Whether the handler has a rate. */
bool postern__rate_is_set(const struct postern_policy *policy);

/* The length of a slot, a twentieth of the period, and the most starts in one:
   the burst, and at least an even distribution. */
int64_t postern__rate_slot_ms(const struct postern_rate *rate);
uint32_t postern__rate_slot_max(const struct postern_rate *rate);

/*
 * Grant starts, at most `wanted`, and count them in `slots`. *wait_ms_out: if
 * none is granted, after how long one may be.
 */
uint32_t postern__rate_grant(struct postern_rate_slots *slots, int64_t now_ms,
		const struct postern_rate *rate, uint32_t wanted, int64_t *wait_ms_out);

/* With the mutex. */
/* How many deliveries of the handler may start now; SIZE_MAX: it has no rate.
 */
size_t postern__rate_left(const struct postern_box *box,
		const struct postern__handler *handler);
/* A delivery starts. */
void postern__rate_use(struct postern__handler *handler);
/* When starts should be reserved for the queued deliveries of a handler, by the
   monotonic clock; POSTERN__NEVER: for none. */
int64_t postern__rate_reserve_at_ms(const struct postern_box *box);

/* Without the mutex: reserve up to `wanted` starts of one handler. */
int postern__rate_reserve(struct postern_box *box,
		struct postern__handler *handler, uint32_t wanted,
		struct postern_error *error);
/* Without the mutex: reserve starts for the handlers that wait for them. */
int postern__rates_reserve(struct postern_box *box,
		struct postern_error *error);

#endif
