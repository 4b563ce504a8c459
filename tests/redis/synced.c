/* SPDX-License-Identifier: MIT */

/*
 * Loaded into a Redis server (LD_PRELOAD): notes what a power failure would
 * leave of its files. After each fsync() or fdatasync() that succeeded, a line
 * "SIZE PATH" is appended to the file $SYNCED: the size that the file had
 * before the call.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int sync_function(int fd);

static void note(int fd, long long size) {
	char link[64];
	char line[4200];
	const char *to = getenv("SYNCED");
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	int len = snprintf(line, sizeof line, "%lld ", size);
	ssize_t path_len = readlink(link, line + len, sizeof line - 32);
	int log =
			to ? open(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (log < 0 || path_len < 0) {
		abort();
	}
	size_t line_len = (size_t)len + (size_t)path_len;
	line[line_len++] = '\n';
	if (write(log, line, line_len) != (ssize_t)line_len) {
		abort();
	}
	(void)close(log);
}

static int sync_and_note(const char *name, int fd) {
	sync_function *sync = NULL;
	struct stat status;
	void *symbol = dlsym(RTLD_NEXT, name);
	memcpy(&sync, &symbol, sizeof sync);
	int before = fstat(fd, &status);
	int r = sync(fd);
	if (r == 0 && before == 0) {
		note(fd, (long long)status.st_size);
	}
	return r;
}

int fsync(int fd) {
	return sync_and_note("fsync", fd);
}

int fdatasync(int fildes) {
	return sync_and_note("fdatasync", fildes);
}
