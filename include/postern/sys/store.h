/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_STORE_H
#define POSTERN_SYS_STORE_H

/*
 * For those who write a store. A store keeps messages, one delivery per
 * (message, handler), and the memory of what was seen. `memory:` is the
 * plainest implementation of this contract; tests/conformance/ is its
 * specification, and every store passes it.
 *
 * The life of a delivery, in the words of a store:
 *
 *   pending   open, no node: due_at says when it may be claimed
 *   leased    open, held by a node under a fence
 *   done, poisoned, discarded   ended, with the fence it ended under
 *
 * A parked message has no delivery, only a mark that nobody wanted its type.
 *
 * Rules for every operation:
 *
 * - Atomic and durable: when it returns POSTERN_OK all of it is durable to
 *   the degree the store promises; when it fails, the store is as before.
 * - From any thread: a store serialises what it must by itself.
 * - Every change of a delivery is conditional on its fence, and the number
 *   of changed rows is checked. The fence of a (message, handler) never goes
 *   backwards, not even when a delivery is opened again.
 * - Times are the store's own: a caller passes delays, never points in time.
 * - `node` is the random number of one life of one process, never 0. One that
 *   is not enrolled has no right to a lease; a store need not check that.
 * - Arguments are checked by the caller; texts have passed the limits of
 *   message.h. What an argument points to is borrowed for the call; results
 *   live in the postern_memory that is passed in.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <postern/inspect.h>
#include <postern/message.h>
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
	int64_t command_timeout_ms; /* most a call waits for its turn to write */
	postern_remark *remark;     /* may be NULL */
	void *remark_context;
	const struct postern_clock *clock;   /* never NULL */
	const struct postern_random *random; /* never NULL */
	/* How often a call is tried again if its connection was lost or refused.
	   0: 3; negative: not at all. Of no meaning without connections. */
	int32_t command_retries;
	/* Of stores in PostgreSQL; what one of them says the URL may say as well,
	   but not otherwise. */
	const char *schema;     /* NULL: "postern" */
	uint32_t connections;   /* most that are open; 0: 8 */
	const char *listen_url; /* where to wait for wake-ups; NULL: as the store */
};

struct postern_enrol_channel {
	const char *name;
	size_t max_size; /* of a body that is staged */
	int64_t id;      /* out: positive, the same for good */
};

struct postern_enrol_handler {
	const char *key;
	const char *const *legacy_keys;
	size_t legacy_key_count;
	bool in_process;
	uint32_t max_crashes;
	/* out */
	int64_t id; /* positive; it names this handler for good */
};

struct postern_enrolment {
	uint64_t node;
	/* The node was enrolled before: POSTERN_E_STALE, and nothing changes, if
	   it is gone. A number that was found gone never comes back. */
	bool again;
	/* How long the node lives unless renewed; 0: until it is ended. */
	int64_t node_lease_ms;
	struct postern_enrol_channel *channels;
	size_t channel_count;
	struct postern_enrol_handler *handlers;
	size_t handler_count;
};

#define POSTERN_LOCK_NAME_LEN_MAX 200

/*
 * A named lock as its owner knows it. Every acquisition raises its fence, and
 * what is done under a lock names it: an owner that was paused past the end
 * of its lock finds another fence there and changes nothing.
 */
struct postern_lock {
	const char *name;
	uint64_t fence;
};

/* One handler that wants a message. A handler that is paused in the store is
   not leased, whatever `lease` says. */
struct postern_route {
	int64_t handler;     /* a stored id */
	bool lease;          /* of a new message: lease it to the node at once */
	bool retry_poisoned; /* a duplicate opens a poisoned delivery again */
	/* out */
	int64_t stored; /* of a leased delivery: the id it is stored under */
	bool opened;    /* a delivery was made, or opened again, by this item */
	bool leased;    /* and it is leased to the node; never for a duplicate */
	uint64_t fence; /* of an opened delivery: 1 if leased, 0 if new and
					   pending, what it was before if opened again */
};

enum postern_fate {
	POSTERN_FATE_KEEP = 0, /* routes has at least one entry */
	POSTERN_FATE_PARK,     /* no routes */
	POSTERN_FATE_DROP      /* no routes: only counted as dropped */
};

