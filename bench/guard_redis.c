/* SPDX-License-Identifier: MIT */

/*
 * A guard on Redis: THREADS threads run a function that does nothing, each for
 * keys of its own.
 *
 *   guard_redis URL COUNT THREADS
 *
 * Prints {"messages_per_second": …}.
 */

#include <postern/guard.h>
#include <postern/redis.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREAD_MAX 256

struct job {
	struct postern_guard *guard;
	long first;
	long count;
	pthread_t thread;
};

static void fail(const char *what, const struct postern_error *error) {
	(void)fprintf(stderr, "%s: %s\n", what, error->text);
	exit(1);
}

static void do_nothing(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	(void)call;
	(void)outcome;
}

static void *run(void *context) {
	struct job *job = context;
	for (long i = 0; i < job->count; i++) {
		struct postern_error error;
		char key[32];
		(void)snprintf(key, sizeof key, "k%ld", job->first + i);
		const struct postern_guarded guarded = {
			.size = sizeof guarded,
			.handler = "bench",
			.key = key,
		};
		if (postern_guard_run(job->guard, &guarded, do_nothing, NULL, NULL,
					&error)) {
			fail(key, &error);
		}
	}
	return NULL;
}

static double seconds(void) {
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
	static struct job jobs[THREAD_MAX];
	struct postern_guard *guard;
	struct postern_error error;
	long count = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
	long threads = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
	if (count < 1 || threads < 1 || threads > THREAD_MAX) {
		(void)fputs("usage: guard_redis URL COUNT THREADS\n", stderr);
		return 2;
	}
	if (postern_redis_register(&error) ||
			postern_guard_open(argv[1], NULL, &guard, &error)) {
		fail("open", &error);
	}
	double start = seconds();
	for (long i = 0; i < threads; i++) {
		jobs[i].guard = guard;
		jobs[i].count = count / threads;
		jobs[i].first = i * jobs[i].count;
		if (pthread_create(&jobs[i].thread, NULL, run, &jobs[i])) {
			return 1;
		}
	}
	for (long i = 0; i < threads; i++) {
		(void)pthread_join(jobs[i].thread, NULL);
	}
	(void)printf("{\"messages_per_second\": %.1f}\n",
			(double)(threads * jobs[0].count) / (seconds() - start));
	postern_guard_destroy(guard);
	return 0;
}
