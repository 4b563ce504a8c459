/* SPDX-License-Identifier: MIT */

/*
 * What handlers do to a PostgreSQL transaction and its session through the
 * connection they get: nothing of it reaches the next message, and a handler
 * that misbehaves affects no other delivery.
 */

#include <libpq-fe.h>
#include <postern/sys/clock.h>
#include <postern/sys/memory.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/identity.h"
#include "tap.h"

#define SCHEMA "handlers"
#define NODE 42
#define PATIENCE_MS 60000

struct scene {
	struct postern_store *store;
	PGconn *link;
	struct postern_error error;
	int64_t channel;
	int64_t handler;
	int messages;
};

/* A handler that runs `sql` and returns `outcome`. */
struct deed {
	const char *sql;
	const char *then; /* run in a query of its own; NULL: nothing */
	enum postern_outcome_kind outcome;
	PGconn *rival; /* runs rival_sql at the same time, in the first run … */
	const char *rival_sql;
	bool rival_ends; /* … or commits before the second one */
	int runs;
	int sent;
	int64_t number;            /* that the last statement returned */
	bool rolls_back;           /* to the savepoint before the handler */
	PQnoticeReceiver receiver; /* receives notices from now on; NULL: nobody */
	bool session_ends; /* its session is ended from outside, and it does not
						  notice */
};

static void run_sql(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
		FAIL("%s: %s", sql, PQerrorMessage(link));
	}
	PQclear(result);
}

static int64_t result_number(const PGresult *result) {
	return PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1
				   ? strtoll(PQgetvalue(result, 0, 0), NULL, 10)
				   : -1;
}

static int64_t number(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	int64_t value = result_number(result);
	PQclear(result);
	return value;
}

static void scene_open(struct scene *scene) {
	const char *base = getenv("POSTERN_TEST_POSTGRES");
	char url[1024];
	struct postern_store_options options = {
		.size = sizeof options,
		.command_timeout_ms = PATIENCE_MS,
	};
	*scene = (struct scene){ .link = PQconnectdb(base ? base : "") };
	run_sql(scene->link, "SET client_min_messages = error;"
						 " DROP SCHEMA IF EXISTS " SCHEMA " CASCADE");
	(void)snprintf(url, sizeof url, "%s%cschema=" SCHEMA, base ? base : "",
			base && strchr(base, '?') ? '&' : '?');
	struct postern_enrol_channel channel = { .name = "orders" };
	struct postern_enrol_handler handler = { .key = "a" };
	struct postern_enrolment enrolment = {
		.node = NODE,
		.node_lease_ms = PATIENCE_MS,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	if (!CHECK_OK(postern_store_open(url, &options, &scene->store,
						  &scene->error),
				&scene->error) ||
			!CHECK_OK(scene->store->ops->enrol(scene->store, &enrolment,
							  &scene->error),
					&scene->error)) {
		exit(1);
	}
	scene->channel = channel.id;
	scene->handler = handler.id;
	run_sql(scene->link, "CREATE TABLE " SCHEMA ".effect (n integer)");
}

static void scene_close(struct scene *scene) {
	postern_store_destroy(scene->store);
	run_sql(scene->link, "DROP SCHEMA " SCHEMA " CASCADE");
	PQfinish(scene->link);
}

static int64_t accept_one(struct scene *scene) {
	char id[24];
	(void)snprintf(id, sizeof id, "%d", scene->messages++);
	struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.source = "shop",
		.type = "order.paid",
		.body = "body",
		.body_len = 4,
	};
	struct postern_route route = { .handler = scene->handler, .lease = true };
	struct postern_accept accept = {
		.message = &message,
		.key = postern__dedupe_key_by_id(&message),
		.channel = scene->channel,
		.routes = &route,
		.route_count = 1,
	};
	struct postern_batch batch = {
		.node = NODE,
		.accepts = &accept,
		.accept_count = 1,
	};
	CHECK_OK(scene->store->ops->apply(scene->store, &batch, &scene->error),
			&scene->error);
	CHECK(route.leased);
	return accept.seq;
}

/* Roll back to the savepoint before the handler, whose name it should not
   know. */
