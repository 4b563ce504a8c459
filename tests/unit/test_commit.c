/* SPDX-License-Identifier: MIT */
/*
 * Group commit when the store fails: one bad item is isolated, and while the
 * store is unavailable nothing that was promised is lost.
 */

#include "tap.h"

#include "core/box.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"

#include <postern/postern.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct bench {
	struct fake_clock clock;
	struct fault_plan plan;
	struct postern_box *box;
	struct postern_error error;
	int calls;
	/* Input. */
	const char *bad_id;
	int bad_code;
	bool down[FAULT_OP_COUNT];
	atomic_bool apply_down; /* down[FAULT_APPLY], while threads run */
	/* Output. */
	int settled; /* settlements that were passed to the store */
	int again;   /* settlements marked as repeated */
	size_t most; /* items of one batch that were passed to the store */
};

static int decide_fault(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct bench *bench = context;
	if (batch && batch->accept_count > bench->most) {
		bench->most = batch->accept_count;
	}
	for (size_t i = 0; batch && i < batch->settlement_count; i++) {
		bench->settled++;
		bench->again += batch->settlements[i].again;
	}
	if (bench->down[op] ||
			(op == FAULT_APPLY && atomic_load(&bench->apply_down))) {
		return POSTERN_E_UNAVAILABLE;
	}
	for (size_t i = 0; batch && bench->bad_id && i < batch->accept_count; i++) {
		if (strcmp(batch->accepts[i].message->id, bench->bad_id) == 0) {
			return bench->bad_code;
		}
	}
	return POSTERN_OK;
}

static void count_call(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	(void)outcome;
	struct bench *bench = context;
	bench->calls++;
}

static bool open_box(struct bench *bench) {
	*bench = (struct bench){ 0 };
	fake_clock_init(&bench->clock);
	bench->plan.decide = decide_fault;
	bench->plan.context = bench;
	struct postern_store *store;
	if (!CHECK_OK(postern_store_open("memory:", NULL, &store, &bench->error),
				&bench->error)) {
		return false;
	}
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &bench->clock.base,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = count_call,
		.context = bench,
	};
	struct postern_error *error = &bench->error;
	return CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
													&bench->plan),
							&options, &bench->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(bench->box, "c", &handler, error),
				   error) &&
		   CHECK_OK(postern_box_start(bench->box, error), error);
}

#define MANY 256

static void accept_many(struct bench *bench, struct postern_receipt *receipts) {
	static char ids[MANY][16];
	struct postern_message messages[MANY] = { 0 };
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(ids[i], sizeof(ids[i]), "m%d", i);
		messages[i].size = sizeof(messages[i]);
		messages[i].id = ids[i];
	}
	CHECK_OK(postern_box_accept_batch(bench->box, "c", messages, MANY, receipts,
					 &bench->error),
			&bench->error);
}

static void bad_item_stands_alone(void) {
	struct bench bench;
	struct postern_receipt receipts[MANY];
	if (!open_box(&bench)) {
		return;
	}
	bench.bad_id = "m77";
	bench.bad_code = POSTERN_E_INVALID;
	accept_many(&bench, receipts);
	for (int i = 0; i < MANY; i++) {
		CHECK_INT(receipts[i].error.code,
				i == 77 ? POSTERN_E_INVALID : POSTERN_OK);
	}
	CHECK_CONTAINS(receipts[77].error.text, "the test says no");
	/* Two calls for each level of halving, not one for each item. */
	CHECK(atomic_load(&bench.plan.calls[FAULT_APPLY]) <= 2 * 8 + 1);
	size_t count = 0;
	CHECK_OK(postern_box_process(bench.box, 0, &count, &bench.error),
			&bench.error);
	CHECK_INT(count, MANY - 1);
	/* The message was not stored: it can be accepted without the fault. */
	bench.bad_id = NULL;
	accept_many(&bench, receipts);
	for (int i = 0; i < MANY; i++) {
		CHECK_INT(receipts[i].error.code,
				i == 77 ? POSTERN_OK : POSTERN_E_DUPLICATE);
	}
	postern_box_destroy(bench.box);
}

static void batches_are_bounded(void) {
	struct bench bench;
	if (open_box(&bench)) {
		int count = POSTERN__COMMIT_ITEMS_MAX + 500;
		for (int i = 0; i < count; i++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "m%d", i);
			const struct postern_message message = {
				.size = sizeof(message),
				.id = id,
				.body = "",
			};
			CHECK_OK(postern_box_accept_async(bench.box, "c", &message, NULL,
							 NULL, &bench.error),
					&bench.error);
		}
		size_t total = 0;
		size_t done = 1;
		while (done > 0 &&
				CHECK_OK(postern_box_commit(bench.box, &done, &bench.error),
						&bench.error)) {
			total += done;
		}
		CHECK_INT(total, count);
		CHECK_INT(bench.most, POSTERN__COMMIT_ITEMS_MAX);
	}
	postern_box_destroy(bench.box);
}

static void store_down_fails_accepts(void) {
	struct bench bench;
	struct postern_receipt receipts[MANY];
	if (!open_box(&bench)) {
		return;
	}
	bench.down[FAULT_APPLY] = true;
	accept_many(&bench, receipts);
	for (int i = 0; i < MANY; i++) {
		CHECK_INT(receipts[i].error.code, POSTERN_E_UNAVAILABLE);
	}
	/* The whole store is down: no halving. */
	CHECK_INT(atomic_load(&bench.plan.calls[FAULT_APPLY]), 1);
	bench.down[FAULT_APPLY] = false;
	accept_many(&bench, receipts);
	for (int i = 0; i < MANY; i++) {
		CHECK_INT(receipts[i].error.code, POSTERN_OK);
	}
	postern_box_destroy(bench.box);
}

