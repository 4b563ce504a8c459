/* SPDX-License-Identifier: MIT */

/* A guard whose store is busy, or does not answer. */

#include "runner/guard.h"
#include "support/fake_clock.h"
#include "unit/guard_scene.h"

/* The writer is waited for as long as a copy, and the function is not
   called. */
static void busy_writer(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.wait_ms = 100,
		.timeout_ms = -1,
	};
	atomic_bool hold = true;
	struct work first = { .outcome = POSTERN_DONE, .hold = &hold };
	struct work second = { .outcome = POSTERN_DONE };
	if (!scene_open(&scene, "sqlite", &options)) {
		return;
	}
	struct caller runner = { .scene = &scene,
		.work = &first,
		.key = "a",
		.transactional = true };
	start_caller(&runner);
	CHECK_INT(run(&scene, "b", true, &second), POSTERN_E_BUSY);
	CHECK_INT(second.calls, 0);
	hold = false;
	(void)pthread_join(runner.thread, NULL);
	CHECK_INT(runner.result, POSTERN_OK);
	CHECK_OK(run(&scene, "b", true, &second), &scene.error);
	scene_close(&scene);
}

/* Calls of the guard inside a transactional function, which have its thread and
   its store. */
struct inner {
	struct scene *scene;
	int other; /* of another key */
	int leased;
	int same;
};

static void call_inside(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct inner *inner = context;
	struct work work = { .outcome = POSTERN_DONE };
	(void)call;
	(void)outcome;
	inner->other = run(inner->scene, "b", true, &work);
	inner->leased = run(inner->scene, "c", false, &work);
	inner->same = run(inner->scene, "a", true, &work);
	CHECK_INT(work.calls, 0);
}

/* If it waited for itself, that would take a year. */
static void nested(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.wait_ms = INT64_C(365) * 86400 * 1000,
		.timeout_ms = -1,
	};
	struct postern_guarded guarded = guarded_of("a", true);
	if (!scene_open(&scene, "sqlite", &options)) {
		return;
	}
	struct inner inner = { .scene = &scene };
	CHECK_OK(postern_guard_run(scene.guard, &guarded, call_inside, &inner, NULL,
					 &scene.error),
			&scene.error);
	CHECK_INT(inner.other, POSTERN_E_BUSY);
	CHECK_INT(inner.leased, POSTERN_E_BUSY);
	CHECK_INT(inner.same, POSTERN_E_BUSY);
	scene_close(&scene);
}

/* Markers of a store that does not answer the renewal of one key. */
static struct {
	struct postern_markers base;
	struct postern_markers *real;
	atomic_bool hangs;
	atomic_int waiting;  /* renewals of the key "hang" */
	atomic_int extended; /* of any other */
} slow;

static int change_slowly(struct postern_markers *markers,
		const struct postern_mark *mark, struct postern_mark_request *request,
		struct postern_error *error) {
	(void)markers;
	if (request->kind == POSTERN_MARK_EXTEND) {
		bool hangs =
				mark->value_len == 4 && memcmp(mark->value, "hang", 4) == 0;
		slow.waiting += hangs;
		slow.extended += !hangs;
		while (hangs && slow.hangs) {
			sleep_ms(1);
		}
	}
	return slow.real->ops->change(slow.real, mark, request, error);
}

static const struct postern_marker_ops slow_ops = {
	.version = POSTERN_MARKER_OPS_VERSION,
	.name = "slow",
	.change = change_slowly,
};

static void renewal_hangs(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.lease_ms = POSTERN_GUARD_LEASE_MS_MIN,
	};
	atomic_bool hold = true;
	struct work works[2] = { { .outcome = POSTERN_DONE, .hold = &hold },
		{ .outcome = POSTERN_DONE, .hold = &hold } };
	if (!scene_open(&scene, "memory", &options)) {
		return;
	}
	slow.base.ops = &slow_ops;
	slow.real = scene.guard->markers;
	slow.hangs = true;
	slow.waiting = 0;
	slow.extended = 0;
	scene.guard->markers = &slow.base;
	struct caller first = { .scene = &scene, .work = &works[0], .key = "hang" };
	struct caller second = { .scene = &scene, .work = &works[1], .key = "b" };
	start_caller(&first);
	while (slow.waiting == 0) {
		sleep_ms(1);
	}
	start_caller(&second);
	for (int i = 0; i < 60000 && slow.extended < 3; i++) {
		sleep_ms(1);
	}
	CHECK(slow.extended >= 3);
	CHECK_INT(slow.waiting, 1);
	slow.hangs = false;
	hold = false;
	(void)pthread_join(first.thread, NULL);
	(void)pthread_join(second.thread, NULL);
	CHECK_INT(second.result, POSTERN_OK);
	scene.guard->markers = slow.real;
	scene_close(&scene);
}

/* Markers of a store whose answers to the begin of a lease come late. */
static struct {
	struct postern_markers base;
	struct postern_markers *real;
	struct fake_clock clock;
	int left; /* answers that come late */
	int begun;
} late;

static int change_late(struct postern_markers *markers,
		const struct postern_mark *mark, struct postern_mark_request *request,
		struct postern_error *error) {
	(void)markers;
	int r = late.real->ops->change(late.real, mark, request, error);
	if (request->kind == POSTERN_MARK_BEGIN) {
		late.begun++;
		if (late.left > 0) {
			late.left--;
			fake_clock_advance(&late.clock, POSTERN_GUARD_LEASE_MS_MIN / 2 + 1);
		}
	}
	return r;
}

static const struct postern_marker_ops late_ops = {
	.version = POSTERN_MARKER_OPS_VERSION,
	.name = "late",
	.change = change_late,
};

static void lease_begins_late(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.lease_ms = POSTERN_GUARD_LEASE_MS_MIN,
		.wait_ms = -1,
		.clock = &late.clock.base,
	};
	struct work work = { .outcome = POSTERN_DONE };
	fake_clock_init(&late.clock);
	if (!scene_open(&scene, "memory", &options)) {
		return;
	}
	late.base.ops = &late_ops;
	late.real = scene.guard->markers;
	scene.guard->markers = &late.base;
	late.left = 1;
	CHECK_OK(run(&scene, "a", false, &work), &scene.error);
	CHECK_INT(late.begun, 2);
	late.left = 2;
	CHECK_INT(run(&scene, "b", false, &work), POSTERN_E_UNAVAILABLE);
	CHECK_INT(late.begun, 4);
	CHECK_INT(work.calls, 1);
	/* Nothing is left of the lease. */
	CHECK_OK(run(&scene, "b", false, &work), &scene.error);
	CHECK_INT(work.calls, 2);
	scene.guard->markers = late.real;
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a lease whose begin was answered late begins again, or not at all",
			lease_begins_late },
	{ "the writer is waited for no longer than a copy", busy_writer },
	{ "a guard inside a function of the same store is busy at once", nested },
	{ "a renewal that hangs does not delay others", renewal_hangs },
};

TAP_MAIN(cases)
