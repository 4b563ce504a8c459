/* SPDX-License-Identifier: MIT */

/*
 * Connections to the file, their settings, and the translation of their errors.
 *
 * This store promises that acknowledged data is on the disk. That requires WAL,
 * or in a shared file a journal that is truncated, with synchronous=FULL, so
 * both are set and read back: SQLite returns the mode that is in effect, which
 * may differ.
 *
 * One connection writes, and it also does the checkpoints, after a commit that
 * leaves a long log, see watch.c. SQLite before 3.51.3 may corrupt a file when
 * a second connection resets the log at the wrong moment. A read-only
 * connection cannot do that, so older versions need no warning.
 *
 * Foreign keys are enforced: this store declares none, but business tables in
 * the same file may. Child processes inherit nothing of a connection; SQLite
 * opens its files with O_CLOEXEC.
 */

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "store/sqlite/sqlite.h"

/* Every byte of a path may be escaped. */
#define URI_LEN_MAX ((size_t)3 * PATH_MAX + 64)

/* The log is truncated to this size after it has grown beyond it. */
#define WAL_BYTES_KEPT "67108864"

/* Page caches in KiB. The writer's holds the inner pages of the dedupe memory,
   even with more than ten million ids. */
#define WRITER_CACHE_KIB "65536"
#define READER_CACHE_KIB "8192"

int postern__sqlite_fail(struct sqlite_connection *connection, int code,
		struct postern_error *error) {
	struct sqlite_store *self = connection->store;
	const char *path = self->file.path;
	const char *text = connection->db ? sqlite3_errmsg(connection->db)
									  : sqlite3_errstr(code);
	int system_errno =
			connection->db ? sqlite3_system_errno(connection->db) : 0;

	if (connection->db && postern__sqlite_watch_index_was_lost(connection)) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s-shm' was truncated during a transaction, which was rolled "
				"back",
				path);
	}
	switch (code & 0xff) {
	case SQLITE_NOMEM: return postern__sqlite_no_memory(error);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return postern__fail(error,
				self->shared && connection->db &&
								postern__sqlite_patience(connection) <
										self->command_timeout_ms
						? POSTERN_E_BUSY
						: POSTERN_E_TIMEOUT,
				"'%s' is locked by another process: %s", path, text);
	case SQLITE_INTERRUPT:
		return postern__fail(error, POSTERN_E_TIMEOUT, "interrupted");
	case SQLITE_FULL:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"the disk is full: nothing was written to '%s'; free disk "
				"space to continue",
				path);
	case SQLITE_IOERR:
		/* The file system may have dropped writes that failed, so the pages in
		   memory are not valid any more. */
		if (connection == &self->writer) {
			self->broken = true;
		}
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' cannot be read or written: %s%s%s", path, text,
				system_errno ? ": " : "",
				system_errno ? strerror(system_errno) : "");
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_CANTOPEN:
	case SQLITE_PROTOCOL:
	case SQLITE_NOLFS:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' cannot be opened or written: %s%s%s", path, text,
				system_errno ? ": " : "",
				system_errno ? strerror(system_errno) : "");
	case SQLITE_NOTADB:
		return postern__fail(error, POSTERN_E_CORRUPT,
				"'%s' is not a SQLite database", path);
	case SQLITE_TOOBIG:
	case SQLITE_CONSTRAINT:
	case SQLITE_MISMATCH:
	case SQLITE_RANGE:
		return postern__fail(error, POSTERN_E_INVALID, "'%s': %s", path, text);
	default:
		return postern__fail(error, POSTERN_E_CORRUPT, "'%s' is damaged: %s",
				path, text);
	}
}

/* Fails unless a pragma returns the expected value. */
static int pragma_expect(struct sqlite_connection *connection, const char *sql,
		const char *wanted, struct postern_error *error) {
	int r = POSTERN_OK;
	sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(connection->db, sql, -1, &statement, NULL);
	if (code == SQLITE_OK) {
		code = sqlite3_step(statement);
	}
	const char *value =
			code == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0)
							   : NULL;
	if (code != SQLITE_ROW && code != SQLITE_DONE) {
		r = postern__sqlite_fail(connection, code, error);
	} else if (!value || strcmp(value, wanted) != 0) {
		r = postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' cannot be used safely: \"%s\" returned %s instead of %s",
				connection->store->file.path, sql, value ? value : "nothing",
				wanted);
	}
	(void)sqlite3_finalize(statement);
	return r;
}

