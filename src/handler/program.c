/* SPDX-License-Identifier: MIT */
/*
 * Whether a program can be run, and whether it is safe: a program that every
 * user may change runs any user's code with the rights of this process. Group
 * write permission is accepted, because /usr/local/bin has it on Debian, and
 * the members of a group are trusted.
 *
 * Checked when a handler is created and again before every run. The check finds
 * mistakes; it does not protect against a user who may change the program.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "handler/kinds.h"

/* As much of a script's first line as the kernel reads. */
#define FIRST_LINE_LEN_MAX 255

enum postern_outcome_kind postern__exec_outcome_of(int number) {
	switch (number) {
	case E2BIG: return POSTERN_RETRY;
	case EAGAIN:
	case EINTR:
	case EIO:
	case EMFILE:
	case ENFILE:
	case ENOMEM: return POSTERN_SNOOZE;
	default: return POSTERN_HOLD;
	}
}

int postern__exec_interpreter(const char *program, char *out, size_t size) {
	char line[FIRST_LINE_LEN_MAX + 1];
	int fd = open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t len = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
	if (fd >= 0) {
		(void)close(fd); /* it was only read */
	}
	if (len < 2 || line[0] != '#' || line[1] != '!') {
		return POSTERN_E_NOTFOUND;
	}
	line[len] = '\0';
	const char *name = line + 2 + strspn(line + 2, " \t");
	(void)snprintf(out, size, "%.*s", (int)strcspn(name, " \t\n"), name);
	return POSTERN_OK;
}

static int fail_path(const char *path, int number,
		struct postern_error *error) {
	return postern__fail(error,
			postern__exec_outcome_of(number) == POSTERN_SNOOZE
					? POSTERN_E_UNAVAILABLE
					: POSTERN_E_NOTFOUND,
			"cannot run '%s': %s", path, strerror(number));
}

/* The directory that holds `path`, which is absolute. */
static int check_directory(const char *path, struct postern_error *error) {
	char directory[PATH_MAX];
	struct stat status;
	size_t len = (size_t)(strrchr(path, '/') - path);

	len = len == 0 ? 1 : len; /* the root itself */
	if (len >= sizeof directory) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the program's path exceeds %d bytes", PATH_MAX - 1);
	}
	memcpy(directory, path, len);
	directory[len] = '\0';
	if (stat(directory, &status) < 0) {
		return fail_path(path, errno, error);
	}
	/* In a sticky directory, such as /tmp, only its owner can replace a
	   file. */
	if ((status.st_mode & S_IWOTH) && !(status.st_mode & S_ISVTX)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' can be replaced by any user: directory '%s' is "
				"world-writable",
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
		r = fail_path(program, errno, error);
		goto out;
	}
	r = check_directory(target, error);
	if (r != POSTERN_OK) {
		goto out;
	}
	if (!S_ISREG(status.st_mode)) {
		r = postern__fail(error, POSTERN_E_NOTFOUND,
				"cannot run '%s': not a regular file", program);
	} else if (status.st_mode & S_IWOTH) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"'%s' can be changed by any user: it is world-writable",
				program);
	} else if (faccessat(AT_FDCWD, target, X_OK, AT_EACCESS) < 0) {
		r = postern__fail(error, POSTERN_E_NOTFOUND,
				"cannot run '%s': not executable by this user", program);
	}
out:
	free(target);
	return r;
}
