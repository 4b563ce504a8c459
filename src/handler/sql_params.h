/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_SQL_PARAMS_H
#define POSTERN_HANDLER_SQL_PARAMS_H

/*
 * Reads SQL just far enough to find parameters, keywords and the ends of
 * statements, and to skip what only looks like them: string literals, quoted
 * names, comments, casts, dollar quotes.
 *
 * The databases disagree on some of it: a text that is a string for one may be
 * a statement for the other; so the caller names the dialect.
 */

#include <postern/handler.h>
#include <stdbool.h>
#include <stddef.h>

struct postern_error;

/* The value that a parameter stands for. */
enum postern__sql_param {
	POSTERN__SQL_ID,
	POSTERN__SQL_SOURCE,
	POSTERN__SQL_TYPE,
	POSTERN__SQL_SUBJECT,
	POSTERN__SQL_TIME,
	POSTERN__SQL_BODY,
	POSTERN__SQL_BODY_JSON,
	POSTERN__SQL_BODY_BYTES,
	POSTERN__SQL_HEADERS,
	POSTERN__SQL_ATTEMPT,
	POSTERN__SQL_PARAM_COUNT
};

enum postern__sql_token_kind {
	POSTERN__SQL_END,       /* of the text */
	POSTERN__SQL_WORD,      /* a keyword or a bare name */
	POSTERN__SQL_PARAM,     /* :name, the colon included */
	POSTERN__SQL_FOREIGN,   /* a parameter in another notation: ? $1 @x */
	POSTERN__SQL_CAST,      /* :: */
	POSTERN__SQL_SEMICOLON, /* between statements */
	POSTERN__SQL_LITERAL,   /* a string or a quoted name */
	POSTERN__SQL_OTHER,     /* a number, an operator, a bracket */
	POSTERN__SQL_UNCLOSED   /* an unterminated string, name or comment */
};

struct postern__sql_token {
	enum postern__sql_token_kind kind;
	const char *text;
	size_t len;
	unsigned line; /* from 1 */
};

/* The object of CREATE, as far as it was read; only routines matter, whose body
   may have semicolons. */
enum postern__sql_making {
	POSTERN__SQL_MAKES_UNKNOWN, /* it has not begun */
	POSTERN__SQL_MAKES_SOMETHING,
	POSTERN__SQL_MAKES_ROUTINE,
	POSTERN__SQL_MAKES_NOTHING
};

/* The position of a reader. Set sql and dialect, zero the rest. */
struct postern__sql_reader {
	enum postern_sql_dialect dialect;
	const char *sql; /* the rest of the text; ends with a zero byte */
	unsigned line_count;
	enum postern__sql_making making;
	bool begun;     /* the last word was BEGIN */
	unsigned depth; /* nesting of BEGIN ATOMIC and CASE without END */
};

/* Read the next token; comments and blanks are skipped. At the end, returns the
   end again. */
void postern__sql_next(struct postern__sql_reader *reader,
		struct postern__sql_token *out);

/* The parameter with this name, without the colon. */
bool postern__sql_param_find(const char *name, size_t len,
		enum postern__sql_param *out);

/*
 * POSTERN_E_INVALID, with the line in the text, unless
 *
 * - there is at least one statement and not more than
 *   POSTERN__SQL_STATEMENT_COUNT_MAX of them, in POSTERN__SQL_LEN_MAX bytes
 *   of valid UTF-8;
 * - every parameter is a known `:name`;
 * - no statement begins, ends or leaves the transaction it is run in (BEGIN,
 *   COMMIT, END, ROLLBACK, SAVEPOINT, RELEASE, …, INSERT OR ROLLBACK) or sets
 *   its characteristics (SET TRANSACTION, SET SESSION CHARACTERISTICS);
 * - none changes the connection (ATTACH, DETACH, PRAGMA, VACUUM), or creates
 *   objects that affect other deliveries (CREATE TEMP, CREATE TRIGGER);
 * - every string and comment is terminated.
 *
 * Other errors are found when the SQL is run. *count_out is the number of
 * statements.
 */
int postern__sql_check(const char *sql, enum postern_sql_dialect dialect,
		size_t *count_out, struct postern_error *error);

/* A statement with $1, $2, … for these parameters. */
typedef int postern__sql_each(void *context, const char *text,
		const enum postern__sql_param *params, size_t count,
		struct postern_error *error);

/* Rewrite an error of the server about such a statement: :name for the
   parameter's number, and a hint if the type cannot be inferred; cut to fit. */
void postern__sql_map_error(const char *message,
		const enum postern__sql_param *params, size_t count, char *out,
		size_t size);

/* Call a function for each statement of an SQL text for PostgreSQL, until one
   does not return POSTERN_OK; only if libpq was found. */
int postern__sql_postgres_each(const char *sql, postern__sql_each *each,
		void *context, struct postern_error *error);

#endif
