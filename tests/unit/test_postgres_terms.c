/* SPDX-License-Identifier: MIT */
/*
 * How long node leases and locks last in PostgreSQL when the clock of the
 * database jumps, sessions stop in the middle, or the observing process is new.
 */

#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>

#include "tap.h"
#include "unit/postgres_scene.h"

#define LEASE_MS 60000

/* The clock of the database is set forward by an hour. */
static void set_clock_forward(struct scene *scene) {
	scene_run(scene->link,
			"CREATE OR REPLACE FUNCTION " SCHEMA ".now_ms() RETURNS bigint"
			" LANGUAGE sql VOLATILE AS $$ SELECT (extract(epoch FROM"
			" clock_timestamp()) * 1000)::bigint + 3600000 $$");
}

static int64_t leased_by(struct scene *scene, int node) {
	char sql[100];
	(void)snprintf(sql, sizeof sql,
			"SELECT count(*) FROM " SCHEMA ".open WHERE node = %d", node);
	return scene_number(scene->link, sql);
}

static uint64_t recover(struct scene *scene) {
	struct postern_recovered recovered = { 0 };
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	CHECK_OK(scene->store->ops->recover(scene->store, &recovery, &recovered,
					 &scene->error),
			&scene->error);
	return recovered.released;
}

static void clock_ends_no_node(void) {
	struct scene scene;
	struct postern_accept accept;
	bool alive = false;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, LEASE_MS);
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "1", &accept), &scene.error);
	CHECK_INT(recover(&scene), 0);
	set_clock_forward(&scene);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(recover(&scene), 0);
	}
	CHECK_INT(leased_by(&scene, FROZEN), 1);
	CHECK_OK(scene.store->ops->engage(scene.store, NODE, NULL, &scene.error),
			&scene.error);
	CHECK_OK(scene.store->ops->renew(scene.store, FROZEN, LEASE_MS, &alive,
					 &scene.error),
			&scene.error);
	CHECK(alive);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA
									   ".node_term WHERE late_since > 0"
									   " AND node = 43"),
			0);
	scene_close(&scene);
}

static bool acquire_lock(struct scene *scene, uint64_t node, uint64_t *fence) {
	bool held = false;
	CHECK_OK(scene->store->ops->lock(scene->store, "lock", node, LEASE_MS,
					 &held, fence, &scene->error),
			&scene->error);
	return held;
}

static void clock_ends_no_lock(void) {
	struct scene scene;
	uint64_t first = 0;
	uint64_t second = 0;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, LEASE_MS);
	CHECK(acquire_lock(&scene, FROZEN, &first));
	set_clock_forward(&scene);
	for (int i = 0; i < 3; i++) {
		CHECK(!acquire_lock(&scene, NODE, &second));
	}
	CHECK(acquire_lock(&scene, FROZEN, &second));
	CHECK_INT(second, first);
	scene_close(&scene);
}

/* A node whose renewals this process never saw, as after a restart. */
static void found_late_before(void) {
	struct scene scene;
	struct postern_accept accept;
	scene_open(&scene);
	scene_run(scene.link,
			"INSERT INTO " SCHEMA ".node (node, host, pid)"
			" VALUES (43, 'host', 1);"
			"INSERT INTO " SCHEMA ".node_sleep (node) VALUES (43);"
			"INSERT INTO " SCHEMA ".node_term SELECT 43, now - 200000,"
			" now - 140000 FROM " SCHEMA ".now_ms() AS now");
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "1", &accept), &scene.error);
	CHECK_INT(recover(&scene), 0);
	CHECK_INT(leased_by(&scene, FROZEN), 1);
	/* late_since counts for the whole lease of the node. */
	scene_run(scene.link,
			"UPDATE " SCHEMA ".node_term SET late_since = late_since - 59000");
	CHECK_INT(recover(&scene), 0);
	scene_run(scene.link,
			"UPDATE " SCHEMA ".node_term SET late_since = late_since - 1000");
	CHECK_INT(recover(&scene), 1);
	CHECK_INT(leased_by(&scene, FROZEN), 0);
	scene_close(&scene);
}

