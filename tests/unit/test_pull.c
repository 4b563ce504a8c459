/* SPDX-License-Identifier: MIT */
/* Claims of workers outside of the process, as a box serves them. */

#include "tap.h"

#include "core/box.h"
#include "core/pull.h"
#include "core/tenure.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"
#include "support/temp_dir.h"

#include <postern/postern.h>
#include <postern/pull.h>
#include <sqlite3.h>
#include <string.h>

#define LEASE_MS 60000
#define WAIT_MS 120000
#define HOUR_MS INT64_C(3600000)

struct scene {
	struct fake_clock clock;
	struct fault_plan plan;
	struct postern_box *box;
	struct postern_error error;
	/* What the store's first answer to a claim is followed by; NULL: nothing.
	 */
	void (*after_claim)(struct scene *scene);
	int claims_left; /* claims of the store that succeed; negative: all */
	/* Claims that are repeated by their own answer. */
	int repeats;
	/* The answers so far, and the deliveries in them. */
	int answers;
	int deliveries;
	int runs;
};

static void ignore(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct scene *scene = context;
	(void)message;
	(void)delivery;
	(void)outcome;
	scene->runs++;
}

static int fail_claim(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct scene *scene = context;
	(void)batch;
	if (op != FAULT_CLAIM || scene->claims_left < 0) {
		return POSTERN_OK;
	}
	return scene->claims_left-- > 0 ? POSTERN_OK : POSTERN_E_UNAVAILABLE;
}

static int interrupt_claim(void *context, enum fault_op op) {
	struct scene *scene = context;
	void (*act)(struct scene *) = scene->after_claim;
	if (op == FAULT_CLAIM && act) {
		scene->after_claim = NULL;
		act(scene);
	}
	return POSTERN_OK;
}

static const struct postern_handler_options pulled = {
	.size = sizeof(pulled),
	.key = "erp",
	.kind = "pull",
};

static struct postern_handler_options called(struct scene *scene,
		const char *key) {
	return (struct postern_handler_options){
		.size = sizeof(struct postern_handler_options),
		.key = key,
		.callback = ignore,
		.context = scene,
	};
}

/* Opens a box with a pull handler on the store of this URL. */
static bool scene_open(struct scene *scene, const char *url) {
	const struct postern_box_options options = {
		.size = sizeof(options),
		.clock = &scene->clock.base,
	};
	const struct postern_store_options store_options = {
		.size = sizeof(store_options),
		.clock = &scene->clock.base,
	};
	struct postern_store *store = NULL;
	struct postern_error *error = &scene->error;
	return CHECK_OK(postern_store_open(url, &store_options, &store, error),
				   error) &&
		   CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
													&scene->plan),
							&options, &scene->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(scene->box, "c", &pulled, error),
				   error) &&
		   CHECK_OK(postern_box_start(scene->box, error), error) &&
		   CHECK_OK(postern__engage(scene->box, error), error);
}

static void scene_prepare(struct scene *scene) {
	memset(scene, 0, sizeof(*scene));
	fake_clock_init(&scene->clock);
	scene->claims_left = -1;
	scene->plan.decide = fail_claim;
	scene->plan.decide_after = interrupt_claim;
	scene->plan.context = scene;
}

static bool scene_init(struct scene *scene) {
	scene_prepare(scene);
	return scene_open(scene, "memory:");
}

static void scene_close(struct scene *scene) {
	postern_box_destroy(scene->box);
}

static void send(struct scene *scene, int number) {
	char id[32];
	(void)snprintf(id, sizeof(id), "m%d", number);
	const struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = "t",
	};
	CHECK_OK(postern_box_accept(scene->box, "c", &message, NULL, &scene->error),
			&scene->error);
}

static const struct postern_pull_options waiting = {
	.size = sizeof(waiting),
	.handler = "erp",
	.wait_ms = WAIT_MS,
	.lease_ms = LEASE_MS,
};

static bool count_answer(void *context, struct postern_pull_batch *batch,
		const struct postern_error *error) {
	struct scene *scene = context;
	CHECK(!error);
	scene->answers++;
	if (batch) {
		scene->deliveries += (int)postern_pull_batch_count(batch);
	}
	postern_pull_batch_destroy(batch);
	if (scene->repeats > 0) {
		scene->repeats--;
		CHECK_OK(postern_box_pull_async(scene->box, &waiting, count_answer,
						 scene, &scene->error),
				&scene->error);
	}
	return true;
}

static void claim(struct scene *scene) {
	CHECK_OK(postern_box_pull_async(scene->box, &waiting, count_answer, scene,
					 &scene->error),
			&scene->error);
}

