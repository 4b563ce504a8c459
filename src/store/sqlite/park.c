/* SPDX-License-Identifier: MIT */

/*
 * Descriptors of a shared file that may not be closed. The second lock of
 * file.c needs a descriptor of the database, and to close any descriptor of a
 * file releases the POSIX locks that the process has on it: those of SQLite's
 * connections, and in a shared file also of connections that the program opened
 * by itself. So a descriptor stays here, unlocked, until the same file is
 * opened again, or has no name any more.
 */

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"

/* More files than that leave their descriptors open. */
#define PARKED_COUNT 64

static int parked[PARKED_COUNT]; /* descriptor + 1; 0: none */
static pthread_mutex_t parked_mutex = PTHREAD_MUTEX_INITIALIZER;

int postern__sqlite_park_take(dev_t device, ino_t inode) {
	int fd = -1;
	(void)pthread_mutex_lock(&parked_mutex);
	for (size_t i = 0; fd < 0 && i < PARKED_COUNT; i++) {
		struct stat status;
		if (parked[i] > 0 && fstat(parked[i] - 1, &status) == 0 &&
				status.st_dev == device && status.st_ino == inode) {
			fd = parked[i] - 1;
			parked[i] = 0;
		}
	}
	(void)pthread_mutex_unlock(&parked_mutex);
	return fd;
}

/* With the mutex: nothing else can be said of a file that has no name. */
static void close_removed(void) {
	for (size_t i = 0; i < PARKED_COUNT; i++) {
		struct stat status;
		if (parked[i] > 0 && fstat(parked[i] - 1, &status) == 0 &&
				status.st_nlink == 0) {
			(void)close(parked[i] - 1); /* nothing was written */
			parked[i] = 0;
		}
	}
}

void postern__sqlite_park_put(int fd) {
	(void)pthread_mutex_lock(&parked_mutex);
	close_removed();
	for (size_t i = 0; fd >= 0 && i < PARKED_COUNT; i++) {
		if (parked[i] == 0) {
			parked[i] = fd + 1;
			fd = -1;
		}
	}
	(void)pthread_mutex_unlock(&parked_mutex);
}
