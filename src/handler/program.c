/* SPDX-License-Identifier: MIT */
/*
 * Whether a program can be run, and whether it should: one that everybody may
 * change runs everybody's code with our rights. Groups are let through, for
 * /usr/local/bin is writable by one on Debian, and whoever is in a group was
 * put there.
 *
 * Looked at when a handler is made and again before every run. That is no
 * guard against someone who may change it: it is for finding a mistake.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "handler/kinds.h"

/* The directory that holds `path`, which is absolute. */
static int check_directory(const char *path, struct postern_error *error) {
	char directory[PATH_MAX];
	struct stat status;
	size_t len = (size_t)(strrchr(path, '/') - path);

	len = len == 0 ? 1 : len; /* the root itself */
	if (len >= sizeof directory) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the program's path is over %d bytes", PATH_MAX - 1);
	}
	memcpy(directory, path, len);
	directory[len] = '\0';
	if (stat(directory, &status) < 0) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "cannot run '%s': %s",
				path, strerror(errno));
	}
	/* In a sticky one, like /tmp, a file is changed only by its owner. */
	if ((status.st_mode & S_IWOTH) && !(status.st_mode & S_ISVTX)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"everyone may replace '%s': its directory '%s' is writable by "
				"others",
				path, directory);
	}
	return POSTERN_OK;
}

int postern__exec_check(const char *program, struct postern_error *error) {
	struct stat status;
	char *target = NULL;
	int r = check_directory(program, error);

	if (r != POSTERN_OK) {
		goto out;
	}
	target = realpath(program, NULL);
	if (!target || stat(target, &status) < 0) {
		r = postern__fail(error, POSTERN_E_NOTFOUND, "cannot run '%s': %s",
				program, strerror(errno));
		goto out;
	}
	r = check_directory(target, error);
	if (r != POSTERN_OK) {
		goto out;
	}
	if (!S_ISREG(status.st_mode)) {
		r = postern__fail(error, POSTERN_E_NOTFOUND,
				"cannot run '%s': it is not a file", program);
	} else if (status.st_mode & S_IWOTH) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"everyone may change '%s': it is writable by others", program);
	} else if (faccessat(AT_FDCWD, target, X_OK, AT_EACCESS) < 0) {
		r = postern__fail(error, POSTERN_E_NOTFOUND,
				"cannot run '%s': it is not executable for us", program);
	}
out:
	free(target);
	return r;
}
