/* SPDX-License-Identifier: MIT */

/*
 * The specification of markers: postern/sys/marker.h. Each case has markers of
 * its own, a clock, and short helpers.
 */

#include <pthread.h>
#include <stdio.h>

#include "conformance/marker_target.h"
#include "conformance/target.h"
#include "support/fake_clock.h"
#include "tap.h"

#define LEASE_MS 10000
#define FIRST 101
#define SECOND 102
#define MANY 250

struct scene {
	struct postern_markers *markers;
	struct fake_clock clock;
	struct fake_random random;
	struct postern_error error;
};

static struct postern_store_options options_of(struct scene *scene) {
	return (struct postern_store_options){
		.size = sizeof(struct postern_store_options),
		.clock = &scene->clock.base,
		.random = &scene->random.base,
	};
}

static bool scene_open(struct scene *scene) {
	*scene = (struct scene){ 0 };
	fake_clock_init(&scene->clock);
	fake_random_init(&scene->random, 1);
	struct postern_store_options options = options_of(scene);
	scene->markers = marker_target.open(&options);
	return CHECK(scene->markers);
}

static void scene_close(struct scene *scene) {
	marker_target.close(scene->markers);
}

/* The result of a change: the code, or the state before. */
struct result {
	int code;
	enum postern_mark_state before;
	int64_t left_ms;
};

static struct result change_names(struct scene *scene,
		const char *const *handlers, size_t count, const char *key,
		enum postern_mark_kind kind, uint64_t fence) {
	const struct postern_mark mark = {
		.handlers = handlers,
		.handler_count = count,
		.value = key,
		.value_len = strlen(key),
	};
	struct postern_mark_request request = {
		.kind = kind,
		.fence = fence,
		.lease_ms = LEASE_MS,
	};
	int code = scene->markers->ops->change(scene->markers, &mark, &request,
			&scene->error);
	return (struct result){ code, request.before, request.left_ms };
}

static struct result change(struct scene *scene, const char *handler,
		const char *key, enum postern_mark_kind kind, uint64_t fence) {
	return change_names(scene, &handler, 1, key, kind, fence);
}

/* A change of the key "k" of the handler "mail", which must succeed; returns
   the state before. */
static enum postern_mark_state must(struct scene *scene,
		enum postern_mark_kind kind, uint64_t fence) {
	struct result result = change(scene, "mail", "k", kind, fence);
	CHECK_OK(result.code, &scene->error);
	return result.before;
}

static int code_of(struct scene *scene, enum postern_mark_kind kind,
		uint64_t fence) {
	return change(scene, "mail", "k", kind, fence).code;
}

static enum postern_mark_state state(struct scene *scene) {
	return must(scene, POSTERN_MARK_READ, 0);
}

static void first_begins(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);
	CHECK_INT(must(&scene, POSTERN_MARK_BEGIN, FIRST), POSTERN_MARK_UNKNOWN);
	CHECK_INT(state(&scene), POSTERN_MARK_RUNNING);
	fake_clock_advance(&scene.clock, 1000);
	struct result second =
			change(&scene, "mail", "k", POSTERN_MARK_BEGIN, SECOND);
	CHECK_INT(second.code, POSTERN_OK);
	CHECK_INT(second.before, POSTERN_MARK_RUNNING);
	CHECK_INT(second.left_ms, LEASE_MS - 1000);
	scene_close(&scene);
}

static void finished_is_done(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	must(&scene, POSTERN_MARK_FINISH, FIRST);
	CHECK_INT(state(&scene), POSTERN_MARK_DONE);
	struct result second =
			change(&scene, "mail", "k", POSTERN_MARK_BEGIN, SECOND);
	CHECK_INT(second.before, POSTERN_MARK_DONE);
	CHECK_INT(second.left_ms, 0);
	/* Long after every lease. */
	fake_clock_advance(&scene.clock, 100 * LEASE_MS);
	CHECK_INT(state(&scene), POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void released_is_unknown(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	must(&scene, POSTERN_MARK_RELEASE, FIRST);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);
	CHECK_INT(must(&scene, POSTERN_MARK_BEGIN, SECOND), POSTERN_MARK_UNKNOWN);
	CHECK_INT(code_of(&scene, POSTERN_MARK_FINISH, FIRST), POSTERN_E_STALE);
	CHECK_INT(code_of(&scene, POSTERN_MARK_RELEASE, FIRST), POSTERN_E_STALE);
	CHECK_INT(code_of(&scene, POSTERN_MARK_EXTEND, FIRST), POSTERN_E_STALE);
	CHECK_INT(state(&scene), POSTERN_MARK_RUNNING);
	scene_close(&scene);
}

static void lease_ends(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	fake_clock_advance(&scene.clock, LEASE_MS - 1);
	CHECK_INT(state(&scene), POSTERN_MARK_RUNNING);
	fake_clock_advance(&scene.clock, 1);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);
	CHECK_INT(code_of(&scene, POSTERN_MARK_EXTEND, FIRST), POSTERN_E_STALE);
	CHECK_INT(must(&scene, POSTERN_MARK_BEGIN, SECOND), POSTERN_MARK_UNKNOWN);
	CHECK_INT(code_of(&scene, POSTERN_MARK_FINISH, FIRST), POSTERN_E_STALE);
	must(&scene, POSTERN_MARK_FINISH, SECOND);
	scene_close(&scene);
}

