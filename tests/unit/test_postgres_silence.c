/* SPDX-License-Identifier: MIT */

/*
 * Connections to PostgreSQL that stop responding without being closed, or that
 * are cut when the pool has no other. One of them does not block the others
 * until the command timeout, and never the renewal of the node.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "store/postgres/postgres.h"
#include "tap.h"
#include "unit/postgres_scene.h"

/* A renewal waits for at most a third of it. */
#define LEASE_MS 6000

static struct pg_store *store_of(const struct scene *scene) {
	return postern__pg_from_base(scene->store);
}

/* The only connected one of the pool. */
static struct pg_connection *connection_of(const struct scene *scene) {
	struct pg_connection *connection = store_of(scene)->connections;
	while (!connection->link) {
		connection++;
	}
	return connection;
}

/* The backend of the newest connection of the store. */
static pid_t newest_backend(struct scene *scene) {
	return (pid_t)scene_number(scene->link,
			"SELECT pid FROM pg_stat_activity WHERE application_name ="
			" 'postern' ORDER BY backend_start DESC LIMIT 1");
}

/* Stop the backend: the connection accepts data and does not respond. */
static bool stop_backend(struct scene *scene, pid_t backend) {
	char sql[120];
	(void)snprintf(sql, sizeof sql,
			"SELECT count(*) FROM pg_stat_activity"
			" WHERE pid = %d AND wait_event = 'ClientRead'",
			(int)backend);
	return CHECK(scene_wait_for(scene, sql, 1)) &&
		   CHECK_INT(kill(backend, SIGSTOP), 0);
}

/* A message that is sent by a thread of its own. */
struct sender {
	struct scene *scene;
	struct postern_accept accept;
	int r;
	pthread_t thread;
};

static void *send_message(void *context) {
	struct sender *sender = context;
	sender->r = scene_accept_leased(sender->scene, NODE, "1", &sender->accept);
	return NULL;
}

static int renew(struct scene *scene, bool *alive_out) {
	return scene->store->ops->renew(scene->store, NODE, LEASE_MS, alive_out,
			&scene->error);
}

/* The command timeout is not reached. */
static void batch_sent_again(void) {
	struct scene scene;
	struct postern_accept accept;
	scene_open_without_timeouts(&scene);
	pid_t backend = newest_backend(&scene);
	if (stop_backend(&scene, backend)) {
		CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
		CHECK_INT(accept.code, POSTERN_OK);
		CHECK_INT(kill(backend, SIGCONT), 0);
	}
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			1);
	scene_close(&scene);
}

