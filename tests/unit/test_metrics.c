/* SPDX-License-Identifier: MIT */
/*
 * The metrics of a box on the memory store with a fake clock: what is counted,
 * and how it is written.
 */

#include "tap.h"

#include "core/box.h"
#include "core/meter.h"
#include "support/fake_clock.h"
#include "support/fault_store.h"

#include <postern/postern.h>
#include <postern/sys/store.h>
#include <stdlib.h>
#include <string.h>

/* What a handler does in each run. */
struct script {
	struct postern_outcome next;
	struct fake_clock *clock; /* advanced by takes_ms in each run */
	int64_t takes_ms;
	void (*during)(void *scene); /* may be NULL */
	void *scene;
};

static void run_script(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct script *script = context;
	(void)message;
	(void)delivery;
	fake_clock_advance(script->clock, script->takes_ms);
	if (script->during) {
		script->during(script->scene);
	}
	*outcome = script->next;
}

struct scene {
	struct fake_clock clock;
	struct fake_random random;
	struct fault_plan plan;
	bool failing; /* every operation fails */
	struct postern_box *box;
	struct postern_error error;
	struct script script;
	int sent;
};

static int decide(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	const struct scene *scene = context;
	(void)op;
	(void)batch;
	return scene->failing ? POSTERN_E_UNAVAILABLE : POSTERN_OK;
}

static void scene_open_with(struct scene *scene,
		struct postern_box_options *options) {
	struct postern_store *store = NULL;
	*scene = (struct scene){ .plan = { .decide = decide, .context = scene } };
	fake_clock_init(&scene->clock);
	fake_random_init(&scene->random, 42);
	scene->script = (struct script){ .clock = &scene->clock, .scene = scene };
	struct postern_store_options of_store = {
		.size = sizeof(of_store),
		.clock = &scene->clock.base,
		.random = &scene->random.base,
	};
	options->size = sizeof(*options);
	options->clock = &scene->clock.base;
	options->random = &scene->random.base;
	CHECK_OK(postern_store_open("memory:", &of_store, &store, &scene->error),
			&scene->error);
	CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
											 &scene->plan),
					 options, &scene->box, &scene->error),
			&scene->error);
}

static void add_handler(struct scene *scene, const char *channel,
		const char *key, const struct postern_policy *policy) {
	struct postern_handler_options options = {
		.size = sizeof(options),
		.key = key,
		.callback = run_script,
		.context = &scene->script,
		.policy = policy,
	};
	CHECK_OK(postern_box_add_handler(scene->box, channel, &options,
					 &scene->error),
			&scene->error);
}

/* A box with a channel "orders" and a handler "mail". */
static void scene_open(struct scene *scene,
		const struct postern_policy *policy) {
	struct postern_box_options options = { 0 };
	scene_open_with(scene, &options);
	CHECK_OK(postern_box_add_channel(scene->box, "orders", NULL, &scene->error),
			&scene->error);
	add_handler(scene, "orders", "mail", policy);
	CHECK_OK(postern_box_start(scene->box, &scene->error), &scene->error);
}

static int send_to(struct scene *scene, const char *channel, const char *id,
		const char *body) {
	struct postern_message message = {
		.size = sizeof(message),
		.id = id,
		.type = "t",
		.body = body,
		.body_len = strlen(body),
	};
	return postern_box_accept(scene->box, channel, &message, NULL,
			&scene->error);
}

/* Send a new message to "orders". */
static void send_new(struct scene *scene) {
	char id[16];
	(void)snprintf(id, sizeof(id), "%d", ++scene->sent);
	CHECK_OK(send_to(scene, "orders", id, "body"), &scene->error);
}

static void process(struct scene *scene) {
	CHECK_OK(postern_box_process(scene->box, 0, NULL, &scene->error),
			&scene->error);
}

/* The value of a series in the text, as it is written; "" if it has none. */
static const char *value_in(const char *text, const char *series) {
	static char value[64];
	size_t len = strlen(series);
	value[0] = '\0';
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, series, len) == 0 && line[len] == ' ') {
			(void)snprintf(value, sizeof(value), "%.*s",
					(int)strcspn(line + len + 1, "\n"), line + len + 1);
			break;
		}
	}
	return value;
}

static char *metrics_of(struct scene *scene) {
	char *text = NULL;
	size_t len = 0;
	CHECK_OK(postern_box_metrics(scene->box, NULL, &text, &len, &scene->error),
			&scene->error);
	CHECK_INT(strlen(text ? text : ""), len);
	return text;
}

