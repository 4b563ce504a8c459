/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_TEMP_DIR_H
#define POSTERN_TESTS_TEMP_DIR_H

/*
 * A private directory for a test, under $TMPDIR or /tmp. The process aborts if
 * it cannot be created.
 */

#include <stddef.h>

#define TEMP_DIR_PATH_MAX 256

struct temp_dir {
	char path[TEMP_DIR_PATH_MAX];
};

void temp_dir_create(struct temp_dir *dir);
/* Removes the directory and its content. */
void temp_dir_destroy(struct temp_dir *dir);
/* "<prefix><path of dir>/<name>" into out. */
void temp_dir_name(const struct temp_dir *dir, const char *prefix,
		const char *name, char *out, size_t size);

#endif
