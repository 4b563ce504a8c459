/* SPDX-License-Identifier: MIT */

/*
 * The file and who owns it.
 *
 * A file belongs to one process at a time: the one that holds a lock on
 * FILE.lock, which has its pid in it for people to read. The name is that of
 * the file behind all symbolic links, so that two names of one file meet at
 * one lock. Of hard links no name is the real one, and SQLite finds the
 * write-ahead log by name: such a file is refused. The lock goes with the
 * open file, so the kernel gives it back when the process ends, however it
 * ends, and one process that opens a file twice meets itself. The lock file
 * stays: removing it would let two processes lock two files of one name. A
 * database is created only under the lock: if somebody removed it from under
 * its owner, a new one would meet that one's log.
 *
 * The database file itself is never opened here once it exists: closing it
 * again would drop the locks that SQLite holds on it in this process.
 */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/sqlite/sqlite.h"

/* A lock file that vanishes whenever we look is somebody's script. */
#define LOCK_TRIES 10

/* In linux/magic.h of newer kernels only. */
#define MAGIC_CIFS 0xFF534D42u
#define MAGIC_LUSTRE 0x0BD00BD0u

static int no_access(const char *what, const char *path,
		struct postern_error *error) {
	int saved = errno;
	return postern__fail(error,
			saved == ENOMEM ? POSTERN_E_NOMEM : POSTERN_E_UNAVAILABLE,
			"cannot %s '%s': %s", what, path, strerror(saved));
}

/* The directory of a path; yours to free. NULL: no memory. */
static char *directory_of(const char *path) {
	char *copy = strdup(path);
	char *directory = copy ? strdup(dirname(copy)) : NULL;
	free(copy);
	return directory;
}

/* Make what was created in the directory of this path durable. */
static int sync_directory(const char *path, struct postern_error *error) {
	char *directory = directory_of(path);
	if (!directory) {
		return postern__sqlite_no_memory(error);
	}
	int r = POSTERN_OK;
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0) {
		r = no_access("sync the directory of", path, error);
	}
	if (fd >= 0) {
		(void)close(fd); /* only read */
	}
	free(directory);
	return r;
}

/* Only for who has the lock: a new file beside the log of one that is gone
   would pass for it. */
static int create(const char *path, struct postern_error *error) {
	/* What is in messages is nobody else's business; SQLite gives its other
	   files the same mode. */
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		return errno == EEXIST ? POSTERN_OK : no_access("create", path, error);
	}
	(void)close(fd); /* nothing was written */
	postern__point("sqlite-file.created");
	return sync_directory(path, error);
}

/* The log of a database that is not there, or has nothing in it, is what is
   left of one: SQLite would drop it, and with it messages. */
static int check_log(const char *path, bool missing,
		struct postern_error *error) {
	struct stat status;
	char *log = NULL;
	int r = POSTERN_OK;
	if (asprintf(&log, "%s-wal", path) < 0) {
		return postern__sqlite_no_memory(error);
	}
	if (lstat(log, &status) == 0 && (missing || status.st_size > 0)) {
		r = postern__fail(error, POSTERN_E_CORRUPT,
				"'%s' is there but the database is %s: restore it; if that is "
				"a copy, or to begin anew, remove the log first",
				log, missing ? "not" : "empty");
	}
	free(log);
	return r;
}

/* The real path that a file which is not there will have. */
static int foresee(struct sqlite_file *file, const char *path,
		struct postern_error *error) {
	struct stat status;
	const char *slash = strrchr(path, '/');
	if (lstat(path, &status) == 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' is a symbolic link to a file that is not there", path);
	}
	char *directory = directory_of(path);
	if (!directory) {
		return postern__sqlite_no_memory(error);
	}
	char *real = realpath(directory, NULL);
	free(directory);
	if (!real) {
		return no_access("create", path, error);
	}
	free(file->path);
	int len = asprintf(&file->path, "%s/%s", strcmp(real, "/") == 0 ? "" : real,
			slash ? slash + 1 : path);
	free(real);
	if (len < 0) {
		file->path = NULL;
		return postern__sqlite_no_memory(error);
	}
	return POSTERN_OK;
}

/* The file has a path afterwards, but only a real one, and an inode, if it is
   there. */
static int find(struct sqlite_file *file, const char *path,
		const struct postern_store_options *options, bool *missing_out,
		struct postern_error *error) {
	struct stat status;
	*missing_out = false;
	if (stat(path, &status) < 0) {
		if (errno != ENOENT) {
			return no_access("open", path, error);
		}
		int r = check_log(path, true, error);
		if (r == POSTERN_OK && (options->must_exist || options->read_only)) {
			r = postern__fail(error, POSTERN_E_NOTFOUND,
					"there is no file '%s'", path);
		}
		*missing_out = true;
		return r == POSTERN_OK ? foresee(file, path, error) : r;
	}
	if (!S_ISREG(status.st_mode)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' is not a regular file", path);
	}
	if (status.st_nlink > 1) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' has %lu hard links; its write-ahead log would be found "
				"under one of them only",
				path, (unsigned long)status.st_nlink);
	}
	char *real = realpath(path, NULL);
	if (!real) {
		return no_access("resolve", path, error);
	}
	free(file->path);
	file->path = real;
	file->device = status.st_dev;
	file->inode = status.st_ino;
	return POSTERN_OK;
}

/* Locks of network file systems are not to be trusted, and the shared memory
   of the write-ahead log does not work across machines. */