static void roll_back_to_start(PGconn *link) {
	PGresult *name = PQexec(link, "SELECT 'ROLLBACK TO postern_' || to_hex(id)"
								  " FROM " SCHEMA ".pledge");
	CHECK_INT(PQntuples(name), 1);
	run_sql(link, PQgetvalue(name, 0, 0));
	PQclear(name);
}

/* Returns when the session has ended. */
static void end_session(const PGconn *link) {
	const char *base = getenv("POSTERN_TEST_POSTGRES");
	PGconn *other = PQconnectdb(base ? base : "");
	char sql[80];
	(void)snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%d, %d)",
			PQbackendPID(link), PATIENCE_MS);
	run_sql(other, sql);
	PQfinish(other);
}

static void do_deed(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct deed *deed = context;
	(void)epoch;
	deed->runs++;
	if (deed->rival_sql && deed->runs == 1) {
		CHECK(PQsendQuery(deed->rival, deed->rival_sql));
	}
	if (deed->rival_ends && deed->runs == 2) {
		PGresult *last;
		while ((last = PQgetResult(deed->rival))) {
			PQclear(last);
		}
		run_sql(deed->rival, "COMMIT");
	}
	if (deed->rolls_back) {
		roll_back_to_start(transaction);
	}
	PGresult *result = PQexec(transaction, deed->sql);
	deed->number = result_number(result);
	bool good = !deed->rival || PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	if (deed->then) {
		PQclear(PQexec(transaction, deed->then));
	}
	if (deed->receiver) {
		(void)PQsetNoticeReceiver(transaction, deed->receiver, deed);
		(void)PQsetErrorVerbosity(transaction, PQERRORS_SQLSTATE);
	}
	if (deed->session_ends) {
		end_session(transaction);
	}
	outcome->kind = good ? deed->outcome : POSTERN_RETRY;
}

/* The same; sends the statement ahead if there is a pipeline. */
static void send_deed(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct deed *deed = context;
	if (PQpipelineStatus(transaction) == PQ_PIPELINE_OFF) {
		do_deed(context, transaction, epoch, outcome);
		return;
	}
	deed->sent++;
	CHECK(PQsendQueryParams(transaction, deed->sql, 0, NULL, NULL, NULL, NULL,
			1));
	outcome->kind = deed->outcome;
}

#define DEEDS_MAX 3

static int transact(struct scene *scene, struct deed *deeds,
		struct postern_unit *units, size_t count) {
	for (size_t i = 0; i < count; i++) {
		units[i] = (struct postern_unit){
			.seq = accept_one(scene),
			.handler = scene->handler,
			.fence = 1,
			.context = &deeds[i],
			.run = do_deed,
		};
	}
	return scene->store->ops->transact(scene->store, NODE, NULL, units, count,
			&scene->error);
}

/* One handler runs `sql`, the next one queries a number. */
static int64_t query_after(struct scene *scene, const char *sql,
		enum postern_outcome_kind outcome, const char *query) {
	struct deed first = { .sql = sql, .outcome = outcome };
	struct deed second = { .sql = query };
	struct postern_unit unit;
	(void)transact(scene, &first, &unit, 1);
	CHECK_OK(transact(scene, &second, &unit, 1), &scene->error);
	CHECK(unit.committed);
	return second.number;
}

static void prepared(void) {
	static const char count_sql[] =
			"SELECT count(*) FROM pg_prepared_statements WHERE name = 'p'";
	struct scene scene;
	scene_open(&scene);
	CHECK_INT(query_after(&scene, "PREPARE p AS SELECT 1", POSTERN_DONE,
					  count_sql),
			0);
	CHECK_INT(query_after(&scene, "PREPARE p AS SELECT 1", POSTERN_RETRY,
					  count_sql),
			0);
	scene_close(&scene);
}

static void fail_on_notice(void *context, const PGresult *result) {
	(void)context;
	FAIL("unexpected notice: %s", PQresultErrorMessage(result));
}

