/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_BOX_H
#define POSTERN_CORE_BOX_H

/*
 * The inside of a box: what the steps of the engine share.
 *
 * One mutex, `lock`, guards everything that changes after start: the commit
 * queue, the run queues, the counts. It is never held across a call of the
 * store, a handler or a listener. The store serialises itself.
 *
 * The engine owns no threads. Blocked callers and the runner's threads meet
 * in conditions: `committed` (a commit ended, or a drain moves on), `work`
 * (something can be run), `wake` (something can be written; one waiter),
 * `claim` (something can be claimed; one waiter) and `watch` (a deadline is
 * nearer than thought; one waiter).
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

/* Items and body bytes of one group commit. Enough that the commit itself
   stops mattering, little enough that nobody waits long behind it. */
#define POSTERN__COMMIT_ITEMS_MAX 2000
/* How long a handler must be missing where nodes come and go. */
#define POSTERN__ORPHAN_GRACE_MS ((int64_t)10 * 60 * 1000)
/* Groups that may be written at a time, if the store wants so many. */
#define POSTERN__WRITERS_MAX 4
#define POSTERN__COMMIT_BYTES_MAX ((size_t)16 * 1024 * 1024)

/* What may wait for a commit through postern_box_accept_async(). */
#define POSTERN__ASYNC_COUNT_MAX 100000
#define POSTERN__ASYNC_BYTES_MAX ((size_t)256 * 1024 * 1024)

/* How long a process counts as alive without being heard of. */
#define POSTERN__NODE_LEASE_MS_DEFAULT ((int64_t)15 * 1000)

/* "Never" for points in time. */
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
	int64_t id; /* in the store */
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
	int64_t id; /* in the store */

	/* Guarded by the box's lock. */
	bool paused;
	struct postern__list queue; /* of postern_run.link, leased, not begun */
	size_t queued;
	size_t running; /* begun, and its kind has not finished */
	/* Leased, from before the accept is written until the settlement is
	   durable: what this process keeps in memory for it. */
	size_t held;
	size_t held_bytes;
	/* When the store may have something due for it, by the monotonic
	   clock. */
	int64_t due_at_ms;
};

enum postern__item_kind { POSTERN__ITEM_ACCEPT, POSTERN__ITEM_SETTLE };

/* Something that waits for the next commit. */
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

/* One leased delivery. Lives inside its content. */
struct postern_run {
	struct postern__list link; /* the handler's queue, or box->running */
	struct postern__item item; /* its settlement */
	struct postern_settlement settlement;
	struct postern__content *content;
	struct postern__handler *handler;
	struct postern_box *box;
	struct postern_delivery delivery;
	int64_t stored_handler; /* the id it was claimed under */
	uint32_t failures;
	enum postern_suspicion suspicion;
	enum postern__run_state state;
	/* The kind still has it. Together with a pending settlement this is what
	   keeps the content alive. */
	bool in_kind;
	bool in_unit;       /* inside the store's transaction right now */
	bool announced;     /* transactional: it was told that it starts */
	bool timed_out;     /* transactional: it came back too late */
	bool postponed;     /* transactional: its batch took too long already */
	bool overdue;       /* past its lease: others do not wait for it any more */
	bool cancelled;     /* told to stop because of its deadline */
	bool reported;      /* said to be stuck */
	bool stopping;      /* told to stop because the runner stops */
	int64_t begun_ms;   /* monotonic: taken from the queue */
	int64_t started_ms; /* monotonic: given to its kind */
	int64_t ended_ms;   /* monotonic: when it was settled in memory */
	int64_t deadline_ms; /* monotonic, POSTERN__NEVER: none */
	int64_t lease_end_ms;
	uint64_t epoch;
	void *data;
	/* Inside a transaction: where the outcome goes. */
	struct postern_outcome *outcome_out;
	char *reason; /* of the settlement; NULL if none, or no memory */
};

