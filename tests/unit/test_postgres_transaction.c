/* SPDX-License-Identifier: MIT */

/*
 * Transactions of the PostgreSQL store with more than one statement: handlers,
 * claims and the collection of staged messages. What happens when the reply to
 * COMMIT is lost, and what must not fail before it.
 */

#include <postern/handler.h>
#include <pthread.h>
#include <stdio.h>

#include "store/postgres/postgres.h"
#include "tap.h"
#include "unit/postgres_scene.h"

/* A transaction that runs in a thread of its own. */
struct act {
	struct scene *scene;
	bool ahead;      /* its handler's statements are sent ahead */
	const char *sql; /* sent by the handler; NULL: nothing */
	int64_t seq;     /* of its message */
	size_t count;    /* of items that were reported as done */
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

static void *transact_thread(void *context) {
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

static void *claim_thread(void *context) {
	struct act *act = context;
	struct postern_claims claims = { 0 };
	act->r = scene_try_claim(act->scene, 10, &claims);
	act->count = claims.count;
	return NULL;
}

/* Routes a staged message to the handler, leased by the collecting node. */
static int place_leased(void *context, int64_t channel,
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
		.key = postern__dedupe_key_by_id(copy),
		.channel = channel,
		.routes = route,
		.route_count = 1,
	};
	return POSTERN_OK;
}

static void *collect_thread(void *context) {
	struct act *act = context;
	struct postern_store *store = act->scene->store;
	struct postern_collection collection = {
		.node = NODE,
		.channels = &act->scene->channel,
		.channel_count = 1,
		.max = 10,
		.bytes_max = 1000000,
		.place = place_leased,
		.context = act,
	};
	act->r = store->ops->collect(store, &collection, act->scene->memory,
			&act->error);
	act->count = act->r == POSTERN_OK ? collection.accept_count : 0;
	return NULL;
}

static void publish_one(struct scene *scene) {
	scene_run(scene->link,
			"SELECT " SCHEMA ".publish('orders', 'order.paid', 'body'::text)");
}

/* The transaction commits, its reply is lost, and `undo` reverts its writes
   before the store can check them. This is the state after a crash of the
   server, when another transaction has been given the same id. */
static void commit_and_undo(struct scene *scene, struct act *act,
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

static void handled_xid_reused(void) {
	for (int ahead = 0; ahead < 2; ahead++) {
		struct scene scene;
		struct act act = { .scene = &scene, .ahead = ahead };
		struct postern_accept accept;
		scene_open_without_timeouts(&scene);
		CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
		act.seq = accept.seq;
		commit_and_undo(&scene, &act, transact_thread, "INSERT", "ledger",
				"DELETE FROM " SCHEMA ".ledger");
		scene_close(&scene);
	}
}

static void claimed_xid_reused(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	struct postern_accept accept;
	struct postern_route route;
	scene_open_without_timeouts(&scene);
	CHECK_OK(scene_accept(&scene, NODE, "1", false, &accept, &route),
			&scene.error);
	commit_and_undo(&scene, &act, claim_thread, "UPDATE", "open",
			"UPDATE " SCHEMA ".open SET node = NULL WHERE node = 42");
	scene_close(&scene);
}

static void collected_xid_reused(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	scene_open_without_timeouts(&scene);
	publish_one(&scene);
	commit_and_undo(&scene, &act, collect_thread, "INSERT", "message",
			"DELETE FROM " SCHEMA ".message");
	scene_close(&scene);
}

/* The same without `undo`. */
static void collected_reply_lost(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	publish_one(&scene);
	scene_block_commit(&scene, "INSERT", "message");
	CHECK_INT(pthread_create(&thread, NULL, collect_thread, &act), 0);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	scene_cut_connections(&scene);
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(thread, NULL);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(act.count, 1);
	scene_close(&scene);
}

/* The collection commits after its timeout: the node does not know of the
   lease. */
static void collected_after_timeout(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	bool alive = false;
	scene_open(&scene);
	publish_one(&scene);
	scene_block_commit(&scene, "INSERT", "message");
	(void)collect_thread(&act);
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

/* The accept statement is prepared on the server until a handler in the same
   session deallocates it. Inside a transaction the missing statement would
   abort it. */
static void collected_without_name(void) {
	struct scene scene;
	struct act act = {
		.scene = &scene,
		.ahead = true,
		.sql = "DEALLOCATE postern_apply",
	};
	struct postern_accept accept;
	scene_open_without_timeouts(&scene);
	/* The statement is prepared when it runs a second time. */
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK_OK(scene_accept_leased(&scene, NODE, "2", &accept), &scene.error);
	act.seq = accept.seq;
	(void)transact_thread(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(act.count, 1);
	publish_one(&scene);
	(void)collect_thread(&act);
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

/* The server fails on one of the messages, with an internal error. */
static void collected_later(void) {
	struct scene scene;
	struct act act = { .scene = &scene };
	scene_open_without_timeouts(&scene);
	publish_one(&scene);
	publish_one(&scene);
	publish_one(&scene);
	scene_run(scene.link,
			"CREATE FUNCTION " SCHEMA ".fail() RETURNS trigger"
			" LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = (SELECT id FROM " SCHEMA
			".staged WHERE n = 2) THEN RAISE 'cache lookup failed'"
			" USING ERRCODE = 'internal_error'; END IF; RETURN NEW; END $$;"
			"CREATE TRIGGER fail BEFORE INSERT ON " SCHEMA ".message"
			" FOR EACH ROW EXECUTE FUNCTION " SCHEMA ".fail()");
	(void)collect_thread(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			2);
	CHECK_INT(scene_number(scene.link, "SELECT n FROM " SCHEMA ".staged"
									   " WHERE refused IS NULL"),
			2);
	scene_run(scene.link, "DROP TRIGGER fail ON " SCHEMA ".message");
	(void)collect_thread(&act);
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

static void *accept_thread(void *context) {
	struct act *act = context;
	struct postern_accept accept;
	act->r = scene_accept_leased(act->scene, NODE, "1", &accept);
	return NULL;
}

static int64_t staged_count(struct scene *scene) {
	return scene_number(scene->link,
			"SELECT count(*) FROM " SCHEMA ".staged WHERE refused IS NULL");
}

/* Another open transaction accepts a message with the same id. Whether the
   staged one is its duplicate is undecided, so it stays staged; the other
   staged messages are accepted. */
static void collected_when_unblocked(void) {
	struct scene scene;
	struct act sender = { .scene = &scene };
	struct act act = { .scene = &scene };
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	scene_block_commit(&scene, "INSERT", "message");
	CHECK_INT(pthread_create(&thread, NULL, accept_thread, &sender), 0);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	scene_run(scene.link,
			"SELECT " SCHEMA ".publish('orders', 'order.paid', 'body'::text,"
			" n::text, 'shop') FROM generate_series(0, 2) AS n");
	postern__pg_from_base(scene.store)->lock_timeout_ms = 10;
	(void)collect_thread(&act);
	CHECK_OK(act.r, &act.error);
	CHECK_INT(staged_count(&scene), 1);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			2);
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(thread, NULL);
	CHECK_OK(sender.r, &scene.error);
	(void)collect_thread(&act);
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

static int fail_on_check(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)connection;
	(void)context;
	(void)again;
	(void)error;
	FAIL("the result of an unknown transaction must not be checked");
	return POSTERN_OK;
}

/* The reply to COMMIT is lost in a crash of the server, which restarts without
   having assigned the transaction id. */
static void unassigned_xid(void) {
	struct scene scene;
	struct pg_connection *connection;
	scene_open_with(&scene, PATIENCE_MS);
	CHECK_OK(postern__pg_acquire(postern__pg_from_base(scene.store),
					 &connection, &scene.error),
			&scene.error);
	CHECK_OK(postern__pg_begin(connection, &scene.error), &scene.error);
	scene_cut_connections(&scene);
	CHECK_INT(postern__pg_finish_known(connection, INT64_C(1) << 40,
					  fail_on_check, NULL, POSTERN_OK, &scene.error),
			POSTERN_E_UNAVAILABLE);
	postern__pg_release(connection);
	scene_close(&scene);
}

/* The transaction has the highest id and is still in progress. */
static void highest_xid(void) {
	struct scene scene;
	struct pg_connection *connection;
	scene_open(&scene);
	CHECK_OK(postern__pg_acquire(postern__pg_from_base(scene.store),
					 &connection, &scene.error),
			&scene.error);
	CHECK_OK(postern__pg_begin(connection, &scene.error), &scene.error);
	scene.second = scene_connect();
	scene_run(scene.second, "BEGIN");
	int64_t xid = scene_number(scene.second, "SELECT pg_current_xact_id()");
	scene_cut_connections(&scene);
	CHECK_INT(postern__pg_finish_known(connection, xid, fail_on_check, NULL,
					  POSTERN_OK, &scene.error),
			POSTERN_E_TIMEOUT);
	CHECK_CONTAINS(scene.error.text, "still in progress");
	postern__pg_release(connection);
	PQfinish(scene.second);
	scene.second = NULL;
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a transaction whose id was never assigned has not committed",
			unassigned_xid },
	{ "the store waits for a transaction in progress, also the last one",
			highest_xid },
	{ "a unit without its ledger row has not committed, even if its id has",
			handled_xid_reused },
	{ "a claim without its leases has not committed, even if its id has",
			claimed_xid_reused },
	{ "a collection without its messages has not committed, even if its id has",
			collected_xid_reused },
	{ "a collection whose reply was lost is reported as collected",
			collected_reply_lost },
	{ "leases of a collection that commits after its timeout are returned",
			collected_after_timeout },
	{ "staged messages are collected after a handler deallocates the statement",
			collected_without_name },
	{ "a staged message on which the server fails is collected later",
			collected_later },
	{ "a staged message that is blocked stays staged until it is unblocked",
			collected_when_unblocked },
};

TAP_MAIN(cases)
