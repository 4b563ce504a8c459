/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BOX_H
#define POSTERN_BOX_H

/*
 * A box accepts each message once and delivers it to every handler that
 * wants its type, retrying until a delivery has ended.
 *
 *   accept --> [pending] --claim--> [leased] --settle--> [done]
 *                  ^                    |
 *                  +---- retry later ---+---- attempts used up --> [poisoned]
 *
 * Each handler has its own delivery of a message: a failure delays no other
 * handler.
 *
 * Open a box on a store, add channels and handlers, start it, and accept.
 * Deliveries are run by a runner (runner.h), which owns threads, or on the
 * caller's thread by postern_box_process(); the box itself starts no threads.
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

/* What to do with orphaned deliveries: open ones whose handler no running node
   has configured. */
enum postern_orphans {
	POSTERN_ORPHANS_POISON = 0,
	POSTERN_ORPHANS_HOLD,
	POSTERN_ORPHANS_FAIL /* refuse to start */
};

/* Which nodes run handlers when several share a store. All of them must use
   the same value and the same lock; a node that does not waits until the
   others have ended. */
enum postern_processing {
	POSTERN_PROCESSING_PARALLEL = 0, /* all nodes, each with its own leases */
	POSTERN_PROCESSING_EXCLUSIVE     /* the node that holds the lock */
};

/* How much an event matters; see event.h. */
enum postern_level {
	POSTERN_LEVEL_DEFAULT = 0, /* POSTERN_LEVEL_INFO */
	POSTERN_LEVEL_DEBUG,       /* what happens for every message */
	POSTERN_LEVEL_INFO,
	POSTERN_LEVEL_WARN, /* somebody may have to do something */
	POSTERN_LEVEL_ERROR /* somebody has to do something */
};

/* Receives events; see event.h. */
struct postern_event;
typedef void postern_listener(void *context, const struct postern_event *event);

/*
 * Zero the struct and set `size`; a member that is zero has the default named
 * here.
 */
struct postern_box_options {
	size_t size;

	/* Open for inspection only, also while another process owns the store;
	   every call that would write fails with POSTERN_E_UNSUPPORTED. */
	bool read_only;
	/* Fail with POSTERN_E_NOTFOUND instead of creating the store's file, or
	   its schema. */
	bool must_exist;
	/* Fail with POSTERN_E_UNSUPPORTED instead of upgrading an older
	   schema. */
	bool no_migrate;

	size_t max_message_size; /* 1 MiB: the longest body that is accepted */
	uint32_t batch_size;     /* 100: deliveries per claim */
	/* How long a write may wait for the store; 30 s. */
	int64_t command_timeout_ms;
	/* Leased deliveries that this process keeps in memory, in count (10,000)
	   and bytes (64 MiB). Beyond either limit, deliveries stay in the store
	   until there is room. */
	uint32_t run_queue_max;
	size_t run_queue_bytes_max;

	enum postern_require_inbox require_inbox;
	enum postern_orphans orphans;

	enum postern_processing processing;
	/* The processing lock: "InboxProcessor_default". */
	const char *lock_name;
	/* After waiting this long for the lock the node reports that another node
	   holds it, and waits on; 60 s. */
	int64_t lock_acquire_timeout_ms;
	/* How long this node stays live, and keeps the lock, after its last
	   renewal; 15 s. In a store that only one process can open, 0 means no
	   node lease. */
	int64_t node_lease_ms;

	/* The cleanup lock: "InboxCleanup_default". */
	const char *cleanup_lock_name;
	/* 10,000: the most messages or ids that one cleanup commit removes; a
	   commit also ends after 16 MiB of bodies, and is smaller if the last one
	   took long. */
	uint32_t cleanup_batch;

	/* The first subscriber: it also receives the events of
	   postern_box_open(); may be NULL. */
	postern_listener *listener;
	void *listener_context;
	enum postern_level listener_level; /* POSTERN_LEVEL_INFO */

	/* NULL: the system's. Both must outlive the box. */
	const struct postern_clock *clock;
	const struct postern_random *random;

