/* SPDX-License-Identifier: MIT */

/*
 * When the PostgreSQL store does not hear from the database, so that a batch or
 * a claim is carried out after it was given up: what was leased with it is
 * given back, once, and nothing is begun that nobody waits for.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "store/postgres/postgres.h"
#include "tap.h"
#include "unit/postgres_scene.h"

/* A batch that is carried out after it was given up. */
static void accept_too_late(struct scene *scene, const char *id) {
	struct postern_accept accept;
	scene_run(scene->link, "BEGIN; LOCK TABLE " SCHEMA ".seen");
	CHECK_INT(scene_accept_leased(scene, NODE, id, &accept), POSTERN_E_TIMEOUT);
	CHECK_CONTAINS(scene->error.text, "did not answer");
	scene_run(scene->link, "COMMIT");
	CHECK(scene_wait_for(scene,
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 42", 1));
}

static void given_back(void) {
	struct scene scene;
	bool alive = false;
	scene_open(&scene);
	accept_too_late(&scene, "1");
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK(alive);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open"
					  " WHERE node IS NULL AND fence = 1 AND starts = 0"),
			1);
	struct postern_claimed claimed = { 0 };
	if (CHECK_INT(scene_claim(&scene, 10, &claimed), 1)) {
		CHECK_INT(claimed.fence, 2);
	}
	/* Nothing is in doubt any more. */
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			1);
	scene_close(&scene);
}

/* A batch that had not even begun when it was looked for: its backend was not
   given a turn. It is not carried out behind everybody's back. */
static void given_up_for_good(void) {
	struct scene scene;
	struct postern_accept accept;
	bool alive = false;
	scene_open(&scene);
	pid_t backend = (pid_t)scene_number(scene.link,
			"SELECT max(pid) FROM pg_stat_activity"
			" WHERE application_name = 'postern'");
	/* For a second there are numbers at hand, and the batch is all it asks
	   for. */
	CHECK_OK(scene_accept_leased(&scene, 7, "0", &accept), &scene.error);
	if (!CHECK(backend > 0) || !CHECK_INT(kill(backend, SIGSTOP), 0)) {
		return;
	}
	CHECK_INT(scene_accept_leased(&scene, NODE, "1", &accept),
			POSTERN_E_TIMEOUT);
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			1);
	CHECK_INT(kill(backend, SIGCONT), 0);
	char gone[80];
	(void)snprintf(gone, sizeof gone,
			"SELECT count(*) FROM pg_stat_activity WHERE pid = %d",
			(int)backend);
	CHECK(scene_wait_for(&scene, gone, 0));
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			1);
	/* What is sent from now on is. */
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			1);
	scene_close(&scene);
}

/* What another handler of the message has leased meanwhile is known. */
static void other_handler_kept(void) {
	struct scene scene;
	bool alive = false;
	scene_open(&scene);
	accept_too_late(&scene, "1");
	scene_run(scene.link,
			"INSERT INTO " SCHEMA ".open SELECT seq, fence, node,"
			" due_at, since, suspect, order_hash, handler + 1,"
			" failures, starts, crashes, solo FROM " SCHEMA ".open");
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link, "SELECT handler FROM " SCHEMA ".open"
									   " WHERE node = 42"),
			scene.handler + 1);
	scene_close(&scene);
}

static void *cut_when_held_up(void *context) {
	struct scene *scene = context;
	CHECK(scene_wait_commit_blocked(scene, "message"));
	scene_cut_connections(scene);
	return NULL;
}

/* The line is cut while the batch commits, and the second try waits for the
   first until it is tired of it. */
