/* SPDX-License-Identifier: MIT */

/*
 * A file that is shared with other processes: "sqlite:FILE?shared=yes".
 *
 * One process still owns it, by the locks of file.c, and only the owner changes
 * messages and deliveries, so that what it caches stays valid. Other processes
 * may write tables of their own and markers: a guest, which is a store that was
 * opened for its markers only, or a connection of the program itself, see
 * foreign.c.
 *
 * With several writers the file has a rollback journal: before 3.51.3, two
 * connections that write to one write-ahead log can corrupt the file. Then a
 * commit waits until no other connection reads, and a reader until no other
 * commits. The journal is truncated by a commit, and not deleted, since with
 * synchronous=FULL a deletion may be lost in a power cut, and the commit with
 * it.
 *
 * The write-ahead log is a property of the file, which another process can
 * change. So each transaction checks what SQLite uses, once it has the lock
 * that prevents a change.
 */

#include <postern/sys/clock.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "store/sqlite/sqlite.h"

/* Between two attempts to get a lock that another connection has. */
#define BUSY_PAUSE_MS_MAX 5
/* Before the owner of a new file has created its tables, at most for so
   long. */
#define PREPARE_PAUSE_MS 10
#define PREPARE_MS_MAX 5000

static int64_t monotonic_ms(void) {
	const struct postern_clock *clock = postern_clock_system();
	return clock->monotonic_ms(clock->context);
}

static void pause_ms(int64_t ms) {
	struct timespec time = { .tv_nsec = ms * 1000000 };
	(void)nanosleep(&time, NULL);
}

int64_t postern__sqlite_patience(const struct sqlite_connection *connection) {
	const struct sqlite_store *self = connection->store;
	/* What a transaction has done is not given up as soon as a beginning. */
	return connection == &self->writer && sqlite3_txn_state(connection->db,
												  "main") != SQLITE_TXN_WRITE
				   ? self->patience_ms
				   : self->command_timeout_ms;
}

/* Called by SQLite when a lock is held elsewhere; 0: do not try again. */
static int wait_for_lock(void *context, int count) {
	struct sqlite_connection *connection = context;
	int64_t now = monotonic_ms();
	if (count == 0) {
		connection->busy_until_ms = now + postern__sqlite_patience(connection);
	}
	if (now >= connection->busy_until_ms) {
		return 0;
	}
	pause_ms(count < BUSY_PAUSE_MS_MAX ? count + 1 : BUSY_PAUSE_MS_MAX);
	return 1;
}

void postern__sqlite_shared_wait(struct sqlite_connection *connection) {
	(void)sqlite3_busy_handler(connection->db, wait_for_lock, connection);
}

int postern__sqlite_journal_mode(struct sqlite_connection *connection,
		char out[SQLITE_JOURNAL_MODE_MAX], struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, connection, "PRAGMA main.journal_mode");
	const char *mode =
			postern__sqlite_row(&query)
					? (const char *)sqlite3_column_text(query.statement, 0)
					: NULL;
	size_t len = mode ? strnlen(mode, SQLITE_JOURNAL_MODE_MAX - 1) : 0;
	memcpy(out, mode ? mode : "", len);
	out[len] = '\0';
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_shared_check(struct sqlite_connection *connection,
		struct postern_error *error) {
	char mode[SQLITE_JOURNAL_MODE_MAX];
	if (!connection->store->shared) {
		return POSTERN_OK;
	}
	int r = postern__sqlite_journal_mode(connection, mode, error);
	if (r == POSTERN_OK && strcmp(mode, "wal") == 0) {
		r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' was given a write-ahead log while it is shared; open it "
				"with ?shared=yes everywhere, and never set journal_mode=WAL",
				connection->store->file.path);
	}
	return r;
}

/* Whether a guest can use the file: it exists, has the tables, and no
   write-ahead log. */
static int is_prepared(const char *path,
		const struct postern_store_options *options, bool *prepared_out,
		struct postern_error *error) {
	struct postern_store_options reading = *options;
	char mode[SQLITE_JOURNAL_MODE_MAX] = "";
	struct sqlite_store *probe = calloc(1, sizeof *probe); /* it is large */
	*prepared_out = false;
	if (!probe) {
		return postern__sqlite_no_memory(error);
	}
	probe->file.lock_fd = -1;
	probe->file.fd = -1;
	probe->shared = true;
	probe->command_timeout_ms = options->command_timeout_ms;
	reading.read_only = true;
	int r = postern__sqlite_file_open(&probe->file, path, &reading, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_reader_open(probe, error);
	}
	if (r == POSTERN_OK) {
		r = postern__sqlite_journal_mode(&probe->reader, mode, error);
	}
	*prepared_out = r == POSTERN_OK && strcmp(mode, "wal") != 0;
	postern__sqlite_connection_close(&probe->reader);
	postern__sqlite_file_close(&probe->file);
	free(probe);
	return r;
}

/* Whether only the owner can help: it creates, upgrades and converts. */
static bool needs_owner(int code, const struct postern_store_options *options) {
	return code == POSTERN_OK || code == POSTERN_E_UNSUPPORTED ||
		   (code == POSTERN_E_NOTFOUND && !options->must_exist);
}

static int fail_owned(const char *path, struct postern_error *error) {
	return postern__fail(error, POSTERN_E_BUSY,
			"'%s' is in use by a process that does not share it, with another "
			"version of the tables or without ?shared=yes",
			path);
}

int postern__sqlite_guest_prepare(const char *url_rest, const char *path,
		const struct postern_store_options *options,
		struct postern_error *error) {
	int64_t end = monotonic_ms() + (options->command_timeout_ms < PREPARE_MS_MAX
												   ? options->command_timeout_ms
												   : PREPARE_MS_MAX);
	for (;;) {
		bool prepared;
		struct postern_store *owner = NULL;
		int r = is_prepared(path, options, &prepared, error);
		if (prepared || !needs_owner(r, options)) {
			return r;
		}
		r = postern__sqlite_open_owned(url_rest, options, &owner, error);
		postern_store_destroy(owner);
		if (r != POSTERN_OK && (r != POSTERN_E_BUSY || monotonic_ms() >= end)) {
			return r == POSTERN_E_BUSY ? fail_owned(path, error) : r;
		}
		/* Another process is creating it, or has it without sharing. */
		pause_ms(r == POSTERN_OK ? 0 : PREPARE_PAUSE_MS);
	}
}
