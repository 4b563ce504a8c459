/* SPDX-License-Identifier: MIT */
/*
 * Limits and promises of the box: the bytes it holds, the time a caller waits,
 * delays out of range, a wake-up without a poll, and what may run beside a
 * suspect. Steps are called directly where threads do not matter.
 */

#include "tap.h"

#include "core/box.h"
#include "core/run.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"
#include "support/temp_dir.h"

#include <postern/postern.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BODY_LEN 20000
#define DELAY_MS 700

struct bench {
	struct fake_clock clock;
	struct temp_dir dir;
	char url[TEMP_DIR_PATH_MAX + 32];
	struct fault_plan plan;
	struct postern_box_options options;
	struct postern_box *box;
	struct postern_error error;
	struct postern_outcome outcome;      /* outcome of every run */
	const struct postern_policy *policy; /* policy of every handler */
	int runs;
	/* A callback of b posts `began` and waits for `may_end`. */
	sem_t began;
	sem_t may_end;
	/* While this is set, writes to the store do not return. */
	atomic_bool stuck;
	atomic_bool writing;
};

static void bench_init(struct bench *bench) {
	memset(bench, 0, sizeof(*bench));
	fake_clock_init(&bench->clock);
	temp_dir_create(&bench->dir);
	temp_dir_name(&bench->dir, "sqlite:", "box.db", bench->url,
			sizeof(bench->url));
	(void)sem_init(&bench->began, 0, 0);
	(void)sem_init(&bench->may_end, 0, 0);
	bench->options = (struct postern_box_options){
		.size = sizeof(bench->options),
		.clock = &bench->clock.base,
	};
	postern_outcome_set(&bench->outcome, POSTERN_DONE, 0, NULL);
}

static void bench_finish(struct bench *bench) {
	postern_box_destroy(bench->box);
	temp_dir_destroy(&bench->dir);
	(void)sem_destroy(&bench->began);
	(void)sem_destroy(&bench->may_end);
}

static void run_a(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	struct bench *bench = context;
	bench->runs++;
	*outcome = bench->outcome;
}

static void run_b(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	(void)outcome;
	struct bench *bench = context;
	(void)sem_post(&bench->began);
	(void)sem_wait(&bench->may_end);
}

/* Open a box with handlers a and b for types of the same name, or without. */
static bool open_box(struct bench *bench, bool handlers) {
	struct postern_error *error = &bench->error;
	static const char *const types[] = { "a", "b" };
	if (!CHECK_OK(postern_box_open(bench->url, &bench->options, &bench->box,
						  error),
				error) ||
			!CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error),
					error)) {
		return false;
	}
	for (size_t i = 0; handlers && i < 2; i++) {
		struct postern_handler_options handler = {
			.size = sizeof(handler),
			.key = types[i],
			.types = &types[i],
			.type_count = 1,
			.callback = i == 0 ? run_a : run_b,
			.context = bench,
			.policy = bench->policy,
		};
		if (!CHECK_OK(postern_box_add_handler(bench->box, "c", &handler, error),
					error)) {
			return false;
		}
	}
	return CHECK_OK(postern_box_start(bench->box, error), error);
}

static void send(struct bench *bench, const char *type, const char *id,
		size_t body_len) {
	static const char body[BODY_LEN];
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = type,
		.body = body,
		.body_len = body_len,
	};
	CHECK_OK(postern_box_accept(bench->box, "c", &message, NULL, &bench->error),
			&bench->error);
}

static size_t claim(struct bench *bench, size_t max) {
	size_t count = 0;
	CHECK_OK(postern_box_claim(bench->box, max, &count, &bench->error),
			&bench->error);
	return count;
}

static size_t run(struct bench *bench) {
	size_t count = 0;
	CHECK_OK(postern_box_run(bench->box, 1, &count, &bench->error),
			&bench->error);
	return count;
}

static void commit(struct bench *bench) {
	CHECK_OK(postern_box_commit(bench->box, NULL, &bench->error),
			&bench->error);
}

static void bytes_are_bounded(void) {
	struct bench bench;
	bench_init(&bench);
	/* There are two handlers: the share of each is three bodies. */
	bench.options.run_queue_bytes_max = (size_t)6 * BODY_LEN;
	if (open_box(&bench, true)) {
		char id[8];
		for (int i = 0; i < 10; i++) {
			(void)snprintf(id, sizeof(id), "m%d", i);
			send(&bench, "a", id, BODY_LEN);
		}
		/* The last body may exceed the limit, then no more is claimed. */
		size_t first = claim(&bench, 10);
		CHECK(first >= 3 && first <= 7);
		CHECK_INT(claim(&bench, 10), 0);
		CHECK_INT(run(&bench), 1);
		commit(&bench);
		size_t total = 1;
		for (int i = 0; i < 100 && total < 10; i++) {
			(void)claim(&bench, 10);
			total += run(&bench);
			commit(&bench);
		}
		CHECK_INT(bench.runs, 10);
		/* Ended deliveries use no bytes; the share of b is not available to
		   a. */
		CHECK_OK(postern_box_pause(bench.box, "b", &bench.error), &bench.error);
		for (int i = 0; i < 4; i++) {
			(void)snprintf(id, sizeof(id), "n%d", i);
			send(&bench, "a", id, BODY_LEN);
		}
		CHECK(claim(&bench, 10) >= 3);
	}
	bench_finish(&bench);
}

