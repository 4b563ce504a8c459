/* SPDX-License-Identifier: MIT */
/*
 * Tenure in trouble: the store fails, or somebody else comes, at the very
 * moment when a box begins a new life or lets go of its lock.
 */

#include "tap.h"

#include "base/container.h"
#include "core/box.h"
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
/* A lock's time, where nodes have none. */
#define LOCK_MS 15000
#define RUNS_MAX 4
#define STRANGER 12345

struct house {
	struct fake_clock clock;
	struct fake_random random;
	struct fault_plan plan;
	struct postern_store *store;
	struct postern_box *box;
	struct postern_error error;
	atomic_bool no_enrol;
	atomic_bool hold; /* the handler waits */
	atomic_int running;
	/* Done by somebody else while the answer to an enrolment is on its way. */
	int (*meanwhile)(struct postern_box *box, const char *handler,
			struct postern_error *error);
	/* The lock is let go while the answer about it is on its way. */
	bool let_go;
	int settled;
	int fenced;
	/* A kind that starts its runs and leaves them to the test. */
	struct postern_handler kind;
	struct postern_run *runs[RUNS_MAX];
	int started;
	int stopped; /* told to stop */
};

static int decide(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct house *house = context;
	(void)batch;
	return op == FAULT_ENROL && atomic_load(&house->no_enrol)
				   ? POSTERN_E_UNAVAILABLE
				   : POSTERN_OK;
}

static int decide_after(void *context, enum fault_op op) {
	struct house *house = context;
	if (op == FAULT_ENROL && house->meanwhile) {
		CHECK_OK(house->meanwhile(house->box, "h", &house->error),
				&house->error);
	}
	if (op == FAULT_LOCK && house->let_go) {
		house->let_go = false;
		postern__lock_release(house->box);
	}
	return POSTERN_OK;
}

static void listen(void *context, const struct postern_event *event) {
	struct house *house = context;
	house->settled += event->kind == POSTERN_EVENT_SETTLED;
	house->fenced += event->kind == POSTERN_EVENT_FENCED;
}

static void patient_start(struct postern_handler *impl,
		struct postern_run *run) {
	struct house *house = container_of(impl, struct house, kind);
	if (CHECK(house->started < RUNS_MAX)) {
		house->runs[house->started++] = run;
	}
}

static void patient_cancel(struct postern_handler *impl,
		struct postern_run *run, enum postern_cancel why) {
	struct house *house = container_of(impl, struct house, kind);
	(void)run;
	house->stopped += why == POSTERN_CANCEL_STOP;
}

static void patient_destroy(struct postern_handler *impl) {
	(void)impl;
}

static const struct postern_handler_ops patient_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.name = "patient",
	.start = patient_start,
	.cancel = patient_cancel,
	.destroy = patient_destroy,
};

/* All that was started is done now. */
static void finish_runs(struct house *house) {
	struct postern_outcome done = { .kind = POSTERN_DONE };
	for (int i = 0; i < house->started; i++) {
		postern_run_finish(house->runs[i], &done);
	}
	house->started = 0;
}

static void handle(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct house *house = context;
	(void)message;
	(void)delivery;
	atomic_fetch_add(&house->running, 1);
	while (atomic_load(&house->hold)) {
		(void)sched_yield();
	}
	outcome->kind = POSTERN_DONE;
}

static bool open_with(struct house *house, enum postern_processing processing,
		int64_t lease_ms, bool patient) {
	*house = (struct house){ .kind.ops = &patient_ops };
	fake_clock_init(&house->clock);
	fake_random_init(&house->random, 7);
	house->plan.decide = decide;
	house->plan.decide_after = decide_after;
	house->plan.context = house;
	house->plan.shared = true;
	struct postern_store_options store = {
		.size = sizeof(store),
		.clock = &house->clock.base,
		.random = &house->random.base,
	};
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &house->clock.base,
		.random = &house->random.base,
		.processing = processing,
		.node_lease_ms = lease_ms,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = handle,
		.context = house,
	};
	struct postern_error *error = &house->error;
	return CHECK_OK(postern_store_open("memory:", &store, &house->store, error),
				   error) &&
		   CHECK_OK(postern_box_open_taking(fault_store_create_taking(
													house->store, &house->plan),
							&options, &house->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(house->box, "orders", NULL, error),
				   error) &&
		   CHECK_OK(patient ? postern__box_register_taking(house->box, "orders",
									  &handler, &house->kind, error)
							: postern_box_add_handler(house->box, "orders",
									  &handler, error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(house->box, listen, house, error),
				   error) &&
		   CHECK_OK(postern_box_start(house->box, error), error);
}

static bool open_leased(struct house *house, enum postern_processing processing,
		int64_t lease_ms) {
	return open_with(house, processing, lease_ms, false);
}

static bool open_house(struct house *house,
		enum postern_processing processing) {
	return open_leased(house, processing, 0);
}

static void close_house(struct house *house) {
	finish_runs(house);
	postern_box_destroy(house->box);
	postern_store_destroy(house->store);
}

static void send(struct house *house, const char *id) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = "t",
	};
	CHECK_OK(postern_box_accept(house->box, "orders", &message, NULL,
					 &house->error),
			&house->error);
}