static void notice_receiver_reset(void) {
	struct scene scene;
	scene_open(&scene);
	struct deed deeds[] = {
		{ .sql = "SELECT 1", .receiver = fail_on_notice },
		{ .sql = "DO $$ BEGIN RAISE NOTICE 'hello'; END $$" },
	};
	struct postern_unit units[2];
	CHECK_OK(transact(&scene, deeds, units, 2), &scene.error);
	CHECK(units[0].committed && units[1].committed);
	scene_close(&scene);
}

static void advisory_locks(void) {
	struct scene scene;
	scene_open(&scene);
	static const enum postern_outcome_kind outcomes[] = { POSTERN_DONE,
		POSTERN_RETRY };
	for (size_t i = 0; i < 2; i++) {
		struct deed deed = {
			.sql = "SELECT pg_advisory_lock(7)",
			.outcome = outcomes[i],
		};
		struct postern_unit unit;
		CHECK_OK(transact(&scene, &deed, &unit, 1), &scene.error);
		CHECK_INT(number(scene.link, "SELECT count(*) FROM pg_locks"
									 " WHERE locktype = 'advisory'"),
				0);
	}
	scene_close(&scene);
}

static void rolled_back_and_set(void) {
	struct scene scene;
	scene_open(&scene);
	CHECK_INT(query_after(&scene, "ROLLBACK; SET statement_timeout = 77",
					  POSTERN_DONE,
					  "SELECT setting FROM pg_settings"
					  " WHERE name = 'statement_timeout'"),
			0);
	scene_close(&scene);
}

/* Three handlers in one transaction: the second runs `second`, the others must
   commit. Returns the unit of the second. */
static struct postern_unit spoil_second(struct deed second) {
	struct scene scene;
	scene_open(&scene);
	struct deed deeds[DEEDS_MAX] = {
		{ .sql = "INSERT INTO " SCHEMA ".effect VALUES (1)" },
		second,
		{ .sql = "INSERT INTO " SCHEMA ".effect VALUES (3)" },
	};
	struct postern_unit units[DEEDS_MAX];
	CHECK_OK(transact(&scene, deeds, units, DEEDS_MAX), &scene.error);
	CHECK(units[0].committed && units[2].committed && !units[1].committed);
	CHECK_INT(number(scene.link, "SELECT sum(n) FROM " SCHEMA ".effect"), 4);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".ledger"), 2);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"), 1);
	scene_close(&scene);
	return units[1];
}

static void connection_breaks(void) {
	static const enum postern_outcome_kind outcomes[] = { POSTERN_DONE,
		POSTERN_RETRY };
	for (size_t i = 0; i < 2; i++) {
		CHECK_INT(spoil_second((struct deed){
									   .sql = "SELECT pg_terminate_backend("
											  "pg_backend_pid())",
									   .outcome = outcomes[i],
							   })
						  .code,
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(spoil_second((struct deed){
									   .sql = "INSERT INTO " SCHEMA
											  ".effect VALUES (100)",
									   .outcome = outcomes[i],
									   .session_ends = true,
							   })
						  .code,
				POSTERN_E_UNAVAILABLE);
	}
}

static void begins_another(void) {
	static const char *const ends[] = { "COMMIT", "ROLLBACK" };
	for (size_t i = 0; i < 2; i++) {
		struct scene scene;
		scene_open(&scene);
		struct deed deed = { .sql = ends[i], .then = "BEGIN" };
		struct postern_unit unit;
		CHECK_OK(transact(&scene, &deed, &unit, 1), &scene.error);
		CHECK_INT(unit.code, POSTERN_E_INVALID);
		CHECK_STR(unit.outcome.reason, "handler ended the transaction itself");
		scene_close(&scene);
	}
}

static void savepoint_of_same_name(void) {
	(void)spoil_second((struct deed){
			.sql = "INSERT INTO " SCHEMA ".effect VALUES (100);"
				   " SAVEPOINT postern_unit",
			.outcome = POSTERN_RETRY,
	});
}

static void back_to_the_beginning(void) {
	(void)spoil_second((struct deed){
			.sql = "INSERT INTO " SCHEMA ".effect VALUES (100)",
			.rolls_back = true,
	});
}

static void read_only(void) {
	spoil_second((struct deed){ .sql = "SET TRANSACTION READ ONLY" });
}

static void constraint_at_commit(void) {
	(void)spoil_second((struct deed){
			.sql = "CREATE TABLE " SCHEMA ".one (n integer UNIQUE"
				   " DEFERRABLE INITIALLY DEFERRED);"
				   " INSERT INTO " SCHEMA ".one VALUES (1), (1)",
	});
}

/* A trigger of a table of the handler raises this error at the commit. The
   first four hold the handler. */
static void trigger_at_commit(void) {
	static const char *const states[] = { "08001", "3F000", "42501", "42P01",
		"22012", "23505", "25006", "53400", "57014", "P0001", "XX000" };
	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
		char sql[600];
		(void)snprintf(sql, sizeof sql,
				"SET search_path = " SCHEMA "; CREATE TABLE late (n integer);"
				"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
				" $$ BEGIN RAISE 'no' USING ERRCODE = '%s'; END $$;"
				"CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE"
				" INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();"
				"INSERT INTO late VALUES (1)",
				states[i]);
		struct deed deed = { .sql = sql };
		struct postern_unit units[2] = { spoil_second(deed) };
		struct scene scene;
		scene_open(&scene);
		CHECK_OK(transact(&scene, &deed, &units[1], 1), &scene.error);
		scene_close(&scene);
		for (size_t j = 0; j < 2; j++) {
			CHECK_INT(units[j].code, POSTERN_E_INVALID);
			CHECK_INT(units[j].outcome.kind,
					i < 4 ? POSTERN_HOLD : POSTERN_DONE);
			CHECK_CONTAINS(units[j].outcome.reason, states[i]);
		}
	}
}

