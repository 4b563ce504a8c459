/* SPDX-License-Identifier: MIT */

/*
 * Uncertain leases: the PostgreSQL store gets no reply from the database, and a
 * batch or a claim commits after the store has given it up. Its leases are
 * returned, once, and a statement that nobody waits for is not started.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "store/postgres/postgres.h"
#include "tap.h"
#include "unit/postgres_scene.h"

/* A batch that commits after the store has given it up. */
static void accept_after_timeout(struct scene *scene, const char *id) {
	struct postern_accept accept;
	scene_run(scene->link, "BEGIN; LOCK TABLE " SCHEMA ".seen");
	CHECK_INT(scene_accept_leased(scene, NODE, id, &accept), POSTERN_E_TIMEOUT);
	CHECK_CONTAINS(scene->error.text, "did not respond");
	scene_run(scene->link, "COMMIT");
	CHECK(scene_wait_for(scene,
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 42", 1));
}

static void lease_returned(void) {
	struct scene scene;
	bool alive = false;
	scene_open(&scene);
	accept_after_timeout(&scene, "1");
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
	/* No lease is uncertain any more: the next recovery returns none. */
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			1);
	scene_close(&scene);
}

/* The backend is stopped before it reads the batch. The recovery raises the
   node's round, so the batch fails when the backend continues. */
static void unstarted_never_runs(void) {
	struct scene scene;
	struct postern_accept accept;
	bool alive = false;
	scene_open(&scene);
	pid_t backend = (pid_t)scene_number(scene.link,
			"SELECT max(pid) FROM pg_stat_activity"
			" WHERE application_name = 'postern'");
	/* The store has reserved numbers for a second, so the batch below is its
	   only statement. */
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
	char session_sql[80];
	(void)snprintf(session_sql, sizeof session_sql,
			"SELECT count(*) FROM pg_stat_activity WHERE pid = %d",
			(int)backend);
	CHECK(scene_wait_for(&scene, session_sql, 0));
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			1);
	/* What is sent from now on runs. */
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			1);
	scene_close(&scene);
}

