/* SPDX-License-Identifier: MIT */

/*
 * The file of a SQLite store: who may open it, what it must be, and the errors
 * if it is something else.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/sqlite_stand.h"

#define NOBODY 65534

static void created_private(void) {
	struct stand stand;
	struct stat status = { 0 };
	stand_init(&stand);
	if (stand_open(&stand)) {
		CHECK_INT(stat(stand.path, &status), 0);
		CHECK_INT(status.st_mode & 0777, 0600);
	}
	stand_finish(&stand);
}

static void opened_twice(void) {
	struct stand stand;
	struct postern_store *second = NULL;
	char pid[32];
	stand_init(&stand);
	(void)snprintf(pid, sizeof pid, "in use by process %ld", (long)getpid());
	if (stand_open(&stand)) {
		CHECK_INT(stand_open_path(&stand, stand.path, &second), POSTERN_E_BUSY);
		CHECK_CONTAINS(stand.error.text, pid);
		CHECK_CONTAINS(stand.error.text, stand.path);
		/* The failed open does not affect the owner. */
		CHECK(stand_accept(&stand, "a") > 0);
		stand_close(&stand);
		CHECK_OK(stand_open_path(&stand, stand.path, &stand.store),
				&stand.error);
	}
	stand_finish(&stand);
}

/* The lock file is removed, as a stale one would be. */
static void lock_file_removed(void) {
	struct stand stand;
	struct postern_store *second = NULL;
	char lock[PATH_LEN_MAX + 8];
	stand_init(&stand);
	(void)snprintf(lock, sizeof lock, "%s.lock", stand.path);
	if (stand_open(&stand)) {
		CHECK_INT(unlink(lock), 0);
		for (int i = 0; i < 2; i++) {
			CHECK_INT(stand_open_path(&stand, stand.path, &second),
					POSTERN_E_BUSY);
			CHECK_CONTAINS(stand.error.text, "in use by another process");
			CHECK_CONTAINS(stand.error.text, stand.path);
		}
		CHECK(stand_accept(&stand, "a") > 0);
		stand_close(&stand);
		CHECK_OK(stand_open_path(&stand, stand.path, &stand.store),
				&stand.error);
	}
	stand_finish(&stand);
}

/* A child that opens the store, reports that, and waits to be killed. */
static pid_t start_owner(struct stand *stand) {
	int ready[2];
	char byte = 0;
	if (!CHECK_INT(pipe(ready), 0)) {
		return -1;
	}
	pid_t child = fork();
	if (child == 0) {
		byte = stand_open_path(stand, stand->path, &stand->store) == POSTERN_OK;
		(void)!write(ready[1], &byte, 1);
		for (;;) {
			(void)pause();
		}
	}
	CHECK_INT(read(ready[0], &byte, 1), 1);
	CHECK(byte);
	(void)close(ready[0]);
	(void)close(ready[1]);
	return child;
}

static void killed_owner(void) {
	struct stand stand;
	char pid[32];
	stand_init(&stand);
	pid_t child = start_owner(&stand);
	(void)snprintf(pid, sizeof pid, "in use by process %ld", (long)child);
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_BUSY);
	CHECK_CONTAINS(stand.error.text, pid);

	CHECK_INT(kill(child, SIGKILL), 0);
	CHECK_INT(waitpid(child, NULL, 0), child);
	CHECK_OK(stand_open_path(&stand, stand.path, &stand.store), &stand.error);
	stand_finish(&stand);
}

static void behind_a_link(void) {
	struct stand stand;
	struct postern_store *second = NULL;
	char link_path[PATH_LEN_MAX];
	stand_init(&stand);
	temp_dir_name(&stand.dir, "", "other.db", link_path, sizeof link_path);
	if (stand_open(&stand) && CHECK_INT(symlink(stand.path, link_path), 0)) {
		CHECK_INT(stand_open_path(&stand, link_path, &second), POSTERN_E_BUSY);
		CHECK_CONTAINS(stand.error.text, stand.path);
	}
	stand_finish(&stand);
}

