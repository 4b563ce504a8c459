/* SPDX-License-Identifier: MIT */

/*
 * A library to be preloaded: it injects a fault into the N-th call by which the
 * program changes a directory. Only calls on files below that directory count,
 * in the order in which they are made.
 *
 *   STRIKE_UNDER=DIR   the directory
 *   STRIKE_AT=N        which call, from 1; 0: none
 *   STRIKE_HOW=        kill    the process dies before the call
 *                      after   … after it
 *                      torn    … after half of it, if it is a write
 *                      eio     the call fails with EIO
 *                      full    … with ENOSPC
 *                      short   a write writes half of its bytes
 *                      cut     a power cut: the file system is shut down
 *                              without flushing, and the process dies
 *                      dark    … and the process continues without it
 *   STRIKE_TOLD=FILE   gets the number of calls when the program ends
 *
 * It counts write, pwrite, fsync, fdatasync, ftruncate, rename, unlink, link,
 * mkdir and open with O_CREAT of a file that does not exist.
 */

/* The functions below must have these names, whatever names programs built for
   large files use. */
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Shut an ext4 file system down as a power cut would: nothing is flushed, not
   even the journal. The numbers are those of the kernel's ext4.h. */
#define EXT4_IOC_SHUTDOWN _IOR('X', 125, __u32)
#define EXT4_GOING_FLAGS_NOLOGFLUSH 2

enum how { NONE, KILL, AFTER, TORN, EIO_, FULL, SHORT, CUT, DARK };

static const char *const how_names[] = { "none", "kill", "after", "torn", "eio",
	"full", "short", "cut", "dark" };

static struct {
	const char *under;
	size_t under_len;
	unsigned long at;
	enum how how;
	atomic_ulong count;
} plan;

/* Read the plan; a program that forks calls it again in the child, with the
   environment of that child (spawner.c). */
void strike_begin(void);

__attribute__((constructor)) void strike_begin(void) {
	const char *at = getenv("STRIKE_AT");
	const char *how = getenv("STRIKE_HOW");
	plan.under = getenv("STRIKE_UNDER");
	plan.under_len = plan.under ? strlen(plan.under) : 0;
	plan.at = at ? strtoul(at, NULL, 10) : 0;
	for (size_t i = 0; how && i < sizeof how_names / sizeof *how_names; i++) {
		if (strcmp(how, how_names[i]) == 0) {
			plan.how = (enum how)i;
		}
	}
}

__attribute__((destructor)) static void write_count(void) {
	const char *path = getenv("STRIKE_TOLD");
	FILE *file = path ? fopen(path, "w") : NULL;
	if (file) {
		(void)fprintf(file, "%lu\n", atomic_load(&plan.count));
		(void)fclose(file);
	}
}

static void *real(const char *name) {
	return dlsym(RTLD_NEXT, name);
}

__attribute__((noreturn)) static void die(void) {
	(void)kill(getpid(), SIGKILL);
	for (;;) {
		(void)pause();
	}
}

static void cut_power(void) {
	unsigned flags = EXT4_GOING_FLAGS_NOLOGFLUSH;
	int fd = open(plan.under, O_RDONLY | O_DIRECTORY);
	if (fd < 0 || ioctl(fd, EXT4_IOC_SHUTDOWN, &flags) < 0) {
		perror("strike: shutdown");
		_exit(99); /* so that no test counts this as a power cut */
	}
	(void)close(fd);
}

static bool is_under(const char *path) {
	return plan.under && strncmp(path, plan.under, plan.under_len) == 0 &&
		   path[plan.under_len] == '/';
}

static bool is_fd_under(int fd) {
	char link[64];
	char path[PATH_MAX];
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t len = readlink(link, path, sizeof path - 1);
	if (len <= 0) {
		return false;
	}
	path[len] = '\0';
	return is_under(path);
}

/* Counts a call and returns the fault for it. Does not return if the process
   dies before the call. */
static enum how count_call(bool counts) {
	if (!counts || atomic_fetch_add(&plan.count, 1) + 1 != plan.at) {
		return NONE;
	}
	if (plan.how == CUT || plan.how == DARK) {
		cut_power();
	}
	if (plan.how == KILL || plan.how == CUT) {
		die();
	}
	return plan.how;
}

