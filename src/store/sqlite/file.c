/* SPDX-License-Identifier: MIT */

/*
 * The file and its owner.
 *
 * A file belongs to one process at a time: the one that holds two locks. The
 * first is on FILE.lock, which contains the owner's pid for people and commands
 * to read. FILE is the name behind all symbolic links, so that two names of one
 * file lead to one lock. Hard links have no such name, and SQLite finds the
 * write-ahead log by name: a file with several is refused. The lock file is
 * never removed: that would let two processes lock two files of one name. A
 * database is created only under that lock: if it was removed while its owner
 * has it open, a new database would be combined with the old one's log.
 *
 * People do remove a "stale" lock file. So the second lock is on the database
 * itself, which nobody can remove and still have a store: every process that
 * opens the same database finds it, whatever happened to FILE.lock. It is a
 * lock of an open file description (F_OFD_SETLK) on a byte far behind those
 * that SQLite locks (0x40000000 to 0x400001ff) and behind the end of any file.
 * A POSIX lock is not sufficient: it belongs to the process, so it is lost when
 * SQLite, or anything else in the process, closes any descriptor of the file,
 * and it does not exclude a second opening in the same process. For the same
 * reason this descriptor is closed after all connections: closing it releases
 * SQLite's POSIX locks. (If a process removes the lock file of its own store
 * and opens the store again, its first connections lose their POSIX locks.
 * These keep other programs from removing the log, which watch.c detects.)
 *
 * Both locks belong to open files, so the kernel releases them when the process
 * ends, however it ends, and a process cannot open a file twice.
 *
 * A store that was removed differs from one that never existed by its log, its
 * index, and a second line in FILE.lock, which is there from when the store is
 * open until it is closed with the database in its place.
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

/* If the lock file disappears this often, some script removes it. */
#define LOCK_TRIES 10

/* The byte of the database that is locked. */
#define LOCK_BYTE (INT64_C(1) << 62)

/* What follows the pid in the lock file of an open store. */
#define MARK "\nopen\n"
#define LOCK_TEXT_MAX 32

/* Only newer kernels have these in linux/magic.h. */
#define MAGIC_CIFS 0xFF534D42u
#define MAGIC_LUSTRE 0x0BD00BD0u

static int access_fail(const char *what, const char *path,
		struct postern_error *error) {
	int saved = errno;
	return postern__fail(error,
			saved == ENOMEM ? POSTERN_E_NOMEM : POSTERN_E_UNAVAILABLE,
			"cannot %s '%s': %s", what, path, strerror(saved));
}

/* The directory of a path; the caller frees it. NULL: out of memory. */
static char *directory_of(const char *path) {
	char *copy = strdup(path);
	char *directory = copy ? strdup(dirname(copy)) : NULL;
	free(copy);
	return directory;
}

/* Syncs the directory of this path, so that a file created there is durable. */
static int sync_directory(const char *path, struct postern_error *error) {
	char *directory = directory_of(path);
	if (!directory) {
		return postern__sqlite_no_memory(error);
	}
	int r = POSTERN_OK;
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0) {
		r = access_fail("sync the directory of", path, error);
	}
	if (fd >= 0) {
		(void)close(fd); /* only read */
	}
	free(directory);
	return r;
}

/* Only under the lock: SQLite would combine a new file with the log of a
   removed one. */
static int database_create(const char *path, struct postern_error *error) {
	/* Messages are private; SQLite gives its other files the same mode. */
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		return errno == EEXIST ? POSTERN_OK
							   : access_fail("create", path, error);
	}
	(void)close(fd); /* nothing was written */
	postern__point("sqlite-file.created");
	return sync_directory(path, error);
}

/* Fails if files of a missing or empty database are left: SQLite would drop the
   log, and with it messages. The index contains no messages, but shows that
   there was a database. A journal would be rolled back into a copy that is
   restored. */
