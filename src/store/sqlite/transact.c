/* SPDX-License-Identifier: MIT */

/*
 * Running handlers inside the store's transaction, so that their writes and
 * their completion are atomic.
 *
 * Units run under savepoints, so that one can be rolled back without the
 * others; a single unit needs none. A savepoint costs about as much as an
 * insert, and nearly all units complete, so consecutive units share one. If one
 * of them does not complete, all of them are rolled back and the others run
 * again, each under its own savepoint. Constraints that are deferred to the
 * commit are checked when the unit ends, while it is known which unit violated
 * them.
 *
 * A unit that rolls back the transaction also rolls back the others' writes. It
 * is refused, and all the others run again without it.
 *
 * Before it runs, a unit has the result POSTERN_OK and POSTERN_DONE; once it
 * has another result it is decided, and does not run again.
 */

#include <postern/handler.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/point.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

/* How many units share a savepoint: the most work that one failure wastes, and
   enough to make the cost of the savepoint negligible. */
#define GROUP_COUNT 16
/* Once a transaction has run longer than this, units get their own savepoints,
   so that slow work is not repeated. */
#define QUICK_MS 100
/* A commit of messages is no reason to give up. */
#define GATE_MS_MIN 100

static int writer_run_sql(struct sqlite_store *self, const char *sql,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer, sql);
	return postern__sqlite_end(&query, error);
}

/* What is known of a unit's delivery before it runs. */
struct unit_lease {
	uint32_t starts; /* 0: the lease is lost */
	bool deleted;    /* its row in postern_open is already deleted */
};

static void bind_lease(struct sqlite_query *query, uint64_t node,
		const struct postern_unit *unit) {
	postern__sqlite_bind_int(query, 1, unit->seq);
	postern__sqlite_bind_int(query, 2, unit->handler);
	postern__sqlite_bind_int(query, 3, (int64_t)unit->fence);
	postern__sqlite_bind_int(query, 4, (int64_t)node);
}

/* Under the first fence the row has no unknown values, so deleting it verifies
   the lease. If the unit does not complete, the deletion is rolled back too. */
static int lease_delete_first(struct sqlite_store *self, uint64_t node,
		const struct postern_unit *unit, struct unit_lease *out,
		struct postern_error *error) {
	struct sqlite_query query;
	int changes = 0;
	postern__sqlite_query(&query, &self->writer,
			"DELETE FROM postern_open WHERE seq = ?1 AND handler = ?2"
			" AND fence = ?3 AND node = ?4");
	bind_lease(&query, node, unit);
	int r = postern__sqlite_end_changes(&query, &changes, error);
	*out = (struct unit_lease){ .starts = changes > 0, .deleted = changes > 0 };
	return r;
}