static bool call_fails(enum how how) {
	if (how == EIO_ || how == FULL) {
		errno = how == EIO_ ? EIO : ENOSPC;
		return true;
	}
	return false;
}

/* Kills the process after the call. "torn" has halved a write; other calls
   cannot be halved. */
static void die_after_call(enum how how) {
	if (how == AFTER || how == TORN) {
		die();
	}
}

static size_t cut_short(enum how how, size_t len) {
	return (how == TORN || how == SHORT) && len > 1 ? len / 2 : len;
}

ssize_t write(int fd, const void *buf, size_t n) {
	ssize_t (*call)(int, const void *, size_t) = real("write");
	enum how how = count_call(is_fd_under(fd));
	if (call_fails(how)) {
		return -1;
	}
	ssize_t r = call(fd, buf, cut_short(how, n));
	die_after_call(how);
	return r;
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t offset) {
	ssize_t (*call)(int, const void *, size_t, off64_t) = real("pwrite64");
	enum how how = count_call(is_fd_under(fd));
	if (call_fails(how)) {
		return -1;
	}
	ssize_t r = call(fd, buf, cut_short(how, n), offset);
	die_after_call(how);
	return r;
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t offset) {
	return pwrite64(fd, buf, n, offset);
}

static int sync_as(const char *name, int fd) {
	int (*call)(int) = real(name);
	enum how how = count_call(is_fd_under(fd));
	if (call_fails(how)) {
		return -1;
	}
	int r = call(fd);
	die_after_call(how);
	return r;
}

int fsync(int fd) {
	return sync_as("fsync", fd);
}

int fdatasync(int fildes) {
	return sync_as("fdatasync", fildes);
}

int ftruncate64(int fd, off64_t length) {
	int (*call)(int, off64_t) = real("ftruncate64");
	enum how how = count_call(is_fd_under(fd));
	if (call_fails(how)) {
		return -1;
	}
	int r = call(fd, length);
	die_after_call(how);
	return r;
}

int ftruncate(int fd, off_t length) {
	return ftruncate64(fd, length);
}

static int path_call(const char *name, const char *path) {
	int (*call)(const char *) = real(name);
	enum how how = count_call(is_under(path));
	if (call_fails(how)) {
		return -1;
	}
	int r = call(path);
	die_after_call(how);
	return r;
}

int unlink(const char *name) {
	return path_call("unlink", name);
}

static int pair_call(const char *name, const char *from, const char *to) {
	int (*call)(const char *, const char *) = real(name);
	enum how how = count_call(is_under(to));
	if (call_fails(how)) {
		return -1;
	}
	int r = call(from, to);
	die_after_call(how);
	return r;
}

int rename(const char *old, const char *new) {
	return pair_call("rename", old, new);
}

int link(const char *from, const char *to) {
	return pair_call("link", from, to);
}

int mkdir(const char *path, mode_t mode) {
	int (*call)(const char *, mode_t) = real("mkdir");
	enum how how = count_call(is_under(path));
	if (call_fails(how)) {
		return -1;
	}
	int r = call(path, mode);
	die_after_call(how);
	return r;
}

static bool creates(const char *path, int flags) {
	struct stat status;
	return (flags & O_CREAT) && is_under(path) && stat(path, &status) < 0;
}

int open64(const char *file, int oflag, ...) {
	int (*call)(const char *, int, ...) = real("open64");
	mode_t mode = 0;
	if (oflag & (O_CREAT | O_TMPFILE)) {
		va_list args;
		va_start(args, oflag);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	enum how how = count_call(creates(file, oflag));
	if (call_fails(how)) {
		return -1;
	}
	int fd = call(file, oflag, mode);
	die_after_call(how);
	return fd;
}

int open(const char *file, int oflag, ...) {
	mode_t mode = 0;
	if (oflag & (O_CREAT | O_TMPFILE)) {
		va_list args;
		va_start(args, oflag);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return open64(file, oflag, mode);
}
