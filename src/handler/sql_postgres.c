/* SPDX-License-Identifier: MIT */
/*
 * The sql kind on PostgreSQL. A run happens inside the store's open
 * transaction, on its connection; the store writes the completion, commits, or
 * rolls back what a failed run has written.
 *
 * The text is split into statements when the handler is created, and :name
 * becomes $1, $2, … in each. The server infers the types, except those of JSON
 * and bytes.
 *
 * If the store pipelines, statements are prepared once for a transaction, and
 * results are not awaited here. Otherwise nothing is prepared: behind a pooler
 * the next transaction may be in another session.
 *
 * After the deadline the store cancels the statement.
 */

#include <assert.h>
#include <libpq-fe.h>
#include <postern/message.h>
#include <postern/sys/handler.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/container.h"
#include "base/fail.h"
#include "base/sqlstate.h"
#include "handler/kinds.h"
#include "handler/sql_params.h"
#include "handler/sql_values.h"

#define OID_BYTEA 17
#define OID_JSONB 3802

/* Connections on which statements are known to be prepared; on any other they
   are prepared again. */
#define PLACE_COUNT 16

struct statement {
	char *text;
	enum postern__sql_param params[POSTERN__SQL_PARAM_COUNT]; /* $1, … */
	int param_count;
};

struct sql_handler {
	struct postern_handler base;
	struct statement *statements;
	size_t statement_count;
	pthread_mutex_t mutex; /* also of the data slots of runs */
	unsigned number;       /* in the names of prepared statements */
	/* Where they are prepared; mutex held. */
	uint64_t prepared[PLACE_COUNT];
	size_t next_place;
};

/* Set instead of a run that is to stop. */
static char mark_stop;

/* Each handler has its own statement names. */
static atomic_uint numbers;

static const struct postern_handler_ops sql_ops;

static struct sql_handler *from_base(struct postern_handler *handler) {
	assert(handler->ops == &sql_ops);
	return container_of(handler, struct sql_handler, base);
}

/* The values of one statement, in libpq's form. */
struct values {
	const char *values[POSTERN__SQL_PARAM_COUNT];
	int lengths[POSTERN__SQL_PARAM_COUNT];
	int formats[POSTERN__SQL_PARAM_COUNT];
	Oid types[POSTERN__SQL_PARAM_COUNT];
	char attempt[16];
	char *body; /* followed by a zero byte; created when first needed */
};

static bool add_body(struct values *out, int i,
		struct postern__sql_values *values, struct postern_outcome *outcome) {
	const struct postern_message *message = values->message;
	if (!postern__sql_body_is_text(values, outcome)) {
		return false;
	}
	if (!out->body) {
		out->body = malloc(message->body_len + 1);
		if (!out->body) {
			postern__outcome_unavailable(outcome, "out of memory for :body");
			return false;
		}
		if (message->body_len > 0) {
			memcpy(out->body, message->body, message->body_len);
		}
		out->body[message->body_len] = '\0';
	}
	out->values[i] = out->body;
	return true;
}

static Oid type_of(enum postern__sql_param param) {
	switch (param) {
	case POSTERN__SQL_BODY_BYTES: return OID_BYTEA;
	case POSTERN__SQL_BODY_JSON:
	case POSTERN__SQL_HEADERS: return OID_JSONB;
	default: return 0;
	}
}

static bool add_value(struct values *out, int i, enum postern__sql_param param,
		struct postern__sql_values *values, struct postern_outcome *outcome) {
	const struct postern_message *message = values->message;
	out->values[i] = NULL;
	out->lengths[i] = 0;
	out->formats[i] = 0;
	out->types[i] = type_of(param);
	switch (param) {
	case POSTERN__SQL_ID: out->values[i] = message->id; return true;
	case POSTERN__SQL_SOURCE: out->values[i] = message->source; return true;
	case POSTERN__SQL_TYPE: out->values[i] = message->type; return true;
	case POSTERN__SQL_SUBJECT: out->values[i] = message->subject; return true;
	case POSTERN__SQL_TIME: out->values[i] = message->time; return true;
	case POSTERN__SQL_BODY: return add_body(out, i, values, outcome);
	case POSTERN__SQL_BODY_JSON: return add_body(out, i, values, outcome);
	case POSTERN__SQL_BODY_BYTES:
		out->formats[i] = 1;
		out->values[i] = message->body_len > 0 ? message->body : "";
		out->lengths[i] = (int)message->body_len;
		return true;
	case POSTERN__SQL_HEADERS:
		if (!postern__sql_make_headers(values, outcome)) {
			return false;
		}
		out->values[i] = postern__buf_text(&values->headers);
		return true;
	case POSTERN__SQL_ATTEMPT:
		(void)snprintf(out->attempt, sizeof out->attempt, "%u",
				(unsigned)values->delivery->attempt);
		out->values[i] = out->attempt;
		return true;
	case POSTERN__SQL_PARAM_COUNT: break;
	}
	assert(false); /* all kinds are above */
	return false;
}

