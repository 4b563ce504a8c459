/* SPDX-License-Identifier: MIT */

/* Handlers of a guard whose keys are in memory: through a box. */

#include <postern/postern.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tap.h"

#define THREADS 64
#define KEYS 50

struct scene {
	struct postern_box *box;
	struct postern_error error;
	atomic_int calls;
	enum postern_outcome_kind outcome;
	atomic_int full; /* events */
	atomic_int in_memory;
};

static void do_work(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct scene *scene = context;
	(void)message;
	(void)delivery;
	atomic_fetch_add(&scene->calls, 1);
	postern_outcome_set(outcome, scene->outcome, 0, NULL);
}

static void listen(void *context, const struct postern_event *event) {
	struct scene *scene = context;
	atomic_fetch_add(&scene->full, event->kind == POSTERN_EVENT_DEDUPE_FULL);
	atomic_fetch_add(&scene->in_memory,
			event->kind == POSTERN_EVENT_DEDUPE_IN_MEMORY);
}

static struct postern_handler_options options_of(struct scene *scene,
		uint32_t count_max) {
	return (struct postern_handler_options){
		.size = sizeof(struct postern_handler_options),
		.key = "count",
		.callback = do_work,
		.context = scene,
		.dedupe = POSTERN_DEDUPE_MEMORY,
		.dedupe_count_max = count_max,
	};
}

static bool scene_open(struct scene *scene, uint32_t count_max) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
	};
	const struct postern_handler_options options = options_of(scene, count_max);
	return CHECK_OK(postern_box_open("memory:", NULL, &scene->box,
							&scene->error),
				   &scene->error) &&
		   CHECK_OK(postern_box_subscribe(scene->box, POSTERN_LEVEL_DEBUG,
							listen, scene, &scene->error),
				   &scene->error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "views", &channel,
							&scene->error),
				   &scene->error) &&
		   CHECK_OK(postern_box_add_handler(scene->box, "views", &options,
							&scene->error),
				   &scene->error) &&
		   CHECK_OK(postern_box_start(scene->box, &scene->error),
				   &scene->error);
}

static int send(struct scene *scene, const char *id) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.type = "view",
		.body = "x",
		.body_len = 1,
	};
	struct postern_error error;
	return postern_box_accept(scene->box, "views", &message, NULL, &error);
}

static void once_without_marker(void) {
	struct scene scene = { 0 };
	struct postern_guard *guard = NULL;
	bool done = true;
	if (scene_open(&scene, 0)) {
		CHECK_INT(send(&scene, "a"), POSTERN_OK);
		CHECK_INT(send(&scene, "a"), POSTERN_E_DUPLICATE);
		CHECK_INT(scene.calls, 1);
		CHECK_INT(scene.in_memory, 1);
		CHECK_OK(postern_guard_create(scene.box, NULL, &guard, &scene.error),
				&scene.error);
		CHECK_OK(postern_mark_has(guard, "count", "a", &done, &scene.error),
				&scene.error);
		CHECK(!done); /* nothing in the store */
	}
	postern_guard_destroy(guard);
	postern_box_destroy(scene.box);
}

static void failed_is_not_done(void) {
	struct scene scene = { .outcome = POSTERN_RETRY };
	if (scene_open(&scene, 0)) {
		CHECK_INT(send(&scene, "a"), POSTERN_E_FAILED);
		scene.outcome = POSTERN_DONE;
		CHECK_INT(send(&scene, "a"), POSTERN_OK);
		CHECK_INT(send(&scene, "a"), POSTERN_E_DUPLICATE);
		CHECK_INT(scene.calls, 2);
	}
	postern_box_destroy(scene.box);
}

static void oldest_is_forgotten(void) {
	struct scene scene = { 0 };
	if (scene_open(&scene, 2)) {
		CHECK_INT(send(&scene, "a"), POSTERN_OK);
		CHECK_INT(send(&scene, "b"), POSTERN_OK);
		CHECK_INT(scene.full, 0);
		CHECK_INT(send(&scene, "c"), POSTERN_OK);
		CHECK_INT(send(&scene, "c"), POSTERN_E_DUPLICATE);
		CHECK_INT(send(&scene, "a"), POSTERN_OK);
		CHECK_INT(scene.full, 1); /* reported once */
	}
	postern_box_destroy(scene.box);
}

static void *send_all(void *context) {
	struct scene *scene = context;
	for (int i = 0; i < KEYS; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "%d", i);
		int r = send(scene, id);
		CHECK(r == POSTERN_OK || r == POSTERN_E_DUPLICATE);
	}
	return NULL;
}

static void crowd(void) {
	struct scene scene = { 0 };
	struct postern_runner *runner = NULL;
	pthread_t threads[THREADS];
	if (scene_open(&scene, 0) &&
			CHECK_OK(postern_runner_create(scene.box, NULL, &runner,
							 &scene.error),
					&scene.error) &&
			CHECK_OK(postern_runner_start(runner, &scene.error),
					&scene.error)) {
		for (size_t i = 0; i < THREADS; i++) {
			CHECK_INT(pthread_create(&threads[i], NULL, send_all, &scene), 0);
		}
		for (size_t i = 0; i < THREADS; i++) {
			(void)pthread_join(threads[i], NULL);
		}
		CHECK_INT(scene.calls, KEYS);
	}
	postern_runner_destroy(runner);
	postern_box_destroy(scene.box);
}

static void check_refused(struct scene *scene,
		const struct postern_channel_options *channel, uint32_t count_max,
		const char *why) {
	const struct postern_handler_options options = options_of(scene, count_max);
	CHECK_OK(postern_box_open("memory:", NULL, &scene->box, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_add_channel(scene->box, "views", channel,
					 &scene->error),
			&scene->error);
	CHECK_INT(postern_box_add_handler(scene->box, "views", &options,
					  &scene->error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene->error.text, why);
	postern_box_destroy(scene->box);
}

static void where_it_is_refused(void) {
	struct scene scene = { 0 };
	struct postern_channel_options channel = { .size = sizeof channel };
	check_refused(&scene, &channel, 0, "only in a channel with the mode");
	channel.mode = POSTERN_MODE_DIRECT;
	check_refused(&scene, &channel, 0, "only in a channel with the mode");
	channel.mode = POSTERN_MODE_GUARD;
	check_refused(&scene, &channel, POSTERN_DEDUPE_COUNT_MAX + 1,
			"dedupe_max is at most 10000000");
	channel.marker = "shared";
	check_refused(&scene, &channel, 0, "share a marker");
}

static const struct tap_case cases[] = {
	{ "a handler with its keys in memory runs once and marks nothing",
			once_without_marker },
	{ "a run that failed leaves no key in memory", failed_is_not_done },
	{ "when memory has as many keys as allowed, that is reported once",
			oldest_is_forgotten },
	{ "of 64 threads with the same keys in memory one runs each", crowd },
	{ "keys in memory are refused where the store must remember",
			where_it_is_refused },
};

TAP_MAIN(cases)
