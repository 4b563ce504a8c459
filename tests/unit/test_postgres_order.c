/* SPDX-License-Identifier: MIT */

/*
 * What other sessions do in PostgreSQL between two statements of the store, or
 * between two attempts of one. Locks that the test holds enforce each order.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "tap.h"
#include "unit/postgres_scene.h"

/* A message sent by a thread of its own. */
struct sender {
	struct scene *scene;
	uint64_t node; /* 0: NODE */
	bool lease;
	struct postern_accept accept;
	struct postern_route route;
	int r;
	pthread_t thread;
};

static void *send_message(void *context) {
	struct sender *sender = context;
	sender->r = scene_accept(sender->scene, sender->node ? sender->node : NODE,
			"1", sender->lease, &sender->accept, &sender->route);
	return NULL;
}

static void start_sender(struct sender *sender) {
	CHECK_INT(pthread_create(&sender->thread, NULL, send_message, sender), 0);
}

/* The message is stored, but the reply to its sender is lost; the second
   attempt waits for the key until `second` ends its transaction. */
static void send_reply_lost(struct scene *scene, struct sender *sender) {
	scene_block_commit(scene, "INSERT", "message");
	scene->second = scene_connect();
	start_sender(sender);
	CHECK(scene_wait_commit_blocked(scene, "message"));
	CHECK_INT(PQsendQuery(scene->second, "BEGIN; LOCK TABLE " SCHEMA ".seen"),
			1);
	CHECK(scene_wait_blocked(scene, 1));
	scene_cut_connections(scene);
	CHECK(scene_wait_blocked(scene, 2));
	scene_unblock_commit(scene, "message");
	CHECK(scene_wait_blocked(scene, 1));
	for (PGresult *result; (result = PQgetResult(scene->second));) {
		PQclear(result);
	}
	CHECK_INT(scene_number(scene->link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			1);
}

/* Commit; sessions that wait for it continue. */
static void end_second(struct scene *scene) {
	scene_run(scene->second, "COMMIT");
	PQfinish(scene->second);
	scene->second = NULL;
}

static void end_reply_lost(struct scene *scene, struct sender *sender) {
	end_second(scene);
	(void)pthread_join(sender->thread, NULL);
	if (CHECK_OK(sender->r, &scene->error)) {
		CHECK_INT(sender->accept.code, POSTERN_OK);
		CHECK(sender->route.opened);
	}
}

static void leased_reply_lost(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .lease = true };
	scene_open_without_timeouts(&scene);
	send_reply_lost(&scene, &sender);
	end_reply_lost(&scene, &sender);
	CHECK(sender.route.leased);
	CHECK_INT(sender.route.fence, 1);
	scene_close(&scene);
}

/* The node that claims it runs it. */
static void claimed_reply_lost(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	struct postern_claimed claimed = { 0 };
	scene_open_without_timeouts(&scene);
	send_reply_lost(&scene, &sender);
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 1);
	end_reply_lost(&scene, &sender);
	CHECK(!sender.route.leased);
	scene_close(&scene);
}

/* The lease was recovered, then the node claimed the delivery: a sender that
   believed in its lease would run it a second time. */
static void claimed_again_reply_lost(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .lease = true };
	struct postern_claimed claimed = { 0 };
	scene_open_without_timeouts(&scene);
	send_reply_lost(&scene, &sender);
	scene_run(scene.link, "UPDATE " SCHEMA ".open SET node = NULL");
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 2);
	end_reply_lost(&scene, &sender);
	CHECK(!sender.route.leased);
	CHECK_INT(sender.route.fence, 0);
	scene_close(&scene);
}

/* A parked message, and a copy of it that a handler wants, blocked by
   lock_sql. */
