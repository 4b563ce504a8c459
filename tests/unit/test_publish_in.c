/* SPDX-License-Identifier: MIT */

/*
 * postern_publish(): a message in the caller's own transaction, and in that of
 * a handler's delivery. Compiled once for each database: on PostgreSQL with
 * TEST_POSTGRES.
 */

#include <postern/postern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/temp_dir.h"
#include "tap.h"

#ifdef TEST_POSTGRES

#include <libpq-fe.h>
typedef PGconn link_type;
#define DIALECT POSTERN_SQL_POSTGRES
#define SHARED ""

static const char *schema;

static void link_exec(link_type *link, const char *sql) {
	PGresult *result = PQexec(link, sql);
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
		FAIL("%s: %s", sql, PQerrorMessage(link));
	}
	PQclear(result);
}

static link_type *link_open(const char *path) {
	(void)path;
	link_type *link = PQconnectdb(getenv("POSTERN_TEST_POSTGRES"));
	link_exec(link, "SET client_min_messages = warning");
	return link;
}

static void link_close(link_type *link) {
	PQfinish(link);
}

#else

#include <sqlite3.h>
typedef sqlite3 link_type;
#define DIALECT POSTERN_SQL_SQLITE
#define SHARED "?shared=yes"

static const char *schema = NULL;

static void link_exec(link_type *link, const char *sql) {
	char *text = NULL;
	if (sqlite3_exec(link, sql, NULL, NULL, &text) != SQLITE_OK) {
		FAIL("%s: %s", sql, text);
	}
	sqlite3_free(text);
}

static link_type *link_open(const char *path) {
	link_type *link = NULL;
	CHECK_INT(sqlite3_open(path, &link), SQLITE_OK);
	return link;
}

static void link_close(link_type *link) {
	(void)sqlite3_close(link);
}

#endif

#define RECEIVED_MAX 8
#define URL_LEN_MAX 1024

struct scene {
	struct temp_dir dir;
	char path[TEMP_DIR_PATH_MAX + 32];
	char url[URL_LEN_MAX];
	struct postern_box *box;
	link_type *link;
	struct postern_error error;
	/* What the handler "late" received. */
	struct {
		char id[64];
		char text[512];
	} received[RECEIVED_MAX];
	size_t count;
	int relays; /* of the handler "relay" */
};

static void receive(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct scene *scene = context;
	(void)delivery;
	(void)outcome;
	if (scene->count == RECEIVED_MAX) {
		FAIL("too many messages");
		return;
	}
	(void)snprintf(scene->received[scene->count].id, 64, "%s", message->id);
	(void)snprintf(scene->received[scene->count].text, 512,
			"%s|%s|%s|%s|%s|%s|%s|%zu|%.*s", message->source, message->type,
			message->subject ? message->subject : "-",
			message->time ? message->time : "-",
			message->content_type ? message->content_type : "-",
			message->correlation_id ? message->correlation_id : "-",
			message->header_count > 0 ? message->headers[0].value : "-",
			message->header_count, (int)message->body_len,
			(const char *)message->body);
	scene->count++;
}

static int publish(link_type *link, const char *channel,
		const struct postern_message *message, char *id_out,
		struct postern_error *error) {
	const struct postern_publication publication = {
		.size = sizeof publication,
		.dialect = DIALECT,
		.transaction = link,
		.schema = schema,
		.channel = channel,
		.message = message,
	};
	return postern_publish(&publication, id_out, error);
}

/* Publishes, and fails the first time after that. */
static void relay(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	struct scene *scene = context;
	const struct postern_message next = {
		.size = sizeof next,
		.id = message->id,
		.type = "relayed",
		.body = message->body,
		.body_len = message->body_len,
	};
	CHECK_OK(publish(delivery->transaction, "late", &next, NULL, &scene->error),
			&scene->error);
	if (++scene->relays == 1) {
		postern_outcome_set(outcome, POSTERN_RETRY_AFTER, 0, "once");
	}
}

static void add_handler(struct scene *scene, const char *channel,
		const char *key, postern_callback *callback, bool transactional) {
	const struct postern_channel_options options = {
		.size = sizeof options,
		.max_message_size = 1000,
	};
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = key,
		.callback = callback,
		.context = scene,
		.transactional = transactional,
	};
	CHECK_OK(postern_box_add_channel(scene->box, channel, &options,
					 &scene->error),
			&scene->error);
	CHECK_OK(postern_box_add_handler(scene->box, channel, &handler,
					 &scene->error),
			&scene->error);
}

static void scene_open(struct scene *scene, const char *parameters) {
	struct postern_box_options options = { .size = sizeof options };
	*scene = (struct scene){ 0 };
	temp_dir_create(&scene->dir);
	temp_dir_name(&scene->dir, "", "store.db", scene->path, sizeof scene->path);
	(void)snprintf(scene->url, sizeof scene->url, "sqlite:%s%s", scene->path,
			parameters);
#ifdef TEST_POSTGRES
	static int number;
	static char name[32];
	(void)snprintf(name, sizeof name, "publish_in_%d", ++number);
	schema = name;
	options.schema = name;
	(void)snprintf(scene->url, sizeof scene->url, "%s",
			getenv("POSTERN_TEST_POSTGRES"));
#endif
	if (!CHECK_OK(postern_box_open(scene->url, &options, &scene->box,
						  &scene->error),
				&scene->error)) {
		exit(1);
	}
	add_handler(scene, "late", "late", receive, false);
	add_handler(scene, "orders", "relay", relay, true);
	CHECK_OK(postern_box_start(scene->box, &scene->error), &scene->error);
	scene->link = link_open(scene->path);
}

