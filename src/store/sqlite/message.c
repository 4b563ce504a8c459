/* SPDX-License-Identifier: MIT */

/*
 * Messages: how they are written to and read from postern_message.
 */

#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/headers.h"
#include "base/memory.h"
#include "store/sqlite/sqlite.h"

int postern__sqlite_no_memory(struct postern_error *error) {
	return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

int postern__sqlite_message_insert(struct sqlite_store *self, int64_t seq,
		int64_t channel, int64_t received_at,
		const struct postern_message *message, struct postern_error *error) {
	const char *name = self->channels[channel].first_name;
	const char *transport = message->transport;
	if (message->header_count > 0) {
		postern__buf_reset(&self->headers);
		int r = postern__headers_pack(message->headers, message->header_count,
				&self->headers, error);
		if (r != POSTERN_OK) {
			return r;
		}
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_message VALUES"
			" (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)");
	postern__sqlite_bind_int(&query, 1, seq);
	postern__sqlite_bind_int(&query, 2, channel);
	postern__sqlite_bind_int(&query, 3, received_at);
	postern__sqlite_bind_text(&query, 4, message->id);
	postern__sqlite_bind_text(&query, 5,
			strcmp(message->source, name) == 0 ? NULL : message->source);
	postern__sqlite_bind_text(&query, 6, message->type);
	postern__sqlite_bind_text(&query, 7, message->subject);
	postern__sqlite_bind_text(&query, 8, message->time);
	postern__sqlite_bind_text(&query, 9, message->content_type);
	postern__sqlite_bind_text(&query, 10, message->correlation_id);
	postern__sqlite_bind_text(&query, 11, message->traceparent);
	postern__sqlite_bind_text(&query, 12,
			transport && strcmp(transport, "api") == 0 ? NULL : transport);
	if (message->header_count > 0) {
		postern__sqlite_bind_blob(&query, 13, postern__buf_text(&self->headers),
				self->headers.len);
	} else {
		postern__sqlite_bind_null(&query, 13);
	}
	postern__sqlite_bind_blob(&query, 14, message->body, message->body_len);
	return postern__sqlite_end(&query, error);
}

bool postern__sqlite_text(sqlite3_stmt *statement, int column,
		struct postern_memory *memory, const char **out) {
	const void *text = sqlite3_column_text(statement, column);
	if (!text) {
		*out = NULL;
		/* NULL for a column that is not NULL: SQLite is out of memory. */
		return sqlite3_column_type(statement, column) == SQLITE_NULL;
	}
	*out = postern_memory_copy(memory, text,
			(size_t)sqlite3_column_bytes(statement, column));
	return *out;
}

int postern__sqlite_message_read(struct sqlite_query *query, int column,
		struct postern_memory *memory, struct postern_message *out,
		struct postern_error *error) {
	sqlite3_stmt *statement = query->statement;
	struct postern_message message = { .size = sizeof message };
	const char **const texts[] = { &message.id, &message.source, &message.type,
		&message.subject, &message.time, &message.content_type,
		&message.correlation_id, &message.traceparent, &message.transport };
	size_t text_count = sizeof texts / sizeof texts[0];

	for (size_t i = 0; i < text_count; i++) {
		if (!postern__sqlite_text(statement, column, memory, texts[i])) {
			return postern__sqlite_no_memory(error);
		}
		column++;
	}
	message.transport = message.transport ? message.transport : "api";

	struct postern_header *headers;
	const void *blob = sqlite3_column_blob(statement, column);
	int r = postern__headers_unpack(blob,
			blob ? (size_t)sqlite3_column_bytes(statement, column) : 0,
			POSTERN_HEADER_COUNT_MAX, postern__memory_arena(memory), &headers,
			&message.header_count, error);
	if (r != POSTERN_OK) {
		return r;
	}
	message.headers = headers;

	blob = sqlite3_column_blob(statement, column + 1);
	message.body_len = (size_t)sqlite3_column_bytes(statement, column + 1);
	message.body = postern_memory_copy(memory, blob, message.body_len);
	if (!message.body) {
		return postern__sqlite_no_memory(error);
	}
	message.received_at_ms = sqlite3_column_int64(statement, column + 2);
	*out = message;
	return POSTERN_OK;
}
