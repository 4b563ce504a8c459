/* SPDX-License-Identifier: MIT */
/*
 * Changes by an operator on the memory store with a fake clock: what is
 * refused, what an event carries, how the box's copy of a pause ends, a handler
 * that postern holds, and what the statistics say about all of it.
 */

#include "tap.h"

#include "core/box.h"
#include "core/maintenance.h"
#include "core/reason.h"
#include "core/run.h"
#include "support/fake_clock.h"

#include <postern/change.h>
#include <postern/postern.h>
#include <postern/sys/store.h>
#include <stdio.h>
#include <string.h>

#define HOUR_MS ((int64_t)3600 * 1000)

struct scene {
	struct fake_clock clock;
	struct fake_random random;
	struct postern_box *box;
	struct postern_error error;
	int calls;
	int sent;
	enum postern_outcome_kind outcome;
	/* Of the last event EDITED. */
	int edited;
	char action[16];
	char handler[32];
	char channel[32];
	char reason[64];
	char by[64];
	int64_t until_ms;
};

static void run_scene(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct scene *scene = context;
	(void)message;
	(void)delivery;
	scene->calls++;
	outcome->kind = scene->outcome;
	(void)snprintf(outcome->reason, sizeof(outcome->reason), "no route");
}

static void copy_text(char *out, size_t size, const char *text) {
	(void)snprintf(out, size, "%s", text ? text : "");
}

static void listen_scene(void *context, const struct postern_event *event) {
	struct scene *scene = context;
	if (event->kind == POSTERN_EVENT_EDITED) {
		scene->edited++;
		copy_text(scene->action, sizeof(scene->action), event->action);
		copy_text(scene->handler, sizeof(scene->handler), event->handler);
		copy_text(scene->channel, sizeof(scene->channel), event->channel);
		copy_text(scene->reason, sizeof(scene->reason), event->reason);
		copy_text(scene->by, sizeof(scene->by), event->by);
		scene->until_ms = event->until_ms;
	}
}

static void scene_open(struct scene *scene) {
	struct postern_store *store = NULL;
	*scene = (struct scene){ .outcome = POSTERN_DONE };
	fake_clock_init(&scene->clock);
	fake_random_init(&scene->random, 42);
	struct postern_store_options of_store = {
		.size = sizeof(of_store),
		.clock = &scene->clock.base,
		.random = &scene->random.base,
	};
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &scene->clock.base,
		.random = &scene->random.base,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "mail",
		.callback = run_scene,
		.context = scene,
	};
	CHECK_OK(postern_store_open("memory:", &of_store, &store, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_open_taking(store, &options, &scene->box,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_box_subscribe(scene->box, POSTERN_LEVEL_INFO, listen_scene,
					 scene, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_add_channel(scene->box, "orders", NULL, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_add_handler(scene->box, "orders", &handler,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_box_start(scene->box, &scene->error), &scene->error);
}

static int64_t now(struct scene *scene) {
	return fake_clock_now(&scene->clock);
}

static int send_new(struct scene *scene) {
	char id[16];
	(void)snprintf(id, sizeof(id), "%d", ++scene->sent);
	struct postern_message message = { .size = sizeof(message), .id = id };
	return postern_box_accept(scene->box, "orders", &message, NULL,
			&scene->error);
}

static int process(struct scene *scene) {
	bool leasing = scene->box->leasing;
	scene->calls = 0;
	scene->box->leasing = false; /* the test is the runner */
	CHECK_OK(postern_box_process(scene->box, 0, NULL, &scene->error),
			&scene->error);
	scene->box->leasing = leasing;
	return scene->calls;
}

/* As if a runner were active. */
static void start_leasing(struct scene *scene) {
	CHECK_OK(postern_box_claim(scene->box, 1, NULL, &scene->error),
			&scene->error);
	scene->box->leasing = true;
}

static int change(struct scene *scene, enum postern_change_kind kind,
		int64_t for_ms, const char *reason, const char *by) {
	struct postern_change change = {
		.size = sizeof(change),
		.kind = kind,
		.handler = "mail",
		.channel = "orders",
		.for_ms = for_ms,
		.reason = reason,
		.by = by,
	};
	return postern_box_change(scene->box, &change, &scene->error);
}

/* What the statistics say about the handler; held NULL: it is not held. */
static void check_held(struct scene *scene, const char *held,
		const char *reason, const char *by, int64_t until_ms) {
	struct postern_stats *stats = NULL;
	CHECK_OK(postern_box_stats(scene->box, &stats, &scene->error),
			&scene->error);
	const struct postern_handler_stats *row = &stats->handlers[0];
	CHECK_STR(row->held ? row->held : "", held ? held : "");
	CHECK_STR(row->held_reason ? row->held_reason : "", reason ? reason : "");
	CHECK_STR(row->held_by ? row->held_by : "", by ? by : "");
	CHECK_INT(row->held_until_ms, until_ms);
	postern_stats_destroy(stats);
}

static void limits(void) {
	struct scene scene;
	char text[POSTERN_CHANGE_REASON_LEN_MAX + 2];
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	scene_open(&scene);
	static const struct {
		const char *reason;
		const char *by;
		int64_t for_ms;
		const char *says;
	} bad[] = {
		{ "a\nb", NULL, 0, "the reason contains a control character" },
		{ "\xff", NULL, 0, "the reason is not valid UTF-8" },
		{ NULL, "\x1b[2J", 0, "(by) contains a control character" },
		{ NULL, "postern", 0, "'postern' is reserved" },
		{ NULL, NULL, -1, "at most 10 years" },
		{ NULL, NULL, POSTERN_DURATION_MS_MAX + 1, "at most 10 years" },
		{ NULL, NULL, INT64_MAX, "at most 10 years" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, bad[i].for_ms,
						  bad[i].reason, bad[i].by),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(scene.error.text, bad[i].says);
	}
	CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, 0, text, NULL),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "the reason is longer than 500 bytes");
	CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, 0, NULL, text),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "longer than 100 bytes");
	CHECK_INT(change(&scene, POSTERN_CHANGE_CLOSE, 1, NULL, NULL),
			POSTERN_E_INVALID);
	CHECK_INT(scene.edited, 0);
	check_held(&scene, NULL, NULL, NULL, 0);
	text[POSTERN_CHANGE_REASON_LEN_MAX] = '\0';
	CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, POSTERN_DURATION_MS_MAX,
					  text, ""),
			POSTERN_OK);
	check_held(&scene, "paused", text, NULL,
			now(&scene) + POSTERN_DURATION_MS_MAX);
	postern_box_destroy(scene.box);
}

