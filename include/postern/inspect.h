/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_INSPECT_H
#define POSTERN_INSPECT_H

/*
 * Inspection of a box, and the changes that an operator may make. Everything
 * here also works on a box that was opened read-only, except retry, discard,
 * pause and resume.
 *
 * What is returned is allocated by the library, and later versions add members:
 * at the end of a struct that is returned by itself, and in the place of
 * `reserved` where structs form an array. So a program must not copy these
 * structs, or read `reserved`.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POSTERN_LIST_LIMIT_DEFAULT 100
#define POSTERN_LIST_LIMIT_MAX 10000
#define POSTERN_CURSOR_LEN_MAX 64
#define POSTERN_FILTER_ID_COUNT_MAX 1000
#define POSTERN_FILTER_ERROR_LEN_MAX 200

enum postern_state {
	POSTERN_STATE_ANY = 0, /* in filters */
	POSTERN_STATE_PENDING,
	POSTERN_STATE_LEASED,
	POSTERN_STATE_DONE,
	POSTERN_STATE_POISONED,
	POSTERN_STATE_DISCARDED,
	POSTERN_STATE_PARKED,
	POSTERN_STATE_RETRYING, /* in filters: pending with failures */
	/* What people are shown, derived from pending and leased; also in
	   filters. */
	POSTERN_STATE_WAITING, /* pending, and due later */
	/* Due, and its handler is held: see `reason`; or due later, and its handler
	   is broken. */
	POSTERN_STATE_HELD,
	POSTERN_STATE_QUEUED,  /* leased, and its run has not started */
	POSTERN_STATE_RUNNING, /* its run has started */
	POSTERN_STATE_STUCK    /* it runs for longer than its lease */
};

/* "pending", "leased", …; NULL for POSTERN_STATE_ANY and unknown numbers. */
POSTERN_EXPORT const char *postern_state_name(enum postern_state state);

/* The state with this name, or POSTERN_STATE_ANY. */
POSTERN_EXPORT enum postern_state postern_state_parse(const char *name);

/* Zero the struct and set `size`; a member that is zero or NULL matches
   everything. */
struct postern_filter {
	size_t size;
	enum postern_state state;
	const char *channel;
	const char *handler; /* a key or a legacy key */
	const char *type;    /* a pattern */
	int64_t since_ms;    /* received at or after, ms since 1970 */
	int64_t until_ms;    /* received before */
	const char *message_id;
	const char *source;
	int64_t seq;
	uint32_t limit;     /* 0: POSTERN_LIST_LIMIT_DEFAULT */
	const char *cursor; /* where the last listing ended; NULL: the newest */
	bool oldest;        /* oldest message first */
	const char *error;  /* a text in the last error, regardless of case */
	uint64_t group;     /* of the last error, as in struct postern_row */
	/* Any of these ids; at most POSTERN_FILTER_ID_COUNT_MAX. */
	const char *const *message_ids;
	size_t message_id_count;
};

/* One delivery in a listing. Texts are valid as long as the listing. */
struct postern_row {
	int64_t seq;
	const char *message_id;
	const char *source;
	const char *channel;
	const char *handler; /* "" for a parked message */
	const char *type;
	enum postern_state state;
	uint32_t failures;
	uint32_t starts;
	uint32_t crashes;
	uint64_t fence;
	int64_t received_at_ms;
	int64_t next_at_ms;     /* pending: when it is due; else 0 */
	int64_t leased_at_ms;   /* leased: since when; else 0 */
	int64_t finished_at_ms; /* done, poisoned, discarded; else 0 */
	const char *last_error; /* NULL if none */
	/* What people are shown: `state`, or a state derived from it. A leased
	   delivery stays POSTERN_STATE_LEASED if its node is not known. */
	enum postern_state shown;
	/* Of the current or next run: failures + 1. Of a delivery that ended as
	   poisoned or discarded: failures. */
	uint32_t attempt;
	uint32_t max_attempts; /* 0: this process does not have the handler */
	uint32_t returns;      /* open: how often its lease was returned to idle
							  nodes; such starts are not counted */
	uint64_t group;        /* of the last error; 0: none */
	/* Held, or queued and not started: "paused", "broken", "rate", …, and until
	   when (0: not known); of a broken handler when it is probed next. "pull"
	   of a pending delivery that waits for a worker, while none does for it. */
	const char *reason; /* NULL if there is none */
	int64_t until_ms;
	/* Leased: the node, and its process (NULL and 0 if not known). */
	uint64_t node;
	const char *host;
	int64_t pid;
	int64_t started_at_ms; /* running: since when; else 0 */
	/* Leased: when the node last reported what it runs; 0: not known. */
	int64_t reported_at_ms;
	int64_t handler_id; /* the store's number of the handler; 0: parked */
	/* Held: why (an error, the words of the operator) and by whom, NULL if not
	   known, and since when; as in the statistics of the handler. */
	const char *held_reason;
	const char *held_by;
	int64_t held_at_ms;
	uint64_t reserved[2];
};

struct postern_listing;

