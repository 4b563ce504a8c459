/* SPDX-License-Identifier: MIT */
/* Claims of workers outside of the process, as a box serves them. */

#include "tap.h"

#include "core/box.h"
#include "core/breaker.h"
#include "core/meter.h"
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
	bool refuses;   /* the answers */
	size_t refused; /* how many deliveries were in them */
	bool unwanted;  /* the claims */
	int one_by_one; /* results that the store refuses together */
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
	if (op == FAULT_APPLY && scene->one_by_one && batch->settlement_count > 1) {
		return POSTERN_E_INVALID;
	}
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

/* One failure breaks the handler. */
static struct postern_handler_options pulled(struct postern_policy *policy) {
	postern_policy_init(policy);
	policy->break_after = 1;
	return (struct postern_handler_options){
		.size = sizeof(struct postern_handler_options),
		.key = "erp",
		.kind = "pull",
		.policy = policy,
	};
}

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
	struct postern_policy policy;
	const struct postern_handler_options handler = pulled(&policy);
	return CHECK_OK(postern_store_open(url, &store_options, &store, error),
				   error) &&
		   CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
													&scene->plan),
							&options, &scene->box, error),
				   error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "c", NULL, error),
				   error) &&
		   CHECK_OK(postern_box_add_handler(scene->box, "c", &handler, error),
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
		.body = "{}",
		.body_len = 2,
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
	if (batch && scene->refuses) {
		scene->refused += postern_pull_batch_count(batch);
		return false;
	}
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

static bool is_wanted(void *context) {
	const struct scene *scene = context;
	return !scene->unwanted;
}

/* A claim, and the answer if there is one at once. */
static void claim_as(struct scene *scene, uint32_t max, int64_t wait_ms,
		int64_t lease_ms, size_t bytes_max) {
	const struct postern_pull_options options = {
		.size = sizeof(options),
		.handler = "erp",
		.max = max,
		.wait_ms = wait_ms,
		.lease_ms = lease_ms,
		.bytes_max = bytes_max,
		.wanted = is_wanted,
		.wanted_context = scene,
	};
	CHECK_OK(postern_box_pull_async(scene->box, &options, count_answer, scene,
					 &scene->error),
			&scene->error);
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

static struct postern__handler_state *state_of(struct scene *scene) {
	return scene->box->generation->handlers[0]->state;
}

/* The only delivery of the first message, and how long its only attempt took.
 */
static struct postern_row row_of(struct scene *scene, int64_t *lasted_out) {
	struct postern_detail *detail = NULL;
	struct postern_row row = { 0 };
	if (CHECK_OK(postern_box_get(scene->box, 1, &detail, &scene->error),
				&scene->error) &&
			CHECK_INT(detail->delivery_count, 1)) {
		const struct postern_delivery_detail *found = detail->deliveries;
		row = found->row;
		if (CHECK_INT(found->attempt_count, 1)) {
			*lasted_out = found->attempts[0].finished_at_ms -
						  found->attempts[0].started_at_ms;
		}
	}
	postern_detail_destroy(detail);
	return row;
}

/* The result of one delivery; returns its code. */
static int settle(struct scene *scene, int64_t seq, uint64_t fence,
		enum postern_outcome_kind outcome) {
	struct postern_pull_result result = {
		.size = sizeof(result),
		.seq = seq,
		.handler = "erp",
		.fence = fence,
		.outcome = outcome,
	};
	CHECK_OK(postern_box_settle(scene->box, &result, 1, &scene->error),
			&scene->error);
	return result.code;
}

/* With a runner no claim looks for leases that have ended. */
static void look_as_a_runner(struct scene *scene) {
	(void)pthread_mutex_lock(&scene->box->mutex);
	scene->box->leasing = true;
	(void)pthread_mutex_unlock(&scene->box->mutex);
	serve(scene); /* the look of the start */
}

static void lasts_as_asked(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		send(&scene, 1);
		look_as_a_runner(&scene);
		claim_as(&scene, 1, 0, 5000, 0);
		serve(&scene);
		CHECK_INT(scene.deliveries, 1);
		CHECK_INT(postern__pulls_check_at_ms(scene.box),
				postern__box_now_ms(scene.box) + 5000);
		fake_clock_advance(&scene.clock, 4999);
		serve(&scene);
		CHECK_INT(count_state(&scene, POSTERN_STATE_LEASED), 1);
		fake_clock_advance(&scene.clock, 1);
		serve(&scene);
		CHECK_INT(count_state(&scene, POSTERN_STATE_PENDING), 1);
	}
	scene_close(&scene);
}

static void asked_without_a_wait(void) {
	struct scene scene;
	int count = 70; /* more than are served at once */
	if (scene_init(&scene)) {
		for (int i = 0; i < count; i++) {
			send(&scene, i);
			claim_as(&scene, 1, 0, LEASE_MS, 0);
		}
		while (scene.answers < count) {
			serve(&scene);
		}
		CHECK_INT(scene.deliveries, count);
	}
	scene_close(&scene);
}

static void waiting_are_limited(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		for (int i = 0; i < POSTERN_PULL_WAITING_COUNT_MAX; i++) {
			claim(&scene);
		}
		CHECK_INT(postern_box_pull_async(scene.box, &waiting, count_answer,
						  &scene, &scene.error),
				POSTERN_E_BUSY);
		postern__pulls_end(scene.box);
		CHECK_INT(scene.answers, POSTERN_PULL_WAITING_COUNT_MAX);
		claim(&scene);
		postern__pulls_end(scene.box);
	}
	scene_close(&scene);
}

