/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_EVENT_H
#define POSTERN_CORE_EVENT_H

/*
 * Emitting events to the subscribers of a box. Always without the mutex.
 */

#include <postern/event.h>
#include <stdbool.h>

struct postern_box;
struct postern_run;

struct postern__subscriber {
	postern_listener *call;
	void *context;
	enum postern_level level; /* lower ones are not delivered */
};

/* Fixed at start, so that they are read without the mutex. */
struct postern__subscribers {
	struct postern__subscriber items[POSTERN_LISTENER_COUNT_MAX];
	size_t count;
	/* The lowest level that one of them wants; above all if there is none. */
	int level;
};

/* Indexed by enum postern_event_kind. */
extern const struct postern_event_info postern__event_kinds[];

/* A postern_listener; the context is a struct postern__subscriber. */
void postern__subscriber_call(void *context, const struct postern_event *event);

void postern__subscribers_init(struct postern__subscribers *subscribers);
int postern__subscribers_add(struct postern__subscribers *subscribers,
		const struct postern__subscriber *subscriber,
		struct postern_error *error);

/* Whether any subscriber wants this kind: without one, an event is not even
   filled in. */
static inline bool
postern__event_wanted(const struct postern__subscribers *subscribers,
		enum postern_event_kind kind) {
	return (int)postern__event_kinds[kind].level >= subscribers->level;
}

void postern__emit(struct postern_box *box, const struct postern_event *event);
/* The same with a text for people, of at most POSTERN__EVENT_TEXT_MAX bytes. */
void postern__emit_text(struct postern_box *box,
		const struct postern_event *event, const char *format, ...)
		__attribute__((format(printf, 3, 4)));
#define POSTERN__EVENT_TEXT_MAX 640

/* Of a run: it starts; its settlement is durable; its settlement was refused as
   stale; it is past its lease. */
void postern__emit_started(struct postern_run *run);
void postern__emit_settled(struct postern_run *run);
void postern__emit_fenced(struct postern_run *run);
void postern__emit_stuck(struct postern_run *run);
/* It has had the only writer of the store for so long. */
void postern__emit_writer_held(struct postern_run *run, int64_t duration_ms);

/* A postern_listener for a store; the context is the box. */
void postern__emit_from_store(void *context, const struct postern_event *event);

#endif
