/* SPDX-License-Identifier: MIT */

/*
 * What others do in PostgreSQL between two statements of the store, or between
 * two tries of one: every order is made by locks that the test holds.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "tap.h"
#include "unit/postgres_scene.h"

/* A message that is sent by a thread of its own. */
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

static void start(struct sender *sender) {
	CHECK_INT(pthread_create(&sender->thread, NULL, send_message, sender), 0);
}

/* It is stored, but its sender does not hear of that; the second try waits at
   the key until `second` ends its transaction. */
static void send_unheard(struct scene *scene, struct sender *sender) {
	scene_block_commit(scene, "INSERT", "message");
	scene->second = scene_connect();
	start(sender);
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

/* Whoever waits for it goes on. */
static void end_second(struct scene *scene) {
	scene_run(scene->second, "COMMIT");
	PQfinish(scene->second);
	scene->second = NULL;
}

static void be_heard(struct scene *scene, struct sender *sender) {
	end_second(scene);
	(void)pthread_join(sender->thread, NULL);
	if (CHECK_OK(sender->r, &scene->error)) {
		CHECK_INT(sender->accept.code, POSTERN_OK);
		CHECK(sender->route.opened);
	}
}

static void leased_unheard(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .lease = true };
	scene_open_without_timeouts(&scene);
	send_unheard(&scene, &sender);
	be_heard(&scene, &sender);
	CHECK(sender.route.leased);
	CHECK_INT(sender.route.fence, 1);
	scene_close(&scene);
}

/* Whoever claims runs it. */
static void claimed_unheard(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	struct postern_claimed claimed = { 0 };
	scene_open_without_timeouts(&scene);
	send_unheard(&scene, &sender);
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 1);
	be_heard(&scene, &sender);
	CHECK(!sender.route.leased);
	scene_close(&scene);
}

/* The lease was taken back, and then the node has claimed it: the sender would
   run it beside that. */
static void claimed_again_unheard(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .lease = true };
	struct postern_claimed claimed = { 0 };
	scene_open_without_timeouts(&scene);
	send_unheard(&scene, &sender);
	scene_run(scene.link, "UPDATE " SCHEMA ".open SET node = NULL");
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 2);
	be_heard(&scene, &sender);
	CHECK(!sender.route.leased);
	CHECK_INT(sender.route.fence, 0);
	scene_close(&scene);
}

/* A message that nobody wanted, and a copy of it that somebody wants, held up
   by what is locked. */
static void meet_parked(struct scene *scene, struct sender *sender,
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
	start(sender);
	CHECK(scene_wait_blocked(scene, 1));
}

static void end_meeting(struct scene *scene, struct sender *sender) {
	end_second(scene);
	(void)pthread_join(sender->thread, NULL);
	CHECK_OK(sender->r, &scene->error);
	CHECK_INT(sender->accept.code, POSTERN_E_DUPLICATE);
	CHECK(!sender->route.opened);
}

/* It is woken, run and done while the copy waits for the message. */
static void done_before_copy(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	char sql[300];
	meet_parked(&scene, &sender, "SELECT 1 FROM " SCHEMA ".message FOR UPDATE");
	(void)snprintf(sql, sizeof sql,
			"DELETE FROM " SCHEMA ".parked; INSERT INTO " SCHEMA
			".ledger SELECT seq, 1, 1, 1, %lld, 0, 1, 0, 3 FROM " SCHEMA
			".message",
			(long long)scene.handler);
	scene_run(scene.link, sql);
	end_meeting(&scene, &sender);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			0);
	scene_close(&scene);
}

/* It is being woken, which locks it first and opens it then: neither waits for
   what the other one does next. */
static void woken_before_copy(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene };
	char sql[300];
	meet_parked(&scene, &sender, "SELECT 1 FROM " SCHEMA ".parked FOR UPDATE");
	(void)snprintf(sql, sizeof sql,
			"SET LOCAL lock_timeout = 500;" /* it waits for nobody */
			" INSERT INTO " SCHEMA ".open SELECT seq, 0, NULL, 1, 1, 0, NULL,"
			" %lld, 0, 0, 0, false FROM " SCHEMA ".message"
			" ON CONFLICT DO NOTHING; DELETE FROM " SCHEMA ".parked",
			(long long)scene.handler);
	scene_run(scene.second, sql);
	end_meeting(&scene, &sender);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			1);
	scene_close(&scene);
}

