/* SPDX-License-Identifier: MIT */
/*
 * Checks whether PostgreSQL could run the SQL of a handler, on the server that
 * would: each statement is parsed there, which finds syntax errors and missing
 * names, and explained, which finds missing rights. Statements without a plan
 * are checked here: the schema of CREATE, COPY with a client, parameters where
 * none are allowed. Nothing is run, so errors that only a run shows (a trigger,
 * a sequence behind a default, what a function does) are not found; and after a
 * statement that changes the search path or the role, only the syntax of the
 * others is checked.
 *
 * Each statement has a savepoint, so that a failed one does not abort the
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

/* The SQLSTATE of a missing right. */
#define RIGHTS "42501"
/* The SQLSTATE of a setting without a value. */
#define UNKNOWN "42704"

/* What a statement may change for later ones; the more it changes, the less of
   those can be checked. */
enum change {
	CHANGES_NOTHING,
	SETS_OWN, /* a custom setting: app.tenant */
	MAKES,    /* objects that do not exist yet */
	SETS,     /* the search path, or the role */
	CHANGE_COUNT
};

struct explain_check {
	PGconn *link;
	unsigned line;      /* on which the statement begins */
	enum change change; /* by earlier statements */
	const enum postern__sql_param *params;
	size_t param_count;
};

static Oid type_of(enum postern__sql_param param) {
	switch (param) {
	case POSTERN__SQL_BODY_JSON:
	case POSTERN__SQL_HEADERS: return OID_JSONB;
	case POSTERN__SQL_BODY_BYTES: return OID_BYTEA;
	default: return 0; /* the server infers it */
	}
}

static struct postern__sql_reader read_sql(const char *text) {
	return (struct postern__sql_reader){
		.dialect = POSTERN_SQL_POSTGRES,
		.sql = text,
	};
}

static bool is_word(const struct postern__sql_token *token, const char *word) {
	return token->kind == POSTERN__SQL_WORD && token->len == strlen(word) &&
		   strncasecmp(token->text, word, token->len) == 0;
}

static bool is_any(const struct postern__sql_token *token,
		const char *const *words) {
	while (*words && !is_word(token, *words)) {
		words++;
	}
	return *words;
}

/* The first word: "" if the statement begins with something else. */
static void first_word(const char *text, char *out, size_t size) {
	struct postern__sql_reader reader = read_sql(text);
	struct postern__sql_token token;
	postern__sql_next(&reader, &token);
	(void)snprintf(out, size, "%.*s",
			token.kind == POSTERN__SQL_WORD ? (int)token.len : 0, token.text);
}

/* Statements that can be explained have a plan, whose rights are checked. */
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

/* Whether an error of planning would happen with any message; the values here
   are all NULL. */
static bool counts(const struct explain_check *check, const char *state) {
	static const char *const heads[CHANGE_COUNT][5] = {
		[CHANGES_NOTHING] = { "42", "3F000", "0A000", "22P02" },
		[SETS_OWN] = { "42", "3F000", "0A000", "22P02" },
		[MAKES] = { "42601", RIGHTS },
		[SETS] = { "42601" },
	};
	if (check->change == SETS_OWN && strcmp(state, UNKNOWN) == 0) {
		return false;
	}
	for (const char *const *head = heads[check->change]; *head; head++) {
		if (strncmp(state, *head, strlen(*head)) == 0) {
			return true;
		}
	}
	return false;
}

/* The line of an error; the server reports the position. */
static unsigned line_of(const struct explain_check *check, const char *text,
		const PGresult *result) {
	const char *position =
			PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
	long left = position ? strtol(position, NULL, 10)
						 : (long)strspn(text, " \t\r\n") + 1;
	unsigned line = check->line;
	for (; *text && left > 1; text++) {
		line += *text == '\n';
		left -= ((unsigned char)*text & 0xC0) != 0x80; /* in characters */
	}
	return line;
}

static int report_error(const struct explain_check *check, const char *text,
		const PGresult *result, struct postern_error *error) {
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	ExecStatusType status = PQresultStatus(result);
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
		return POSTERN_OK;
	}
	if (!state || !message || PQstatus(check->link) != CONNECTION_OK) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"connection to PostgreSQL lost while checking the SQL");
	}
	if (!counts(check, state)) {
		return POSTERN_OK;
	}
	if (strcmp(state, RIGHTS) == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: %.100s; grant '%.63s' the missing right",
				line_of(check, text, result), message, PQuser(check->link));
	}
	char mapped[161];
	postern__sql_map_error(message, check->params, check->param_count, mapped,
			sizeof mapped);
	return postern__fail(error, POSTERN_E_INVALID, "line %u: %s",
			line_of(check, text, result), mapped);
}

static int parse(const struct explain_check *check, const char *text,
		const Oid *types, size_t count, struct postern_error *error) {
	PGresult *result = PQprepare(check->link, "", text, (int)count, types);
	int r = report_error(check, text, result, error);
	PQclear(result);
	return r;
}