static void send_copy_of_parked(struct scene *scene, struct sender *sender,
		const char *lock_sql) {
	scene_open_without_timeouts(scene);
	CHECK_OK(scene_accept(scene, NODE, "1", false, &sender->accept,
					 &sender->route),
			&scene->error);
	scene_run(scene->link, "INSERT INTO " SCHEMA ".parked"
						   " SELECT seq FROM " SCHEMA ".open;"
						   "DELETE FROM " SCHEMA ".open");
	scene->second = scene_connect();
	scene_run(scene->second, "BEGIN");
	scene_run(scene->second, lock_sql);
	start_sender(sender);
	CHECK(scene_wait_blocked(scene, 1));
}

static void end_copy_of_parked(struct scene *scene, struct sender *sender) {
	end_second(scene);
	(void)pthread_join(sender->thread, NULL);
	CHECK_OK(sender->r, &scene->error);
	CHECK_INT(sender->accept.code, POSTERN_E_DUPLICATE);
	CHECK(!sender->route.opened);
}

/* The message is unparked, run and done while the copy waits for it. */
static void done_before_copy(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	char sql[300];
	send_copy_of_parked(&scene, &sender,
			"SELECT 1 FROM " SCHEMA ".message FOR UPDATE");
	(void)snprintf(sql, sizeof sql,
			"DELETE FROM " SCHEMA ".parked; INSERT INTO " SCHEMA
			".ledger SELECT seq, 1, 1, 1, %lld, 0, 1, 0, 3 FROM " SCHEMA
			".message",
			(long long)scene.handler);
	scene_run(scene.link, sql);
	end_copy_of_parked(&scene, &sender);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			0);
	scene_close(&scene);
}

/* The message is being unparked, which locks it first and then opens its
   delivery: neither session waits for the next step of the other. */
static void unparked_before_copy(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	char sql[300];
	send_copy_of_parked(&scene, &sender,
			"SELECT 1 FROM " SCHEMA ".parked FOR UPDATE");
	(void)snprintf(sql, sizeof sql,
			"SET LOCAL lock_timeout = 500;" /* it must not wait */
			" INSERT INTO " SCHEMA ".open SELECT seq, 0, NULL, 1, 1, 0, NULL,"
			" %lld, 0, 0, 0, false FROM " SCHEMA ".message"
			" ON CONFLICT DO NOTHING; DELETE FROM " SCHEMA ".parked",
			(long long)scene.handler);
	scene_run(scene.second, sql);
	end_copy_of_parked(&scene, &sender);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			1);
	scene_close(&scene);
}

/* The copy finds its key in use, then the key is deleted. */
static void key_removed_before_copy(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	scene_open_without_timeouts(&scene);
	CHECK_OK(scene_accept(&scene, NODE, "1", false, &sender.accept,
					 &sender.route),
			&scene.error);
	scene_run(scene.link, "DELETE FROM " SCHEMA ".open;"
						  "DELETE FROM " SCHEMA ".message");
	scene.second = scene_connect();
	scene_run(scene.second,
			"BEGIN; LOCK TABLE " SCHEMA ".message IN SHARE MODE");
	start_sender(&sender);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_run(scene.link, "DELETE FROM " SCHEMA ".seen");
	end_second(&scene);
	(void)pthread_join(sender.thread, NULL);
	CHECK_OK(sender.r, &scene.error);
	CHECK_INT(sender.accept.code, POSTERN_OK);
	CHECK(sender.route.opened);
	CHECK_INT(scene_number(scene.link, "SELECT seq FROM " SCHEMA ".message"),
			sender.accept.seq);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			1);
	scene_close(&scene);
}

/* A lease settled by a thread of its own. */
struct settler {
	struct scene *scene;
	struct postern_settlement settlement;
	int r;
};

static void *settle_thread(void *context) {
	struct settler *settler = context;
	struct postern_store *store = settler->scene->store;
	struct postern_batch batch = {
		.node = NODE,
		.settlements = &settler->settlement,
		.settlement_count = 1,
	};
	settler->r = store->ops->apply(store, &batch, &settler->scene->error);
	return NULL;
}

