/* SPDX-License-Identifier: MIT */

/*
 * A program that uses markers in Redis, for tests that kill it or its server:
 *
 *   driver URL mark VERB HANDLER KEY [FENCE LEASE_MS]
 *       the result as a word, or the error as "CODE: sentence"
 *   driver URL check
 *       the warning of postern_guard_check()
 *   driver URL run HANDLER COUNT THREADS FILE [PAUSE_MS]
 *       run a function for the keys k0, k1, … in each thread; the function
 *       appends its key to the file. Prints how many calls had which result,
 *       and how many were duplicates of a function that had not yet ended, in
 *       any process: EARLY. FILE.ended has a byte for each key.
 *   driver URL own …
 *       the same with keys of its own for each thread
 *   driver URL record HANDLER
 *       record k0, k1, … until an error or the end; prints each that is done
 *   driver URL each VERB HANDLER [FENCE]
 *       the same as `mark`, for each key that is a line of stdin
 *   driver URL repeat COUNT HANDLER
 *       has() of one key so many times, each after a line on stdin
 *
 * $DRIVER_TIMEOUT_MS is the longest time of a call; $DRIVER_RETRIES as in the
 * options.
 */

#include <fcntl.h>
#include <postern/guard.h>
#include <postern/redis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define THREAD_MAX 64
#define RESULT_COUNT 16

static struct postern_guard *guard;
static struct postern_error error;

static long setting(const char *name) {
	const char *text = getenv(name);
	return text ? strtol(text, NULL, 10) : 0;
}

static const char *name_of(int code) {
	switch (code) {
#define NAME_OF(name, value, transient, text) \
	case value: return #name;
		POSTERN_ERROR_MAP(NAME_OF)
#undef NAME_OF
	default: return "OK";
	}
}

static int print_result(int code) {
	if (code == POSTERN_OK) {
		(void)printf("OK\n");
	} else {
		(void)printf("%s: %s\n", name_of(code), error.text);
	}
	return 0;
}

static int mark(int argc, char **argv) {
	const char *verb = argv[0];
	const char *handler = argv[1];
	const char *key = argv[2];
	uint64_t fence = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	int64_t lease_ms = argc > 4 ? strtoll(argv[4], NULL, 10) : 0;
	int64_t left_ms = 0;
	bool done = false;
	if (strcmp(verb, "has") == 0) {
		int r = postern_mark_has(guard, handler, key, &done, &error);
		return r ? print_result(r) : printf(done ? "yes\n" : "no\n") < 0;
	}
	if (strcmp(verb, "try") == 0) {
		return print_result(postern_mark_try(guard, handler, key, &error));
	}
	if (strcmp(verb, "record") == 0) {
		return print_result(postern_mark_record(guard, handler, key, &error));
	}
	if (strcmp(verb, "forget") == 0) {
		return print_result(postern_mark_forget(guard, handler, key, &error));
	}
	if (strcmp(verb, "expire") == 0) {
		return print_result(
				postern_mark_expire(guard, handler, 0, NULL, &error));
	}
	if (strcmp(verb, "begin") == 0) {
		return print_result(postern_mark_begin(guard, handler, key, fence,
				lease_ms, &left_ms, &error));
	}
	if (strcmp(verb, "finish") == 0) {
		return print_result(
				postern_mark_finish(guard, handler, key, fence, &error));
	}
	if (strcmp(verb, "release") == 0) {
		return print_result(
				postern_mark_release(guard, handler, key, fence, &error));
	}
	return 2;
}

static int check(void) {
	char warning[512];
	int r = postern_guard_check(guard, warning, sizeof warning, &error);
	return r ? print_result(r) : printf("%s\n", warning) < 0;
}

struct job {
	const char *handler;
	long count;
	long pause_ms;
	long own; /* the thread's number; 0: its keys are those of all */
	int file;
	atomic_uchar *ended; /* by the number of the key, shared by processes */
	unsigned long early;
	unsigned long results[RESULT_COUNT]; /* by -code */
};

static void sleep_ms(long ms) {
	struct timespec pause = { ms / 1000, ms % 1000 * 1000000 };
	(void)nanosleep(&pause, NULL);
}

static void append_key(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct job *job = context;
	char line[64];
	int len = snprintf(line, sizeof line, "%.*s\n", (int)call->key_len,
			call->key);
	sleep_ms(job->pause_ms);
	if (write(job->file, line, (size_t)len) != len) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "cannot write");
	} else if (job->ended) {
		atomic_store(&job->ended[strtol(line + 1, NULL, 10)], 1);
	}
}

static void *run_all(void *context) {
	struct job *job = context;
	for (long i = 0; i < job->count; i++) {
		char key[32];
		struct postern_error why;
		(void)snprintf(key, sizeof key, "k%ld", job->own * job->count + i);
		const struct postern_guarded guarded = {
			.size = sizeof guarded,
			.handler = job->handler,
			.key = key,
		};
		int r = postern_guard_run(guard, &guarded, append_key, job, NULL, &why);
		job->results[-r]++;
		job->early += r == POSTERN_E_DUPLICATE && job->ended &&
					  atomic_load(&job->ended[i]) == 0;
	}
	return NULL;
}

