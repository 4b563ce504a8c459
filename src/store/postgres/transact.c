/* SPDX-License-Identifier: MIT */

/*
 * Running handlers inside a transaction of the database, so that what they
 * write and the completion of their deliveries commit together.
 *
 * A unit's delivery is removed from the open deliveries first, on condition of
 * its fence, and written to the ledger after the handler: if the handler fails,
 * both are rolled back with what it wrote. Several units have a savepoint each.
 * The marker of a guarded function is written instead; that takes one round
 * trip before the function and one after it, which commits.
 *
 * The transaction's id is known before anything is written. If the response to
 * COMMIT is lost, the database is asked for the status of that transaction, and
 * the ledger is read to confirm it.
 *
 * A handler gets the connection itself and may do anything with it. A pledge, a
 * row that a deferred trigger does not let commit, ensures that the handler
 * cannot commit; that it rolled back shows in the state of the connection and
 * in the transaction's id. What it set in the session is reset before the next
 * unit, in the same transaction: afterwards a pooler may have given the session
 * to another client.
 */

#include <libpq-events.h>
#include <postern/handler.h>
#include <postern/sys/clock.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/point.h"
#include "base/sqlstate.h"
#include "base/wait.h"
#include "store/common.h"
#include "store/postgres/marked.h"
#include "store/postgres/postgres.h"

/* How often a unit that collided with another transaction is retried at once.
 */
#define COLLISIONS_MAX 10

/* The SQLSTATE of a savepoint that does not exist. If it is this transaction's,
   the handler has ended the transaction, whatever it began afterwards. */
#define NO_SAVEPOINT "3B001"
/* The SQLSTATE of statements that follow one that failed. */
#define IN_FAILED_TRANSACTION "25P02"
#define ENDED_ITSELF "handler ended the transaction itself"

/* Session state that a handler may leave and no rollback undoes. */
#define FORGET_LOCKS "SELECT pg_advisory_unlock_all()"
#define FORGET_STATEMENTS "DEALLOCATE ALL"
/* Sent before the schema is used: the role may have no privilege on it, and a
   timeout may be short. end_unit_1 resets the rest. */
#define RESET_USER "RESET SESSION AUTHORIZATION"
#define RESET_ROLE "RESET ROLE"
#define RESET_SETTINGS "RESET ALL"
#define RESET_ALL RESET_USER "; " RESET_ROLE "; " RESET_SETTINGS
static const char *const reset_all[] = { RESET_USER, RESET_ROLE, RESET_SETTINGS,
	NULL };

static const char *const nothing[] = { NULL };

struct transaction {
	struct pg_connection *connection;
	uint64_t node;
	const struct postern_lock *lock;
	struct postern_unit *units;
	size_t count;
	int64_t pledge;
	char savepoint[40]; /* a name that no handler uses by chance */
	int64_t xid;
	bool held;
	int64_t marker; /* with a mark: the state before */
	bool committed; /* with a mark: already, with the end of its unit */
	size_t completed;
	bool aborted; /* rolled back, and with it all units so far */
	/* The SQLSTATE of the COMMIT, if a handler is the cause of its failure. */
	char sqlstate[PG_SQLSTATE_SIZE];
};

static int64_t text_int(const struct pg_query *query, int column) {
	return strtoll(PQgetvalue(query->result, 0, column), NULL, 10);
}

/* Begin, and take the marker, in one round trip. */
static int begin_marked(struct transaction *work, struct postern_error *error) {
	struct pg_connection *connection = work->connection;
	const struct postern_unit *unit = work->units;
	/* 0 would be without end. */
	int64_t wait_ms = unit->wait_ms < INT32_MAX ? unit->wait_ms : INT32_MAX;
	struct pg_mark_texts texts;
	char script[sizeof texts + 200];
	postern__pg_mark_texts(connection->store, unit->mark, unit->fence,
			wait_ms > 0 ? wait_ms : 1, &texts);
	(void)snprintf(script, sizeof script,
			PG_BEGIN_UNITS
			"; SET LOCAL lock_timeout = %s; SELECT before, xid"
			" FROM @begin_marked_1(%lld, %s, %s, '%s', '%s', %s)",
			texts.wait, (long long)work->pledge,
			texts.now[0] ? texts.now : "NULL", texts.wait, texts.handlers,
			texts.keys, texts.fence);
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run_script(&query, script, error);
	if (r == POSTERN_OK) {
		work->held = true;
		work->marker = text_int(&query, 0);
		work->xid = text_int(&query, 1);
	}
	postern__pg_end(&query);
	return r;
}

