/* SPDX-License-Identifier: MIT */
/*
 * Parameter values. A body is bytes; it becomes text only for a statement
 * that asks for text, and a body that is none is poison, for it will never
 * be any. The question whether it is JSON goes to SQLite, because its
 * functions and operators are what will read it.
 */

#include "handler/sql_bind.h"

#include <postern/handler.h>
#include <postern/message.h>
#include <string.h>

#include "base/json_text.h"
#include "base/utf8.h"
#include "handler/kinds.h"

/* Every byte of every header escaped, and what stands around them. */
#define HEADERS_JSON_LEN_MAX               \
	(6 * (size_t)POSTERN_HEADERS_LEN_MAX + \
			8 * (size_t)POSTERN_HEADER_COUNT_MAX + 2)

void postern__sql_values_init(struct postern__sql_values *values, sqlite3 *db,
		const struct postern_message *message,
		const struct postern_delivery *delivery) {
	memset(values, 0, sizeof *values);
	values->db = db;
	values->message = message;
	values->delivery = delivery;
	postern__buf_init(&values->headers, HEADERS_JSON_LEN_MAX);
}

void postern__sql_values_finish(struct postern__sql_values *values) {
	postern__buf_finish(&values->headers);
}

/* SQLite takes a NULL pointer for NULL, even if there are no bytes at it. */
static const char *body_of(const struct postern_message *message) {
	return message->body_len > 0 ? message->body : "";
}

static bool check_text(struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	const char *body = body_of(values->message);
	size_t len = values->message->body_len;

	if (values->body_is_text) {
		return true;
	}
	if (!postern__utf8_valid(body, len)) {
		postern__outcome_say(outcome, POSTERN_POISON,
				"the body is not valid UTF-8: only :body_bytes can hold it");
		return false;
	}
	/* SQLite's text functions stop there without a word. */
	if (memchr(body, '\0', len)) {
		postern__outcome_say(outcome, POSTERN_POISON,
				"the body has a zero byte: only :body_bytes can hold it");
		return false;
	}
	values->body_is_text = true;
	return true;
}

static bool check_json(struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	sqlite3_stmt *stmt = NULL;
	const struct postern_message *message = values->message;

	if (!check_text(values, outcome)) {
		return false;
	}
	if (values->body_is_json) {
		return true;
	}
	int r = sqlite3_prepare_v2(values->db, "select json_valid(?1)", -1, &stmt,
			NULL);
	if (r == SQLITE_OK) {
		r = sqlite3_bind_text64(stmt, 1, body_of(message), message->body_len,
				SQLITE_STATIC, SQLITE_UTF8);
	}
	if (r == SQLITE_OK) {
		r = sqlite3_step(stmt);
	}
	if (r != SQLITE_ROW) {
		postern__outcome_trouble(outcome, "cannot check :body_json: %s",
				sqlite3_errmsg(values->db));
	} else {
		values->body_is_json = sqlite3_column_int(stmt, 0) == 1;
		if (!values->body_is_json) {
			postern__outcome_say(outcome, POSTERN_POISON,
					"the body is not valid JSON, which :body_json needs");
		}
	}
	(void)sqlite3_finalize(stmt); /* repeats the error of the step */
	return values->body_is_json;
}

static bool is_repeated(const struct postern_message *message, size_t index) {
	for (size_t i = 0; i < index; i++) {
		if (strcmp(message->headers[i].name, message->headers[index].name) ==
				0) {
			return true;
		}
	}
	return false;
}

/* All values of the name that headers[first] has, as one text. */
static void join_values(const struct postern_message *message, size_t first,
		struct postern__buf *out) {
	const char *name = message->headers[first].name;
	for (size_t i = first; i < message->header_count; i++) {
		if (strcmp(message->headers[i].name, name) == 0) {
			postern__buf_append_text(out, i == first ? "" : ", ");
			postern__buf_append_text(out, message->headers[i].value);
		}
	}
}

static bool make_headers(struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	const struct postern_message *message = values->message;
	struct postern__buf *json = &values->headers;
	struct postern__buf joined;

	if (json->len > 0) {
		return true;
	}
	postern__buf_init(&joined,
			POSTERN_HEADERS_LEN_MAX + 2 * POSTERN_HEADER_COUNT_MAX);
	postern__json_open(json, '{');
	for (size_t i = 0; i < message->header_count; i++) {
		if (!is_repeated(message, i)) {
			postern__buf_reset(&joined);
			join_values(message, i, &joined);
			postern__json_pair_text(json, message->headers[i].name,
					postern__buf_text(&joined));
		}
	}
	postern__json_close(json, '}');
	bool made = joined.failed == POSTERN_OK && json->failed == POSTERN_OK;
	postern__buf_finish(&joined);
	if (!made) {
		postern__outcome_trouble(outcome, "no memory for :headers");
	}
	return made;
}

static int bind_text(sqlite3_stmt *stmt, int index, const char *text) {
	return text ? sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC)
				: sqlite3_bind_null(stmt, index);
}

/* A code of SQLite, or -1 with the outcome set. */
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
		if (!(param == POSTERN__SQL_BODY ? check_text(values, outcome)
										 : check_json(values, outcome))) {
			return -1;
		}
		return sqlite3_bind_text64(stmt, index, body_of(message),
				message->body_len, SQLITE_STATIC, SQLITE_UTF8);
	case POSTERN__SQL_BODY_BYTES:
		return sqlite3_bind_blob64(stmt, index, body_of(message),
				message->body_len, SQLITE_STATIC);
	case POSTERN__SQL_HEADERS:
		return make_headers(values, outcome)
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
		postern__outcome_say(outcome, POSTERN_POISON,
				"the body is too large for SQLite");
	} else if (r >= 0) {
		postern__outcome_trouble(outcome, "cannot bind a parameter: %s",
				sqlite3_errstr(r));
	}
	return false;
}
