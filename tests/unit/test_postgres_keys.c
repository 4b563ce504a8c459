/* SPDX-License-Identifier: MIT */

/*
 * Keys that handlers have of their own, used by two nodes at the same moment:
 * each node has a store of its own on one database. And what becomes of such a
 * key if a reply is lost or cleanup comes between.
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/identity.h"
#include "unit/postgres_scene.h"

#define ROUNDS 20
#define BATCH 40
#define OTHER_NODE 44

static struct postern_dedupe_key key_of(const char *value) {
	return (struct postern_dedupe_key){
		.value = value,
		.value_len = strlen(value),
	};
}

/* Enrol one handler; returns its id. */
static int64_t enrol(struct scene *scene, uint64_t node, const char *key,
		const char *legacy_key) {
	struct postern_enrol_channel channel = { .name = "orders" };
	struct postern_enrol_handler handler = {
		.key = key,
		.legacy_keys = &legacy_key,
		.legacy_key_count = legacy_key ? 1 : 0,
	};
	struct postern_enrolment enrolment = {
		.node = node,
		.node_lease_ms = PATIENCE_MS,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	CHECK_OK(scene->store->ops->enrol(scene->store, &enrolment, &scene->error),
			&scene->error);
	return handler.id;
}

/* One of two nodes in a race. */
struct rival {
	struct scene scene; /* only its store, channel and error */
	uint64_t node;
	pthread_barrier_t *start;
	/* Enrol first, which makes the old key a legacy key; NULL: do not. */
	const char *key;
	const char *legacy_key;
	int64_t handler;
	char id[16];
	const char *value;
	bool backwards; /* in a batch: the last key first */
	/* out */
	int opened;
	pthread_t thread;
};

static void rival_open(struct rival *rival, struct scene *scene, uint64_t node,
		pthread_barrier_t *start) {
	*rival = (struct rival){
		.scene = *scene,
		.node = node,
		.start = start,
	};
	rival->scene.store = scene_open_store(scene, PATIENCE_MS);
}

static void race(struct rival rivals[2], void *(*thread_main)(void *)) {
	for (int i = 0; i < 2; i++) {
		CHECK_INT(pthread_create(&rivals[i].thread, NULL, thread_main,
						  &rivals[i]),
				0);
	}
	for (int i = 0; i < 2; i++) {
		(void)pthread_join(rivals[i].thread, NULL);
	}
}

static void *accept_as_rival(void *context) {
	struct rival *rival = context;
	struct postern_accept accept;
	struct postern_dedupe_key key = key_of(rival->value);
	(void)pthread_barrier_wait(rival->start);
	if (rival->legacy_key) {
		CHECK_INT(enrol(&rival->scene, rival->node, rival->key,
						  rival->legacy_key),
				rival->handler);
	}
	struct postern_route route = {
		.handler = rival->handler,
		.lease = true,
		.key = &key,
	};
	CHECK_OK(scene_accept_route(&rival->scene, rival->node, rival->id, &accept,
					 &route),
			&rival->scene.error);
	CHECK_INT(accept.code, POSTERN_OK);
	CHECK_INT(route.leased, route.opened);
	rival->opened = route.opened;
	return NULL;
}

static void old_and_new_key(void) {
	struct scene scene;
	struct rival rivals[2];
	pthread_barrier_t start;
	scene_open_without_timeouts(&scene);
	(void)pthread_barrier_init(&start, NULL, 2);
	rival_open(&rivals[0], &scene, NODE, &start);
	rival_open(&rivals[1], &scene, OTHER_NODE, &start);
	for (int i = 0; i < ROUNDS; i++) {
		char old_key[16];
		char new_key[16];
		(void)snprintf(old_key, sizeof old_key, "old-%d", i);
		(void)snprintf(new_key, sizeof new_key, "new-%d", i);
		rivals[0].handler = enrol(&rivals[0].scene, NODE, old_key, NULL);
		rivals[1].handler = enrol(&rivals[1].scene, OTHER_NODE, new_key, NULL);
		CHECK(rivals[0].handler != rivals[1].handler);
		/* In every second round the alias is older than the race. */
		rivals[1].key = new_key;
		rivals[1].legacy_key = i % 2 ? NULL : old_key;
		if (i % 2) {
			enrol(&rivals[1].scene, OTHER_NODE, new_key, old_key);
		}
		for (int j = 0; j < 2; j++) {
			(void)snprintf(rivals[j].id, sizeof rivals[j].id, "%d-%d", i, j);
			rivals[j].value = "17";
		}
		race(rivals, accept_as_rival);
		CHECK_INT(rivals[0].opened + rivals[1].opened, 1);
		CHECK_INT(scene_number(scene.link,
						  "SELECT count(*) FROM " SCHEMA ".open"),
				i + 1);
	}
	for (int i = 0; i < 2; i++) {
		postern_store_destroy(rivals[i].scene.store);
	}
	(void)pthread_barrier_destroy(&start);
	scene_close(&scene);
}

static void *accept_many(void *context) {
	struct rival *rival = context;
	struct postern_message messages[BATCH];
	struct postern_accept accepts[BATCH];
	struct postern_route routes[BATCH];
	struct postern_dedupe_key keys[BATCH];
	char ids[BATCH][24];
	char values[BATCH][24];
	for (int i = 0; i < BATCH; i++) {
		(void)snprintf(ids[i], sizeof ids[i], "%s-%d", rival->id, i);
		(void)snprintf(values[i], sizeof values[i], "%s-%d", rival->value,
				rival->backwards ? BATCH - 1 - i : i);
		messages[i] = (struct postern_message){
			.size = sizeof messages[i],
			.id = ids[i],
			.source = "shop",
			.type = "order.paid",
			.body = "body",
			.body_len = 4,
		};
		keys[i] = key_of(values[i]);
		routes[i] = (struct postern_route){
			.handler = rival->handler,
			.key = &keys[i],
		};
		accepts[i] = (struct postern_accept){
			.message = &messages[i],
			.key = postern__dedupe_key_by_id(&messages[i]),
			.channel = rival->scene.channel,
			.routes = &routes[i],
			.route_count = 1,
		};
	}
	struct postern_batch batch = {
		.node = rival->node,
		.accepts = accepts,
		.accept_count = BATCH,
	};
	(void)pthread_barrier_wait(rival->start);
	CHECK_OK(rival->scene.store->ops->apply(rival->scene.store, &batch,
					 &rival->scene.error),
			&rival->scene.error);
	rival->opened = 0;
	for (int i = 0; i < BATCH; i++) {
		rival->opened += routes[i].opened;
		CHECK_INT(routes[i].opened, routes[i].suppressed_by == 0);
	}
	return NULL;
}

#define DEADLOCKS                                           \
	"SELECT deadlocks FROM pg_stat_database WHERE datname " \
	"= current_database()"

static void many_keys_at_once(void) {
	struct scene scene;
	struct rival rivals[2];
	pthread_barrier_t start;
	char value[16];
	scene_open_without_timeouts(&scene);
	int64_t deadlocks = scene_number(scene.link, DEADLOCKS);
	(void)pthread_barrier_init(&start, NULL, 2);
	for (int i = 0; i < 2; i++) {
		rival_open(&rivals[i], &scene, i == 0 ? NODE : OTHER_NODE, &start);
		rivals[i].handler = enrol(&rivals[i].scene, rivals[i].node, "a", NULL);
		rivals[i].backwards = i == 1;
		rivals[i].value = value;
	}
	for (int i = 0; i < ROUNDS; i++) {
		(void)snprintf(value, sizeof value, "%d", i);
		for (int j = 0; j < 2; j++) {
			(void)snprintf(rivals[j].id, sizeof rivals[j].id, "%d-%d", i, j);
		}
		race(rivals, accept_many);
		CHECK_INT(rivals[0].opened + rivals[1].opened, BATCH);
	}
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			ROUNDS * BATCH);
	for (int i = 0; i < 2; i++) {
		postern_store_destroy(rivals[i].scene.store);
	}
	CHECK_INT(scene_number(scene.link, DEADLOCKS), deadlocks);
	(void)pthread_barrier_destroy(&start);
	scene_close(&scene);
}

