/* SPDX-License-Identifier: MIT */
/* Generations replaced in a box in memory and in a file. */

#include "generations.h"

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

static const struct tap_case both[] = { GENERATION_CASES,
	{ "the same in a file", all_in_a_file } };

TAP_MAIN(both)