static void unwanted_gets_nothing(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		send(&scene, 1);
		claim_as(&scene, 1, WAIT_MS, LEASE_MS, 0);
		scene.unwanted = true;
		serve(&scene);
		CHECK_INT(scene.answers, 1);
		CHECK_INT(scene.deliveries, 0);
		CHECK_INT(count_state(&scene, POSTERN_STATE_PENDING), 1);
	}
	scene_close(&scene);
}

static void refused_is_not_counted(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		send(&scene, 1);
		claim(&scene);
		serve(&scene);
		CHECK_INT(settle(&scene, 1, 1, POSTERN_RETRY), POSTERN_OK);
		fake_clock_advance(&scene.clock, HOUR_MS);
		scene.refuses = true;
		claim(&scene);
		serve(&scene);
		CHECK_INT(scene.refused, 1);
		int64_t lasted = -1;
		struct postern_row row = row_of(&scene, &lasted);
		CHECK_INT(lasted, 0);
		CHECK_INT(row.state, POSTERN_STATE_PENDING);
		CHECK_INT(row.failures, 1);
		CHECK_INT(row.starts, 1);
	}
	scene_close(&scene);
}

static bool note_first(void *context, struct postern_pull_batch *batch,
		const struct postern_error *error) {
	int *deliveries = context;
	(void)error;
	*deliveries = batch ? (int)postern_pull_batch_count(batch) : -1;
	postern_pull_batch_destroy(batch);
	return true;
}

static void first_come_first_served(void) {
	struct scene scene;
	int got[2] = { -1, -1 };
	if (scene_init(&scene)) {
		for (int i = 0; i < 2; i++) {
			CHECK_OK(postern_box_pull_async(scene.box, &waiting, note_first,
							 &got[i], &scene.error),
					&scene.error);
		}
		serve(&scene);
		send(&scene, 1);
		serve(&scene);
		CHECK_INT(got[0], 1);
		CHECK_INT(got[1], -1);
		postern__pulls_end(scene.box);
		CHECK_INT(got[1], 0);
	}
	scene_close(&scene);
}

static void paused_is_not_asked(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		send(&scene, 1);
		CHECK_OK(postern_box_pause(scene.box, "erp", &scene.error),
				&scene.error);
		look_as_a_runner(&scene);
		unsigned before = scene.plan.calls[FAULT_CLAIM];
		claim_as(&scene, 1, 0, LEASE_MS, 0);
		serve(&scene);
		CHECK_INT(scene.answers, 1);
		CHECK_INT(scene.deliveries, 0);
		CHECK_INT(scene.plan.calls[FAULT_CLAIM], before);
	}
	scene_close(&scene);
}

/* A lease ends, while somebody else claims or not; returns whether the handler
   is held for it. */
static bool broken_by_an_end(bool others) {
	struct scene scene;
	bool held = false;
	if (scene_init(&scene)) {
		send(&scene, 1);
		claim(&scene);
		serve(&scene);
		fake_clock_advance(&scene.clock, LEASE_MS / 2);
		if (others) {
			claim_as(&scene, 1, 0, LEASE_MS, 0);
			serve(&scene);
		}
		fake_clock_advance(&scene.clock, LEASE_MS);
		serve(&scene);
		CHECK_INT(count_state(&scene, POSTERN_STATE_PENDING), 1);
		held = postern__breaker_is_open(state_of(&scene));
	}
	scene_close(&scene);
	return held;
}

