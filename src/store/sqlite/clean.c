/* SPDX-License-Identifier: MIT */

/*
 * Cleanup: first the messages in the order of their seq, then the dedupe memory
 * in the order of its keys. Both are the order on the disk, so a batch touches
 * few pages however random the ids are; an index by time, which would slow down
 * every accept, is not needed.
 *
 * Messages are in the order of time: the first that is too young for every rule
 * ends the first part. A message that was received in the future, when the
 * clock was wrong, says nothing about the messages after it.
 *
 * The cursor is the part, and the seq and the key that were visited last.
 */

#include <stdlib.h>
#include <string.h>

#include "base/point.h"
#include "store/sqlite/sqlite.h"

struct cursor {
	int64_t seq;
	uint8_t key[POSTERN__KEY_LEN];
	bool messages_done;
	bool keys_begun;
};

_Static_assert(sizeof(struct cursor) <= POSTERN_CLEANING_CURSOR_LEN,
		"the cursor must fit");

struct cleaner {
	struct sqlite_store *store;
	struct postern_cleaning *cleaning;
	struct cursor cursor;
	int64_t now;
	/* The first and the last seq of consecutive messages to remove; 0: none. */
	int64_t from;
	int64_t to;
	uint8_t (*keys)[POSTERN__KEY_LEN];
	int64_t *seqs; /* of their messages; 0 for the key of a handler */
	size_t key_count;
};

static const struct postern_retention *rule_of(const struct cleaner *cleaner,
		int64_t channel) {
	const struct postern_cleaning *cleaning = cleaner->cleaning;
	for (size_t i = 0; i < cleaning->rule_count; i++) {
		if (cleaning->rules[i].channel == channel) {
			return &cleaning->rules[i];
		}
	}
	return NULL;
}

/* Messages received later than this cannot be removed under any rule. */
static int64_t received_at_max(const struct cleaner *cleaner) {
	int64_t keep = INT64_MAX;
	for (size_t i = 0; i < cleaner->cleaning->rule_count; i++) {
		int64_t payload = cleaner->cleaning->rules[i].payload_ms;
		keep = payload < keep ? payload : keep;
	}
	return cleaner->now - keep;
}

static int delete_range(struct cleaner *cleaner, const char *sql, int *changes,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &cleaner->store->writer, sql);
	postern__sqlite_bind_int(&query, 1, cleaner->from);
	postern__sqlite_bind_int(&query, 2, cleaner->to);
	return postern__sqlite_end_changes(&query, changes, error);
}

/* Removes the messages from..to and all that belongs to them. */
static int messages_remove(struct cleaner *cleaner,
		struct postern_error *error) {
	static const char *const tables[] = {
		"DELETE FROM postern_ledger WHERE seq BETWEEN ?1 AND ?2",
		"DELETE FROM postern_attempt WHERE seq BETWEEN ?1 AND ?2",
		"DELETE FROM postern_duplicate WHERE seq BETWEEN ?1 AND ?2",
		"DELETE FROM postern_conflict WHERE seq BETWEEN ?1 AND ?2",
	};
	if (cleaner->from == 0) {
		return POSTERN_OK;
	}
	int r = POSTERN_OK;
	int changes = 0;
	for (size_t i = 0; r == POSTERN_OK && i < sizeof tables / sizeof tables[0];
			i++) {
		r = delete_range(cleaner, tables[i], &changes, error);
	}
	postern__point("sqlite-clean.half-purged");
	if (r == POSTERN_OK) {
		r = delete_range(cleaner,
				"DELETE FROM postern_message WHERE seq BETWEEN ?1 AND ?2",
				&changes, error);
	}
	cleaner->cleaning->messages += (uint64_t)changes;
	cleaner->from = 0;
	return r;
}

/* Records the highest seq removed: a seq is never used twice, even if the last
   message was removed. */
static int last_seq_write(struct cleaner *cleaner,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &cleaner->store->writer,
			"UPDATE postern_meta SET value = ?1"
			" WHERE name = 'last_seq' AND value < ?1");
	postern__sqlite_bind_int(&query, 1, cleaner->cursor.seq);
	return postern__sqlite_end(&query, error);
}

struct candidate {
	int64_t seq;
	int64_t channel;
	int64_t received_at;
	int64_t finished_at;
	int64_t body_len;
	bool kept; /* some delivery is open or poisoned, or the message is parked */
};

static bool is_removable(const struct cleaner *cleaner,
		const struct candidate *candidate) {
	const struct postern_retention *rule = rule_of(cleaner, candidate->channel);
	int64_t at = candidate->finished_at > candidate->received_at
						 ? candidate->finished_at
						 : candidate->received_at;
	return rule && !candidate->kept && cleaner->now - at >= rule->payload_ms;
}

/* Reads the next messages into `out`. Stops after the body that exceeds what a
   call may remove: later messages are read in the next call. The length of a
   blob is read without its pages. */
