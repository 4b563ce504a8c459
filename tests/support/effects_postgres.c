/* SPDX-License-Identifier: MIT */
/* Effects in PostgreSQL, in the schema of the store, and removed with it. */

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/effects.h"

#define URL_LEN_MAX 1024

/* Returns the length of the URL without its schema, which libpq does not know.
   Tests put the schema last. */
static size_t split_url(const char *url, const char **schema_out) {
	static const char word[] = "schema=";
	const char *found = strstr(url, word);
	*schema_out = found ? found + strlen(word) : "postern";
	return found ? (size_t)(found - url) - 1 : strlen(url);
}

static void init(struct effects *effects) {
	const char *schema;
	effects->publishes = true;
	(void)split_url(effects->url, &schema);
	(void)snprintf(effects->table, sizeof effects->table, "%s.effect", schema);
	(void)snprintf(effects->sums, sizeof effects->sums,
			"INSERT INTO %s.sums VALUES (:id)", schema);
}

static PGconn *connect_to(const struct effects *effects) {
	char url[URL_LEN_MAX];
	const char *schema;
	size_t len = split_url(effects->url, &schema);
	(void)snprintf(url, sizeof url, "%.*s", (int)len, effects->url);
	return PQconnectdb(url);
}

static bool run_sql(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return good;
}

static bool prepare(const struct effects *effects) {
	const char *schema;
	char sql[URL_LEN_MAX];
	(void)split_url(effects->url, &schema);
	(void)snprintf(sql, sizeof sql,
			"SET client_min_messages = warning;"
			"CREATE TABLE IF NOT EXISTS %s.effect"
			" (seq bigint, handler text, fence bigint);"
			"CREATE TABLE IF NOT EXISTS %s.sums (id text);"
			"CREATE TABLE IF NOT EXISTS %s.published (id text)",
			schema, schema, schema);
	PGconn *link = connect_to(effects);
	bool good = run_sql(link, sql);
	PQfinish(link);
	return good;
}

static bool write_row(const struct effects *effects, void *transaction,
		const char *sql) {
	(void)effects;
	return run_sql(transaction, sql);
}

static bool read_rows(const struct effects *effects, effects_reader *reader,
		void *context) {
	char sql[URL_LEN_MAX];
	(void)snprintf(sql, sizeof sql, "SELECT seq, handler, fence FROM %s",
			effects->table);
	PGconn *link = connect_to(effects);
	PGresult *result = PQexec(link, sql);
	bool good = PQresultStatus(result) == PGRES_TUPLES_OK;
	for (int i = 0; good && i < PQntuples(result); i++) {
		reader(context, strtoll(PQgetvalue(result, i, 0), NULL, 10),
				PQgetvalue(result, i, 1),
				strtoull(PQgetvalue(result, i, 2), NULL, 10));
	}
	PQclear(result);
	PQfinish(link);
	return good;
}

static bool publish_with_row(const struct effects *effects, const char *channel,
		const struct postern_message *message) {
	const char *schema;
	char sql[URL_LEN_MAX];
	(void)split_url(effects->url, &schema);
	/* Several statements in one query are one transaction. */
	(void)snprintf(sql, sizeof sql,
			"INSERT INTO %s.published VALUES ('%s');"
			"DO $$ BEGIN PERFORM %s.publish('%s', '%s', '%.*s', '%s', '%s');"
			" END $$",
			schema, message->id, schema, channel, message->type,
			(int)message->body_len, (const char *)message->body, message->id,
			message->source);
	PGconn *link = connect_to(effects);
	bool good = run_sql(link, sql);
	PQfinish(link);
	return good;
}

static void remove_schema(const struct effects *effects) {
	const char *schema;
	char sql[URL_LEN_MAX];
	(void)split_url(effects->url, &schema);
	(void)snprintf(sql, sizeof sql,
			"SET client_min_messages = warning;"
			"DROP SCHEMA IF EXISTS %s CASCADE",
			schema);
	PGconn *link = connect_to(effects);
	(void)run_sql(link, sql);
	PQfinish(link);
}

static const struct effects_ops ops = {
	.scheme = "postgres:",
	.init = init,
	.prepare = prepare,
	.write = write_row,
	.read = read_rows,
	.publish = publish_with_row,
	.remove = remove_schema,
};

const struct effects_ops *const effects_postgres = &ops;