static bool add_values(const struct statement *statement, struct values *out,
		struct postern__sql_values *values, struct postern_outcome *outcome) {
	for (int i = 0; i < statement->param_count; i++) {
		if (!add_value(out, i, statement->params[i], values, outcome)) {
			return false;
		}
	}
	return true;
}

/* Classify an error of the server as an outcome. The reason names the SQLSTATE,
   which is what documentation and searches are about. */
static void classify_sqlstate(const struct sql_handler *self, size_t index,
		const PGconn *link, const PGresult *result,
		struct postern_outcome *outcome) {
	static const enum postern_outcome_kind kinds[] = {
		[POSTERN__CAUSE_STORE] = POSTERN_SNOOZE,
		[POSTERN__CAUSE_COLLISION] =
				POSTERN_RETRY, /* the store runs it again */
		[POSTERN__CAUSE_HANDLER] = POSTERN_HOLD,
		[POSTERN__CAUSE_MESSAGE] = POSTERN_RETRY,
		[POSTERN__CAUSE_MESSAGE_FOREVER] = POSTERN_POISON,
	};
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const struct statement *statement = &self->statements[index];
	char where[40] = "";
	if (self->statement_count > 1) {
		(void)snprintf(where, sizeof where, "statement %zu: ", index + 1);
	}
	char mapped[POSTERN_REASON_LEN_MAX - 80]; /* the SQLSTATE comes last */
	postern__sql_map_error(text ? text : PQerrorMessage(link),
			statement->params, (size_t)statement->param_count, mapped,
			sizeof mapped);
	text = mapped;
	enum postern__cause cause =
			postern__sqlstate_cause(state, PQstatus(link) == CONNECTION_OK);
	if (cause == POSTERN__CAUSE_STORE) {
		postern__outcome_unavailable(outcome, "%sstore unavailable: %s%s%s%s",
				where, text, state ? " (SQLSTATE " : "", state ? state : "",
				state ? ")" : "");
	} else if (strcmp(state, "57014") == 0) {
		postern__outcome_setf(outcome, POSTERN_RETRY, "timed out");
	} else if (strcmp(state, "22P02") == 0 && strstr(text, "type json")) {
		postern__outcome_setf(outcome, POSTERN_POISON,
				"the body is not valid JSON, which :body_json needs");
	} else {
		postern__outcome_setf(outcome, kinds[cause], "%s%s (SQLSTATE %s)",
				where, text, state);
	}
}

static bool run_statement(const struct sql_handler *self, size_t index,
		PGconn *link, struct values *out, struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	const struct statement *statement = &self->statements[index];
	if (!add_values(statement, out, values, outcome)) {
		return false;
	}
	PGresult *result =
			PQexecParams(link, statement->text, statement->param_count,
					out->types, out->values, out->lengths, out->formats, 1);
	ExecStatusType status = PQresultStatus(result);
	bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT) {
		postern__outcome_setf(outcome, POSTERN_POISON,
				"COPY from or to the client is not available in a handler");
	} else if (!good) {
		classify_sqlstate(self, index, link, result, outcome);
	}
	PQclear(result);
	return good;
}

#define NAME_LEN_MAX 48

static void name_of(const struct sql_handler *self, size_t index,
		char out[static NAME_LEN_MAX]) {
	(void)snprintf(out, NAME_LEN_MAX, "postern_%u_%zu", self->number,
			index + 1);
}