/* The first attempt commits and its reply is lost, the second waits for it. */
static void settle_reply_lost(enum postern_settle_to to, const char *what,
		const char *table) {
	struct scene scene;
	struct postern_accept accept;
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	struct settler settler = {
		.scene = &scene,
		.settlement = { .seq = accept.seq,
				.handler = scene.handler,
				.fence = 1,
				.to = to,
				.outcome = "some" },
	};
	scene_block_commit(&scene, what, table);
	CHECK_INT(pthread_create(&thread, NULL, settle_thread, &settler), 0);
	CHECK(scene_wait_commit_blocked(&scene, table));
	scene_cut_connections(&scene);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_unblock_commit(&scene, table);
	(void)pthread_join(thread, NULL);
	CHECK_OK(settler.r, &scene.error);
	CHECK_INT(settler.settlement.code, POSTERN_OK);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			0);
	scene_close(&scene);
}

static void settled_reply_lost(void) {
	settle_reply_lost(POSTERN_SETTLE_DONE, "INSERT", "ledger");
	settle_reply_lost(POSTERN_SETTLE_POISONED, "INSERT", "ledger");
	settle_reply_lost(POSTERN_SETTLE_PENDING, "UPDATE", "open");
	settle_reply_lost(POSTERN_SETTLE_RETURNED, "UPDATE", "open");
}

/* Both attempts wait for a session that has locked the delivery, and find that
   another settlement ended it or made it pending. */
static void settle_after_other(enum postern_settle_to to,
		const char *meanwhile) {
	struct scene scene;
	struct postern_accept accept;
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	CHECK_OK(scene_accept_leased(&scene, NODE, "1", &accept), &scene.error);
	struct settler settler = {
		.scene = &scene,
		.settlement = { .seq = accept.seq,
				.handler = scene.handler,
				.fence = 1,
				.to = to,
				.outcome = "some" },
	};
	scene.second = scene_connect();
	scene_run(scene.second, "BEGIN");
	scene_run(scene.second, meanwhile);
	CHECK_INT(pthread_create(&thread, NULL, settle_thread, &settler), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_cut_connections(&scene);
	CHECK(scene_wait_blocked(&scene, 2));
	end_second(&scene);
	(void)pthread_join(thread, NULL);
	CHECK_OK(settler.r, &scene.error);
	CHECK_INT(settler.settlement.code, POSTERN_E_STALE);
	scene_close(&scene);
}

/* Move the delivery to the ledger, under this fence and in this state. */
#define ENDED(fence, state)                                                  \
	"WITH gone AS (DELETE FROM " SCHEMA ".open RETURNING seq, handler)"      \
	" INSERT INTO " SCHEMA ".ledger SELECT seq, " fence ", 1, 1, handler, 0" \
	", 1, 0, " state " FROM gone"

static void settled_by_others(void) {
	settle_after_other(POSTERN_SETTLE_DONE, ENDED("2", "3"));
	settle_after_other(POSTERN_SETTLE_POISONED, ENDED("2", "4"));
	settle_after_other(POSTERN_SETTLE_DONE, ENDED("1", "5"));
	settle_after_other(POSTERN_SETTLE_PENDING,
			"UPDATE " SCHEMA ".open SET fence = 2, node = NULL");
}

static void *renew_thread(void *context) {
	bool alive = false;
	CHECK_INT(scene_renew_and_recover(context, NODE, &alive), POSTERN_OK);
	CHECK(alive);
	return NULL;
}

/* A batch is still in progress when a claim times out as well, and for longer
   than the store waits. */
static void two_uncertain(void) {
	struct scene scene;
	pthread_t thread;
	struct postern_accept accept;
	struct postern_route route;
	struct postern_claims claims = { 0 };
	struct postern_claimed claimed = { 0 };
	scene_open(&scene);
	CHECK_OK(scene_accept(&scene, NODE, "1", false, &accept, &route),
			&scene.error);
	scene_block_commit(&scene, "INSERT", "message");
	scene_block_commit(&scene, "UPDATE", "open");
	CHECK_INT(scene_accept_leased(&scene, NODE, "2", &accept),
			POSTERN_E_TIMEOUT);
	CHECK_INT(scene_try_claim(&scene, 10, &claims), POSTERN_E_TIMEOUT);
	scene_disable_timeouts(&scene);
	scene_unblock_commit(&scene, "open");
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 2);
	CHECK_INT(pthread_create(&thread, NULL, renew_thread, &scene), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(thread, NULL);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			2);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			1);
	scene_close(&scene);
}

