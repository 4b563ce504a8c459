/* SPDX-License-Identifier: MIT */

/*
 * A SQLite file that other connections and processes write to:
 * "sqlite:FILE?shared=yes", and markers in their transactions.
 */

#include <fcntl.h>
#include <postern/postern.h>
#include <postern/sys/store.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/temp_dir.h"
#include "tap.h"

#define PATH_LEN_MAX (TEMP_DIR_PATH_MAX + 32)

struct scene {
	struct temp_dir dir;
	char path[PATH_LEN_MAX];
	char url[PATH_LEN_MAX + 32];
	struct postern_box *box;
	struct postern_guard *guard; /* on the store of the box */
	sqlite3 *db;                 /* a connection of the program */
	struct postern_error error;
};

static void run_sql(sqlite3 *db, const char *sql) {
	char *text = NULL;
	if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK) {
		FAIL("%s: %s", sql, text);
	}
	sqlite3_free(text);
}

static int64_t number_of(sqlite3 *db, const char *sql) {
	sqlite3_stmt *statement = NULL;
	int64_t number = -1;
	if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
			sqlite3_step(statement) == SQLITE_ROW) {
		number = sqlite3_column_int64(statement, 0);
	}
	(void)sqlite3_finalize(statement); /* repeats the step's result */
	return number;
}

static int open_box(struct scene *scene, struct postern_box **out) {
	const struct postern_box_options options = {
		.size = sizeof options,
		.command_timeout_ms = 200,
	};
	return postern_box_open(scene->url, &options, out, &scene->error);
}

static void scene_init(struct scene *scene, const char *parameters) {
	*scene = (struct scene){ 0 };
	temp_dir_create(&scene->dir);
	temp_dir_name(&scene->dir, "", "store.db", scene->path, sizeof scene->path);
	(void)snprintf(scene->url, sizeof scene->url, "sqlite:%s%s", scene->path,
			parameters);
}

static bool scene_open(struct scene *scene, const char *parameters) {
	const struct postern_guard_options options = {
		.size = sizeof options,
		.wait_ms = 100,
	};
	scene_init(scene, parameters);
	if (!CHECK_OK(open_box(scene, &scene->box), &scene->error) ||
			!CHECK_OK(postern_box_add_channel(scene->box, "orders", NULL,
							  &scene->error),
					&scene->error) ||
			!CHECK_OK(postern_box_start(scene->box, &scene->error),
					&scene->error) ||
			!CHECK_OK(postern_guard_create(scene->box, &options, &scene->guard,
							  &scene->error),
					&scene->error) ||
			!CHECK_INT(sqlite3_open(scene->path, &scene->db), SQLITE_OK)) {
		return false;
	}
	run_sql(scene->db, "CREATE TABLE effect (x)");
	return true;
}

static void scene_close(struct scene *scene) {
	(void)sqlite3_close(scene->db);
	postern_guard_destroy(scene->guard);
	postern_box_destroy(scene->box);
	temp_dir_destroy(&scene->dir);
}

static int mark(struct scene *scene, sqlite3 *db, const char *key) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "charge-v1",
		.key = key,
	};
	return postern_mark_in(scene->guard, db, &guarded, &scene->error);
}

static bool is_done(struct scene *scene, const char *key) {
	bool done = false;
	CHECK_OK(postern_mark_has(scene->guard, "charge-v1", key, &done,
					 &scene->error),
			&scene->error);
	return done;
}

static int accept(struct scene *scene, const char *id) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = id,
		.type = "order.paid",
		.body = "body",
		.body_len = 4,
	};
	return postern_box_accept(scene->box, "orders", &message, NULL,
			&scene->error);
}

/* Versions of the format in the header of the file: 1, or 2 with a log. */
static int format_of(const struct scene *scene) {
	unsigned char header[20] = { 0 };
	FILE *file = fopen(scene->path, "rb");
	if (CHECK(file)) {
		CHECK_INT(fread(header, 1, sizeof header, file), sizeof header);
		(void)fclose(file);
	}
	CHECK_INT(header[18], header[19]);
	return header[18];
}