static void late_finish_without_rival(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	fake_clock_advance(&scene.clock, 2 * LEASE_MS);
	must(&scene, POSTERN_MARK_FINISH, FIRST);
	CHECK_INT(state(&scene), POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void extended_lease(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	for (int i = 0; i < 5; i++) {
		fake_clock_advance(&scene.clock, LEASE_MS - 1);
		must(&scene, POSTERN_MARK_EXTEND, FIRST);
	}
	CHECK_INT(state(&scene), POSTERN_MARK_RUNNING);
	fake_clock_advance(&scene.clock, LEASE_MS);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);
	scene_close(&scene);
}

static void repeated_changes(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	CHECK_INT(must(&scene, POSTERN_MARK_BEGIN, FIRST), POSTERN_MARK_UNKNOWN);
	must(&scene, POSTERN_MARK_FINISH, FIRST);
	must(&scene, POSTERN_MARK_FINISH, FIRST);
	CHECK_INT(code_of(&scene, POSTERN_MARK_RELEASE, FIRST), POSTERN_E_STALE);
	CHECK_INT(code_of(&scene, POSTERN_MARK_EXTEND, FIRST), POSTERN_E_STALE);
	CHECK_INT(state(&scene), POSTERN_MARK_DONE);
	CHECK_INT(change(&scene, "mail", "t", POSTERN_MARK_TRY, FIRST).before,
			POSTERN_MARK_UNKNOWN);
	CHECK_INT(change(&scene, "mail", "t", POSTERN_MARK_TRY, FIRST).before,
			POSTERN_MARK_UNKNOWN);
	CHECK_INT(change(&scene, "mail", "t", POSTERN_MARK_TRY, SECOND).before,
			POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void try_while_running(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	CHECK_INT(must(&scene, POSTERN_MARK_TRY, SECOND), POSTERN_MARK_RUNNING);
	must(&scene, POSTERN_MARK_FINISH, FIRST);
	CHECK_INT(must(&scene, POSTERN_MARK_TRY, SECOND), POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void record_while_running(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	CHECK_INT(must(&scene, POSTERN_MARK_RECORD, SECOND), POSTERN_MARK_RUNNING);
	CHECK_INT(state(&scene), POSTERN_MARK_DONE);
	CHECK_INT(code_of(&scene, POSTERN_MARK_FINISH, FIRST), POSTERN_E_STALE);
	CHECK_INT(code_of(&scene, POSTERN_MARK_RELEASE, FIRST), POSTERN_E_STALE);
	CHECK_INT(state(&scene), POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void forgotten(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	CHECK_INT(must(&scene, POSTERN_MARK_FORGET, 0), POSTERN_MARK_UNKNOWN);
	must(&scene, POSTERN_MARK_RECORD, FIRST);
	CHECK_INT(must(&scene, POSTERN_MARK_FORGET, 0), POSTERN_MARK_DONE);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	CHECK_INT(must(&scene, POSTERN_MARK_FORGET, 0), POSTERN_MARK_RUNNING);
	CHECK_INT(code_of(&scene, POSTERN_MARK_FINISH, FIRST), POSTERN_E_STALE);
	scene_close(&scene);
}

static void unknown_refuses(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	CHECK_INT(code_of(&scene, POSTERN_MARK_EXTEND, FIRST), POSTERN_E_STALE);
	CHECK_INT(code_of(&scene, POSTERN_MARK_FINISH, FIRST), POSTERN_E_STALE);
	CHECK_INT(code_of(&scene, POSTERN_MARK_RELEASE, FIRST), POSTERN_E_STALE);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);
	scene_close(&scene);
}

static void scopes(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	/* Were they joined, ("ab", "c") and ("a", "bc") would be one. */
	(void)change(&scene, "ab", "c", POSTERN_MARK_RECORD, FIRST);
	CHECK_INT(change(&scene, "a", "bc", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_UNKNOWN);
	CHECK_INT(change(&scene, "b", "c", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_UNKNOWN);
	CHECK_INT(change(&scene, "ab", "C", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_UNKNOWN);
	CHECK_INT(change(&scene, "ab", "c", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void any_bytes(void) {
	static const char *const handler = "mail";
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	const struct postern_mark mark = { &handler, 1, "a\0{}%'\xff", 7 };
	const struct postern_mark cut = { &handler, 1, "a", 1 };
	struct postern_mark_request request = { .kind = POSTERN_MARK_RECORD,
		.fence = FIRST };
	CHECK_OK(scene.markers->ops->change(scene.markers, &mark, &request,
					 &scene.error),
			&scene.error);
	request.kind = POSTERN_MARK_READ;
	CHECK_OK(scene.markers->ops->change(scene.markers, &cut, &request,
					 &scene.error),
			&scene.error);
	CHECK_INT(request.before, POSTERN_MARK_UNKNOWN);
	CHECK_OK(scene.markers->ops->change(scene.markers, &mark, &request,
					 &scene.error),
			&scene.error);
	CHECK_INT(request.before, POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void former_names(void) {
	static const char *const renamed[] = { "mail-v2", "mail" };
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	/* Done under the old name. */
	(void)change(&scene, "mail", "a", POSTERN_MARK_RECORD, FIRST);
	CHECK_INT(change_names(&scene, renamed, 2, "a", POSTERN_MARK_BEGIN, SECOND)
					  .before,
			POSTERN_MARK_DONE);
	/* Running under the old name. */
	(void)change(&scene, "mail", "b", POSTERN_MARK_BEGIN, FIRST);
	CHECK_INT(change_names(&scene, renamed, 2, "b", POSTERN_MARK_BEGIN, SECOND)
					  .before,
			POSTERN_MARK_RUNNING);
	/* Begun under both: an old node sees it, before and after. */
	CHECK_INT(change_names(&scene, renamed, 2, "c", POSTERN_MARK_BEGIN, FIRST)
					  .before,
			POSTERN_MARK_UNKNOWN);
	CHECK_INT(change(&scene, "mail", "c", POSTERN_MARK_BEGIN, SECOND).before,
			POSTERN_MARK_RUNNING);
	CHECK_OK(change_names(&scene, renamed, 2, "c", POSTERN_MARK_FINISH, FIRST)
					 .code,
			&scene.error);
	CHECK_INT(change(&scene, "mail", "c", POSTERN_MARK_BEGIN, SECOND).before,
			POSTERN_MARK_DONE);
	CHECK_INT(change(&scene, "mail-v2", "c", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_DONE);
	/* Released under both. */
	(void)change_names(&scene, renamed, 2, "d", POSTERN_MARK_BEGIN, FIRST);
	CHECK_OK(change_names(&scene, renamed, 2, "d", POSTERN_MARK_RELEASE, FIRST)
					 .code,
			&scene.error);
	CHECK_INT(change(&scene, "mail", "d", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_UNKNOWN);
	scene_close(&scene);
}

static void after_restart(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	(void)change(&scene, "mail", "done", POSTERN_MARK_RECORD, FIRST);
	struct postern_store_options options = options_of(&scene);
	scene.markers = marker_target.reopen(scene.markers, &options);
	if (!CHECK(scene.markers)) {
		return;
	}
	/* A lease belongs to nobody's process: `postern once` opens the store for a
	   moment only. */
	CHECK_INT(must(&scene, POSTERN_MARK_BEGIN, SECOND), POSTERN_MARK_RUNNING);
	must(&scene, POSTERN_MARK_FINISH, FIRST);
	CHECK_INT(change(&scene, "mail", "done", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void clock_set_back(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	fake_clock_jump(&scene.clock, -3000);
	CHECK_INT(must(&scene, POSTERN_MARK_BEGIN, SECOND), POSTERN_MARK_RUNNING);
	fake_clock_jump(&scene.clock, -INT64_C(3) * LEASE_MS);
	/* It would last for a long time otherwise. */
	CHECK_INT(must(&scene, POSTERN_MARK_BEGIN, SECOND), POSTERN_MARK_UNKNOWN);
	CHECK_INT(code_of(&scene, POSTERN_MARK_FINISH, FIRST), POSTERN_E_STALE);
	scene_close(&scene);
}

static uint64_t expire_all(struct scene *scene, const char *handler,
		int64_t older_ms) {
	struct postern_mark_expiry expiry = {
		.handler = handler,
		.older_ms = older_ms,
		.max = 32,
		.more = true,
	};
	uint64_t count = 0;
	for (int i = 0; expiry.more && i < 1000; i++) {
		if (!CHECK_OK(scene->markers->ops->expire(scene->markers, &expiry,
							  &scene->error),
					&scene->error)) {
			break;
		}
		count += expiry.count;
	}
	return count;
}

static void expired(void) {
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	if (!marker_target.expires) {
		struct postern_mark_expiry expiry = { .max = 1 };
		CHECK_INT(scene.markers->ops->expire(scene.markers, &expiry,
						  &scene.error),
				POSTERN_E_UNSUPPORTED);
		scene_close(&scene);
		return;
	}
	char key[16];
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(key, sizeof key, "k%d", i);
		(void)change(&scene, i % 2 ? "mail" : "bill", key, POSTERN_MARK_RECORD,
				FIRST);
	}
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	fake_clock_advance(&scene.clock, 5000);
	(void)change(&scene, "mail", "young", POSTERN_MARK_RECORD, FIRST);
	CHECK_INT(expire_all(&scene, NULL, 5001), 0);
	CHECK_INT(expire_all(&scene, "mail", 5000), MANY / 2);
	CHECK_INT(expire_all(&scene, "nobody", 5000), 0);
	CHECK_INT(expire_all(&scene, NULL, 5000), MANY / 2);
	/* What is running or younger stays. */
	CHECK_INT(state(&scene), POSTERN_MARK_RUNNING);
	CHECK_INT(change(&scene, "mail", "young", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_DONE);
	CHECK_INT(change(&scene, "mail", "k1", POSTERN_MARK_READ, 0).before,
			POSTERN_MARK_UNKNOWN);
	scene_close(&scene);
}

/* Many threads for few keys. */

#define THREAD_COUNT 8
#define KEY_COUNT 40

struct crowd {
	struct scene *scene;
	uint64_t fence;
	size_t won;
};

static void *try_all(void *context) {
	struct crowd *crowd = context;
	static const char *const handler = "mail";
	for (int i = 0; i < KEY_COUNT; i++) {
		char key[16];
		(void)snprintf(key, sizeof key, "k%d", i);
		const struct postern_mark mark = { &handler, 1, key, strlen(key) };
		struct postern_mark_request request = {
			.kind = i % 2 ? POSTERN_MARK_TRY : POSTERN_MARK_BEGIN,
			.fence = crowd->fence,
			.lease_ms = LEASE_MS,
		};
		struct postern_error error;
		int code = crowd->scene->markers->ops->change(crowd->scene->markers,
				&mark, &request, &error);
		CHECK_OK(code, &error);
		crowd->won +=
				code == POSTERN_OK && request.before == POSTERN_MARK_UNKNOWN;
	}
	return NULL;
}

static void one_of_many_threads(void) {
	struct scene scene;
	struct crowd crowds[THREAD_COUNT];
	pthread_t threads[THREAD_COUNT];
	size_t won = 0;
	if (!scene_open(&scene)) {
		return;
	}
	for (int i = 0; i < THREAD_COUNT; i++) {
		crowds[i] = (struct crowd){ &scene, (uint64_t)(1000 + i), 0 };
		(void)pthread_create(&threads[i], NULL, try_all, &crowds[i]);
	}
	for (int i = 0; i < THREAD_COUNT; i++) {
		(void)pthread_join(threads[i], NULL);
		won += crowds[i].won;
	}
	CHECK_INT(won, KEY_COUNT);
	scene_close(&scene);
}

/* Units with a mark. */

struct job {
	int calls;
	enum postern_outcome_kind outcome;
};

static void run_job(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct job *job = context;
	(void)epoch;
	job->calls++;
	conformance_target.write(transaction);
	postern_outcome_set(outcome, job->outcome, 0, NULL);
}

static void read_count(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	int64_t *count = context;
	(void)epoch;
	*count = conformance_target.count(transaction);
	postern_outcome_set(outcome, POSTERN_RETRY, 0, NULL);
}

static struct postern_unit unit_of(const struct postern_mark *mark,
		uint64_t fence, struct job *job) {
	return (struct postern_unit){
		.mark = mark,
		.fence = fence,
		.wait_ms = 1000,
		.context = job,
		.run = run_job,
	};
}

static void transact(struct scene *scene, struct postern_unit *unit) {
	struct postern_store *store = marker_target.store();
	CHECK_OK(store->ops->transact(store, 0, NULL, unit, 1, &scene->error),
			&scene->error);
}

static int64_t count_effects(struct scene *scene) {
	static const char *const handler = "reader";
	const struct postern_mark mark = { &handler, 1, "count", 5 };
	int64_t count = -1;
	struct postern_unit unit = unit_of(&mark, FIRST, NULL);
	unit.context = &count;
	unit.run = read_count;
	transact(scene, &unit);
	return count;
}

static void marker_and_effect(void) {
	static const char *const handler = "mail";
	const struct postern_mark mark = { &handler, 1, "k", 1 };
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	if (!marker_target.store()) {
		scene_close(&scene);
		return;
	}
	struct job job = { .outcome = POSTERN_RETRY };
	struct postern_unit unit = unit_of(&mark, FIRST, &job);
	transact(&scene, &unit);
	CHECK_INT(job.calls, 1);
	CHECK(!unit.committed);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);

	job.outcome = POSTERN_DONE;
	unit = unit_of(&mark, SECOND, &job);
	transact(&scene, &unit);
	CHECK_INT(job.calls, 2);
	CHECK(unit.committed);
	CHECK_INT(state(&scene), POSTERN_MARK_DONE);

	unit = unit_of(&mark, SECOND + 1, &job);
	transact(&scene, &unit);
	CHECK_INT(unit.code, POSTERN_E_DUPLICATE);
	CHECK_INT(job.calls, 2);
	CHECK_INT(count_effects(&scene), 1);
	scene_close(&scene);
}

static void marker_of_a_lease(void) {
	static const char *const handler = "mail";
	const struct postern_mark mark = { &handler, 1, "k", 1 };
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	if (!marker_target.store()) {
		scene_close(&scene);
		return;
	}
	struct job job = { .outcome = POSTERN_DONE };
	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	struct postern_unit unit = unit_of(&mark, SECOND, &job);
	transact(&scene, &unit);
	CHECK_INT(unit.code, POSTERN_E_BUSY);
	CHECK_INT(job.calls, 0);
	fake_clock_advance(&scene.clock, LEASE_MS);
	unit = unit_of(&mark, SECOND, &job);
	transact(&scene, &unit);
	CHECK(unit.committed);
	CHECK_INT(code_of(&scene, POSTERN_MARK_FINISH, FIRST), POSTERN_E_STALE);
	scene_close(&scene);
}

static void commit_itself(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	(void)epoch;
	(void)outcome;
	run_job(context, transaction, epoch, outcome);
	conformance_target.commit(transaction);
}

static void roll_back_itself(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	run_job(context, transaction, epoch, outcome);
	conformance_target.roll_back(transaction);
}

static void unit_that_ends_its_transaction(void) {
	static const char *const handler = "mail";
	const struct postern_mark mark = { &handler, 1, "k", 1 };
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	if (!marker_target.store()) {
		scene_close(&scene);
		return;
	}
	struct job job = { .outcome = POSTERN_DONE };
	struct postern_unit unit = unit_of(&mark, FIRST, &job);
	unit.run = roll_back_itself;
	transact(&scene, &unit);
	CHECK(!unit.committed);
	CHECK_INT(unit.code, POSTERN_E_INVALID);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);

	unit = unit_of(&mark, FIRST, &job);
	unit.run = commit_itself;
	transact(&scene, &unit);
	CHECK(!unit.committed);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);
	CHECK_INT(job.calls, 2);
	CHECK_INT(count_effects(&scene), 0);
	scene_close(&scene);
}

/* Marks another key inside the transaction of a unit. */
struct inner {
	struct scene *scene;
	const struct postern_mark *mark;
	enum postern_outcome_kind outcome;
	int code;
	enum postern_mark_state before;
};

static void mark_inside(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct inner *inner = context;
	struct postern_markers *markers = inner->scene->markers;
	(void)epoch;
	inner->code = markers->ops->take(markers, transaction, inner->mark, SECOND,
			100, &inner->before, &inner->scene->error);
	outcome->kind = inner->outcome;
}

static struct inner run_inside(struct scene *scene, const char *outer_key,
		const struct postern_mark *mark, enum postern_outcome_kind outcome) {
	static const char *const handler = "mail";
	const struct postern_mark outer = { &handler, 1, outer_key,
		strlen(outer_key) };
	struct inner inner = {
		.scene = scene,
		.mark = mark,
		.outcome = outcome,
	};
	struct postern_unit unit = {
		.fence = FIRST,
		.mark = &outer,
		.wait_ms = 100,
		.context = &inner,
		.run = mark_inside,
	};
	transact(scene, &unit);
	CHECK_INT(unit.committed, outcome == POSTERN_DONE);
	return inner;
}

static void marked_in_a_transaction(void) {
	static const char *const names[] = { "new-mail", "mail" };
	const struct postern_mark mark = { names, 2, "k", 1 };
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	if (!marker_target.store()) {
		CHECK(!scene.markers->ops->take);
		scene_close(&scene);
		return;
	}
	struct inner inner = run_inside(&scene, "a", &mark, POSTERN_RETRY);
	CHECK_OK(inner.code, &scene.error);
	CHECK_INT(inner.before, POSTERN_MARK_UNKNOWN);
	CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);

	must(&scene, POSTERN_MARK_BEGIN, FIRST);
	inner = run_inside(&scene, "a", &mark, POSTERN_DONE);
	CHECK_INT(inner.before, POSTERN_MARK_RUNNING);
	CHECK_INT(state(&scene), POSTERN_MARK_RUNNING);
	must(&scene, POSTERN_MARK_RELEASE, FIRST);

	inner = run_inside(&scene, "b", &mark, POSTERN_DONE);
	CHECK_OK(inner.code, &scene.error);
	CHECK_INT(inner.before, POSTERN_MARK_UNKNOWN);
	CHECK_INT(state(&scene), POSTERN_MARK_DONE);
	inner = run_inside(&scene, "c", &mark, POSTERN_DONE);
	CHECK_INT(inner.before, POSTERN_MARK_DONE);
	scene_close(&scene);
}

static void mark_and_commit(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	mark_inside(context, transaction, epoch, outcome);
	conformance_target.commit(transaction);
}

/* The unit may still not end its transaction. */
static void marked_and_ended(void) {
	static const char *const handler = "mail";
	const struct postern_mark mark = { &handler, 1, "k", 1 };
	const struct postern_mark outer = { &handler, 1, "a", 1 };
	struct scene scene;
	if (!scene_open(&scene)) {
		return;
	}
	if (marker_target.store()) {
		struct inner inner = {
			.scene = &scene,
			.mark = &mark,
			.outcome = POSTERN_DONE,
		};
		struct postern_unit unit = {
			.fence = FIRST,
			.mark = &outer,
			.wait_ms = 100,
			.context = &inner,
			.run = mark_and_commit,
		};
		transact(&scene, &unit);
		CHECK(!unit.committed);
		CHECK_OK(inner.code, &scene.error);
		CHECK_INT(state(&scene), POSTERN_MARK_UNKNOWN);
	}
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "the first that begins has the marker, a second learns how long",
			first_begins },
	{ "what is finished is done for good", finished_is_done },
	{ "a released marker is unknown, and its former fence is refused",
			released_is_unknown },
	{ "a lease ends at its time, and then another may begin", lease_ends },
	{ "a lease that has ended may finish while nobody has begun",
			late_finish_without_rival },
	{ "an extended lease lasts from the extension on", extended_lease },
	{ "a change repeated with its fence has the result of the first time",
			repeated_changes },
	{ "try does not take what is running", try_while_running },
	{ "record takes what is running, and its fence is refused",
			record_while_running },
	{ "a forgotten marker is unknown, running or done", forgotten },
	{ "an unknown marker cannot be extended, finished or released",
			unknown_refuses },
	{ "a marker belongs to its handler and its key", scopes },
	{ "a key may have any bytes", any_bytes },
	{ "a former name of the handler counts, in both directions", former_names },
	{ "markers and leases outlive the process that wrote them", after_restart },
	{ "a lease ends if the clock is set back by more than it lasts",
			clock_set_back },
	{ "markers expire by age and handler, except those that run", expired },
	{ "of many threads one has each key", one_of_many_threads },
	{ "a unit's marker and effect commit together or not at all",
			marker_and_effect },
	{ "a unit is refused while its marker has a lease", marker_of_a_lease },
	{ "a marker in somebody's transaction commits or vanishes with it",
			marked_in_a_transaction },
	{ "a unit that marks another key and ends its transaction leaves neither",
			marked_and_ended },
	{ "a unit that ends its transaction itself leaves no marker",
			unit_that_ends_its_transaction },
};

TAP_MAIN(cases)
