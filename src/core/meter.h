/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_METER_H
#define POSTERN_CORE_METER_H

/*
 * Counters and histograms of a box, its channels and its handlers. They are
 * updated where the core holds the box's mutex anyway, so that they cost a few
 * additions; metrics.c writes them as text.
 */

#include <stddef.h>
#include <stdint.h>

struct postern__content;
struct postern__channel;
struct postern_box;
struct postern__handler;
struct postern_claimed;
struct postern_run;

#define POSTERN__BUCKET_COUNT 16

/* How many values were at most each bound, and above the bound before it; the
   last bucket has those above all bounds. */
struct postern__histogram {
	uint64_t counts[POSTERN__BUCKET_COUNT + 1];
	uint64_t sum;
};

/* The bounds of durations, in milliseconds, and of the sizes of batches. */
extern const int64_t postern__duration_bounds[POSTERN__BUCKET_COUNT];
extern const int64_t postern__batch_bounds[POSTERN__BUCKET_COUNT];

struct postern__channel_meter {
	uint64_t accepted;
	uint64_t duplicates;
	uint64_t conflicts;
	uint64_t unrouted;     /* parked, dropped or rejected */
	uint64_t missing_keys; /* messages, or deliveries of handlers with a rule */
};

/* How a run ended. */
enum postern__ended {
	POSTERN__ENDED_DONE,
	POSTERN__ENDED_RETRY,
	POSTERN__ENDED_RETRY_AFTER,
	POSTERN__ENDED_SNOOZE,
	POSTERN__ENDED_POISON, /* by its handler, or the last attempt failed */
	POSTERN__ENDED_DISCARD,
	POSTERN__ENDED_HOLD,
	POSTERN__ENDED_CANCELLED, /* by an operator, also the last attempt */
	POSTERN__ENDED_FENCED,    /* its settlement was refused as stale */
	POSTERN__ENDED_COUNT
};

struct postern__handler_meter {
	uint64_t ended[POSTERN__ENDED_COUNT];
	struct postern__histogram duration; /* of runs, in ms */
	struct postern__histogram lag;      /* from accept to start, in ms */
};

struct postern__box_meter {
	struct postern__histogram commit_duration; /* in ms */
	struct postern__histogram batch_size;      /* items of a group commit */
	uint64_t lock_lost;
};

/* With the box's mutex. */
void postern__histogram_add(struct postern__histogram *histogram,
		const int64_t bounds[POSTERN__BUCKET_COUNT], int64_t value);
/* The message has its receipt, or could not be stored. */
void postern__meter_accept(const struct postern__content *content);
/* A group of `count` items was written in this time. */
void postern__meter_commit(struct postern_box *box, size_t count, int64_t ms);
/* The run starts. */
void postern__meter_start(struct postern_run *run);
/* A worker has claimed a delivery of the handler. */
void postern__meter_pulled(const struct postern_box *box,
		struct postern__handler *handler,
		const struct postern_claimed *claimed);
/* Without the mutex: a worker's result came too late. */
void postern__meter_late(struct postern_box *box,
		struct postern__handler *handler);
/* The settlement of the run is durable, or was refused as stale. */
void postern__meter_end(const struct postern_run *run);

/* Without the mutex: the channel rejects a message that no handler wants. */
void postern__meter_reject(struct postern_box *box,
		struct postern__channel *channel);
/* Without the mutex: a key rule finds no key in a message. */
void postern__meter_missing_key(struct postern_box *box,
		struct postern__channel *channel);

#endif
