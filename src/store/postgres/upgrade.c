/* SPDX-License-Identifier: MIT */

/*
 * Upgrading a schema to the version of this program, in the transaction of the
 * caller, who holds the migration lock. It either happens completely or not at
 * all, and other sessions see the old schema until the commit.
 *
 * schema/upgrade_N.sql changes the tables from version N - 1. Then all
 * functions are created again. One whose parameters or result changed cannot be
 * replaced, so all are dropped before, except those that other objects depend
 * on, such as a view of the user that calls `publish`: these are replaced, and
 * keep their signature. The privileges of functions are kept.
 *
 * A node of the older version would call functions that changed. So the upgrade
 * ends all nodes: it waits for their transactions and removes them as if they
 * had expired, and their leases are recovered. Enrolment has a new function in
 * each version; the former one fails, and says why.
 */

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

/* Enrolments wait for the lock on the handlers. */
static const char end_nodes_sql[] =
		"LOCK TABLE @handler IN SHARE ROW EXCLUSIVE MODE;"
		"SELECT pg_advisory_xact_lock(node), pg_advisory_xact_lock(-node)"
		" FROM (SELECT node FROM @node ORDER BY 1 OFFSET 0) AS n;"
		"WITH ended AS (DELETE FROM @node RETURNING node)"
		" INSERT INTO @gone SELECT node FROM ended ON CONFLICT DO NOTHING;";

/* Notes the functions of the schema that the script $1 creates, whatever number
   their name ends with, in a setting of the transaction, with the privileges.
   `publish` has no number: its interface stays, so it is replaced. */
static const char functions_sql[] =
		"SELECT set_config('postern.functions', coalesce(jsonb_agg("
		"jsonb_build_object('oid', p.oid, 'name', p.proname,"
		" 'acl', p.proacl::text))::text, '[]'), true)"
		" FROM pg_proc p WHERE p.pronamespace = (SELECT relnamespace"
		" FROM pg_class WHERE oid = '@meta'::regclass) AND p.prokind = 'f'"
		" AND p.proname ~ '_[0-9]+$'"
		" AND regexp_replace(p.proname, '_[0-9]+$', '_') IN ("
		"SELECT regexp_replace(m[1], '_[0-9]+$', '_') FROM"
		" regexp_matches($1, '^CREATE OR REPLACE FUNCTION \\x40(\\w+)', 'gw')"
		" AS m)";

static const char drop_functions_sql[] =
		"DO $$ DECLARE v oid; BEGIN"
		" FOR v IN SELECT (f->>'oid')::oid FROM jsonb_array_elements("
		"current_setting('postern.functions')::jsonb) AS f"
		" WHERE NOT EXISTS (SELECT 1 FROM pg_depend d"
		" WHERE d.refclassid = 'pg_proc'::regclass"
		" AND d.refobjid = (f->>'oid')::oid)"
		" LOOP EXECUTE format('DROP FUNCTION %s', v::regprocedure); END LOOP;"
		" END $$";

/* A function has the privileges that one of its name had, if these were ever
   changed. */
static const char grant_functions_sql[] =
		"DO $$ DECLARE v record; BEGIN"
		" FOR v IN SELECT DISTINCT p.oid::regprocedure AS made, f->>'acl' AS "
		"acl"
		" FROM jsonb_array_elements("
		"current_setting('postern.functions')::jsonb) AS f"
		" JOIN pg_proc p ON p.proname = f->>'name' AND p.pronamespace = ("
		"SELECT relnamespace FROM pg_class WHERE oid = '@meta'::regclass)"
		" WHERE f->>'acl' IS NOT NULL LOOP"
		" EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v.made);"
		" EXECUTE coalesce((SELECT string_agg(format("
		"'GRANT EXECUTE ON FUNCTION %s TO %s;', v.made,"
		" CASE a.grantee WHEN 0 THEN 'PUBLIC'"
		" ELSE a.grantee::regrole::text END), '')"
		" FROM aclexplode(v.acl::aclitem[]) AS a), '');"
		" END LOOP; END $$";

static int note_functions(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, postern__pg_functions);
	int r = postern__pg_run(&query, functions_sql, error);
	postern__pg_end(&query);
	return r;
}

static int replace_functions(struct pg_connection *connection,
		struct postern_error *error) {
	int r = note_functions(connection, error);
	if (r == POSTERN_OK) {
		r = postern__pg_script(connection, drop_functions_sql, error);
	}
	if (r == POSTERN_OK) {
		r = postern__pg_script(connection, postern__pg_functions, error);
	}
	return r == POSTERN_OK
				   ? postern__pg_script(connection, grant_functions_sql, error)
				   : r;
}

static int set_version(struct pg_connection *connection, int64_t version,
		struct postern_error *error) {
	char text[24];
	int len = snprintf(text, sizeof text, "%lld", (long long)version);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_bytes(&query, text, (size_t)len);
	int r = postern__pg_run(&query,
			"UPDATE @meta SET value = $1 WHERE name = 'version'", error);
	postern__pg_end(&query);
	return r;
}

static int upgrade(struct pg_connection *connection, int64_t version,
		struct postern_error *error) {
	int r = postern__pg_script(connection, end_nodes_sql, error);
	for (size_t i = (size_t)version - 1;
			r == POSTERN_OK && i < postern__pg_upgrade_count; i++) {
		r = postern__pg_script(connection, postern__pg_upgrades[i], error);
	}
	if (r == POSTERN_OK) {
		r = replace_functions(connection, error);
	}
	if (r == POSTERN_OK) {
		r = set_version(connection, (int64_t)postern__pg_upgrade_count + 1,
				error);
	}
	postern__point("postgres-migrate.upgraded");
	return r;
}

int postern__pg_upgrade(struct pg_connection *connection, int64_t version,
		struct postern_error *error) {
	struct postern_error cause;
	int r = upgrade(connection, version, &cause);
	if (r == POSTERN_OK) {
		return r;
	}
	const struct pg_store *self = connection->store;
	return postern__fail(error, r,
			"the schema %.*s has version %lld and its upgrade failed, with no "
			"effect; 'postern migrate' as its owner upgrades it: %s",
			(int)strlen(self->schema) - 1, self->schema, (long long)version,
			cause.text);
}
