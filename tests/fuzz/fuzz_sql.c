/* SPDX-License-Identifier: MIT */

/*
 * The SQL of handlers, which is parsed for its parameters, its statements and
 * the words that are not allowed in it. The result is compared with two other
 * parsers:
 *
 * - a scan of the bytes that knows only whether it is in a string, in a
 *   comment or in neither, for both dialects: no token may cross a boundary;
 * - SQLite itself: SQL that the check accepts and SQLite can prepare has the
 *   same number of statements and the same parameters for SQLite, and does
 *   nothing that the check must refuse.
 */

#include <postern/error.h>
#include <sqlite3.h>

#include "fuzz.h"
#include "handler/sql_params.h"

#define LEN_MAX 2000

enum region { CODE, QUOTED, COMMENT };

/* The length of the string or comment that starts here, or 1 for code. */
static size_t span(const char *at, bool sqlite, enum region *out) {
	const char *end = NULL;
	*out = QUOTED;
	if (at[0] == '-' && at[1] == '-') {
		*out = COMMENT;
		return strcspn(at, sqlite ? "\n" : "\r\n");
	}
	if (at[0] == '/' && at[1] == '*') {
		*out = COMMENT;
		int depth = 0;
		for (end = at; *end; end++) {
			if (end[0] == '/' && end[1] == '*' && (!sqlite || depth == 0)) {
				depth++;
				end++;
			} else if (end[0] == '*' && end[1] == '/') {
				end++;
				if (--depth == 0) {
					return (size_t)(end - at) + 1;
				}
			}
		}
		return strlen(at);
	}
	if (*at && strchr(sqlite ? "'\"`" : "'\"", *at)) {
		/* A doubled quote is scanned as two adjacent strings, which is the
		   same. */
		end = strchr(at + 1, *at);
		return end ? (size_t)(end - at) + 1 : strlen(at);
	}
	if (sqlite && *at == '[') {
		end = strchr(at, ']');
		return end ? (size_t)(end - at) + 1 : strlen(at);
	}
	*out = CODE;
	return 1;
}

static bool is_name(char c) {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		   (c >= '0' && c <= '9') || c == '_' || c == '$' || (c & 0x80);
}

static size_t name_len(const char *at) {
	size_t len = 0;
	while (is_name(at[len])) {
		len++;
	}
	return len;
}

static bool is_digit(char c) {
	return c >= '0' && c <= '9';
}

/* The length of a string quoted with $$ or $tag$, up to its end or the end of
   the text; 0 if there is none. */
static size_t dollar_span(const char *at) {
	char tag[LEN_MAX + 1];
	size_t len = 1;
	while (is_name(at[len]) && at[len] != '$') {
		len++;
	}
	if (at[len] != '$' || is_digit(at[1])) {
		return 0;
	}
	memcpy(tag, at, ++len);
	tag[len] = '\0';
	const char *end = strstr(at + len, tag);
	return end ? (size_t)(end - at) + len : strlen(at);
}

/* Two kinds of strings that only PostgreSQL has, which do not start in the
   middle of a name or a parameter. 0: neither. */
static size_t postgres_span(const char *at, enum region *out) {
	*out = QUOTED;
	if ((*at == 'e' || *at == 'E') && at[1] == '\'') {
		const char *end = at + 2;
		while (*end && (*end != '\'' || end[1] == '\'')) {
			end += end[1] && (*end == '\\' || *end == '\'') ? 2 : 1;
		}
		return (size_t)(end - at) + (*end != '\0');
	}
	if (*at == '$' && dollar_span(at) > 0) {
		return dollar_span(at);
	}
	*out = CODE;
	if (at[0] == ':' && at[1] == ':') {
		return 2;
	}
	if ((*at == ':' && at[1] != '$' && !is_digit(at[1])) ||
			(*at == '$' && is_digit(at[1]))) {
		return 1 + name_len(at + 1);
	}
	return *at == '$' ? 1 : name_len(at);
}

static void mark_regions(const char *sql, bool sqlite, enum region *regions) {
	size_t len = strlen(sql);
	for (size_t at = 0; at < len;) {
		enum region region;
		size_t count = sqlite ? 0 : postgres_span(sql + at, &region);
		if (count == 0) {
			count = span(sql + at, sqlite, &region);
		}
		while (count-- > 0) {
			regions[at++] = region;
		}
	}
}

static void check_region(const enum region *regions, size_t from, size_t to,
		enum region region) {
	for (size_t i = from; i < to; i++) {
		MUST(regions[i] == region);
	}
}

/* Between tokens there are only blanks and comments. */
static void check_gap(const char *sql, const enum region *regions, size_t from,
		size_t to) {
	for (size_t i = from; i < to; i++) {
		MUST(regions[i] == COMMENT || strchr(" \t\n\f\r\v", sql[i]) ||
				strchr("\xef\xbb\xbf", sql[i]));
	}
}

struct parsed {
	bool params[POSTERN__SQL_PARAM_COUNT];
	bool unclosed;
};

