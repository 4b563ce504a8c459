/* SPDX-License-Identifier: MIT */

/*
 * What the PostgreSQL store does beyond the contract of all stores: nodes that
 * stop renewing, a server whose settings change, and how nodes wake each other.
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/postgres/postgres.h"
#include "tap.h"
#include "unit/postgres_scene.h"

struct copy {
	struct scene *scene;
	struct postern_accept accept;
	int r;
};

static void *send_copy(void *context) {
	struct copy *copy = context;
	copy->r = scene_accept_leased(copy->scene, NODE, "1", &copy->accept);
	return NULL;
}

/* The first message has inserted its key and not committed when the copy
   arrives. The statement of the copy conflicts with a row that its snapshot
   cannot see. */
static void copy_waits(void) {
	struct scene scene;
	struct copy copy = { .scene = &scene };
	pthread_t sender;
	scene_open_with(&scene, PATIENCE_MS);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &copy.accept),
			&scene.error);
	int64_t seq = copy.accept.seq;
	scene_run(scene.link,
			"CREATE TEMP TABLE key AS SELECT * FROM " SCHEMA ".seen;"
			"DELETE FROM " SCHEMA ".seen");
	PGconn *first = scene.link;
	scene.link = scene_connect();
	scene_run(first, "BEGIN; INSERT INTO " SCHEMA ".seen SELECT * FROM key");
	CHECK_INT(pthread_create(&sender, NULL, send_copy, &copy), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_run(first, "COMMIT");
	(void)pthread_join(sender, NULL);
	PQfinish(scene.link);
	scene.link = first;
	CHECK_OK(copy.r, &scene.error);
	CHECK_INT(copy.accept.code, POSTERN_E_DUPLICATE);
	CHECK_INT(copy.accept.seq, seq);
	scene_close(&scene);
}

/* A process that was stopped while one of its handlers ran in a transaction. */
static void frozen(void) {
	struct scene scene;
	struct postern_accept accept;
	struct postern_recovered recovered = { 0 };
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	char sql[200];
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, 1);
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "1", &accept), &scene.error);
	PGconn *link = scene_connect();
	scene_run(link,
			"BEGIN; SELECT " SCHEMA ".begin_units_1(43, NULL, NULL, 1)");
	(void)snprintf(sql, sizeof sql,
			"SELECT " SCHEMA ".take_unit_1(43, %lld, %lld, 1)",
			(long long)accept.seq, (long long)scene.handler);
	scene_run(link, sql);
	CHECK(scene_wait_for(&scene,
			"SELECT count(*) FROM " SCHEMA ".node_term"
			" WHERE lives_until <= " SCHEMA ".now_ms()",
			1));
	CHECK_OK(scene.store->ops->recover(scene.store, &recovery, &recovered,
					 &scene.error),
			&scene.error);
	CHECK_INT(recovered.released, 1);
	PQclear(PQexec(link, "COMMIT"));
	CHECK_INT(PQstatus(link), CONNECTION_BAD);
	PQfinish(link);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"
									   " WHERE node IS NULL"),
			1);
	scene_close(&scene);
}

/* A process that was stopped a moment ago, while it claimed. */
static void frozen_claim(void) {
	struct scene scene;
	struct postern_accept accept;
	struct postern_recovered recovered = { 0 };
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, 1);
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "1", &accept), &scene.error);
	PGconn *link = scene_connect();
	scene_run(link,
			"BEGIN; LOCK TABLE " SCHEMA ".gone IN SHARE ROW EXCLUSIVE MODE");
	CHECK(scene_wait_for(&scene,
			"SELECT count(*) FROM " SCHEMA ".node_term"
			" WHERE lives_until <= " SCHEMA ".now_ms()",
			1));
	CHECK_OK(scene.store->ops->recover(scene.store, &recovery, &recovered,
					 &scene.error),
			&scene.error);
	CHECK_INT(recovered.released, 0);
	scene_run(link, "ROLLBACK");
	CHECK_OK(scene.store->ops->recover(scene.store, &recovery, &recovered,
					 &scene.error),
			&scene.error);
	CHECK_INT(recovered.released, 1);
	PQfinish(link);
	scene_close(&scene);
}

