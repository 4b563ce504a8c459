/* SPDX-License-Identifier: MIT */

/* The guard: a function runs once for a handler and a key. */

#include "unit/guard_scene.h"

#define THREAD_COUNT 64
#define KEY_COUNT 1000

static void second_is_duplicate(void) {
	static const char *const kinds[] = { "memory", "sqlite" };
	for (size_t i = 0; i < 2; i++) {
		struct scene scene;
		struct work work = { .outcome = POSTERN_DONE };
		if (!scene_open(&scene, kinds[i], NULL)) {
			continue;
		}
		CHECK_OK(run(&scene, "a", false, &work), &scene.error);
		CHECK_INT(run(&scene, "a", false, &work), POSTERN_E_DUPLICATE);
		CHECK_OK(run(&scene, "b", false, &work), &scene.error);
		CHECK_INT(work.calls, 2);
		scene_close(&scene);
	}
}

static void failed_runs_again(void) {
	struct scene scene;
	struct work work = { .outcome = POSTERN_RETRY, .reason = "card declined" };
	struct postern_outcome outcome = { 0 };
	struct postern_guarded guarded = guarded_of("a", false);
	if (!scene_open(&scene, "memory", NULL)) {
		return;
	}
	CHECK_INT(postern_guard_run(scene.guard, &guarded, do_work, &work, &outcome,
					  &scene.error),
			POSTERN_E_FAILED);
	CHECK_STR(scene.error.text, "card declined");
	CHECK_INT(outcome.kind, POSTERN_RETRY);
	work.outcome = POSTERN_DISCARD;
	CHECK_OK(run(&scene, "a", false, &work), &scene.error);
	CHECK_INT(run(&scene, "a", false, &work), POSTERN_E_DUPLICATE);
	CHECK_INT(work.calls, 2);
	scene_close(&scene);
}

static void effect_and_marker(void) {
	struct scene scene;
	struct work work = { .outcome = POSTERN_RETRY, .writes = true };
	if (!scene_open(&scene, "sqlite", NULL)) {
		return;
	}
	CHECK_INT(run(&scene, "a", true, &work), POSTERN_E_FAILED);
	CHECK_INT(count_effects(&scene), 0);
	work.outcome = POSTERN_DONE;
	CHECK_OK(run(&scene, "a", true, &work), &scene.error);
	CHECK_INT(run(&scene, "a", true, &work), POSTERN_E_DUPLICATE);
	CHECK_INT(work.calls, 2);
	CHECK_INT(count_effects(&scene), 1);
	scene_close(&scene);
}

static void slow_transaction(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.timeout_ms = 50,
	};
	struct work work = { .outcome = POSTERN_DONE,
		.writes = true,
		.sleep_ms = 200 };
	if (!scene_open(&scene, "sqlite", &options)) {
		return;
	}
	CHECK_INT(run(&scene, "a", true, &work), POSTERN_E_TIMEOUT);
	CHECK_INT(count_effects(&scene), 0);
	work.sleep_ms = 0;
	CHECK_OK(run(&scene, "a", true, &work), &scene.error);
	CHECK_INT(count_effects(&scene), 1);
	scene_close(&scene);
}

/* The timeout of a call begins with its function: while it waits for the writer
   it neither runs out nor interrupts the function that has the writer. */
static void timeout_of_another(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.timeout_ms = 1000,
	};
	static const char *const keys[] = { "a", "b", "c" };
	struct work work = { .outcome = POSTERN_DONE, .sleep_ms = 600 };
	struct caller callers[3];
	if (!scene_open(&scene, "sqlite", &options)) {
		return;
	}
	for (size_t i = 0; i < 3; i++) {
		callers[i] = (struct caller){ .scene = &scene,
			.work = &work,
			.key = keys[i],
			.transactional = true };
		(void)pthread_create(&callers[i].thread, NULL, call_once, &callers[i]);
	}
	for (size_t i = 0; i < 3; i++) {
		(void)pthread_join(callers[i].thread, NULL);
		CHECK_INT(callers[i].result, POSTERN_OK);
	}
	CHECK_INT(work.calls, 3);
	scene_close(&scene);
}

