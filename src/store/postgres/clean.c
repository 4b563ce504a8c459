/* SPDX-License-Identifier: MIT */

/*
 * Cleaning: first the messages in the order of their numbers, then the memory
 * of them in the order of its keys. Both are orders that an index has already;
 * one by time, which every accept would have to pay for, is not needed.
 *
 * Messages come roughly in the order of time: the first that is too young for
 * every rule ends the first part, and what a slower node has put behind it
 * waits for the next cleaning. One that came in the future, when the clock was
 * wrong, says nothing of those behind it.
 *
 * Other nodes accept and settle meanwhile. Whoever opens a delivery of a
 * message that is there locks the message until its commit, for sharing. So
 * messages are looked at first, then locked, passing over what somebody has,
 * and then judged once more: what is open then was so before the lock, and
 * nothing can be opened after it. A key that goes while a copy of its message
 * comes in is noticed there, by finding neither old nor new.
 *
 * The cursor is the part, the number and the key that were looked at last.
 */

#include <stdlib.h>
#include <string.h>

#include "base/point.h"
#include "store/postgres/postgres.h"

struct cursor {
	int64_t seq;
	int64_t key[3];
	bool messages_done;
	bool keys_begun;
};

_Static_assert(sizeof(struct cursor) <= POSTERN_CLEANING_CURSOR_LEN,
		"it has to fit");

struct cleaner {
	const struct postern_cleaning *cleaning;
	struct cursor cursor;
	int64_t now;
	int64_t *seqs; /* of messages that may go */
	size_t seq_count;
	/* out */
	uint64_t messages;
	uint64_t keys;
	bool more;
};

/* What of a channel may go, by its id: $1 and $2. */
#define RULES "unnest($1::integer[], $2::bigint[]) AS r (channel, keep)"

/* Whether message m may go under rule r at $3; $4 is for a bug in tests. */
#define MAY_GO                                                      \
	"r.keep IS NOT NULL AND m.received_at <= $3 - r.keep"           \
	" AND NOT EXISTS (SELECT 1 FROM @open o WHERE o.seq = m.seq)"   \
	" AND NOT EXISTS (SELECT 1 FROM @parked p WHERE p.seq = m.seq)" \
	" AND NOT EXISTS (SELECT 1 FROM @ledger l WHERE l.seq = m.seq"  \
	" AND (l.finished_at > $3 - r.keep OR (l.state = 4 AND NOT $4)))"

static void add_rules(struct pg_query *query,
		const struct postern_cleaning *cleaning, bool of_keys) {
	postern__pg_array(query, PG_INT4);
	for (size_t i = 0; i < cleaning->rule_count; i++) {
		postern__pg_int4(query, cleaning->rules[i].channel);
	}
	postern__pg_array_end(query);
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < cleaning->rule_count; i++) {
		const struct postern_retention *rule = &cleaning->rules[i];
		postern__pg_int8(query, of_keys ? rule->dedupe_ms : rule->payload_ms);
	}
	postern__pg_array_end(query);
}

/* Younger messages cannot go under any rule. */
static int64_t youngest(const struct cleaner *cleaner) {
	int64_t keep = INT64_MAX;
	for (size_t i = 0; i < cleaner->cleaning->rule_count; i++) {
		int64_t payload = cleaner->cleaning->rules[i].payload_ms;
		keep = payload < keep ? payload : keep;
	}
	return cleaner->now - keep;
}

static int64_t batch_max(const struct cleaner *cleaner) {
	return cleaner->cleaning->max < INT32_MAX ? (int64_t)cleaner->cleaning->max
											  : INT32_MAX;
}

/* Choose from the next messages those that may go. */
static void judge(const struct pg_query *query, struct cleaner *cleaner) {
	int64_t limit = youngest(cleaner);
	int count = postern__pg_rows(query);
	cleaner->cursor.messages_done = count < batch_max(cleaner);
	for (int row = 0; row < count; row++) {
		int64_t received_at = postern__pg_get(query, row, 1);
		if (received_at > limit && received_at <= cleaner->now) {
			cleaner->cursor.messages_done = true;
			break;
		}
		cleaner->cursor.seq = postern__pg_get(query, row, 0);
		if (postern__pg_get(query, row, 2)) {
			cleaner->seqs[cleaner->seq_count++] = cleaner->cursor.seq;
		}
	}
}

