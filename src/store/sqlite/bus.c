/* SPDX-License-Identifier: MIT */

/*
 * SIGBUS: SQLite accessed a page of a mapped index (FILE-shm) that no longer
 * exists, because the file was truncated, see watch.c. The program's signal
 * handler calls postern__sqlite_repair_indexes(), which empties the index and
 * makes it as long as before, so that the access finds zeros when the kernel
 * repeats it. SQLite treats an index without a header as missing and rebuilds
 * it; a transaction that was open is rolled back before its COMMIT.
 *
 * SQLite makes an index longer in the middle of a transaction, and its length
 * is recorded only afterwards. If the index is truncated in between, pages
 * behind the recorded length are missing: after some accesses that a repair did
 * not help, the handler calls postern__sqlite_grow_indexes().
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

/* Empties the index and gives it a length. It is emptied first: SQLite must not
   read the rest as a complete index. The repair is counted before and after:
   another thread may read zeros before this one goes on, and a connection that
   is opened meanwhile is not valid, either. */
static bool empty_index(size_t slot, off_t len) {
	atomic_fetch_add(&indexes[slot].repairs, 1);
	bool done = truncate(indexes[slot].path, 0) == 0 &&
				truncate(indexes[slot].path, len) == 0;
	atomic_fetch_add(&indexes[slot].repairs, 1);
	return done;
}

bool postern__sqlite_repair_indexes(void) {
	bool repaired = false;
	for (size_t i = 0; i < INDEX_COUNT; i++) {
		struct stat status;
		off_t len = atomic_load(&indexes[i].len);
		if (len > 0 && stat(indexes[i].path, &status) == 0 &&
				status.st_size < len) {
			repaired = empty_index(i, len) || repaired;
		}
	}
	return repaired;
}

void postern__sqlite_grow_indexes(void) {
	for (size_t i = 0; i < INDEX_COUNT; i++) {
		off_t len = atomic_load(&indexes[i].len);
		off_t longer = len + SQLITE_INDEX_REGION_LEN;
		if (len > 0 &&
				atomic_compare_exchange_strong(&indexes[i].len, &len, longer)) {
			(void)empty_index(i, longer); /* else the next fault follows */
		}
	}
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
			atomic_store(&indexes[i].repairs, 0); /* of a store before */
			atomic_store(&indexes[i].len, len);
			slot = i;
		}
	}
	(void)pthread_mutex_unlock(&indexes_mutex);
	return slot;
}

void postern__sqlite_bus_remove(int slot) {
	if (slot >= 0) {
		atomic_store(&indexes[slot].len, 0);
	}
}

void postern__sqlite_bus_set(int slot, off_t len) {
	off_t known = slot >= 0 ? atomic_load(&indexes[slot].len) : len;
	/* The signal handler may make it longer meanwhile. */
	while (known < len &&
			!atomic_compare_exchange_weak(&indexes[slot].len, &known, len)) {
	}
}

unsigned postern__sqlite_bus_repairs(int slot) {
	return slot >= 0 ? atomic_load(&indexes[slot].repairs) : 0;
}