/* A session that runs a statement is kept, however long it takes. */
static void slow_statement_kept(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	scene_open_without_timeouts(&scene);
	struct pg_connection *connection = connection_of(&scene);
	pid_t backend = PQbackendPID(connection->link);
	store_of(&scene)->silence_ms = 10;
	PGconn *blocker = scene_connect();
	scene_run(blocker, "BEGIN; LOCK TABLE " SCHEMA ".seen");
	CHECK_INT(pthread_create(&sender.thread, NULL, send_message, &sender), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	/* The waiting thread may check the session at the same time. */
	for (int i = 0; i < 3; i++) {
		CHECK_INT(postern__pg_ask_session(connection), PG_SESSION_WORKING);
	}
	scene_run(blocker, "COMMIT");
	(void)pthread_join(sender.thread, NULL);
	CHECK_OK(sender.r, &scene.error);
	CHECK_INT(PQbackendPID(connection->link), backend);
	PQfinish(blocker);
	scene_close(&scene);
}

/* The process id of a session may belong to a later session, which must not be
   ended. */
static void lost_session(void) {
	struct scene scene;
	struct postern_accept accept;
	scene_open_without_timeouts(&scene);
	struct pg_connection *connection = connection_of(&scene);
	const PGconn *link = connection->link;
	connection->session_start++; /* an earlier session with this pid */
	CHECK_INT(postern__pg_ask_session(connection), PG_SESSION_SILENT);
	connection->session_start--;
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK(connection->link == link);
	connection->session_start = 0; /* behind a pooler */
	CHECK_INT(postern__pg_ask_session(connection), PG_SESSION_UNKNOWN);
	scene_close(&scene);
}

static void *cut_during_commit(void *context) {
	struct scene *scene = context;
	CHECK(scene_wait_commit_blocked(scene, "open"));
	scene_cut_connections(scene);
	scene_unblock_commit(scene, "open");
	return NULL;
}

/* The only connection of the pool is cut in COMMIT. */
static void commit_checked_on_own_slot(void) {
	struct scene scene;
	struct postern_accept accept;
	struct postern_route route;
	struct postern_claims claims = { 0 };
	pthread_t cutter;
	scene_open_with(&scene, 5000);
	store_of(&scene)->connection_max = 1;
	CHECK_OK(scene_accept(&scene, NODE, "1", false, &accept, &route),
			&scene.error);
	scene_block_commit(&scene, "UPDATE", "open");
	CHECK_INT(pthread_create(&cutter, NULL, cut_during_commit, &scene), 0);
	CHECK_OK(scene_try_claim(&scene, 10, &claims), &scene.error);
	CHECK_INT(claims.count, 1);
	(void)pthread_join(cutter, NULL);
	scene_close(&scene);
}

/* All connections of the pool are in use. */
static void renewed_beside_pool(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	bool alive = false;
	scene_open_with(&scene, 10000);
	store_of(&scene)->connection_max = 1;
	store_of(&scene)->lock_timeout_ms = PATIENCE_MS;
	PGconn *blocker = scene_connect();
	scene_run(blocker, "BEGIN; LOCK TABLE " SCHEMA ".seen");
	CHECK_INT(pthread_create(&sender.thread, NULL, send_message, &sender), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	CHECK_OK(renew(&scene, &alive), &scene.error);
	CHECK(alive);
	scene_run(blocker, "COMMIT");
	(void)pthread_join(sender.thread, NULL);
	CHECK_OK(sender.r, &scene.error);
	PQfinish(blocker);
	scene_close(&scene);
}

static void renewed_in_silence(void) {
	struct scene scene;
	bool alive = false;
	scene_open_without_timeouts(&scene);
	CHECK_OK(renew(&scene, &alive), &scene.error);
	pid_t backend = newest_backend(&scene);
	if (stop_backend(&scene, backend)) {
		alive = false;
		CHECK_OK(renew(&scene, &alive), &scene.error);
		CHECK(alive);
		CHECK_INT(kill(backend, SIGCONT), 0);
	}
	scene_close(&scene);
}

/* Another thread is returning leases over a connection that does not
   respond. */
static void renewed_beside_claims(void) {
	struct scene scene;
	const struct pg_lease lease = { 1, 1, 1 };
	bool alive = false;
	scene_open_without_timeouts(&scene);
	postern__pg_note_uncertain_leases(store_of(&scene), NODE, &lease, 1, true);
	(void)pthread_mutex_lock(&store_of(&scene)->return_mutex);
	CHECK_OK(renew(&scene, &alive), &scene.error);
	CHECK(alive);
	(void)pthread_mutex_unlock(&store_of(&scene)->return_mutex);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a batch is sent again when its connection stops responding",
			batch_sent_again },
	{ "a connection with a slow statement is not given up",
			slow_statement_kept },
	{ "an ended session is distinguished from a later one with its pid",
			lost_session },
	{ "the result of a COMMIT is checked without another connection",
			commit_checked_on_own_slot },
	{ "a node is renewed while all connections of the pool are busy",
			renewed_beside_pool },
	{ "a node is renewed when its renewal connection stops responding",
			renewed_in_silence },
	{ "a node is renewed while a claim returns leases", renewed_beside_claims },
};

TAP_MAIN(cases)
