/* SPDX-License-Identifier: MIT */

/*
 * What handlers do to a transaction of PostgreSQL and to its session, with the
 * connection in their hands: nothing of it reaches the next message, and a
 * handler that goes wrong harms nobody but itself.
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

/* A handler that runs this and returns that. */
struct deed {
	const char *sql;
	const char *then; /* in a query of its own; NULL: nothing */
	enum postern_outcome_kind outcome;
	PGconn *rival; /* does this at the same time, in the first run … */
	const char *rival_sql;
	bool rival_ends; /* … or commits before the second one */
	int runs;
	int sent;
	int64_t number;         /* that the last statement said */
	bool goes_back;         /* to before it was taken */
	PQnoticeReceiver hears; /* notices, from now on; NULL: nobody */
	bool is_ended; /* its session, by somebody else, and it does not notice */
};

static void run(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
		FAIL("%s: %s", sql, PQerrorMessage(link));
	}
	PQclear(result);
}

static int64_t number_of(const PGresult *result) {
	return PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1
				   ? strtoll(PQgetvalue(result, 0, 0), NULL, 10)
				   : -1;
}

static int64_t number(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	int64_t value = number_of(result);
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
	run(scene->link, "SET client_min_messages = error;"
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
	run(scene->link, "CREATE TABLE " SCHEMA ".effect (n integer)");
}

static void scene_close(struct scene *scene) {
	postern_store_destroy(scene->store);
	run(scene->link, "DROP SCHEMA " SCHEMA " CASCADE");
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

/* To the savepoint that is set before each, whose name nobody should know. */
static void go_back(PGconn *link) {
	PGresult *name = PQexec(link, "SELECT 'ROLLBACK TO postern_' || to_hex(id)"
								  " FROM " SCHEMA ".pledge");
	CHECK_INT(PQntuples(name), 1);
	run(link, PQgetvalue(name, 0, 0));
	PQclear(name);
}

/* It is gone when this returns. */
static void end_session(const PGconn *link) {
	const char *base = getenv("POSTERN_TEST_POSTGRES");
	PGconn *other = PQconnectdb(base ? base : "");
	char sql[80];
	(void)snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%d, %d)",
			PQbackendPID(link), PATIENCE_MS);
	run(other, sql);
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
		run(deed->rival, "COMMIT");
	}
	if (deed->goes_back) {
		go_back(transaction);
	}
	PGresult *result = PQexec(transaction, deed->sql);
	deed->number = number_of(result);
	bool good = !deed->rival || PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	if (deed->then) {
		PQclear(PQexec(transaction, deed->then));
	}
	if (deed->hears) {
		(void)PQsetNoticeReceiver(transaction, deed->hears, deed);
		(void)PQsetErrorVerbosity(transaction, PQERRORS_SQLSTATE);
	}
	if (deed->is_ended) {
		end_session(transaction);
	}
	outcome->kind = good ? deed->outcome : POSTERN_RETRY;
}

/* The same, sent ahead if there is a pipeline. */
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

/* One handler does this, the next one asks for a number. */
static int64_t ask_after(struct scene *scene, const char *sql,
		enum postern_outcome_kind outcome, const char *question) {
	struct deed first = { .sql = sql, .outcome = outcome };
	struct deed second = { .sql = question };
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
	CHECK_INT(ask_after(&scene, "PREPARE p AS SELECT 1", POSTERN_DONE,
					  count_sql),
			0);
	CHECK_INT(ask_after(&scene, "PREPARE p AS SELECT 1", POSTERN_RETRY,
					  count_sql),
			0);
	scene_close(&scene);
}

static void hear(void *context, const PGresult *result) {
	(void)context;
	FAIL("heard %s", PQresultErrorMessage(result));
}

static void deaf_again(void) {
	struct scene scene;
	scene_open(&scene);
	struct deed deeds[] = {
		{ .sql = "SELECT 1", .hears = hear },
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
	CHECK_INT(ask_after(&scene, "ROLLBACK; SET statement_timeout = 77",
					  POSTERN_DONE,
					  "SELECT setting FROM pg_settings"
					  " WHERE name = 'statement_timeout'"),
			0);
	scene_close(&scene);
}

/* Of three in one transaction the second does this; the others commit. Returns
   the code of the second. */
static int only_the_second(struct deed second) {
	struct scene scene;
	scene_open(&scene);
	struct deed deeds[DEEDS_MAX] = {
		{ .sql = "INSERT INTO " SCHEMA ".effect VALUES (1)" },
		second,
		{ .sql = "INSERT INTO " SCHEMA ".effect VALUES (3)" },
	};
	struct postern_unit units[DEEDS_MAX];
	int r = transact(&scene, deeds, units, DEEDS_MAX);
	CHECK_OK(r, &scene.error);
	CHECK(r != POSTERN_OK || (units[0].committed && units[2].committed));
	CHECK(r != POSTERN_OK || !units[1].committed);
	CHECK_INT(number(scene.link, "SELECT sum(n) FROM " SCHEMA ".effect"), 4);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".ledger"), 2);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"), 1);
	scene_close(&scene);
	return units[1].code;
}

