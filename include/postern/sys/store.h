/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_STORE_H
#define POSTERN_SYS_STORE_H

/*
 * The interface between the core and the stores. A store keeps messages, one
 * delivery per (message, handler), and the dedupe memory. `memory:` is the
 * simplest implementation of this contract; tests/conformance/ is its
 * specification, and every store passes it.
 *
 * The states of a delivery:
 *
 *   pending   open, without a node; may be claimed from due_at on
 *   leased    open, leased by a node under a fence
 *   done, poisoned, discarded   ended, with the fence it ended under
 *
 * A parked message has no delivery, only a mark that no handler wanted its
 * type.
 *
 * Rules for every operation:
 *
 * - It is atomic and durable: if it returns POSTERN_OK, all its changes are
 *   durable to the degree the store promises; if it fails, there are none.
 * - It may be called from any thread: a store does its own locking.
 * - Every change of a delivery is conditional on its fence, and the number
 *   of changed rows is checked. The fence of a (message, handler) never
 *   decreases, not even when a delivery is reopened.
 * - Times are those of the store's clock: a caller passes delays, never points
 *   in time.
 * - `node` is a node id, never 0. A node that is not enrolled must not lease; a
 *   store need not check that. POSTERN_NODE_PULL is no node: under it, claim()
 *   and apply() make and settle pull leases.
 * - The caller has checked the arguments; texts are within the limits of
 *   message.h. What an argument points to is borrowed for the call; results
 *   are allocated in the postern_memory that is passed in.
 */

#include <postern/box.h>
#include <postern/change.h>
#include <postern/error.h>
#include <postern/export.h>
#include <postern/handler.h>
#include <postern/inspect.h>
#include <postern/message.h>
#include <postern/sys/marker.h>
#include <postern/sys/rate.h>
#include <postern/sys/store_claim.h>
#include <postern/sys/store_enrol.h>
#include <postern/sys/store_view.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_memory;
struct postern_store;

struct postern_store_options {
	size_t size;
	bool read_only;
	bool must_exist;
	bool no_migrate;
	int64_t command_timeout_ms; /* the longest wait of a call for the writer */
	/* Receives the events of opening; may be NULL. */
	postern_listener *listener;
	void *listener_context;
	const struct postern_clock *clock;   /* never NULL */
	const struct postern_random *random; /* never NULL */
	/* How often a call is retried if its connection was lost or refused.
	   0: 3; negative: never. Ignored by stores without connections. */
	int32_t command_retries;
	/* PostgreSQL only. An option that the URL contains too must have the same
	   value there. */
	const char *schema;     /* NULL: "postern" */
	uint32_t connections;   /* the most open at the same time; 0: 8 */
	const char *listen_url; /* where to wait for notifications; NULL: the URL
							   of the store */
	/* Only its markers are used, and transact() with a mark: a file that is
	   shared is then not owned, and another process may own it. */
	bool markers_only;
};

/*
 * What a key rule makes of a message: of two messages in one channel with the
 * same dedupe key, the second is a copy. Rules are evaluated by the caller;
 * the store hashes and remembers the result, in a scope: 0 for the message
 * itself, else the id of a handler with a key of its own.
 */
struct postern_dedupe_key {
	const char *source; /* NULL: the key is the same for every source */
	const char *value;
	size_t value_len;
	/* Made by the rule `id`: the value is the id of the message. Only then is a
	   remembered message that has another id an error of the store. */
	bool is_id;
};

/*
 * One handler that wants a message. A delivery of a handler that is paused in
 * the store, by its clock, is not leased, whatever `lease` is.
 *
 * With a key of its own, the handler gets one of all messages that have this
 * key. When the route is opened, the key is remembered in the scope of every id
 * of the handler, its aliases included, in the same transaction. If it is
 * remembered already in any of these scopes, and in none of them for this
 * message, the route is suppressed: no delivery is opened. A message that has
 * no delivery of the handler gets one that is discarded from the beginning,
 * with an attempt "discard" and the error "suppressed by #SEQ", so that a
 * person sees why nothing ran. Other routes of the message are not affected.
 * Keys are remembered only of routes that could be opened: not of a conflict,
 * nor of a message that was removed.
 */