static void has_no_log(void) {
	struct scene scene;
	char log[PATH_LEN_MAX + 8];
	if (scene_open(&scene, "?shared=yes")) {
		CHECK_OK(accept(&scene, "a"), &scene.error);
		CHECK_INT(format_of(&scene), 1);
		(void)snprintf(log, sizeof log, "%s-wal", scene.path);
		CHECK_INT(access(log, F_OK), -1);
	}
	scene_close(&scene);
}

static void converted(void) {
	struct scene scene;
	if (scene_open(&scene, "")) {
		CHECK_INT(format_of(&scene), 2);
		postern_guard_destroy(scene.guard);
		postern_box_destroy(scene.box);
		scene.guard = NULL;
		scene.box = NULL;
		(void)sqlite3_close(scene.db);
		scene.db = NULL;
		(void)snprintf(scene.url, sizeof scene.url, "sqlite:%s?shared=yes",
				scene.path);
		if (CHECK_OK(open_box(&scene, &scene.box), &scene.error)) {
			CHECK_INT(format_of(&scene), 1);
		}
	}
	scene_close(&scene);
}

static void second_owner(void) {
	struct scene scene;
	struct postern_box *second = NULL;
	char lock[PATH_LEN_MAX + 8];
	if (scene_open(&scene, "?shared=yes")) {
		CHECK_INT(open_box(&scene, &second), POSTERN_E_BUSY);
		CHECK_CONTAINS(scene.error.text, "in use by process");
		(void)snprintf(lock, sizeof lock, "%s.lock", scene.path);
		CHECK_INT(unlink(lock), 0);
		CHECK_INT(open_box(&scene, &second), POSTERN_E_BUSY);
		CHECK_CONTAINS(scene.error.text, "was removed");
		CHECK_OK(accept(&scene, "a"), &scene.error);
	}
	scene_close(&scene);
}

static void committed(void) {
	struct scene scene;
	if (scene_open(&scene, "?shared=yes")) {
		run_sql(scene.db, "BEGIN; INSERT INTO effect VALUES (1)");
		CHECK_OK(mark(&scene, scene.db, "a"), &scene.error);
		/* Nobody else sees it before the commit. */
		CHECK(!is_done(&scene, "a"));
		run_sql(scene.db, "COMMIT");
		CHECK(is_done(&scene, "a"));
		run_sql(scene.db, "BEGIN IMMEDIATE");
		CHECK_INT(mark(&scene, scene.db, "a"), POSTERN_E_DUPLICATE);
		CHECK_OK(mark(&scene, scene.db, "b"), &scene.error);
		CHECK_INT(mark(&scene, scene.db, "b"), POSTERN_E_DUPLICATE);
		run_sql(scene.db, "COMMIT");
		CHECK(is_done(&scene, "b"));
	}
	scene_close(&scene);
}

static void rolled_back(void) {
	struct scene scene;
	if (scene_open(&scene, "?shared=yes")) {
		run_sql(scene.db, "BEGIN; INSERT INTO effect VALUES (1)");
		CHECK_OK(mark(&scene, scene.db, "a"), &scene.error);
		run_sql(scene.db, "ROLLBACK");
		CHECK(!is_done(&scene, "a"));
		CHECK_INT(number_of(scene.db, "SELECT count(*) FROM effect"), 0);
		CHECK_INT(number_of(scene.db, "SELECT count(*) FROM postern_marker"),
				0);
		run_sql(scene.db, "BEGIN");
		CHECK_OK(mark(&scene, scene.db, "a"), &scene.error);
		run_sql(scene.db, "COMMIT");
		CHECK(is_done(&scene, "a"));
	}
	scene_close(&scene);
}

static void refused(void) {
	struct scene scene;
	sqlite3 *other = NULL;
	if (scene_open(&scene, "?shared=yes")) {
		CHECK_INT(mark(&scene, scene.db, "a"), POSTERN_E_INVALID);
		CHECK_CONTAINS(scene.error.text, "no transaction is open");
		CHECK_INT(sqlite3_open(":memory:", &other), SQLITE_OK);
		run_sql(other, "BEGIN");
		CHECK_INT(mark(&scene, other, "a"), POSTERN_E_INVALID);
		CHECK_CONTAINS(scene.error.text, "the guard's store is");
		(void)sqlite3_close(other);
	}
	scene_close(&scene);
	if (scene_open(&scene, "")) {
		run_sql(scene.db, "BEGIN");
		CHECK_INT(mark(&scene, scene.db, "a"), POSTERN_E_UNSUPPORTED);
		CHECK_CONTAINS(scene.error.text, "shared=yes");
		run_sql(scene.db, "COMMIT");
	}
	scene_close(&scene);
}

