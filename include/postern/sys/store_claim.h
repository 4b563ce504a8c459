/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_STORE_CLAIM_H
#define POSTERN_SYS_STORE_CLAIM_H

/*
 * Claims of a store: deliveries that are leased to a node, or to a worker
 * outside of the nodes, and the lock under which a node does that. See store.h.
 */

#include <postern/inspect.h>
#include <postern/message.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The owner of every pull lease: a lease for a worker outside of the nodes. It
 * belongs to the delivery, which has its fence and its end. Any node claims and
 * settles under this number, without a lock; the end of a node, an opening of
 * the store and recover() leave such a lease alone. When it has ended, it is
 * still settled under its fence, until a node takes the delivery over;
 * recover() does that an hour later, if no node has the handler.
 */
#define POSTERN_NODE_PULL UINT64_MAX

#define POSTERN_LOCK_NAME_LEN_MAX 200

/*
 * A named lock as its owner knows it. Every acquisition raises its fence, and
 * every change under a lock names the fence: if an owner is suspended past the
 * end of its lock, the store refuses its changes as stale.
 */
struct postern_lock {
	const char *name;
	uint64_t fence;
};

struct postern_want {
	int64_t handler; /* a handler id; its aliases are claimed, too */
	uint32_t max;
	bool in_process;
};

struct postern_claim {
	uint64_t node;
	/* NULL: not needed. If it is lost: POSTERN_E_STALE. */
	const struct postern_lock *lock;
	const struct postern_want *wants;
	size_t want_count;
	size_t max;       /* of all wants together */
	size_t bytes_max; /* stop after the body that exceeds this */
	/* With POSTERN_NODE_PULL: the leases end in so many ms. */
	int64_t lease_ms;
	/* Take over deliveries whose pull lease has ended, in place of pending ones
	   and whether the handler is paused or not: leased to the node, fence + 1,
	   while starts do not change. next_due_ms is the time until the next pull
	   lease ends. */
	bool ended;
};

enum postern_suspicion {
	POSTERN_NO_SUSPECT = 0,
	POSTERN_SUSPECT_GROUP, /* one of several suspects */
	POSTERN_SUSPECT_SOLO   /* the only one: if lost, a crash is counted */
};

struct postern_claimed {
	int64_t seq;
	int64_t handler; /* the id it is stored under */
	size_t want;     /* the index of the want it was claimed for */
	int64_t channel;
	uint64_t fence; /* after this claim */
	uint32_t failures;
	uint32_t breaks;  /* settlements with `broke` since it was opened */
	uint32_t returns; /* settlements with `shared` since it was opened */
	enum postern_suspicion suspicion;
	/* NULL: the message is missing; the caller poisons the delivery. */
	const struct postern_message *message;
	int64_t held_ms; /* with `ended`: since when it had the pull lease */
};

/* A pull lease as its worker names it, and what the store has of it. */
struct postern_pull_row {
	int64_t seq;
	int64_t handler; /* a handler id */
	uint64_t fence;
	/* out */
	/* POSTERN_OK; POSTERN_E_NOTFOUND: there is no such delivery;
	   POSTERN_E_STALE: there is no pull lease under this fence. */
	int code;
	int64_t stored;  /* the id it is stored under */
	int64_t channel; /* of the message; 0: it is missing */
	uint32_t failures;
	uint32_t breaks;
	int64_t held_ms; /* since when it is leased, at least 0 */
	/* Of one that ended under this fence: its state; else ANY. */
	enum postern_state ended;
	const char *message_id; /* NULL: the message is missing */
};

struct postern_claims {
	struct postern_claimed *items;
	size_t count;
	/* Milliseconds until the next pending delivery of a wanted handler that is
	   not paused is due; 0 if some are due that were not claimed, -1 if there
	   is none. */
	int64_t next_due_ms;
	/* Suspects of the wanted in-process handlers that are not claimed. */
	uint64_t suspects_waiting;
};

#ifdef __cplusplus
}
#endif

#endif
