/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_H
#define POSTERN_HANDLER_H

/*
 * A handler: a stable key, the types it wants, a kind (callback, sql, exec, or
 * one that the program has registered: sys/handler.h) and a policy.
 */

#include <postern/error.h>
#include <postern/export.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POSTERN_KEY_LEN_MAX 200
#define POSTERN_LEGACY_KEY_COUNT_MAX 16
#define POSTERN_TYPE_PATTERN_COUNT_MAX 64
#define POSTERN_BACKOFF_COUNT_MAX 64
#define POSTERN_COMMIT_BATCH_MAX 1000
#define POSTERN_ATTEMPTS_MAX 1000000
#define POSTERN_BREAK_AFTER_MAX 1000
#define POSTERN_DEDUPE_COUNT_MAX 10000000
#define POSTERN_RATE_COUNT_MAX 1000000
/* An hour. */
#define POSTERN_RATE_PERIOD_MS_MAX ((int64_t)3600 * 1000)
/* Longest reason kept with an attempt, in bytes. */
#define POSTERN_REASON_LEN_MAX 1000
/* No delay, timeout or lease is longer than this: ten years. */
#define POSTERN_DURATION_MS_MAX ((int64_t)3650 * 24 * 3600 * 1000)

/* How one run of a handler ended. */
enum postern_outcome_kind {
	POSTERN_DONE = 0,
	POSTERN_RETRY,       /* failed; run again after the policy's backoff */
	POSTERN_RETRY_AFTER, /* failed; run again after delay_ms */
	POSTERN_SNOOZE,      /* run again after delay_ms; no failure is counted */
	POSTERN_POISON,      /* failed permanently; a person decides what next */
	POSTERN_DISCARD,     /* not wanted; ends without having been done */
	/* The handler itself is at fault, not this message: no message would
	   succeed now. The policy's on_broken decides; delay_ms is ignored. */
	POSTERN_HOLD
};

/*
 * The outcome of a run, set by a callback. Initially POSTERN_DONE; the reason
 * is a text for people, truncated to fit, with invalid UTF-8 and control
 * characters replaced. The struct never changes.
 */
struct postern_outcome {
	enum postern_outcome_kind kind;
	int64_t delay_ms;
	char reason[POSTERN_REASON_LEN_MAX + 1];
};

/* Set an outcome in one call; `reason` may be NULL and is copied. */
POSTERN_EXPORT void postern_outcome_set(struct postern_outcome *outcome,
		enum postern_outcome_kind kind, int64_t delay_ms, const char *reason);

/* The delivery of a run. Valid until the callback returns. */
struct postern_delivery {
	size_t size;
	int64_t seq;         /* the message's number in the store */
	const char *channel; /* its channel's name */
	const char *handler; /* the handler's key */
	uint32_t attempt;    /* failures so far + 1 */
	uint64_t fence;      /* grows with every run of this delivery */
	int64_t deadline_ms; /* wall clock, ms since 1970; 0: none */
	/*
	 * The open transaction of the store, for transactional handlers: a
	 * sqlite3 * on sqlite:, a PGconn * on postgres:. What is written through
	 * it commits together with this delivery's completion, or not at all.
	 * Never commit or roll back on it. NULL for plain handlers.
	 */
	void *transaction;
};

/*
 * Whether the run should end now: an operator cancelled it, it is past its
 * timeout, or its node stops or has lost its lease. A callback that takes long
 * asks from time to time and returns; its outcome is ignored then. May be
 * called on any thread until the callback returns.
 */
POSTERN_EXPORT bool postern_delivery_cancelled(
		const struct postern_delivery *delivery);

/*
 * A handler in the program itself. Called on a thread of the runner (or on the
 * one that calls postern_box_process), possibly on several threads at once for
 * different deliveries. It must return; it must not throw, longjmp or exit. It
 * may accept messages into the same box, unless it is transactional.
 */
typedef void postern_callback(void *context,
		const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome);

enum postern_poisoned_duplicate {
	POSTERN_POISONED_DUPLICATE_IGNORE = 0,
	POSTERN_POISONED_DUPLICATE_RETRY
};

/* What happens when a handler is at fault itself (POSTERN_HOLD). */
enum postern_on_broken {
	/* The handler is held on this node: one delivery at a time probes it, 1 to
	   10 s apart, until a run succeeds. No failure is counted. */
	POSTERN_ON_BROKEN_HOLD = 0,
	POSTERN_ON_BROKEN_COUNT /* a failure of the message, as POSTERN_RETRY */
};

/* Members of a policy: the default of the handler's kind. */
#define POSTERN_TIMEOUT_DEFAULT ((int64_t)-1)
#define POSTERN_ATTEMPTS_DEFAULT UINT32_MAX
#define POSTERN_CONCURRENCY_DEFAULT UINT32_MAX
#define POSTERN_BACKOFF_DEFAULT SIZE_MAX

/* The default timeout of a transactional handler, which keeps a transaction of
   the store open while it runs. */
#define POSTERN_TRANSACTION_TIMEOUT_MS ((int64_t)5000)

/*
 * When to retry a delivery and when to poison it. Call postern_policy_init(),
 * which sets the defaults named here, and change members afterwards. Those of
 * the handler's kind (POSTERN_…_DEFAULT) become numbers when the handler is
 * added.
 */
