/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_HANDLER_SQL_PARAMS_H
#define POSTERN_HANDLER_SQL_PARAMS_H

/*
 * Reading SQL just far enough to know what is a parameter, what is a keyword
 * and where a statement ends, and what only looks like it: string literals,
 * quoted names, comments, casts, dollar quotes.
 *
 * The databases disagree on some of it, and a text that one takes for a
 * string may be a statement for the other; so the dialect is said.
 */

#include <stdbool.h>
#include <stddef.h>

struct postern_error;

enum postern__sql_dialect { POSTERN__SQL_SQLITE, POSTERN__SQL_POSTGRES };

/* What a parameter stands for. */
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
	POSTERN__SQL_FOREIGN,   /* a parameter of another notation: ? $1 @x */
	POSTERN__SQL_CAST,      /* :: */
	POSTERN__SQL_SEMICOLON, /* between statements */
	POSTERN__SQL_LITERAL,   /* a string or a quoted name */
	POSTERN__SQL_OTHER,     /* a number, an operator, a bracket */
	POSTERN__SQL_UNCLOSED   /* a string, name or comment without an end */
};

struct postern__sql_token {
	enum postern__sql_token_kind kind;
	const char *text;
	size_t len;
	unsigned line; /* from 1 */
};

/* What the statement makes, as far as it was read; of interest is a routine,
   whose body may have semicolons. */
enum postern__sql_making {
	POSTERN__SQL_MAKES_UNKNOWN, /* it has not begun */
	POSTERN__SQL_MAKES_SOMETHING,
	POSTERN__SQL_MAKES_ROUTINE,
	POSTERN__SQL_MAKES_NOTHING
};

/* Where a reader is. Set sql and dialect, zero the rest. */
struct postern__sql_reader {
	enum postern__sql_dialect dialect;
	const char *sql; /* what is left; ends with a zero byte */
	unsigned line_count;
	enum postern__sql_making making;
	bool begun;     /* the last word was BEGIN */
	unsigned depth; /* of BEGIN ATOMIC and CASE that have no END yet */
};

/* The next token; comments and blanks are passed over. After the end, the end
   again. */
void postern__sql_next(struct postern__sql_reader *reader,
		struct postern__sql_token *out);

/* Which parameter this is, by its name without the colon. */
bool postern__sql_param_find(const char *name, size_t len,
		enum postern__sql_param *out);

/*
 * POSTERN_E_INVALID, with a text that says where, unless
 *
 * - there is at least one statement and not more than
 *   POSTERN__SQL_STATEMENT_COUNT_MAX of them, in POSTERN__SQL_LEN_MAX bytes
 *   of valid UTF-8;
 * - every parameter is `:name`, and one we know;
 * - no statement begins, ends or leaves the transaction it is run in (BEGIN,
 *   COMMIT, END, ROLLBACK, SAVEPOINT, RELEASE, …, INSERT OR ROLLBACK) or says
 *   of what kind that is (SET TRANSACTION, SET SESSION CHARACTERISTICS);
 * - none touches the connection (ATTACH, DETACH, PRAGMA, VACUUM), or leaves
 *   something behind for other deliveries (CREATE TEMP, CREATE TRIGGER);
 * - every string and comment has an end.
 *
 * Whether the database understands it is seen when it is run. *count_out is
 * the number of statements.
 */
int postern__sql_check(const char *sql, enum postern__sql_dialect dialect,
		size_t *count_out, struct postern_error *error);

/* A statement with $1, $2, … for these parameters. */
typedef int postern__sql_each(void *context, const char *text,
		const enum postern__sql_param *params, size_t count,
		struct postern_error *error);

/* What the server says of such a statement, with :name for the parameter that
   it numbers, and what to write if it cannot tell the type; cut to fit. */
void postern__sql_retell(const char *said,
		const enum postern__sql_param *params, size_t count, char *out,
		size_t size);

/* The statements of an SQL text for PostgreSQL, one after the other, until one
   is not POSTERN_OK; only where libpq was found. */
int postern__sql_postgres_each(const char *sql, postern__sql_each *each,
		void *context, struct postern_error *error);

#endif
