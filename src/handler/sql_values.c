/* SPDX-License-Identifier: MIT */
/*
 * Parameter values, for every database. A body is bytes; it is converted to
 * text only for a statement that uses text. A body that is not text poisons the
 * delivery, because it never will be.
 */

#include "handler/sql_values.h"

#include <postern/handler.h>
#include <postern/message.h>
#include <string.h>

#include "base/json_text.h"
#include "base/utf8.h"
#include "handler/kinds.h"

/* Every byte of every header escaped, and the syntax around them. */
#define HEADERS_JSON_LEN_MAX               \
	(6 * (size_t)POSTERN_HEADERS_LEN_MAX + \
			8 * (size_t)POSTERN_HEADER_COUNT_MAX + 2)

void postern__sql_values_init(struct postern__sql_values *values,
		const struct postern_message *message,
		const struct postern_delivery *delivery) {
	memset(values, 0, sizeof *values);
	values->message = message;
	values->delivery = delivery;
	postern__buf_init(&values->headers, HEADERS_JSON_LEN_MAX);
}

void postern__sql_values_finish(struct postern__sql_values *values) {
	postern__buf_finish(&values->headers);
}

bool postern__sql_body_is_text(struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	const char *body = values->message->body;
	size_t len = values->message->body_len;

	if (values->body_is_text || len == 0) {
		return true;
	}
	if (!postern__utf8_valid(body, len)) {
		postern__outcome_setf(outcome, POSTERN_POISON,
				"the body is not valid UTF-8; use :body_bytes");
		return false;
	}
	/* SQLite's text functions silently stop at a zero byte, and PostgreSQL has
	   no such text. */
	if (memchr(body, '\0', len)) {
		postern__outcome_setf(outcome, POSTERN_POISON,
				"the body has a zero byte; use :body_bytes");
		return false;
	}
	values->body_is_text = true;
	return true;
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

bool postern__sql_make_headers(struct postern__sql_values *values,
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
		postern__outcome_unavailable(outcome, "out of memory for :headers");
	}
	return made;
}
