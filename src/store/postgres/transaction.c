/* SPDX-License-Identifier: MIT */

/*
 * Transactions of more than one statement. An operation that is one call of a
 * function of the schema needs none.
 */

#include <stdio.h>

#include <postern/sys/clock.h>
#include <time.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/postgres/marked.h"
#include "store/postgres/postgres.h"

/* How long to wait before the status of a transaction is read again. */
#define ASK_AGAIN_MS 50

int postern__pg_begin(struct pg_connection *connection,
		struct postern_error *error) {
	char sql[128];
	(void)snprintf(sql, sizeof sql,
			"BEGIN ISOLATION LEVEL READ COMMITTED;"
			" SET LOCAL idle_in_transaction_session_timeout = %lld",
			(long long)connection->store->command_timeout_ms);
	return postern__pg_script(connection, sql, error);
}

int postern__pg_begin_read(struct pg_connection *connection,
		struct postern_error *error) {
	return postern__pg_exec(connection,
			"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", error);
}

static int set_lock_timeout(struct pg_connection *connection, int64_t *now_out,
		struct postern_error *error) {
	char timeout[24];
	(void)snprintf(timeout, sizeof timeout, "%lld",
			(long long)connection->store->lock_timeout_ms);
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	postern__pg_text(&query, timeout);
	int r = postern__pg_run(&query,
			"SELECT coalesce($1, @now_ms()),"
			" set_config('lock_timeout', $2, true)",
			error);
	if (r == POSTERN_OK) {
		*now_out = postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_begin_change(struct pg_connection *connection, int64_t *now_out,
		struct postern_error *error) {
	int r = postern__pg_begin(connection, error);
	if (r == POSTERN_OK) {
		r = set_lock_timeout(connection, now_out, error);
		if (r != POSTERN_OK) {
			return postern__pg_finish(connection, r, error);
		}
	}
	return r;
}

static bool is_commit(const struct pg_query *query) {
	/* The server responds to COMMIT of a failed transaction with ROLLBACK. */
	return PQcmdStatus(query->result)[0] == 'C';
}

/* Run COMMIT, or a script that ends with it. */
static int run_commit(struct pg_connection *connection, const char *script,
		struct postern_error *error) {
	struct pg_query query;
	if (script) {
		/* COMMIT is not executed if a statement before it fails. */
		return postern__pg_script(connection, script, error);
	}
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, "COMMIT", error);
	if (r == POSTERN_OK && !is_commit(&query)) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"the transaction was rolled back");
	}
	postern__pg_end(&query);
	return r;
}

static int send_commit(struct pg_connection *connection, const char *script,
		struct postern_error *error) {
	postern__point("postgres-commit.before");
	if (postern__point_fails("postgres-commit.unsent")) {
		return postern__pg_cut(connection, error);
	}
	int r = run_commit(connection, script, error);
	postern__point("postgres-commit.after");
	if (r == POSTERN_OK && postern__point_fails("postgres-commit.unheard")) {
		r = postern__pg_cut(connection, error);
	}
	return r;
}

int postern__pg_finish(struct pg_connection *connection, int r,
		struct postern_error *error) {
	if (r == POSTERN_OK) {
		return send_commit(connection, NULL, error);
	}
	if (!connection->lost) {
		bool collided = connection->collided;
		/* If ROLLBACK fails the connection is closed, which does the same. */
		(void)postern__pg_exec(connection, "ROLLBACK", NULL);
		connection->collided = collided;
	}
	return r;
}

static void wait_before_asking(void) {
	struct timespec time = { .tv_nsec = ASK_AGAIN_MS * 1000000 };
	(void)nanosleep(&time, NULL);
}

struct xact_status {
	int64_t xid;
	bool committed;
	bool in_progress;
};

/* After a crash the server may not have assigned this id again yet: then its
   transaction was lost. */
static int read_xact_status(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct xact_status *status = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, status->xid);
	int r = postern__pg_run(&query,
			"SELECT s = 'committed', s = 'in progress' FROM (SELECT CASE WHEN"
			" $1::text::xid8 < pg_current_xact_id()"
			" THEN pg_xact_status($1::text::xid8) ELSE 'aborted' END AS s)"
			" AS f",
			error);
	if (r == POSTERN_OK) {
		status->committed = postern__pg_get(&query, 0, 0) != 0;
		status->in_progress = postern__pg_get(&query, 0, 1) != 0;
	}
	postern__pg_end(&query);
	return r;
}

static int wait_for_xact_end(struct pg_connection *connection,
		struct xact_status *status, struct postern_error *error) {
	const struct pg_store *self = connection->store;
	const struct postern_clock *clock = self->clock;
	int64_t end =
			clock->monotonic_ms(clock->context) + 2 * self->command_timeout_ms;
	status->in_progress = true;
	while (true) {
		int r = postern__pg_do_here(connection, read_xact_status, status,
				error);
		if (r == POSTERN_OK && !status->in_progress) {
			return r;
		}
		if (clock->monotonic_ms(clock->context) > end) {
			return r != POSTERN_OK
						   ? r
						   : postern__fail(error, POSTERN_E_TIMEOUT,
									 "transaction %lld is still in progress",
									 (long long)status->xid);
		}
		wait_before_asking();
	}
}

/* The response to COMMIT was lost: determine whether it took effect. */
static int determine_outcome(struct pg_connection *connection, int64_t xid,
		pg_work *confirm, void *context, bool *committed_out,
		struct postern_error *error) {
	struct xact_status status = { .xid = xid };
	int r = wait_for_xact_end(connection, &status, error);
	if (r == POSTERN_OK && status.committed) {
		/* After a crash the server assigns ids again that lost transactions
		   had, so a committed id may belong to another transaction. */
		r = postern__pg_do_here(connection, confirm, context, error);
		status.committed = r == POSTERN_OK;
		r = r == POSTERN_E_STALE ? POSTERN_OK : r;
	}
	if (r == POSTERN_OK) {
		*committed_out = status.committed;
	}
	return r;
}

/* COMMIT had the result `done`: if the response was lost, the one it had. */
static int resolve_commit(struct pg_connection *connection, int64_t xid,
		pg_work *confirm, void *context, int done,
		struct postern_error *error) {
	if (done == POSTERN_OK || !connection->lost) {
		return done;
	}
	bool committed = false;
	struct postern_error failure = { 0 };
	int known = determine_outcome(connection, xid, confirm, context, &committed,
			&failure);
	/* The caller lost the connection on which COMMIT was sent. */
	connection->lost = true;
	if (known != POSTERN_OK) {
		if (error) {
			*error = failure;
		}
		return known;
	}
	return committed ? POSTERN_OK : done;
}

int postern__pg_finish_known(struct pg_connection *connection, int64_t xid,
		pg_work *confirm, void *context, int r, struct postern_error *error) {
	int done = postern__pg_finish(connection, r, error);
	return r != POSTERN_OK ? done
						   : resolve_commit(connection, xid, confirm, context,
									 done, error);
}

int postern__pg_end_known(struct pg_connection *connection, int64_t xid,
		pg_work *confirm, void *context, const char *script,
		struct postern_error *error) {
	int done = send_commit(connection, script, error);
	return resolve_commit(connection, xid, confirm, context, done, error);
}