/* Explain the statement with NULL for every parameter. */
static int explain(const struct explain_check *check, const char *text,
		const Oid *types, size_t count, struct postern_error *error) {
	static const char head[] = "EXPLAIN ";
	const char *values[POSTERN__SQL_PARAM_COUNT] = { NULL };
	char *sql = malloc(sizeof head + strlen(text));
	if (!sql) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	memcpy(sql, head, sizeof head - 1);
	memcpy(sql + sizeof head - 1, text, strlen(text) + 1);
	PGresult *result = PQexecParams(check->link, sql, (int)count, types, values,
			NULL, NULL, 0);
	int r = report_error(check, text, result, error);
	PQclear(result);
	free(sql);
	return r;
}

static int command(const struct explain_check *check, const char *sql,
		struct postern_error *error) {
	PGresult *result = PQexec(check->link, sql);
	int r = report_error(check, sql, result, error);
	PQclear(result);
	return r;
}

/*
 * The schema that CREATE names, as it is written; "" if it names none. False:
 * it creates nothing in a schema, or the object is not known.
 */
static bool find_schema(const char *text, char *out, size_t size,
		unsigned *line_out) {
	static const char *const before[] = { "create", "or", "replace", "unlogged",
		"materialized", "recursive", NULL };
	static const char *const made[] = { "table", "view", "sequence", "function",
		"procedure", "type", "domain", NULL };
	static const char *const between[] = { "if", "not", "exists", NULL };
	struct postern__sql_reader reader = read_sql(text);
	struct postern__sql_token name;
	struct postern__sql_token token;
	do {
		postern__sql_next(&reader, &token);
	} while (is_any(&token, before));
	if (!is_any(&token, made)) {
		return false;
	}
	do {
		postern__sql_next(&reader, &name);
	} while (is_any(&name, between));
	postern__sql_next(&reader, &token);
	bool qualified = token.len == 1 && *token.text == '.';
	int len = snprintf(out, size, "%.*s", qualified ? (int)name.len : 0,
			name.text);
	*line_out = name.line;
	return len >= 0 && (size_t)len < size;
}

/* Check the right to create in the schema of CREATE. */
static int check_create(const struct explain_check *check, const char *text,
		struct postern_error *error) {
	char schema[256];
	const char *const values[] = { schema };
	unsigned line;
	int r = POSTERN_OK;
	if (check->change == SETS ||
			!find_schema(text, schema, sizeof schema, &line)) {
		return POSTERN_OK;
	}
	PGresult *result = PQexecParams(check->link,
			"SELECT n.nspname FROM pg_namespace n WHERE"
			" CASE WHEN $1 = '' THEN n.nspname = current_schema()"
			" ELSE n.oid = to_regnamespace($1) END"
			" AND NOT has_schema_privilege(n.oid, 'CREATE')",
			1, NULL, values, NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_TUPLES_OK) {
		r = report_error(check, text, result, error);
	} else if (PQntuples(result) > 0) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"line %u: permission denied for schema %.63s; grant '%.63s' "
				"CREATE on it, or create the object in advance and remove this "
				"statement",
				check->line + line - 1, PQgetvalue(result, 0, 0),
				PQuser(check->link));
	}
	PQclear(result);
	return r;
}

/* COPY from or to a client, which does not exist here. */
static int check_copy(const struct explain_check *check, const char *text,
		struct postern_error *error) {
	struct postern__sql_reader reader = read_sql(text);
	struct postern__sql_token token;
	bool from = false;
	bool to = false;
	do {
		postern__sql_next(&reader, &token);
		if ((from && is_word(&token, "stdin")) ||
				(to && is_word(&token, "stdout"))) {
			return postern__fail(error, POSTERN_E_INVALID,
					"line %u: COPY %.*s is not available in a handler",
					check->line + token.line - 1, (int)token.len, token.text);
		}
		from = is_word(&token, "from");
		to = is_word(&token, "to");
	} while (token.kind != POSTERN__SQL_END);
	return POSTERN_OK;
}

/* Parameters in the body of DO, which is a string for PostgreSQL's parser. */
static int check_do(const struct explain_check *check, const char *text,
		struct postern_error *error) {
	struct postern__sql_reader reader = read_sql(text);
	struct postern__sql_token body;
	struct postern__sql_token token;
	enum postern__sql_param param;
	do {
		postern__sql_next(&reader, &body);
	} while (body.kind == POSTERN__SQL_WORD);
	if (body.kind != POSTERN__SQL_LITERAL) {
		return POSTERN_OK; /* the server has reported it */
	}
	const char *quote = strchr(body.text, *body.text == '$' ? '$' : '\'');
	const char *tag = quote && *quote == '$' ? strchr(quote + 1, '$') : quote;
	reader = read_sql(tag ? tag + 1 : "");
	do {
		postern__sql_next(&reader, &token);
		if (token.kind == POSTERN__SQL_PARAM &&
				token.text < body.text + body.len &&
				postern__sql_param_find(token.text + 1, token.len - 1,
						&param)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"line %u: the body of DO cannot have parameters such as "
					"%.*s: write a function, and call it with them",
					check->line + body.line + token.line - 2, (int)token.len,
					token.text);
		}
	} while (token.kind != POSTERN__SQL_END &&
			 token.text < body.text + body.len);
	return POSTERN_OK;
}

