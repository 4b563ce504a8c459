/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_BREAKER_H
#define POSTERN_CORE_BREAKER_H

/*
 * The breaker of a handler: holds a handler that is at fault itself on this
 * node, and probes it with one delivery at a time until a run succeeds.
 *
 * All functions are called with the box's mutex held.
 */

#include "core/box.h"

struct postern_run;

/* Longest text of a breaker's reason, its zero byte included. */
#define POSTERN__BREAKER_REASON_MAX 256

/* A delivery that ended because its handler was at fault. */
struct postern__faulted {
	int64_t seq;
	int64_t stored_handler; /* a message may have one for each id */
	int64_t at_ms;          /* monotonic: the first time */
};

/* Of a handler; NULL in its state until a run fails. */
struct postern__breaker {
	bool open;           /* the handler is held */
	int64_t since_ms;    /* wall clock: since when */
	int64_t opened_ms;   /* the same by the monotonic clock */
	int64_t delay_ms;    /* between two probes */
	int64_t probe_at_ms; /* monotonic: when the next delivery may start */
	bool probe_taken;    /* a delivery is being leased as a probe */
	char reason[POSTERN__BREAKER_REASON_MAX];
	/* The messages that failed since the last success, each once. */
	int64_t *failed;
	size_t failed_count;
	size_t failed_max;
	/* Deliveries that ended by a fault of the handler; a ring. */
	struct postern__faulted *faulted;
	size_t faulted_count;
	size_t faulted_next;
	/* Monotonic: when the latest successful run started. */
	int64_t success_ms;
};

bool postern__breaker_is_open(const struct postern__handler_state *state);
/* When the handler may lease its next delivery, by the monotonic clock; 0 if it
   is not held. */
int64_t postern__breaker_probe_at_ms(
		const struct postern__handler_state *state);

/* A delivery is about to be leased: if the handler is held, this is the probe,
   and the next one follows after a delay. */
void postern__breaker_take_probe(const struct postern_box *box,
		struct postern__handler_state *state);
/* Whether a delivery that the store has leased may be queued: if the handler is
   held, only the probe. */
bool postern__breaker_admits(struct postern__handler_state *state);

/*
 * The run ended because its handler is at fault. Returns how long its delivery
 * waits without a failure being counted, or -1: the delivery itself is at
 * fault, because other runs of the handler have succeeded since it was run.
 */
int64_t postern__breaker_fault(struct postern_run *run, const char *reason);

/* The run failed, and the failure was counted. */
void postern__breaker_failure(struct postern_run *run, const char *reason);

/* The delivery of the run has ended: if it is run again, by an operator, its
   former faults do not count. */
void postern__breaker_forget(const struct postern_run *run);

/* The run succeeded: the handler is not held any more. */
void postern__breaker_success(struct postern_run *run);

/* Release the handler without a success: its definition has changed. */
void postern__breaker_close(struct postern__handler_state *state);

/* NULL is fine. */
void postern__breaker_destroy(struct postern__breaker *breaker);

#endif