static void timeout_after_waiting(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.timeout_ms = 200,
	};
	struct work first = { .outcome = POSTERN_DONE, .sleep_ms = 600 };
	struct work second = { .outcome = POSTERN_DONE, .sleep_ms = 600 };
	if (!scene_open(&scene, "sqlite", &options)) {
		return;
	}
	struct caller runner = { .scene = &scene,
		.work = &first,
		.key = "a",
		.transactional = true };
	start_caller(&runner);
	CHECK_INT(run(&scene, "b", true, &second), POSTERN_E_TIMEOUT);
	(void)pthread_join(runner.thread, NULL);
	CHECK_INT(runner.result, POSTERN_E_TIMEOUT);
	scene_close(&scene);
}

/* Half a minute, if it is not interrupted. */
static void compute(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	int r = sqlite3_exec(call->transaction,
			"WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c"
			" LIMIT 100000000) SELECT sum(x) FROM c",
			NULL, NULL, NULL);
	CHECK_INT(r, SQLITE_INTERRUPT);
	postern_outcome_set(outcome, POSTERN_RETRY, 0, NULL);
}

/* The renewal of a lease waits for the writer, which the transaction has. */
static void timeout_beside_a_renewal(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.lease_ms = 1000,
		.timeout_ms = 600,
	};
	atomic_bool hold = true;
	struct work leased = { .outcome = POSTERN_DONE, .hold = &hold };
	if (!scene_open(&scene, "sqlite", &options)) {
		return;
	}
	struct caller runner = { .scene = &scene, .work = &leased, .key = "a" };
	start_caller(&runner);
	struct postern_guarded guarded = guarded_of("b", true);
	const struct postern_clock *clock = postern_clock_system();
	int64_t started = clock->monotonic_ms(clock->context);
	CHECK_INT(postern_guard_run(scene.guard, &guarded, compute, NULL, NULL,
					  &scene.error),
			POSTERN_E_TIMEOUT);
	CHECK(clock->monotonic_ms(clock->context) - started < 10000);
	hold = false;
	(void)pthread_join(runner.thread, NULL);
	CHECK_INT(runner.result, POSTERN_OK);
	scene_close(&scene);
}

static void copy_waits(void) {
	struct scene scene;
	atomic_bool hold = true;
	struct work first = { .outcome = POSTERN_DONE, .hold = &hold };
	struct work second = { .outcome = POSTERN_DONE };
	if (!scene_open(&scene, "memory", NULL)) {
		return;
	}
	struct caller runner = { .scene = &scene, .work = &first, .key = "a" };
	start_caller(&runner);
	struct caller copy = { .scene = &scene, .work = &second, .key = "a" };
	(void)pthread_create(&copy.thread, NULL, call_once, &copy);
	sleep_ms(20);
	CHECK_INT(second.calls, 0);
	hold = false;
	(void)pthread_join(runner.thread, NULL);
	(void)pthread_join(copy.thread, NULL);
	CHECK_INT(runner.result, POSTERN_OK);
	CHECK_INT(copy.result, POSTERN_E_DUPLICATE);
	CHECK_INT(second.calls, 0);
	scene_close(&scene);
}

static void copy_runs_after_failure(void) {
	struct scene scene;
	atomic_bool hold = true;
	struct work first = { .outcome = POSTERN_RETRY, .hold = &hold };
	struct work second = { .outcome = POSTERN_DONE };
	if (!scene_open(&scene, "memory", NULL)) {
		return;
	}
	struct caller runner = { .scene = &scene, .work = &first, .key = "a" };
	start_caller(&runner);
	struct caller copy = { .scene = &scene, .work = &second, .key = "a" };
	(void)pthread_create(&copy.thread, NULL, call_once, &copy);
	sleep_ms(20);
	hold = false;
	(void)pthread_join(runner.thread, NULL);
	(void)pthread_join(copy.thread, NULL);
	CHECK_INT(runner.result, POSTERN_E_FAILED);
	CHECK_INT(copy.result, POSTERN_OK);
	CHECK_INT(second.calls, 1);
	scene_close(&scene);
}