/* Another connection writes: a transaction that has not begun waits, and one
   that reads is refused at once, since its lock would keep the other one from
   committing. */
static void busy(void) {
	struct scene scene;
	sqlite3 *other = NULL;
	if (scene_open(&scene, "?shared=yes")) {
		CHECK_INT(sqlite3_open(scene.path, &other), SQLITE_OK);
		run_sql(other, "BEGIN IMMEDIATE; INSERT INTO effect VALUES (1)");
		run_sql(scene.db, "BEGIN");
		CHECK_INT(mark(&scene, scene.db, "a"), POSTERN_E_BUSY);
		CHECK_INT(sqlite3_get_autocommit(scene.db), 0);
		run_sql(other, "COMMIT");
		/* The transaction was not ended, and can go on. */
		CHECK_OK(mark(&scene, scene.db, "a"), &scene.error);
		run_sql(scene.db, "COMMIT");

		run_sql(scene.db, "BEGIN");
		CHECK_INT(number_of(scene.db, "SELECT count(*) FROM effect"), 1);
		run_sql(other, "BEGIN IMMEDIATE");
		CHECK_INT(mark(&scene, scene.db, "b"), POSTERN_E_BUSY);
		CHECK_CONTAINS(scene.error.text, "roll back");
		run_sql(scene.db, "ROLLBACK");
		run_sql(other, "ROLLBACK");
		CHECK(!is_done(&scene, "b"));
		(void)sqlite3_close(other);
	}
	scene_close(&scene);
}

/* The store waits for another writer, and then reports trouble of its own. */
static void store_waits(void) {
	struct scene scene;
	if (scene_open(&scene, "?shared=yes")) {
		run_sql(scene.db, "BEGIN IMMEDIATE");
		CHECK_INT(accept(&scene, "a"), POSTERN_E_TIMEOUT);
		CHECK_CONTAINS(scene.error.text, "locked by another process");
		run_sql(scene.db, "COMMIT");
		CHECK_OK(accept(&scene, "a"), &scene.error);
		/* A reader that does not end keeps the commit from ending. */
		run_sql(scene.db, "BEGIN");
		CHECK_INT(number_of(scene.db, "SELECT count(*) FROM effect"), 0);
		CHECK_INT(accept(&scene, "b"), POSTERN_E_TIMEOUT);
		run_sql(scene.db, "COMMIT");
		CHECK_OK(accept(&scene, "b"), &scene.error);
		CHECK_INT(accept(&scene, "a"), POSTERN_E_DUPLICATE);
	}
	scene_close(&scene);
}

static void count_call(void *context, const struct postern_guard_call *call,
		struct postern_outcome *outcome) {
	int *calls = context;
	(void)outcome;
	++*calls;
	if (call->transaction) {
		run_sql(call->transaction, "INSERT INTO effect VALUES (1)");
	}
}

static int guard_run(struct scene *scene, struct postern_guard *guard,
		const char *key, int *calls) {
	const struct postern_guarded guarded = {
		.size = sizeof guarded,
		.handler = "charge-v1",
		.key = key,
		.transactional = true,
	};
	return postern_guard_run(guard, &guarded, count_call, calls, NULL,
			&scene->error);
}

/* Another writer is waited for no longer than a copy, and the function is not
   called. */
static void guard_waits(void) {
	struct scene scene;
	int calls = 0;
	if (scene_open(&scene, "?shared=yes")) {
		run_sql(scene.db, "BEGIN IMMEDIATE");
		CHECK_INT(guard_run(&scene, scene.guard, "a", &calls), POSTERN_E_BUSY);
		CHECK_INT(calls, 0);
		run_sql(scene.db, "COMMIT");
		CHECK_OK(guard_run(&scene, scene.guard, "a", &calls), &scene.error);
		CHECK_INT(calls, 1);
	}
	scene_close(&scene);
}