static void hard_links(void) {
	struct stand stand;
	char link_path[PATH_LEN_MAX];
	stand_init(&stand);
	temp_dir_name(&stand.dir, "", "other.db", link_path, sizeof link_path);
	if (stand_open(&stand)) {
		stand_close(&stand);
		CHECK_INT(link(stand.path, link_path), 0);
		CHECK_INT(stand_open_path(&stand, link_path, &stand.store),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(stand.error.text, "hard links");
	}
	stand_finish(&stand);
}

/* How many open files below a directory a child of this process would
   inherit. */
static int inherited_count(const char *path) {
	int count = 0;
	DIR *dir = opendir("/proc/self/fd");
	if (!CHECK(dir)) {
		return -1;
	}
	const struct dirent *entry;
	while ((entry = readdir(dir))) {
		char target[PATH_LEN_MAX + 64] = "";
		int fd = (int)strtol(entry->d_name, NULL, 10);
		if (readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1) >
						0 &&
				strncmp(target, path, strlen(path)) == 0) {
			count += (fcntl(fd, F_GETFD) & FD_CLOEXEC) ? 0 : 1;
		}
	}
	(void)closedir(dir);
	return count;
}

static void nothing_inherited(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		(void)stand_accept(&stand, "a");
		CHECK_INT(inherited_count(stand.dir.path), 0);
	}
	stand_finish(&stand);
}

static void removed(void) {
	struct stand stand;
	int code;
	int64_t seq;
	stand_init(&stand);
	if (stand_open(&stand)) {
		CHECK_INT(unlink(stand.path), 0);
		CHECK_INT(stand_send(&stand, "a", 4, &code, &seq),
				POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(stand.error.text, "was removed");
	}
	stand_finish(&stand);
}

static void check_file_refused(struct stand *stand, const char *name,
		const char *word) {
	int code;
	int64_t seq;
	CHECK_INT(stand_send(stand, "refused", 4, &code, &seq),
			POSTERN_E_UNAVAILABLE);
	CHECK_CONTAINS(stand->error.text, name);
	CHECK_CONTAINS(stand->error.text, word);
}

/* A file with the same inode under the same name counts as never moved. */
static void moved_and_back(void) {
	static const char *const suffixes[] = { "", "-wal", "-shm" };
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
			char name[PATH_LEN_MAX + 8];
			char away[PATH_LEN_MAX + 8];
			(void)snprintf(name, sizeof name, "%s%s", stand.path, suffixes[i]);
			(void)snprintf(away, sizeof away, "%s-away", stand.path);
			CHECK_INT(rename(name, away), 0);
			check_file_refused(&stand, name, "was removed");
			CHECK_INT(rename(away, name), 0);
			CHECK(stand_accept(&stand, suffixes[i]) > 0);
		}
	}
	stand_finish(&stand);
}

/* Cut off `len` bytes of the log and extend it to its former size, so that the
   size does not show the damage. */
static void check_hole(off_t len) {
	struct stand stand;
	struct stat status = { 0 };
	char log[PATH_LEN_MAX + 8];
	stand_init(&stand);
	(void)snprintf(log, sizeof log, "%s-wal", stand.path);
	if (stand_open(&stand)) {
		(void)stand_accept(&stand, "a");
		CHECK_INT(stat(log, &status), 0);
		CHECK_INT(truncate(log, status.st_size - len), 0);
		CHECK_INT(truncate(log, status.st_size), 0);
		check_file_refused(&stand, log, "was truncated");
	}
	stand_finish(&stand);
}

static void log_with_a_hole(void) {
	check_hole(1000);
	check_hole(10000);
}

