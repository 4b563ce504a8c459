/* SPDX-License-Identifier: MIT */
/*
 * Handlers that hang, and others that must run beside them. Every wait is for
 * an event that never happens if the rule is broken; no result depends on how
 * long something takes.
 */

#include "tap.h"

#include <postern/inspect.h>
#include <postern/postern.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define PATIENCE_MS 20000
#define WORKERS 2

struct scene {
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
	atomic_bool released;
	atomic_int hanging; /* runs that have not returned */
	atomic_int most;    /* the most of them */
	atomic_int healthy; /* runs of the healthy handler */
	uint32_t rate;      /* of callbacks that are added, per second; 0: none */
};

static void sleep_1ms(void) {
	struct timespec ms = { .tv_nsec = 1000000 };
	(void)nanosleep(&ms, NULL);
}

static bool wait_for(const atomic_int *number, int least) {
	for (int i = 0; i < PATIENCE_MS && atomic_load(number) < least; i++) {
		sleep_1ms();
	}
	return atomic_load(number) >= least;
}

static void hang(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct scene *scene = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	int count = atomic_fetch_add(&scene->hanging, 1) + 1;
	int most = atomic_load(&scene->most);
	while (count > most &&
			!atomic_compare_exchange_weak(&scene->most, &most, count)) {
	}
	while (!atomic_load(&scene->released)) {
		sleep_1ms();
	}
	atomic_fetch_sub(&scene->hanging, 1);
}

static void work(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct scene *scene = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	atomic_fetch_add(&scene->healthy, 1);
}

static void add_callback(struct scene *scene, const char *key, const char *type,
		postern_callback *callback, uint32_t concurrency) {
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.concurrency = concurrency;
	policy.rate_count = scene->rate;
	policy.rate_period_ms = 1000;
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = key,
		.types = &type,
		.type_count = 1,
		.callback = callback,
		.context = scene,
		.policy = &policy,
	};
	CHECK_OK(postern_box_add_handler(scene->box, "c", &options, &scene->error),
			&scene->error);
}

static void add_program(struct scene *scene, const char *key, const char *type,
		const char *script) {
	const char *const argv[] = { "/bin/sh", "-c", script };
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = key,
		.types = &type,
		.type_count = 1,
		.exec = argv,
		.exec_count = 3,
	};
	CHECK_OK(postern_box_add_handler(scene->box, "c", &options, &scene->error),
			&scene->error);
}

