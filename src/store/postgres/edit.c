/* SPDX-License-Identifier: MIT */

/*
 * The operator's edits of deliveries: retry, discard.
 *
 * Other nodes claim and settle meanwhile. So deliveries are selected first,
 * without locks, and then changed if they are still in the same state under the
 * same fence, and not locked by another transaction. A delivery that was named
 * by its number is selected again if it changed; of many, those that changed
 * are skipped, because their state may not allow the edit any more.
 *
 * A delivery that is reopened must not lose its message to a node that is
 * cleaning up, which removes only messages that no transaction has locked, see
 * clean.c.
 */

#include "base/fail.h"
#include "base/point.h"
#include "store/common.h"
#include "store/postgres/listing.h"

/* How often a delivery may change between being selected and being changed. */
#define SELECTS_MAX 3

/* Rows of a listing, as they were selected, and the result of changing them. */
struct chosen {
	const struct pg_query *rows;
	int first;
	int count;
	int64_t now;
	uint64_t changed; /* result */
};

/*
 * In each of these $5 is the time, and the result is how many rows it changed.
 * Rows that another transaction has locked are skipped, not waited for: that
 * transaction may be waiting for a row of this one.
 */
#define CHOSEN                                                          \
	"unnest($1::bigint[], $2::integer[], $3::bigint[], $4::smallint[])" \
	" AS u (seq, handler, fence, state)"
#define IS_CHOSEN \
	" ON d.seq = u.seq AND d.handler = u.handler AND d.fence = u.fence"
#define FREE_PENDING                                                  \
	"WITH free AS (SELECT d.seq, d.handler FROM @open d JOIN " CHOSEN \
			IS_CHOSEN " AND u.state = 1 AND d.node IS NULL"           \
	" FOR UPDATE OF d SKIP LOCKED)"
#define FREE_ENDED                                                      \
	"WITH free AS (SELECT d.seq, d.handler FROM @ledger d JOIN " CHOSEN \
			IS_CHOSEN " AND u.state IN (4, 5) AND d.state = u.state"    \
	" FOR UPDATE OF d SKIP LOCKED)"
#define IS_FREE "d.seq = f.seq AND d.handler = f.handler"
#define OPEN_COLUMNS                                                \
	"(seq, fence, node, due_at, since, suspect, handler, failures," \
	" starts, crashes, solo)"
#define LEDGER_COLUMNS                                               \
	"(seq, fence, finished_at, duration, handler, failures, starts," \
	" crashes, state)"
#define COUNT " SELECT count(*) FROM changed"
/* The same, and wakes sleeping nodes. */
#define COUNT_AND_WAKE " SELECT count(*), @wake_1(0) FROM changed"
#define COUNT_DISCARDED                                            \
	" counted AS (INSERT INTO @handler_tally (handler, discarded)" \
	" SELECT handler, count(*) FROM changed GROUP BY handler)" COUNT

static const char hasten_pending[] = FREE_PENDING
		", changed AS (UPDATE @open d SET due_at = $5, since = $5"
		" FROM free f WHERE " IS_FREE " RETURNING d.seq)" COUNT_AND_WAKE;

static const char reopen_ended[] = FREE_ENDED
		", removed AS (DELETE FROM @ledger d USING free f"
		" WHERE " IS_FREE " RETURNING d.*),"
		" changed AS (INSERT INTO @open " OPEN_COLUMNS
		" SELECT seq, fence, NULL, $5, $5, 0, handler, 0, starts, 0, false"
		" FROM removed RETURNING seq)" COUNT_AND_WAKE;

static const char discard_pending[] = FREE_PENDING
		", changed AS (DELETE FROM @open d USING free f"
		" WHERE " IS_FREE " RETURNING d.*),"
		" ended AS (INSERT INTO @ledger " LEDGER_COLUMNS
		" SELECT seq, fence, $5, NULL, handler, failures, starts, crashes, 5"
		" FROM changed)," COUNT_DISCARDED;

static const char discard_poisoned[] = FREE_ENDED
		", changed AS (UPDATE @ledger d SET state = 5, finished_at = $5,"
		" error_group = NULL"
		" FROM free f WHERE " IS_FREE " AND d.state = 4"
		" RETURNING d.handler)," COUNT_DISCARDED;

/* A discarded parked message has a row without a handler in the ledger. */
static const char discard_parked[] =
		"WITH free AS (SELECT d.seq FROM @parked d JOIN " CHOSEN
		" ON d.seq = u.seq AND u.state = 6 FOR UPDATE OF d SKIP LOCKED),"
		" changed AS (DELETE FROM @parked d USING free f"
		" WHERE d.seq = f.seq RETURNING d.seq),"
		" ended AS (INSERT INTO @ledger " LEDGER_COLUMNS
		" SELECT seq, 0, $5, NULL, 0, 0, 0, 0, 5 FROM changed)" COUNT;