static void index_truncated(void) {
	struct stand stand;
	char index[PATH_LEN_MAX + 8];
	stand_init(&stand);
	(void)snprintf(index, sizeof index, "%s-shm", stand.path);
	if (stand_open(&stand)) {
		int64_t seq = stand_accept(&stand, "a");
		CHECK_INT(truncate(index, 0), 0);
		CHECK_INT(stand_state(&stand, seq), POSTERN_STATE_LEASED);
		CHECK_INT(truncate(index, 4096), 0);
		int64_t next = stand_accept(&stand, "b");
		CHECK_INT(stand_state(&stand, next), POSTERN_STATE_LEASED);
		CHECK_INT(truncate(index, 4096), 0);
		stand_close(&stand);
		CHECK(stand_open(&stand));
		CHECK(stand_state(&stand, seq) != POSTERN_STATE_ANY);
		CHECK(stand_state(&stand, next) != POSTERN_STATE_ANY);
	}
	stand_finish(&stand);
}

/* SQLite restarts the log many times, and frames of the last round stay behind
   the current ones: none of that is damage. */
static void log_restarted(void) {
	struct stand stand;
	int code;
	int64_t seq = 0;
	stand_init(&stand);
	if (stand_open(&stand)) {
		char id[16];
		for (int i = 0; i < 900; i++) {
			(void)snprintf(id, sizeof id, "%d", i);
			CHECK_OK(stand_send(&stand, id, i % 7 ? 1 << 16 : 4, &code, &seq),
					&stand.error);
		}
		CHECK_INT(seq, 900);
	}
	stand_finish(&stand);
}

static bool write_text(const char *path, const char *text) {
	FILE *file = fopen(path, "w");
	bool ok = file && fputs(text, file) >= 0;
	return file && fclose(file) == 0 && ok;
}

/* Check that the open fails with this error and keeps the log. */
static void check_refused(struct stand *stand, const char *log, int code,
		const char *text) {
	struct stat status;
	CHECK_INT(stand_open_path(stand, stand->path, &stand->store), code);
	CHECK_CONTAINS(stand->error.text, text);
	CHECK_INT(stat(log, &status), 0);
	CHECK(status.st_size > 0);
}

static void removed_from_owner(void) {
	struct stand stand;
	char log[PATH_LEN_MAX + 8];
	stand_init(&stand);
	(void)snprintf(log, sizeof log, "%s-wal", stand.path);
	pid_t child = start_owner(&stand);
	CHECK_INT(unlink(stand.path), 0);
	check_refused(&stand, log, POSTERN_E_CORRUPT, "restore it");
	stand.options.must_exist = true;
	check_refused(&stand, log, POSTERN_E_CORRUPT, "-wal' exists but");
	stand.options.must_exist = false;
	CHECK_INT(access(stand.path, F_OK), -1);
	CHECK_INT(kill(child, SIGKILL), 0);
	CHECK_INT(waitpid(child, NULL, 0), child);
	check_refused(&stand, log, POSTERN_E_CORRUPT, "the database is missing");
	CHECK_INT(access(stand.path, F_OK), -1);
	/* An empty database counts as missing. */
	CHECK(write_text(stand.path, ""));
	check_refused(&stand, log, POSTERN_E_CORRUPT, "the database is empty");
	CHECK_INT(unlink(log), 0);
	CHECK_OK(stand_open_path(&stand, stand.path, &stand.store), &stand.error);
	stand_finish(&stand);
}

static void locked_without_file(void) {
	struct stand stand;
	char lock[PATH_LEN_MAX + 8];
	stand_init(&stand);
	(void)snprintf(lock, sizeof lock, "%s.lock", stand.path);
	int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK_INT(flock(fd, LOCK_EX), 0);
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_BUSY);
	CHECK_INT(access(stand.path, F_OK), -1);
	(void)close(fd);
	CHECK_OK(stand_open_path(&stand, stand.path, &stand.store), &stand.error);
	stand_finish(&stand);
}