static void scene_close(struct scene *scene) {
	link_close(scene->link);
	postern_box_destroy(scene->box);
	temp_dir_destroy(&scene->dir);
}

static void process(struct scene *scene) {
	uint64_t count;
	CHECK_OK(postern_box_process(scene->box, 0, &count, &scene->error),
			&scene->error);
}

static struct postern_message message_of(const char *id, const char *body) {
	return (struct postern_message){
		.size = sizeof(struct postern_message),
		.id = id,
		.type = "t",
		.body = body,
		.body_len = strlen(body),
	};
}

static void own_transaction(void) {
	struct scene scene;
	scene_open(&scene, SHARED);
	const struct postern_header headers[] = { { "kind", "g\"\\\u00fcn" } };
	struct postern_message full = message_of("full", "b");
	full.source = "/shop";
	full.subject = "s";
	full.time = "2026-01-02T03:04:05Z";
	full.content_type = "text/csv";
	full.correlation_id = "c";
	full.headers = headers;
	full.header_count = 1;
	struct postern_message plain = message_of(NULL, "");
	char id[POSTERN_ID_SIZE] = "";
	link_exec(scene.link, "BEGIN");
	CHECK_OK(publish(scene.link, "late", &full, NULL, &scene.error),
			&scene.error);
	CHECK_OK(publish(scene.link, "late", &plain, id, &scene.error),
			&scene.error);
	CHECK_INT((int)strlen(id), 36);
	link_exec(scene.link, "COMMIT");
	link_exec(scene.link, "BEGIN");
	struct postern_message never = message_of("never", "x");
	CHECK_OK(publish(scene.link, "late", &never, NULL, &scene.error),
			&scene.error);
	link_exec(scene.link, "ROLLBACK");
	process(&scene);
	CHECK_INT((int)scene.count, 2);
	CHECK_STR(scene.received[0].id, "full");
	CHECK_STR(scene.received[0].text,
			"/shop|t|s|2026-01-02T03:04:05Z|text/csv|c|g\"\\\u00fcn|1|b");
	CHECK_STR(scene.received[1].id, id);
	CHECK_STR(scene.received[1].text, "late|t|-|-|-|-|-|0|");
	scene_close(&scene);
}

static void refuses(struct scene *scene, const char *channel,
		const struct postern_message *message, int code, const char *words) {
	link_exec(scene->link, "BEGIN");
	CHECK_INT(publish(scene->link, channel, message, NULL, &scene->error),
			code);
	CHECK_CONTAINS(scene->error.text, words);
	link_exec(scene->link, "ROLLBACK");
}

static void limits(void) {
	struct scene scene;
	char large[1002];
	scene_open(&scene, SHARED);
	memset(large, 'x', sizeof large - 1);
	large[sizeof large - 1] = '\0';
	struct postern_message message = message_of("a", large);
	refuses(&scene, "late", &message, POSTERN_E_INVALID, "the body");
	message.body_len = 1000;
	refuses(&scene, "nowhere", &message, POSTERN_E_NOTFOUND, "no");
	message.id = "";
	refuses(&scene, "late", &message, POSTERN_E_INVALID, "the id");
	message.id = "a";
	CHECK_INT(publish(scene.link, "late", &message, NULL, &scene.error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(scene.error.text, "transaction");
	process(&scene);
	CHECK_INT((int)scene.count, 0);
	scene_close(&scene);
}

/* On SQLite the file is not shared: the connection is that of the store. */
static void in_a_handler(void) {
	struct scene scene;
	scene_open(&scene, "");
	const struct postern_message message = message_of("order", "7");
	CHECK_OK(postern_box_accept(scene.box, "orders", &message, NULL,
					 &scene.error),
			&scene.error);
	for (int i = 0; i < 3; i++) {
		process(&scene);
	}
	CHECK_INT(scene.relays, 2);
	CHECK_INT((int)scene.count, 1);
	CHECK_STR(scene.received[0].id, "order");
	CHECK_STR(scene.received[0].text, "late|relayed|-|-|-|-|-|0|7");
	scene_close(&scene);
}

static void without_store(void) {
	struct scene scene;
	scene_open(&scene, SHARED);
	const struct postern_message message = message_of("a", "b");
#ifdef TEST_POSTGRES
	schema = "no_such_schema";
	refuses(&scene, "late", &message, POSTERN_E_UNSUPPORTED, "no schema");
#else
	link_type *link = link_open(":memory:");
	link_exec(link, "BEGIN");
	CHECK_INT(publish(link, "late", &message, NULL, &scene.error),
			POSTERN_E_UNSUPPORTED);
	CHECK_CONTAINS(scene.error.text, "no tables");
	link_close(link);
#endif
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "what is published commits or vanishes with the transaction",
			own_transaction },
	{ "a message over a limit is refused", limits },
	{ "a handler publishes once, with its completion", in_a_handler },
	{ "a database without a store is named as such", without_store },
};

TAP_MAIN(cases)
