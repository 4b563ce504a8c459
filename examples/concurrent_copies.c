/* SPDX-License-Identifier: MIT */
/*
 * Copies of a message that arrive at the same time: the function runs once.
 *
 * A check before the work and a record after it would let all of them through.
 * The guard has the others wait for the one that runs, and then answers that
 * they are duplicates.
 */

#include <postern/postern.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define COPY_COUNT 8

static struct postern_guard *guard;
static pthread_barrier_t together;
static atomic_int charged;
static atomic_int acknowledged;

static void charge(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	(void)call;
	(void)outcome;
	atomic_fetch_add(&charged, 1);
}

static void *consume(void *context) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "charge-card-v1",
		.key = "payment-17",
	};
	(void)context;
	(void)pthread_barrier_wait(&together);
	int r = postern_guard_run(guard, &guarded, charge, NULL, NULL, NULL);
	if (r == POSTERN_OK || r == POSTERN_E_DUPLICATE) {
		/* Charged by now, by this copy or by another one. */
		atomic_fetch_add(&acknowledged, atomic_load(&charged));
	}
	return NULL;
}

int main(void) {
	pthread_t threads[COPY_COUNT];
	struct postern_error error;
	if (postern_guard_open("memory:", NULL, &guard, &error) ||
			pthread_barrier_init(&together, NULL, COPY_COUNT)) {
		return 1;
	}
	for (int i = 0; i < COPY_COUNT; i++) {
		if (pthread_create(&threads[i], NULL, consume, NULL)) {
			return 1;
		}
	}
	for (int i = 0; i < COPY_COUNT; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	(void)printf("copies: %d\ncharged: %d\nacknowledged: %d\n", COPY_COUNT,
			atomic_load(&charged), atomic_load(&acknowledged));
	(void)pthread_barrier_destroy(&together);
	postern_guard_destroy(guard);
	return 0;
}
