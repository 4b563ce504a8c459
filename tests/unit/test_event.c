/* SPDX-License-Identifier: MIT */
/* The kinds of events, as a subscriber gets them. */

#include <postern/box.h>
#include <postern/event.h>
#include <stdio.h>

#include "support/fake_clock.h"
#include "tap.h"

#include "core/event.h"

static void set_outcome(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	*outcome = *(const struct postern_outcome *)context;
}

/* The last settlement that was reported. */
struct settled {
	enum postern_state state;
	const char *name;
	enum postern_level level;
	char message_id[8];
};

static void record_settled(void *context, const struct postern_event *event) {
	struct settled *settled = context;
	if (event->state != POSTERN_STATE_ANY) {
		const struct postern_event_info *info = postern_event_info(event->kind);
		settled->state = event->state;
		settled->name = info->name;
		settled->level = info->level;
		(void)snprintf(settled->message_id, sizeof(settled->message_id), "%s",
				event->message_id);
	}
}

static void events_have_the_state(void) {
	static const struct {
		enum postern_outcome_kind outcome;
		const char *reason;
		struct settled settled;
	} rows[] = {
		{ POSTERN_DONE, NULL,
				{ POSTERN_STATE_DONE, "delivery_done", POSTERN_LEVEL_DEBUG,
						"1" } },
		{ POSTERN_DISCARD, "so",
				{ POSTERN_STATE_DISCARDED, "delivery_discarded",
						POSTERN_LEVEL_DEBUG, "1" } },
		{ POSTERN_POISON, "so",
				{ POSTERN_STATE_POISONED, "delivery_poisoned",
						POSTERN_LEVEL_ERROR, "1" } },
		{ POSTERN_SNOOZE, NULL,
				{ POSTERN_STATE_PENDING, "delivery_snoozed",
						POSTERN_LEVEL_DEBUG, "1" } },
		{ POSTERN_SNOOZE, "so",
				{ POSTERN_STATE_PENDING, "delivery_hindered",
						POSTERN_LEVEL_WARN, "1" } },
		{ POSTERN_HOLD, NULL,
				{ POSTERN_STATE_PENDING, "delivery_held", POSTERN_LEVEL_WARN,
						"1" } },
		{ POSTERN_RETRY, NULL,
				{ POSTERN_STATE_PENDING, "delivery_failed", POSTERN_LEVEL_WARN,
						"1" } },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct postern_error error;
		struct postern_box *box = NULL;
		struct postern_outcome outcome;
		struct settled settled = { 0 };
		struct postern_handler_options handler = {
			.size = sizeof(handler),
			.key = "h",
			.callback = set_outcome,
			.context = &outcome,
		};
		struct postern_message message = {
			.size = sizeof(message),
			.id = "1",
		};
		postern_outcome_set(&outcome, rows[i].outcome, 60000, rows[i].reason);
		CHECK_OK(postern_box_open("memory:", NULL, &box, &error), &error);
		CHECK_OK(postern_box_add_channel(box, "c", NULL, &error), &error);
		CHECK_OK(postern_box_add_handler(box, "c", &handler, &error), &error);
		CHECK_OK(postern_box_subscribe(box, POSTERN_LEVEL_DEBUG, record_settled,
						 &settled, &error),
				&error);
		CHECK_OK(postern_box_start(box, &error), &error);
		CHECK_OK(postern_box_accept(box, "c", &message, NULL, &error), &error);
		CHECK_OK(postern_box_process(box, 0, NULL, &error), &error);
		CHECK_INT(settled.state, rows[i].settled.state);
		CHECK_STR(settled.name, rows[i].settled.name);
		CHECK_INT(settled.level, rows[i].settled.level);
		CHECK_STR(settled.message_id, rows[i].settled.message_id);
		postern_box_destroy(box);
	}
}

/* What one subscriber was called with. */
struct calls {
	size_t count;
	struct postern_event last; /* its texts are not valid any more */
};

static void record_call(void *context, const struct postern_event *event) {
	struct calls *calls = context;
	calls->count++;
	calls->last = *event;
}

static void record_done(void *context, const struct postern_event *event) {
	if (event->kind == POSTERN_EVENT_DONE) {
		record_call(context, event);
	}
}

/* Snoozes, fails, and is done: attempt and fence differ. */
static void take_7ms(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	fake_clock_advance(context, 7);
	if (delivery->fence < 3) {
		postern_outcome_set(outcome,
				delivery->fence == 1 ? POSTERN_SNOOZE : POSTERN_RETRY_AFTER, 0,
				NULL);
	}
}

