/* SPDX-License-Identifier: MIT */
/*
 * The sql kind on SQLite. A run happens inside the store's open transaction, on
 * the store's connection, one run at a time; the store writes the completion,
 * commits, or rolls back what a failed run has written.
 *
 * Statements are prepared when the first run reaches them, because a later one
 * may need what an earlier one creates, and kept for the next runs. When the
 * epoch changes, their connection was closed, and they were finalized with it.
 *
 * A statement is reset as soon as it has finished: an active one would prevent
 * the commit.
 *
 * The deadline is checked between statements and, by the connection's progress
 * handler, inside them. SQLite rolls back the whole transaction when a write is
 * interrupted, and the store has to run the deliveries that shared it again;
 * the same holds for a full disk. That is too expensive for a mere stop of the
 * runner, which waits for the statement to end.
 */

#include <assert.h>
#include <postern/sys/handler.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/fail.h"
#include "handler/kinds.h"
#include "handler/sql_bind.h"
#include "handler/sql_params.h"

/* Virtual machine steps between two checks of the clock: well under 1 ms. */
#define PROGRESS_STEP_COUNT 4000

struct statement {
	sqlite3_stmt *stmt;
	/* Indexed by SQLite's index - 1; the same name has the same index. */
	enum postern__sql_param params[POSTERN__SQL_PARAM_COUNT];
	int param_count;
};

struct sql_handler {
	struct postern_handler base;
	char *sql;
	size_t sql_count;      /* of statements in it */
	pthread_mutex_t mutex; /* of the data slots of runs */
	/* Used only under the store's transaction. */
	uint64_t epoch;
	bool has_epoch;
	struct statement statements[POSTERN__SQL_STATEMENT_COUNT_MAX];
	size_t statement_count;
	const char *rest; /* the text that is not prepared yet */
};

/* Whether to continue, and if not, whether the outcome is set. */
enum progress { GO_ON, ENDED, CUT_SHORT };

/* One run, as other threads may reach it. */
struct sql_run {
	const struct postern_run *run;
	atomic_bool timed_out;
	atomic_bool stopped;
};

/* Set instead of a run that does not exist yet. A deadline needs no mark: the
   run checks the time itself. */
static char mark_stop;

static const struct postern_handler_ops sql_ops;

static struct sql_handler *from_base(struct postern_handler *handler) {
	assert(handler->ops == &sql_ops);
	return container_of(handler, struct sql_handler, base);
}

static bool is_late(const struct sql_run *now) {
	return atomic_load(&now->timed_out) ||
		   postern_run_remaining_ms(now->run) == 0;
}

/* Whether to interrupt a statement. Not for a stop: see above. */
static int on_progress(void *context) {
	return is_late(context);
}

#define PLACE_LEN_MAX 40

/* The part of a reason that names the statement, if there are several. */
static const char *statement_label(const struct sql_handler *self, size_t index,
		char text[static PLACE_LEN_MAX]) {
	text[0] = '\0';
	if (self->sql_count > 1) {
		(void)snprintf(text, PLACE_LEN_MAX, "statement %zu: ", index + 1);
	}
	return text;
}

/* Prepare the text of a statement once more, and return SQLite's code. */
static int prepare_afresh(sqlite3 *db, sqlite3_stmt *stmt) {
	sqlite3_stmt *fresh = NULL;
	int r = sqlite3_prepare_v2(db, sqlite3_sql(stmt), -1, &fresh, NULL);
	(void)sqlite3_finalize(fresh);
	return r;
}

/*
 * Classify an error of SQLite as an outcome. SQLite has one code for a missing
 * table and for a function that refuses its argument, so a statement that
 * failed is prepared once more: if that fails, too, the statement fails
 * whatever the message is, and the handler is at fault.
 *
 * stmt  the statement that failed; NULL: it could not be prepared.
 */