/* A delivery counts until its settlement is durable. */
static void count_is_bounded(void) {
	struct bench bench;
	bench_init(&bench);
	/* There are two handlers: the share of each is ten. */
	bench.options.batch_size = 8;
	bench.options.run_queue_max = 20;
	if (open_box(&bench, true)) {
		char id[8];
		for (int i = 0; i < 20; i++) {
			(void)snprintf(id, sizeof(id), "m%d", i);
			send(&bench, "a", id, 0);
		}
		CHECK_INT(claim(&bench, 6), 6);
		for (int i = 0; i < 6; i++) {
			CHECK_INT(run(&bench), 1);
		}
		CHECK_INT(claim(&bench, 20), 4);
		CHECK_INT(claim(&bench, 20), 0);
		commit(&bench);
		CHECK_INT(claim(&bench, 20), 6);
	}
	bench_finish(&bench);
}

static int64_t next_at(struct bench *bench) {
	struct postern_listing *listing = NULL;
	int64_t at = 0;
	if (CHECK_OK(postern_box_list(bench->box, NULL, &listing, &bench->error),
				&bench->error) &&
			CHECK_INT(postern_listing_count(listing), 1)) {
		at = postern_listing_get(listing, 0)->next_at_ms;
	}
	postern_listing_destroy(listing);
	return at;
}

static void longest_body_has_a_limit(void) {
	struct postern_box_options options = {
		.size = sizeof(options),
		.max_message_size = (size_t)200 * 1024 * 1024,
	};
	struct postern_channel_options channel = {
		.size = sizeof(channel),
		.max_message_size = (size_t)128 * 1024 * 1024 + 1,
	};
	struct postern_box *box = NULL;
	struct postern_error error = { 0 };
	CHECK_INT(postern_box_open("memory:", &options, &box, &error),
			POSTERN_E_INVALID);
	CHECK_STR(error.text,
			"max_message_size is 209715200 bytes, and the limit is 134217728 "
			"bytes (POSTERN_BODY_LEN_MAX)");
	postern_box_destroy(box);
	options.max_message_size = POSTERN_BODY_LEN_MAX;
	if (!CHECK_OK(postern_box_open("memory:", &options, &box, &error),
				&error)) {
		return;
	}
	CHECK_INT(postern_box_add_channel(box, "c", &channel, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "the limit is 134217728 bytes");
	postern_box_destroy(box);
}

static void delays_are_clamped(void) {
	struct bench bench;
	bench_init(&bench);
	if (open_box(&bench, true)) {
		static const struct {
			enum postern_outcome_kind kind;
			int64_t delay_ms;
			int64_t due_in_ms;
		} cases[] = {
			{ POSTERN_SNOOZE, -1, 0 },
			{ POSTERN_SNOOZE, -3600000, 0 },
			{ POSTERN_RETRY_AFTER, -3600000, 0 },
			{ POSTERN_SNOOZE, INT64_MAX, POSTERN_DURATION_MS_MAX },
		};
		send(&bench, "a", "m", 1);
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			postern_outcome_set(&bench.outcome, cases[i].kind,
					cases[i].delay_ms, NULL);
			CHECK_INT(claim(&bench, 1), 1);
			CHECK_INT(run(&bench), 1);
			commit(&bench);
			CHECK_INT(next_at(&bench) - fake_clock_now(&bench.clock),
					cases[i].due_in_ms);
		}
	}
	bench_finish(&bench);
}