static int leftovers_check(const char *path, bool missing,
		struct postern_error *error) {
	static const char *const suffixes[] = { "-wal", "-shm", "-journal" };
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < 3; i++) {
		struct stat status = { 0 };
		char *rest = NULL;
		if (asprintf(&rest, "%s%s", path, suffixes[i]) < 0) {
			return postern__sqlite_no_memory(error);
		}
		bool found = lstat(rest, &status) == 0;
		/* A shared file always has a journal, which is empty after a
		   commit. */
		bool harmless = i == 0   ? !missing && status.st_size == 0
						: i == 1 ? !missing
								 : !missing || status.st_size == 0;
		if (found && !harmless) {
			r = postern__fail(error, POSTERN_E_CORRUPT,
					"'%s' exists but the database is %s: restore it; before "
					"you restore a copy or start an empty store, remove '%s'",
					rest, missing ? "missing" : "empty", rest);
		}
		free(rest);
	}
	return r;
}

/* Computes the real path of a file that does not exist yet. */
static int path_predict(struct sqlite_file *file, const char *path,
		struct postern_error *error) {
	struct stat status;
	const char *slash = strrchr(path, '/');
	/* Another process may have created the file by now. */
	if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode)) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' is a symbolic link to a file that does not exist", path);
	}
	char *directory = directory_of(path);
	if (!directory) {
		return postern__sqlite_no_memory(error);
	}
	char *real = realpath(directory, NULL);
	free(directory);
	if (!real) {
		return access_fail("create", path, error);
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

static int missing_accept(struct sqlite_file *file, const char *path,
		const struct postern_store_options *options,
		struct postern_error *error) {
	if (options->must_exist || options->read_only) {
		return postern__fail(error, POSTERN_E_NOTFOUND,
				"file '%s' does not exist", path);
	}
	return path_predict(file, path, error);
}

/* Sets the file's real path and, if the file exists, its device and inode. */
static int database_find(struct sqlite_file *file, const char *path,
		const struct postern_store_options *options, bool *missing_out,
		struct postern_error *error) {
	struct stat status;
	*missing_out = false;
	if (stat(path, &status) < 0) {
		if (errno != ENOENT) {
			return access_fail("open", path, error);
		}
		int r = leftovers_check(path, true, error);
		if (r != POSTERN_E_CORRUPT || stat(path, &status) < 0) {
			*missing_out = true;
			return r ? r : missing_accept(file, path, options, error);
		}
		/* Another process has created it meanwhile, with what was found. */
	}
	if (!S_ISREG(status.st_mode)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' is not a regular file", path);
	}
	if (status.st_nlink > 1) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%s' has %lu hard links; its write-ahead log is found under "
				"one of them only: remove the others",
				path, (unsigned long)status.st_nlink);
	}
	char *real = realpath(path, NULL);
	if (!real) {
		return access_fail("resolve", path, error);
	}
	free(file->path);
	file->path = real;
	file->device = status.st_dev;
	file->inode = status.st_ino;
	return POSTERN_OK;
}

/* Locks on network file systems are not reliable, and the shared memory of the
   write-ahead log does not work across machines. */
