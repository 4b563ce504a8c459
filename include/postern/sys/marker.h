/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_MARKER_H
#define POSTERN_SYS_MARKER_H

/*
 * Markers: what a handler has done, remembered without the message. A marker is
 * a (handler, key) pair, and is
 *
 *   unknown   nobody has done it
 *   running   somebody does it now, under a lease with a fence
 *   done      it was done; only forget() and expire() end that
 *
 * A store that is good for nothing else implements this table. Stores with
 * transactions also run a function whose marker commits with what it writes:
 * postern_unit.mark in sys/store.h.
 *
 * Rules for every operation:
 *
 * - It is atomic and durable to the degree the store promises; if it fails,
 *   nothing changed, unless its comment says otherwise.
 * - It may be called from any thread.
 * - Times are those of the store's clock.
 * - A lease whose end has passed counts as none: the marker is unknown again.
 */

#include <postern/error.h>
#include <postern/export.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POSTERN_MARK_NAME_COUNT_MAX 17

/*
 * A marker has the handler's key and its former keys: it has the state that it
 * has under any of them, and a change is made under all of them, so that nodes
 * with the old key and nodes with the new one cannot both be first.
 */
struct postern_mark {
	const char *const *handlers; /* the present key first; never empty */
	size_t handler_count;
	const void *value; /* the key, any bytes */
	size_t value_len;  /* at least 1 */
};

enum postern_mark_state {
	POSTERN_MARK_UNKNOWN = 0,
	POSTERN_MARK_RUNNING,
	POSTERN_MARK_DONE
};

/*
 * What is done with a marker. `before` is the state it had, for every kind.
 *
 * BEGIN    Become the one who does it: an unknown marker is running under the
 *          fence until lease_ms from now. Another state does not change, and
 *          left_ms is how long its lease lasts (0: done). The caller chooses a
 *          random fence, never 0. Repeated with the same fence because a result
 *          was lost, it renews: `before` is unknown again.
 * EXTEND   Renew the lease for lease_ms from now. POSTERN_E_STALE: it is not
 *          running under this fence, or the lease has ended.
 * FINISH   The marker is done. POSTERN_E_STALE: another fence has it, or it
 * does not exist; nothing changed. A lease that has ended is no obstacle while
 * nobody else has begun. RELEASE  The marker is unknown. POSTERN_E_STALE as for
 * FINISH. TRY      Record that it was done, if it is unknown. RECORD   The same
 * also if it is running, whose lease is lost. READ     Change nothing. FORGET
 * Remove the marker, running or done.
 */
enum postern_mark_kind {
	POSTERN_MARK_BEGIN,
	POSTERN_MARK_EXTEND,
	POSTERN_MARK_FINISH,
	POSTERN_MARK_RELEASE,
	POSTERN_MARK_TRY,
	POSTERN_MARK_RECORD,
	POSTERN_MARK_READ,
	POSTERN_MARK_FORGET
};

struct postern_mark_request {
	enum postern_mark_kind kind;
	uint64_t fence;   /* BEGIN to RECORD */
	int64_t lease_ms; /* BEGIN, EXTEND */
	/* out */
	enum postern_mark_state before;
	int64_t left_ms;
};

#define POSTERN_MARK_CURSOR_LEN 40

/* Removes markers that have been done for longer than older_ms. */
struct postern_mark_expiry {
	const char *handler; /* NULL: of every handler */
	int64_t older_ms;
	size_t max; /* markers examined by one call, about */
	/* Where the last call ended, in a format of the store; initially zero. */
	unsigned char cursor[POSTERN_MARK_CURSOR_LEN];
	/* out */
	uint64_t count; /* removed */
	bool more;
};

struct postern_markers;

#define POSTERN_MARKER_OPS_VERSION 1

struct postern_marker_ops {
	unsigned version; /* POSTERN_MARKER_OPS_VERSION; new slots at the end */
	const char *name; /* of the store: "memory", "redis" */

	int (*change)(struct postern_markers *markers,
			const struct postern_mark *mark,
			struct postern_mark_request *request, struct postern_error *error);

	/* A store that expires markers by itself: POSTERN_E_UNSUPPORTED. */
	int (*expire)(struct postern_markers *markers,
			struct postern_mark_expiry *expiry, struct postern_error *error);

	/* Also called for one that failed to open, never with NULL. NULL if the
	   markers belong to a store, which destroys them. */
	void (*destroy)(struct postern_markers *markers);

	/*
	 * The same as TRY inside an open transaction of somebody else, a handle of
	 * the database's client library: what is written commits or vanishes with
	 * it. NULL: the store has no transactions.
	 *
	 * POSTERN_E_BUSY: another transaction still has the marker after wait_ms.
	 * POSTERN_E_INVALID: the handle has no open transaction, or is not
	 * connected to this store. POSTERN_E_UNSUPPORTED: the store does not take
	 * this handle. If it fails, the transaction is as it was, and can go on.
	 */
	int (*take)(struct postern_markers *markers, void *transaction,
			const struct postern_mark *mark, uint64_t fence, int64_t wait_ms,
			enum postern_mark_state *before_out, struct postern_error *error);
};

/* The common head. An implementation embeds it as the first member, named
   `base`. */
struct postern_markers {
	const struct postern_marker_ops *ops;
};

#ifdef __cplusplus
}
#endif

#endif
