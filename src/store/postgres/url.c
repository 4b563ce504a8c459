/* SPDX-License-Identifier: MIT */

/*
 * Parsing the store's URL: one of libpq's form (postgres://user@host/database)
 * or, after "postgres:", a libpq connection string (host=… dbname=…).
 * Parameters of Postern are taken out of either; libpq gets the rest. They may
 * also be given as options, and then must be equal.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "store/postgres/postgres.h"
#include "store/store.h"

#define SCHEMA_DEFAULT "postern"
/* PostgreSQL truncates longer names. */
#define SCHEMA_LEN_MAX (POSTERN_SCHEMA_NAME_MAX - 1)
#define CONNECTION_COUNT_DEFAULT 8
/* The number of concurrent transactions of handlers; each commit waits for the
   disk, and two wait together. */
#define TRANSACTION_COUNT_MAX 3
#define ADDRESS_LEN_MAX 8192
/* Names of parameters; libpq has about forty. */
#define NAME_COUNT_MAX 128
#define NAME_LEN_MAX 40
/* What libpq treats as blanks in a connection string. */
#define BLANKS " \t\n\r\f\v"

/* A parameter of Postern, in the URL or the connection string. */
struct parameter {
	const char *text; /* NULL: not given */
	size_t len;
};

/* Where to connect, for libpq and for people. */
struct address {
	const char *what; /* names the setting in errors */
	char *conninfo;
	char *place;
	bool is_url;         /* and not a connection string */
	bool after_password; /* in a connection string: a password was read */
	/* These point into the URL. */
	struct parameter schema;
	struct parameter connections;
};

static void address_finish(struct address *address) {
	free(address->conninfo);
	free(address->place);
}

static int set_schema(struct pg_store *self, const char *name, size_t len,
		struct postern_error *error) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
	if (len == 0 || len > SCHEMA_LEN_MAX || strspn(name, letters) < len ||
			strchr("0123456789", name[0]) || strncmp(name, "pg_", 3) == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.*s' is not a valid schema name: use lowercase letters, "
				"digits and '_', no prefix 'pg_', at most %d characters",
				(int)(len < 80 ? len : 80), name, SCHEMA_LEN_MAX);
	}
	self->schema = malloc(len + sizeof "\"\".");
	if (!self->schema) {
		return postern__pg_no_memory(error);
	}
	(void)snprintf(self->schema, len + sizeof "\"\".", "\"%.*s\".", (int)len,
			name);
	(void)snprintf(self->schema_name, sizeof self->schema_name, "%.*s",
			(int)len, name);
	self->base.schema = self->schema_name;
	return POSTERN_OK;
}

static int set_connections(struct pg_store *self, const char *text, size_t len,
		struct postern_error *error) {
	size_t count = 0;
	for (size_t i = 0; i < len && count <= PG_CONNECTION_MAX; i++) {
		if (text[i] < '0' || text[i] > '9') {
			count = 0;
			break;
		}
		count = count * 10 + (size_t)(text[i] - '0');
	}
	if (count < 2 || count > PG_CONNECTION_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'connections' of a store must be a number from 2 to %d",
				PG_CONNECTION_MAX);
	}
	self->connection_max = count;
	return POSTERN_OK;
}

/* Lists every known parameter: those of Postern, then libpq's. */
static size_t list_names(const PQconninfoOption *options, bool is_url,
		const char *names[static NAME_COUNT_MAX]) {
	size_t count = 0;
	names[count++] = "schema";
	names[count++] = "connections";
	if (is_url) {
		names[count++] = "ssl";
	}
	for (; options && options->keyword && count < NAME_COUNT_MAX; options++) {
		names[count++] = options->keyword;
	}
	return count;
}

static int fail_unknown(const struct address *address, const char *name,
		const char *near, struct postern_error *error) {
	if (address->after_password) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s has an unknown parameter after the password; put single "
				"quotes around a password that contains a blank",
				address->what);
	}
	if (near) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s has an unknown parameter '%s'; did you mean '%s'?",
				address->what, name, near);
	}
	return postern__fail(error, POSTERN_E_INVALID,
			"%s has an unknown parameter '%s', which is neither libpq's nor "
			"'schema' or 'connections'",
			address->what, name);
}

/* An unknown name is reported if it is plain letters: libpq's own error would
   quote the URL. Anything else is left to libpq. */