struct postern_route {
	int64_t handler;     /* a handler id */
	bool lease;          /* of a new message: lease it to the node at once */
	bool retry_poisoned; /* a duplicate reopens a poisoned delivery */
	const struct postern_dedupe_key *key; /* of the handler; NULL: none */
	/* The delivery is poisoned from the beginning, with an attempt "poison" and
	   this error; one that exists does not change. NULL: it is not; never with
	   a key. */
	const char *refusal;
	bool by_message; /* of a router without the message: call it again */
	/* out */
	int64_t suppressed_by; /* the seq of the first message with the handler's
							  key; 0: not suppressed */
	int64_t stored;        /* of a leased delivery: the id it is stored under */
	bool opened;           /* this item created or reopened a delivery */
	bool leased;    /* and leased it to the node; never for a duplicate */
	uint64_t fence; /* of an opened delivery: 1 if leased, 0 if new and
					   pending, unchanged if reopened */
};

enum postern_fate {
	POSTERN_FATE_KEEP = 0, /* routes has at least one entry */
	POSTERN_FATE_PARK,     /* no routes */
	POSTERN_FATE_DROP      /* no routes: only counted as dropped */
};

/*
 * A message to accept. Its identity is its channel and key; source and type
 * are never NULL here.
 *
 * A new identity: message and deliveries are written, code POSTERN_OK. A
 * remembered one: only a counter is written, and code is POSTERN_E_DUPLICATE
 * if the body is the same, else POSTERN_E_CONFLICT, which is also recorded
 * (POSTERN_CONFLICTS_KEPT per message). If the message is still stored, a
 * duplicate (not a conflict) also creates pending deliveries for routes that
 * have no delivery in any state under any id of the handler. These are not
 * leased: handlers get the first copy, which a claim has to read. If it has
 * routes, suppressed ones included, the message is not parked any more.
 *
 * While the channel is closed: POSTERN_E_UNAVAILABLE, whatever the message is,
 * and nothing changes. The store decides at the commit: once CLOSE has returned
 * on one node, no node accepts a message until an OPEN. Deliveries that exist
 * continue.
 */
struct postern_accept {
	const struct postern_message *message;
	int64_t channel;
	struct postern_dedupe_key key; /* in the scope 0 */
	enum postern_fate fate;
	struct postern_route *routes;
	size_t route_count;
	/* out */
	int code;               /* also of a known message with fate DROP */
	int64_t seq;            /* of the first copy; 0 if dropped */
	int64_t received_at_ms; /* of this copy */
};

enum postern_settle_to {
	POSTERN_SETTLE_DONE,
	POSTERN_SETTLE_POISONED,
	POSTERN_SETTLE_DISCARDED,
	POSTERN_SETTLE_PENDING, /* due in delay_ms */
	POSTERN_SETTLE_RETURNED /* due at once, as if never started: the start is
							   not counted, no attempt is kept */
};

/*
 * The end of one lease. Takes effect only if the delivery is leased by the
 * node (for POSTERN_NODE_PULL: has a pull lease) under exactly this fence;
 * otherwise code is POSTERN_E_STALE and nothing changes. If it is repeated
 * because the result of the first call was lost, it has the code of the first
 * time, in stores where results can be lost. Any settlement clears crashes and
 * suspicion. Each one except RETURNED and DONE keeps an attempt (fence, times,
 * outcome, error), the last POSTERN_ATTEMPTS_KEPT of a delivery; a DONE needs
 * no other record.
 *
 * PENDING and POISONED store the group of the error, if it has one, with the
 * delivery, and an example of the group, see groups(). A delivery that is
 * reopened or ends otherwise has none.
 */
