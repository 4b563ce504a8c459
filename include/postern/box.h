/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BOX_H
#define POSTERN_BOX_H

/*
 * A box accepts each message once and delivers it to every handler that
 * wants it, as often as it takes.
 *
 *   accept --> [pending] --claim--> [leased] --settle--> [done]
 *                  ^                    |
 *                  +---- retry later ---+---- attempts used up --> [poisoned]
 *
 * Each handler has a delivery of its own: one that fails holds up no other.
 *
 * Open a box on a store, add channels and handlers, start it, and accept.
 * Deliveries are run by a runner (runner.h), which owns threads, or by hand
 * with postern_box_process(); the box itself starts no threads.
 *
 * Threads: once started, a box may be used from any thread. Calls that write
 * wait for the store's writer and return when their group commit is durable.
 */

#include <postern/error.h>
#include <postern/export.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct postern_box;
struct postern_clock;
struct postern_random;

#define POSTERN_CHANNEL_NAME_LEN_MAX 200
#define POSTERN_CHANNEL_COUNT_MAX 1000
#define POSTERN_HANDLER_COUNT_MAX 1000
#define POSTERN_ACCEPT_BATCH_MAX 10000

enum postern_require_inbox {
	POSTERN_REQUIRE_INBOX_NONE = 0,
	POSTERN_REQUIRE_INBOX_WARN,
	POSTERN_REQUIRE_INBOX_FAIL
};

/* What to do with open deliveries whose handler nobody registers. */
enum postern_orphans {
	POSTERN_ORPHANS_POISON = 0,
	POSTERN_ORPHANS_HOLD,
	POSTERN_ORPHANS_FAIL /* refuse to start */
};

/* Who runs handlers when several processes share a store. All of them do it in
   the same way, and under the same lock: one that would do otherwise waits
   until the others are gone. */
enum postern_processing {
	POSTERN_PROCESSING_PARALLEL = 0, /* all of them, each with its leases */
	POSTERN_PROCESSING_EXCLUSIVE     /* the one that holds the lock */
};

/* A remark that is no error, for the log: borrowed for the call. */
typedef void postern_remark(void *context, const char *text);

/*
 * Zero the struct and set `size`; what is zero takes the default named here.
 */
struct postern_box_options {
	size_t size;

	/* Open for inspection only: works beside the process that owns the
	   store; whatever would write fails with POSTERN_E_UNSUPPORTED. */
	bool read_only;
	/* Fail with POSTERN_E_NOTFOUND instead of creating the store's file, or
	   its schema. */
	bool must_exist;
	/* Fail with POSTERN_E_UNSUPPORTED instead of bringing an older schema
	   up to date. */
	bool no_migrate;

	size_t max_message_size; /* 1 MiB: the longest body taken */
	uint32_t batch_size;     /* 100: deliveries per claim */
	/* How long a write may wait for the store; 30 s. */
	int64_t command_timeout_ms;
	/* Deliveries held in memory by this process, waiting to be run, in
	   count (10,000) and bytes (64 MiB). Past either, the rest stays in the
	   store until there is room. */
	uint32_t run_queue_max;
	size_t run_queue_bytes_max;

	enum postern_require_inbox require_inbox;
	enum postern_orphans orphans;

	enum postern_processing processing;
	/* Of the lock for exclusive processing: "InboxProcessor_default". */
	const char *lock_name;
	/* After this long without the lock it is remarked that another has it,
	   and the waiting goes on; 60 s. */
	int64_t lock_acquire_timeout_ms;
	/* How long this process counts as alive, and keeps the lock, after it was
	   last heard of; 15 s. A store that only one process can open needs no
	   such lease, and has none if this is 0. */
	int64_t node_lease_ms;

	/* Of the lock for cleaning: "InboxCleanup_default". */
	const char *cleanup_lock_name;
	/* 10,000: most that one commit removes; it also ends after 16 MiB of
	   bodies, and is smaller if the last one took long. */
	uint32_t cleanup_batch;

	/* Told about warnings at start; may be NULL. */
	postern_remark *remark;
	void *remark_context;

	/* NULL: the system's. Tests bring their own; both must outlive the
	   box. */
	const struct postern_clock *clock;
	const struct postern_random *random;

	/* How often a call of the store is tried again if its connection was lost
	   or refused; 3; negative: not at all. A password or a database that is
	   wrong is told at once. */
	int32_t command_retries;
	/* Of a store in PostgreSQL only. What the URL says too must be the same. */
	const char *schema;     /* "postern" */
	uint32_t connections;   /* 8: most that are open at a time */
	const char *listen_url; /* where to wait for the word of other processes,
							   past a pooler; as the store */
};

