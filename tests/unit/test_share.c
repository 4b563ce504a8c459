/* SPDX-License-Identifier: MIT */
/*
 * When a node returns leases to idle nodes, and which, for a box that is made
 * up of what the decision reads and a store that only answers.
 */

#include "tap.h"

#include "core/accept.h"
#include "core/box.h"
#include "core/reason.h"
#include "core/run.h"
#include "core/window.h"
#include "support/fake_clock.h"

#include <string.h>

#define SHARE 10000
#define RUN_MAX 100

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
	struct postern__handler *handlers[1];
	struct postern_generation generation;
	struct postern_box box;
	struct postern__content content;
	struct postern_run runs[RUN_MAX];
	size_t run_count;
	/* The store. */
	uint32_t idle_nodes;
	int code;
	int calls;
	struct postern_share told; /* by the last call */
};

static int answer(struct postern_store *store, uint64_t node,
		struct postern_share *handlers, size_t count,
		struct postern_error *error) {
	struct bench *bench = container_of(store, struct bench, store);
	(void)error;
	CHECK_INT(node, bench->box.node);
	CHECK_INT(count, 1);
	bench->calls++;
	bench->told = handlers[0];
	handlers[0].idle_nodes = handlers[0].surplus ? bench->idle_nodes : 0;
	return bench->code;
}

static void bench_init(struct bench *bench) {
	memset(bench, 0, sizeof(*bench));
	fake_clock_init(&bench->clock);
	bench->store_ops.share = answer;
	bench->store.ops = &bench->store_ops;
	bench->impl.ops = &bench->ops;
	bench->impl.kind = &bench->kind;
	bench->kind.asynchronous = true;
	bench->handler.impl = &bench->impl;
	bench->handler.state = &bench->state;
	bench->handler.channel = &bench->channel;
	bench->handler.policy.commit_batch = 1;
	bench->handler.policy.concurrency = 4;
	bench->handler.generation = &bench->generation;
	bench->handlers[0] = &bench->handler;
	bench->state.handler = &bench->handler;
	postern__list_init(&bench->state.queue);
	bench->generation.handlers = bench->handlers;
	bench->generation.handler_count = 1;
	bench->generation.box = &bench->box;
	bench->generation.refs = 2; /* never destroyed */
	bench->box.store = &bench->store;
	bench->box.generation = &bench->generation;
	bench->handler.channel = &bench->channel;
	bench->box.clock = bench->clock.base;
	bench->box.options.batch_size = 100;
	bench->box.options.run_queue_max = SHARE;
	bench->box.options.run_queue_bytes_max = SHARE;
	bench->box.workers = 4;
	bench->box.leasing = true;
	bench->box.engaged = true;
	bench->box.node = 7;
	postern__list_init(&bench->box.ready);
	postern__list_init(&bench->box.due);
	postern__list_init(&bench->box.running);
	postern__list_init(&bench->box.settlements);
	(void)pthread_mutex_init(&bench->box.mutex, NULL);
	(void)pthread_mutex_init(&bench->box.generation_mutex, NULL);
	(void)pthread_cond_init(&bench->box.wake, NULL);
	(void)pthread_cond_init(&bench->box.work, NULL);
	(void)pthread_cond_init(&bench->box.claim, NULL);
}

/* As many runs in the queue, stamped as of now. */
static void queue_runs(struct bench *bench, size_t count) {
	for (size_t i = 0; i < count; i++) {
		struct postern_run *run = &bench->runs[bench->run_count++];
		*run = (struct postern_run){
			.box = &bench->box,
			.handler = &bench->handler,
			.content = &bench->content,
			.delivery = { .seq = (int64_t)bench->run_count },
		};
		postern__run_enqueue(run);
		bench->state.held++;
	}
}

static void start_runs(struct bench *bench, size_t count) {
	bench->state.running += count;
	bench->state.held += count;
}

/* The last runs took so long. */
static void set_mean(struct bench *bench, int64_t ms) {
	const struct postern_run run = {
		.box = &bench->box,
		.handler = &bench->handler,
		.started_ms = postern__box_now_ms(&bench->box),
	};
	bench->state.run_count = 0;
	fake_clock_advance(&bench->clock, ms);
	postern__window_record(&run, postern__box_now_ms(&bench->box));
}