struct postern_policy {
	size_t size;
	/* In total; 0 means 1. POSTERN_ATTEMPTS_DEFAULT: 5, unless the kind has
	   another default. */
	uint32_t max_attempts;
	uint32_t max_crashes; /* 3: runs during which the process died */
	/*
	 * The delay after the n-th failure is base/2 + random(0..base/2), where
	 * base is min(2^n seconds, max_retry_delay_ms). With a list, the n-th
	 * entry (the last one from then on) is the delay. A count of
	 * POSTERN_BACKOFF_DEFAULT: the kind's list, if it has one.
	 */
	int64_t max_retry_delay_ms; /* 5 minutes */
	const int64_t *backoff_ms;
	size_t backoff_count;
	/* POSTERN_TIMEOUT_DEFAULT: none, or 5 s for a transactional handler, unless
	   the kind has another default; 0: none. Must be less than lease_ms. */
	int64_t timeout_ms;
	int64_t lease_ms; /* 5 minutes: a longer run is reported as stuck */
	/* 0: as many as the runner has `workers`; of an asynchronous kind, the
	   kind's default. POSTERN_CONCURRENCY_DEFAULT: exec 16, other kinds 0,
	   unless they have another default. */
	uint32_t concurrency;
	uint32_t commit_batch; /* 1: deliveries of a sql handler per commit */
	enum postern_poisoned_duplicate on_poisoned_duplicate; /* ignore */
	/* At most rate_count runs start in rate_period_ms, on all nodes of the
	   store together, and at most rate_burst (0: as many) at once; a count of
	   0: no limit. */
	int64_t rate_period_ms;
	uint32_t rate_count;
	uint32_t rate_burst;
	enum postern_on_broken on_broken; /* hold */
	/* 20: the handler is held, as above, after so many failures in a row of
	   different messages, with no success in between; 0: never. */
	uint32_t break_after;
};

/* The defaults, for a struct of `size` bytes: that of the header the program
   was compiled with. */
POSTERN_EXPORT void postern_policy_init_sized(struct postern_policy *policy,
		size_t size);
static inline void postern_policy_init(struct postern_policy *policy) {
	postern_policy_init_sized(policy, sizeof(*policy));
}

/*
 * The delay before the next attempt after `failures` failures, in ms.
 * `random` is any 64-bit number; the result is never negative and never over
 * max_retry_delay_ms (or the longest entry of the list).
 */
POSTERN_EXPORT int64_t
postern_policy_delay_ms(const struct postern_policy *policy, uint32_t failures,
		uint64_t random);

/* The SQL that a store understands. */
enum postern_sql_dialect {
	POSTERN_SQL_NONE = 0, /* the store has no SQL */
	POSTERN_SQL_SQLITE,
	POSTERN_SQL_POSTGRES
};

/* Where a handler's keys are remembered. */
enum postern_dedupe {
	POSTERN_DEDUPE_STORE = 0,
	/* In this process: fast, and forgotten with it. */
	POSTERN_DEDUPE_MEMORY
};

struct postern_key_rule;

/*
 * The key rule `callback`: writes the key of a message into `key` as snprintf()
 * does, and returns its length; 0 or less: the message has no key. A key of
 * `size` bytes or more, and one with control characters, is refused like one
 * that is too long. Called on the thread that accepts, possibly on several at
 * once, with the message as it was given; it must return the same key for each
 * copy and must not call the box.
 */
typedef int postern_key_callback(void *context,
		const struct postern_message *message, char *key, size_t size);

/*
 * Zero the struct, set `size` and the members you need. Everything is copied.
 * Exactly one of these must be set: callback, sql, exec or kind.
 */

struct postern_handler_options {
	size_t size;

	/*
	 * Stored with every delivery: do not change it later. 1 to 200 bytes of
	 * letters, digits, '-', '_', '.', ':' and '/'. Unique among all keys and
	 * legacy keys of the box.
	 */
	const char *key;
	/* Former keys: deliveries stored under them belong to this handler. */
	const char *const *legacy_keys;
	size_t legacy_key_count;
	/* Patterns of the types it wants; none: every type. '*' matches any
	   sequence of characters. */
	const char *const *types;
	size_t type_count;

	postern_callback *callback;
	void *context; /* passed to the callback; owned by the caller */
	bool transactional;

	/* SQL run in one transaction with the delivery's completion. Named
	   parameters: :id :source :type :subject :time :body :body_json
	   :body_bytes :headers :attempt */
	const char *sql;

	/* A program and its arguments; no shell. */
	const char *const *exec;
	size_t exec_count;

	const struct postern_policy *policy; /* NULL: the channel's */

	/* The name of any kind; `settings` is the struct that the kind documents,
	   borrowed for the call. */
	const char *kind;
	const void *settings;

	/*
	 * What makes a key of its own for this handler, beside that of the channel:
	 * of two messages with the same key it gets the first, and the others are
	 * discarded as "suppressed by #17". As key_rules of struct
	 * postern_channel_options; none: only the channel's.
	 */
	const struct postern_key_rule *key_rules;
	size_t key_rule_count;

	/*
	 * How long the handler's keys are remembered; 0: as the channel says. It
	 * may be shorter or longer than the channel's. In an inbox only for a
	 * handler with a key of its own: a key expires so long after its message
	 * was received, unless the handler's delivery of it is open or poisoned. In
	 * a channel with the mode guard: its markers, so long after they were
	 * written. Removed by the cleanup.
	 */
	int64_t retention_dedupe_ms;

	/* For the rule `callback` of key_rules. */
	postern_key_callback *key_callback;
	void *key_context; /* passed to it; owned by the caller */

	/*
	 * POSTERN_DEDUPE_MEMORY: instead of markers in the store, the handler has a
	 * set in memory of the keys it has done, of at most dedupe_count_max keys
	 * (0: 1,000,000), 32 to 64 bytes each, for retention_dedupe_ms (0: 24
	 * hours). It is forgotten when the process ends, and each process has its
	 * own. For work that is frequent and may be repeated, in channels with the
	 * mode guard; never for a transactional handler.
	 */
	enum postern_dedupe dedupe;
	uint32_t dedupe_count_max;
};

#ifdef __cplusplus
}
#endif

#endif
