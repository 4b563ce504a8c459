/* SPDX-License-Identifier: MIT */

/*
 * Starts of handlers with a rate in PostgreSQL: the function in the database
 * grants what the one in C does, and nodes share what it grants.
 */

#include <postern/postern.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/rate.h"
#include "unit/dice.h"
#include "unit/postgres_scene.h"

#define STEPS 400
#define THREADS 4

static void both_grant_the_same(void) {
	struct scene scene;
	struct dice dice = { 3 };
	scene_open(&scene);
	struct postern_rate_slots slots = { 0 };
	const struct postern_rate rate = { .count = 17,
		.burst = 5,
		.period_ms = 1000 };
	int64_t now = INT64_C(1767323045678);
	bool same = true;
	for (int i = 0; same && i < STEPS; i++) {
		/* Small steps, and now and then a large one, in both directions. */
		size_t jump = dice_below(&dice, 50);
		now += jump == 0   ? -(int64_t)dice_below(&dice, 5000)
			   : jump == 1 ? (int64_t)dice_below(&dice, 5000)
						   : (int64_t)dice_below(&dice, 120);
		uint32_t wanted = 1 + (uint32_t)dice_below(&dice, 8);
		int64_t wait;
		uint32_t granted =
				postern__rate_grant(&slots, now, &rate, wanted, &wait);
		char sql[256];
		(void)snprintf(sql, sizeof sql,
				"SELECT granted * 1000000 + wait FROM " SCHEMA
				".reserve_1(%d, %lld, %lld, %u, %u, %u)",
				(int)scene.handler, (long long)now,
				(long long)postern__rate_slot_ms(&rate), rate.count,
				postern__rate_slot_max(&rate), wanted);
		same = CHECK_INT(scene_number(scene.link, sql),
				granted * INT64_C(1000000) + wait);
	}
	scene_close(&scene);
}

struct asker {
	struct scene *scene;
	atomic_uint *total;
};

static void *ask(void *context) {
	const struct asker *asker = context;
	for (int i = 0; i < 20; i++) {
		/* A period that does not end while the test runs. */
		struct postern_reservation reservation = {
			.handler = asker->scene->handler,
			.rate = { .count = 50, .burst = 50, .period_ms = 3600000 },
			.wanted = 3,
		};
		struct postern_error error;
		struct postern_store *store = asker->scene->store;
		CHECK_OK(store->ops->reserve(store, &reservation, &error), &error);
		CHECK(reservation.granted <= 3);
		CHECK(reservation.granted > 0 || reservation.wait_ms > 0);
		atomic_fetch_add(asker->total, reservation.granted);
	}
	return NULL;
}

static void all_together_get_the_rate(void) {
	struct scene scene;
	scene_open(&scene);
	atomic_uint total = 0;
	struct asker asker = { &scene, &total };
	pthread_t threads[THREADS];
	for (size_t i = 0; i < THREADS; i++) {
		CHECK_INT(pthread_create(&threads[i], NULL, ask, &asker), 0);
	}
	for (size_t i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	CHECK_INT(atomic_load(&total), 50);
	scene_close(&scene);
}

#define BOX_SCHEMA "rate_of_boxes"
#define BOX_RATE 5

static void count_run(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	(void)outcome;
	*(int *)context += 1;
}

static struct postern_box *open_box(void *runs) {
	const char *url = getenv("POSTERN_TEST_POSTGRES");
	const struct postern_box_options options = {
		.size = sizeof options,
		.schema = BOX_SCHEMA,
	};
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.rate_count = BOX_RATE;
	policy.rate_period_ms = 3600000;
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "h",
		.callback = count_run,
		.context = runs,
		.policy = &policy,
	};
	struct postern_box *box = NULL;
	struct postern_error error;
	CHECK_OK(postern_box_open(url ? url : "", &options, &box, &error), &error);
	CHECK_OK(postern_box_add_channel(box, "c", NULL, &error), &error);
	CHECK_OK(postern_box_add_handler(box, "c", &handler, &error), &error);
	CHECK_OK(postern_box_start(box, &error), &error);
	return box;
}

static void boxes_share_the_rate(void) {
	PGconn *link = scene_connect();
	scene_run(link, "SET client_min_messages = error");
	scene_run(link, "DROP SCHEMA IF EXISTS " BOX_SCHEMA " CASCADE");
	int runs = 0;
	struct postern_error error;
	struct postern_box *boxes[] = { open_box(&runs), open_box(&runs) };
	for (int i = 0; i < 4 * BOX_RATE; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "m%d", i);
		const struct postern_message message = {
			.size = sizeof message,
			.id = id,
		};
		CHECK_OK(postern_box_accept(boxes[0], "c", &message, NULL, &error),
				&error);
	}
	for (int i = 0; i < 4; i++) {
		CHECK_OK(postern_box_process(boxes[i % 2], 0, NULL, &error), &error);
	}
	CHECK_INT(runs, BOX_RATE);
	postern_box_destroy(boxes[0]);
	postern_box_destroy(boxes[1]);
	scene_run(link, "DROP SCHEMA " BOX_SCHEMA " CASCADE");
	PQfinish(link);
}

static const struct tap_case cases[] = {
	{ "the database grants what the library does", both_grant_the_same },
	{ "threads that ask at the same time get the rate together",
			all_together_get_the_rate },
	{ "boxes on one database start no more runs than the rate together",
			boxes_share_the_rate },
};

TAP_MAIN(cases)
