/* SPDX-License-Identifier: MIT */

/*
 * The pipeline for units whose statements are known beforehand (handlers of
 * kind sql): every statement of the transaction except COMMIT is sent in one
 * go, and the results are read afterwards. A hundred deliveries cost one round
 * trip, and the server plans each statement once instead of once for each
 * delivery.
 *
 * The pipeline has no savepoints: if any statement fails, the whole transaction
 * is rolled back and transact.c runs each unit by itself, which shows which of
 * them failed. The same happens if the pipeline takes too long, because units
 * that run by themselves have a timeout each. Handlers that keep failing are
 * not pipelined for a while.
 *
 * Between two deliveries the session is reset, as between two transactions.
 *
 * Prepared statements (a name on the server, with a plan) are kept as long as
 * the connection if it leads to the server itself: the server reports its
 * backend number on connecting, a pooler does not report the same one. Behind a
 * pooler the next transaction may run in another session, so prepared
 * statements are deallocated with the transaction. A prepared statement that is
 * missing, or that exists already, is one of the failures after which each unit
 * is run by itself.
 */

#include <postern/handler.h>
#include <postern/sys/clock.h>
#include <postern/sys/store.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

/* The timeout of a pipeline; after it each unit is run by itself. */
#define PATIENCE_MS INT64_C(1000)

/* Statements are flushed when the bodies in them exceed this. */
#define UNSENT_BYTES_MAX ((size_t)256 * 1024)

#define PENALTY_MAX 63

/* The store's own statements, and the names they are prepared under. */
#define BEGIN_NAME "postern_begin"
#define TAKE_NAME "postern_take"
#define TAKE_SQL                                                     \
	"SELECT * FROM @take_units_1($1::bigint, $2::bigint, $3::text, " \
	"$4::bigint,"                                                    \
	" $5::bigint[], $6::integer[], $7::bigint[], $8::integer[])"
#define FORGET_NAME "postern_forget"
#define FORGET_SQL "SELECT @forget_1()"

/* A pipeline that took less is recorded with a duration of 0, and with the time
   of take_units_1 as the end of its units. */
#define NOTICEABLE_MS 10
#define NOTICEABLE_ALL_MS 100

struct pipeline {
	struct pg_connection *connection;
	size_t sent;      /* statements */
	size_t xid_index; /* the index of take_units_1, which returns the xid */
	size_t unsent;    /* bytes of bodies since the last flush */
	uint64_t node;
	const struct postern_lock *lock;
	struct pg_units batch;
	int64_t xid;
	bool keeps_names;
};

static struct pg_pace *pace_of(struct pg_store *self,
		const struct postern_unit *unit) {
	return &self->paces[(uint64_t)unit->handler % PG_PACE_COUNT];
}

