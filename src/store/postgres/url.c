/* SPDX-License-Identifier: MIT */

/*
 * What was asked for: a URL as libpq knows it (postgres://user@host/database)
 * or, behind "postgres:", its other form (host=… dbname=…). Parameters of our
 * own are taken out of the URL; libpq sees the rest.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "store/postgres/postgres.h"

#define SCHEMA_DEFAULT "postern"
/* As long as PostgreSQL keeps a name. */
#define SCHEMA_LEN_MAX 63
#define CONNECTION_COUNT_DEFAULT 8

static int set_schema(struct pg_store *self, const char *name, size_t len,
		struct postern_error *error) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
	if (len == 0 || len > SCHEMA_LEN_MAX || strspn(name, letters) < len ||
			strchr("0123456789", name[0]) || strncmp(name, "pg_", 3) == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.*s' is no name of a schema: use small letters, digits and "
				"'_', not 'pg_' in front, at most %d",
				(int)(len < 80 ? len : 80), name, SCHEMA_LEN_MAX);
	}
	free(self->schema);
	self->schema = malloc(len + sizeof "\"\".");
	if (!self->schema) {
		return postern__pg_no_memory(error);
	}
	(void)snprintf(self->schema, len + sizeof "\"\".", "\"%.*s\".", (int)len,
			name);
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
				"'connections' of a store is a number from 2 to %d",
				PG_CONNECTION_MAX);
	}
	self->connection_max = count;
	return POSTERN_OK;
}

/* One "name=value" of the URL: ours, or left to libpq. */
static int take_parameter(struct pg_store *self, const char *text, size_t len,
		struct postern__buf *rest, struct postern_error *error) {
	static const char schema[] = "schema=";
	static const char connections[] = "connections=";
	if (strncmp(text, schema, strlen(schema)) == 0) {
		return set_schema(self, text + strlen(schema), len - strlen(schema),
				error);
	}
	if (strncmp(text, connections, strlen(connections)) == 0) {
		return set_connections(self, text + strlen(connections),
				len - strlen(connections), error);
	}
	postern__buf_append_char(rest,
			strchr(postern__buf_text(rest), '?') ? '&' : '?');
	postern__buf_append(rest, text, len);
	return POSTERN_OK;
}

static int take_parameters(struct pg_store *self, const char *query,
		struct postern__buf *rest, struct postern_error *error) {
	int r = POSTERN_OK;
	while (r == POSTERN_OK && *query) {
		size_t len = strcspn(query, "&");
		if (len > 0) {
			r = take_parameter(self, query, len, rest, error);
		}
		query += len + (query[len] == '&');
	}
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

/* Where it is, in words that hold no secret. */
static int set_place(struct pg_store *self, struct postern_error *error) {
	PQconninfoOption *options = PQconninfoParse(self->conninfo, NULL);
	if (!options) {
		/* libpq's own text would quote the URL. */
		return postern__fail(error, POSTERN_E_INVALID,
				"the store's URL is not one that libpq understands: write "
				"postgres://user@host:port/database or "
				"'postgres:host=… dbname=…'");
	}
	const char *host = value_of(options, "host");
	const char *port = value_of(options, "port");
	const char *database = value_of(options, "dbname");
	host = host ? host : value_of(options, "hostaddr");
	struct postern__buf place;
	postern__buf_init(&place, 1024);
	postern__buf_printf(&place, "%s%s%s%s%s", host ? host : "localhost",
			port ? ":" : "", port ? port : "", database ? "/" : "",
			database ? database : "");
	PQconninfoFree(options);
	int r = postern__buf_check(&place, "the store's address", error);
	if (r == POSTERN_OK) {
		self->place = postern__buf_detach(&place, NULL);
		r = self->place ? POSTERN_OK : postern__pg_no_memory(error);
	}
	postern__buf_finish(&place);
	return r;
}

int postern__pg_parse(struct pg_store *self, const char *rest,
		struct postern_error *error) {
	struct postern__buf conninfo;
	postern__buf_init(&conninfo, 8192);
	self->connection_max = CONNECTION_COUNT_DEFAULT;
	int r = set_schema(self, SCHEMA_DEFAULT, strlen(SCHEMA_DEFAULT), error);
	if (strncmp(rest, "//", 2) == 0) {
		size_t len = strcspn(rest, "?");
		postern__buf_append_text(&conninfo, "postgresql:");
		postern__buf_append(&conninfo, rest, len);
		if (r == POSTERN_OK && rest[len]) {
			r = take_parameters(self, rest + len + 1, &conninfo, error);
		}
	} else {
		postern__buf_append_text(&conninfo, rest);
	}
	if (r == POSTERN_OK) {
		r = postern__buf_check(&conninfo, "the store's URL", error);
	}
	if (r == POSTERN_OK) {
		self->conninfo = postern__buf_detach(&conninfo, NULL);
		r = self->conninfo ? set_place(self, error)
						   : postern__pg_no_memory(error);
	}
	postern__buf_finish(&conninfo);
	return r;
}