/* The cleanup of the session takes longer than the timeout that the handler
   set. */
static void cleanup_without_timeout(void) {
	struct scene scene;
	scene_open(&scene);
	struct deed deed = {
		.sql = "DO $$ BEGIN FOR i IN 1..300 LOOP"
			   " EXECUTE 'CREATE TEMP TABLE t' || i || ' (n integer)';"
			   " END LOOP; END $$",
		.then = "SET statement_timeout = 2",
	};
	struct postern_unit unit;
	CHECK_OK(transact(&scene, &deed, &unit, 1), &scene.error);
	CHECK_STR(unit.outcome.reason, "");
	CHECK(unit.committed);
	scene_close(&scene);
}

static void constraints_immediate(void) {
	struct scene scene;
	scene_open(&scene);
	struct deed deeds[DEEDS_MAX] = {
		{ .sql = "SET CONSTRAINTS ALL IMMEDIATE",
				.then = "INSERT INTO " SCHEMA ".effect VALUES (1)" },
		{ .sql = "INSERT INTO " SCHEMA ".effect VALUES (2)",
				.then = "SET CONSTRAINTS ALL IMMEDIATE" },
		{ .sql = "SET CONSTRAINTS ALL IMMEDIATE",
				.then = "SET CONSTRAINTS ALL IMMEDIATE" },
	};
	struct postern_unit units[DEEDS_MAX];
	CHECK_OK(transact(&scene, deeds, units, DEEDS_MAX), &scene.error);
	for (size_t i = 0; i < DEEDS_MAX; i++) {
		CHECK(units[i].committed);
		CHECK_STR(units[i].outcome.reason, "");
	}
	CHECK_INT(number(scene.link, "SELECT sum(n) FROM " SCHEMA ".effect"), 3);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".pledge"), 0);
	scene_close(&scene);
}

static void constraints_before_commit(void) {
	(void)spoil_second((struct deed){
			.sql = "INSERT INTO " SCHEMA ".effect VALUES (100);"
				   " SET CONSTRAINTS ALL IMMEDIATE; COMMIT",
	});
	struct scene scene;
	scene_open(&scene);
	struct deed deed = {
		.sql = "INSERT INTO " SCHEMA ".effect VALUES (100);"
			   " SET CONSTRAINTS ALL IMMEDIATE",
		.then = "COMMIT",
	};
	struct postern_unit unit;
	CHECK_OK(transact(&scene, &deed, &unit, 1), &scene.error);
	CHECK(!unit.committed);
	CHECK_STR(unit.outcome.reason, "handler ended the transaction itself");
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".effect"), 0);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"), 1);
	scene_close(&scene);
}

