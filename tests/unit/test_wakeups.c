/* SPDX-License-Identifier: MIT */
/*
 * A runner that never polls: every event that makes work possible wakes the
 * thread that does it. The threads use real time, but no result depends on it:
 * every wait is for an event.
 */

#include "tap.h"

#include "base/list.h"
#include "core/box.h"
#include "core/identity.h"
#include "core/run.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"

#include <postern/postern.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

/* More runs than are cancelled in two batches. */
#define RUN_COUNT 150
#define PATIENCE_MS 20000
/* Practically never. */
#define HOUR_MS 3600000

struct stage {
	struct postern_handler kind;
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
	struct fault_plan plan;
	struct fake_clock *clock; /* NULL: the system's */
	int64_t lease_ms;         /* of the node */
	int64_t timeout_ms;
	bool in_process;      /* the store has suspects of an earlier node */
	int64_t run_ms;       /* the lease of a run; 0: the default */
	uint32_t queue_max;   /* 0: RUN_COUNT */
	uint32_t concurrency; /* 0: RUN_COUNT */
	int returns; /* how many runs are returned at once; later ones are done */
	bool waits;  /* a run waits until it is cancelled or the test finishes it */
	struct postern_run *_Atomic last; /* the last run that was started */
	atomic_bool hold_apply;           /* the store blocks in apply */
	atomic_int applying;
	atomic_int bad_claims; /* how many claims fail */
	atomic_int started;
	atomic_int cancelled;
	atomic_int done;
};

static void stage_start(struct postern_handler *kind, struct postern_run *run) {
	struct stage *stage = container_of(kind, struct stage, kind);
	struct postern_outcome done = { .kind = POSTERN_DONE };
	atomic_store(&stage->last, run);
	int number = atomic_fetch_add(&stage->started, 1);
	if (number < stage->returns) {
		postern_run_return(run);
	} else if (!stage->waits) {
		postern_run_finish(run, &done);
	}
}

static void stage_cancel(struct postern_handler *kind, struct postern_run *run,
		enum postern_cancel why) {
	struct stage *stage = container_of(kind, struct stage, kind);
	/* A run that timed out may run again until the stage is closed. */
	bool expected = stage->timeout_ms > 0 ? why == POSTERN_CANCEL_TIMEOUT
										  : why == POSTERN_CANCEL_STOP;
	atomic_fetch_add(&stage->cancelled, expected);
	postern_run_return(run);
}

static void stage_destroy(struct postern_handler *kind) {
	(void)kind;
}

static const struct postern_handler_ops stage_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.start = stage_start,
	.cancel = stage_cancel,
	.destroy = stage_destroy,
};

static void sleep_1ms(void) {
	struct timespec ms = { .tv_nsec = 1000000 };
	(void)nanosleep(&ms, NULL);
}

static int inject_fault(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct stage *stage = context;
	(void)batch;
	if (op == FAULT_APPLY) {
		atomic_fetch_add(&stage->applying, 1);
		while (atomic_load(&stage->hold_apply)) {
			sleep_1ms();
		}
	}
	return op == FAULT_CLAIM && atomic_fetch_sub(&stage->bad_claims, 1) > 0
				   ? POSTERN_E_UNAVAILABLE
				   : POSTERN_OK;
}

static const struct postern_handler_kind stage_kind = { .name = "stage" };
/* The same for a handler whose runs become suspects when the process dies. */
static const struct postern_handler_kind in_process_kind = {
	.name = "stage",
	.in_process = true,
};

static void count_event(void *context, const struct postern_event *event) {
	struct stage *stage = context;
	if (event->state == POSTERN_STATE_DONE) {
		atomic_fetch_add(&stage->done, 1);
	}
}

