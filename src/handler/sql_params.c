/* SPDX-License-Identifier: MIT */
/*
 * A reader of SQL tokens, after the manuals and the manners of the two
 * databases. What differs:
 *
 *                      SQLite                    PostgreSQL
 *   [name] `name`      quoted names              brackets, an operator
 *   E'\''              a word and a string       one string
 *   $tag$ … $tag$      a parameter, then more    one string
 *   nested comments    no                        yes
 *   -- ends at         \n                        \n and \r
 *   ? @x $x            parameters                operators, $1 a parameter
 *   :1 :$x             parameters                a colon and something
 *   :x::y :x(y)        one parameter's name      a parameter, a cast; a call
 *   a byte order mark  a blank                   letters of a name
 *   BEGIN ATOMIC … END nothing                   a routine's body, with all its
 *                                                semicolons
 *
 * The parameter's name is why a `::` is refused for SQLite with a sentence of
 * its own: left to it, the cast would become a part of the name.
 */

#include "handler/sql_params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/utf8.h"
#include "handler/kinds.h"

static const char *const param_names[POSTERN__SQL_PARAM_COUNT] = {
	[POSTERN__SQL_ID] = "id",
	[POSTERN__SQL_SOURCE] = "source",
	[POSTERN__SQL_TYPE] = "type",
	[POSTERN__SQL_SUBJECT] = "subject",
	[POSTERN__SQL_TIME] = "time",
	[POSTERN__SQL_BODY] = "body",
	[POSTERN__SQL_BODY_JSON] = "body_json",
	[POSTERN__SQL_BODY_BYTES] = "body_bytes",
	[POSTERN__SQL_HEADERS] = "headers",
	[POSTERN__SQL_ATTEMPT] = "attempt",
};

/* First words of statements that are refused, and why. */
static const struct refusal {
	const char *word;
	const char *why;
} refusals[] = {
	{ "abort", "ends the transaction that the delivery is a part of" },
	{ "attach", "changes the store's connection" },
	{ "begin", "the statements already run in a transaction" },
	{ "commit", "ends the transaction that the delivery is a part of" },
	{ "detach", "changes the store's connection" },
	{ "end", "ends the transaction that the delivery is a part of" },
	{ "pragma", "changes the store's connection" },
	{ "release", "ends a savepoint that the delivery is a part of" },
	{ "rollback", "ends the transaction that the delivery is a part of" },
	{ "savepoint", "the statements already run in a savepoint" },
	{ "start", "the statements already run in a transaction" },
	{ "vacuum", "cannot be run in a transaction" },
};

static bool is_blank(char c) {
	return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r' ||
		   c == '\v';
}

static bool is_digit(char c) {
	return c >= '0' && c <= '9';
}

/* The first character of a name; both databases accept every byte above
   ASCII. */
static bool is_letter(char c) {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
		   (unsigned char)c >= 0x80;
}

static bool is_name(char c) {
	return is_letter(c) || is_digit(c) || c == '$';
}

static size_t name_len(const char *text) {
	size_t len = 0;
	while (is_name(text[len])) {
		len++;
	}
	return len;
}

/* The length including the closing quote, which is doubled inside; 0 if there
   is none. `escapes`: a backslash escapes the next character. */
static size_t quoted_len(const char *text, char close, bool escapes) {
	size_t i = 1;
	while (text[i]) {
		if (escapes && text[i] == '\\' && text[i + 1]) {
			i += 2;
		} else if (text[i] != close) {
			i++;
		} else if (text[i + 1] == close && close != ']') {
			i += 2;
		} else {
			return i + 1;
		}
	}
	return 0;
}

/* E'…', which continues in quotes on the next line; 0 if it is not
   terminated. */
static size_t escaped_len(const char *text) {
	size_t len = 1;
	size_t gap = 0;
	do {
		size_t part = quoted_len(text + len + gap, '\'', true);
		if (part == 0) {
			return 0;
		}
		len += gap + part;
		gap = strspn(text + len, " \t\f\v\r\n");
	} while (text[len + gap] == '\'' && strcspn(text + len, "\r\n") < gap);
	return len;
}

