/* SPDX-License-Identifier: MIT */
/*
 * Files at a configured path may be missing, a directory, a FIFO without a
 * writer, an endless device. The file is opened without waiting and checked
 * through its descriptor, so that the checked file is the one that is read.
 */

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fail.h"

#define SECRET_LEN_MAX 4096
/* Leaves room for the reason in an error's text. */
#define SHOWN "'%.120s'"

static int open_regular(const char *path, int flags, int *fd_out,
		struct stat *status_out, struct postern_error *error) {
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
	if (fd < 0) {
		if (errno == ENOENT || errno == ENOTDIR) {
			return postern__fail(error, POSTERN_E_NOTFOUND, "no file " SHOWN,
					path);
		}
		if (errno == ELOOP && (flags & O_NOFOLLOW)) {
			return postern__fail(error, POSTERN_E_INVALID,
					SHOWN
					" is a symbolic link: a secret must be in a regular file",
					path);
		}
		return postern__fail(error, POSTERN_E_INVALID,
				"cannot open " SHOWN ": %s", path, strerror(errno));
	}
	const char *wrong = NULL;
	if (fstat(fd, status_out) != 0) {
		wrong = "cannot be checked";
	} else if (S_ISDIR(status_out->st_mode)) {
		wrong = "is a directory";
	} else if (!S_ISREG(status_out->st_mode)) {
		wrong = "is not a regular file";
	}
	if (wrong) {
		(void)close(fd);
		return postern__fail(error, POSTERN_E_INVALID, SHOWN " %s", path,
				wrong);
	}
	*fd_out = fd;
	return POSTERN_OK;
}

static int read_all(int fd, const char *path, size_t len_max,
		struct postern__arena *arena, char **out, size_t *len_out,
		struct postern_error *error) {
	/* One byte more, to detect a longer file; and the zero byte. */
	char *text = postern__arena_alloc(arena, len_max + 2);
	size_t len = 0;

	if (!text) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	while (len <= len_max) {
		ssize_t n = read(fd, text + len, len_max + 1 - len);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return postern__fail(error, POSTERN_E_INVALID,
					"cannot read " SHOWN ": %s", path, strerror(errno));
		}
		if (n == 0) {
			text[len] = '\0';
			*out = text;
			*len_out = len;
			return POSTERN_OK;
		}
		len += (size_t)n;
	}
	return postern__fail(error, POSTERN_E_INVALID, SHOWN " exceeds %zu bytes",
			path, len_max);
}

int postern__file_read(const char *path, size_t len_max,
		struct postern__arena *arena, char **out, size_t *len_out,
		struct postern_error *error) {
	struct stat status;
	int fd;
	int r = open_regular(path, 0, &fd, &status, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = read_all(fd, path, len_max, arena, out, len_out, error);
	(void)close(fd); /* nothing was written */
	return r;
}

static int read_line(char *text, size_t len, const char *path,
		struct postern_error *error) {
	if (memchr(text, '\0', len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				SHOWN " contains a zero byte", path);
	}
	char *end = text + strcspn(text, "\r\n");
	const char *rest = end + (end[0] == '\r' ? 1 : 0);
	rest += rest[0] == '\n' ? 1 : 0;
	if (end == text || *rest) {
		return postern__fail(error, POSTERN_E_INVALID,
				SHOWN " must contain one line", path);
	}
	*end = '\0';
	return POSTERN_OK;
}

/* Read a file that other users may not read. */
static int read_private(const char *path, int flags, size_t len_max,
		struct postern__arena *arena, char **out, size_t *len_out,
		struct postern_error *error) {
	struct stat status;
	int fd;
	int r = open_regular(path, flags, &fd, &status, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (status.st_mode & S_IROTH) {
		r = postern__fail(error, POSTERN_E_INVALID,
				SHOWN " is world-readable (mode %04o): chmod o-r", path,
				(unsigned)status.st_mode & 07777);
	} else {
		r = read_all(fd, path, len_max, arena, out, len_out, error);
	}
	(void)close(fd); /* nothing was written */
	return r;
}

int postern__key_read(const char *path, size_t len_max,
		struct postern__arena *arena, char **out, size_t *len_out,
		struct postern_error *error) {
	return read_private(path, 0, len_max, arena, out, len_out, error);
}

int postern__secret_read(const char *path, struct postern__arena *arena,
		char **out, struct postern_error *error) {
	char *text;
	size_t len;
	int r = read_private(path, O_NOFOLLOW, SECRET_LEN_MAX, arena, &text, &len,
			error);
	if (r == POSTERN_OK) {
		r = read_line(text, len, path, error);
	}
	if (r == POSTERN_OK) {
		*out = text;
	}
	return r;
}
