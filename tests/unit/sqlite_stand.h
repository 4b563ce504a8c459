/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_UNIT_SQLITE_STAND_H
#define POSTERN_TESTS_UNIT_SQLITE_STAND_H

/*
 * A SQLite store in a directory of its own, with a channel and a handler, for
 * tests of behaviour that only this store has. The behaviour of all stores is
 * tested in tests/conformance/.
 */

#include <postern/handler.h>
#include <postern/sys/memory.h>
#include <postern/sys/store.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/identity.h"
#include "support/fake_clock.h"
#include "support/temp_dir.h"
#include "tap.h"

#define PATH_LEN_MAX (TEMP_DIR_PATH_MAX + 64)
#define NODE UINT64_C(0xfedcba9876543210)

struct stand {
	struct temp_dir dir;
	char path[PATH_LEN_MAX];
	struct fake_clock clock;
	struct fake_random random;
	struct postern_store_options options;
	struct postern_store *store; /* NULL: not open */
	struct postern_memory *memory;
	struct postern_error error;
	int64_t channel;
	int64_t handler;
};

/* Creates the directory and the options, but no store. */
__attribute__((unused)) static void stand_init(struct stand *stand) {
	*stand = (struct stand){ 0 };
	temp_dir_create(&stand->dir);
	temp_dir_name(&stand->dir, "", "store.db", stand->path, sizeof stand->path);
	fake_clock_init(&stand->clock);
	fake_random_init(&stand->random, 1);
	stand->memory = postern_memory_create();
	stand->options = (struct postern_store_options){
		.size = sizeof stand->options,
		.clock = &stand->clock.base,
		.random = &stand->random.base,
		.command_timeout_ms = 100,
	};
}

/* Open a store by path. */
__attribute__((unused)) static int stand_open_path(struct stand *stand,
		const char *path, struct postern_store **out) {
	char url[PATH_LEN_MAX + 16];
	(void)snprintf(url, sizeof url, "sqlite:%s", path);
	return postern_store_open(url, &stand->options, out, &stand->error);
}

__attribute__((unused)) static int stand_enrol(struct stand *stand) {
	struct postern_enrol_channel channel = { .name = "orders" };
	struct postern_enrol_handler handler = {
		.key = "mail",
		.max_crashes = 3,
	};
	struct postern_enrolment enrolment = {
		.node = NODE,
		.channels = &channel,
		.channel_count = 1,
		.handlers = &handler,
		.handler_count = 1,
	};
	int r = stand->store->ops->enrol(stand->store, &enrolment, &stand->error);
	stand->channel = channel.id;
	stand->handler = handler.id;
	return r;
}

__attribute__((unused)) static bool stand_open(struct stand *stand) {
	return CHECK_OK(stand_open_path(stand, stand->path, &stand->store),
				   &stand->error) &&
		   CHECK_OK(stand_enrol(stand), &stand->error);
}

__attribute__((unused)) static void stand_close(struct stand *stand) {
	postern_store_destroy(stand->store);
	stand->store = NULL;
}

__attribute__((unused)) static void stand_finish(struct stand *stand) {
	stand_close(stand);
	postern_memory_destroy(stand->memory);
	temp_dir_destroy(&stand->dir);
}

/* Accept a message with a body of `len` bytes and lease its delivery; returns
   what apply returned, and the item's code and seq if that was OK. */
__attribute__((unused)) static int stand_send(struct stand *stand,
		const char *id, size_t len, int *code_out, int64_t *seq_out) {
	static char body[1 << 16];
	struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.source = "orders",
		.type = "order.paid",
		.body = body,
		.body_len = len,
	};
	struct postern_route route = { .handler = stand->handler, .lease = true };
	struct postern_accept accept = {
		.message = &message,
		.key = postern__dedupe_key_by_id(&message),
		.channel = stand->channel,
		.routes = &route,
		.route_count = 1,
	};
	struct postern_batch batch = {
		.node = NODE,
		.accepts = &accept,
		.accept_count = 1,
	};
	int r = stand->store->ops->apply(stand->store, &batch, &stand->error);
	*code_out = accept.code;
	*seq_out = accept.seq;
	return r;
}

/* The same, but checks that the message is accepted; returns its seq. */
__attribute__((unused)) static int64_t stand_accept(struct stand *stand,
		const char *id) {
	int code = 0;
	int64_t seq = 0;
	CHECK_OK(stand_send(stand, id, 4, &code, &seq), &stand->error);
	CHECK_INT(code, POSTERN_OK);
	return seq;
}

/* The state of the first delivery; POSTERN_STATE_ANY if there is none. */
__attribute__((unused)) static enum postern_state
stand_state(struct stand *stand, int64_t seq) {
	struct postern_detail detail;
	if (stand->store->ops->get(stand->store, seq, stand->memory, &detail,
				&stand->error) != POSTERN_OK ||
			detail.delivery_count == 0) {
		return POSTERN_STATE_ANY;
	}
	return detail.deliveries[0].row.state;
}

/* The number that a query returns, -1 if it fails. */
__attribute__((unused)) static int64_t sql_number(sqlite3 *db,
		const char *sql) {
	sqlite3_stmt *statement = NULL;
	int64_t number = -1;
	if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
			sqlite3_step(statement) == SQLITE_ROW) {
		number = sqlite3_column_int64(statement, 0);
	}
	(void)sqlite3_finalize(statement); /* repeats the step's result */
	return number;
}

/* The same on a new connection to the file. */
__attribute__((unused)) static int64_t file_number(const char *path,
		const char *sql) {
	sqlite3 *db = NULL;
	int64_t number = -1;
	if (sqlite3_open(path, &db) == SQLITE_OK) {
		number = sql_number(db, sql);
	}
	(void)sqlite3_close(db); /* nothing is left open */
	return number;
}

__attribute__((unused)) static bool file_exec(const char *path,
		const char *sql) {
	sqlite3 *db = NULL;
	bool ok = CHECK_INT(sqlite3_open(path, &db), SQLITE_OK) &&
			  CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	(void)sqlite3_close(db); /* nothing is left open */
	return ok;
}

#endif