	/* How often a call of the store is retried if its connection was lost or
	   refused; 3; negative: never. A wrong password or database fails at
	   once. */
	int32_t command_retries;
	/* PostgreSQL only. An option that the URL contains too must have the same
	   value there. */
	const char *schema;     /* "postern" */
	uint32_t connections;   /* 8: the most open at the same time */
	const char *listen_url; /* where to wait for notifications, to bypass a
							   pooler; default: the URL of the store */

	/* This process accepts messages and runs no handlers, as a command that
	   sends one: its start recovers no leases of others, unparks no messages
	   and looks for no orphans, all of which take longer the more is open. The
	   processes that run handlers do so. */
	bool accepts_only;
};

/*
 * Open a box on a store: "memory:", "sqlite:FILE" or
 * "postgres://USER@HOST/DATABASE" (libpq's URL, or behind "postgres:" its other
 * form, "host=… dbname=…"). A box whose channels store no messages (enum
 * postern_channel_mode) also opens on "redis://…" (postern/redis.h), or on
 * "none:", without a store.
 *
 * An SQLite file is created if it is missing, is upgraded to this version's
 * schema, and is owned by this process until the box is destroyed; leases of a
 * former owner are recovered. In PostgreSQL only the schema is created, if the
 * role is allowed to, and any number of processes share it; all should add the
 * same channels and handlers. The leases of a node that has not renewed for
 * node_lease_ms are recovered by the other nodes.
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
 *   POSTERN_E_UNSUPPORTED  the schema is of another version, or the settings
 *                          of the server do not allow durable commits
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
	POSTERN_CONFLICT_IGNORE,     /* POSTERN_E_DUPLICATE to the sender */
	/* As REJECT, also under a key rule other than `id`, where 0 means IGNORE:
	   events that are published again often differ in a time. */
	POSTERN_CONFLICT_REJECT_ALWAYS
};

/* A message in which a key rule finds no key. */
enum postern_missing_key {
	POSTERN_MISSING_KEY_REJECT = 0, /* POSTERN_E_INVALID to the sender */
	POSTERN_MISSING_KEY_PROCESS     /* accepted, and never a duplicate */
};

#define POSTERN_KEY_RULE_COUNT_MAX 32

/*
 * What makes the dedupe key of messages of some types: of two messages of a
 * channel with the same key, the second is a duplicate.
 *
 *   id              the message's id, with its source
 *   header:NAME     a header, whatever the case of its name
 *   correlation-id  the correlation id
 *   composite       the handler's key and the correlation id
 *   json:/POINTER   a value of the body (RFC 6901); a number is its text
 *   hash:body       the body
 *   callback        the answer of key_callback; only in programs
 *   RULE+RULE       several together, except id, hash:body and callback
 *
 * Only under `id` the source is a part of the key. Never changes: programs
 * allocate arrays of rules.
 */
struct postern_key_rule {
	const char *type; /* a pattern; NULL: messages that no other rule matches */
	const char *rule;
};

/* How the messages of a channel reach its handlers. */
enum postern_channel_mode {
	/* They are stored, and delivered afterwards. */
	POSTERN_MODE_INBOX = 0,
	/* The handlers run before the message is answered, each under a marker of
	   the message's key (guard.h), which is all that is stored. The sender
	   keeps its retries. */
	POSTERN_MODE_GUARD,
	/* The same without markers: a copy runs again. */
	POSTERN_MODE_DIRECT
};

#define POSTERN_GUARDED_COUNT_MAX 64

