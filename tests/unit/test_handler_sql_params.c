/* SPDX-License-Identifier: MIT */
/*
 * Parsing SQL: the tokens of each dialect, and what a handler must not contain.
 */
#include <stdlib.h>

#include "handler/kinds.h"
#include "handler/sql_params.h"
#include "handler_fake.h"

#define SQLITE POSTERN_SQL_SQLITE
#define POSTGRES POSTERN_SQL_POSTGRES

/* The tokens of a text, one letter for each, and the text of parameters. */
static const char *token_letters(const char *sql,
		enum postern_sql_dialect dialect) {
	static const char letters[] = {
		[POSTERN__SQL_WORD] = 'w',
		[POSTERN__SQL_PARAM] = 'p',
		[POSTERN__SQL_FOREIGN] = 'f',
		[POSTERN__SQL_CAST] = 'c',
		[POSTERN__SQL_SEMICOLON] = ';',
		[POSTERN__SQL_LITERAL] = 'l',
		[POSTERN__SQL_OTHER] = 'o',
		[POSTERN__SQL_UNCLOSED] = 'u',
	};
	static char out[512];
	struct postern__sql_reader reader = { .dialect = dialect, .sql = sql };
	struct postern__sql_token token;
	size_t len = 0;
	for (;;) {
		postern__sql_next(&reader, &token);
		if (token.kind == POSTERN__SQL_END) {
			break;
		}
		out[len++] = letters[token.kind];
		if (token.kind == POSTERN__SQL_PARAM) {
			memcpy(out + len, token.text, token.len);
			len += token.len;
		}
	}
	out[len] = '\0';
	return out;
}