#define CHECK_METRIC(scene, series, expected)           \
	do {                                                \
		char *text_ = metrics_of(scene);                \
		CHECK_STR(value_in(text_, (series)), expected); \
		postern_metrics_destroy(text_);                 \
	} while (0)

static void messages(void) {
	struct scene scene;
	struct postern_box_options options = { 0 };
	static const enum postern_unrouted ways[] = { POSTERN_UNROUTED_PARK,
		POSTERN_UNROUTED_DROP, POSTERN_UNROUTED_REJECT };
	static const char *const names[] = { "park", "drop", "reject" };
	scene_open_with(&scene, &options);
	CHECK_OK(postern_box_add_channel(scene.box, "orders", NULL, &scene.error),
			&scene.error);
	for (size_t i = 0; i < 3; i++) {
		struct postern_channel_options channel = {
			.size = sizeof(channel),
			.unrouted = ways[i],
		};
		CHECK_OK(postern_box_add_channel(scene.box, names[i], &channel,
						 &scene.error),
				&scene.error);
	}
	add_handler(&scene, "orders", "mail", NULL);
	CHECK_OK(postern_box_start(scene.box, &scene.error), &scene.error);
	CHECK_INT(send_to(&scene, "orders", "a", "1"), POSTERN_OK);
	CHECK_INT(send_to(&scene, "orders", "b", "1"), POSTERN_OK);
	CHECK_INT(send_to(&scene, "orders", "a", "1"), POSTERN_E_DUPLICATE);
	CHECK_INT(send_to(&scene, "orders", "a", "2"), POSTERN_E_CONFLICT);
	CHECK_INT(send_to(&scene, "orders", "a", "3"), POSTERN_E_CONFLICT);
	CHECK_INT(send_to(&scene, "orders", "a", "4"), POSTERN_E_CONFLICT);
	CHECK_INT(send_to(&scene, "park", "a", "1"), POSTERN_OK);
	CHECK_INT(send_to(&scene, "drop", "a", "1"), POSTERN_OK);
	CHECK_INT(send_to(&scene, "reject", "a", "1"), POSTERN_E_INVALID);
	scene.failing = true;
	CHECK_INT(send_to(&scene, "orders", "c", "1"), POSTERN_E_UNAVAILABLE);
	scene.failing = false;
	static const struct {
		const char *series;
		const char *value;
	} rows[] = {
		{ "postern_messages_accepted_total{channel=\"orders\"}", "2" },
		{ "postern_duplicates_total{channel=\"orders\"}", "1" },
		{ "postern_conflicts_total{channel=\"orders\"}", "3" },
		{ "postern_unrouted_total{channel=\"orders\"}", "0" },
		{ "postern_messages_accepted_total{channel=\"park\"}", "1" },
		{ "postern_messages_accepted_total{channel=\"drop\"}", "0" },
		{ "postern_messages_accepted_total{channel=\"reject\"}", "0" },
		{ "postern_unrouted_total{channel=\"park\"}", "1" },
		{ "postern_unrouted_total{channel=\"drop\"}", "1" },
		{ "postern_unrouted_total{channel=\"reject\"}", "1" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CHECK_METRIC(&scene, rows[i].series, rows[i].value);
	}
	postern_box_destroy(scene.box);
}

/* End the node behind the back of the box: its leases are lost. */
static void lose_lease(void *context) {
	struct scene *scene = context;
	const struct postern_store_ops *ops = scene->box->store->ops;
	struct postern_recovery recovery = {
		.node = scene->box->node + 1,
		.max = 100,
	};
	struct postern_recovered recovered;
	bool alive;
	CHECK_OK(ops->renew(scene->box->store, scene->box->node, 0, &alive, NULL),
			NULL);
	CHECK_OK(ops->recover(scene->box->store, &recovery, &recovered, NULL),
			NULL);
}

static void outcomes(void) {
	struct scene scene;
	struct postern_policy policy;
	static const struct {
		enum postern_outcome_kind kind;
		const char *label;
	} rows[] = {
		{ POSTERN_DONE, "done" },
		{ POSTERN_RETRY, "retry" },
		{ POSTERN_RETRY_AFTER, "retry_after" },
		{ POSTERN_SNOOZE, "snooze" },
		{ POSTERN_POISON, "poison" },
		{ POSTERN_DISCARD, "discard" },
		{ POSTERN_HOLD, "hold" },
	};
	postern_policy_init(&policy);
	scene_open(&scene, &policy);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char series[100];
		(void)snprintf(series, sizeof(series),
				"postern_deliveries_total{handler=\"mail\",outcome=\"%s\"}",
				rows[i].label);
		CHECK_METRIC(&scene, series, "0");
		postern_outcome_set(&scene.script.next, rows[i].kind, 1000 * 1000,
				rows[i].label);
		send_new(&scene);
		process(&scene);
		CHECK_METRIC(&scene, series, "1");
	}
	CHECK_METRIC(&scene,
			"postern_delivery_duration_seconds_count{handler=\"mail\"}", "7");
	postern_box_destroy(scene.box);
}