/*
 * A message to be remembered. Its identity is (channel, source, id); source
 * and type are never NULL here.
 *
 * New: message and deliveries are written, code POSTERN_OK. Known: nothing is
 * written but a count, and code is POSTERN_E_DUPLICATE if the body is the
 * same, else POSTERN_E_CONFLICT, which is also recorded
 * (POSTERN_CONFLICTS_KEPT per message). A duplicate (not a conflict) also
 * makes pending deliveries for routes that have none yet under any id of the
 * handler in any state, as long as the message is there; if that un-parks
 * it, the parked mark goes. They are not leased: handlers see the first copy,
 * which has to be fetched.
 */
struct postern_accept {
	const struct postern_message *message;
	int64_t channel;
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
	POSTERN_SETTLE_PENDING, /* again, due in delay_ms */
	POSTERN_SETTLE_RETURNED /* again, due at once, as if never started: the
							   start is taken back, no attempt is kept */
};

/*
 * The end of one lease. Takes effect only if the delivery is leased by the
 * node under exactly this fence; otherwise code is POSTERN_E_STALE and
 * nothing changes. One that comes again, because the answer was lost, counts as
 * what it was the first time, where a store can lose answers. Any settlement
 * clears crashes and suspicion. Each one but RETURNED and DONE keeps an attempt
 * (fence, times, outcome, error), the last POSTERN_ATTEMPTS_KEPT of a delivery;
 * a DONE is its own record.
 */
struct postern_settlement {
	int64_t seq;
	int64_t handler; /* the stored id it was claimed under */
	uint64_t fence;
	enum postern_settle_to to;
	int64_t delay_ms;
	uint32_t failures; /* the new count */
	int64_t duration_ms;
	int64_t lag_ms;      /* how long ago it ended; a delay counts from now */
	const char *outcome; /* never NULL: "done", "retry", … */
	const char *error;   /* may be NULL; valid UTF-8, capped */
	bool again;          /* it was in a batch that failed */
	/* out */
	int code;
};

/*
 * Done in this order: all settlements, then all accepts. With a lock that the
 * node does not hold under that fence, every settlement is POSTERN_E_STALE and
 * no delivery is leased (routes come back opened, not leased); accepts are
 * done all the same.
 */
struct postern_batch {
	uint64_t node;
	const struct postern_lock *lock; /* NULL: none is needed */
	struct postern_settlement *settlements;
	size_t settlement_count;
	struct postern_accept *accepts;
	size_t accept_count;
};

struct postern_want {
	int64_t handler; /* a stored id; deliveries of all its ids are claimed */
	uint32_t max;
	bool in_process;
};

struct postern_claim {
	uint64_t node;
	/* NULL: none is needed. One that is lost: POSTERN_E_STALE. */
	const struct postern_lock *lock;
	const struct postern_want *wants;
	size_t want_count;
	size_t max;       /* in all */
	size_t bytes_max; /* stop after the body that passes this */
};

enum postern_suspicion {
	POSTERN_NO_SUSPECT = 0,
	POSTERN_SUSPECT_GROUP, /* one of several under suspicion */
	POSTERN_SUSPECT_SOLO   /* alone: its loss will count as a crash */
};

struct postern_claimed {
	int64_t seq;
	int64_t handler; /* the id it is stored under */
	size_t want;     /* the index of the want it was claimed for */
	int64_t channel;
	uint64_t fence; /* the new one */
	uint32_t failures;
	enum postern_suspicion suspicion;
	/* NULL: the message is gone (poison it). */
	const struct postern_message *message;
};

struct postern_claims {
	struct postern_claimed *items;
	size_t count;
	/* Ms until the next pending delivery of a wanted, unpaused handler is
	   due, 0 if some are due that were not taken, -1 if there is none. */
	int64_t next_due_ms;
	/* Suspects of the wanted in-process handlers not yet claimed. */
	uint64_t suspects_waiting;
};