static void given_back_after_busy(void) {
	struct scene scene;
	struct postern_accept accept;
	pthread_t cutter;
	bool alive = false;
	scene_open_with(&scene, PATIENCE_MS);
	scene_block_commit(&scene, "INSERT", "message");
	CHECK_INT(pthread_create(&cutter, NULL, cut_when_held_up, &scene), 0);
	CHECK_INT(scene_accept_leased(&scene, NODE, "1", &accept), POSTERN_E_BUSY);
	(void)pthread_join(cutter, NULL);
	scene_unblock_commit(&scene, "message");
	CHECK(scene_wait_for(&scene,
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 42", 1));
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			0);
	scene_close(&scene);
}

/* Two batches are given up: one of the node, then one that its former number
   had sent. Both are carried out. */
static void other_number_given_up(void) {
	struct scene scene;
	struct postern_accept accept;
	bool alive = false;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	accept_too_late(&scene, "1");
	scene_run(scene.link, "BEGIN; LOCK TABLE " SCHEMA ".seen");
	CHECK_INT(scene_accept_leased(&scene, FROZEN, "2", &accept),
			POSTERN_E_TIMEOUT);
	scene_run(scene.link, "COMMIT");
	CHECK(scene_wait_for(&scene,
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 43", 1));
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			0);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 43"),
			1);
	CHECK_OK(scene_renew_and_recover(&scene, FROZEN, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 43"),
			0);
	scene_close(&scene);
}

/* A claim that commits after it was given up. */
static void claim_too_late(struct scene *scene) {
	struct postern_accept accept;
	struct postern_claims claims = { 0 };
	CHECK_OK(scene_accept_leased(scene, 7, "1", &accept), &scene->error);
	scene_block_commit(scene, "UPDATE", "open");
	CHECK_INT(scene_try_claim(scene, 10, &claims), POSTERN_E_TIMEOUT);
	scene_unblock_commit(scene, "open");
	CHECK(scene_wait_for(scene,
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 42", 1));
}

static void claim_given_back(void) {
	struct scene scene;
	bool alive = false;
	scene_open(&scene);
	claim_too_late(&scene);
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open"
					  " WHERE node IS NULL AND fence = 1 AND starts = 0"),
			1);
	scene_close(&scene);
}

/* A handler of the node takes its time meanwhile. */
static void claims_in_doubt(void) {
	struct scene scene;
	struct postern_claimed claimed = { 0 };
	scene_open(&scene);
	claim_too_late(&scene);
	PGconn *link = scene_connect();
	scene_run(link,
			"BEGIN; SELECT " SCHEMA ".begin_units_1(42, NULL, NULL, 1)");
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 2);
	scene_run(link, "ROLLBACK");
	PQfinish(link);
	scene_close(&scene);
}

/* Something is in doubt while a handler of the node has a transaction open. */
static void renewed_in_doubt(void) {
	struct scene scene;
	bool alive = false;
	scene_open(&scene);
	accept_too_late(&scene, "1");
	PGconn *link = scene_connect();
	scene_run(link,
			"BEGIN; SELECT " SCHEMA ".begin_units_1(42, NULL, NULL, 1)");
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK(alive);
	scene_run(link, "ROLLBACK");
	PQfinish(link);
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			0);
	scene_close(&scene);
}

static void sent_again(void) {
	struct scene scene;
	struct postern_accept accept;
	scene_open(&scene);
	accept_too_late(&scene, "1");
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK_INT(accept.code, POSTERN_E_DUPLICATE);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			1);
	scene_close(&scene);
}

/* Giving back, too, may begin when it was given up and done over again, and the
   delivery has been claimed since. */
static void given_back_twice(void) {
	struct scene scene;
	struct postern_accept accept;
	char sql[200];
	scene_open(&scene);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	scene_run(scene.link, "UPDATE " SCHEMA ".node SET round = 6");
	for (int i = 0; i < 4; i++) {
		(void)snprintf(sql, sizeof sql,
				"SELECT " SCHEMA ".give_back_1(42, %d, NULL, '1000', %s,"
				" ARRAY[%lld], ARRAY[%lld], ARRAY[1], ARRAY[false])",
				5 + i / 2, i % 2 ? "true" : "false", (long long)accept.seq,
				(long long)scene.handler);
		scene_run(scene.link, sql);
	}
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			1);
	scene_close(&scene);
}