/* A message that is sent by a thread of its own, with the key "17". */
struct sender {
	struct scene *scene;
	const char *id;
	struct postern_accept accept;
	struct postern_route route;
	int r;
	pthread_t thread;
};

static void *send_with_key(void *context) {
	struct sender *sender = context;
	struct postern_dedupe_key key = key_of("17");
	sender->route = (struct postern_route){
		.handler = sender->scene->handler,
		.lease = true,
		.key = &key,
	};
	sender->r = scene_accept_route(sender->scene, NODE, sender->id,
			&sender->accept, &sender->route);
	return NULL;
}

/* Send a message; its first reply is lost, and the server commits later.
   `table` is another one for each call. */
static void send_reply_lost(struct scene *scene, struct sender *sender,
		const char *table) {
	scene_block_commit(scene, "INSERT", table);
	CHECK_INT(pthread_create(&sender->thread, NULL, send_with_key, sender), 0);
	CHECK(scene_wait_commit_blocked(scene, table));
	scene_cut_connections(scene);
	/* The second try waits for the first one at the message's key. */
	CHECK(scene_wait_blocked(scene, 1));
	scene_unblock_commit(scene, table);
	(void)pthread_join(sender->thread, NULL);
	CHECK_OK(sender->r, &scene->error);
	CHECK_INT(sender->accept.code, POSTERN_OK);
}

