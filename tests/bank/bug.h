/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_BANK_BUG_H
#define POSTERN_TESTS_BANK_BUG_H

/*
 * How the patches of the bug bank ask which bug is chosen. The compiler puts
 * this header before every file of the patched copy (-include); the product
 * never sees it.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether POSTERN_BUG chooses this bug. */
static inline bool postern__bug(const char *name) {
	const char *chosen = getenv("POSTERN_BUG");
	return chosen && strcmp(chosen, name) == 0;
}

/* The same as an SQL condition; test_bank.py sets postern.bug by PGOPTIONS. */
#define postern__bug_sql(name) \
	"(coalesce(current_setting('postern.bug', true), '') = '" name "')"

/*
 * The schema of the chosen bug if the bug has a patch of the SQL files, else
 * the schema that was passed. patches.py writes them as NAME.sql into the
 * directory that POSTERN_BUG_SCHEMAS names.
 */
static inline const char *postern__bug_schema(const char *schema) {
	static char text[1 << 20];
	const char *chosen = getenv("POSTERN_BUG");
	const char *folder = getenv("POSTERN_BUG_SCHEMAS");
	char path[4096];
	if (!chosen || !folder) {
		return schema;
	}
	(void)snprintf(path, sizeof path, "%s/%s.sql", folder, chosen);
	FILE *file = fopen(path, "r");
	if (!file) {
		return schema;
	}
	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	(void)fclose(file);
	return text;
}

#endif
