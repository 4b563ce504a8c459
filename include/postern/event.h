/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_EVENT_H
#define POSTERN_EVENT_H

/*
 * What happens in a box, as it happens, for tests and telemetry.
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
	POSTERN_EVENT_STARTED,   /* a handler begins a run */
	POSTERN_EVENT_SETTLED,   /* its result is durable; outcome says which */
	POSTERN_EVENT_FENCED,    /* its result came too late and was refused */
	POSTERN_EVENT_LOCKED,    /* this process has the lock now; fence */
	POSTERN_EVENT_LOCK_LOST  /* another has it, or may have */
};

/* Valid until the listener returns. */
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
	/* SETTLED: what the delivery is now: done, poisoned, discarded, or pending
	   again. */
	enum postern_state state;
};

/* Runs on the thread where it happens and holds it up: be quick, and never
   call back into the box. */
typedef void postern_listener(void *context, const struct postern_event *event);

#define POSTERN_LISTENER_COUNT_MAX 8

/* Be told of everything from now on, until the box is destroyed. Before
   postern_box_start() only. */
POSTERN_EXPORT int postern_box_subscribe(struct postern_box *box,
		postern_listener *listener, void *context, struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
