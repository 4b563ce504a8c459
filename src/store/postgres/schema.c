/* SPDX-License-Identifier: MIT */

/*
 * Creating, upgrading and checking the schema. The SQL is in schema/, to be
 * read and run by people as well; the build embeds it in the program.
 *
 * All of it runs in one transaction, one process at a time. The schema of a
 * newer version is not changed.
 */

#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

/* More than the SQL that creates it. */
#define SCHEMA_SQL_LEN_MAX ((size_t)1024 * 1024)
/* An arbitrary number that identifies this advisory lock in the database. */
#define MIGRATION_LOCK "5789318364001527393"

static int64_t newest_version(void) {
	return (int64_t)postern__pg_upgrade_count + 1;
}

/* The state of the database. */
struct state {
	int64_t version; /* 0: no tables */
	bool has_schema;
};

static int read_state(struct pg_connection *connection, struct state *out,
		struct postern_error *error) {
	const char *name = connection->store->schema; /* in quotes, and a dot */
	char sql[512];
	/* Reads the catalogue itself: a session that waited for another one to
	   create the schema may not resolve its name yet. */
	(void)snprintf(sql, sizeof sql,
			"SELECT EXISTS (SELECT 1 FROM pg_class c"
			" WHERE c.relnamespace = n.oid AND" PG_IS_META ")"
			" FROM pg_namespace n WHERE n.nspname = '%.*s'",
			(int)strlen(name) - 3, name + 1);
	struct pg_query query;
	*out = (struct state){ 0 };
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, sql, error);
	out->has_schema = r == POSTERN_OK && postern__pg_rows(&query) > 0;
	bool has_meta = out->has_schema && postern__pg_get(&query, 0, 0) != 0;
	postern__pg_end(&query);
	if (!has_meta) {
		return r;
	}
	postern__pg_query(&query, connection);
	r = postern__pg_run(&query,
			"SELECT convert_from(value, 'UTF8')::bigint FROM @meta"
			" WHERE name = 'version'",
			error);
	if (r == POSTERN_OK && postern__pg_rows(&query) == 1) {
		out->version = postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

static int check_state(struct pg_store *self, const struct state *state,
		struct postern_error *error) {
	int len = (int)strlen(self->schema) - 1; /* without the dot */
	if (state->version > newest_version()) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the schema %.*s at %s has version %lld, and this postern "
				"supports version %lld: use a newer one",
				len, self->schema, self->place, (long long)state->version,
				(long long)newest_version());
	}
	if (state->version == 0 && state->has_schema) {
		return postern__fail(error, POSTERN_E_NOTFOUND,
				"the schema %.*s at %s exists but contains no store", len,
				self->schema, self->place);
	}
	if (state->version == 0) {
		return postern__fail(error, POSTERN_E_NOTFOUND,
				"the schema %.*s at %s does not exist yet", len, self->schema,
				self->place);
	}
	if (state->version < newest_version()) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the schema %.*s at %s has version %lld: run 'postern "
				"migrate'",
				len, self->schema, self->place, (long long)state->version);
	}
	return POSTERN_OK;
}

static int store_meta(struct pg_connection *connection, const char *name,
		const void *value, size_t len, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	postern__pg_bytes(&query, value, len);
	int r = postern__pg_run(&query,
			"INSERT INTO @meta (name, value) VALUES ($1, $2)", error);
	postern__pg_end(&query);
	return r;
}

/* Another user with the privilege may have created the schema. */
static int make_schema(struct pg_connection *connection,
		struct postern_error *error) {
	const char *name = connection->store->schema;
	char sql[128];
	int len = (int)strlen(name) - 1; /* without the dot */
	(void)snprintf(sql, sizeof sql, "SELECT to_regnamespace('%.*s') IS NULL",
			len, name);
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, sql, error);
	bool missing = r == POSTERN_OK && postern__pg_get(&query, 0, 0) != 0;
	postern__pg_end(&query);
	if (!missing) {
		return r;
	}
	(void)snprintf(sql, sizeof sql, "CREATE SCHEMA %.*s", len, name);
	return postern__pg_exec(connection, sql, error);
}

static int create_tables(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_store *self = connection->store;
	uint8_t key[POSTERN__SIPHASH_KEY_LEN];
	for (size_t i = 0; i < sizeof key; i += sizeof(uint64_t)) {
		uint64_t word = self->random->next(self->random->context);
		memcpy(key + i, &word, sizeof word);
	}
	int r = make_schema(connection, error);
	if (r == POSTERN_OK) {
		r = postern__pg_check_names(connection, error);
	}
	if (r == POSTERN_OK) {
		r = postern__pg_script(connection, postern__pg_schema, error);
	}
	if (r == POSTERN_OK) {
		r = store_meta(connection, "hash_key", key, sizeof key, error);
	}
	char version[24];
	int len = snprintf(version, sizeof version, "%lld",
			(long long)newest_version());
	return r == POSTERN_OK ? store_meta(connection, "version", version,
									 (size_t)len, error)
						   : r;
}