static size_t process(struct house *house) {
	size_t count = 0;
	CHECK_OK(postern_box_process(house->box, 0, &count, &house->error),
			&house->error);
	return count;
}

static size_t poison_orphans(struct house *house) {
	size_t count = 0;
	CHECK_OK(postern__poison_orphans(house->box, NULL, NULL, &count,
					 &house->error),
			&house->error);
	return count;
}

static void unknown_life(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_EXCLUSIVE)) {
		CHECK_INT(process(&house), 0);
		send(&house, "1");
		/* The next life begins with an enrolment, which fails. */
		atomic_store(&house.no_enrol, true);
		CHECK_INT(postern_box_sweep(house.box, NULL, &house.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(poison_orphans(&house), 0);
		atomic_store(&house.no_enrol, false);
		CHECK_OK(postern_box_sweep(house.box, NULL, &house.error),
				&house.error);
		CHECK_INT(poison_orphans(&house), 0);
		CHECK_INT(process(&house), 1);
	}
	close_house(&house);
}

static void gone_life(void) {
	struct house house;
	if (open_leased(&house, POSTERN_PROCESSING_PARALLEL, LEASE_MS)) {
		send(&house, "1");
		/* It was found gone, and cannot begin again yet. */
		bool alive;
		CHECK_OK(house.store->ops->renew(house.store, house.box->node, 0,
						 &alive, &house.error),
				&house.error);
		atomic_store(&house.no_enrol, true);
		CHECK_INT(postern_box_sweep(house.box, NULL, &house.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(poison_orphans(&house), 0);
		atomic_store(&house.no_enrol, false);
		CHECK_OK(postern_box_sweep(house.box, NULL, &house.error),
				&house.error);
		CHECK_INT(poison_orphans(&house), 0);
		CHECK_INT(process(&house), 1);
	}
	close_house(&house);
}

static void pause_during(bool paused) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_PARALLEL)) {
		if (!paused) {
			CHECK_OK(postern_box_pause(house.box, "h", &house.error),
					&house.error);
		}
		house.meanwhile = paused ? postern_box_pause : postern_box_resume;
		CHECK_OK(postern__enrol(house.box, true, &house.error), &house.error);
		house.meanwhile = NULL;
		CHECK_INT(house.box->handlers[0]->paused, paused);
		send(&house, "1");
		CHECK_INT(process(&house), paused ? 0 : 1);
	}
	close_house(&house);
}

static void paused_meanwhile(void) {
	pause_during(true);
}

static void resumed_meanwhile(void) {
	pause_during(false);
}

static void *process_thread(void *context) {
	struct house *house = context;
	(void)postern_box_process(house->box, 0, NULL, NULL);
	return NULL;
}

static bool stranger_gets_lock(struct house *house) {
	bool held = true;
	uint64_t fence;
	CHECK_OK(house->store->ops->lock(house->store, LOCK_NAME, STRANGER, 1000,
					 &held, &fence, &house->error),
			&house->error);
	return held;
}

static void two_process(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_EXCLUSIVE)) {
		pthread_t thread;
		send(&house, "1");
		atomic_store(&house.hold, true);
		CHECK_INT(pthread_create(&thread, NULL, process_thread, &house), 0);
		while (atomic_load(&house.running) == 0) {
			(void)sched_yield();
		}
		CHECK_INT(process(&house), 0);
		CHECK(!stranger_gets_lock(&house));
		atomic_store(&house.hold, false);
		(void)pthread_join(thread, NULL);
		CHECK(stranger_gets_lock(&house));
	}
	close_house(&house);
}

