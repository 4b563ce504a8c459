/* SPDX-License-Identifier: MIT */
/*
 * Events in an unlucky order: a claim that ends after a drain, a pause while a
 * message is being stored, an interrupt that is late. A store that can be
 * blocked enforces each order; every wait is for an event, so a case takes long
 * only when it fails.
 */

#include "tap.h"

#include "core/identity.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"
#include "support/temp_dir.h"

#include <postern/postern.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Reached only when something is broken. */
#define PATIENCE_S 60

#define BACKLOG 350

struct tally {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int started;
	int settled;
	int returned;
	int runs_a;
	int runs_b;
	int interrupting;
	bool hold;       /* callbacks of b wait until this is false */
	int held;        /* how many of them wait */
	bool stop_op;    /* the store waits before `op` while this is set */
	bool stop_after; /* it waits after `op` instead */
	int op_waiting;  /* how many calls wait */
	enum fault_op op;
	char seen[2][64];
};

struct stage {
	struct tally tally;
	struct temp_dir dir;
	char url[TEMP_DIR_PATH_MAX + 32];
	struct fault_plan plan;
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
};

static bool await(struct tally *tally, const int *number, int least) {
	struct timespec until;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	int r = 0;
	(void)pthread_mutex_lock(&tally->mutex);
	while (*number < least && r == 0) {
		r = pthread_cond_timedwait(&tally->changed, &tally->mutex, &until);
	}
	bool reached = *number >= least;
	(void)pthread_mutex_unlock(&tally->mutex);
	return reached;
}

static void set_flag(struct tally *tally, bool *flag, bool value) {
	(void)pthread_mutex_lock(&tally->mutex);
	*flag = value;
	(void)pthread_cond_broadcast(&tally->changed);
	(void)pthread_mutex_unlock(&tally->mutex);
}

static void count_event(void *context, const struct postern_event *event) {
	struct tally *tally = context;
	bool settled = event->state != POSTERN_STATE_ANY;
	(void)pthread_mutex_lock(&tally->mutex);
	tally->started += event->kind == POSTERN_EVENT_STARTED;
	tally->settled += settled;
	tally->returned += settled && strcmp(event->outcome, "returned") == 0;
	(void)pthread_cond_broadcast(&tally->changed);
	(void)pthread_mutex_unlock(&tally->mutex);
}

static void run_a(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct tally *tally = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	(void)pthread_mutex_lock(&tally->mutex);
	tally->runs_a++;
	(void)pthread_cond_broadcast(&tally->changed);
	(void)pthread_mutex_unlock(&tally->mutex);
}

static void run_b(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct tally *tally = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	(void)pthread_mutex_lock(&tally->mutex);
	tally->held++;
	(void)pthread_cond_broadcast(&tally->changed);
	while (tally->hold) {
		(void)pthread_cond_wait(&tally->changed, &tally->mutex);
	}
	tally->held--;
	tally->runs_b++;
	(void)pthread_cond_broadcast(&tally->changed);
	(void)pthread_mutex_unlock(&tally->mutex);
}

static int hold_store_call(struct tally *tally, enum fault_op op, bool after) {
	(void)pthread_mutex_lock(&tally->mutex);
	if (tally->stop_op && tally->op == op && tally->stop_after == after) {
		tally->op_waiting++;
		(void)pthread_cond_broadcast(&tally->changed);
		while (tally->stop_op) {
			(void)pthread_cond_wait(&tally->changed, &tally->mutex);
		}
		tally->op_waiting--;
	}
	(void)pthread_mutex_unlock(&tally->mutex);
	return POSTERN_OK;
}

static int hold_op(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct tally *tally = context;
	if (batch && batch->accept_count == 0) {
		return POSTERN_OK;
	}
	return hold_store_call(tally, op, false);
}

static int hold_answer(void *context, enum fault_op op) {
	return hold_store_call(context, op, true);
}

static void stage_init(struct stage *stage, bool sqlite) {
	memset(stage, 0, sizeof(*stage));
	(void)pthread_mutex_init(&stage->tally.mutex, NULL);
	(void)pthread_cond_init(&stage->tally.changed, NULL);
	stage->plan.decide = hold_op;
	stage->plan.decide_after = hold_answer;
	stage->plan.context = &stage->tally;
	temp_dir_create(&stage->dir);
	(void)snprintf(stage->url, sizeof(stage->url), "memory:");
	if (sqlite) {
		temp_dir_name(&stage->dir, "sqlite:", "p.db", stage->url,
				sizeof(stage->url));
	}
}