static bool acquire_lock(struct scene *scene, uint64_t node, int64_t ttl_ms,
		uint64_t *fence_out) {
	bool held = false;
	CHECK_OK(scene->store->ops->lock(scene->store, "lock", node, ttl_ms, &held,
					 fence_out, &scene->error),
			&scene->error);
	return held;
}

/* Several nodes find the same node expired: one recovers its leases, the others
   wait or retry, and none ends the session of another. */
static void two_recover(void) {
	struct scene scene;
	struct postern_recovered recovered = { 0 };
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, 1);
	CHECK(scene_wait_for(&scene,
			"SELECT count(*) FROM " SCHEMA ".node_term"
			" WHERE lives_until <= " SCHEMA ".now_ms()",
			1));
	scene.second = scene_connect();
	scene_run(scene.second, "BEGIN; SELECT " SCHEMA ".halt_1(ARRAY[43])");
	static const char left_sql[] =
			"SELECT count(*) FROM " SCHEMA ".node WHERE node = 43";
	CHECK_OK(scene.store->ops->recover(scene.store, &recovery, &recovered,
					 &scene.error),
			&scene.error);
	CHECK_INT(scene_number(scene.link, left_sql), 1);
	scene_run(scene.second, "COMMIT");
	CHECK_OK(scene.store->ops->recover(scene.store, &recovery, &recovered,
					 &scene.error),
			&scene.error);
	CHECK_INT(scene_number(scene.link, left_sql), 0);
	PQfinish(scene.second);
	scene.second = NULL;
	scene_close(&scene);
}

struct recoverer {
	struct scene *scene;
	atomic_bool done;
};

static void *recover_once(void *context) {
	struct recoverer *recoverer = context;
	struct postern_store *store = recoverer->scene->store;
	struct postern_recovered recovered = { 0 };
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	CHECK_OK(store->ops->recover(store, &recovery, &recovered, NULL), NULL);
	CHECK_INT(recovered.released, 0);
	atomic_store(&recoverer->done, true);
	return NULL;
}

/* A node is found late, but the recovery has to wait for one of its batches,
   and meanwhile the node renews. One attempt may not hit this order. */
static void renewed_during_recovery(void) {
	struct scene scene;
	struct postern_accept accept;
	scene_open_without_timeouts(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "1", &accept), &scene.error);
	scene.second = scene_connect();
	for (int i = 0; i < 5; i++) {
		struct recoverer recoverer = { .scene = &scene };
		pthread_t thread;
		bool alive = false;
		scene_run(scene.second,
				"BEGIN; SELECT pg_advisory_xact_lock_shared(-43)");
		scene_run(scene.link,
				"UPDATE " SCHEMA ".node_term SET renewed_at = 0,"
				" lives_until = 1, late_since = 1 WHERE node = 43");
		CHECK_INT(pthread_create(&thread, NULL, recover_once, &recoverer), 0);
		while (!atomic_load(&recoverer.done) && !scene_is_blocked(&scene, 1)) {
			(void)usleep(1000);
		}
		CHECK_OK(scene.store->ops->renew(scene.store, FROZEN, PATIENCE_MS,
						 &alive, &scene.error),
				&scene.error);
		CHECK(alive);
		scene_run(scene.second, "COMMIT");
		(void)pthread_join(thread, NULL);
	}
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 43"),
			1);
	PQfinish(scene.second);
	scene.second = NULL;
	scene_close(&scene);
}

/* The same for the owner of the lock. */
static void frozen_owner(void) {
	struct scene scene;
	uint64_t fence = 0;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, 1);
	CHECK(acquire_lock(&scene, FROZEN, 1, &fence));
	PGconn *link = scene_connect();
	scene_run(link, "BEGIN; SELECT " SCHEMA ".begin_units_1(43, 'lock', 1, 1)");
	CHECK(scene_wait_for(&scene,
			"SELECT count(*) FROM " SCHEMA ".lock"
			" WHERE held_until <= " SCHEMA ".now_ms()",
			1));
	CHECK(acquire_lock(&scene, NODE, PATIENCE_MS, &fence));
	CHECK_INT(fence, 2);
	PQclear(PQexec(link, "COMMIT"));
	CHECK_INT(PQstatus(link), CONNECTION_BAD);
	PQfinish(link);
	scene_close(&scene);
}

