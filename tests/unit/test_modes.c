/* SPDX-License-Identifier: MIT */

/* Channels in the modes `guard` and `direct`: handlers run inline, and their
   results are the answers to the senders. */

#include <postern/postern.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/temp_dir.h"
#include "tap.h"

#define PATIENCE_MS 60000

/* What a handler does, and how often it did. */
struct work {
	atomic_int calls;
	enum postern_outcome_kind outcome;
	atomic_bool *hold; /* wait until it is false */
	atomic_bool entered;
	bool writes; /* a row into the table `effect` */
	uint64_t fence;
	int64_t deadline_ms;
};

struct scene {
	struct temp_dir dir;
	char url[TEMP_DIR_PATH_MAX + 16];
	struct postern_box *box;
	struct postern_runner *runner;
	struct postern_error error;
	struct work work;
	struct work other;
};

static void pause_ms(int ms) {
	struct timespec time = { ms / 1000, ms % 1000 * 1000000L };
	(void)nanosleep(&time, NULL);
}

static void do_work(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct work *work = context;
	(void)message;
	atomic_fetch_add(&work->calls, 1);
	work->fence = delivery->fence;
	work->deadline_ms = delivery->deadline_ms;
	atomic_store(&work->entered, true);
	while (work->hold && atomic_load(work->hold)) {
		pause_ms(1);
	}
	if (work->writes) {
		CHECK_INT(sqlite3_exec(delivery->transaction,
						  "CREATE TABLE IF NOT EXISTS effect (x);"
						  "INSERT INTO effect VALUES (1)",
						  NULL, NULL, NULL),
				SQLITE_OK);
	}
	postern_outcome_set(outcome, work->outcome, 100, "it is broken");
}

static bool scene_open(struct scene *scene, const char *kind) {
	*scene = (struct scene){ 0 };
	temp_dir_create(&scene->dir);
	if (strcmp(kind, "sqlite") == 0) {
		(void)snprintf(scene->url, sizeof scene->url, "sqlite:%s/modes.db",
				scene->dir.path);
	} else {
		(void)snprintf(scene->url, sizeof scene->url, "memory:");
	}
	return CHECK_OK(postern_box_open(scene->url, NULL, &scene->box,
							&scene->error),
			&scene->error);
}

static bool add_channel(struct scene *scene, const char *name,
		const struct postern_channel_options *options) {
	return CHECK_OK(postern_box_add_channel(scene->box, name, options,
							&scene->error),
			&scene->error);
}

static int try_handler(struct scene *scene, const char *channel,
		const char *key, struct work *work, bool transactional) {
	const struct postern_handler_options options = {
		.size = sizeof options,
		.key = key,
		.callback = do_work,
		.context = work,
		.transactional = transactional,
	};
	return postern_box_add_handler(scene->box, channel, &options,
			&scene->error);
}

static bool add_handler(struct scene *scene, const char *channel,
		const char *key, struct work *work) {
	return CHECK_OK(try_handler(scene, channel, key, work, false),
			&scene->error);
}

static bool scene_start(struct scene *scene, bool runner) {
	if (!CHECK_OK(postern_box_start(scene->box, &scene->error),
				&scene->error)) {
		return false;
	}
	return !runner ||
		   (CHECK_OK(postern_runner_create(scene->box, NULL, &scene->runner,
							 &scene->error),
					&scene->error) &&
				   CHECK_OK(postern_runner_start(scene->runner, &scene->error),
						   &scene->error));
}

static void scene_close(struct scene *scene) {
	postern_runner_destroy(scene->runner);
	postern_box_destroy(scene->box);
	temp_dir_destroy(&scene->dir);
}

/* A channel "pay" in this mode with the handler "charge" for scene->work. */
static bool scene_simple(struct scene *scene, const char *kind,
		enum postern_channel_mode mode, bool runner) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = mode,
	};
	return scene_open(scene, kind) && add_channel(scene, "pay", &channel) &&
		   add_handler(scene, "pay", "charge", &scene->work) &&
		   scene_start(scene, runner);
}

static int send_typed(struct scene *scene, const char *id, const char *type) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.type = type,
		.body = "{}",
		.body_len = 2,
	};
	int64_t seq = -1;
	int r = postern_box_accept(scene->box, "pay", &message, &seq,
			&scene->error);
	CHECK(seq <= 0); /* nothing is stored */
	return r;
}

static int send(struct scene *scene, const char *id) {
	return send_typed(scene, id, "payment.made");
}