static int set_up_writer(struct sqlite_connection *connection,
		struct postern_error *error) {
	if (sqlite3_db_readonly(connection->db, "main") == 1) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' cannot be written: no permission, or a read-only disk",
				connection->store->file.path);
	}
	if (sqlite3_compileoption_used("NO_SYNC")) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"this SQLite was built without fsync and cannot store data "
				"durably; use another build");
	}
	int r = connection->store->shared
					? pragma_expect(connection,
							  "PRAGMA journal_mode = TRUNCATE", "truncate",
							  error)
					: pragma_expect(connection, "PRAGMA journal_mode = WAL",
							  "wal", error);
	if (r != POSTERN_OK) {
		return r;
	}
	/* Debian's SQLite overwrites deleted rows, even where that needs extra
	   writes; FAST overwrites only where it costs none. */
	r = postern__sqlite_exec(connection,
			"PRAGMA synchronous = FULL;"
			"PRAGMA foreign_keys = ON;"
			"PRAGMA secure_delete = FAST;"
			"PRAGMA cache_size = -" WRITER_CACHE_KIB ";"
			"PRAGMA journal_size_limit = " WAL_BYTES_KEPT,
			error);
	if (r == POSTERN_OK && connection->store->shared) {
		/* The reader of this process must be able to read until the commit. */
		r = postern__sqlite_exec(connection, "PRAGMA cache_spill = OFF", error);
	}
	if (r == POSTERN_OK) {
		r = pragma_expect(connection, "PRAGMA synchronous", "2", error);
	}
	if (r == POSTERN_OK) {
		r = pragma_expect(connection, "PRAGMA foreign_keys", "1", error);
	}
	return r;
}

static int set_up_reader(struct sqlite_connection *connection,
		struct postern_error *error) {
	int off;
	(void)sqlite3_db_config(connection->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
			&off); /* it cannot write */
	return postern__sqlite_exec(connection,
			"PRAGMA query_only = ON;"
			"PRAGMA cache_size = -" READER_CACHE_KIB,
			error);
}

/* Writes the path as a URI, so that it can have parameters; characters with a
   meaning in a URI are escaped. */
static void make_uri(struct postern__buf *uri, const char *path,
		const char *parameters) {
	postern__buf_append_text(uri, "file:");
	for (; *path; path++) {
		if (strchr("%?#", *path)) {
			postern__buf_printf(uri, "%%%02X", (unsigned char)*path);
		} else {
			postern__buf_append_char(uri, *path);
		}
	}
	postern__buf_append_text(uri, parameters);
}

static int open_db(struct sqlite_connection *connection, int flags,
		const char *parameters, struct postern_error *error) {
	struct postern__buf uri;
	postern__buf_init(&uri, URI_LEN_MAX);
	make_uri(&uri, connection->store->file.path, parameters);
	int r = postern__buf_check(&uri, "the file's name", error);
	if (r == POSTERN_OK) {
		int code = sqlite3_open_v2(postern__buf_text(&uri), &connection->db,
				flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX |
						SQLITE_OPEN_EXRESCODE,
				NULL);
		if (code != SQLITE_OK) {
			r = postern__sqlite_fail(connection, code, error);
		}
	}
	postern__buf_finish(&uri);
	return r;
}

int postern__sqlite_connection_open(struct sqlite_connection *connection,
		struct sqlite_store *store, bool read_only, const char *parameters,
		struct postern_error *error) {
	assert(!connection->db);
	*connection = (struct sqlite_connection){
		.store = store,
		.generation = postern__sqlite_watch_generation(store),
	};
	/* A reader of a shared file rolls back what another process left. */
	int r = open_db(connection,
			read_only && !store->shared ? SQLITE_OPEN_READONLY
										: SQLITE_OPEN_READWRITE,
			parameters, error);
	if (r == POSTERN_OK) {
		int timeout = store->command_timeout_ms > INT32_MAX
							  ? INT32_MAX
							  : (int)store->command_timeout_ms;
		(void)sqlite3_busy_timeout(connection->db, timeout);
		if (store->shared) {
			postern__sqlite_shared_wait(connection);
		}
		(void)sqlite3_db_config(connection->db, SQLITE_DBCONFIG_DEFENSIVE, 1,
				NULL);
		r = postern__sqlite_listing_set_up(connection, error);
	}
	if (r == POSTERN_OK) {
		r = read_only ? set_up_reader(connection, error)
					  : set_up_writer(connection, error);
	}
	if (r != POSTERN_OK) {
		postern__sqlite_connection_close(connection);
	}
	return r;
}

void postern__sqlite_statements_finalize(struct sqlite_connection *connection) {
	for (size_t i = 0; i < SQLITE_STATEMENT_COUNT; i++) {
		(void)sqlite3_finalize(connection->cache[i].handle);
		connection->cache[i] = (struct sqlite_statement){ 0 };
	}
}

void postern__sqlite_connection_close(struct sqlite_connection *connection) {
	if (!connection->db) {
		return;
	}
	sqlite3_stmt *statement;
	while ((statement = sqlite3_next_stmt(connection->db, NULL))) {
		(void)sqlite3_finalize(statement); /* repeats its last code */
	}
	(void)sqlite3_close_v2(connection->db); /* cannot fail */
	connection->db = NULL;
	memset(connection->cache, 0, sizeof connection->cache);
}