static void settlements_have_their_run(void) {
	struct postern_error error;
	struct postern_box *box = NULL;
	struct fake_clock clock;
	struct calls calls = { 0 };
	fake_clock_init(&clock);
	const struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &clock.base,
		.listener = record_done,
		.listener_context = &calls,
		.listener_level = POSTERN_LEVEL_DEBUG,
	};
	const struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = take_7ms,
		.context = &clock,
	};
	const struct postern_message message = {
		.size = sizeof(message),
		.id = "1",
	};
	CHECK_OK(postern_box_open("memory:", &options, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "c", NULL, &error), &error);
	CHECK_OK(postern_box_add_handler(box, "c", &handler, &error), &error);
	CHECK_OK(postern_box_start(box, &error), &error);
	CHECK_OK(postern_box_accept(box, "c", &message, NULL, &error), &error);
	CHECK_OK(postern_box_process(box, 0, NULL, &error), &error);
	CHECK_INT(calls.count, 1);
	CHECK_INT(calls.last.fence, 3);
	CHECK_INT(calls.last.attempt, 2);
	CHECK_INT(calls.last.duration_ms, 7);
	postern_box_destroy(box);
}

static void the_number_of_subscribers_is_limited(void) {
	struct postern_error error;
	struct postern_box *box = NULL;
	struct calls calls = { 0 };
	CHECK_OK(postern_box_open("memory:", NULL, &box, &error), &error);
	for (int i = 0; i < POSTERN_LISTENER_COUNT_MAX; i++) {
		CHECK_OK(postern_box_subscribe(box, POSTERN_LEVEL_INFO, record_call,
						 &calls, &error),
				&error);
	}
	CHECK_INT(postern_box_subscribe(box, POSTERN_LEVEL_INFO, record_call,
					  &calls, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "already has 8 subscribers");
	postern_box_destroy(box);
}

static void a_level_is_one_of_the_levels(void) {
	struct postern_error error;
	struct postern_box *box = NULL;
	struct calls calls = { 0 };
	static const int levels[] = { -1, POSTERN_LEVEL_ERROR + 1 };
	CHECK_OK(postern_box_open("memory:", NULL, &box, &error), &error);
	for (size_t i = 0; i < 2; i++) {
		CHECK_INT(postern_box_subscribe(box, (enum postern_level)levels[i],
						  record_call, &calls, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, "is no level of events");
	}
	postern_box_destroy(box);
}

/* Subscribers of a level get it and what is above, whoever else subscribes. */
static void levels_filter(void) {
	static const struct {
		enum postern_level level;
		size_t count;
	} rows[] = {
		{ POSTERN_LEVEL_DEBUG, 3 },
		{ POSTERN_LEVEL_DEFAULT, 2 }, /* INFO */
		{ POSTERN_LEVEL_WARN, 1 },
		{ POSTERN_LEVEL_ERROR, 0 },
	};
	struct postern_error error;
	struct postern_box *box = NULL;
	struct calls calls[4] = { 0 };
	CHECK_OK(postern_box_open("memory:", NULL, &box, &error), &error);
	for (size_t i = 0; i < 4; i++) {
		CHECK_OK(postern_box_subscribe(box, rows[i].level, record_call,
						 &calls[i], &error),
				&error);
	}
	const struct postern_event debug = { .kind = POSTERN_EVENT_ACCEPTED };
	const struct postern_event info = { .kind = POSTERN_EVENT_CLEANED };
	const struct postern_event warn = { .kind = POSTERN_EVENT_CONFLICT };
	postern__emit(box, &debug);
	postern__emit(box, &info);
	postern__emit(box, &warn);
	for (size_t i = 0; i < 4; i++) {
		CHECK_INT(calls[i].count, rows[i].count);
	}
	CHECK_INT(calls[0].last.size, sizeof(struct postern_event));
	postern_box_destroy(box);
}

/* Events of a store that was compiled with another header. */
static void events_of_stores_have_any_size(void) {
	struct postern_error error;
	struct postern_box *box = NULL;
	struct calls calls = { 0 };
	CHECK_OK(postern_box_open("memory:", NULL, &box, &error), &error);
	CHECK_OK(postern_box_subscribe(box, POSTERN_LEVEL_DEBUG, record_call,
					 &calls, &error),
			&error);
	struct postern_event event = {
		.size = offsetof(struct postern_event, count),
		.kind = POSTERN_EVENT_CLEANED,
		.seq = 3,
		.count = 9, /* not known to the store's header */
	};
	postern__emit_from_store(box, &event);
	CHECK_INT(calls.last.seq, 3);
	CHECK_INT(calls.last.count, 0);
	CHECK_INT(calls.last.size, sizeof(struct postern_event));
	event.size = sizeof(event);
	event.kind = (enum postern_event_kind)9999;
	postern__emit_from_store(box, &event);
	CHECK_INT(calls.count, 1);
	postern_box_destroy(box);
}

static const struct tap_case cases[] = {
	{ "an event has the kind, level and state of its settlement",
			events_have_the_state },
	{ "a settlement has the fence, attempt and duration of its run",
			settlements_have_their_run },
	{ "the number of subscribers is limited",
			the_number_of_subscribers_is_limited },
	{ "a level of a subscriber is one of the levels",
			a_level_is_one_of_the_levels },
	{ "a subscriber gets the events of its level and above", levels_filter },
	{ "an event of a store may be shorter, or of an unknown kind",
			events_of_stores_have_any_size },
};

TAP_MAIN(cases)
