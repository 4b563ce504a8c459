/* SPDX-License-Identifier: MIT */

/*
 * The reference scenario: everything a box can do, once, in a few dozen
 * messages and in one process, so that a fault can be injected into each single
 * step.
 *
 * Usage: scenario STORE HISTORY LIFE [DUMP]
 *        scenario --serve      plays as often as it is asked to (spawner.h)
 *
 * Runs on the SQLite file STORE or, if that is a URL of PostgreSQL, in its
 * schema, which need not exist, and appends to HISTORY. LIFE counts the
 * programs that ran there, from 1. Every life runs the same parts: a client
 * whose process was killed sends everything again. The last life gets the name
 * of a DUMP: it continues until nothing is open and writes the content of the
 * store.
 *
 * SCENARIO_PARTS names the parts that run, "pump,runner" if it is not set:
 *
 *   pump      the steps one by one, the same every time
 *   runner    the same with threads
 *   old       creates a SQLite file of the first schema, if there is none
 *   short     a few messages
 *   clean     messages reach their retention and are removed, then their ids
 *   shared    a file that the program writes to by itself, too
 *   pull      deliveries that workers claim and settle, or leave
 *   abandon   messages are claimed, and the process ends in the middle
 *   rest      nothing but what the last life does; "rest-clean": with
 *             retention; "rest-shared": with a shared file
 *
 * Exits with 0 however many calls failed, if the scenario reached its end; with
 * 3 if it did not.
 */

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash/dump.h"
#include "crash/faults.h"
#include "crash/spawner.h"
#include "crash/world.h"
#include "unit/sqlite_schema_1.h"

#define ALL_HANDLERS (WORLD_LEDGER | WORLD_MAIL | WORLD_SUMS | WORLD_LATE)

static void accept_all_ways(struct world *world) {
	static const struct world_item batch[] = {
		{ "b-1", "order.placed", "done" },
		{ "b-2", "order.placed", "fail once" },
		{ "b-1", "order.placed", "done" }, /* a duplicate in one batch */
		{ "b-3", "order.placed", "snooze" },
		{ "", "order.placed", "an id is missing" },
		{ "b-4", "order.placed", "done" },
		{ "b-2", "order.placed", "other body" }, /* a conflict in one batch */
		{ "b-5", "order.placed", "discard" },
	};
	world_send(world, "orders", "s-1", "order.placed", "done");
	world_send(world, "orders", "s-2", "order.placed", "fail once");
	world_send(world, "orders", "s-3", "order.placed", "fail always");
	world_send(world, "orders", "s-4", "order.placed", "poison");
	world_send_batch(world, "orders", batch, sizeof batch / sizeof batch[0]);
	world_send(world, "orders", "s-1", "order.placed", "done");
	world_send(world, "orders", "s-2", "order.placed", "other body");
	world_send(world, "nowhere", "s-5", "order.placed", "done");
	world_send(world, "notes", "n-1", "note", "done");
	world_send(world, "notes", "n-2", "note", "fail once");
	world_send_async(world, "orders", "a-1", "order.placed", "done");
	world_send_async(world, "orders", "a-2", "order.placed", "done");
	(void)postern_box_commit(world->box, NULL, NULL);
	world_publish(world, "orders", "p-1", "order.placed", "done");
	world_publish(world, "orders", "p-2", "order.placed", "fail once");
	world_publish(world, "orders", "s-1", "order.placed", "done");
}

/* Finds one delivery in this state, of a handler that is recorded for the
   checker. */
static bool find_one(struct world *world, enum postern_state state, size_t skip,
		int64_t *seq_out, char handler_out[32]) {
	struct postern_filter filter = { .size = sizeof filter, .state = state };
	struct postern_listing *listing;
	if (postern_box_list(world->box, &filter, &listing, NULL)) {
		return false;
	}
	bool found = false;
	for (size_t i = 0; !found && i < postern_listing_count(listing); i++) {
		const struct postern_row *row = postern_listing_get(listing, i);
		if (world_is_recorded(row->handler) && skip-- == 0) {
			*seq_out = row->seq;
			(void)snprintf(handler_out, 32, "%s", row->handler);
			found = true;
		}
	}
	postern_listing_destroy(listing);
	return found;
}

/* Recorded before the edit is made, because the process may die between the
   edit and its record. */
static void record_edit(struct world *world, const char *op, int64_t seq,
		const char *handler) {
	history_write(&world->history,
			"{\"e\":\"edit\",\"node\":%d,\"op\":\"%s\",\"seq\":%lld,"
			"\"handler\":\"%s\"}",
			world->life, op, (long long)seq, handler);
}