static void events(void) {
	struct scene scene;
	scene_open(&scene);
	CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, HOUR_MS, "smtp", "anna"),
			POSTERN_OK);
	CHECK_STR(scene.action, "pause");
	CHECK_STR(scene.handler, "mail");
	CHECK_STR(scene.reason, "smtp");
	CHECK_STR(scene.by, "anna");
	CHECK_INT(scene.until_ms, now(&scene) + HOUR_MS);
	CHECK_INT(change(&scene, POSTERN_CHANGE_CLOSE, 0, "moving", "bob"),
			POSTERN_OK);
	CHECK_STR(scene.action, "close");
	CHECK_STR(scene.channel, "orders");
	CHECK_STR(scene.reason, "moving");
	CHECK_STR(scene.by, "bob");
	CHECK_INT(change(&scene, POSTERN_CHANGE_RESUME, 0, NULL, NULL), POSTERN_OK);
	CHECK_STR(scene.action, "resume");
	CHECK_STR(scene.reason, "");
	CHECK_INT(scene.until_ms, 0);
	CHECK_INT(scene.edited, 3);
	postern_box_destroy(scene.box);
}

static void unknown_names(void) {
	struct scene scene;
	scene_open(&scene);
	struct postern_change change = {
		.size = sizeof(change),
		.kind = POSTERN_CHANGE_PAUSE,
		.handler = "mial",
	};
	CHECK_INT(postern_box_change(scene.box, &change, &scene.error),
			POSTERN_E_NOTFOUND);
	CHECK_STR(scene.error.text, "no handler 'mial', did you mean 'mail'?");
	change.handler = "something else";
	CHECK_INT(postern_box_change(scene.box, &change, &scene.error),
			POSTERN_E_NOTFOUND);
	CHECK_STR(scene.error.text, "no handler 'something else'");
	change.kind = POSTERN_CHANGE_CLOSE;
	change.channel = "order";
	CHECK_INT(postern_box_change(scene.box, &change, &scene.error),
			POSTERN_E_NOTFOUND);
	CHECK_STR(scene.error.text, "no channel 'order', did you mean 'orders'?");
	change.channel = NULL;
	CHECK_INT(postern_box_change(scene.box, &change, &scene.error),
			POSTERN_E_INVALID);
	CHECK_INT(postern_box_change(scene.box, &change, NULL), POSTERN_E_INVALID);
	postern_box_destroy(scene.box);
}