/* Leases of a node that is in no table. */
static void unknown_node(void) {
	struct scene scene;
	struct postern_accept accept;
	scene_open(&scene);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	for (int i = 2; i <= 25; i++) {
		char id[8];
		(void)snprintf(id, sizeof id, "%d", i);
		CHECK_OK(scene_accept_leased(&scene, NODE, id, &accept), &scene.error);
	}
	scene_run(scene.link, "UPDATE " SCHEMA ".open SET node = 77");
	CHECK_INT(recover(&scene) + recover(&scene), 0);
	/* A recovery that another session blocks does not count as done. */
	PGconn *link = scene_connect();
	scene_run(link,
			"BEGIN; LOCK TABLE " SCHEMA ".gone IN SHARE ROW EXCLUSIVE MODE");
	CHECK_INT(recover(&scene), 0);
	scene_run(link, "ROLLBACK");
	PQfinish(link);
	uint64_t released = 0;
	for (int i = 0; i < 4; i++) {
		released += recover(&scene); /* at most 10 each */
	}
	CHECK_INT(released, 25);
	CHECK_INT(leased_by(&scene, 77), 0);
	scene_close(&scene);
}

/* Sessions that stop before their COMMIT: a claim, a return of leases, a
   collection, a unit, an enrolment. */
static void renewed_beside_sessions(void) {
	static const char *const stopped[] = {
		"SELECT " SCHEMA ".claim_1(42, NULL, 0, NULL, NULL, '1000',"
		" ARRAY[(SELECT min(id) FROM " SCHEMA ".handler)], '{10}', '{false}',"
		" '{}', '{}', 10, 1000000, NULL)",
		"SELECT " SCHEMA ".give_back_1(42, 5, NULL, '1000', true, '{1}', '{1}',"
		" '{1}', '{false}')",
		"SELECT " SCHEMA ".look_staged_1(42, false)",
		"SELECT " SCHEMA ".begin_units_1(42, NULL, NULL, 1)",
		"SELECT " SCHEMA ".enrol_node_2(42, NULL, 60000, '{1}', 'host', 1,"
		" true)",
	};
	for (size_t i = 0; i < sizeof stopped / sizeof stopped[0]; i++) {
		struct scene scene;
		struct postern_accept accept;
		struct postern_route route;
		char sql[700];
		scene_open(&scene);
		CHECK_OK(scene_accept(&scene, NODE, "1", false, &accept, &route),
				&scene.error);
		PGconn *link = scene_connect();
		(void)snprintf(sql, sizeof sql, "BEGIN; %s", stopped[i]);
		scene_run(link, sql);
		scene_run(scene.link, "SET lock_timeout = 2000;"
							  "SELECT " SCHEMA ".renew_1(42, NULL, 60000)");
		scene_run(link, "ROLLBACK");
		PQfinish(link);
		scene_close(&scene);
	}
}

/* A renewal is committed while the node is being expired. */
static void renewed_while_expired(void) {
	struct scene scene;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, LEASE_MS);
	scene_run(scene.link, "UPDATE " SCHEMA ".node_term SET renewed_at = 1,"
						  " lives_until = 2 WHERE node = 43");
	PGconn *renewal = scene_connect();
	PGconn *expiry = scene_connect();
	scene_run(renewal, "BEGIN; SELECT " SCHEMA ".renew_1(43, NULL, 60000)");
	scene_run(expiry, "BEGIN");
	CHECK_INT(PQsendQuery(expiry,
					  "SELECT " SCHEMA ".expire_nodes_1(NULL, '{43}', '{1}')"),
			1);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_run(renewal, "COMMIT");
	PGresult *result = PQgetResult(expiry);
	CHECK_INT(PQresultStatus(result), PGRES_TUPLES_OK);
	PQclear(result);
	CHECK(!PQgetResult(expiry));
	PQclear(PQexec(expiry, "COMMIT"));
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".node WHERE node = 43"),
			1);
	PQfinish(renewal);
	PQfinish(expiry);
	scene_close(&scene);
}

/* A term is over. One session has looked at the clock and not yet at the
   table when another one marks the term as late, a little later. */
