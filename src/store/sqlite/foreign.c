/* SPDX-License-Identifier: MIT */

/*
 * Markers in a transaction of the caller's own connection to a shared file.
 *
 * The connection belongs to the caller: its busy handler, its transaction and
 * its statements stay as they are. A transaction that has not begun to write
 * gets the write lock first, before it reads: one that reads can never get it
 * while another connection commits, because that waits for the reader.
 */

#include <postern/sys/clock.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fail.h"
#include "store/sqlite/sqlite.h"

#define LOCK_PAUSE_MS 5

static int64_t monotonic_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

static int check_file(const struct sqlite_store *self, sqlite3 *db,
		struct postern_error *error) {
	struct stat status;
	const char *path = sqlite3_db_filename(db, "main");
	if (!path || !path[0] || stat(path, &status) != 0 ||
			status.st_dev != self->file.device ||
			status.st_ino != self->file.inode) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the connection is to '%s', and the guard's store is '%s'",
				path && path[0] ? path : "no file", self->file.path);
	}
	return POSTERN_OK;
}

static int fail_busy(const struct sqlite_store *self,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_BUSY,
			"another connection is writing to '%s': roll back and try again",
			self->file.path);
}

/* Gets the write lock, if the transaction has not begun to read. */
static int lock_for_write(struct sqlite_connection *connection, int64_t wait_ms,
		struct postern_error *error) {
	int64_t end = monotonic_ms() + wait_ms;
	if (sqlite3_txn_state(connection->db, "main") != SQLITE_TXN_NONE) {
		return POSTERN_OK;
	}
	for (;;) {
		/* This changes nothing, and has to be able to write. */
		int code = sqlite3_exec(connection->db,
				"DELETE FROM main.postern_marker WHERE 0", NULL, NULL, NULL);
		if ((code & 0xff) != SQLITE_BUSY) {
			return code == SQLITE_OK
						   ? POSTERN_OK
						   : postern__sqlite_fail(connection, code, error);
		}
		if (monotonic_ms() >= end) {
			return fail_busy(connection->store, error);
		}
		(void)nanosleep(&(struct timespec){ .tv_nsec =
													LOCK_PAUSE_MS * 1000000L },
				NULL);
	}
}

/* Under a savepoint, so that a failure leaves the transaction as it was. */
static int take_marker(struct sqlite_connection *connection,
		postern__sqlite_mark_taker *take, void *context,
		struct postern_error *error) {
	int r = postern__sqlite_exec(connection, "SAVEPOINT postern_mark", error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = take(connection, context, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_shared_check(connection, error);
	}
	if (r != POSTERN_OK) {
		/* If this fails, SQLite has rolled back everything. */
		(void)postern__sqlite_exec(connection, "ROLLBACK TO postern_mark",
				NULL);
	}
	(void)postern__sqlite_exec(connection, "RELEASE postern_mark", NULL);
	return r;
}

int postern__sqlite_foreign_take(struct sqlite_store *self, sqlite3 *db,
		int64_t wait_ms, postern__sqlite_mark_taker *take, void *context,
		struct postern_error *error) {
	if (!self->shared) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' is not shared: open it as sqlite:FILE?shared=yes to mark "
				"in a transaction of another connection",
				self->file.path);
	}
	int r = check_file(self, db, error);
	if (r == POSTERN_OK && sqlite3_get_autocommit(db)) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"no transaction is open on the connection");
	}
	if (r != POSTERN_OK) {
		return r;
	}
	struct sqlite_connection *connection = calloc(1, sizeof *connection);
	if (!connection) {
		return postern__sqlite_no_memory(error);
	}
	connection->store = self;
	connection->db = db;
	r = lock_for_write(connection, wait_ms, error);
	if (r == POSTERN_OK) {
		r = take_marker(connection, take, context, error);
		/* The connection reads, and another one writes. */
		r = r == POSTERN_E_TIMEOUT ? fail_busy(self, error) : r;
	}
	postern__sqlite_statements_finalize(connection);
	free(connection);
	return r;
}