static void hold_waits_for_the_handler(void) {
	struct bench bench;
	struct postern_detail *detail = NULL;
	bench_init(&bench);
	if (open_box(&bench, true)) {
		send(&bench, "a", "m", 1);
		/* More often than a delivery may fail; its own delay is ignored. */
		postern_outcome_set(&bench.outcome, POSTERN_HOLD, 3600000,
				"no licence");
		for (int i = 0; i < 20; i++) {
			int64_t delay_ms = i < 4 ? (int64_t)1000 << i : 10000;
			CHECK_INT(claim(&bench, 1), 1);
			CHECK_INT(run(&bench), 1);
			commit(&bench);
			CHECK_INT(next_at(&bench) - fake_clock_now(&bench.clock), delay_ms);
			fake_clock_advance(&bench.clock, delay_ms);
		}
		if (CHECK_OK(postern_box_get(bench.box, 1, &detail, &bench.error),
					&bench.error)) {
			const struct postern_delivery_detail *delivery =
					&detail->deliveries[0];
			CHECK_INT(delivery->row.failures, 0);
			CHECK_STR(delivery->attempts[19].outcome, "hold");
			CHECK_STR(delivery->attempts[19].error, "no licence");
		}
		postern_detail_destroy(detail);
	}
	bench_finish(&bench);
}

static void retry_is_remembered(void) {
	struct bench bench;
	bench_init(&bench);
	if (open_box(&bench, true)) {
		struct postern_box *box = bench.box;
		send(&bench, "a", "m", 1);
		CHECK_INT(claim(&bench, 1), 1);
		CHECK_INT(run(&bench), 1);
		CHECK_INT(claim(&bench, 1), 0);
		commit(&bench);
		/* As with a runner, which reads when it has to claim. */
		box->leasing = true;
		CHECK_INT(postern__claim_at_ms(box), POSTERN__NEVER);
		box->leasing = false;
		postern_outcome_set(&bench.outcome, POSTERN_RETRY_AFTER, DELAY_MS,
				NULL);
		send(&bench, "a", "n", 1);
		CHECK_INT(claim(&bench, 1), 1);
		CHECK_INT(claim(&bench, 1), 0);
		CHECK_INT(run(&bench), 1);
		commit(&bench);
		box->leasing = true;
		CHECK_INT(postern__claim_at_ms(box),
				postern__box_after_ms(box, DELAY_MS));
		box->leasing = false;
	}
	bench_finish(&bench);
}

/* Blocks until the test clears `stuck`, or for 3 seconds at most. */
static int block_apply(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct bench *bench = context;
	(void)batch;
	for (int i = 0; op == FAULT_APPLY && atomic_load(&bench->stuck) && i < 3000;
			i++) {
		atomic_store(&bench->writing, true);
		(void)usleep(1000);
	}
	return POSTERN_OK;
}

static void *send_first(void *context) {
	send(context, "a", "first", 1);
	return NULL;
}

static bool open_stuck(struct bench *bench) {
	struct postern_store *store = NULL;
	struct postern_error *error = &bench->error;
	bench->plan.decide = block_apply;
	bench->plan.context = bench;
	bench->options.clock = NULL; /* this case needs real time */
	bench->options.command_timeout_ms = 10;
	return CHECK_OK(postern_store_open("memory:", NULL, &store, error),
				   error) &&
		   CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
													&bench->plan),
							&bench->options, &bench->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(bench->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_start(bench->box, error), error);
}

static void accept_times_out(void) {
	struct bench bench;
	bench_init(&bench);
	pthread_t thread;
	if (open_stuck(&bench)) {
		atomic_store(&bench.stuck, true);
		bool created =
				CHECK_INT(pthread_create(&thread, NULL, send_first, &bench), 0);
		while (created && !atomic_load(&bench.writing)) {
			(void)usleep(100);
		}
		struct postern_message message = { .size = sizeof(message),
			.id = "second" };
		struct postern_error error;
		CHECK_INT(postern_box_accept(bench.box, "c", &message, NULL, &error),
				POSTERN_E_TIMEOUT);
		atomic_store(&bench.stuck, false);
		if (created) {
			(void)pthread_join(thread, NULL);
		}
		/* A message whose accept timed out is not stored later. */
		CHECK_OK(postern_box_accept(bench.box, "c", &message, NULL, &error),
				&error);
	}
	bench_finish(&bench);
}

static void *send_second(void *context) {
	send(context, "a", "second", 1);
	return NULL;
}

static size_t queued_accepts(struct postern_box *box) {
	(void)pthread_mutex_lock(&box->mutex);
	size_t count = box->accept_count;
	(void)pthread_mutex_unlock(&box->mutex);
	return count;
}

/* There is no runner: the caller that waited must write its own message. */
static void waiting_caller_commits(void) {
	struct bench bench;
	bench_init(&bench);
	pthread_t first;
	pthread_t second;
	if (open_stuck(&bench)) {
		bench.box->options.command_timeout_ms = (int64_t)3600 * 1000;
		atomic_store(&bench.stuck, true);
		CHECK_INT(pthread_create(&first, NULL, send_first, &bench), 0);
		while (!atomic_load(&bench.writing)) {
			(void)usleep(100);
		}
		CHECK_INT(pthread_create(&second, NULL, send_second, &bench), 0);
		while (queued_accepts(bench.box) == 0) {
			(void)usleep(100);
		}
		atomic_store(&bench.stuck, false);
		(void)pthread_join(first, NULL);
		struct timespec until;
		(void)clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 60;
		if (!CHECK_INT(pthread_timedjoin_np(second, NULL, &until), 0)) {
			return; /* the thread still uses the box */
		}
	}
	bench_finish(&bench);
}

