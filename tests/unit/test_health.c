/* SPDX-License-Identifier: MIT */
/*
 * The health of a box on the memory store with a fake clock: which work is due,
 * and how long nothing may end meanwhile.
 */

#include "tap.h"

#include "core/box.h"
#include "core/maintenance.h"
#include "core/run.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"

#include <postern/postern.h>
#include <postern/pull.h>
#include <postern/sys/store.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE ((int64_t)60 * 1000)

struct scene {
	struct fake_clock clock;
	struct fake_random random;
	struct fault_plan plan;
	bool failing;
	struct postern_box *box;
	struct postern_error error;
	struct postern_outcome next;        /* of every run */
	void (*during)(struct scene *self); /* in every run; may be NULL */
	int sent;
};

/* How the next scene is opened. */
static bool pulled;

static int decide(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	const struct scene *scene = context;
	(void)op;
	(void)batch;
	return scene->failing ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
}

static void run_scene(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct scene *scene = context;
	(void)message;
	(void)delivery;
	if (scene->during) {
		scene->during(scene);
	}
	*outcome = scene->next;
}

/* A box with a channel "orders" and a handler "mail". */
static void scene_open_with(struct scene *scene,
		struct postern_box_options *options,
		const struct postern_policy *policy) {
	struct postern_store *store = NULL;
	*scene = (struct scene){ .plan = { .decide = decide, .context = scene } };
	fake_clock_init(&scene->clock);
	fake_random_init(&scene->random, 42);
	struct postern_store_options of_store = {
		.size = sizeof(of_store),
		.clock = &scene->clock.base,
		.random = &scene->random.base,
	};
	options->size = sizeof(*options);
	options->clock = &scene->clock.base;
	options->random = &scene->random.base;
	struct postern_handler_options handler = {
		.size = sizeof(handler),
		.key = "mail",
		.kind = pulled ? "pull" : NULL,
		.callback = pulled ? NULL : run_scene,
		.context = scene,
		.policy = policy,
	};
	CHECK_OK(postern_store_open("memory:", &of_store, &store, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
											 &scene->plan),
					 options, &scene->box, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_add_channel(scene->box, "orders", NULL, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_add_handler(scene->box, "orders", &handler,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_box_start(scene->box, &scene->error), &scene->error);
}

static void scene_open(struct scene *scene,
		const struct postern_policy *policy) {
	struct postern_box_options options = { 0 };
	scene_open_with(scene, &options, policy);
}

static int send_new(struct scene *scene) {
	char id[16];
	(void)snprintf(id, sizeof(id), "%d", ++scene->sent);
	struct postern_message message = { .size = sizeof(message), .id = id };
	return postern_box_accept(scene->box, "orders", &message, NULL,
			&scene->error);
}

/* Lease a new message, without running it. */
static void queue_new(struct scene *scene) {
	CHECK_INT(send_new(scene), POSTERN_OK);
	CHECK_OK(postern_box_claim(scene->box, 1, NULL, &scene->error),
			&scene->error);
}

static void run_queued(struct scene *scene) {
	CHECK_OK(postern_box_run(scene->box, 10, NULL, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_commit(scene->box, NULL, &scene->error),
			&scene->error);
}

/* The health of the only handler, and of the box. */
struct health {
	enum postern_health_status status;
	enum postern_health_status of_handler;
	bool due;
	int64_t inactive_ms;
	uint64_t running;
	uint64_t stuck;
	char held[32];
	char reason[64];
	bool store_failing;
	bool pulled;
};

static struct health health_by(struct scene *scene,
		const struct postern_health_options *options) {
	struct postern_health *read = NULL;
	struct health health = { 0 };
	if (!CHECK_OK(postern_box_health(scene->box, options, &read, &scene->error),
				&scene->error)) {
		return health;
	}
	CHECK_INT(read->handler_count, 1);
	const struct postern_handler_health *handler = &read->handlers[0];
	CHECK_STR(handler->key, "mail");
	CHECK_STR(handler->channel, "orders");
	health = (struct health){
		.status = read->status,
		.of_handler = handler->status,
		.due = handler->due,
		.inactive_ms = handler->inactive_ms,
		.running = handler->running,
		.stuck = handler->stuck,
		.store_failing = read->store_failing,
		.pulled = handler->pulled,
	};
	(void)snprintf(health.held, sizeof(health.held), "%s",
			handler->held ? handler->held : "");
	(void)snprintf(health.reason, sizeof(health.reason), "%s",
			handler->reason ? handler->reason : "");
	postern_health_destroy(read);
	return health;
}

static struct health health_of(struct scene *scene) {
	return health_by(scene, NULL);
}

static void idle(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	struct health health = health_of(&scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(!health.due);
	CHECK_INT(health.inactive_ms, 0);
	postern_box_destroy(scene.box);
}

static void thresholds(void) {
	struct scene scene;
	static const struct {
		int64_t after_ms;
		enum postern_health_status status;
	} rows[] = {
		{ 0, POSTERN_HEALTH_OK },
		{ 2 * MINUTE - 1, POSTERN_HEALTH_OK },
		{ 2 * MINUTE, POSTERN_HEALTH_DEGRADED },
		{ 5 * MINUTE - 1, POSTERN_HEALTH_DEGRADED },
		{ 5 * MINUTE, POSTERN_HEALTH_UNHEALTHY },
	};
	scene_open(&scene, NULL);
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	queue_new(&scene);
	int64_t passed = 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fake_clock_advance(&scene.clock, rows[i].after_ms - passed);
		passed = rows[i].after_ms;
		struct health health = health_of(&scene);
		CHECK_INT(health.status, rows[i].status);
		CHECK_INT(health.of_handler, rows[i].status);
		CHECK(health.due);
		CHECK_INT(health.inactive_ms, rows[i].after_ms);
	}
	struct postern_health_options options = {
		.size = sizeof(options),
		.degraded_after_ms = 5 * MINUTE,
		.unhealthy_after_ms = 5 * MINUTE + 1,
	};
	CHECK_INT(health_by(&scene, &options).status, POSTERN_HEALTH_DEGRADED);
	options.degraded_after_ms = 1;
	options.unhealthy_after_ms = -1;
	CHECK_INT(health_by(&scene, &options).status, POSTERN_HEALTH_DEGRADED);
	options.degraded_after_ms = -1;
	CHECK_INT(health_by(&scene, &options).status, POSTERN_HEALTH_OK);
	run_queued(&scene);
	CHECK_INT(health_of(&scene).status, POSTERN_HEALTH_OK);
	CHECK(!health_of(&scene).due);
	postern_box_destroy(scene.box);
}

static void ended_run(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	queue_new(&scene);
	queue_new(&scene);
	fake_clock_advance(&scene.clock, 3 * MINUTE);
	CHECK_INT(health_of(&scene).status, POSTERN_HEALTH_DEGRADED);
	CHECK_OK(postern_box_run(scene.box, 1, NULL, &scene.error), &scene.error);
	struct health health = health_of(&scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(health.due);
	CHECK_INT(health.inactive_ms, 0);
	fake_clock_advance(&scene.clock, 1000);
	CHECK_INT(health_of(&scene).inactive_ms, 1000);
	postern_box_destroy(scene.box);
}

/* Also what waits in the store: the box would claim it if it could. */
static void paused(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	queue_new(&scene);
	scene.box->leasing = true;
	CHECK_OK(postern_box_pause(scene.box, "mail", &scene.error), &scene.error);
	CHECK_OK(postern_box_commit(scene.box, NULL, &scene.error), &scene.error);
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	struct health health = health_of(&scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(!health.due);
	CHECK_STR(health.held, "paused");
	/* It has not been inactive while it was paused. */
	CHECK_OK(postern_box_resume(scene.box, "mail", &scene.error), &scene.error);
	fake_clock_advance(&scene.clock, 1000);
	health = health_of(&scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(health.due);
	CHECK_INT(health.inactive_ms, 1000);
	CHECK_STR(health.held, "");
	scene.box->leasing = false;
	postern_box_destroy(scene.box);
}

static void broken(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	queue_new(&scene);
	postern_outcome_set(&scene.next, POSTERN_HOLD, 0, "no licence");
	run_queued(&scene);
	scene.box->leasing = true;
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	struct health health = health_of(&scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(!health.due);
	CHECK_STR(health.held, "broken");
	CHECK_STR(health.reason, "no licence");
	scene.box->leasing = false;
	postern_box_destroy(scene.box);
}

static void rate_limited(void) {
	struct scene scene;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.rate_count = 1;
	policy.rate_period_ms = 60 * MINUTE;
	scene_open(&scene, &policy);
	queue_new(&scene);
	run_queued(&scene);
	queue_new(&scene);
	CHECK_OK(postern_box_run(scene.box, 1, NULL, &scene.error), &scene.error);
	fake_clock_advance(&scene.clock, 30 * MINUTE);
	struct health health = health_of(&scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(!health.due);
	CHECK_STR(health.held, "rate");
	postern_box_destroy(scene.box);
}

static void not_the_processor(void) {
	struct scene scene;
	struct postern_box_options options = {
		.processing = POSTERN_PROCESSING_EXCLUSIVE,
	};
	scene_open_with(&scene, &options, NULL);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	scene.box->leasing = true;
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	struct health health = health_of(&scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(!health.due);
	CHECK_STR(health.held, "lock");
	scene.box->leasing = false;
	postern_box_destroy(scene.box);
}

/* The lease is 5 min. */
static void overrun(struct scene *scene) {
	fake_clock_advance(&scene->clock, 5 * MINUTE - 1);
	struct health health = health_of(scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(!health.due);
	CHECK_INT(health.running, 1);
	CHECK_INT(health.stuck, 0);
	fake_clock_advance(&scene->clock, 1);
	health = health_of(scene);
	CHECK_INT(health.status, POSTERN_HEALTH_UNHEALTHY);
	CHECK(health.due);
	CHECK_INT(health.inactive_ms, 5 * MINUTE);
	CHECK_INT(health.stuck, 1);
}

static void stuck(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	scene.during = overrun;
	queue_new(&scene);
	run_queued(&scene);
	CHECK_INT(health_of(&scene).stuck, 0);
	CHECK_INT(health_of(&scene).running, 0);
	postern_box_destroy(scene.box);
}

static void overrun_paused(struct scene *scene) {
	CHECK_OK(postern_box_pause(scene->box, "mail", &scene->error),
			&scene->error);
	fake_clock_advance(&scene->clock, 5 * MINUTE);
	struct health health = health_of(scene);
	CHECK_STR(health.held, "paused");
	CHECK_INT(health.status, POSTERN_HEALTH_UNHEALTHY);
	CHECK(health.due);
	CHECK_INT(health.stuck, 1);
}

static void stuck_while_paused(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	scene.during = overrun_paused;
	queue_new(&scene);
	run_queued(&scene);
	postern_box_destroy(scene.box);
}

static void overrun_timeout(struct scene *scene) {
	fake_clock_advance(&scene->clock, 2 * MINUTE);
	(void)postern__watchdog_step(scene->box);
	struct health health = health_of(scene);
	CHECK_INT(health.running, 1);
	CHECK_INT(health.stuck, 1);
}

static void abandoned(void) {
	struct scene scene;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = MINUTE;
	policy.lease_ms = 2 * MINUTE;
	scene_open(&scene, &policy);
	scene.during = overrun_timeout;
	queue_new(&scene);
	run_queued(&scene);
	CHECK_INT(health_of(&scene).stuck, 0);
	postern_box_destroy(scene.box);
}

/* All starts of a period may have been at its beginning. */
static void rate_not_reached(void) {
	struct scene scene;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.rate_count = 1;
	policy.rate_period_ms = 60 * MINUTE;
	scene_open(&scene, &policy);
	queue_new(&scene); /* its start is reserved for three minutes */
	fake_clock_advance(&scene.clock, 3 * MINUTE - 1);
	struct health health = health_of(&scene);
	CHECK_STR(health.held, "");
	CHECK(health.due);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK_INT(health.inactive_ms, 0);
	postern_box_destroy(scene.box);
}

/* Other messages arrive after a minute, and the handler has no room. */
static void work_slowly(struct scene *scene) {
	fake_clock_advance(&scene->clock, MINUTE);
	CHECK(!health_of(scene).due);
	fake_clock_advance(&scene->clock, 6000);
	CHECK_INT(send_new(scene), POSTERN_OK);
	fake_clock_advance(&scene->clock, 2 * MINUTE - 1);
	struct health health = health_of(scene);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	CHECK(health.due);
	fake_clock_advance(&scene->clock, 1);
	health = health_of(scene);
	CHECK_INT(health.status, POSTERN_HEALTH_DEGRADED);
	CHECK_INT(health.inactive_ms, 2 * MINUTE);
}

static void no_room(void) {
	struct scene scene;
	struct postern_box_options options = {
		.batch_size = 1,
		.run_queue_max = 1,
	};
	scene_open_with(&scene, &options, NULL);
	scene.during = work_slowly;
	queue_new(&scene);
	run_queued(&scene);
	postern_box_destroy(scene.box);
}

/* A worker claims one delivery, and settles it if it is to. */
static size_t pull(struct scene *scene, bool settles) {
	struct postern_pull_options options = {
		.size = sizeof(options),
		.handler = "mail",
		.max = 1,
		.lease_ms = 60 * MINUTE,
	};
	struct postern_pull_batch *batch = NULL;
	CHECK_OK(postern_box_pull(scene->box, &options, &batch, &scene->error),
			&scene->error);
	size_t count = batch ? postern_pull_batch_count(batch) : 0;
	if (count > 0 && settles) {
		const struct postern_pulled *item = postern_pull_batch_get(batch, 0);
		struct postern_pull_result result = {
			.size = sizeof(result),
			.seq = item->seq,
			.handler = item->handler,
			.fence = item->fence,
			.outcome = POSTERN_DONE,
		};
		CHECK_OK(postern_box_settle(scene->box, &result, 1, &scene->error),
				&scene->error);
	}
	postern_pull_batch_destroy(batch);
	return count;
}

static void idle_worker(void) {
	struct scene scene;
	pulled = true;
	scene_open(&scene, NULL);
	pulled = false;
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	CHECK(!health_of(&scene).due);
	CHECK_INT(pull(&scene, true), 0);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(pull(&scene, true), 1);
	CHECK_INT(pull(&scene, true), 0);
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	scene.box->leasing = true; /* as with a runner */
	postern__claim_hint_all(scene.box);
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	struct health health = health_of(&scene);
	CHECK(!health.due);
	CHECK_INT(health.status, POSTERN_HEALTH_OK);
	scene.box->leasing = false;
	postern_box_destroy(scene.box);
}

static void no_worker(void) {
	struct scene scene;
	pulled = true;
	scene_open(&scene, NULL);
	pulled = false;
	fake_clock_advance(&scene.clock, 60 * MINUTE);
	CHECK_INT(pull(&scene, true), 0);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	struct health health = health_of(&scene);
	CHECK(health.due);
	CHECK(health.pulled);
	CHECK_INT(health.inactive_ms, 0);
	fake_clock_advance(&scene.clock, 5 * MINUTE);
	health = health_of(&scene);
	CHECK_INT(health.inactive_ms, 5 * MINUTE);
	CHECK_INT(health.status, POSTERN_HEALTH_UNHEALTHY);
	/* A claim is activity, and so is what the worker has. */
	CHECK_INT(pull(&scene, true), 1);
	CHECK_INT(health_of(&scene).status, POSTERN_HEALTH_OK);
	fake_clock_advance(&scene.clock, 2 * MINUTE);
	CHECK_INT(health_of(&scene).status, POSTERN_HEALTH_DEGRADED);
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(pull(&scene, false), 1);
	fake_clock_advance(&scene.clock, 10 * MINUTE);
	CHECK(!health_of(&scene).due);
	postern_box_destroy(scene.box);
}

static void failing_store(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	scene.failing = true;
	CHECK_INT(send_new(&scene), POSTERN_E_UNAVAILABLE);
	struct health health = health_of(&scene);
	CHECK_INT(health.status, POSTERN_HEALTH_UNHEALTHY);
	CHECK_INT(health.of_handler, POSTERN_HEALTH_OK);
	CHECK(health.store_failing);
	scene.failing = false;
	CHECK_INT(send_new(&scene), POSTERN_OK);
	CHECK_INT(health_of(&scene).status, POSTERN_HEALTH_OK);
	postern_box_destroy(scene.box);
}

static void bad_calls(void) {
	struct scene scene;
	struct postern_health *health = NULL;
	struct postern_health_options options = { .size = 2 };
	struct postern_box *box = NULL;
	scene_open(&scene, NULL);
	CHECK_INT(postern_box_health(scene.box, &options, &health, &scene.error),
			POSTERN_E_INVALID);
	postern_box_destroy(scene.box);
	CHECK_OK(postern_box_open("memory:", NULL, &box, &scene.error),
			&scene.error);
	CHECK_INT(postern_box_health(box, NULL, &health, &scene.error),
			POSTERN_E_INVALID);
	postern_box_destroy(box);
	postern_health_destroy(NULL);
	CHECK_STR(postern_health_name(POSTERN_HEALTH_DEGRADED), "degraded");
	CHECK(!postern_health_name((enum postern_health_status)3));
}

static const struct tap_case cases[] = {
	{ "a handler without work is healthy, however long it is idle", idle },
	{ "due work without an ended run degrades after 2 min, fails after 5",
			thresholds },
	{ "a run that ends is activity", ended_run },
	{ "work of a paused handler is not due", paused },
	{ "work of a handler that is held is not due", broken },
	{ "work of a handler at its rate is not due", rate_limited },
	{ "work is not due on a node without the lock", not_the_processor },
	{ "a run is stuck when it is past its lease", stuck },
	{ "a run that is past its lease is stuck also while its handler is paused",
			stuck_while_paused },
	{ "a run that lost its lease is stuck until it returns", abandoned },
	{ "a handler with a rate may be inactive for two periods",
			rate_not_reached },
	{ "work that waits in the store behind a long run is due", no_room },
	{ "a pull handler without work is healthy, however long nobody claims",
			idle_worker },
	{ "work that no worker claims is due, unless a worker has some of it",
			no_worker },
	{ "a store that cannot be written is unhealthy", failing_store },
	{ "wrong calls are refused", bad_calls },
};

TAP_MAIN(cases)