/* The first handler of a batch has locked the row that the rival waits for. */
static void deadlock(void) {
	struct scene scene;
	scene_open(&scene);
	run_sql(scene.link, "SET deadlock_timeout = '1h';"
						" INSERT INTO " SCHEMA ".effect VALUES (1), (2)");
	run_sql(scene.link, "BEGIN;"
						" UPDATE " SCHEMA ".effect SET n = 2 WHERE n = 2");
	struct deed deeds[] = {
		{
				.sql = "UPDATE " SCHEMA ".effect SET n = 1 WHERE n = 1",
				.rival = scene.link,
				.rival_ends = true,
		},
		{
				.sql = "SET LOCAL deadlock_timeout = 50;"
					   " UPDATE " SCHEMA ".effect SET n = 2 WHERE n = 2",
				.then = "SELECT 1", /* is refused after the deadlock */
				.rival = scene.link,
				.rival_sql = "UPDATE " SCHEMA ".effect SET n = 1 WHERE n = 1",
		},
	};
	struct postern_unit units[2];
	CHECK_OK(transact(&scene, deeds, units, 2), &scene.error);
	CHECK(units[0].committed);
	CHECK(units[1].committed);
	CHECK_INT(deeds[1].runs, 2);
	scene_close(&scene);
}

/* Three effects that are sent ahead; the second lease has this fence. */
static void send_three(struct scene *scene, const struct postern_lock *lock,
		uint64_t fence, struct deed *deeds, struct postern_unit *units) {
	static const char *const sqls[] = {
		"INSERT INTO " SCHEMA ".effect VALUES (1)",
		"INSERT INTO " SCHEMA ".effect VALUES (10)",
		"INSERT INTO " SCHEMA ".effect VALUES (100)",
	};
	for (size_t i = 0; i < DEEDS_MAX; i++) {
		deeds[i] = (struct deed){ .sql = sqls[i] };
		units[i] = (struct postern_unit){
			.seq = accept_one(scene),
			.handler = scene->handler,
			.fence = i == 1 ? fence : 1,
			.sends_ahead = true,
			.context = &deeds[i],
			.run = send_deed,
		};
	}
	CHECK_OK(scene->store->ops->transact(scene->store, NODE, lock, units,
					 DEEDS_MAX, &scene->error),
			&scene->error);
}

static void stale_ahead(void) {
	struct scene scene;
	scene_open(&scene);
	struct deed deeds[DEEDS_MAX];
	struct postern_unit units[DEEDS_MAX];
	send_three(&scene, NULL, 2, deeds, units);
	CHECK_INT(deeds[1].sent, 1);
	CHECK_INT(deeds[1].runs, 0);
	CHECK(units[0].committed && units[2].committed);
	CHECK_INT(units[1].code, POSTERN_E_STALE);
	CHECK_INT(number(scene.link, "SELECT sum(n) FROM " SCHEMA ".effect"), 101);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".ledger"), 2);
	/* The same with one unit, when it may be sent ahead and when not. */
	for (int i = 0; i < 2; i++) {
		deeds[0].sent = 0;
		units[0] = (struct postern_unit){
			.seq = units[1].seq,
			.handler = scene.handler,
			.fence = 2,
			.sends_ahead = true,
			.context = &deeds[0],
			.run = send_deed,
		};
		CHECK_OK(scene.store->ops->transact(scene.store, NODE, NULL, units, 1,
						 &scene.error),
				&scene.error);
		CHECK_INT(units[0].code, POSTERN_E_STALE);
	}
	CHECK_INT(deeds[0].sent, 1);
	CHECK_INT(number(scene.link, "SELECT sum(n) FROM " SCHEMA ".effect"), 101);
	scene_close(&scene);
}

