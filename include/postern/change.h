/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CHANGE_H
#define POSTERN_CHANGE_H

/*
 * Changes that an operator makes: one function for all of them. The functions
 * of inspect.h for single kinds are shorter forms without a reason.
 *
 *   struct postern_change change = {
 *       .size = sizeof(change),
 *       .kind = POSTERN_CHANGE_PAUSE,
 *       .handler = "mail",
 *       .for_ms = 7200000,
 *       .reason = "smtp down",
 *       .by = "anna",
 *   };
 *   postern_box_change(box, &change, &error);
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <postern/inspect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest reason of a change, and longest name of who made it, in bytes. */
#define POSTERN_CHANGE_REASON_LEN_MAX 500
#define POSTERN_CHANGE_BY_LEN_MAX 100

enum postern_change_kind {
	/* One delivery (seq and handler), or all that match the filter. */
	POSTERN_CHANGE_RETRY,
	POSTERN_CHANGE_DISCARD,
	/* A handler. */
	POSTERN_CHANGE_PAUSE,
	POSTERN_CHANGE_RESUME,
	/* A run in progress (seq and handler), on whatever node. */
	POSTERN_CHANGE_CANCEL,
	/* The intake of a channel: a closed one accepts no messages
	   (POSTERN_E_UNAVAILABLE), and its deliveries go on. */
	POSTERN_CHANGE_CLOSE,
	POSTERN_CHANGE_OPEN
};

/* Zero the struct, set `size` and what the kind needs. */
struct postern_change {
	size_t size;
	enum postern_change_kind kind;
	int64_t seq;
	const char *handler; /* a key or a legacy key; "" for a parked message */
	const char *channel;
	const struct postern_filter *filter; /* NULL: one delivery */
	bool dry_run;                        /* with a filter: only count */
	/* CANCEL: the run counts as no failure. It waits its backoff either way. */
	bool uncounted;
	/* PAUSE: until resumed (0), or until so long from now. At most
	   POSTERN_DURATION_MS_MAX. */
	int64_t for_ms;
	/* Why, and who; for events, the log and stats. NULL: none. Valid UTF-8
	   without control characters, within the limits above. */
	const char *reason;
	const char *by;
	/* out */
	uint64_t count; /* deliveries changed; dry_run: that would be */
	uint64_t total; /* that match, also beyond the limit of the filter */
};

/*
 * Make a change; durable when this returns. Repeating it has no further effect.
 * Its outputs are written on POSTERN_OK.
 *
 * Returns POSTERN_OK, or
 *   POSTERN_E_NOTFOUND  no such delivery, handler or channel in the store
 *   POSTERN_E_BUSY      RETRY, DISCARD: the delivery is leased
 *   POSTERN_E_STALE     CANCEL: the run has ended already, or does not run
 *   POSTERN_E_INVALID   the state does not allow it, or a member breaks a limit
 *   POSTERN_E_UNSUPPORTED  the box is open for reading only
 */
POSTERN_EXPORT int postern_box_change(struct postern_box *box,
		struct postern_change *change, struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