struct postern_settlement {
	int64_t seq;
	int64_t handler; /* the id the delivery is stored under */
	uint64_t fence;
	enum postern_settle_to to;
	int64_t delay_ms;
	uint32_t failures; /* the new count */
	int64_t duration_ms;
	int64_t lag_ms;      /* how long ago the run ended; delay_ms is from now */
	const char *outcome; /* never NULL: "done", "retry", … */
	const char *error;   /* may be NULL; valid UTF-8, truncated */
	uint64_t group;      /* of the error, see core/error_group.h; 0: none */
	bool again;          /* repeated: it was in a batch that failed */
	bool broke; /* PENDING: the connection broke under it, which is counted */
	/* RETURNED: to idle nodes, which is counted: the node does not claim it
	   again for a second, other nodes do. Only in stores with share(). */
	bool shared;
	/* out */
	int code;
};

/*
 * Applied in this order: all settlements, then all accepts. If the node does
 * not hold `lock` under its fence, every settlement is POSTERN_E_STALE and no
 * delivery is leased (routes are opened, not leased); messages are accepted
 * nevertheless.
 */
struct postern_batch {
	uint64_t node;
	const struct postern_lock *lock; /* NULL: not needed */
	struct postern_settlement *settlements;
	size_t settlement_count;
	struct postern_accept *accepts;
	size_t accept_count;
};

/* What nodes tell each other about a handler, see share(). */
struct postern_share {
	int64_t handler; /* a handler id */
	bool idle;       /* the node would start a delivery of it at once */
	bool surplus;    /* the node has leased more of it than it starts soon */
	/* out, if `surplus`: how many other nodes are idle for it, under any of its
	   ids, have not expired, and wait for notifications. */
	uint32_t idle_nodes;
};

/*
 * A delivery, or a marker, to run inside the store's transaction.
 *
 * The store first checks the fence in the transaction (if it is lost, code is
 * POSTERN_E_STALE and the unit is not run), then calls run(). For POSTERN_DONE
 * or POSTERN_DISCARD it writes the completion in the same transaction; for any
 * other outcome it rolls back what the unit wrote, and the caller settles the
 * delivery. Whatever its outcome, a unit is rolled back with code
 *   POSTERN_E_INVALID      if it committed or rolled back by itself
 *   POSTERN_E_TIMEOUT      if it was interrupted
 *   POSTERN_E_UNAVAILABLE  if its connection was lost
 * The other units commit. If the transaction fails after run() because of what
 * the unit wrote, and would fail so for every message, the store sets the
 * unit's outcome to POSTERN_HOLD.
 *
 * With a mark the unit is no delivery, and the only unit: seq, handler, fence,
 * node and lock are not used but for the fence, which the caller chooses at
 * random. The marker is done from the beginning of the transaction; if it was
 * done before, code is POSTERN_E_DUPLICATE, and if it is running, or another
 * transaction with it does not end within wait_ms, POSTERN_E_BUSY: run() is not
 * called then. It is called at most once: if the transaction collided with
 * another one, code is POSTERN_E_BUSY, too, or the call fails.
 *
 * A store may call run() more than once: again if the transaction failed and
 * the unit did not cause that, and once before with the statements sent ahead,
 * see postern_handler_ops.
 */
struct postern_unit {
	int64_t seq;
	int64_t handler;
	uint64_t fence;
	uint32_t failures;
	bool sends_ahead; /* run() supports a connection in pipeline mode */
	size_t body_len;
	const struct postern_mark *mark; /* NULL: a delivery */
	int64_t wait_ms;
	void *context;
	void (*run)(void *context, void *transaction, uint64_t epoch,
			struct postern_outcome *outcome);
	/* out */
	int code;
	bool committed;
	int64_t duration_ms;
	struct postern_outcome outcome;
};

/*
 * Which leases are recovered. Without a lock, those of nodes that have ended,
 * have not renewed in time, or were never enrolled; a store that only one
 * process can have open deletes all nodes and releases all locks when it is
 * opened. With a lock, those of all other nodes: only its owner may have any.
 * If the lock is lost: POSTERN_E_STALE. The calling node counts as live.
 */
