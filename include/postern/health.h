/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HEALTH_H
#define POSTERN_HEALTH_H

/*
 * Whether a box makes progress: for each handler whether work is due and how
 * long ago a run of it ended on this node.
 *
 * Work is due if a delivery could start now, or waits for runs in progress.
 * Deliveries of a handler that is paused, held by its breaker, or at its rate
 * are not due, and neither is anything while another node holds the processing
 * lock or the runner stops. A run that is past its lease is due: it should have
 * ended. Work of a pull handler is due if a delivery could be claimed and no
 * worker has one leased; each claim of a worker at this node counts as a run
 * that ended.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum postern_health_status {
	POSTERN_HEALTH_OK = 0,
	POSTERN_HEALTH_DEGRADED,
	POSTERN_HEALTH_UNHEALTHY
};

/* "ok", "degraded", "unhealthy"; NULL for unknown numbers. */
POSTERN_EXPORT const char *postern_health_name(
		enum postern_health_status status);

#define POSTERN_HEALTH_DEGRADED_MS ((int64_t)2 * 60 * 1000)
#define POSTERN_HEALTH_UNHEALTHY_MS ((int64_t)5 * 60 * 1000)

/* Zero the struct and set `size`; zeroes are the defaults named here. */
struct postern_health_options {
	size_t size;
	/* How long work may be due without a run having ended: 2 min and 5 min;
	   negative: for ever. */
	int64_t degraded_after_ms;
	int64_t unhealthy_after_ms;
};

struct postern_handler_health {
	const char *key;
	const char *channel;
	enum postern_health_status status;
	bool due;
	/* While work is due: since when no run has ended, at most since it became
	   due; else 0. */
	int64_t inactive_ms;
	uint64_t running; /* runs in progress on this node */
	uint64_t stuck;   /* those of them that are past their lease */
	/* Why no run starts: "paused", "broken", "rate", "lock", "draining"; NULL:
	   runs may start. */
	const char *held;
	/* While it is held: why, such as the last error or the words of the
	   operator (NULL: `held` says it all), and since when by the wall clock, of
	   a pause by the store's (0: not known). */
	const char *reason;
	int64_t since_ms;
	bool pulled; /* workers claim its deliveries: postern/pull.h */
	uint64_t reserved[15];
};

/* Allocated by the library; later versions add members at the end. */
struct postern_health {
	enum postern_health_status status; /* the worst */
	/* The store cannot be written, which is unhealthy. */
	bool store_failing;
	const struct postern_handler_health *handlers;
	size_t handler_count;
};

/*
 * Read the health of a started box. May wait for the store, at most as long as
 * postern_box_stats(), and not while the store fails.
 *
 * options  may be NULL.
 * out      yours; end it with postern_health_destroy().
 *
 * Returns POSTERN_OK whatever the health is, or
 *   POSTERN_E_INVALID  an option is wrong, or the box was not started
 *   POSTERN_E_NOMEM    out of memory
 */
POSTERN_EXPORT int postern_box_health(struct postern_box *box,
		const struct postern_health_options *options,
		struct postern_health **out, struct postern_error *error);
POSTERN_EXPORT void postern_health_destroy(struct postern_health *health);

#ifdef __cplusplus
}
#endif

#endif