static int check_file_system(const char *path, struct postern_error *error) {
	struct statfs status;
	if (statfs(path, &status) < 0) {
		return access_fail("examine", path, error);
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

/* The same for a file that does not exist yet. */
static int check_directory(const char *path, struct postern_error *error) {
	char *directory = directory_of(path);
	int r = directory ? check_file_system(directory, error)
					  : postern__sqlite_no_memory(error);
	free(directory);
	return r;
}

static int in_use_fail(const struct sqlite_file *file, int fd,
		struct postern_error *error) {
	char text[16] = "";
	ssize_t len = pread(fd, text, sizeof text - 1, 0);
	char *end = text;
	long pid = len > 0 ? strtol(text, &end, 10) : 0;
	if (pid <= 0 || *end != '\n') {
		/* The owner has not written its pid yet. */
		return postern__fail(error, POSTERN_E_BUSY,
				"'%s' is in use by another process", file->path);
	}
	return postern__fail(error, POSTERN_E_BUSY, "'%s' is in use by process %ld",
			file->path, pid);
}

/* Whether the path still leads to the open file. */
static bool is_fd_of_path(int fd, const char *path) {
	struct stat ours;
	struct stat named;
	return fstat(fd, &ours) == 0 && stat(path, &named) == 0 &&
		   ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

static int lock_file_write(const struct sqlite_file *file, const char *end,
		struct postern_error *error) {
	char text[LOCK_TEXT_MAX];
	int len = snprintf(text, sizeof text, "%ld%s", (long)getpid(), end);
	if (ftruncate(file->lock_fd, 0) < 0 ||
			pwrite(file->lock_fd, text, (size_t)len, 0) != len) {
		return access_fail("write", file->lock_path, error);
	}
	return POSTERN_OK;
}

/* Whether the lock file has the mark of a store that was open and never
   closed. */
static bool is_marked(int fd) {
	char text[LOCK_TEXT_MAX] = "";
	return pread(fd, text, sizeof text - 1, 0) > 0 && strstr(text, MARK);
}

/* A database that was removed while its store was open is not replaced by an
   empty one. The mark stays. */
static int refuse_marked(struct sqlite_file *file,
		struct postern_error *error) {
	(void)close(file->lock_fd); /* it was only read */
	file->lock_fd = -1;
	return postern__fail(error, POSTERN_E_CORRUPT,
			"'%s' was removed while it was in use: restore it; to start an "
			"empty store, remove '%s' first",
			file->path, file->lock_path);
}

static int lock_file_acquire(struct sqlite_file *file, bool missing,
		struct postern_error *error) {
	if (asprintf(&file->lock_path, "%s.lock", file->path) < 0) {
		file->lock_path = NULL;
		return postern__sqlite_no_memory(error);
	}
	for (int i = 0; i < LOCK_TRIES; i++) {
		int fd = open(file->lock_path,
				O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0) {
			return access_fail("open", file->lock_path, error);
		}
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			int r = errno == EWOULDBLOCK
							? in_use_fail(file, fd, error)
							: access_fail("lock", file->lock_path, error);
			(void)close(fd); /* only read */
			return r;
		}
		file->lock_fd = fd;
		postern__point("sqlite-file.locked");
		if (is_fd_of_path(fd, file->lock_path)) {
			if (missing && is_marked(fd)) {
				return refuse_marked(file, error);
			}
			return lock_file_write(file, "\n", error);
		}
		(void)close(fd); /* it was removed; try again */
		file->lock_fd = -1;
	}
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"cannot lock '%s': somebody keeps removing it", file->lock_path);
}

/* Closes a descriptor of the database, whose lock this process does not need
   any more. */
static void database_close(const struct sqlite_file *file, int fd) {
	struct flock range = {
		.l_type = F_UNLCK,
		.l_whence = SEEK_SET,
		.l_start = LOCK_BYTE,
		.l_len = 1,
	};
	if (file->shared) {
		(void)fcntl(fd, F_OFD_SETLK, &range); /* cannot fail */
		postern__sqlite_park_put(fd);
	} else {
		(void)close(fd); /* nothing was written */
	}
}

/* Acquires the second lock, on the database. */
static int lock_database(struct sqlite_file *file,
		struct postern_error *error) {
	struct flock range = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = LOCK_BYTE,
		.l_len = 1,
	};
	int fd = file->shared ? postern__sqlite_park_take(file->device, file->inode)
						  : -1;
	if (fd < 0) {
		fd = open(file->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' cannot be written: %s", file->path, strerror(errno));
	}
	if (fcntl(fd, F_OFD_SETLK, &range) == 0) {
		file->fd = fd;
		return POSTERN_OK;
	}
	int r = errno == EAGAIN || errno == EACCES
					? postern__fail(error, POSTERN_E_BUSY,
							  "'%s' is in use by another process, whose '%s' "
							  "was removed",
							  file->path, file->lock_path)
					: access_fail("lock", file->path, error);
	database_close(file, fd);
	return r;
}

static int check_content(const char *path, struct postern_error *error) {
	struct stat status;
	if (stat(path, &status) < 0) {
		return access_fail("examine", path, error);
	}
	return status.st_size == 0 ? leftovers_check(path, false, error)
							   : POSTERN_OK;
}

int postern__sqlite_file_open(struct sqlite_file *file, const char *path,
		const struct postern_store_options *options,
		struct postern_error *error) {
	bool missing;
	int r = database_find(file, path, options, &missing, error);
	if (r != POSTERN_OK || options->read_only) {
		return r;
	}
	r = missing ? check_directory(file->path, error)
				: check_file_system(file->path, error);
	if (r == POSTERN_OK) {
		r = lock_file_acquire(file, missing, error);
	}
	if (r == POSTERN_OK && missing) {
		r = database_create(file->path, error);
		if (r == POSTERN_OK) {
			r = database_find(file, path, options, &missing, error);
		}
	}
	if (r == POSTERN_OK) {
		r = lock_database(file, error);
	}
	/* The file may have been replaced since it was found. */
	if (r == POSTERN_OK) {
		r = postern__sqlite_file_check(file, error);
	}
	return r == POSTERN_OK ? check_content(file->path, error) : r;
}

int postern__sqlite_file_mark(struct sqlite_file *file,
		struct postern_error *error) {
	file->marked = true;
	return lock_file_write(file, MARK, error);
}

/* Creates the lock file with the mark if it was removed together with the
   database. */
static void mark_recreate(const struct sqlite_file *file) {
	if (!file->lock_path) {
		return;
	}
	int fd = open(file->lock_path,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0) {
		/* Best effort: without the mark, the next start cannot detect it. */
		int ignored = dprintf(fd, "%ld%s", (long)getpid(), MARK) < 0;
		(void)ignored;
		(void)close(fd); /* best effort, too */
	}
}

int postern__sqlite_file_check(const struct sqlite_file *file,
		struct postern_error *error) {
	struct stat status;
	if (stat(file->path, &status) < 0) {
		if (errno != ENOENT) {
			return access_fail("examine", file->path, error);
		}
		mark_recreate(file);
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' was removed while it was in use; stop the process that "
				"has it open and restore the file",
				file->path);
	}
	if (status.st_dev != file->device || status.st_ino != file->inode) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' was replaced while it was in use; stop the process that "
				"has it open and restore the file",
				file->path);
	}
	if (file->marked && status.st_size == 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' was truncated while it was in use; stop the process that "
				"has it open and restore the file",
				file->path);
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
	/* Trying to acquire the lock would block others that try. */
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
	static const char *const suffixes[] = { "-wal", "-journal" };
	bool has_log =
			statvfs(file->path, &system) < 0 || !(system.f_flag & ST_RDONLY);
	for (size_t i = 0; !has_log && i < 2; i++) {
		char *log = NULL;
		if (asprintf(&log, "%s%s", file->path, suffixes[i]) < 0) {
			return false;
		}
		has_log = stat(log, &status) == 0 && status.st_size > 0;
		free(log);
	}
	return !has_log;
}

void postern__sqlite_file_close(struct sqlite_file *file) {
	if (file->lock_fd >= 0) {
		/* The pid is informative; one that is left behind does no harm. If the
		   database is missing, the mark stays. */
		if (file->fd < 0 || postern__sqlite_file_check(file, NULL) == 0) {
			int ignored = ftruncate(file->lock_fd, 0);
			(void)ignored;
		}
		(void)close(file->lock_fd); /* releases the lock */
		file->lock_fd = -1;
	}
	if (file->fd >= 0) {
		database_close(file, file->fd);
		file->fd = -1;
	}
	free(file->lock_path);
	free(file->path);
	file->lock_path = NULL;
	file->path = NULL;
}