struct postern_recovery {
	uint64_t node;
	const struct postern_lock *lock; /* NULL: none */
	size_t max;
};

struct postern_recovered {
	uint64_t released; /* pending again, not suspects */
	uint64_t suspects; /* pending again, as suspects */
	uint64_t poisoned; /* poisoned: crashed too often */
	bool more;
};

/* Writes the routes of a parked message with this type to `routes` (room for
   `max`) and returns how many there are. `message` is NULL, and so are keys and
   refusals. If a route has `by_message`, the store calls the router again with
   the message; what the routes point to is then valid until the next call. */
typedef size_t postern_router(void *context, int64_t channel, const char *type,
		const struct postern_message *message, struct postern_route *routes,
		size_t max);

/*
 * Called for each staged message that is collected: fills in the accept for
 * it, whose message may be a copy in other memory. If it returns an error, the
 * message is refused: it is kept, with the reason, and not collected again.
 */
typedef int postern_placer(void *context, int64_t channel,
		const struct postern_message *message, struct postern_accept *accept,
		struct postern_error *error);

struct postern_collection {
	uint64_t node;
	const struct postern_lock *lock; /* for leases, as in a batch */
	const int64_t *channels;         /* whose messages are collected */
	size_t channel_count;
	size_t max;
	size_t bytes_max; /* stop after the body that exceeds this */
	/* The node will not poll soon: publishers must notify it. */
	bool rests;
	postern_placer *place;
	void *context;
	/* out: the accepts that `place` filled in, in that order, each with its
	   code as in a batch, or with the error for which this message alone was
	   refused: it is kept, and not collected again unless the error is
	   POSTERN_E_BUSY; allocated in the memory that is passed in */
	struct postern_accept *accepts;
	size_t accept_count;
	size_t refused;
	bool more; /* more may be staged */
};

#define POSTERN_CLEANING_CURSOR_LEN 40

struct postern_cleaning {
	const struct postern_retention *rules; /* channels without one keep all */
	size_t rule_count;
	size_t max;       /* messages or remembered ids examined by this call */
	size_t bytes_max; /* stop after the removed body that exceeds this */
	/* Where the last call ended, in a format of the store; initially zero. */
	unsigned char cursor[POSTERN_CLEANING_CURSOR_LEN];
	/* out */
	uint64_t messages;
	uint64_t keys; /* in all scopes */
	bool more;
};

/* What an operator stopped: a handler that is paused, a channel that is
   closed. */
struct postern_halt {
	bool on; /* now, by the store's clock; else all members are 0 */
	int64_t at_ms;
	int64_t until_ms; /* it ends by itself; 0: it does not */
	int64_t left_ms;  /* until then */
	/* NULL: not given, or not read */
	const char *reason;
	const char *by;
};

/* Who paused a handler that no operator has paused: see postern_edit.hold. */
#define POSTERN_BY_POSTERN "postern"

/*
 * As struct postern_change, checked. PAUSE and RESUME change a handler, CLOSE
 * and OPEN a channel. CANCEL does not reach a store, see
 * request_cancel(). RETRY and DISCARD change one delivery,
 * named by seq and handler key ("" for a parked message), or all that match a
 * filter and whose state allows it, at most filter->limit.
 */
struct postern_edit {
	enum postern_change_kind kind;
	int64_t seq;
	const char *handler;
	const char *channel;
	const struct postern_filter *filter; /* NULL: one delivery */
	bool dry_run;
	bool uncounted;
	int64_t for_ms; /* 0: without an end */
	/* PAUSE by POSTERN_BY_POSTERN: without effect if an operator has paused the
	   handler, or if it is held for longer already. */
	bool hold;
	const char *reason;
	const char *by;
	/* out */
	uint64_t count;
	uint64_t total; /* that match and whose state allows it, also beyond the
					   limit */
	int64_t until_ms;
};

