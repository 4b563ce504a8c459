/* SPDX-License-Identifier: MIT */

/*
 * Transactions of the PostgreSQL store that have more than one statement:
 * handlers, claims, and staged messages that are collected. What is made of a
 * COMMIT that is not answered, and what may not fail before it.
 */

#include <postern/handler.h>
#include <pthread.h>
#include <stdio.h>

#include "store/postgres/postgres.h"
#include "tap.h"
#include "unit/postgres_scene.h"

/* A transaction on a thread of its own. */
struct act {
	struct scene *scene;
	bool ahead;      /* a handler whose statements are sent ahead */
	const char *sql; /* what it says then; NULL: nothing */
	int64_t seq;     /* of the message that it is for */
	size_t count;    /* of what was done, or told as done */
	int r;
	struct postern_error error;
};

static void run_handler(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	const struct act *act = context;
	(void)epoch;
	(void)outcome;
	if (act->sql) {
		CHECK(PQsendQueryParams(transaction, act->sql, 0, NULL, NULL, NULL,
				NULL, 1));
	}
}

static void *transact(void *context) {
	struct act *act = context;
	struct postern_store *store = act->scene->store;
	struct postern_unit unit = {
		.seq = act->seq,
		.handler = act->scene->handler,
		.fence = 1,
		.sends_ahead = act->ahead,
		.context = act,
		.run = run_handler,
	};
	act->r = store->ops->transact(store, NODE, NULL, &unit, 1, &act->error);
	act->count = unit.committed;
	return NULL;
}

static void *claim(void *context) {
	struct act *act = context;
	struct postern_claims claims = { 0 };
	act->r = scene_try_claim(act->scene, 10, &claims);
	act->count = claims.count;
	return NULL;
}

/* As what a staged message is accepted: leased by whoever collects. */
static int place(void *context, int64_t channel,
		const struct postern_message *message, struct postern_accept *accept,
		struct postern_error *error) {
	struct act *act = context;
	struct postern_memory *memory = act->scene->memory;
	struct postern_message *copy = postern_memory_alloc(memory, sizeof *copy);
	struct postern_route *route = postern_memory_alloc(memory, sizeof *route);
	(void)error;
	if (!CHECK(copy && route)) {
		return POSTERN_E_NOMEM;
	}
	*copy = *message;
	*route = (struct postern_route){
		.handler = act->scene->handler,
		.lease = true,
	};
	*accept = (struct postern_accept){
		.message = copy,
		.channel = channel,
		.routes = route,
		.route_count = 1,
	};
	return POSTERN_OK;
}

static void *collect(void *context) {
	struct act *act = context;
	struct postern_store *store = act->scene->store;
	struct postern_collection collection = {
		.node = NODE,
		.channels = &act->scene->channel,
		.channel_count = 1,
		.max = 10,
		.bytes_max = 1000000,
		.place = place,
		.context = act,
	};
	act->r = store->ops->collect(store, &collection, act->scene->memory,
			&act->error);
	act->count = act->r == POSTERN_OK ? collection.accept_count : 0;
	return NULL;
}

static void publish(struct scene *scene) {
	scene_run(scene->link,
			"SELECT " SCHEMA ".publish('orders', 'order.paid', 'body'::text)");
}

/* The transaction commits, its answer is lost, and `undo` is done to what it
   wrote before anybody can look. So it is after a crash of the server, when
   another transaction has got the same number. */
static void commit_for_another(struct scene *scene, struct act *act,
		void *(*run)(void *), const char *what, const char *table,
		const char *undo) {
	char sql[500];
	pthread_t thread;
	scene_block_commit(scene, what, table);
	(void)snprintf(sql, sizeof sql,
			"CREATE FUNCTION " SCHEMA ".undo() RETURNS trigger"
			" LANGUAGE plpgsql AS $$ BEGIN %s; RETURN NULL; END $$;"
			"CREATE CONSTRAINT TRIGGER undo AFTER %s ON " SCHEMA ".%s"
			" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
			" EXECUTE FUNCTION " SCHEMA ".undo()",
			undo, what, table);
	scene_run(scene->link, sql);
	CHECK_INT(pthread_create(&thread, NULL, run, act), 0);
	CHECK(scene_wait_commit_blocked(scene, table));
	scene_cut_connections(scene);
	scene_unblock_commit(scene, table);
	(void)pthread_join(thread, NULL);
	CHECK_INT(act->r, POSTERN_E_UNAVAILABLE);
	CHECK_INT(act->count, 0);
}