/* Zero the struct and set `size`; zeroes are the defaults. */
struct postern_channel_options {
	size_t size;
	enum postern_unrouted unrouted;
	enum postern_on_conflict on_conflict;
	/* The same as POSTERN_MODE_DIRECT. */
	bool without_inbox;
	/* Exempts this channel from require_inbox. */
	bool allow_without_inbox;
	size_t max_message_size; /* 0: the box's */
	/*
	 * How long a message is kept after its last delivery has ended (poisoned
	 * and parked ones are always kept), and how long its id is remembered, so
	 * that a late copy is still a duplicate. 0: forever. The id must be
	 * remembered at least as long as the message: dedupe >= payload.
	 */
	int64_t retention_payload_ms;
	int64_t retention_dedupe_ms;
	const struct postern_policy *policy; /* NULL: postern_policy_init() */
	/* Names that the channel had before: they still accept messages, and its
	   identities and open deliveries go on. */
	const char *const *former_names;
	size_t former_name_count;
	/* The first rule whose pattern matches; none: `id`. Keys of rules with
	   different patterns are different keys. */
	const struct postern_key_rule *key_rules;
	size_t key_rule_count;
	enum postern_missing_key missing_key;
	enum postern_channel_mode mode;
	/* Only in POSTERN_MODE_GUARD: guard messages of these types (patterns), and
	   these handlers (keys); what neither names is direct. Neither given:
	   guard everything. */
	const char *const *guarded_types;
	size_t guarded_type_count;
	const char *const *guarded_handlers;
	size_t guarded_handler_count;
	/* A name, as a handler's key: all handlers with this name share one marker
	   for a message, and the first to succeed does it for all of them. NULL:
	   each handler has a marker of its own. */
	const char *marker;
	/* 10 s: how long a copy waits for the one that is running; negative: not at
	   all. */
	int64_t guard_wait_ms;
	/* Where postern_box_fault() publishes; NULL: nowhere. */
	const char *fault_channel;
	/* For the rule `callback` of key_rules. */
	postern_key_callback *key_callback;
	void *key_context; /* passed to it; owned by the caller */
};

#define POSTERN_FORMER_NAME_COUNT_MAX 16

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
 * Confirm that the key rules of a channel and its handlers may differ from
 * those in the store. Without it postern_box_start() refuses a changed rule
 * with POSTERN_E_CONFLICT if the channel has accepted messages, because copies
 * of these would not be recognised. Before postern_box_start() only.
 *
 * Returns POSTERN_OK, or POSTERN_E_NOTFOUND: no such channel.
 */
POSTERN_EXPORT int postern_box_accept_key_change(struct postern_box *box,
		const char *channel, struct postern_error *error);

/*
 * Add a handler to a channel. Before postern_box_start() only.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_NOTFOUND     no such channel
 *   POSTERN_E_INVALID      no key, a key that is in use, no kind or more than
 *                          one, an invalid policy
 *   POSTERN_E_UNSUPPORTED  not supported by the store (transactional on
 *                          memory:)
 */
POSTERN_EXPORT int postern_box_add_handler(struct postern_box *box,
		const char *channel, const struct postern_handler_options *options,
		struct postern_error *error);

/*
 * Register the channels and handlers in the store, so that messages can be
 * accepted.
 *
 * Resolves every key to its handler id (legacy keys to the same one), unparks
 * messages that a handler now wants, and checks for orphaned handlers: with
 * `orphans: fail` it fails with POSTERN_E_INVALID, otherwise it reports them
 * as events. Two handlers whose keys resolve to one handler id are refused
 * with POSTERN_E_INVALID.
 */
POSTERN_EXPORT int postern_box_start(struct postern_box *box,
		struct postern_error *error);

/*
 * Changing channels and handlers while the box works.
 *
 * A generation is a complete set of channels and handlers. The box starts with
 * the ones added to it; another generation can replace them at any time, also
 * while a runner is active:
 *
 *   struct postern_generation *next;
 *   postern_generation_create(box, &next, &error);
 *   postern_generation_add_channel(next, "orders", NULL, &error);
 *   postern_generation_add_handler(next, "orders", &options, &error);
 *   postern_box_replace_taking(box, next, &error);
 *
 * If a call before the last one fails, postern_generation_destroy(next).
 *
 * Runs that have started end under the generation they started with. From the
 * return of postern_box_replace_taking() on, no run starts under the old one,
 * and messages are routed by the new one; what the old one had leased and not
 * started is claimed again. A handler that is not in the new generation leaves
 * its open deliveries to other nodes, or becomes an orphan (`orphans`). A
 * handler with a new key and the old one as a legacy key continues it.
 *
 * Contexts of callbacks of the old generation must stay valid until its last
 * run has ended: until the box is destroyed, to be certain.
 */
