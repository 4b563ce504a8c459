/* SPDX-License-Identifier: MIT */

/*
 * Starts of handlers with a rate in PostgreSQL: the function in the database
 * grants what the one in C does, and nodes share what it grants.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

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

static const struct tap_case cases[] = {
	{ "the database grants what the library does", both_grant_the_same },
	{ "threads that ask at the same time get the rate together",
			all_together_get_the_rate },
};

TAP_MAIN(cases)