static void sweep(struct house *house) {
	CHECK_OK(postern_box_sweep(house->box, NULL, &house->error), &house->error);
}

static size_t claim(struct house *house, size_t max) {
	size_t count = 0;
	CHECK_OK(postern_box_claim(house->box, max, &count, &house->error),
			&house->error);
	return count;
}

static size_t run(struct house *house, size_t max) {
	size_t count = 0;
	CHECK_OK(postern_box_run(house->box, max, &count, &house->error),
			&house->error);
	return count;
}

static void commit(struct house *house) {
	CHECK_OK(postern_box_commit(house->box, NULL, &house->error),
			&house->error);
}

/* Nobody renews it: it knows by its own clock when its time is over. */
static void see_the_end(enum postern_processing processing, int64_t lease_ms,
		int64_t term_ms) {
	struct house house;
	if (open_with(&house, processing, lease_ms, true)) {
		send(&house, "1");
		send(&house, "2");
		send(&house, "3");
		fake_clock_advance(&house.clock, 1000);
		sweep(&house);
		CHECK_INT(claim(&house, 10), 3);
		CHECK_INT(run(&house, 1), 1);
		fake_clock_advance(&house.clock, term_ms - 1);
		(void)postern__right_watch(house.box);
		CHECK_INT(house.stopped, 0);
		CHECK_INT(run(&house, 1), 1);
		fake_clock_advance(&house.clock, 1);
		CHECK_INT(run(&house, 1), 0);
		(void)postern__right_watch(house.box);
		CHECK_INT(house.stopped, 2);
		/* Nor does it ask the store for more. */
		send(&house, "4");
		CHECK_INT(claim(&house, 10), 0);
		CHECK_INT(atomic_load(&house.plan.calls[FAULT_CLAIM]), 1);
	}
	close_house(&house);
}

static void lock_is_over(void) {
	see_the_end(POSTERN_PROCESSING_EXCLUSIVE, 0, LOCK_MS);
}

static void lease_is_over(void) {
	see_the_end(POSTERN_PROCESSING_PARALLEL, LEASE_MS, LEASE_MS);
}

static void lock_of_what_runs(void) {
	struct house house;
	if (open_with(&house, POSTERN_PROCESSING_EXCLUSIVE, 0, true)) {
		send(&house, "1");
		CHECK_INT(process(&house), 1);
		CHECK_INT(house.started, 1);
		CHECK(!stranger_gets_lock(&house));
		finish_runs(&house);
		commit(&house);
		CHECK_INT(house.settled, 1);
		CHECK_INT(house.fenced, 0);
		CHECK_INT(process(&house), 0);
		CHECK(stranger_gets_lock(&house));
	}
	close_house(&house);
}

static void let_go_meanwhile(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_EXCLUSIVE)) {
		send(&house, "1");
		sweep(&house);
		house.let_go = true;
		sweep(&house);
		CHECK(!house.let_go);
		CHECK(stranger_gets_lock(&house));
		CHECK_INT(claim(&house, 10), 0);
		CHECK_INT(atomic_load(&house.plan.calls[FAULT_CLAIM]), 0);
		/* And it can have it again. */
		fake_clock_advance(&house.clock, LOCK_MS);
		CHECK_INT(process(&house), 1);
	}
	close_house(&house);
}

/*
 * The store's clock has gone on faster than ours: the lock is a stranger's
 * already, and our own clock does not know yet. One delivery runs, another is
 * queued, a third is due.
 */
static bool open_robbed(struct house *house) {
	if (!open_with(house, POSTERN_PROCESSING_EXCLUSIVE, 0, true)) {
		return false;
	}
	send(house, "1");
	send(house, "2");
	send(house, "3");
	sweep(house);
	CHECK_INT(claim(house, 2), 2);
	CHECK_INT(run(house, 1), 1);
	fake_clock_jump(&house->clock, LOCK_MS);
	CHECK(stranger_gets_lock(house));
	(void)postern__right_watch(house->box);
	return CHECK_INT(house->stopped, 0);
}