static void connection_breaks(void) {
	static const enum postern_outcome_kind outcomes[] = { POSTERN_DONE,
		POSTERN_RETRY };
	for (size_t i = 0; i < 2; i++) {
		CHECK_INT(only_the_second((struct deed){
						  .sql = "SELECT pg_terminate_backend("
								 "pg_backend_pid())",
						  .outcome = outcomes[i],
				  }),
				POSTERN_E_UNAVAILABLE);
		CHECK_INT(only_the_second((struct deed){
						  .sql = "INSERT INTO " SCHEMA ".effect VALUES (100)",
						  .outcome = outcomes[i],
						  .is_ended = true,
				  }),
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
	(void)only_the_second((struct deed){
			.sql = "INSERT INTO " SCHEMA ".effect VALUES (100);"
				   " SAVEPOINT postern_unit",
			.outcome = POSTERN_RETRY,
	});
}

static void back_to_the_beginning(void) {
	(void)only_the_second((struct deed){
			.sql = "INSERT INTO " SCHEMA ".effect VALUES (100)",
			.goes_back = true,
	});
}

static void read_only(void) {
	only_the_second((struct deed){ .sql = "SET TRANSACTION READ ONLY" });
}

static void constraint_at_commit(void) {
	(void)only_the_second((struct deed){
			.sql = "CREATE TABLE " SCHEMA ".one (n integer UNIQUE"
				   " DEFERRABLE INITIALLY DEFERRED);"
				   " INSERT INTO " SCHEMA ".one VALUES (1), (1)",
	});
}

/* A trigger of a table of the handler's raises this at the commit. */
static void trigger_at_commit(void) {
	static const char *const states[] = { "08001", "25006", "3F000", "42P01",
		"53400", "57014", "P0001", "XX000" };
	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
		char sql[600];
		(void)snprintf(sql, sizeof sql,
				"CREATE TABLE " SCHEMA ".late (n integer);"
				"CREATE FUNCTION " SCHEMA ".refuse() RETURNS trigger LANGUAGE"
				" plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = '%s'; END $$;"
				"CREATE CONSTRAINT TRIGGER late AFTER INSERT ON " SCHEMA
				".late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
				" EXECUTE FUNCTION " SCHEMA ".refuse();"
				"INSERT INTO " SCHEMA ".late VALUES (1)",
				states[i]);
		CHECK_INT(only_the_second((struct deed){ .sql = sql }),
				POSTERN_E_INVALID);
	}
}

/* What is left behind takes longer to undo than the handler has allowed. */
static void hurried_end(void) {
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

static void constraints_looked_at(void) {
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
	(void)only_the_second((struct deed){
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

/* The first of a batch has locked what the rival waits for. */
static void deadlock(void) {
	struct scene scene;
	scene_open(&scene);
	run(scene.link, "SET deadlock_timeout = '1h';"
					" INSERT INTO " SCHEMA ".effect VALUES (1), (2)");
	run(scene.link, "BEGIN;"
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

/* Three effects that are sent ahead; one lease has this fence. */
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
	/* Alone, once it may be sent again. */
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

/* The fence is the same until the next lease. */
static void taken_back_ahead(void) {
	for (size_t count = 1; count <= 2; count++) {
		struct scene scene;
		scene_open(&scene);
		struct deed deed = {
			.sql = "INSERT INTO " SCHEMA ".effect VALUES (1)",
		};
		struct postern_unit units[2];
		for (size_t i = 0; i < count; i++) {
			units[i] = (struct postern_unit){
				.seq = accept_one(&scene),
				.handler = scene.handler,
				.fence = 1,
				.sends_ahead = true,
				.context = &deed,
				.run = send_deed,
			};
		}
		run(scene.link, "UPDATE " SCHEMA ".open SET node = NULL");
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
	struct postern_unit unit = {
		.seq = accept_one(&scene),
		.handler = scene.handler,
		.fence = 1,
		.sends_ahead = true,
		.context = &deed,
		.run = send_deed,
	};
	(void)scene.store->ops->transact(scene.store, NODE, NULL, &unit, 1,
			&scene.error);
	CHECK_INT(deed.sent, 1);
	CHECK(!unit.committed);
	CHECK_INT(number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"), 1);
	scene_close(&scene);
}

/* What a handler does with names in the session that it shares with us. */
static void send_one(struct scene *scene, const char *sql) {
	struct deed deed = { .sql = sql };
	struct postern_unit unit = {
		.seq = accept_one(scene),
		.handler = scene->handler,
		.fence = 1,
		.sends_ahead = true,
		.context = &deed,
		.run = send_deed,
	};
	CHECK_OK(scene->store->ops->transact(scene->store, NODE, NULL, &unit, 1,
					 &scene->error),
			&scene->error);
	CHECK(unit.committed);
	CHECK_INT(deed.sent, 1);
}

static void names_undone(void) {
	static const char count_sql[] = "INSERT INTO " SCHEMA ".effect SELECT"
									" count(*) FROM pg_prepared_statements"
									" WHERE name = 'postern_apply'";
	static const char sum_sql[] = "SELECT sum(n) FROM " SCHEMA ".effect";
	struct scene scene;
	scene_open(&scene);
	(void)accept_one(&scene);
	send_one(&scene, count_sql); /* accepts another one before it */
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
	/* Behind the name, which is in brackets: a state, then the parent. */
	const char *rest = strrchr(text, ')');
	return rest && strlen(rest) > 4 ? (pid_t)strtol(rest + 4, NULL, 10) : 0;
}

struct silence {
	struct scene *scene;
	pid_t backend;
	pid_t server;
	struct postern_unit unit;
	pthread_t thread;
};

/* The whole server stops while the handler waits for it. */
static void stop_server(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	struct silence *silence = context;
	(void)epoch;
	silence->backend = PQbackendPID(transaction);
	silence->server = parent_of(silence->backend);
	CHECK_INT(kill(silence->server, SIGSTOP), 0);
	CHECK_INT(kill(silence->backend, SIGSTOP), 0);
	PGresult *result = PQexec(transaction, "SELECT 1");
	CHECK(PQresultStatus(result) != PGRES_TUPLES_OK);
	PQclear(result);
	/* While it is stopped nothing more can be asked of it. */
	CHECK_INT(kill(silence->backend, SIGCONT), 0);
	CHECK_INT(kill(silence->server, SIGCONT), 0);
	outcome->kind = POSTERN_RETRY;
}

static void *interrupt_later(void *context) {
	struct silence *silence = context;
	const struct timespec moment = { .tv_nsec = 200000000 };
	(void)nanosleep(&moment, NULL);
	silence->scene->store->ops->interrupt(silence->scene->store, NULL);
	return NULL;
}

static void server_is_silent(void) {
	struct scene scene;
	scene_open(&scene);
	struct silence silence = { .scene = &scene };
	silence.unit = (struct postern_unit){
		.seq = accept_one(&scene),
		.handler = scene.handler,
		.fence = 1,
		.context = &silence,
		.run = stop_server,
	};
	if (!CHECK_INT(pthread_create(&silence.thread, NULL, interrupt_later,
						   &silence),
				0)) {
		return;
	}
	(void)scene.store->ops->transact(scene.store, NODE, NULL, &silence.unit, 1,
			&scene.error);
	(void)pthread_join(silence.thread, NULL);
	CHECK_INT(silence.unit.code, POSTERN_E_TIMEOUT);
	CHECK(!silence.unit.committed);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "one that waits for a server that is silent can be interrupted",
			server_is_silent },
	{ "what a handler prepared is gone before the next message", prepared },
	{ "what a handler told libpq is forgotten before the next message",
			deaf_again },
	{ "what a handler locked is free after it, done or not", advisory_locks },
	{ "what was set after a rollback does not reach the next message",
			rolled_back_and_set },
	{ "one that ended the transaction and began another is told so",
			begins_another },
	{ "a savepoint like ours keeps nothing of what was undone",
			savepoint_of_same_name },
	{ "one that went back to before it was taken is not done",
			back_to_the_beginning },
	{ "one that made the transaction read-only harms nobody else", read_only },
	{ "one whose connection breaks is told, whatever it says, and harms nobody",
			connection_breaks },
	{ "a constraint that fails at the commit harms nobody else",
			constraint_at_commit },
	{ "whatever a trigger raises at the commit is a matter of its message",
			trigger_at_commit },
	{ "a timeout that a handler leaves behind does not end its own end",
			hurried_end },
	{ "one that has constraints looked at early is done",
			constraints_looked_at },
	{ "one that had constraints looked at may not commit either",
			constraints_before_commit },
	{ "nothing is kept of what was sent ahead with a lease that is lost",
			stale_ahead },
	{ "nothing is kept of what was sent ahead and had been taken back",
			taken_back_ahead },
	{ "nothing is kept of what was sent ahead without the lock",
			without_lock_ahead },
	{ "one that ended the transaction ahead is not taken for done",
			rolled_back_ahead },
	{ "accepts go on after a handler has undone their name on the server",
			names_undone },
	{ "accepts go on after a handler has taken their name on the server",
			names_taken },
	{ "in a batch a deadlock is resolved by running its members apart",
			deadlock },
};

TAP_MAIN(cases)
