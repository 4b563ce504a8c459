/* SPDX-License-Identifier: MIT */

/*
 * Cleanup: first the messages in the order of their numbers, then the dedupe
 * memory in the order of its pages. Both are physical orders, so rows that were
 * written at one time are removed with few pages touched; an index by time,
 * which every accept would have to maintain, is not needed. (In the order of
 * identities, each remembered id would be on a different page, and removing a
 * few would write all of them.)
 *
 * Messages are roughly in the order of time: the first that is too young for
 * every rule ends the first part, and older messages that a slower node
 * numbered after it wait for the next cleanup. A message that was received in
 * the future, while the clock was wrong, implies nothing about those after it.
 *
 * Other nodes accept and settle meanwhile. A node that opens a delivery of a
 * stored message locks the message FOR KEY SHARE until its commit. So cleanup
 * selects messages first, then locks them, skipping those that are locked, and
 * then checks them once more: a delivery that is open then was opened before
 * the lock, and none can be opened after it. If a remembered id is removed
 * while a copy of its message is accepted, the accept notices, because it finds
 * neither the old nor the new row.
 *
 * A batch ends with the message whose body exceeds the limit of bytes: a body
 * is stored in pieces of 2 kB, and removing it removes each of them. Its length
 * is known without reading them. Messages are selected in parts, small ones
 * first, so that thousands are not checked if only a few can be removed.
 *
 * The cursor consists of the part, the number and the place that were processed
 * last. Rows whose place changes meanwhile (VACUUM FULL) may wait for the next
 * cleanup.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/point.h"
#include "store/postgres/postgres.h"

/* Rows of the dedupe memory on a full page, approximately. */
#define KEYS_PER_PAGE 88

/* The first part has PART_MIN messages, each further part four times as many.
 */
#define PART_MIN 256
#define PART_GROWTH 4

/* A place (ctid): before the first item of a page, or at an item. */
struct place {
	int64_t page;
	int64_t item;
};

struct cursor {
	int64_t seq;
	struct place place;
	bool messages_done;
};

_Static_assert(sizeof(struct cursor) <= POSTERN_CLEANING_CURSOR_LEN,
		"it has to fit");

struct cleaner {
	const struct postern_cleaning *cleaning;
	struct cursor cursor;
	int64_t now;
	int64_t *seqs; /* of messages that may be removed */
	size_t seq_count;
	size_t bytes; /* of their bodies and headers */
	/* Results. */
	uint64_t messages;
	uint64_t keys;
	bool more;
};

/* The retention of each channel, by its id: $1 and $2. */
#define RULES "unnest($1::integer[], $2::bigint[]) AS r (channel, keep)"

/* Whether message m may be removed under rule r at $3. */
#define MAY_GO                                                      \
	"r.keep IS NOT NULL AND m.received_at <= $3 - r.keep"           \
	" AND NOT EXISTS (SELECT 1 FROM @open o WHERE o.seq = m.seq)"   \
	" AND NOT EXISTS (SELECT 1 FROM @parked p WHERE p.seq = m.seq)" \
	" AND NOT EXISTS (SELECT 1 FROM @ledger l WHERE l.seq = m.seq"  \
	" AND (l.finished_at > $3 - r.keep OR l.state = 4))"

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