static enum progress classify_sqlite_error(const struct sql_handler *self,
		size_t index, sqlite3 *db, int code, sqlite3_stmt *stmt,
		struct postern_outcome *outcome) {
	char where[PLACE_LEN_MAX];
	char text[POSTERN_REASON_LEN_MAX];
	/* The next call on the connection replaces the text. */
	(void)snprintf(text, sizeof text, "%s", sqlite3_errmsg(db));
	(void)statement_label(self, index, where);
	switch (code & 0xff) {
	case SQLITE_INTERRUPT: return CUT_SHORT;
	case SQLITE_CONSTRAINT:
	case SQLITE_ABORT:
		postern__outcome_setf(outcome, POSTERN_RETRY, "%s%s", where, text);
		return ENDED;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_NOMEM:
	case SQLITE_READONLY:
	case SQLITE_IOERR:
	case SQLITE_CORRUPT:
	case SQLITE_FULL:
	case SQLITE_CANTOPEN:
	case SQLITE_PROTOCOL:
	case SQLITE_NOTADB:
		postern__outcome_unavailable(outcome, "%sstore unavailable: %s", where,
				text);
		return ENDED;
	default: break;
	}
	int fresh = stmt ? prepare_afresh(db, stmt) : SQLITE_OK;
	if (fresh != SQLITE_OK) {
		return classify_sqlite_error(self, index, db, fresh, NULL, outcome);
	}
	enum postern_outcome_kind kind = POSTERN_HOLD;
	if (stmt) {
		/* The same SQL would fail on this message in the same way, unless the
		   schema changed meanwhile. */
		kind = (code & 0xff) == SQLITE_SCHEMA ? POSTERN_RETRY : POSTERN_POISON;
	}
	postern__outcome_setf(outcome, kind, "%s%s", where, text);
	return ENDED;
}

/* Find the parameters of a statement. The text was validated when the handler
   was created; if SQLite parses it differently, SQLite decides. */
static bool read_params(const struct sql_handler *self,
		struct statement *statement, struct postern_outcome *outcome) {
	int count = sqlite3_bind_parameter_count(statement->stmt);
	char where[PLACE_LEN_MAX];

	for (int i = 0; i < count; i++) {
		const char *name = sqlite3_bind_parameter_name(statement->stmt, i + 1);
		if (i >= POSTERN__SQL_PARAM_COUNT || !name || name[0] != ':' ||
				!postern__sql_param_find(name + 1, strlen(name + 1),
						&statement->params[i])) {
			postern__outcome_setf(outcome, POSTERN_HOLD,
					"%sunknown parameter '%s'",
					statement_label(self, self->statement_count, where),
					name ? name : "?");
			return false;
		}
	}
	statement->param_count = count;
	return true;
}

/* Prepare the next statement and keep it; ENDED also if there is none. */
static enum progress prepare_next(struct sql_handler *self, sqlite3 *db,
		struct postern_outcome *outcome) {
	struct statement statement = { 0 };
	const char *rest = self->rest;

	/* A text with only a comment gives no statement and no error. */
	while (*rest && !statement.stmt) {
		int r = sqlite3_prepare_v3(db, rest, -1, SQLITE_PREPARE_PERSISTENT,
				&statement.stmt, &rest);
		if (r != SQLITE_OK) {
			return classify_sqlite_error(self, self->statement_count, db, r,
					NULL, outcome);
		}
	}
	if (!statement.stmt) {
		self->rest = rest;
		return ENDED;
	}
	if (self->statement_count == POSTERN__SQL_STATEMENT_COUNT_MAX) {
		/* Likewise: counted when the handler was created, but not by SQLite. */
		postern__outcome_setf(outcome, POSTERN_HOLD,
				"the SQL has more than %d statements",
				POSTERN__SQL_STATEMENT_COUNT_MAX);
		(void)sqlite3_finalize(statement.stmt);
		return ENDED;
	}
	if (!read_params(self, &statement, outcome)) {
		(void)sqlite3_finalize(statement.stmt);
		return ENDED;
	}
	self->statements[self->statement_count++] = statement;
	self->rest = rest;
	return GO_ON;
}

static bool bind_all(const struct statement *statement,
		struct postern__sql_values *values, struct postern_outcome *outcome) {
	for (int i = 0; i < statement->param_count; i++) {
		if (!postern__sql_bind(values, statement->stmt, i + 1,
					statement->params[i], outcome)) {
			return false;
		}
	}
	return true;
}

static enum progress run_statement(const struct sql_handler *self, size_t index,
		sqlite3 *db, struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	const struct statement *statement = &self->statements[index];
	char where[PLACE_LEN_MAX];
	enum progress verdict = ENDED;

	if (bind_all(statement, values, outcome)) {
		int r;
		do {
			r = sqlite3_step(statement->stmt);
		} while (r == SQLITE_ROW);
		verdict = r == SQLITE_DONE ? GO_ON
								   : classify_sqlite_error(self, index, db, r,
											 statement->stmt, outcome);
	}
	(void)sqlite3_reset(statement->stmt); /* repeats the error of the step */
	(void)sqlite3_clear_bindings(statement->stmt);
	if (verdict == GO_ON && sqlite3_get_autocommit(db)) {
		postern__outcome_setf(outcome, POSTERN_POISON,
				"%sended the transaction that the delivery is a part of",
				statement_label(self, index, where));
		return ENDED;
	}
	return verdict;
}

