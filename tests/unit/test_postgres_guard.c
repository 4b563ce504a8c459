/* SPDX-License-Identifier: MIT */

/* Transactional functions of a guard on PostgreSQL: how their transaction ends,
   and what they leave in the session that the next one gets. */

#include <libpq-fe.h>
#include <postern/postern.h>
#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

#define NOBODY "postern_guard_nobody"

struct scene {
	char url[1024];
	struct postern_guard *guard;
	struct postern_error error;
	PGconn *link;
	int called;
};

static bool exec(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	if (!CHECK(good)) {
		FAIL("%s: %s", sql, PQerrorMessage(link));
	}
	PQclear(result);
	return good;
}

static int64_t number(PGconn *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	int64_t value = PQntuples(result) == 1
							? strtoll(PQgetvalue(result, 0, 0), NULL, 10)
							: -1;
	PQclear(result);
	return value;
}

/* Each case has a schema of its own. */
static void scene_open(struct scene *scene) {
	static int count;
	const char *base = getenv("POSTERN_TEST_POSTGRES");
	char schema[32];
	(void)snprintf(schema, sizeof schema, "guard_%d", ++count);
	*scene = (struct scene){ 0 };
	(void)snprintf(scene->url, sizeof scene->url, "%s", base ? base : "");
	const struct postern_guard_options options = {
		.size = sizeof options,
		.schema = schema,
	};
	scene->link = PQconnectdb(scene->url);
	if (!CHECK_OK(postern_guard_open(scene->url, &options, &scene->guard,
						  &scene->error),
				&scene->error) ||
			!CHECK_INT(PQstatus(scene->link), CONNECTION_OK)) {
		exit(1);
	}
	exec(scene->link, "SET client_min_messages = warning");
	exec(scene->link,
			"DROP TABLE IF EXISTS effects; CREATE TABLE effects (id text,"
			" UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)");
}

static void scene_close(struct scene *scene) {
	PQfinish(scene->link);
	postern_guard_destroy(scene->guard);
}

struct job {
	struct scene *scene;
	const char *sql;
	enum postern_outcome_kind outcome;
	int64_t session; /* which it had */
	int64_t left;    /* what the one before left in it */
};

/* Everything that a function may leave. */
#define LEFT                                                             \
	"SELECT (SELECT count(*) FROM pg_listening_channels())"              \
	" + (SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql" \
	" IS FALSE) + (SELECT count(*) FROM pg_cursors WHERE name = 'kept')" \
	" + (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"      \
	" AND pid = pg_backend_pid())"                                       \
	" + (to_regclass('pg_temp.kept') IS NOT NULL)::int"                  \
	" + (current_setting('application_name') = 'kept')::int"             \
	" + (current_user <> session_user)::int"
#define LEAVE                                                \
	"SET application_name = 'kept'; LISTEN kept;"            \
	" PREPARE kept AS SELECT 1; SELECT pg_advisory_lock(1);" \
	" CREATE TEMP TABLE kept (id text);"                     \
	" DECLARE kept CURSOR WITH HOLD FOR SELECT 1;"           \
	" SET ROLE " NOBODY

static void work(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct job *job = context;
	job->scene->called++;
	job->session = number(call->transaction, "SELECT pg_backend_pid()");
	job->left = number(call->transaction, LEFT);
	if (!exec(call->transaction, job->sql)) {
		postern_outcome_set(outcome, POSTERN_RETRY, 0, "failed");
		return;
	}
	postern_outcome_set(outcome, job->outcome, 0, "as told");
}

static int run(struct scene *scene, const char *key, struct job *job) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "effects-v1",
		.key = key,
		.transactional = true,
	};
	job->scene = scene;
	return postern_guard_run(scene->guard, &guarded, work, job, NULL,
			&scene->error);
}

static bool is_done(struct scene *scene, const char *key) {
	bool done = false;
	CHECK_OK(postern_mark_has(scene->guard, "effects-v1", key, &done,
					 &scene->error),
			&scene->error);
	return done;
}

static int64_t effects(struct scene *scene) {
	return number(scene->link, "SELECT count(*) FROM effects");
}

