/* SPDX-License-Identifier: MIT */
/*
 * Events: the table of their kinds, the subscribers, and the events of runs.
 * The other files of the core emit those that they cause.
 */

#include "core/event.h"

#include "core/accept.h"
#include "core/box.h"
#include "core/run.h"

#include "base/fail.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct postern_event_info postern__event_kinds[] = {
#define ROW(kind, event_name, event_level, event_object, event_fields, text) \
	[POSTERN_EVENT_##kind] = {                                               \
		.name = #event_name,                                                 \
		.level = POSTERN_LEVEL_##event_level,                                \
		.object = POSTERN_OBJECT_##event_object,                             \
		.fields = POSTERN_##event_fields,                                    \
		.summary = (text),                                                   \
	},
	POSTERN_EVENT_MAP(ROW)
#undef ROW
};

#define KIND_COUNT \
	(sizeof(postern__event_kinds) / sizeof(postern__event_kinds[0]))

const struct postern_event_info *postern_event_info(
		enum postern_event_kind kind) {
	return (size_t)kind < KIND_COUNT ? &postern__event_kinds[kind] : NULL;
}

const char *postern_event_text(const struct postern_event *event) {
	return event->text ? event->text
					   : postern__event_kinds[event->kind].summary;
}

void postern__subscribers_init(struct postern__subscribers *subscribers) {
	*subscribers = (struct postern__subscribers){
		.level = POSTERN_LEVEL_ERROR + 1,
	};
}

int postern__subscribers_add(struct postern__subscribers *subscribers,
		const struct postern__subscriber *subscriber,
		struct postern_error *error) {
	int level = subscriber->level ? (int)subscriber->level : POSTERN_LEVEL_INFO;
	if (!subscriber->call || subscribers->count == POSTERN_LISTENER_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the subscriber is NULL, or the box already has %d subscribers",
				POSTERN_LISTENER_COUNT_MAX);
	}
	if (level < POSTERN_LEVEL_DEBUG || level > POSTERN_LEVEL_ERROR) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%d is no level of events: use one of enum postern_level",
				level);
	}
	struct postern__subscriber *added =
			&subscribers->items[subscribers->count++];
	*added = *subscriber;
	added->level = (enum postern_level)level;
	subscribers->level =
			level < subscribers->level ? level : subscribers->level;
	return POSTERN_OK;
}

void postern__subscriber_call(void *context,
		const struct postern_event *event) {
	const struct postern__subscriber *subscriber = context;
	if (postern__event_kinds[event->kind].level >= subscriber->level) {
		subscriber->call(subscriber->context, event);
	}
}

void postern__emit(struct postern_box *box, const struct postern_event *event) {
	if (!postern__event_wanted(&box->subscribers, event->kind)) {
		return;
	}
	struct postern_event full = *event;
	full.size = sizeof(full);
	for (size_t i = 0; i < box->subscribers.count; i++) {
		postern__subscriber_call(&box->subscribers.items[i], &full);
	}
}

void postern__emit_text(struct postern_box *box,
		const struct postern_event *event, const char *format, ...) {
	if (!postern__event_wanted(&box->subscribers, event->kind)) {
		return;
	}
	char text[POSTERN__EVENT_TEXT_MAX];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	struct postern_event full = *event;
	full.text = text;
	postern__emit(box, &full);
}

/* A store may be compiled against another version: its events may be shorter,
   or of a kind that is not known here. */
void postern__emit_from_store(void *context,
		const struct postern_event *event) {
	struct postern_event full = { 0 };
	memcpy(&full, event,
			event->size < sizeof(full) ? event->size : sizeof(full));
	if (postern_event_info(full.kind)) {
		postern__emit(context, &full);
	}
}

static struct postern_event event_of(const struct postern_run *run,
		enum postern_event_kind kind) {
	return (struct postern_event){
		.kind = kind,
		.seq = run->delivery.seq,
		.message_id = run->content->message.id,
		.channel = run->delivery.channel,
		.handler = run->delivery.handler,
		.fence = run->delivery.fence,
		.attempt = run->delivery.attempt,
	};
}

