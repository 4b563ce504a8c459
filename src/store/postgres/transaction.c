/* SPDX-License-Identifier: MIT */

/*
 * Transactions of more than one statement. What is done in one round trip, by
 * a function of the schema, needs none.
 */

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/postgres.h"

int postern__pg_begin(struct pg_connection *connection,
		struct postern_error *error) {
	return postern__pg_exec(connection, "BEGIN ISOLATION LEVEL READ COMMITTED",
			error);
}

static bool is_commit(const struct pg_query *query) {
	/* A transaction that has failed answers COMMIT with ROLLBACK. */
	return PQcmdStatus(query->result)[0] == 'C';
}

static int commit(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_query query;
	postern__point("postgres-commit.before");
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, "COMMIT", error);
	if (r == POSTERN_OK && !is_commit(&query)) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"the transaction was rolled back");
	}
	postern__pg_end(&query);
	postern__point("postgres-commit.after");
	return r;
}

int postern__pg_finish(struct pg_connection *connection, int r,
		struct postern_error *error) {
	if (r == POSTERN_OK) {
		return commit(connection, error);
	}
	if (!connection->lost) {
		bool collided = connection->collided;
		/* If that fails the connection is closed, which does the same. */
		(void)postern__pg_exec(connection, "ROLLBACK", NULL);
		connection->collided = collided;
	}
	return r;
}