/* The bytes of FILE.ended, which all processes map. NULL: it failed. */
static atomic_uchar *map_ended(const char *file, long count) {
	char path[4096];
	(void)snprintf(path, sizeof path, "%s.ended", file);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	void *bytes = MAP_FAILED;
	if (fd >= 0 && ftruncate(fd, count) == 0) {
		bytes = mmap(NULL, (size_t)count, PROT_READ | PROT_WRITE, MAP_SHARED,
				fd, 0);
	}
	return bytes == MAP_FAILED ? NULL : bytes;
}

static void print_sums(const struct job *jobs, long thread_count) {
	unsigned long early = 0;
	for (long i = 0; i < thread_count; i++) {
		early += jobs[i].early;
	}
	for (int code = 0; code < RESULT_COUNT; code++) {
		unsigned long sum = 0;
		for (long i = 0; i < thread_count; i++) {
			sum += jobs[i].results[code];
		}
		if (sum > 0) {
			(void)printf("%s %lu\n", name_of(-code), sum);
		}
	}
	if (early > 0) {
		(void)printf("EARLY %lu\n", early);
	}
}

static int run(int argc, char **argv, bool own) {
	static struct job jobs[THREAD_MAX];
	pthread_t threads[THREAD_MAX];
	long thread_count = strtol(argv[2], NULL, 10);
	long count = strtol(argv[1], NULL, 10);
	int file = open(argv[3], O_WRONLY | O_APPEND | O_CREAT, 0600);
	atomic_uchar *ended = own ? NULL : map_ended(argv[3], count);
	if (file < 0 || thread_count < 1 || thread_count > THREAD_MAX ||
			(!own && !ended)) {
		return 2;
	}
	for (long i = 0; i < thread_count; i++) {
		jobs[i] = (struct job){
			.handler = argv[0],
			.count = count,
			.pause_ms = argc > 4 ? strtol(argv[4], NULL, 10) : 0,
			.own = own ? i : 0,
			.file = file,
			.ended = ended,
		};
		if (pthread_create(&threads[i], NULL, run_all, &jobs[i])) {
			return 2;
		}
	}
	for (long i = 0; i < thread_count; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	print_sums(jobs, thread_count);
	return 0;
}

static int record(const char *handler) {
	for (long i = 0;; i++) {
		char key[32];
		(void)snprintf(key, sizeof key, "k%ld", i);
		int r = postern_mark_record(guard, handler, key, &error);
		if (r) {
			return print_result(r);
		}
		if (printf("%s\n", key) < 0 || fflush(stdout)) {
			return 0;
		}
	}
}

static int mark_lines(int argc, char **argv) {
	char line[64];
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = '\0';
		(void)mark(argc > 2 ? 4 : 3,
				(char *[]){ argv[0], argv[1], line, argv[2] });
		(void)fflush(stdout);
	}
	return 0;
}

static int repeat(long count, const char *handler) {
	char line[8];
	for (long i = 0; i < count; i++) {
		bool done = false;
		if (!fgets(line, sizeof line, stdin)) {
			return 0;
		}
		int r = postern_mark_has(guard, handler, "k0", &done, &error);
		if (r) {
			(void)print_result(r);
		} else {
			(void)printf(done ? "yes\n" : "no\n");
		}
		(void)fflush(stdout);
	}
	return 0;
}

static int dispatch(int argc, char **argv) {
	if (strcmp(argv[0], "mark") == 0 && argc >= 4) {
		return mark(argc - 1, argv + 1);
	}
	if (strcmp(argv[0], "check") == 0) {
		return check();
	}
	bool own = strcmp(argv[0], "own") == 0;
	if ((own || strcmp(argv[0], "run") == 0) && argc >= 5) {
		return run(argc - 1, argv + 1, own);
	}
	if (strcmp(argv[0], "record") == 0 && argc >= 2) {
		return record(argv[1]);
	}
	if (strcmp(argv[0], "each") == 0 && argc >= 3) {
		return mark_lines(argc - 1, argv + 1);
	}
	if (strcmp(argv[0], "repeat") == 0 && argc >= 3) {
		return repeat(strtol(argv[1], NULL, 10), argv[2]);
	}
	return 2;
}

int main(int argc, char **argv) {
	const struct postern_guard_options options = {
		.size = sizeof options,
		.command_timeout_ms = setting("DRIVER_TIMEOUT_MS"),
		.command_retries = (int32_t)setting("DRIVER_RETRIES"),
		.lease_ms = setting("DRIVER_LEASE_MS"),
	};
	if (argc < 3) {
		return 2;
	}
	int r = postern_redis_register(&error);
	if (!r) {
		r = postern_guard_open(argv[1], &options, &guard, &error);
	}
	if (r) {
		return print_result(r);
	}
	r = dispatch(argc - 2, argv + 2);
	postern_guard_destroy(guard);
	return r;
}
