/* SPDX-License-Identifier: MIT */

/*
 * Connections to PostgreSQL that stop answering without being closed, or that
 * are cut when there is no other: one of them does not hold up the others for
 * as long as a command may take, and never the renewal of the node.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "store/postgres/postgres.h"
#include "tap.h"
#include "unit/postgres_scene.h"

/* A third of it is what a renewal waits for. */
#define LEASE_MS 6000

static struct pg_store *store_of(const struct scene *scene) {
	return postern__pg_from_base(scene->store);
}

/* The only one of the pool that is connected. */
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

/* It gets what is sent to it, and does not answer. */
static bool silence(struct scene *scene, pid_t backend) {
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

/* The command timeout is far away. */
static void given_up(void) {
	struct scene scene;
	struct postern_accept accept;
	scene_open_without_timeouts(&scene);
	pid_t backend = newest_backend(&scene);
	if (silence(&scene, backend)) {
		CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
		CHECK_INT(accept.code, POSTERN_OK);
		CHECK_INT(kill(backend, SIGCONT), 0);
	}
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			1);
	scene_close(&scene);
}

/* A session that works for its client is left alone, however long it takes. */
static void slow_is_left_alone(void) {
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
	/* The thread that waits may ask as well. */
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

/* The process id of a session may belong to a later one, which is not ended. */
static void lost_session(void) {
	struct scene scene;
	struct postern_accept accept;
	scene_open_without_timeouts(&scene);
	struct pg_connection *connection = connection_of(&scene);
	const PGconn *link = connection->link;
	connection->session_start++; /* of an earlier session with this number */
	CHECK_INT(postern__pg_ask_session(connection), PG_SESSION_SILENT);
	connection->session_start--;
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK(connection->link == link);
	connection->session_start = 0; /* behind a pooler */
	CHECK_INT(postern__pg_ask_session(connection), PG_SESSION_UNKNOWN);
	scene_close(&scene);
}

static void *cut_when_held_up(void *context) {
	struct scene *scene = context;
	CHECK(scene_wait_commit_blocked(scene, "open"));
	scene_cut_connections(scene);
	scene_unblock_commit(scene, "open");
	return NULL;
}

/* The only connection of the pool is cut in COMMIT. */
static void asked_on_own_place(void) {
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
	CHECK_INT(pthread_create(&cutter, NULL, cut_when_held_up, &scene), 0);
	CHECK_OK(scene_try_claim(&scene, 10, &claims), &scene.error);
	CHECK_INT(claims.count, 1);
	(void)pthread_join(cutter, NULL);
	scene_close(&scene);
}

/* All connections of the pool wait for something. */
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
	if (silence(&scene, backend)) {
		alive = false;
		CHECK_OK(renew(&scene, &alive), &scene.error);
		CHECK(alive);
		CHECK_INT(kill(backend, SIGCONT), 0);
	}
	scene_close(&scene);
}

/* Somebody else is giving back leases, over a connection that does not
   answer. */
static void renewed_beside_claims(void) {
	struct scene scene;
	const struct pg_lease lease = { 1, 1, 1 };
	bool alive = false;
	scene_open_without_timeouts(&scene);
	postern__pg_doubt(store_of(&scene), NODE, &lease, 1, true);
	(void)pthread_mutex_lock(&store_of(&scene)->settling);
	CHECK_OK(renew(&scene, &alive), &scene.error);
	CHECK(alive);
	(void)pthread_mutex_unlock(&store_of(&scene)->settling);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a batch is sent again when its connection stops answering", given_up },
	{ "a connection whose statement takes long is not given up",
			slow_is_left_alone },
	{ "a session that is gone is told from a later one with its number",
			lost_session },
	{ "the result of a COMMIT is asked for without another connection",
			asked_on_own_place },
	{ "a node is renewed while all connections of the pool are busy",
			renewed_beside_pool },
	{ "a node is renewed when the connection for it stops answering",
			renewed_in_silence },
	{ "a node is renewed while a claim gives back leases",
			renewed_beside_claims },
};

TAP_MAIN(cases)
