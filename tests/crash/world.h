/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CRASH_WORLD_H
#define POSTERN_TESTS_CRASH_WORLD_H

/*
 * The scenario's world: a box on a store, its handlers, a clock that the
 * scenario advances, and random numbers that are the same in every run of one
 * life. Processes that share a store also share the clock.
 *
 * Every call may fail: it is retried where a client would retry, and the
 * history records the result. Nothing is checked here.
 */

#include <postern/postern.h>
#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "crash/history.h"
#include "support/effects.h"

/* The handlers of a world, chosen when it is opened. */
enum world_cast {
	WORLD_LEDGER = 1, /* transactional, writes an effect */
	WORLD_MAIL = 2,   /* plain */
	WORLD_SUMS = 4,   /* sql, three per commit; writes an effect */
	WORLD_LATE = 8,   /* wants the parked messages */
	WORLD_GONE = 16,  /* is paused, then not configured: its deliveries are
						 orphaned */
	/* Not a handler: only the owner of the lock processes. */
	WORLD_EXCLUSIVE = 32,
	WORLD_ERP = 64 /* a pull handler; not recorded like the others */
};

#define WORLD_URL_MAX 4096
/* The handler of the effects of guarded functions, which the checker does not
   know. */
#define WORLD_JOB "job"

struct world {
	const char *path; /* the store's file, or its URL */
	char url[WORLD_URL_MAX];
	struct effects effects;
	int life;
	int opening; /* how often the box was opened in this life */
	struct history history;
	bool forgets; /* with retention */
	bool pulls;   /* what is open at the end is pulled, too */
	struct postern_box *box;
	struct postern_clock clock;
	struct postern_random random;
	atomic_llong *offset_ms; /* of the clock */
	atomic_llong own_offset_ms;
	bool flowing; /* the clock also advances with real time */
	uint64_t dice;
};

/* How long complete messages are kept, and their ids. */
#define WORLD_PAYLOAD_MS 3600000
#define WORLD_DEDUPE_MS 7200000

/* SCENARIO_CLOCK names a file that is the clock of several worlds. */
void world_init(struct world *world, const char *path, const char *history,
		int life, bool forgets, bool shared);
void world_finish(struct world *world);

/* Advance the clock. */
void world_wait(struct world *world, int64_t ms);

/* Open the box with these handlers and start it; ends the program with status 3
   if that keeps failing. */
void world_open(struct world *world, unsigned cast);
/* Change a marker, each way, and run functions under a guard. */
void world_mark(struct world *world);
/* The same on a shared file, beside its owner, also on a connection of the
   program. */
void world_mark_shared(struct world *world);
/* End the program with status 3 if a marker is done without the effect of its
   function, or the other way round. finish: make sure first that all are
   done. */
void world_check_marks(struct world *world, bool finish);
/* Replace the generation of the open box by one with this cast. */
void world_replace(struct world *world, unsigned cast);
void world_close(struct world *world);

/* Send one message, again while that fails. The body selects what its handlers
   do: see set_outcome() in world.c. */
void world_send(struct world *world, const char *channel, const char *id,
		const char *type, const char *body);
/* Send without waiting; the receipt follows with a commit. */
void world_send_async(struct world *world, const char *channel, const char *id,
		const char *type, const char *body);

/* Publish a message in a transaction of its own, if the store supports that;
   there is no receipt. */
void world_publish(struct world *world, const char *channel, const char *id,
		const char *type, const char *body);

/* Send a message for the pull handler, which is not recorded. */
void world_post(struct world *world, const char *id, const char *body);
/* Claim, extend and settle deliveries of the pull handler. Returns how many.
   leave: without a result, as a worker that dies. */
#define WORLD_PULL_MAX 8
#define WORLD_PULL_LEASE_MS 1000
size_t world_pull(struct world *world, size_t max, bool leave);

struct world_item {
	const char *id;
	const char *type;
	const char *body;
};

#define WORLD_BATCH_MAX 16
void world_send_batch(struct world *world, const char *channel,
		const struct world_item *items, size_t count);

/* postern_box_process(), retried when it fails. */
void world_process(struct world *world, size_t max);

void world_clean(struct world *world);

/* Process and wait until nothing is open; false if that does not happen. */
bool world_drain(struct world *world);

/* Wait until a runner has nothing left to do, or for a second. */
void world_settle(struct world *world);

/* Whether the history records this handler for the checker. */
bool world_is_recorded(const char *handler);

#endif
