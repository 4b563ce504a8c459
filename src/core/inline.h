/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_INLINE_H
#define POSTERN_CORE_INLINE_H

/*
 * Inline delivery, of channels with the modes `guard` and `direct`: the
 * handlers run before the message is answered, and it is not stored.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/recent.h"
#include "core/run.h"

#include <postern/sys/marker.h>

/*
 * What a box needs of a guard, which is in another room. A box has one if a
 * channel needs it.
 */
struct postern__guarded_run {
	struct postern_mark mark;
	bool transactional;
	int64_t wait_ms;    /* for a copy that is running; 0: not at all */
	int64_t timeout_ms; /* of a transaction; 0: none */
	/* The keys that were done, instead of markers; NULL: markers. */
	struct postern__recent *recent;
	struct postern__recent_limits recent_limits;
	void *context;
	/* The function that is guarded; called at most once. */
	void (*run)(void *context, uint64_t fence, void *transaction,
			uint64_t epoch, struct postern_outcome *outcome);
	/* out */
	bool called;
	bool forgot;                    /* as postern__recent_add() returns */
	struct postern_outcome outcome; /* if it was called */
};

struct postern__guarding {
	int (*create)(struct postern_box *box, void **out,
			struct postern_error *error);
	/* Returns what postern_guard_run() does. */
	int (*run)(void *guard, struct postern__guarded_run *run,
			struct postern_error *error);
	void (*destroy)(void *guard);
};

/* mode.c: the settings of a channel. */
int postern__channel_mode_init(struct postern__channel *channel,
		const struct postern_channel_options *options, const char *name,
		struct postern_error *error);
void postern__channel_mode_finish(struct postern__channel *channel);
/* Whether messages are answered by the results of their handlers. */
bool postern__channel_is_inline(const struct postern__channel *channel);
/* The same of the channel with this name; false: there is none. */
bool postern__box_runs_inline(struct postern_box *box, const char *channel);
/* Whether any handler's run of a message of this type is guarded. */
bool postern__channel_guards(const struct postern__channel *channel,
		const char *type);
/* Whether this handler's run of a message of this type is guarded. */
bool postern__handler_is_guarded(const struct postern__handler *handler,
		const char *type);
/* A handler of an inline channel, against the mode and the store. */
int postern__mode_check_handler(const struct postern__handler *handler,
		struct postern_error *error);
/* All channels, when all handlers are known: require_inbox, channels and
   handlers that are named and do not exist, the guard. */
int postern__modes_check(const struct postern_generation *generation,
		struct postern_error *error);

/* inline.c: with the mutex held unless noted. */
/* Queue the runs of a content that is inline. */
void postern__inline_queue(struct postern_box *box,
		struct postern__content *content, struct postern__waiter *waiter);
/* A run of an inline content has its settlement. */
void postern__inline_settled(struct postern_run *run);
/* Pass on what was settled: events, receipts. Releases the mutex meanwhile. */
void postern__inline_answer(struct postern_box *box);
/* Without a runner: run one of these contents on this thread. False: none can
   start now. Releases the mutex meanwhile. */
bool postern__inline_run_here(struct postern_box *box,
		struct postern__content *const *contents, size_t count);
/* Without the mutex: make a started run of a guarded handler. */
void postern__inline_run_guarded(struct postern_run *run);

#endif
