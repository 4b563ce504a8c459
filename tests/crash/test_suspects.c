/* SPDX-License-Identifier: MIT */
/*
 * How suspects are run: a child leases deliveries of a callback and dies with
 * them; the parent opens the store, accepts new messages and runs everything
 * with more workers than needed. A solo suspect runs with no other callback
 * beside it, a group of suspects with no other group, and new messages wait.
 */

#include "tap.h"

#include "support/temp_dir.h"

#include <postern/postern.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Long enough for another worker to start a run that it must not. */
#define WORK_US 20000
#define RUNS_MAX 64

struct log {
	pthread_mutex_t mutex;
	int now;
	int settled;
	char ids[RUNS_MAX][16];
	int beside[RUNS_MAX]; /* the most that ran at once during this run */
	int count;
};

static void run_callback(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)delivery;
	(void)outcome;
	struct log *log = context;
	(void)pthread_mutex_lock(&log->mutex);
	int mine = log->count++;
	if (mine < RUNS_MAX) {
		(void)snprintf(log->ids[mine], sizeof(log->ids[mine]), "%s",
				message->id);
	}
	log->now++;
	for (int i = 0; i < log->count && i < RUNS_MAX; i++) {
		/* Negative once the run has ended. */
		if (log->beside[i] >= 0 && log->beside[i] < log->now) {
			log->beside[i] = log->now;
		}
	}
	(void)pthread_mutex_unlock(&log->mutex);
	(void)usleep(WORK_US);
	(void)pthread_mutex_lock(&log->mutex);
	log->now--;
	if (mine < RUNS_MAX) {
		log->beside[mine] = -log->beside[mine]; /* ended */
	}
	(void)pthread_mutex_unlock(&log->mutex);
}

static void count_settled(void *context, const struct postern_event *event) {
	struct log *log = context;
	if (event->state != POSTERN_STATE_ANY) {
		(void)pthread_mutex_lock(&log->mutex);
		log->settled++;
		(void)pthread_mutex_unlock(&log->mutex);
	}
}

static struct postern_box *open_box(const char *url, struct log *log) {
	struct postern_box *box = NULL;
	struct postern_error error = { 0 };
	const char *const keys[] = { "a", "b" };
	int r = postern_box_open(url, NULL, &box, &error);
	if (!r) {
		r = postern_box_add_channel(box, "a", NULL, &error);
	}
	if (!r) {
		r = postern_box_add_channel(box, "b", NULL, &error);
	}
	for (size_t i = 0; !r && i < 2; i++) {
		struct postern_handler_options handler = {
			.size = sizeof(handler),
			.key = keys[i],
			.callback = run_callback,
			.context = log,
		};
		r = postern_box_add_handler(box, keys[i], &handler, &error);
	}
	if (!r) {
		r = postern_box_subscribe(box, POSTERN_LEVEL_DEBUG, count_settled, log,
				&error);
	}
	if (!r) {
		r = postern_box_start(box, &error);
	}
	if (!CHECK_OK(r, &error)) {
		postern_box_destroy(box);
		return NULL;
	}
	return box;
}

static void send_some(struct postern_box *box, const char *channel,
		const char *prefix, int count) {
	for (int i = 0; i < count; i++) {
		char id[16];
		(void)snprintf(id, sizeof(id), "%s%d", prefix, i);
		struct postern_message message = { .size = sizeof(message), .id = id };
		struct postern_error error;
		CHECK_OK(postern_box_accept(box, channel, &message, NULL, &error),
				&error);
	}
}

/* A child leases `count` deliveries and dies. */
static bool lose_leases(const char *url, int count) {
	pid_t pid = fork();
	if (pid == 0) {
		struct log log = { .mutex = PTHREAD_MUTEX_INITIALIZER };
		struct postern_box *box = open_box(url, &log);
		size_t claimed = 0;
		if (!box) {
			_exit(1);
		}
		send_some(box, "a", "s", count);
		(void)postern_box_claim(box, (size_t)count, &claimed, NULL);
		_exit(claimed == (size_t)count ? 0 : 1);
	}
	int status = 1;
	return CHECK(waitpid(pid, &status, 0) == pid) && CHECK_INT(status, 0);
}

/* Run `suspects` and some new messages; `log` records how. */
static void run_all(const char *url, struct log *log, int suspects) {
	*log = (struct log){ .mutex = PTHREAD_MUTEX_INITIALIZER };
	struct postern_box *box = open_box(url, log);
	struct postern_runner *runner = NULL;
	struct postern_error error;
	struct postern_runner_options options = {
		.size = sizeof(options),
		.workers = 8,
	};
	if (!box ||
			!CHECK_OK(postern_runner_create(box, &options, &runner, &error),
					&error) ||
			!CHECK_OK(postern_runner_start(runner, &error), &error)) {
		postern_box_destroy(box);
		return;
	}
	send_some(box, "a", "fa", 4);
	send_some(box, "b", "fb", 4);
	for (int i = 0; i < 60000; i++) {
		(void)pthread_mutex_lock(&log->mutex);
		bool done = log->settled >= suspects + 8;
		(void)pthread_mutex_unlock(&log->mutex);
		if (done) {
			break;
		}
		(void)usleep(1000);
	}
	postern_runner_destroy(runner);
	postern_box_destroy(box);
	CHECK_INT(log->settled, suspects + 8);
	CHECK_INT(log->count, suspects + 8);
}

static void solo_runs_alone(void) {
	struct temp_dir dir;
	temp_dir_create(&dir);
	char url[TEMP_DIR_PATH_MAX + 32];
	temp_dir_name(&dir, "sqlite:", "box.db", url, sizeof(url));
	static struct log log;
	/* Two lost leases are recovered as two groups of one. */
	if (lose_leases(url, 2)) {
		run_all(url, &log, 2);
		for (int i = 0; i < 2; i++) {
			CHECK_CONTAINS(log.ids[i], "s");
			CHECK_INT(-log.beside[i], 1);
		}
	}
	temp_dir_destroy(&dir);
}

static void groups_run_one_by_one(void) {
	struct temp_dir dir;
	temp_dir_create(&dir);
	char url[TEMP_DIR_PATH_MAX + 32];
	temp_dir_name(&dir, "sqlite:", "box.db", url, sizeof(url));
	static struct log log;
	if (lose_leases(url, 6)) {
		run_all(url, &log, 6);
		for (int i = 0; i < 6; i++) {
			CHECK_CONTAINS(log.ids[i], "s");
			CHECK(-log.beside[i] <= 3);
		}
	}
	temp_dir_destroy(&dir);
}

static const struct tap_case cases[] = {
	{ "a solo suspect runs with no other callback beside it", solo_runs_alone },
	{ "groups of suspects run one after the other, before new messages",
			groups_run_one_by_one },
};

TAP_MAIN(cases)
