/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_METRICS_H
#define POSTERN_CORE_METRICS_H

/*
 * Reading the figures of a box (metrics_read.c) and writing them as metrics
 * (metrics.c). Without the mutex.
 */

#include "core/box.h"

#include <postern/source.h>

struct postern__buf;

/* A count in the store. */
struct postern__reading {
	size_t refs;     /* guarded by the box's mutex */
	int64_t at_ms;   /* monotonic: when it was made */
	int64_t next_ms; /* monotonic: when to make the next one */
	struct postern_stats *stats;
};

/* Without references, or NULL. */
void postern__reading_destroy(struct postern__reading *reading);
/* The last count, or a new one if that is due; NULL: the store fails. */
struct postern__reading *postern__reading_acquire(struct postern_box *box);
/* NULL is fine. */
void postern__reading_release(struct postern_box *box,
		struct postern__reading *reading);

/* Why a handler is held. */
enum postern__held {
	POSTERN__HELD_PAUSED,
	POSTERN__HELD_RETRY_AFTER,
	POSTERN__HELD_BROKEN,
	POSTERN__HELD_COUNT
};

struct postern__channel_figures {
	const char *name;
	struct postern__channel_meter meter;
};

struct postern__handler_figures {
	const char *key;
	struct postern__handler_meter meter;
	size_t running;
	bool held[POSTERN__HELD_COUNT];
};

/* A copy of what a box knows at one moment. */
struct postern__figures {
	struct postern_box *box;
	const char *store; /* its name, borrowed */
	/* Names point into it. */
	struct postern_generation *generation;
	struct postern__channel_figures *channels;
	size_t channel_count;
	struct postern__handler_figures *handlers;
	size_t handler_count;
	struct postern__box_meter meter;
	const char *lock; /* the processing lock; NULL: none is used */
	struct postern__reading *reading; /* NULL: the store fails */
	int64_t reading_age_ms;
	struct postern_source_state *sources;
	size_t source_count;
};

/* Read the figures of a box; `store` is the name of its store. */
int postern__figures_read(struct postern_box *box, const char *store,
		struct postern__figures *out, struct postern_error *error);
void postern__figures_finish(struct postern__figures *figures);

/* Append the metrics of several boxes, as one text. */
void postern__metrics_write(struct postern__buf *buf,
		const struct postern__figures *figures, size_t count);

/* The runner's sources can be read from now on. */
void postern__sources_announce(struct postern_box *box,
		postern__read_sources *read, void *context);
/* The sources that were announced with this context end; waits for a call in
   progress. */
void postern__sources_withdraw(struct postern_box *box, const void *context);

#endif