static void blames_the_worker(void) {
	CHECK(broken_by_an_end(false));
	CHECK(!broken_by_an_end(true));
}

static void probes_with_one(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		for (int i = 0; i < 4; i++) {
			send(&scene, i);
		}
		claim(&scene);
		serve(&scene);
		CHECK_INT(settle(&scene, 1, 1, POSTERN_RETRY), POSTERN_OK);
		CHECK(postern__breaker_is_open(state_of(&scene)));
		fake_clock_advance(&scene.clock, HOUR_MS);
		claim_as(&scene, 4, 0, LEASE_MS, 0);
		serve(&scene);
		CHECK_INT(scene.deliveries, 2);
	}
	scene_close(&scene);
}

static void stops_after_the_bytes(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		for (int i = 0; i < 4; i++) {
			send(&scene, i); /* bodies of two bytes */
		}
		claim_as(&scene, 4, 0, LEASE_MS, 3);
		serve(&scene);
		CHECK_INT(scene.deliveries, 2);
	}
	scene_close(&scene);
}

static void repetition_is_told(void) {
	struct scene scene;
	if (scene_init(&scene)) {
		uint64_t *fenced =
				&state_of(&scene)->meter.ended[POSTERN__ENDED_FENCED];
		send(&scene, 1);
		claim(&scene);
		serve(&scene);
		fake_clock_advance(&scene.clock, 700);
		CHECK_INT(settle(&scene, 1, 1, POSTERN_DISCARD), POSTERN_OK);
		int64_t lasted = -1;
		CHECK_INT(row_of(&scene, &lasted).state, POSTERN_STATE_DISCARDED);
		CHECK_INT(lasted, 700);
		CHECK_INT(settle(&scene, 1, 1, POSTERN_DISCARD), POSTERN_OK);
		CHECK_INT(*fenced, 0);
		CHECK_INT(settle(&scene, 1, 1, POSTERN_DONE), POSTERN_E_STALE);
		CHECK_INT(*fenced, 1);
		CHECK_INT(settle(&scene, 1, 2, POSTERN_DISCARD), POSTERN_E_STALE);
		CHECK_INT(settle(&scene, 2, 1, POSTERN_DISCARD), POSTERN_E_NOTFOUND);
		CHECK_INT(*fenced, 2);
	}
	scene_close(&scene);
}

static void refused_together(void) {
	struct scene scene;
	struct postern_pull_result results[3];
	if (scene_init(&scene)) {
		for (int i = 0; i < 3; i++) {
			send(&scene, i);
			results[i] = (struct postern_pull_result){
				.size = sizeof(results[i]),
				.seq = i + 1,
				.handler = "erp",
				.fence = 1,
				.outcome = POSTERN_DONE,
			};
		}
		claim_as(&scene, 3, 0, LEASE_MS, 0);
		serve(&scene);
		scene.one_by_one = 1;
		CHECK_OK(postern_box_settle(scene.box, results, 3, &scene.error),
				&scene.error);
		for (int i = 0; i < 3; i++) {
			CHECK_INT(results[i].code, POSTERN_OK);
		}
		CHECK_INT(count_state(&scene, POSTERN_STATE_LEASED), 0);
	}
	scene_close(&scene);
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
	{ "a lease lasts as long as its claim says", lasts_as_asked },
	{ "a claim that does not wait is asked for before it is answered",
			asked_without_a_wait },
	{ "more claims than may wait are refused", waiting_are_limited },
	{ "a claim that nobody waits for gets nothing", unwanted_gets_nothing },
	{ "deliveries of a refused answer are returned, and nothing is counted",
			refused_is_not_counted },
	{ "claims are served in the order in which they came",
			first_come_first_served },
	{ "the store is not asked for a paused handler", paused_is_not_asked },
	{ "an ended lease counts against its handler only if nobody else claimed",
			blames_the_worker },
	{ "a handler that is held is probed with one delivery", probes_with_one },
	{ "a claim has no deliveries after the body that exceeds its bytes",
			stops_after_the_bytes },
	{ "a result is told again, another one for the same fence is late",
			repetition_is_told },
	{ "results that are refused together are written one by one",
			refused_together },
	{ "a lease ends as a failure when its channel has no inbox any more",
			ends_without_inbox },
	{ "a delivery whose message is missing is poisoned, and no worker gets it",
			without_message },
};

TAP_MAIN(cases)