/* The next generation: its channel, and its handler; NULL: none. */
static void replace(struct scene *scene,
		const struct postern_channel_options *channel,
		const struct postern_handler_options *handler) {
	struct postern_generation *next = NULL;
	struct postern_error *error = &scene->error;
	CHECK_OK(postern_generation_create(scene->box, &next, error), error);
	CHECK_OK(postern_generation_add_channel(next, "c", channel, error), error);
	if (handler) {
		CHECK_OK(postern_generation_add_handler(next, "c", handler, error),
				error);
	}
	CHECK_OK(postern_box_replace_taking(scene->box, next, error), error);
}

/* As a runner begins to drain. */
static void drain(struct scene *scene) {
	(void)pthread_mutex_lock(&scene->box->mutex);
	scene->box->draining = true;
	(void)pthread_mutex_unlock(&scene->box->mutex);
	postern__pulls_end(scene->box);
}

static void remove_handler(struct scene *scene) {
	replace(scene, NULL, NULL);
}

static void change_kind(struct scene *scene) {
	const struct postern_handler_options handler = called(scene, "erp");
	replace(scene, NULL, &handler);
}

/* A claim during which this happens is answered with nothing. */
static void answered_after(void (*act)(struct scene *)) {
	struct scene scene;
	if (scene_init(&scene)) {
		scene.after_claim = act;
		claim(&scene);
		CHECK_OK(postern__pulls_serve(scene.box, &scene.error), &scene.error);
		CHECK_OK(postern__pulls_serve(scene.box, &scene.error), &scene.error);
		CHECK(!scene.after_claim);
		CHECK_INT(scene.answers, 1);
		CHECK_INT(scene.deliveries, 0);
	}
	scene_close(&scene);
}

static void drained_meanwhile(void) {
	answered_after(drain);
}

static void removed_meanwhile(void) {
	answered_after(remove_handler);
}

static void changed_meanwhile(void) {
	answered_after(change_kind);
}

static void changed_while_waiting(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		claim(&scene);
		CHECK_OK(postern__pulls_serve(scene.box, &scene.error), &scene.error);
		CHECK_INT(scene.answers, 0);
		change_kind(&scene);
		send(&scene, 1);
		CHECK_OK(postern__pulls_serve(scene.box, &scene.error), &scene.error);
		CHECK_INT(scene.answers, 1);
		CHECK_INT(scene.deliveries, 0);
	}
	scene_close(&scene);
}

static void leaves_the_claimer(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		for (int i = 0; i < 20; i++) {
			send(&scene, i);
		}
		scene.repeats = 19;
		claim(&scene);
		CHECK_OK(postern__pulls_serve(scene.box, &scene.error), &scene.error);
		CHECK_INT(scene.answers, 1);
		/* What has come meanwhile is due at once. */
		CHECK(postern__pull_at_ms(scene.box,
					  scene.box->generation->handlers[0]->state) <=
				postern__box_now_ms(scene.box));
		while (scene.answers < 20) {
			CHECK_OK(postern__pulls_serve(scene.box, &scene.error),
					&scene.error);
		}
		CHECK_INT(scene.deliveries, 20);
	}
	scene_close(&scene);
}

/* How many deliveries of the handler have this state. */
static uint64_t count_state(struct scene *scene, enum postern_state state) {
	struct postern_stats *stats = NULL;
	uint64_t count = 0;
	CHECK_OK(postern_box_stats(scene->box, &stats, &scene->error),
			&scene->error);
	if (stats && CHECK_INT(stats->handler_count, 1)) {
		const struct postern_handler_stats *handler = &stats->handlers[0];
		count = state == POSTERN_STATE_PENDING    ? handler->pending
				: state == POSTERN_STATE_POISONED ? handler->poisoned
												  : handler->leased;
	}
	postern_stats_destroy(stats);
	return count;
}

static void serve(struct scene *scene) {
	CHECK_OK(postern__pulls_serve(scene->box, &scene->error), &scene->error);
	CHECK_OK(postern_box_commit(scene->box, NULL, &scene->error),
			&scene->error);
}

static void extended_to_earlier(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		send(&scene, 1);
		claim(&scene);
		CHECK_OK(postern__pulls_serve(scene.box, &scene.error), &scene.error);
		CHECK_INT(scene.deliveries, 1);
		CHECK_OK(postern_box_extend(scene.box, 1, "erp", 1, LEASE_MS / 2, NULL,
						 &scene.error),
				&scene.error);
		CHECK_INT(postern__pulls_check_at_ms(scene.box),
				postern__box_now_ms(scene.box) + LEASE_MS / 2);
		fake_clock_advance(&scene.clock, LEASE_MS / 2 + 1);
		serve(&scene);
		CHECK_INT(count_state(&scene, POSTERN_STATE_PENDING), 1);
	}
	scene_close(&scene);
}