static int check_name(const struct address *address, const char *text,
		size_t len, struct postern_error *error) {
	const char *names[NAME_COUNT_MAX];
	char name[NAME_LEN_MAX + 1] = "";
	if (len == 0 || len > NAME_LEN_MAX ||
			strspn(text, "abcdefghijklmnopqrstuvwxyz_") < len) {
		return POSTERN_OK;
	}
	memcpy(name, text, len);
	PQconninfoOption *options = PQconndefaults();
	size_t count = list_names(options, address->is_url, names);
	bool known = !options; /* out of memory: libpq reports it */
	for (size_t i = 0; i < count; i++) {
		known = known || strcmp(names[i], name) == 0;
	}
	int r = POSTERN_OK;
	if (!known) {
		r = fail_unknown(address, name, postern__closest(name, names, count),
				error);
	}
	PQconninfoFree(options);
	return r;
}

static bool is_name(const char *text, size_t len, const char *name) {
	return len == strlen(name) && memcmp(text, name, len) == 0;
}

/* Reads a parameter of Postern; *taken_out is whether it was one. */
static int read_own(struct address *address, const char *name, size_t name_len,
		struct parameter value, bool *taken_out, struct postern_error *error) {
	const struct {
		const char *name;
		struct parameter *out;
	} ours[] = {
		{ "schema", &address->schema },
		{ "connections", &address->connections },
	};
	*taken_out = false;
	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
		if (!is_name(name, name_len, ours[i].name)) {
			continue;
		}
		if (ours[i].out->text) {
			return postern__fail(error, POSTERN_E_INVALID,
					"'%s' is in the store's URL twice", ours[i].name);
		}
		*ours[i].out = value;
		*taken_out = true;
	}
	return POSTERN_OK;
}

/* One "name=value" of the URL: Postern's, or left to libpq. */
static int read_url_parameter(struct address *address, const char *text,
		size_t len, struct postern__buf *rest, struct postern_error *error) {
	const char *equals = memchr(text, '=', len);
	size_t name_len = equals ? (size_t)(equals - text) : 0;
	bool taken = false;
	int r = POSTERN_OK;
	if (equals) {
		r = read_own(address, text, name_len,
				(struct parameter){ equals + 1, len - name_len - 1 }, &taken,
				error);
	}
	if (r != POSTERN_OK || taken) {
		return r;
	}
	postern__buf_append_char(rest,
			strchr(postern__buf_text(rest), '?') ? '&' : '?');
	postern__buf_append(rest, text, len);
	return check_name(address, text, name_len, error);
}

static int read_url_parameters(struct address *address, const char *query,
		struct postern__buf *rest, struct postern_error *error) {
	int r = POSTERN_OK;
	while (r == POSTERN_OK && *query) {
		size_t len = strcspn(query, "&");
		if (len > 0) {
			r = read_url_parameter(address, query, len, rest, error);
		}
		query += len + (query[len] == '&');
	}
	return r;
}

/* Returns the length of a value in a connection string, with its quotes;
   SIZE_MAX: its quote is not closed. */
static size_t value_len_of(const char *text) {
	bool quoted = *text == '\'';
	size_t len = quoted;
	for (; text[len]; len++) {
		if (text[len] == '\\' && text[len + 1]) {
			len++;
		} else if (quoted && text[len] == '\'') {
			return len + 1;
		} else if (!quoted && strchr(BLANKS, text[len])) {
			return len;
		}
	}
	return quoted ? SIZE_MAX : len;
}

/* One "name = value" of a connection string; *text moves behind it, or not at
   all if there is none. */
static int read_dsn_setting(struct address *address, const char **text,
		struct postern__buf *rest, struct postern_error *error) {
	const char *name = *text;
	size_t name_len = strcspn(name, "=" BLANKS);
	const char *at = name + name_len;
	at += strspn(at, BLANKS);
	if (*at != '=') {
		return POSTERN_OK;
	}
	at++;
	at += strspn(at, BLANKS);
	struct parameter value = { at, value_len_of(at) };
	if (value.len == SIZE_MAX) {
		return POSTERN_OK;
	}
	*text = at + value.len;
	if (*at == '\'') {
		value = (struct parameter){ at + 1, value.len - 2 };
	}
	bool taken;
	int r = read_own(address, name, name_len, value, &taken, error);
	if (r != POSTERN_OK || taken) {
		return r;
	}
	postern__buf_append(rest, name, (size_t)(*text - name));
	postern__buf_append_char(rest, ' ');
	r = check_name(address, name, name_len, error);
	/* The rest of a password with a blank and without quotes looks like a name.
	 */
	address->after_password = address->after_password ||
							  is_name(name, name_len, "password") ||
							  is_name(name, name_len, "sslpassword");
	return r;
}

/* Reads a connection string. What does not have its form is left to libpq,
   which reports it. */