static void lost_in_one_call(void) {
	struct house house;
	if (open_robbed(&house)) {
		sweep(&house);
		CHECK_INT(house.stopped, 1);
		CHECK_INT(house.box->handlers[0]->queued, 0);
		/* Nor does it ask the store for more. */
		unsigned claims = atomic_load(&house.plan.calls[FAULT_CLAIM]);
		CHECK_INT(claim(&house, 10), 0);
		CHECK_INT(atomic_load(&house.plan.calls[FAULT_CLAIM]), claims);
	}
	close_house(&house);
}

/* The stranger's time is over when it asks again: the lock would be its own
   under a node number whose leases of the first tenure are still there. */
static void regained_is_released(void) {
	struct house house;
	if (open_robbed(&house)) {
		fake_clock_advance(&house.clock, 1000);
		sweep(&house);
		CHECK_INT(house.stopped, 1);
		CHECK(stranger_gets_lock(&house));
	}
	close_house(&house);
}

static void refused_recovery(void) {
	struct house house;
	if (open_robbed(&house)) {
		size_t count = 0;
		CHECK_OK(postern__recover(house.box, &count, &house.error),
				&house.error);
		CHECK_INT(run(&house, 1), 0);
		(void)postern__right_watch(house.box);
		CHECK_INT(house.stopped, 1);
	}
	close_house(&house);
}

static void refused_claim(void) {
	struct house house;
	if (open_robbed(&house)) {
		CHECK_INT(claim(&house, 10), 0);
		CHECK_INT(run(&house, 1), 0);
		(void)postern__right_watch(house.box);
		CHECK_INT(house.stopped, 1);
	}
	close_house(&house);
}

static void former_life_ends(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_EXCLUSIVE)) {
		CHECK_INT(process(&house), 0);
		uint64_t former = house.box->node;
		sweep(&house);
		CHECK(house.box->node != former);
		bool alive = true;
		CHECK_OK(house.store->ops->renew(house.store, former, LEASE_MS, &alive,
						 &house.error),
				&house.error);
		CHECK(!alive);
	}
	close_house(&house);
}

static void *enrol_thread(void *context) {
	struct house *house = context;
	do {
		(void)postern__enrol(house->box, true, NULL);
		atomic_fetch_add(&house->running, 1);
	} while (atomic_load(&house->hold));
	return NULL;
}

/* For the thread sanitizer. */
static void enrol_beside_accepts(void) {
	struct house house;
	if (open_house(&house, POSTERN_PROCESSING_PARALLEL)) {
		pthread_t thread;
		atomic_store(&house.hold, true);
		CHECK_INT(pthread_create(&thread, NULL, enrol_thread, &house), 0);
		while (atomic_load(&house.running) == 0) {
			(void)sched_yield();
		}
		for (int i = 0; i < 1000; i++) {
			char id[16];
			(void)snprintf(id, sizeof(id), "%d", i);
			send(&house, id);
		}
		atomic_store(&house.hold, false);
		(void)pthread_join(thread, NULL);
		CHECK_INT(process(&house), 1000);
	}
	close_house(&house);
}

static const struct tap_case cases[] = {
	{ "a life that could not be enrolled makes no orphans", unknown_life },
	{ "a node that was found gone makes no orphans of its own", gone_life },
	{ "a pause outlives an enrolment that was under way", paused_meanwhile },
	{ "a handler that is resumed during an enrolment runs", resumed_meanwhile },
	{ "who ends processing by hand leaves the lock to who goes on",
			two_process },
	{ "when the lock's time is over nothing begins and what runs is stopped",
			lock_is_over },
	{ "when the node's lease is over nothing begins and what runs is stopped",
			lease_is_over },
	{ "what still runs when processing by hand ends keeps the lock",
			lock_of_what_runs },
	{ "a lock that is let go during its renewal is not kept",
			let_go_meanwhile },
	{ "whoever learns that the lock is lost stops in the same call",
			lost_in_one_call },
	{ "a lock regained after it was lost is released for a new node number",
			regained_is_released },
	{ "whose recovery is refused begins nothing more", refused_recovery },
	{ "whose claim is refused begins nothing more", refused_claim },
	{ "a life that was followed by another is gone at once", former_life_ends },
	{ "enrolling again disturbs no accept", enrol_beside_accepts },
};

TAP_MAIN(cases)