struct migration {
	bool must_exist;
	bool no_migrate;
	bool created; /* result */
};

static bool must_create(const struct migration *migration,
		const struct state *state) {
	return state->version == 0 && !migration->must_exist;
}

static bool must_upgrade(const struct migration *migration,
		const struct state *state) {
	return state->version > 0 && state->version < newest_version() &&
		   !migration->no_migrate;
}

static int create_or_upgrade(struct pg_connection *connection,
		struct migration *migration, struct state *state,
		struct postern_error *error) {
	int r = postern__pg_exec(connection,
			"SELECT pg_advisory_xact_lock(" MIGRATION_LOCK ")", error);
	/* Another process may have been faster. */
	if (r == POSTERN_OK) {
		r = read_state(connection, state, error);
	}
	if (r == POSTERN_OK && must_create(migration, state)) {
		r = create_tables(connection, error);
		migration->created = true;
		state->version = newest_version();
	} else if (r == POSTERN_OK && must_upgrade(migration, state)) {
		r = postern__pg_upgrade(connection, state->version, error);
		state->version = newest_version();
	}
	postern__point("postgres-migrate.made");
	return r;
}

static int load_key(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_store *self = connection->store;
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"SELECT value FROM @meta WHERE name = 'hash_key'", error);
	if (r == POSTERN_OK) {
		size_t len = 0;
		const void *key = postern__pg_rows(&query) == 1
								  ? postern__pg_get_bytes(&query, 0, 0, &len)
								  : NULL;
		if (key && len == sizeof self->hash_key) {
			memcpy(self->hash_key, key, len);
		} else {
			r = postern__fail(error, POSTERN_E_CORRUPT,
					"the schema at %s is corrupt: it has no hash key",
					self->place);
		}
	}
	postern__pg_end(&query);
	return r;
}

static int open_schema(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct migration *migration = context;
	(void)again;
	struct state state;
	int r = read_state(connection, &state, error);
	if (r == POSTERN_OK && (must_create(migration, &state) ||
								   must_upgrade(migration, &state))) {
		r = postern__pg_begin(connection, error);
		if (r == POSTERN_OK) {
			r = create_or_upgrade(connection, migration, &state, error);
			r = postern__pg_finish(connection, r, error);
		}
	}
	if (r == POSTERN_OK) {
		r = check_state(connection->store, &state, error);
	}
	return r == POSTERN_OK ? load_key(connection, error) : r;
}

int postern__pg_migrate(struct pg_store *self, bool must_exist, bool no_migrate,
		struct postern_error *error) {
	struct migration migration = { .must_exist = must_exist,
		.no_migrate = no_migrate };
	int r = postern__pg_do(self, open_schema, &migration, error);
	if (r == POSTERN_OK && migration.created) {
		char text[POSTERN_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof text, "created store: schema %.*s at %s",
				(int)strlen(self->schema) - 1, self->schema, self->place);
		postern__store_report(&self->base, POSTERN_EVENT_STORE_CREATED, NULL,
				text);
	}
	return r;
}

/* Writes the SQL with the name in the place of each @. */
static void write_sql(struct postern__buf *out, const char *sql,
		const char *name) {
	for (const char *at; (at = strchr(sql, '@')); sql = at + 1) {
		postern__buf_append(out, sql, (size_t)(at - sql));
		postern__buf_append_text(out, name);
	}
	postern__buf_append_text(out, sql);
}

int postern__pg_schema_sql(const char *rest,
		const struct postern_store_options *options, char **out,
		struct postern_error *error) {
	struct postern__buf sql;
	struct pg_store *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__pg_no_memory(error);
	}
	postern__buf_init(&sql, SCHEMA_SQL_LEN_MAX);
	int r = postern__pg_parse(self, rest, options, error);
	if (r == POSTERN_OK) {
		/* The default name needs no quotes, and reads better without. */
		const char *name = self->schema;
		name = strcmp(name, "\"postern\".") == 0 ? "postern." : name;
		/* One transaction, whatever program runs it. */
		postern__buf_printf(&sql, "BEGIN;\nCREATE SCHEMA %.*s;\n\n",
				(int)strlen(name) - 1, name);
		write_sql(&sql, postern__pg_schema, name);
		write_sql(&sql, postern__pg_schema_tail, name);
		postern__buf_printf(&sql, "\nCOMMIT;\n");
		r = postern__buf_check(&sql, "the schema", error);
	}
	if (r == POSTERN_OK) {
		*out = strdup(postern__buf_text(&sql));
		r = *out ? r : postern__pg_no_memory(error);
	}
	postern__buf_finish(&sql);
	postern__pg_parse_finish(self);
	free(self);
	return r;
}