static int read_dsn_settings(struct address *address, const char *text,
		struct postern__buf *rest, struct postern_error *error) {
	const char *before = NULL;
	int r = POSTERN_OK;
	while (r == POSTERN_OK && text != before) {
		text += strspn(text, BLANKS);
		before = text;
		r = *text ? read_dsn_setting(address, &text, rest, error) : POSTERN_OK;
	}
	postern__buf_append_text(rest, text);
	return r;
}

static const char *value_of(const PQconninfoOption *options, const char *name) {
	for (; options->keyword; options++) {
		if (strcmp(options->keyword, name) == 0) {
			return options->val && options->val[0] ? options->val : NULL;
		}
	}
	return NULL;
}

/* The place for messages, which must not contain a secret: not a password whose
   host is missing, so that it looks like a port. */
static int set_place(struct address *address, struct postern_error *error) {
	PQconninfoOption *options = PQconninfoParse(address->conninfo, NULL);
	if (!options) {
		/* libpq's own error would quote the URL. */
		return postern__fail(error, POSTERN_E_INVALID,
				"%s is not valid for libpq: write "
				"postgres://user@host:port/database or "
				"'postgres:host=… dbname=…'",
				address->what);
	}
	const char *host = value_of(options, "host");
	const char *port = value_of(options, "port");
	const char *database = value_of(options, "dbname");
	if (port && port[strspn(port, "0123456789, ")]) {
		PQconninfoFree(options);
		return postern__fail(error, POSTERN_E_INVALID,
				"%s has a port that is not a number. If it is a password, an "
				"'@' and a host must follow it; in YAML ' #' begins a "
				"comment, so put the URL in quotes",
				address->what);
	}
	host = host ? host : value_of(options, "hostaddr");
	struct postern__buf place;
	postern__buf_init(&place, 1024);
	postern__buf_printf(&place, "%s%s%s%s%s", host ? host : "localhost",
			port ? ":" : "", port ? port : "", database ? "/" : "",
			database ? database : "");
	PQconninfoFree(options);
	int r = postern__buf_check(&place, address->what, error);
	if (r == POSTERN_OK) {
		address->place = postern__buf_detach(&place, NULL);
		r = address->place ? POSTERN_OK : postern__pg_no_memory(error);
	}
	postern__buf_finish(&place);
	return r;
}

/*
 * libpq cuts a password with an unescaped '/', '?' or '@' in two and uses a
 * part of it as a host, a port or a database, which appear in messages. So only
 * one '@' is allowed, in front of the host.
 */
static int check_ats(const char *url, const char *what,
		struct postern_error *error) {
	size_t authority = strcspn(url, "/?");
	const char *at = memchr(url, '@', authority);
	if (strchr(at ? at + 1 : url + authority, '@')) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s has an '@' where none is allowed: in a user, a password or "
				"any other part write '%%' as %%25, '@' as %%40, '/' as %%2F "
				"and '?' as %%3F, and in a user ':' as %%3A",
				what);
	}
	return POSTERN_OK;
}

/* Reads what follows "postgres:". The address is to be finished, also on
   failure. */
static int read_address(const char *rest, struct address *address,
		struct postern_error *error) {
	struct postern__buf conninfo;
	int r = POSTERN_OK;
	postern__buf_init(&conninfo, ADDRESS_LEN_MAX);
	address->is_url = strncmp(rest, "//", 2) == 0;
	if (address->is_url) {
		size_t len = strcspn(rest, "?");
		postern__buf_append_text(&conninfo, "postgresql:");
		postern__buf_append(&conninfo, rest, len);
		r = check_ats(rest + 2, address->what, error);
		if (r == POSTERN_OK && rest[len]) {
			r = read_url_parameters(address, rest + len + 1, &conninfo, error);
		}
	} else {
		r = read_dsn_settings(address, rest, &conninfo, error);
	}
	if (r == POSTERN_OK) {
		r = postern__buf_check(&conninfo, address->what, error);
	}
	if (r == POSTERN_OK) {
		address->conninfo = postern__buf_detach(&conninfo, NULL);
		r = address->conninfo ? set_place(address, error)
							  : postern__pg_no_memory(error);
	}
	postern__buf_finish(&conninfo);
	return r;
}

static int fail_mismatch(const char *name, const struct parameter *in_url,
		const char *option, struct postern_error *error) {
	return postern__fail(error, POSTERN_E_INVALID,
			"the URL has %s=%.*s and the setting '%s' is %.64s: set it once",
			name, (int)(in_url->len < 64 ? in_url->len : 64), in_url->text,
			name, option);
}

