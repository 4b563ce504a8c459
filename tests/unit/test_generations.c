/* SPDX-License-Identifier: MIT */
/* Generations replaced in a box in memory and in a file. */

#include "generations.h"

#include <postern/event.h>

#include "support/fault_store.h"
#include "support/temp_dir.h"

static struct temp_dir dir;
static char url[TEMP_DIR_PATH_MAX + 32];
static int opened;

/* Each case runs twice: in memory, then in a file. */
static bool in_file;

static const char *scene_url(void) {
	char name[16];
	if (!in_file) {
		return "memory:";
	}
	(void)snprintf(name, sizeof(name), "%d.db", opened++);
	temp_dir_name(&dir, "sqlite:", name, url, sizeof(url));
	return url;
}

static const char *scene_schema(void) {
	return NULL;
}

static int scene_swaps(void) {
	return in_file ? 200 : 1000;
}

static const struct tap_case cases[] = { GENERATION_CASES };

static void all_in_a_file(void) {
	in_file = true;
	temp_dir_create(&dir);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cases[i].run();
	}
	temp_dir_destroy(&dir);
}

/* Opens a box with the channel "c" on a store that fails as planned. */
static bool open_on_faults(struct scene *scene, struct fault_plan *plan) {
	struct postern_store *store = NULL;
	memset(scene, 0, sizeof(*scene));
	return CHECK_OK(postern_store_open("memory:", NULL, &store, &scene->error),
				   &scene->error) &&
		   CHECK_OK(postern_box_open_taking(fault_store_create_taking(store,
													plan),
							NULL, &scene->box, &scene->error),
				   &scene->error) &&
		   CHECK_OK(postern_box_add_channel(scene->box, "c", NULL,
							&scene->error),
				   &scene->error);
}

/* Replaces the generation when the store has answered the first claim. */
static struct role *replacement;

static int replace_after_claim(void *context, enum fault_op op) {
	struct scene *scene = context;
	if (op == FAULT_CLAIM && !replacement) {
		struct postern_generation *next = next_generation(scene);
		replacement = next_role(scene, next, "h", NULL, NULL);
		put_in_place(scene, next);
	}
	return POSTERN_OK;
}

static void late_lease_is_returned(void) {
	struct scene scene = { 0 };
	struct fault_plan plan = { .decide_after = replace_after_claim,
		.context = &scene };
	replacement = NULL;
	if (!open_on_faults(&scene, &plan)) {
		return;
	}
	const struct role *old = scene_first(&scene, "h", NULL);
	scene_start(&scene, false);
	CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
	size_t ran = 0;
	CHECK_OK(postern_box_claim(scene.box, 10, NULL, &scene.error),
			&scene.error);
	CHECK_OK(postern_box_run(scene.box, 10, &ran, &scene.error), &scene.error);
	CHECK_INT(ran, 0);
	scene_process(&scene);
	CHECK_INT(old->runs, 0);
	CHECK_INT(replacement->runs, 1);
	postern_box_destroy(scene.box);
}

/* The code with which the next enrolment fails, once. */
static int enrol_code;

static int fail_enrol(void *context, enum fault_op op,
		const struct postern_batch *batch) {
	(void)context;
	(void)batch;
	int code = op == FAULT_ENROL ? enrol_code : POSTERN_OK;
	if (code) {
		enrol_code = POSTERN_OK;
	}
	return code;
}

static int lose_enrol_reply(void *context, enum fault_op op) {
	return fail_enrol(context, op, NULL);
}

/* A generation without a handler parks a message when it was replaced by one
   with the handler "h", which is returned. */
static const struct role *park_late(struct scene *scene,
		struct fault_plan *plan) {
	enrol_code = POSTERN_OK;
	if (!open_on_faults(scene, plan)) {
		return NULL;
	}
	scene_start(scene, false);
	struct postern_message message = {
		.size = sizeof(message),
		.id = "1",
		.type = "t",
	};
	CHECK_OK(postern_box_accept_async(scene->box, "c", &message, NULL, NULL,
					 &scene->error),
			&scene->error);
	struct postern_generation *next = next_generation(scene);
	const struct role *role = next_role(scene, next, "h", NULL, NULL);
	put_in_place(scene, next);
	CHECK_OK(postern_box_commit(scene->box, NULL, &scene->error),
			&scene->error);
	CHECK_INT(open_of(scene, "h"), 0);
	return role;
}