/*
 * Open a box on a store: "memory:", "sqlite:FILE" or
 * "postgres://USER@HOST/DATABASE" (libpq's URL, or behind "postgres:" its other
 * form, "host=… dbname=…").
 *
 * A sqlite file is created if it is missing, is brought up to this version's
 * schema, and belongs to this process until the box is destroyed; what a
 * former owner left leased is released. In PostgreSQL only the schema is
 * created, if the role may do so, and any number of processes share it; all
 * should add the same channels and handlers. What a process left leased that
 * is not heard of for node_lease_ms the others take over.
 *
 * options  may be NULL.
 * out      yours; end it with postern_box_destroy().
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_INVALID      the URL or an option is wrong
 *   POSTERN_E_BUSY         another process has the file open; the text names
 *                          its pid
 *   POSTERN_E_NOTFOUND     must_exist, and there is no such file or schema
 *   POSTERN_E_CORRUPT      the file is not a database
 *   POSTERN_E_UNSUPPORTED  the schema is of another version, or the server has
 *                          settings with which nothing could be promised
 *   POSTERN_E_UNAVAILABLE  the file or the server cannot be read or written
 */
POSTERN_EXPORT int postern_box_open(const char *url,
		const struct postern_box_options *options, struct postern_box **out,
		struct postern_error *error);

/*
 * Close the box and free everything. Stop its runner first. Messages being
 * accepted asynchronously and not yet durable are completed with
 * POSTERN_E_UNAVAILABLE. NULL is fine.
 */
POSTERN_EXPORT void postern_box_destroy(struct postern_box *box);

/* What becomes of a message whose type no handler wants. */
enum postern_unrouted {
	POSTERN_UNROUTED_PARK = 0, /* keep it until a handler wants it */
	POSTERN_UNROUTED_DROP,     /* counted, not kept */
	POSTERN_UNROUTED_REJECT    /* POSTERN_E_INVALID to the sender */
};

/* Same identity, other body. The first body is kept and the conflict
   recorded either way. */
enum postern_on_conflict {
	POSTERN_CONFLICT_REJECT = 0, /* POSTERN_E_CONFLICT to the sender */
	POSTERN_CONFLICT_IGNORE      /* told as a duplicate */
};

/* Zero the struct and set `size`; zeroes are the defaults. */
struct postern_channel_options {
	size_t size;
	enum postern_unrouted unrouted;
	enum postern_on_conflict on_conflict;
	/* Takes no part in the inbox: nothing may be accepted into it in this
	   version. See require_inbox. */
	bool without_inbox;
	/* Exempts this channel from require_inbox. */
	bool allow_without_inbox;
	size_t max_message_size; /* 0: the box's */
	/*
	 * How long a message is kept after its last delivery has ended (poisoned
	 * and parked ones stay), and how long it is remembered, so that a late
	 * copy is still a duplicate. 0: for good. What is remembered must not be
	 * forgotten before the message: dedupe is not less than payload.
	 */
	int64_t retention_payload_ms;
	int64_t retention_dedupe_ms;
	const struct postern_policy *policy; /* NULL: postern_policy_init() */
};

/*
 * Add a channel. Before postern_box_start() only.
 *
 * Returns POSTERN_OK, or POSTERN_E_INVALID for a bad or repeated name (1 to
 * 200 bytes of letters, digits, '-', '_', '.').
 */
POSTERN_EXPORT int postern_box_add_channel(struct postern_box *box,
		const char *name, const struct postern_channel_options *options,
		struct postern_error *error);

/*
 * Add a handler to a channel. Before postern_box_start() only.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_NOTFOUND     no such channel
 *   POSTERN_E_INVALID      no key, a key that is taken, no kind or more than
 *                          one, a policy that makes no sense
 *   POSTERN_E_UNSUPPORTED  the store cannot do it (transactional on memory:)
 */
POSTERN_EXPORT int postern_box_add_handler(struct postern_box *box,
		const char *channel, const struct postern_handler_options *options,
		struct postern_error *error);

/*
 * Make the channels and handlers known to the store and begin to accept.
 *
 * Resolves every key to its stored handler (legacy keys to the same one),
 * wakes parked messages that a handler now wants, and sees orphans coming:
 * with `orphans: fail` it refuses with POSTERN_E_INVALID, otherwise it
 * remarks on them. Two handlers whose keys name one stored handler are
 * refused with POSTERN_E_INVALID.
 */
POSTERN_EXPORT int postern_box_start(struct postern_box *box,
		struct postern_error *error);

/* What was said about one message. */
struct postern_receipt {
	/* The message's number; 0 unless accepted, duplicate or conflict, and
	   for a message that was dropped as unrouted. */
	int64_t seq;
	/* error.code: POSTERN_OK accepted, POSTERN_E_DUPLICATE,
	   POSTERN_E_CONFLICT, or why it was rejected. */
	struct postern_error error;
};