static void check_stored(struct scene *scene, uint64_t count) {
	struct postern_stats *stats = NULL;
	if (CHECK_OK(postern_box_stats(scene->box, &stats, &scene->error),
				&scene->error)) {
		CHECK_INT(stats->channels[0].accepted, count);
		postern_stats_destroy(stats);
	}
}

static void guard_once(const char *kind, bool runner) {
	struct scene scene;
	if (scene_simple(&scene, kind, POSTERN_MODE_GUARD, runner)) {
		CHECK_OK(send(&scene, "a"), &scene.error);
		CHECK_INT(send(&scene, "a"), POSTERN_E_DUPLICATE);
		CHECK_OK(send(&scene, "b"), &scene.error);
		CHECK_INT(scene.work.calls, 2);
		CHECK(scene.work.fence > 0);
		check_stored(&scene, 0);
	}
	scene_close(&scene);
}

static void guard_once_everywhere(void) {
	guard_once("memory", false);
	guard_once("memory", true);
	guard_once("sqlite", false);
	guard_once("sqlite", true);
}

static void marker_has_the_id(void) {
	struct scene scene;
	struct postern_guard *guard = NULL;
	bool done = false;
	if (scene_simple(&scene, "sqlite", POSTERN_MODE_GUARD, true) &&
			CHECK_OK(postern_guard_create(scene.box, NULL, &guard,
							 &scene.error),
					&scene.error)) {
		CHECK_OK(send(&scene, "a"), &scene.error);
		CHECK_OK(postern_mark_has(guard, "charge", "a", &done, &scene.error),
				&scene.error);
		CHECK(done);
		CHECK_OK(postern_mark_forget(guard, "charge", "a", &scene.error),
				&scene.error);
		CHECK_OK(send(&scene, "a"), &scene.error);
		CHECK_INT(scene.work.calls, 2);
	}
	postern_guard_destroy(guard);
	scene_close(&scene);
}

static void failures_are_answered(void) {
	static const struct {
		enum postern_outcome_kind outcome;
		int code;
	} rows[] = {
		{ POSTERN_RETRY, POSTERN_E_FAILED },
		{ POSTERN_RETRY_AFTER, POSTERN_E_FAILED },
		{ POSTERN_POISON, POSTERN_E_INVALID },
		{ POSTERN_SNOOZE, POSTERN_E_UNAVAILABLE },
		{ POSTERN_DISCARD, POSTERN_OK },
	};
	for (int mode = POSTERN_MODE_GUARD; mode <= POSTERN_MODE_DIRECT; mode++) {
		struct scene scene;
		if (scene_simple(&scene, "memory", (enum postern_channel_mode)mode,
					true)) {
			for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
				char id[8];
				(void)snprintf(id, sizeof id, "m%zu", i);
				scene.work.outcome = rows[i].outcome;
				CHECK_INT(send(&scene, id), rows[i].code);
				if (rows[i].code) {
					CHECK_CONTAINS(scene.error.text,
							"handler 'charge': it is broken");
				}
			}
			/* What failed left no marker, however often it failed. */
			scene.work.outcome = POSTERN_RETRY;
			for (int i = 0; i < 25; i++) {
				CHECK_INT(send(&scene, "m0"), POSTERN_E_FAILED);
			}
			scene.work.outcome = POSTERN_DONE;
			CHECK_OK(send(&scene, "m0"), &scene.error);
		}
		scene_close(&scene);
	}
}

static void direct_runs_each_time(void) {
	for (int runner = 0; runner < 2; runner++) {
		struct scene scene;
		if (scene_simple(&scene, "memory", POSTERN_MODE_DIRECT, runner)) {
			CHECK_OK(send(&scene, "a"), &scene.error);
			CHECK_OK(send(&scene, "a"), &scene.error);
			CHECK_OK(send(&scene, NULL), &scene.error); /* needs no key */
			CHECK_INT(scene.work.calls, 3);
			check_stored(&scene, 0);
		}
		scene_close(&scene);
	}
}