/*
 * A delivery to be run inside the store's transaction.
 *
 * The store checks the fence under the transaction first (code
 * POSTERN_E_STALE and not run if it is lost), then calls run. On
 * POSTERN_DONE or POSTERN_DISCARD the completion is written in the same
 * transaction; on any other outcome what the unit wrote is rolled back, and
 * the caller settles it. A unit that committed or rolled back by itself is
 * undone, code POSTERN_E_INVALID; one that was interrupted is undone too, code
 * POSTERN_E_TIMEOUT, and so is one under which the connection broke, code
 * POSTERN_E_UNAVAILABLE, whatever its outcome. The others commit.
 *
 * A store may call run more than once: again, if what it tried came to nothing
 * through no fault of the unit, or first ahead, see postern_handler_ops.
 */
struct postern_unit {
	int64_t seq;
	int64_t handler;
	uint64_t fence;
	uint32_t failures;
	bool sends_ahead; /* run understands a connection that is a pipeline */
	size_t body_len;
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
 * Whose leases are lost: those of nodes that are gone, that is, ended, not
 * renewed in time, or never enrolled; a store that only one process can have
 * open forgets all nodes and frees all locks when it is opened. Under a lock,
 * those of all other nodes: only its owner may have any. A lock that is lost:
 * POSTERN_E_STALE. The node that recovers is never gone.
 */
struct postern_recovery {
	uint64_t node;
	const struct postern_lock *lock; /* NULL: none */
	size_t max;
};

struct postern_recovered {
	uint64_t released; /* pending again */
	uint64_t suspects; /* now under suspicion */
	uint64_t poisoned; /* crashed too often */
	bool more;
};

struct postern_orphan {
	const char *key;
	uint64_t count; /* open deliveries, not leased by a live node */
};

/* Which handlers want a parked message of this type: fills routes (room for
   `max`) and returns how many. */
typedef size_t postern_router(void *context, int64_t channel, const char *type,
		struct postern_route *routes, size_t max);

/*
 * Staged messages: written into the store by somebody else's transaction, to
 * be accepted. `place` is called for each one that is taken and says as what:
 * fills the accept, whose message may be another copy of the same; an error
 * means that it cannot be accepted (kept and not looked at again).
 */
typedef int postern_placer(void *context, int64_t channel,
		const struct postern_message *message, struct postern_accept *accept,
		struct postern_error *error);

struct postern_collection {
	uint64_t node;
	const struct postern_lock *lock; /* for leases, as in a batch */
	const int64_t *channels;         /* whose messages are taken */
	size_t channel_count;
	size_t max;
	size_t bytes_max; /* stop after the body that passes this */
	/* Nobody will look again soon: whoever stages shall wake the node. */
	bool rests;
	postern_placer *place;
	void *context;
	/* out: those that were placed, in that order, each with its code as in a
	   batch, or why it alone was not accepted: then it is kept, and not looked
	   at again unless it was POSTERN_E_BUSY; in the memory that was given */
	struct postern_accept *accepts;
	size_t accept_count;
	size_t refused;
	bool more; /* there may be */
};

/* Staged messages that no running node accepts, since none has the channel. */
struct postern_stranded {
	int64_t channel;
	const char *name; /* the channel's */
	uint64_t count;
};

/* What of a channel may go. A message goes with all that belongs to it when
   every delivery has ended, none is poisoned, it is not parked, and the last
   one ended (or, without any, the message came) payload_ms ago. The memory of
   it goes when the message is gone and came dedupe_ms ago. */
struct postern_retention {
	int64_t channel;
	int64_t payload_ms;
	int64_t dedupe_ms; /* -1: keep; else never less than payload_ms */
};

#define POSTERN_CLEANING_CURSOR_LEN 40

struct postern_cleaning {
	const struct postern_retention *rules; /* one per channel; others keep */
	size_t rule_count;
	size_t max;       /* messages or keys looked at in this call */
	size_t bytes_max; /* stop after the removed body that passes this */
	/* Where the last call ended: the store's own; zeroes at first. */
	unsigned char cursor[POSTERN_CLEANING_CURSOR_LEN];
	/* out */
	uint64_t messages;
	uint64_t keys;
	bool more;
};

struct postern_page {
	struct postern_row *rows;
	size_t count;
	bool more;
	/* Where it ended, for after_seq and after_handler. */
	int64_t last_seq;
	int64_t last_handler;
};

struct postern_query {
	/* limit is set; cursor is decoded into the two below */
	const struct postern_filter *filter;
	int64_t after_seq; /* 0: from the newest */
	int64_t after_handler;
};

enum postern_edit_kind {
	POSTERN_EDIT_RETRY,
	POSTERN_EDIT_DISCARD,
	POSTERN_EDIT_PAUSE,
	POSTERN_EDIT_RESUME
};

/*
 * PAUSE and RESUME name a handler. RETRY and DISCARD name one delivery by seq
 * and handler key ("" for a parked message), or many by filter: then those
 * that match and whose state allows it, at most filter->limit.
 */
struct postern_edit {
	enum postern_edit_kind kind;
	int64_t seq;
	const char *handler;
	const struct postern_filter *filter; /* NULL: one */
	bool dry_run;
	/* out */
	uint64_t count;
};

#define POSTERN_STORE_OPS_VERSION 1

/*
 * What a store implements. Every function is required unless it says
 * otherwise; one that a store cannot do returns POSTERN_E_UNSUPPORTED.
 */
struct postern_store_ops {
	unsigned version;   /* POSTERN_STORE_OPS_VERSION; new slots at the end */
	const char *name;   /* "memory", "sqlite"; also the URL scheme */
	bool transactional; /* can transact */
	bool exclusive;     /* one process has it open: nodes need no lease */
	/* How many apply() at a time it does well with; 0: one. */
	unsigned writers;

