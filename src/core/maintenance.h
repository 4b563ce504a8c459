/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_MAINTENANCE_H
#define POSTERN_CORE_MAINTENANCE_H

/*
 * What is done beside the messages: starting, pauses, recovery, orphans,
 * cleanup.
 */

#include "core/box.h"
#include "core/tenure.h"

/* start.c, without the mutex. */
/*
 * Whether the channel remembers ids at least as long as the handler may retry.
 * A sender may send copies for as long as its own retries last, which is not
 * known here; a retention that ends before this handler's last retry is too
 * short in any case. If false, `text` is a warning about it.
 */
bool postern__horizon_check(const char *channel, int64_t dedupe_ms,
		const char *key, const struct postern_policy *policy, char *text,
		size_t size);

/* Register the node, its channels and its handlers in the store. again: they
   are registered already, and the call only tests whether the store can be
   written; POSTERN_E_STALE if the node has expired. */
int postern__enrol(struct postern_box *box, bool again,
		struct postern_error *error);
/* The same with `replacing` held, for all generations and `next` (NULL: none),
   whose ids it assigns. */
int postern__enrol_generations(struct postern_box *box,
		struct postern_generation *next, bool again,
		struct postern_error *error);
/* Whether the box may start with these channels and handlers; reports what is
   questionable. */
int postern__generation_check(const struct postern_generation *generation,
		struct postern_error *error);
/* Make deliveries of parked messages that a handler wants now. */
int postern__unpark_all(struct postern_box *box, struct postern_error *error);

/* pause.c, without the mutex. */
/* Read from the store which handlers are paused. Returns the queued leases of
   handlers that were paused since, and claims for those that were resumed. */
int postern__pauses_refresh(struct postern_box *box,
		struct postern_error *error);
/* With the mutex: whether a pause has ended since it was read. */
bool postern__pauses_due(const struct postern_box *box);

/* filter.c */
/* Fails with POSTERN_E_NOTFOUND if the filter has a handler or a channel that
   neither the store nor this process has. */
int postern__filter_check_names(struct postern_box *box,
		const struct postern_filter *filter, struct postern_error *error);
/* Copy and check a filter; a limit of 0 becomes `fallback`. */
int postern__filter_check(const struct postern_filter *filter,
		uint32_t fallback, struct postern_filter *out,
		struct postern_error *error);

/* change.c, without the mutex. */
/* Make a change requested by an operator, unless the box is read-only. */
int postern__edit(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error);
/* Report the event of a change that was made. */
void postern__edit_report(struct postern_box *box,
		const struct postern_edit *edit);
/* Hold a handler on all nodes for a while: a service that it calls has asked
   not to be called for so long ("retry after"), or ever again. A durable pause
   with an end, or POSTERN__HOLD_FOR_GOOD, by
   POSTERN_BY_POSTERN: it neither shortens nor replaces the pause of an
   operator, nor a longer hold. */
#define POSTERN__HOLD_FOR_GOOD ((int64_t)0) /* until an operator resumes it */
int postern__hold_handler(struct postern_box *box, const char *key,
		int64_t for_ms, const char *reason, struct postern_error *error);

/* sweep.c, without the mutex. */
/* Recover the deliveries of expired nodes, and report how many; under the
   processing lock, those of all other nodes. count_out may be NULL. */
int postern__recover(struct postern_box *box, size_t *count_out,
		struct postern_error *error);
/* Cancel runs that are past their deadline, abandon or report those that are
   past their lease. Returns when to call again. */
int64_t postern__watchdog_step(struct postern_box *box);
/* Sleep until at_ms, or until the deadline of a run that starts meanwhile.
   Returns false when *stopping is set: set it with the mutex held, and signal
   `watch`. */
bool postern__watchdog_sleep(struct postern_box *box, int64_t at_ms,
		const bool *stopping);

/* orphans.c, without the mutex. */
/* Poison the deliveries of handlers that have been orphaned long enough, and
   report newly orphaned handlers. */
int postern__poison_orphans(struct postern_box *box, size_t *count_out,
		struct postern_error *error);
/* Discard the list of orphaned handlers: their grace period starts again. */
void postern__orphans_reset(struct postern_box *box);

/* clean.c, without the mutex. */
struct postern__cleanup {
	struct postern_cleaning cleaning;
	struct postern_lock lock; /* fence 0: not held */
	uint64_t node;            /* the node that holds it */
	int64_t step_ms;          /* duration of the last batch */
	/* The store is done, and markers are next: of this name of a handler, by
	   their order, from here on. */
	bool stored;
	size_t name;
	unsigned char cursor[POSTERN_MARK_CURSOR_LEN];
	struct postern_cleanup total;
};
/* Clean up one batch, if any channel or handler has a retention. Start with a
   zeroed state, call again while *more_out, then call postern__cleanup_end().
 */
int postern__cleanup_step(struct postern_box *box,
		struct postern__cleanup *state, bool *more_out,
		struct postern_error *error);
/* Release the lock, and report what was removed. */
void postern__cleanup_end(struct postern_box *box,
		struct postern__cleanup *state);
/* How long to wait after the last batch, so that accepts can proceed. */
int64_t postern__cleanup_rest_ms(const struct postern__cleanup *state);

#endif
