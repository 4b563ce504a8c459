/* SPDX-License-Identifier: MIT */
/*
 * How many deliveries a node leases in advance, for a box that is made up of
 * what the decision reads.
 */

#include "tap.h"

#include "core/accept.h"
#include "core/box.h"
#include "core/run.h"
#include "core/window.h"
#include "support/fake_clock.h"

#include <string.h>

#define SHARE 10000

struct bench {
	struct fake_clock clock;
	struct postern_store_ops store_ops;
	struct postern_store store;
	struct postern_handler_ops ops;
	struct postern_handler_kind kind;
	struct postern_handler impl;
	struct postern__handler_state state;
	struct postern__channel channel;
	struct postern__handler handler;
	struct postern_generation generation;
	struct postern_box box;
};

static void bench_init(struct bench *bench) {
	memset(bench, 0, sizeof(*bench));
	fake_clock_init(&bench->clock);
	bench->store.ops = &bench->store_ops;
	bench->impl.ops = &bench->ops;
	bench->impl.kind = &bench->kind;
	bench->handler.impl = &bench->impl;
	bench->handler.state = &bench->state;
	bench->handler.channel = &bench->channel;
	bench->handler.policy.commit_batch = 1;
	bench->generation.handler_count = 1;
	bench->box.store = &bench->store;
	bench->box.generation = &bench->generation;
	bench->handler.channel = &bench->channel;
	bench->box.clock = bench->clock.base;
	bench->box.options.batch_size = 100;
	bench->box.options.run_queue_max = SHARE;
	bench->box.workers = 4;
}

static size_t window(const struct bench *bench) {
	return postern__window_count(&bench->box, &bench->handler);
}

static void record_runs(struct bench *bench, int count, int64_t ms) {
	for (int i = 0; i < count; i++) {
		const struct postern_run run = {
			.box = &bench->box,
			.handler = &bench->handler,
			.started_ms = postern__box_now_ms(&bench->box),
		};
		fake_clock_advance(&bench->clock, ms);
		postern__window_record(&run, postern__box_now_ms(&bench->box));
	}
}

static void before_the_first_run_ends(void) {
	struct bench bench;
	bench_init(&bench);
	CHECK_INT(window(&bench), 4);
	bench.handler.policy.concurrency = 7;
	CHECK_INT(window(&bench), 7);
	/* Whole batches of a sql handler, and as many as there are
	   transactions. */
	bench.impl.transactional = true;
	bench.ops.batches = true;
	bench.handler.policy.commit_batch = 50;
	bench.store.transactions = 3;
	CHECK_INT(window(&bench), 150);
	bench.handler.policy.concurrency = 2;
	CHECK_INT(window(&bench), 100);
}

static void it_is_a_second_of_work(void) {
	struct bench bench;
	bench_init(&bench);
	record_runs(&bench, 1, 100);
	CHECK_INT(window(&bench), 40);
	/* Slow work: never less than can run at the same time. */
	record_runs(&bench, 100, 5000);
	CHECK_INT(window(&bench), 4);
	/* Fast again: all that fits into memory. */
	record_runs(&bench, 100, 0);
	CHECK_INT(window(&bench), SHARE);
}

static void a_store_of_one_process_is_not_shared(void) {
	struct bench bench;
	bench_init(&bench);
	bench.store_ops.exclusive = true;
	record_runs(&bench, 10, 5000);
	CHECK_INT(window(&bench), SHARE);
}

static void a_rate_bounds_it(void) {
	struct bench bench;
	bench_init(&bench);
	record_runs(&bench, 10, 0);
	bench.handler.policy.rate_count = 100;
	bench.handler.policy.rate_period_ms = 1000;
	CHECK_INT(window(&bench), 101);
	bench.state.running = 3;
	CHECK_INT(window(&bench), 104);
	bench.state.running = 0;
	bench.handler.policy.rate_count = 10;
	bench.handler.policy.rate_period_ms = 60000;
	CHECK_INT(window(&bench), 1);
}

static void processing_by_hand_claims_batches(void) {
	struct bench bench;
	bench_init(&bench);
	bench.box.workers = 0;
	CHECK_INT(window(&bench), 100);
}

static void no_room_beyond_the_window(void) {
	struct bench bench;
	bench_init(&bench);
	bench.box.options.run_queue_bytes_max = 1000;
	bench.state.held = 3;
	CHECK(postern__handler_has_room(&bench.box, &bench.handler, 1));
	bench.state.held = 4;
	CHECK(!postern__handler_has_room(&bench.box, &bench.handler, 1));
}

static const struct tap_case cases[] = {
	{ "before a run has ended, the window is what can run at the same time",
			before_the_first_run_ends },
	{ "the window is a second of work by the latest runs",
			it_is_a_second_of_work },
	{ "a store that one process owns has no window",
			a_store_of_one_process_is_not_shared },
	{ "no more is leased than the rate lets start in a second",
			a_rate_bounds_it },
	{ "without a runner whole batches are claimed",
			processing_by_hand_claims_batches },
	{ "a handler has no room beyond its window", no_room_beyond_the_window },
};

TAP_MAIN(cases)