static void reply_lost(void) {
	struct scene scene;
	scene_open_without_timeouts(&scene);
	struct sender first = { .scene = &scene, .id = "1" };
	send_reply_lost(&scene, &first, "message");
	CHECK(first.route.opened);
	CHECK(first.route.leased);
	CHECK_INT(first.route.suppressed_by, 0);
	struct sender second = { .scene = &scene, .id = "2" };
	send_reply_lost(&scene, &second, "seen");
	CHECK(!second.route.opened);
	CHECK(!second.route.leased);
	CHECK_INT(second.route.suppressed_by, first.accept.seq);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".open"),
			1);
	scene_close(&scene);
}

/* The key is found under an alias, and another session removes it before the
   message gets it in the scope of the owner. */
static void key_removed(void) {
	struct scene scene;
	scene_open_without_timeouts(&scene);
	struct sender first = { .scene = &scene, .id = "1" };
	int64_t owner = scene.handler;
	scene.handler = enrol(&scene, NODE, "b", NULL);
	send_with_key(&first);
	CHECK_OK(first.r, &scene.error);
	CHECK_INT(enrol(&scene, NODE, "a", "b"), owner);
	scene.handler = owner;
	PGconn *other = scene_connect();
	char sql[300];
	(void)snprintf(sql, sizeof sql,
			"BEGIN; INSERT INTO " SCHEMA ".seen"
			" SELECT k0, k1, k2 # scope # %lld, seq, at, digest, channel, %lld"
			" FROM " SCHEMA ".seen WHERE scope <> 0",
			(long long)owner, (long long)owner);
	scene_run(other, sql);
	struct sender second = { .scene = &scene, .id = "2" };
	CHECK_INT(pthread_create(&second.thread, NULL, send_with_key, &second), 0);
	CHECK(scene_wait_blocked(&scene, 1));
	scene_run(scene.link, "DELETE FROM " SCHEMA ".seen WHERE scope <> 0");
	scene_run(other, "ROLLBACK");
	(void)pthread_join(second.thread, NULL);
	CHECK_OK(second.r, &scene.error);
	CHECK(second.route.opened);
	CHECK_INT(scene_number(scene.link, "SELECT count(*) FROM " SCHEMA ".seen"
									   " WHERE scope <> 0 AND seq > 1"),
			2);
	PQfinish(other);
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "nodes with the old and the new handler key open one delivery",
			old_and_new_key },
	{ "batches with the same keys in another order do not deadlock",
			many_keys_at_once },
	{ "a route has the same result when its batch is sent again", reply_lost },
	{ "a key that is removed while a message waits for it is new",
			key_removed },
};

TAP_MAIN(cases)