/* A node leases two callbacks and ends: both become suspects. */
static void make_suspects(struct postern_store *store,
		struct postern_error *error) {
	struct postern_enrol_channel channel = { .name = "c" };
	struct postern_enrol_handler handler = {
		.key = "h",
		.in_process = true,
		.max_crashes = 3,
	};
	struct postern_enrolment enrolment = {
		.node = 7,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(store->ops->enrol(store, &enrolment, error), error);
	for (int i = 0; i < 2; i++) {
		struct postern_message message = {
			.size = sizeof(message),
			.id = i == 0 ? "first" : "second",
			.source = "s",
			.type = "t",
		};
		struct postern_route route = { .handler = handler.id, .lease = true };
		struct postern_accept accept = {
			.message = &message,
			.key = postern__dedupe_key_by_id(&message),
			.channel = channel.id,
			.routes = &route,
			.route_count = 1,
		};
		struct postern_batch batch = {
			.node = 7,
			.accepts = &accept,
			.accept_count = 1,
		};
		CHECK_OK(store->ops->apply(store, &batch, error), error);
	}
	bool alive = false;
	CHECK_OK(store->ops->renew(store, 7, 0, &alive, error), error);
}

static bool open_stage(struct stage *stage) {
	uint32_t queue_max = stage->queue_max ? stage->queue_max : RUN_COUNT;
	struct postern_box_options options = {
		.size = sizeof(options),
		.batch_size = queue_max,
		.run_queue_max = queue_max,
		.clock = stage->clock ? &stage->clock->base : NULL,
		.node_lease_ms = stage->lease_ms,
	};
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.concurrency = stage->concurrency ? stage->concurrency : RUN_COUNT;
	policy.timeout_ms = stage->timeout_ms;
	policy.lease_ms = stage->run_ms > 0 ? stage->run_ms : policy.lease_ms;
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.policy = &policy,
	};
	struct postern_runner_options runner = {
		.size = sizeof(runner),
		.workers = 1,
		.polling_interval_ms = HOUR_MS,
		.restart_delay_ms = 20,
	};
	struct postern_error *error = &stage->error;
	struct postern_store *store = NULL;
	stage->kind.ops = &stage_ops;
	stage->kind.kind = stage->in_process ? &in_process_kind : &stage_kind;
	stage->plan.decide = inject_fault;
	stage->plan.context = stage;
	if (!CHECK_OK(postern_store_open("memory:", NULL, &store, error), error)) {
		return false;
	}
	if (stage->in_process) {
		make_suspects(store, error);
	}
	return CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
													&stage->plan),
							&options, &stage->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(stage->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern__box_register_taking(stage->box, "c", &handler,
							&stage->kind, error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(stage->box, POSTERN_LEVEL_DEBUG,
							count_event, stage, error),
				   error) &&
		   CHECK_OK(postern_box_start(stage->box, error), error) &&
		   CHECK_OK(postern_runner_create(stage->box, &runner, &stage->runner,
							error),
				   error) &&
		   CHECK_OK(postern_runner_start(stage->runner, error), error);
}

static void close_stage(struct stage *stage) {
	postern_runner_destroy(stage->runner);
	postern_box_destroy(stage->box);
}

static void send(struct stage *stage, int count) {
	for (int i = 0; i < count; i++) {
		char id[16];
		(void)snprintf(id, sizeof(id), "%d", i);
		struct postern_message message = { .size = sizeof(message), .id = id };
		CHECK_OK(postern_box_accept(stage->box, "c", &message, NULL,
						 &stage->error),
				&stage->error);
	}
}

/* Waits until *number is at least `least`. */
static bool await(atomic_int *number, int least) {
	for (int i = 0; i < PATIENCE_MS && atomic_load(number) < least; i++) {
		sleep_1ms();
	}
	return atomic_load(number) >= least;
}

static void all_cancelled(void) {
	struct stage stage = { .waits = true };
	if (open_stage(&stage)) {
		send(&stage, RUN_COUNT);
		CHECK(await(&stage.started, RUN_COUNT));
		CHECK_OK(postern_runner_drain(stage.runner, 0, &stage.error),
				&stage.error);
		CHECK_INT(stage.cancelled, RUN_COUNT);
	}
	close_stage(&stage);
}

/* The same node claims deliveries that were returned. */
static void claimed_again(void) {
	struct stage stage = { .returns = 3 };
	if (open_stage(&stage)) {
		send(&stage, 3);
		CHECK(await(&stage.done, 3));
		CHECK_INT(stage.started, 6);
	}
	close_stage(&stage);
}

/* The first claims fail. */
static void claimed_after_failure(void) {
	struct stage stage = { .returns = 3, .bad_claims = 2 };
	if (open_stage(&stage)) {
		send(&stage, 3);
		CHECK(await(&stage.done, 3));
	}
	close_stage(&stage);
}

/* The only worker sleeps, and only the test finishes runs. */
static void next_begins(void) {
	struct stage stage = { .waits = true, .concurrency = 1 };
	if (open_stage(&stage)) {
		struct postern_outcome done = { .kind = POSTERN_DONE };
		send(&stage, 3);
		for (int i = 1; i <= 3; i++) {
			if (CHECK(await(&stage.started, i))) {
				CHECK_INT(stage.started, i);
				postern_run_finish(atomic_load(&stage.last), &done);
			}
		}
		CHECK(await(&stage.done, 3));
	}
	close_stage(&stage);
}

