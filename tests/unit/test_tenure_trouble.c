/* SPDX-License-Identifier: MIT */
/*
 * The right to process at bad moments: the store fails, or another node acts,
 * exactly when a box registers as a new node or releases its lock.
 */

#include "tap.h"

#include "base/container.h"
#include "core/box.h"
#include "core/maintenance.h"
#include "core/run.h"
#include "core/tenure.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"

#include <postern/event.h>
#include <postern/inspect.h>
#include <postern/postern.h>
#include <postern/sys/handler.h>
#include <sched.h>
#include <stdatomic.h>

#define LOCK_NAME "InboxProcessor_default"
#define LEASE_MS 9000
/* How long a lock lasts where nodes have no lease. */
#define LOCK_MS 15000
#define RUNS_MAX 4
#define STRANGER 12345

struct bench {
	struct fake_clock clock;
	struct fake_random random;
	struct fault_plan plan;
	struct postern_store *store;
	struct postern_box *box;
	struct postern_error error;
	atomic_bool no_enrol;
	atomic_bool hold; /* the handler waits */
	atomic_int running;
	/* Called while the reply to an enrolment is on its way. */
	int (*meanwhile)(struct postern_box *box, const char *handler,
			struct postern_error *error);
	/* The lock is released while the reply to its renewal is on its way. */
	bool release_lock;
	int settled;
	int fenced;
	/* A handler that starts its runs; the test finishes them. */
	struct postern_handler kind;
	struct postern_run *runs[RUNS_MAX];
	int started;
	int stopped; /* runs cancelled because of a stop */
};

static int inject_fault(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct bench *bench = context;
	(void)batch;
	return op == FAULT_ENROL && atomic_load(&bench->no_enrol)
				   ? POSTERN_E_UNAVAILABLE
				   : POSTERN_OK;
}

static int act_before_reply(void *context, enum fault_op op) {
	struct bench *bench = context;
	if (op == FAULT_ENROL && bench->meanwhile) {
		CHECK_OK(bench->meanwhile(bench->box, "h", &bench->error),
				&bench->error);
	}
	if (op == FAULT_LOCK && bench->release_lock) {
		bench->release_lock = false;
		postern__lock_release(bench->box);
	}
	return POSTERN_OK;
}

static void count_event(void *context, const struct postern_event *event) {
	struct bench *bench = context;
	bench->settled += event->state != POSTERN_STATE_ANY;
	bench->fenced += event->kind == POSTERN_EVENT_FENCED;
}

static void manual_start(struct postern_handler *impl,
		struct postern_run *run) {
	struct bench *bench = container_of(impl, struct bench, kind);
	if (CHECK(bench->started < RUNS_MAX)) {
		bench->runs[bench->started++] = run;
	}
}

static void manual_cancel(struct postern_handler *impl, struct postern_run *run,
		enum postern_cancel why) {
	struct bench *bench = container_of(impl, struct bench, kind);
	(void)run;
	bench->stopped += why == POSTERN_CANCEL_STOP;
}

static void manual_destroy(struct postern_handler *impl) {
	(void)impl;
}

static const struct postern_handler_ops manual_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = manual_start,
	.cancel = manual_cancel,
	.destroy = manual_destroy,
};

static const struct postern_handler_kind manual_kind = { .name = "manual" };

/* Finishes all started runs as done. */
static void finish_runs(struct bench *bench) {
	struct postern_outcome done = { .kind = POSTERN_DONE };
	for (int i = 0; i < bench->started; i++) {
		postern_run_finish(bench->runs[i], &done);
	}
	bench->started = 0;
}

static void handle(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct bench *bench = context;
	(void)message;
	(void)delivery;
	atomic_fetch_add(&bench->running, 1);
	while (atomic_load(&bench->hold)) {
		(void)sched_yield();
	}
	outcome->kind = POSTERN_DONE;
}

static bool open_with(struct bench *bench, enum postern_processing processing,
		int64_t lease_ms, bool manual) {
	*bench = (struct bench){
		.kind = { .ops = &manual_ops, .kind = &manual_kind },
	};
	fake_clock_init(&bench->clock);
	fake_random_init(&bench->random, 7);
	bench->plan.decide = inject_fault;
	bench->plan.decide_after = act_before_reply;
	bench->plan.context = bench;
	bench->plan.shared = true;
	struct postern_store_options store = {
		.size = sizeof(store),
		.clock = &bench->clock.base,
		.random = &bench->random.base,
	};
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &bench->clock.base,
		.random = &bench->random.base,
		.processing = processing,
		.node_lease_ms = lease_ms,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = handle,
		.context = bench,
	};
	struct postern_error *error = &bench->error;
	return CHECK_OK(postern_store_open("memory:", &store, &bench->store, error),
				   error) &&
		   CHECK_OK(postern_box_open_taking(fault_store_create_taking(
													bench->store, &bench->plan),
							&options, &bench->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, "orders", NULL, error),
				   error) &&
		   CHECK_OK(manual ? postern__box_register_taking(bench->box, "orders",
									 &handler, &bench->kind, error)
						   : postern_box_add_handler(bench->box, "orders",
									 &handler, error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(bench->box, POSTERN_LEVEL_DEBUG,
							count_event, bench, error),
				   error) &&
		   CHECK_OK(postern_box_start(bench->box, error), error);
}

