/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_CONFIG_BAD_H
#define POSTERN_TESTS_CONFIG_BAD_H

/* Configurations that are refused, and their errors. */

#include <string.h>

#include "server/config.h"
#include "store_urls.h"
#include "tap.h"

struct bad {
	const char *text;
	const char *error;
};

static void check_bad(const char *text, size_t len, const char *expected) {
	struct postern__config *config = NULL;
	struct postern_error error = { 0 };
	int r = postern__config_parse("f", text, len, NULL, &config, &error);
	if (r == POSTERN_OK) {
		FAIL("not refused: %s", text);
		postern__config_destroy(config);
		return;
	}
	CHECK_INT(r, POSTERN_E_INVALID);
	CHECK_INT(error.code, POSTERN_E_INVALID);
	CHECK_STR(error.text, expected);
	/* The same without an error struct. */
	CHECK_INT(postern__config_parse("f", text, len, NULL, &config, NULL), r);
}

static void check_table(const struct bad *table, size_t count) {
	for (size_t i = 0; i < count; i++) {
		check_bad(table[i].text, strlen(table[i].text), table[i].error);
	}
}

#define CHECK_TABLE(table) check_table(table, sizeof table / sizeof table[0])

#endif