/*
 * A message in memory, with everything that is needed to accept it and to run
 * it: one allocation. Freed with its last reference; `refs` is guarded by the
 * box's lock.
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
	bool finished;
	postern_accepted *done; /* NULL: somebody waits for `finished` */
	void *context;

	/* Running: one per route. */
	struct postern_run *runs;
	size_t run_count;
};

struct postern__listener {
	postern_listener *call;
	void *context;
};

struct postern_box {
	struct postern_store *store;
	struct postern_clock clock;
	struct postern_random random;
	struct postern_box_options options;
	uint64_t node; /* changes if its lease was lost: guarded by the lock */
	char *lock_name;
	char *cleanup_lock_name;
	bool started;

	struct postern__channel **channels;
	size_t channel_count;
	struct postern__handler **handlers;
	size_t handler_count;
	struct postern__listener listeners[POSTERN_LISTENER_COUNT_MAX];
	size_t listener_count;

	pthread_mutex_t pausing; /* one read of the pauses at a time; taken first */
	pthread_mutex_t mutex;
	pthread_cond_t committed;
	pthread_cond_t work;
	pthread_cond_t wake;
	pthread_cond_t claim;
	pthread_cond_t watch;
	/* Until when the claimer sleeps; 0: it does not, or would not claim. */
	int64_t claim_wait_until_ms;
	/* When the watcher must look again; new deadlines pull it nearer. */
	int64_t watch_at_ms;

	/* Handlers that nobody registers, as this node saw it without a break. Of
	   whoever sweeps, without the lock. */
	struct postern__missing *missing;
	size_t missing_count;
	uint64_t missing_node;
	int64_t missing_look_at_ms; /* again, if there are any */

	/* What waits for the next commit. Settlements go first: they free
	   memory. */
	struct postern__list settlements;
	struct postern__list accepts;
	size_t accept_count;
	size_t accept_bytes;
	size_t committing; /* groups that are being written */
	struct postern__group *groups[POSTERN__WRITERS_MAX]; /* NULL: no more */
	int64_t commit_retry_at_ms; /* settlements wait until then */
	bool store_failing;

	/* Leases of this process. */
	bool leasing;                 /* accept leases at once: a runner is there */
	bool draining;                /* begin nothing new */
	struct postern__list running; /* of postern_run.link */
	size_t running_count;
	size_t processors;   /* calls of postern_box_process() under way */
	size_t settling;     /* settlements not yet durable */
	size_t next_handler; /* round robin */
	size_t next_want;    /* the same for claims */
	size_t lost_slots;   /* callbacks that overran their lease, still running */

	/* Suspects: see "Crashes count, fairly" in ARCHITECTURE.md. */
	size_t in_process_running;
	size_t suspects_held; /* claimed by this process and not settled */
	bool suspects_waiting;
	size_t solo_queued;
	bool solo_running;

	/* Exclusive processing: what is known of the lock. */
	struct postern_lock lock_held; /* fence 0: not held */
	int64_t lock_until_ms;         /* monotonic: not ours for sure after this */
	int64_t lock_wanted_since_ms;
	bool lock_waiting_told;
	/* The node's own lease, if the store needs one. */
	int64_t node_until_ms;
	bool node_spent;  /* it had the lock once: it will not ask again */
	bool node_gone;   /* it was found gone, and no new life has begun yet */
	bool tenure_over; /* what ran was told to stop */
	bool renewing;    /* somebody is in postern__tenure() */
	/* The lock was won: what its former owner had leased is to be recovered by
	   the runner. */
	bool recovery_due;
	/* The store lets the node lease beside the others that do. */
	bool engaged;
	bool rival_told;
	struct postern_error rival; /* why it does not */

	/* Who is cleaning up, NULL: nobody. Only compared. */
	const struct postern__cleanup *cleaner;
	/* How often the limits of a batch are halved; the cleaner's own. */
	unsigned cleanup_shift;

	size_t transacting; /* transactions of handlers, under way */
	int64_t transact_retry_at_ms;
};

