/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_RUN_H
#define POSTERN_CORE_RUN_H

/*
 * Runs: leased deliveries in memory, from the queue or the claim to the
 * settlement.
 */

#include "core/box.h"
#include "core/item.h"

enum postern__run_state {
	POSTERN__RUN_NONE,
	POSTERN__RUN_QUEUED,
	POSTERN__RUN_RUNNING,
	POSTERN__RUN_SETTLING, /* in the commit queue */
	POSTERN__RUN_SETTLED
};

/* So long a node leaves to others what it returned to idle nodes. */
#define POSTERN__RETURNED_MS ((int64_t)1000)

/* What the end of a run did to the breaker of its handler. */
enum postern__breaker_change {
	POSTERN__BREAKER_UNCHANGED,
	POSTERN__BREAKER_OPENED,
	POSTERN__BREAKER_CLOSED
};

/* One leased delivery in memory. Allocated as part of its content. */
struct postern_run {
	struct postern__list link; /* the handler's queue, or box->running */
	struct postern__item item; /* of `settlement`, in the commit queue */
	struct postern_settlement settlement;
	struct postern__content *content;
	struct postern__handler *handler;
	struct postern_box *box;
	struct postern_delivery delivery;
	int64_t stored_handler; /* the handler id the delivery is stored under */
	uint32_t failures;
	uint32_t breaks;       /* how often the connection broke under it */
	uint32_t returns;      /* how often its lease was returned to idle nodes */
	uint32_t queued_round; /* box->share_round when it was queued */
	enum postern_suspicion suspicion;
	enum postern__run_state state;
	/* The handler's implementation has not finished the run. The content
	   stays allocated while this is set or a settlement is pending. */
	bool in_impl;
	bool in_unit;       /* inside the store's transaction right now */
	bool start_emitted; /* transactional: POSTERN_EVENT_STARTED was emitted */
	bool timed_out;     /* transactional: it returned after its deadline */
	bool postponed;     /* transactional: not called, the batch took long */
	bool overdue;       /* past its lease: other runs do not wait for it */
	bool cancelled;     /* cancelled because of its deadline */
	bool writer_held;   /* it has had the only writer for long: reported */
	bool reported;      /* past its lease: abandoned or reported as stuck */
	bool on_hold;       /* settled because its handler is at fault */
	bool retry_after;   /* settled with the delay that the handler asked for */
	bool lag_counted;   /* see postern__meter_start() */
	bool stopping;      /* cancelled because the runner stops */
	bool pulled;        /* of a pull lease: pull_settle.c writes it */
	bool unblamed;      /* its failure says nothing about the handler */
	atomic_bool cancel; /* by an operator: its outcome is ignored */
	bool cancel_uncounted;
	char *cancel_reason;                  /* NULL: none, or out of memory */
	enum postern__breaker_change breaker; /* to be reported */
	int64_t dequeued_ms; /* monotonic: when it left the queue */
	int64_t started_ms;  /* monotonic: when the implementation was called */
	int64_t ended_ms;    /* monotonic: when its settlement was queued */
	int64_t deadline_ms; /* monotonic; POSTERN__NEVER: no timeout */
	int64_t lease_end_ms;
	int64_t held_ms; /* of a pull lease: how long its worker had it */
	uint64_t epoch;
	void *data;
	/* Inside a transaction or a guard: where postern_run_finish() stores the
	   outcome. */
	struct postern_outcome *outcome_out;
	/* Inside a guard: signalled with the box's mutex when it has; `finished` is
	   set then. */
	pthread_cond_t *finish_wake;
	bool finished;
	bool guarded;    /* inline, under a guard */
	int inline_code; /* inline: of the message's receipt; 0: by the outcome */
	char *reason;    /* of the settlement; NULL: none, or out of memory */
};

/* run.c: with the mutex held unless noted. */
void postern__run_init(struct postern_run *run, struct postern_box *box,
		struct postern__content *content, struct postern__handler *handler,
		int64_t seq, int64_t stored_handler, uint64_t fence, uint32_t failures,
		enum postern_suspicion suspicion);
void postern__run_enqueue(struct postern_run *run);
/* Remove a queued run from its queue and return its lease. */
void postern__run_return_lease(struct postern_run *run);
/* The same, to nodes that are idle. */
void postern__run_share_lease(struct postern_run *run);
/* Without the mutex: run started deliveries of one handler on this thread. */
void postern__run_execute(struct postern_box *box,
		struct postern__handler *handler, struct postern_run **runs,
		size_t count);
/* Move a queued run to the running list. */
void postern__run_start(struct postern_run *run);
/* Put a started run back at the front of its queue, as if never started. */
void postern__run_requeue(struct postern_run *run);
/* The implementation has finished a run: free its slot. */
void postern__run_detach(struct postern_run *run);
/* Settle a run that is past its lease as timed out. Its callback keeps its
   thread. */