/* Whether they are prepared on the connection; if not, they will be now. */
static bool is_prepared(struct sql_handler *self, uint64_t epoch) {
	bool found = false;
	(void)pthread_mutex_lock(&self->mutex);
	for (size_t i = 0; !found && i < PLACE_COUNT; i++) {
		found = self->prepared[i] == epoch;
	}
	if (!found) {
		self->prepared[self->next_place] = epoch;
		self->next_place = (self->next_place + 1) % PLACE_COUNT;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return found;
}

static bool prepare_all(const struct sql_handler *self, PGconn *link) {
	char name[NAME_LEN_MAX];
	for (size_t i = 0; i < self->statement_count; i++) {
		const struct statement *statement = &self->statements[i];
		Oid types[POSTERN__SQL_PARAM_COUNT];
		for (int p = 0; p < statement->param_count; p++) {
			types[p] = type_of(statement->params[p]);
		}
		name_of(self, i, name);
		if (!PQsendPrepare(link, name, statement->text, statement->param_count,
					types)) {
			return false;
		}
	}
	return true;
}

static bool send_one(const struct sql_handler *self, size_t index, PGconn *link,
		struct values *out, struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	const struct statement *statement = &self->statements[index];
	char name[NAME_LEN_MAX];
	if (!add_values(statement, out, values, outcome)) {
		return false;
	}
	name_of(self, index, name);
	return PQsendQueryPrepared(link, name, statement->param_count, out->values,
			out->lengths, out->formats, 1);
}

/* Results are not awaited here. */
static void send_ahead(struct sql_handler *self, struct postern_run *run,
		PGconn *link, struct values *out, struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	bool good = is_prepared(self, postern_run_epoch(run)) ||
				prepare_all(self, link);
	for (size_t i = 0; good && i < self->statement_count; i++) {
		good = send_one(self, i, link, out, values, outcome);
	}
	if (!good && outcome->kind == POSTERN_DONE) {
		postern__outcome_unavailable(outcome, "store unavailable: %s",
				PQerrorMessage(link));
	}
}

static bool is_stopped(struct sql_handler *self, struct postern_run *run) {
	(void)pthread_mutex_lock(&self->mutex);
	bool stopped = postern_run_data(run) == &mark_stop;
	(void)pthread_mutex_unlock(&self->mutex);
	return stopped;
}

static void run_statements(struct sql_handler *self, struct postern_run *run,
		PGconn *link, struct values *out, struct postern__sql_values *values,
		struct postern_outcome *outcome) {
	bool good = true;
	for (size_t i = 0; good && i < self->statement_count; i++) {
		if (is_stopped(self, run)) {
			/* Spends no attempt and is due again at once. */
			postern__outcome_setf(outcome, POSTERN_SNOOZE, "stopped");
			good = false;
		} else if (postern_run_remaining_ms(run) == 0) {
			postern__outcome_setf(outcome, POSTERN_RETRY, "timed out");
			good = false;
		} else {
			good = run_statement(self, i, link, out, values, outcome);
		}
	}
}

static void sql_start(struct postern_handler *handler,
		struct postern_run *run) {
	struct sql_handler *self = from_base(handler);
	PGconn *link = postern_run_delivery(run)->transaction;
	struct postern_outcome outcome = { .kind = POSTERN_DONE };
	struct postern__sql_values values;
	struct values out = { 0 };

	assert(link);
	postern__sql_values_init(&values, postern_run_message(run),
			postern_run_delivery(run));
	if (PQpipelineStatus(link) == PQ_PIPELINE_OFF) {
		run_statements(self, run, link, &out, &values, &outcome);
	} else {
		send_ahead(self, run, link, &out, &values, &outcome);
	}
	free(out.body);
	postern__sql_values_finish(&values);
	postern_run_finish(run, &outcome);
}

static void sql_cancel(struct postern_handler *handler, struct postern_run *run,
		enum postern_cancel why) {
	struct sql_handler *self = from_base(handler);
	if (why == POSTERN_CANCEL_STOP) {
		(void)pthread_mutex_lock(&self->mutex);
		postern_run_set_data(run, &mark_stop);
		(void)pthread_mutex_unlock(&self->mutex);
	}
}

static void sql_destroy(struct postern_handler *handler) {
	struct sql_handler *self = from_base(handler);
	for (size_t i = 0; self->statements && i < self->statement_count; i++) {
		free(self->statements[i].text);
	}
	free(self->statements);
	(void)pthread_mutex_destroy(&self->mutex);
	free(self);
}

static const struct postern_handler_ops sql_ops = {
	.version = POSTERN_HANDLER_OPS_VERSION,
	.batches = true,
	.start = sql_start,
	.cancel = sql_cancel,
	.destroy = sql_destroy,
	.sends_ahead = true,
};

/* The number of the parameter in its statement. */
static int number_of(struct statement *statement,
		enum postern__sql_param param) {
	for (int i = 0; i < statement->param_count; i++) {
		if (statement->params[i] == param) {
			return i + 1;
		}
	}
	statement->params[statement->param_count++] = param;
	return statement->param_count;
}

static int add_statement(struct sql_handler *self, struct statement *statement,
		struct postern__buf *text, struct postern_error *error) {
	statement->text = postern__buf_detach(text, NULL);
	if (!statement->text) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->statements[self->statement_count++] = *statement;
	*statement = (struct statement){ 0 };
	return POSTERN_OK;
}

/* Split the validated text into statements. */
static int split_statements(struct sql_handler *self, const char *sql,
		struct postern_error *error) {
	struct postern__sql_reader reader = {
		.dialect = POSTERN_SQL_POSTGRES,
		.sql = sql,
	};
	struct statement statement = { 0 };
	struct postern__sql_token token;
	struct postern__buf text;
	const char *from = sql; /* the part that was not copied yet */
	bool empty = true;
	int r = POSTERN_OK;
	/* Numbers are not longer than the names they replace. */
	postern__buf_init(&text, 2 * (size_t)POSTERN__SQL_LEN_MAX);
	do {
		enum postern__sql_param param;
		postern__sql_next(&reader, &token);
		bool last = token.kind == POSTERN__SQL_END;
		if (token.kind == POSTERN__SQL_PARAM &&
				postern__sql_param_find(token.text + 1, token.len - 1,
						&param)) {
			postern__buf_append(&text, from, (size_t)(token.text - from));
			postern__buf_printf(&text, "$%d", number_of(&statement, param));
			from = token.text + token.len;
			empty = false;
		} else if (last || token.kind == POSTERN__SQL_SEMICOLON) {
			size_t len = last ? strlen(from) : (size_t)(token.text - from);
			postern__buf_append(&text, from, len);
			from = token.text + token.len;
			if (!empty) {
				r = add_statement(self, &statement, &text, error);
			}
			postern__buf_reset(&text);
			empty = true;
		} else {
			empty = false;
		}
	} while (r == POSTERN_OK && token.kind != POSTERN__SQL_END);
	postern__buf_finish(&text);
	return r;
}

int postern__sql_postgres_create(const char *sql, struct postern_handler **out,
		struct postern_error *error) {
	if (!sql) {
		return postern__fail(error, POSTERN_E_INVALID, "the SQL is missing");
	}
	size_t count = 0;
	int r = postern__sql_check(sql, POSTERN_SQL_POSTGRES, &count, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct sql_handler *self = calloc(1, sizeof *self);
	if (!self) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	self->base.ops = &sql_ops;
	self->base.transactional = true;
	self->number = atomic_fetch_add(&numbers, 1);
	(void)pthread_mutex_init(&self->mutex, NULL);
	self->statements = calloc(count, sizeof *self->statements);
	r = self->statements
				? split_statements(self, sql, error)
				: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	if (r != POSTERN_OK) {
		sql_destroy(&self->base);
		return r;
	}
	*out = &self->base;
	return POSTERN_OK;
}

int postern__sql_postgres_each(const char *sql, postern__sql_each *each,
		void *context, struct postern_error *error) {
	struct postern_handler *handler = NULL;
	int r = postern__sql_postgres_create(sql, &handler, error);
	if (r != POSTERN_OK) {
		return r;
	}
	const struct sql_handler *self = from_base(handler);
	for (size_t i = 0; r == POSTERN_OK && i < self->statement_count; i++) {
		const struct statement *statement = &self->statements[i];
		r = each(context, statement->text, statement->params,
				(size_t)statement->param_count, error);
	}
	sql_destroy(handler);
	return r;
}