	/*
	 * Resolve channels and handlers to stored ids, making those that are
	 * missing, and remember the node with the handlers it registers.
	 *
	 * A key names one handler id for good. A legacy key that is not known
	 * yet is bound to the handler too; one that is known while the key is
	 * not makes the key another name of that handler; if both are known with
	 * different ids, the legacy one becomes an alias of the other. Two of the
	 * handlers resolving to one id: POSTERN_E_INVALID.
	 *
	 * Another node may make an id that this one knows an alias at any time.
	 * So wherever an operation takes a stored id, the store resolves it when
	 * the operation runs: an alias and its owner are one handler with several
	 * ids. New deliveries are stored under the owner's id.
	 */
	int (*enrol)(struct postern_store *store,
			struct postern_enrolment *enrolment, struct postern_error *error);

	/*
	 * Do a batch of settlements and accepts as one durable unit. Every item
	 * gets its own code: a duplicate or a lost fence is a result, not an
	 * error. The same identity twice in one batch is accepted, then a
	 * duplicate (or conflict). Accepted messages get ascending seqs in the
	 * order of the batch; a seq is never used again.
	 *
	 * An error that concerns the store as a whole is POSTERN_E_UNAVAILABLE or
	 * POSTERN_E_TIMEOUT; any other may be due to one item, and the caller
	 * will try smaller batches.
	 */
	int (*apply)(struct postern_store *store, struct postern_batch *batch,
			struct postern_error *error);

	/*
	 * Lease due deliveries of the wanted handlers that are not paused, oldest
	 * due first within a handler, though those stored under an alias may come
	 * before all others: fence + 1, start + 1.
	 *
	 * A delivery that was made pending in the store's future (the clock went
	 * back) is due at once, whatever its delay was; a clock that is back by
	 * no more than a second may be overlooked.
	 *
	 * Suspects: as long as any of the wanted in-process handlers has some,
	 * nothing else of the in-process handlers is claimed, and of the suspects
	 * exactly one group, whole (even past max), the oldest first. A group of
	 * one, counting members that are not wanted or leased, is claimed as
	 * POSTERN_SUSPECT_SOLO. Suspects of paused or unwanted handlers hold up
	 * nobody.
	 */
	int (*claim)(struct postern_store *store, const struct postern_claim *claim,
			struct postern_memory *memory, struct postern_claims *out,
			struct postern_error *error);