static int read_candidates(struct cleaner *cleaner, struct candidate *out,
		size_t *count_out, struct postern_error *error) {
	struct sqlite_query query;
	size_t count = 0;
	size_t bytes = 0;
	postern__sqlite_query(&query, &cleaner->store->writer,
			"SELECT m.seq, m.channel, m.received_at,"
			" coalesce((SELECT max(finished_at) FROM postern_ledger l"
			" WHERE l.seq = m.seq), 0),"
			" EXISTS (SELECT 1 FROM postern_open o WHERE o.seq = m.seq)"
			" OR EXISTS (SELECT 1 FROM postern_parked p WHERE p.seq = m.seq)"
			" OR EXISTS (SELECT 1 FROM postern_ledger l WHERE l.seq = m.seq"
			" AND l.state = 4), length(m.body)"
			" FROM postern_message m WHERE m.seq > ?1 ORDER BY m.seq LIMIT ?2");
	postern__sqlite_bind_int(&query, 1, cleaner->cursor.seq);
	postern__sqlite_bind_int(&query, 2, (int64_t)cleaner->cleaning->max);
	while (bytes <= cleaner->cleaning->bytes_max &&
			postern__sqlite_row(&query)) {
		out[count] = (struct candidate){
			.seq = postern__sqlite_int(&query, 0),
			.channel = postern__sqlite_int(&query, 1),
			.received_at = postern__sqlite_int(&query, 2),
			.finished_at = postern__sqlite_int(&query, 3),
			.kept = postern__sqlite_int(&query, 4) != 0,
			.body_len = postern__sqlite_int(&query, 5),
		};
		if (is_removable(cleaner, &out[count])) {
			bytes += (size_t)out[count].body_len;
		}
		count++;
	}
	*count_out = count;
	cleaner->cursor.messages_done = count < cleaner->cleaning->max &&
									bytes <= cleaner->cleaning->bytes_max;
	return postern__sqlite_end(&query, error);
}

static int clean_messages(struct cleaner *cleaner, struct candidate *candidates,
		struct postern_error *error) {
	size_t count;
	int64_t limit = received_at_max(cleaner);
	int r = read_candidates(cleaner, candidates, &count, error);
	for (size_t i = 0; r == POSTERN_OK && i < count; i++) {
		const struct candidate *candidate = &candidates[i];
		if (candidate->received_at > limit &&
				candidate->received_at <= cleaner->now) {
			cleaner->cursor.messages_done = true;
			break;
		}
		if (is_removable(cleaner, candidate)) {
			cleaner->from = cleaner->from ? cleaner->from : candidate->seq;
			cleaner->to = candidate->seq;
		} else {
			r = messages_remove(cleaner, error);
		}
		cleaner->cursor.seq = candidate->seq;
	}
	if (r == POSTERN_OK) {
		r = messages_remove(cleaner, error);
	}
	return r == POSTERN_OK && cleaner->cleaning->messages > 0
				   ? last_seq_write(cleaner, error)
				   : r;
}

/* A handler may have a window for its keys; else they are removed with the
   remembered id of their message. */
static const char keys_sql[] =
		"SELECT s.key, s.seq, s.channel, s.at,"
		" EXISTS (SELECT 1 FROM postern_message m WHERE m.seq = s.seq),"
		" s.scope, coalesce(o.dedupe_ms, 0), o.dedupe_ms IS NOT NULL AND ("
		"EXISTS (SELECT 1 FROM postern_open d JOIN postern_handler i"
		" ON i.id = d.handler WHERE d.seq = s.seq AND i.owner = o.id)"
		" OR EXISTS (SELECT 1 FROM postern_ledger d JOIN postern_handler i"
		" ON i.id = d.handler WHERE d.seq = s.seq AND i.owner = o.id"
		" AND d.state = 4))"
		" FROM postern_seen s LEFT JOIN postern_handler h ON h.id = s.scope"
		" LEFT JOIN postern_handler o ON o.id = h.owner"
		" WHERE s.key > ?1 AND length(s.key) = ?3 ORDER BY s.key LIMIT ?2";

/* Whether the key that was read has expired. */
static bool is_past_key(const struct cleaner *cleaner,
		const struct sqlite_query *query) {
	int64_t age = cleaner->now - postern__sqlite_int(query, 3);
	int64_t window = postern__sqlite_int(query, 6);
	if (window > 0) {
		return age >= window && !postern__sqlite_int(query, 7);
	}
	const struct postern_retention *rule =
			rule_of(cleaner, postern__sqlite_int(query, 2));
	return rule && rule->dedupe_ms >= 0 && age >= rule->dedupe_ms &&
		   !postern__sqlite_int(query, 4);
}