/* Check a statement without a plan. */
static int check_command(const struct explain_check *check, const char *word,
		const char *text, struct postern_error *error) {
	static const struct {
		const char *word;
		int (*function)(const struct explain_check *check, const char *text,
				struct postern_error *error);
	} commands[] = {
		{ "create", check_create },
		{ "copy", check_copy },
		{ "do", check_do },
	};
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		if (strcasecmp(word, commands[i].word) == 0) {
			return commands[i].function(check, text, error);
		}
	}
	return POSTERN_OK;
}

/* SET and RESET, and the word after them. Settings about timeouts and time
   zones do not affect names. */
static enum change change_by_set(struct postern__sql_reader *reader) {
	static const char *const between[] = { "session", "local", NULL };
	static const char *const harmless[] = { "constraints", "lock_timeout",
		"statement_timeout", "synchronous_commit", "time", "timezone",
		"work_mem", NULL };
	struct postern__sql_token name;
	struct postern__sql_token token;
	do {
		postern__sql_next(reader, &name);
	} while (is_any(&name, between));
	postern__sql_next(reader, &token);
	if (token.len == 1 && *token.text == '.') {
		return SETS_OWN;
	}
	return is_any(&name, harmless) ? CHANGES_NOTHING : SETS;
}

/* A call of set_config('…', which may be anywhere. */
static enum change change_by_call(struct postern__sql_reader *reader) {
	enum change change = CHANGES_NOTHING;
	struct postern__sql_token token;
	do {
		postern__sql_next(reader, &token);
		if (is_word(&token, "set_config")) {
			postern__sql_next(reader, &token); /* a bracket */
			postern__sql_next(reader, &token);
			bool own = token.kind == POSTERN__SQL_LITERAL &&
					   memchr(token.text, '.', token.len);
			change = own && change != SETS ? SETS_OWN : SETS;
		}
	} while (token.kind != POSTERN__SQL_END);
	return change;
}

static enum change change_by(const char *text) {
	static const char *const sets[] = { "set", "reset", NULL };
	static const char *const makes[] = { "create", "alter", NULL };
	static const char *const runs[] = { "do", "call", NULL };
	struct postern__sql_reader reader = read_sql(text);
	struct postern__sql_token token;
	postern__sql_next(&reader, &token);
	if (is_any(&token, sets)) {
		return change_by_set(&reader);
	}
	if (is_any(&token, makes)) {
		return MAKES;
	}
	if (is_any(&token, runs)) {
		return SETS; /* or anything else */
	}
	reader = read_sql(text);
	return change_by_call(&reader);
}

static int check_statement(void *context, const char *text,
		const enum postern__sql_param *params, size_t count,
		struct postern_error *error) {
	struct explain_check *check = context;
	Oid types[POSTERN__SQL_PARAM_COUNT];
	enum change change = change_by(text);
	char word[16];
	for (size_t i = 0; i < count; i++) {
		types[i] = type_of(params[i]);
	}
	check->params = params;
	check->param_count = count;
	first_word(text, word, sizeof word);
	int r = command(check, "SAVEPOINT postern_look", error);
	if (r == POSTERN_OK) {
		r = parse(check, text, types, count, error);
		if (r == POSTERN_OK &&
				PQtransactionStatus(check->link) == PQTRANS_INTRANS) {
			r = has_plan(word) ? explain(check, text, types, count, error)
							   : check_command(check, word, text, error);
		}
		int undone =
				command(check, "ROLLBACK TO postern_look", r ? NULL : error);
		r = r ? r : undone;
	}
	for (; *text; text++) {
		check->line += *text == '\n';
	}
	check->change = change > check->change ? change : check->change;
	return r;
}

int postern__sql_explain(const char *sql, void *connection,
		struct postern_error *error) {
	struct explain_check check = { .link = connection, .line = 1 };
	return postern__sql_postgres_each(sql, check_statement, &check, error);
}

static int check_on_server(const char *sql,
		const struct postern_handler_setup *setup,
		struct postern_error *error) {
	return setup->connection
				   ? postern__sql_explain(sql, setup->connection, error)
				   : POSTERN_OK;
}

const struct postern__sql_engine postern__sql_engine_postgres = {
	.dialect = POSTERN_SQL_POSTGRES,
	.create = postern__sql_postgres_create,
	.check = check_on_server,
};
