/* SPDX-License-Identifier: MIT */

/* postern_mark_in(): a marker in the caller's own transaction. */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

struct scene {
	char url[1024];
	struct postern_guard *guard;
	struct postern_error error;
	PGconn *link;
};

static void exec(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	if (!CHECK(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)) {
		FAIL("%s: %s", sql, PQerrorMessage(link));
	}
	PQclear(result);
}

static int count_rows(PGconn *link) {
	PGresult *result = PQexec(link, "SELECT count(*) FROM orders");
	int count = PQntuples(result) == 1
						? (int)strtol(PQgetvalue(result, 0, 0), NULL, 10)
						: -1;
	PQclear(result);
	return count;
}

static PGconn *connect(const char *url) {
	PGconn *link = PQconnectdb(url);
	if (!CHECK_INT(PQstatus(link), CONNECTION_OK)) {
		exit(1);
	}
	exec(link, "SET client_min_messages = warning");
	return link;
}

/* Each case has a schema of its own. */
static void scene_open(struct scene *scene, int64_t wait_ms) {
	static int number;
	const char *base = getenv("POSTERN_TEST_POSTGRES");
	char schema[32];
	(void)snprintf(schema, sizeof schema, "mark_in_%d", ++number);
	*scene = (struct scene){ 0 };
	(void)snprintf(scene->url, sizeof scene->url, "%s", base ? base : "");
	const struct postern_guard_options options = {
		.size = sizeof options,
		.wait_ms = wait_ms,
		.schema = schema,
	};
	if (!CHECK_OK(postern_guard_open(scene->url, &options, &scene->guard,
						  &scene->error),
				&scene->error)) {
		exit(1);
	}
	scene->link = connect(scene->url);
	exec(scene->link,
			"DROP TABLE IF EXISTS orders; CREATE TABLE orders (id text)");
}

static void scene_close(struct scene *scene) {
	PQfinish(scene->link);
	postern_guard_destroy(scene->guard);
}

static int mark(struct scene *scene, PGconn *link, const char *key) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "orders-v1",
		.key = key,
	};
	return postern_mark_in(scene->guard, link, &guarded, &scene->error);
}

static bool is_done(struct scene *scene, const char *key) {
	bool done = false;
	CHECK_OK(postern_mark_has(scene->guard, "orders-v1", key, &done,
					 &scene->error),
			&scene->error);
	return done;
}

static void committed(void) {
	struct scene scene;
	scene_open(&scene, 0);
	exec(scene.link, "BEGIN");
	CHECK_OK(mark(&scene, scene.link, "a"), &scene.error);
	exec(scene.link, "INSERT INTO orders VALUES ('a')");
	CHECK(!is_done(&scene, "a"));
	exec(scene.link, "COMMIT");
	CHECK(is_done(&scene, "a"));
	exec(scene.link, "BEGIN");
	CHECK_INT(mark(&scene, scene.link, "a"), POSTERN_E_DUPLICATE);
	/* The transaction goes on. */
	exec(scene.link, "INSERT INTO orders VALUES ('b')");
	exec(scene.link, "COMMIT");
	CHECK_INT(count_rows(scene.link), 2);
	scene_close(&scene);
}

static void rolled_back(void) {
	struct scene scene;
	scene_open(&scene, 0);
	exec(scene.link, "BEGIN");
	CHECK_OK(mark(&scene, scene.link, "a"), &scene.error);
	exec(scene.link, "INSERT INTO orders VALUES ('a')");
	exec(scene.link, "ROLLBACK");
	CHECK(!is_done(&scene, "a"));
	CHECK_INT(postern_mark_forget(scene.guard, "orders-v1", "a", NULL),
			POSTERN_E_NOTFOUND);
	exec(scene.link, "BEGIN");
	CHECK_OK(mark(&scene, scene.link, "a"), &scene.error);
	exec(scene.link, "COMMIT");
	CHECK(is_done(&scene, "a"));
	scene_close(&scene);
}

static void held_by_another(void) {
	struct scene scene;
	scene_open(&scene, 50);
	PGconn *second = connect(scene.url);
	exec(scene.link, "BEGIN");
	CHECK_OK(mark(&scene, scene.link, "a"), &scene.error);
	exec(second, "BEGIN; INSERT INTO orders VALUES ('x')");
	CHECK_INT(mark(&scene, second, "a"), POSTERN_E_BUSY);
	/* Neither the transaction nor its settings suffered. */
	CHECK_OK(mark(&scene, second, "b"), &scene.error);
	PGresult *result = PQexec(second, "SHOW lock_timeout");
	CHECK_STR(PQgetvalue(result, 0, 0), "0");
	PQclear(result);
	exec(second, "COMMIT");
	exec(scene.link, "ROLLBACK");
	CHECK(is_done(&scene, "b"));
	CHECK(!is_done(&scene, "a"));
	CHECK_INT(count_rows(scene.link), 1);
	PQfinish(second);
	scene_close(&scene);
}

