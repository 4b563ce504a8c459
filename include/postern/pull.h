/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_PULL_H
#define POSTERN_PULL_H

/*
 * Workers outside of the process. A handler of the kind `pull` is not run by a
 * runner: a worker claims its deliveries, works on them, and settles them:
 *
 *   pending --claim--> leased --settle--> done, pending, poisoned, discarded
 *      ^                  |
 *      +---- failed <-----+  the lease has ended
 *
 * A pull lease belongs to the delivery, which has its fence and its end, and
 * not to a node: it is settled and extended through any box of the store, and
 * the end of a process, also of the one through which it was claimed, leaves it
 * alone. The fence decides: what was claimed again cannot be settled under the
 * former fence. A lease that ends is a failed attempt, with the handler's
 * backoff.
 *
 * A handler that is paused, held or out of its rate has no deliveries to claim,
 * and with exclusive processing only the node with the lock has.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Deliveries of one claim, and of one call that settles. */
#define POSTERN_PULL_COUNT_MAX 1000
/* The longest wait for a delivery: five minutes. */
#define POSTERN_PULL_WAIT_MS_MAX ((int64_t)5 * 60 * 1000)
/* A lease has at least a tenth of a second, and at most a day. */
#define POSTERN_PULL_LEASE_MS_MIN ((int64_t)100)
#define POSTERN_PULL_LEASE_MS_MAX ((int64_t)24 * 3600 * 1000)
/* Claims of one box that wait at the same time. */
#define POSTERN_PULL_WAITING_COUNT_MAX 4096

/* Zero the struct and set `size`, `handler` and what else is wanted. */
struct postern_pull_options {
	size_t size;
	const char *handler; /* its key, or a legacy key */
	uint32_t max;        /* 0: 1 */
	int64_t wait_ms;     /* for a delivery, if there is none; 0: not at all */
	int64_t lease_ms;    /* 0: as the handler says, one minute by default */
	/* No more deliveries after the body that exceeds this; 0: 4 MiB. */
	size_t bytes_max;
	/* Whether somebody still waits; called before a delivery is claimed. NULL:
	   always. May be called until the claim has been answered. */
	bool (*wanted)(void *context);
	void *wanted_context;
};

/* One delivery that was claimed. Valid as long as its batch. */
struct postern_pulled {
	int64_t seq;
	uint64_t fence;
	uint32_t attempt;    /* failures so far + 1 */
	const char *handler; /* its key */
	const char *channel;
	const struct postern_message *message;
	uint64_t reserved[8];
};

/* The deliveries of a claim; none if the wait has ended. */
struct postern_pull_batch;

POSTERN_EXPORT size_t postern_pull_batch_count(
		const struct postern_pull_batch *batch);
POSTERN_EXPORT const struct postern_pulled *
postern_pull_batch_get(const struct postern_pull_batch *batch, size_t index);
POSTERN_EXPORT void postern_pull_batch_destroy(
		struct postern_pull_batch *batch);

/*
 * Claim deliveries, and wait for one if there is none. Without a runner this
 * also does what a runner would do for the handler meanwhile.
 *
 * out  yours; end it with postern_pull_batch_destroy().
 *
 * POSTERN_E_NOTFOUND  the box has no such handler
 * POSTERN_E_INVALID   the handler is of another kind, or a number is out of
 *                     range
 * POSTERN_E_BUSY      too many claims are waiting
 */
POSTERN_EXPORT int postern_box_pull(struct postern_box *box,
		const struct postern_pull_options *options,
		struct postern_pull_batch **out, struct postern_error *error);

/*
 * The result of a claim: a batch, or NULL and an error. Called on a thread of
 * the runner: be quick. The batch is yours if you return true. On false the
 * deliveries are returned at once, and nothing is counted.
 */
typedef bool postern_pull_done(void *context, struct postern_pull_batch *batch,
		const struct postern_error *error);

/* The same without waiting: `done` is called exactly once, possibly before this
   returns, unless this fails. Needs a runner. */
POSTERN_EXPORT int postern_box_pull_async(struct postern_box *box,
		const struct postern_pull_options *options, postern_pull_done *done,
		void *context, struct postern_error *error);

/* The result of one delivery. Zero the struct, set `size`, and what is known
   of the delivery. */
struct postern_pull_result {
	size_t size;
	int64_t seq;
	const char *handler; /* its key, or a legacy key */
	uint64_t fence;
	enum postern_outcome_kind outcome;
	int64_t delay_ms;   /* of POSTERN_RETRY_AFTER and POSTERN_SNOOZE */
	const char *reason; /* NULL: none; truncated */
	/*
	 * out: POSTERN_OK, also for a repetition of a call that ended the delivery
	 * in the same way; POSTERN_E_STALE: too late, the lease has ended and was
	 * taken over; POSTERN_E_NOTFOUND: there is no such delivery, or this box
	 * does not have the handler.
	 */
	int code;
};

/*
 * Settle deliveries, as one durable unit. Every result gets its own code; all
 * of them have the size of the first. If this fails, the call can be repeated.
 *
 * POSTERN_E_INVALID: there are more than POSTERN_PULL_COUNT_MAX.
 */
POSTERN_EXPORT int postern_box_settle(struct postern_box *box,
		struct postern_pull_result *results, size_t count,
		struct postern_error *error);

/*
 * Make a lease end in lease_ms from now.
 *
 * until_ms_out  its end by the store's clock, ms since 1970; may be NULL.
 *
 * POSTERN_E_STALE     too late, as above
 * POSTERN_E_NOTFOUND  there is no such delivery, or no such handler
 */
POSTERN_EXPORT int postern_box_extend(struct postern_box *box, int64_t seq,
		const char *handler, uint64_t fence, int64_t lease_ms,
		int64_t *until_ms_out, struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