static void transaction_commits_with_marker(void) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
	};
	for (int runner = 0; runner < 2; runner++) {
		struct scene scene;
		if (scene_open(&scene, "sqlite") &&
				add_channel(&scene, "pay", &channel) &&
				CHECK_OK(try_handler(&scene, "pay", "charge", &scene.work,
								 true),
						&scene.error) &&
				scene_start(&scene, runner)) {
			sqlite3 *db;
			sqlite3_stmt *rows;
			scene.work.writes = true;
			scene.work.outcome = POSTERN_RETRY;
			CHECK_INT(send(&scene, "a"), POSTERN_E_FAILED);
			scene.work.outcome = POSTERN_DONE;
			CHECK_OK(send(&scene, "a"), &scene.error);
			CHECK_INT(send(&scene, "a"), POSTERN_E_DUPLICATE);
			CHECK_INT(scene.work.calls, 2);
			CHECK_INT(sqlite3_open_v2(scene.url + strlen("sqlite:"), &db,
							  SQLITE_OPEN_READONLY, NULL),
					SQLITE_OK);
			CHECK_INT(sqlite3_prepare_v2(db, "SELECT count(*) FROM effect", -1,
							  &rows, NULL),
					SQLITE_OK);
			CHECK_INT(sqlite3_step(rows), SQLITE_ROW);
			CHECK_INT(sqlite3_column_int(rows, 0), 1);
			(void)sqlite3_finalize(rows);
			(void)sqlite3_close(db);
		}
		scene_close(&scene);
	}
}

static void transactional_must_be_guarded(void) {
	static const char *const types[] = { "payment.*" };
	const struct postern_channel_options rows[] = {
		{ .size = sizeof rows[0], .mode = POSTERN_MODE_DIRECT },
		{
				.size = sizeof rows[0],
				.mode = POSTERN_MODE_GUARD,
				.guarded_types = types,
				.guarded_type_count = 1,
		},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct scene scene;
		if (scene_open(&scene, "sqlite") &&
				add_channel(&scene, "pay", &rows[i])) {
			CHECK_INT(try_handler(&scene, "pay", "charge", &scene.work, true),
					POSTERN_E_INVALID);
			CHECK_CONTAINS(scene.error.text, "must be guarded or stored");
		}
		scene_close(&scene);
	}
}

/* A thread that sends one message. */
struct sender {
	struct scene *scene;
	const char *id;
	pthread_t thread;
	struct postern_error error;
	atomic_int code;
};

static void *send_thread(void *context) {
	struct sender *sender = context;
	const struct postern_message message = {
		.size = sizeof message,
		.id = sender->id,
		.type = "payment.made",
	};
	sender->code = postern_box_accept(sender->scene->box, "pay", &message, NULL,
			&sender->error);
	return NULL;
}

static void await_flag(const atomic_bool *flag) {
	for (int i = 0; i < PATIENCE_MS && !atomic_load(flag); i++) {
		pause_ms(1);
	}
	CHECK(atomic_load(flag));
}

static void copies_wait(void) {
	enum { COUNT = 8 };
	struct scene scene;
	struct sender senders[COUNT];
	atomic_bool hold = true;
	int duplicates = 0;
	if (scene_simple(&scene, "memory", POSTERN_MODE_GUARD, true)) {
		scene.work.hold = &hold;
		for (int i = 0; i < COUNT; i++) {
			senders[i] = (struct sender){ .scene = &scene, .id = "a" };
			CHECK_INT(pthread_create(&senders[i].thread, NULL, send_thread,
							  &senders[i]),
					0);
		}
		await_flag(&scene.work.entered);
		atomic_store(&hold, false);
		for (int i = 0; i < COUNT; i++) {
			(void)pthread_join(senders[i].thread, NULL);
			duplicates += senders[i].code == POSTERN_E_DUPLICATE;
		}
		CHECK_INT(scene.work.calls, 1);
		CHECK_INT(duplicates, COUNT - 1);
	}
	scene_close(&scene);
}

static void busy_is_answered(void) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
		.guard_wait_ms = -1,
	};
	struct scene scene;
	atomic_bool hold = true;
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			add_handler(&scene, "pay", "charge", &scene.work) &&
			scene_start(&scene, true)) {
		struct sender sender = { .scene = &scene, .id = "a" };
		scene.work.hold = &hold;
		CHECK_INT(pthread_create(&sender.thread, NULL, send_thread, &sender),
				0);
		await_flag(&scene.work.entered);
		CHECK_INT(send(&scene, "a"), POSTERN_E_BUSY);
		CHECK_CONTAINS(scene.error.text, "handler 'charge': a copy is running");
		atomic_store(&hold, false);
		(void)pthread_join(sender.thread, NULL);
		CHECK_INT(sender.code, POSTERN_OK);
	}
	scene_close(&scene);
}