/* $$ … $$ or $tag$ … $tag$. -1 if it is none, 0 if it is not terminated. */
static long dollar_len(const char *text) {
	size_t tag = 1;
	if (is_digit(text[1])) {
		return -1;
	}
	while (is_letter(text[tag]) || is_digit(text[tag])) {
		tag++;
	}
	if (text[tag] != '$') {
		return -1;
	}
	tag++;
	for (const char *end = text + tag; (end = strchr(end, '$')); end++) {
		if (strncmp(end, text, tag) == 0) {
			return (long)((size_t)(end - text) + tag);
		}
	}
	return 0;
}

/* 0 if it is not terminated. */
static size_t comment_len(const char *text, bool nests) {
	unsigned depth = 1;
	size_t i = 2;
	while (text[i]) {
		if (text[i] == '*' && text[i + 1] == '/') {
			i += 2;
			if (--depth == 0) {
				return i;
			}
		} else if (nests && text[i] == '/' && text[i + 1] == '*') {
			i += 2;
			depth++;
		} else {
			i++;
		}
	}
	return 0;
}

static void skip(struct postern__sql_reader *reader, size_t len) {
	for (size_t i = 0; i < len; i++) {
		if (reader->sql[i] == '\n') {
			reader->line_count++;
		}
	}
	reader->sql += len;
}

/* Skip blanks and comments. Stops at an unterminated comment. */
static void skip_blanks(struct postern__sql_reader *reader) {
	bool sqlite = reader->dialect == POSTERN_SQL_SQLITE;
	for (;;) {
		const char *sql = reader->sql;
		size_t len = 0;
		if (is_blank(*sql)) {
			len = 1;
		} else if (sqlite && strncmp(sql, "\xef\xbb\xbf", 3) == 0) {
			len = 3;
		} else if (sql[0] == '-' && sql[1] == '-') {
			len = strcspn(sql, sqlite ? "\n" : "\r\n");
		} else if (sql[0] == '/' && sql[1] == '*') {
			len = comment_len(sql, !sqlite);
		}
		if (len == 0) {
			return;
		}
		skip(reader, len);
	}
}

static enum postern__sql_token_kind quoted(size_t len, size_t *len_out) {
	*len_out = len;
	return len > 0 ? POSTERN__SQL_LITERAL : POSTERN__SQL_UNCLOSED;
}

static enum postern__sql_token_kind read_dollar(const char *sql, bool sqlite,
		size_t *len_out) {
	if (!sqlite) {
		long len = dollar_len(sql);
		if (len >= 0) {
			return quoted((size_t)len, len_out);
		}
		if (!is_digit(sql[1])) {
			return POSTERN__SQL_OTHER;
		}
	}
	*len_out = 1 + name_len(sql + 1);
	return POSTERN__SQL_FOREIGN;
}

static enum postern__sql_token_kind read_word(const char *sql, bool sqlite,
		size_t *len_out) {
	if (!sqlite && (sql[0] == 'e' || sql[0] == 'E') && sql[1] == '\'') {
		return quoted(escaped_len(sql), len_out);
	}
	*len_out = name_len(sql);
	return POSTERN__SQL_WORD;
}

/* For SQLite even :1 and :$ are parameters; for PostgreSQL, a[1:2] is not. */
static enum postern__sql_token_kind read_colon(const char *sql, bool sqlite,
		size_t *len_out) {
	if (sql[1] == ':') {
		*len_out = 2;
		return POSTERN__SQL_CAST;
	}
	if (sqlite ? !is_name(sql[1]) : !is_letter(sql[1])) {
		return POSTERN__SQL_OTHER;
	}
	*len_out = 1 + name_len(sql + 1);
	return POSTERN__SQL_PARAM;
}