/* Returns how many leases are returned. */
static size_t look(struct bench *bench) {
	size_t before = bench->state.queued;
	struct postern_error error = { 0 };
	int r = postern__share(&bench->box, &error);
	CHECK_INT(r, bench->code);
	return before - bench->state.queued;
}

static bool is_returned(const struct bench *bench, size_t index) {
	const struct postern_run *run = &bench->runs[index];
	return run->state == POSTERN__RUN_SETTLING &&
		   run->settlement.to == POSTERN_SETTLE_RETURNED &&
		   run->settlement.shared;
}

static void news_are_told(void) {
	struct bench bench;
	bench_init(&bench);
	(void)look(&bench);
	CHECK_INT(bench.calls, 1);
	CHECK(bench.told.idle);
	CHECK(!bench.told.surplus);
	(void)look(&bench);
	CHECK_INT(bench.calls, 1);
	start_runs(&bench, 4);
	(void)look(&bench);
	CHECK_INT(bench.calls, 2);
	CHECK(!bench.told.idle);
	(void)look(&bench);
	CHECK_INT(bench.calls, 2);
	/* Another node id, of which the store knows nothing. */
	bench.box.node = 8;
	bench.state.running = 3;
	bench.state.held = 3;
	(void)look(&bench);
	CHECK_INT(bench.calls, 3);
	CHECK(bench.told.idle);
}

static void a_failed_call_is_repeated(void) {
	struct bench bench;
	bench_init(&bench);
	bench.code = POSTERN_E_UNAVAILABLE;
	(void)look(&bench);
	(void)look(&bench);
	CHECK_INT(bench.calls, 2);
	bench.code = POSTERN_OK;
	(void)look(&bench);
	(void)look(&bench);
	CHECK_INT(bench.calls, 3);
}

static bool told_idle(struct bench *bench) {
	bench->box.shared_node = 0;
	bench->told.idle = false;
	(void)look(bench);
	return bench->told.idle;
}

static void idle_is_who_would_start(void) {
	struct bench bench;
	bench_init(&bench);
	CHECK(told_idle(&bench));
	bench.state.paused = true;
	CHECK(!told_idle(&bench));
	bench.state.paused = false;
	bench.box.engaged = false; /* it waits for the processing lock */
	CHECK(!told_idle(&bench));
	bench.box.engaged = true;
	bench.box.leasing = false;
	CHECK(!told_idle(&bench));
	bench.box.leasing = true;
	bench.handler.policy.rate_count = 1;
	bench.handler.policy.rate_period_ms = 60000;
	bench.state.rate_at_ms = postern__box_now_ms(&bench.box) + 1;
	CHECK(!told_idle(&bench));
	fake_clock_advance(&bench.clock, 1);
	CHECK(told_idle(&bench));
	bench.handler.policy.rate_count = 0;
	queue_runs(&bench, 1);
	CHECK(!told_idle(&bench));
}

static void two_windows_are_too_much(void) {
	struct bench bench;
	bench_init(&bench);
	bench.idle_nodes = 1;
	set_mean(&bench, 400); /* ten in a second */
	start_runs(&bench, 4);
	queue_runs(&bench, 16);
	CHECK_INT(look(&bench), 0);
	CHECK(!bench.told.surplus);
	queue_runs(&bench, 1);
	/* It keeps half of all, but no more than a window. */
	CHECK_INT(look(&bench), 11);
	for (size_t i = 0; i < 17; i++) {
		CHECK(is_returned(&bench, i) == (i >= 6));
	}
}