struct claimer {
	struct scene *scene;
	uint32_t max;
	struct postern_claimed claimed;
	size_t count;
};

static void *claim_thread(void *context) {
	struct claimer *claimer = context;
	claimer->count =
			scene_claim(claimer->scene, claimer->max, &claimer->claimed);
	return NULL;
}

/* Three pending deliveries. Suspects of a handler that does not run in the
   process are claimed by another query. */
static void accept_three(struct scene *scene, bool suspect) {
	static const char *const ids[] = { "1", "2", "3" };
	struct postern_accept accept;
	struct postern_route route;
	for (size_t i = 0; i < 3; i++) {
		CHECK_OK(scene_accept(scene, NODE, ids[i], false, &accept, &route),
				&scene->error);
	}
	if (suspect) {
		scene_run(scene->link, "UPDATE " SCHEMA ".open SET suspect = 1");
	}
}

static void claim_beside_lock(bool suspect) {
	struct scene scene;
	struct postern_claimed claimed = { 0 };
	scene_open_with(&scene, PATIENCE_MS);
	accept_three(&scene, suspect);
	int64_t first =
			scene_number(scene.link, "SELECT min(seq) FROM " SCHEMA ".open");
	scene.second = scene_connect();
	scene_run(scene.second,
			"BEGIN; SELECT 1 FROM " SCHEMA ".open WHERE seq ="
			" (SELECT min(seq) FROM " SCHEMA ".open) FOR UPDATE");
	CHECK_INT(scene_claim(&scene, 10, &claimed), 2);
	CHECK(claimed.seq > first);
	end_second(&scene);
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.seq, first);
	scene_close(&scene);
}

static void claims_pass_over(void) {
	claim_beside_lock(false);
	claim_beside_lock(true);
}

/* The second claim starts and ends while the first commits. */
static void claim_during_claim(bool suspect) {
	struct scene scene;
	struct scene other;
	struct claimer claimer = { .scene = &other, .max = 1 };
	struct postern_claims claims = { 0 };
	pthread_t thread;
	scene_open_with(&scene, PATIENCE_MS);
	accept_three(&scene, suspect);
	/* Neither claim changes this row then, so they do not block each other on
	   it. */
	scene_run(scene.link, "UPDATE " SCHEMA ".node_sleep SET sleeps = false");
	scene_block_commit(&scene, "UPDATE", "open");
	other = scene;
	other.memory = postern_memory_create();
	CHECK_INT(pthread_create(&thread, NULL, claim_thread, &claimer), 0);
	CHECK(scene_wait_commit_blocked(&scene, "open"));
	CHECK_OK(scene_try_claim(&scene, 10, &claims), &scene.error);
	scene_unblock_commit(&scene, "open");
	(void)pthread_join(thread, NULL);
	CHECK_INT(claimer.count, 1);
	CHECK_INT(claims.count, 2);
	for (size_t i = 0; i < claims.count; i++) {
		CHECK(claims.items[i].seq != claimer.claimed.seq);
		CHECK_INT(claims.items[i].fence, 1);
	}
	postern_memory_destroy(other.memory);
	scene_close(&scene);
}

static void claims_at_once(void) {
	claim_during_claim(false);
	claim_during_claim(true);
}

