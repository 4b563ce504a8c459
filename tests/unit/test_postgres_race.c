/* SPDX-License-Identifier: MIT */

/*
 * Two boxes on one database, as two processes would have, and many threads that
 * accept the same id at the same moment.
 */

#include <postern/postern.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

#define THREADS 64
#define ROUNDS 20
#define BOXES 2

struct race {
	struct postern_box *boxes[BOXES];
	pthread_barrier_t start;
	bool same_body;
	char id[32];
	atomic_int accepted;
	atomic_int duplicates;
	atomic_int conflicts;
	atomic_int others;
	atomic_llong seq; /* that every thread must get */
};

struct runner {
	struct race *race;
	int number;
	pthread_t thread;
};

static void handle(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	(void)outcome;
	atomic_int *count = context;
	atomic_fetch_add(count, 1);
}

static struct postern_box *open_box(atomic_int *handled) {
	const char *base = getenv("POSTERN_TEST_POSTGRES");
	char url[1024];
	struct postern_error error = { 0 };
	struct postern_box *box = NULL;
	(void)snprintf(url, sizeof url, "%s%cschema=race", base ? base : "",
			base && strchr(base, '?') ? '&' : '?');
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "count",
		.callback = handle,
		.context = handled,
	};
	if (!CHECK_OK(postern_box_open(url, NULL, &box, &error), &error) ||
			!CHECK_OK(postern_box_add_channel(box, "orders", NULL, &error),
					&error) ||
			!CHECK_OK(postern_box_add_handler(box, "orders", &handler, &error),
					&error) ||
			!CHECK_OK(postern_box_start(box, &error), &error)) {
		exit(1);
	}
	return box;
}

static void *accept_in_race(void *context) {
	struct runner *runner = context;
	struct race *race = runner->race;
	char body[32];
	(void)snprintf(body, sizeof body, "body %d",
			race->same_body ? 0 : runner->number);
	const struct postern_message message = {
		.size = sizeof message,
		.id = race->id,
		.body = body,
		.body_len = strlen(body),
	};
	int64_t seq = 0;
	(void)pthread_barrier_wait(&race->start);
	int r = postern_box_accept(race->boxes[runner->number % BOXES], "orders",
			&message, &seq, NULL);
	switch (r) {
	case POSTERN_OK: atomic_fetch_add(&race->accepted, 1); break;
	case POSTERN_E_DUPLICATE: atomic_fetch_add(&race->duplicates, 1); break;
	case POSTERN_E_CONFLICT: atomic_fetch_add(&race->conflicts, 1); break;
	default: atomic_fetch_add(&race->others, 1); break;
	}
	long long none = 0;
	CHECK(seq > 0);
	CHECK(atomic_compare_exchange_strong(&race->seq, &none, seq) ||
			none == seq);
	return NULL;
}

static void run_round(struct race *race, int round) {
	struct runner runners[THREADS];
	(void)snprintf(race->id, sizeof race->id, "%s-%d",
			race->same_body ? "same" : "other", round);
	atomic_store(&race->seq, 0);
	for (int i = 0; i < THREADS; i++) {
		runners[i] = (struct runner){ .race = race, .number = i };
		if (pthread_create(&runners[i].thread, NULL, accept_in_race,
					&runners[i])) {
			exit(1);
		}
	}
	for (int i = 0; i < THREADS; i++) {
		(void)pthread_join(runners[i].thread, NULL);
	}
}

/* All threads send one id at a time, from two boxes. */
static void race_for(bool same_body) {
	static struct race race;
	atomic_int handled = 0;
	race = (struct race){ .same_body = same_body };
	(void)pthread_barrier_init(&race.start, NULL, THREADS);
	for (int i = 0; i < BOXES; i++) {
		race.boxes[i] = open_box(&handled);
	}
	for (int i = 0; i < ROUNDS; i++) {
		run_round(&race, i);
	}
	CHECK_INT(atomic_load(&race.accepted), ROUNDS);
	CHECK_INT(atomic_load(same_body ? &race.duplicates : &race.conflicts),
			ROUNDS * (THREADS - 1));
	CHECK_INT(atomic_load(&race.others), 0);
	for (int i = 0; i < BOXES; i++) {
		struct postern_error error = { 0 };
		CHECK_OK(postern_box_process(race.boxes[i], 0, NULL, &error), &error);
	}
	CHECK_INT(atomic_load(&handled), ROUNDS);
	for (int i = 0; i < BOXES; i++) {
		postern_box_destroy(race.boxes[i]);
	}
	(void)pthread_barrier_destroy(&race.start);
}

static void same_body(void) {
	race_for(true);
}

static void other_body(void) {
	race_for(false);
}

static const struct tap_case cases[] = {
	{ "of 64 threads that send one message one accepts it and 63 get "
	  "duplicates",
			same_body },
	{ "of 64 threads that send one id with different bodies one accepts it",
			other_body },
};

TAP_MAIN(cases)
