/* SPDX-License-Identifier: MIT */
/*
 * Handlers that hang beside the one that is measured: every second one is a
 * program, the others are callbacks. Each gets one message before the job
 * begins, and its run does not end before the job has. One more callback is
 * slow: it has messages as long as the job runs, and takes ten seconds for
 * each.
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/wait.h"
#include "cli/bench.h"

#define CHANNEL "hung"
#define SLOW "slow"
#define SLOW_MS ((int64_t)10 * 1000)
#define SLOW_COUNT 200
/* How long to wait for the callbacks to start. */
#define PATIENCE_MS ((int64_t)60 * 1000)

void postern__bench_hung_init(struct postern__bench_hung *hung) {
	*hung = (struct postern__bench_hung){ 0 };
	/* Neither can fail on Linux. */
	(void)pthread_mutex_init(&hung->mutex, NULL);
	(void)postern__wait_init(&hung->changed);
}

void postern__bench_hung_finish(struct postern__bench_hung *hung) {
	(void)pthread_cond_destroy(&hung->changed);
	(void)pthread_mutex_destroy(&hung->mutex);
}

bool postern__bench_hung_is(const struct postern_event *event) {
	return event->channel && strcmp(event->channel, CHANNEL) == 0;
}

static void hang(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct postern__bench_hung *hung = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	(void)pthread_mutex_lock(&hung->mutex);
	hung->waiting++;
	(void)pthread_cond_broadcast(&hung->changed);
	while (!hung->released) {
		postern__wait(&hung->changed, &hung->mutex, PATIENCE_MS);
	}
	(void)pthread_mutex_unlock(&hung->mutex);
}

static void sleep_long(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct postern__bench_hung *hung = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	(void)pthread_mutex_lock(&hung->mutex);
	/* The callbacks that hang wake this one only before the job begins. */
	if (!hung->released) {
		postern__wait(&hung->changed, &hung->mutex, SLOW_MS);
	}
	(void)pthread_mutex_unlock(&hung->mutex);
}

static int add_slow(struct postern__bench_hung *hung, struct postern_box *box,
		struct postern_error *error) {
	static const char *const type = SLOW;
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = SLOW,
		.types = &type,
		.type_count = 1,
		.callback = sleep_long,
		.context = hung,
	};
	return postern_box_add_handler(box, CHANNEL, &handler, error);
}

static int send_slow(struct postern_box *box, struct postern_error *error) {
	char ids[SLOW_COUNT][16];
	struct postern_message messages[SLOW_COUNT];
	struct postern_receipt receipts[SLOW_COUNT];
	for (int i = 0; i < SLOW_COUNT; i++) {
		(void)snprintf(ids[i], sizeof ids[i], SLOW "-%d", i);
		messages[i] = (struct postern_message){
			.size = sizeof messages[i],
			.id = ids[i],
			.type = SLOW,
		};
	}
	return postern_box_accept_batch(box, CHANNEL, messages, SLOW_COUNT,
			receipts, error);
}

int postern__bench_hung_add(struct postern__bench_hung *hung,
		struct postern_box *box, uint32_t count, struct postern_error *error) {
	static const char *const program[] = { "/bin/sleep", "3600" };
	int r = count > 0 ? postern_box_add_channel(box, CHANNEL, NULL, error)
					  : POSTERN_OK;
	hung->count = count;
	for (uint32_t i = 0; !r && i < count; i++) {
		char key[32];
		(void)snprintf(key, sizeof key, CHANNEL "-%u", (unsigned)i);
		const char *type = key;
		struct postern_handler_options handler = {
			.size = sizeof handler,
			.key = key,
			.types = &type,
			.type_count = 1,
		};
		if (i % 2 == 0) {
			handler.callback = hang;
			handler.context = hung;
		} else {
			handler.exec = program;
			handler.exec_count = 2;
		}
		r = postern_box_add_handler(box, CHANNEL, &handler, error);
	}
	return r || count == 0 ? r : add_slow(hung, box, error);
}

int postern__bench_hung_start(struct postern__bench_hung *hung,
		struct postern_box *box, struct postern_error *error) {
	int r = POSTERN_OK;
	for (uint32_t i = 0; !r && i < hung->count; i++) {
		char type[32];
		(void)snprintf(type, sizeof type, CHANNEL "-%u", (unsigned)i);
		const struct postern_message message = {
			.size = sizeof message,
			.id = type,
			.type = type,
		};
		r = postern_box_accept(box, CHANNEL, &message, NULL, error);
	}
	(void)pthread_mutex_lock(&hung->mutex);
	size_t callbacks = (hung->count + 1) / 2;
	for (int64_t ms = 0; !r && hung->waiting < callbacks; ms += 10) {
		if (ms >= PATIENCE_MS) {
			r = postern__fail(error, POSTERN_E_TIMEOUT,
					"%zu of %zu handlers that should hang have started",
					hung->waiting, callbacks);
		}
		postern__wait(&hung->changed, &hung->mutex, 10);
	}
	(void)pthread_mutex_unlock(&hung->mutex);
	return r || hung->count == 0 ? r : send_slow(box, error);
}

void postern__bench_hung_release(struct postern__bench_hung *hung) {
	(void)pthread_mutex_lock(&hung->mutex);
	hung->released = true;
	(void)pthread_cond_broadcast(&hung->changed);
	(void)pthread_mutex_unlock(&hung->mutex);
}
