/* SPDX-License-Identifier: MIT */
/*
 * The runner's threads on the memory store. They use real time, but no result
 * depends on it: every wait is for an event.
 */

#include "tap.h"

#include <postern/postern.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Long enough for any machine; reached only when something is broken. */
#define PATIENCE_MS 60000

struct tally {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int started;
	int settled;
	int fenced;
	int accepted;
	int now; /* running at this moment */
	int most;
	bool hold; /* handlers wait until this is false */
	enum postern_outcome_kind outcome;
};

static void tally_init(struct tally *tally) {
	*tally = (struct tally){ 0 };
	(void)pthread_mutex_init(&tally->mutex, NULL);
	(void)pthread_cond_init(&tally->changed, NULL);
}

static void count_event(void *context, const struct postern_event *event) {
	struct tally *tally = context;
	(void)pthread_mutex_lock(&tally->mutex);
	tally->accepted += event->kind == POSTERN_EVENT_ACCEPTED;
	tally->started += event->kind == POSTERN_EVENT_STARTED;
	tally->settled += event->state != POSTERN_STATE_ANY;
	tally->fenced += event->kind == POSTERN_EVENT_FENCED;
	(void)pthread_cond_broadcast(&tally->changed);
	(void)pthread_mutex_unlock(&tally->mutex);
}

static void handle(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)message;
	(void)delivery;
	struct tally *tally = context;
	(void)pthread_mutex_lock(&tally->mutex);
	tally->now++;
	tally->most = tally->now > tally->most ? tally->now : tally->most;
	(void)pthread_cond_broadcast(&tally->changed);
	while (tally->hold) {
		(void)pthread_cond_wait(&tally->changed, &tally->mutex);
	}
	tally->now--;
	outcome->kind = tally->outcome;
	(void)pthread_mutex_unlock(&tally->mutex);
}

/* Wait until *number is at least `least`. */
static bool await(struct tally *tally, const int *number, int least) {
	struct timespec until;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_MS / 1000;
	int r = 0;
	(void)pthread_mutex_lock(&tally->mutex);
	while (*number < least && r == 0) {
		r = pthread_cond_timedwait(&tally->changed, &tally->mutex, &until);
	}
	bool reached = *number >= least;
	(void)pthread_mutex_unlock(&tally->mutex);
	return reached;
}

static void set_hold(struct tally *tally, bool hold) {
	(void)pthread_mutex_lock(&tally->mutex);
	tally->hold = hold;
	(void)pthread_cond_broadcast(&tally->changed);
	(void)pthread_mutex_unlock(&tally->mutex);
}

struct stage {
	struct tally tally;
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
};