/* The claimer wakes at the end; a change of the store's clock is noticed. */
static void copy_ends(void) {
	struct scene scene;
	scene_open(&scene);
	struct postern_box *box = scene.box;
	const struct postern__handler_state *state =
			box->generation->handlers[0]->state;
	start_leasing(&scene);
	CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, 5000, NULL, NULL),
			POSTERN_OK);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK(postern__is_paused(box, state));
	CHECK_INT(postern__claim_at_ms(box), postern__box_now_ms(box) + 5000);
	fake_clock_advance(&scene.clock, 4999);
	CHECK(postern__is_paused(box, state));
	CHECK(!postern__pauses_due(box));
	fake_clock_advance(&scene.clock, 1);
	CHECK(!postern__is_paused(box, state));
	CHECK(postern__pauses_due(box));
	CHECK(postern__claim_at_ms(box) <= postern__box_now_ms(box));
	CHECK_INT(process(&scene), 1);
	CHECK(!postern__pauses_due(box));

	CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, 5000, NULL, NULL),
			POSTERN_OK);
	fake_clock_jump(&scene.clock, -2000);
	fake_clock_advance(&scene.clock, 5000);
	CHECK(postern__pauses_due(box));
	CHECK_OK(postern__pauses_refresh(box, &scene.error), &scene.error);
	CHECK(postern__is_paused(box, state));
	CHECK_INT(postern__claim_at_ms(box), postern__box_now_ms(box) + 2000);
	fake_clock_advance(&scene.clock, 2000);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(process(&scene), 1);
	postern_box_destroy(scene.box);
}

static void held_by_postern(void) {
	struct scene scene;
	scene_open(&scene);
	CHECK_OK(postern__hold_handler(scene.box, "mail", 3000,
					 "429 Too Many\r\nRequests", &scene.error),
			&scene.error);
	CHECK_INT(scene.edited, 0);
	check_held(&scene, "retry-after", "429 Too Many  Requests", "postern",
			now(&scene) + 3000);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(process(&scene), 0);
	/* A shorter one has no effect, a longer one has. */
	CHECK_OK(postern__hold_handler(scene.box, "mail", 1000, "short",
					 &scene.error),
			&scene.error);
	CHECK_OK(postern__hold_handler(scene.box, "mail", 4000, "long",
					 &scene.error),
			&scene.error);
	check_held(&scene, "retry-after", "long", "postern", now(&scene) + 4000);
	fake_clock_advance(&scene.clock, 4000);
	CHECK_INT(process(&scene), 1);
	check_held(&scene, NULL, NULL, NULL, 0);

	CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, 1000, "smtp", "anna"),
			POSTERN_OK);
	CHECK_OK(postern__hold_handler(scene.box, "mail", HOUR_MS, "429",
					 &scene.error),
			&scene.error);
	check_held(&scene, "paused", "smtp", "anna", now(&scene) + 1000);
	CHECK_INT(postern__hold_handler(scene.box, "none", 1, "", &scene.error),
			POSTERN_E_NOTFOUND);
	/* From a header of a response: any number. */
	fake_clock_advance(&scene.clock, 1000);
	CHECK_OK(postern__hold_handler(scene.box, "mail", INT64_MAX, "429",
					 &scene.error),
			&scene.error);
	check_held(&scene, "retry-after", "429", "postern",
			now(&scene) + POSTERN_DURATION_MS_MAX);
	CHECK_INT(change(&scene, POSTERN_CHANGE_RESUME, 0, NULL, NULL), POSTERN_OK);
	CHECK_OK(postern__hold_handler(scene.box, "mail", -5, "429", &scene.error),
			&scene.error);
	fake_clock_advance(&scene.clock, 1);
	check_held(&scene, NULL, NULL, NULL, 0);
	postern_box_destroy(scene.box);
}