static enum postern__sql_token_kind classify(const char *sql, bool sqlite,
		size_t *len_out) {
	*len_out = 1;
	switch (*sql) {
	case '\0': *len_out = 0; return POSTERN__SQL_END;
	case ';': return POSTERN__SQL_SEMICOLON;
	case ':': return read_colon(sql, sqlite, len_out);
	case '$': return read_dollar(sql, sqlite, len_out);
	case '\'':
	case '"': return quoted(quoted_len(sql, *sql, false), len_out);
	case '[':
		return sqlite ? quoted(quoted_len(sql, ']', false), len_out)
					  : POSTERN__SQL_OTHER;
	case '`':
		return sqlite ? quoted(quoted_len(sql, '`', false), len_out)
					  : POSTERN__SQL_OTHER;
	case '?':
	case '@':
	case '#':
		if (!sqlite) {
			return POSTERN__SQL_OTHER;
		}
		*len_out = 1 + name_len(sql + 1);
		return POSTERN__SQL_FOREIGN;
	case '/': return sql[1] == '*' ? POSTERN__SQL_UNCLOSED : POSTERN__SQL_OTHER;
	default: break;
	}
	if (is_letter(*sql)) {
		return read_word(sql, sqlite, len_out);
	}
	/* The whole number at once, so that the e in 1e5 is not a word. */
	if (is_digit(*sql)) {
		*len_out = name_len(sql);
	}
	return POSTERN__SQL_OTHER;
}

static bool is_word(const struct postern__sql_token *token, const char *word) {
	return token->kind == POSTERN__SQL_WORD && token->len == strlen(word) &&
		   strncasecmp(token->text, word, token->len) == 0;
}

static enum postern__sql_making make(enum postern__sql_making making,
		const struct postern__sql_token *token) {
	if (making == POSTERN__SQL_MAKES_UNKNOWN) {
		return is_word(token, "create") ? POSTERN__SQL_MAKES_SOMETHING
										: POSTERN__SQL_MAKES_NOTHING;
	}
	if (making != POSTERN__SQL_MAKES_SOMETHING || is_word(token, "or") ||
			is_word(token, "replace")) {
		return making;
	}
	return is_word(token, "function") || is_word(token, "procedure")
				   ? POSTERN__SQL_MAKES_ROUTINE
				   : POSTERN__SQL_MAKES_NOTHING;
}

/* A semicolon in the body of a routine does not end the statement. */
static void follow_body(struct postern__sql_reader *reader,
		struct postern__sql_token *token) {
	bool begun = reader->begun;
	reader->begun = false;
	if (token->kind == POSTERN__SQL_SEMICOLON && reader->depth > 0) {
		token->kind = POSTERN__SQL_OTHER;
	} else if (token->kind == POSTERN__SQL_SEMICOLON) {
		reader->making = POSTERN__SQL_MAKES_UNKNOWN;
	} else {
		reader->making = make(reader->making, token);
	}
	if (reader->making != POSTERN__SQL_MAKES_ROUTINE) {
		return;
	}
	if (reader->depth == 0) {
		reader->begun = is_word(token, "begin");
		reader->depth = begun && is_word(token, "atomic");
	} else if (is_word(token, "case")) {
		reader->depth++;
	} else if (is_word(token, "end")) {
		reader->depth--;
	}
}

void postern__sql_next(struct postern__sql_reader *reader,
		struct postern__sql_token *out) {
	skip_blanks(reader);
	size_t len;
	out->text = reader->sql;
	out->line = reader->line_count + 1;
	out->kind =
			classify(reader->sql, reader->dialect == POSTERN_SQL_SQLITE, &len);
	if (out->kind == POSTERN__SQL_UNCLOSED) {
		len = strlen(reader->sql);
	}
	out->len = len;
	skip(reader, len);
	if (reader->dialect == POSTERN_SQL_POSTGRES) {
		follow_body(reader, out);
	}
}

bool postern__sql_param_find(const char *name, size_t len,
		enum postern__sql_param *out) {
	for (unsigned i = 0; i < POSTERN__SQL_PARAM_COUNT; i++) {
		if (strlen(param_names[i]) == len &&
				memcmp(param_names[i], name, len) == 0) {
			*out = (enum postern__sql_param)i;
			return true;
		}
	}
	return false;
}

/* A parameter's name in the error; longer ones are cut. */
#define SHOWN_LEN_MAX 40

static int shown_len(const struct postern__sql_token *token) {
	return (int)postern__utf8_cut(token->text, token->len, SHOWN_LEN_MAX);
}

