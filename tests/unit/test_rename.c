/* SPDX-License-Identifier: MIT */
/* A channel gets another name, or leaves the configuration, in a file. */

#include "rename.h"

#include "support/fake_clock.h"
#include "support/temp_dir.h"

static struct temp_dir dir;
static struct fake_clock fake;
static int files;

static const char *scene_url(void) {
	static char url[1100];
	char name[32];
	(void)snprintf(name, sizeof(name), "%d.db", files++);
	temp_dir_name(&dir, "sqlite:", name, url, sizeof(url));
	return url;
}

static const char *scene_schema(void) {
	return NULL;
}

static const struct postern_clock *scene_clock(void) {
	return &fake.base;
}

static void rules_outlive_the_channel(void) {
	const char *url = scene_url();
	struct postern_error error;
	struct postern_cleanup cleaned = { .size = sizeof(cleaned) };
	int runs = 0;
	struct postern_box *box = start_box(url, "orders", NULL, 1000, &runs);
	CHECK_INT(send_to(box, "orders", "a", NULL), POSTERN_OK);
	CHECK_INT(process(box), 1);
	CHECK_INT(send_to(box, "orders", "open", NULL), POSTERN_OK);
	postern_box_destroy(box);

	fake_clock_advance(&fake, 2000);
	box = start_box(url, "bills", NULL, 0, &runs);
	CHECK_OK(postern_box_cleanup(box, &cleaned, &error), &error);
	CHECK_INT(cleaned.messages, 1);
	postern_box_destroy(box);

	/* Once a node has the channel, the rules of that node count. */
	box = start_box(url, "orders", NULL, 0, &runs);
	CHECK_INT(process(box), 1);
	fake_clock_advance(&fake, 2000);
	CHECK_OK(postern_box_cleanup(box, &cleaned, &error), &error);
	CHECK_INT(cleaned.messages, 0);
	postern_box_destroy(box);
}

static const struct tap_case cases[] = {
	RENAME_CASES,
	{ "a channel that left is cleaned up by its last rules",
			rules_outlive_the_channel },
};

int main(int argc, char **argv) {
	temp_dir_create(&dir);
	fake_clock_init(&fake);
	int r = tap_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
	temp_dir_destroy(&dir);
	return r;
}
