/* SPDX-License-Identifier: MIT */

/*
 * The PostgreSQL store as a target of the suite, in the database that
 * $POSTERN_TEST_POSTGRES names.
 *
 * Creating and dropping a schema takes longer than most cases. The stores of
 * one program therefore use one schema, one after the other, and it is emptied
 * before the next. A schema is emptied only when all connections of the
 * previous store have ended; if they do not end, or if $FRESH_STORES is set,
 * the next store gets a new schema.
 */

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/target.h"
#include "tap.h"

#define URL_LEN_MAX 1024
#define SQL_LEN_MAX 1200
/* How long connections that were closed may take to end, in ms. */
#define GONE_MS 2000

/* The schema of the open store; several programs may use one database. */
static char schema[40];

/* The connection of this program, for statements between two stores. */
static PGconn *link_between;

static const char *database_url(void) {
	const char *url = getenv("POSTERN_TEST_POSTGRES");
	if (!url) {
		(void)fprintf(stderr, "POSTERN_TEST_POSTGRES is not set: run this with "
							  "tests/support/postgres.py\n");
		abort();
	}
	return url;
}

/* Returns whether all statements succeeded. */
static bool execute_sql(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	PQclear(result);
	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static void require_sql(PGconn *link, const char *sql) {
	if (!execute_sql(link, sql)) {
		FAIL("%s: %s", sql, PQerrorMessage(link));
	}
}

static struct postern_store *open_schema(
		const struct postern_store_options *options) {
	char url[URL_LEN_MAX];
	struct postern_store *store = NULL;
	struct postern_error error;
	const char *base = database_url();

	(void)snprintf(url, sizeof url, "%s%cschema=%s", base,
			strchr(base, '?') ? '&' : '?', schema);
	if (postern_store_open(url, options, &store, &error) != POSTERN_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		return NULL;
	}
	return store;
}

/* Whether no store is connected to the database any more. */
static bool is_quiet(void) {
	PGresult *result = PQexec(link_between,
			"SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
			" AND application_name = 'postern'");
	bool quiet =
			PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 0;
	PQclear(result);
	return quiet;
}

static bool wait_quiet(void) {
	for (int i = 0; i < GONE_MS && !is_quiet(); i++) {
		(void)usleep(1000);
	}
	return is_quiet();
}

static void drop_schema(void) {
	char sql[SQL_LEN_MAX];
	(void)snprintf(sql, sizeof sql,
			"SET client_min_messages = warning;"
			" DROP SCHEMA IF EXISTS %s CASCADE",
			schema);
	require_sql(link_between, sql);
}

/* Leave what migrate() leaves: the rows of `meta`, and no others. */
static void empty_schema(void) {
	static const char format[] =
			"SET session_replication_role = replica;"
			" DO $$ DECLARE found text; BEGIN"
			" DROP TABLE IF EXISTS %1$s.effect;"
			" FOR found IN SELECT oid::regclass::text FROM pg_class"
			" WHERE relnamespace = '%1$s'::regnamespace AND relkind = 'r'"
			" AND relname <> 'meta' LOOP"
			" EXECUTE 'DELETE FROM ' || found; END LOOP;"
			" PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence"
			" JOIN pg_class ON pg_class.oid = seqrelid"
			" WHERE relnamespace = '%1$s'::regnamespace;"
			" END $$";
	char sql[SQL_LEN_MAX];
	(void)snprintf(sql, sizeof sql, format, schema);
	require_sql(link_between, sql);
}

static void finish(void) {
	drop_schema();
	PQfinish(link_between);
}

static struct postern_store *postgres_open(
		const struct postern_store_options *options) {
	static unsigned number;
	if (!link_between) {
		link_between = PQconnectdb(database_url());
		require_sql(link_between, "SET client_min_messages = warning");
		(void)atexit(finish);
	}
	if (schema[0] && !getenv("FRESH_STORES") && wait_quiet()) {
		empty_schema();
	} else {
		if (schema[0]) {
			drop_schema();
		}
		(void)snprintf(schema, sizeof schema, "test_%d_%u", (int)getpid(),
				++number);
	}
	return open_schema(options);
}

static struct postern_store *postgres_reopen(struct postern_store *store,
		const struct postern_store_options *options) {
	postern_store_destroy(store);
	return open_schema(options);
}

static void postgres_close(struct postern_store *store) {
	postern_store_destroy(store);
}

/* The handler's table is in the store's schema, so that it is dropped with
   it. */
static void make_table(void *transaction) {
	char sql[SQL_LEN_MAX];
	(void)snprintf(sql, sizeof sql,
			"CREATE TABLE IF NOT EXISTS %s.effect (n integer)", schema);
	require_sql(transaction, sql);
}

static void postgres_write(void *transaction) {
	char sql[SQL_LEN_MAX];
	make_table(transaction);
	(void)snprintf(sql, sizeof sql, "INSERT INTO %s.effect VALUES (1)", schema);
	require_sql(transaction, sql);
}

static int64_t postgres_count(void *transaction) {
	char sql[SQL_LEN_MAX];
	int64_t count = -1;
	make_table(transaction);
	(void)snprintf(sql, sizeof sql, "SELECT count(*) FROM %s.effect", schema);
	PGresult *result = PQexec(transaction, sql);
	if (PQresultStatus(result) == PGRES_TUPLES_OK) {
		count = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	}
	PQclear(result);
	return count;
}

static void postgres_commit(void *transaction) {
	(void)execute_sql(transaction, "COMMIT");
}

static void postgres_roll_back(void *transaction) {
	(void)execute_sql(transaction, "ROLLBACK");
}

const struct conformance_target conformance_target = {
	.name = "postgres",
	.shared = true,
	.apart = true,
	.open = postgres_open,
	.reopen = postgres_reopen,
	.close = postgres_close,
	.write = postgres_write,
	.count = postgres_count,
	.commit = postgres_commit,
	.roll_back = postgres_roll_back,
};