	/*
	 * Run deliveries inside one transaction. On POSTERN_OK each unit has its
	 * code; otherwise nothing was committed (a constraint that failed at the
	 * commit is POSTERN_E_INVALID: one of the units is to blame). `lock` as
	 * for a batch: if it is lost, every unit is POSTERN_E_STALE.
	 */
	int (*transact)(struct postern_store *store, uint64_t node,
			const struct postern_lock *lock, struct postern_unit *units,
			size_t count, struct postern_error *error);

	/* Make the unit with this context end soon, if it runs, or whatever runs
	   if it is NULL; from another thread. */
	void (*interrupt)(struct postern_store *store, const void *context);

	/*
	 * Take back deliveries whose lease is lost, at most `max`. Those of
	 * handlers that were enrolled as in-process become suspects: all lost
	 * members of one group (or all that were under no suspicion) come back as
	 * two groups of half the size. One that was lost while solo has crashed:
	 * crashes + 1, and at the handler's max_crashes it is poisoned, keeping an
	 * attempt "crash". All others become pending, due at once. Fences and
	 * failures stay.
	 */
	int (*recover)(struct postern_store *store,
			const struct postern_recovery *recovery,
			struct postern_recovered *out, struct postern_error *error);

	/*
	 * Find open deliveries of handlers that no live node registers; the node
	 * that asks is alive even if it is late, and finds none if it is gone:
	 * nobody registers its own handlers then. `only`: of the handler with this
	 * key, NULL: of all. With `poison`, poison the pending ones, at most `max`.
	 */
	int (*orphans)(struct postern_store *store, uint64_t node, const char *only,
			bool poison, size_t max, struct postern_memory *memory,
			struct postern_orphan **orphans_out, size_t *count_out,
			struct postern_error *error);

	/* Make deliveries (pending) for parked messages that a handler wants now,
	   looking at no more than `max` parked ones after *cursor (0 at first),
	   which is moved on; *cursor is 0 again after the last. */
	int (*unpark)(struct postern_store *store, postern_router *router,
			void *context, size_t max, int64_t *cursor, uint64_t *count_out,
			struct postern_error *error);

	/* Errors for a single delivery as postern_box_retry() says; a filter that
	   matches nothing is no error. */
	int (*edit)(struct postern_store *store, struct postern_edit *edit,
			struct postern_error *error);

	/* Newest message first; handlers of one message by stored id. */
	int (*list)(struct postern_store *store, const struct postern_query *query,
			struct postern_memory *memory, struct postern_page *out,
			struct postern_error *error);

	/* Deliveries of aliases are shown under the handler they belong to. */
	int (*get)(struct postern_store *store, int64_t seq,
			struct postern_memory *memory, struct postern_detail *out,
			struct postern_error *error);

	/* As postern_box_find(). */
	int (*find)(struct postern_store *store, const char *id, const char *source,
			const char *channel, int64_t *seqs, size_t max, size_t *count_out,
			struct postern_error *error);

	/*
	 * All channels and handlers the store knows, the nodes that are enrolled,
	 * and the locks that are held and not over; `registered` and `channel` of
	 * handlers, `own` and `processor` of nodes are left to the caller, as are
	 * `host` and `pid` by a store that only one process has open. A node
	 * or lock that was renewed in the future (the clock went back) is told as
	 * if it were renewed now.
	 */
	int (*stats)(struct postern_store *store, struct postern_memory *memory,
			struct postern_stats *out, struct postern_error *error);

	/*
	 * Prolong the life of a node to ttl_ms from now; 0 ends it. *alive_out is
	 * false, and nothing changes, if it was found gone before: a node that is
	 * late and that nobody has taken anything from lives on.
	 */
	int (*renew)(struct postern_store *store, uint64_t node, int64_t ttl_ms,
			bool *alive_out, struct postern_error *error);

	/*
	 * Take a lock, or keep it: for ttl_ms from now. A lock that is free, or
	 * whose time is over, is taken with a fence higher than any before; one
	 * that the node has is kept with the fence it has, even if its time was
	 * over. *held_out is false, and nothing changes, if another node has it.
	 */
	int (*lock)(struct postern_store *store, const char *name, uint64_t node,
			int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
			struct postern_error *error);