struct postern_generation;

/* Create an empty generation; end it with postern_box_replace_taking() or
   postern_generation_destroy(). */
POSTERN_EXPORT int postern_generation_create(struct postern_box *box,
		struct postern_generation **out, struct postern_error *error);
/* As postern_box_add_channel(). */
POSTERN_EXPORT int
postern_generation_add_channel(struct postern_generation *generation,
		const char *name, const struct postern_channel_options *options,
		struct postern_error *error);
/* As postern_box_add_handler(). */
POSTERN_EXPORT int
postern_generation_add_handler(struct postern_generation *generation,
		const char *channel, const struct postern_handler_options *options,
		struct postern_error *error);
/* Destroy a generation that was never put in place. NULL is fine. */
POSTERN_EXPORT void postern_generation_destroy(
		struct postern_generation *generation);
/*
 * Put a generation in place of the current one, and become its owner, also on
 * failure: then the current one stays in place.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_INVALID      the box was not started, or what
 *                          postern_box_start() refuses
 *   POSTERN_E_BUSY         called from inside a transactional handler
 *   POSTERN_E_UNAVAILABLE  the store cannot be written, or this node's lease
 *                          has expired; try again
 */
POSTERN_EXPORT int postern_box_replace_taking(struct postern_box *box,
		struct postern_generation *next, struct postern_error *error);

/* The result of accepting one message. Never changes: programs allocate arrays
   of receipts. */
struct postern_receipt {
	/* The message's number; 0 unless accepted, duplicate or conflict, and
	   for a message that was dropped as unrouted. */
	int64_t seq;
	/* error.code: POSTERN_OK accepted, POSTERN_E_DUPLICATE,
	   POSTERN_E_CONFLICT, or why it was rejected. The text of POSTERN_OK is
	   empty, or says why the message is parked. */
	struct postern_error error;
};

/*
 * Accept one message.
 *
 * When this returns POSTERN_OK the message and one delivery per handler that
 * wants it are durable, and the caller may acknowledge it to its sender.
 * POSTERN_E_DUPLICATE means that an earlier call did that: acknowledge.
 *
 * message  borrowed for the duration of the call.
 * seq_out  may be NULL; set on POSTERN_OK, POSTERN_E_DUPLICATE and
 *          POSTERN_E_CONFLICT to the number of the message first accepted.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_DUPLICATE    accepted before; nothing was stored except
 *                          deliveries to handlers added since
 *   POSTERN_E_CONFLICT     accepted before with another body, which is kept
 *   POSTERN_E_NOTFOUND     no such channel
 *   POSTERN_E_INVALID      exceeds a limit of message.h, or is unrouted and
 *                          the channel rejects that
 *   POSTERN_E_BUSY         called from inside a transactional handler
 *   POSTERN_E_TIMEOUT      the store's writer was busy for command_timeout_ms
 *   POSTERN_E_UNAVAILABLE  the store cannot write; do not acknowledge
 */
POSTERN_EXPORT int postern_box_accept(struct postern_box *box,
		const char *channel, const struct postern_message *message,
		int64_t *seq_out, struct postern_error *error);

/*
 * Accept many messages in as few commits as possible, with a receipt each.
 * The same id twice in one batch is accepted once and is then a duplicate.
 *
 * receipts_out  `count` of them, all written on POSTERN_OK.
 *
 * Returns POSTERN_OK if every message has its receipt; otherwise no message
 * was accepted (no such channel, more than POSTERN_ACCEPT_BATCH_MAX, called
 * from inside a transactional handler).
 */
POSTERN_EXPORT int postern_box_accept_batch(struct postern_box *box,
		const char *channel, const struct postern_message *messages,
		size_t count, struct postern_receipt *receipts_out,
		struct postern_error *error);

/*
 * Called once per message passed to postern_box_accept_async(), on the thread
 * that committed it. It must return quickly and must not call functions of the
 * box. The receipt is valid until it returns.
 */