static bool open_stage(struct stage *stage, uint32_t workers,
		const struct postern_policy *policy, uint32_t run_queue_max) {
	stage->box = NULL;
	stage->runner = NULL;
	tally_init(&stage->tally);
	struct postern_box_options options = {
		.size = sizeof(options),
		.run_queue_max = run_queue_max,
	};
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "h",
		.callback = handle,
		.context = &stage->tally,
		.policy = policy,
	};
	struct postern_runner_options runner = {
		.size = sizeof(runner),
		.workers = workers,
	};
	struct postern_error *error = &stage->error;
	return CHECK_OK(postern_box_open("memory:", &options, &stage->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(stage->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(stage->box, "c", &handler, error),
				   error) &&
		   CHECK_OK(postern_box_subscribe(stage->box, POSTERN_LEVEL_DEBUG,
							count_event, &stage->tally, error),
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

static int send_number(struct stage *stage, int number) {
	char id[32];
	(void)snprintf(id, sizeof(id), "m-%d", number);
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.body = id,
		.body_len = strlen(id),
	};
	return postern_box_accept(stage->box, "c", &message, NULL, NULL);
}

static uint64_t count_state(struct stage *stage, enum postern_state state) {
	struct postern_stats *stats;
	uint64_t count = UINT64_MAX;
	if (CHECK_OK(postern_box_stats(stage->box, &stats, &stage->error),
				&stage->error)) {
		const struct postern_handler_stats *handler = &stats->handlers[0];
		switch (state) {
		case POSTERN_STATE_PENDING: count = handler->pending; break;
		case POSTERN_STATE_LEASED: count = handler->leased; break;
		case POSTERN_STATE_DONE: count = handler->done; break;
		default: break;
		}
		postern_stats_destroy(stats);
	}
	return count;
}

static void everything_is_run(void) {
	struct stage stage;
	if (open_stage(&stage, 4, NULL, 0)) {
		for (int i = 0; i < 2000; i++) {
			CHECK_INT(send_number(&stage, i), POSTERN_OK);
		}
		CHECK(await(&stage.tally, &stage.tally.settled, 2000));
		CHECK_INT(stage.tally.started, 2000);
		CHECK_INT(count_state(&stage, POSTERN_STATE_DONE), 2000);
	}
	close_stage(&stage);
}

/* With a run queue far smaller than the backlog. */
static void backlog_is_claimed(void) {
	struct stage stage;
	if (open_stage(&stage, 2, NULL, 1)) {
		set_hold(&stage.tally, true);
		for (int i = 0; i < 1000; i++) {
			CHECK_INT(send_number(&stage, i), POSTERN_OK);
		}
		CHECK(count_state(&stage, POSTERN_STATE_PENDING) >= 800);
		set_hold(&stage.tally, false);
		CHECK(await(&stage.tally, &stage.tally.settled, 1000));
		CHECK_INT(stage.tally.started, 1000);
	}
	close_stage(&stage);
}

static void concurrency_is_kept(void) {
	struct stage stage;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.concurrency = 2;
	if (open_stage(&stage, 8, &policy, 0)) {
		set_hold(&stage.tally, true);
		for (int i = 0; i < 50; i++) {
			CHECK_INT(send_number(&stage, i), POSTERN_OK);
		}
		CHECK(await(&stage.tally, &stage.tally.now, 2));
		set_hold(&stage.tally, false);
		CHECK(await(&stage.tally, &stage.tally.settled, 50));
		CHECK_INT(stage.tally.most, 2);
	}
	close_stage(&stage);
}

struct sender {
	struct stage *stage;
	int base;
	int accepted;
	int duplicates;
};

static void *send_many(void *context) {
	struct sender *sender = context;
	for (int i = 0; i < 200; i++) {
		/* Half of the ids are shared by all senders, half are unique. */
		int number = i % 2 ? i : sender->base + i;
		int r = send_number(sender->stage, number);
		sender->accepted += r == POSTERN_OK;
		sender->duplicates += r == POSTERN_E_DUPLICATE;
	}
	return NULL;
}

static void many_threads_share_commits(void) {
	struct stage stage;
	if (open_stage(&stage, 4, NULL, 0)) {
		struct sender senders[16];
		pthread_t threads[16];
		for (int i = 0; i < 16; i++) {
			senders[i] = (struct sender){ &stage, 1000 * (i + 1), 0, 0 };
			CHECK_INT(pthread_create(&threads[i], NULL, send_many, &senders[i]),
					0);
		}
		int accepted = 0;
		int duplicates = 0;
		for (int i = 0; i < 16; i++) {
			(void)pthread_join(threads[i], NULL);
			accepted += senders[i].accepted;
			duplicates += senders[i].duplicates;
		}
		CHECK_INT(accepted, 16 * 100 + 100);
		CHECK_INT(duplicates, 15 * 100);
		CHECK(await(&stage.tally, &stage.tally.settled, accepted));
		CHECK_INT(stage.tally.started, accepted);
		CHECK_INT(stage.tally.accepted, accepted);
	}
	close_stage(&stage);
}

static void drain_returns_leases(void) {
	struct stage stage;
	if (open_stage(&stage, 2, NULL, 0)) {
		set_hold(&stage.tally, true);
		for (int i = 0; i < 2; i++) {
			CHECK_INT(send_number(&stage, i), POSTERN_OK);
		}
		/* Once both workers are busy this node may process, so every further
		   accept leases its delivery and queues it before it returns. */
		CHECK(await(&stage.tally, &stage.tally.now, 2));
		for (int i = 2; i < 100; i++) {
			CHECK_INT(send_number(&stage, i), POSTERN_OK);
		}
		CHECK_INT(count_state(&stage, POSTERN_STATE_LEASED), 100);
		/* Two callbacks do not return; all other leases are returned. */
		CHECK_INT(postern_runner_drain(stage.runner, 1, &stage.error),
				POSTERN_E_TIMEOUT);
		CHECK_INT(count_state(&stage, POSTERN_STATE_LEASED), 2);
		CHECK_INT(count_state(&stage, POSTERN_STATE_PENDING), 98);
		set_hold(&stage.tally, false);
		CHECK_OK(postern_runner_drain(stage.runner, PATIENCE_MS, &stage.error),
				&stage.error);
		CHECK_INT(count_state(&stage, POSTERN_STATE_DONE), 2);
		CHECK_INT(stage.tally.started, 2);
		/* Accepting still works. */
		CHECK_INT(send_number(&stage, 1000), POSTERN_OK);
		postern_runner_stop(stage.runner);
		/* Returned deliveries run by postern_box_process(), with no failure
		   counted. */
		size_t count = 0;
		CHECK_OK(postern_box_process(stage.box, 0, &count, &stage.error),
				&stage.error);
		CHECK_INT(count, 99);
	}
	close_stage(&stage);
}

static void next_runner_continues(void) {
	struct stage stage;
	if (open_stage(&stage, 2, NULL, 0)) {
		CHECK_INT(send_number(&stage, 1), POSTERN_OK);
		CHECK(await(&stage.tally, &stage.tally.settled, 1));
		struct postern_runner *second = NULL;
		CHECK_OK(postern_runner_create(stage.box, NULL, &second, &stage.error),
				&stage.error);
		CHECK_INT(postern_runner_start(second, &stage.error), POSTERN_E_BUSY);
		postern_runner_destroy(stage.runner);
		stage.runner = second;
		CHECK_INT(send_number(&stage, 2), POSTERN_OK);
		if (CHECK_OK(postern_runner_start(second, &stage.error),
					&stage.error)) {
			CHECK_INT(send_number(&stage, 3), POSTERN_OK);
			CHECK(await(&stage.tally, &stage.tally.settled, 3));
		}
	}
	close_stage(&stage);
}

static void hung_callback_loses_its_lease(void) {
	struct stage stage;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = 1;
	policy.lease_ms = 20;
	policy.max_attempts = 1;
	if (open_stage(&stage, 2, &policy, 0)) {
		set_hold(&stage.tally, true);
		CHECK_INT(send_number(&stage, 1), POSTERN_OK);
		CHECK(await(&stage.tally, &stage.tally.settled, 1));
		CHECK_INT(postern_runner_health(stage.runner, &stage.error),
				POSTERN_E_TIMEOUT);
		CHECK_CONTAINS(stage.error.text, "overran");
		set_hold(&stage.tally, false);
		postern_runner_stop(stage.runner);
		CHECK_OK(postern_runner_health(stage.runner, &stage.error),
				&stage.error);
		/* Its late success changed nothing. */
		CHECK_INT(stage.tally.settled, 1);
		CHECK_INT(count_state(&stage, POSTERN_STATE_DONE), 0);
	}
	close_stage(&stage);
}

static void retries_without_polling(void) {
	static const int64_t list[] = { 1 };
	struct stage stage;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.backoff_ms = list;
	policy.backoff_count = 1;
	policy.max_attempts = 10;
	if (open_stage(&stage, 2, &policy, 0)) {
		(void)pthread_mutex_lock(&stage.tally.mutex);
		stage.tally.outcome = POSTERN_RETRY;
		(void)pthread_mutex_unlock(&stage.tally.mutex);
		CHECK_INT(send_number(&stage, 1), POSTERN_OK);
		/* The polling interval is 30 s: these ten come from wake-ups. */
		CHECK(await(&stage.tally, &stage.tally.settled, 10));
	}
	close_stage(&stage);
}

static const struct tap_case cases[] = {
	{ "everything accepted is run once", everything_is_run },
	{ "a backlog larger than the run queue is claimed", backlog_is_claimed },
	{ "no more than `concurrency` run at once", concurrency_is_kept },
	{ "many threads accept together, each id once",
			many_threads_share_commits },
	{ "a drain returns leases of runs that have not started",
			drain_returns_leases },
	{ "a new runner continues with the box of a stopped one",
			next_runner_continues },
	{ "a callback that overruns its lease loses it",
			hung_callback_loses_its_lease },
	{ "retries run without polling", retries_without_polling },
};

TAP_MAIN(cases)