/* A long transaction under the lock of a live node. */
static void busy_owner(void) {
	struct scene scene;
	uint64_t fence = 0;
	scene_open(&scene);
	CHECK(acquire_lock(&scene, NODE, PATIENCE_MS, &fence));
	PGconn *link = scene_connect();
	scene_run(link, "BEGIN; SELECT " SCHEMA ".begin_units_1(42, 'lock', 1, 1)");
	CHECK(acquire_lock(&scene, NODE, PATIENCE_MS, &fence));
	CHECK_INT(fence, 1);
	/* No other node acquires the lock before the transaction has ended, even
	   after its release. */
	const struct postern_lock lock = { .name = "lock", .fence = 1 };
	CHECK_OK(scene.store->ops->unlock(scene.store, &lock, NODE, &scene.error),
			&scene.error);
	CHECK(!acquire_lock(&scene, FROZEN, 1, &fence));
	scene_run(link, "ROLLBACK");
	CHECK(acquire_lock(&scene, FROZEN, 1, &fence));
	CHECK_INT(fence, 2);
	PQfinish(link);
	scene_close(&scene);
}

static void end_sessions(struct scene *scene) {
	scene_run(scene->link,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
			" WHERE application_name = 'postern'");
	CHECK(scene_wait_for(scene,
			"SELECT count(*) FROM pg_stat_activity"
			" WHERE application_name = 'postern'",
			0));
}

/* A server that was restarted meanwhile, or that closes idle sessions. */
static void closed_while_idle(void) {
	struct scene scene;
	struct postern_claims claims;
	const struct postern_claim claim = { .node = NODE };
	scene_open(&scene);
	end_sessions(&scene);
	CHECK_OK(scene.store->ops->claim(scene.store, &claim, scene.memory, &claims,
					 &scene.error),
			&scene.error);
	scene_close(&scene);
}

#define HOUR_MS INT64_C(3600000)

static int recover_now(struct scene *scene) {
	struct postern_recovered recovered;
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	return scene->store->ops->recover(scene->store, &recovery, &recovered,
			&scene->error);
}

/* The pool could not connect, and its next try is in an hour. Returns the
   conninfo of the server. */
static char *lose_server(struct scene *scene, char *nowhere) {
	struct pg_store *store = postern__pg_from_base(scene->store);
	char *conninfo = store->conninfo;
	store->conninfo = nowhere;
	store->command_retries = 0;
	end_sessions(scene);
	CHECK_INT(recover_now(scene), POSTERN_E_UNAVAILABLE);
	CHECK(store->connect_failures > 0);
	store->connect_at_ms += HOUR_MS;
	return conninfo;
}

/* The renewal connects first: it does not wait for the delay. */
static void reached_by_renewal(void) {
	struct scene scene;
	bool alive = false;
	char nowhere[] = "host=/nowhere";
	scene_open(&scene);
	char *conninfo = lose_server(&scene, nowhere);
	postern__pg_from_base(scene.store)->conninfo = conninfo;
	CHECK_INT(recover_now(&scene), POSTERN_E_UNAVAILABLE);
	CHECK_OK(scene_renew_and_recover(&scene, NODE, &alive), &scene.error);
	CHECK(alive);
	scene_close(&scene);
}

static int do_nothing(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)connection;
	(void)context;
	(void)again;
	(void)error;
	return POSTERN_OK;
}

/* A thread that lost its connection reconnects without waiting for the delay,
   and many threads do. */
