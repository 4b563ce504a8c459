/* SPDX-License-Identifier: MIT */
/*
 * How long to remember: for longer than a copy can still arrive.
 *
 * The job forgets what was done more than seven days ago. A copy that arrives
 * within that time is a duplicate; one that arrives later would run again, so
 * the time is longer than the longest redelivery of the broker. The clock of
 * this example is its own, so that seven days take no time.
 */

#include <postern/postern.h>
#include <postern/sys/clock.h>
#include <stdio.h>

#define DAY_MS ((int64_t)24 * 3600 * 1000)

static _Atomic int64_t now_ms = 1000; /* other threads read it, too */

static int64_t read_clock(void *context) {
	(void)context;
	return now_ms;
}

static const struct postern_clock example_clock = {
	.wall_ms = read_clock,
	.monotonic_ms = read_clock,
};

static void send_mail(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	(void)call;
	(void)outcome;
}

static void deliver(struct postern_guard *guard, const char *id) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "send-mail-v1",
		.key = id,
	};
	int r = postern_guard_run(guard, &guarded, send_mail, NULL, NULL, NULL);
	(void)printf("day %lld: %s: %s\n", (long long)(now_ms / DAY_MS), id,
			r == POSTERN_OK ? "mail sent" : postern_error_text(r));
}

/* The job, once a day. */
static void clean_up(struct postern_guard *guard) {
	uint64_t count = 0;
	struct postern_error error;
	if (postern_mark_expire(guard, NULL, 7 * DAY_MS, &count, &error)) {
		(void)printf("%s\n", error.text);
	} else {
		(void)printf("day %lld: %llu forgotten\n", (long long)(now_ms / DAY_MS),
				(unsigned long long)count);
	}
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
	deliver(guard, "m-1");
	now_ms += 5 * DAY_MS;
	deliver(guard, "m-2");
	deliver(guard, "m-1");
	clean_up(guard);
	now_ms += 2 * DAY_MS;
	clean_up(guard);
	deliver(guard, "m-1");
	deliver(guard, "m-2");
	postern_guard_destroy(guard);
	return 0;
}