/* A guard of its own beside the owner of the file, here in one process. */
static void guest(void) {
	struct scene scene;
	struct postern_guard *guard = NULL;
	int calls = 0;
	if (scene_open(&scene, "?shared=yes") &&
			CHECK_OK(postern_guard_open(scene.url, NULL, &guard, &scene.error),
					&scene.error)) {
		CHECK_OK(guard_run(&scene, guard, "a", &calls), &scene.error);
		CHECK_INT(guard_run(&scene, scene.guard, "a", &calls),
				POSTERN_E_DUPLICATE);
		CHECK_OK(accept(&scene, "a"), &scene.error);
		CHECK_OK(guard_run(&scene, scene.guard, "b", &calls), &scene.error);
		CHECK_INT(guard_run(&scene, guard, "b", &calls), POSTERN_E_DUPLICATE);
		CHECK_INT(calls, 2);
		CHECK_INT(number_of(scene.db, "SELECT count(*) FROM effect"), 2);
		postern_guard_destroy(guard);
		CHECK_OK(accept(&scene, "b"), &scene.error);
	}
	scene_close(&scene);
}

/* Guards need no owner: the first one creates the file. */
static void guests_alone(void) {
	struct scene scene;
	struct postern_guard *first = NULL;
	struct postern_guard *second = NULL;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.must_exist = true,
	};
	scene_init(&scene, "?shared=yes");
	CHECK_INT(postern_guard_open(scene.url, &options, &first, &scene.error),
			POSTERN_E_NOTFOUND);
	if (CHECK_OK(postern_guard_open(scene.url, NULL, &first, &scene.error),
				&scene.error) &&
			CHECK_OK(postern_guard_open(scene.url, NULL, &second, &scene.error),
					&scene.error)) {
		CHECK_OK(postern_mark_try(first, "h", "a", &scene.error), &scene.error);
		CHECK_INT(postern_mark_try(second, "h", "a", &scene.error),
				POSTERN_E_DUPLICATE);
	}
	postern_guard_destroy(first);
	postern_guard_destroy(second);
	scene_close(&scene);
}

static void guest_of_unshared(void) {
	struct scene scene;
	struct postern_guard *guard = NULL;
	const struct postern_guard_options options = {
		.size = sizeof options,
		.command_timeout_ms = 50,
	};
	if (scene_open(&scene, "")) {
		(void)snprintf(scene.url, sizeof scene.url, "sqlite:%s?shared=yes",
				scene.path);
		CHECK_INT(postern_guard_open(scene.url, &options, &guard, &scene.error),
				POSTERN_E_BUSY);
		CHECK_CONTAINS(scene.error.text, "without ?shared=yes");
		CHECK_OK(accept(&scene, "a"), &scene.error);
	}
	scene_close(&scene);
}

