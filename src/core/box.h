/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_BOX_H
#define POSTERN_CORE_BOX_H

/*
 * The private parts of a box, shared by the files of src/core and by the
 * runner.
 *
 * `mutex` guards everything that changes after start: the commit queue, the
 * run queues, the counters. No thread holds it while it calls the store, a
 * handler or a subscriber. The store does its own locking.
 *
 * The core starts no threads. Blocked callers and the runner's threads wait
 * for condition variables of the box, all used with `mutex`:
 *
 *   committed  a commit ended, or a drain made progress; callers that accept
 *              wait for a condition of their own (struct postern__waiter)
 *   work       a run can be started; waited for by the workers
 *   wake       an item can be written; waited for by the writer alone
 *   claim      deliveries can be claimed; waited for by the claimer alone
 *   watch      a deadline moved nearer; waited for by the watchdog alone
 */

#include "base/list.h"
#include "base/wait.h"

#include <postern/box.h>
#include <postern/event.h>
#include <postern/sys/clock.h>
#include <postern/sys/handler.h>
#include <postern/sys/random.h>
#include <postern/sys/store.h>
#include <pthread.h>

/* Limits of one group commit: accepts and settlements each, and body bytes.
   Large enough to make the cost of the commit itself negligible, small enough
   to keep the wait behind it short. */
#define POSTERN__COMMIT_ITEMS_MAX 2000
#define POSTERN__COMMIT_BYTES_MAX ((size_t)16 * 1024 * 1024)
/* The most group commits that are written at the same time, if the store
   supports that many (postern_store_ops.writers). */
#define POSTERN__WRITERS_MAX 4

/* Limits of the accepts that wait for a commit, as far as
   postern_box_accept_async() queues them. */
#define POSTERN__ASYNC_COUNT_MAX 100000
#define POSTERN__ASYNC_BYTES_MAX ((size_t)256 * 1024 * 1024)

/* How long a node stays live after its last renewal. */
#define POSTERN__NODE_LEASE_MS_DEFAULT ((int64_t)15 * 1000)

/* How long a handler must be orphaned before its deliveries are poisoned, in
   a store that several nodes share: its only node may be restarting. */
#define POSTERN__ORPHAN_GRACE_MS ((int64_t)10 * 60 * 1000)

/* "Never" as a point in time. */
#define POSTERN__NEVER INT64_MAX

struct postern__channel {
	char *name;
	enum postern_unrouted unrouted;
	enum postern_on_conflict on_conflict;
	bool without_inbox;
	bool allow_without_inbox;
	size_t max_message_size;
	int64_t retention_payload_ms;
	int64_t retention_dedupe_ms;
	struct postern_policy policy;
	int64_t id; /* assigned by the store */
	/* Indices into box->handlers. */
	size_t *handlers;
	size_t handler_count;
};

/* A registered handler. */
struct postern__handler {
	struct postern_handler *impl;
	char *key;
	char **legacy_keys;
	size_t legacy_key_count;
	char **types;
	size_t type_count;
	struct postern_policy policy;
	struct postern__channel *channel;
	int64_t id; /* assigned by the store */

	/* Guarded by the box's mutex. */
	bool paused;
	struct postern__list queue; /* of postern_run.link: leased, not started */
	size_t queued;
	size_t running; /* started, and not finished by the implementation */
	/* Leases that this process keeps in memory, and their bytes: counted from
	   the reservation before the accept is written until the settlement is
	   durable. */
	size_t held;
	size_t held_bytes;
	/* When the store may have a delivery due for this handler, by the
	   monotonic clock; POSTERN__NEVER if none is known. */
	int64_t due_at_ms;
};

enum postern__item_kind { POSTERN__ITEM_ACCEPT, POSTERN__ITEM_SETTLE };

/* An accept or a settlement that waits for the next commit. */
struct postern__item {
	struct postern__list link;
	enum postern__item_kind kind;
	size_t bytes;
};