static void link_to_nothing(void) {
	struct stand stand;
	char target[PATH_LEN_MAX];
	stand_init(&stand);
	temp_dir_name(&stand.dir, "", "missing.db", target, sizeof target);
	CHECK_INT(symlink(target, stand.path), 0);
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_UNAVAILABLE);
	CHECK_CONTAINS(stand.error.text,
			"symbolic link to a file that does not exist");
	CHECK_INT(access(target, F_OK), -1);
	stand_finish(&stand);
}

static void replaced(void) {
	struct stand stand;
	int code;
	int64_t seq;
	char other[PATH_LEN_MAX];
	stand_init(&stand);
	temp_dir_name(&stand.dir, "", "other.db", other, sizeof other);
	if (stand_open(&stand)) {
		CHECK(file_exec(other, "CREATE TABLE t (n)"));
		CHECK_INT(rename(other, stand.path), 0);
		CHECK_INT(stand_send(&stand, "a", 4, &code, &seq),
				POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(stand.error.text, "was replaced");
	}
	stand_finish(&stand);
}

static void not_a_database(void) {
	static const char text[] =
			"This is a letter, and it is quite a bit longer than the header "
			"of a database, so that nobody can take it for an empty one.";
	struct stand stand;
	char kept[sizeof text + 1] = "";
	stand_init(&stand);
	CHECK(write_text(stand.path, text));
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_CORRUPT);
	CHECK_CONTAINS(stand.error.text, "is not a SQLite database");
	stand.options.read_only = true;
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_CORRUPT);

	FILE *file = fopen(stand.path, "r");
	CHECK(file && fgets(kept, sizeof kept, file));
	CHECK_STR(kept, text);
	(void)fclose(file);
	stand_finish(&stand);
}

static void not_a_file(void) {
	struct stand stand;
	stand_init(&stand);
	CHECK_INT(stand_open_path(&stand, stand.dir.path, &stand.store),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(stand.error.text, "not a regular file");
	stand_finish(&stand);
}

static void must_exist(void) {
	struct stand stand;
	stand_init(&stand);
	stand.options.must_exist = true;
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_NOTFOUND);
	CHECK_CONTAINS(stand.error.text, stand.path);
	CHECK_INT(access(stand.path, F_OK), -1);
	stand_finish(&stand);
}

static void no_directory(void) {
	struct stand stand;
	char path[PATH_LEN_MAX];
	stand_init(&stand);
	temp_dir_name(&stand.dir, "", "missing/store.db", path, sizeof path);
	CHECK_INT(stand_open_path(&stand, path, &stand.store),
			POSTERN_E_UNAVAILABLE);
	CHECK_CONTAINS(stand.error.text, "No such file or directory");
	stand_finish(&stand);
}

static void odd_names(void) {
	static const char *const names[] = { "100%25 #1.db", "a b.db", "file:x",
		"\xc3\xa4.db" };
	struct stand stand;
	stand_init(&stand);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		temp_dir_name(&stand.dir, "", names[i], stand.path, sizeof stand.path);
		if (stand_open(&stand)) {
			CHECK_INT(access(stand.path, F_OK), 0);
			CHECK(stand_accept(&stand, "a") > 0);
			stand_close(&stand);
		}
	}
	stand_finish(&stand);
}