static void held_for_good(void) {
	struct scene scene;
	scene_open(&scene);
	CHECK_OK(postern__hold_handler(scene.box, "mail", POSTERN__HOLD_FOR_GOOD,
					 "410 Gone", &scene.error),
			&scene.error);
	check_held(&scene, "paused", "410 Gone", "postern", 0);
	CHECK_INT(scene.edited, 1);
	/* Neither an end nor a second report, until it is resumed. */
	CHECK_OK(postern__hold_handler(scene.box, "mail", 1000, "429",
					 &scene.error),
			&scene.error);
	CHECK_OK(postern__hold_handler(scene.box, "mail", POSTERN__HOLD_FOR_GOOD,
					 "410 Gone", &scene.error),
			&scene.error);
	check_held(&scene, "paused", "410 Gone", "postern", 0);
	CHECK_INT(scene.edited, 1);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(process(&scene), 0);
	CHECK_INT(change(&scene, POSTERN_CHANGE_RESUME, 0, NULL, NULL), POSTERN_OK);
	CHECK_INT(process(&scene), 1);
	postern_box_destroy(scene.box);
}

static void held_on_this_node(void) {
	struct scene scene;
	scene_open(&scene);
	start_leasing(&scene);
	check_held(&scene, NULL, NULL, NULL, 0);
	scene.outcome = POSTERN_HOLD;
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(process(&scene), 1);
	/* Nobody holds it; it is probed a second later. */
	check_held(&scene, "broken", "no route", NULL, now(&scene) + 1000);
	/* A pause is named first: it holds on every node. */
	CHECK_INT(change(&scene, POSTERN_CHANGE_PAUSE, 0, "smtp", "anna"),
			POSTERN_OK);
	check_held(&scene, "paused", "smtp", "anna", 0);
	CHECK_INT(change(&scene, POSTERN_CHANGE_RESUME, 0, NULL, NULL), POSTERN_OK);
	scene.box->draining = true;
	check_held(&scene, "draining", "the process is stopping", NULL, 0);
	/* A process that runs nothing holds nothing. */
	scene.box->leasing = false;
	check_held(&scene, NULL, NULL, NULL, 0);
	scene.box->draining = false;
	postern_box_destroy(scene.box);
}

static void closed_channel(void) {
	struct scene scene;
	scene_open(&scene);
	start_leasing(&scene);
	CHECK_INT(change(&scene, POSTERN_CHANGE_CLOSE, 0, "moving", "anna"),
			POSTERN_OK);
	CHECK_INT(send_new(&scene), POSTERN_E_UNAVAILABLE);
	CHECK_STR(scene.error.text, "channel 'orders' is closed: moving");
	const struct postern_message messages[] = {
		{ .size = sizeof(messages[0]), .id = "a" },
		{ .size = sizeof(messages[0]), .id = "b" },
	};
	struct postern_receipt receipts[2];
	CHECK_OK(postern_box_accept_batch(scene.box, "orders", messages, 2,
					 receipts, &scene.error),
			&scene.error);
	for (size_t i = 0; i < 2; i++) {
		CHECK_INT(receipts[i].error.code, POSTERN_E_UNAVAILABLE);
		CHECK_STR(receipts[i].error.text, "channel 'orders' is closed: moving");
		CHECK_INT(receipts[i].seq, 0);
	}
	/* The room for leases was released, and the store is not failing. */
	CHECK_INT(scene.box->generation->handlers[0]->state->held, 0);
	CHECK(!scene.box->store_failing);
	CHECK_INT(change(&scene, POSTERN_CHANGE_CLOSE, 0, NULL, NULL), POSTERN_OK);
	CHECK_INT(send_new(&scene), POSTERN_E_UNAVAILABLE);
	CHECK_STR(scene.error.text, "channel 'orders' is closed");
	CHECK_INT(change(&scene, POSTERN_CHANGE_OPEN, 0, NULL, NULL), POSTERN_OK);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(process(&scene), 1);
	postern_box_destroy(scene.box);
}

static const struct tap_case cases[] = {
	{ "a reason, an author or an end that breaks a limit is refused", limits },
	{ "an event carries reason, author and end of the change", events },
	{ "an unknown handler or channel is refused with a suggestion",
			unknown_names },
	{ "the box's copy of a pause ends with it, and is read again then",
			copy_ends },
	{ "a handler that postern holds waits, unless an operator has paused it",
			held_by_postern },
	{ "a handler that postern pauses for good waits for an operator",
			held_for_good },
	{ "the statistics say what holds a handler on this node",
			held_on_this_node },
	{ "messages for a closed channel are refused with the reason",
			closed_channel },
};

TAP_MAIN(cases)
