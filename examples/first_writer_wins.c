/* SPDX-License-Identifier: MIT */
/*
 * First writer wins: many ask whether they are the first, and one is.
 *
 * postern_mark_try() checks and marks in one step, so there is no lock around
 * it. Who gets POSTERN_OK has to do the work: if the process dies before that,
 * nobody does. postern_guard_run() does not have that gap.
 */

#include <postern/postern.h>
#include <pthread.h>
#include <stdio.h>

#define INSTANCE_COUNT 8

struct instance {
	pthread_t thread;
	struct postern_guard *guard;
	int result;
};

static void *compete(void *context) {
	struct instance *self = context;
	self->result = postern_mark_try(self->guard, "order-handler-v1",
			"order-created-1", NULL);
	return NULL;
}

int main(void) {
	struct instance instances[INSTANCE_COUNT];
	struct postern_guard *guard = NULL;
	struct postern_error error;
	int first = 0;
	int duplicates = 0;
	bool done = false;
	if (postern_guard_open("sqlite:marks.db", NULL, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	(void)postern_mark_has(guard, "order-handler-v1", "order-created-1", &done,
			NULL);
	(void)printf("before: %s\n", done ? "done" : "unknown");
	for (int i = 0; i < INSTANCE_COUNT; i++) {
		instances[i].guard = guard;
		if (pthread_create(&instances[i].thread, NULL, compete,
					&instances[i])) {
			return 1;
		}
	}
	for (int i = 0; i < INSTANCE_COUNT; i++) {
		(void)pthread_join(instances[i].thread, NULL);
		first += instances[i].result == POSTERN_OK;
		duplicates += instances[i].result == POSTERN_E_DUPLICATE;
	}
	(void)printf("first: %d, duplicates: %d\n", first, duplicates);
	postern_guard_destroy(guard);
	return 0;
}