static int look(struct pg_connection *connection, struct cleaner *cleaner,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_rules(&query, cleaner->cleaning, false);
	postern__pg_int8(&query, cleaner->now);
	postern__pg_bool(&query, postern__bug("poisoned-purged"));
	postern__pg_int8(&query, cleaner->cursor.seq);
	postern__pg_int8(&query, batch_max(cleaner));
	int r = postern__pg_run(&query,
			"SELECT m.seq, m.received_at, " MAY_GO
			" FROM (SELECT seq, channel, received_at FROM @message"
			" WHERE seq > $5 ORDER BY seq LIMIT $6) AS m"
			" LEFT JOIN " RULES " ON r.channel = m.channel ORDER BY m.seq",
			error);
	if (r == POSTERN_OK) {
		int count = postern__pg_rows(&query);
		cleaner->seqs = malloc(((size_t)count + 1) * sizeof *cleaner->seqs);
		if (cleaner->seqs) {
			judge(&query, cleaner);
		} else {
			r = postern__pg_no_memory(error);
		}
	}
	postern__pg_end(&query);
	return r;
}

static void add_seqs(struct pg_query *query, const struct cleaner *cleaner) {
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < cleaner->seq_count; i++) {
		postern__pg_int8(query, cleaner->seqs[i]);
	}
	postern__pg_array_end(query);
}

static int lock(struct pg_connection *connection, struct cleaner *cleaner,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_seqs(&query, cleaner);
	int r = postern__pg_run(&query,
			"SELECT seq FROM @message WHERE seq = ANY ($1)"
			" ORDER BY seq FOR UPDATE SKIP LOCKED",
			error);
	if (r == POSTERN_OK) {
		/* No more than were asked for. */
		cleaner->seq_count = (size_t)postern__pg_rows(&query);
		for (size_t i = 0; i < cleaner->seq_count; i++) {
			cleaner->seqs[i] = postern__pg_get(&query, (int)i, 0);
		}
	}
	postern__pg_end(&query);
	return r;
}

/* A count that somebody is raising is left for when the key goes: he may be
   waiting for the message. */
