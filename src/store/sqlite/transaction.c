/* SPDX-License-Identifier: MIT */

/*
 * Access to the connections, and transactions.
 *
 * Writers enter a gate, one at a time, and wait no longer than the command
 * timeout. A write transaction acquires SQLite's write lock when it begins, so
 * it cannot fail for lack of it later. After an I/O error the writer is closed
 * and reopened before its next use: its cached pages may differ from the disk.
 * The reader stays open meanwhile, and with it the index of the write-ahead
 * log, so that a commit that failed is not found committed later.
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
		r = postern__sqlite_stage_set_up(self, error);
	}
	if (r == POSTERN_OK) {
		r = postern__sqlite_directory_load(self, error);
	}
	/* Only now: a failure above marks the writer as broken again. */
	self->broken = r != POSTERN_OK;
	return r;
}

/* With the reader's mutex held: whether the reader was opened on the current
   index. */
static bool reader_is_current(const struct sqlite_store *self) {
	return self->reader.db &&
		   self->reader.generation == postern__sqlite_watch_generation(self);
}

/* Inside the gate: reopens connections that are not valid any more, one after
   the other, since closing the last connection would remove the log. An index
   that was lost may have been lost while SQLite rebuilt it: it is emptied
   again, now that no connection uses it. */
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

/* Waiting no longer than the command timeout is an error of the store; less is
   what the caller asked for. */
static int gate_fail(const struct sqlite_store *self, int64_t patience_ms,
		struct postern_error *error) {
	return postern__fail(error,
			patience_ms < self->command_timeout_ms ? POSTERN_E_BUSY
												   : POSTERN_E_TIMEOUT,
			"the store's writer was busy for %lld ms", (long long)patience_ms);
}

static int gate_wait(struct sqlite_store *self, int64_t patience_ms,
		struct postern_error *error) {
	struct sqlite_gate *gate = &self->gate;
	const struct postern_clock *clock = postern_clock_system();
	int r = POSTERN_OK;
	(void)pthread_mutex_lock(&gate->mutex);
	if (gate->held && pthread_equal(gate->holder, pthread_self())) {
		r = postern__fail(error, POSTERN_E_BUSY,
				"this thread is inside a transaction of the same store");
	} else if (gate->held) {
		int64_t end = clock->monotonic_ms(clock->context) + patience_ms;
		int64_t rest = patience_ms;
		while (gate->held && rest > 0) {
			postern__wait(&gate->opened, &gate->mutex, rest);
			rest = end - clock->monotonic_ms(clock->context);
		}
		if (gate->held) {
			r = gate_fail(self, patience_ms, error);
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
	return postern__sqlite_gate_enter_within(self, self->command_timeout_ms,
			error);
}

int postern__sqlite_gate_enter_within(struct sqlite_store *self,
		int64_t patience_ms, struct postern_error *error) {
	if (self->read_only) {
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"'%s' is open for reading only", self->file.path);
	}
	int r = gate_wait(self, patience_ms, error);
	if (r != POSTERN_OK) {
		return r;
	}
	self->patience_ms = patience_ms;
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
	int r = statement_run(&self->writer, "BEGIN IMMEDIATE", error);
	if (r == POSTERN_OK) {
		r = postern__sqlite_shared_check(&self->writer, error);
		if (r != POSTERN_OK) {
			postern__sqlite_rollback(self);
		}
	}
	return r;
}

int postern__sqlite_commit(struct sqlite_store *self,
		struct postern_error *error) {
	postern__point("sqlite-commit.before");
	int r = postern__sqlite_counts_write(self, error);
	postern__point("sqlite-commit.counted");
	if (postern__point_fails("sqlite-commit.fails")) {
		r = postern__fail(error, POSTERN_E_UNAVAILABLE, "injected by a test");
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
		self->broken = true; /* closing the connection rolls back */
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
		/* Only a writer can repair the index. */
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
					"'%s' is being reopened; retry", self->file.path);
		}
	}
	int r = statement_run(&self->reader, "BEGIN", error);
	if (r != POSTERN_OK) {
		(void)pthread_mutex_unlock(&self->reader_mutex);
	}
	return r;
}

void postern__sqlite_read_end(struct sqlite_store *self) {
	/* A read transaction: its end cannot lose anything. */
	if (!sqlite3_get_autocommit(self->reader.db)) {
		(void)statement_run(&self->reader, "ROLLBACK", NULL);
	}
	(void)pthread_mutex_unlock(&self->reader_mutex);
}