#define POSTERN_STORE_OPS_VERSION 1

/*
 * The functions of a store. Every one is required unless its comment allows
 * NULL; one that a store does not support returns POSTERN_E_UNSUPPORTED.
 */
struct postern_store_ops {
	unsigned version;   /* POSTERN_STORE_OPS_VERSION; new slots at the end */
	const char *name;   /* "memory", "sqlite"; also the URL scheme */
	bool transactional; /* supports transact() */
	enum postern_sql_dialect dialect; /* of the transaction of transact() */
	bool exclusive; /* only one process has it open: nodes need no lease */
	/* How many apply() may run at the same time; 0: one. */
	unsigned writers;

	/*
	 * Resolve channels and handlers to ids, creating those that are not stored,
	 * and record the node with its channels and handlers.
	 *
	 * A key always resolves to the same handler id. A legacy key that is not
	 * stored yet is bound to the handler too; if it is stored and the key is
	 * not, the key becomes another key of that handler; if both are stored
	 * with different ids, the id of the legacy key becomes an alias of the
	 * other. If two of the handlers resolve to one id: POSTERN_E_INVALID.
	 *
	 * Another node may turn an id that this node uses into an alias at any
	 * time. So every operation that has a handler id as argument resolves it
	 * when it runs: an alias and its owner are one handler with several ids.
	 * New deliveries are stored under the owner's id.
	 */
	int (*enrol)(struct postern_store *store,
			struct postern_enrolment *enrolment, struct postern_error *error);

	/*
	 * Write a batch of settlements and accepts in one transaction. Every item
	 * has its own code: a duplicate or a lost fence is not an error of the
	 * call. An identity that is twice in one batch is accepted, then a
	 * duplicate (or conflict). Accepted messages get ascending seqs in the
	 * order of the batch; a seq is never reused.
	 *
	 * POSTERN_E_UNAVAILABLE and POSTERN_E_TIMEOUT are errors of the store as a
	 * whole; any other error may be caused by one item, and the caller retries
	 * with smaller batches.
	 */
	int (*apply)(struct postern_store *store, struct postern_batch *batch,
			struct postern_error *error);

	/*
	 * Lease due deliveries of the wanted handlers that are not paused, the
	 * longest due first within a handler, though those stored under an alias
	 * may precede all others: fence + 1, starts + 1.
	 *
	 * A delivery that became pending at a time in the future (the store's clock
	 * was set back) is due at once, whatever its delay is; a store may ignore
	 * a clock that was set back by a second or less.
	 *
	 * Suspects: while a wanted in-process handler has suspects, no other
	 * deliveries of the in-process handlers are claimed, and of the suspects
	 * exactly one group, the oldest, as a whole (even beyond max). If the group
	 * has one member, counting those that are not wanted or are leased, that
	 * is claimed as POSTERN_SUSPECT_SOLO. Suspects of handlers that are paused
	 * or not wanted delay no other delivery.
	 */
	int (*claim)(struct postern_store *store, const struct postern_claim *claim,
			struct postern_memory *memory, struct postern_claims *out,
			struct postern_error *error);

	/*
	 * Run deliveries inside one transaction. On POSTERN_OK each unit has its
	 * code; otherwise nothing was committed (POSTERN_E_INVALID: a constraint
	 * failed at the commit, caused by one of the units). `lock` as for a
	 * batch: if it is lost, every unit is POSTERN_E_STALE.
	 */
	int (*transact)(struct postern_store *store, uint64_t node,
			const struct postern_lock *lock, struct postern_unit *units,
			size_t count, struct postern_error *error);

	/* Make the unit with this context end soon, if it is running, or all
	   running units if it is NULL; called on another thread. */
	void (*interrupt)(struct postern_store *store, const void *context);