void postern__run_abandon(struct postern_run *run);
/* The run is past its lease: runs that wait for it may start. */
void postern__run_overdue(struct postern_run *run);
/* The run has a new deadline: wake the watchdog if it would miss it. */
void postern__run_watch(const struct postern_run *run);
/* Monotonic: when a run that has the only writer is to be reported;
   POSTERN__NEVER: it has it not, or is reported. */
int64_t postern__run_writer_due_ms(const struct postern_run *run);
/* If no worker is idle, have the watchdog check soon whether all hang. */
void postern__run_watch_starvation(struct postern_box *box);
/* Whether a worker could start a run now, and of how many handlers it could, or
   could if starts were reserved. */
bool postern__run_ready(const struct postern_box *box);
size_t postern__run_ready_count(const struct postern_box *box);
/* Without the mutex: start one run (or one batch of a transactional handler)
   on this thread. Returns false if there was none to start. *count_out: how
   many deliveries were started. */
bool postern__run_one(struct postern_box *box, size_t max, size_t *count_out);
/* Without the mutex: wake a worker if a run can be started. For callers of
   postern__run_one() that stop before it returns false. */
void postern__run_wake_worker(struct postern_box *box);
/* The settlement is durable, or was refused as stale: release the run. */
void postern__run_settled(struct postern_run *run);
/* End a run that needs no settlement: the store has completed it. */
void postern__run_end_unsettled(struct postern_run *run);
/* Turn an outcome into a settlement and queue it. `name` is the outcome stored
   with the attempt; NULL: the name of the outcome's kind. */
void postern__run_settle(struct postern_run *run,
		const struct postern_outcome *outcome, const char *name);
/* Queue a settlement without an outcome of a handler; reason may be NULL. */
void postern__run_settle_to(struct postern_run *run, enum postern_settle_to to,
		uint32_t failures, int64_t delay_ms, const char *outcome,
		const char *reason);
/* The delay before the next run, if this one has failed. */
int64_t postern__run_backoff_ms(const struct postern_run *run);
/* Whether the run is past its deadline; if so, the outcome is replaced by a
   retry, with the timeout as reason unless it already is a retry with one. */
bool postern__run_timed_out(const struct postern_run *run,
		struct postern_outcome *outcome);

/* transact.c */
/* Without the mutex: run started deliveries of one transactional handler in
   one transaction of the store, and settle them. */
void postern__transact(struct postern_box *box, struct postern_run **runs,
		size_t count);

/* Whether the calling thread is in a transactional handler of this box. */
bool postern__in_transaction(const struct postern_box *box);
/* The calling thread is in a transactional handler of this box from now on
   (NULL: of none); returns what it was in before. */
const struct postern_box *postern__transaction_enter(
		const struct postern_box *box);
/* How many transactions of handlers may be open at the same time. */
size_t postern__transactions_max(const struct postern_box *box);

/* claim.c */
/* Without the mutex: claim up to `max` deliveries and queue them. all: also
   for handlers that are not known to have any due. */
int postern__claim(struct postern_box *box, size_t max, bool all,
		size_t *count_out, struct postern_error *error);
/* With the mutex: when the next claim or reservation of starts is due, or
   POSTERN__NEVER. */
int64_t postern__claim_at_ms(const struct postern_box *box);
/* With the mutex: the store may have deliveries due in delay_ms. */
void postern__claim_hint(struct postern_box *box,
		struct postern__handler *handler, int64_t delay_ms);
void postern__claim_hint_all(struct postern_box *box);
/* With the mutex: the store is being asked for the handler; a hint that arrives
   meanwhile counts. */
void postern__claim_asked(struct postern_box *box,
		struct postern__handler_state *state);
/* With the mutex: a handler may have room again; wake the claimer if a claim is
   due before its sleep ends. */
void postern__claim_nudge(struct postern_box *box);

/* share.c */
/* Without the mutex: tell other nodes for which handlers this one is idle, and
   return to idle nodes what it will not start soon. To be called about once a
   second, by one thread. */
int postern__share(struct postern_box *box, struct postern_error *error);

/* drain.c, without the mutex. */
/* Return the leases of all queued runs. inline_too: and answer inline ones as
   unavailable. */
void postern__return_queued(struct postern_box *box, bool inline_too);
/* Cancel all runs because the runner stops, or the right to run them ended. */
void postern__cancel_running(struct postern_box *box, bool inline_too);

/* process.c */
/* As postern_box_process(), but keeps the processing lock. */
int postern__process(struct postern_box *box, size_t max, size_t *count_out,
		struct postern_error *error);

#endif