static void parameters(void) {
	static const struct {
		const char *url;
		const char *text;
	} rows[] = {
		{ "sqlite:", "names no file" },
		{ "sqlite:?shared=yes", "names no file" },
		{ "sqlite:x.db?shared=no", "unknown parameter 'shared=no'" },
		{ "sqlite:x.db?mode=ro", "unknown parameter 'mode=ro'" },
		{ "sqlite::memory:", "memory:" },
	};
	struct stand stand;
	stand_init(&stand);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_INT(postern_store_open(rows[i].url, &stand.options, &stand.store,
						  &stand.error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(stand.error.text, rows[i].text);
	}
	CHECK_INT(access("x.db", F_OK), -1);
	stand_finish(&stand);
}

/* Open the store in a child without root's permissions; returns the code, and
   the text in stand->error. */
static int open_as_nobody(struct stand *stand) {
	int result[2];
	if (!CHECK_INT(pipe(result), 0)) {
		return POSTERN_OK;
	}
	pid_t child = fork();
	if (child == 0) {
		if (geteuid() != 0 || (setgid(NOBODY) == 0 && setuid(NOBODY) == 0)) {
			(void)stand_open_path(stand, stand->path, &stand->store);
		}
		(void)!write(result[1], &stand->error, sizeof stand->error);
		postern_store_destroy(stand->store);
		_exit(0);
	}
	CHECK_INT(read(result[0], &stand->error, sizeof stand->error),
			sizeof stand->error);
	CHECK_INT(waitpid(child, NULL, 0), child);
	(void)close(result[0]);
	(void)close(result[1]);
	return stand->error.code;
}

static void read_only_file(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		stand_close(&stand);
		CHECK_INT(chmod(stand.dir.path, 0777), 0);
		CHECK_INT(chmod(stand.path, 0444), 0);
		char lock_path[PATH_LEN_MAX + 8];
		(void)snprintf(lock_path, sizeof lock_path, "%s.lock", stand.path);
		CHECK_INT(unlink(lock_path), 0);
		CHECK_INT(open_as_nobody(&stand), POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(stand.error.text, "cannot be written");
	}
	stand_finish(&stand);
}

static void read_only_directory(void) {
	struct stand stand;
	stand_init(&stand);
	CHECK_INT(chmod(stand.dir.path, 0555), 0);
	CHECK_INT(open_as_nobody(&stand), POSTERN_E_UNAVAILABLE);
	CHECK_CONTAINS(stand.error.text, "Permission denied");
	CHECK_INT(chmod(stand.dir.path, 0700), 0);
	stand_finish(&stand);
}

static void unreadable_file(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		stand_close(&stand);
		CHECK_INT(chmod(stand.dir.path, 0755), 0);
		CHECK_INT(chmod(stand.path, 0), 0);
		stand.options.read_only = true;
		CHECK_INT(open_as_nobody(&stand), POSTERN_E_UNAVAILABLE);
	}
	stand_finish(&stand);
}

static void read_beside_owner(void) {
	struct stand stand;
	struct postern_store *other = NULL;
	struct postern_detail detail;
	stand_init(&stand);
	if (stand_open(&stand)) {
		int64_t seq = stand_accept(&stand, "a");
		stand.options.read_only = true;
		CHECK_OK(stand_open_path(&stand, stand.path, &other), &stand.error);
		int64_t next = stand_accept(&stand, "b");
		CHECK_OK(other->ops->get(other, seq, stand.memory, &detail,
						 &stand.error),
				&stand.error);
		CHECK_OK(other->ops->get(other, next, stand.memory, &detail,
						 &stand.error),
				&stand.error);
		CHECK_STR(detail.message->id, "b");
		postern_store_destroy(other);
		CHECK(stand_accept(&stand, "c") > next);
	}
	stand_finish(&stand);
}

static void read_without_owner(void) {
	struct stand stand;
	struct postern_detail detail;
	stand_init(&stand);
	if (stand_open(&stand)) {
		int64_t seq = stand_accept(&stand, "a");
		stand_close(&stand);
		stand.options.read_only = true;
		CHECK_OK(stand_open_path(&stand, stand.path, &stand.store),
				&stand.error);
		CHECK_OK(stand.store->ops->get(stand.store, seq, stand.memory, &detail,
						 &stand.error),
				&stand.error);
	}
	stand_finish(&stand);
}

/* The log still exists, as after a crash: it was not copied into the
   database. */
static void read_after_crash(void) {
	struct stand stand;
	struct postern_detail detail;
	stand_init(&stand);
	pid_t child = fork();
	if (child == 0) {
		_exit(stand_open(&stand) && stand_accept(&stand, "a") == 1 ? 0 : 1);
	}
	int status = 1;
	CHECK_INT(waitpid(child, &status, 0), child);
	CHECK_INT(status, 0);
	stand.options.read_only = true;
	CHECK_OK(stand_open_path(&stand, stand.path, &stand.store), &stand.error);
	if (stand.store) {
		CHECK_OK(stand.store->ops->get(stand.store, 1, stand.memory, &detail,
						 &stand.error),
				&stand.error);
	}
	stand_finish(&stand);
}

