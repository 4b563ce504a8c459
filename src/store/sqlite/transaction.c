/* SPDX-License-Identifier: MIT */

/*
 * Who may use a connection, and from when to when.
 *
 * Writers pass a gate, one at a time, and wait no longer than the command
 * timeout. A writer's transaction takes SQLite's write lock at its begin, so
 * nothing can fail for want of it later. After an I/O error the connection is
 * closed and opened again before the next writer gets it: what it had in
 * memory may differ from what is on the disk. The reader is left open
 * meanwhile, and with it the index of the write-ahead log, so that a commit
 * that failed stays failed.
 */

#include <postern/sys/clock.h>

#include "base/fail.h"
#include "base/point.h"
#include "base/wait.h"
#include "store/sqlite/sqlite.h"

int postern__sqlite_writer_open(struct sqlite_store *self,
		struct postern_error *error) {
	int r = postern__sqlite_connection_open(&self->writer, self, false, "",
			error);
	if (r == POSTERN_OK) {
		self->epoch++;
		postern__sqlite_guard(self);
	}
	return r;
}

static int reopen(struct sqlite_store *self, struct postern_error *error) {
	postern__sqlite_connection_close(&self->writer);
	postern__point("sqlite-reopen.closed");
	int r = postern__sqlite_writer_open(self, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_load(self, error);
	}
	/* Not before: what fails on the way marks it broken again. */
	self->broken = r != POSTERN_OK;
	return r;
}

static int gate_pass(struct sqlite_store *self, struct postern_error *error) {
	struct sqlite_gate *gate = &self->gate;
	const struct postern_clock *clock = postern_clock_system();
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&gate->lock);
	if (gate->held && pthread_equal(gate->holder, pthread_self())) {
		r = postern__fail(error, POSTERN_E_BUSY,
				"this thread is inside a transaction of the same store");
	} else if (gate->held) {
		int64_t end =
				clock->monotonic_ms(clock->context) + self->command_timeout_ms;
		int64_t rest = self->command_timeout_ms;
		while (gate->held && rest > 0) {
			postern__wait(&gate->opened, &gate->lock, rest);
			rest = end - clock->monotonic_ms(clock->context);
		}
		if (gate->held) {
			r = postern__fail(error, POSTERN_E_TIMEOUT,
					"the store's writer was busy for %lld ms",
					(long long)self->command_timeout_ms);
		}
	}
	if (r == POSTERN_OK) {
		gate->held = true;
		gate->holder = pthread_self();
	}
	(void)pthread_mutex_unlock(&gate->lock);
	return r;
}

int postern__sqlite_enter(struct sqlite_store *self,
		struct postern_error *error) {
	if (self->read_only) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' is open for reading only", self->file.path);
	}
	int r = gate_pass(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__sqlite_file_check(&self->file, error);
	if (r == POSTERN_OK && self->broken) {
		r = reopen(self, error);
	}
	if (r != POSTERN_OK) {
		postern__sqlite_leave(self);
	}
	return r;
}

void postern__sqlite_leave(struct sqlite_store *self) {
	(void)pthread_mutex_lock(&self->gate.lock);
	self->gate.held = false;
	(void)pthread_cond_signal(&self->gate.opened);
	(void)pthread_mutex_unlock(&self->gate.lock);
}

static int run(struct sqlite_connection *connection, const char *sql,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, connection, sql);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_begin(struct sqlite_store *self,
		struct postern_error *error) {
	postern__point("sqlite-begin.before");
	return run(&self->writer, "BEGIN IMMEDIATE", error);
}

int postern__sqlite_commit(struct sqlite_store *self,
		struct postern_error *error) {
	postern__point("sqlite-commit.before");
	int r = postern__sqlite_counts_write(self, error);
	postern__point("sqlite-commit.counted");
	if (postern__point_fails("sqlite-commit.fails")) {
		r = postern__fail(error, POSTERN_E_UNAVAILABLE, "a test says no");
	}
	if (r == POSTERN_OK) {
		r = run(&self->writer, "COMMIT", error);
	}
	postern__point("sqlite-commit.after");
	if (r == POSTERN_OK) {
		postern__sqlite_counts_end(self, true);
	} else {
		postern__sqlite_rollback(self);
	}
	return r;
}

void postern__sqlite_rollback(struct sqlite_store *self) {
	/* SQLite rolls back by itself after some errors. */
	if (!sqlite3_get_autocommit(self->writer.db) &&
			run(&self->writer, "ROLLBACK", NULL) != POSTERN_OK) {
		self->broken = true; /* closing it rolls back */
	}
	postern__sqlite_counts_end(self, false);
}

int postern__sqlite_finish(struct sqlite_store *self, int r,
		struct postern_error *error) {
	if (r == POSTERN_OK) {
		return postern__sqlite_commit(self, error);
	}
	if (postern__bug("rolled-back-is-known")) {
		(void)postern__sqlite_commit(self, NULL);
	}
	postern__sqlite_rollback(self);
	return r;
}

int postern__sqlite_look(struct sqlite_store *self,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&self->reader_lock);
	int r = run(&self->reader, "BEGIN", error);
	if (r != POSTERN_OK) {
		(void)pthread_mutex_unlock(&self->reader_lock);
	}
	return r;
}

void postern__sqlite_look_away(struct sqlite_store *self) {
	/* Nothing was written, so how it ends makes no difference. */
	if (!sqlite3_get_autocommit(self->reader.db)) {
		(void)run(&self->reader, "ROLLBACK", NULL);
	}
	(void)pthread_mutex_unlock(&self->reader_lock);
}