/* box.c */
int postern__box_create(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);
struct postern__channel *postern__box_channel(const struct postern_box *box,
		const char *name);
/* Register a handler of any kind; takes `impl`, also on failure. */
int postern__box_register_taking(struct postern_box *box, const char *channel,
		const struct postern_handler_options *options,
		struct postern_handler *impl, struct postern_error *error);
int64_t postern__box_now_ms(const struct postern_box *box);
/* A point of the monotonic clock, saturating. */
int64_t postern__box_after_ms(const struct postern_box *box, int64_t delay_ms);
int postern__box_check_started(const struct postern_box *box,
		struct postern_error *error);

/* content.c */
struct postern__content *
postern__content_create(struct postern__channel *channel,
		const struct postern_message *message, size_t run_count);
/* With the box's lock held. */
void postern__content_release(struct postern__content *content);

/* validate.c */
int postern__message_check(const struct postern_message *message,
		struct postern_error *error);
/* The rest of it: that the body is not too large for the channel. */
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
   an attempt without a timeout counts for nothing. */
int64_t postern__policy_horizon_ms(const struct postern_policy *policy);
int postern__policy_copy(const struct postern_policy *from,
		struct postern_policy *to);
void postern__policy_finish(struct postern_policy *policy);

/* commit.c: with the box's lock held. */
struct postern__group *postern__group_create(void);
void postern__group_destroy(struct postern__group *group);
/* Write one group, unless all writers are busy; the lock is released
   meanwhile. Returns what the store said; *count_out (may be NULL) is how
   many items were decided. */
int postern__commit_group(struct postern_box *box, size_t *count_out,
		struct postern_error *error);
/* Whether a writer has something to do now. */
bool postern__commit_ready(const struct postern_box *box);
/* Whether a group could be written at once, if there is anything. */
bool postern__commit_free(const struct postern_box *box);

/* accept.c */
/* POSTERN_E_BUSY inside a transactional handler: it holds the writer. */
/* Whether the calling thread is in one of its transactions. */
bool postern__transacts(const struct postern_box *box);
/* How many transactions of handlers at a time. */
size_t postern__transactions(const struct postern_box *box);
int postern__check_outside(struct postern_box *box,
		struct postern_error *error);
/* A message that was staged, to be written by the store: whoever staged it is
   gone, so it is neither too large nor unwanted. With room for its leases. */
int postern__accept_staged(struct postern_box *box,
		struct postern__channel *channel, const struct postern_message *message,
		struct postern__content **out, struct postern_error *error);
/* After the commit, without the lock: what is said to the sender. `code` and
   `error` are the commit's; the message has its own in content->accept. */
void postern__accept_decide(struct postern_box *box,
		struct postern__content *content, int code,
		const struct postern_error *error);
/* With the lock: queue what was leased, free what was reserved. */
void postern__accept_finish(struct postern_box *box,
		struct postern__content *content);
bool postern__handler_wants(const struct postern__handler *handler,
		const char *type);
/* Whether the process has room for one more lease of this handler. */
bool postern__handler_has_room(const struct postern_box *box,
		const struct postern__handler *handler, size_t bytes);
/* The most leases and bytes one handler may hold in memory: its share. */
size_t postern__share_count(const struct postern_box *box);
size_t postern__share_bytes(const struct postern_box *box);

/* process.c */
/* As postern_box_process(), and the tenure goes on. */
int postern__process(struct postern_box *box, size_t max, size_t *count_out,
		struct postern_error *error);

/* collect.c */
struct postern__collected {
	size_t accepted; /* also duplicates and conflicts */
	size_t refused;
	bool more; /* there may be */
};
/* Accept what was staged, one batch. rests: nobody looks again soon. Nothing
   where a store has no place to stage. */
int postern__collect(struct postern_box *box, bool rests,
		struct postern__collected *out, struct postern_error *error);
/* Staged messages in channels that no running node has, at most `max` of the
   channels. None where a store has no place to stage. */