	/*
	 * Recover deliveries whose lease is lost, at most `max`. Those of
	 * in-process handlers become suspects: all lost members of one group (or
	 * all that were not suspects) become two groups of half the size. One that
	 * was solo has crashed: crashes + 1, and at the handler's max_crashes it is
	 * poisoned and keeps an attempt "crash". All others become pending, due at
	 * once. Fences and failures do not change.
	 */
	int (*recover)(struct postern_store *store,
			const struct postern_recovery *recovery,
			struct postern_recovered *out, struct postern_error *error);

	/*
	 * Find the open deliveries of orphaned handlers: those that no live node
	 * has. The calling node counts as live even if it is late; if it has
	 * expired, it finds none, because its own handlers would be included.
	 * only: the handler with this key; NULL: all. poison: poison the pending
	 * ones, at most `max`.
	 */
	int (*orphans)(struct postern_store *store, uint64_t node, const char *only,
			bool poison, size_t max, struct postern_memory *memory,
			struct postern_orphan **orphans_out, size_t *count_out,
			struct postern_error *error);

	/* Create the deliveries of parked messages that a handler wants now, as
	   routes of a copy would. A message that cannot be read stays parked.
	   Examines at most `max` parked messages after *cursor (initially 0) and
	   advances it; *cursor is 0 again after the last one. */
	int (*unpark)(struct postern_store *store, postern_router *router,
			void *context, size_t max, int64_t *cursor, uint64_t *count_out,
			struct postern_error *error);

	/* Errors for one delivery are those of postern_box_retry(); a filter that
	   matches nothing is not an error. */
	int (*edit)(struct postern_store *store, struct postern_edit *edit,
			struct postern_error *error);

	/* Newest message first, or oldest; deliveries of one message by handler
	   id. A name that is not stored matches nothing. In the
	   rows of this and of get(), the caller sets what is derived: `shown`,
	   `attempt`, `max_attempts`, `reason`, `until_ms`, `host`, `pid`,
	   `started_at_ms`, `reported_at_ms`. */
	int (*list)(struct postern_store *store, const struct postern_query *query,
			struct postern_memory *memory, struct postern_page *out,
			struct postern_error *error);

	/* Deliveries of aliases are listed under their owner. */
	int (*get)(struct postern_store *store, int64_t seq,
			struct postern_memory *memory, struct postern_detail *out,
			struct postern_error *error);

	/* As postern_box_find(). */
	int (*find)(struct postern_store *store, const char *id, const char *source,
			const char *channel, int64_t *seqs, size_t max, size_t *count_out,
			struct postern_error *error);

	/*
	 * All stored channels and handlers, the nodes that are enrolled, and the
	 * locks that are held and have not expired. The caller sets `registered`
	 * and `channel` of handlers, `own` and `processor` of nodes, and, for a
	 * store that only one process has open, `host` and `pid`. A node or lock
	 * that was renewed in the future (the clock was set back) is returned as
	 * if it were renewed now.
	 */
	int (*stats)(struct postern_store *store, struct postern_memory *memory,
			struct postern_stats *out, struct postern_error *error);

	/*
	 * Renew the lease of a node for ttl_ms from now; 0 ends the node.
	 * *alive_out is false, and nothing changes, if the node has expired: a
	 * late node that no other node has recorded as expired becomes live again.
	 */
	int (*renew)(struct postern_store *store, uint64_t node, int64_t ttl_ms,
			bool *alive_out, struct postern_error *error);

	/*
	 * Acquire a lock, or renew it, for ttl_ms from now. A lock that is free or
	 * has expired is acquired with a fence higher than any before; one that
	 * this node owns keeps its fence, even if it had expired. *held_out is
	 * false, and nothing changes, if another node holds it.
	 */
	int (*lock)(struct postern_store *store, const char *name, uint64_t node,
			int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
			struct postern_error *error);

	/* Release a lock that is held under that fence, else change nothing. */
	int (*unlock)(struct postern_store *store, const struct postern_lock *lock,
			uint64_t node, struct postern_error *error);