static void tokens_of_both(void) {
	static const struct {
		const char *sql;
		const char *letters;
	} rows[] = {
		{ "", "" },
		{ " \t\r\n\f", "" },
		{ ":id", "p:id" },
		{ ":id,:body_json)", "p:idop:body_jsono" },
		{ "':id'", "l" },
		{ "'it''s :id'", "l" },
		{ "\":id\"\"x\"", "l" },
		{ "-- :id\n:type", "p:type" },
		{ "-- :id", "" },
		{ "/* :id ' */:type", "p:type" },
		{ "/* a * / ** */ x", "w" },
		{ "a - - b", "woow" },
		{ "a / b", "wow" },
		{ "x::text", "wcw" },
		{ ":id::text", "p:idcw" },
		{ ": id", "ow" },
		{ ":=", "oo" },
		{ ":::id", "cp:id" },
		{ "1e5 0x1F 12", "ooo" },
		{ "a->>'$.b'", "wooo"
					   "l" },
		{ "a;b;;", "w;w;;" },
		{ "'open", "u" },
		{ "\"open", "u" },
		{ "/* open", "u" },
		{ "/*/", "u" },
		{ "'a''", "u" },
		{ "\xc3\xa9t\xc3\xa9 :id\xc3\xa9", "wp:id\xc3\xa9" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_STR(token_letters(rows[i].sql, SQLITE), rows[i].letters);
		CHECK_STR(token_letters(rows[i].sql, POSTGRES), rows[i].letters);
	}
}

static void tokens_of_each(void) {
	static const struct {
		const char *sql;
		const char *sqlite;
		const char *postgres;
	} rows[] = {
		{ ":1", "p:1", "oo" },
		{ ":$x", "p:$x", "oow" },
		{ "\xef\xbb\xbf:id", "p:id", "wp:id" },
		{ "\xef\xbb\xbf"
		  "e'\\';--'",
				"wl;", "wl;" },
		{ "[:id]", "l", "op:ido" },
		{ "`:id`", "l", "op:ido" },
		{ "[a]]b", "low", "owoow" },
		{ "[open", "u", "ow" },
		{ "E'\\':id'", "wlp:idu", "l" },
		{ "e'\\\\' :id", "wlp:id", "lp:id" },
		{ "E'a' \n '\\':id'", "wllp:idu", "l" },
		{ "E'a' '\\' :id", "wllp:id", "llp:id" },
		{ "E'a'\n'\\' :id", "wllp:id", "u" },
		{ "$$ :id $$", "fp:idf", "l" },
		{ "$a$ ; $b$ $$ $a$ :id", "f;fffp:id", "lp:id" },
		{ "$a$ open", "fw", "u" },
		{ "a$$b", "w", "w" },
		{ "$1", "f", "f" },
		{ "$x", "f", "ow" },
		{ "? ?1 @x #y", "ffff", "oooowow" },
		{ "/* /* */ :id */", "p:idoo", "" },
		{ "-- x\r:id", "", "p:id" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_STR(token_letters(rows[i].sql, SQLITE), rows[i].sqlite);
		CHECK_STR(token_letters(rows[i].sql, POSTGRES), rows[i].postgres);
	}
}

static void check_accepted(const char *sql, enum postern_sql_dialect dialect,
		size_t expected) {
	struct postern_error error = { 0 };
	size_t count = 99;
	CHECK_OK(postern__sql_check(sql, dialect, &count, &error), &error);
	CHECK_INT(count, expected);
}

static void check_sql_refused(enum postern_sql_dialect dialect, const char *sql,
		const char *text) {
	struct postern_error error = { 0 };
	size_t count = 99;
	CHECK_INT(postern__sql_check(sql, dialect, &count, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, text);
	CHECK_INT(count, 99);
}

static void check_sqlite_refused(const char *sql, const char *text) {
	check_sql_refused(SQLITE, sql, text);
}

static void good_sql(void) {
	check_accepted("insert into t values (:id, :source, :type, :subject, "
				   ":time, "
				   ":body, :body_json, :body_bytes, :headers, :attempt)",
			SQLITE, 1);
	check_accepted("-- why\n;;insert into t values (1);\n/**/ delete from t; "
				   "-- x",
			SQLITE, 2);
	check_accepted("select 'commit'; select \"begin\" from [pragma]", SQLITE,
			2);
	check_accepted("select case when 1 then 2 end", SQLITE, 1);
	check_accepted("create table if not exists t(x); replace into t values (1)",
			SQLITE, 2);
	check_accepted("with x as (select 1) insert or ignore into t select * from "
				   "x",
			SQLITE, 1);
	check_accepted("insert into t(rollback) values (1)", SQLITE, 1);
	check_accepted("insert into t values ((:body_json ->> 'amount')::numeric, "
				   ":subject::text, $$it's; commit; $$)",
			POSTGRES, 1);
	char many[POSTERN__SQL_STATEMENT_COUNT_MAX * 9 + 1] = "";
	for (size_t i = 0; i < POSTERN__SQL_STATEMENT_COUNT_MAX; i++) {
		memcpy(many + 9 * i, "select 1;", 9);
	}
	check_accepted(many, SQLITE, POSTERN__SQL_STATEMENT_COUNT_MAX);
}

static void empty_sql(void) {
	check_sqlite_refused("", "no statement");
	check_sqlite_refused(" ;\n;; ", "no statement");
	check_sqlite_refused("-- select 1", "no statement");
	check_sqlite_refused("/* select 1 */ ;", "no statement");
	check_sqlite_refused("\xef\xbb\xbf", "no statement");
}

static void unknown_params(void) {
	check_sqlite_refused("select :bdy",
			"line 1: unknown parameter ':bdy' (did you mean "
			"':body'?)");
	check_sqlite_refused("select 1,\n  :body_jsn", "line 2");
	check_sqlite_refused("select :body_jsn", "did you mean ':body_json'?");
	check_sqlite_refused("select :ID", "did you mean ':id'?");
	check_sqlite_refused("select :password", "there are :id :source");
	check_sqlite_refused("select :idx", "did you mean ':id'?");
	check_sqlite_refused("select ?", "parameters are written :name, not '?'");
	check_sqlite_refused("select ?1", "not '?1'");
	check_sqlite_refused("select @id", "not '@id'");
	check_sqlite_refused("select $id", "not '$id'");
	check_sqlite_refused("select $$; commit; select $$", "not '$$'");
	check_sqlite_refused("select :id::text", "'::' is a cast of PostgreSQL");
	check_sqlite_refused("select x::text", "'::' is a cast of PostgreSQL");
	check_sqlite_refused("select :id(x)", "unexpected '(' after ':id'");
	char name[400] = "select :";
	memset(name + 8, 'a', sizeof name - 9);
	name[sizeof name - 1] = '\0';
	check_sqlite_refused(name, "unknown parameter ':aaaa");
}

static void hostile_statements(void) {
	static const char *const words[] = { "begin", "COMMIT", "End", "rollback",
		"savepoint x", "release x", "attach 'x' as y", "detach y",
		"pragma user_version = 1", "vacuum", "abort", "start transaction" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		char sql[128];
		check_sqlite_refused(words[i], "is not allowed in a handler");
		(void)snprintf(sql, sizeof sql, "select ';' -- ;\n; /* */ %s;",
				words[i]);
		check_sqlite_refused(sql, "line 2");
		check_sqlite_refused(sql, "is not allowed in a handler");
		(void)snprintf(sql, sizeof sql, "\xef\xbb\xbf%s", words[i]);
		check_sqlite_refused(sql, "is not allowed in a handler");
	}
	check_sqlite_refused("insert or rollback into t values (1)", "or rollback");
	check_sqlite_refused("update OR/**/ROLLBACK t set x = 1", "or rollback");
	check_sqlite_refused("select 1; PREPARE transaction 'x'",
			"prepare transaction");
	check_sqlite_refused("create temp table x(y)", "create temp");
	check_sqlite_refused("CREATE TEMPORARY VIEW x as select 1",
			"create TEMPORARY");
	check_sqlite_refused("create trigger x after insert on t begin commit; end",
			"create trigger");
	static const char *const made[] = { "or replace trigger x",
		"constraint trigger x", "or/**/replace temp view x", "global temp x",
		"LOCAL temporary table x(y int)", "event trigger x" };
	for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
		char sql[128];
		(void)snprintf(sql, sizeof sql, "select 1; create\n%s", made[i]);
		check_sql_refused(POSTGRES, sql, "line 2: create t");
		check_sql_refused(SQLITE, sql, "line 2: create t");
	}
	check_accepted("create table trigger_log(temp int, local int)", POSTGRES,
			1);
	static const char *const set[] = { "transaction read only",
		"/**/LOCAL Transaction isolation level serializable",
		"session transaction deferrable", "transaction_read_only = on",
		"local transaction_isolation to 'serializable'" };
	for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
		char sql[128];
		(void)snprintf(sql, sizeof sql, "select 1; ; set\n%s", set[i]);
		check_sql_refused(POSTGRES, sql, "line 2: set transaction");
	}
	check_sql_refused(POSTGRES,
			"set session characteristics as transaction read only",
			"line 1: set session characteristics is not allowed");
	check_accepted("update t set transaction = 1", POSTGRES, 1);
	check_accepted("set local role transaction; set constraints all deferred;"
				   "set local search_path = local, transaction",
			POSTGRES, 3);
}

static void routines(void) {
	static const char body[] = "create or replace function f(a int)\n"
							   "returns int begin atomic\n"
							   " select case a when 1 then 2 end;\n"
							   " insert into t values (a);;\n"
							   " select a; end";
	char sql[sizeof body + 64];
	check_accepted(body, POSTGRES, 1);
	(void)snprintf(sql, sizeof sql, "%s; select 1", body);
	check_accepted(sql, POSTGRES, 2);
	(void)snprintf(sql, sizeof sql, "%s;\nend", body);
	check_sql_refused(POSTGRES, sql, "line 6: end is not allowed");
	(void)snprintf(sql, sizeof sql, "%s; begin", body);
	check_sql_refused(POSTGRES, sql, "line 5: begin is not allowed");
	/* Only in a routine, and only for PostgreSQL. */
	check_sql_refused(SQLITE, body, "end is not allowed");
	check_sql_refused(POSTGRES, "select 1; begin atomic; end",
			"begin is not allowed");
	check_sql_refused(POSTGRES, "create table begin (atomic int); commit",
			"commit is not allowed");
	check_sql_refused(POSTGRES,
			"create view v as select begin atomic; commit; end",
			"commit is not allowed");
	check_accepted("create procedure p() begin atomic end; select 1", POSTGRES,
			2);
	check_accepted("create function f() returns int return 1; select 1",
			POSTGRES, 2);
}

static void broken_text(void) {
	check_sqlite_refused("select 'x", "unterminated '");
	check_sqlite_refused("select\n\n\"x", "line 3");
	check_sqlite_refused("select 1 /* x", "unterminated /*");
	check_sqlite_refused("select [x", "unterminated [");
	check_sqlite_refused("select '\xff'", "not valid UTF-8");
}

static void limits(void) {
	char *sql = malloc(POSTERN__SQL_LEN_MAX + 2);
	memset(sql, ' ', POSTERN__SQL_LEN_MAX + 1);
	memcpy(sql, "select 1", 8);
	sql[POSTERN__SQL_LEN_MAX] = '\0';
	check_accepted(sql, SQLITE, 1);
	sql[POSTERN__SQL_LEN_MAX] = ' ';
	sql[POSTERN__SQL_LEN_MAX + 1] = '\0';
	check_sqlite_refused(sql, "exceeds 65536 bytes");
	free(sql);

	char many[(POSTERN__SQL_STATEMENT_COUNT_MAX + 1) * 9 + 1] = "";
	for (size_t i = 0; i < POSTERN__SQL_STATEMENT_COUNT_MAX + 1; i++) {
		memcpy(many + 9 * i, "select 1;", 9);
	}
	check_sqlite_refused(many, "33 statements; the maximum is 32");
}

static void random_text(void) {
	static const char alphabet[] = "'\"`[]$$::;?@-/*\\\r\n aeE1\xc3\xa9(";
	uint32_t seed = 1;
	for (int i = 0; i < 200000; i++) {
		char sql[24];
		size_t len = 0;
		while (len < sizeof sql - 1) {
			seed = seed * 1664525 + 1013904223;
			sql[len] = alphabet[(seed >> 16) % (sizeof alphabet)];
			if (sql[len++] == '\0') {
				break;
			}
		}
		sql[len] = '\0';
		/* Tokens are in the text, one after the other, up to its end. */
		for (int d = 0; d < 2; d++) {
			struct postern__sql_reader reader = { .sql = sql,
				.dialect = d ? POSTGRES : SQLITE };
			struct postern__sql_token token;
			const char *end = sql;
			size_t count = 0;
			do {
				postern__sql_next(&reader, &token);
				if (token.text < end || count++ > sizeof sql) {
					FAIL("seed %u", seed);
					return;
				}
				end = token.text + token.len;
			} while (token.kind != POSTERN__SQL_END);
			if (end != sql + strlen(sql)) {
				FAIL("seed %u", seed);
				return;
			}
		}
	}
}

static void errors_mapped(void) {
	static const enum postern__sql_param params[] = { POSTERN__SQL_SUBJECT,
		POSTERN__SQL_ID };
	static const struct {
		const char *error;
		const char *mapped;
	} table[] = {
		{ "could not determine data type of parameter $2",
				"could not determine data type of parameter :id; add a cast, "
				"as in :id::text" },
		{ "invalid parameter $1 there", "invalid parameter :subject there" },
		{ "it costs $1", "it costs $1" },
		{ "there is no parameter $3", "there is no parameter $3" },
		{ "there is no parameter $", "there is no parameter $" },
		{ "", "" },
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		char mapped[100];
		postern__sql_map_error(table[i].error, params, 2, mapped,
				sizeof mapped);
		CHECK_STR(mapped, table[i].mapped);
	}
	char brief[12];
	postern__sql_map_error(table[0].error, params, 2, brief, sizeof brief);
	CHECK_STR(brief, "could not d");
}

static const struct tap_case cases[] = {
	{ "parameters are found beside strings, names, comments and casts",
			tokens_of_both },
	{ "the dialects differ as the databases do", tokens_of_each },
	{ "valid SQL is accepted and its statements are counted", good_sql },
	{ "SQL without a statement is refused", empty_sql },
	{ "an unknown parameter is refused with a suggestion", unknown_params },
	{ "a statement that would end the transaction is refused",
			hostile_statements },
	{ "the body of a routine is one statement for PostgreSQL", routines },
	{ "unterminated or invalid text is refused", broken_text },
	{ "length and number of statements have limits", limits },
	{ "any text is parsed to its end", random_text },
	{ "an error about $1 names the parameter", errors_mapped },
};

TAP_MAIN(cases)