/* Returns the value of the URL or of the option; both must be equal. */
static int merge_option(const char *name, const struct parameter *in_url,
		const char *option, struct parameter *out,
		struct postern_error *error) {
	if (in_url->text && option &&
			(in_url->len != strlen(option) ||
					memcmp(in_url->text, option, in_url->len) != 0)) {
		return fail_mismatch(name, in_url, option, error);
	}
	*out = *in_url;
	if (option) {
		*out = (struct parameter){ option, strlen(option) };
	}
	return POSTERN_OK;
}

static int apply_options(struct pg_store *self, const struct address *address,
		const struct postern_store_options *options,
		struct postern_error *error) {
	struct parameter schema;
	struct parameter connections;
	char count[16];
	(void)snprintf(count, sizeof count, "%lu",
			(unsigned long)options->connections);
	int r = merge_option("schema", &address->schema, options->schema, &schema,
			error);
	if (r == POSTERN_OK) {
		r = merge_option("connections", &address->connections,
				options->connections ? count : NULL, &connections, error);
	}
	if (r == POSTERN_OK && !schema.text) {
		schema = (struct parameter){ SCHEMA_DEFAULT, strlen(SCHEMA_DEFAULT) };
	}
	if (r == POSTERN_OK) {
		r = set_schema(self, schema.text, schema.len, error);
	}
	self->connection_max = CONNECTION_COUNT_DEFAULT;
	if (r == POSTERN_OK && connections.text) {
		r = set_connections(self, connections.text, connections.len, error);
	}
	/* A handler's transaction has its connection as long as the handler runs,
	   and may need another to determine the outcome of a COMMIT; half of them
	   is left for all other operations. */
	self->base.transactions = (unsigned)(self->connection_max / 2) - 1;
	if (self->base.transactions > TRANSACTION_COUNT_MAX) {
		self->base.transactions = TRANSACTION_COUNT_MAX;
	}
	return r;
}

/* Returns what follows the scheme; NULL if it is another scheme. */
static const char *rest_of(const char *url) {
	static const char *const schemes[] = { "postgres:", "postgresql:" };
	for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
		if (strncmp(url, schemes[i], strlen(schemes[i])) == 0) {
			return url + strlen(schemes[i]);
		}
	}
	return NULL;
}

static int set_listen_url(struct pg_store *self, const char *url,
		struct postern_error *error) {
	struct address address = { .what = "'listen_url'" };
	const char *rest = rest_of(url);
	if (!rest || !*rest) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'listen_url' is not a PostgreSQL URL; write "
				"postgres://USER@HOST/DATABASE");
	}
	int r = read_address(rest, &address, error);
	if (r == POSTERN_OK && (address.schema.text || address.connections.text)) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"'%s' is a parameter of the store's own URL, not of "
				"'listen_url'",
				address.schema.text ? "schema" : "connections");
	}
	if (r == POSTERN_OK) {
		self->listen_conninfo = address.conninfo;
		self->listen_place = address.place;
	} else {
		address_finish(&address);
	}
	return r;
}

int postern__pg_parse(struct pg_store *self, const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error) {
	struct address address = { .what = "the store's URL" };
	int r = read_address(rest, &address, error);
	if (r == POSTERN_OK) {
		r = apply_options(self, &address, options, error);
	}
	if (r == POSTERN_OK && options->listen_url) {
		r = set_listen_url(self, options->listen_url, error);
	}
	self->conninfo = address.conninfo;
	self->place = address.place;
	return r;
}

void postern__pg_parse_finish(struct pg_store *self) {
	free(self->conninfo);
	free(self->place);
	free(self->listen_conninfo);
	free(self->listen_place);
	free(self->schema);
}

int postern__pg_check(const char *rest,
		const struct postern_store_options *options,
		struct postern_error *error) {
	struct pg_store *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__pg_no_memory(error);
	}
	int r = postern__pg_parse(self, rest, options, error);
	postern__pg_parse_finish(self);
	free(self);
	return r;
}

int postern__pg_schema_name(const char *rest,
		const struct postern_store_options *options,
		char out[POSTERN_SCHEMA_NAME_MAX], struct postern_error *error) {
	struct pg_store *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__pg_no_memory(error);
	}
	int r = postern__pg_parse(self, rest, options, error);
	if (r == POSTERN_OK) {
		/* Without the quotes and the dot. */
		(void)snprintf(out, POSTERN_SCHEMA_NAME_MAX, "%.*s",
				(int)strlen(self->schema) - 3, self->schema + 1);
	}
	postern__pg_parse_finish(self);
	free(self);
	return r;
}
