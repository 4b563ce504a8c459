/* SPDX-License-Identifier: MIT */

/*
 * A marker in a transaction of somebody else, on his connection: with the
 * blocking functions of libpq and text parameters, because nothing of that
 * connection belongs to this store.
 *
 * A savepoint surrounds it, so that a marker that another transaction holds
 * does not make the caller's transaction fail.
 */

#include <arpa/inet.h>
#include <inttypes.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/fail.h"
#include "store/marker.h"
#include "store/postgres/marked.h"
#include "store/postgres/own_link.h"
#include "store/postgres/postgres.h"

#define SQL_LEN_MAX 1024

int postern__pg_check_own_link(PGconn *link, struct postern_error *error) {
	if (PQstatus(link) != CONNECTION_OK) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"the connection of the transaction was lost");
	}
	if (PQpipelineStatus(link) != PQ_PIPELINE_OFF) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the connection of the transaction is in pipeline mode");
	}
	switch (PQtransactionStatus(link)) {
	case PQTRANS_INTRANS: return POSTERN_OK;
	case PQTRANS_INERROR:
		return postern__fail(error, POSTERN_E_INVALID,
				"the transaction has failed: roll it back");
	case PQTRANS_IDLE:
		return postern__fail(error, POSTERN_E_INVALID,
				"the connection has no open transaction: BEGIN first");
	default:
		return postern__fail(error, POSTERN_E_INVALID,
				"the connection of the transaction is in use");
	}
}

static void append(char *array, const char *text) {
	size_t len = strlen(array);
	(void)snprintf(array + len, PG_MARK_ARRAY_LEN_MAX - len, "%s%s",
			len > 1 ? "," : "", text);
}

static void write_arrays(struct pg_mark_texts *out,
		const struct postern__mark_keys *keys) {
	(void)snprintf(out->handlers, sizeof out->handlers, "{");
	(void)snprintf(out->keys, sizeof out->keys, "{");
	for (size_t i = 0; i < keys->count; i++) {
		const uint8_t *key = keys->items[i];
		char text[2 * POSTERN__MARK_KEY_LEN + 1];
		(void)snprintf(text, sizeof text, "%" PRId64,
				postern__pg_mark_handler(key));
		append(out->handlers, text);
		for (size_t at = POSTERN__MARK_HANDLER_LEN; at < POSTERN__MARK_KEY_LEN;
				at++) {
			(void)snprintf(text + 2 * (at - POSTERN__MARK_HANDLER_LEN), 3,
					"%02x", key[at]);
		}
		append(out->keys, text);
	}
	(void)snprintf(out->handlers + strlen(out->handlers), 2, "}");
	(void)snprintf(out->keys + strlen(out->keys), 2, "}");
}

void postern__pg_mark_texts(const struct pg_store *self,
		const struct postern_mark *mark, uint64_t fence, int64_t wait_ms,
		struct pg_mark_texts *out) {
	struct postern__mark_keys keys;
	postern__pg_mark_keys(self, mark, &keys);
	write_arrays(out, &keys);
	(void)snprintf(out->wait, sizeof out->wait, "%" PRId64, wait_ms);
	(void)snprintf(out->fence, sizeof out->fence, "%" PRId64, (int64_t)fence);
	out->now[0] = '\0';
	if (self->test_clock) {
		(void)snprintf(out->now, sizeof out->now, "%" PRId64,
				self->test_clock->wall_ms(self->test_clock->context));
	}
}

static int run(struct pg_connection *connection, const char *sql,
		struct postern_error *error) {
	PGresult *result = PQexec(connection->link, sql);
	int r = PQresultStatus(result) == PGRES_COMMAND_OK
					? POSTERN_OK
					: postern__pg_fail(connection, result, error);
	PQclear(result);
	return r;
}

/* The answer: the state before, and the secret of the store that gave it. */
static int read_result(const struct pg_store *self, const PGresult *result,
		enum postern_mark_state *before_out, struct postern_error *error) {
	bool same = PQntuples(result) == 1 && PQgetlength(result, 0, 0) == 4 &&
				PQgetlength(result, 0, 1) == (int)sizeof self->hash_key &&
				memcmp(PQgetvalue(result, 0, 1), self->hash_key,
						sizeof self->hash_key) == 0;
	if (!same) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the connection of the transaction is not to the store at %s",
				self->place);
	}
	uint32_t number;
	memcpy(&number, PQgetvalue(result, 0, 0), sizeof number);
	*before_out = (enum postern_mark_state)ntohl(number);
	return POSTERN_OK;
}

static int take(struct pg_connection *connection,
		const struct pg_mark_texts *parameters,
		enum postern_mark_state *before_out, struct postern_error *error) {
	const struct pg_store *self = connection->store;
	const char *const values[] = { *parameters->now ? parameters->now : NULL,
		parameters->wait, parameters->handlers, parameters->keys,
		parameters->fence };
	char sql[SQL_LEN_MAX];
	(void)snprintf(sql, sizeof sql,
			"SELECT %smark_take_1($1::bigint, $2::bigint, $3::bigint[],"
			" $4::uuid[], $5::bigint),"
			" (SELECT value FROM %smeta WHERE name = 'hash_key')",
			self->schema, self->schema);
	PGresult *result =
			PQexecParams(connection->link, sql, 5, NULL, values, NULL, NULL, 1);
	int r = PQresultStatus(result) == PGRES_TUPLES_OK
					? read_result(self, result, before_out, error)
					: postern__pg_fail(connection, result, error);
	PQclear(result);
	return r;
}

int postern__pg_mark_take(struct postern_markers *markers, void *transaction,
		const struct postern_mark *mark, uint64_t fence, int64_t wait_ms,
		enum postern_mark_state *before_out, struct postern_error *error) {
	struct pg_store *self = postern__pg_from_markers(markers);
	/* Only to report errors. */
	struct pg_connection connection = { .store = self, .link = transaction };
	struct pg_mark_texts parameters;
	int r = postern__pg_check_own_link(connection.link, error);
	if (r == POSTERN_OK) {
		r = run(&connection, "SAVEPOINT postern_mark", error);
	}
	if (r != POSTERN_OK) {
		return r;
	}
	postern__pg_mark_texts(self, mark, fence, wait_ms, &parameters);
	r = take(&connection, &parameters, before_out, error);
	if (r != POSTERN_OK) {
		(void)run(&connection,
				"ROLLBACK TO SAVEPOINT postern_mark;"
				" RELEASE SAVEPOINT postern_mark",
				NULL);
		return r;
	}
	return run(&connection, "RELEASE SAVEPOINT postern_mark", error);
}