static void failed_replacement_unparks(void) {
	struct scene scene;
	struct fault_plan plan = { .decide = fail_enrol };
	const struct role *role = park_late(&scene, &plan);
	if (role) {
		enrol_code = POSTERN_E_UNAVAILABLE;
		CHECK_INT(postern_box_replace_taking(scene.box, next_generation(&scene),
						  &scene.error),
				POSTERN_E_UNAVAILABLE);
		scene_process(&scene);
		CHECK_INT(role->runs, 1);
		postern_box_destroy(scene.box);
	}
}

static void expired_node_unparks(void) {
	struct scene scene;
	struct fault_plan plan = { .decide = fail_enrol };
	const struct role *role = park_late(&scene, &plan);
	if (role) {
		enrol_code = POSTERN_E_STALE;
		scene_process(&scene);
		CHECK_INT(enrol_code, POSTERN_OK);
		CHECK_INT(role->runs, 1);
		postern_box_destroy(scene.box);
	}
}

static void lost_reply_is_repaired(void) {
	struct scene scene;
	struct fault_plan plan = { .decide_after = lose_enrol_reply };
	enrol_code = POSTERN_OK;
	if (open_on_faults(&scene, &plan)) {
		scene_start(&scene, false);
		struct postern_generation *next = next_generation(&scene);
		(void)next_role(&scene, next, "h", NULL, NULL);
		enrol_code = POSTERN_E_UNAVAILABLE;
		CHECK_INT(postern_box_replace_taking(scene.box, next, &scene.error),
				POSTERN_E_UNAVAILABLE);
		unsigned before = plan.calls[FAULT_ENROL];
		for (int i = 0; i < 2; i++) {
			CHECK_OK(postern_box_sweep(scene.box, NULL, &scene.error),
					&scene.error);
			CHECK_INT(plan.calls[FAULT_ENROL], before + 1);
		}
		postern_box_destroy(scene.box);
	}
}

static void expired_node_cannot_replace(void) {
	struct scene scene;
	struct fault_plan plan = { .decide = fail_enrol };
	enrol_code = POSTERN_OK;
	if (open_on_faults(&scene, &plan)) {
		const struct role *old = scene_first(&scene, "h", NULL);
		scene_start(&scene, false);
		struct postern_generation *next = next_generation(&scene);
		(void)next_role(&scene, next, "h", NULL, NULL);
		enrol_code = POSTERN_E_STALE;
		CHECK_INT(postern_box_replace_taking(scene.box, next, &scene.error),
				POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(scene.error.text, "lease has expired");
		CHECK_INT(scene_send(&scene, "t", "1"), POSTERN_OK);
		scene_process(&scene);
		CHECK_INT(old->runs, 1);
		scene_close(&scene);
	}
}

static void record_configured(void *context,
		const struct postern_event *event) {
	struct postern_event *last = context;
	if (event->kind == POSTERN_EVENT_CONFIGURED) {
		CHECK_INT(event->size, sizeof(*event));
		CHECK_INT(last->count, 0);
		last->count = event->count;
	}
}

static void replacement_is_an_event(void) {
	struct scene scene;
	struct postern_event last = { 0 };
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		CHECK_OK(postern_box_subscribe(scene.box, 0, record_configured, &last,
						 &scene.error),
				&scene.error);
		scene_start(&scene, false);
		CHECK_INT(last.count, 0);
		struct postern_generation *next = next_generation(&scene);
		(void)next_role(&scene, next, "a", NULL, NULL);
		(void)next_role(&scene, next, "b", NULL, NULL);
		put_in_place(&scene, next);
		CHECK_INT(last.count, 2);
		scene_close(&scene);
	}
}

