/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_FAULT_VFS_H
#define POSTERN_TESTS_FAULT_VFS_H

/*
 * A disk and a memory under SQLite that fail when told. Calls are counted
 * from 1, from the moment of telling, over all files and threads.
 *
 *   fault_vfs_install();
 *   fault_vfs_fail(FAULT_SYNC, 1, SQLITE_IOERR_FSYNC);
 *   … the next fsync fails …
 *   fault_vfs_heal();
 */

#include <stdbool.h>

enum fault_kind {
	FAULT_NONE,
	FAULT_READ,
	FAULT_WRITE, /* truncating too */
	FAULT_SYNC,
	FAULT_MALLOC
};

/* Before SQLite is used for the first time. */
void fault_vfs_install(void);

/* The n-th call of this kind fails with this code of SQLite; and all after it
   if `on` is set. */
void fault_vfs_fail(enum fault_kind kind, long n, bool on, int code);

/* Nothing fails any more. Returns whether something has. */
bool fault_vfs_heal(void);

#endif