enum postern__run_state {
	POSTERN__RUN_NONE,
	POSTERN__RUN_QUEUED,
	POSTERN__RUN_RUNNING,
	POSTERN__RUN_SETTLING, /* in the commit queue */
	POSTERN__RUN_SETTLED
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
	enum postern_suspicion suspicion;
	enum postern__run_state state;
	/* The handler's implementation has not finished the run. The content
	   stays allocated while this is set or a settlement is pending. */
	bool in_impl;
	bool in_unit;        /* inside the store's transaction right now */
	bool start_emitted;  /* transactional: POSTERN_EVENT_STARTED was emitted */
	bool timed_out;      /* transactional: it returned after its deadline */
	bool postponed;      /* transactional: not called, the batch took long */
	bool overdue;        /* past its lease: other runs do not wait for it */
	bool cancelled;      /* cancelled because of its deadline */
	bool reported;       /* past its lease: abandoned or reported as stuck */
	bool stopping;       /* cancelled because the runner stops */
	int64_t dequeued_ms; /* monotonic: when it left the queue */
	int64_t started_ms;  /* monotonic: when the implementation was called */
	int64_t ended_ms;    /* monotonic: when its settlement was queued */
	int64_t deadline_ms; /* monotonic; POSTERN__NEVER: no timeout */
	int64_t lease_end_ms;
	uint64_t epoch;
	void *data;
	/* Inside a transaction: where postern_run_finish() stores the outcome. */
	struct postern_outcome *outcome_out;
	char *reason; /* of the settlement; NULL: none, or out of memory */
};

/*
 * A call that waits for the receipts of its messages. A commit wakes it when
 * all of them are decided, or when it should write the next group: with one
 * condition for all calls, each commit would wake every one of them.
 */
struct postern__waiter {
	struct postern__list link; /* box->waiters, while a message is queued */
	pthread_cond_t wake;
	size_t queued;
	size_t undecided; /* queued, or being written */
};

/*
 * A message in memory, with everything that is needed to accept it and to run
 * its deliveries, in one allocation. Freed with its last reference; `refs` is
 * guarded by the box's mutex.
 */
struct postern__content {
	unsigned refs;
	size_t bytes;
	struct postern__channel *channel;
	struct postern_message message;

	/* Accepting. */
	struct postern__item item;
	struct postern_accept accept;
	struct postern_receipt receipt;
	struct postern__waiter *waiter; /* the call that waits; NULL: none */
	postern_accepted *done;         /* may be NULL */
	void *context;

	/* Running: one per route. */
	struct postern_run *runs;
	size_t run_count;
};

struct postern__subscriber {
	postern_listener *call;
	void *context;
};

struct postern_box {
	struct postern_store *store;
	struct postern_clock clock;
	struct postern_random random;
	struct postern_box_options options;
	uint64_t node; /* replaced when it expires: guarded by the mutex */
	char *lock_name;
	char *cleanup_lock_name;
	bool started;

	struct postern__channel **channels;
	size_t channel_count;
	struct postern__handler **handlers;
	size_t handler_count;
	struct postern__subscriber subscribers[POSTERN_LISTENER_COUNT_MAX];
	size_t subscriber_count;

	/* Serialises reads of the pauses; acquired before `mutex`. */
	pthread_mutex_t pausing;
	pthread_mutex_t mutex;
	pthread_cond_t committed;
	pthread_cond_t work;
	pthread_cond_t wake;
	pthread_cond_t claim;
	pthread_cond_t watch;
	/* Until when the claimer sleeps; 0: it does not sleep, or waits after a
	   failure and must not be woken. */
	int64_t claim_wait_until_ms;
	/* When the watchdog runs next; a new deadline moves it nearer. */
	int64_t watch_at_ms;

	/* Orphaned handlers, as this node has observed them without interruption.
	   Used by the one thread that sweeps, without the mutex. */
	struct postern__orphaned *orphaned;
	size_t orphaned_count;
	uint64_t orphaned_node;       /* the node id that observed them */
	int64_t orphaned_check_at_ms; /* the next check while there are any */

	/* The commit queue. Settlements are written first: they free memory. */
	struct postern__list settlements;
	struct postern__list accepts;
	size_t accept_count;
	size_t accept_bytes;
	struct postern__list waiters; /* of postern__waiter.link */
	size_t committing;            /* groups that are being written */
	struct postern__group *groups[POSTERN__WRITERS_MAX]; /* NULL: no more */
	int64_t commit_retry_at_ms; /* no settlement is written before */
	bool store_failing;

	/* Runs of this process. */
	bool leasing;  /* accepts lease at once: a runner is active */
	bool draining; /* no run may start */
	struct postern__list running; /* of postern_run.link */
	size_t running_count;
	size_t processors;   /* calls of postern_box_process() in progress */
	size_t settling;     /* settlements not yet durable */
	size_t next_handler; /* the next handler to run, round robin */
	size_t next_want;    /* the first handler of the next claim, round robin */
	size_t lost_slots;   /* abandoned callbacks that have not returned */

