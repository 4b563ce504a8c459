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
		postern__sqlite_sandbox_install(self);
		postern__sqlite_watch_commits(self);
	}
	return r;
}

static int writer_reopen(struct sqlite_store *self,
		struct postern_error *error) {
	postern__sqlite_connection_close(&self->writer);
	postern__point("sqlite-reopen.closed");
	int r = postern__sqlite_writer_open(self, error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_directory_load(self, error);
	}
	/* Not before: what fails on the way marks it broken again. */
	self->broken = r != POSTERN_OK;
	return r;
}

/* With the reader's lock: whether it was opened on the present index. */
static bool reader_is_current(const struct sqlite_store *self) {
	return self->reader.db &&
		   self->reader.generation == postern__sqlite_watch_generation(self);
}

/* Inside the gate: open again what cannot be trusted, one after the other,
   since the last connection would remove the log. An index that was lost may
   have been lost while it was built anew: that is done once more, now that
   nobody uses it. */
static int connections_refresh(struct sqlite_store *self,
		struct postern_error *error) {
	unsigned generation = postern__sqlite_watch_generation(self);
	if (generation == self->generation) {
		return self->broken ? writer_reopen(self, error) : POSTERN_OK;
	}
	self->broken = true;
	(void)pthread_mutex_lock(&self->reader_mutex);
	int r = postern__sqlite_watch_index_reset(self, error);
	if (r == POSTERN_OK) {
		r = writer_reopen(self, error);
	}
	if (r == POSTERN_OK) {
		postern__sqlite_connection_close(&self->reader);
		r = postern__sqlite_reader_open(self, error);
	}
	(void)pthread_mutex_unlock(&self->reader_mutex);
	if (r == POSTERN_OK) {
		self->generation = generation;
	}
	return r;
}

static int gate_wait(struct sqlite_store *self, struct postern_error *error) {
	struct sqlite_gate *gate = &self->gate;
	const struct postern_clock *clock = postern_clock_system();
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&gate->mutex);
	if (gate->held && pthread_equal(gate->holder, pthread_self())) {
		r = postern__fail(error, POSTERN_E_BUSY,
				"this thread is inside a transaction of the same store");
	} else if (gate->held) {
		int64_t end =
				clock->monotonic_ms(clock->context) + self->command_timeout_ms;
		int64_t rest = self->command_timeout_ms;
		while (gate->held && rest > 0) {
			postern__wait(&gate->opened, &gate->mutex, rest);
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
	(void)pthread_mutex_unlock(&gate->mutex);
	return r;
}

int postern__sqlite_gate_enter(struct sqlite_store *self,
		struct postern_error *error) {
	if (self->read_only) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' is open for reading only", self->file.path);
	}
	int r = gate_wait(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = postern__sqlite_watch_check(self, error);
	if (r == POSTERN_OK) {
		r = connections_refresh(self, error);
	}
	if (r != POSTERN_OK) {
		postern__sqlite_gate_leave(self);
	}
	return r;
}

void postern__sqlite_gate_leave(struct sqlite_store *self) {
	(void)pthread_mutex_lock(&self->gate.mutex);
	self->gate.held = false;
	(void)pthread_cond_signal(&self->gate.opened);
	(void)pthread_mutex_unlock(&self->gate.mutex);
}

static int statement_run(struct sqlite_connection *connection, const char *sql,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, connection, sql);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_begin(struct sqlite_store *self,
		struct postern_error *error) {
	postern__point("sqlite-begin.before");
	return statement_run(&self->writer, "BEGIN IMMEDIATE", error);
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
		r = postern__sqlite_watch_before_commit(self, error);
	}
	if (r == POSTERN_OK) {
		r = statement_run(&self->writer, "COMMIT", error);
	}
	postern__point("sqlite-commit.after");
	if (r != POSTERN_OK) {
		postern__sqlite_rollback(self);
		return r;
	}
	postern__sqlite_counts_end(self, true);
	return postern__sqlite_watch_after_commit(self, error);
}

void postern__sqlite_rollback(struct sqlite_store *self) {
	/* SQLite rolls back by itself after some errors. */
	if (!sqlite3_get_autocommit(self->writer.db) &&
			statement_run(&self->writer, "ROLLBACK", NULL) != POSTERN_OK) {
		self->broken = true; /* closing it rolls back */
	}
	postern__sqlite_counts_end(self, false);
}

int postern__sqlite_finish(struct sqlite_store *self, int r,
		struct postern_error *error) {
	if (r == POSTERN_OK) {
		return postern__sqlite_commit(self, error);
	}
	postern__sqlite_rollback(self);
	return r;
}

int postern__sqlite_read_begin(struct sqlite_store *self,
		struct postern_error *error) {
	(void)pthread_mutex_lock(&self->reader_mutex);
	bool good =
			self->read_only || (postern__sqlite_watch_index_readable(self) &&
									   reader_is_current(self));
	if (!good) {
		/* Only who may write can repair it. */
		(void)pthread_mutex_unlock(&self->reader_mutex);
		int entered = postern__sqlite_gate_enter(self, error);
		if (entered != POSTERN_OK) {
			return entered;
		}
		postern__sqlite_gate_leave(self);
		(void)pthread_mutex_lock(&self->reader_mutex);
		if (!self->reader.db) {
			(void)pthread_mutex_unlock(&self->reader_mutex);
			return postern__fail(error, POSTERN_E_UNAVAILABLE,
					"'%s' is being opened again", self->file.path);
		}
	}
	int r = statement_run(&self->reader, "BEGIN", error);
	if (r != POSTERN_OK) {
		(void)pthread_mutex_unlock(&self->reader_mutex);
	}
	return r;
}

void postern__sqlite_read_end(struct sqlite_store *self) {
	/* Nothing was written, so how it ends makes no difference. */
	if (!sqlite3_get_autocommit(self->reader.db)) {
		(void)statement_run(&self->reader, "ROLLBACK", NULL);
	}
	(void)pthread_mutex_unlock(&self->reader_mutex);
}
