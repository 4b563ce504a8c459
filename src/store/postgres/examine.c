/* SPDX-License-Identifier: MIT */

/*
 * Checks whether the server is durable enough for a store and whether its user
 * has the privileges of a node, and lends a connection to an examiner that
 * wants to check more.
 */

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

/* The first version that can scan a range of pages, see clean.c. */
#define SERVER_VERSION_MIN 140000
/* PostgreSQL truncates longer names. */
#define NAME_LEN_MAX 63

static bool is_first_warning(struct pg_store *self) {
	(void)pthread_mutex_lock(&self->mutex);
	bool first = !self->warned;
	self->warned = true;
	(void)pthread_mutex_unlock(&self->mutex);
	return first;
}

/* The columns of the server's settings. */
enum {
	VERSION,
	ENCODING,
	STANDBY,
	READ_ONLY,
	ISOLATION,
	SYNCHRONOUS,
	FSYNC,
	PAGES,
	PID,
	SESSION_START
};

static int validate_server(struct pg_store *self, const struct pg_query *row,
		struct postern_error *error) {
	if (postern__pg_get(row, 0, VERSION) < SERVER_VERSION_MIN) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"PostgreSQL at %s is older than 14", self->place);
	}
	if (!postern__pg_get(row, 0, ENCODING)) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the encoding of the database at %s is not UTF-8: create one "
				"with createdb -E UTF8 -T template0",
				self->place);
	}
	if (self->read_only) {
		return POSTERN_OK;
	}
	if (postern__pg_get(row, 0, STANDBY) ||
			postern__pg_get(row, 0, READ_ONLY)) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"PostgreSQL at %s is read-only, perhaps a standby: name the "
				"primary",
				self->place);
	}
	if (!postern__pg_get(row, 0, ISOLATION)) {
		/* An operation in one statement has no BEGIN that could set the level;
		   at another level it would not see rows that it has waited for. */
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"default_transaction_isolation at %s is not 'read committed': "
				"ALTER ROLE … SET default_transaction_isolation = 'read "
				"committed'",
				self->place);
	}
	if (!postern__pg_get(row, 0, SYNCHRONOUS)) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"synchronous_commit is off at %s, so accepted messages "
				"may be lost: ALTER ROLE … SET synchronous_commit = on",
				self->place);
	}
	if ((!postern__pg_get(row, 0, FSYNC) || !postern__pg_get(row, 0, PAGES)) &&
			is_first_warning(self)) {
		postern__store_report(&self->base, POSTERN_EVENT_STORE_UNSAFE, NULL,
				"the PostgreSQL server has fsync or full_page_writes off: a "
				"power failure may lose or corrupt accepted messages");
	}
	return POSTERN_OK;
}

/* The session is known only if the server reports the same backend pid as on
   connecting; a pooler reports one of its own. */
static void note_session_start(struct pg_connection *connection,
		const struct pg_query *row) {
	bool own = postern__pg_get(row, 0, PID) == PQbackendPID(connection->link);
	connection->session_start =
			own ? postern__pg_get(row, 0, SESSION_START) : 0;
}

int postern__pg_check_server(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"SELECT current_setting('server_version_num')::integer,"
			" getdatabaseencoding() = 'UTF8', pg_is_in_recovery(),"
			" current_setting('transaction_read_only') = 'on',"
			" current_setting('default_transaction_isolation') ="
			" 'read committed', current_setting('synchronous_commit') <> 'off',"
			" current_setting('fsync') = 'on',"
			" current_setting('full_page_writes') = 'on', pg_backend_pid(),"
			" (SELECT " PG_SESSION_START
			" FROM pg_stat_get_activity(pg_backend_pid()))",
			error);
	if (r == POSTERN_OK) {
		note_session_start(connection, &query);
		r = validate_server(connection->store, &query, error);
	}
	postern__pg_end(&query);
	return r;
}

/* Returns one row for each kind of object on which a privilege is missing, with
   all objects and all missing privileges, so that one GRANT is enough. */