/* Leases are given back while somebody else has the first delivery. */
static void given_back_in_order(void) {
	struct scene scene;
	struct postern_accept first;
	struct postern_accept second;
	char sql[300];
	scene_open(&scene);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &first), &scene.error);
	CHECK_OK(scene_accept_leased(&scene, NODE, "2", &second), &scene.error);
	PGconn *giver = scene_connect();
	PGconn *other = scene_connect();
	(void)snprintf(sql, sizeof sql,
			"BEGIN; SELECT 1 FROM " SCHEMA ".open WHERE seq = %lld FOR UPDATE",
			(long long)first.seq);
	scene_run(other, sql);
	(void)snprintf(sql, sizeof sql,
			"SELECT " SCHEMA ".give_back_1(42, 5, NULL, '60000', true,"
			" ARRAY[%1$lld, %2$lld], ARRAY[%3$lld, %3$lld], ARRAY[1, 1],"
			" ARRAY[false, false])",
			(long long)second.seq, (long long)first.seq,
			(long long)scene.handler);
	CHECK_INT(PQsendQuery(giver, sql), 1);
	CHECK(scene_wait_blocked(&scene, 1));
	/* Neither the node's row nor a delivery behind the first is locked: whoever
	   takes the same in the same order waits for nobody. */
	scene_run(scene.link, "SET lock_timeout = 2000;"
						  "SELECT " SCHEMA ".renew_1(42, NULL, 60000)");
	scene_run(other, "SELECT 1 FROM " SCHEMA ".open FOR UPDATE NOWAIT");
	scene_run(other, "UPDATE " SCHEMA ".node SET works = NOT works; COMMIT");
	PGresult *result = PQgetResult(giver);
	CHECK_INT(PQresultStatus(result), PGRES_TUPLES_OK);
	PQclear(result);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"
									   " WHERE node IS NULL"),
			2);
	PQfinish(giver);
	PQfinish(other);
	scene_close(&scene);
}

/* The lease in doubt was recovered, and the node claimed the delivery again:
   that lease has another fence, and is not in doubt. */
static void claimed_since(void) {
	struct scene scene;
	struct postern_claimed claimed = { 0 };
	bool alive = false;
	scene_open(&scene);
	accept_too_late(&scene, "1");
	scene_run(scene.link, "UPDATE " SCHEMA ".open SET node = NULL");
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 2);
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open"
					  " WHERE node = 42 AND fence = 2 AND starts = 2"),
			1);
	scene_close(&scene);
}

static void *keep_node(void *context) {
	bool alive = false;
	CHECK_INT(scene_renew_and_recover(context, NODE, &alive), POSTERN_OK);
	CHECK(alive);
	return NULL;
}

/* While leases are given back another one comes to be in doubt: it is left for
   the next renewal. */
static void doubted_meanwhile(void) {
	struct scene scene;
	struct postern_accept accept;
	pthread_t thread;
	scene_open(&scene);
	accept_too_late(&scene, "1");
	CHECK_OK(scene_accept_leased(&scene, NODE, "2", &accept), &scene.error);
	scene_disable_timeouts(&scene);
	scene.second = scene_connect();
	scene_run(scene.second, "BEGIN; SELECT pg_advisory_xact_lock_shared(-42)");
	CHECK_INT(pthread_create(&thread, NULL, keep_node, &scene), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	const struct pg_lease lease = { accept.seq, scene.handler, 1 };
	postern__pg_doubt(postern__pg_from_base(scene.store), NODE, &lease, 1,
			false);
	scene_run(scene.second, "COMMIT");
	(void)pthread_join(thread, NULL);
	static const char leased_sql[] =
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 42";
	CHECK_INT(scene_number(scene.link, leased_sql), 1);
	(void)keep_node(&scene);
	CHECK_INT(scene_number(scene.link, leased_sql), 0);
	PQfinish(scene.second);
	scene.second = NULL;
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "what was leased after it was given up is given back", given_back },
	{ "what the server had not begun with when it was given up never will be",
			given_up_for_good },
	{ "what was leased of the same message later is not given back",
			other_handler_kept },
	{ "what was leased by the first of two tries is given back",
			given_back_after_busy },
	{ "what was claimed after it was given up is given back",
			claim_given_back },
	{ "a batch of a former node number leaves the doubts of the living node",
			other_number_given_up },
	{ "a node is renewed whatever is in doubt", renewed_in_doubt },
	{ "claims go on when one was in doubt, whatever handlers do",
			claims_in_doubt },
	{ "what was accepted after it was given up is a duplicate then",
			sent_again },
	{ "what is given back late takes no lease that was made since",
			given_back_twice },
	{ "leases are given back in the order of deliveries, the node's row last",
			given_back_in_order },
	{ "a lease in doubt that was claimed again since is kept", claimed_since },
	{ "what comes to be in doubt during a renewal waits for the next",
			doubted_meanwhile },
};

TAP_MAIN(cases)
