/* SPDX-License-Identifier: MIT */

/*
 * What others do in PostgreSQL between two statements of the store, or between
 * two tries of one: every order is made by locks that the test holds.
 */

#include <pthread.h>
#include <stdio.h>

#include "tap.h"
#include "unit/postgres_scene.h"

/* A message that is sent by a thread of its own. */
struct sender {
	struct scene *scene;
	bool lease;
	struct postern_accept accept;
	struct postern_route route;
	int r;
	pthread_t thread;
};

static void *send_message(void *context) {
	struct sender *sender = context;
	sender->r = scene_accept(sender->scene, NODE, "1", sender->lease,
			&sender->accept, &sender->route);
	return NULL;
}

static void start(struct sender *sender) {
	CHECK_INT(pthread_create(&sender->thread, NULL, send_message, sender), 0);
}

/* It is stored, but its sender does not hear of that; the second try waits at
   the key until `second` ends its transaction. */
static void send_unheard(struct scene *scene, struct sender *sender) {
	scene_hold_up(scene, "INSERT", "message");
	scene->second = scene_connect();
	start(sender);
	CHECK(scene_wait_held_up(scene, "message"));
	CHECK_INT(PQsendQuery(scene->second, "BEGIN; LOCK TABLE " SCHEMA ".seen"),
			1);
	CHECK(scene_wait_blocked(scene, 1));
	scene_cut_lines(scene);
	CHECK(scene_wait_blocked(scene, 2));
	scene_let_go(scene, "message");
	CHECK(scene_wait_blocked(scene, 1));
	for (PGresult *result; (result = PQgetResult(scene->second));) {
		PQclear(result);
	}
	CHECK_INT(scene_number(scene->link,
					  "SELECT count(*) FROM " SCHEMA ".message"),
			1);
}

static void be_heard(struct scene *scene, struct sender *sender) {
	scene_run(scene->second, "COMMIT");
	PQfinish(scene->second);
	scene->second = NULL;
	(void)pthread_join(sender->thread, NULL);
	if (CHECK_OK(sender->r, &scene->error)) {
		CHECK_INT(sender->accept.code, POSTERN_OK);
		CHECK(sender->route.opened);
	}
}

static void leased_unheard(void) {
	struct scene scene;
	struct sender sender = { .scene = &scene, .lease = true };
	scene_open_with(&scene, PATIENCE_MS);
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
	scene_open_with(&scene, PATIENCE_MS);
	send_unheard(&scene, &sender);
	CHECK_INT(scene_claim(&scene, 10, &claimed), 1);
	CHECK_INT(claimed.fence, 1);
	be_heard(&scene, &sender);
	CHECK(!sender.route.leased);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "what was leased unheard is told as leased when it is sent again",
			leased_unheard },
	{ "what the node claimed meanwhile is not told as leased to the sender",
			claimed_unheard },
};

TAP_MAIN(cases)
