/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_FAULT_VFS_H
#define POSTERN_TESTS_FAULT_VFS_H

/*
 * A disk and an allocator under SQLite that fail on request. Calls are counted
 * from 1, from that request on, over all files and threads.
 *
 *   fault_vfs_install();
 *   fault_vfs_fail(FAULT_SYNC, 1, false, SQLITE_IOERR_FSYNC);
 *   … the next fsync fails …
 *   fault_vfs_heal();
 */

#include <stdbool.h>

enum fault_kind {
	FAULT_NONE,
	FAULT_READ,
	FAULT_WRITE, /* also truncate */
	FAULT_SYNC,
	FAULT_MALLOC
};

/* Call this before the first use of SQLite. */
void fault_vfs_install(void);

/* The n-th call of this kind fails with this code of SQLite; also all after it
   if `on` is set. */
void fault_vfs_fail(enum fault_kind kind, long n, bool on, int code);

/* No call fails any more. Returns whether one has failed. */
bool fault_vfs_heal(void);

#endif