struct rival {
	struct scene *scene;
	PGconn *link;
	int result;
};

static void *mark_in_thread(void *context) {
	struct rival *self = context;
	struct postern_error error;
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "orders-v1",
		.key = "a",
	};
	exec(self->link, "BEGIN");
	self->result =
			postern_mark_in(self->scene->guard, self->link, &guarded, &error);
	exec(self->link, "COMMIT");
	return NULL;
}

static void waits_for_another(void) {
	struct scene scene;
	pthread_t thread;
	scene_open(&scene, 60000);
	struct rival rival = { .scene = &scene, .link = connect(scene.url) };
	exec(scene.link, "BEGIN");
	CHECK_OK(mark(&scene, scene.link, "a"), &scene.error);
	if (pthread_create(&thread, NULL, mark_in_thread, &rival)) {
		exit(1);
	}
	exec(scene.link, "COMMIT");
	(void)pthread_join(thread, NULL);
	CHECK_INT(rival.result, POSTERN_E_DUPLICATE);
	PQfinish(rival.link);
	scene_close(&scene);
}

static void stronger_isolation(void) {
	struct scene scene;
	scene_open(&scene, 50);
	PGconn *second = connect(scene.url);
	exec(second, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM orders");
	exec(scene.link, "BEGIN");
	CHECK_OK(mark(&scene, scene.link, "a"), &scene.error);
	exec(scene.link, "COMMIT");
	CHECK_INT(mark(&scene, second, "a"), POSTERN_E_BUSY);
	exec(second, "ROLLBACK; BEGIN ISOLATION LEVEL SERIALIZABLE");
	CHECK_INT(mark(&scene, second, "a"), POSTERN_E_DUPLICATE);
	CHECK_OK(mark(&scene, second, "b"), &scene.error);
	exec(second, "COMMIT");
	CHECK(is_done(&scene, "b"));
	PQfinish(second);
	scene_close(&scene);
}

static void leased(void) {
	struct scene scene;
	scene_open(&scene, -1);
	CHECK_OK(postern_mark_begin(scene.guard, "orders-v1", "a", 7, 60000, NULL,
					 &scene.error),
			&scene.error);
	exec(scene.link, "BEGIN");
	CHECK_INT(mark(&scene, scene.link, "a"), POSTERN_E_BUSY);
	exec(scene.link, "COMMIT");
	scene_close(&scene);
}

static void no_transaction(void) {
	struct scene scene;
	scene_open(&scene, 0);
	CHECK_INT(mark(&scene, scene.link, "a"), POSTERN_E_INVALID);
	CHECK(strstr(scene.error.text, "BEGIN"));
	CHECK_INT(mark(&scene, NULL, "a"), POSTERN_E_INVALID);
	exec(scene.link, "BEGIN");
	PQclear(PQexec(scene.link, "SELECT 1 / 0"));
	CHECK_INT(mark(&scene, scene.link, "a"), POSTERN_E_INVALID);
	CHECK(strstr(scene.error.text, "has failed"));
	exec(scene.link, "ROLLBACK; BEGIN");
	CHECK_INT(mark(&scene, scene.link, ""), POSTERN_E_INVALID);
	CHECK_INT(PQenterPipelineMode(scene.link), 1);
	CHECK_INT(mark(&scene, scene.link, "a"), POSTERN_E_INVALID);
	CHECK_INT(PQexitPipelineMode(scene.link), 1);
	CHECK_OK(mark(&scene, scene.link, "a"), &scene.error);
	exec(scene.link, "ROLLBACK");
	scene_close(&scene);
}

/* The schema has the same name and another secret, as in another database. */
static void another_store(void) {
	struct scene scene;
	scene_open(&scene, 0);
	PGresult *result =
			PQexec(scene.link, "SELECT max(nspname) FROM pg_namespace"
							   " WHERE nspname LIKE 'mark_in_%'");
	char sql[160];
	(void)snprintf(sql, sizeof sql,
			"UPDATE %s.meta SET value = sha256(value) WHERE name = 'hash_key'",
			PQgetvalue(result, 0, 0));
	PQclear(result);
	exec(scene.link, "BEGIN");
	exec(scene.link, sql);
	CHECK_INT(mark(&scene, scene.link, "a"), POSTERN_E_INVALID);
	CHECK(strstr(scene.error.text, "not to the store"));
	exec(scene.link, "ROLLBACK");
	exec(scene.link, "BEGIN");
	CHECK_OK(mark(&scene, scene.link, "a"), &scene.error);
	exec(scene.link, "ROLLBACK");
	scene_close(&scene);
}

static void lost_connection(void) {
	struct scene scene;
	scene_open(&scene, 0);
	PGconn *second = connect(scene.url);
	char sql[80];
	exec(scene.link, "BEGIN");
	(void)snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%d, 60000)",
			PQbackendPID(scene.link));
	exec(second, sql);
	CHECK_INT(mark(&scene, scene.link, "a"), POSTERN_E_UNAVAILABLE);
	CHECK_INT(mark(&scene, scene.link, "a"), POSTERN_E_UNAVAILABLE);
	CHECK(!is_done(&scene, "a"));
	PQfinish(second);
	scene_close(&scene);
}