/* The store of the last box, for cases that replace its ops. */
static struct postern_store *late_store;

static bool open_box(struct stage *stage,
		const struct postern_box_options *options) {
	struct postern_store_options store_options = {
		.size = sizeof(store_options),
		.clock = options ? options->clock : NULL,
		.command_timeout_ms = options ? options->command_timeout_ms : 0,
	};
	struct postern_store *store = NULL;
	struct postern_error *error = &stage->error;
	if (!CHECK_OK(postern_store_open(stage->url, &store_options, &store, error),
				error)) {
		return false;
	}
	store = fault_store_create_taking(store, &stage->plan);
	late_store = store;
	return CHECK(store != NULL) &&
		   CHECK_OK(postern_box_open_taking(store, options, &stage->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(stage->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(stage->box, POSTERN_LEVEL_DEBUG,
							count_event, &stage->tally, error),
				   error);
}

/* Adds a handler that wants messages whose type is its key. */
static bool add_own_type(struct stage *stage,
		struct postern_handler_options *handler) {
	handler->size = sizeof(*handler);
	handler->types = &handler->key;
	handler->type_count = 1;
	return CHECK_OK(postern_box_add_handler(stage->box, "c", handler,
							&stage->error),
			&stage->error);
}

static bool add_callback(struct stage *stage, const char *key,
		postern_callback *callback, bool transactional) {
	struct postern_handler_options handler = {
		.key = key,
		.callback = callback,
		.context = &stage->tally,
		.transactional = transactional,
	};
	return add_own_type(stage, &handler);
}

static bool start_polling(struct stage *stage, uint32_t workers,
		int64_t interval_ms) {
	struct postern_runner_options options = {
		.size = sizeof(options),
		.workers = workers,
		.polling_interval_ms = interval_ms,
	};
	struct postern_error *error = &stage->error;
	return CHECK_OK(postern_box_start(stage->box, error), error) &&
		   (workers == 0 ||
				   (CHECK_OK(postern_runner_create(stage->box, &options,
									 &stage->runner, error),
							error) &&
						   CHECK_OK(postern_runner_start(stage->runner, error),
								   error)));
}

static bool start(struct stage *stage, uint32_t workers) {
	return start_polling(stage, workers, 0);
}

static int64_t send(struct stage *stage, const char *type, int number) {
	char id[32];
	int64_t seq = 0;
	(void)snprintf(id, sizeof(id), "%s-%d", type, number);
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = type,
	};
	CHECK_OK(postern_box_accept(stage->box, "c", &message, &seq, &stage->error),
			&stage->error);
	return seq;
}

static void close_box(struct stage *stage) {
	set_flag(&stage->tally, &stage->tally.hold, false);
	set_flag(&stage->tally, &stage->tally.stop_op, false);
	postern_runner_destroy(stage->runner);
	postern_box_destroy(stage->box);
	stage->runner = NULL;
	stage->box = NULL;
}

static void close_stage(struct stage *stage) {
	close_box(stage);
	temp_dir_destroy(&stage->dir);
}

static void transactional_backlog(void) {
	struct stage stage;
	stage_init(&stage, true);
	if (open_box(&stage, NULL) && add_callback(&stage, "a", run_a, true) &&
			CHECK_OK(postern_box_start(stage.box, &stage.error),
					&stage.error)) {
		struct postern_runner_options options = { .size = sizeof(options) };
		for (int i = 0; i < BACKLOG; i++) {
			(void)send(&stage, "a", i);
		}
		CHECK_OK(postern_runner_create(stage.box, &options, &stage.runner,
						 &stage.error),
				&stage.error);
		CHECK_OK(postern_runner_start(stage.runner, &stage.error),
				&stage.error);
		CHECK(await(&stage.tally, &stage.tally.runs_a, BACKLOG));
	}
	close_stage(&stage);
}

static void resumed_handler(void) {
	struct stage stage;
	stage_init(&stage, false);
	if (open_box(&stage, NULL) && add_callback(&stage, "a", run_a, false) &&
			start(&stage, 2)) {
		/* Sometimes the writer goes to sleep between the pause and the
		   resume. */
		bool went_on = true;
		for (int i = 0; went_on && i < 300; i++) {
			CHECK_OK(postern_box_pause(stage.box, "a", &stage.error),
					&stage.error);
			(void)send(&stage, "a", i);
			CHECK_OK(postern_box_resume(stage.box, "a", &stage.error),
					&stage.error);
			went_on = CHECK(await(&stage.tally, &stage.tally.runs_a, i + 1));
		}
	}
	close_stage(&stage);
}

static void claim_ends_after_drain(void) {
	struct stage stage;
	stage_init(&stage, false);
	stage.tally.op = FAULT_CLAIM;
	stage.tally.stop_op = true;
	if (open_box(&stage, NULL) && add_callback(&stage, "a", run_a, false) &&
			start(&stage, 0)) {
		struct postern_runner_options options = { .size = sizeof(options) };
		(void)send(&stage, "a", 0);
		CHECK_OK(postern_runner_create(stage.box, &options, &stage.runner,
						 &stage.error),
				&stage.error);
		CHECK_OK(postern_runner_start(stage.runner, &stage.error),
				&stage.error);
		CHECK(await(&stage.tally, &stage.tally.op_waiting, 1));
		CHECK_OK(postern_runner_drain(stage.runner, 0, &stage.error),
				&stage.error);
		set_flag(&stage.tally, &stage.tally.stop_op, false);
		CHECK(await(&stage.tally, &stage.tally.returned, 1));
		CHECK_INT(stage.tally.runs_a, 0);
	}
	close_stage(&stage);
}

static void *send_one(void *context) {
	(void)send(context, "a", 0);
	return NULL;
}

static void pause_while_storing(void) {
	struct stage stage;
	stage_init(&stage, false);
	if (open_box(&stage, NULL) && add_callback(&stage, "a", run_a, false) &&
			start(&stage, 2)) {
		/* After the first message the box leases at accept. */
		(void)send(&stage, "a", 1);
		CHECK(await(&stage.tally, &stage.tally.settled, 1));
		stage.tally.op = FAULT_APPLY;
		stage.tally.stop_after = true;
		set_flag(&stage.tally, &stage.tally.stop_op, true);
		pthread_t sender;
		(void)pthread_create(&sender, NULL, send_one, &stage);
		CHECK(await(&stage.tally, &stage.tally.op_waiting, 1));
		CHECK_OK(postern_box_pause(stage.box, "a", &stage.error), &stage.error);
		set_flag(&stage.tally, &stage.tally.stop_op, false);
		(void)pthread_join(sender, NULL);
		CHECK(await(&stage.tally, &stage.tally.settled, 2));
		CHECK_INT(stage.tally.returned, 1);
		CHECK_INT(stage.tally.runs_a, 1);
	}
	close_stage(&stage);
}

static void stopped_sql(void) {
	struct stage stage;
	stage_init(&stage, true);
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = 1;
	policy.timeout_ms = 100000;
	struct postern_handler_options handler = {
		.key = "a",
		.policy = &policy,
		.sql = "CREATE TABLE IF NOT EXISTS t (n);"
			   "INSERT INTO t WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL"
			   " SELECT n + 1 FROM r) SELECT n FROM r",
	};
	if (open_box(&stage, NULL) && add_own_type(&stage, &handler) &&
			start(&stage, 1)) {
		int64_t seq = send(&stage, "a", 0);
		struct postern_detail *detail = NULL;
		CHECK(await(&stage.tally, &stage.tally.started, 1));
		/* The grace period lets the INSERT start. */
		CHECK_OK(postern_runner_drain(stage.runner, 300, &stage.error),
				&stage.error);
		if (CHECK_OK(postern_box_get(stage.box, seq, &detail, &stage.error),
					&stage.error)) {
			const struct postern_row *row = &detail->deliveries[0].row;
			CHECK_INT(row->state, POSTERN_STATE_PENDING);
			CHECK_INT(row->failures, 0);
		}
		postern_detail_destroy(detail);
	}
	close_stage(&stage);
}

static struct tally *interrupt_tally;
static void (*interrupt_now)(struct postern_store *store, const void *context);

/* From now on the box calls `interrupt` instead of the store's. */
static void replace_interrupt(struct stage *stage,
		struct postern_store_ops *ops,
		void (*interrupt)(struct postern_store *store, const void *context)) {
	*ops = *late_store->ops;
	interrupt_tally = &stage->tally;
	interrupt_now = ops->interrupt;
	ops->interrupt = interrupt;
	late_store->ops = ops;
}

static void note_interrupt(void) {
	(void)pthread_mutex_lock(&interrupt_tally->mutex);
	interrupt_tally->interrupting++;
	(void)pthread_cond_broadcast(&interrupt_tally->changed);
	(void)pthread_mutex_unlock(&interrupt_tally->mutex);
}

static void interrupt_in_time(struct postern_store *store,
		const void *context) {
	note_interrupt();
	interrupt_now(store, context);
}

/* The unit that should be interrupted has ended, and the next one runs. */
static void interrupt_late(struct postern_store *store, const void *context) {
	note_interrupt();
	CHECK(await(interrupt_tally, &interrupt_tally->held, 1));
	interrupt_now(store, context);
	set_flag(interrupt_tally, &interrupt_tally->hold, false);
}

/* Returns when the interrupt for its deadline has arrived. */
static void overrun(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct tally *tally = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	CHECK(await(tally, &tally->interrupting, 1));
	run_a(tally, message, delivery, outcome);
}

/* A polling thread waits for the store, which the unit blocks. */
static void polled_interrupt(void) {
	struct stage stage;
	struct postern_store_ops ops;
	stage_init(&stage, true);
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = 100;
	policy.max_attempts = 1;
	struct postern_handler_options slow = {
		.key = "a",
		.callback = overrun,
		.context = &stage.tally,
		.transactional = true,
		.policy = &policy,
	};
	const struct postern_box_options options = {
		.size = sizeof(options),
		.command_timeout_ms = 10 * PATIENCE_S * 1000, /* not reached */
	};
	if (open_box(&stage, &options) && add_own_type(&stage, &slow)) {
		replace_interrupt(&stage, &ops, interrupt_in_time);
		if (start_polling(&stage, 1, 1)) {
			(void)send(&stage, "a", 0);
			CHECK(await(&stage.tally, &stage.tally.runs_a, 1));
		}
	}
	close_stage(&stage);
}

static void late_interrupt(void) {
	struct stage stage;
	struct postern_store_ops ops;
	stage_init(&stage, true);
	stage.tally.hold = true;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = 1;
	policy.max_attempts = 1;
	struct postern_handler_options slow = {
		.key = "a",
		.callback = overrun,
		.context = &stage.tally,
		.transactional = true,
		.policy = &policy,
	};
	if (open_box(&stage, NULL) && add_own_type(&stage, &slow)) {
		policy.timeout_ms = 60000;
		struct postern_handler_options innocent = {
			.key = "b",
			.callback = run_b,
			.context = &stage.tally,
			.transactional = true,
			.policy = &policy,
		};
		replace_interrupt(&stage, &ops, interrupt_late);
		if (add_own_type(&stage, &innocent) && start(&stage, 1)) {
			(void)send(&stage, "a", 0);
			/* Only once a has started, or b might run first. */
			CHECK(await(&stage.tally, &stage.tally.interrupting, 1));
			int64_t seq = send(&stage, "b", 0);
			struct postern_detail *detail = NULL;
			CHECK(await(&stage.tally, &stage.tally.runs_b, 1));
			CHECK_OK(postern_runner_drain(stage.runner, 1000, &stage.error),
					&stage.error);
			if (CHECK_OK(postern_box_get(stage.box, seq, &detail, &stage.error),
						&stage.error)) {
				CHECK_INT(detail->deliveries[0].row.failures, 0);
			}
			postern_detail_destroy(detail);
		}
	}
	close_stage(&stage);
}

/* The store of a process that died while it ran one delivery of a. */
static bool leave_suspect(struct stage *stage) {
	struct postern_store *store = NULL;
	struct postern_error *error = &stage->error;
	if (!CHECK_OK(postern_store_open(stage->url, NULL, &store, error), error)) {
		return false;
	}
	struct postern_enrol_channel channel = { .name = "c" };
	struct postern_enrol_handler handler = {
		.key = "a",
		.in_process = true,
		.max_crashes = 3,
	};
	struct postern_enrolment enrolment = {
		.node = 1,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	bool ok = CHECK_OK(store->ops->enrol(store, &enrolment, error), error);
	struct postern_message message = {
		.size = sizeof(message),
		.id = "suspect",
		.source = "c",
		.type = "a",
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
		.node = 1,
		.accepts = &accept,
		.accept_count = 1,
	};
	ok = ok && CHECK_OK(store->ops->apply(store, &batch, error), error);
	postern_store_destroy(store);
	return ok;
}

static void suspect_behind_others(void) {
	struct stage stage;
	stage_init(&stage, true);
	struct tally *tally = &stage.tally;
	struct postern_error *error = &stage.error;
	if (leave_suspect(&stage) && open_box(&stage, NULL) &&
			add_callback(&stage, "a", run_a, false) &&
			add_callback(&stage, "b", run_b, false) && start(&stage, 0)) {
		struct postern_runner_options options = {
			.size = sizeof(options),
			.workers = 1,
		};
		CHECK_OK(postern_box_pause(stage.box, "a", error), error);
		CHECK_OK(postern_runner_create(stage.box, &options, &stage.runner,
						 error),
				error);
		CHECK_OK(postern_runner_start(stage.runner, error), error);
		/* Send twice: the second is leased at accept, so no claim is
		   pending. */
		(void)send(&stage, "b", 0);
		CHECK(await(tally, &tally->runs_b, 1));
		set_flag(tally, &tally->hold, true);
		(void)send(&stage, "b", 1);
		CHECK(await(tally, &tally->held, 1));
		/* The only worker is busy. The claim that finds the suspect waits
		   until a fresh message of the same handler is leased. */
		tally->op = FAULT_CLAIM;
		set_flag(tally, &tally->stop_op, true);
		CHECK_OK(postern_box_resume(stage.box, "a", error), error);
		CHECK(await(tally, &tally->op_waiting, 1));
		(void)send(&stage, "a", 0);
		set_flag(tally, &tally->stop_op, false);
		CHECK_OK(postern_box_pause(stage.box, "b", error), error);
		CHECK_OK(postern_box_resume(stage.box, "b", error), error);
		set_flag(tally, &tally->hold, false);
		CHECK(await(tally, &tally->runs_a, 2));
	}
	close_stage(&stage);
}

static void run_takes_no_more(void) {
	struct stage stage;
	stage_init(&stage, true);
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.commit_batch = 10;
	struct postern_handler_options handler = {
		.key = "a",
		.policy = &policy,
		.sql = "SELECT 1",
	};
	if (open_box(&stage, NULL) && add_own_type(&stage, &handler) &&
			start(&stage, 0)) {
		size_t count = 0;
		for (int i = 0; i < 10; i++) {
			(void)send(&stage, "a", i);
		}
		CHECK_OK(postern_box_claim(stage.box, 10, &count, &stage.error),
				&stage.error);
		CHECK_INT(count, 10);
		CHECK_OK(postern_box_run(stage.box, 3, &count, &stage.error),
				&stage.error);
		CHECK_INT(count, 3);
	}
	close_stage(&stage);
}

static void backlog_starves_nobody(void) {
	struct stage stage;
	stage_init(&stage, false);
	struct postern_box_options options = {
		.size = sizeof(options),
		.batch_size = 10,
	};
	if (open_box(&stage, &options) && add_callback(&stage, "a", run_a, false) &&
			add_callback(&stage, "b", run_b, false) && start(&stage, 0)) {
		(void)send(&stage, "b", 0);
		for (int i = 0; i < 200; i++) {
			(void)send(&stage, "a", i);
		}
		for (int i = 0; i < 10; i++) {
			CHECK_OK(postern_box_process(stage.box, 10, NULL, &stage.error),
					&stage.error);
		}
		CHECK_INT(stage.tally.runs_b, 1);
	}
	close_stage(&stage);
}

static void clock_goes_back(bool sqlite) {
	struct stage stage;
	struct fake_clock clock;
	fake_clock_init(&clock);
	stage_init(&stage, sqlite);
	struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &clock.base,
	};
	if (open_box(&stage, &options) && add_callback(&stage, "a", run_a, false) &&
			start(&stage, 0)) {
		(void)send(&stage, "a", 0);
		fake_clock_jump(&clock, -(int64_t)86400 * 1000);
		CHECK_OK(postern_box_process(stage.box, 0, NULL, &stage.error),
				&stage.error);
		CHECK_INT(stage.tally.runs_a, 1);
	}
	close_stage(&stage);
}

static void clock_goes_back_on_memory(void) {
	clock_goes_back(false);
}

static void clock_goes_back_on_sqlite(void) {
	clock_goes_back(true);
}

static void pause_by_former_key(void) {
	struct stage stage;
	stage_init(&stage, true);
	const char *former = "old";
	struct postern_handler_options handler = {
		.key = "a",
		.legacy_keys = &former,
		.legacy_key_count = 1,
		.callback = run_a,
		.context = &stage.tally,
	};
	bool ok = open_box(&stage, NULL) && add_own_type(&stage, &handler) &&
			  start(&stage, 0);
	close_box(&stage);
	handler.legacy_key_count = 0;
	if (ok && open_box(&stage, NULL) && add_own_type(&stage, &handler) &&
			start(&stage, 1)) {
		(void)send(&stage, "a", 0);
		CHECK(await(&stage.tally, &stage.tally.settled, 1));
		CHECK_OK(postern_box_pause(stage.box, "old", &stage.error),
				&stage.error);
		int64_t seq = send(&stage, "a", 1);
		struct postern_detail *detail = NULL;
		if (CHECK_OK(postern_box_get(stage.box, seq, &detail, &stage.error),
					&stage.error)) {
			CHECK_INT(detail->deliveries[0].row.state, POSTERN_STATE_PENDING);
		}
		postern_detail_destroy(detail);
	}
	close_stage(&stage);
}

/* The first attempt fails, so that there is a second to compare with. */
static void record_subject(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct tally *tally = context;
	(void)pthread_mutex_lock(&tally->mutex);
	if (tally->runs_a < 2) {
		(void)snprintf(tally->seen[tally->runs_a], sizeof(tally->seen[0]), "%s",
				message->subject ? message->subject : "");
	}
	tally->runs_a++;
	(void)pthread_cond_broadcast(&tally->changed);
	(void)pthread_mutex_unlock(&tally->mutex);
	if (delivery->attempt == 1) {
		postern_outcome_set(outcome, POSTERN_RETRY_AFTER, 0, "again");
	}
}

static void late_handler_sees_first_copy(void) {
	struct stage stage;
	stage_init(&stage, true);
	struct postern_error *error = &stage.error;
	struct postern_message message = {
		.size = sizeof(message),
		.id = "1",
		.type = "a",
		.subject = "first",
	};
	bool ok =
			open_box(&stage, NULL) && add_callback(&stage, "b", run_b, false) &&
			start(&stage, 0) &&
			CHECK_OK(postern_box_accept(stage.box, "c", &message, NULL, error),
					error);
	close_box(&stage);
	if (ok && leave_suspect(&stage)) {
		/* The message is parked and would be unparked at the start: discard
		   it. */
		ok = open_box(&stage, NULL) && start(&stage, 0) &&
			 CHECK_OK(postern_box_discard(stage.box, 1, "", error), error);
		close_box(&stage);
	}
	if (ok && open_box(&stage, NULL) &&
			add_callback(&stage, "a", record_subject, false) &&
			start(&stage, 1)) {
		/* The suspect runs first. */
		CHECK(await(&stage.tally, &stage.tally.settled, 2));
		stage.tally.runs_a = 0;
		message.subject = "second";
		CHECK_INT(postern_box_accept(stage.box, "c", &message, NULL, error),
				POSTERN_E_DUPLICATE);
		CHECK(await(&stage.tally, &stage.tally.runs_a, 2));
		CHECK_STR(stage.tally.seen[0], "first");
		CHECK_STR(stage.tally.seen[1], "first");
	}
	close_stage(&stage);
}

static const struct tap_case cases[] = {
	{ "a transactional handler's backlog is processed completely",
			transactional_backlog },
	{ "a resumed handler runs messages that were accepted while it was paused",
			resumed_handler },
	{ "a delivery claimed while a drain ends is returned",
			claim_ends_after_drain },
	{ "a message that was being stored when its handler was paused is not run",
			pause_while_storing },
	{ "sql that a drain interrupts does not count as failed", stopped_sql },
	{ "a unit is interrupted in time while the store is polled",
			polled_interrupt },
	{ "a late interrupt does not affect the next unit", late_interrupt },
	{ "a solo suspect does not wait for deliveries queued behind it",
			suspect_behind_others },
	{ "postern_box_run starts at most `max` runs, whatever commit_batch is",
			run_takes_no_more },
	{ "a handler's backlog does not starve other handlers",
			backlog_starves_nobody },
	{ "memory: an accepted message is due although the clock went back",
			clock_goes_back_on_memory },
	{ "sqlite: an accepted message is due although the clock went back",
			clock_goes_back_on_sqlite },
	{ "a handler can be paused by a legacy key", pause_by_former_key },
	{ "a handler added later gets the message as it was first accepted",
			late_handler_sees_first_copy },
};

TAP_MAIN(cases)