/*
 * List deliveries, newest message first.
 *
 * filter  may be NULL. With a derived state (POSTERN_STATE_WAITING, …) a call
 *         examines at most POSTERN_LIST_LIMIT_MAX deliveries: a page may have
 *         fewer rows than the limit, or none, and a cursor to continue.
 * out     yours; end it with postern_listing_destroy().
 *
 * POSTERN_E_INVALID: the cursor is invalid, or the filter exceeds a limit.
 * POSTERN_E_NOTFOUND: neither the store nor this process has the handler or the
 * channel of the filter; so for the other functions with a filter.
 */
POSTERN_EXPORT int postern_box_list(struct postern_box *box,
		const struct postern_filter *filter, struct postern_listing **out,
		struct postern_error *error);
POSTERN_EXPORT size_t postern_listing_count(
		const struct postern_listing *listing);
POSTERN_EXPORT const struct postern_row *
postern_listing_get(const struct postern_listing *listing, size_t index);
/* The cursor of the next page, or NULL after the last one. */
POSTERN_EXPORT const char *postern_listing_cursor(
		const struct postern_listing *listing);
POSTERN_EXPORT void postern_listing_destroy(struct postern_listing *listing);

/* One attempt of a delivery. */
struct postern_attempt {
	uint64_t fence;
	int64_t started_at_ms;
	int64_t finished_at_ms;
	const char *outcome; /* "done", "retry", "snooze", "poison", "discard",
							"hold", "timeout", "crash", "lost", "returned",
							"cancelled" */
	const char *error;   /* NULL if none */
	uint64_t reserved[8];
};

/* Attempts kept per delivery, the latest. */
#define POSTERN_ATTEMPTS_KEPT 50
/* Conflicts kept per message. */
#define POSTERN_CONFLICTS_KEPT 10

struct postern_delivery_detail {
	struct postern_row row;
	const struct postern_attempt *attempts; /* oldest first */
	size_t attempt_count;
	uint64_t reserved[8];
};

struct postern_conflict {
	int64_t at_ms;
	size_t body_len;
	const char *transport;
	uint64_t reserved[8];
};

/* A message with its deliveries, attempts and conflicts. */
struct postern_detail {
	int64_t seq;
	const char *channel;
	const struct postern_message *message;
	int64_t completed_at_ms; /* when the last delivery ended; 0: not yet */
	uint64_t duplicate_count;
	int64_t duplicate_at_ms; /* the last one; 0: none */
	uint64_t conflict_count;
	const struct postern_conflict *conflicts;
	size_t conflict_kept;
	const struct postern_delivery_detail *deliveries;
	size_t delivery_count;
};

/* Get a message by its number. End *out with postern_detail_destroy().
   POSTERN_E_NOTFOUND: no such message. */
POSTERN_EXPORT int postern_box_get(struct postern_box *box, int64_t seq,
		struct postern_detail **out, struct postern_error *error);
POSTERN_EXPORT void postern_detail_destroy(struct postern_detail *detail);

/*
 * Find the numbers of the messages with this id.
 *
 * source, channel  may be NULL: any.
 * seqs             room for `max` numbers, newest first.
 * count_out        how many were written.
 */
POSTERN_EXPORT int postern_box_find(struct postern_box *box, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error);

struct postern_channel_stats {
	const char *name;
	/* Counted for as long as the store exists. */
	uint64_t accepted;
	uint64_t duplicates;
	uint64_t conflicts;
	uint64_t dropped; /* unrouted and not kept */
	uint64_t parked;  /* now */
	/* Messages published in a transaction, now: not accepted yet, and kept
	   because they were refused. */
	uint64_t staged;
	uint64_t refused;
	/* Running nodes that have the channel, counted where messages can be
	   staged (PostgreSQL). Without one, staged messages wait. */
	uint64_t nodes;
	bool registered;           /* this process has the channel */
	bool closed;               /* an operator closed the intake */
	const char *closed_reason; /* NULL: none */
	const char *closed_by;
	int64_t closed_at_ms;
	uint64_t reserved[12];
};

struct postern_handler_stats {
	const char *key;
	const char *channel; /* "" if this process does not know it */
	bool registered;     /* by this process */
	bool paused;
	/* Now. */
	uint64_t pending;
	uint64_t retrying; /* the part of pending that has failed before */
	uint64_t leased;
	uint64_t poisoned;
	int64_t oldest_pending_at_ms; /* when the oldest was received; 0: none */
	/* Counted for as long as the store exists. */
	uint64_t done;
	uint64_t discarded;
	/* Why no delivery of it starts now: "paused", "broken", "rate", …; NULL:
	   they start. And until when (0: not known; of a broken handler when it is
	   probed next), since when, why and by whom. */
	const char *held;
	int64_t held_until_ms;
	int64_t held_at_ms;
	const char *held_reason; /* NULL: none */
	const char *held_by;
	/* Now, parts of pending and leased. Of a broken handler none is waiting. */
	uint64_t waiting;
	uint64_t queued;
	uint64_t running;
	uint64_t stuck;
	int64_t oldest_open_at_ms; /* pending or leased; when it was received */
	/* Counted as `done`: leases that were returned to idle nodes. */
	uint64_t returned;
	/* Running nodes that have the handler, counted in stores that several nodes
	   share. */
	uint64_t nodes;
	uint64_t reserved[20];
};