int postern__stranded(struct postern_box *box, size_t max,
		struct postern_memory *memory, struct postern_stranded **out,
		size_t *count_out, struct postern_error *error);

/* run.c: with the lock held unless said otherwise. */
void postern__run_init(struct postern_run *run, struct postern_box *box,
		struct postern__content *content, struct postern__handler *handler,
		int64_t seq, int64_t stored_handler, uint64_t fence, uint32_t failures,
		enum postern_suspicion suspicion);
void postern__run_enqueue(struct postern_run *run);
/* Take one lease from its queue and give it back. */
void postern__run_give_back(struct postern_run *run);
/* Begin a run that is queued: now it is RUNNING. */
void postern__run_begin(struct postern_run *run);
/* Put a run that was begun back where it was, as if it had not been. */
void postern__run_unbegin(struct postern_run *run);
/* The kind is through with a run that was begun. */
void postern__run_leave(struct postern_run *run);
/* It is past its lease: whoever waits for it goes on without it. */
void postern__run_overdue(struct postern_run *run);
/* A new deadline: wake the watcher if it would sleep past it. */
void postern__run_watch(const struct postern_run *run);
/* Whether some worker could begin something now. */
bool postern__run_ready(const struct postern_box *box);
/* Without the lock: begin one run (or one batch of a transactional handler)
   on this thread. False if there was nothing to begin. *count_out: how many
   deliveries. */
bool postern__run_one(struct postern_box *box, size_t max, size_t *count_out);
/* Whoever stops calling it, though there may be more, says so to a worker. */
void postern__run_pass_on(struct postern_box *box);
/* The settlement is durable, or was refused. */
void postern__run_settled(struct postern_run *run);
/* Turn an outcome into a settlement and queue it. `name` is how the attempt
   is remembered, NULL: by the outcome's own name. */
void postern__run_settle(struct postern_run *run,
		const struct postern_outcome *outcome, const char *name);
/* A settlement that no handler asked for; reason may be NULL. */
void postern__run_settle_to(struct postern_run *run, enum postern_settle_to to,
		uint32_t failures, int64_t delay_ms, const char *outcome,
		const char *reason);
/* Whether it is past its deadline; then the outcome becomes a failure that
   says so. */
bool postern__run_timed_out(const struct postern_run *run,
		struct postern_outcome *outcome);

/* transact.c, without the lock: the runs are RUNNING and belong to one
   transactional handler. */
void postern__transact(struct postern_box *box, struct postern_run **runs,
		size_t count);

/* claim.c, without the lock. */
int postern__claim(struct postern_box *box, size_t max, bool all,
		size_t *count_out, struct postern_error *error);
/* With the lock. */
/* When a claim will be ready by itself, or POSTERN__NEVER. */
int64_t postern__claim_at_ms(const struct postern_box *box);
void postern__claim_hint(struct postern_box *box,
		struct postern__handler *handler, int64_t delay_ms);
void postern__claim_hint_all(struct postern_box *box);
/* A handler may have room again: wake the claimer if it sleeps too long. */
void postern__claim_nudge(struct postern_box *box);

/*
 * start.c. Whether ids are remembered as long as a handler may retry. Copies of
 * a message may come as long as it is retried somewhere else; an id that is
 * forgotten before our own last retry is surely too short. False: `text` is a
 * remark about it.
 */
bool postern__horizon_check(const char *channel, int64_t dedupe_ms,
		const char *key, const struct postern_policy *policy, char *text,
		size_t size);

/* start.c, without the lock. */
/* Make the box known to the store. `again`: it is known already. That changes
   nothing, but it is a write, and so shows whether the store can;
   POSTERN_E_STALE if the node was found gone meanwhile. */
int postern__enrol(struct postern_box *box, bool again,
		struct postern_error *error);

/* pause.c, without the lock. */
/* Read from the store which handlers are paused. Leases of a handler that was
   paused meanwhile go back; one that was resumed is claimed for. */
int postern__pauses_refresh(struct postern_box *box,
		struct postern_error *error);