/* With the result of the run. */
static void emit_ended(struct postern_run *run, enum postern_event_kind kind,
		enum postern_state state) {
	if (!postern__event_wanted(&run->box->subscribers, kind)) {
		return;
	}
	struct postern_event event = event_of(run, kind);
	event.outcome = run->settlement.outcome;
	event.error = run->settlement.error;
	event.duration_ms = run->settlement.duration_ms;
	event.state = state;
	postern__emit(run->box, &event);
}

void postern__emit_started(struct postern_run *run) {
	if (postern__event_wanted(&run->box->subscribers, POSTERN_EVENT_STARTED)) {
		struct postern_event event = event_of(run, POSTERN_EVENT_STARTED);
		postern__emit(run->box, &event);
	}
}

/* Report what the run did to its handler. */
static void emit_breaker(const struct postern_run *run) {
	if (run->breaker == POSTERN__BREAKER_UNCHANGED) {
		return;
	}
	bool opened = run->breaker == POSTERN__BREAKER_OPENED;
	postern__emit(run->box,
			&(struct postern_event){
					.kind = opened ? POSTERN_EVENT_HANDLER_HELD
								   : POSTERN_EVENT_HANDLER_RELEASED,
					.handler = run->delivery.handler,
					.channel = run->delivery.channel,
					.error = opened ? run->settlement.error : NULL,
			});
}

void postern__emit_fenced(struct postern_run *run) {
	emit_breaker(run);
	emit_ended(run, POSTERN_EVENT_FENCED, POSTERN_STATE_ANY);
}

void postern__emit_settled(struct postern_run *run) {
	const struct postern_settlement *settlement = &run->settlement;
	emit_breaker(run);
	switch (settlement->to) {
	case POSTERN_SETTLE_DONE:
		emit_ended(run, POSTERN_EVENT_DONE, POSTERN_STATE_DONE);
		return;
	case POSTERN_SETTLE_POISONED:
		emit_ended(run, POSTERN_EVENT_POISONED, POSTERN_STATE_POISONED);
		return;
	case POSTERN_SETTLE_DISCARDED:
		emit_ended(run, POSTERN_EVENT_DISCARDED, POSTERN_STATE_DISCARDED);
		return;
	case POSTERN_SETTLE_RETURNED:
		emit_ended(run, POSTERN_EVENT_RETURNED, POSTERN_STATE_PENDING);
		return;
	case POSTERN_SETTLE_PENDING:
	default: break;
	}
	/* A failure was counted; otherwise the run was snoozed. A snooze with a
	   reason is not the handler's plan. */
	bool failed = settlement->failures > run->failures;
	emit_ended(run,
			failed              ? POSTERN_EVENT_FAILED
			: run->on_hold      ? POSTERN_EVENT_HELD
			: settlement->error ? POSTERN_EVENT_HINDERED
								: POSTERN_EVENT_SNOOZED,
			POSTERN_STATE_PENDING);
}

void postern__emit_stuck(struct postern_run *run) {
	char lease[POSTERN__DURATION_TEXT_MAX];
	postern__duration_format(run->handler->policy.lease_ms, lease);
	struct postern_event event = event_of(run, POSTERN_EVENT_STUCK);
	postern__emit_text(run->box, &event,
			"handler '%s' has been running message %lld for more than its "
			"lease of %s",
			run->delivery.handler, (long long)run->delivery.seq, lease);
}

void postern__emit_writer_held(struct postern_run *run, int64_t duration_ms) {
	struct postern_event event = event_of(run, POSTERN_EVENT_WRITER_HELD);
	event.duration_ms = duration_ms;
	postern__emit_text(run->box, &event,
			"handler '%s' has had the only writer of the store for %lld ms, "
			"with message %lld: all other writes wait for it",
			run->delivery.handler, (long long)duration_ms,
			(long long)run->delivery.seq);
}