static void copy_gives_up(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.wait_ms = 20,
	};
	atomic_bool hold = true;
	struct work first = { .outcome = POSTERN_DONE, .hold = &hold };
	struct work second = { .outcome = POSTERN_DONE };
	if (!scene_open(&scene, "memory", &options)) {
		return;
	}
	struct caller runner = { .scene = &scene, .work = &first, .key = "a" };
	start_caller(&runner);
	CHECK_INT(run(&scene, "a", false, &second), POSTERN_E_BUSY);
	CHECK_INT(second.calls, 0);
	hold = false;
	(void)pthread_join(runner.thread, NULL);
	CHECK_INT(run(&scene, "a", false, &second), POSTERN_E_DUPLICATE);
	scene_close(&scene);
}

/* As another process would see it. */
static void lease_of_another_process(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.wait_ms = 20,
	};
	struct work work = { .outcome = POSTERN_DONE };
	if (!scene_open(&scene, "sqlite", &options)) {
		return;
	}
	CHECK_OK(postern_mark_begin(scene.guard, "charge-v1", "a", 7, 60000, NULL,
					 &scene.error),
			&scene.error);
	CHECK_INT(run(&scene, "a", false, &work), POSTERN_E_BUSY);
	CHECK_INT(run(&scene, "a", true, &work), POSTERN_E_BUSY);
	CHECK_INT(work.calls, 0);
	CHECK_OK(postern_mark_finish(scene.guard, "charge-v1", "a", 7,
					 &scene.error),
			&scene.error);
	CHECK_INT(run(&scene, "a", false, &work), POSTERN_E_DUPLICATE);
	CHECK_INT(run(&scene, "a", true, &work), POSTERN_E_DUPLICATE);
	scene_close(&scene);
}

static void lost_lease(void) {
	struct scene scene;
	atomic_bool hold = true;
	struct work work = { .outcome = POSTERN_DONE, .hold = &hold };
	if (!scene_open(&scene, "memory", NULL)) {
		return;
	}
	struct caller runner = { .scene = &scene, .work = &work, .key = "a" };
	start_caller(&runner);
	CHECK_OK(postern_mark_forget(scene.guard, "charge-v1", "a", &scene.error),
			&scene.error);
	CHECK_OK(postern_mark_begin(scene.guard, "charge-v1", "a", 7, 60000, NULL,
					 &scene.error),
			&scene.error);
	hold = false;
	(void)pthread_join(runner.thread, NULL);
	CHECK_INT(runner.result, POSTERN_E_STALE);
	scene_close(&scene);
}

static void lease_is_renewed(void) {
	struct scene scene;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.lease_ms = POSTERN_GUARD_LEASE_MS_MIN,
	};
	atomic_bool hold = true;
	struct work work = { .outcome = POSTERN_DONE, .hold = &hold };
	int64_t left_ms = 0;
	if (!scene_open(&scene, "sqlite", &options)) {
		return;
	}
	struct caller runner = { .scene = &scene, .work = &work, .key = "a" };
	start_caller(&runner);
	/* Longer than one lease; without a renewal the marker would be free. */
	for (int i = 0; i < 25; i++) {
		sleep_ms(100);
		CHECK_INT(postern_mark_begin(scene.guard, "charge-v1", "a", 7, 60000,
						  &left_ms, NULL),
				POSTERN_E_BUSY);
	}
	hold = false;
	(void)pthread_join(runner.thread, NULL);
	CHECK_INT(runner.result, POSTERN_OK);
	scene_close(&scene);
}

/* Many threads deliver the same keys at once. */
struct crowd {
	struct scene *scene;
	struct work *works; /* one for each key */
	bool transactional;
	atomic_int duplicates_early;
	atomic_int first;
};

static void *deliver_all(void *context) {
	struct crowd *crowd = context;
	for (int i = 0; i < KEY_COUNT; i++) {
		char key[16];
		(void)snprintf(key, sizeof key, "k%d", i);
		struct postern_guarded guarded = guarded_of(key, crowd->transactional);
		int r = postern_guard_run(crowd->scene->guard, &guarded, do_work,
				&crowd->works[i], NULL, NULL);
		crowd->first += r == POSTERN_OK;
		/* Duplicate is said after the function, never before. */
		crowd->duplicates_early +=
				r == POSTERN_E_DUPLICATE && crowd->works[i].ended == 0;
		CHECK(r == POSTERN_OK || r == POSTERN_E_DUPLICATE);
	}
	return NULL;
}