/* The uncertain claim has not committed yet. */
static void claim_under_way(void) {
	struct scene scene;
	struct claimer claimer = { .scene = &scene, .max = 10 };
	struct postern_accept accept;
	struct postern_route route;
	struct postern_claims claims = { 0 };
	pthread_t thread;
	scene_open(&scene);
	CHECK_OK(scene_accept(&scene, NODE, "1", false, &accept, &route),
			&scene.error);
	scene_block_commit(&scene, "UPDATE", "open");
	CHECK_INT(scene_try_claim(&scene, 10, &claims), POSTERN_E_TIMEOUT);
	scene_disable_timeouts(&scene);
	CHECK_INT(pthread_create(&thread, NULL, claim_thread, &claimer), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_unblock_commit(&scene, "open");
	(void)pthread_join(thread, NULL);
	CHECK_INT(claimer.count, 1);
	CHECK_INT(claimer.claimed.fence, 2);
	scene_close(&scene);
}

/* The uncertain claim was rolled back, and the delivery is claimed under the
   same fence again: that lease is certain. */
static void claim_rolled_back(void) {
	static const char committing[] =
			" FROM pg_stat_activity WHERE application_name = 'postern'"
			" AND state = 'active' AND query = 'COMMIT'";
	struct scene scene;
	struct postern_accept accept;
	struct postern_route route;
	struct postern_claims claims = { 0 };
	struct postern_claimed claimed = { 0 };
	char sql[300];
	scene_open(&scene);
	CHECK_OK(scene_accept(&scene, NODE, "1", false, &accept, &route),
			&scene.error);
	scene_block_commit(&scene, "UPDATE", "open");
	CHECK_INT(scene_try_claim(&scene, 10, &claims), POSTERN_E_TIMEOUT);
	scene_disable_timeouts(&scene);
	(void)snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(pid)%s",
			committing);
	scene_run(scene.link, sql);
	(void)snprintf(sql, sizeof sql, "SELECT count(*)%s", committing);
	CHECK(scene_wait_for(&scene, sql, 0));
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 1);
	(void)renew_thread(&scene);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 42"),
			1);
	scene_close(&scene);
}

static void do_nothing(void *context, void *transaction, uint64_t epoch,
		struct postern_outcome *outcome) {
	(void)context;
	(void)transaction;
	(void)epoch;
	(void)outcome;
}

/* The node has another lease of the delivery, under a later fence. */
static void lost_ahead(void) {
	struct scene scene;
	struct postern_unit units[3] = { 0 };
	scene_open(&scene);
	for (int i = 0; i < 3; i++) {
		char id[8];
		struct postern_accept accept;
		(void)snprintf(id, sizeof id, "%d", i);
		CHECK_OK(scene_accept_leased(&scene, NODE, id, &accept), &scene.error);
		units[i] = (struct postern_unit){
			.seq = accept.seq,
			.handler = scene.handler,
			.fence = 1,
			.sends_ahead = true,
			.run = do_nothing,
		};
	}
	scene_run(scene.link, "UPDATE " SCHEMA ".open SET fence = 2 WHERE seq ="
						  " (SELECT max(seq) FROM " SCHEMA ".open)");
	CHECK_OK(scene.store->ops->transact(scene.store, NODE, NULL, units, 3,
					 &scene.error),
			&scene.error);
	CHECK(units[0].committed && units[1].committed && !units[2].committed);
	CHECK_INT(units[2].code, POSTERN_E_STALE);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"
									   " WHERE node = 42 AND fence = 2"),
			1);
	scene_close(&scene);
}

struct recoverer {
	struct scene *scene;
	struct postern_recovered recovered;
};

static void *recover_thread(void *context) {
	struct recoverer *recoverer = context;
	struct postern_store *store = recoverer->scene->store;
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	CHECK_OK(store->ops->recover(store, &recovery, &recoverer->recovered, NULL),
			NULL);
	return NULL;
}