static int begin_deliveries(struct transaction *work,
		struct postern_error *error) {
	static const char *const begin[] = { PG_BEGIN_UNITS, NULL };
	struct pg_query query;
	postern__pg_query(&query, work->connection);
	postern__pg_node(&query, work->node);
	postern__pg_lock_of(&query, work->lock);
	postern__pg_int8(&query, work->pledge);
	int r = postern__pg_run_between(&query, begin,
			"SELECT * FROM @begin_units_1($1, $2, $3, $4)", nothing, error);
	if (r == POSTERN_OK) {
		work->held = postern__pg_get(&query, 0, 0) != 0;
		work->xid = postern__pg_get(&query, 0, 1);
	}
	postern__pg_end(&query);
	return r;
}

static int begin_units(struct transaction *work, struct postern_error *error) {
	struct pg_store *self = work->connection->store;
	work->aborted = false;
	work->committed = false;
	work->completed = 0;
	work->sqlstate[0] = '\0';
	work->xid = 0;
	work->pledge = (int64_t)(self->random->next(self->random->context) >> 1);
	(void)snprintf(work->savepoint, sizeof work->savepoint, "postern_%llx",
			(unsigned long long)work->pledge);
	return work->units->mark ? begin_marked(work, error)
							 : begin_deliveries(work, error);
}

/* The marker was taken when the transaction began. *starts_out is 0, and the
   unit has its code, if it was not unknown. */
static void start_marked(const struct transaction *work,
		struct postern_unit *unit, int64_t *starts_out) {
	bool unknown = work->marker == POSTERN_MARK_UNKNOWN;
	*starts_out = unknown;
	unit->code = unknown                             ? POSTERN_OK
				 : work->marker == POSTERN_MARK_DONE ? POSTERN_E_DUPLICATE
													 : POSTERN_E_BUSY;
}

/* Set the savepoint and remove the delivery from the open ones. *starts_out is
   0 if the lease is lost. */