static void crowd_runs_once(const char *kind, bool transactional) {
	struct scene scene;
	pthread_t threads[THREAD_COUNT];
	struct work *works = calloc(KEY_COUNT, sizeof(*works));
	struct crowd crowd = { .works = works, .transactional = transactional };
	const struct postern_guard_options options = {
		.size = sizeof options,
		.wait_ms = 60000,
	};
	if (!CHECK(works) || !scene_open(&scene, kind, &options)) {
		free(works);
		return;
	}
	crowd.scene = &scene;
	for (int i = 0; i < THREAD_COUNT; i++) {
		(void)pthread_create(&threads[i], NULL, deliver_all, &crowd);
	}
	for (int i = 0; i < THREAD_COUNT; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	for (int i = 0; i < KEY_COUNT; i++) {
		CHECK_INT(works[i].calls, 1);
	}
	CHECK_INT(crowd.first, KEY_COUNT);
	CHECK_INT(crowd.duplicates_early, 0);
	free(works);
	scene_close(&scene);
}

static void crowd_in_memory(void) {
	crowd_runs_once("memory", false);
}

static void crowd_in_transactions(void) {
	crowd_runs_once("sqlite", true);
}

static void crowd_under_leases(void) {
	crowd_runs_once("sqlite", false);
}

static void legacy_keys(void) {
	static const char *const old[] = { "charge" };
	struct scene scene;
	struct work work = { .outcome = POSTERN_DONE };
	if (!scene_open(&scene, "sqlite", NULL)) {
		return;
	}
	CHECK_OK(postern_mark_record(scene.guard, "charge", "a", &scene.error),
			&scene.error);
	struct postern_guarded guarded = guarded_of("a", true);
	guarded.legacy_keys = old;
	guarded.legacy_key_count = 1;
	CHECK_INT(postern_guard_run(scene.guard, &guarded, do_work, &work, NULL,
					  &scene.error),
			POSTERN_E_DUPLICATE);
	guarded.key = "b";
	CHECK_OK(postern_guard_run(scene.guard, &guarded, do_work, &work, NULL,
					 &scene.error),
			&scene.error);
	bool done = false;
	CHECK_OK(postern_mark_has(scene.guard, "charge", "b", &done, &scene.error),
			&scene.error);
	CHECK(done);
	scene_close(&scene);
}

static void small_interface(void) {
	struct scene scene;
	bool done = true;
	uint64_t count = 0;
	if (!scene_open(&scene, "sqlite", NULL)) {
		return;
	}
	struct postern_guard *guard = scene.guard;
	CHECK_OK(postern_mark_has(guard, "h", "k", &done, &scene.error),
			&scene.error);
	CHECK(!done);
	CHECK_OK(postern_mark_try(guard, "h", "k", &scene.error), &scene.error);
	CHECK_INT(postern_mark_try(guard, "h", "k", &scene.error),
			POSTERN_E_DUPLICATE);
	CHECK_OK(postern_mark_record(guard, "h", "k", &scene.error), &scene.error);
	CHECK_OK(postern_mark_has(guard, "h", "k", &done, &scene.error),
			&scene.error);
	CHECK(done);
	CHECK_OK(postern_mark_forget(guard, "h", "k", &scene.error), &scene.error);
	CHECK_INT(postern_mark_forget(guard, "h", "k", &scene.error),
			POSTERN_E_NOTFOUND);
	CHECK_OK(postern_mark_try(guard, "h", "k", &scene.error), &scene.error);
	CHECK_OK(postern_mark_expire(guard, "h", 0, &count, &scene.error),
			&scene.error);
	CHECK_INT(count, 1);
	scene_close(&scene);
}

static void refused(void) {
	struct scene scene;
	struct work work = { .outcome = POSTERN_DONE };
	char long_key[POSTERN_GUARD_KEY_LEN_MAX + 2];
	if (!scene_open(&scene, "memory", NULL)) {
		return;
	}
	memset(long_key, 'k', sizeof long_key - 1);
	long_key[sizeof long_key - 1] = '\0';
	CHECK_INT(run(&scene, "", false, &work), POSTERN_E_INVALID);
	CHECK_STR(scene.error.text, "the key is empty");
	CHECK_INT(run(&scene, NULL, false, &work), POSTERN_E_INVALID);
	CHECK_INT(run(&scene, long_key, false, &work), POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "1001 bytes");
	CHECK_INT(run(&scene, "a", true, &work), POSTERN_E_UNSUPPORTED);
	CHECK_CONTAINS(scene.error.text, "memory");
	struct postern_guarded guarded = guarded_of("a", false);
	guarded.handler = "has space";
	CHECK_INT(postern_guard_run(scene.guard, &guarded, do_work, &work, NULL,
					  &scene.error),
			POSTERN_E_INVALID);
	guarded.handler = NULL;
	CHECK_INT(postern_guard_run(scene.guard, &guarded, do_work, &work, NULL,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK_INT(work.calls, 0);
	CHECK_INT(postern_mark_begin(scene.guard, "h", "k", 0, 60000, NULL,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK_INT(postern_mark_begin(scene.guard, "h", "k", 1, 10, NULL,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK_INT(postern_mark_expire(scene.guard, NULL, -1, NULL, &scene.error),
			POSTERN_E_INVALID);
	scene_close(&scene);

	struct postern_guard *guard = NULL;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.lease_ms = 10,
	};
	CHECK_INT(postern_guard_open("memory:", &options, &guard, &scene.error),
			POSTERN_E_INVALID);
	CHECK(!guard);
}

static void on_a_box(void) {
	struct scene scene;
	struct postern_box *box = NULL;
	struct work work = { .outcome = POSTERN_DONE, .writes = true };
	if (!scene_open(&scene, "memory", NULL)) {
		return;
	}
	postern_guard_destroy(scene.guard);
	scene.guard = NULL;
	(void)snprintf(scene.url, sizeof scene.url, "sqlite:%s/box.db",
			scene.dir.path);
	CHECK_OK(postern_box_open(scene.url, NULL, &box, &scene.error),
			&scene.error);
	if (box && CHECK_OK(postern_guard_create(box, NULL, &scene.guard,
								&scene.error),
					   &scene.error)) {
		CHECK_OK(run(&scene, "a", true, &work), &scene.error);
		CHECK_INT(run(&scene, "a", true, &work), POSTERN_E_DUPLICATE);
	}
	postern_guard_destroy(scene.guard);
	scene.guard = NULL;
	postern_box_destroy(box);
	CHECK_INT(count_effects(&scene), 1);
	temp_dir_destroy(&scene.dir);
}

static const struct tap_case cases[] = {
	{ "the second delivery of a key is a duplicate", second_is_duplicate },
	{ "a function that failed runs again", failed_runs_again },
	{ "a transactional function and its marker commit together",
			effect_and_marker },
	{ "a slow transactional function is interrupted and rolled back",
			slow_transaction },
	{ "a call that waits for the writer does not interrupt another",
			timeout_of_another },
	{ "the timeout begins when the writer was waited for",
			timeout_after_waiting },
	{ "a timeout does not wait for the renewal of a lease",
			timeout_beside_a_renewal },
	{ "a copy waits and is a duplicate", copy_waits },
	{ "a copy runs if the first one failed", copy_runs_after_failure },
	{ "a copy that waited long enough is told to come back", copy_gives_up },
	{ "a lease of another process is respected", lease_of_another_process },
	{ "a function that lost its lease is reported", lost_lease },
	{ "the lease is renewed while the function runs", lease_is_renewed },
	{ "of many threads one runs each key, in memory", crowd_in_memory },
	{ "of many threads one runs each key, in transactions",
			crowd_in_transactions },
	{ "of many threads one runs each key, under leases", crowd_under_leases },
	{ "what was done under a legacy key is done", legacy_keys },
	{ "try, has, record, forget, expire", small_interface },
	{ "what breaks a limit is refused before the function is called", refused },
	{ "a guard works on the store of a box", on_a_box },
};

TAP_MAIN(cases)
