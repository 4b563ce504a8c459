/* SPDX-License-Identifier: MIT */
/*
 * A handler of metrics: many messages, little at stake if one counts twice.
 *
 * Its markers are in memory: no I/O, forgotten when the process ends, and
 * forgotten after five minutes, so that they do not grow. The clock of this
 * example is its own, so that five minutes take no time.
 */

#include <postern/postern.h>
#include <postern/sys/clock.h>
#include <stdio.h>

#define WINDOW_MS ((int64_t)5 * 60 * 1000)
#define SAMPLE_COUNT 100000

static _Atomic int64_t now_ms = 1000; /* other threads read it, too */

static int64_t read_clock(void *context) {
	(void)context;
	return now_ms;
}

static const struct postern_clock example_clock = {
	.wall_ms = read_clock,
	.monotonic_ms = read_clock,
};

static long total;

static void add_sample(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)call;
	(void)outcome;
	total += *(const long *)context;
}

/* Each sample arrives twice. */
static void collect(struct postern_guard *guard) {
	for (long i = 0; i < 2 * SAMPLE_COUNT; i++) {
		char key[32];
		long value = 1;
		(void)snprintf(key, sizeof key, "sample-%ld", i % SAMPLE_COUNT);
		const struct postern_guarded guarded = {
			.size = sizeof guarded,
			.handler = "metrics-v1",
			.key = key,
		};
		(void)postern_guard_run(guard, &guarded, add_sample, &value, NULL,
				NULL);
	}
}

static void expire(struct postern_guard *guard) {
	uint64_t count = 0;
	(void)postern_mark_expire(guard, "metrics-v1", WINDOW_MS, &count, NULL);
	(void)printf("forgotten: %llu\n", (unsigned long long)count);
}

int main(void) {
	const struct postern_guard_options options = {
		.size = sizeof options,
		.clock = &example_clock,
	};
	struct postern_guard *guard = NULL;
	struct postern_error error;
	if (postern_guard_open("memory:", &options, &guard, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	collect(guard);
	(void)printf("samples: %ld\n", total);
	expire(guard); /* none is five minutes old */
	now_ms += WINDOW_MS;
	expire(guard);
	postern_guard_destroy(guard);
	return 0;
}
