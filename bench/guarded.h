/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BENCH_GUARDED_H
#define POSTERN_BENCH_GUARDED_H

/*
 * The measurement of a guard and of the bare transactions beside it, which is
 * the same for every store: one thread delivers messages, each writes a marker
 * and one row of a business table in one transaction, and then delivers all of
 * them again.
 */

#include <postern/postern.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BODY_LEN 256
#define ID_LEN_MAX 48

struct guarded_message {
	char id[ID_LEN_MAX];
	char body[BODY_LEN];
};

/* Writes the row of the message in the transaction that a guard has opened. */
typedef bool guarded_write(void *transaction,
		const struct guarded_message *message);

static void guarded_fail(const char *what, const char *why) {
	(void)fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static double guarded_now(void) {
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The same ids in every call, in no order of an index. */
static void guarded_message_init(struct guarded_message *message, size_t i) {
	uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	(void)snprintf(message->id, sizeof message->id, "%016llx-%zu",
			(unsigned long long)x, i);
	memset(message->body, 'x', sizeof message->body);
}

struct guarded_call {
	guarded_write *write;
	struct guarded_message message;
};

static void guarded_run(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct guarded_call *self = context;
	if (!self->write(call->transaction, &self->message)) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "not written");
	}
}

/* Delivers all messages; returns the seconds. Each ends with the code. */
__attribute__((unused)) static double
guarded_deliver(struct postern_guard *guard, guarded_write *write, size_t count,
		int code) {
	struct guarded_call call = { .write = write };
	struct postern_error error = { 0 };
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "bench",
		.key = call.message.id,
		.transactional = true,
	};
	double started = guarded_now();
	for (size_t i = 0; i < count; i++) {
		guarded_message_init(&call.message, i);
		int r = postern_guard_run(guard, &guarded, guarded_run, &call, NULL,
				&error);
		if (r != code) {
			guarded_fail("guard", error.text);
		}
	}
	return guarded_now() - started;
}

static void guarded_print(size_t count, double seconds, double again,
		bool wrote) {
	(void)printf("{\"messages_per_second\": %.0f,"
				 " \"again_per_second\": %.0f, \"again_wrote\": %s}\n",
			(double)count / seconds, again > 0 ? (double)count / again : 0,
			wrote ? "true" : "false");
}

#endif
