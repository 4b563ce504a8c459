/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_HANDLER_FAKE_H
#define POSTERN_TESTS_HANDLER_FAKE_H

/*
 * A fake engine that only records how a run ended: the functions of
 * sys/handler.h that implementations of kinds call, for tests of one kind
 * alone. Include it in one file of a program that is not linked with the
 * library.
 */

#include <poll.h>
#include <postern/sys/clock.h>
#include <postern/sys/handler.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "tap.h"

struct postern_run {
	struct postern_message message;
	struct postern_delivery delivery;
	uint64_t epoch;
	int64_t deadline_ms; /* of the system's monotonic clock; 0: none */
	void *data;
	atomic_int finish_count;
	atomic_int return_count;
	struct postern_outcome outcome;
};

const struct postern_message *postern_run_message(
		const struct postern_run *run) {
	return &run->message;
}

const struct postern_delivery *postern_run_delivery(
		const struct postern_run *run) {
	return &run->delivery;
}

uint64_t postern_run_epoch(const struct postern_run *run) {
	return run->epoch;
}

static int64_t fake_now_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

int64_t postern_run_remaining_ms(const struct postern_run *run) {
	if (run->deadline_ms == 0) {
		return -1;
	}
	int64_t left = run->deadline_ms - fake_now_ms();
	return left > 0 ? left : 0;
}

void postern_run_finish(struct postern_run *run,
		const struct postern_outcome *outcome) {
	run->outcome = *outcome;
	atomic_fetch_add(&run->finish_count, 1);
}

void postern_run_return(struct postern_run *run) {
	atomic_fetch_add(&run->return_count, 1);
}

void postern_run_set_data(struct postern_run *run, void *data) {
	run->data = data;
}

void *postern_run_data(const struct postern_run *run) {
	return run->data;
}

/* Sets a message with this body and the attributes that every message has. */
__attribute__((unused)) static void fake_init(struct postern_run *run,
		const void *body, size_t len) {
	memset(run, 0, sizeof *run);
	run->message = (struct postern_message){
		.size = sizeof run->message,
		.id = "m-1",
		.source = "orders",
		.type = "order.placed",
		.body = body,
		.body_len = len,
	};
	run->delivery = (struct postern_delivery){
		.size = sizeof run->delivery,
		.seq = 7,
		.channel = "orders",
		.handler = "mail",
		.attempt = 2,
		.fence = 5,
	};
	/* Fill the outcome with bytes that are not a valid one. */
	memset(&run->outcome, 0x5a, sizeof run->outcome);
}

/* Start a run and wait for its end. */
__attribute__((unused)) static void fake_start(struct postern_handler *handler,
		struct postern_run *run) {
	handler->ops->start(handler, run);
	while (run->finish_count + run->return_count == 0) {
		(void)poll(NULL, 0, 1);
	}
}

/* Start a run and check that it ended once, by an outcome. */
__attribute__((unused)) static void fake_run(struct postern_handler *handler,
		struct postern_run *run) {
	fake_start(handler, run);
	CHECK_INT(run->finish_count, 1);
	CHECK_INT(run->return_count, 0);
	CHECK(!run->data);
}

#endif
