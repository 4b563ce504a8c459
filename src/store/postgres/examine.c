/* SPDX-License-Identifier: MIT */

/*
 * Whether the server keeps the promise that is given in its name, and lending
 * a connection to somebody who wants to know more.
 */

#include <stdio.h>

#include "base/fail.h"
#include "store/postgres/postgres.h"

#define SERVER_VERSION_MIN 130000

static void tell(struct pg_store *self, const char *text) {
	if (self->remark) {
		self->remark(self->remark_context, text);
	}
}

/* What the server says of itself, in this order. */
enum {
	VERSION,
	ENCODING,
	STANDBY,
	READ_ONLY,
	ISOLATION,
	SYNCHRONOUS,
	FSYNC,
	PAGES
};

static int judge(struct pg_store *self, const struct pg_query *said,
		struct postern_error *error) {
	if (postern__pg_get(said, 0, VERSION) < SERVER_VERSION_MIN) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"PostgreSQL at %s is older than 13", self->place);
	}
	if (!postern__pg_get(said, 0, ENCODING)) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"the database at %s does not keep text as UTF-8: create one "
				"with createdb -E UTF8 -T template0",
				self->place);
	}
	if (self->read_only) {
		return POSTERN_OK;
	}
	if (postern__pg_get(said, 0, STANDBY) ||
			postern__pg_get(said, 0, READ_ONLY)) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"PostgreSQL at %s is read-only, perhaps a standby: name the "
				"primary",
				self->place);
	}
	if (!postern__pg_get(said, 0, ISOLATION)) {
		/* What is done in one statement has no BEGIN that could say it, and
		   would not see what it has waited for. */
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"default_transaction_isolation at %s is not 'read committed': "
				"ALTER ROLE … SET default_transaction_isolation = 'read "
				"committed'",
				self->place);
	}
	if (!postern__pg_get(said, 0, SYNCHRONOUS)) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"synchronous_commit is off at %s, so what was acknowledged "
				"may be lost: ALTER ROLE … SET synchronous_commit = on",
				self->place);
	}
	if (!postern__pg_get(said, 0, FSYNC) || !postern__pg_get(said, 0, PAGES)) {
		tell(self, "the PostgreSQL server has fsync or full_page_writes off: a "
				   "power failure may lose or damage what was acknowledged");
	}
	return POSTERN_OK;
}

int postern__pg_judge(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"SELECT current_setting('server_version_num')::integer,"
			" getdatabaseencoding() = 'UTF8', pg_is_in_recovery(),"
			" current_setting('transaction_read_only') = 'on',"
			" current_setting('default_transaction_isolation') ="
			" 'read committed', current_setting('synchronous_commit') <> 'off',"
			" current_setting('fsync') = 'on',"
			" current_setting('full_page_writes') = 'on'",
			error);
	if (r == POSTERN_OK) {
		r = judge(connection->store, &query, error);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_rights(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"WITH own AS (SELECT relnamespace AS oid FROM pg_class"
			" WHERE oid = to_regclass('@meta'))"
			" SELECT c.relname::text FROM own JOIN pg_class c"
			" ON c.relnamespace = own.oid"
			" WHERE CASE WHEN c.relkind = 'r' THEN NOT"
			" (has_table_privilege(c.oid, 'SELECT')"
			" AND has_table_privilege(c.oid, 'INSERT')"
			" AND has_table_privilege(c.oid, 'UPDATE')"
			" AND has_table_privilege(c.oid, 'DELETE'))"
			" WHEN c.relname = 'message_seq'"
			" THEN NOT has_sequence_privilege(c.oid, 'USAGE') END"
			" UNION ALL SELECT p.proname::text FROM own JOIN pg_proc p"
			" ON p.pronamespace = own.oid"
			" WHERE NOT has_function_privilege(p.oid, 'EXECUTE')"
			" ORDER BY 1 LIMIT 1",
			error);
	if (r == POSTERN_OK && postern__pg_rows(&query) > 0) {
		const struct pg_store *self = connection->store;
		size_t len; /* a text ends with a zero byte */
		r = postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%.63s' has not all rights on %s%.63s that a node needs: "
				"docs/postgresql.md says what to grant",
				PQuser(connection->link), self->schema,
				(const char *)postern__pg_get_bytes(&query, 0, 0, &len));
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_lend(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct pg_loan *loan = context;
	const struct pg_store *self = connection->store;
	char sql[128];
	(void)again;
	/* Whoever has a table for himself need not hold up a look at it. */
	(void)snprintf(sql, sizeof sql,
			"SET LOCAL lock_timeout = %lld; SET LOCAL statement_timeout = %lld",
			(long long)self->lock_timeout_ms,
			(long long)self->command_timeout_ms);
	int r = postern__pg_begin_look(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__pg_script(connection, sql, error);
	if (r == POSTERN_OK) {
		r = loan->look(loan->context, connection->link, error);
	}
	return postern__pg_finish(connection, r, error);
}