static int purge(struct pg_connection *connection, struct cleaner *cleaner,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_rules(&query, cleaner->cleaning, false);
	postern__pg_int8(&query, cleaner->now);
	postern__pg_bool(&query, postern__bug("poisoned-purged"));
	add_seqs(&query, cleaner);
	int r = postern__pg_run(&query,
			"WITH gone AS (DELETE FROM @message m USING " RULES
			" WHERE m.seq = ANY ($5) AND r.channel = m.channel AND " MAY_GO
			" RETURNING m.seq),"
			" l AS (DELETE FROM @ledger d USING gone g WHERE d.seq = g.seq),"
			" a AS (DELETE FROM @attempt d USING gone g WHERE d.seq = g.seq),"
			" s AS (DELETE FROM @duplicate WHERE seq IN ("
			"SELECT d.seq FROM @duplicate d JOIN gone g ON d.seq = g.seq"
			" FOR UPDATE OF d SKIP LOCKED)),"
			" c AS (DELETE FROM @conflict d USING gone g WHERE d.seq = g.seq)"
			" SELECT count(*) FROM gone",
			error);
	if (r == POSTERN_OK) {
		cleaner->messages = (uint64_t)postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

static int clean_messages(struct pg_connection *connection,
		struct cleaner *cleaner, struct postern_error *error) {
	int r = look(connection, cleaner, error);
	postern__point("postgres-clean.looked");
	if (r == POSTERN_OK && cleaner->seq_count > 0) {
		r = lock(connection, cleaner, error);
	}
	postern__point("postgres-clean.locked");
	return r == POSTERN_OK && cleaner->seq_count > 0
				   ? purge(connection, cleaner, error)
				   : r;
}

/* Before the first one: no key is the lowest number three times over. */
static void add_key(struct pg_query *query, const struct cursor *cursor) {
	for (size_t i = 0; i < 3; i++) {
		postern__pg_int8(query,
				cursor->keys_begun ? cursor->key[i] : INT64_MIN);
	}
}

/* The columns of what clean_keys() is told: how many keys were looked at and
   how many went, and the last one. */
enum { LOOKED, GONE, LAST_KEY };

static void read_keys(const struct pg_query *query, struct cleaner *cleaner) {
	int64_t looked = postern__pg_get(query, 0, LOOKED);
	for (int i = 0; looked > 0 && i < 3; i++) {
		cleaner->cursor.key[i] = postern__pg_get(query, 0, LAST_KEY + i);
	}
	cleaner->cursor.keys_begun = cleaner->cursor.keys_begun || looked > 0;
	cleaner->keys = (uint64_t)postern__pg_get(query, 0, GONE);
	cleaner->more = looked == batch_max(cleaner);
}

/* With a key goes what was counted of copies that came after the message was
   gone. */
static int clean_keys(struct pg_connection *connection, struct cleaner *cleaner,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_rules(&query, cleaner->cleaning, true);
	postern__pg_int8(&query, cleaner->now);
	postern__pg_bool(&query, postern__bug("open-key-forgotten"));
	add_key(&query, &cleaner->cursor);
	postern__pg_int8(&query, batch_max(cleaner));
	int r = postern__pg_run(&query,
			"WITH looked AS (SELECT * FROM @seen"
			" WHERE (k0, k1, k2) > ($5, $6, $7)"
			" ORDER BY k0, k1, k2 LIMIT $8),"
			" old AS (SELECT s.* FROM looked s"
			" JOIN " RULES " ON r.channel = s.channel"
			" WHERE r.keep >= 0 AND s.at <= $3 - r.keep AND ($4 OR NOT EXISTS"
			" (SELECT 1 FROM @message m WHERE m.seq = s.seq))),"
			" gone AS (DELETE FROM @seen s USING old o WHERE s.k0 = o.k0"
			" AND s.k1 = o.k1 AND s.k2 = o.k2 AND s.seq = o.seq"
			" RETURNING s.seq),"
			" d AS (DELETE FROM @duplicate d USING gone g WHERE d.seq = g.seq),"
			" c AS (DELETE FROM @conflict d USING gone g WHERE d.seq = g.seq)"
			" SELECT (SELECT count(*) FROM looked),"
			" (SELECT count(*) FROM gone), l.k0, l.k1, l.k2"
			" FROM (SELECT 1) AS one LEFT JOIN (SELECT k0, k1, k2 FROM looked"
			" ORDER BY k0 DESC, k1 DESC, k2 DESC LIMIT 1) AS l ON true",
			error);
	if (r == POSTERN_OK) {
		read_keys(&query, cleaner);
	}
	postern__pg_end(&query);
	return r;
}

static bool forgets_keys(const struct postern_cleaning *cleaning) {
	for (size_t i = 0; i < cleaning->rule_count; i++) {
		if (cleaning->rules[i].dedupe_ms >= 0) {
			return true;
		}
	}
	return false;
}

static int clean_batch(struct pg_connection *connection,
		struct cleaner *cleaner, struct postern_error *error) {
	bool forgets = forgets_keys(cleaner->cleaning);
	if (cleaner->cursor.messages_done) {
		return forgets ? clean_keys(connection, cleaner, error) : POSTERN_OK;
	}
	int r = clean_messages(connection, cleaner, error);
	cleaner->more = forgets || !cleaner->cursor.messages_done;
	return r;
}

/* *xid_out is 0 if nothing was written. */
static int read_xid(struct pg_connection *connection, int64_t *xid_out,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"SELECT pg_current_xact_id_if_assigned()::text::bigint", error);
	*xid_out = r == POSTERN_OK && !postern__pg_is_null(&query, 0, 0)
					   ? postern__pg_get(&query, 0, 0)
					   : 0;
	postern__pg_end(&query);
	return r;
}

/* What the number says is all there is to know: nothing shows whose deletion
   it was. */
static int believe(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	(void)connection;
	(void)context;
	(void)again;
	(void)error;
	return POSTERN_OK;
}

static int clean(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	struct cleaner *result = context;
	struct cleaner cleaner = { .cleaning = result->cleaning };
	(void)again;
	memcpy(&cleaner.cursor, cleaner.cleaning->cursor, sizeof cleaner.cursor);
	int r = postern__pg_begin_change(connection, &cleaner.now, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = clean_batch(connection, &cleaner, error);
	free(cleaner.seqs);
	cleaner.seqs = NULL;
	if (r == POSTERN_OK) {
		r = postern__pg_fold_tallies(connection, error);
	}
	int64_t xid = 0;
	if (r == POSTERN_OK) {
		r = read_xid(connection, &xid, error);
	}
	*result = cleaner;
	return xid ? postern__pg_finish_known(connection, xid, believe, NULL, r,
						 error)
			   : postern__pg_finish(connection, r, error);
}

int postern__pg_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error) {
	struct cleaner cleaner = { .cleaning = cleaning };
	int r = postern__pg_do(postern__pg_from_base(store), clean, &cleaner,
			error);
	if (r == POSTERN_OK) {
		memcpy(cleaning->cursor, &cleaner.cursor, sizeof cleaner.cursor);
		cleaning->messages = cleaner.messages;
		cleaning->keys = cleaner.keys;
		cleaning->more = cleaner.more;
	}
	return r;
}
