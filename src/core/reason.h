/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_REASON_H
#define POSTERN_CORE_REASON_H

/*
 * Why deliveries of a handler do not start now. One place decides, for leasing
 * at accept, for claims and for starting runs.
 */

#include "core/box.h"

enum postern__reason {
	POSTERN__REASON_NONE = 0,    /* they may */
	POSTERN__REASON_DRAINING,    /* the runner stops */
	POSTERN__REASON_LOCK,        /* this node has no right to process now */
	POSTERN__REASON_PAUSED,      /* an operator paused the handler */
	POSTERN__REASON_RETRY_AFTER, /* what it calls has asked for a rest */
	POSTERN__REASON_BROKEN,      /* the handler is at fault: breaker.h */
	POSTERN__REASON_RATE,        /* no start is reserved: rate.h */
	POSTERN__REASON_REPLACED,    /* its generation is not in place any more */
	POSTERN__REASON_ROOM,        /* its share of the run queue is used up */
	POSTERN__REASON_SUSPECTS,    /* a suspect runs, or must run, alone */
	POSTERN__REASON_CONCURRENCY, /* as many runs as its policy allows */
	POSTERN__REASON_STORE,       /* transactions: all in use, or failing */
	POSTERN__REASON_PULL         /* workers claim its deliveries: pull.h */
};

/* With the mutex. */
/* Why this node may not lease another delivery of `bytes` for the handler. */
enum postern__reason postern__why_not_lease(const struct postern_box *box,
		const struct postern__handler *handler, size_t bytes);
/* Why the first run in the handler's queue may not start. */
enum postern__reason postern__why_not_start(const struct postern_box *box,
		const struct postern__handler *handler);
/* Why no run at all may start: draining, lock. */
enum postern__reason postern__why_not_process(const struct postern_box *box);

/* Whether the handler is paused, as far as this node knows: pause.c. */
bool postern__is_paused(const struct postern_box *box,
		const struct postern__handler_state *state);

/* What a pause is called: RETRY_AFTER if Postern itself made one with an end.
 */
enum postern__reason postern__pause_reason(const char *by, int64_t until_ms);

/* What holds all deliveries of the handler on this node, whatever it does now:
   paused, draining, lock, broken, rate; NONE also if runs wait for other
   runs. */
enum postern__reason postern__why_held(const struct postern_box *box,
		const struct postern__handler *handler);

/* The same for people, and also `suspects`. */
struct postern__hold {
	enum postern__reason reason; /* NONE: the other members are 0 */
	const char *text;            /* why; NULL: the reason says it all */
	const char *by;              /* an operator; NULL: nobody */
	int64_t at_ms;               /* since when; 0: not known */
	/* When it ends, or is tried to end: the next probe. 0: not known. */
	int64_t until_ms;
};
/* now_ms is the time by the clock of the store. Texts belong to the box. */
void postern__hold_find(const struct postern_box *box,
		const struct postern__handler *handler, int64_t now_ms,
		struct postern__hold *out);
/* Copy the texts to the memory. */
void postern__hold_copy(struct postern__hold *hold,
		struct postern_memory *memory);
/* The same as the members `held`… of the statistics: with what the store knows
   there already, which holds for all nodes. Texts are copied to the memory. */
void postern__held_describe(const struct postern_box *box,
		const struct postern__handler *handler, int64_t now_ms,
		struct postern_memory *memory, struct postern_handler_stats *stats);

/* A word for people: "paused", "concurrency", …; "" for NONE. */
const char *postern__reason_name(enum postern__reason reason);

/* How many deliveries of the handler share a transaction. */
size_t postern__commit_batch_of(const struct postern__handler *handler);
/* Whether each run of the handler has a worker to itself until it has ended. */
bool postern__handler_holds_worker(const struct postern__handler *handler);

#endif