static int unknown_param(const struct postern__sql_token *token,
		struct postern_error *error) {
	char name[SHOWN_LEN_MAX + 1];
	const char *meant = NULL;

	if (token->len - 1 <= SHOWN_LEN_MAX) {
		/* :ID is accepted as a misspelling of :id; names are in lower case. */
		for (size_t i = 1; i < token->len; i++) {
			char c = token->text[i];
			name[i - 1] = c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
		}
		name[token->len - 1] = '\0';
		meant = postern__closest(name, param_names, POSTERN__SQL_PARAM_COUNT);
	}
	if (meant) {
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: unknown parameter '%.*s' (did you mean ':%s'?)",
				token->line, shown_len(token), token->text, meant);
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"line %u: unknown parameter '%.*s'; there are :id :source :type "
			":subject :time :body :body_json :body_bytes :headers :attempt",
			token->line, shown_len(token), token->text);
}

static int check_param(const struct postern__sql_token *token, bool sqlite,
		struct postern_error *error) {
	enum postern__sql_param param;
	const char *next = token->text + token->len;

	if (!postern__sql_param_find(token->text + 1, token->len - 1, &param)) {
		return unknown_param(token, error);
	}
	if (sqlite && *next == '(') {
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: unexpected '(' after '%.*s'", token->line,
				shown_len(token), token->text);
	}
	return POSTERN_OK;
}

static int check_token(const struct postern__sql_token *token, bool sqlite,
		struct postern_error *error) {
	switch (token->kind) {
	case POSTERN__SQL_PARAM: return check_param(token, sqlite, error);
	case POSTERN__SQL_FOREIGN:
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: parameters are written :name, not '%.*s'",
				token->line, shown_len(token), token->text);
	case POSTERN__SQL_CAST:
		if (!sqlite) {
			return POSTERN_OK;
		}
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: '::' is a cast of PostgreSQL; in SQLite write cast(x "
				"as type)",
				token->line);
	case POSTERN__SQL_UNCLOSED:
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: unterminated %.*s", token->line,
				*token->text == '/' ? 2 : 1, token->text);
	default: return POSTERN_OK;
	}
}

static int check_first(const struct postern__sql_token *token,
		struct postern_error *error) {
	for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
		if (is_word(token, refusals[i].word)) {
			return postern__fail(error, POSTERN_E_INVALID,
					"line %u: %s is not allowed in a handler: %s", token->line,
					refusals[i].word, refusals[i].why);
		}
	}
	return POSTERN_OK;
}

/* Refuse two words in a row, anywhere outside of quotes. */
static int check_pair(const struct postern__sql_token *before,
		const struct postern__sql_token *token, struct postern_error *error) {
	if (is_word(before, "or") && is_word(token, "rollback")) {
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: or rollback is not allowed in a handler: it ends the "
				"transaction that the delivery is a part of",
				token->line);
	}
	if (is_word(before, "prepare") && is_word(token, "transaction")) {
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: prepare transaction is not allowed in a handler: it "
				"ends the transaction that the delivery is a part of",
				token->line);
	}
	return POSTERN_OK;
}

/* Track the words after CREATE, which name the sort of object. */
static bool is_creating(bool creating,
		const struct postern__sql_token *before) {
	static const char *const between[] = { "or", "replace", "global", "local",
		"constraint", "event" };
	bool goes_on = is_word(before, "create");
	for (size_t i = 0; creating && i < sizeof between / sizeof between[0];
			i++) {
		goes_on = goes_on || is_word(before, between[i]);
	}
	return goes_on;
}

/* Refuse objects that CREATE must not create. */
static int check_created(const struct postern__sql_token *token,
		struct postern_error *error) {
	if (is_word(token, "temp") || is_word(token, "temporary")) {
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: create %.*s is not allowed in a handler: it would "
				"remain for other deliveries",
				token->line, shown_len(token), token->text);
	}
	if (is_word(token, "trigger")) {
		return postern__fail(error, POSTERN_E_INVALID,
				"line %u: create trigger is not allowed in a handler",
				token->line);
	}
	return POSTERN_OK;
}

