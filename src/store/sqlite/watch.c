/* SPDX-License-Identifier: MIT */

/*
 * Files that are removed, replaced or truncated while the store is open.
 *
 * SQLite keeps descriptors of the database and of the write-ahead log, and maps
 * the log's index (FILE-shm) into memory. It does not notice changes of their
 * names. A commit into a log that has no name any more, or whose beginning was
 * truncated, succeeds, and the next opening does not find it. An access to a
 * mapped page behind the end of the index is a SIGBUS.
 *
 * So the names are compared with the opened files before each write, and the
 * log again after each COMMIT, before the commit is acknowledged. That takes a
 * stat() of each file and, for a commit, two reads of a page:
 *
 * - Database: the same inode, and not empty. Else nothing is written, and
 *   closing leaves the log in place, without a checkpoint.
 * - Log: the same inode. If it was removed or replaced, all commits are still
 *   behind SQLite's descriptor, and a checkpoint copies them to the database.
 *   If it was truncated, even if a later write made it as long as before, the
 *   last frame of the last commit has changed (a hole, or the end of the file).
 *   A log that was restarted has a new header. A checkpoint would copy holes to
 *   the database, so there is none then, nor when the store is closed.
 *   Checkpoints therefore come from a hook in this file and not from
 *   wal_autocheckpoint. This file has its own descriptor of the log, which is
 *   harmless: SQLite locks no byte of it.
 * - Index: the same inode. If it was truncated, it is emptied and made as long
 *   as before: SQLite finds no valid header in it and rebuilds it from the log,
 *   as after a crash. A transaction that was open meanwhile may have missed
 *   pages in the log, so it is rolled back, and the connections are reopened to
 *   drop their cached pages. The repair uses the name, with truncate(): closing
 *   a descriptor of the index would release SQLite's locks on it.
 *
 * Between a check and the next access, a truncated index is still a SIGBUS. In
 * a process that Postern owns (see postern__sqlite_own_process()) a handler
 * repairs the index (bus.c); elsewhere the process ends, as by kill -9, and
 * nothing is lost. locking_mode=EXCLUSIVE would keep the index on the heap, but
 * exclude every other reader: our own, commands beside a program that embeds
 * the library, and backups by sqlite3.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/sqlite/sqlite.h"

/* Pages in the write-ahead log before a checkpoint: 16 MiB, so that a page that
   many commits change is copied once. */
#define LOG_PAGES 4096

/* The first four bytes of a log, except for the last bit. */
#define LOG_MAGIC 0x377f0682u

#define FRAME_HEADER_LEN 24

/* The header is in the first region of the index, and this byte of it is 1 if
   it is valid. */
#define INDEX_IS_INIT 12

enum file_state { FILE_GOOD, FILE_REMOVED, FILE_REPLACED, FILE_TRUNCATED };

static int file_changed_fail(const char *path, enum file_state state,
		const char *more, struct postern_error *error) {
	static const char *const words[] = {
		[FILE_REMOVED] = "removed",
		[FILE_REPLACED] = "replaced",
		[FILE_TRUNCATED] = "truncated",
	};
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"'%s' was %s while it was in use%s; nothing is written until the "
			"process that has the store open is restarted",
			path, words[state], more);
}

static enum file_state file_compare(const char *path, ino_t inode,
		struct stat *status) {
	if (stat(path, status) < 0) {
		/* Whatever makes stat() fail also makes the next opening fail. */
		return FILE_REMOVED;
	}
	return status->st_ino == inode ? FILE_GOOD : FILE_REPLACED;
}