_Static_assert(POSTERN_STATE_PENDING == 1 && POSTERN_STATE_POISONED == 4 &&
					   POSTERN_STATE_DISCARDED == 5 &&
					   POSTERN_STATE_PARKED == 6,
		"these numbers are in the SQL above");

#define EACH_CHOSEN(type, add, column)                                       \
	do {                                                                     \
		postern__pg_array(&query, (type));                                   \
		for (int i = 0; i < chosen->count; i++) {                            \
			int64_t value = postern__pg_get(chosen->rows, chosen->first + i, \
					(column));                                               \
			add;                                                             \
		}                                                                    \
		postern__pg_array_end(&query);                                       \
	} while (0)

static int change_chosen(struct pg_connection *connection,
		struct chosen *chosen, const char *sql, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	EACH_CHOSEN(PG_INT8, postern__pg_int8(&query, value), PG_ROW_SEQ);
	EACH_CHOSEN(PG_INT4, postern__pg_int4(&query, value), PG_ROW_HANDLER);
	EACH_CHOSEN(PG_INT8, postern__pg_int8(&query, value), PG_ROW_FENCE);
	EACH_CHOSEN(PG_INT2, postern__pg_int2(&query, (int16_t)value),
			PG_ROW_STATE);
	postern__pg_int8(&query, chosen->now);
	int r = postern__pg_run(&query, sql, error);
	if (r == POSTERN_OK) {
		chosen->changed += (uint64_t)postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

/* Keeps the messages until the commit. */
static int lock_messages(struct pg_connection *connection,
		const struct chosen *chosen, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	EACH_CHOSEN(PG_INT8, postern__pg_int8(&query, value), PG_ROW_SEQ);
	int r = postern__pg_run(&query,
			"SELECT 1 FROM @message WHERE seq = ANY ($1) FOR KEY SHARE", error);
	postern__pg_end(&query);
	return r;
}

static int change_all(struct pg_connection *connection,
		const struct postern_edit *edit, struct chosen *chosen,
		struct postern_error *error) {
	static const char *const retries[] = { hasten_pending, reopen_ended, NULL };
	static const char *const discards[] = { discard_pending, discard_poisoned,
		discard_parked, NULL };
	bool retry = edit->kind == POSTERN_CHANGE_RETRY;
	const char *const *sql = retry ? retries : discards;
	postern__point("postgres-edit.chosen");
	int r = POSTERN_OK;
	if (retry) {
		r = lock_messages(connection, chosen, error);
	}
	for (; r == POSTERN_OK && *sql; sql++) {
		r = change_chosen(connection, chosen, *sql, error);
	}
	return r;
}

static int fail_busy(const struct postern_edit *edit,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_BUSY,
			"message %lld is being handled right now", (long long)edit->seq);
}

static int check_editable(const struct postern_edit *edit, int64_t handler,
		enum postern_state state, struct postern_error *error) {
	bool retry = edit->kind == POSTERN_CHANGE_RETRY;
	long long seq = (long long)edit->seq;
	switch (state) {
	case POSTERN_STATE_LEASED: return fail_busy(edit, error);
	case POSTERN_STATE_DONE:
		return postern__fail(error, POSTERN_E_INVALID,
				"the delivery of message %lld is done: not %s", seq,
				retry ? "retried" : "discarded");
	default:
		if (retry && handler == 0) {
			return postern__fail(error, POSTERN_E_INVALID,
					"message %lld has no handler to retry it", seq);
		}
		return POSTERN_OK;
	}
}

static int check_row(const struct postern_edit *edit,
		const struct pg_query *query, int row, struct postern_error *error) {
	return check_editable(edit, postern__pg_get(query, row, PG_ROW_HANDLER),
			(enum postern_state)postern__pg_get(query, row, PG_ROW_STATE),
			error);
}

/* Returns the row of the delivery to edit, -1 if there is none. A handler has
   two deliveries of a message if both it and its alias had one before they
   became one handler; then the one that can be edited is returned. */
static int choose_delivery(const struct postern_edit *edit,
		const struct pg_query *query) {
	int chosen = -1;
	for (int row = 0; row < postern__pg_rows(query); row++) {
		if (edit->handler[0] == '\0' &&
				postern__pg_get(query, row, PG_ROW_HANDLER) != 0) {
			continue;
		}
		if (chosen < 0 || check_row(edit, query, chosen, NULL) != POSTERN_OK) {
			chosen = row;
		}
	}
	return chosen;
}

/* Discarding a discarded delivery succeeds and changes nothing. */
static bool is_needed(const struct postern_edit *edit,
		const struct pg_query *query, int row) {
	return edit->kind == POSTERN_CHANGE_RETRY ||
		   postern__pg_get(query, row, PG_ROW_STATE) != POSTERN_STATE_DISCARDED;
}

/* *again_out: the delivery changed after it was selected. */
static int edit_selected(struct pg_connection *connection,
		struct postern_edit *edit, const struct pg_query *query, int64_t now,
		bool *again_out, struct postern_error *error) {
	int row = choose_delivery(edit, query);
	if (row < 0) {
		return postern__fail(error, POSTERN_E_NOTFOUND,
				"message %lld has no delivery to '%s'", (long long)edit->seq,
				edit->handler);
	}
	int r = check_row(edit, query, row, error);
	if (r != POSTERN_OK) {
		return r;
	}
	edit->count = is_needed(edit, query, row);
	if (edit->count == 0 || edit->dry_run) {
		return POSTERN_OK;
	}
	struct chosen chosen = {
		.rows = query,
		.first = row,
		.count = 1,
		.now = now,
	};
	r = change_all(connection, edit, &chosen, error);
	*again_out = r == POSTERN_OK && chosen.changed == 0;
	return r;
}

static int edit_once(struct pg_connection *connection,
		struct postern_edit *edit, int64_t now, bool *again_out,
		struct postern_error *error) {
	/* No message has number 0, which in a filter means any. */
	struct postern_filter filter = {
		.seq = edit->seq != 0 ? edit->seq : -1,
		.handler = edit->handler[0] != '\0' ? edit->handler : NULL,
	};
	struct postern_query of_message = { .filter = &filter };
	struct pg_listing listing = { .query = &of_message, .states = ~0u };
	struct pg_query query;
	int r = postern__pg_listing_run(&query, connection, &listing, error);
	if (r == POSTERN_OK) {
		r = edit_selected(connection, edit, &query, now, again_out, error);
	}
	postern__pg_end(&query);
	return r;
}

static int edit_single(struct pg_connection *connection,
		struct postern_edit *edit, int64_t now, struct postern_error *error) {
	for (int i = 0; i < SELECTS_MAX; i++) {
		bool again = false;
		int r = edit_once(connection, edit, now, &again, error);
		if (r != POSTERN_OK || !again) {
			return r;
		}
	}
	return fail_busy(edit, error);
}

static int count_matching(struct pg_connection *connection,
		const struct pg_listing *listing, uint64_t *total_out,
		struct postern_error *error) {
	struct pg_listing all = *listing;
	struct pg_query query;
	all.kind = PG_LISTING_COUNT;
	int r = postern__pg_listing_run(&query, connection, &all, error);
	if (r == POSTERN_OK && postern__pg_rows(&query) > 0) {
		*total_out = (uint64_t)postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

static int edit_many(struct pg_connection *connection,
		struct postern_edit *edit, int64_t now, struct postern_error *error) {
	bool retry = edit->kind == POSTERN_CHANGE_RETRY;
	struct postern_query matching = { .filter = edit->filter };
	struct pg_listing listing = {
		.query = &matching,
		.states = POSTERN__STATE_BIT(POSTERN_STATE_PENDING) |
				  POSTERN__STATE_BIT(POSTERN_STATE_POISONED) |
				  POSTERN__STATE_BIT(retry ? POSTERN_STATE_DISCARDED
										   : POSTERN_STATE_PARKED),
		/* A parked message that was discarded has no handler to retry it. */
		.handled = retry,
		.max = edit->filter->limit,
	};
	struct pg_query query;
	int r = postern__pg_listing_run(&query, connection, &listing, error);
	struct chosen chosen = {
		.rows = &query,
		.count = r == POSTERN_OK ? postern__pg_rows(&query) : 0,
		.now = now,
	};
	edit->count = (uint64_t)chosen.count;
	edit->total = edit->count;
	if (r == POSTERN_OK && edit->count == edit->filter->limit) {
		r = count_matching(connection, &listing, &edit->total, error);
	}
	if (r == POSTERN_OK && chosen.count > 0 && !edit->dry_run) {
		r = change_all(connection, edit, &chosen, error);
		edit->count = chosen.changed;
	}
	postern__pg_end(&query);
	return r;
}

static int edit_deliveries(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct postern_edit *edit = context;
	int64_t now;
	(void)again;
	int r = postern__pg_begin_change(connection, &now, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = edit->filter ? edit_many(connection, edit, now, error)
					 : edit_single(connection, edit, now, error);
	return postern__pg_finish(connection, r, error);
}

int postern__pg_edit(struct postern_store *store, struct postern_edit *edit,
		struct postern_error *error) {
	struct pg_store *self = postern__pg_from_base(store);
	struct postern_edit done = *edit;
	int r;
	done.count = 0;
	switch (edit->kind) {
	case POSTERN_CHANGE_PAUSE:
	case POSTERN_CHANGE_RESUME:
		r = postern__pg_do(self, postern__pg_edit_handler, &done, error);
		break;
	case POSTERN_CHANGE_CLOSE:
	case POSTERN_CHANGE_OPEN:
		r = postern__pg_do(self, postern__pg_edit_channel, &done, error);
		break;
	default:
		r = postern__pg_do_once(self, edit_deliveries, &done, error);
		break;
	}
	if (r == POSTERN_OK) {
		*edit = done;
	}
	return r;
}
