/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_TENURE_H
#define POSTERN_CORE_TENURE_H

/*
 * The right to process: the node's lease and the processing lock.
 */

#include "core/box.h"

/* tenure.c: with the mutex held unless noted. */
/* The right under which a write is made: a snapshot of node id and lock. */
struct postern__right {
	uint64_t node;
	struct postern_lock lock;
	bool locked; /* exclusive processing: the store must check the lock */
};
struct postern__right postern__right_of(const struct postern_box *box);
/* The lock to pass to the store; NULL with parallel processing. */
const struct postern_lock *postern__right_lock(
		const struct postern__right *right);
/* Whether this node may lease and claim deliveries and start runs. */
bool postern__may_process(const struct postern_box *box);
/* Whether there is a node lease or a processing lock to renew. */
bool postern__needs_renewal(const struct postern_box *box);
/* The time from one renewal to the next. */
int64_t postern__renewal_interval_ms(const struct postern_box *box);
/* Without the mutex: renew the node's lease and the processing lock; register
   a new node if this one has expired, and acquire the lock if it is free.
   *next_out: when to call again, monotonic. */
int postern__renew(struct postern_box *box, int64_t *next_out,
		struct postern_error *error);
/* Without the mutex: ask the store to let this node lease, unless it already
   does. Also POSTERN_OK if the store refuses because another node processes
   under another lock; that is reported once. */
int postern__engage(struct postern_box *box, struct postern_error *error);
/* Without the mutex: if the node lease or the lock may have expired, return
   queued leases and cancel runs, without a call of the store. Returns when to
   call again. */
int64_t postern__right_watch(struct postern_box *box);
/* Without the mutex: the store refused this fence of the processing lock as
   stale; start no run before the next renewal. */
void postern__lock_invalidate(struct postern_box *box, uint64_t fence);
/* Without the mutex: release the processing lock, unless a runner, another
   call or a run of this process still needs it. */
void postern__lock_release(struct postern_box *box);

#endif