	/* Let go of a lock; one that is not held under that fence is left
	   alone. */
	int (*unlock)(struct postern_store *store, const struct postern_lock *lock,
			uint64_t node, struct postern_error *error);

	/* Remove what may go and move the cursor. One call looks at no more than
	   cleaning->max and removes no more bodies than cleaning->bytes_max
	   allows, but always one: it holds up accepts. */
	int (*clean)(struct postern_store *store, struct postern_cleaning *cleaning,
			struct postern_error *error);

	/*
	 * Wait for work that others have made, at most ms; one caller at a time.
	 * *woken_out says whether there may be some: it is a hint, and missing
	 * one is allowed. POSTERN_E_UNSUPPORTED if the store will never tell; then
	 * it must be looked for. Both are NULL where nobody else makes work.
	 */
	int (*wait)(struct postern_store *store, int64_t ms, bool *woken_out,
			struct postern_error *error);
	/* Make a wait end soon, also one that is just about to begin. */
	void (*end_wait)(struct postern_store *store);

	/*
	 * Accept staged messages, each in the transaction that takes it from
	 * where it was staged. NULL where nothing can be staged. On an error
	 * nothing was accepted, as far as anybody knows: what was leased after
	 * all is given back.
	 */
	int (*collect)(struct postern_store *store,
			struct postern_collection *collection,
			struct postern_memory *memory, struct postern_error *error);

	/*
	 * A node is going to lease: under the lock of this name, or without one
	 * (NULL). POSTERN_E_BUSY, with a text about who it is, as long as another
	 * node does so under another, for the owner of a lock takes what all
	 * others have; one of those that is late is found gone. POSTERN_E_STALE:
	 * the node is gone itself. NULL where no two nodes can meet.
	 */
	int (*engage)(struct postern_store *store, uint64_t node,
			const char *lock_name, struct postern_error *error);

	/* Release everything, the ownership of a file last. Gets half-open stores
	   too, but never NULL. */
	void (*destroy)(struct postern_store *store);

	/* Read which of the handlers with these stored ids are paused: an operator
	   may pause or resume one through another node. */
	int (*read_pauses)(struct postern_store *store, const int64_t *handlers,
			size_t count, bool *paused_out, struct postern_error *error);

	/* Count the staged messages of channels that no running node has, by
	   channel, at most `max` of them; *out is in the memory that was given.
	   NULL where nothing can be staged. */
	int (*stranded)(struct postern_store *store, size_t max,
			struct postern_memory *memory, struct postern_stranded **out,
			size_t *count_out, struct postern_error *error);
};

/* The common head. A store embeds it as the first member, named `base`. */
struct postern_store {
	const struct postern_store_ops *ops;
	/* How many transact() at a time it does well with; 0: one. */
	unsigned transactions;
};

/* A kind of store, by the scheme of its URL. */
struct postern_store_kind {
	const char *scheme; /* "sqlite" */
	/* `rest` is the URL behind "scheme:". */
	int (*open)(const char *rest, const struct postern_store_options *options,
			struct postern_store **out, struct postern_error *error);
	/* The SQL that makes or upgrades the schema, for people to read; "" if
	   there is none. A static text. */
	const char *(*schema)(void);
	/* What is wrong with the URL and the options, as far as it can be told
	   without opening anything: POSTERN_E_INVALID, or POSTERN_E_UNSUPPORTED
	   for an option that only other kinds have. Asked before open(). */
	int (*check)(const char *rest, const struct postern_store_options *options,
			struct postern_error *error);
};

/* Open a store by URL; NULL options are defaults. End it with
   postern_store_destroy(), or give it to postern_box_open_taking(). */
POSTERN_EXPORT int postern_store_open(const char *url,
		const struct postern_store_options *options, struct postern_store **out,
		struct postern_error *error);
POSTERN_EXPORT int postern_store_schema(const char *url, const char **out,
		struct postern_error *error);
/* NULL is fine. */
POSTERN_EXPORT void postern_store_destroy(struct postern_store *store);

/*
 * Open a box on a store of your own. Takes the store, also on failure.
 */
POSTERN_EXPORT int postern_box_open_taking(struct postern_store *store,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