static void failed_before_delay(void) {
	struct scene scene;
	struct pg_connection *slot = NULL;
	char nowhere[] = "host=/nowhere";
	scene_open(&scene);
	struct pg_store *store = postern__pg_from_base(scene.store);
	CHECK_OK(postern__pg_acquire(store, &slot, &scene.error), &scene.error);
	char *conninfo = lose_server(&scene, nowhere);
	uint32_t failures = store->connect_failures;
	int64_t next_try = store->connect_at_ms;
	slot->lost = true;
	for (int i = 0; i < 10; i++) {
		CHECK_INT(postern__pg_do_here(slot, do_nothing, NULL, NULL),
				POSTERN_E_UNAVAILABLE);
	}
	CHECK_INT(store->connect_failures, failures);
	CHECK_INT(store->connect_at_ms, next_try);
	postern__pg_release(slot);
	store->conninfo = conninfo;
	scene_close(&scene);
}

/* The settings change after the store was opened; its open connections keep the
   old ones. */
static void other_settings(void) {
	static const char *const settings[] = { "synchronous_commit = off",
		"default_transaction_isolation = \"repeatable read\"",
		"default_transaction_read_only = on" };
	struct postern_accept accept;
	for (size_t i = 0; i < 3; i++) {
		struct scene scene;
		char sql[200];
		scene_open(&scene);
		(void)snprintf(sql, sizeof sql,
				"DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET %s',"
				" current_database()); END $$",
				settings[i]);
		PGconn *other = scene_connect();
		scene_run(scene.link, "SET default_transaction_read_only = off");
		scene_run(scene.link, sql);
		end_sessions(&scene);
		int r = scene_accept_leased(&scene, NODE, "1", &accept);
		CHECK(r == POSTERN_E_UNSUPPORTED || r == POSTERN_E_UNAVAILABLE);
		CHECK(strstr(scene.error.text, "synchronous_commit is off") ||
				strstr(scene.error.text, "is not 'read committed'") ||
				strstr(scene.error.text, "is read-only"));
		scene_run(other,
				"SET default_transaction_read_only = off;"
				" DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET ALL',"
				" current_database()); END $$");
		PQfinish(other);
		int64_t tries = 0;
		do {
			r = scene_accept_leased(&scene, NODE, "1", &accept);
		} while (r != POSTERN_OK && tries++ < 100 && usleep(100000) == 0);
		CHECK_OK(r, &scene.error);
		scene_close(&scene);
	}
}

/* The first wait starts LISTEN and returns as woken: earlier notifications were
   missed. */
static bool begin_listening(struct scene *scene) {
	bool woken = false;
	return CHECK_OK(scene->store->ops->wait(scene->store, PATIENCE_MS, &woken,
							&scene->error),
				   &scene->error) &&
		   CHECK(woken);
}

static void woken_by_others(void) {
	struct scene scene;
	struct postern_accept accept;
	bool woken = false;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	begin_listening(&scene);
	/* The accepting node leases the delivery, so no other node is woken. */
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "1", &accept), &scene.error);
	CHECK_OK(scene.store->ops->wait(scene.store, 1, &woken, &scene.error),
			&scene.error);
	CHECK(!woken);
	/* Node 7 does not exist, so its accept leases nothing. */
	CHECK_OK(scene_accept_leased(&scene, 7, "2", &accept), &scene.error);
	CHECK_OK(scene.store->ops->wait(scene.store, PATIENCE_MS, &woken,
					 &scene.error),
			&scene.error);
	CHECK(woken);
	scene_close(&scene);
}

static void woken_after_claim(void) {
	struct scene scene;
	struct postern_accept accept;
	bool woken = false;
	scene_open(&scene);
	begin_listening(&scene);
	for (int i = 0; i < 3; i++) {
		char id[8];
		(void)snprintf(id, sizeof id, "%d", i);
		CHECK_OK(scene_accept_leased(&scene, 7, id, &accept), &scene.error);
		CHECK_OK(scene.store->ops->wait(scene.store, PATIENCE_MS, &woken,
						 &scene.error),
				&scene.error);
		CHECK(woken);
		CHECK_INT(scene_claim(&scene, 10, NULL), 1);
	}
	/* A node that has not claimed all deliveries claims again without being
	   woken. */
	CHECK_OK(scene_accept_leased(&scene, 7, "a", &accept), &scene.error);
	CHECK_OK(scene_accept_leased(&scene, 7, "b", &accept), &scene.error);
	CHECK_INT(scene_claim(&scene, 1, NULL), 1);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".node_sleep"
					  " WHERE NOT sleeps"),
			1);
	scene_close(&scene);
}

