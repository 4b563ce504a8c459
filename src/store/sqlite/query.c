/* SPDX-License-Identifier: MIT */

/*
 * Prepared statements. A statement is prepared when its text is first used on a
 * connection and kept until the connection is closed. Texts are literals, so
 * their address identifies them: a small hash table finds the statement without
 * comparing texts. Parameters keep their values from one use to the next; a
 * number that has not changed is not bound again.
 *
 * A query is one use of a statement. Its first failure is kept and returned at
 * its end, so that binding and stepping need no checks.
 */

#include <assert.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/sqlite/sqlite.h"

/* SQLite counts bytes in an int; longer texts were rejected before. */
static int byte_count(size_t len) {
	assert(len <= INT32_MAX);
	return (int)len;
}

static int statement_get(struct sqlite_connection *connection, const char *sql,
		struct sqlite_statement **out) {
	size_t index = ((uintptr_t)sql >> 3) * 2654435761u;
	struct sqlite_statement *statement = NULL;
	for (size_t i = 0; i < SQLITE_STATEMENT_COUNT; i++) {
		index = (index + 1) % SQLITE_STATEMENT_COUNT;
		statement = &connection->cache[index];
		if (statement->sql == sql) {
			*out = statement;
			return SQLITE_OK;
		}
		if (!statement->sql) {
			break;
		}
	}
	assert(!statement->sql); /* else raise SQLITE_STATEMENT_COUNT */
	int code = sqlite3_prepare_v3(connection->db, sql, -1,
			SQLITE_PREPARE_PERSISTENT, &statement->handle, NULL);
	if (code == SQLITE_OK) {
		statement->sql = sql;
		*out = statement;
	}
	return code;
}

void postern__sqlite_query(struct sqlite_query *query,
		struct sqlite_connection *connection, const char *sql) {
	query->connection = connection;
	query->statement = NULL;
	query->done = false;
	query->code = statement_get(connection, sql, &query->known);
	if (query->code == SQLITE_OK) {
		query->statement = query->known->handle;
	}
}

static void code_keep(struct sqlite_query *query, int code) {
	if (query->code == SQLITE_OK) {
		query->code = code;
	}
}

/* Marks the parameter's value as unknown: neither a known number nor NULL. */
static void binding_forget(struct sqlite_query *query, int index) {
	query->known->are_numbers &= (uint16_t) ~(1u << index);
	query->known->are_null &= (uint16_t) ~(1u << index);
}

void postern__sqlite_bind_int(struct sqlite_query *query, int index,
		int64_t value) {
	assert(index <= SQLITE_PARAMETER_MAX);
	if (query->code != SQLITE_OK) {
		return;
	}
	struct sqlite_statement *known = query->known;
	if ((known->are_numbers >> index & 1) && known->numbers[index] == value) {
		return;
	}
	binding_forget(query, index);
	code_keep(query, sqlite3_bind_int64(query->statement, index, value));
	if (query->code == SQLITE_OK) {
		known->are_numbers |= (uint16_t)(1u << index);
		known->numbers[index] = value;
	}
}

void postern__sqlite_bind_text(struct sqlite_query *query, int index,
		const char *text) {
	if (!text) {
		postern__sqlite_bind_null(query, index);
	} else if (query->code == SQLITE_OK) {
		binding_forget(query, index);
		code_keep(query, sqlite3_bind_text(query->statement, index, text,
								 byte_count(strlen(text)), SQLITE_STATIC));
	}
}

void postern__sqlite_bind_blob(struct sqlite_query *query, int index,
		const void *bytes, size_t len) {
	if (query->code == SQLITE_OK) {
		binding_forget(query, index);
		/* A length of 0 binds an empty blob, not NULL. */
		code_keep(query,
				sqlite3_bind_blob(query->statement, index, len > 0 ? bytes : "",
						byte_count(len), SQLITE_STATIC));
	}
}

void postern__sqlite_bind_null(struct sqlite_query *query, int index) {
	assert(index <= SQLITE_PARAMETER_MAX);
	if (query->code != SQLITE_OK || (query->known->are_null >> index & 1)) {
		return;
	}
	binding_forget(query, index);
	code_keep(query, sqlite3_bind_null(query->statement, index));
	if (query->code == SQLITE_OK) {
		query->known->are_null |= (uint16_t)(1u << index);
	}
}

void postern__sqlite_bind_group(struct sqlite_query *query, int index,
		uint64_t group) {
	if (group) {
		postern__sqlite_bind_int(query, index, (int64_t)group);
	} else {
		postern__sqlite_bind_null(query, index);
	}
}

bool postern__sqlite_row(struct sqlite_query *query) {
	if (query->code != SQLITE_OK || query->done) {
		return false;
	}
	int code = sqlite3_step(query->statement);
	if (code == SQLITE_ROW) {
		return true;
	}
	query->done = true;
	code_keep(query, code == SQLITE_DONE ? SQLITE_OK : code);
	return false;
}

int64_t postern__sqlite_int(const struct sqlite_query *query, int column) {
	return sqlite3_column_int64(query->statement, column);
}

int postern__sqlite_end_changes(struct sqlite_query *query, int *changes_out,
		struct postern_error *error) {
	/* A statement that was not stepped to its end has made all its changes:
	   SQLite makes them before it returns rows. */
	if (!query->done && query->statement &&
			!sqlite3_stmt_busy(query->statement)) {
		(void)postern__sqlite_row(query);
	}
	bool writes = query->connection == &query->connection->store->writer;
	if (writes) {
		postern__point("sqlite-statement.after");
	}
	if (writes && postern__point_fails("sqlite-statement.fails")) {
		code_keep(query, SQLITE_IOERR);
	}
	int r = POSTERN_OK;
	if (query->code == SQLITE_OK) {
		*changes_out = sqlite3_changes(query->connection->db);
	} else {
		/* Before the reset, which may replace SQLite's error text. */
		r = postern__sqlite_fail(query->connection, query->code, error);
	}
	(void)sqlite3_reset(query->statement); /* repeats the step's code */
	return r;
}

int postern__sqlite_end(struct sqlite_query *query,
		struct postern_error *error) {
	int changes;
	return postern__sqlite_end_changes(query, &changes, error);
}

int postern__sqlite_number(struct sqlite_connection *connection,
		const char *sql, int64_t *out, struct postern_error *error) {
	struct sqlite_query query;
	int64_t value = 0;
	postern__sqlite_query(&query, connection, sql);
	if (postern__sqlite_row(&query)) {
		value = postern__sqlite_int(&query, 0);
	}
	int r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK) {
		*out = value;
	}
	return r;
}

int postern__sqlite_exec(struct sqlite_connection *connection, const char *sql,
		struct postern_error *error) {
	int code = sqlite3_exec(connection->db, sql, NULL, NULL, NULL);
	return code == SQLITE_OK ? POSTERN_OK
							 : postern__sqlite_fail(connection, code, error);
}