/* Another session has locked one of the leases and changes it. The recovery
   does not wait long and may have to be repeated. */
static void recovered_when_changed(void) {
	struct scene scene;
	struct postern_accept accept;
	struct recoverer recoverer = { .scene = &scene };
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "1", &accept), &scene.error);
	CHECK_OK(scene_accept_leased(&scene, FROZEN, "2", &accept), &scene.error);
	scene_run(scene.link, "UPDATE " SCHEMA ".node_term SET renewed_at = 0,"
						  " lives_until = 1, late_since = 1 WHERE node = 43");
	scene.second = scene_connect();
	for (int i = 0; i < PATIENCE_MS && recoverer.recovered.released == 0; i++) {
		scene_run(scene.second,
				"BEGIN; UPDATE " SCHEMA ".open SET since = 1"
				" WHERE seq = (SELECT max(seq) FROM " SCHEMA ".open)");
		CHECK_INT(pthread_create(&thread, NULL, recover_thread, &recoverer), 0);
		CHECK(scene_wait_blocked(&scene, 1));
		scene_run(scene.second, "COMMIT");
		(void)pthread_join(thread, NULL);
	}
	PQfinish(scene.second);
	scene.second = NULL;
	CHECK_INT(recoverer.recovered.released, 2);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"
									   " WHERE node IS NULL"),
			2);
	scene_close(&scene);
}

/* The expired node has a batch in progress that leases. */
static void recovered_during_batch(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .node = FROZEN, .lease = true };
	struct recoverer recoverer = { .scene = &scene };
	scene_open_without_timeouts(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	scene_block_commit(&scene, "INSERT", "message");
	start_sender(&sender);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	scene_run(scene.link, "UPDATE " SCHEMA ".node_term SET renewed_at = 0,"
						  " lives_until = 1, late_since = 1 WHERE node = 43");
	(void)recover_thread(&recoverer);
	CHECK_INT(recoverer.recovered.released, 0);
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(sender.thread, NULL);
	CHECK_OK(sender.r, &scene.error);
	(void)recover_thread(&recoverer);
	CHECK_INT(recoverer.recovered.released, 1);
	scene_close(&scene);
}

/* A node that ends, then another one that recovers its leases. */
struct ending {
	struct scene *scene;
	struct recoverer recoverer;
	atomic_bool done;
};

static void *end_and_recover(void *context) {
	struct ending *ending = context;
	struct postern_store *store = ending->scene->store;
	struct postern_error error = { 0 };
	bool alive = false;
	CHECK_OK(store->ops->renew(store, FROZEN, 0, &alive, &error), &error);
	CHECK(alive);
	(void)recover_thread(&ending->recoverer);
	atomic_store(&ending->done, true);
	return NULL;
}

/* The node has a batch in progress that leases. Either the end waits for it, or
   the batch is refused; no lease stays with a node that ended. */
static void ended_during_batch(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .node = FROZEN, .lease = true };
	struct ending ending = { .scene = &scene, .recoverer.scene = &scene };
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	scene_block_commit(&scene, "INSERT", "message");
	start_sender(&sender);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	CHECK_INT(pthread_create(&thread, NULL, end_and_recover, &ending), 0);
	while (!atomic_load(&ending.done) && !scene_is_blocked(&scene, 1)) {
		(void)usleep(1000);
	}
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(sender.thread, NULL);
	(void)pthread_join(thread, NULL);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 43"),
			0);
	scene_close(&scene);
}

/* The same for a late node under a lock, which keeps another node from leasing
   without a lock until it expires. */