static uint32_t number_at(const unsigned char *bytes) {
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
		   (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool read_at(const struct sqlite_watch *watch, unsigned char *out,
		size_t len, off_t at) {
	return pread(watch->log_fd, out, len, at) == (ssize_t)len;
}

/* Reads the header of a log that was restarted; false: it is not valid. */
static bool read_header(struct sqlite_watch *watch) {
	return read_at(watch, watch->header, sizeof watch->header, 0) &&
		   (number_at(watch->header) & ~1u) == LOG_MAGIC;
}

static bool has_salt(const struct sqlite_watch *watch,
		const unsigned char *frame) {
	return memcmp(frame + 8, watch->header + 16, 8) == 0;
}

/* Whether the last known frame is unchanged. A file is truncated from its end,
   so then all frames before it are unchanged too. */
static bool has_frame(struct sqlite_watch *watch) {
	return watch->frame_at == 0 ||
		   (read_at(watch, watch->scratch, watch->frame_len, watch->frame_at) &&
				   memcmp(watch->scratch, watch->frame, watch->frame_len) == 0);
}

/* Whether a commit that made the log `count` frames long is in it, and all
   commits before it: its last frame has the salt of the log's header and the
   size of the database. A log that was restarted has another salt. */
static bool has_commit(struct sqlite_watch *watch, int count) {
	bool known = watch->frame_len > 0;
	if (!known && !read_header(watch)) {
		return false;
	}
	size_t len = FRAME_HEADER_LEN + (size_t)number_at(watch->header + 8);
	off_t at = SQLITE_LOG_HEADER_LEN + (count - 1) * (off_t)len;
	if (len > sizeof watch->next || !read_at(watch, watch->next, len, at)) {
		return false;
	}
	bool same = known && has_salt(watch, watch->next);
	if (same ? !has_frame(watch) : !read_header(watch)) {
		return false;
	}
	if (!has_salt(watch, watch->next) || number_at(watch->next + 4) == 0) {
		return false;
	}
	memcpy(watch->frame, watch->next, len);
	watch->frame_len = len;
	watch->frame_at = at;
	return true;
}

/* After a commit: whether all commits are in the log. */
static enum file_state check_commit(struct sqlite_watch *watch) {
	struct stat status;
	enum file_state state =
			file_compare(watch->log_path, watch->log_inode, &status);
	if (state != FILE_GOOD || watch->committed == 0) {
		return state;
	}
	if (!has_commit(watch, watch->committed)) {
		return FILE_TRUNCATED; /* permanent: `committed` is kept */
	}
	watch->committed = 0;
	return FILE_GOOD;
}

/* Before a write; cheaper, because a hole is found after the commit at the
   latest. */
static enum file_state check_log(struct sqlite_watch *watch) {
	struct stat status;
	enum file_state state =
			file_compare(watch->log_path, watch->log_inode, &status);
	if (state != FILE_GOOD || watch->committed == 0) {
		return state == FILE_GOOD &&
							   status.st_size <
									   watch->frame_at + (off_t)watch->frame_len
					   ? FILE_TRUNCATED
					   : state;
	}
	return check_commit(watch);
}

static enum file_state check_index(const struct sqlite_watch *watch,
		off_t *len_out) {
	struct stat status;
	enum file_state state =
			file_compare(watch->index_path, watch->index_inode, &status);
	*len_out = state == FILE_GOOD ? status.st_size : 0;
	return state == FILE_GOOD && status.st_size < watch->index_len
				   ? FILE_TRUNCATED
				   : state;
}

int postern__sqlite_watch_index_reset(struct sqlite_store *self,
		struct postern_error *error) {
	struct sqlite_watch *watch = &self->watch;
	/* Empty it first: SQLite must not read the rest as a complete index. */
	bool done = truncate(watch->index_path, 0) == 0 &&
				truncate(watch->index_path, watch->index_len) == 0;
	return done ? POSTERN_OK
				: file_changed_fail(watch->index_path, FILE_TRUNCATED, "",
						  error);
}

/* The start of a region of the index; NULL: SQLite has not mapped it, and the
   file does not have it. */
static const unsigned char volatile *
index_region(const struct sqlite_connection *connection, off_t at) {
	sqlite3_file *file = NULL;
	void volatile *region = NULL;
	if (!connection->db ||
			sqlite3_file_control(connection->db, "main",
					SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
			!file || !file->pMethods || file->pMethods->iVersion < 2 ||
			file->pMethods->xShmMap(file, (int)(at / SQLITE_INDEX_REGION_LEN),
					SQLITE_INDEX_REGION_LEN, 0, &region) != SQLITE_OK) {
		return NULL;
	}
	return region;
}

/* Records that the index is this long, in whole regions, or as long as SQLite
   has mapped it: an index that grew in the last transaction may have been
   truncated since. */
static void set_index_len(struct sqlite_store *self, off_t len) {
	len += SQLITE_INDEX_REGION_LEN - 1;
	len -= len % SQLITE_INDEX_REGION_LEN;
	while (index_region(&self->writer, len)) {
		len += SQLITE_INDEX_REGION_LEN;
	}
	self->watch.index_len = len;
	postern__sqlite_bus_set(self->watch.bus_slot, len);
}

/* Inside the gate, without a transaction. */
static int index_check_and_repair(struct sqlite_store *self,
		struct postern_error *error) {
	off_t len;
	enum file_state state = check_index(&self->watch, &len);
	if (state == FILE_GOOD && len > self->watch.index_len) {
		set_index_len(self, len);
		state = check_index(&self->watch, &len);
	}
	if (state == FILE_TRUNCATED) {
		set_index_len(self, self->watch.index_len);
		atomic_fetch_add(&self->watch.repairs, 1);
		(void)pthread_mutex_lock(&self->reader_mutex);
		int r = postern__sqlite_watch_index_reset(self, error);
		(void)pthread_mutex_unlock(&self->reader_mutex);
		return r;
	}
	return state == FILE_GOOD ? POSTERN_OK
							  : file_changed_fail(self->watch.index_path, state,
										"", error);
}

/* Saves the content of a log that has no name any more, but that SQLite still
   has open. Readers may prevent a part of it from being copied until the next
   call. */
static int save_log(struct sqlite_store *self, enum file_state state,
		struct postern_error *error) {
	int frames = -1;
	int copied = -1;
	if (self->writer.db) {
		(void)sqlite3_wal_checkpoint_v2(self->writer.db, "main",
				SQLITE_CHECKPOINT_PASSIVE, &frames, &copied);
	}
	bool saved = frames >= 0 && frames == copied;
	return file_changed_fail(self->watch.log_path, state,
			saved ? ", its content was saved in the database" : "", error);
}

int postern__sqlite_watch_check(struct sqlite_store *self,
		struct postern_error *error) {
	int r = postern__sqlite_file_check(&self->file, error);
	if (r != POSTERN_OK || !self->watch.log_path) {
		return r;
	}
	r = index_check_and_repair(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	enum file_state state = check_log(&self->watch);
	if (state == FILE_TRUNCATED) {
		return file_changed_fail(self->watch.log_path, state, "", error);
	}
	return state == FILE_GOOD ? POSTERN_OK : save_log(self, state, error);
}

/* Whether the index has a valid header, and has had one since the write
   transaction began: only a writer can create one. */
static bool index_is_valid(const struct sqlite_connection *connection) {
	const unsigned char volatile *header = index_region(connection, 0);
	return header && header[INDEX_IS_INIT] == 1;
}

unsigned postern__sqlite_watch_generation(const struct sqlite_store *self) {
	return atomic_load(&self->watch.repairs) +
		   postern__sqlite_bus_repairs(self->watch.bus_slot);
}

static bool index_was_lost(const struct sqlite_connection *connection) {
	struct sqlite_store *self = connection->store;
	if (connection->generation != postern__sqlite_watch_generation(self)) {
		return true;
	}
	if (connection != &self->writer ||
			sqlite3_txn_state(connection->db, "main") != SQLITE_TXN_WRITE ||
			index_is_valid(connection)) {
		return false;
	}
	/* Another process truncated the index and made it as long as before. */
	atomic_fetch_add(&self->watch.repairs, 1);
	return true;
}

bool postern__sqlite_watch_index_was_lost(
		const struct sqlite_connection *connection) {
	const struct sqlite_watch *watch = &connection->store->watch;
	off_t len;
	return watch->log_path && (check_index(watch, &len) == FILE_TRUNCATED ||
									  index_was_lost(connection));
}

int postern__sqlite_watch_before_commit(struct sqlite_store *self,
		struct postern_error *error) {
	if (!self->watch.log_path) {
		return POSTERN_OK;
	}
	if (index_was_lost(&self->writer)) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"'%s' was truncated during a transaction, which was rolled "
				"back",
				self->watch.index_path);
	}
	return POSTERN_OK;
}

int postern__sqlite_watch_after_commit(struct sqlite_store *self,
		struct postern_error *error) {
	if (!self->watch.log_path) {
		/* Without a log the commit is in the database. */
		int r = postern__sqlite_file_check(&self->file, error);
		self->broken = self->broken || r != POSTERN_OK;
		return r;
	}
	enum file_state state = check_log(&self->watch);
	if (state == FILE_GOOD) {
		return POSTERN_OK;
	}
	/* The caller assumes that nothing was committed. */
	self->broken = true;
	return state == FILE_TRUNCATED
				   ? file_changed_fail(self->watch.log_path, state, "", error)
				   : save_log(self, state, error);
}

bool postern__sqlite_watch_index_readable(const struct sqlite_store *self) {
	off_t len;
	/* An index that was removed can still be read. */
	return !self->watch.log_path ||
		   check_index(&self->watch, &len) != FILE_TRUNCATED;
}

/* Called after each commit that wrote, like wal_autocheckpoint. */
static int watch_on_commit(void *context, sqlite3 *db, const char *name,
		int frame_count) {
	struct sqlite_store *self = context;
	if (strcmp(name, "main") != 0) {
		return SQLITE_OK;
	}
	self->watch.committed = frame_count;
	off_t len;
	if (frame_count >= LOG_PAGES &&
			(!self->watch.log_path ||
					(check_log(&self->watch) != FILE_TRUNCATED &&
							check_index(&self->watch, &len) !=
									FILE_TRUNCATED))) {
		/* Frames that it could not copy are left to the next checkpoint. */
		(void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE,
				NULL, NULL);
	}
	return SQLITE_OK;
}

void postern__sqlite_watch_commits(struct sqlite_store *self) {
	(void)sqlite3_wal_hook(self->writer.db, watch_on_commit, self);
}

static int no_file(const char *path, struct postern_error *error) {
	return postern__fail(error, POSTERN_E_UNAVAILABLE, "cannot open '%s': %s",
			path, strerror(errno));
}

int postern__sqlite_watch_begin(struct sqlite_store *self,
		struct postern_error *error) {
	struct sqlite_watch *watch = &self->watch;
	struct stat status;
	if (self->shared) {
		return POSTERN_OK; /* there is no log */
	}
	if (asprintf(&watch->index_path, "%s-shm", self->file.path) < 0) {
		watch->index_path = NULL;
		return postern__sqlite_no_memory(error);
	}
	if (asprintf(&watch->log_path, "%s-wal", self->file.path) < 0) {
		watch->log_path = NULL;
		return postern__sqlite_no_memory(error);
	}
	watch->log_fd = open(watch->log_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (watch->log_fd < 0 || fstat(watch->log_fd, &status) < 0) {
		return no_file(watch->log_path, error);
	}
	watch->log_inode = status.st_ino;
	if (stat(watch->index_path, &status) < 0) {
		return no_file(watch->index_path, error);
	}
	watch->index_inode = status.st_ino;
	watch->index_len = status.st_size;
	watch->bus_slot =
			postern__sqlite_bus_add(watch->index_path, status.st_size);
	return POSTERN_OK;
}

void postern__sqlite_watch_end(struct sqlite_store *self) {
	if (!self->watch.log_path || self->watch.log_fd < 0 || !self->writer.db) {
		return;
	}
	(void)index_check_and_repair(self,
			NULL); /* an index that was removed is still valid */
	if (postern__sqlite_file_check(&self->file, NULL) != POSTERN_OK ||
			check_log(&self->watch) == FILE_TRUNCATED ||
			!has_frame(&self->watch)) {
		int on;
		(void)sqlite3_db_config(self->writer.db,
				SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, &on);
	}
}

void postern__sqlite_watch_close(struct sqlite_watch *watch) {
	postern__sqlite_bus_remove(watch->bus_slot);
	watch->bus_slot = -1;
	if (watch->log_fd >= 0) {
		(void)close(watch->log_fd); /* opened for reading only */
		watch->log_fd = -1;
	}
	free(watch->log_path);
	free(watch->index_path);
	watch->log_path = NULL;
	watch->index_path = NULL;
}