static int lease_read(struct sqlite_store *self, uint64_t node,
		const struct postern_unit *unit, struct unit_lease *out,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT starts FROM postern_open WHERE seq = ?1 AND handler = ?2"
			" AND fence = ?3 AND node = ?4");
	bind_lease(&query, node, unit);
	/* A leased delivery has at least one start. */
	*out = (struct unit_lease){ 0 };
	if (postern__sqlite_row(&query)) {
		out->starts = (uint32_t)postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

static int lease_check(struct sqlite_store *self, uint64_t node,
		const struct postern_unit *unit, struct unit_lease *out,
		struct postern_error *error) {
	return unit->fence == 1 ? lease_delete_first(self, node, unit, out, error)
							: lease_read(self, node, unit, out, error);
}

/* Whether a foreign key constraint would fail at the commit. */
static bool has_broken_keys(struct sqlite_store *self) {
	int current = 0;
	int highest = 0;
	(void)sqlite3_db_status(self->writer.db, SQLITE_DBSTATUS_DEFERRED_FKS,
			&current, &highest, 0);
	return current != 0;
}

/* An error of the store, which is not the handler's fault. */
static bool is_store_error(int code) {
	switch (code & 0xff) {
	case SQLITE_NOMEM:
	case SQLITE_FULL:
	case SQLITE_IOERR:
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_CANTOPEN: return true;
	default: return false;
	}
}

static int unit_call_handler(struct sqlite_store *self,
		struct postern_unit *unit, struct postern_error *error) {
	const struct postern_clock *clock = self->clock;
	postern_outcome_set(&unit->outcome, POSTERN_DONE, 0, NULL);
	int64_t started = clock->monotonic_ms(clock->context);

	postern__point("sqlite-unit.before");
	postern__sqlite_sandbox_enter(self, unit->context);
	unit->run(unit->context, self->writer.db, self->epoch, &unit->outcome);
	/* Before any other call on the connection replaces the code. */
	int code = sqlite3_extended_errcode(self->writer.db);
	bool store_failed = is_store_error(code);
	int r = POSTERN_OK;
	if (store_failed && (unit->outcome.kind != POSTERN_DONE ||
								sqlite3_get_autocommit(self->writer.db))) {
		r = postern__sqlite_fail(&self->writer, code, error);
	}
	postern__sqlite_sandbox_leave(self);
	postern__point("sqlite-unit.after");

	unit->duration_ms = clock->monotonic_ms(clock->context) - started;
	if (self->unit.interrupted) {
		/* The interrupting thread may have set the reason already. */
		postern__unit_refuse(unit, POSTERN_E_TIMEOUT,
				unit->outcome.reason[0] ? NULL : "interrupted");
	} else if (self->unit.breach) {
		postern__unit_refuse(unit, POSTERN_E_INVALID, self->unit.breach);
	} else if (self->unit.rolled_back) {
		/* SQLite also rolls back by itself after some errors: the unit's reason
		   is kept, unless the unit returned done or discard. */
		postern__unit_refuse(unit, POSTERN_E_INVALID,
				postern__unit_completes(unit)
						? "handler ended the transaction itself"
						: NULL);
	} else if (postern__unit_completes(unit) && has_broken_keys(self)) {
		postern__unit_refuse(unit, POSTERN_E_INVALID,
				"FOREIGN KEY constraint failed at the end of the handler");
	}
	return r;
}

static int unit_write_completion(struct sqlite_store *self,
		const struct postern_unit *unit, const struct unit_lease *lease,
		struct postern_error *error) {
	bool done = unit->outcome.kind == POSTERN_DONE;
	const char *reason = unit->outcome.reason;
	struct postern_settlement settlement = {
		.seq = unit->seq,
		.handler = unit->handler,
		.fence = unit->fence,
		.to = done ? POSTERN_SETTLE_DONE : POSTERN_SETTLE_DISCARDED,
		.failures = unit->failures,
		.duration_ms = unit->duration_ms,
		.outcome = done ? "done" : "discard",
		.error = reason[0] ? reason : NULL,
	};
	return postern__sqlite_settle_held(self, lease->starts, lease->deleted,
			&settlement, postern__sqlite_now(self), error);
}

/* The same for a unit with a mark, whose marker completes it. */
static int unit_run_marked(struct sqlite_store *self, struct postern_unit *unit,
		struct postern_error *error) {
	bool taken = false;
	int r = postern__sqlite_mark_take(self, unit, &taken, error);
	if (r != POSTERN_OK || !taken) {
		return r;
	}
	r = unit_call_handler(self, unit, error);
	return r == POSTERN_OK && !self->unit.rolled_back &&
						   postern__unit_completes(unit)
				   ? postern__sqlite_mark_confirm(self, unit, error)
				   : r;
}

/* Runs one unit. If it does not complete, its writes are not rolled back
   yet. */
static int unit_run_and_complete(struct sqlite_store *self, uint64_t node,
		struct postern_unit *unit, struct postern_error *error) {
	struct unit_lease lease = { 0 };
	if (unit->mark) {
		return unit_run_marked(self, unit, error);
	}
	int r = lease_check(self, node, unit, &lease, error);
	if (r == POSTERN_OK && lease.starts == 0) {
		unit->code = POSTERN_E_STALE;
		return POSTERN_OK;
	}
	if (r == POSTERN_OK) {
		r = unit_call_handler(self, unit, error);
	}
	if (r != POSTERN_OK || self->unit.rolled_back ||
			!postern__unit_completes(unit)) {
		return r;
	}
	return unit_write_completion(self, unit, &lease, error);
}

/* Undoes the counts of units [0, count). */
static void units_uncount(struct sqlite_store *self,
		const struct postern_unit *units, size_t count) {
	for (size_t i = 0; i < count; i++) {
		if (postern__unit_completes(&units[i])) {
			postern__sqlite_uncount_ended(self, units[i].handler,
					units[i].outcome.kind == POSTERN_DONE);
		}
	}
}

/*
 * Runs units under one savepoint, except those that are decided. The first that
 * does not complete rolls all of them back: *kept_out is false.
 */
static int units_run_group(struct sqlite_store *self, uint64_t node,
		struct postern_unit *units, size_t count, bool *kept_out,
		struct postern_error *error) {
	bool kept = true;
	int r = writer_run_sql(self, "SAVEPOINT postern_unit", error);
	size_t i = 0;
	for (; r == POSTERN_OK && kept && i < count; i++) {
		if (!postern__unit_completes(&units[i])) {
			continue;
		}
		r = unit_run_and_complete(self, node, &units[i], error);
		kept = !self->unit.rolled_back &&
			   (postern__unit_completes(&units[i]) ||
					   units[i].code == POSTERN_E_STALE);
	}
	postern__sqlite_sandbox_reset_statements(self);
	if (self->unit.rolled_back) {
		return r;
	}
	if (r == POSTERN_OK && !kept) {
		units_uncount(self, units, i);
		r = writer_run_sql(self, "ROLLBACK TO postern_unit", error);
	}
	*kept_out = kept;
	return r == POSTERN_OK ? writer_run_sql(self, "RELEASE postern_unit", error)
						   : r;
}

/*
 * Runs all units that are not decided. The first has its own savepoint, so that
 * every transaction makes progress; the others share savepoints as long as they
 * are quick and complete.
 */
static int units_run_groups(struct sqlite_store *self, uint64_t node,
		struct postern_unit *units, size_t count, struct postern_error *error) {
	const struct postern_clock *clock = self->clock;
	int64_t started = clock->monotonic_ms(clock->context);
	size_t alone = 1; /* how many units run one by one from here */
	size_t size;
	int r = POSTERN_OK;
	for (size_t i = 0; r == POSTERN_OK && i < count; i += size) {
		bool kept = true;
		bool slow = clock->monotonic_ms(clock->context) - started > QUICK_MS;
		size = count - i < GROUP_COUNT ? count - i : GROUP_COUNT;
		size = alone > 0 || slow ? 1 : size;
		alone -= alone > 0;
		r = units_run_group(self, node, &units[i], size, &kept, error);
		if (r == POSTERN_OK && self->unit.rolled_back) {
			return POSTERN_OK;
		}
		if (!kept && size > 1) {
			alone = count - i;
			size = 0; /* run them again */
		}
	}
	return r;
}

/* *again_out: the transaction was rolled back, and the units that are not
   decided must run again. */
static int units_run_all(struct sqlite_store *self, uint64_t node,
		struct postern_unit *units, size_t count, bool *again_out,
		struct postern_error *error) {
	*again_out = false;
	int r = postern__sqlite_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	self->unit.rolled_back = false;
	if (count == 1 && postern__unit_completes(units)) {
		r = unit_run_and_complete(self, node, units, error);
		postern__sqlite_sandbox_reset_statements(self);
	} else if (count > 1) {
		r = units_run_groups(self, node, units, count, error);
	}
	if (r == POSTERN_OK && self->unit.rolled_back) {
		postern__sqlite_rollback(self);
		*again_out = true;
		return POSTERN_OK;
	}
	size_t completed = 0;
	for (size_t i = 0; i < count; i++) {
		completed += postern__unit_completes(&units[i]);
	}
	if (r != POSTERN_OK || completed == 0) {
		postern__sqlite_rollback(self);
		return r;
	}
	r = postern__sqlite_commit(self, error);
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		units[i].committed = postern__unit_completes(&units[i]);
	}
	return r;
}