/* The copy has found its key taken, and then the key goes. */
static void forgotten_before_copy(void) {
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
	start(&sender);
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

/* A lease that is settled by a thread of its own. */
struct settler {
	struct scene *scene;
	struct postern_settlement settlement;
	int r;
};

static void *settle(void *context) {
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

/* The first try takes effect and is not heard of, the second waits for it. */
static void settle_unheard(enum postern_settle_to to, const char *what,
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
	CHECK_INT(pthread_create(&thread, NULL, settle, &settler), 0);
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

static void settled_unheard(void) {
	settle_unheard(POSTERN_SETTLE_DONE, "INSERT", "ledger");
	settle_unheard(POSTERN_SETTLE_POISONED, "INSERT", "ledger");
	settle_unheard(POSTERN_SETTLE_PENDING, "UPDATE", "open");
	settle_unheard(POSTERN_SETTLE_RETURNED, "UPDATE", "open");
}

/* Both tries wait for somebody who has the delivery in his hands, and find that
   it has ended, or is pending, by what was not theirs. */
static void settle_overtaken(enum postern_settle_to to, const char *meanwhile) {
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
	CHECK_INT(pthread_create(&thread, NULL, settle, &settler), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_cut_connections(&scene);
	CHECK(scene_wait_blocked(&scene, 2));
	end_second(&scene);
	(void)pthread_join(thread, NULL);
	CHECK_OK(settler.r, &scene.error);
	CHECK_INT(settler.settlement.code, POSTERN_E_STALE);
	scene_close(&scene);
}

/* In the ledger, under this fence and in this state. */
#define ENDED(fence, state)                                                  \
	"WITH gone AS (DELETE FROM " SCHEMA ".open RETURNING seq, handler)"      \
	" INSERT INTO " SCHEMA ".ledger SELECT seq, " fence ", 1, 1, handler, 0" \
	", 1, 0, " state " FROM gone"

static void settled_by_others(void) {
	settle_overtaken(POSTERN_SETTLE_DONE, ENDED("2", "3"));
	settle_overtaken(POSTERN_SETTLE_POISONED, ENDED("2", "4"));
	settle_overtaken(POSTERN_SETTLE_DONE, ENDED("1", "5"));
	settle_overtaken(POSTERN_SETTLE_PENDING,
			"UPDATE " SCHEMA ".open SET fence = 2, node = NULL");
}

static void *keep(void *context) {
	bool alive = false;
	CHECK_INT(scene_renew_and_recover(context, NODE, &alive), POSTERN_OK);
	CHECK(alive);
	return NULL;
}

/* A batch is still under way when a claim is given up as well, and longer than
   the store waits for any. */
static void two_doubts(void) {
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
	CHECK_INT(pthread_create(&thread, NULL, keep, &scene), 0);
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

static void *claim(void *context) {
	struct claimer *claimer = context;
	claimer->count =
			scene_claim(claimer->scene, claimer->max, &claimer->claimed);
	return NULL;
}

/* Three that nobody has. Suspects are found on a way of their own if their
   handler does not run in the process. */
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

/* The second claim comes and goes while the first commits. */
static void claim_during_claim(bool suspect) {
	struct scene scene;
	struct scene other;
	struct claimer claimer = { .scene = &other, .max = 1 };
	struct postern_claims claims = { 0 };
	pthread_t thread;
	scene_open_with(&scene, PATIENCE_MS);
	accept_three(&scene, suspect);
	/* Neither changes that, so they do not meet there. */
	scene_run(scene.link, "UPDATE " SCHEMA ".node_sleep SET sleeps = false");
	scene_block_commit(&scene, "UPDATE", "open");
	other = scene;
	other.memory = postern_memory_create();
	CHECK_INT(pthread_create(&thread, NULL, claim, &claimer), 0);
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

/* What is in doubt is not decided yet. */
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
	CHECK_INT(pthread_create(&thread, NULL, claim, &claimer), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_unblock_commit(&scene, "open");
	(void)pthread_join(thread, NULL);
	CHECK_INT(claimer.count, 1);
	CHECK_INT(claimer.claimed.fence, 2);
	scene_close(&scene);
}

/* What was in doubt has come to nothing, and is claimed under the same fence
   once more: that one is known. */
static void claim_undone(void) {
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
	(void)keep(&scene);
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

/* The node has another lease of it, under a later fence. */
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

static void *recover(void *context) {
	struct recoverer *recoverer = context;
	struct postern_store *store = recoverer->scene->store;
	const struct postern_recovery recovery = { .node = NODE, .max = 10 };
	CHECK_OK(store->ops->recover(store, &recovery, &recoverer->recovered, NULL),
			NULL);
	return NULL;
}

/* One lease is changed by somebody who has it locked when it is found; whoever
   recovers does not wait long, and may have to come again. */
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
		CHECK_INT(pthread_create(&thread, NULL, recover, &recoverer), 0);
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

/* Whoever is found gone has a batch under way, which leases. */
static void recovered_under_way(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .node = FROZEN, .lease = true };
	struct recoverer recoverer = { .scene = &scene };
	scene_open_without_timeouts(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	scene_block_commit(&scene, "INSERT", "message");
	start(&sender);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	scene_run(scene.link, "UPDATE " SCHEMA ".node_term SET renewed_at = 0,"
						  " lives_until = 1, late_since = 1 WHERE node = 43");
	(void)recover(&recoverer);
	CHECK_INT(recoverer.recovered.released, 0);
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(sender.thread, NULL);
	CHECK_OK(sender.r, &scene.error);
	(void)recover(&recoverer);
	CHECK_INT(recoverer.recovered.released, 1);
	scene_close(&scene);
}

/* A node that ends, and then another one that recovers its leases. */
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
	(void)recover(&ending->recoverer);
	atomic_store(&ending->done, true);
	return NULL;
}

/* The node has a batch under way, which leases. Either the end waits for it,
   or the batch is refused; no lease stays with a node that ended. */
static void ended_under_way(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .node = FROZEN, .lease = true };
	struct ending ending = { .scene = &scene, .recoverer.scene = &scene };
	pthread_t thread;
	scene_open_without_timeouts(&scene);
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	scene_block_commit(&scene, "INSERT", "message");
	start(&sender);
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

/* The same for a node that is late, under a lock, and keeps another one from
   leasing without one: whoever wants to asks until it may. */
static void engaged_under_way(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .node = FROZEN, .lease = true };
	struct recoverer recoverer = { .scene = &scene };
	struct postern_error error = { 0 };
	scene_open_without_timeouts(&scene);
	struct postern_store *store = scene.store;
	scene_enrol(&scene, FROZEN, PATIENCE_MS);
	CHECK_OK(store->ops->engage(store, FROZEN, "lock", &error), &error);
	scene_block_commit(&scene, "INSERT", "message");
	start(&sender);
	CHECK(scene_wait_commit_blocked(&scene, "message"));
	scene_run(scene.link, "UPDATE " SCHEMA ".node_term SET renewed_at = 0,"
						  " lives_until = 1, late_since = 1 WHERE node = 43");
	(void)store->ops->engage(store, NODE, NULL, &error);
	(void)recover(&recoverer);
	scene_unblock_commit(&scene, "message");
	(void)pthread_join(sender.thread, NULL);
	CHECK_OK(store->ops->engage(store, NODE, NULL, &error), &error);
	(void)recover(&recoverer);
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

/* A node that registers the handler is about to begin. */
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
	{ "what was leased unheard is told as leased when it is sent again",
			leased_unheard },
	{ "what the node claimed meanwhile is not told as leased to the sender",
			claimed_unheard },
	{ "what was leased and claimed meanwhile is not told as leased either",
			claimed_again_unheard },
	{ "what was settled unheard is told as settled when it is sent again",
			settled_unheard },
	{ "what others settled is not told as settled when it is sent again",
			settled_by_others },
	{ "a copy does not open what was done while it waited", done_before_copy },
	{ "a copy and who wakes its message do not wait for each other",
			woken_before_copy },
	{ "a copy of what is forgotten while it comes is a new message",
			forgotten_before_copy },
	{ "a batch stays in doubt when those about claims are settled",
			two_doubts },
	{ "a claim passes over what somebody has locked, and takes the rest",
			claims_pass_over },
	{ "of two claims at once neither waits nor gets what the other has",
			claims_at_once },
	{ "a claim in doubt is waited for while it is under way", claim_under_way },
	{ "what is claimed after a claim in doubt was undone is kept",
			claim_undone },
	{ "of several sent ahead one whose lease is lost is not done", lost_ahead },
	{ "what is counted as recovered is free, whoever changed it meanwhile",
			recovered_when_changed },
	{ "what a lost node is still leasing is not lost to a recovery",
			recovered_under_way },
	{ "what a node is still leasing when it ends is recovered",
			ended_under_way },
	{ "what a late node is still leasing when another engages is recovered",
			engaged_under_way },
	{ "nothing is poisoned for want of a handler that is being registered",
			orphans_enrolled },
};

TAP_MAIN(cases)
