/* SPDX-License-Identifier: MIT */

/*
 * The store uses the wall clock, because due times must outlive the process;
 * and the wall clock may be set back. A delivery that became pending before
 * that has a due time that may be far in the future, whether it is new or a
 * retry.
 *
 * Such a delivery has a `since` that is later than now, and is made due at
 * once: too early is harmless, a day too late is not. There is no index to find
 * these deliveries, which would slow down every accept: all open deliveries are
 * read, when the file is opened and when a claim finds that the clock went
 * back.
 */

#include <postern/sys/clock.h>

#include "store/sqlite/sqlite.h"
#include "store/store.h"

int64_t postern__sqlite_now(struct sqlite_store *self) {
	int64_t now = self->clock->wall_ms(self->clock->context);
	if (now > self->now_max_ms) {
		self->now_max_ms = now;
	}
	return now;
}

int64_t postern__sqlite_now_read(const struct sqlite_store *self) {
	return self->clock->wall_ms(self->clock->context);
}

int postern__sqlite_clock_repair(struct sqlite_store *self, int64_t now,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_open SET since = ?1,"
			" due_at = iif(node IS NULL, ?1, due_at - since + ?1)"
			" WHERE (node IS NULL OR node = -1) AND since > ?1");
	postern__sqlite_bind_int(&query, 1, now);
	int r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK) {
		self->now_max_ms = now;
	}
	return r;
}

int postern__sqlite_clock_follow(struct sqlite_store *self, int64_t now,
		struct postern_error *error) {
	return now < self->now_max_ms - POSTERN__CLOCK_STEP_MS
				   ? postern__sqlite_clock_repair(self, now, error)
				   : POSTERN_OK;
}
