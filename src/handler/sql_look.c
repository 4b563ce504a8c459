/* SPDX-License-Identifier: MIT */
/*
 * Whether PostgreSQL could run the SQL of a handler, asked of the server that
 * would: each statement is parsed there, which finds mistakes and names that
 * are not there, and explained, which finds rights that are missing. Nothing is
 * run, so what only a run shows (a trigger, a sequence behind a default, what a
 * function does) is not seen.
 *
 * Each statement has a savepoint, so that one that is refused does not end the
 * transaction.
 */

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "handler/kinds.h"
#include "handler/sql_params.h"

#define OID_BYTEA 17
#define OID_JSONB 3802

struct look {
	PGconn *link;
	unsigned line;   /* on which the statement begins */
	bool has_create; /* one before it may make what is not there */
};

static Oid type_of(enum postern__sql_param param) {
	switch (param) {
	case POSTERN__SQL_BODY_JSON:
	case POSTERN__SQL_HEADERS: return OID_JSONB;
	case POSTERN__SQL_BODY_BYTES: return OID_BYTEA;
	default: return 0; /* the server finds out */
	}
}

/* The first word: "" if it begins with something else. */
static void first_word(const char *text, char *out, size_t size) {
	struct postern__sql_reader reader = {
		.dialect = POSTERN__SQL_POSTGRES,
		.sql = text,
	};
	struct postern__sql_token token;
	postern__sql_next(&reader, &token);
	(void)snprintf(out, size, "%.*s",
			token.kind == POSTERN__SQL_WORD ? (int)token.len : 0, token.text);
}

/* What can be explained has a plan, and rights that are asked for with it. */
static bool has_plan(const char *word) {
	static const char *const words[] = { "", "select", "insert", "update",
		"delete", "merge", "with", "values", "table" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (strcasecmp(word, words[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Of what may go wrong while planning, what would go wrong with any message;
   the values of this one are all NULL. */
static bool counts(const struct look *look, const char *state) {
	static const char *const mistakes[] = { "42601", "42501", NULL };
	static const char *const all[] = { "42", "3F000", "0A000", "22P02", NULL };
	const char *const *heads = look->has_create ? mistakes : all;
	for (; *heads; heads++) {
		if (strncmp(state, *heads, strlen(*heads)) == 0) {
			return true;
		}
	}
	return false;
}

/* The line of the mistake, of which the server says the position. */
static unsigned line_of(const struct look *look, const char *text,
		const PGresult *result) {
	const char *said = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
	long left =
			said ? strtol(said, NULL, 10) : (long)strspn(text, " \t\r\n") + 1;
	unsigned line = look->line;
	for (; *text && left > 1; text++) {
		line += *text == '\n';
		left -= ((unsigned char)*text & 0xC0) != 0x80; /* of a character */
	}
	return line;
}

static int judge(const struct look *look, const char *text,
		const PGresult *result, struct postern_error *error) {
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *said = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	ExecStatusType status = PQresultStatus(result);
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
		return POSTERN_OK;
	}
	if (!state || !said || PQstatus(look->link) != CONNECTION_OK) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"PostgreSQL went away while the SQL was looked at");
	}
	if (!counts(look, state)) {
		return POSTERN_OK;
	}
	if (strcmp(state, "42501") == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: %.100s; grant '%.63s' what it needs",
				line_of(look, text, result), said, PQuser(look->link));
	}
	return postern__fail(error, POSTERN_E_INVALID, "line %u: %.160s",
			line_of(look, text, result), said);
}

static int parse(const struct look *look, const char *text, const Oid *types,
		size_t count, struct postern_error *error) {
	PGresult *result = PQprepare(look->link, "", text, (int)count, types);
	int r = judge(look, text, result, error);
	PQclear(result);
	return r;
}

/* With NULL for every parameter. */
static int explain(const struct look *look, const char *text, const Oid *types,
		size_t count, struct postern_error *error) {
	static const char head[] = "EXPLAIN ";
	const char *values[POSTERN__SQL_PARAM_COUNT] = { NULL };
	char *sql = malloc(sizeof head + strlen(text));
	if (!sql) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	memcpy(sql, head, sizeof head - 1);
	memcpy(sql + sizeof head - 1, text, strlen(text) + 1);
	PGresult *result = PQexecParams(look->link, sql, (int)count, types, values,
			NULL, NULL, 0);
	int r = judge(look, text, result, error);
	PQclear(result);
	free(sql);
	return r;
}

static int command(const struct look *look, const char *sql,
		struct postern_error *error) {
	PGresult *result = PQexec(look->link, sql);
	int r = judge(look, sql, result, error);
	PQclear(result);
	return r;
}

static int look_at(void *context, const char *text,
		const enum postern__sql_param *params, size_t count,
		struct postern_error *error) {
	struct look *look = context;
	Oid types[POSTERN__SQL_PARAM_COUNT];
	char word[16];
	for (size_t i = 0; i < count; i++) {
		types[i] = type_of(params[i]);
	}
	first_word(text, word, sizeof word);
	int r = command(look, "SAVEPOINT postern_look", error);
	if (r == POSTERN_OK) {
		r = parse(look, text, types, count, error);
		if (r == POSTERN_OK && has_plan(word) &&
				PQtransactionStatus(look->link) == PQTRANS_INTRANS) {
			r = explain(look, text, types, count, error);
		}
		int undone =
				command(look, "ROLLBACK TO postern_look", r ? NULL : error);
		r = r ? r : undone;
	}
	for (; *text; text++) {
		look->line += *text == '\n';
	}
	look->has_create = look->has_create || strcasecmp(word, "create") == 0;
	return r;
}

int postern__sql_look(const char *sql, void *connection,
		struct postern_error *error) {
	struct look look = { .link = connection, .line = 1 };
	return postern__sql_postgres_each(sql, look_at, &look, error);
}