static enum progress run_statements(struct sql_handler *self,
		struct sql_run *now, sqlite3 *db, struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	enum progress verdict = GO_ON;

	for (size_t i = 0; verdict == GO_ON; i++) {
		if (i == self->statement_count) {
			verdict = prepare_next(self, db, outcome);
		}
		if (verdict == GO_ON) {
			bool cut = atomic_load(&now->stopped) || is_late(now);
			verdict = cut ? CUT_SHORT
						  : run_statement(self, i, db, values, outcome);
		}
	}
	return verdict;
}

/* From here on other threads can reach the run, or no longer. */
static void set_active_run(struct sql_handler *self, struct postern_run *run,
		struct sql_run *now) {
	(void)pthread_mutex_lock(&self->mutex);
	if (now && postern_run_data(run) == &mark_stop) {
		atomic_store(&now->stopped, true);
	}
	postern_run_set_data(run, now);
	(void)pthread_mutex_unlock(&self->mutex);
}

static void sql_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct sql_handler *self = from_base(handler);
	sqlite3 *db = postern_run_delivery(run)->transaction;
	struct postern_outcome outcome;
	struct sql_run now = { .run = run };
	struct postern__sql_values values;

	assert(db);
	if (!self->has_epoch || self->epoch != postern_run_epoch(run)) {
		/* The prepared statements were finalized with their connection. */
		self->has_epoch = true;
		self->epoch = postern_run_epoch(run);
		self->statement_count = 0;
		self->rest = self->sql;
	}
	outcome.kind = POSTERN_DONE; /* leaves room in the reason */
	outcome.delay_ms = 0;
	outcome.reason[0] = '\0';
	set_active_run(self, run, &now);
	postern__sql_values_init(&values, postern_run_message(run),
			postern_run_delivery(run));
	sqlite3_progress_handler(db, PROGRESS_STEP_COUNT, on_progress, &now);
	enum progress verdict = run_statements(self, &now, db, &values, &outcome);
	sqlite3_progress_handler(db, 0, NULL, NULL);
	postern__sql_values_finish(&values);
	set_active_run(self, run, NULL);

	if (verdict == CUT_SHORT && atomic_load(&now.stopped)) {
		/* Not postern_run_return(): inside a transaction the store needs an
		   outcome. This one spends no attempt and is due again at once. */
		postern__outcome_setf(&outcome, POSTERN_SNOOZE, "stopped");
	} else if (verdict == CUT_SHORT) {
		/* Also if the store was interrupted. */
		postern__outcome_setf(&outcome, POSTERN_RETRY, "timed out");
	}
	postern_run_finish(run, &outcome);
}

static void sql_cancel(struct postern_handler *handler, struct postern_run *run,
		enum postern_cancel why) {
	struct sql_handler *self = from_base(handler);
	bool stop = why == POSTERN_CANCEL_STOP;

	(void)pthread_mutex_lock(&self->mutex);
	void *data = postern_run_data(run);
	if (!data && stop) {
		postern_run_set_data(run, &mark_stop);
	} else if (data && data != &mark_stop) {
		struct sql_run *now = data;
		/* The first reason is kept. */
		if (!atomic_load(&now->timed_out) && !atomic_load(&now->stopped)) {
			atomic_store(stop ? &now->stopped : &now->timed_out, true);
		}
	}
	(void)pthread_mutex_unlock(&self->mutex);
}

static void sql_destroy(struct postern_handler *handler) {
	struct sql_handler *self = from_base(handler);
	/* The store finalizes the statements, see kinds.h. */
	(void)pthread_mutex_destroy(&self->mutex);
	free(self->sql);
	free(self);
}

static const struct postern_handler_ops sql_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.batches = true,
	.start = sql_start,
	.cancel = sql_cancel,
	.destroy = sql_destroy,
};

int postern__sql_create(const char *sql, struct postern_handler **out,
		struct postern_error *error) {
	if (!sql) {
		return postern__fail(error, POSTERN_E_INVALID, "the SQL is missing");
	}
	size_t count = 0;
	int r = postern__sql_check(sql, POSTERN_SQL_SQLITE, &count, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sql_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &sql_ops;
	self->base.transactional = true;
	self->sql_count = count;
	(void)pthread_mutex_init(&self->mutex,
			NULL); /* no attributes: cannot fail */
	self->sql = strdup(sql);
	if (!self->sql) {
		sql_destroy(&self->base);
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	*out = &self->base;
	return POSTERN_OK;
}