/* Somebody gives the file a log: nothing is written until it is gone. */
static void log_added(void) {
	struct scene scene;
	if (scene_open(&scene, "?shared=yes")) {
		CHECK_OK(accept(&scene, "a"), &scene.error);
		run_sql(scene.db, "PRAGMA journal_mode = WAL");
		CHECK_INT(accept(&scene, "b"), POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(scene.error.text, "journal_mode=WAL");
		run_sql(scene.db, "BEGIN");
		CHECK_INT(mark(&scene, scene.db, "a"), POSTERN_E_UNAVAILABLE);
		run_sql(scene.db, "ROLLBACK");
		(void)sqlite3_close(scene.db);
		scene.db = NULL;
		/* Opening it again removes the log. */
		postern_guard_destroy(scene.guard);
		postern_box_destroy(scene.box);
		scene.guard = NULL;
		scene.box = NULL;
		if (CHECK_OK(open_box(&scene, &scene.box), &scene.error)) {
			CHECK_INT(format_of(&scene), 1);
		}
	}
	scene_close(&scene);
}

/* Where SQLite locks a file to write it. */
#define RESERVED_BYTE 0x40000001

/* In another process: whether the write lock is free. Without SQLite, which
   remembers in the child which locks its parent had. */
static bool is_free_elsewhere(const struct scene *scene) {
	int status = -1;
	pid_t child = fork();
	if (child == 0) {
		struct flock lock = {
			.l_type = F_WRLCK,
			.l_whence = SEEK_SET,
			.l_start = RESERVED_BYTE,
			.l_len = 1,
		};
		int fd = open(scene->path, O_RDWR | O_CLOEXEC);
		bool known = fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0;
		_exit(!known ? 2 : lock.l_type == F_UNLCK ? 0 : 1);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* To close a descriptor of the file would release the locks of the program's
   own connection. */
static void locks_kept(void) {
	struct scene scene;
	if (scene_open(&scene, "?shared=yes")) {
		CHECK(is_free_elsewhere(&scene));
		run_sql(scene.db, "BEGIN IMMEDIATE");
		postern_guard_destroy(scene.guard);
		postern_box_destroy(scene.box);
		scene.guard = NULL;
		scene.box = NULL;
		CHECK(!is_free_elsewhere(&scene));
		run_sql(scene.db, "COMMIT");
		CHECK_OK(open_box(&scene, &scene.box), &scene.error);
	}
	scene_close(&scene);
}

/* Ends in the middle of a transaction that has overwritten pages of the file,
   as if it were killed. */
static void write_and_die(const char *path) {
	sqlite3 *db = NULL;
	bool done = sqlite3_open(path, &db) == SQLITE_OK &&
				sqlite3_exec(db,
						"PRAGMA cache_size = 5; BEGIN IMMEDIATE;"
						"UPDATE effect SET x = randomblob(2000)",
						NULL, NULL, NULL) == SQLITE_OK;
	if (done) {
		(void)kill(getpid(), SIGKILL);
	}
	_exit(1);
}

/* Also a reader rolls back what a process has left. */
static void rolls_back_the_dead(void) {
	struct scene scene;
	int status = 0;
	struct postern_stats *stats = NULL;
	if (scene_open(&scene, "?shared=yes")) {
		run_sql(scene.db,
				"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1"
				" FROM n WHERE i < 200)"
				" INSERT INTO effect SELECT zeroblob(2000) FROM n");
		pid_t child = fork();
		if (child == 0) {
			write_and_die(scene.path);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(WIFSIGNALED(status));
		CHECK_OK(postern_box_stats(scene.box, &stats, &scene.error),
				&scene.error);
		postern_stats_destroy(stats);
		CHECK_INT(number_of(scene.db, "SELECT count(*) FROM effect WHERE x"
									  " <> zeroblob(2000)"),
				0);
		CHECK_OK(accept(&scene, "a"), &scene.error);
	}
	scene_close(&scene);
}

static void replaced(void) {
	struct scene scene;
	char other[PATH_LEN_MAX + 8];
	if (scene_open(&scene, "?shared=yes")) {
		CHECK_OK(accept(&scene, "a"), &scene.error);
		(void)snprintf(other, sizeof other, "%s.old", scene.path);
		CHECK_INT(rename(scene.path, other), 0);
		CHECK_INT(accept(&scene, "b"), POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(scene.error.text, "was removed");
		CHECK_INT(rename(other, scene.path), 0);
		CHECK_OK(accept(&scene, "b"), &scene.error);
	}
	scene_close(&scene);
}

static const struct tap_case cases[] = {
	{ "a shared file has no write-ahead log", has_no_log },
	{ "a file that is opened as shared loses its log", converted },
	{ "a shared file has one owner", second_owner },
	{ "a marker commits with the caller's transaction", committed },
	{ "a marker that was rolled back leaves nothing", rolled_back },
	{ "a connection elsewhere, or to a file that is not shared, is refused",
			refused },
	{ "a transaction of the caller waits for another writer", busy },
	{ "the store waits for another writer, and recovers", store_waits },
	{ "a guarded function waits for another writer as for a copy",
			guard_waits },
	{ "a guard of another process works beside the owner", guest },
	{ "guards share a file that nobody owns", guests_alone },
	{ "a guard does not share a file whose owner does not", guest_of_unshared },
	{ "a log that somebody adds is refused", log_added },
	{ "closing the store keeps the locks of other connections", locks_kept },
	{ "what a killed process left is rolled back by a reader",
			rolls_back_the_dead },
	{ "a shared file that was moved is not written", replaced },
};

TAP_MAIN(cases)
