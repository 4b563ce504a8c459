/* SPDX-License-Identifier: MIT */
/*
 * The outbox on an SQLite file: an order and its message are written in one
 * transaction of the program's own connection. One of the two transactions is
 * rolled back, and nobody hears of its order.
 *
 * Here the same program delivers. Usually a server does, whose handler
 * publishes to a broker: docs/outbox.md.
 *
 *   cc -o publish publish.c $(pkg-config --cflags --libs postern sqlite3)
 */

#include <postern/postern.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "shop.db"

static struct postern_error error;

static void require(int r) {
	if (r != POSTERN_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		exit(1);
	}
}

static void run(sqlite3 *db, const char *sql) {
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
		(void)fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
		exit(1);
	}
}

static void place_order(sqlite3 *db, const char *id, const char *end) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.type = "order.placed",
		.body = "{\"cents\":1250}",
		.body_len = strlen("{\"cents\":1250}"),
	};
	const struct postern_publication publication = {
		.size = sizeof publication,
		.dialect = POSTERN_SQL_SQLITE,
		.transaction = db,
		.channel = "outgoing",
		.message = &message,
	};
	run(db, "BEGIN IMMEDIATE");
	run(db, "INSERT INTO orders (cents) VALUES (1250)");
	require(postern_publish(&publication, NULL, &error));
	run(db, end);
}

static void relay(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)delivery;
	(void)outcome;
	(void)printf("relayed %s: %.*s\n", message->id, (int)message->body_len,
			(const char *)message->body);
}

int main(void) {
	const struct postern_handler_options handler = {
		.size = sizeof handler,
		.key = "relay",
		.callback = relay,
	};
	struct postern_box *box = NULL;
	sqlite3 *db = NULL;
	uint64_t count;
	require(postern_box_open("sqlite:" FILE_NAME "?shared=yes", NULL, &box,
			&error));
	require(postern_box_add_channel(box, "outgoing", NULL, &error));
	require(postern_box_add_handler(box, "outgoing", &handler, &error));
	require(postern_box_start(box, &error));

	if (sqlite3_open(FILE_NAME, &db) != SQLITE_OK) {
		return 1;
	}
	run(db, "CREATE TABLE IF NOT EXISTS orders (cents INTEGER)");
	place_order(db, "order-1", "COMMIT");
	place_order(db, "order-2", "ROLLBACK");
	require(postern_box_process(box, 0, &count, &error));
	(void)sqlite3_close(db);
	postern_box_destroy(box);
	return 0;
}