static struct postern_unit unit_ahead(struct scene *scene, struct deed *deed) {
	return (struct postern_unit){
		.seq = accept_one(scene),
		.handler = scene->handler,
		.fence = 1,
		.sends_ahead = true,
		.context = deed,
		.run = send_deed,
	};
}

/* The recovered lease keeps its fence until the next lease. */
static void recovered_ahead(void) {
	for (size_t count = 1; count <= 2; count++) {
		struct scene scene;
		scene_open(&scene);
		struct deed deed = {
			.sql = "INSERT INTO " SCHEMA ".effect VALUES (1)",
		};
		struct postern_unit units[2];
		for (size_t i = 0; i < count; i++) {
			units[i] = unit_ahead(&scene, &deed);
		}
		run_sql(scene.link, "UPDATE " SCHEMA ".open SET node = NULL");
		CHECK_OK(scene.store->ops->transact(scene.store, NODE, NULL, units,
						 count, &scene.error),
				&scene.error);
		CHECK_INT(deed.sent, count);
		CHECK_INT(units[0].code, POSTERN_E_STALE);
		CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".effect"),
				0);
		scene_close(&scene);
	}
}

static void without_lock_ahead(void) {
	struct scene scene;
	scene_open(&scene);
	const struct postern_lock lock = { .name = "main", .fence = 7 };
	struct deed deeds[DEEDS_MAX];
	struct postern_unit units[DEEDS_MAX];
	send_three(&scene, &lock, 1, deeds, units);
	for (size_t i = 0; i < DEEDS_MAX; i++) {
		CHECK_INT(deeds[i].sent, 1);
		CHECK_INT(units[i].code, POSTERN_E_STALE);
	}
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".effect"), 0);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"), 3);
	scene_close(&scene);
}

static void rolled_back_ahead(void) {
	struct scene scene;
	scene_open(&scene);
	struct deed deed = { .sql = "ROLLBACK" };
	struct postern_unit unit = unit_ahead(&scene, &deed);
	(void)scene.store->ops->transact(scene.store, NODE, NULL, &unit, 1,
			&scene.error);
	CHECK_INT(deed.sent, 1);
	CHECK(!unit.committed);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"), 1);
	scene_close(&scene);
}

/* A handler that changes prepared statements of the session it shares with the
   store. */
static void send_one(struct scene *scene, const char *sql) {
	struct deed deed = { .sql = sql };
	struct postern_unit unit = unit_ahead(scene, &deed);
	CHECK_OK(scene->store->ops->transact(scene->store, NODE, NULL, &unit, 1,
					 &scene->error),
			&scene->error);
	CHECK(unit.committed);
	CHECK_INT(deed.sent, 1);
}

static void name_deallocated(void) {
	static const char count_sql[] = "INSERT INTO " SCHEMA ".effect SELECT"
									" count(*) FROM pg_prepared_statements"
									" WHERE name = 'postern_apply'";
	static const char sum_sql[] = "SELECT sum(n) FROM " SCHEMA ".effect";
	struct scene scene;
	scene_open(&scene);
	(void)accept_one(&scene);
	send_one(&scene, count_sql); /* accepts another message first */
	CHECK_INT(number(scene.link, sum_sql), 1);
	send_one(&scene, "DEALLOCATE postern_apply");
	(void)accept_one(&scene);
	send_one(&scene, count_sql);
	CHECK_INT(number(scene.link, sum_sql), 2);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".message"), 5);
	scene_close(&scene);
}

static void names_taken(void) {
	struct scene scene;
	scene_open(&scene);
	send_one(&scene, "PREPARE postern_apply AS SELECT 1");
	for (int i = 0; i < 3; i++) {
		(void)accept_one(&scene);
	}
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".message"), 4);
	scene_close(&scene);
}

static pid_t parent_of(pid_t pid) {
	char path[64];
	char text[512] = "";
	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "r");
	if (file) {
		(void)!fgets(text, sizeof text, file);
		(void)fclose(file);
	}
	/* The name in brackets is followed by the state, then the parent. */
	const char *rest = strrchr(text, ')');
	return rest && strlen(rest) > 4 ? (pid_t)strtol(rest + 4, NULL, 10) : 0;
}