/* Run one message, whose settlement waits. */
static void run_one(struct bench *bench) {
	struct postern_error *error = &bench->error;
	struct postern_message message = { .size = sizeof(message), .id = "a" };
	CHECK_OK(postern_box_accept(bench->box, "c", &message, NULL, error), error);
	size_t count = 0;
	CHECK_OK(postern_box_claim(bench->box, 10, &count, error), error);
	CHECK_INT(count, 1);
	CHECK_OK(postern_box_run(bench->box, 10, &count, error), error);
	CHECK_INT(count, 1);
}

static void results_wait_for_the_store(void) {
	struct bench bench;
	if (!open_box(&bench)) {
		return;
	}
	run_one(&bench);
	size_t count = 0;
	bench.down[FAULT_APPLY] = true;
	for (int i = 0; i < 3; i++) {
		CHECK_INT(postern_box_commit(bench.box, &count, &bench.error),
				POSTERN_E_UNAVAILABLE);
		fake_clock_advance(&bench.clock, 1000);
	}
	/* An accept in between fails at once and has no effect on it. */
	struct postern_message message = { .size = sizeof(message), .id = "b" };
	CHECK_INT(postern_box_accept(bench.box, "c", &message, NULL, &bench.error),
			POSTERN_E_UNAVAILABLE);
	bench.down[FAULT_APPLY] = false;
	fake_clock_advance(&bench.clock, 1000);
	CHECK_OK(postern_box_commit(bench.box, &count, &bench.error), &bench.error);
	CHECK_INT(count, 1);
	/* The batch tells the store that it may have been written already. */
	CHECK(bench.settled > 1);
	CHECK_INT(bench.again, bench.settled - 1);
	CHECK_OK(postern_box_process(bench.box, 0, &count, &bench.error),
			&bench.error);
	CHECK_INT(count, 0);
	CHECK_INT(bench.calls, 1);
	postern_box_destroy(bench.box);
}

static void results_pause(void) {
	struct bench bench;
	if (!open_box(&bench)) {
		return;
	}
	run_one(&bench);
	bench.down[FAULT_APPLY] = true;
	atomic_uint *calls = &bench.plan.calls[FAULT_APPLY];
	for (int i = 0; i < 3; i++) {
		unsigned before = atomic_load(calls);
		size_t count = 1;
		CHECK_INT(postern_box_commit(bench.box, NULL, &bench.error),
				POSTERN_E_UNAVAILABLE);
		fake_clock_advance(&bench.clock, 999);
		CHECK_OK(postern_box_commit(bench.box, &count, &bench.error),
				&bench.error);
		CHECK_INT(count, 0);
		CHECK_INT(atomic_load(calls) - before, 1);
		fake_clock_advance(&bench.clock, 1);
	}
	postern_box_destroy(bench.box);
}

static void claim_error_is_returned(void) {
	struct bench bench;
	if (!open_box(&bench)) {
		return;
	}
	struct postern_message message = { .size = sizeof(message), .id = "a" };
	CHECK_OK(postern_box_accept(bench.box, "c", &message, NULL, &bench.error),
			&bench.error);
	size_t count = 0;
	bench.down[FAULT_CLAIM] = true;
	CHECK_INT(postern_box_process(bench.box, 0, &count, &bench.error),
			POSTERN_E_UNAVAILABLE);
	bench.down[FAULT_CLAIM] = false;
	CHECK_OK(postern_box_process(bench.box, 0, &count, &bench.error),
			&bench.error);
	CHECK_INT(count, 1);
	postern_box_destroy(bench.box);
}

/* No more messages arrive; the runner detects it by itself. */
static void health_comes_back(void) {
	struct bench bench;
	if (!open_box(&bench)) {
		return;
	}
	struct postern_runner_options options = {
		.size = sizeof(options),
		.restart_delay_ms = 1,
	};
	struct postern_runner *runner = NULL;
	atomic_store(&bench.apply_down, true);
	CHECK_OK(postern_runner_create(bench.box, &options, &runner, &bench.error),
			&bench.error);
	CHECK_OK(postern_runner_start(runner, &bench.error), &bench.error);
	struct postern_message message = { .size = sizeof(message), .id = "a" };
	CHECK_INT(postern_box_accept(bench.box, "c", &message, NULL, &bench.error),
			POSTERN_E_UNAVAILABLE);
	CHECK_INT(postern_runner_health(runner, &bench.error),
			POSTERN_E_UNAVAILABLE);
	atomic_store(&bench.apply_down, false);
	/* The fake clock stands still: each round sleeps for real time. */
	for (int i = 0; i < 60000 && postern_runner_health(runner, NULL); i++) {
		fake_clock_advance(&bench.clock, 1);
		(void)usleep(1000);
	}
	CHECK_OK(postern_runner_health(runner, &bench.error), &bench.error);
	postern_runner_destroy(runner);
	postern_box_destroy(bench.box);
}

static const struct tap_case cases[] = {
	{ "one bad item is isolated by halving and the others commit",
			bad_item_stands_alone },
	{ "a commit has no more items than fit into a batch", batches_are_bounded },
	{ "with the store down accepts fail and nothing is stored",
			store_down_fails_accepts },
	{ "with the store down settlements wait and are not lost",
			results_wait_for_the_store },
	{ "with the store down settlements wait between two attempts",
			results_pause },
	{ "a failed claim returns an error and can be repeated",
			claim_error_is_returned },
	{ "a store that works again is detected without traffic",
			health_comes_back },
};

TAP_MAIN(cases)
