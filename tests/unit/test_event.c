/* SPDX-License-Identifier: MIT */
/* The kinds of events, as a subscriber gets them. */

#include <postern/box.h>
#include <postern/event.h>
#include <stdio.h>

#include "tap.h"

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

static const struct tap_case cases[] = {
	{ "an event has the kind, level and state of its settlement",
			events_have_the_state },
};

TAP_MAIN(cases)