/* Messages received after this time cannot be removed under any rule. */
static int64_t received_at_limit(const struct cleaner *cleaner) {
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

static bool is_full(const struct cleaner *cleaner) {
	return cleaner->bytes > cleaner->cleaning->bytes_max;
}

/* Select from the next messages, of which `max` were requested, those that may
   be removed. */
static void select_removable(const struct pg_query *query,
		struct cleaner *cleaner, int64_t max) {
	int64_t limit = received_at_limit(cleaner);
	int count = postern__pg_rows(query);
	bool done = count < max;
	for (int row = 0; row < count && !is_full(cleaner); row++) {
		int64_t received_at = postern__pg_get(query, row, 1);
		if (received_at > limit && received_at <= cleaner->now) {
			done = true;
			break;
		}
		cleaner->cursor.seq = postern__pg_get(query, row, 0);
		if (postern__pg_get(query, row, 2)) {
			cleaner->seqs[cleaner->seq_count++] = cleaner->cursor.seq;
			cleaner->bytes += (size_t)postern__pg_get(query, row, 3);
		}
	}
	/* A full batch may have left messages unread. */
	cleaner->cursor.messages_done = done && !is_full(cleaner);
}

static int select_messages(struct pg_connection *connection,
		struct cleaner *cleaner, int64_t max, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_rules(&query, cleaner->cleaning, false);
	postern__pg_int8(&query, cleaner->now);
	postern__pg_int8(&query, cleaner->cursor.seq);
	postern__pg_int8(&query, max);
	int r = postern__pg_run(&query,
			"SELECT m.seq, m.received_at, " MAY_GO ", m.len"
			" FROM (SELECT seq, channel, received_at, "
			"octet_length(body)::bigint"
			" + coalesce(octet_length(headers), 0) AS len FROM @message"
			" WHERE seq > $4 ORDER BY seq LIMIT $5) AS m"
			" LEFT JOIN " RULES " ON r.channel = m.channel ORDER BY m.seq",
			error);
	if (r == POSTERN_OK) {
		size_t count =
				cleaner->seq_count + (size_t)postern__pg_rows(&query) + 1;
		int64_t *seqs = realloc(cleaner->seqs, count * sizeof *seqs);
		if (seqs) {
			cleaner->seqs = seqs;
			select_removable(&query, cleaner, max);
		} else {
			r = postern__pg_no_memory(error);
		}
	}
	postern__pg_end(&query);
	return r;
}

static int select_in_parts(struct pg_connection *connection,
		struct cleaner *cleaner, struct postern_error *error) {
	int64_t left = batch_max(cleaner);
	int64_t part = PART_MIN;
	int r = POSTERN_OK;
	while (r == POSTERN_OK && left > 0 && !is_full(cleaner) &&
			!cleaner->cursor.messages_done) {
		part = part < left ? part : left;
		r = select_messages(connection, cleaner, part, error);
		left -= part;
		part *= PART_GROWTH;
	}
	return r;
}

static void add_seqs(struct pg_query *query, const struct cleaner *cleaner) {
	postern__pg_array(query, PG_INT8);
	for (size_t i = 0; i < cleaner->seq_count; i++) {
		postern__pg_int8(query, cleaner->seqs[i]);
	}
	postern__pg_array_end(query);
}

static int lock_selected(struct pg_connection *connection,
		struct cleaner *cleaner, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_seqs(&query, cleaner);
	int r = postern__pg_run(&query,
			"SELECT seq FROM @message WHERE seq = ANY ($1)"
			" ORDER BY seq FOR UPDATE SKIP LOCKED",
			error);
	if (r == POSTERN_OK) {
		/* Never more rows than were requested. */
		cleaner->seq_count = (size_t)postern__pg_rows(&query);
		for (size_t i = 0; i < cleaner->seq_count; i++) {
			cleaner->seqs[i] = postern__pg_get(&query, (int)i, 0);
		}
	}
	postern__pg_end(&query);
	return r;
}

/* A count of copies that another transaction is raising is skipped, and removed
   later with the remembered id: that transaction may be waiting for the
   message. */
static int remove_selected(struct pg_connection *connection,
		struct cleaner *cleaner, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_rules(&query, cleaner->cleaning, false);
	postern__pg_int8(&query, cleaner->now);
	add_seqs(&query, cleaner);
	int r = postern__pg_run(&query,
			"WITH removed AS (DELETE FROM @message m USING " RULES
			" WHERE m.seq = ANY ($4) AND r.channel = m.channel AND " MAY_GO
			" RETURNING m.seq),"
			" l AS (DELETE FROM @ledger d USING removed g"
			" WHERE d.seq = g.seq),"
			" a AS (DELETE FROM @attempt d USING removed g"
			" WHERE d.seq = g.seq),"
			" s AS (DELETE FROM @duplicate WHERE seq IN ("
			"SELECT d.seq FROM @duplicate d JOIN removed g ON d.seq = g.seq"
			" FOR UPDATE OF d SKIP LOCKED)),"
			" c AS (DELETE FROM @conflict d USING removed g"
			" WHERE d.seq = g.seq)"
			" SELECT count(*) FROM removed",
			error);
	if (r == POSTERN_OK) {
		cleaner->messages = (uint64_t)postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

static int clean_messages(struct pg_connection *connection,
		struct cleaner *cleaner, struct postern_error *error) {
	int r = select_in_parts(connection, cleaner, error);
	postern__point("postgres-clean.looked");
	if (r == POSTERN_OK && cleaner->seq_count > 0) {
		r = lock_selected(connection, cleaner, error);
	}
	postern__point("postgres-clean.locked");
	return r == POSTERN_OK && cleaner->seq_count > 0
				   ? remove_selected(connection, cleaner, error)
				   : r;
}

static void add_place(struct pg_query *query, struct place place) {
	char text[64];
	(void)snprintf(text, sizeof text, "(%lld,%lld)", (long long)place.page,
			(long long)place.item);
	postern__pg_text(query, text);
}

/* The columns of the result of clean_keys(): how many remembered ids were read,
   how many were removed, how many pages the table has, and the last place as
   two numbers, which a ctid is converted to by way of a point. */
enum { SCANNED, REMOVED, PAGES, LAST_PAGE, LAST_ITEM };

static void read_keys(const struct pg_query *query, struct place end,
		struct cleaner *cleaner) {
	bool all = postern__pg_get(query, 0, SCANNED) < batch_max(cleaner);
	struct place last = {
		.page = all ? end.page : postern__pg_get(query, 0, LAST_PAGE),
		.item = all ? end.item : postern__pg_get(query, 0, LAST_ITEM),
	};
	cleaner->cursor.place = last;
	cleaner->keys = (uint64_t)postern__pg_get(query, 0, REMOVED);
	cleaner->more = last.page < postern__pg_get(query, 0, PAGES);
}

/* Whether the handler's delivery of the message of key s is open or poisoned.
 */
#define KEEPS_KEY                                                  \
	"EXISTS (SELECT 1 FROM @open d JOIN @handler i"                \
	" ON i.id = d.handler WHERE d.seq = s.seq AND i.owner = o.id)" \
	" OR EXISTS (SELECT 1 FROM @ledger d JOIN @handler i"          \
	" ON i.id = d.handler WHERE d.seq = s.seq AND i.owner = o.id"  \
	" AND d.state = 4)"

/* A handler may have a window for its keys; else they are removed with the
   remembered id of their message. Counts of copies that arrived after the
   message was removed are removed with the remembered id. Rows of the dedupe
   memory are never updated, so each keeps its place. */
static int clean_keys(struct pg_connection *connection, struct cleaner *cleaner,
		struct postern_error *error) {
	struct place end = {
		.page = cleaner->cursor.place.page + 1 +
				batch_max(cleaner) / KEYS_PER_PAGE,
	};
	struct pg_query query;
	postern__pg_query(&query, connection);
	add_rules(&query, cleaner->cleaning, true);
	postern__pg_int8(&query, cleaner->now);
	add_place(&query, cleaner->cursor.place);
	add_place(&query, end);
	postern__pg_int8(&query, batch_max(cleaner));
	int r = postern__pg_run(&query,
			"WITH scanned AS (SELECT s.ctid AS place, s.* FROM @seen s"
			" WHERE s.ctid > $4::text::tid AND s.ctid < $5::text::tid"
			" ORDER BY s.ctid LIMIT $6),"
			" old AS (SELECT s.place FROM scanned s"
			" LEFT JOIN " RULES " ON r.channel = s.channel"
			" LEFT JOIN @handler h ON h.id = s.scope"
			" LEFT JOIN @handler o ON o.id = h.owner"
			" WHERE CASE WHEN o.dedupe_ms IS NOT NULL"
			" THEN s.at <= $3 - o.dedupe_ms AND NOT (" KEEPS_KEY ")"
			" ELSE r.keep >= 0 AND s.at <= $3 - r.keep AND NOT EXISTS"
			" (SELECT 1 FROM @message m WHERE m.seq = s.seq) END),"
			" removed AS (DELETE FROM @seen WHERE"
			" ctid = ANY (ARRAY(SELECT place FROM old)) RETURNING seq, scope),"
			" d AS (DELETE FROM @duplicate d USING removed g"
			" WHERE d.seq = g.seq AND g.scope = 0),"
			" c AS (DELETE FROM @conflict d USING removed g"
			" WHERE d.seq = g.seq AND g.scope = 0)"
			" SELECT (SELECT count(*) FROM scanned),"
			" (SELECT count(*) FROM removed), pg_relation_size('@seen')"
			" / current_setting('block_size')::integer,"
			" (l.place::text::point)[0]::bigint,"
			" (l.place::text::point)[1]::bigint"
			" FROM (SELECT 1) AS one LEFT JOIN (SELECT place FROM scanned"
			" ORDER BY place DESC LIMIT 1) AS l ON true",
			error);
	if (r == POSTERN_OK) {
		read_keys(&query, end, cleaner);
	}
	postern__pg_end(&query);
	return r;
}

/* Whether any key may expire. */
static int find_window(struct pg_connection *connection,
		const struct postern_cleaning *cleaning, bool *found_out,
		struct postern_error *error) {
	for (size_t i = 0; i < cleaning->rule_count; i++) {
		if (cleaning->rules[i].dedupe_ms >= 0) {
			*found_out = true;
			return POSTERN_OK;
		}
	}
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, "SELECT count(dedupe_ms) FROM @handler",
			error);
	*found_out = r == POSTERN_OK && postern__pg_get(&query, 0, 0) > 0;
	postern__pg_end(&query);
	return r;
}

static int clean_batch(struct pg_connection *connection,
		struct cleaner *cleaner, struct postern_error *error) {
	bool with_keys;
	int r = find_window(connection, cleaner->cleaning, &with_keys, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (cleaner->cursor.messages_done) {
		return with_keys ? clean_keys(connection, cleaner, error) : POSTERN_OK;
	}
	r = clean_messages(connection, cleaner, error);
	cleaner->more = with_keys || !cleaner->cursor.messages_done;
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

/* The transaction status is the only evidence of the commit: deleted rows do
   not show which transaction deleted them. */
static int trust_status(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	(void)connection;
	(void)context;
	(void)again;
	(void)error;
	return POSTERN_OK;
}

static int purge_samples(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			"SELECT @purge_samples_1(coalesce($1, @now_ms()))", error);
	postern__pg_end(&query);
	return r;
}

static int clean_once(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
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
	if (r == POSTERN_OK && !cleaner.more) {
		r = purge_samples(connection, error);
	}
	int64_t xid = 0;
	if (r == POSTERN_OK) {
		r = read_xid(connection, &xid, error);
	}
	*result = cleaner;
	return xid ? postern__pg_finish_known(connection, xid, trust_status, NULL,
						 r, error)
			   : postern__pg_finish(connection, r, error);
}

int postern__pg_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error) {
	struct cleaner cleaner = { .cleaning = cleaning };
	int r = postern__pg_do(postern__pg_from_base(store), clean_once, &cleaner,
			error);
	if (r == POSTERN_OK) {
		memcpy(cleaning->cursor, &cleaner.cursor, sizeof cleaner.cursor);
		cleaning->messages = cleaner.messages;
		cleaning->keys = cleaner.keys;
		cleaning->more = cleaner.more;
	}
	return r;
}
