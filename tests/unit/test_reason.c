/* SPDX-License-Identifier: MIT */
/*
 * Why deliveries of a handler do not start, for a box that is made up of what
 * the decision reads.
 */

#include "tap.h"

#include "core/box.h"
#include "core/reason.h"
#include "core/run.h"
#include "support/fake_clock.h"

#include <string.h>

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
	struct postern_run run;
	struct postern_generation generation;
	struct postern_box box;
};

/* A transactional handler with one delivery in its queue, in a store with three
   transactions. */
static void bench_init(struct bench *bench) {
	memset(bench, 0, sizeof(*bench));
	fake_clock_init(&bench->clock);
	bench->store.ops = &bench->store_ops;
	bench->store.transactions = 3;
	bench->impl.ops = &bench->ops;
	bench->impl.kind = &bench->kind;
	bench->impl.transactional = true;
	bench->handler.impl = &bench->impl;
	bench->handler.state = &bench->state;
	bench->handler.channel = &bench->channel;
	bench->handler.generation = &bench->generation;
	bench->handler.policy.commit_batch = 1;
	postern__list_init(&bench->state.queue);
	postern__list_push_back(&bench->state.queue, &bench->run.link);
	bench->state.queued = 1;
	bench->run.handler = &bench->handler;
	bench->generation.box = &bench->box;
	bench->generation.handler_count = 2;
	bench->generation.transactional_count = 2;
	bench->box.store = &bench->store;
	bench->box.generation = &bench->generation;
	bench->box.clock = bench->clock.base;
}

static enum postern__reason reason(const struct bench *bench) {
	return postern__why_not_start(&bench->box, &bench->handler);
}

static void the_last_transaction_is_for_others(void) {
	struct bench bench;
	bench_init(&bench);
	bench.box.transacting = 1;
	bench.state.running = 1;
	CHECK_INT(reason(&bench), POSTERN__REASON_NONE);
	bench.box.transacting = 2;
	CHECK_INT(reason(&bench), POSTERN__REASON_CONCURRENCY);
	/* One that has none may take it. */
	bench.state.running = 0;
	CHECK_INT(reason(&bench), POSTERN__REASON_NONE);
	bench.box.transacting = 3;
	CHECK_INT(reason(&bench), POSTERN__REASON_STORE);
}

static void a_single_handler_has_all_transactions(void) {
	struct bench bench;
	bench_init(&bench);
	bench.generation.transactional_count = 1;
	bench.box.transacting = 2;
	bench.state.running = 2;
	CHECK_INT(reason(&bench), POSTERN__REASON_NONE);
}

static void the_only_transaction_is_shared(void) {
	struct bench bench;
	bench_init(&bench);
	bench.store.transactions = 1;
	CHECK_INT(reason(&bench), POSTERN__REASON_NONE);
	bench.box.transacting = 1;
	CHECK_INT(reason(&bench), POSTERN__REASON_STORE);
}

static void a_pause_comes_first(void) {
	struct bench bench;
	bench_init(&bench);
	bench.box.transacting = 3;
	bench.state.paused = true;
	CHECK_INT(reason(&bench), POSTERN__REASON_PAUSED);
	CHECK_STR(postern__reason_name(POSTERN__REASON_PAUSED), "paused");
}

/* A callback in a box whose four workers may become eight. */
static void bench_init_callback(struct bench *bench) {
	bench_init(bench);
	bench->impl.transactional = false;
	bench->kind.in_process = true;
	bench->box.workers = 4;
	bench->box.workers_max = 8;
}

static void the_last_worker_is_for_others(void) {
	struct bench bench;
	bench_init_callback(&bench);
	bench.handler.policy.concurrency = 100;
	bench.state.running = 6;
	bench.box.workers_held = 6;
	CHECK_INT(reason(&bench), POSTERN__REASON_NONE);
	bench.box.workers_held = 7;
	CHECK_INT(reason(&bench), POSTERN__REASON_CONCURRENCY);
	/* A transaction has a worker, too. */
	bench.box.workers_held = 5;
	bench.box.transacting = 2;
	CHECK_INT(reason(&bench), POSTERN__REASON_CONCURRENCY);
	bench.state.running = 0;
	CHECK_INT(reason(&bench), POSTERN__REASON_NONE);
}

static void no_limit_is_the_usual_number(void) {
	struct bench bench;
	bench_init_callback(&bench);
	bench.state.running = 3;
	bench.box.workers_held = 3;
	CHECK_INT(reason(&bench), POSTERN__REASON_NONE);
	bench.state.running = 4;
	bench.box.workers_held = 4;
	CHECK_INT(reason(&bench), POSTERN__REASON_CONCURRENCY);
}

static void asynchronous_runs_hold_no_worker(void) {
	struct bench bench;
	bench_init_callback(&bench);
	bench.kind.in_process = false;
	bench.kind.asynchronous = true;
	bench.handler.policy.concurrency = 100;
	bench.state.running = 50;
	bench.box.workers_held = 7;
	CHECK_INT(reason(&bench), POSTERN__REASON_NONE);
	CHECK(!postern__handler_holds_worker(&bench.handler));
}

static const struct tap_case cases[] = {
	{ "a handler with a transaction leaves the last free one to others",
			the_last_transaction_is_for_others },
	{ "the only transactional handler may have all transactions",
			a_single_handler_has_all_transactions },
	{ "in a store with one transaction handlers take turns",
			the_only_transaction_is_shared },
	{ "a handler with a worker leaves the last free one to others",
			the_last_worker_is_for_others },
	{ "a handler without a limit has the usual number of workers",
			no_limit_is_the_usual_number },
	{ "runs of an asynchronous kind hold no worker",
			asynchronous_runs_hold_no_worker },
	{ "a paused handler is paused, whatever else is in the way",
			a_pause_comes_first },
};

TAP_MAIN(cases)