static const char rights_sql[] =
		"WITH own AS (SELECT n.oid, n.nspname FROM pg_class c"
		" JOIN pg_namespace n ON n.oid = c.relnamespace"
		" WHERE c.oid = to_regclass('@meta') AND" PG_IS_META "),"
		" lack (kind, name, privilege) AS ("
		"SELECT 'TABLES', c.relname::text, p FROM own JOIN pg_class c"
		" ON c.relnamespace = own.oid AND c.relkind = 'r',"
		" unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p"
		" WHERE NOT has_table_privilege(c.oid, p)"
		" UNION ALL SELECT 'SEQUENCES', c.relname::text, 'USAGE'"
		" FROM own JOIN pg_class c ON c.relnamespace = own.oid"
		" WHERE CASE WHEN c.relkind = 'S' AND c.relname = 'message_seq'"
		" THEN NOT has_sequence_privilege(c.oid, 'USAGE') END"
		" UNION ALL SELECT 'FUNCTIONS', p.proname::text, 'EXECUTE'"
		" FROM own JOIN pg_proc p ON p.pronamespace = own.oid"
		" WHERE NOT has_function_privilege(p.oid, 'EXECUTE')),"
		" kinds AS (SELECT kind,"
		" string_agg(DISTINCT privilege, ', ') AS missing,"
		" array_agg(DISTINCT name COLLATE \"C\") AS names"
		" FROM lack GROUP BY kind)"
		" SELECT format('%L has no %s on %s%s of the schema %I: GRANT %s ON"
		" ALL %s IN SCHEMA %I TO %I', current_user, missing,"
		" array_to_string(names[1:3], ', '), CASE WHEN cardinality(names) > 3"
		" THEN format(' and %s more', cardinality(names) - 3) END, nspname,"
		" missing, kind, nspname, current_user)"
		" FROM kinds, own ORDER BY kind DESC";

int postern__pg_check_rights(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct postern_store_examiner *examiner = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, rights_sql, error);
	for (int i = 0; r == POSTERN_OK && i < postern__pg_rows(&query); i++) {
		size_t len; /* a text ends with a zero byte */
		examiner->find(examiner->context, POSTERN_E_UNSUPPORTED,
				postern__pg_get_bytes(&query, i, 0, &len));
	}
	postern__pg_end(&query);
	return r;
}

/* Returns a row if the user may not create the schema, or the objects in an
   empty one. */
static const char may_create_sql[] =
		"SELECT CASE WHEN n.oid IS NULL THEN format('%L may not create the"
		" schema %I: GRANT CREATE ON DATABASE %I TO %I, or run"
		" ''postern migrate'' as a user who may', current_user, $1, "
		"current_database(),"
		" current_user) ELSE format('%L may not create anything in the schema"
		" %I: GRANT CREATE ON SCHEMA %I TO %I, or run"
		" ''postern migrate'' as its owner', current_user, $1, $1, "
		"current_user) END"
		" FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = $1"
		" WHERE NOT EXISTS (SELECT 1 FROM pg_class c"
		" WHERE c.relnamespace = n.oid AND" PG_IS_META ")"
		" AND NOT CASE WHEN n.oid IS NULL"
		" THEN has_database_privilege(current_database(), 'CREATE')"
		" ELSE has_schema_privilege(n.oid, 'CREATE') END";

/* Returns the objects that the script $2 would create in the schema $1 and that
   exist: by name, functions also by the types of their parameters. It reads the
   catalogue, because that needs no privilege. */