/*
 * Accept one message.
 *
 * When this returns POSTERN_OK the message and one delivery per interested
 * handler are durable, and the caller may acknowledge it to wherever it came
 * from. POSTERN_E_DUPLICATE means the same, said about an earlier call:
 * acknowledge.
 *
 * message  borrowed for the duration of the call.
 * seq_out  may be NULL; set on POSTERN_OK, POSTERN_E_DUPLICATE and
 *          POSTERN_E_CONFLICT to the number of the message first accepted.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_DUPLICATE    accepted before; nothing was stored, but for
 *                          deliveries to handlers added since
 *   POSTERN_E_CONFLICT     accepted before with another body, which is kept
 *   POSTERN_E_NOTFOUND     no such channel
 *   POSTERN_E_INVALID      breaks a limit of message.h, or is unrouted and
 *                          the channel rejects that
 *   POSTERN_E_BUSY         called from inside a transactional handler
 *   POSTERN_E_TIMEOUT      the store's writer was busy for command_timeout_ms
 *   POSTERN_E_UNAVAILABLE  the store cannot write; do not acknowledge
 */
POSTERN_EXPORT int postern_box_accept(struct postern_box *box,
		const char *channel, const struct postern_message *message,
		int64_t *seq_out, struct postern_error *error);

/*
 * Accept many messages in as few commits as it takes, with a receipt each.
 * The same id twice in one batch is accepted once and is then a duplicate.
 *
 * receipts_out  `count` of them, all written on POSTERN_OK.
 *
 * Returns POSTERN_OK if every message has its receipt; otherwise nothing was
 * decided about any (no such channel, over POSTERN_ACCEPT_BATCH_MAX, no
 * memory).
 */
POSTERN_EXPORT int postern_box_accept_batch(struct postern_box *box,
		const char *channel, const struct postern_message *messages,
		size_t count, struct postern_receipt *receipts_out,
		struct postern_error *error);

/*
 * Called once per message given to postern_box_accept_async(), on the thread
 * that committed it: be quick, queue and return; never call back into the
 * box. The receipt is valid until it returns.
 */
typedef void postern_accepted(void *context,
		const struct postern_receipt *receipt);

/*
 * Accept one message without waiting. The message is copied. On POSTERN_OK
 * `done` will be called exactly once, possibly before this returns; on any
 * other result it never will be. Needs somebody to commit: a runner, or calls
 * of postern_box_commit(). POSTERN_E_BUSY: too much is waiting already
 * (100,000 messages or 256 MiB), try later; or called from inside a
 * transactional handler.
 */
POSTERN_EXPORT int postern_box_accept_async(struct postern_box *box,
		const char *channel, const struct postern_message *message,
		postern_accepted *done, void *context, struct postern_error *error);

/*
 * Pumping by hand (cron, serverless, tests): every step a runner's threads
 * do, one call each. They may be mixed freely with accepts.
 */

/* Write what is queued: accepts and settlements, as one durable unit. Sets
 *count_out (may be NULL) to how many items were written. */
POSTERN_EXPORT int postern_box_commit(struct postern_box *box,
		size_t *count_out, struct postern_error *error);

/* Lease up to `max` due deliveries for this process and queue them to be
   run. */
POSTERN_EXPORT int postern_box_claim(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error);

/* Run up to `max` of the queued deliveries on this thread. Their results are
   durable after the next commit. */
POSTERN_EXPORT int postern_box_run(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error);

/* Take back what lost its lease, report what is stuck, fail what timed
   out. */
POSTERN_EXPORT int postern_box_sweep(struct postern_box *box, size_t *count_out,
		struct postern_error *error);

/* What a clean-up removed. */
struct postern_cleanup {
	uint64_t messages;
	uint64_t keys; /* ids that are not remembered any more */
	/* Somebody else is cleaning, who does the rest. */
	bool busy;
	/* The box's runner stops: the rest is left for the next time. */
	bool stopped;
};

/* Remove what the channels' retention says may go, in bounded batches, under
   a lock of its own. Ends early, and well, when the box's runner stops. */
POSTERN_EXPORT int postern_box_cleanup(struct postern_box *box,
		struct postern_cleanup *out, struct postern_error *error);

/*
 * Claim, run and commit until nothing is due or `max` deliveries (0: no
 * limit) were run. What is left queued is given back. Never poisons orphans.
 * Nobody interrupts a callback meanwhile: one that is past its timeout counts
 * as failed when it returns.
 */
POSTERN_EXPORT int postern_box_process(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
