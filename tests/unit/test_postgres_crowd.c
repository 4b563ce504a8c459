/* SPDX-License-Identifier: MIT */

/*
 * Three processes with 64 threads deliver the same keys at once, over eight
 * connections each. What the functions do is counted in memory that the
 * processes share, outside the database.
 *
 * KEYS=N  how many keys (1000)
 */

#include <postern/postern.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

#define PROCESS_COUNT 3
#define THREAD_COUNT 64
#define KEY_COUNT_MAX 1000
#define CONNECTION_COUNT 8

/* In shared memory. */
struct counts {
	atomic_int calls[KEY_COUNT_MAX];
	atomic_int ended[KEY_COUNT_MAX];
	atomic_int first;
	atomic_int early;  /* duplicates before the function had ended */
	atomic_int failed; /* any other answer */
	char failure[256];
};

struct crowd {
	struct counts *counts;
	struct postern_guard *guard;
	int key_count;
	bool transactional;
};

struct job {
	struct counts *counts;
	int number;
};

static void count_run(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	const struct job *job = context;
	(void)call;
	(void)outcome;
	job->counts->calls[job->number]++;
	job->counts->ended[job->number]++;
}

static void deliver(const struct crowd *crowd, int number) {
	struct counts *counts = crowd->counts;
	struct job job = { .counts = counts, .number = number };
	struct postern_error error = { 0 };
	char key[16];
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "charge-v1",
		.key = key,
		.transactional = crowd->transactional,
	};
	(void)snprintf(key, sizeof key, "k%d", number);
	int r = postern_guard_run(crowd->guard, &guarded, count_run, &job, NULL,
			&error);
	counts->first += r == POSTERN_OK;
	counts->early += r == POSTERN_E_DUPLICATE && counts->ended[number] == 0;
	if (r != POSTERN_OK && r != POSTERN_E_DUPLICATE && !counts->failed++) {
		(void)snprintf(counts->failure, sizeof counts->failure, "%s",
				error.text);
	}
}

static void *deliver_all(void *context) {
	const struct crowd *crowd = context;
	for (int i = 0; i < crowd->key_count; i++) {
		deliver(crowd, i);
	}
	return NULL;
}

static int open_guard(const char *schema, struct postern_guard **out,
		struct postern_error *error) {
	const struct postern_guard_options options = {
		.size = sizeof options,
		/* Nobody gives up. */
		.wait_ms = INT64_C(3600) * 1000,
		.timeout_ms = -1,
		.command_timeout_ms = INT64_C(600) * 1000,
		.schema = schema,
		.connections = CONNECTION_COUNT,
	};
	return postern_guard_open(getenv("POSTERN_TEST_POSTGRES"), &options, out,
			error);
}

/* In a process of its own. */
static int run_process(struct crowd *crowd, const char *schema, int threads) {
	pthread_t handles[THREAD_COUNT];
	struct postern_error error;
	if (open_guard(schema, &crowd->guard, &error) != POSTERN_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	for (int i = 0; i < threads; i++) {
		if (pthread_create(&handles[i], NULL, deliver_all, crowd) != 0) {
			return 1;
		}
	}
	for (int i = 0; i < threads; i++) {
		(void)pthread_join(handles[i], NULL);
	}
	postern_guard_destroy(crowd->guard);
	return 0;
}

static void run_processes(struct crowd *crowd, const char *schema) {
	pid_t children[PROCESS_COUNT];
	for (int i = 0; i < PROCESS_COUNT; i++) {
		int threads = THREAD_COUNT / PROCESS_COUNT +
					  (i < THREAD_COUNT % PROCESS_COUNT);
		(void)fflush(NULL);
		children[i] = fork();
		if (children[i] == 0) {
			_exit(run_process(crowd, schema, threads));
		}
	}
	for (int i = 0; i < PROCESS_COUNT; i++) {
		int status = -1;
		CHECK(children[i] > 0 &&
				waitpid(children[i], &status, 0) == children[i]);
		CHECK_INT(status, 0);
	}
}

static void crowd_runs_once(const char *schema, bool transactional) {
	const char *keys = getenv("KEYS");
	struct postern_guard *guard = NULL;
	struct postern_error error;
	struct crowd crowd = {
		.key_count = keys ? (int)strtol(keys, NULL, 10) : KEY_COUNT_MAX,
		.transactional = transactional,
	};
	/* Creates the schema. */
	if (!CHECK_OK(open_guard(schema, &guard, &error), &error)) {
		return;
	}
	postern_guard_destroy(guard);
	crowd.counts = mmap(NULL, sizeof *crowd.counts, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!CHECK(crowd.counts != MAP_FAILED)) {
		return;
	}
	run_processes(&crowd, schema);
	for (int i = 0; i < crowd.key_count; i++) {
		CHECK_INT(crowd.counts->calls[i], 1);
	}
	CHECK_INT(crowd.counts->first, crowd.key_count);
	CHECK_INT(crowd.counts->early, 0);
	CHECK_STR(crowd.counts->failure, "");
	CHECK_INT(crowd.counts->failed, 0);
	(void)munmap(crowd.counts, sizeof *crowd.counts);
}

static void transactions(void) {
	crowd_runs_once("crowd_transactions", true);
}

static void leases(void) {
	crowd_runs_once("crowd_leases", false);
}

static const struct tap_case cases[] = {
	{ "of three processes one runs each key, in transactions", transactions },
	{ "of three processes one runs each key, under leases", leases },
};

TAP_MAIN(cases)