static void read_only_store(void) {
	struct stand stand;
	int code;
	int64_t seq;
	struct postern_recovered recovered;
	stand_init(&stand);
	if (stand_open(&stand)) {
		stand_close(&stand);
		stand.options.read_only = true;
		CHECK_OK(stand_open_path(&stand, stand.path, &stand.store),
				&stand.error);
		CHECK_INT(stand_send(&stand, "a", 4, &code, &seq),
				POSTERN_E_UNSUPPORTED);
		CHECK_CONTAINS(stand.error.text, "for reading only");
		CHECK_INT(stand_enrol(&stand), POSTERN_E_UNSUPPORTED);
		struct postern_recovery recovery = { .node = NODE, .max = 10 };
		CHECK_INT(stand.store->ops->recover(stand.store, &recovery, &recovered,
						  &stand.error),
				POSTERN_E_UNSUPPORTED);
	}
	stand_finish(&stand);
}

static void read_missing_store(void) {
	struct stand stand;
	stand_init(&stand);
	stand.options.read_only = true;
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_NOTFOUND);
	CHECK(file_exec(stand.path, "CREATE TABLE t (n)"));
	CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
			POSTERN_E_NOTFOUND);
	CHECK_CONTAINS(stand.error.text, "no tables of postern");
	stand_finish(&stand);
}

/* Nothing can be written there, not even the files SQLite needs to read a
   database in wal mode; but nobody else can change the file either. */
static void read_on_read_only_disk(void) {
	struct stand stand;
	stand_init(&stand);
	/* Needs root. */
	if (!CHECK_INT(mount("none", stand.dir.path, "tmpfs", 0, "size=8m"), 0)) {
		stand_finish(&stand);
		return;
	}
	if (stand_open(&stand)) {
		int64_t seq = stand_accept(&stand, "a");
		stand_close(&stand);
		CHECK_INT(mount("none", stand.dir.path, "tmpfs", MS_REMOUNT | MS_RDONLY,
						  NULL),
				0);
		CHECK_INT(stand_open_path(&stand, stand.path, &stand.store),
				POSTERN_E_UNAVAILABLE);
		CHECK_CONTAINS(stand.error.text, "Read-only file system");
		stand.options.read_only = true;
		CHECK_OK(stand_open_path(&stand, stand.path, &stand.store),
				&stand.error);
		CHECK(stand.store && stand_state(&stand, seq) == POSTERN_STATE_LEASED);
	}
	stand_close(&stand);
	CHECK_INT(umount(stand.dir.path), 0);
	stand_finish(&stand);
}

/* A lock outlives its owner in the file, but the process that opens the file
   next knows that it has no other owner. */
static void locks_of_dead_owner(void) {
	struct stand stand;
	bool held = false;
	uint64_t first = 0;
	uint64_t second = 0;
	stand_init(&stand);
	if (stand_open(&stand)) {
		CHECK_OK(stand.store->ops->lock(stand.store, "l", NODE, 3600000, &held,
						 &first, &stand.error),
				&stand.error);
		CHECK(held);
		stand_close(&stand);
		held = false;
		CHECK(stand_open(&stand));
		CHECK_OK(stand.store->ops->lock(stand.store, "l", NODE + 1, 1000, &held,
						 &second, &stand.error),
				&stand.error);
		CHECK(held);
		CHECK(second > first);
	}
	stand_finish(&stand);
}