/* The time until a delivery is run again is what it waited for. */
static void lag_of_first_runs(void) {
	static const char series[] =
			"postern_delivery_lag_seconds_count{handler=\"mail\"}";
	struct scene scene;
	scene_open(&scene, NULL);
	postern_outcome_set(&scene.script.next, POSTERN_SNOOZE, 1000, "later");
	send_new(&scene);
	process(&scene);
	CHECK_METRIC(&scene, series, "1");
	fake_clock_advance(&scene.clock, 1000);
	postern_outcome_set(&scene.script.next, POSTERN_POISON, 0, "never");
	process(&scene);
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"poison\"}",
			"1");
	CHECK_METRIC(&scene, series, "1");
	CHECK_OK(postern_box_retry(scene.box, 1, "mail", &scene.error),
			&scene.error);
	postern_outcome_set(&scene.script.next, POSTERN_DONE, 0, NULL);
	process(&scene);
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"done\"}", "1");
	CHECK_METRIC(&scene, series, "1");
	postern_box_destroy(scene.box);
}

static void last_attempt(void) {
	struct scene scene;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.max_attempts = 1;
	scene_open(&scene, &policy);
	postern_outcome_set(&scene.script.next, POSTERN_RETRY, 0, "no");
	send_new(&scene);
	process(&scene);
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"poison\"}",
			"1");
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"retry\"}",
			"0");
	postern_box_destroy(scene.box);
}

static void fenced(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	scene.script.during = lose_lease;
	send_new(&scene);
	CHECK_OK(postern_box_claim(scene.box, 1, NULL, &scene.error), &scene.error);
	CHECK_OK(postern_box_run(scene.box, 1, NULL, &scene.error), &scene.error);
	CHECK_OK(postern_box_commit(scene.box, NULL, &scene.error), &scene.error);
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"fenced\"}",
			"1");
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"done\"}", "0");
	postern_box_destroy(scene.box);
}

static void returned(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	send_new(&scene);
	CHECK_OK(postern_box_claim(scene.box, 1, NULL, &scene.error), &scene.error);
	CHECK_OK(postern_box_pause(scene.box, "mail", &scene.error), &scene.error);
	CHECK_OK(postern_box_commit(scene.box, NULL, &scene.error), &scene.error);
	char *text = metrics_of(&scene);
	const char *line = text;
	while (line && (line = strstr(line, "\npostern_deliveries_total{"))) {
		line = strchr(line + 1, ' ');
		CHECK(line && strncmp(line, " 0\n", 3) == 0);
	}
	postern_metrics_destroy(text);
	postern_box_destroy(scene.box);
}