static void a_queue_that_waits_goes_back(void) {
	struct bench bench;
	bench_init(&bench);
	bench.idle_nodes = 1;
	set_mean(&bench, 1); /* what runs now is slower than anything before */
	start_runs(&bench, 4);
	queue_runs(&bench, 5);
	CHECK_INT(look(&bench), 0);
	CHECK_INT(look(&bench), 0);
	CHECK_INT(postern__window_count(&bench.box, &bench.handler), 4000);
	CHECK_INT(look(&bench), 4);
	CHECK(is_returned(&bench, 4));
	CHECK(!is_returned(&bench, 0));
	/* And no more is leased than can run, until a run has ended. */
	CHECK_INT(postern__window_count(&bench.box, &bench.handler), 4);
	CHECK_INT(look(&bench), 1);
	CHECK_INT(look(&bench), 0);
	CHECK_INT(postern__window_count(&bench.box, &bench.handler), 4);
	bench.state.run_count++;
	(void)look(&bench);
	CHECK_INT(postern__window_count(&bench.box, &bench.handler), 4000);
}

static void nobody_is_idle(void) {
	struct bench bench;
	bench_init(&bench);
	set_mean(&bench, 1000);
	start_runs(&bench, 4);
	queue_runs(&bench, 40);
	for (int i = 0; i < 5; i++) {
		CHECK_INT(look(&bench), 0);
		CHECK(bench.told.surplus);
	}
	bench.idle_nodes = 1;
	CHECK_INT(look(&bench), 40);
}

static void each_node_gets_its_part(void) {
	struct bench bench;
	bench_init(&bench);
	set_mean(&bench, 100);
	bench.state.behind = 1;
	start_runs(&bench, 1);
	queue_runs(&bench, 39);
	bench.box.share_round = 2;
	bench.idle_nodes = 3;
	CHECK_INT(look(&bench), 30);
}

static void what_was_returned_twice_stays(void) {
	struct bench bench;
	bench_init(&bench);
	bench.idle_nodes = 1;
	set_mean(&bench, 1000);
	start_runs(&bench, 4);
	queue_runs(&bench, 12);
	bench.runs[10].returns = 2;
	bench.runs[11].returns = 1;
	bench.runs[9].suspicion = POSTERN_SUSPECT_GROUP;
	CHECK_INT(look(&bench), 10);
	CHECK(!is_returned(&bench, 10));
	CHECK(!is_returned(&bench, 9));
	CHECK(is_returned(&bench, 11));
	CHECK(is_returned(&bench, 8));
	CHECK(is_returned(&bench, 0));
}

static void the_rate_is_of_all_nodes(void) {
	struct bench bench;
	bench_init(&bench);
	bench.idle_nodes = 1;
	set_mean(&bench, 1000);
	bench.handler.policy.rate_count = 1;
	bench.handler.policy.rate_period_ms = 60000;
	bench.state.rate_at_ms = postern__box_now_ms(&bench.box) + 60000;
	queue_runs(&bench, 20);
	for (int i = 0; i < 5; i++) {
		CHECK_INT(look(&bench), 0);
		CHECK(!bench.told.surplus);
	}
}

static void a_store_of_one_process_is_not_asked(void) {
	struct bench bench;
	bench_init(&bench);
	bench.store_ops.share = NULL;
	bench.idle_nodes = 1;
	set_mean(&bench, 1000);
	queue_runs(&bench, 20);
	CHECK_INT(look(&bench), 0);
	CHECK_INT(bench.calls, 0);
}

static const struct tap_case cases[] = {
	{ "a node tells for which handlers it is idle when that changes",
			news_are_told },
	{ "what a store may not know is told again", a_failed_call_is_repeated },
	{ "a node is idle for a handler if it would start a delivery at once",
			idle_is_who_would_start },
	{ "leases of more than two windows are returned, the last of the queue",
			two_windows_are_too_much },
	{ "a queue that waits while runs hang is returned, and no more is leased",
			a_queue_that_waits_goes_back },
	{ "nothing is returned while no other node is idle", nobody_is_idle },
	{ "a node keeps its part of what it and the idle nodes can run",
			each_node_gets_its_part },
	{ "suspects and what was returned twice stay",
			what_was_returned_twice_stays },
	{ "what waits for the rate stays", the_rate_is_of_all_nodes },
	{ "in a store of one process nothing is returned",
			a_store_of_one_process_is_not_asked },
};

TAP_MAIN(cases)