static void handled_by_another(void) {
	for (int ahead = 0; ahead < 2; ahead++) {
		struct scene scene;
		struct act act = { .scene = &scene, .ahead = ahead };
		struct postern_accept accept;
		scene_open_without_timeouts(&scene);
		CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
		act.seq = accept.seq;
		commit_for_another(&scene, &act, transact, "INSERT", "ledger",
				"DELETE FROM " SCHEMA ".ledger");
		scene_close(&scene);
	}
}

static void claimed_by_another(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	struct postern_accept accept;
	struct postern_route route;
	scene_open_without_timeouts(&scene);
	CHECK_OK(scene_accept(&scene, NODE, "1", false, &accept, &route),
			&scene.error);
	commit_for_another(&scene, &act, claim, "UPDATE", "open",
			"UPDATE " SCHEMA ".open SET node = NULL WHERE node = 42");
	scene_close(&scene);
}

static void collected_by_another(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	scene_open_without_timeouts(&scene);
	publish(&scene);
	commit_for_another(&scene, &act, collect, "INSERT", "message",
			"DELETE FROM " SCHEMA ".message");
	scene_close(&scene);
}

/* The same, and all of it is there. */
static void collected_unheard(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	publish(&scene);
	scene_block_commit(&scene, "INSERT", "message");
	CHECK_INT(pthread_create(&thread, NULL, collect, &act), 0);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	scene_cut_connections(&scene);
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(thread, NULL);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(act.count, 1);
	scene_close(&scene);
}

/* It commits after it was given up: nobody here knows of the lease. */
static void collected_too_late(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	bool alive = false;
	scene_open(&scene);
	publish(&scene);
	scene_block_commit(&scene, "INSERT", "message");
	(void)collect(&act);
	CHECK_INT(act.r, POSTERN_E_TIMEOUT);
	scene_unblock_commit(&scene, "message");
	CHECK(scene_wait_for(&scene,
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 42", 1));
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK(alive);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open"
					  " WHERE node IS NULL AND fence = 1 AND starts = 0"),
			1);
	scene_close(&scene);
}

/* The statement that accepts has a name on the server, until a handler in the
   same session takes it away. In a transaction that would be its end. */
static void collected_without_name(void) {
	struct scene scene;
	struct act act = {
		.scene = &scene,
		.ahead = true,
		.sql = "DEALLOCATE postern_apply",
	};
	struct postern_accept accept;
	scene_open_without_timeouts(&scene);
	/* The first is told by whom it was done, the second has a name. */
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK_OK(scene_accept_leased(&scene, NODE, "2", &accept), &scene.error);
	act.seq = accept.seq;
	(void)transact(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(act.count, 1);
	publish(&scene);
	(void)collect(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(act.count, 1);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			3);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".staged"),
			0);
	scene_close(&scene);
}

/* The server fails at one of the messages, for a reason of its own. */
static void collected_later(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	scene_open_without_timeouts(&scene);
	publish(&scene);
	publish(&scene);
	publish(&scene);
	scene_run(scene.link,
			"CREATE FUNCTION " SCHEMA ".fail() RETURNS trigger"
			" LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = (SELECT id FROM " SCHEMA
			".staged WHERE n = 2) THEN RAISE 'cache lookup failed'"
			" USING ERRCODE = 'internal_error'; END IF; RETURN NEW; END $$;"
			"CREATE TRIGGER fail BEFORE INSERT ON " SCHEMA ".message"
			" FOR EACH ROW EXECUTE FUNCTION " SCHEMA ".fail()");
	(void)collect(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			2);
	CHECK_INT(scene_number(scene.link, "SELECT n FROM " SCHEMA ".staged"
									   " WHERE refused IS NULL"),
			2);
	scene_run(scene.link, "DROP TRIGGER fail ON " SCHEMA ".message");
	(void)collect(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(act.count, 1);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			3);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".staged"),
			0);
	scene_close(&scene);
}