static void read_tokens(const char *sql, enum postern_sql_dialect dialect,
		struct parsed *parsed) {
	struct postern__sql_reader reader = { .dialect = dialect, .sql = sql };
	struct postern__sql_token token;
	enum region regions[LEN_MAX + 1] = { CODE };
	size_t at = 0;
	unsigned line = 1;
	mark_regions(sql, dialect == POSTERN_SQL_SQLITE, regions);
	for (;;) {
		postern__sql_next(&reader, &token);
		size_t start = (size_t)(token.text - sql);
		MUST(start >= at && start + token.len <= strlen(sql));
		check_gap(sql, regions, at, start);
		for (; at < start + token.len; at++) {
			MUST(at != start || token.line == line);
			line += sql[at] == '\n';
		}
		if (token.kind == POSTERN__SQL_END) {
			MUST(token.len == 0 && sql[start] == '\0');
			break;
		}
		MUST(token.len > 0);
		enum postern__sql_param param;
		if (token.kind == POSTERN__SQL_UNCLOSED) {
			parsed->unclosed = true;
			MUST(regions[start] != CODE && start + token.len == strlen(sql));
			check_region(regions, start, at, regions[start]);
		} else if (token.kind == POSTERN__SQL_LITERAL) {
			check_region(regions, start, at, QUOTED);
		} else {
			check_region(regions, start, at, CODE);
		}
		if (token.kind == POSTERN__SQL_PARAM) {
			MUST(token.text[0] == ':' && token.len > 1);
			if (postern__sql_param_find(token.text + 1, token.len - 1,
						&param)) {
				parsed->params[param] = true;
			}
		}
	}
}

/* Records actions that a handler must not do, as SQLite reports them while it
   prepares a statement. */
static int record_forbidden(void *context, int action, const char *a,
		const char *b, const char *c, const char *d) {
	bool *forbidden = context;
	(void)b;
	(void)c;
	(void)d;
	switch (action) {
	case SQLITE_TRANSACTION:
	case SQLITE_SAVEPOINT:
	case SQLITE_ATTACH:
	case SQLITE_DETACH:
	case SQLITE_CREATE_TRIGGER:
	case SQLITE_CREATE_TEMP_TRIGGER: *forbidden = true; break;
	/* As a function in a SELECT it only reads. */
	case SQLITE_PRAGMA: *forbidden = !a; break;
	default: break;
	}
	return SQLITE_OK;
}

static sqlite3 *open_database(bool *forbidden) {
	static sqlite3 *db;
	if (!db) {
		MUST(sqlite3_open(":memory:", &db) == SQLITE_OK);
		MUST(sqlite3_exec(db, "CREATE TABLE t (a, b, c PRIMARY KEY)", NULL,
					 NULL, NULL) == SQLITE_OK);
		MUST(sqlite3_set_authorizer(db, record_forbidden, forbidden) ==
				SQLITE_OK);
	}
	return db;
}

static void compare_with_sqlite(const char *sql, size_t count,
		const struct parsed *parsed) {
	static bool forbidden;
	struct parsed found = { .unclosed = false };
	size_t found_count = 0;
	sqlite3 *db = open_database(&forbidden);
	forbidden = false;
	while (*sql) {
		sqlite3_stmt *statement = NULL;
		if (sqlite3_prepare_v2(db, sql, -1, &statement, &sql) != SQLITE_OK) {
			return; /* the error is reported when the statement runs */
		}
		int param_count = sqlite3_bind_parameter_count(statement);
		for (int i = 1; i <= param_count; i++) {
			const char *name = sqlite3_bind_parameter_name(statement, i);
			enum postern__sql_param param;
			MUST(name && name[0] == ':');
			MUST(postern__sql_param_find(name + 1, strlen(name + 1), &param));
			found.params[param] = true;
		}
		/* EXPLAIN prints what would be done, and does nothing. */
		MUST(!forbidden || sqlite3_stmt_isexplain(statement));
		forbidden = false;
		found_count += statement != NULL;
		MUST(sqlite3_finalize(statement) == SQLITE_OK);
	}
	MUST(found_count == count);
	MUST(memcmp(found.params, parsed->params, sizeof found.params) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	char *sql = fuzz_text(data, size < LEN_MAX ? size : LEN_MAX);
	static const enum postern_sql_dialect dialects[] = { POSTERN_SQL_SQLITE,
		POSTERN_SQL_POSTGRES };
	for (size_t i = 0; i < 2; i++) {
		struct parsed parsed = { .unclosed = false };
		struct postern_error error = { 0 };
		size_t count = 0;
		read_tokens(sql, dialects[i], &parsed);
		int r = postern__sql_check(sql, dialects[i], &count, &error);
		MUST(r == POSTERN_OK || r == POSTERN_E_INVALID);
		if (r == POSTERN_OK) {
			MUST(count > 0 && !parsed.unclosed);
			if (dialects[i] == POSTERN_SQL_SQLITE) {
				compare_with_sqlite(sql, count, &parsed);
			}
		} else {
			MUST(error.text[0] && fuzz_is_clean(error.text));
		}
	}
	free(sql);
	return 0;
}
