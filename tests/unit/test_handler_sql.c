/* SPDX-License-Identifier: MIT */
/*
 * The sql kind on a database in memory, with this file in the role of the
 * store: it starts the transaction, and owns the connection.
 */
#include <poll.h>
#include <sqlite3.h>
#include <stdlib.h>

#include "handler/kinds.h"
#include "handler_fake.h"

static sqlite3 *open_db(void) {
	sqlite3 *db = NULL;
	CHECK_INT(sqlite3_open_v2(":memory:", &db,
					  SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
							  SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
					  NULL),
			SQLITE_OK);
	return db;
}

/* Finalizes all statements first, as a store does. */
static int close_db(sqlite3 *db) {
	sqlite3_stmt *stmt;
	int count = 0;
	while ((stmt = sqlite3_next_stmt(db, NULL))) {
		(void)sqlite3_finalize(stmt);
		count++;
	}
	CHECK_INT(sqlite3_close(db), SQLITE_OK);
	return count;
}

static void execute_sql(sqlite3 *db, const char *sql) {
	char *text = NULL;
	if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK) {
		FAIL("%s: %s", sql, text);
	}
	sqlite3_free(text);
}

/* Returns the first column of the first row, as text. */
static const char *query_text(sqlite3 *db, const char *sql) {
	static char answer[256];
	sqlite3_stmt *stmt = NULL;
	CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	if (sqlite3_step(stmt) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(stmt, 0);
		(void)snprintf(answer, sizeof answer, "%s", text ? text : "NULL");
	} else {
		(void)snprintf(answer, sizeof answer, "no row");
	}
	(void)sqlite3_finalize(stmt);
	return answer;
}

static struct postern_handler *make_sql(const char *sql) {
	struct postern_handler *handler = NULL;
	struct postern_error error = { 0 };
	if (!CHECK_OK(postern__sql_create(sql, &handler, &error), &error)) {
		exit(1);
	}
	return handler;
}

/* Runs one delivery in a transaction, committed only if it is done. */
static void run_in_transaction(struct postern_handler *handler, sqlite3 *db,
		struct postern_run *run) {
	run->delivery.transaction = db;
	execute_sql(db, "begin immediate");
	fake_run(handler, run);
	if (!sqlite3_get_autocommit(db)) {
		execute_sql(db,
				run->outcome.kind == POSTERN_DONE ? "commit" : "rollback");
	}
	/* A statement that was not reset would keep it open. */
	CHECK(sqlite3_get_autocommit(db));
}

/* The same with a new handler, message and body. */
static void run_new_handler(sqlite3 *db, const char *sql, const void *body,
		size_t len, struct postern_run *run) {
	struct postern_handler *handler = make_sql(sql);
	fake_init(run, body, len);
	run->epoch = 1;
	run_in_transaction(handler, db, run);
	handler->ops->destroy(handler);
}

static void check_outcome(sqlite3 *db, const char *sql, const char *body,
		enum postern_outcome_kind kind, const char *reason) {
	struct postern_run run;
	run_new_handler(db, sql, body, strlen(body), &run);
	CHECK_INT(run.outcome.kind, kind);
	CHECK_CONTAINS(run.outcome.reason, reason);
}

#define ALL                                                              \
	"insert into t select :id, :source, :type, :subject, :time, :body, " \
	":body_json, :body_bytes, :headers, :attempt"
#define TABLE                                                           \
	"create table t(id, source, type, subject, time, body, body_json, " \
	"body_bytes, headers, attempt)"