static void types_are_guarded(void) {
	static const char *const types[] = { "payment.*" };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
		.guarded_types = types,
		.guarded_type_count = 1,
	};
	struct scene scene;
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			add_handler(&scene, "pay", "charge", &scene.work) &&
			scene_start(&scene, true)) {
		CHECK_OK(send_typed(&scene, "a", "payment.made"), &scene.error);
		CHECK_INT(send_typed(&scene, "a", "payment.made"), POSTERN_E_DUPLICATE);
		CHECK_OK(send_typed(&scene, "a", "price.seen"), &scene.error);
		CHECK_OK(send_typed(&scene, "a", "price.seen"), &scene.error);
		CHECK_INT(scene.work.calls, 3);
	}
	scene_close(&scene);
}

static void handlers_are_guarded(void) {
	static const char *const handlers[] = { "charge" };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
		.guarded_handlers = handlers,
		.guarded_handler_count = 1,
	};
	struct scene scene;
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			add_handler(&scene, "pay", "charge", &scene.work) &&
			add_handler(&scene, "pay", "metrics", &scene.other) &&
			scene_start(&scene, true)) {
		CHECK_OK(send(&scene, "a"), &scene.error);
		CHECK_OK(send(&scene, "a"), &scene.error);
		CHECK_INT(scene.work.calls, 1);
		CHECK_INT(scene.other.calls, 2);
	}
	scene_close(&scene);
}

static void shared_marker(void) {
	struct scene scene;
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
		.marker = "payment",
	};
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			add_handler(&scene, "pay", "charge", &scene.work) &&
			add_handler(&scene, "pay", "mail", &scene.other) &&
			scene_start(&scene, true)) {
		CHECK_OK(send(&scene, "a"), &scene.error);
		CHECK_INT(send(&scene, "a"), POSTERN_E_DUPLICATE);
		CHECK_INT(scene.work.calls + scene.other.calls, 1);
	}
	scene_close(&scene);
}

static void each_handler_has_a_marker(void) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
	};
	struct scene scene;
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			add_handler(&scene, "pay", "charge", &scene.work) &&
			add_handler(&scene, "pay", "mail", &scene.other) &&
			scene_start(&scene, false)) {
		scene.other.outcome = POSTERN_RETRY;
		CHECK_INT(send(&scene, "a"), POSTERN_E_FAILED);
		CHECK_CONTAINS(scene.error.text, "handler 'mail'");
		scene.other.outcome = POSTERN_DONE;
		/* Only what failed runs again. */
		CHECK_OK(send(&scene, "a"), &scene.error);
		CHECK_INT(scene.work.calls, 1);
		CHECK_INT(scene.other.calls, 2);
		CHECK_INT(send(&scene, "a"), POSTERN_E_DUPLICATE);
	}
	scene_close(&scene);
}

static void box_without_store(void) {
	const struct postern_channel_options direct = {
		.size = sizeof direct,
		.mode = POSTERN_MODE_DIRECT,
	};
	const struct postern_channel_options guarded = {
		.size = sizeof guarded,
		.mode = POSTERN_MODE_GUARD,
	};
	const struct {
		const struct postern_channel_options *channel;
		const char *refusal;
	} rows[] = {
		{ &direct, NULL },
		{ &guarded, "has the mode guard, which needs a store" },
		{ NULL, "is an inbox, and its store keeps nothing" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct scene scene = { 0 };
		if (CHECK_OK(postern_box_open("none:", NULL, &scene.box, &scene.error),
					&scene.error) &&
				add_channel(&scene, "pay", rows[i].channel) &&
				add_handler(&scene, "pay", "charge", &scene.work)) {
			int r = postern_box_start(scene.box, &scene.error);
			CHECK_INT(r, rows[i].refusal ? POSTERN_E_UNSUPPORTED : POSTERN_OK);
			if (rows[i].refusal) {
				CHECK_CONTAINS(scene.error.text, rows[i].refusal);
			} else {
				CHECK_OK(send(&scene, "a"), &scene.error);
				CHECK_INT(scene.work.calls, 1);
			}
		}
		postern_box_destroy(scene.box);
	}
}

static void record_fault(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct work *work = context;
	const char *const expected[] = { "pay", "payment.made", "no money", "5",
		"kept" };
	(void)delivery;
	(void)outcome;
	work->calls++;
	CHECK_STR(message->id, "a");
	CHECK_STR(message->source, "pay");
	CHECK_STR(message->type, POSTERN_FAULT_TYPE);
	CHECK_INT(message->body_len, 2);
	if (CHECK_INT(message->header_count, 5)) {
		for (size_t i = 0; i < 5; i++) {
			CHECK_STR(message->headers[i].value, expected[i]);
		}
	}
}

static void fault_is_published(void) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
		.fault_channel = "faults",
	};
	const struct postern_header header = { "mine", "kept" };
	const struct postern_message message = {
		.size = sizeof message,
		.id = "a",
		.type = "payment.made",
		.body = "{}",
		.body_len = 2,
		.headers = &header,
		.header_count = 1,
	};
	struct scene scene;
	const struct postern_handler_options recorder = {
		.size = sizeof recorder,
		.key = "record",
		.callback = record_fault,
		.context = &scene.other,
	};
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			add_channel(&scene, "faults", NULL) &&
			CHECK_OK(postern_box_add_handler(scene.box, "faults", &recorder,
							 &scene.error),
					&scene.error) &&
			scene_start(&scene, false)) {
		for (int i = 0; i < 2; i++) {
			CHECK_OK(postern_box_fault(scene.box, "pay", &message, 5,
							 "no money", &scene.error),
					&scene.error);
		}
		/* A channel without a fault_channel publishes nothing. */
		CHECK_OK(postern_box_fault(scene.box, "faults", &message, 5, NULL,
						 &scene.error),
				&scene.error);
		CHECK_INT(postern_box_fault(scene.box, "none", &message, 5, NULL,
						  &scene.error),
				POSTERN_E_NOTFOUND);
		CHECK_OK(postern_box_process(scene.box, 0, NULL, &scene.error),
				&scene.error);
		CHECK_INT(scene.other.calls, 1);
	}
	scene_close(&scene);
}