static void mixed(void) {
	static const struct {
		const char *key;
		int result;
	} calls[] = {
		{ "a", POSTERN_OK },
		{ "a", POSTERN_E_DUPLICATE },
		{ "a", POSTERN_E_DUPLICATE },
		{ "b", POSTERN_OK },
		{ "a", POSTERN_E_DUPLICATE },
		{ "c", POSTERN_OK },
		{ "c", POSTERN_E_DUPLICATE },
	};
	struct scene scene;
	scene_open(&scene);
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		char sql[64];
		(void)snprintf(sql, sizeof sql, "INSERT INTO effects VALUES ('%s')",
				calls[i].key);
		struct job job = { .sql = sql, .outcome = POSTERN_DONE };
		CHECK_INT(run(&scene, calls[i].key, &job), calls[i].result);
	}
	CHECK_INT(scene.called, 3);
	CHECK_INT(effects(&scene), 3);
	scene_close(&scene);
}

static void deferred_constraint(void) {
	struct scene scene;
	scene_open(&scene);
	struct job job = {
		.sql = "INSERT INTO effects VALUES ('x'), ('x')",
		.outcome = POSTERN_DONE,
	};
	CHECK_INT(run(&scene, "a", &job), POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "duplicate key");
	CHECK(!is_done(&scene, "a"));
	CHECK_INT(effects(&scene), 0);
	job.sql = "INSERT INTO effects VALUES ('x')";
	CHECK_OK(run(&scene, "a", &job), &scene.error);
	CHECK(is_done(&scene, "a"));
	CHECK_INT(effects(&scene), 1);
	scene_close(&scene);
}

static void end_transaction(void *context,
		const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	struct job *job = context;
	(void)outcome;
	exec(call->transaction, "INSERT INTO effects VALUES ('x')");
	PQclear(PQexec(call->transaction, job->sql)); /* it may fail */
}

static void refused_ends(void) {
	static const char *const ends[] = { "COMMIT", "COMMIT AND CHAIN",
		"COMMIT; BEGIN", "ROLLBACK", "ROLLBACK AND CHAIN", "ROLLBACK; BEGIN",
		"SET TRANSACTION READ ONLY" };
	struct scene scene;
	scene_open(&scene);
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		const struct postern_guarded guarded = {
			.size = sizeof guarded,
			.handler = "effects-v1",
			.key = ends[i],
			.transactional = true,
		};
		struct job job = { .sql = ends[i] };
		CHECK_INT(postern_guard_run(scene.guard, &guarded, end_transaction,
						  &job, NULL, &scene.error),
				POSTERN_E_INVALID);
		CHECK(!is_done(&scene, ends[i]));
		CHECK_INT(effects(&scene), 0);
	}
	scene_close(&scene);
}

/* The next function gets the same session, and finds nothing. */
static void check_left(enum postern_outcome_kind outcome, int result) {
	struct scene scene;
	scene_open(&scene);
	exec(scene.link, "DROP ROLE IF EXISTS " NOBODY "; CREATE ROLE " NOBODY);
	struct job leaving = { .sql = LEAVE, .outcome = outcome };
	struct job next = { .sql = "SELECT 1", .outcome = POSTERN_DONE };
	CHECK_INT(run(&scene, "a", &leaving), result);
	CHECK_INT(is_done(&scene, "a"), result == POSTERN_OK);
	CHECK_OK(run(&scene, "b", &next), &scene.error);
	CHECK_INT(next.session, leaving.session);
	CHECK_INT(next.left, 0);
	CHECK_INT(number(scene.link,
					  "SELECT count(*) FROM pg_locks WHERE locktype ="
					  " 'advisory' AND objid = 1 AND classid = 0"),
			0);
	exec(scene.link, "DROP ROLE " NOBODY);
	scene_close(&scene);
}

static void nothing_left(void) {
	check_left(POSTERN_DONE, POSTERN_OK);
}

static void nothing_left_of_a_failure(void) {
	check_left(POSTERN_RETRY, POSTERN_E_FAILED);
}

static const struct tap_case cases[] = {
	{ "first deliveries and copies in any order run once each", mixed },
	{ "a constraint that fails at the commit takes the marker with it",
			deferred_constraint },
	{ "a function that ends its transaction leaves no marker", refused_ends },
	{ "a function leaves nothing in its session", nothing_left },
	{ "a function that failed leaves nothing in its session",
			nothing_left_of_a_failure },
};

TAP_MAIN(cases)