	/* Suspects: see "Crashes count, fairly" in ARCHITECTURE.md. */
	size_t in_process_running;
	size_t suspects_held; /* claimed by this process and not settled */
	bool suspects_waiting;
	size_t solo_queued;
	bool solo_running;

	/* Exclusive processing: the processing lock as this node knows it. */
	struct postern_lock lock_held; /* fence 0: not held */
	int64_t lock_until_ms;         /* monotonic: may be lost from then on */
	int64_t lock_wanted_since_ms;
	bool lock_wait_reported;
	/* The node's lease, if the store requires one. */
	int64_t node_until_ms; /* monotonic: may have expired from then on */
	bool node_had_lock;    /* a new node id is needed to acquire it again */
	bool node_expired;     /* expired, and no new node is registered yet */
	bool right_expired;    /* and the runs under it were cancelled */
	bool renewing;         /* a thread is in postern__renew() */
	/* This node acquired the lock: the runner must recover what its former
	   owner had leased. */
	bool recovery_due;
	/* The store lets this node lease: no other node processes under another
	   lock. */
	bool engaged;
	bool rival_reported;
	struct postern_error rival; /* why the store does not */

	/* The cleanup in progress; NULL: none. Compared, never dereferenced. */
	const struct postern__cleanup *cleaner;
	/* How often the limits of a cleanup batch are halved. Used by that cleanup
	   alone. */
	unsigned cleanup_shift;

	size_t transacting;           /* transactions of handlers in progress */
	int64_t transact_retry_at_ms; /* no transaction starts before */
};

/* box.c */
int postern__box_create(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);
struct postern__channel *postern__box_channel(const struct postern_box *box,
		const char *name);
/* Register a handler of any kind; becomes the owner of `impl`, also on
   failure. */
int postern__box_register_taking(struct postern_box *box, const char *channel,
		const struct postern_handler_options *options,
		struct postern_handler *impl, struct postern_error *error);
int64_t postern__box_now_ms(const struct postern_box *box);
/* The monotonic time in delay_ms from now, saturating at POSTERN__NEVER. */
int64_t postern__box_after_ms(const struct postern_box *box, int64_t delay_ms);
int postern__box_check_started(const struct postern_box *box,
		struct postern_error *error);

/* content.c */
struct postern__content *
postern__content_create(struct postern__channel *channel,
		const struct postern_message *message, size_t run_count);
/* With the mutex held. */
void postern__content_release(struct postern__content *content);

/* validate.c */
/* All limits but the size of the body. */
int postern__message_check(const struct postern_message *message,
		struct postern_error *error);
/* The size of the body against the limit of the channel. */
int postern__message_check_size(const struct postern__channel *channel,
		const struct postern_message *message, struct postern_error *error);
int postern__channel_name_check(const char *name, struct postern_error *error);
int postern__handler_key_check(const char *key, struct postern_error *error);
int postern__policy_check(const struct postern_policy *policy,
		const char *handler, struct postern_error *error);

int postern__retention_check(const struct postern__channel *channel,
		const char *name, struct postern_error *error);

/* policy.c */
/* The longest time from the first attempt to the end of the last, saturating;
   an attempt without a timeout counts as 0 ms. */
int64_t postern__policy_horizon_ms(const struct postern_policy *policy);
int postern__policy_copy(const struct postern_policy *from,
		struct postern_policy *to);
void postern__policy_finish(struct postern_policy *policy);

/* commit.c: with the mutex held. */
struct postern__group *postern__group_create(void);
void postern__group_destroy(struct postern__group *group);
/* Write one group commit, unless all writers are busy; releases the mutex
   while it writes. Returns the store's error, if any; *count_out (may be NULL)
   is the number of items that are no longer queued. */
int postern__commit_group(struct postern_box *box, size_t *count_out,
		struct postern_error *error);
/* Whether there is an item to write and a free writer. */
bool postern__commit_ready(const struct postern_box *box);
/* Whether there is a free writer. */
bool postern__commit_free(const struct postern_box *box);

/* accept.c */
/* POSTERN_E_BUSY if the calling thread is in a transactional handler of this
   box: that holds the store's writer. */