static int start_unit(struct transaction *work, struct postern_unit *unit,
		int64_t *starts_out, struct postern_error *error) {
	if (unit->mark) {
		start_marked(work, unit, starts_out);
		return POSTERN_OK;
	}
	char savepoint[80];
	(void)snprintf(savepoint, sizeof savepoint, "SAVEPOINT %s",
			work->savepoint);
	const char *const before[] = { savepoint, NULL };
	struct pg_query query;
	postern__pg_query(&query, work->connection);
	postern__pg_node(&query, work->node);
	postern__pg_int8(&query, unit->seq);
	postern__pg_int4(&query, unit->handler);
	postern__pg_int8(&query, (int64_t)unit->fence);
	int r = postern__pg_run_between(&query, before,
			"SELECT @take_unit_1($1, $2, $3, $4)", nothing, error);
	if (r == POSTERN_OK) {
		*starts_out = postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

/* Reset the session, confirm the marker, and commit, in one round trip. */
static int complete_marked(struct transaction *work,
		struct postern_error *error) {
	struct pg_connection *connection = work->connection;
	struct pg_units units = { work->units, work->count };
	char script[256];
	(void)snprintf(script, sizeof script,
			RESET_ALL "; SELECT @mark_end_1(%lld), "
					  "pg_advisory_unlock_all(); " FORGET_STATEMENTS "; COMMIT",
			(long long)work->pledge);
	int r = postern__pg_end_known(connection, work->xid,
			postern__pg_confirm_units, &units, script, error);
	work->committed = r == POSTERN_OK;
	return r;
}

/* Reset the session, record the completion, and release the savepoint. */
static int complete_unit(struct transaction *work,
		const struct postern_unit *unit, int64_t starts,
		struct postern_error *error) {
	char release[80];
	(void)snprintf(release, sizeof release, "RELEASE %s", work->savepoint);
	const char *const after[] = { FORGET_STATEMENTS, release, NULL };
	bool done = unit->outcome.kind == POSTERN_DONE;
	const char *reason = unit->outcome.reason;
	struct pg_query query;
	postern__pg_query(&query, work->connection);
	postern__pg_int8(&query, work->xid);
	postern__pg_now(&query);
	postern__pg_int8(&query, unit->seq);
	postern__pg_int4(&query, unit->handler);
	postern__pg_int8(&query, (int64_t)unit->fence);
	postern__pg_int2(&query, done ? 3 : 5);
	postern__pg_int4(&query, unit->failures);
	postern__pg_int4(&query, starts);
	postern__pg_int8(&query, unit->duration_ms);
	postern__pg_text(&query, reason[0] ? reason : NULL);
	postern__pg_int4(&query, POSTERN_ATTEMPTS_KEPT);
	int r = postern__pg_run_between(&query, reset_all,
			"SELECT @end_unit_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
			after, error);
	postern__pg_end(&query);
	return r;
}

/* Records the last error that the server returned on this connection, to
   whatever statement. */
static int record_error(PGEventId event, void *info, void *context) {
	struct pg_connection *connection = context;
	if (event == PGEVT_RESULTCREATE) {
		const PGEventResultCreate *created = info;
		const char *state =
				PQresultErrorField(created->result, PG_DIAG_SQLSTATE);
		/* The refusals that follow an error do not replace it. */
		if (state && strcmp(state, IN_FAILED_TRANSACTION) != 0) {
			const char *text = PQresultErrorField(created->result,
					PG_DIAG_MESSAGE_PRIMARY);
			(void)snprintf(connection->sqlstate, sizeof connection->sqlstate,
					"%s", state);
			(void)snprintf(connection->error_text,
					sizeof connection->error_text, "%s", text ? text : "");
		}
	}
	return 1;
}

static void watch_errors(struct pg_connection *connection) {
	if (connection->watched_epoch != connection->epoch &&
			PQregisterEventProc(connection->link, record_error, "postern",
					connection)) {
		connection->watched_epoch = connection->epoch;
	}
	connection->sqlstate[0] = '\0';
}

/* Between these two calls another thread may interrupt the handler. */
static void register_active(struct transaction *work,
		struct pg_active *active) {
	struct pg_actives *all = &work->connection->store->active;
	(void)pthread_mutex_lock(&all->mutex);
	active->next = all->first;
	all->first = active;
	(void)pthread_mutex_unlock(&all->mutex);
}

static bool unregister_active(struct transaction *work,
		struct pg_active *active) {
	struct pg_actives *all = &work->connection->store->active;
	(void)pthread_mutex_lock(&all->mutex);
	struct pg_active **link = &all->first;
	while (*link != active) {
		link = &(*link)->next;
	}
	*link = active->next;
	bool interrupted = active->interrupted;
	(void)pthread_cond_broadcast(&all->ended);
	(void)pthread_mutex_unlock(&all->mutex);
	return interrupted;
}

static void *send_cancel(void *context) {
	PGcancel *cancel = context;
	char text[256];
	(void)PQcancel(cancel, text,
			sizeof text); /* if it fails, the connection is closed */
	PQfreeCancel(cancel);
	return NULL;
}

/* Sends the cancel request on a thread of its own, because the server may not
   respond, and PQcancel has no timeout. */
void postern__pg_cancel(const struct pg_connection *connection) {
	pthread_t thread;
	PGcancel *cancel = PQgetCancel(connection->link);
	if (cancel && pthread_create(&thread, NULL, send_cancel, cancel) == 0) {
		(void)pthread_detach(thread);
	} else {
		PQfreeCancel(cancel);
	}
}

static bool is_addressed(const struct pg_active *active, const void *context) {
	return !context || active->context == context;
}

/* The caller holds the mutex. Whether any interrupted handler has not ended. */
static bool is_any_running(const struct pg_actives *all, const void *context) {
	for (const struct pg_active *at = all->first; at; at = at->next) {
		if (at->interrupted && is_addressed(at, context)) {
			return true;
		}
	}
	return false;
}

void postern__pg_interrupt(struct postern_store *store, const void *context) {
	struct pg_actives *all = &postern__pg_from_base(store)->active;
	int64_t end_ns = postern__clock_ns() + PG_CANCEL_MS * 1000000;
	int64_t left_ns = end_ns - postern__clock_ns();
	(void)pthread_mutex_lock(&all->mutex);
	for (struct pg_active *at = all->first; at; at = at->next) {
		if (is_addressed(at, context)) {
			at->interrupted = true;
			postern__pg_cancel(at->connection);
		}
	}
	while (left_ns > 0 && is_any_running(all, context)) {
		postern__wait(&all->ended, &all->mutex, left_ns / 1000000 + 1);
		left_ns = end_ns - postern__clock_ns();
	}
	for (struct pg_active *at = all->first; at; at = at->next) {
		if (at->interrupted && is_addressed(at, context)) {
			/* The handler sees a closed connection. */
			(void)shutdown(PQsocket(at->connection->link), SHUT_RDWR);
		}
	}
	(void)pthread_mutex_unlock(&all->mutex);
}

/* Refuse the unit and give up the transaction. */
static int refuse_and_abort(struct transaction *work, struct postern_unit *unit,
		int code, const char *reason) {
	postern__unit_refuse(unit, code, reason);
	work->connection->lost = true;
	work->aborted = true;
	return POSTERN_OK;
}

/* The connection was lost while the unit had it. */
static int refuse_disconnected(struct transaction *work,
		struct postern_unit *unit, const struct postern_error *error) {
	const char *text =
			error ? error->text : "the connection to PostgreSQL was lost";
	return refuse_and_abort(work, unit, POSTERN_E_UNAVAILABLE,
			unit->outcome.reason[0] ? NULL : text);
}

/* A statement after the handler failed with r: if the handler is the cause,
   only its unit is refused. */
static int attribute_failure(struct transaction *work,
		struct postern_unit *unit, int r, const struct postern_error *error) {
	const struct pg_connection *connection = work->connection;
	if (r == POSTERN_E_UNAVAILABLE && connection->lost) {
		return refuse_disconnected(work, unit, error);
	}
	if (r != POSTERN_OK && !connection->lost &&
			strcmp(connection->sqlstate, NO_SAVEPOINT) == 0) {
		return refuse_and_abort(work, unit, POSTERN_E_INVALID, ENDED_ITSELF);
	}
	return r;
}

/* Check the state in which the handler left the connection. */
static void check_connection_state(struct transaction *work,
		struct postern_unit *unit, bool interrupted) {
	struct pg_connection *connection = work->connection;
	PGTransactionStatusType status = PQtransactionStatus(connection->link);
	if (interrupted) {
		/* The interrupting thread may have set a reason already. The cancel
		   request may arrive later, and must not hit another statement. */
		(void)refuse_and_abort(work, unit, POSTERN_E_TIMEOUT,
				unit->outcome.reason[0] ? NULL : "interrupted");
	} else if (status == PQTRANS_UNKNOWN) {
		struct postern_error error = { 0 };
		(void)postern__pg_fail(connection, NULL, &error);
		(void)refuse_disconnected(work, unit, &error);
	} else if (status == PQTRANS_ACTIVE) {
		(void)refuse_and_abort(work, unit, POSTERN_E_INVALID,
				postern__unit_completes(unit) ? "handler left a command running"
											  : NULL);
	} else if (status == PQTRANS_IDLE) {
		/* After the end of the transaction the handler may have set anything.
		 */
		(void)refuse_and_abort(work, unit, POSTERN_E_INVALID,
				postern__unit_completes(unit) ? ENDED_ITSELF : NULL);
	} else if (status == PQTRANS_INERROR && postern__unit_completes(unit)) {
		postern__unit_refuse(unit, POSTERN_E_INVALID,
				"handler ignored the error of a statement that failed");
	}
}

static void call_handler(struct transaction *work, struct postern_unit *unit) {
	struct pg_connection *connection = work->connection;
	const struct pg_store *self = connection->store;
	const struct postern_clock *clock =
			self->test_clock ? self->test_clock : self->clock;
	postern_outcome_set(&unit->outcome, POSTERN_DONE, 0, NULL);
	int64_t started = clock->monotonic_ms(clock->context);
	watch_errors(connection);
	(void)PQsetnonblocking(connection->link, 0);
	struct pg_active active = {
		.connection = connection,
		.context = unit->context,
	};
	register_active(work, &active);
	unit->run(unit->context, connection->link, connection->epoch,
			&unit->outcome);
	bool interrupted = unregister_active(work, &active);
	(void)PQsetnonblocking(connection->link, 1);
	postern__pg_link_reset(connection);
	unit->duration_ms = clock->monotonic_ms(clock->context) - started;
	check_connection_state(work, unit, interrupted);
}

static bool has_collided(const struct transaction *work,
		const struct postern_unit *unit) {
	return !work->aborted && !postern__unit_completes(unit) &&
		   strncmp(work->connection->sqlstate, "40", 2) == 0;
}

static int roll_back_unit(struct transaction *work,
		struct postern_error *error) {
	char sql[200];
	if (work->units->mark) {
		/* In one transaction: a pooler may give away the session after it. */
		return postern__pg_script(work->connection,
				"ROLLBACK AND CHAIN; " FORGET_LOCKS "; " FORGET_STATEMENTS
				"; COMMIT",
				error);
	}
	(void)snprintf(sql, sizeof sql,
			"ROLLBACK TO %s; RELEASE %s; " FORGET_LOCKS "; " FORGET_STATEMENTS,
			work->savepoint, work->savepoint);
	return postern__pg_script(work->connection, sql, error);
}

/*
 * Whether a statement of the store, or the COMMIT, failed because of what the
 * handler did: it made the transaction read-only, or a deferred trigger of its
 * tables raised an error. A server that responds has few errors of its own:
 * collisions, lack of resources, shutdown, I/O.
 */
static bool is_handler_fault(const struct pg_connection *connection) {
	static const char *const server_states[] = { "40", "531", "532", "533",
		"57P", "58", "F0", "XX001", "XX002" };
	bool fault = !connection->lost && connection->sqlstate[0];
	for (size_t i = 0; i < sizeof server_states / sizeof server_states[0];
			i++) {
		fault = fault && strncmp(connection->sqlstate, server_states[i],
								 strlen(server_states[i])) != 0;
	}
	return fault;
}

/*
 * Refuse a unit because of an error of the server that its handler caused
 * without seeing it. If the error would be the same for every message (the
 * table of a deferred trigger is missing), the handler itself is at fault.
 */
static void refuse_for_error(struct postern_unit *unit, const char *sqlstate,
		const char *text) {
	char reason[POSTERN_REASON_LEN_MAX];
	(void)snprintf(reason, sizeof reason, "%s (SQLSTATE %s)", text, sqlstate);
	if (postern__sqlstate_cause(sqlstate, true) == POSTERN__CAUSE_HANDLER) {
		unit->outcome.kind = POSTERN_HOLD;
	}
	postern__unit_refuse(unit, POSTERN_E_INVALID, reason);
}

/* Run one unit under a savepoint. */
static int run_under_savepoint(struct transaction *work,
		struct postern_unit *unit, bool *collided_out,
		struct postern_error *error) {
	int64_t starts = 0;
	*collided_out = false;
	int r = start_unit(work, unit, &starts, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (starts == 0 && unit->mark) {
		return POSTERN_OK; /* nothing is left in the session */
	}
	if (starts == 0) {
		unit->code = POSTERN_E_STALE;
		return roll_back_unit(work, error);
	}
	postern__point("postgres-unit.before");
	call_handler(work, unit);
	postern__point("postgres-unit.after");
	if (work->aborted) {
		return POSTERN_OK;
	}
	*collided_out = has_collided(work, unit);
	work->connection->sqlstate[0] = '\0'; /* errors before this are handled */
	if (postern__unit_completes(unit)) {
		r = unit->mark ? complete_marked(work, error)
					   : complete_unit(work, unit, starts, error);
		if (r == POSTERN_OK || !is_handler_fault(work->connection)) {
			return attribute_failure(work, unit, r, error);
		}
		/* The handler has left the transaction in another state. */
		refuse_for_error(unit, work->connection->sqlstate,
				work->connection->error_text);
	}
	if (PQtransactionStatus(work->connection->link) == PQTRANS_IDLE) {
		return POSTERN_OK; /* it was the COMMIT that failed */
	}
	return attribute_failure(work, unit, roll_back_unit(work, error), error);
}

static int run_unit_retrying(struct transaction *work,
		struct postern_unit *unit, struct postern_error *error) {
	bool collided = true;
	int r = POSTERN_OK;
	int tries = unit->mark ? 1 : COLLISIONS_MAX;
	for (int i = 0; r == POSTERN_OK && collided && i < tries; i++) {
		unit->code = POSTERN_OK;
		r = run_under_savepoint(work, unit, &collided, error);
		if (r == POSTERN_OK && collided && work->completed > 0) {
			/* The other transaction may be waiting for rows that earlier units
			   have locked. */
			return postern__fail(error, POSTERN_E_BUSY,
					"a handler collided with another transaction");
		}
	}
	return r;
}

static int find_ended(struct pg_query *query, const struct postern_unit *unit,
		struct postern_error *error) {
	postern__pg_int8(query, unit->seq);
	postern__pg_int4(query, unit->handler);
	postern__pg_int8(query, (int64_t)unit->fence);
	return postern__pg_run(query,
			"SELECT 1 FROM @ledger"
			" WHERE seq = $1 AND handler = $2 AND fence = $3",
			error);
}

static int find_marked(struct pg_query *query, const struct postern_unit *unit,
		struct postern_error *error) {
	postern__pg_mark(query, unit->mark);
	postern__pg_int8(query, (int64_t)unit->fence);
	return postern__pg_run(query,
			"SELECT 1 FROM @mark_read_1(NULL, $1, $2, $3)"
			" WHERE before = 2 AND mine AND present > 0",
			error);
}

/* Returns POSTERN_OK if any unit is in the ledger under its fence, or its
   marker is done under it: all are, or none. Else POSTERN_E_STALE. */
int postern__pg_confirm_units(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	const struct pg_units *work = context;
	bool found = false;
	int r = POSTERN_OK;
	(void)again;
	for (size_t i = 0; r == POSTERN_OK && !found && i < work->count; i++) {
		const struct postern_unit *unit = &work->units[i];
		if (!postern__unit_completes(unit)) {
			continue;
		}
		struct pg_query query;
		postern__pg_query(&query, connection);
		r = unit->mark ? find_marked(&query, unit, error)
					   : find_ended(&query, unit, error);
		found = r == POSTERN_OK && postern__pg_rows(&query) > 0;
		postern__pg_end(&query);
	}
	return r == POSTERN_OK && !found
				   ? postern__fail(error, POSTERN_E_STALE, "no unit has ended")
				   : r;
}

static int commit_units(struct transaction *work, struct postern_error *error) {
	struct pg_connection *connection = work->connection;
	struct pg_query query;
	connection->sqlstate[0] = '\0'; /* errors before this are handled */
	postern__pg_query(&query, connection);
	postern__pg_int8(&query, work->pledge);
	int r = postern__pg_run(&query, "DELETE FROM @pledge WHERE id = $1", error);
	if (r == POSTERN_OK && postern__pg_changes(&query) != 1) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"a handler ended the transaction itself");
	}
	postern__pg_end(&query);
	struct pg_units units = { work->units, work->count };
	r = postern__pg_finish_known(connection, work->xid,
			postern__pg_confirm_units, &units, r, error);
	if (r == POSTERN_OK || !is_handler_fault(connection)) {
		return r;
	}
	memcpy(work->sqlstate, connection->sqlstate, sizeof work->sqlstate);
	return postern__fail(error, POSTERN_E_INVALID, "%s",
			connection->error_text);
}

static int run_transaction(struct transaction *work,
		struct postern_error *error) {
	struct pg_connection *connection = work->connection;
	postern__pg_forget_names(
			connection); /* resetting after a handler deallocates them */
	int r = begin_units(work, error);
	for (size_t i = 0; r == POSTERN_OK && !work->aborted && i < work->count;
			i++) {
		struct postern_unit *unit = &work->units[i];
		if (!work->held) {
			unit->code = POSTERN_E_STALE;
		} else if (postern__unit_completes(unit)) {
			r = run_unit_retrying(work, unit, error);
			work->completed += postern__unit_completes(unit);
		}
	}
	if (r != POSTERN_OK) {
		/* What a handler left in the session was not reset. */
		connection->lost = true;
	}
	if (r != POSTERN_OK || work->aborted || work->completed == 0) {
		if (PQtransactionStatus(connection->link) != PQTRANS_IDLE) {
			(void)postern__pg_finish(connection, POSTERN_E_STALE, NULL);
		}
		return r;
	}
	r = work->committed ? POSTERN_OK : commit_units(work, error);
	for (size_t i = 0; r == POSTERN_OK && i < work->count; i++) {
		work->units[i].committed = postern__unit_completes(&work->units[i]);
	}
	return r;
}

/* Run on one connection after the other until every unit has a result. */
static int run_until_resolved(struct transaction *work, struct pg_store *self,
		struct postern_error *error) {
	bool again = true;
	int r = POSTERN_OK;
	while (r == POSTERN_OK && again) {
		r = postern__pg_acquire(self, &work->connection, error);
		if (r != POSTERN_OK) {
			return r;
		}
		r = run_transaction(work, error);
		/* A unit was refused together with its connection: the others are run
		   again without it. */
		again = false;
		for (size_t i = 0; work->aborted && i < work->count; i++) {
			again = again || postern__unit_completes(&work->units[i]);
		}
		if (work->connection->lost) {
			postern__pg_end_session(work->connection);
		}
		postern__pg_release(work->connection);
	}
	return r;
}

/* As run_until_resolved(), for a single unit: if the COMMIT fails because of
   it, it is refused. */
static int run_alone(struct transaction *work, struct pg_store *self,
		struct postern_error *error) {
	int r = run_until_resolved(work, self, error);
	if (r != POSTERN_E_INVALID) {
		return r;
	}
	if (work->sqlstate[0]) {
		refuse_for_error(work->units, work->sqlstate, error->text);
	} else {
		postern__unit_refuse(work->units, r, error->text);
	}
	return POSTERN_OK;
}

/*
 * The transaction failed as a whole, and one of the units is the cause: each is
 * run in a transaction of its own. As soon as one has committed, the failure of
 * another is not returned for all: a unit that cannot be run then is retried
 * later.
 */
static int run_units_apart(struct transaction *all, struct pg_store *self,
		struct postern_error *error) {
	bool committed = false;
	int r = POSTERN_OK;
	postern__units_reset(all->units, all->count);
	for (size_t i = 0; i < all->count; i++) {
		struct postern_unit *unit = &all->units[i];
		struct postern_error failure = { 0 };
		struct transaction work = {
			.node = all->node,
			.lock = all->lock,
			.units = unit,
			.count = 1,
		};
		if (r == POSTERN_OK) {
			r = run_alone(&work, self, &failure);
		}
		if (r != POSTERN_OK && !committed) {
			*error = failure;
			return r;
		}
		if (r != POSTERN_OK) {
			postern__unit_refuse(unit, POSTERN_E_TIMEOUT, NULL);
		}
		committed = committed || unit->committed;
	}
	return POSTERN_OK;
}

int postern__pg_transact(struct postern_store *store, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	postern__units_reset(units, count);
	struct transaction work = {
		.node = node,
		.lock = lock,
		.units = units,
		.count = count,
	};
	struct postern_error failure = { 0 };
	int r = POSTERN_OK;
	if (postern__pg_may_send_ahead(self, units, count)) {
		r = postern__pg_send_ahead(self, node, lock, units, count, error);
		if (r != POSTERN_E_BUSY) {
			return r;
		}
		postern__units_reset(units, count);
	}
	if (count == 1) {
		r = run_alone(&work, self, &failure);
	} else if (count > 1) {
		r = run_until_resolved(&work, self, &failure);
	}
	if (count > 1 && (r == POSTERN_E_INVALID || r == POSTERN_E_BUSY)) {
		r = run_units_apart(&work, self, &failure);
	}
	if (r != POSTERN_OK && error) {
		*error = failure;
	}
	return r;
}
