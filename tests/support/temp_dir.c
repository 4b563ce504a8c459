/* SPDX-License-Identifier: MIT */

/*
 * Private directories for tests.
 */

#include "support/temp_dir.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void temp_dir_name(const struct temp_dir *dir, const char *prefix,
		const char *name, char *out, size_t size) {
	int len = snprintf(out, size, "%s%s/%s", prefix, dir->path, name);
	if (len < 0 || (size_t)len >= size) {
		(void)fprintf(stderr, "the path of a temporary file is too long\n");
		abort();
	}
}

void temp_dir_create(struct temp_dir *dir) {
	const char *parent = getenv("TMPDIR");
	int len = snprintf(dir->path, sizeof dir->path, "%s/postern-test-XXXXXX",
			parent && parent[0] ? parent : "/tmp");
	if (len < 0 || (size_t)len >= sizeof dir->path || !mkdtemp(dir->path)) {
		perror("cannot create a temporary directory");
		abort();
	}
}

static int remove_one(const char *path, const struct stat *status, int kind,
		struct FTW *place) {
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

void temp_dir_destroy(struct temp_dir *dir) {
	if (nftw(dir->path, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0) {
		perror("cannot remove a temporary directory");
	}
}