static void ends_without_inbox(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		const struct postern_channel_options direct = {
			.size = sizeof(direct),
			.mode = POSTERN_MODE_DIRECT,
		};
		const struct postern_handler_options handler = called(&scene, "erp");
		send(&scene, 1);
		claim(&scene);
		serve(&scene);
		CHECK_INT(scene.deliveries, 1);
		replace(&scene, &direct, &handler);
		fake_clock_advance(&scene.clock, LEASE_MS + 1);
		serve(&scene);
		CHECK_INT(count_state(&scene, POSTERN_STATE_PENDING), 1);
	}
	scene_close(&scene);
}

/* Without a runner the caller also takes over leases that have ended. If that
   fails, it has its own claim nevertheless. */
static void keeps_its_claim(void) {
	struct scene scene;
	struct postern_pull_batch *batch = NULL;
	if (scene_init(&scene)) {
		send(&scene, 1);
		claim(&scene);
		serve(&scene);
		CHECK_INT(scene.deliveries, 1);
		fake_clock_advance(&scene.clock, LEASE_MS + 1);
		send(&scene, 2);
		scene.claims_left = 1;
		if (CHECK_OK(postern_box_pull(scene.box, &waiting, &batch,
							 &scene.error),
					&scene.error)) {
			CHECK_INT(postern_pull_batch_count(batch), 1);
		}
		CHECK_INT(scene.claims_left, -1);
		postern_pull_batch_destroy(batch);
	}
	scene_close(&scene);
}

static void fails_with_the_store(void) {
	struct scene scene;
	struct postern_pull_batch *batch = NULL;
	if (scene_init(&scene)) {
		send(&scene, 1);
		scene.claims_left = 0;
		CHECK_INT(postern_box_pull(scene.box, &waiting, &batch, &scene.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_STR(scene.error.text, "the test says no");
		CHECK(!batch);
	}
	scene_close(&scene);
}

/* Removes the messages, but not their deliveries, from a file. */
static void damage(const char *path) {
	sqlite3 *db = NULL;
	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	CHECK_INT(sqlite3_exec(db, "DELETE FROM postern_message WHERE id = 'm1'",
					  NULL, NULL, NULL),
			SQLITE_OK);
	(void)sqlite3_close(db);
}

static void without_message(void) {
	struct scene scene;
	struct temp_dir dir;
	char url[TEMP_DIR_PATH_MAX + 32];
	scene_prepare(&scene);
	temp_dir_create(&dir);
	temp_dir_name(&dir, "sqlite:", "pull.db", url, sizeof(url));
	if (scene_open(&scene, url)) {
		send(&scene, 1);
		send(&scene, 2);
	}
	postern_box_destroy(scene.box);
	scene.box = NULL;
	damage(url + strlen("sqlite:"));
	if (scene_open(&scene, url)) {
		claim(&scene);
		serve(&scene);
		serve(&scene);
		CHECK_INT(scene.answers, 1);
		CHECK_INT(scene.deliveries, 1);
		CHECK_INT(count_state(&scene, POSTERN_STATE_POISONED), 1);
		CHECK_INT(count_state(&scene, POSTERN_STATE_LEASED), 1);
	}
	scene_close(&scene);
	temp_dir_destroy(&dir);
}

static const struct tap_case cases[] = {
	{ "a claim is answered if the runner stops while the store is asked",
			drained_meanwhile },
	{ "a claim is answered if its handler is removed while the store is asked",
			removed_meanwhile },
	{ "a claim is answered if its handler changes its kind meanwhile",
			changed_meanwhile },
	{ "a claim that waits is answered when its handler changes its kind",
			changed_while_waiting },
	{ "claims that follow each other leave the claimer to others",
			leaves_the_claimer },
	{ "a lease that is extended to an earlier end is looked for then",
			extended_to_earlier },
	{ "a call without a runner has its claim, whatever fails after that",
			keeps_its_claim },
	{ "a call without a runner fails with the store", fails_with_the_store },
	{ "a lease ends as a failure when its channel has no inbox any more",
			ends_without_inbox },
	{ "a delivery whose message is missing is poisoned, and no worker gets it",
			without_message },
};

TAP_MAIN(cases)