int postern__check_no_transaction(struct postern_box *box,
		struct postern_error *error);
/* Create the content of a staged message, which the store will accept, and
   reserve its leases. Its size and the channel's `unrouted: reject` are not
   checked: no sender waits for an error. */
int postern__accept_staged(struct postern_box *box,
		struct postern__channel *channel, const struct postern_message *message,
		struct postern__content **out, struct postern_error *error);
/* With the mutex: the content was removed from box->accepts. */
void postern__accept_dequeued(struct postern_box *box,
		struct postern__content *content);
/* After the commit, without the mutex: fill in the receipt and pass it to the
   sender. `code` and `error` are those of the commit; content->accept has the
   code of the message. */
void postern__accept_decide(struct postern_box *box,
		struct postern__content *content, int code,
		const struct postern_error *error);
/* With the mutex: queue the runs that were leased, release the other
   reservations and the commit queue's reference. */
void postern__accept_finish(struct postern_box *box,
		struct postern__content *content);
bool postern__handler_wants(const struct postern__handler *handler,
		const char *type);
/* Whether this process has room for one more lease of the handler. */
bool postern__handler_has_room(const struct postern_box *box,
		const struct postern__handler *handler, size_t bytes);
/* A handler's share of the run queue: the most leases and bytes that it may
   have in memory. */
size_t postern__share_count(const struct postern_box *box);
size_t postern__share_bytes(const struct postern_box *box);

/* process.c */
/* As postern_box_process(), but keeps the processing lock. */
int postern__process(struct postern_box *box, size_t max, size_t *count_out,
		struct postern_error *error);

/* collect.c */
struct postern__collected {
	size_t accepted; /* also duplicates and conflicts */
	size_t refused;
	bool more; /* more may be staged */
};
/* Accept one batch of staged messages; none in a store without staging.
   rests: this node will not poll again soon, see postern_collection. */
int postern__collect(struct postern_box *box, bool rests,
		struct postern__collected *out, struct postern_error *error);
/* Count the staged messages of channels that no running node has, for at most
   `max` channels; none in a store without staging. */
int postern__stranded(struct postern_box *box, size_t max,
		struct postern_memory *memory, struct postern_stranded **out,
		size_t *count_out, struct postern_error *error);

/* run.c: with the mutex held unless noted. */
void postern__run_init(struct postern_run *run, struct postern_box *box,
		struct postern__content *content, struct postern__handler *handler,
		int64_t seq, int64_t stored_handler, uint64_t fence, uint32_t failures,
		enum postern_suspicion suspicion);
void postern__run_enqueue(struct postern_run *run);
/* Remove a queued run from its queue and return its lease. */
void postern__run_return_lease(struct postern_run *run);
/* Move a queued run to the running list. */
void postern__run_start(struct postern_run *run);
/* Put a started run back at the front of its queue, as if never started. */
void postern__run_requeue(struct postern_run *run);
/* The implementation has finished a run: free its slot. */
void postern__run_detach(struct postern_run *run);
/* The run is past its lease: runs that wait for it may start. */
void postern__run_overdue(struct postern_run *run);
/* The run has a new deadline: wake the watchdog if it would miss it. */
void postern__run_watch(const struct postern_run *run);
/* Whether a worker could start a run now. */
bool postern__run_ready(const struct postern_box *box);
/* Without the mutex: start one run (or one batch of a transactional handler)
   on this thread. Returns false if there was none to start. *count_out: how
   many deliveries were started. */
bool postern__run_one(struct postern_box *box, size_t max, size_t *count_out);
/* Without the mutex: wake a worker if a run can be started. For callers of
   postern__run_one() that stop before it returns false. */
void postern__run_wake_worker(struct postern_box *box);
/* The settlement is durable, or was refused as stale: release the run. */
void postern__run_settled(struct postern_run *run);
/* Turn an outcome into a settlement and queue it. `name` is the outcome stored
   with the attempt; NULL: the name of the outcome's kind. */
void postern__run_settle(struct postern_run *run,
		const struct postern_outcome *outcome, const char *name);
/* Queue a settlement without an outcome of a handler; reason may be NULL. */
void postern__run_settle_to(struct postern_run *run, enum postern_settle_to to,
		uint32_t failures, int64_t delay_ms, const char *outcome,
		const char *reason);
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
/* How many transactions of handlers may be open at the same time. */
size_t postern__transactions_max(const struct postern_box *box);

