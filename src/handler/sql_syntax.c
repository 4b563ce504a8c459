/* SPDX-License-Identifier: MIT */
/*
 * Checks whether SQLite can parse an SQL text: each statement is prepared, and
 * never run, on an empty database in memory.
 *
 * Tables, columns and functions belong to the store and may be created later,
 * so only syntax errors count. SQLite reports those first: names are resolved
 * after the whole statement was parsed. With the store's file tables can be
 * checked, too; a missing one is a note.
 */

#include <sqlite3.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "handler/kinds.h"
#include "handler/sql_params.h"

/* SQLite has one code for all that is wrong with a statement. */
static bool is_about_grammar(const char *text) {
	static const char end[] = "\": syntax error";
	size_t len = strlen(text);
	return strcmp(text, "incomplete input") == 0 ||
		   strncmp(text, "unrecognized token:", 19) == 0 ||
		   (strncmp(text, "near \"", 6) == 0 && len >= sizeof end &&
				   strcmp(text + len - (sizeof end - 1), end) == 0);
}

/* The lines from the start of the statement to the error. */
static unsigned lines_before(sqlite3 *db, const char *sql, size_t len) {
	unsigned count = 0;
	while (len > 0 && strchr(" \t\r\n", sql[len - 1])) {
		len--; /* incomplete: the error is after the last word */
	}
#if SQLITE_VERSION_NUMBER >= 3038000
	int offset = sqlite3_error_offset(db);
	if (offset >= 0 && (size_t)offset < len) {
		len = (size_t)offset;
	}
#else
	(void)db;
#endif
	for (size_t i = 0; i < len; i++) {
		count += sql[i] == '\n';
	}
	return count;
}

static bool is_about_table(const char *text) {
	return strncmp(text, "no such table: ", 15) == 0;
}

/* Prefixes of SQLite's errors, and their classes. */
struct complaint {
	bool (*is)(const char *text);
	int code;
};

/* One statement, which begins on `line`. */
static int check_statement(sqlite3 *db, const struct complaint *complaint,
		const char *sql, size_t len, unsigned line,
		struct postern_error *error) {
	sqlite3_stmt *stmt = NULL;
	int r = sqlite3_prepare_v2(db, sql, (int)len, &stmt, NULL);
	(void)sqlite3_finalize(stmt); /* it was never run */
	if (r == SQLITE_NOMEM) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (r == SQLITE_OK || !complaint->is(sqlite3_errmsg(db))) {
		return POSTERN_OK;
	}
	return postern__fail(error, complaint->code, "line %u: %s",
			line + lines_before(db, sql, len), sqlite3_errmsg(db));
}

/* One statement after the other. */
static int check_all(sqlite3 *db, const struct complaint *complaint,
		const char *sql, struct postern_error *error) {
	struct postern__sql_reader reader = {
		.dialect = POSTERN_SQL_SQLITE,
		.sql = sql,
	};
	struct postern__sql_token token = { .kind = POSTERN__SQL_SEMICOLON };
	const char *start = sql;
	unsigned line = 1;
	int r = POSTERN_OK;

	while (r == POSTERN_OK && token.kind != POSTERN__SQL_END &&
			token.kind != POSTERN__SQL_UNCLOSED) {
		postern__sql_next(&reader, &token);
		if (token.kind == POSTERN__SQL_SEMICOLON ||
				token.kind == POSTERN__SQL_END) {
			const char *end = token.text + token.len;
			r = check_statement(db, complaint, start, (size_t)(end - start),
					line, error);
			start = end;
			line = token.line;
		}
	}
	return r;
}

int postern__sql_syntax_check(const char *sql, struct postern_error *error) {
	static const struct complaint grammar = { is_about_grammar,
		POSTERN_E_INVALID };
	sqlite3 *db = NULL;
	int r = POSTERN_OK;

	if (sqlite3_open_v2(":memory:", &db,
				SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
				NULL) != SQLITE_OK) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (r == POSTERN_OK) {
		r = check_all(db, &grammar, sql, error);
	}
	(void)sqlite3_close(db); /* has no statements left; NULL is fine */
	return r;
}

/* Whether a statement creates what a later one may use. */
static bool has_create(const char *sql) {
	struct postern__sql_reader reader = {
		.dialect = POSTERN_SQL_SQLITE,
		.sql = sql,
	};
	struct postern__sql_token token;
	do {
		postern__sql_next(&reader, &token);
		if (token.kind == POSTERN__SQL_WORD && token.len == 6 &&
				strncasecmp(token.text, "create", 6) == 0) {
			return true;
		}
	} while (token.kind != POSTERN__SQL_END &&
			 token.kind != POSTERN__SQL_UNCLOSED);
	return false;
}

/* Whether the tables that the text names are in the store's file, which is only
   read. A missing table may be created later, but its name may also be
   misspelt. */
static int check_tables(const char *sql,
		const struct postern_handler_setup *setup,
		struct postern_error *error) {
	static const struct complaint table = { is_about_table,
		POSTERN_E_NOTFOUND };
	sqlite3 *db = NULL;
	int r = POSTERN_OK;

	/* A file that cannot be read is reported elsewhere. */
	if (setup->store_file && !has_create(sql) &&
			sqlite3_open_v2(setup->store_file, &db,
					SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX,
					NULL) == SQLITE_OK) {
		r = check_all(db, &table, sql, error);
	}
	(void)sqlite3_close(db);
	return r;
}

const struct postern__sql_engine postern__sql_engine_sqlite = {
	.dialect = POSTERN_SQL_SQLITE,
	.create = postern__sql_create,
	.check = check_tables,
};