static int send_body(struct scene *scene, const char *id, const char *type,
		const char *body) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.type = type,
		.body = body,
		.body_len = strlen(body),
	};
	return postern_box_accept(scene->box, "pay", &message, NULL, &scene->error);
}

static void ids_are_no_keys(void) {
	const struct postern_key_rule rules[] = { { "a", "id" },
		{ NULL, "json:/n" } };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
		.key_rules = rules,
		.key_rule_count = 2,
	};
	struct scene scene;
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			add_handler(&scene, "pay", "charge", &scene.work) &&
			scene_start(&scene, false)) {
		CHECK_OK(send_body(&scene, "7", "a", "{}"), &scene.error);
		CHECK_OK(send_body(&scene, "x", "b", "{\"n\":\"7\"}"), &scene.error);
		CHECK_INT(send_body(&scene, "y", "b", "{\"n\":\"7\"}"),
				POSTERN_E_DUPLICATE);
		CHECK_INT(send_body(&scene, "7", "a", "{}"), POSTERN_E_DUPLICATE);
		CHECK_INT(scene.work.calls, 2);
	}
	scene_close(&scene);
}

static void no_own_key_runs_again(void) {
	const struct postern_key_rule rule = { NULL, "json:/n" };
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
		.missing_key = POSTERN_MISSING_KEY_PROCESS,
	};
	struct scene scene;
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "charge",
		.callback = do_work,
		.context = &scene.work,
		.key_rules = &rule,
		.key_rule_count = 1,
	};
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			CHECK_OK(postern_box_add_handler(scene.box, "pay", &handler,
							 &scene.error),
					&scene.error) &&
			scene_start(&scene, false)) {
		CHECK_OK(send_body(&scene, "a", "t", "{}"), &scene.error);
		CHECK_OK(send_body(&scene, "a", "t", "{}"), &scene.error);
		CHECK_INT(scene.work.calls, 2);
	}
	scene_close(&scene);
}

/* A guarded handler with this policy. */
static bool open_with(struct scene *scene, const struct postern_policy *policy,
		bool runner) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
	};
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "charge",
		.callback = do_work,
		.context = &scene->work,
		.policy = policy,
	};
	return scene_open(scene, "memory") && add_channel(scene, "pay", &channel) &&
		   CHECK_OK(postern_box_add_handler(scene->box, "pay", &handler,
							&scene->error),
				   &scene->error) &&
		   scene_start(scene, runner);
}

static void has_a_deadline(void) {
	struct scene scene;
	struct postern_policy policy;
	postern_policy_init(&policy);
	policy.timeout_ms = PATIENCE_MS;
	if (open_with(&scene, &policy, false)) {
		CHECK_OK(send(&scene, "a"), &scene.error);
		CHECK(scene.work.deadline_ms > 0);
	}
	scene_close(&scene);
}