static void *accept_beside(void *context) {
	struct act *act = context;
	struct postern_accept accept;
	act->r = scene_accept_leased(act->scene, NODE, "1", &accept);
	return NULL;
}

static int64_t staged_count(struct scene *scene) {
	return scene_number(scene->link,
			"SELECT count(*) FROM " SCHEMA ".staged WHERE refused IS NULL");
}

/* Another transaction, still open, accepts a message of the same id. Nobody
   knows yet whether the staged one is its duplicate, so it stays staged; what
   was staged beside it is accepted. */
static void collected_when_free(void) {
	struct scene scene;
	struct act sender = { .scene = &scene };
	struct act act = { .scene = &scene };
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	scene_block_commit(&scene, "INSERT", "message");
	CHECK_INT(pthread_create(&thread, NULL, accept_beside, &sender), 0);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	scene_run(scene.link,
			"SELECT " SCHEMA ".publish('orders', 'order.paid', 'body'::text,"
			" n::text, 'shop') FROM generate_series(0, 2) AS n");
	postern__pg_from_base(scene.store)->lock_timeout_ms = 10;
	(void)collect(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(staged_count(&scene), 1);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			2);
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(thread, NULL);
	CHECK_OK(sender.r, &scene.error);
	(void)collect(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(act.count, 1);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".staged"),
			0);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			3);
	scene_close(&scene);
}

static int look_nowhere(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)connection;
	(void)context;
	(void)again;
	(void)error;
	FAIL("there is nothing to look for");
	return POSTERN_OK;
}

/* The answer to COMMIT is lost with the server, which comes back without the
   number ever having been given. */
static void lost_number(void) {
	struct scene scene;
	struct pg_connection *connection;
	scene_open_with(&scene, PATIENCE_MS);
	CHECK_OK(postern__pg_take(postern__pg_from_base(scene.store), &connection,
					 &scene.error),
			&scene.error);
	CHECK_OK(postern__pg_begin(connection, &scene.error), &scene.error);
	scene_cut_connections(&scene);
	CHECK_INT(postern__pg_finish_known(connection, INT64_C(1) << 40,
					  look_nowhere, NULL, POSTERN_OK, &scene.error),
			POSTERN_E_UNAVAILABLE);
	postern__pg_give(connection);
	scene_close(&scene);
}

/* It is the last that was given, and not done yet. */
static void last_number(void) {
	struct scene scene;
	struct pg_connection *connection;
	scene_open(&scene);
	CHECK_OK(postern__pg_take(postern__pg_from_base(scene.store), &connection,
					 &scene.error),
			&scene.error);
	CHECK_OK(postern__pg_begin(connection, &scene.error), &scene.error);
	scene.second = scene_connect();
	scene_run(scene.second, "BEGIN");
	int64_t xid = scene_number(scene.second, "SELECT pg_current_xact_id()");
	scene_cut_connections(&scene);
	CHECK_INT(postern__pg_finish_known(connection, xid, look_nowhere, NULL,
					  POSTERN_OK, &scene.error),
			POSTERN_E_TIMEOUT);
	CHECK_CONTAINS(scene.error.text, "still under way");
	postern__pg_give(connection);
	PQfinish(scene.second);
	scene.second = NULL;
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a transaction whose number was never given has not committed",
			lost_number },
	{ "a transaction that is under way is waited for, also the last",
			last_number },
	{ "what is not in the ledger was not handled, whatever its number says",
			handled_by_another },
	{ "what is not leased was not claimed, whatever its number says",
			claimed_by_another },
	{ "what is not stored was not collected, whatever its number says",
			collected_by_another },
	{ "what was collected unheard is told as collected", collected_unheard },
	{ "what was leased by collecting that was given up is given back",
			collected_too_late },
	{ "what is staged is collected after a handler has undone a name",
			collected_without_name },
	{ "a staged message at which the server fails is collected later",
			collected_later },
	{ "a staged message that is blocked stays staged until it is free",
			collected_when_free },
};

TAP_MAIN(cases)