struct stopped_server {
	struct scene *scene;
	pid_t backend;
	pid_t server;
	struct postern_unit unit;
	pthread_t thread;
};

/* The whole server stops while the handler waits for it. */
static void stop_server(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct stopped_server *stopped_server = context;
	(void)epoch;
	stopped_server->backend = PQbackendPID(transaction);
	stopped_server->server = parent_of(stopped_server->backend);
	CHECK_INT(kill(stopped_server->server, SIGSTOP), 0);
	CHECK_INT(kill(stopped_server->backend, SIGSTOP), 0);
	PGresult *result = PQexec(transaction, "SELECT 1");
	CHECK(PQresultStatus(result) != PGRES_TUPLES_OK);
	PQclear(result);
	/* A stopped server cannot run the rest of the test. */
	CHECK_INT(kill(stopped_server->backend, SIGCONT), 0);
	CHECK_INT(kill(stopped_server->server, SIGCONT), 0);
	outcome->kind = POSTERN_RETRY;
}

static void *interrupt_later(void *context) {
	struct stopped_server *stopped_server = context;
	const struct timespec moment = { .tv_nsec = 200000000 };
	(void)nanosleep(&moment, NULL);
	stopped_server->scene->store->ops->interrupt(stopped_server->scene->store,
			NULL);
	return NULL;
}

static void server_is_silent(void) {
	struct scene scene;
	scene_open(&scene);
	struct stopped_server stopped_server = { .scene = &scene };
	stopped_server.unit = (struct postern_unit){
		.seq = accept_one(&scene),
		.handler = scene.handler,
		.fence = 1,
		.context = &stopped_server,
		.run = stop_server,
	};
	if (!CHECK_INT(pthread_create(&stopped_server.thread, NULL, interrupt_later,
						   &stopped_server),
				0)) {
		return;
	}
	(void)scene.store->ops->transact(scene.store, NODE, NULL,
			&stopped_server.unit, 1, &scene.error);
	(void)pthread_join(stopped_server.thread, NULL);
	CHECK_INT(stopped_server.unit.code, POSTERN_E_TIMEOUT);
	CHECK(!stopped_server.unit.committed);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a handler that waits for an unresponsive server can be interrupted",
			server_is_silent },
	{ "statements a handler prepared are deallocated before the next message",
			prepared },
	{ "settings a handler made in libpq are reset before the next message",
			notice_receiver_reset },
	{ "advisory locks of a handler are released after it, whatever its outcome",
			advisory_locks },
	{ "settings made after a rollback do not reach the next message",
			rolled_back_and_set },
	{ "a handler that ended the transaction and began another is an error",
			begins_another },
	{ "a savepoint named like the store's keeps nothing of a failed handler",
			savepoint_of_same_name },
	{ "a handler that rolls back to before its start is not done",
			back_to_the_beginning },
	{ "a handler that makes the transaction read-only affects no other",
			read_only },
	{ "a broken connection fails its handler only, whatever outcome it returns",
			connection_breaks },
	{ "a constraint that fails at the commit affects no other handler",
			constraint_at_commit },
	{ "an error that a trigger raises at the commit is its own unit's, and is "
	  "classified",
			trigger_at_commit },
	{ "a statement timeout that a handler leaves does not cancel the "
	  "completion",
			cleanup_without_timeout },
	{ "a handler that sets constraints immediate is done",
			constraints_immediate },
	{ "a handler that set constraints immediate must not commit either",
			constraints_before_commit },
	{ "statements sent ahead under a lost lease are rolled back", stale_ahead },
	{ "statements sent ahead under a recovered lease are rolled back",
			recovered_ahead },
	{ "statements sent ahead without the lock are rolled back",
			without_lock_ahead },
	{ "a handler whose statements sent ahead end the transaction is not done",
			rolled_back_ahead },
	{ "accepts continue after a handler deallocates their prepared statement",
			name_deallocated },
	{ "accepts continue after a handler prepares a statement under their name",
			names_taken },
	{ "a deadlock in a batch is resolved by running its handlers separately",
			deadlock },
};

TAP_MAIN(cases)
