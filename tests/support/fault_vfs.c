/* SPDX-License-Identifier: MIT */

/*
 * A VFS and an allocator that pass every call on, except those that are set to
 * fail. A file of this VFS is a header followed by the real file.
 */

#include "support/fault_vfs.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct fault_file {
	sqlite3_file base;
	sqlite3_file *real; /* behind this struct */
};

static struct {
	_Atomic int kind;
	_Atomic long left; /* calls until it fails */
	_Atomic bool on;
	_Atomic int code;
	_Atomic bool happened;
} fault;

static sqlite3_vfs *real_vfs;
static sqlite3_mem_methods real_memory;

void fault_vfs_fail(enum fault_kind kind, long n, bool on, int code) {
	fault.left = n;
	fault.on = on;
	fault.code = code;
	fault.happened = false;
	fault.kind = (int)kind;
}

bool fault_vfs_heal(void) {
	fault.kind = FAULT_NONE;
	return fault.happened;
}

static bool fault_is_due(enum fault_kind kind) {
	if (fault.kind != (int)kind) {
		return false;
	}
	long left = atomic_fetch_sub(&fault.left, 1);
	bool now = left == 1 || (left < 1 && fault.on);
	if (now) {
		fault.happened = true;
	}
	return now;
}

static sqlite3_file *real(sqlite3_file *file) {
	return ((struct fault_file *)file)->real;
}

static int fault_close(sqlite3_file *file) {
	return real(file)->pMethods->xClose(real(file));
}

static int fault_read(sqlite3_file *file, void *bytes, int len,
		sqlite3_int64 at) {
	return fault_is_due(FAULT_READ)
				   ? fault.code
				   : real(file)->pMethods->xRead(real(file), bytes, len, at);
}

static int fault_write(sqlite3_file *file, const void *bytes, int len,
		sqlite3_int64 at) {
	return fault_is_due(FAULT_WRITE)
				   ? fault.code
				   : real(file)->pMethods->xWrite(real(file), bytes, len, at);
}

static int fault_truncate(sqlite3_file *file, sqlite3_int64 len) {
	return fault_is_due(FAULT_WRITE)
				   ? fault.code
				   : real(file)->pMethods->xTruncate(real(file), len);
}

static int fault_sync(sqlite3_file *file, int flags) {
	return fault_is_due(FAULT_SYNC)
				   ? fault.code
				   : real(file)->pMethods->xSync(real(file), flags);
}

static int fault_size(sqlite3_file *file, sqlite3_int64 *out) {
	return real(file)->pMethods->xFileSize(real(file), out);
}

static int fault_lock(sqlite3_file *file, int lock) {
	return real(file)->pMethods->xLock(real(file), lock);
}

static int fault_unlock(sqlite3_file *file, int lock) {
	return real(file)->pMethods->xUnlock(real(file), lock);
}

static int fault_check_lock(sqlite3_file *file, int *out) {
	return real(file)->pMethods->xCheckReservedLock(real(file), out);
}

static int fault_control(sqlite3_file *file, int what, void *argument) {
	return real(file)->pMethods->xFileControl(real(file), what, argument);
}

static int fault_sector(sqlite3_file *file) {
	return real(file)->pMethods->xSectorSize(real(file));
}

static int fault_traits(sqlite3_file *file) {
	return real(file)->pMethods->xDeviceCharacteristics(real(file));
}

static int fault_shm_map(sqlite3_file *file, int page, int len, int extend,
		void volatile **out) {
	return real(file)->pMethods->xShmMap(real(file), page, len, extend, out);
}

static int fault_shm_lock(sqlite3_file *file, int at, int count, int flags) {
	return real(file)->pMethods->xShmLock(real(file), at, count, flags);
}

static void fault_shm_barrier(sqlite3_file *file) {
	real(file)->pMethods->xShmBarrier(real(file));
}

static int fault_shm_unmap(sqlite3_file *file, int delete_it) {
	return real(file)->pMethods->xShmUnmap(real(file), delete_it);
}

static const sqlite3_io_methods methods = {
	.iVersion = 2,
	.xClose = fault_close,
	.xRead = fault_read,
	.xWrite = fault_write,
	.xTruncate = fault_truncate,
	.xSync = fault_sync,
	.xFileSize = fault_size,
	.xLock = fault_lock,
	.xUnlock = fault_unlock,
	.xCheckReservedLock = fault_check_lock,
	.xFileControl = fault_control,
	.xSectorSize = fault_sector,
	.xDeviceCharacteristics = fault_traits,
	.xShmMap = fault_shm_map,
	.xShmLock = fault_shm_lock,
	.xShmBarrier = fault_shm_barrier,
	.xShmUnmap = fault_shm_unmap,
};

static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file,
		int flags, int *flags_out) {
	struct fault_file *self = (struct fault_file *)file;
	(void)vfs;
	self->real = (sqlite3_file *)(self + 1);
	int code = real_vfs->xOpen(real_vfs, name, self->real, flags, flags_out);
	/* SQLite does not close a file without methods. */
	self->base.pMethods = code == SQLITE_OK ? &methods : NULL;
	return code;
}

static void *fault_malloc(int size) {
	return fault_is_due(FAULT_MALLOC) ? NULL : real_memory.xMalloc(size);
}

static void *fault_realloc(void *memory, int size) {
	return fault_is_due(FAULT_MALLOC) ? NULL
									  : real_memory.xRealloc(memory, size);
}

void fault_vfs_install(void) {
	static sqlite3_vfs vfs;
	static sqlite3_mem_methods memory;
	if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_memory) != SQLITE_OK) {
		(void)fprintf(stderr, "SQLite was used before fault_vfs_install()\n");
		abort();
	}
	memory = real_memory;
	memory.xMalloc = fault_malloc;
	memory.xRealloc = fault_realloc;
	real_vfs = sqlite3_config(SQLITE_CONFIG_MALLOC, &memory) == SQLITE_OK
					   ? sqlite3_vfs_find(NULL)
					   : NULL;
	if (!real_vfs) {
		(void)fprintf(stderr, "SQLite has no file system\n");
		abort();
	}
	vfs = *real_vfs;
	vfs.zName = "fault";
	vfs.szOsFile = (int)sizeof(struct fault_file) + real_vfs->szOsFile;
	vfs.xOpen = fault_open;
	if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK) {
		abort();
	}
}