static void engaged_during_batch(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .node = FROZEN, .lease = true };
	struct recoverer recoverer = { .scene = &scene };
	struct postern_error error = { 0 };
	scene_open_without_timeouts(&scene);
	struct postern_store *store = scene.store;
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	CHECK_OK(store->ops->engage(store, FROZEN, "lock", &error), &error);
	scene_block_commit(&scene, "INSERT", "message");
	start_sender(&sender);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	scene_run(scene.link, "UPDATE " SCHEMA ".node_term SET renewed_at = 0,"
						  " lives_until = 1, late_since = 1 WHERE node = 43");
	(void)store->ops->engage(store, NODE, NULL, &error);
	(void)recover_thread(&recoverer);
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(sender.thread, NULL);
	CHECK_OK(store->ops->engage(store, NODE, NULL, &error), &error);
	(void)recover_thread(&recoverer);
	CHECK_INT(scene_number(scene.link,
					  "SELECT count(*) FROM " SCHEMA ".open WHERE node = 43"),
			0);
	scene_close(&scene);
}

static void *poison_orphans(void *context) {
	struct scene *scene = context;
	struct postern_store *store = scene->store;
	struct postern_orphan *orphans = NULL;
	size_t count = 0;
	CHECK_OK(store->ops->orphans(store, NODE, NULL, true, 10, scene->memory,
					 &orphans, &count, &scene->error),
			&scene->error);
	CHECK_INT(count, 0);
	return NULL;
}

/* A node that has the handler is enrolling. */
static void orphans_enrolled(void) {
	struct scene scene;
	struct postern_accept accept;
	struct postern_route route;
	pthread_t thread;
	char sql[300];
	scene_open_without_timeouts(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	CHECK_OK(scene_accept(&scene, NODE, "1", false, &accept, &route),
			&scene.error);
	scene_run(scene.link, "DELETE FROM " SCHEMA ".node_handler");
	scene.second = scene_connect();
	(void)snprintf(sql, sizeof sql,
			"BEGIN; LOCK TABLE " SCHEMA ".handler IN SHARE ROW EXCLUSIVE MODE;"
			" INSERT INTO " SCHEMA ".node_handler VALUES (43, %lld)",
			(long long)scene.handler);
	scene_run(scene.second, sql);
	CHECK_INT(pthread_create(&thread, NULL, poison_orphans, &scene), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_run(scene.second, "COMMIT");
	(void)pthread_join(thread, NULL);
	PQfinish(scene.second);
	scene.second = NULL;
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			1);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a lease whose reply was lost is reported as leased when sent again",
			leased_reply_lost },
	{ "a delivery the node claimed meanwhile is not reported as leased to the "
	  "sender",
			claimed_reply_lost },
	{ "a lease that was recovered and claimed meanwhile is not reported as "
	  "leased",
			claimed_again_reply_lost },
	{ "a settlement whose reply was lost is reported as settled when sent "
	  "again",
			settled_reply_lost },
	{ "a settlement by another session is reported as stale when sent again",
			settled_by_others },
	{ "a copy does not reopen a delivery that was done while it waited",
			done_before_copy },
	{ "a copy and the unparking of its message do not deadlock",
			unparked_before_copy },
	{ "a copy whose remembered id is removed meanwhile is a new message",
			key_removed_before_copy },
	{ "a batch stays uncertain when uncertain claims are resolved",
			two_uncertain },
	{ "a claim skips locked deliveries and leases the others",
			claims_pass_over },
	{ "two concurrent claims neither wait nor lease the same delivery",
			claims_at_once },
	{ "the next claim waits for an uncertain one that is in progress",
			claim_under_way },
	{ "a lease claimed after an uncertain claim was rolled back is kept",
			claim_rolled_back },
	{ "of several units sent ahead one whose lease is lost is not done",
			lost_ahead },
	{ "every delivery counted as recovered is pending, also one changed "
	  "meanwhile",
			recovered_when_changed },
	{ "leases that an expired node commits late are recovered",
			recovered_during_batch },
	{ "leases that a node commits while it ends are recovered",
			ended_during_batch },
	{ "leases that a late node commits while another engages are recovered",
			engaged_during_batch },
	{ "no delivery is poisoned as orphaned while its handler is being enrolled",
			orphans_enrolled },
};

TAP_MAIN(cases)