static void histograms(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	scene.script.takes_ms = 30;
	send_new(&scene);
	fake_clock_advance(&scene.clock, 2000);
	process(&scene);
	scene.script.takes_ms = 4000 * 1000;
	postern_outcome_set(&scene.script.next, POSTERN_RETRY, 0, "again");
	send_new(&scene);
	process(&scene);
	/* A retry has no lag. */
	postern_outcome_set(&scene.script.next, POSTERN_DONE, 0, NULL);
	fake_clock_advance(&scene.clock, 1000 * 1000);
	scene.script.takes_ms = 0;
	process(&scene);
	static const struct {
		const char *series;
		const char *value;
	} rows[] = {
		{ "duration_seconds_bucket{handler=\"mail\",le=\"0.001\"}", "1" },
		{ "duration_seconds_bucket{handler=\"mail\",le=\"0.025\"}", "1" },
		{ "duration_seconds_bucket{handler=\"mail\",le=\"0.05\"}", "2" },
		{ "duration_seconds_bucket{handler=\"mail\",le=\"3600\"}", "2" },
		{ "duration_seconds_bucket{handler=\"mail\",le=\"+Inf\"}", "3" },
		{ "duration_seconds_sum{handler=\"mail\"}", "4000.03" },
		{ "duration_seconds_count{handler=\"mail\"}", "3" },
		{ "lag_seconds_bucket{handler=\"mail\",le=\"0.001\"}", "1" },
		{ "lag_seconds_bucket{handler=\"mail\",le=\"1\"}", "1" },
		{ "lag_seconds_bucket{handler=\"mail\",le=\"2.5\"}", "2" },
		{ "lag_seconds_bucket{handler=\"mail\",le=\"+Inf\"}", "2" },
		{ "lag_seconds_sum{handler=\"mail\"}", "2" },
		{ "lag_seconds_count{handler=\"mail\"}", "2" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char series[120];
		(void)snprintf(series, sizeof(series), "postern_delivery_%s",
				rows[i].series);
		CHECK_METRIC(&scene, series, rows[i].value);
	}
	postern_box_destroy(scene.box);
}

static void buckets(void) {
	static const struct {
		int64_t value;
		size_t bucket;
	} rows[] = {
		{ INT64_MIN, 0 },
		{ -1, 0 },
		{ 0, 0 },
		{ 1, 0 },
		{ 2, 1 },
		{ 5, 1 },
		{ 6, 2 },
		{ 3600 * 1000, POSTERN__BUCKET_COUNT - 1 },
		{ 3600 * 1000 + 1, POSTERN__BUCKET_COUNT },
		{ INT64_MAX, POSTERN__BUCKET_COUNT },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct postern__histogram histogram = { 0 };
		postern__histogram_add(&histogram, postern__duration_bounds,
				rows[i].value);
		CHECK_INT(histogram.counts[rows[i].bucket], 1);
		CHECK_INT(histogram.sum, rows[i].value > 0 ? rows[i].value : 0);
	}
	for (size_t i = 1; i < POSTERN__BUCKET_COUNT; i++) {
		CHECK(postern__duration_bounds[i - 1] < postern__duration_bounds[i]);
		CHECK(postern__batch_bounds[i - 1] < postern__batch_bounds[i]);
	}
	CHECK_INT(postern__batch_bounds[POSTERN__BUCKET_COUNT - 1],
			2 * POSTERN__COMMIT_ITEMS_MAX);
}

static void commits(void) {
	struct scene scene;
	struct postern_message messages[3] = { 0 };
	struct postern_receipt receipts[3];
	static const char *const ids[] = { "x", "y", "z" };
	scene_open(&scene, NULL);
	for (size_t i = 0; i < 3; i++) {
		messages[i].size = sizeof(messages[i]);
		messages[i].id = ids[i];
	}
	CHECK_OK(postern_box_accept_batch(scene.box, "orders", messages, 3,
					 receipts, &scene.error),
			&scene.error);
	send_new(&scene);
	scene.failing = true;
	CHECK_INT(send_to(&scene, "orders", "c", "1"), POSTERN_E_UNAVAILABLE);
	scene.failing = false;
	static const struct {
		const char *series;
		const char *value;
	} rows[] = {
		{ "postern_batch_size_bucket{store=\"default\",le=\"1\"}", "1" },
		{ "postern_batch_size_bucket{store=\"default\",le=\"3\"}", "2" },
		{ "postern_batch_size_sum{store=\"default\"}", "4" },
		{ "postern_batch_size_count{store=\"default\"}", "2" },
		{ "postern_commit_duration_seconds_count{store=\"default\"}", "2" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CHECK_METRIC(&scene, rows[i].series, rows[i].value);
	}
	postern_box_destroy(scene.box);
}

/* Replace the generation by one with this handler in "orders". */
static void replace_by(struct scene *scene, const char *key,
		const char *legacy) {
	struct postern_generation *next = NULL;
	struct postern_handler_options options = {
		.size = sizeof(options),
		.key = key,
		.legacy_keys = &legacy,
		.legacy_key_count = legacy ? 1 : 0,
		.callback = run_script,
		.context = &scene->script,
	};
	CHECK_OK(postern_generation_create(scene->box, &next, &scene->error),
			&scene->error);
	CHECK_OK(postern_generation_add_channel(next, "orders", NULL,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_generation_add_handler(next, "orders", &options,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_box_replace_taking(scene->box, next, &scene->error),
			&scene->error);
}

static void generations(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	send_new(&scene);
	process(&scene);
	replace_by(&scene, "mail", NULL);
	send_new(&scene);
	process(&scene);
	CHECK_METRIC(&scene, "postern_messages_accepted_total{channel=\"orders\"}",
			"2");
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"done\"}", "2");
	CHECK_METRIC(&scene,
			"postern_delivery_duration_seconds_count{handler=\"mail\"}", "2");
	replace_by(&scene, "post", "mail");
	send_new(&scene);
	process(&scene);
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"post\",outcome=\"done\"}", "3");
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"done\"}", "");
	CHECK_METRIC(&scene, "postern_messages_accepted_total{channel=\"orders\"}",
			"3");
	postern_box_destroy(scene.box);
}

static void replaced_in_run(void *context) {
	struct scene *scene = context;
	scene->script.during = NULL;
	replace_by(scene, "mail", NULL);
}

static void late_end(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	scene.script.during = replaced_in_run;
	send_new(&scene);
	process(&scene);
	CHECK_METRIC(&scene,
			"postern_deliveries_total{handler=\"mail\",outcome=\"done\"}", "1");
	postern_box_destroy(scene.box);
}

static void labels(void) {
	struct scene scene;
	struct postern_box_options options = {
		.processing = POSTERN_PROCESSING_EXCLUSIVE,
		.lock_name = "a\"b\\c\nd\xff"
					 "e\xc3\xa9",
	};
	struct postern_metrics_options of_text = {
		.size = sizeof(of_text),
		.store = "x\\\"\n",
	};
	char *text = NULL;
	scene_open_with(&scene, &options);
	CHECK_OK(postern_box_start(scene.box, &scene.error), &scene.error);
	CHECK_OK(postern_box_metrics(scene.box, &of_text, &text, NULL,
					 &scene.error),
			&scene.error);
	CHECK_CONTAINS(text, "\npostern_lock_lost_total"
						 "{lock=\"a\\\"b\\\\c\\nd\xef\xbf\xbd"
						 "e\xc3\xa9\"} 0\n");
	CHECK_CONTAINS(text,
			"\npostern_batch_size_count{store=\"x\\\\\\\"\\n\"} 0\n");
	postern_metrics_destroy(text);
	postern_metrics_destroy(NULL);
	postern_box_destroy(scene.box);
}

static void stored(void) {
	struct scene scene;
	static const char pending[] =
			"postern_pending{store=\"default\",handler=\"mail\"}";
	static const char poisoned[] =
			"postern_poisoned{store=\"default\",handler=\"mail\"}";
	static const char age[] = "postern_oldest_pending_age_seconds{store="
							  "\"default\",handler=\"mail\"}";
	scene_open(&scene, NULL);
	CHECK_METRIC(&scene, age, "0");
	fake_clock_advance(&scene.clock, 5000);
	postern_outcome_set(&scene.script.next, POSTERN_POISON, 0, "bad");
	send_new(&scene);
	process(&scene);
	send_new(&scene);
	send_new(&scene);
	fake_clock_advance(&scene.clock, 1500);
	CHECK_METRIC(&scene, pending, "2");
	CHECK_METRIC(&scene, poisoned, "1");
	CHECK_METRIC(&scene, age, "1.5");
	/* The count is used for 5 s, and what it found becomes older. */
	unsigned calls = scene.plan.calls[FAULT_STATS];
	send_new(&scene);
	fake_clock_advance(&scene.clock, 4999);
	CHECK_METRIC(&scene, pending, "2");
	CHECK_METRIC(&scene, age, "6.499");
	CHECK_INT(scene.plan.calls[FAULT_STATS], calls);
	fake_clock_advance(&scene.clock, 1);
	CHECK_METRIC(&scene, pending, "3");
	CHECK_INT(scene.plan.calls[FAULT_STATS], calls + 1);
	postern_box_destroy(scene.box);
}

/* Counting takes a second. */
static int count_slowly(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	struct scene *scene = context;
	(void)batch;
	if (op == FAULT_STATS) {
		fake_clock_advance(&scene->clock, 1000);
	}
	return POSTERN_OK;
}

static void slow_counts(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	scene.plan.decide = count_slowly;
	postern_metrics_destroy(metrics_of(&scene));
	unsigned calls = scene.plan.calls[FAULT_STATS];
	fake_clock_advance(&scene.clock, 19999);
	postern_metrics_destroy(metrics_of(&scene));
	CHECK_INT(scene.plan.calls[FAULT_STATS], calls);
	fake_clock_advance(&scene.clock, 1);
	postern_metrics_destroy(metrics_of(&scene));
	CHECK_INT(scene.plan.calls[FAULT_STATS], calls + 1);
	postern_box_destroy(scene.box);
}

static void failing_store(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	send_new(&scene);
	CHECK_METRIC(&scene, "postern_pending{store=\"default\",handler=\"mail\"}",
			"1");
	fake_clock_advance(&scene.clock, 5000);
	scene.failing = true;
	CHECK_METRIC(&scene, "postern_pending{store=\"default\",handler=\"mail\"}",
			"");
	CHECK_METRIC(&scene, "postern_messages_accepted_total{channel=\"orders\"}",
			"1");
	/* A store that cannot be written is not read. */
	CHECK_INT(send_to(&scene, "orders", "c", "1"), POSTERN_E_UNAVAILABLE);
	unsigned calls = scene.plan.calls[FAULT_STATS];
	postern_metrics_destroy(metrics_of(&scene));
	CHECK_INT(scene.plan.calls[FAULT_STATS], calls);
	scene.failing = false;
	send_new(&scene);
	CHECK_METRIC(&scene, "postern_pending{store=\"default\",handler=\"mail\"}",
			"2");
	postern_box_destroy(scene.box);
}

static void while_running(void *context) {
	struct scene *scene = context;
	CHECK_METRIC(scene, "postern_running{handler=\"mail\"}", "1");
}

static void held(void) {
	struct scene scene;
	static const char paused[] =
			"postern_handler_held{handler=\"mail\",reason=\"paused\"}";
	static const char broken[] =
			"postern_handler_held{handler=\"mail\",reason=\"broken\"}";
	scene_open(&scene, NULL);
	scene.script.during = while_running;
	CHECK_METRIC(&scene, "postern_running{handler=\"mail\"}", "0");
	CHECK_METRIC(&scene, paused, "0");
	CHECK_METRIC(&scene, broken, "0");
	postern_outcome_set(&scene.script.next, POSTERN_HOLD, 0, "no program");
	send_new(&scene);
	process(&scene);
	CHECK_METRIC(&scene, "postern_running{handler=\"mail\"}", "0");
	CHECK_METRIC(&scene, paused, "0");
	CHECK_METRIC(&scene, broken, "1");
	CHECK_OK(postern_box_pause(scene.box, "mail", &scene.error), &scene.error);
	CHECK_METRIC(&scene, paused, "1");
	CHECK_METRIC(&scene, broken, "1");
	postern_box_destroy(scene.box);
}

static void without_events(void) {
	struct scene scene;
	scene_open(&scene, NULL);
	int level = scene.box->subscribers.level;
	postern_metrics_destroy(metrics_of(&scene));
	send_new(&scene);
	process(&scene);
	CHECK_INT(scene.box->subscribers.level, level);
	CHECK(!postern__event_wanted(&scene.box->subscribers,
			POSTERN_EVENT_ACCEPTED));
	postern_box_destroy(scene.box);
}

static void options_of_other_versions(void) {
	struct scene scene;
	struct postern_metrics_options options = { .size = 3 };
	char *text = NULL;
	scene_open(&scene, NULL);
	CHECK_INT(postern_box_metrics(scene.box, &options, &text, NULL,
					  &scene.error),
			POSTERN_E_INVALID);
	CHECK(!text);
	postern_box_destroy(scene.box);
}

static const struct tap_case cases[] = {
	{ "messages are counted by channel and receipt", messages },
	{ "runs are counted by handler and outcome", outcomes },
	{ "a last attempt that failed counts as poison", last_attempt },
	{ "a settlement that is refused counts as fenced", fenced },
	{ "a lease that is returned is not counted", returned },
	{ "durations and lags are counted in buckets", histograms },
	{ "a delivery that is run again has no lag", lag_of_first_runs },
	{ "a value is in the first bucket that is not less", buckets },
	{ "group commits are counted by size and duration", commits },
	{ "counts survive a replaced generation and a renamed handler",
			generations },
	{ "a run that ends after its generation is counted", late_end },
	{ "label values are escaped", labels },
	{ "counts in the store are read at most every five seconds", stored },
	{ "a count that took long is repeated later", slow_counts },
	{ "counters are written while the store fails", failing_store },
	{ "held handlers have a reason, and runs in progress are shown", held },
	{ "metrics need no events of every message", without_events },
	{ "options that are too short are refused", options_of_other_versions },
};

TAP_MAIN(cases)
