/* SPDX-License-Identifier: MIT */
/*
 * Binds parameters to SQLite statements. SQLite validates JSON bodies, because
 * its functions and operators will read them.
 */

#include "handler/sql_bind.h"

#include <postern/handler.h>
#include <postern/message.h>
#include <string.h>

#include "handler/kinds.h"

/* SQLite binds NULL for a NULL pointer, even with a length of 0. */
static const char *body_of(const struct postern_message *message) {
	return message->body_len > 0 ? message->body : "";
}

static bool check_json(struct postern__sql_values *values, sqlite3 *db,
		struct postern_outcome *outcome) {
	sqlite3_stmt *stmt = NULL;
	const struct postern_message *message = values->message;

	if (!postern__sql_body_is_text(values, outcome)) {
		return false;
	}
	if (values->body_is_json) {
		return true;
	}
	int r = sqlite3_prepare_v2(db, "select json_valid(?1)", -1, &stmt, NULL);
	if (r == SQLITE_OK) {
		r = sqlite3_bind_text64(stmt, 1, body_of(message), message->body_len,
				SQLITE_STATIC, SQLITE_UTF8);
	}
	if (r == SQLITE_OK) {
		r = sqlite3_step(stmt);
	}
	if (r != SQLITE_ROW) {
		postern__outcome_unavailable(outcome, "cannot check :body_json: %s",
				sqlite3_errmsg(db));
	} else {
		values->body_is_json = sqlite3_column_int(stmt, 0) == 1;
		if (!values->body_is_json) {
			postern__outcome_setf(outcome, POSTERN_POISON,
					"the body is not valid JSON, which :body_json needs");
		}
	}
	(void)sqlite3_finalize(stmt); /* repeats the error of the step */
	return values->body_is_json;
}

static int bind_text(sqlite3_stmt *stmt, int index, const char *text) {
	return text ? sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC)
				: sqlite3_bind_null(stmt, index);
}

/* Returns a code of SQLite, or -1 with the outcome set. */
static int bind_value(struct postern__sql_values *values, sqlite3_stmt *stmt,
		int index, enum postern__sql_param param,
		struct postern_outcome *outcome) {
	const struct postern_message *message = values->message;

	switch (param) {
	case POSTERN__SQL_ID: return bind_text(stmt, index, message->id);
	case POSTERN__SQL_SOURCE: return bind_text(stmt, index, message->source);
	case POSTERN__SQL_TYPE: return bind_text(stmt, index, message->type);
	case POSTERN__SQL_SUBJECT: return bind_text(stmt, index, message->subject);
	case POSTERN__SQL_TIME: return bind_text(stmt, index, message->time);
	case POSTERN__SQL_BODY:
	case POSTERN__SQL_BODY_JSON:
		if (!(param == POSTERN__SQL_BODY
							? postern__sql_body_is_text(values, outcome)
							: check_json(values, sqlite3_db_handle(stmt),
									  outcome))) {
			return -1;
		}
		return sqlite3_bind_text64(stmt, index, body_of(message),
				message->body_len, SQLITE_STATIC, SQLITE_UTF8);
	case POSTERN__SQL_BODY_BYTES:
		return sqlite3_bind_blob64(stmt, index, body_of(message),
				message->body_len, SQLITE_STATIC);
	case POSTERN__SQL_HEADERS:
		return postern__sql_make_headers(values, outcome)
					   ? bind_text(stmt, index,
								 postern__buf_text(&values->headers))
					   : -1;
	case POSTERN__SQL_ATTEMPT:
		return sqlite3_bind_int64(stmt, index, values->delivery->attempt);
	case POSTERN__SQL_PARAM_COUNT: break;
	}
	return SQLITE_RANGE;
}

bool postern__sql_bind(struct postern__sql_values *values, sqlite3_stmt *stmt,
		int index, enum postern__sql_param param,
		struct postern_outcome *outcome) {
	int r = bind_value(values, stmt, index, param, outcome);
	if (r == SQLITE_OK) {
		return true;
	}
	if (r == SQLITE_TOOBIG) {
		postern__outcome_setf(outcome, POSTERN_POISON,
				"the body is too large for SQLite");
	} else if (r >= 0) {
		postern__outcome_unavailable(outcome, "cannot bind a parameter: %s",
				sqlite3_errstr(r));
	}
	return false;
}