static int settle(struct scene *scene, int64_t seq, uint64_t fence,
		enum postern_settle_to to, bool again) {
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = scene->handler,
		.fence = fence,
		.to = to,
		.outcome = "it",
		.again = again,
	};
	struct postern_batch batch = {
		.node = NODE,
		.settlements = &settlement,
		.settlement_count = 1,
	};
	CHECK_OK(scene->store->ops->apply(scene->store, &batch, &scene->error),
			&scene->error);
	return settlement.code;
}

static void return_lease(struct scene *scene,
		const struct postern_claimed *item) {
	CHECK_INT(settle(scene, item->seq, item->fence, POSTERN_SETTLE_RETURNED,
					  false),
			POSTERN_OK);
}

/* Another node may run a delivery that this one returns. */
static void woken_by_returns(void) {
	struct scene scene;
	struct postern_accept accept;
	bool woken = false;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	begin_listening(&scene);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK_OK(scene.store->ops->wait(scene.store, 1, &woken, &scene.error),
			&scene.error);
	CHECK(!woken);
	CHECK_INT(settle(&scene, accept.seq, 1, POSTERN_SETTLE_RETURNED, false),
			POSTERN_OK);
	CHECK_OK(scene.store->ops->wait(scene.store, PATIENCE_MS, &woken,
					 &scene.error),
			&scene.error);
	CHECK(woken);
	scene_close(&scene);
}

static bool wait_woken(struct scene *scene) {
	bool woken = false;
	CHECK_OK(scene->store->ops->wait(scene->store, PATIENCE_MS, &woken,
					 &scene->error),
			&scene->error);
	return woken;
}

/* A copy of a message reopens its poisoned delivery. */
static void woken_by_copies(void) {
	struct scene scene;
	struct postern_accept accept;
	struct postern_route route;
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	begin_listening(&scene);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	CHECK_INT(settle(&scene, accept.seq, 1, POSTERN_SETTLE_POISONED, false),
			POSTERN_OK);
	CHECK_OK(scene_accept_copy(&scene, NODE, "1", &accept, &route),
			&scene.error);
	CHECK_INT(accept.code, POSTERN_E_DUPLICATE);
	CHECK(route.opened && !route.leased);
	CHECK(wait_woken(&scene));
	scene_close(&scene);
}

/* The recovering node may not have room for all deliveries. */
static void woken_by_recovery(void) {
	struct scene scene;
	struct postern_accept accept;
	struct postern_recovered recovered = { 0 };
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	scene_open(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	scene_enrol(&scene, FROZEN + 1, PATIENCE_MS);
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "1", &accept), &scene.error);
	begin_listening(&scene);
	bool alive = false;
	CHECK_OK(scene.store->ops->renew(scene.store, FROZEN, 0, &alive,
					 &scene.error),
			&scene.error);
	CHECK_OK(scene.store->ops->recover(scene.store, &recovery, &recovered,
					 &scene.error),
			&scene.error);
	CHECK_INT(recovered.released, 1);
	CHECK(wait_woken(&scene));
	scene_close(&scene);
}

static size_t route_to_scene(void *context, int64_t channel, const char *type,
		const struct postern_message *message, struct postern_route *routes,
		size_t max) {
	const struct scene *scene = context;
	(void)channel;
	(void)type;
	(void)message;
	CHECK(max > 0);
	routes[0] = (struct postern_route){ .handler = scene->handler };
	return 1;
}

/* A parked message, and a node that has a handler for it now. */
static void woken_by_unparking(void) {
	struct scene scene;
	struct postern_accept accept;
	int64_t cursor = 0;
	uint64_t count = 0;
	scene_open(&scene);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	scene_run(scene.link, "INSERT INTO " SCHEMA ".parked"
						  " SELECT seq FROM " SCHEMA ".open;"
						  "DELETE FROM " SCHEMA ".open");
	begin_listening(&scene);
	CHECK_OK(scene.store->ops->unpark(scene.store, route_to_scene, &scene, 10,
					 &cursor, &count, &scene.error),
			&scene.error);
	CHECK_INT(count, 1);
	CHECK(wait_woken(&scene));
	scene_close(&scene);
}