/* A node of the store. A late one is listed until another node has recorded it
   as expired and recovered its leases. */
struct postern_node_stats {
	uint64_t node; /* a random number */
	bool own;      /* the node of this box */
	/* The node processes, is idle and waits for notifications; never true in a
	   store without notifications. */
	bool sleeping;
	bool processor; /* it holds the processing lock */
	int64_t renewed_at_ms;
	int64_t lives_until_ms; /* end of its lease; 0: it has no lease */
	uint64_t leased;        /* deliveries, now */
	/* The host name and the process id; NULL and 0 if not known. */
	const char *host;
	int64_t pid;
	uint64_t reserved[16];
};

/* A lock that is held. */
struct postern_lock_stats {
	const char *name;
	uint64_t node; /* its owner */
	int64_t held_until_ms;
	uint64_t reserved[8];
};

/* A key or legacy key that is stored, and the key of the handler that it
   resolves to. */
struct postern_key_stats {
	const char *key;
	const char *handler;
	uint64_t reserved[8];
};

/* A name that a channel has or had, and the name it has now. */
struct postern_name_stats {
	const char *name;
	const char *channel;
	uint64_t reserved[8];
};

struct postern_stats {
	const char *store; /* the kind: "sqlite", "memory" */
	const struct postern_channel_stats *channels;
	size_t channel_count;
	const struct postern_handler_stats *handlers;
	size_t handler_count;
	/* The store's clock, which decides whether nodes and locks have expired. */
	int64_t now_ms;
	const struct postern_node_stats *nodes; /* by their number */
	size_t node_count;
	const struct postern_lock_stats *locks; /* by name */
	size_t lock_count;
	const struct postern_key_stats *keys;
	size_t key_count;
	const struct postern_name_stats *names; /* of channels */
	size_t name_count;
};

/* Count everything. End *out with postern_stats_destroy(). */
POSTERN_EXPORT int postern_box_stats(struct postern_box *box,
		struct postern_stats **out, struct postern_error *error);
POSTERN_EXPORT void postern_stats_destroy(struct postern_stats *stats);

/*
 * Errors in groups: deliveries that are open or poisoned and whose last error
 * has the same text but for numbers, ids and quoted values.
 */
struct postern_group {
	uint64_t group; /* 0: all that exceed POSTERN_GROUP_COUNT_MAX */
	const char *handler;
	uint64_t count;
	int64_t first_at_ms;
	int64_t last_at_ms;
	const char *example; /* one of the errors */
	uint64_t reserved[8];
};

/* Groups that a store keeps an example of. */
#define POSTERN_GROUP_COUNT_MAX 1000

struct postern_groups;

/* Count the deliveries that match the filter (state, channel, handler, error,
   group; NULL: all) by the group of their last error, most first. End *out with
   postern_groups_destroy(). */
POSTERN_EXPORT int postern_box_groups(struct postern_box *box,
		const struct postern_filter *filter, struct postern_groups **out,
		struct postern_error *error);
POSTERN_EXPORT size_t postern_groups_count(const struct postern_groups *groups);
POSTERN_EXPORT const struct postern_group *
postern_groups_get(const struct postern_groups *groups, size_t index);
POSTERN_EXPORT void postern_groups_destroy(struct postern_groups *groups);

/*
 * Run a delivery again now: a poisoned or discarded one is reopened with no
 * failures (its next run has a higher fence), a pending one becomes due.
 *
 * POSTERN_E_NOTFOUND  no such delivery
 * POSTERN_E_BUSY      the delivery is leased: it runs, or will soon
 * POSTERN_E_INVALID   the delivery is done, or the message is parked
 */
POSTERN_EXPORT int postern_box_retry(struct postern_box *box, int64_t seq,
		const char *handler, struct postern_error *error);

/* End a pending, poisoned or parked delivery without running it. `handler`
   is "" for a parked message. Errors as for retry. */
POSTERN_EXPORT int postern_box_discard(struct postern_box *box, int64_t seq,
		const char *handler, struct postern_error *error);

/*
 * The same for all that match, at most filter->limit (0: 10,000). The filter
 * must have at least one condition. dry_run: only count.
 */
POSTERN_EXPORT int postern_box_retry_all(struct postern_box *box,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out,
		struct postern_error *error);
POSTERN_EXPORT int postern_box_discard_all(struct postern_box *box,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out,
		struct postern_error *error);

/* Stop or continue claims for a handler, durably. Runs in progress finish.
   Repeating the call has no effect. POSTERN_E_NOTFOUND: the key is not
   stored. */
POSTERN_EXPORT int postern_box_pause(struct postern_box *box,
		const char *handler, struct postern_error *error);
POSTERN_EXPORT int postern_box_resume(struct postern_box *box,
		const char *handler, struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
