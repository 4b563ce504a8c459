/* SPDX-License-Identifier: MIT */

/*
 * Staging a message on a connection of the caller, or of a handler: the insert
 * that any program can make. The connection is the caller's, so nothing of it
 * is kept.
 */

#include "store/publish.h"

#include <postern/message.h>
#include <string.h>

#include "base/fail.h"
#include "store/sqlite/publish_sql.h"
#include "store/sqlite/sqlite.h"

static const char insert_sql[] =
		"INSERT INTO " SQLITE_PUBLISH_VIEW " (" SQLITE_PUBLISH_COLUMNS ")"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

static int fail_staging(sqlite3 *db, int code, struct postern_error *error) {
	const char *text = sqlite3_errmsg(db);
	switch (code & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return postern__fail(error, POSTERN_E_BUSY,
				"cannot publish, another connection is writing: roll back and "
				"try again: %s",
				text);
	case SQLITE_CONSTRAINT:
		return postern__fail(error,
				strstr(text, SQLITE_PUBLISH_NO_CHANNEL) ? POSTERN_E_NOTFOUND
														: POSTERN_E_INVALID,
				"%s", text);
	case SQLITE_NOMEM: return postern__sqlite_no_memory(error);
	case SQLITE_FULL:
	case SQLITE_IOERR:
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "cannot publish: %s",
				text);
	case SQLITE_ERROR:
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"cannot publish, the file has no tables of this version of "
				"Postern; start postern on it first: %s",
				text);
	default:
		return postern__fail(error, POSTERN_E_INVALID, "cannot publish: %s",
				text);
	}
}

static void bind_text(sqlite3_stmt *statement, int index, const char *text) {
	/* Fails only without memory, and then the step does too. */
	(void)sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC);
}

static void bind_message(sqlite3_stmt *statement,
		const struct postern_staging *staging) {
	const struct postern_message *message = staging->message;
	bind_text(statement, 1, staging->channel);
	bind_text(statement, 2, message->type);
	(void)sqlite3_bind_blob64(statement, 3,
			message->body_len > 0 ? message->body : "", message->body_len,
			SQLITE_STATIC);
	bind_text(statement, 4, message->id);
	bind_text(statement, 5, message->source);
	bind_text(statement, 6, message->subject);
	bind_text(statement, 7, staging->headers);
	bind_text(statement, 8, message->time);
	bind_text(statement, 9, message->content_type);
	bind_text(statement, 10, message->correlation_id);
	bind_text(statement, 11, message->traceparent);
}

int postern__sqlite_publish(const struct postern_staging *staging,
		struct postern_error *error) {
	sqlite3 *db = staging->transaction;
	sqlite3_stmt *statement = NULL;
	if (sqlite3_get_autocommit(db)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"cannot publish: no transaction is open on the connection");
	}
	int code = sqlite3_prepare_v2(db, insert_sql, -1, &statement, NULL);
	if (code == SQLITE_OK) {
		bind_message(statement, staging);
		code = sqlite3_step(statement);
	}
	int r = code == SQLITE_DONE ? POSTERN_OK : fail_staging(db, code, error);
	(void)sqlite3_finalize(statement); /* repeats the code of the step */
	return r;
}