static int check_file_system(const char *path, struct postern_error *error) {
	struct statfs status;
	if (statfs(path, &status) < 0) {
		return no_access("examine", path, error);
	}
	switch ((unsigned long)status.f_type) {
	case NFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case MAGIC_CIFS:
	case MAGIC_LUSTRE:
	case AFS_SUPER_MAGIC:
	case AFS_FS_MAGIC:
	case CODA_SUPER_MAGIC:
	case NCP_SUPER_MAGIC:
	case CEPH_SUPER_MAGIC:
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' is on a network file system, where SQLite is not safe; "
				"use a local disk",
				path);
	default: return POSTERN_OK;
	}
}

/* The same for a file that is not there yet. */
static int check_directory(const char *path, struct postern_error *error) {
	char *directory = directory_of(path);
	int r = directory ? check_file_system(directory, error)
					  : postern__sqlite_no_memory(error);
	free(directory);
	return r;
}

static int busy(const struct sqlite_file *file, int fd,
		struct postern_error *error) {
	char text[16] = "";
	ssize_t len = pread(fd, text, sizeof text - 1, 0);
	char *end = text;
	long pid = len > 0 ? strtol(text, &end, 10) : 0;
	if (pid <= 0 || *end != '\n') {
		/* It has the lock and has not said who it is yet. */
		return postern__fail(error, POSTERN_E_BUSY,
				"'%s' is in use by another process", file->path);
	}
	return postern__fail(error, POSTERN_E_BUSY, "'%s' is in use by process %ld",
			file->path, pid);
}

/* Whether the open file is still the one with this name. */
static bool is_still(int fd, const char *path) {
	struct stat ours;
	struct stat named;
	return fstat(fd, &ours) == 0 && stat(path, &named) == 0 &&
		   ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

static int sign(const struct sqlite_file *file, int fd,
		struct postern_error *error) {
	char text[16];
	int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len) {
		return no_access("write", file->lock_path, error);
	}
	return POSTERN_OK;
}

static int lock(struct sqlite_file *file, struct postern_error *error) {
	if (asprintf(&file->lock_path, "%s.lock", file->path) < 0) {
		file->lock_path = NULL;
		return postern__sqlite_no_memory(error);
	}
	for (int i = 0; i < LOCK_TRIES; i++) {
		int fd = open(file->lock_path,
				O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0) {
			return no_access("open", file->lock_path, error);
		}
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			int r = errno == EWOULDBLOCK
							? busy(file, fd, error)
							: no_access("lock", file->lock_path, error);
			(void)close(fd); /* only read */
			return r;
		}
		file->lock_fd = fd;
		postern__point("sqlite-file.locked");
		if (is_still(fd, file->lock_path)) {
			return sign(file, fd, error);
		}
		(void)close(fd); /* somebody removed it; once more */
		file->lock_fd = -1;
	}
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"cannot lock '%s': somebody keeps removing it", file->lock_path);
}

static int check_content(const char *path, struct postern_error *error) {
	struct stat status;
	if (stat(path, &status) < 0) {
		return no_access("examine", path, error);
	}
	return status.st_size == 0 ? check_log(path, false, error) : POSTERN_OK;
}

int postern__sqlite_file_open(struct sqlite_file *file, const char *path,
		const struct postern_store_options *options,
		struct postern_error *error) {
	bool missing;
	int r = find(file, path, options, &missing, error);
	if (r != POSTERN_OK || options->read_only) {
		return r;
	}
	r = missing ? check_directory(file->path, error)
				: check_file_system(file->path, error);
	if (r == POSTERN_OK) {
		r = lock(file, error);
	}
	if (r == POSTERN_OK && missing) {
		r = create(file->path, error);
		if (r == POSTERN_OK) {
			r = find(file, path, options, &missing, error);
		}
	}
	/* It may have been replaced while we looked at it. */
	if (r == POSTERN_OK) {
		r = postern__sqlite_file_check(file, error);
	}
	return r == POSTERN_OK ? check_content(file->path, error) : r;
}

int postern__sqlite_file_check(const struct sqlite_file *file,
		struct postern_error *error) {
	struct stat status;
	if (stat(file->path, &status) < 0) {
		if (errno == ENOENT) {
			return postern__fail(error, POSTERN_E_UNAVAILABLE,
					"'%s' was removed while it was in use", file->path);
		}
		return no_access("examine", file->path, error);
	}
	if (status.st_dev != file->device || status.st_ino != file->inode) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' was replaced while it was in use", file->path);
	}
	return POSTERN_OK;
}

bool postern__sqlite_file_owned(const struct sqlite_file *file) {
	char text[16] = "";
	char *path = NULL;
	if (file->lock_fd >= 0) {
		return true;
	}
	int fd = -1;
	if (asprintf(&path, "%s.lock", file->path) >= 0) {
		fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		free(path);
	}
	/* Trying the lock itself would keep others from taking it. */
	long pid = fd >= 0 && read(fd, text, sizeof text - 1) > 0
					   ? strtol(text, NULL, 10)
					   : 0;
	if (fd >= 0) {
		(void)close(fd); /* it was only read */
	}
	return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

bool postern__sqlite_file_immutable(const struct sqlite_file *file) {
	struct statvfs system;
	struct stat status;
	char *log = NULL;
	if (statvfs(file->path, &system) < 0 || !(system.f_flag & ST_RDONLY) ||
			asprintf(&log, "%s-wal", file->path) < 0) {
		return false;
	}
	bool has_log = stat(log, &status) == 0 && status.st_size > 0;
	free(log);
	return !has_log;
}

void postern__sqlite_file_close(struct sqlite_file *file) {
	if (file->lock_fd >= 0) {
		/* The pid is for people; one that is left behind does no harm. */
		int ignored = ftruncate(file->lock_fd, 0);
		(void)ignored;
		(void)close(file->lock_fd); /* gives the lock back */
		file->lock_fd = -1;
	}
	free(file->lock_path);
	free(file->path);
	file->lock_path = NULL;
	file->path = NULL;
}