static void mark_beside(struct scene *scene, const char *table,
		const char *earlier, const char *later) {
	char sql[300];
	PGconn *first = scene_connect();
	PGconn *second = scene_connect();
	(void)snprintf(sql, sizeof sql,
			"BEGIN; LOCK TABLE " SCHEMA ".%s IN ACCESS EXCLUSIVE MODE", table);
	scene_run(second, sql);
	CHECK_INT(PQsendQuery(first, earlier), 1);
	CHECK(scene_wait_blocked(scene, 1));
	scene_run(second, "SELECT pg_sleep(0.01)"); /* the clock goes on */
	scene_run(second, later);
	scene_run(second, "COMMIT");
	PGresult *result = PQgetResult(first);
	CHECK_INT(PQresultStatus(result), PGRES_TUPLES_OK);
	PQclear(result);
	CHECK(!PQgetResult(first));
	(void)snprintf(sql, sizeof sql,
			"SELECT count(*) FROM " SCHEMA ".%s"
			" WHERE node = 43 AND renewed_at = 1000 AND late_since > 0",
			table);
	CHECK_INT(scene_number(scene->link, sql), 1);
	PQfinish(first);
	PQfinish(second);
}

static void marked_by_two(void) {
	struct scene scene;
	uint64_t fence = 0;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, LEASE_MS);
	scene_run(scene.link, "UPDATE " SCHEMA ".node_term SET renewed_at = 1000,"
						  " lives_until = 2000 WHERE node = 43");
	mark_beside(&scene, "node_term",
			"SELECT " SCHEMA ".watch_nodes_1(42, NULL)",
			"SELECT " SCHEMA ".watch_nodes_1(44, NULL)");
	CHECK(acquire_lock(&scene, FROZEN, &fence));
	scene_run(scene.link,
			"UPDATE " SCHEMA ".lock SET renewed_at = 1000, held_until = 2000");
	mark_beside(&scene, "lock",
			"SELECT " SCHEMA ".lock_1('lock', 42, NULL, 60000, NULL)",
			"SELECT " SCHEMA ".lock_1('lock', 44, NULL, 60000, NULL)");
	scene_close(&scene);
}

struct locker {
	struct scene *scene;
	struct postern_error error;
	int r;
};

/* Like the cleanup lock: for longer than a node lease. */
static void *acquire_long_lock(void *context) {
	struct locker *locker = context;
	struct postern_store *store = locker->scene->store;
	bool held = false;
	uint64_t fence = 0;
	locker->r = store->ops->lock(store, "cleanup", FROZEN, 2 * LEASE_MS, &held,
			&fence, &locker->error);
	return NULL;
}

static void renewed_beside_other_locks(void) {
	struct scene scene;
	struct locker locker = { .scene = &scene };
	pthread_t thread;
	bool alive = false;
	scene_open_without_timeouts(&scene);
	scene_enrol(&scene, FROZEN, LEASE_MS);
	(void)acquire_long_lock(&locker);
	CHECK_OK(locker.r, &locker.error);
	PGconn *link = scene_connect();
	scene_run(link, "BEGIN; SELECT 1 FROM " SCHEMA ".lock FOR UPDATE");
	CHECK_INT(pthread_create(&thread, NULL, acquire_long_lock, &locker), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	/* A renewal that has to wait fails after a third of the lease. */
	CHECK_OK(scene.store->ops->renew(scene.store, FROZEN, LEASE_MS, &alive,
					 &scene.error),
			&scene.error);
	CHECK(alive);
	scene_run(link, "ROLLBACK");
	(void)pthread_join(thread, NULL);
	CHECK_OK(locker.r, &locker.error);
	PQfinish(link);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a clock that is set forward expires no node that renews itself",
			clock_ends_no_node },
	{ "a clock that is set forward expires no lock", clock_ends_no_lock },
	{ "a node that was late for its whole lease is expired for a new process",
			found_late_before },
	{ "a lease of an unknown node is recovered", unknown_node },
	{ "a node that renews itself while it is being expired stays live",
			renewed_while_expired },
	{ "a lease that two nodes find late at the same time does not start anew",
			marked_by_two },
	{ "a renewal waits for no other lock of its node",
			renewed_beside_other_locks },
	{ "a renewal waits for no stopped session of its node",
			renewed_beside_sessions },
};

TAP_MAIN(cases)