	/* Remove what the retention allows and advance the cursor. One call
	   examines at most cleaning->max and stops after the removed body that
	   exceeds cleaning->bytes_max, because accepts wait for it. */
	int (*clean)(struct postern_store *store, struct postern_cleaning *cleaning,
			struct postern_error *error);

	/*
	 * Wait for a notification of another node, at most ms; one caller at a
	 * time. *woken_out is whether there was one: a hint, which may be missed.
	 * POSTERN_E_UNSUPPORTED if there will never be one: the caller must poll.
	 * This and end_wait are NULL in stores without other nodes.
	 */
	int (*wait)(struct postern_store *store, int64_t ms, bool *woken_out,
			struct postern_error *error);
	/* Make a wait end soon, also one that is about to begin. */
	void (*end_wait)(struct postern_store *store);

	/*
	 * Accept staged messages, each in the transaction that removes it from
	 * staging. Those of closed channels stay staged. NULL in stores without
	 * staging. If it fails, the caller assumes that nothing was accepted; if
	 * the commit took effect nevertheless, the store returns the leases.
	 */
	int (*collect)(struct postern_store *store,
			struct postern_collection *collection,
			struct postern_memory *memory, struct postern_error *error);

	/*
	 * Register that the node is going to lease: under the lock of this name,
	 * or without one (NULL). POSTERN_E_BUSY, with a text that names the other
	 * node, while a live node leases under another one, because the owner of a
	 * lock recovers what all other nodes have leased; such a node that is late
	 * is recorded as expired. POSTERN_E_STALE: the calling node has expired.
	 * NULL in stores with one node.
	 */
	int (*engage)(struct postern_store *store, uint64_t node,
			const char *lock_name, struct postern_error *error);

	/* Release everything, the ownership of a file last. Also called for stores
	   that failed to open, never with NULL. */
	void (*destroy)(struct postern_store *store);

	/*
	 * Read which of the handlers with these ids are paused: an operator may
	 * pause or resume one through another node. A pause with an end ends when
	 * the store's clock reaches it: no earlier, and without any other call.
	 * memory: for the texts; NULL: they are not read.
	 */
	int (*read_pauses)(struct postern_store *store, const int64_t *handlers,
			size_t count, struct postern_memory *memory,
			struct postern_halt *out, struct postern_error *error);

	/* Count the staged messages of channels that no running node has, for at
	   most `max` channels. NULL in stores without staging. */
	int (*stranded)(struct postern_store *store, size_t max,
			struct postern_memory *memory, struct postern_stranded **out,
			size_t *count_out, struct postern_error *error);

	/* Reserve starts of a handler, so that all nodes together keep to its
	   rate, as postern__rate_grant() in src/core/rate.c does by the store's
	   clock. A reservation whose reply is lost is used up. NULL in stores that
	   only one process has open. */
	int (*reserve)(struct postern_store *store,
			struct postern_reservation *reservation,
			struct postern_error *error);

	/* Read whether the channel with this id is closed, and why. */
	int (*read_closed)(struct postern_store *store, int64_t channel,
			struct postern_memory *memory, struct postern_halt *out,
			struct postern_error *error);

	/* Keep what a node runs, in place of its last report, for people to see;
	   at most POSTERN_REPORTED_RUNS_MAX runs. Without effect if the node is not
	   enrolled. This and read_runs are NULL in stores that only one process has
	   open. */
	int (*report_runs)(struct postern_store *store, uint64_t node,
			const struct postern_run_report *runs, size_t count,
			struct postern_error *error);
	/* Read the reports of all nodes that have not ended or expired. A run may
	   have ended since: it is one of a delivery only while that is leased by
	   the node under the same fence. */
	int (*read_runs)(struct postern_store *store, struct postern_memory *memory,
			struct postern_reports *out, struct postern_error *error);
	/* Read the retention that each channel had at its last enrolment, of those
	   with a payload_ms; dedupe_ms as in postern_retention. NULL in stores that
	   keep none. */
	int (*read_retention)(struct postern_store *store,
			struct postern_memory *memory, struct postern_retention **out,
			size_t *count_out, struct postern_error *error);