static void edit_one(struct world *world, enum postern_state state, size_t skip,
		const char *op) {
	int64_t seq;
	char handler[32];
	if (find_one(world, state, skip, &seq, handler)) {
		record_edit(world, op, seq, handler);
		faults_arm(true);
		if (strcmp(op, "retry") == 0) {
			(void)postern_box_retry(world->box, seq, handler, NULL);
		} else {
			(void)postern_box_discard(world->box, seq, handler, NULL);
		}
		faults_arm(false);
	}
}

static void edit_deliveries(struct world *world) {
	edit_one(world, POSTERN_STATE_POISONED, 0, "retry");
	edit_one(world, POSTERN_STATE_POISONED, 0, "discard");
	edit_one(world, POSTERN_STATE_PENDING, 0, "retry");
	struct postern_filter filter = {
		.size = sizeof filter,
		.state = POSTERN_STATE_PARKED,
		.type = "never",
	};
	faults_arm(true);
	(void)postern_box_discard_all(world->box, &filter, false, NULL, NULL);
	(void)postern_box_pause(world->box, "gone", NULL);
	faults_arm(false);
}

/* Accepts a message for "gone", which is paused and not configured later. It is
   not recorded for the checker, whose rules do not allow other deliveries to be
   poisoned without a failure. */
static void leave_orphan(struct world *world) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = "g-1",
		.body = "done",
		.body_len = strlen("done"),
	};
	faults_arm(true);
	(void)postern_box_pause(world->box, "gone", NULL);
	(void)postern_box_accept(world->box, "leavings", &message, NULL, NULL);
	faults_arm(false);
}

/* The steps, one by one, on this thread. */
static void run_pump(struct world *world) {
	world_open(world, WORLD_LEDGER | WORLD_MAIL | WORLD_SUMS | WORLD_GONE);
	world_check_marks(world, false);
	accept_all_ways(world);
	leave_orphan(world);
	world_mark(world);
	world_process(world, 6);
	/* The node has leases when the box is destroyed. */
	faults_arm(true);
	(void)postern_box_claim(world->box, 7, NULL, NULL);
	(void)postern_box_run(world->box, 2, NULL, NULL);
	faults_arm(false);
	world_close(world);

	/* A new handler wants the parked messages. */
	world_open(world, ALL_HANDLERS | WORLD_GONE | WORLD_EXCLUSIVE);
	(void)postern_box_sweep(world->box, NULL, NULL);
	world_replace(world, ALL_HANDLERS | WORLD_GONE);
	world_process(world, 0);
	world_wait(world, 20);
	world_process(world, 0);
	edit_deliveries(world);
	world_wait(world, 20);
	world_process(world, 0);
	world_close(world);
}

static const struct postern_runner_options one_worker = {
	.size = sizeof one_worker,
	.workers = 1,
	.restart_delay_ms = 10,
};

/* The same with threads; "gone" is not configured, and its deliveries are
   poisoned as orphaned. */
static void run_runner(struct world *world) {
	static const struct world_item batch[] = {
		{ "t-3", "order.placed", "done" },
		{ "t-4", "order.placed", "fail once" },
	};
	static const struct world_item last[] = {
		{ "t-6", "order.placed", "done" },
		{ "t-7", "order.placed", "fail once" },
		{ "t-8", "order.placed", "done" },
	};
	struct postern_runner *runner = NULL;
	world->flowing = true;
	world_open(world, ALL_HANDLERS | WORLD_EXCLUSIVE);
	int r = postern_runner_create(world->box, &one_worker, &runner, NULL);
	if (!r) {
		r = postern_runner_start(runner, NULL);
	}
	world_send(world, "orders", "t-1", "order.placed", "done");
	world_send(world, "notes", "t-2", "note", "done");
	world_send_batch(world, "orders", batch, 2);
	world_send_async(world, "orders", "t-5", "order.placed", "done");
	world_settle(world);
	/* Some of these are returned. */
	world_send_batch(world, "orders", last, 3);
	if (!r) {
		(void)postern_runner_drain(runner, 5000, NULL);
	}
	postern_runner_destroy(runner);
	world_close(world);
	world->flowing = false;
}

static void send_some(struct world *world, const char *prefix) {
	static const char *const bodies[] = { "done", "fail once", "poison",
		"discard" };
	for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
		char id[32];
		(void)snprintf(id, sizeof id, "%s-%zu", prefix, i);
		world_send(world, "orders", id, "order.placed", bodies[i]);
	}
	world_send(world, "notes", prefix, "note", "done");
}

/* Creates a file of version 1, as an older program would have; atomically. */
static void make_old(struct world *world) {
	char path[4096];
	sqlite3 *db = NULL;
	if (access(world->path, F_OK) == 0) {
		return;
	}
	(void)snprintf(path, sizeof path, "%s.old", world->path);
	(void)unlink(path);
	int r = sqlite3_open(path, &db);
	if (r == SQLITE_OK) {
		r = sqlite3_exec(db, sqlite_schema_1, NULL, NULL, NULL);
	}
	if (r == SQLITE_OK) {
		r = sqlite3_exec(db,
				"INSERT INTO postern_meta VALUES ('hash_key', zeroblob(16));"
				"INSERT INTO postern_node VALUES (77, 5)",
				NULL, NULL, NULL);
	}
	(void)sqlite3_close(db);
	if (r != SQLITE_OK || rename(path, world->path) < 0) {
		(void)fputs("scenario: cannot make an old file\n", stderr);
		exit(3);
	}
}

