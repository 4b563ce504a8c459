/* SPDX-License-Identifier: MIT */

/*
 * Staging a message on a connection of the caller, or of a handler: with the
 * blocking functions of libpq, because the connection is not this store's.
 */

#include "store/publish.h"

#include <limits.h>
#include <postern/message.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/sqlstate.h"
#include "store/postgres/own_link.h"
#include "store/postgres/postgres.h"

#define PARAMETER_COUNT 11
#define SQL_LEN_MAX 256

/* What publish raises for a channel that does not exist. */
#define NO_CHANNEL "42704"
/* The schema or the function does not exist. */
#define NO_SCHEMA "3F000"
#define NO_FUNCTION "42883"

static int fail_staging(PGconn *link, const PGresult *result,
		struct postern_error *error) {
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	text = text ? text : PQerrorMessage(link);
	if (PQstatus(link) != CONNECTION_OK || !state) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "cannot publish: %s",
				text);
	}
	if (strcmp(state, NO_CHANNEL) == 0) {
		return postern__fail(error, POSTERN_E_NOTFOUND, "%s", text);
	}
	if (strcmp(state, NO_SCHEMA) == 0 || strcmp(state, NO_FUNCTION) == 0) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"cannot publish, the database has no schema of this version of "
				"Postern: %s",
				text);
	}
	bool down = strncmp(state, "53", 2) == 0 || strncmp(state, "57", 2) == 0 ||
				strncmp(state, "58", 2) == 0;
	return postern__fail(error,
			down ? POSTERN_E_UNAVAILABLE : POSTERN_E_INVALID, "%s", text);
}

static int call_stage(PGconn *link, const char *sql,
		const struct postern_staging *staging, struct postern_error *error) {
	const struct postern_message *message = staging->message;
	const char *values[PARAMETER_COUNT] = { staging->channel, message->type,
		message->body_len > 0 ? message->body : "", message->id,
		message->source, message->subject, staging->headers,
		message->content_type, message->time, message->correlation_id,
		message->traceparent };
	int lengths[PARAMETER_COUNT] = { 0 };
	int formats[PARAMETER_COUNT] = { 0 };
	lengths[2] = (int)message->body_len;
	formats[2] = 1; /* the body, in binary */
	PGresult *result = PQexecParams(link, sql, PARAMETER_COUNT, NULL, values,
			lengths, formats, 0);
	int r = PQresultStatus(result) == PGRES_TUPLES_OK
					? POSTERN_OK
					: fail_staging(link, result, error);
	PQclear(result);
	return r;
}

int postern__pg_publish(const struct postern_staging *staging,
		struct postern_error *error) {
	PGconn *link = staging->transaction;
	char sql[SQL_LEN_MAX];
	int r = postern__pg_check_own_link(link, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (strlen(staging->schema) >= POSTERN_SCHEMA_NAME_MAX ||
			staging->message->body_len > POSTERN_BODY_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"cannot publish: the body or the name of the schema is too "
				"long");
	}
	char *schema =
			PQescapeIdentifier(link, staging->schema, strlen(staging->schema));
	if (!schema) {
		return postern__fail(error, POSTERN_E_INVALID,
				"cannot publish: the schema is not valid: %s",
				PQerrorMessage(link));
	}
	(void)snprintf(sql, sizeof sql,
			"SELECT %s.stage_1($1, $2, $3::bytea, $4, $5, $6, $7::jsonb, $8,"
			" $9, $10, $11)",
			schema);
	PQfreemem(schema);
	return call_stage(link, sql, staging, error);
}