static void binds_all(void) {
	sqlite3 *db = open_db();
	struct postern_run run;
	struct postern_handler *handler = make_sql(ALL);
	static const struct postern_header headers[] = { { "a", "1" },
		{ "B", "x\"y" }, { "a", "2" } };
	execute_sql(db, TABLE);
	fake_init(&run, "{\"n\": 1}", 8);
	run.message.id = "it's; drop table t; --";
	run.message.subject = "s";
	run.message.time = "2026-01-02T03:04:05Z";
	run.message.headers = headers;
	run.message.header_count = 3;
	run_in_transaction(handler, db, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	CHECK_STR(run.outcome.reason, "");
	CHECK_STR(query_text(db, "select id from t"), "it's; drop table t; --");
	CHECK_STR(query_text(db,
					  "select source||'/'||type||'/'||subject||'/'||time "
					  "from t"),
			"orders/order.placed/s/2026-01-02T03:04:05Z");
	CHECK_STR(query_text(db, "select body from t"), "{\"n\": 1}");
	CHECK_STR(query_text(db, "select body_json ->> 'n' from t"), "1");
	CHECK_STR(query_text(db, "select hex(body_bytes) from t"),
			"7B226E223A20317D");
	CHECK_STR(query_text(db, "select headers from t"),
			"{\"a\":\"1, 2\",\"B\":\"x\\\"y\"}");
	CHECK_STR(query_text(db, "select attempt from t"), "2");
	CHECK_STR(query_text(db,
					  "select group_concat(x) from (select typeof(id) as x "
					  "from t union all select typeof(time) from t union all "
					  "select typeof(body) from t union all select "
					  "typeof(body_json) from t union all select "
					  "typeof(body_bytes) from t union all select "
					  "typeof(headers) from t union all select "
					  "typeof(attempt) from t)"),
			"text,text,text,text,blob,text,integer");
	handler->ops->destroy(handler);
	CHECK_INT(close_db(db), 1);
}

static void binds_absent(void) {
	sqlite3 *db = open_db();
	struct postern_run run;
	execute_sql(db, "create table t(subject, time, body, bytes, headers)");
	run_new_handler(db,
			"insert into t values (:subject, :time, :body, :body_bytes, "
			":headers)",
			NULL, 0, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	CHECK_STR(query_text(db,
					  "select typeof(subject)||typeof(time)||typeof(body)||"
					  "typeof(bytes)||length(body)||length(bytes)||headers "
					  "from t"),
			"nullnulltextblob00{}");
	(void)close_db(db);
}

static void binds_bytes(void) {
	sqlite3 *db = open_db();
	struct postern_run run;
	execute_sql(db, "create table t(x)");
	run_new_handler(db, "insert into t values (:body_bytes)", "\0\xff\0", 3,
			&run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	CHECK_STR(query_text(db, "select hex(x) from t"), "00FF00");
	(void)close_db(db);
}

static void bad_bodies(void) {
	static const struct {
		const char *param;
		const char *body;
		size_t len;
		const char *reason;
	} rows[] = {
		{ ":body", "\xff", 1, "not valid UTF-8" },
		{ ":body", "a\0b", 3, "zero byte" },
		{ ":body_json", "\xff", 1, "not valid UTF-8" },
		{ ":body_json", "1\0", 2, "zero byte" },
		{ ":body_json", "", 0, "not valid JSON" },
		{ ":body_json", "{\"a\":}", 6, "not valid JSON" },
		{ ":body_json", "{} {}", 5, "not valid JSON" },
	};
	sqlite3 *db = open_db();
	execute_sql(db, "create table t(x)");
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char sql[128];
		struct postern_run run;
		(void)snprintf(sql, sizeof sql,
				"insert into t values (1); insert into t values (%s)",
				rows[i].param);
		run_new_handler(db, sql, rows[i].body, rows[i].len, &run);
		CHECK_INT(run.outcome.kind, POSTERN_POISON);
		CHECK_CONTAINS(run.outcome.reason, rows[i].reason);
	}
	CHECK_STR(query_text(db, "select count(*) from t"), "0");
	/* Without a text parameter any body is accepted. */
	struct postern_run run;
	run_new_handler(db, "insert into t values (:id)", "\xff", 1, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	(void)close_db(db);
}

static void several_statements(void) {
	sqlite3 *db = open_db();
	struct postern_run run;
	struct postern_handler *handler =
			make_sql("create table if not exists t(x, y); -- a comment; with\n"
					 ";insert into t values (:id, 1);\n"
					 "select * from t; insert into t values (:type, :attempt) "
					 "returning x; /* the end */ ;");
	for (int i = 0; i < 3; i++) {
		fake_init(&run, "", 0);
		run.epoch = 1;
		run_in_transaction(handler, db, &run);
		CHECK_INT(run.outcome.kind, POSTERN_DONE);
	}
	CHECK_STR(query_text(db, "select count(*) from t"), "6");
	CHECK_STR(query_text(db,
					  "select count(*) from t where x = 'order.placed' and "
					  "y = 2"),
			"3");
	handler->ops->destroy(handler);
	/* Prepared once for all runs. */
	CHECK_INT(close_db(db), 4);
}

static void all_or_nothing(void) {
	sqlite3 *db = open_db();
	execute_sql(db, "create table t(x unique)");
	check_outcome(db, "insert into t values (1); insert into t values (1)", "",
			POSTERN_RETRY, "statement 2: UNIQUE constraint failed: t.x");
	CHECK_STR(query_text(db, "select count(*) from t"), "0");
	(void)close_db(db);
}

static void epochs(void) {
	struct postern_handler *handler = make_sql("insert into t values (:id)");
	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		sqlite3 *db = open_db();
		execute_sql(db, "create table t(x)");
		for (int i = 0; i < 3; i++) {
			struct postern_run run;
			fake_init(&run, "", 0);
			run.epoch = epoch;
			run_in_transaction(handler, db, &run);
			CHECK_INT(run.outcome.kind, POSTERN_DONE);
		}
		CHECK_STR(query_text(db, "select count(*) from t"), "3");
		CHECK_INT(close_db(db), 1);
	}
	handler->ops->destroy(handler);
}

static void schema_changes(void) {
	sqlite3 *db = open_db();
	struct postern_handler *handler = make_sql("insert into t(x) values (:id)");
	struct postern_run run;
	execute_sql(db, "create table t(x)");
	for (int i = 0; i < 2; i++) {
		fake_init(&run, "", 0);
		run_in_transaction(handler, db, &run);
		CHECK_INT(run.outcome.kind, POSTERN_DONE);
		execute_sql(db, "alter table t add column y default 5");
		execute_sql(db, "alter table t rename column y to z");
		execute_sql(db, "alter table t drop column z");
	}
	execute_sql(db, "drop table t");
	fake_init(&run, "", 0);
	run_in_transaction(handler, db, &run);
	CHECK_INT(run.outcome.kind, POSTERN_HOLD);
	CHECK_STR(run.outcome.reason, "no such table: t");
	execute_sql(db, "create table t(y)");
	fake_init(&run, "", 0);
	run_in_transaction(handler, db, &run);
	CHECK_INT(run.outcome.kind, POSTERN_HOLD);
	CHECK_STR(run.outcome.reason, "table t has no column named x");
	execute_sql(db, "drop table t; create table t(x)");
	fake_init(&run, "", 0);
	run_in_transaction(handler, db, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	handler->ops->destroy(handler);
	(void)close_db(db);
}

static void errors(void) {
	sqlite3 *db = open_db();
	execute_sql(db, "create table t(x integer primary key, y text not null, "
					"z int check (z > 0)) strict");
	execute_sql(db, "create table u(t int references t(x))");
	execute_sql(db, "pragma foreign_keys = on");
	/* The handler is at fault: no message can be handled. */
	check_outcome(db, "insert nonsense", "", POSTERN_HOLD, "syntax error");
	check_outcome(db, "insert into nowhere values (1)", "", POSTERN_HOLD,
			"no such table: nowhere");
	check_outcome(db, "select nofield from t", "", POSTERN_HOLD,
			"no such column: nofield");
	check_outcome(db, "select nofunction(1)", "", POSTERN_HOLD,
			"no such function");
	check_outcome(db, "insert into t values (1)", "", POSTERN_HOLD,
			"3 columns but 1 values");
	check_outcome(db, "select 1; selec 2", "", POSTERN_HOLD,
			"statement 2: near");
	/* Permanent errors of the message. */
	check_outcome(db, "select json_extract('{', '$')", "", POSTERN_POISON,
			"malformed JSON");
	check_outcome(db, "select abs(-9223372036854775808)", "", POSTERN_POISON,
			"integer overflow");
	check_outcome(db, "select length(zeroblob(2000000000))", "", POSTERN_POISON,
			"too big");
	check_outcome(db, "select 1; select json_extract(:body, '$')", "{",
			POSTERN_POISON, "statement 2: malformed JSON");
	/* Errors that may pass. */
	check_outcome(db, "insert into t values (1, null, 1)", "", POSTERN_RETRY,
			"NOT NULL constraint failed: t.y");
	check_outcome(db, "insert into t values (1, 'a', 0)", "", POSTERN_RETRY,
			"CHECK constraint failed");
	check_outcome(db, "insert into t values (1, x'00', 1)", "", POSTERN_RETRY,
			"cannot store BLOB value in TEXT column");
	check_outcome(db, "insert into u values (5)", "", POSTERN_RETRY,
			"FOREIGN KEY constraint failed");
	/* Success. */
	check_outcome(db, "insert into t values (1, 'a', 1)", "", POSTERN_DONE, "");
	(void)close_db(db);
}

/* Of a trigger on the handler's table, which SQLite compiles with the
   statement. */
static void missing_in_trigger(void) {
	sqlite3 *db = open_db();
	struct postern_handler *handler = make_sql("insert into t values (:body)");
	struct postern_run run;
	execute_sql(db, "create table t(x); create table audit(x);"
					"create trigger tell after insert on t begin"
					" insert into audit values (json_extract(new.x, '$'));"
					" end");
	static const struct {
		const char *before;
		const char *body;
		enum postern_outcome_kind kind;
		const char *reason;
	} rows[] = {
		{ "select 1", "{}", POSTERN_DONE, "" },
		{ "select 1", "{", POSTERN_POISON, "malformed JSON" },
		{ "drop table audit", "{}", POSTERN_HOLD, "no such table: main.audit" },
		{ "select 1", "{", POSTERN_HOLD, "no such table: main.audit" },
		{ "create table audit(x)", "{}", POSTERN_DONE, "" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		execute_sql(db, rows[i].before);
		fake_init(&run, rows[i].body, strlen(rows[i].body));
		run_in_transaction(handler, db, &run);
		CHECK_INT(run.outcome.kind, rows[i].kind);
		CHECK_STR(run.outcome.reason, rows[i].reason);
	}
	CHECK_STR(query_text(db, "select count(*) from t"), "2");
	handler->ops->destroy(handler);
	(void)close_db(db);
}

static void check_unavailable(const struct postern_run *run,
		const char *reason) {
	CHECK_INT(run->outcome.kind, POSTERN_SNOOZE);
	CHECK_INT(run->outcome.delay_ms, POSTERN_HINDERED_DELAY_MS);
	CHECK_CONTAINS(run->outcome.reason, reason);
}

static void store_unavailable(void) {
	sqlite3 *db = open_db();
	struct postern_run run;
	execute_sql(db, "create table t(x)");
	execute_sql(db, "pragma max_page_count = 5");
	run_new_handler(db, "insert into t values (zeroblob(100000))", "", 0, &run);
	check_unavailable(&run, "store unavailable: database or disk is full");
	struct postern_handler *handler = make_sql("insert into t values (1)");
	fake_init(&run, "", 0);
	run.delivery.transaction = db;
	execute_sql(db, "begin; pragma query_only = on");
	fake_run(handler, &run);
	check_unavailable(&run, "readonly");
	handler->ops->destroy(handler);
	(void)close_db(db);
}

static void locked(void) {
	sqlite3 *db = open_db();
	sqlite3_stmt *stmt = NULL;
	struct postern_run run;
	execute_sql(db, "create table t(x); insert into t values (1), (2)");
	CHECK_INT(sqlite3_prepare_v2(db, "select * from t", -1, &stmt, NULL),
			SQLITE_OK);
	CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
	struct postern_handler *handler = make_sql("drop table t");
	fake_init(&run, "", 0);
	run.delivery.transaction = db;
	execute_sql(db, "begin");
	fake_run(handler, &run);
	check_unavailable(&run, "store unavailable: database table is locked");
	handler->ops->destroy(handler);
	(void)sqlite3_finalize(stmt);
	execute_sql(db, "rollback");
	(void)close_db(db);
}

#define ENDLESS                                                        \
	"with recursive c(x) as (select 1 union all select x + 1 from c) " \
	"select count(*) from c"

/* More steps than between two checks of the deadline. */
#define LONG                                                           \
	"with recursive c(x) as (select 10 union all select x + 1 from c " \
	"where x < 50009) select x from c"

static void times_out(void) {
	sqlite3 *db = open_db();
	struct postern_handler *handler = make_sql(ENDLESS);
	struct postern_run run;
	fake_init(&run, "", 0);
	run.deadline_ms = fake_now_ms() + 50;
	run_in_transaction(handler, db, &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_STR(run.outcome.reason, "timed out");
	CHECK(fake_now_ms() >= run.deadline_ms);
	handler->ops->destroy(handler);

	/* The deadline is checked between two statements, however short. */
	execute_sql(db, "create table t(x)");
	handler = make_sql("insert into t values (1); insert into t values (2)");
	fake_init(&run, "", 0);
	run.deadline_ms = 1;
	run_in_transaction(handler, db, &run);
	CHECK_STR(run.outcome.reason, "timed out");
	CHECK_STR(query_text(db, "select count(*) from t"), "0");
	/* The progress handler was removed. */
	CHECK_STR(query_text(db, "select count(*) from (" LONG ")"), "50000");
	handler->ops->destroy(handler);
	(void)close_db(db);
}

struct job {
	struct postern_handler *handler;
	struct postern_run run;
	pthread_t thread;
};

static void *job_main(void *context) {
	struct job *job = context;
	job->handler->ops->start(job->handler, &job->run);
	return NULL;
}

static void cancel_timeout(void) {
	sqlite3 *db = open_db();
	struct job job = { .handler = make_sql(ENDLESS) };
	fake_init(&job.run, "", 0);
	job.run.delivery.transaction = db;
	execute_sql(db, "begin");
	CHECK(pthread_create(&job.thread, NULL, job_main, &job) == 0);
	/* The first cancel may come before the run has started. */
	while (job.run.finish_count == 0) {
		job.handler->ops->cancel(job.handler, &job.run, POSTERN_CANCEL_TIMEOUT);
		(void)poll(NULL, 0, 1);
	}
	(void)pthread_join(job.thread, NULL);
	CHECK_INT(job.run.finish_count, 1);
	CHECK_INT(job.run.return_count, 0);
	CHECK_INT(job.run.outcome.kind, POSTERN_RETRY);
	CHECK_STR(job.run.outcome.reason, "timed out");
	job.handler->ops->destroy(job.handler);
	(void)close_db(db);
}

/* SQL functions that cancel the run they are called in, and that count. */
static struct job *stopped_job;
static int passed_count;

static void sql_stop(sqlite3_context *context, int count,
		sqlite3_value **values) {
	(void)count;
	(void)values;
	stopped_job->handler->ops->cancel(stopped_job->handler, &stopped_job->run,
			POSTERN_CANCEL_STOP);
	/* The first cancel decides. */
	stopped_job->handler->ops->cancel(stopped_job->handler, &stopped_job->run,
			POSTERN_CANCEL_TIMEOUT);
	sqlite3_result_int(context, 1);
}

static void sql_pass(sqlite3_context *context, int count,
		sqlite3_value **values) {
	(void)count;
	(void)values;
	passed_count++;
	sqlite3_result_int(context, 1);
}

static void cancel_stop(void) {
	sqlite3 *db = open_db();
	struct job job = { .handler =
							   make_sql("insert into t select stop() union all "
										"select x from (" LONG ") union all "
										"select pass(); "
										"insert into t select pass()") };
	stopped_job = &job;
	passed_count = 0;
	(void)sqlite3_create_function(db, "stop", 0, SQLITE_UTF8, NULL, sql_stop,
			NULL, NULL);
	(void)sqlite3_create_function(db, "pass", 0, SQLITE_UTF8, NULL, sql_pass,
			NULL, NULL);
	execute_sql(db, "create table t(x); insert into t values (7)");
	fake_init(&job.run, "", 0);
	job.run.delivery.transaction = db;
	execute_sql(db, "begin; insert into t values (8)");
	fake_run(job.handler, &job.run);
	CHECK_INT(job.run.outcome.kind, POSTERN_SNOOZE);
	CHECK_INT(job.run.outcome.delay_ms, 0);
	CHECK_STR(job.run.outcome.reason, "stopped");
	CHECK_INT(passed_count, 1);
	/* The transaction is still open, with the writes of others. */
	CHECK(!sqlite3_get_autocommit(db));
	CHECK_STR(query_text(db, "select count(*) from t where x = 8"), "1");
	job.handler->ops->destroy(job.handler);
	(void)close_db(db);
}

static void cancel_first(void) {
	sqlite3 *db = open_db();
	struct postern_handler *handler = make_sql("insert into t values (1)");
	struct postern_run run;
	execute_sql(db, "create table t(x)");
	fake_init(&run, "", 0);
	handler->ops->cancel(handler, &run, POSTERN_CANCEL_STOP);
	run_in_transaction(handler, db, &run);
	CHECK_INT(run.outcome.kind, POSTERN_SNOOZE);
	CHECK_STR(query_text(db, "select count(*) from t"), "0");
	/* A late cancel of an earlier run: the deadline decides. */
	fake_init(&run, "", 0);
	handler->ops->cancel(handler, &run, POSTERN_CANCEL_TIMEOUT);
	run_in_transaction(handler, db, &run);
	CHECK_INT(run.outcome.kind, POSTERN_DONE);
	handler->ops->destroy(handler);
	(void)close_db(db);
}

static void interrupted_store(void) {
	sqlite3 *db = open_db();
	struct job job = { .handler = make_sql(ENDLESS) };
	fake_init(&job.run, "", 0);
	job.run.delivery.transaction = db;
	CHECK(pthread_create(&job.thread, NULL, job_main, &job) == 0);
	while (job.run.finish_count == 0) {
		sqlite3_interrupt(db);
		(void)poll(NULL, 0, 1);
	}
	(void)pthread_join(job.thread, NULL);
	CHECK_INT(job.run.outcome.kind, POSTERN_RETRY);
	CHECK_STR(job.run.outcome.reason, "timed out");
	job.handler->ops->destroy(job.handler);
	(void)close_db(db);
}

static void ends_transaction(void) {
	sqlite3 *db = open_db();
	struct postern_run run;
	execute_sql(db, "create table t(x unique on conflict rollback)");
	/* The table's definition rolls back, which a check of the SQL cannot
	   see. */
	run_new_handler(db, "insert into t values (1); insert into t values (1)",
			"", 0, &run);
	CHECK_INT(run.outcome.kind, POSTERN_RETRY);
	CHECK_CONTAINS(run.outcome.reason, "UNIQUE constraint failed");
	CHECK_STR(query_text(db, "select count(*) from t"), "0");

	struct postern_handler *handler = make_sql("select 1");
	fake_init(&run, "", 0);
	run.delivery.transaction = db;
	/* There is no transaction, as if a statement had ended it. */
	fake_run(handler, &run);
	CHECK_INT(run.outcome.kind, POSTERN_POISON);
	CHECK_CONTAINS(run.outcome.reason, "ended the transaction");
	handler->ops->destroy(handler);
	(void)close_db(db);
}

static void savepoints(void) {
	sqlite3 *db = open_db();
	struct postern_handler *handler = make_sql("insert into t values (:id)");
	struct postern_run run;
	execute_sql(db, "create table t(x unique); begin immediate");
	for (int i = 0; i < 4; i++) {
		static const char *const ids[] = { "a", "a", "b", "c" };
		execute_sql(db, "savepoint unit");
		fake_init(&run, "", 0);
		run.message.id = ids[i];
		run.delivery.transaction = db;
		fake_run(handler, &run);
		CHECK_INT(run.outcome.kind, i == 1 ? POSTERN_RETRY : POSTERN_DONE);
		execute_sql(db,
				i == 1 ? "rollback to unit; release unit" : "release unit");
	}
	execute_sql(db, "commit");
	CHECK_STR(query_text(db, "select group_concat(x) from t"), "a,b,c");
	handler->ops->destroy(handler);
	(void)close_db(db);
}

static void what_it_is(void) {
	struct postern_handler *handler = make_sql("select 1");
	struct postern_error error;
	CHECK_STR(postern__sql_kind.name, "sql");
	CHECK(handler->transactional);
	CHECK(handler->ops->batches);
	CHECK(!postern__sql_kind.in_process);
	handler->ops->destroy(handler);
	handler = NULL;
	CHECK_INT(postern__sql_create(NULL, &handler, &error), POSTERN_E_INVALID);
	CHECK_INT(postern__sql_create("commit", &handler, &error),
			POSTERN_E_INVALID);
	CHECK(!handler);
}

static void without_memory_for_bindings(void) {
	/* A cleared statement has no pointer to a freed message: with ASan. */
	sqlite3 *db = open_db();
	struct postern_handler *handler = make_sql("insert into t values (:body)");
	execute_sql(db, "create table t(x)");
	for (int i = 0; i < 2; i++) {
		char *body = strdup("body");
		struct postern_run run;
		fake_init(&run, body, 4);
		run_in_transaction(handler, db, &run);
		free(body);
		sqlite3_stmt *stmt = sqlite3_next_stmt(db, NULL);
		char *sql = sqlite3_expanded_sql(stmt);
		CHECK_STR(sql, "insert into t values (NULL)");
		sqlite3_free(sql);
	}
	handler->ops->destroy(handler);
	(void)close_db(db);
}

static const struct tap_case cases[] = {
	{ "a sql handler is transactional and can be batched", what_it_is },
	{ "every parameter is bound with its type", binds_all },
	{ "an absent attribute is NULL, an empty body is empty", binds_absent },
	{ ":body_bytes accepts any bytes", binds_bytes },
	{ "a body that a parameter cannot represent is poison", bad_bodies },
	{ "several statements run in order, and their rows are ignored",
			several_statements },
	{ "a failed statement rolls back those before it", all_or_nothing },
	{ "a new epoch prepares the statements again and frees no old ones",
			epochs },
	{ "a changed schema is detected", schema_changes },
	{ "SQL that cannot be prepared is a hold, that fails on a message poison, "
	  "a violated constraint a retry",
			errors },
	{ "what a trigger of the table lacks is the handler's fault",
			missing_in_trigger },
	{ "an unavailable store does not count as an attempt", store_unavailable },
	{ "a locked table does not count as an attempt", locked },
	{ "SQL is interrupted after the deadline", times_out },
	{ "a statement cancelled by a timeout is interrupted", cancel_timeout },
	{ "a run cancelled by a stop starts no further statement", cancel_stop },
	{ "a run stopped before its start runs nothing", cancel_first },
	{ "an interrupt of the store counts as a timeout", interrupted_store },
	{ "a transaction that was rolled back is detected", ends_transaction },
	{ "a failed delivery does not affect the others in its transaction",
			savepoints },
	{ "no binding outlives its run", without_memory_for_bindings },
};

TAP_MAIN(cases)