static void run_short(struct world *world) {
	world_open(world, ALL_HANDLERS);
	send_some(world, "u");
	world_process(world, 0);
	world_close(world);
}

/* A file that other connections write to. */
static void run_shared(struct world *world) {
	world_open(world, ALL_HANDLERS);
	world_check_marks(world, false);
	send_some(world, "v");
	world_publish(world, "orders", "p-1", "order.placed", "done");
	world_publish(world, "orders", "p-2", "order.placed", "fail once");
	world_publish(world, "orders", "v-0", "order.placed", "done");
	world_mark_shared(world);
	world_process(world, 0);
	world_close(world);
}

/* Messages reach their retention, then their ids; a copy is sent each time. */
static void run_clean(struct world *world) {
	world_open(world, ALL_HANDLERS);
	send_some(world, "c");
	world_process(world, 0);
	world_clean(world);
	world_wait(world, WORLD_PAYLOAD_MS + 1000);
	send_some(world, "d");
	world_clean(world);
	send_some(world, "c");
	world_wait(world, WORLD_DEDUPE_MS);
	world_clean(world);
	world_process(world, 0);
	send_some(world, "c");
	world_process(world, 0);
	world_close(world);
}

/* Workers outside of the process: without a runner, then with one. */
static void run_pull(struct world *world) {
	struct postern_runner *runner = NULL;
	world_open(world, WORLD_ERP);
	world_post(world, "q-1", "done");
	world_post(world, "q-2", "fail once");
	world_post(world, "q-3", "done");
	(void)world_pull(world, 2, false);
	(void)world_pull(world, 2, true);
	world_wait(world, 2 * WORLD_PULL_LEASE_MS + 1);
	(void)world_pull(world, WORLD_PULL_MAX, false);
	world_wait(world, 1000);
	(void)world_pull(world, WORLD_PULL_MAX, true);
	world_close(world);

	world->flowing = true;
	world_open(world, WORLD_ERP);
	int r = postern_runner_create(world->box, &one_worker, &runner, NULL);
	if (!r) {
		r = postern_runner_start(runner, NULL);
	}
	world_post(world, "q-4", "done");
	if (!r) {
		(void)world_pull(world, WORLD_PULL_MAX, false);
		(void)postern_runner_drain(runner, 5000, NULL);
	}
	postern_runner_destroy(runner);
	world_close(world);
	world->flowing = false;
}

/* The process ends with leases, also of callbacks, and returns none. */
static void run_abandon(struct world *world) {
	world_open(world, ALL_HANDLERS);
	send_some(world, "e");
	send_some(world, "c");
	(void)postern_box_claim(world->box, 12, NULL, NULL);
	(void)postern_box_run(world->box, 3, NULL, NULL);
	_exit(0);
}

static int play(int argc, char **argv) {
	static const struct part {
		const char *name;
		void (*run)(struct world *world);
	} all[] = {
		{ "old", make_old },
		{ "pump", run_pump },
		{ "runner", run_runner },
		{ "short", run_short },
		{ "shared", run_shared },
		{ "clean", run_clean },
		{ "pull", run_pull },
		{ "abandon", run_abandon },
	};
	const char *parts = getenv("SCENARIO_PARTS");
	parts = parts ? parts : "pump,runner";
	struct world world;
	if (argc < 4 || argc > 5) {
		(void)fputs("usage: scenario STORE HISTORY LIFE [DUMP]\n", stderr);
		return 2;
	}
	faults_begin();
	world_init(&world, argv[1], argv[2], (int)strtol(argv[3], NULL, 10),
			strstr(parts, "clean") || strstr(parts, "abandon"),
			strstr(parts, "shared"));
	world.pulls = strstr(parts, "pull");
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		if (!strstr(parts, "rest") && strstr(parts, all[i].name)) {
			all[i].run(&world);
		}
	}
	if (argc == 5) {
		world_open(&world, ALL_HANDLERS | (world.pulls ? WORLD_ERP : 0));
		world_check_marks(&world, true);
		bool drained = world_drain(&world);
		dump_write(&world, drained, argv[4]);
	}
	world_finish(&world);
	faults_end();
	return 0;
}

int main(int argc, char **argv) {
	if (argc == 2 && strcmp(argv[1], "--serve") == 0) {
		return spawner_serve(argv[0], play);
	}
	return play(argc, argv);
}