/* inspect.c, without the lock: check the box, then have the store edit. */
int postern__edit(struct postern_box *box, struct postern_edit *edit,
		struct postern_error *error);

/* sweep.c, without the lock. */
int postern__recover(struct postern_box *box, size_t *count_out,
		struct postern_error *error);
/* The same, and tell it (`trouble` may be NULL): of `whom`. */
int postern__take_over(struct postern_box *box, const char *whom,
		postern_remark *trouble, void *context, struct postern_error *error);
int postern__poison_orphans(struct postern_box *box, postern_remark *trouble,
		void *context, size_t *count_out, struct postern_error *error);
void postern__orphans_forget(struct postern_box *box);
/* Cancel what is past its deadline, abandon what is past its lease. Remarks
   go to `trouble` (may be NULL). Returns when to look again. */
int64_t postern__watch(struct postern_box *box, postern_remark *trouble,
		void *context);
/* Sleep until then, or until something that begins meanwhile may be overdue.
   False: it stops; whoever says so has the lock, and signals `watch`. */
bool postern__watch_sleep(struct postern_box *box, int64_t at_ms,
		const bool *stopping);

/* tenure.c: with the lock held unless said otherwise. */
/* By what right something is done: as it was at one moment. */
struct postern__right {
	uint64_t node;
	struct postern_lock lock;
	bool locked;
};
struct postern__right postern__right_of(const struct postern_box *box);
/* The lock that the store has to check, or NULL. */
const struct postern_lock *postern__right_lock(
		const struct postern__right *right);
/* Whether this process may lease, claim and begin. */
bool postern__may_process(const struct postern_box *box);
/* Whether there is anything to renew at all. */
bool postern__has_tenure(const struct postern_box *box);
/* How long from one renewal to the next. */
int64_t postern__tenure_pause_ms(const struct postern_box *box);
/* Without the lock: renew the node's lease and the processing lock, take them
   if they are not held. Remarks go to `trouble`. *next_out: when to come
   again, monotonic. */
int postern__tenure(struct postern_box *box, postern_remark *trouble,
		void *context, int64_t *next_out, struct postern_error *error);
/* Without the lock: have the store let this node lease, if it does not yet.
   POSTERN_OK also if it will not as long as another one does otherwise, which
   is remarked once. */
int postern__engage(struct postern_box *box, postern_remark *trouble,
		void *context, struct postern_error *error);
/* Without the lock: stop what runs if the time is over, without asking the
   store. Returns when to look again. */
int64_t postern__tenure_watch(struct postern_box *box);
/* Without the lock: the store says that this fence of the lock is old. */
void postern__lock_doubt(struct postern_box *box, uint64_t fence);
/* Without the lock: let go of the processing lock, unless somebody else in
   this process works under it. */
void postern__tenure_end(struct postern_box *box);

/* clean.c, without the lock. */
struct postern__cleanup {
	struct postern_cleaning cleaning;
	struct postern_lock lock; /* fence 0: not held */
	uint64_t node;            /* that holds it */
	int64_t step_ms;          /* what the last batch took */
	struct postern_cleanup total;
};
/* Whether any channel has a retention. */
bool postern__cleaning_needed(const struct postern_box *box);
/* One batch; begin with a zeroed state and go on while *more_out. */
int postern__cleanup_step(struct postern_box *box,
		struct postern__cleanup *state, bool *more_out,
		struct postern_error *error);
void postern__cleanup_end(struct postern_box *box,
		struct postern__cleanup *state);
/* How long to leave the store to others after that step. */
int64_t postern__cleanup_rest_ms(const struct postern__cleanup *state);

/* drain.c, without the lock. */
void postern__give_back_queued(struct postern_box *box);
void postern__cancel_running(struct postern_box *box);

/* event.c, without the lock. */
void postern__emit(struct postern_box *box, const struct postern_event *event);
void postern__emit_run(struct postern_run *run, enum postern_event_kind kind);

#endif