static bool open_leased(struct bench *bench, enum postern_processing processing,
		int64_t lease_ms) {
	return open_with(bench, processing, lease_ms, false);
}

static bool open_bench(struct bench *bench,
		enum postern_processing processing) {
	return open_leased(bench, processing, 0);
}

static void close_bench(struct bench *bench) {
	finish_runs(bench);
	postern_box_destroy(bench->box);
	postern_store_destroy(bench->store);
}

static void send(struct bench *bench, const char *id) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = "t",
	};
	CHECK_OK(postern_box_accept(bench->box, "orders", &message, NULL,
					 &bench->error),
			&bench->error);
}

static size_t process(struct bench *bench) {
	size_t count = 0;
	CHECK_OK(postern_box_process(bench->box, 0, &count, &bench->error),
			&bench->error);
	return count;
}

static size_t poison_orphans(struct bench *bench) {
	size_t count = 0;
	CHECK_OK(postern__poison_orphans(bench->box, &count, &bench->error),
			&bench->error);
	return count;
}

static void unenrolled_node(void) {
	struct bench bench;
	if (open_bench(&bench, POSTERN_PROCESSING_EXCLUSIVE)) {
		CHECK_INT(process(&bench), 0);
		send(&bench, "1");
		/* The box registers as a new node, and the enrolment fails. */
		atomic_store(&bench.no_enrol, true);
		CHECK_INT(postern_box_sweep(bench.box, NULL, &bench.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(poison_orphans(&bench), 0);
		atomic_store(&bench.no_enrol, false);
		CHECK_OK(postern_box_sweep(bench.box, NULL, &bench.error),
				&bench.error);
		CHECK_INT(poison_orphans(&bench), 0);
		CHECK_INT(process(&bench), 1);
	}
	close_bench(&bench);
}

static void expired_node(void) {
	struct bench bench;
	if (open_leased(&bench, POSTERN_PROCESSING_PARALLEL, LEASE_MS)) {
		send(&bench, "1");
		/* The node has expired, and cannot enrol again yet. */
		bool alive;
		CHECK_OK(bench.store->ops->renew(bench.store, bench.box->node, 0,
						 &alive, &bench.error),
				&bench.error);
		atomic_store(&bench.no_enrol, true);
		CHECK_INT(postern_box_sweep(bench.box, NULL, &bench.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(poison_orphans(&bench), 0);
		atomic_store(&bench.no_enrol, false);
		CHECK_OK(postern_box_sweep(bench.box, NULL, &bench.error),
				&bench.error);
		CHECK_INT(poison_orphans(&bench), 0);
		CHECK_INT(process(&bench), 1);
	}
	close_bench(&bench);
}

static void pause_during(bool paused) {
	struct bench bench;
	if (open_bench(&bench, POSTERN_PROCESSING_PARALLEL)) {
		if (!paused) {
			CHECK_OK(postern_box_pause(bench.box, "h", &bench.error),
					&bench.error);
		}
		bench.meanwhile = paused ? postern_box_pause : postern_box_resume;
		CHECK_OK(postern__enrol(bench.box, true, &bench.error), &bench.error);
		bench.meanwhile = NULL;
		CHECK_INT(bench.box->generation->handlers[0]->state->paused, paused);
		send(&bench, "1");
		CHECK_INT(process(&bench), paused ? 0 : 1);
	}
	close_bench(&bench);
}

static void paused_meanwhile(void) {
	pause_during(true);
}

static void resumed_meanwhile(void) {
	pause_during(false);
}

static void *process_thread(void *context) {
	struct bench *bench = context;
	(void)postern_box_process(bench->box, 0, NULL, NULL);
	return NULL;
}

static bool stranger_gets_lock(struct bench *bench) {
	bool held = true;
	uint64_t fence;
	CHECK_OK(bench->store->ops->lock(bench->store, LOCK_NAME, STRANGER, 1000,
					 &held, &fence, &bench->error),
			&bench->error);
	return held;
}

static void two_process(void) {
	struct bench bench;
	if (open_bench(&bench, POSTERN_PROCESSING_EXCLUSIVE)) {
		pthread_t thread;
		send(&bench, "1");
		atomic_store(&bench.hold, true);
		CHECK_INT(pthread_create(&thread, NULL, process_thread, &bench), 0);
		while (atomic_load(&bench.running) == 0) {
			(void)sched_yield();
		}
		CHECK_INT(process(&bench), 0);
		CHECK(!stranger_gets_lock(&bench));
		atomic_store(&bench.hold, false);
		(void)pthread_join(thread, NULL);
		CHECK(stranger_gets_lock(&bench));
	}
	close_bench(&bench);
}

static void sweep(struct bench *bench) {
	CHECK_OK(postern_box_sweep(bench->box, NULL, &bench->error), &bench->error);
}

static size_t claim(struct bench *bench, size_t max) {
	size_t count = 0;
	CHECK_OK(postern_box_claim(bench->box, max, &count, &bench->error),
			&bench->error);
	return count;
}

static size_t run(struct bench *bench, size_t max) {
	size_t count = 0;
	CHECK_OK(postern_box_run(bench->box, max, &count, &bench->error),
			&bench->error);
	return count;
}

static void commit(struct bench *bench) {
	CHECK_OK(postern_box_commit(bench->box, NULL, &bench->error),
			&bench->error);
}

/* Without renewals the node knows by its own clock when its lease or lock
   ends. */
static void watch_expiry(enum postern_processing processing, int64_t lease_ms,
		int64_t expiry_ms) {
	struct bench bench;
	if (open_with(&bench, processing, lease_ms, true)) {
		send(&bench, "1");
		send(&bench, "2");
		send(&bench, "3");
		fake_clock_advance(&bench.clock, 1000);
		sweep(&bench);
		CHECK_INT(claim(&bench, 10), 3);
		CHECK_INT(run(&bench, 1), 1);
		fake_clock_advance(&bench.clock, expiry_ms - 1);
		(void)postern__right_watch(bench.box);
		CHECK_INT(bench.stopped, 0);
		CHECK_INT(run(&bench, 1), 1);
		fake_clock_advance(&bench.clock, 1);
		CHECK_INT(run(&bench, 1), 0);
		(void)postern__right_watch(bench.box);
		CHECK_INT(bench.stopped, 2);
		/* The node does not send claims to the store either. */
		send(&bench, "4");
		CHECK_INT(claim(&bench, 10), 0);
		CHECK_INT(atomic_load(&bench.plan.calls[FAULT_CLAIM]), 1);
	}
	close_bench(&bench);
}

static void lock_is_over(void) {
	watch_expiry(POSTERN_PROCESSING_EXCLUSIVE, 0, LOCK_MS);
}

static void lease_is_over(void) {
	watch_expiry(POSTERN_PROCESSING_PARALLEL, LEASE_MS, LEASE_MS);
}

static void lock_of_what_runs(void) {
	struct bench bench;
	if (open_with(&bench, POSTERN_PROCESSING_EXCLUSIVE, 0, true)) {
		send(&bench, "1");
		CHECK_INT(process(&bench), 1);
		CHECK_INT(bench.started, 1);
		CHECK(!stranger_gets_lock(&bench));
		finish_runs(&bench);
		commit(&bench);
		CHECK_INT(bench.settled, 1);
		CHECK_INT(bench.fenced, 0);
		CHECK_INT(process(&bench), 0);
		CHECK(stranger_gets_lock(&bench));
	}
	close_bench(&bench);
}

static void released_during_renewal(void) {
	struct bench bench;
	if (open_bench(&bench, POSTERN_PROCESSING_EXCLUSIVE)) {
		send(&bench, "1");
		sweep(&bench);
		bench.release_lock = true;
		sweep(&bench);
		CHECK(!bench.release_lock);
		CHECK(stranger_gets_lock(&bench));
		CHECK_INT(claim(&bench, 10), 0);
		CHECK_INT(atomic_load(&bench.plan.calls[FAULT_CLAIM]), 0);
		/* The node can acquire the lock again. */
		fake_clock_advance(&bench.clock, LOCK_MS);
		CHECK_INT(process(&bench), 1);
	}
	close_bench(&bench);
}

/*
 * The store's clock is ahead of the node's: another node has the lock already,
 * and the node's own clock does not show it yet. One delivery runs, another is
 * queued, a third is due.
 */
static bool open_lock_stolen(struct bench *bench) {
	if (!open_with(bench, POSTERN_PROCESSING_EXCLUSIVE, 0, true)) {
		return false;
	}
	send(bench, "1");
	send(bench, "2");
	send(bench, "3");
	sweep(bench);
	CHECK_INT(claim(bench, 2), 2);
	CHECK_INT(run(bench, 1), 1);
	fake_clock_jump(&bench->clock, LOCK_MS);
	CHECK(stranger_gets_lock(bench));
	(void)postern__right_watch(bench->box);
	return CHECK_INT(bench->stopped, 0);
}

static void lost_in_one_call(void) {
	struct bench bench;
	if (open_lock_stolen(&bench)) {
		sweep(&bench);
		CHECK_INT(bench.stopped, 1);
		CHECK_INT(bench.box->generation->handlers[0]->state->queued, 0);
		/* The node does not send claims to the store either. */
		unsigned claims = atomic_load(&bench.plan.calls[FAULT_CLAIM]);
		CHECK_INT(claim(&bench, 10), 0);
		CHECK_INT(atomic_load(&bench.plan.calls[FAULT_CLAIM]), claims);
	}
	close_bench(&bench);
}

/* The other node's lock has expired when the node asks again: the node would
   own the lock under a node id that still has leases from its first
   ownership. */
static void regained_is_released(void) {
	struct bench bench;
	if (open_lock_stolen(&bench)) {
		fake_clock_advance(&bench.clock, 1000);
		sweep(&bench);
		CHECK_INT(bench.stopped, 1);
		CHECK(stranger_gets_lock(&bench));
	}
	close_bench(&bench);
}

static void refused_recovery(void) {
	struct bench bench;
	if (open_lock_stolen(&bench)) {
		size_t count = 0;
		CHECK_OK(postern__recover(bench.box, &count, &bench.error),
				&bench.error);
		CHECK_INT(run(&bench, 1), 0);
		(void)postern__right_watch(bench.box);
		CHECK_INT(bench.stopped, 1);
	}
	close_bench(&bench);
}

static void refused_claim(void) {
	struct bench bench;
	if (open_lock_stolen(&bench)) {
		CHECK_INT(claim(&bench, 10), 0);
		CHECK_INT(run(&bench, 1), 0);
		(void)postern__right_watch(bench.box);
		CHECK_INT(bench.stopped, 1);
	}
	close_bench(&bench);
}

static void former_node_expires(void) {
	struct bench bench;
	if (open_bench(&bench, POSTERN_PROCESSING_EXCLUSIVE)) {
		CHECK_INT(process(&bench), 0);
		uint64_t former = bench.box->node;
		sweep(&bench);
		CHECK(bench.box->node != former);
		bool alive = true;
		CHECK_OK(bench.store->ops->renew(bench.store, former, LEASE_MS, &alive,
						 &bench.error),
				&bench.error);
		CHECK(!alive);
	}
	close_bench(&bench);
}

static void *enrol_thread(void *context) {
	struct bench *bench = context;
	do {
		(void)postern__enrol(bench->box, true, NULL);
		atomic_fetch_add(&bench->running, 1);
	} while (atomic_load(&bench->hold));
	return NULL;
}

/* For the thread sanitizer. */
static void enrol_beside_accepts(void) {
	struct bench bench;
	if (open_bench(&bench, POSTERN_PROCESSING_PARALLEL)) {
		pthread_t thread;
		atomic_store(&bench.hold, true);
		CHECK_INT(pthread_create(&thread, NULL, enrol_thread, &bench), 0);
		while (atomic_load(&bench.running) == 0) {
			(void)sched_yield();
		}
		for (int i = 0; i < 1000; i++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "%d", i);
			send(&bench, id);
		}
		atomic_store(&bench.hold, false);
		(void)pthread_join(thread, NULL);
		CHECK_INT(process(&bench), 1000);
	}
	close_bench(&bench);
}

static const struct tap_case cases[] = {
	{ "a node whose enrolment failed poisons no orphans", unenrolled_node },
	{ "an expired node does not poison its own deliveries as orphaned",
			expired_node },
	{ "a pause during an enrolment stays in effect", paused_meanwhile },
	{ "a handler that is resumed during an enrolment runs", resumed_meanwhile },
	{ "of two threads in postern_box_process the last one releases the lock",
			two_process },
	{ "when the lock expires no run starts and running ones are cancelled",
			lock_is_over },
	{ "when the node lease expires no run starts and running ones are "
	  "cancelled",
			lease_is_over },
	{ "postern_box_process keeps the lock while runs continue after it",
			lock_of_what_runs },
	{ "a lock that is released during its renewal stays released",
			released_during_renewal },
	{ "the call that finds the lock lost cancels the runs", lost_in_one_call },
	{ "a lock acquired again after its loss is released for a new node id",
			regained_is_released },
	{ "a node whose recovery is refused starts nothing more",
			refused_recovery },
	{ "a node whose claim is refused starts nothing more", refused_claim },
	{ "a node id that was replaced by a new one expires at once",
			former_node_expires },
	{ "enrolling again does not affect accepts", enrol_beside_accepts },
};

TAP_MAIN(cases)
