/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_EVENT_H
#define POSTERN_EVENT_H

/*
 * Events of a box, for tests and telemetry.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <postern/inspect.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum postern_event_kind {
	POSTERN_EVENT_ACCEPTED,  /* durable; seq, channel */
	POSTERN_EVENT_DUPLICATE, /* seq of the first, channel */
	POSTERN_EVENT_CONFLICT,  /* seq of the first, channel */
	POSTERN_EVENT_STARTED,   /* a run of a handler starts */
	POSTERN_EVENT_SETTLED,   /* the settlement of a run is durable; outcome */
	POSTERN_EVENT_FENCED,    /* the settlement was refused as stale */
	POSTERN_EVENT_LOCKED,    /* this node acquired the processing lock; fence */
	POSTERN_EVENT_LOCK_LOST  /* another node has the lock, or may have it */
};

/* Valid until the subscriber returns. */
struct postern_event {
	size_t size;
	enum postern_event_kind kind;
	int64_t seq;
	const char *channel;
	const char *handler; /* NULL unless STARTED, SETTLED, FENCED */
	uint64_t fence;
	uint32_t attempt;
	const char *outcome; /* SETTLED, FENCED: as in struct postern_attempt */
	const char *error;   /* the reason; NULL if none */
	int64_t duration_ms; /* of the run; 0 unless SETTLED, FENCED */
	/* SETTLED: the new state of the delivery: done, poisoned, discarded or
	   pending. */
	enum postern_state state;
};

/* A subscriber. Called on the thread where the event happens, which waits for
   it: it must return quickly and must not call functions of the box. */
typedef void postern_listener(void *context, const struct postern_event *event);

#define POSTERN_LISTENER_COUNT_MAX 8

/* Add a subscriber, which gets all events until the box is destroyed. Before
   postern_box_start() only. */
POSTERN_EXPORT int postern_box_subscribe(struct postern_box *box,
		postern_listener *listener, void *context, struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