static void parked_is_unparked(void) {
	struct bench bench;
	bench_init(&bench);
	if (open_box(&bench, false)) {
		send(&bench, "a", "m", 1);
		postern_box_destroy(bench.box);
		bench.box = NULL;
		if (open_box(&bench, true)) {
			CHECK_OK(postern_box_process(bench.box, 0, NULL, &bench.error),
					&bench.error);
			CHECK_INT(bench.runs, 1);
		}
	}
	bench_finish(&bench);
}

/* A child process leases a delivery and exits. */
static bool lose_lease(struct bench *bench, const char *type) {
	pid_t pid = fork();
	if (pid == 0) {
		if (open_box(bench, true)) {
			send(bench, type, "suspect", 1);
			_exit(claim(bench, 1) == 1 ? 0 : 1);
		}
		_exit(1);
	}
	int status = 1;
	return CHECK(waitpid(pid, &status, 0) == pid) && CHECK_INT(status, 0);
}

static void *run_beside(void *context) {
	(void)run(context);
	return NULL;
}

static void suspect_runs_alone(void) {
	struct bench bench;
	bench_init(&bench);
	struct postern_error *error = &bench.error;
	pthread_t thread;
	if (lose_lease(&bench, "a") && open_box(&bench, true)) {
		CHECK_OK(postern_box_pause(bench.box, "a", error), error);
		send(&bench, "b", "beside", 1);
		CHECK_INT(claim(&bench, 1), 1);
		bool created =
				CHECK_INT(pthread_create(&thread, NULL, run_beside, &bench), 0);
		(void)sem_wait(&bench.began);
		CHECK_OK(postern_box_resume(bench.box, "a", error), error);
		CHECK_INT(claim(&bench, 1), 1);
		CHECK_INT(run(&bench), 0);
		(void)sem_post(&bench.may_end);
		if (created) {
			(void)pthread_join(thread, NULL);
		}
		CHECK_INT(run(&bench), 1);
		CHECK_INT(bench.runs, 1);
		commit(&bench);
	}
	bench_finish(&bench);
}

/* The run does not return in time, and other runs do not wait for it. */
static void suspect_is_abandoned(void) {
	struct bench bench;
	bench_init(&bench);
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = 10;
	policy.lease_ms = 20;
	bench.policy = &policy;
	pthread_t thread;
	if (lose_lease(&bench, "b") && open_box(&bench, true)) {
		CHECK_INT(claim(&bench, 1), 1);
		bool created =
				CHECK_INT(pthread_create(&thread, NULL, run_beside, &bench), 0);
		(void)sem_wait(&bench.began);
		send(&bench, "a", "beside", 1);
		CHECK_INT(claim(&bench, 1), 0);
		fake_clock_advance(&bench.clock, policy.lease_ms);
		CHECK_OK(postern_box_sweep(bench.box, NULL, &bench.error),
				&bench.error);
		CHECK_INT(claim(&bench, 1), 1);
		CHECK_INT(run(&bench), 1);
		CHECK_INT(bench.runs, 1);
		commit(&bench);
		(void)sem_post(&bench.may_end);
		if (created) {
			(void)pthread_join(thread, NULL);
		}
	}
	bench_finish(&bench);
}

static const struct tap_case cases[] = {
	{ "a handler that has used its share of bytes claims no more",
			bytes_are_bounded },
	{ "a max_message_size over 128 MiB is refused", longest_body_has_a_limit },
	{ "a handler has no more deliveries in memory than its share",
			count_is_bounded },
	{ "a negative delay becomes zero, and a huge one is limited",
			delays_are_clamped },
	{ "a hold waits for the handler, spends no attempt and is recorded",
			hold_waits_for_the_handler },
	{ "the box knows when a retry is due without reading the store",
			retry_is_remembered },
	{ "an accept does not wait forever for a stuck writer", accept_times_out },
	{ "a caller that waited behind a commit writes the next one",
			waiting_caller_commits },
	{ "a parked message is unparked when a handler wants it",
			parked_is_unparked },
	{ "a suspect waits for callbacks that started before it was claimed",
			suspect_runs_alone },
	{ "a suspect that overran its lease no longer delays other runs",
			suspect_is_abandoned },
};

TAP_MAIN(cases)