/* What the start refuses, a replacement refuses too. */
static void channel_without_inbox_is_refused(void) {
	struct scene scene = { 0 };
	struct postern_box_options options = {
		.size = sizeof(options),
		.require_inbox = POSTERN_REQUIRE_INBOX_FAIL,
	};
	struct postern_channel_options channel = {
		.size = sizeof(channel),
		.without_inbox = true,
	};
	struct postern_generation *next = NULL;
	CHECK_OK(postern_box_open("memory:", &options, &scene.box, &scene.error),
			&scene.error);
	scene_start(&scene, false);
	CHECK_OK(postern_generation_create(scene.box, &next, &scene.error),
			&scene.error);
	CHECK_OK(postern_generation_add_channel(next, "c", &channel, &scene.error),
			&scene.error);
	CHECK_INT(postern_box_replace_taking(scene.box, next, &scene.error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "require_inbox");
	postern_box_destroy(scene.box);
}

static int add_keys(struct scene *scene, struct postern_generation *next,
		const char *key, const char *const *legacy, size_t legacy_count) {
	struct postern_handler_options options = {
		.size = sizeof(options),
		.key = key,
		.legacy_keys = legacy,
		.legacy_key_count = legacy_count,
		.callback = run_role,
	};
	return postern_generation_add_handler(next, "c", &options, &scene->error);
}

static void counts_are_limited(void) {
	struct scene scene;
	char name[16];
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		struct postern_generation *next = next_generation(&scene);
		for (int i = 1; i < POSTERN_CHANNEL_COUNT_MAX; i++) {
			(void)snprintf(name, sizeof(name), "c%d", i);
			CHECK_OK(postern_generation_add_channel(next, name, NULL,
							 &scene.error),
					&scene.error);
		}
		CHECK_INT(postern_generation_add_channel(next, "more", NULL,
						  &scene.error),
				POSTERN_E_INVALID);
		CHECK_STR(scene.error.text, "more than 1000 channels");
		for (int i = 0; i < POSTERN_HANDLER_COUNT_MAX; i++) {
			(void)snprintf(name, sizeof(name), "h%d", i);
			CHECK_INT(add_keys(&scene, next, name, NULL, 0), POSTERN_OK);
		}
		CHECK_INT(add_keys(&scene, next, "more", NULL, 0), POSTERN_E_INVALID);
		CHECK_STR(scene.error.text, "more than 1000 handlers");
		postern_generation_destroy(next);
		scene_close(&scene);
	}
}

static void keys_are_unique(void) {
	static const char *const many[POSTERN_LEGACY_KEY_COUNT_MAX + 1] = { "1",
		"2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14",
		"15", "16", "17" };
	static const struct {
		const char *key;
		const char *legacy[3];
		const char *error;
	} rows[] = {
		{ "h", { NULL }, "'h' is already used" },
		{ "old", { NULL }, "'old' is already used" },
		{ "i", { "h" }, "'h' is already used" },
		{ "i", { "j", "old" }, "'old' is already used" },
		{ "i", { "i" }, "names the key 'i' twice" },
		{ "i", { "j", "k", "j" }, "names the key 'j' twice" },
	};
	struct scene scene;
	if (scene_open(&scene, POSTERN_ORPHANS_HOLD)) {
		struct postern_generation *next = next_generation(&scene);
		static const char *const old[] = { "old" };
		CHECK_INT(add_keys(&scene, next, "h", old, 1), POSTERN_OK);
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			size_t count = 0;
			while (count < 3 && rows[i].legacy[count]) {
				count++;
			}
			CHECK_INT(add_keys(&scene, next, rows[i].key, rows[i].legacy,
							  count),
					POSTERN_E_INVALID);
			CHECK_CONTAINS(scene.error.text, rows[i].error);
		}
		CHECK_INT(add_keys(&scene, next, "i", many,
						  POSTERN_LEGACY_KEY_COUNT_MAX + 1),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(scene.error.text, "more than 16 legacy keys");
		CHECK_INT(add_keys(&scene, next, "i", many,
						  POSTERN_LEGACY_KEY_COUNT_MAX),
				POSTERN_OK);
		postern_generation_destroy(next);
		scene_close(&scene);
	}
}

static const struct tap_case both[] = { GENERATION_CASES,
	{ "a lease that is granted to an old generation late is returned",
			late_lease_is_returned },
	{ "what an old generation parked is unparked though a later one failed",
			failed_replacement_unparks },
	{ "what an old generation parked is unparked by an expired node too",
			expired_node_unparks },
	{ "a failed replacement that took effect is registered no longer",
			lost_reply_is_repaired },
	{ "an expired node cannot replace its generation",
			expired_node_cannot_replace },
	{ "a replacement is an event with the number of handlers",
			replacement_is_an_event },
	{ "a replacement refuses what the start refuses",
			channel_without_inbox_is_refused },
	{ "the numbers of channels and handlers are limited", counts_are_limited },
	{ "keys and legacy keys are unique", keys_are_unique },
	{ "the same in a file", all_in_a_file } };

TAP_MAIN(both)