typedef void postern_accepted(void *context,
		const struct postern_receipt *receipt);

/*
 * Accept one message without waiting. The message is copied. On POSTERN_OK
 * `done` will be called exactly once, possibly before this returns; on any
 * other result it is never called. Needs a runner, or calls of
 * postern_box_commit(), to commit. POSTERN_E_BUSY: 100,000 messages or 256 MiB
 * are waiting already, retry later; or called from inside a transactional
 * handler.
 */
POSTERN_EXPORT int postern_box_accept_async(struct postern_box *box,
		const char *channel, const struct postern_message *message,
		postern_accepted *done, void *context, struct postern_error *error);

/* Headers of a message that was quarantined by a source (postern/source.h): why
   it could not be accepted, and the id and the time it had, if they could not
   be kept. A body over the limit is not quarantined. */
#define POSTERN_QUARANTINE_REASON "postern-quarantine-reason"
#define POSTERN_QUARANTINE_ID "postern-quarantine-id"
#define POSTERN_QUARANTINE_TIME "postern-quarantine-time"
#define POSTERN_QUARANTINE_BODY_LEN_MAX ((size_t)16 * 1024 * 1024)

/* The type of a fault event. */
#define POSTERN_FAULT_TYPE "postern.fault"

/*
 * Publish that a transport has given up a message of a channel: a fault event,
 * to the channel's fault_channel. It has the id, the source and the body of the
 * message, the type POSTERN_FAULT_TYPE, and the headers postern-fault-channel,
 * -type, -reason and -attempts. The same message given up again is published
 * once.
 *
 * attempts  how often the message was delivered.
 * reason    why it was given up; may be NULL.
 *
 * Returns POSTERN_OK, also if the channel has no fault_channel, and then
 * nothing is published; or
 *   POSTERN_E_NOTFOUND  no such channel
 *   any other           as postern_box_accept()
 */
POSTERN_EXPORT int postern_box_fault(struct postern_box *box,
		const char *channel, const struct postern_message *message,
		uint32_t attempts, const char *reason, struct postern_error *error);

/*
 * Processing without a runner (cron, serverless, tests): the steps of a
 * runner's threads, one call each. Accepts may be called in between.
 */

/* Write all queued accepts and settlements, in group commits. Sets
 *count_out (may be NULL) to how many items were written. */
POSTERN_EXPORT int postern_box_commit(struct postern_box *box,
		size_t *count_out, struct postern_error *error);

/* Claim up to `max` due deliveries and queue them to be run. */
POSTERN_EXPORT int postern_box_claim(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error);

/* Run up to `max` of the queued deliveries on this thread. Their settlements
   are durable after the next commit. Runs of asynchronous kinds, programs among
   them, may be in progress when this returns. */
POSTERN_EXPORT int postern_box_run(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error);

/* Recover the deliveries of expired nodes, report runs that are stuck, cancel
   those that are past their timeout. */
POSTERN_EXPORT int postern_box_sweep(struct postern_box *box, size_t *count_out,
		struct postern_error *error);

/* What a cleanup removed. Set `size`; the rest is written. */
struct postern_cleanup {
	size_t size;
	uint64_t messages;
	uint64_t keys; /* remembered ids */
	/* Another cleanup is in progress and removes the rest. */
	bool busy;
	/* The box's runner stops: the next cleanup removes the rest. */
	bool stopped;
};

/* Remove what the retention of the channels allows, in bounded batches, under
   the cleanup lock. Returns POSTERN_OK early when the box's runner stops. */
POSTERN_EXPORT int postern_box_cleanup(struct postern_box *box,
		struct postern_cleanup *out, struct postern_error *error);

/*
 * Claim, run and commit until nothing is due or `max` deliveries (0: no
 * limit) were run. Leases that were not used are returned. Never poisons
 * orphans. Callbacks are not cancelled: one that is past its timeout counts as
 * failed when it returns.
 */
POSTERN_EXPORT int postern_box_process(struct postern_box *box, size_t max,
		size_t *count_out, struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