/* A lease of another handler of the same message is not uncertain. */
static void other_handler_kept(void) {
	struct scene scene;
	bool alive = false;
	scene_open(&scene);
	accept_after_timeout(&scene, "1");
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

static void *cut_during_commit(void *context) {
	struct scene *scene = context;
	CHECK(scene_wait_commit_blocked(scene, "message"));
	scene_cut_connections(scene);
	return NULL;
}

/* The connection is cut while the batch commits, and the second attempt waits
   for the first until its lock timeout. */
static void returned_after_busy(void) {
	struct scene scene;
	struct postern_accept accept;
	pthread_t cutter;
	bool alive = false;
	scene_open_with(&scene, PATIENCE_MS);
	scene_block_commit(&scene, "INSERT", "message");
	CHECK_INT(pthread_create(&cutter, NULL, cut_during_commit, &scene), 0);
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

/* Two batches are given up, one of the node and one under its former node id,
   and both commit. */
static void former_node_given_up(void) {
	struct scene scene;
	struct postern_accept accept;
	bool alive = false;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	accept_after_timeout(&scene, "1");
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

/* A claim that commits after the store has given it up. */
static void claim_after_timeout(struct scene *scene) {
	struct postern_accept accept;
	struct postern_claims claims = { 0 };
	CHECK_OK(scene_accept_leased(scene, 7, "1", &accept), &scene->error);
	scene_block_commit(scene, "UPDATE", "open");
	CHECK_INT(scene_try_claim(scene, 10, &claims), POSTERN_E_TIMEOUT);
	scene_unblock_commit(scene, "open");
	CHECK(scene_wait_for(scene,
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 42", 1));
}

static void claim_returned(void) {
	struct scene scene;
	bool alive = false;
	scene_open(&scene);
	claim_after_timeout(&scene);
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open"
					  " WHERE node IS NULL AND fence = 1 AND starts = 0"),
			1);
	scene_close(&scene);
}

/* A handler of the node has a long transaction open meanwhile. */
static void claims_while_uncertain(void) {
	struct scene scene;
	struct postern_claimed claimed = { 0 };
	scene_open(&scene);
	claim_after_timeout(&scene);
	PGconn *link = scene_connect();
	scene_run(link,
			"BEGIN; SELECT " SCHEMA ".begin_units_1(42, NULL, NULL, 1)");
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 2);
	scene_run(link, "ROLLBACK");
	PQfinish(link);
	scene_close(&scene);
}

/* A lease is uncertain while a handler of the node has a transaction open. */
static void renewed_while_uncertain(void) {
	struct scene scene;
	bool alive = false;
	scene_open(&scene);
	accept_after_timeout(&scene, "1");
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
	accept_after_timeout(&scene, "1");
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK_INT(accept.code, POSTERN_E_DUPLICATE);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			1);
	scene_close(&scene);
}

/* A return, too, may run after it was given up and repeated, when the delivery
   has been claimed again. */
static void returned_late(void) {
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

/* Leases are returned while another session has locked the first delivery. */
static void returned_in_order(void) {
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
	/* Neither the node's row nor a delivery after the first is locked: sessions
	   that lock in the same order cannot deadlock. */
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

/* The uncertain lease was recovered, and the node claimed the delivery again:
   that lease has another fence and is not uncertain. */
static void claimed_since(void) {
	struct scene scene;
	struct postern_claimed claimed = { 0 };
	bool alive = false;
	scene_open(&scene);
	accept_after_timeout(&scene, "1");
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

static void *renew_thread(void *context) {
	bool alive = false;
	CHECK_INT(scene_renew_and_recover(context, NODE, &alive), POSTERN_OK);
	CHECK(alive);
	return NULL;
}

/* Another lease becomes uncertain while leases are returned: the next renewal
   returns it. */
static void uncertain_meanwhile(void) {
	struct scene scene;
	struct postern_accept accept;
	pthread_t thread;
	scene_open(&scene);
	accept_after_timeout(&scene, "1");
	CHECK_OK(scene_accept_leased(&scene, NODE, "2", &accept), &scene.error);
	scene_disable_timeouts(&scene);
	scene.second = scene_connect();
	scene_run(scene.second, "BEGIN; SELECT pg_advisory_xact_lock_shared(-42)");
	CHECK_INT(pthread_create(&thread, NULL, renew_thread, &scene), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	const struct pg_lease lease = { accept.seq, scene.handler, 1 };
	postern__pg_note_uncertain_leases(postern__pg_from_base(scene.store), NODE,
			&lease, 1, false);
	scene_run(scene.second, "COMMIT");
	(void)pthread_join(thread, NULL);
	static const char leased_sql[] =
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = 42";
	CHECK_INT(scene_number(scene.link, leased_sql), 1);
	(void)renew_thread(&scene);
	CHECK_INT(scene_number(scene.link, leased_sql), 0);
	PQfinish(scene.second);
	scene.second = NULL;
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "leases of a batch that commits after its timeout are returned",
			lease_returned },
	{ "a batch that the server had not started at its timeout never runs",
			unstarted_never_runs },
	{ "a later lease of the same message is not returned", other_handler_kept },
	{ "leases of the first of two attempts are returned", returned_after_busy },
	{ "leases of a claim that commits after its timeout are returned",
			claim_returned },
	{ "a batch of a former node id keeps the uncertain leases of the live node",
			former_node_given_up },
	{ "a node is renewed whatever leases are uncertain",
			renewed_while_uncertain },
	{ "claims continue after an uncertain one, whatever handlers do",
			claims_while_uncertain },
	{ "a message accepted after its timeout is a duplicate when sent again",
			sent_again },
	{ "a late return does not end a newer lease", returned_late },
	{ "leases are returned in the order of deliveries, the node's row last",
			returned_in_order },
	{ "an uncertain lease that was claimed again since is kept",
			claimed_since },
	{ "a lease that becomes uncertain during a renewal waits for the next",
			uncertain_meanwhile },
};

TAP_MAIN(cases)