	/* Count the deliveries that match the filter and have a group of errors,
	   by group and handler, most first. The store keeps examples of at most
	   POSTERN_GROUP_COUNT_MAX, used times to a second; other deliveries are
	   counted in group 0 of their handler. clean() removes unused examples;
	   if there are too many, they are removed without it, once a minute. */
	int (*groups)(struct postern_store *store,
			const struct postern_filter *filter, struct postern_memory *memory,
			struct postern_group **out, size_t *count_out,
			struct postern_error *error);

	/*
	 * Keep a request to end the run of a delivery that is leased under this
	 * fence, and notify the nodes; or withdraw it. A request is part of its
	 * lease: it is not read any more when that has ended. *leased_out: whether
	 * there is such a lease; if not, nothing is kept. This and read_cancels are
	 * NULL in stores that only one process has open: it has the runs.
	 */
	int (*request_cancel)(struct postern_store *store,
			const struct postern_cancel_request *request, bool withdraw,
			bool *leased_out, struct postern_error *error);
	/* Read the requests to end runs that this node leases. */
	int (*read_cancels)(struct postern_store *store, uint64_t node,
			struct postern_memory *memory, struct postern_cancel_request **out,
			size_t *count_out, struct postern_error *error);

	/*
	 * Record for which handlers the node is idle, in place of what it recorded
	 * for them before, and read how many other nodes are. An enrolment of the
	 * node records that it is idle for none. NULL in stores that only one
	 * process has open.
	 */
	int (*share)(struct postern_store *store, uint64_t node,
			struct postern_share *handlers, size_t count,
			struct postern_error *error);

	/* See struct postern_kept_rule; NULL in stores that end with a process. */
	int (*keep_rules)(struct postern_store *store,
			struct postern_kept_rule *rules, size_t count,
			struct postern_memory *memory, struct postern_error *error);

	/* Read pull leases by message, handler and fence. */
	int (*read_pulls)(struct postern_store *store,
			struct postern_pull_row *rows, size_t count,
			struct postern_memory *memory, struct postern_error *error);
	/*
	 * Make a pull lease end in lease_ms from now, also one that has ended and
	 * was not taken over. Changes only `code` of the row; for POSTERN_OK,
	 * *until_ms_out is its end.
	 */
	int (*extend)(struct postern_store *store, struct postern_pull_row *row,
			int64_t lease_ms, int64_t *until_ms_out,
			struct postern_error *error);
};

/* The common head. A store embeds it as the first member, named `base`. */
struct postern_store {
	const struct postern_store_ops *ops;
	unsigned transactions;           /* transact() at the same time; 0: one */
	struct postern_markers *markers; /* which it destroys; NULL: none */
	/* Where the store reports events, with postern_store_report(): first what
	   the options name, then the box that uses the store, which sets both
	   members before its first call. */
	postern_listener *listener;
	void *listener_context;
	bool markers_only;                             /* it keeps no messages */
	const struct postern_marker_kind *marker_kind; /* NULL: none of its own */
	const char *schema; /* of a database, by its name; NULL: it has none */
};

/* Report an event that no caller waits for, on any thread and with none of the
   store's mutexes held. */
POSTERN_EXPORT void postern_store_report(const struct postern_store *store,
		const struct postern_event *event);

/* Open a store by URL; options may be NULL. End it with
   postern_store_destroy() (NULL is fine) or postern_box_open_taking(). */
POSTERN_EXPORT int postern_store_open(const char *url,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error);
POSTERN_EXPORT int postern_store_schema(const char *url, const char **out,
		struct postern_error *error);
POSTERN_EXPORT void postern_store_destroy(struct postern_store *store);

/* Open a box on a store of your own. The box becomes the owner of the store,
   also on failure. */
POSTERN_EXPORT int postern_box_open_taking(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
