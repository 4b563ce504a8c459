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
#include "core/event.h"
#include "core/generation.h"

#include <postern/box.h>
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

struct postern__cleanup;
struct postern__group;
struct postern__guarding;
struct postern__orphaned;
struct postern__reading;
struct postern_source_state;

/* Writes the states of at most `max` sources to `out`, and returns how many
   there are. */
typedef size_t postern__read_sources(void *context,
		struct postern_source_state *out, size_t max);

struct postern_box {
	struct postern_store *store;
	struct postern_clock clock;
	struct postern_random random;
	struct postern_box_options options;
	uint64_t node; /* replaced when it expires: guarded by the mutex */
	char *lock_name;
	char *cleanup_lock_name;
	bool started;

	/* The generation in place. Read with `mutex` or `generation_mutex`,
	   replaced with both. */
	struct postern_generation *generation;
	pthread_mutex_t generation_mutex; /* acquired last */
	/* All generations that are not destroyed, the newest first. The store has
	   the handlers of all of them as those of this node. Guarded by
	   `replacing`, which is acquired first, also around calls of the store. */
	struct postern__list generations;
	pthread_mutex_t replacing;
	/* The store may have handlers of a generation that was destroyed. */
	bool registered_too_many;
	/* Handlers that have queued runs, and handlers that may have deliveries
	   due in the store, of the generation in place. */
	struct postern__list ready; /* of postern__handler_state.ready */
	struct postern__list due;   /* of postern__handler_state.due */
	struct postern__subscribers subscribers;

	/* Serialises reads of the pauses; acquired before `mutex`. */
	pthread_mutex_t pausing;
	/* When the first of the pauses that were read ends, by the monotonic clock;
	   POSTERN__NEVER: none does by itself. */
	int64_t pauses_end_ms;
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

	/* pull.c: how many claims wait, and those whose handler was removed; when
	   the next wait ends at the earliest, and when to look for pull leases that
	   have ended, by the monotonic clock. */
	size_t pulls_waiting;
	struct postern__list pulls_over; /* of postern__pull.link */
	int64_t pull_until_ms;
	int64_t pull_ended_at_ms;

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
	struct postern__list waiters;      /* of postern__waiter.link */
	struct postern__list room_waiters; /* of postern__room_waiter.link */
	size_t committing;                 /* groups that are being written */
	struct postern__group *groups[POSTERN__WRITERS_MAX]; /* NULL: no more */
	int64_t commit_retry_at_ms; /* no settlement is written before */
	bool store_failing;

	/* Runs of this process. */
	bool leasing;  /* accepts lease at once: a runner is active */
	bool draining; /* no run may start */
	struct postern__list running; /* of postern_run.link */
	size_t running_count;
	size_t asynchronous_running; /* runs of asynchronous kinds */
	/* The workers of the runner: the usual number of them (0: no runner), the
	   most there can be, those that wait for a run, and when one took a run
	   last. */
	size_t workers;
	size_t workers_max;
	size_t idle_workers;
	int64_t worker_took_ms;
	size_t workers_held; /* runs that have a worker each, also lost ones */
	size_t processors;   /* calls of postern_box_process() in progress */
	size_t settling;     /* settlements not yet durable */
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

	/* Metrics and health. */
	int64_t freed_ms; /* monotonic: when this node got the right to process */
	struct postern__box_meter meter;
	struct postern__reading *reading; /* the last one; NULL: none, or failed */
	bool reading_store;               /* a thread counts in the store */
	/* The sources of the runner: how to read their states; NULL: none. Guarded
	   by a mutex that is held while it is called. */
	pthread_mutex_t sources_mutex;
	postern__read_sources *read_sources;
	void *sources;

	/* What this node runs, as it has written it to the store. Used by the one
	   thread that renews, without the mutex. */
	struct postern_run_report *reported;
	size_t reported_count; /* SIZE_MAX: not known */
	uint64_t reported_node;

	/* share.c: how often the node has looked for leases to return, and the node
	   for which the store has what handlers' idle_told says; 0: not known. */
	uint32_t share_round;
	uint64_t shared_node;
	/* The guard of the channels in mode GUARD: inline.h. NULL: none is needed
	   yet, or the program has none. */
	const struct postern__guarding *guarding;
	void *guard;
	/* Results of inline runs that nobody knows yet: postern__item.link. */
	struct postern__list answers;

	size_t transacting;           /* transactions of handlers in progress */
	int64_t transact_retry_at_ms; /* no transaction starts before */
};

/* box.c */
int postern__box_create(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);
/* Register a handler of any kind, before the start; becomes the owner of
   `impl`, also on failure. */
int postern__box_register_taking(struct postern_box *box, const char *channel,
		const struct postern_handler_options *options,
		struct postern_handler *impl, struct postern_error *error);
int64_t postern__box_now_ms(const struct postern_box *box);
/* delay_ms after a monotonic time, or after now, saturating at
   POSTERN__NEVER. */
int64_t postern__time_after(int64_t ms, int64_t delay_ms);
int64_t postern__box_after_ms(const struct postern_box *box, int64_t delay_ms);
int postern__box_check_started(const struct postern_box *box,
		struct postern_error *error);

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

/* A text of a change, which may be NULL; `what` begins the error. */
int postern__change_text_check(const char *what, const char *text,
		size_t len_max, struct postern_error *error);

int postern__retention_check(const struct postern__channel *channel,
		const char *name, struct postern_error *error);

/* policy.c */
/* The longest time from the first attempt to the end of the last, saturating;
   an attempt without a timeout counts as 0 ms. */
int64_t postern__policy_horizon_ms(const struct postern_policy *policy);
/* Replace what is left to the handler's kind (POSTERN_…_DEFAULT) by the kind's
   defaults; its list of delays is borrowed. */
void postern__policy_complete(struct postern_policy *policy,
		const struct postern_handler_kind *kind, bool transactional);
int postern__policy_copy(const struct postern_policy *from,
		struct postern_policy *to);
void postern__policy_finish(struct postern_policy *policy);

#endif