static void scene_open(struct scene *scene) {
	*scene = (struct scene){ 0 };
	CHECK_OK(postern_box_open("memory:", NULL, &scene->box, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_add_channel(scene->box, "c", NULL, &scene->error),
			&scene->error);
}

static void scene_start(struct scene *scene, uint32_t workers_max) {
	const struct postern_runner_options options = {
		.size = sizeof options,
		.workers = WORKERS,
		.workers_max = workers_max,
	};
	CHECK_OK(postern_box_start(scene->box, &scene->error), &scene->error);
	CHECK_OK(postern_runner_create(scene->box, &options, &scene->runner,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_runner_start(scene->runner, &scene->error), &scene->error);
}

static void scene_close(struct scene *scene) {
	atomic_store(&scene->released, true);
	postern_runner_destroy(scene->runner);
	postern_box_destroy(scene->box);
}

static void send(struct scene *scene, const char *type, int count) {
	for (int i = 0; i < count; i++) {
		char id[32];
		(void)snprintf(id, sizeof id, "%s-%d", type, i);
		const struct postern_message message = {
			.size = sizeof message,
			.id = id,
			.type = type,
		};
		CHECK_OK(postern_box_accept(scene->box, "c", &message, NULL,
						 &scene->error),
				&scene->error);
	}
}

static void beside_hung_callbacks(void) {
	enum { HUNG = 20 };
	struct scene scene;
	scene_open(&scene);
	for (int i = 0; i < HUNG; i++) {
		char key[16];
		(void)snprintf(key, sizeof key, "hung-%d", i);
		add_callback(&scene, key, "hung", hang, 0);
	}
	add_callback(&scene, "healthy", "good", work, 0);
	scene_start(&scene, 0);
	send(&scene, "hung", 3);
	/* Each handler may hold as many workers as there usually are. */
	CHECK(wait_for(&scene.hanging, HUNG * WORKERS));
	send(&scene, "good", 10);
	CHECK(wait_for(&scene.healthy, 10));
	CHECK_INT(scene.most, HUNG * WORKERS);
	scene_close(&scene);
}

static void the_last_worker(void) {
	enum { WORKERS_MAX = 4 };
	struct scene scene;
	scene_open(&scene);
	add_callback(&scene, "hung", "hung", hang, 100);
	add_callback(&scene, "healthy", "good", work, 0);
	scene_start(&scene, WORKERS_MAX);
	send(&scene, "hung", 10);
	CHECK(wait_for(&scene.hanging, WORKERS_MAX - 1));
	send(&scene, "good", 10);
	CHECK(wait_for(&scene.healthy, 10));
	CHECK_INT(scene.most, WORKERS_MAX - 1);
	scene_close(&scene);
}

static struct postern_stats *stats_of(struct scene *scene) {
	struct postern_stats *stats = NULL;
	CHECK_OK(postern_box_stats(scene->box, &stats, &scene->error),
			&scene->error);
	return stats;
}

static void beside_hung_programs(void) {
	struct scene scene;
	scene_open(&scene);
	add_program(&scene, "hung", "hung", "sleep 1000");
	add_program(&scene, "hung-too", "hung", "sleep 1000");
	add_program(&scene, "program", "good", "exit 0");
	add_callback(&scene, "healthy", "good", work, 0);
	scene_start(&scene, WORKERS);
	send(&scene, "hung", 50);
	send(&scene, "good", 10);
	CHECK(wait_for(&scene.healthy, 10));
	uint64_t done = 0;
	for (int i = 0; i < PATIENCE_MS && done < 10; i++) {
		struct postern_stats *stats = stats_of(&scene);
		done = stats ? stats->handlers[2].done : 0;
		postern_stats_destroy(stats);
		sleep_1ms();
	}
	CHECK_INT(done, 10);
	scene_close(&scene);
}

/* Starts are reserved while no worker is free, and are lost unless one is
   added. */
static void a_rate_beside_hung_workers(void) {
	struct scene scene;
	scene_open(&scene);
	add_callback(&scene, "hung", "hung", hang, 0);
	scene.rate = 2;
	add_callback(&scene, "limited", "limited", work, 0);
	scene_start(&scene, 16);
	send(&scene, "hung", WORKERS);
	CHECK(wait_for(&scene.hanging, WORKERS));
	send(&scene, "limited", 5);
	CHECK(wait_for(&scene.healthy, 5));
	scene_close(&scene);
}

static void processing_waits_for_programs(void) {
	struct scene scene;
	size_t count = 0;
	scene_open(&scene);
	/* More than may run at a time, and longer than a round takes; fewer than
	   the failures that hold a handler. */
	add_program(&scene, "slow", "slow", "sleep 0.1");
	add_program(&scene, "failing", "slow", "sleep 0.1; exit 65");
	CHECK_OK(postern_box_start(scene.box, &scene.error), &scene.error);
	send(&scene, "slow", 19);
	CHECK_OK(postern_box_process(scene.box, 0, &count, &scene.error),
			&scene.error);
	CHECK_INT(count, 38);
	struct postern_stats *stats = stats_of(&scene);
	CHECK_INT(stats->handlers[0].done, 19);
	CHECK_INT(stats->handlers[1].poisoned, 19);
	postern_stats_destroy(stats);
	scene_close(&scene);
}

static void processing_some_waits_for_them(void) {
	struct scene scene;
	size_t count = 0;
	scene_open(&scene);
	add_program(&scene, "slow", "slow", "sleep 0.1");
	CHECK_OK(postern_box_start(scene.box, &scene.error), &scene.error);
	send(&scene, "slow", 10);
	CHECK_OK(postern_box_process(scene.box, 3, &count, &scene.error),
			&scene.error);
	CHECK_INT(count, 3);
	struct postern_stats *stats = stats_of(&scene);
	CHECK_INT(stats->handlers[0].done, 3);
	CHECK_INT(stats->handlers[0].pending, 7);
	postern_stats_destroy(stats);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a handler runs while all runs of twenty others hang",
			beside_hung_callbacks },
	{ "a handler that holds workers does not get the last one",
			the_last_worker },
	{ "handlers run while the programs of others hang", beside_hung_programs },
	{ "a handler with a rate runs while all workers hang",
			a_rate_beside_hung_workers },
	{ "processing by hand waits for the programs it started",
			processing_waits_for_programs },
	{ "processing a few by hand waits for those",
			processing_some_waits_for_them },
};

TAP_MAIN(cases)