/* An operator retries a poisoned delivery, and one that waits for its next
   attempt. */
static void woken_by_operator(void) {
	static const enum postern_settle_to ends[] = { POSTERN_SETTLE_POISONED,
		POSTERN_SETTLE_PENDING };
	for (size_t i = 0; i < 2; i++) {
		struct scene scene;
		struct postern_accept accept;
		scene_open(&scene);
		CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
		CHECK_INT(settle(&scene, accept.seq, 1, ends[i], false), POSTERN_OK);
		begin_listening(&scene);
		struct postern_edit edit = {
			.kind = POSTERN_CHANGE_RETRY,
			.seq = accept.seq,
			.handler = "a",
		};
		CHECK_OK(scene.store->ops->edit(scene.store, &edit, &scene.error),
				&scene.error);
		CHECK_INT(edit.count, 1);
		CHECK(wait_woken(&scene));
		scene_close(&scene);
	}
}

/* The settlement is repeated in another batch. */
static void settled_again(void) {
	static const enum postern_settle_to ways[] = { POSTERN_SETTLE_DONE,
		POSTERN_SETTLE_POISONED, POSTERN_SETTLE_DISCARDED,
		POSTERN_SETTLE_PENDING, POSTERN_SETTLE_RETURNED };
	static const char *const ids[] = { "1", "2", "3", "4", "5" };
	struct scene scene;
	struct postern_accept accept;
	scene_open(&scene);
	for (size_t i = 0; i < 5; i++) {
		CHECK_OK(scene_accept_leased(&scene, NODE, ids[i], &accept),
				&scene.error);
		CHECK_INT(settle(&scene, accept.seq, 1, ways[i], false), POSTERN_OK);
		CHECK_INT(settle(&scene, accept.seq, 1, ways[i], false),
				POSTERN_E_STALE);
		CHECK_INT(settle(&scene, accept.seq, 1, ways[i], true), POSTERN_OK);
		CHECK_INT(settle(&scene, accept.seq, 2, ways[i], true),
				POSTERN_E_STALE);
		CHECK_INT(settle(&scene, accept.seq, 1, ways[(i + 1) % 3], true),
				POSTERN_E_STALE);
	}
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".ledger"),
			3);
	/* A delivery whose lease was recovered has the same state and fence. */
	CHECK_OK(scene_accept_leased(&scene, NODE, "6", &accept), &scene.error);
	scene_run(scene.link, "UPDATE " SCHEMA ".open SET node = NULL");
	CHECK_INT(settle(&scene, accept.seq, 1, POSTERN_SETTLE_PENDING, true),
			POSTERN_E_STALE);
	scene_close(&scene);
}

/* Claims the first of three pending deliveries, then makes the last due before
   it. */
static int64_t claim_one_of_three(struct scene *scene) {
	struct postern_accept accept = { 0 };
	static int64_t id;
	scene_run(scene->link, "DELETE FROM " SCHEMA ".open");
	for (int i = 0; i < 3; i++) {
		char text[24];
		(void)snprintf(text, sizeof text, "%lld", (long long)++id);
		CHECK_OK(scene_accept_leased(scene, 7, text, &accept), &scene->error);
	}
	scene_run(scene->link, "UPDATE " SCHEMA ".open SET due_at = 1000 + seq");
	CHECK_INT(scene_claim(scene, 1, NULL), 1);
	scene_run(scene->link, "UPDATE " SCHEMA ".open SET due_at = 1 WHERE seq ="
						   " (SELECT max(seq) FROM " SCHEMA ".open)");
	return accept.seq;
}

static void claimed_in_due_order(void) {
	struct scene scene;
	struct postern_claimed claimed = { 0 };
	scene_open(&scene);
	int64_t early = claim_one_of_three(&scene);
	CHECK_INT(scene_claim(&scene, 10, &claimed), 2);
	CHECK_INT(claimed.seq, early);
	scene_close(&scene);
}

