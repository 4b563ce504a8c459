/* SPDX-License-Identifier: MIT */

/*
 * SIGBUS: SQLite accessed a page of a mapped index (FILE-shm) that no longer
 * exists, because the file was truncated, see watch.c. The program's signal
 * handler calls postern__sqlite_repair_indexes(), which empties the index and
 * makes it as long as before, so that the access finds zeros when the kernel
 * repeats it. SQLite treats an index without a header as missing and rebuilds
 * it; a transaction that was open is rolled back before its COMMIT.
 *
 * A signal has one handler in a process, so the library installs none, and
 * records indexes only in a process that has one. The records are the only
 * global state in this directory: a signal handler gets no context.
 */

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"
#include "store/store.h"

/* The most stores that are protected in one process; others are not. */
#define INDEX_COUNT 64

static struct {
	_Atomic off_t len; /* 0: free */
	atomic_uint repairs;
	char path[PATH_MAX];
} indexes[INDEX_COUNT];

static bool handler_installed;
static pthread_mutex_t indexes_mutex = PTHREAD_MUTEX_INITIALIZER;

bool postern__sqlite_repair_indexes(void) {
	bool repaired = false;
	for (size_t i = 0; i < INDEX_COUNT; i++) {
		struct stat status;
		off_t len = atomic_load(&indexes[i].len);
		if (len > 0 && stat(indexes[i].path, &status) == 0 &&
				status.st_size < len) {
			/* Empty it first: SQLite must not read the rest as a complete
			   index. */
			repaired = (truncate(indexes[i].path, 0) == 0 &&
							   truncate(indexes[i].path, len) == 0) ||
					   repaired;
			atomic_fetch_add(&indexes[i].repairs, 1);
		}
	}
	return repaired;
}

void postern__sqlite_bus_catch(void) {
	handler_installed = true;
}

int postern__sqlite_bus_add(const char *path, off_t len) {
	int slot = -1;
	(void)pthread_mutex_lock(&indexes_mutex);
	for (int i = 0; handler_installed && slot < 0 && i < INDEX_COUNT; i++) {
		if (atomic_load(&indexes[i].len) == 0 && strlen(path) < PATH_MAX) {
			memcpy(indexes[i].path, path, strlen(path) + 1);
			atomic_store(&indexes[i].len, len);
			slot = i;
		}
	}
	(void)pthread_mutex_unlock(&indexes_mutex);
	return slot;
}

void postern__sqlite_bus_set(int slot, off_t len) {
	if (slot >= 0) {
		atomic_store(&indexes[slot].len, len);
	}
}

unsigned postern__sqlite_bus_repairs(int slot) {
	return slot >= 0 ? atomic_load(&indexes[slot].repairs) : 0;
}