/* Collects the remembered ids to remove; *count_out: how many were read. */
static int read_keys(struct cleaner *cleaner, size_t *count_out,
		struct postern_error *error) {
	struct sqlite_query query;
	size_t count = 0;
	postern__sqlite_query(&query, &cleaner->store->writer, keys_sql);
	postern__sqlite_bind_blob(&query, 1, cleaner->cursor.key,
			cleaner->cursor.keys_begun ? sizeof cleaner->cursor.key : 0);
	postern__sqlite_bind_int(&query, 2, (int64_t)cleaner->cleaning->max);
	/* Keys of another length are not ours: they are kept and do not count,
	   because a batch that is not full is the last. */
	postern__sqlite_bind_int(&query, 3, POSTERN__KEY_LEN);
	while (postern__sqlite_row(&query)) {
		memcpy(cleaner->cursor.key, sqlite3_column_blob(query.statement, 0),
				POSTERN__KEY_LEN);
		count++;
		if (is_past_key(cleaner, &query)) {
			bool of_message = postern__sqlite_int(&query, 5) == 0;
			memcpy(cleaner->keys[cleaner->key_count], cleaner->cursor.key,
					POSTERN__KEY_LEN);
			cleaner->seqs[cleaner->key_count++] =
					of_message ? postern__sqlite_int(&query, 1) : 0;
		}
	}
	cleaner->cursor.keys_begun = true;
	*count_out = count;
	return postern__sqlite_end(&query, error);
}

/* Deletes the counts of copies that arrived after the message was removed. */
static int copy_counts_delete(struct cleaner *cleaner, int64_t seq,
		struct postern_error *error) {
	int changes;
	cleaner->from = seq;
	cleaner->to = seq;
	int r = delete_range(cleaner,
			"DELETE FROM postern_duplicate WHERE seq BETWEEN ?1 AND ?2",
			&changes, error);
	if (r == POSTERN_OK) {
		r = delete_range(cleaner,
				"DELETE FROM postern_conflict WHERE seq BETWEEN ?1 AND ?2",
				&changes, error);
	}
	cleaner->from = 0;
	return r;
}

static int clean_keys(struct cleaner *cleaner, bool *more_out,
		struct postern_error *error) {
	size_t read = 0;
	int r = read_keys(cleaner, &read, error);
	for (size_t i = 0; r == POSTERN_OK && i < cleaner->key_count; i++) {
		struct sqlite_query query;
		postern__sqlite_query(&query, &cleaner->store->writer,
				"DELETE FROM postern_seen WHERE key = ?1");
		postern__sqlite_bind_blob(&query, 1, cleaner->keys[i],
				POSTERN__KEY_LEN);
		r = postern__sqlite_end(&query, error);
		if (r == POSTERN_OK && cleaner->seqs[i]) {
			r = copy_counts_delete(cleaner, cleaner->seqs[i], error);
		}
	}
	cleaner->cleaning->keys = cleaner->key_count;
	*more_out = read == cleaner->cleaning->max;
	return r;
}

/* Whether any key may expire. */
static int find_dedupe_rule(const struct cleaner *cleaner, bool *found_out,
		struct postern_error *error) {
	const struct postern_cleaning *cleaning = cleaner->cleaning;
	for (size_t i = 0; i < cleaning->rule_count; i++) {
		if (cleaning->rules[i].dedupe_ms >= 0) {
			*found_out = true;
			return POSTERN_OK;
		}
	}
	int64_t count = 0;
	int r = postern__sqlite_number(&cleaner->store->writer,
			"SELECT count(*) FROM postern_handler WHERE dedupe_ms IS NOT NULL",
			&count, error);
	*found_out = count > 0;
	return r;
}

static int clean_step(struct cleaner *cleaner, bool *more_out,
		struct postern_error *error) {
	size_t max = cleaner->cleaning->max;
	bool has_rule = false;
	int r = find_dedupe_rule(cleaner, &has_rule, error);
	if (r != POSTERN_OK) {
		return r;
	}
	if (!cleaner->cursor.messages_done) {
		struct candidate *candidates = malloc((max + 1) * sizeof *candidates);
		r = candidates ? clean_messages(cleaner, candidates, error)
					   : postern__sqlite_no_memory(error);
		free(candidates);
		*more_out = has_rule || !cleaner->cursor.messages_done;
		return r;
	}
	*more_out = false;
	if (!has_rule) {
		return POSTERN_OK;
	}
	cleaner->keys = malloc((max + 1) * sizeof *cleaner->keys);
	cleaner->seqs = malloc((max + 1) * sizeof *cleaner->seqs);
	r = cleaner->keys && cleaner->seqs ? clean_keys(cleaner, more_out, error)
									   : postern__sqlite_no_memory(error);
	free(cleaner->keys);
	free(cleaner->seqs);
	return r;
}

int postern__sqlite_clean(struct postern_store *store,
		struct postern_cleaning *cleaning, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_gate_enter(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct cleaner cleaner = {
		.store = self,
		.cleaning = cleaning,
		.now = postern__sqlite_now(self),
	};
	memcpy(&cleaner.cursor, cleaning->cursor, sizeof cleaner.cursor);
	cleaning->messages = 0;
	cleaning->keys = 0;
	bool more = false;
	r = postern__sqlite_begin(self, error);
	if (r == POSTERN_OK) {
		r = clean_step(&cleaner, &more, error);
		if (r == POSTERN_OK && !more) {
			r = postern__sqlite_samples_purge(self, cleaner.now, error);
		}
		r = postern__sqlite_finish(self, r, error);
	}
	postern__sqlite_gate_leave(self);
	if (r == POSTERN_OK) {
		memcpy(cleaning->cursor, &cleaner.cursor, sizeof cleaner.cursor);
		cleaning->more = more;
	}
	return r;
}