static const char names_sql[] =
		"WITH made (name, parameters) AS ("
		"SELECT m[1], NULL FROM regexp_matches($2, '^CREATE (?:UNLOGGED )?"
		"(?:TABLE|SEQUENCE|INDEX) \\x40?(\\w+)', 'gw') AS m"
		" UNION ALL SELECT m[1], m[2] FROM regexp_matches($2,"
		" '^CREATE FUNCTION \\x40(\\w+)\\(([^)]*)\\)', 'gw') AS m),"
		" taken (name) AS (SELECT DISTINCT m.name COLLATE \"C\""
		" FROM made m, pg_namespace n WHERE n.nspname = $1"
		" AND NOT EXISTS (SELECT 1 FROM pg_class c"
		" WHERE c.relnamespace = n.oid AND" PG_IS_META ")"
		" AND CASE WHEN m.parameters IS NULL"
		" THEN EXISTS (SELECT 1 FROM pg_class c"
		" WHERE c.relnamespace = n.oid AND c.relname = m.name)"
		" OR EXISTS (SELECT 1 FROM pg_type t"
		" WHERE t.typnamespace = n.oid AND t.typname = m.name)"
		" ELSE EXISTS (SELECT 1 FROM pg_proc p WHERE p.pronamespace = n.oid"
		" AND p.proname = m.name AND oidvectortypes(p.proargtypes) = ("
		"SELECT coalesce(string_agg(regexp_replace(w, '^\\S+\\s+|"
		"\\s+DEFAULT\\s.*$', '', 'g'), ', ' ORDER BY nr), '')"
		" FROM unnest(regexp_split_to_array(m.parameters, ',\\s*'))"
		" WITH ORDINALITY AS u (w, nr) WHERE w <> '' AND w !~ '^OUT\\s')) END),"
		" list (names) AS (SELECT array_agg(name ORDER BY name) FROM taken)"
		" SELECT concat(array_to_string(names[1:5], ', '),"
		" ' and ' || nullif(greatest(cardinality(names) - 5, 0), 0) ||"
		" ' more') FROM list WHERE names IS NOT NULL";

int postern__pg_check_names(struct pg_connection *connection,
		struct postern_error *error) {
	const struct pg_store *self = connection->store;
	int len = (int)strlen(self->schema) - 3; /* without quotes and dot */
	char name[NAME_LEN_MAX + 1];
	(void)snprintf(name, sizeof name, "%.*s", len, self->schema + 1);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	postern__pg_text(&query, postern__pg_schema);
	int r = postern__pg_run(&query, names_sql, error);
	if (r == POSTERN_OK && postern__pg_rows(&query) > 0) {
		size_t names_len; /* a text ends with a zero byte */
		const char *names = postern__pg_get_bytes(&query, 0, 0, &names_len);
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the schema \"%s\" at %s belongs to something else and has "
				"objects with names that a store uses: %s; set another "
				"'schema' for the store",
				name, self->place, names);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_may_create(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct postern_store_examiner *examiner = context;
	const char *quoted = connection->store->schema; /* and a dot */
	char name[NAME_LEN_MAX + 1];
	(void)again;
	(void)snprintf(name, sizeof name, "%.*s", (int)strlen(quoted) - 3,
			quoted + 1);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	int r = postern__pg_run(&query, may_create_sql, error);
	if (r == POSTERN_OK && postern__pg_rows(&query) > 0) {
		size_t len; /* a text ends with a zero byte */
		examiner->find(examiner->context, POSTERN_E_UNSUPPORTED,
				postern__pg_get_bytes(&query, 0, 0, &len));
	}
	postern__pg_end(&query);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__pg_check_names(connection, error);
	if (r == POSTERN_E_UNSUPPORTED && error) {
		examiner->find(examiner->context, r, error->text);
		r = POSTERN_OK;
	}
	return r;
}

/* Sets the search path as handlers have it. If the function does not exist, the
   store's tables cannot be found either; a missing privilege to call it is
   reported by postern__pg_check_rights(). */
static const char look_away_sql[] =
		"DO $$ BEGIN"
		" IF substr('@', 2, length('@') - 3) = ANY (current_schemas(false))"
		" THEN IF has_function_privilege(to_regprocedure('@look_away_1()'),"
		" 'EXECUTE') THEN PERFORM @look_away_1(); END IF; END IF; END $$";

int postern__pg_lend_connection(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct postern_store_examiner *examiner = context;
	const struct pg_store *self = connection->store;
	char sql[128];
	(void)again;
	/* An examiner must not wait long for a table that somebody has locked. */
	(void)snprintf(sql, sizeof sql,
			"SET LOCAL lock_timeout = %lld; SET LOCAL statement_timeout = %lld",
			(long long)self->lock_timeout_ms,
			(long long)self->command_timeout_ms);
	int r = postern__pg_begin_read(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__pg_script(connection, sql, error);
	if (r == POSTERN_OK) {
		r = postern__pg_script(connection, look_away_sql, error);
	}
	if (r == POSTERN_OK) {
		r = examiner->look(examiner->context, connection->link, error);
	}
	return postern__pg_finish(connection, r, error);
}