static void claimed_from_last_end(void) {
	struct scene scene;
	struct postern_claimed claimed = { 0 };
	scene_open(&scene);
	int64_t early = 0;
	/* A store that paused for a second claims from the beginning again:
	   repeat. */
	for (int i = 0; i < PATIENCE_MS && claimed.seq == early; i++) {
		early = claim_one_of_three(&scene);
		CHECK_INT(scene_claim(&scene, 1, &claimed), 1);
	}
	CHECK(claimed.seq != early);
	/* The node claims again at once: one delivery is left. */
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".node_sleep"
					  " WHERE NOT sleeps"),
			1);
	for (int i = 0; i < PATIENCE_MS && claimed.seq != early; i++) {
		return_lease(&scene, &claimed); /* it is due at once */
		CHECK_INT(scene_claim(&scene, 1, &claimed), 1);
	}
	CHECK_INT(claimed.seq, early);
	scene_close(&scene);
}

static void not_woken_awake(void) {
	struct scene scene;
	struct postern_accept accept;
	bool woken = false;
	scene_open(&scene);
	begin_listening(&scene);
	scene_run(scene.link, "UPDATE " SCHEMA ".node_sleep SET sleeps = false");
	CHECK_OK(scene_accept_leased(&scene, 7, "1", &accept), &scene.error);
	CHECK_OK(scene.store->ops->wait(scene.store, 1, &woken, &scene.error),
			&scene.error);
	CHECK(!woken);
	scene_close(&scene);
}

static void wait_ended(void) {
	struct scene scene;
	bool woken = true;
	scene_open(&scene);
	begin_listening(&scene);
	scene.store->ops->end_wait(scene.store);
	CHECK_OK(scene.store->ops->wait(scene.store, PATIENCE_MS, &woken,
					 &scene.error),
			&scene.error);
	CHECK(!woken);
	scene_close(&scene);
}

static void listening_cut(void) {
	struct scene scene;
	bool woken = false;
	scene_open(&scene);
	begin_listening(&scene);
	scene_run(scene.link,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
			" WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()");
	CHECK_INT(scene.store->ops->wait(scene.store, PATIENCE_MS, &woken,
					  &scene.error),
			POSTERN_E_UNAVAILABLE);
	begin_listening(&scene);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a repeated settlement that is marked as such counts as settled",
			settled_again },
	{ "a connection that the server closed while idle is not used",
			closed_while_idle },
	{ "a connection that a renewal opens ends the delay of the pool",
			reached_by_renewal },
	{ "simultaneous failures to connect lengthen the delay once",
			failed_before_delay },
	{ "new connections do not write to a server with unsupported settings",
			other_settings },
	{ "a sleeping node is woken by an accept that leases nothing",
			woken_by_others },
	{ "a node that has claimed everything is woken for the next delivery",
			woken_after_claim },
	{ "a sleeping node is woken by a returned lease", woken_by_returns },
	{ "a sleeping node is woken by a copy that reopens a delivery",
			woken_by_copies },
	{ "a sleeping node is woken by the recovery of another node",
			woken_by_recovery },
	{ "a sleeping node is woken by an unparked message", woken_by_unparking },
	{ "a sleeping node is woken by an operator's retry", woken_by_operator },
	{ "a node that is awake is not notified", not_woken_awake },
	{ "deliveries due before the end of the last claim are claimed in due "
	  "order",
			claimed_in_due_order },
	{ "a claim starts where the last one ended, and at times from the "
	  "beginning",
			claimed_from_last_end },
	{ "a wait can be ended, even before it begins", wait_ended },
	{ "a cut LISTEN connection is reported and opened again", listening_cut },
	{ "a node that stopped in a transaction does not block its recovery",
			frozen },
	{ "a recovery does not wait for a session that stopped a moment ago",
			frozen_claim },
	{ "a recovering node does not end the session of another recovering node",
			two_recover },
	{ "a late node that renews during its recovery keeps its leases",
			renewed_during_recovery },
	{ "a node that stopped in a transaction does not keep its lock",
			frozen_owner },
	{ "a lock is renewed but not given to another node while a transaction "
	  "uses it",
			busy_owner },
	{ "a copy that waits for the first message is its duplicate", copy_waits },
};

TAP_MAIN(cases)