/* All runs time out at the same moment, by a clock that stands still. */
static void all_time_out(void) {
	struct fake_clock clock;
	struct stage stage = { .waits = true, .clock = &clock, .timeout_ms = 100 };
	fake_clock_init(&clock);
	if (open_stage(&stage)) {
		send(&stage, RUN_COUNT);
		CHECK(await(&stage.started, RUN_COUNT));
		fake_clock_advance(&clock, stage.timeout_ms);
		CHECK(await(&stage.cancelled, RUN_COUNT));
	}
	close_stage(&stage);
}

/* The box reserves memory for a message before it knows whether it is a
   copy. */
static void copies_take_no_room(void) {
	struct stage stage = { .queue_max = 4 };
	if (open_stage(&stage)) {
		send(&stage, 1);
		CHECK(await(&stage.done, 1));
		struct postern_message copy = { .size = sizeof(copy), .id = "0" };
		for (int i = 0; i < 10; i++) {
			CHECK_INT(postern_box_accept(stage.box, "c", &copy, NULL,
							  &stage.error),
					POSTERN_E_DUPLICATE);
		}
		copy.id = "another";
		CHECK_OK(postern_box_accept(stage.box, "c", &copy, NULL, &stage.error),
				&stage.error);
		CHECK(await(&stage.done, 2));
	}
	close_stage(&stage);
}

/* The process was frozen for longer than its lease, and no other node expired
   it. Messages accepted before the renewal could not be leased. */
static void goes_on_after_renewal(void) {
	struct fake_clock clock;
	struct stage stage = { .clock = &clock, .lease_ms = 300 };
	fake_clock_init(&clock);
	if (open_stage(&stage)) {
		send(&stage, 1);
		CHECK(await(&stage.done, 1));
		fake_clock_advance(&clock, stage.lease_ms);
		struct postern_message next = { .size = sizeof(next), .id = "next" };
		CHECK_OK(postern_box_accept(stage.box, "c", &next, NULL, &stage.error),
				&stage.error);
		CHECK(await(&stage.done, 2));
	}
	close_stage(&stage);
}

static void *send_one(void *context) {
	send(context, 1);
	return NULL;
}

static void count_receipt(void *context,
		const struct postern_receipt *receipt) {
	atomic_int *count = context;
	CHECK_INT(receipt->error.code, POSTERN_OK);
	atomic_fetch_add(count, 1);
}

/* A thread that commits its own message leaves the others to the writer, which
   had found the store busy. */
static void written_after_another(void) {
	struct stage stage = { .waits = true };
	atomic_int written = 0;
	pthread_t thread;
	if (open_stage(&stage)) {
		atomic_store(&stage.hold_apply, true);
		CHECK_INT(pthread_create(&thread, NULL, send_one, &stage), 0);
		CHECK(await(&stage.applying, 1));
		struct postern_message next = { .size = sizeof(next), .id = "next" };
		CHECK_OK(postern_box_accept_async(stage.box, "c", &next, count_receipt,
						 &written, &stage.error),
				&stage.error);
		/* Time for the writer to poll and find nothing to do. */
		for (int i = 0; i < 20; i++) {
			sleep_1ms();
		}
		CHECK_INT(atomic_load(&written), 0);
		atomic_store(&stage.hold_apply, false);
		CHECK(await(&written, 1));
		(void)pthread_join(thread, NULL);
	}
	close_stage(&stage);
}

/* The first suspect stays in its callback for longer than its lease. */
static void next_suspect_begins(void) {
	struct stage stage = { .waits = true, .in_process = true, .run_ms = 50 };
	if (open_stage(&stage)) {
		struct postern_outcome done = { .kind = POSTERN_DONE };
		CHECK(await(&stage.started, 1));
		struct postern_run *first = atomic_load(&stage.last);
		if (CHECK(await(&stage.started, 2))) {
			postern_run_finish(atomic_load(&stage.last), &done);
			CHECK(await(&stage.done, 1));
		}
		postern_run_finish(first, &done);
		CHECK(await(&stage.done, 2));
	}
	close_stage(&stage);
}

static const struct tap_case cases[] = {
	{ "a stop cancels all runs, however many there are", all_cancelled },
	{ "a delivery that a handler returns is claimed again without polling",
			claimed_again },
	{ "a failed claim is retried without polling", claimed_after_failure },
	{ "a run that ends outside the workers makes room for the next",
			next_begins },
	{ "all runs that time out at once are cancelled", all_time_out },
	{ "duplicates do not use up memory reserved for new messages",
			copies_take_no_room },
	{ "a node that renews late runs messages accepted before the renewal",
			goes_on_after_renewal },
	{ "a message that arrives during a commit is written after it",
			written_after_another },
	{ "a suspect that overruns its lease does not block the next",
			next_suspect_begins },
};

TAP_MAIN(cases)