bool postern__pg_may_send_ahead(struct pg_store *self,
		const struct postern_unit *units, size_t count) {
	bool may = count > 0;
	for (size_t i = 0; may && i < count; i++) {
		may = units[i].sends_ahead;
	}
	if (!may) {
		return false;
	}
	(void)pthread_mutex_lock(&self->mutex);
	struct pg_pace *pace = pace_of(self, units);
	if (pace->skip_count > 0) {
		pace->skip_count--;
		may = false;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return may;
}

static void note_pace(struct pg_store *self, const struct postern_unit *units,
		bool succeeded) {
	(void)pthread_mutex_lock(&self->mutex);
	struct pg_pace *pace = pace_of(self, units);
	if (succeeded) {
		pace->penalty /= 2;
	} else {
		pace->penalty = 2 * pace->penalty + 1;
		pace->penalty =
				pace->penalty < PENALTY_MAX ? pace->penalty : PENALTY_MAX;
		pace->skip_count = pace->penalty;
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

#define EACH_UNIT(type, add)                                             \
	do {                                                                 \
		postern__pg_array(&query, (type));                               \
		for (size_t i = 0; i < pipeline->batch.count; i++) {             \
			const struct postern_unit *unit = &pipeline->batch.units[i]; \
			add;                                                         \
		}                                                                \
		postern__pg_array_end(&query);                                   \
	} while (0)

/* Prepare the store's own statements. Behind a pooler only FORGET_SQL is worth
   it, which is sent once for each unit, and it is prepared inside the
   transaction because it must end with it. */
static int prepare_own(struct pipeline *pipeline, struct postern_error *error) {
	struct pg_connection *connection = pipeline->connection;
	int r = POSTERN_OK;
	if (connection->direct) {
		r = postern__pg_pipe_prepare(connection, BEGIN_NAME, PG_BEGIN_UNITS,
				error);
		if (r == POSTERN_OK) {
			r = postern__pg_pipe_prepare(connection, TAKE_NAME, TAKE_SQL,
					error);
		}
		pipeline->sent += 2;
	}
	if (r == POSTERN_OK) {
		r = postern__pg_pipe_prepare(connection, FORGET_NAME, FORGET_SQL,
				error);
		pipeline->sent++;
	}
	return r;
}

static int send_text(struct pipeline *pipeline, const char *sql,
		struct postern_error *error) {
	pipeline->sent++;
	return postern__pg_pipe_text(pipeline->connection, sql, error);
}

static int send_named(struct pipeline *pipeline, const char *name,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, pipeline->connection);
	pipeline->sent++;
	return postern__pg_pipe_named(&query, name, error);
}

static int send_take_units(struct pipeline *pipeline,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, pipeline->connection);
	postern__pg_node(&query, pipeline->node);
	postern__pg_now(&query);
	postern__pg_lock_of(&query, pipeline->lock);
	EACH_UNIT(PG_INT8, postern__pg_int8(&query, unit->seq));
	EACH_UNIT(PG_INT4, postern__pg_int4(&query, unit->handler));
	EACH_UNIT(PG_INT8, postern__pg_int8(&query, (int64_t)unit->fence));
	EACH_UNIT(PG_INT4, postern__pg_int4(&query, unit->failures));
	pipeline->xid_index = pipeline->sent++;
	return pipeline->connection->direct
				   ? postern__pg_pipe_named(&query, TAKE_NAME, error)
				   : postern__pg_pipe(&query, TAKE_SQL, error);
}

static int send_begin(struct pipeline *pipeline, struct postern_error *error) {
	struct pg_connection *connection = pipeline->connection;
	int r = POSTERN_OK;
	if (connection->direct && !connection->own_named) {
		r = prepare_own(pipeline, error);
		connection->own_named = r == POSTERN_OK;
	}
	if (r == POSTERN_OK) {
		r = connection->direct ? send_named(pipeline, BEGIN_NAME, error)
							   : send_text(pipeline, PG_BEGIN_UNITS, error);
	}
	if (r == POSTERN_OK && !connection->direct) {
		r = prepare_own(pipeline, error);
	}
	return r == POSTERN_OK ? send_take_units(pipeline, error) : r;
}

/* Returns POSTERN_E_BUSY if the handler sets an outcome before its statements
   have run. */
static int send_unit(struct pipeline *pipeline, struct postern_unit *unit,
		struct postern_error *error) {
	struct pg_connection *connection = pipeline->connection;
	postern__point("postgres-ahead.before");
	unit->run(unit->context, connection->link, connection->names_epoch,
			&unit->outcome);
	postern__point("postgres-ahead.after");
	int r = unit->outcome.kind == POSTERN_DONE
					? send_named(pipeline, FORGET_NAME, error)
					: postern__fail(error, POSTERN_E_BUSY,
							  "the unit cannot be pipelined");
	pipeline->unsent += unit->body_len;
	if (r == POSTERN_OK && pipeline->unsent > UNSENT_BYTES_MAX) {
		pipeline->unsent = 0;
		r = postern__pg_pipe_flush(connection, error);
	}
	return r;
}

static int send_units(struct pipeline *pipeline, struct postern_error *error) {
	int r = send_begin(pipeline, error);
	for (size_t i = 0; r == POSTERN_OK && i < pipeline->batch.count; i++) {
		r = send_unit(pipeline, &pipeline->batch.units[i], error);
	}
	return r == POSTERN_OK && !pipeline->keeps_names
				   ? send_text(pipeline, "DEALLOCATE ALL", error)
				   : r;
}

/* Runs everything but COMMIT. */
static int run_pipeline(struct pipeline *pipeline,
		struct postern_error *error) {
	struct pg_connection *connection = pipeline->connection;
	struct pg_query query;
	int r = postern__pg_pipe_begin(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	pipeline->keeps_names = connection->direct;
	r = send_units(pipeline, error);
	postern__pg_query(&query, connection);
	r = postern__pg_pipe_end(&query, SIZE_MAX, pipeline->xid_index, PATIENCE_MS,
			r, error);
	if (r == POSTERN_OK) {
		pipeline->xid = postern__pg_get(&query, 0, 0);
		postern__pg_note_session(connection, postern__pg_get(&query, 0, 1));
	}
	postern__pg_end(&query);
	if (r == POSTERN_OK &&
			PQtransactionStatus(connection->link) != PQTRANS_INTRANS) {
		r = postern__fail(error, POSTERN_E_INVALID,
				"a handler ended the transaction itself");
	}
	return r;
}

static int record_durations(struct pipeline *pipeline, int64_t elapsed_ms,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, pipeline->connection);
	postern__pg_now(&query);
	EACH_UNIT(PG_INT8, postern__pg_int8(&query, unit->seq));
	EACH_UNIT(PG_INT4, postern__pg_int4(&query, unit->handler));
	postern__pg_int8(&query, elapsed_ms / (int64_t)pipeline->batch.count);
	int r = postern__pg_run(&query, "SELECT @tell_duration_1($1, $2, $3, $4)",
			error);
	postern__pg_end(&query);
	return r;
}

/* The server does not notice that the client stopped waiting. Without a cancel
   request it would go on, and keep the rows locked that are to be run again. */
static void cancel_pipeline(struct pg_connection *connection) {
	PGresult *result = NULL;
	int r = POSTERN_E_UNAVAILABLE;
	postern__pg_cancel(connection);
	if (PQpipelineSync(connection->link)) {
		r = postern__pg_await_pipe(connection, SIZE_MAX, SIZE_MAX, PG_CANCEL_MS,
				&result, NULL);
	}
	PQclear(result);
	if (r == POSTERN_E_TIMEOUT) {
		postern__pg_end_session(connection);
	}
	connection->lost = true; /* the cancel request may arrive later */
}

/* Roll back, and deallocate what the transaction has prepared. */
static void abort_pipeline(struct pipeline *pipeline) {
	struct pg_connection *connection = pipeline->connection;
	postern__pg_forget_names(connection);
	if (connection->lost && PQstatus(connection->link) == CONNECTION_OK) {
		cancel_pipeline(connection);
	}
	if (!connection->lost && postern__pg_script(connection,
									 "ROLLBACK AND CHAIN; DEALLOCATE ALL;"
									 " SELECT pg_advisory_unlock_all(); COMMIT",
									 NULL) != POSTERN_OK) {
		connection->lost = true;
	}
}

static void mark_committed(struct pipeline *pipeline, int64_t elapsed_ms) {
	for (size_t i = 0; i < pipeline->batch.count; i++) {
		struct postern_unit *unit = &pipeline->batch.units[i];
		unit->committed = true;
		unit->duration_ms = elapsed_ms / (int64_t)pipeline->batch.count;
	}
}

static int64_t now_ms(const struct pg_store *self) {
	const struct postern_clock *clock =
			self->test_clock ? self->test_clock : self->clock;
	return clock->monotonic_ms(clock->context);
}

static bool is_noticeable(int64_t elapsed_ms, size_t count) {
	return elapsed_ms >= NOTICEABLE_ALL_MS ||
		   (elapsed_ms >= NOTICEABLE_MS && elapsed_ms >= (int64_t)count);
}

static int run_and_commit(struct pipeline *pipeline,
		struct postern_error *error) {
	struct pg_connection *connection = pipeline->connection;
	const struct pg_store *self = connection->store;
	int64_t started = now_ms(self);
	int r = run_pipeline(pipeline, error);
	int64_t elapsed = now_ms(self) - started;
	if (r == POSTERN_OK && is_noticeable(elapsed, pipeline->batch.count)) {
		r = record_durations(pipeline, elapsed, error);
	}
	if (r != POSTERN_OK) {
		abort_pipeline(pipeline);
		return POSTERN_E_BUSY;
	}
	if (!pipeline->keeps_names) {
		postern__pg_forget_names(connection);
	}
	r = postern__pg_finish_known(connection, pipeline->xid,
			postern__pg_confirm_units, &pipeline->batch, POSTERN_OK, error);
	if (r == POSTERN_OK) {
		mark_committed(pipeline, elapsed);
	}
	/* COMMIT runs deferred checks. If one of them fails, a unit is the cause,
	   and each is run by itself. */
	return r != POSTERN_OK && !connection->lost ? POSTERN_E_BUSY : r;
}

int postern__pg_send_ahead(struct pg_store *self, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error) {
	struct pipeline pipeline = {
		.node = node,
		.lock = lock,
		.batch = { units, count },
	};
	int r = postern__pg_acquire(self, &pipeline.connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = run_and_commit(&pipeline, error);
	postern__pg_release(pipeline.connection);
	note_pace(self, units, r == POSTERN_OK);
	return r;
}