/* Track the words after SET at the beginning of a statement. */
static bool is_setting(bool setting, bool begun,
		const struct postern__sql_token *before) {
	return begun ? is_word(before, "set")
				 : setting && (is_word(before, "local") ||
									  is_word(before, "session"));
}

/* Refuse settings that SET must not change. */
static int check_set(const struct postern__sql_token *token,
		struct postern_error *error) {
	static const char *const words[] = { "transaction", "characteristics",
		"transaction_deferrable", "transaction_isolation",
		"transaction_read_only" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (is_word(token, words[i])) {
			return postern__fail(error, POSTERN_E_INVALID,
					"line %u: set %s%s is not allowed in a handler: the "
					"transaction of the delivery has begun",
					token->line, *words[i] == 'c' ? "session " : "", words[i]);
		}
	}
	return POSTERN_OK;
}

static int check_text(const char *sql, struct postern_error *error) {
	size_t len = strnlen(sql, POSTERN__SQL_LEN_MAX + 1);
	if (len > POSTERN__SQL_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the SQL exceeds %d bytes", POSTERN__SQL_LEN_MAX);
	}
	if (!postern__utf8_valid(sql, len)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the SQL is not valid UTF-8");
	}
	return POSTERN_OK;
}

int postern__sql_check(const char *sql, enum postern_sql_dialect dialect,
		size_t *count_out, struct postern_error *error) {
	struct postern__sql_reader reader = { .dialect = dialect, .sql = sql };
	struct postern__sql_token before = { .kind = POSTERN__SQL_SEMICOLON };
	struct postern__sql_token token;
	bool creating = false;
	bool setting = false;
	bool begun = false; /* with the token before */
	size_t count = 0;

	int r = check_text(sql, error);
	while (r == POSTERN_OK) {
		postern__sql_next(&reader, &token);
		if (token.kind == POSTERN__SQL_END) {
			break;
		}
		r = check_token(&token, dialect == POSTERN_SQL_SQLITE, error);
		if (r == POSTERN_OK && before.kind == POSTERN__SQL_SEMICOLON &&
				token.kind != POSTERN__SQL_SEMICOLON) {
			count++;
			r = check_first(&token, error);
		}
		if (r == POSTERN_OK) {
			r = check_pair(&before, &token, error);
		}
		creating = is_creating(creating, &before);
		if (r == POSTERN_OK && creating) {
			r = check_created(&token, error);
		}
		setting = is_setting(setting, begun, &before);
		if (r == POSTERN_OK && setting) {
			r = check_set(&token, error);
		}
		begun = before.kind == POSTERN__SQL_SEMICOLON;
		before = token;
	}
	if (r != POSTERN_OK) {
		return r;
	}
	if (count == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the SQL has no statement");
	}
	if (count > POSTERN__SQL_STATEMENT_COUNT_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the SQL has %zu statements; the maximum is %d", count,
				POSTERN__SQL_STATEMENT_COUNT_MAX);
	}
	*count_out = count;
	return POSTERN_OK;
}

/* Whether this is a $number of a named parameter. */
static const char *name_of(const char *number, char **end_out,
		const enum postern__sql_param *params, size_t count) {
	unsigned long index = strtoul(number, end_out, 10);
	return *end_out != number && index >= 1 && index <= count
				   ? param_names[params[index - 1]]
				   : NULL;
}

void postern__sql_map_error(const char *message,
		const enum postern__sql_param *params, size_t count, char *out,
		size_t size) {
	static const char head[] = "parameter $";
	const char *at = strstr(message, head);
	char *rest = NULL;
	const char *name =
			at ? name_of(at + strlen(head), &rest, params, count) : NULL;
	if (!name) {
		(void)snprintf(out, size, "%s", message);
		return;
	}
	bool untyped = strstr(message, "could not determine data type");
	(void)snprintf(out, size, "%.*sparameter :%s%s%s%s%s", (int)(at - message),
			message, name, rest, untyped ? "; add a cast, as in :" : "",
			untyped ? name : "", untyped ? "::text" : "");
}