struct beginner {
	pthread_t thread;
	struct scene *scene;
	uint64_t fence;
	int result;
};

static void *begin(void *context) {
	struct beginner *beginner = context;
	beginner->result = postern_mark_begin(beginner->scene->guard, "orders-v1",
			"a", beginner->fence, 30000, NULL, NULL);
	return NULL;
}

/* How many statements of other connections wait for a row. */
static int count_waiting(PGconn *link) {
	PGresult *result =
			PQexec(link, "SELECT count(*) FROM pg_stat_activity WHERE datname ="
						 " current_database() AND wait_event_type = 'Lock'");
	int count = PQntuples(result) == 1
						? (int)strtol(PQgetvalue(result, 0, 0), NULL, 10)
						: -1;
	PQclear(result);
	return count;
}

/* A lease has ended, and the marker is removed (released late, or forgotten)
   while two calls wait for its row: only one of them begins. */
static void removed_while_two_wait(void) {
	struct scene scene;
	scene_open(&scene, 0);
	struct beginner both[2] = { { .fence = 2 }, { .fence = 3 } };
	CHECK_OK(postern_mark_begin(scene.guard, "orders-v1", "a", 1, 1000, NULL,
					 &scene.error),
			&scene.error);
	exec(scene.link, "SELECT pg_sleep(1.2)");
	exec(scene.link, "BEGIN");
	exec(scene.link, "SELECT FROM mark_in_10.marker FOR UPDATE");
	for (size_t i = 0; i < 2; i++) {
		both[i].scene = &scene;
		(void)pthread_create(&both[i].thread, NULL, begin, &both[i]);
	}
	while (count_waiting(scene.link) < 2) {
		exec(scene.link, "SELECT pg_sleep(0.01), pg_stat_clear_snapshot()");
	}
	exec(scene.link, "DELETE FROM mark_in_10.marker");
	exec(scene.link, "COMMIT");
	for (size_t i = 0; i < 2; i++) {
		(void)pthread_join(both[i].thread, NULL);
	}
	CHECK_INT((both[0].result == POSTERN_OK) + (both[1].result == POSTERN_OK),
			1);
	CHECK_INT((both[0].result == POSTERN_E_BUSY) +
					  (both[1].result == POSTERN_E_BUSY),
			1);
	scene_close(&scene);
}

static void succeed(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	(void)context;
	(void)call;
	(void)outcome;
}

/* A program lists its present name among the former ones. */
static void repeated_name(void) {
	static const char *const former[] = { "orders-v1" };
	struct scene scene;
	scene_open(&scene, 0);
	struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "orders-v1",
		.legacy_keys = former,
		.legacy_key_count = 1,
		.key = "a",
	};
	CHECK_OK(postern_guard_run(scene.guard, &guarded, succeed, NULL, NULL,
					 &scene.error),
			&scene.error);
	guarded.key = "b";
	guarded.transactional = true;
	CHECK_OK(postern_guard_run(scene.guard, &guarded, succeed, NULL, NULL,
					 &scene.error),
			&scene.error);
	CHECK(is_done(&scene, "a") && is_done(&scene, "b"));
	scene_close(&scene);
}

/* A wait may be longer than a setting of the server can be. */
static void longest_wait(void) {
	static const char *const former[] = { "orders-v1", "orders-v0" };
	struct scene scene;
	scene_open(&scene, INT64_C(10) * 365 * 86400 * 1000);
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "orders-v2",
		.legacy_keys = former,
		.legacy_key_count = 2,
		.key = "a",
		.transactional = true,
	};
	exec(scene.link, "BEGIN");
	CHECK_OK(postern_mark_in(scene.guard, scene.link, &guarded, &scene.error),
			&scene.error);
	exec(scene.link, "ROLLBACK");
	CHECK_OK(postern_guard_run(scene.guard, &guarded, succeed, NULL, NULL,
					 &scene.error),
			&scene.error);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a marker commits with the caller's writes, a second one is a duplicate",
			committed },
	{ "a marker that was rolled back leaves nothing", rolled_back },
	{ "a marker that another transaction holds is busy, and nothing is lost",
			held_by_another },
	{ "a marker waits for another transaction and is a duplicate",
			waits_for_another },
	{ "a stronger isolation is refused or honoured", stronger_isolation },
	{ "a marker under a lease is busy", leased },
	{ "without a transaction that works nothing is marked", no_transaction },
	{ "a connection to another store is refused", another_store },
	{ "a connection that was lost is reported", lost_connection },
	{ "of two calls that wait for a marker that is removed, one begins",
			removed_while_two_wait },
	{ "a name of the handler that is given twice counts once", repeated_name },
	{ "a marker with several names is waited for as long as may be",
			longest_wait },
};

TAP_MAIN(cases)
