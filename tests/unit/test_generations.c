/* SPDX-License-Identifier: MIT */
/* Generations replaced in a box in memory and in a file. */

#include "generations.h"

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
	struct postern_store *store = NULL;
	replacement = NULL;
	if (!CHECK_OK(postern_store_open("memory:", NULL, &store, &scene.error),
				&scene.error)) {
		return;
	}
	CHECK_OK(postern_box_open_taking(fault_store_create_taking(store, &plan),
					 NULL, &scene.box, &scene.error),
			&scene.error);
	CHECK_OK(postern_box_add_channel(scene.box, "c", NULL, &scene.error),
			&scene.error);
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

static const struct tap_case both[] = { GENERATION_CASES,
	{ "a lease that is granted to an old generation late is returned",
			late_lease_is_returned },
	{ "the same in a file", all_in_a_file } };

TAP_MAIN(both)