/* How long to wait for the writer. */
static int64_t gate_patience(const struct sqlite_store *self,
		const struct postern_unit *units, size_t count) {
	int64_t wait_ms = self->command_timeout_ms;
	if (count == 1 && units[0].mark) {
		wait_ms = units[0].wait_ms;
	}
	wait_ms = wait_ms < GATE_MS_MIN ? GATE_MS_MIN : wait_ms;
	return wait_ms < self->command_timeout_ms ? wait_ms
											  : self->command_timeout_ms;
}

int postern__sqlite_transact(struct postern_store *store, uint64_t node,
		const struct postern_lock *lock, struct postern_unit *units,
		size_t count, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter_within(self,
			gate_patience(self, units, count), error);
	if (r != POSTERN_OK) {
		return r;
	}
	postern__units_reset(units, count);
	bool holds;
	r = postern__sqlite_holds_lock(self, node, lock, &holds, error);
	/* This thread stays inside the gate: no node can acquire the lock
	   meanwhile. */
	bool again = count > 0 && holds;
	for (size_t i = 0; i < count && !holds; i++) {
		units[i].code = POSTERN_E_STALE;
	}
	while (r == POSTERN_OK && again) {
		r = units_run_all(self, node, units, count, &again, error);
	}
	postern__sqlite_gate_leave(self);
	return r;
}
