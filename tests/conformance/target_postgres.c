/* SPDX-License-Identifier: MIT */

/*
 * The PostgreSQL store as a target of the suite: each store has a schema of its
 * own, in the database_url that $POSTERN_TEST_POSTGRES names.
 */

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/target.h"
#include "tap.h"

#define URL_LEN_MAX 1024
#define SQL_LEN_MAX 200

/* The schema of the open store; several programs may use one database. */
static char schema[40];

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

static struct postern_store *postgres_open(
		const struct postern_store_options *options) {
	static unsigned number;
	(void)snprintf(schema, sizeof schema, "test_%d_%u", (int)getpid(),
			++number);
	return open_schema(options);
}

static struct postern_store *postgres_reopen(struct postern_store *store,
		const struct postern_store_options *options) {
	postern_store_destroy(store);
	return open_schema(options);
}

static void postgres_close(struct postern_store *store) {
	char sql[SQL_LEN_MAX];
	postern_store_destroy(store);
	PGconn *link = PQconnectdb(database_url());
	(void)snprintf(sql, sizeof sql,
			"SET client_min_messages = warning; DROP SCHEMA %s CASCADE",
			schema);
	require_sql(link, sql);
	PQfinish(link);
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
	.open = postgres_open,
	.reopen = postgres_reopen,
	.close = postgres_close,
	.write = postgres_write,
	.count = postgres_count,
	.commit = postgres_commit,
	.roll_back = postgres_roll_back,
};