/* claim.c */
/* Without the mutex: claim up to `max` deliveries and queue them. all: also
   for handlers that are not known to have any due. */
int postern__claim(struct postern_box *box, size_t max, bool all,
		size_t *count_out, struct postern_error *error);
/* With the mutex: when the next claim is due, or POSTERN__NEVER. */
int64_t postern__claim_at_ms(const struct postern_box *box);
/* With the mutex: the store may have deliveries due in delay_ms. */
void postern__claim_hint(struct postern_box *box,
		struct postern__handler *handler, int64_t delay_ms);
void postern__claim_hint_all(struct postern_box *box);
/* With the mutex: a handler may have room again; wake the claimer if a claim is
   due before its sleep ends. */
void postern__claim_nudge(struct postern_box *box);

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

/* pause.c, without the mutex. */
/* Read from the store which handlers are paused. Returns the queued leases of
   handlers that were paused since, and claims for those that were resumed. */
int postern__pauses_refresh(struct postern_box *box,
		struct postern_error *error);

/* inspect.c, without the mutex. */
/* Make a change requested by an operator, unless the box is read-only. */
int postern__edit(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error);

/* sweep.c, without the mutex. */
/* Recover the deliveries of expired nodes; under the processing lock, those of
   all other nodes. */
int postern__recover(struct postern_box *box, size_t *count_out,
		struct postern_error *error);
/* The same, and report the count to `notice` (may be NULL); `whom` describes
   the nodes. */
int postern__recover_reporting(struct postern_box *box, const char *whom,
		postern_remark *notice, void *context, struct postern_error *error);
/* Cancel runs that are past their deadline, abandon or report those that are
   past their lease (to `notice`, may be NULL). Returns when to call again. */
int64_t postern__watchdog_step(struct postern_box *box, postern_remark *notice,
		void *context);
/* Sleep until at_ms, or until the deadline of a run that starts meanwhile.
   Returns false when *stopping is set: set it with the mutex held, and signal
   `watch`. */
bool postern__watchdog_sleep(struct postern_box *box, int64_t at_ms,
		const bool *stopping);

/* orphans.c, without the mutex. */
/* Poison the deliveries of handlers that have been orphaned long enough, and
   report newly orphaned handlers to `notice` (may be NULL). */
int postern__poison_orphans(struct postern_box *box, postern_remark *notice,
		void *context, size_t *count_out, struct postern_error *error);
/* Discard the list of orphaned handlers: their grace period starts again. */
void postern__orphans_reset(struct postern_box *box);

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
   Notices go to `notice` (may be NULL). *next_out: when to call again,
   monotonic. */
int postern__renew(struct postern_box *box, postern_remark *notice,
		void *context, int64_t *next_out, struct postern_error *error);
/* Without the mutex: ask the store to let this node lease, unless it already
   does. Also POSTERN_OK if the store refuses because another node processes
   under another lock; that is reported once. */
int postern__engage(struct postern_box *box, postern_remark *notice,
		void *context, struct postern_error *error);
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

/* clean.c, without the mutex. */
struct postern__cleanup {
	struct postern_cleaning cleaning;
	struct postern_lock lock; /* fence 0: not held */
	uint64_t node;            /* the node that holds it */
	int64_t step_ms;          /* duration of the last batch */
	struct postern_cleanup total;
};
/* Whether any channel has a retention. */
bool postern__cleaning_needed(const struct postern_box *box);
/* Clean up one batch. Start with a zeroed state, call again while *more_out,
   then call postern__cleanup_end(). */
int postern__cleanup_step(struct postern_box *box,
		struct postern__cleanup *state, bool *more_out,
		struct postern_error *error);
void postern__cleanup_end(struct postern_box *box,
		struct postern__cleanup *state);
/* How long to wait after the last batch, so that accepts can proceed. */
int64_t postern__cleanup_rest_ms(const struct postern__cleanup *state);

/* drain.c, without the mutex. */
/* Return the leases of all queued runs. */
void postern__return_queued(struct postern_box *box);
/* Cancel all runs because the runner stops, or the right to run them ended. */
void postern__cancel_running(struct postern_box *box);

/* event.c, without the mutex. */
void postern__emit(struct postern_box *box, const struct postern_event *event);
void postern__emit_run(struct postern_run *run, enum postern_event_kind kind);

#endif