static void answered_at_the_end(void) {
	struct scene scene;
	struct postern_policy policy;
	atomic_bool hold = true;
	postern_policy_init(&policy);
	policy.lease_ms = 1;
	if (open_with(&scene, &policy, true)) {
		scene.work.hold = &hold;
		CHECK_INT(send(&scene, "a"), POSTERN_E_FAILED);
		CHECK_CONTAINS(scene.error.text, "before its lease ended");
		hold = false;
	}
	scene_close(&scene);
}

static void renamed_knows_its_markers(void) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
	};
	static const char *const legacy[] = { "charge" };
	struct scene scene;
	struct postern_generation *next = NULL;
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "bill",
		.legacy_keys = legacy,
		.legacy_key_count = 1,
		.callback = do_work,
		.context = &scene.work,
	};
	if (scene_simple(&scene, "sqlite", POSTERN_MODE_GUARD, false) &&
			CHECK_OK(send(&scene, "a"), &scene.error) &&
			CHECK_OK(postern_generation_create(scene.box, &next, &scene.error),
					&scene.error)) {
		CHECK_OK(postern_generation_add_channel(next, "pay", &channel,
						 &scene.error),
				&scene.error);
		CHECK_OK(postern_generation_add_handler(next, "pay", &handler,
						 &scene.error),
				&scene.error);
		CHECK_OK(postern_box_replace_taking(scene.box, next, &scene.error),
				&scene.error);
		CHECK_INT(send(&scene, "a"), POSTERN_E_DUPLICATE);
		CHECK_OK(send(&scene, "b"), &scene.error);
		CHECK_INT(scene.work.calls, 2);
	}
	scene_close(&scene);
}

static void full_headers_are_cut(void) {
	const struct postern_channel_options channel = {
		.size = sizeof channel,
		.mode = POSTERN_MODE_GUARD,
		.fault_channel = "faults",
	};
	/* As many bytes as a message may have: 8 times 1 + 8191. */
	char value[POSTERN_HEADER_VALUE_LEN_MAX];
	struct postern_header headers[8];
	memset(value, 'v', sizeof value - 1);
	value[sizeof value - 1] = '\0';
	for (size_t i = 0; i < 8; i++) {
		headers[i] = (struct postern_header){ "n", value };
	}
	const struct postern_message message = {
		.size = sizeof message,
		.id = "a",
		.headers = headers,
		.header_count = 8,
	};
	struct scene scene;
	struct postern_detail *detail = NULL;
	if (scene_open(&scene, "memory") && add_channel(&scene, "pay", &channel) &&
			add_channel(&scene, "faults", NULL) && scene_start(&scene, false) &&
			CHECK_OK(postern_box_fault(scene.box, "pay", &message, 5,
							 "no money", &scene.error),
					&scene.error) &&
			CHECK_OK(postern_box_get(scene.box, 1, &detail, &scene.error),
					&scene.error)) {
		/* Those of the fault, and all but one of the message. */
		CHECK_INT(detail->message->header_count, 4 + 7);
	}
	postern_detail_destroy(detail);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a guarded message runs once, and its copy is a duplicate",
			guard_once_everywhere },
	{ "the marker of a message is its id", marker_has_the_id },
	{ "what a handler answers is the answer to the sender",
			failures_are_answered },
	{ "a direct message runs each time, without a key", direct_runs_each_time },
	{ "a transactional handler commits with its marker",
			transaction_commits_with_marker },
	{ "a transactional handler needs a guard for everything",
			transactional_must_be_guarded },
	{ "a box without a store has direct channels only", box_without_store },
	{ "copies wait, and are duplicates", copies_wait },
	{ "a copy that may not wait is answered busy", busy_is_answered },
	{ "types that are guarded run once, the rest each time",
			types_are_guarded },
	{ "handlers that are guarded run once, the rest each time",
			handlers_are_guarded },
	{ "an id is no copy of the same text as another key", ids_are_no_keys },
	{ "a message without the key of its handler runs again",
			no_own_key_runs_again },
	{ "the time of a guarded run is limited", has_a_deadline },
	{ "the sender of a guarded message is answered at the end of its lease",
			answered_at_the_end },
	{ "a renamed handler knows what it has done", renamed_knows_its_markers },
	{ "a fault has as many headers of its message as there is room for",
			full_headers_are_cut },
	{ "a message that is given up is published once, with why and how often",
			fault_is_published },
	{ "a shared marker lets one handler run", shared_marker },
	{ "each handler has a marker, and only what failed runs again",
			each_handler_has_a_marker },
};

TAP_MAIN(cases)