static void wrong_remembered_id(void) {
	struct stand stand;
	int code;
	int64_t seq;
	stand_init(&stand);
	if (stand_open(&stand)) {
		int64_t first = stand_accept(&stand, "a");
		int64_t second = stand_accept(&stand, "b");
		char sql[128];
		(void)snprintf(sql, sizeof sql,
				"UPDATE postern_seen SET seq = %lld WHERE seq = %lld",
				(long long)second, (long long)first);
		CHECK(file_exec(stand.path, sql));
		CHECK_INT(stand_send(&stand, "a", 4, &code, &seq), POSTERN_E_CORRUPT);
		CHECK_CONTAINS(stand.error.text, "is damaged");
		CHECK_CONTAINS(stand.error.text, stand.path);
		/* Other messages are not affected. */
		CHECK_OK(stand_send(&stand, "b", 4, &code, &seq), &stand.error);
		CHECK_INT(code, POSTERN_E_DUPLICATE);
		CHECK_INT(seq, second);
	}
	stand_finish(&stand);
}

static void wal_mode(void) {
	struct stand stand;
	stand_init(&stand);
	if (stand_open(&stand)) {
		CHECK_INT(file_number(stand.path,
						  "SELECT count(*) FROM pragma_journal_mode"
						  " WHERE journal_mode = 'wal'"),
				1);
	}
	stand_finish(&stand);
}

static void log_goes_at_the_end(void) {
	struct stand stand;
	char path[PATH_LEN_MAX + 8];
	stand_init(&stand);
	(void)snprintf(path, sizeof path, "%s-wal", stand.path);
	if (stand_open(&stand)) {
		(void)stand_accept(&stand, "a");
		CHECK_INT(access(path, F_OK), 0);
		stand_close(&stand);
		CHECK_INT(access(path, F_OK), -1);
	}
	stand_finish(&stand);
}

static const struct tap_case cases[] = {
	{ "a new file is readable by its owner alone", created_private },
	{ "opening a file twice is busy, with the pid", opened_twice },
	{ "opening a file whose lock file was removed is busy", lock_file_removed },
	{ "a killed owner's lock is released, and names the owner before",
			killed_owner },
	{ "opening through a symbolic link uses the lock of its target",
			behind_a_link },
	{ "a file with hard links is refused", hard_links },
	{ "a child process inherits no file of the store", nothing_inherited },
	{ "a file that was removed is not written to", removed },
	{ "files that were moved away and back are written to", moved_and_back },
	{ "a log with a hole is not written to", log_with_a_hole },
	{ "an index that was truncated is rebuilt", index_truncated },
	{ "a log that SQLite restarts is written to", log_restarted },
	{ "no database is created for the log of one that was removed",
			removed_from_owner },
	{ "no database is created without the lock", locked_without_file },
	{ "a symbolic link to a missing file is reported as such",
			link_to_nothing },
	{ "a file that was replaced is not written to", replaced },
	{ "a file that is not a database is refused and not changed",
			not_a_database },
	{ "a directory is refused", not_a_file },
	{ "must_exist creates nothing", must_exist },
	{ "a missing directory is named as the reason", no_directory },
	{ "a file name may have characters that are special in a URI", odd_names },
	{ "a url without a file or with a parameter is refused", parameters },
	{ "a file that cannot be written is refused", read_only_file },
	{ "a directory that cannot be written is refused", read_only_directory },
	{ "a file that cannot be read is refused", unreadable_file },
	{ "a store can be read beside its owner", read_beside_owner },
	{ "a store can be read without an owner", read_without_owner },
	{ "a store can be read after a crash", read_after_crash },
	{ "a store opened for reading writes nothing", read_only_store },
	{ "a store can be read on a read-only disk", read_on_read_only_disk },
	{ "opening for reading creates nothing", read_missing_store },
	{ "locks of a dead process are released when the file is opened",
			locks_of_dead_owner },
	{ "a remembered id of another message is reported as damage",
			wrong_remembered_id },
	{ "the file is in wal mode", wal_mode },
	{ "closing copies the log into the file", log_goes_at_the_end },
};

TAP_MAIN(cases)
