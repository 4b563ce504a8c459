/* SPDX-License-Identifier: MIT */

/*
 * Statistics. Every commit updates the counts, so this reads one row per
 * channel and handler, whatever the backlog. Only the age of the oldest pending
 * delivery is searched for.
 */

#include "store/common.h"
#include "store/sqlite/sqlite.h"

/* Up to this many pending deliveries of a handler are all read, through the
   index, to find the oldest. With more, the oldest is likely to be near the
   beginning of the table. */
#define SCAN_MAX 10000

static int count_rows(struct sqlite_store *self, const char *sql, size_t *out,
		struct postern_error *error) {
	int64_t count = 0;
	int r = postern__sqlite_number(&self->reader, sql, &count, error);
	*out = (size_t)count;
	return r;
}

static int read_channels(struct sqlite_store *self,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	size_t room = 0;
	int r = count_rows(self, "SELECT count(*) FROM postern_channel", &room,
			error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_channel_stats *stats = postern_memory_alloc(memory,
			room * sizeof(struct postern_channel_stats));
	if (!stats) {
		return postern__sqlite_no_memory(error);
	}
	size_t count = 0;
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT name, accepted, duplicates, conflicts, dropped, parked,"
			" closed, closed_at, 0, closed_reason, closed_by,"
			" (SELECT count(*) FROM postern_staged s WHERE s.channel = c.id"
			" AND s.refused IS NULL), (SELECT count(*) FROM postern_staged s"
			" WHERE s.channel = c.id AND s.refused IS NOT NULL),"
			" (SELECT count(*) FROM postern_node_channel n"
			" WHERE n.channel = c.id) FROM postern_channel c ORDER BY id");
	while (ok && count < room && postern__sqlite_row(&query)) {
		struct postern_channel_stats *channel = &stats[count++];
		ok = postern__sqlite_text(query.statement, 0, memory, &channel->name);
		channel->accepted = (uint64_t)postern__sqlite_int(&query, 1);
		channel->duplicates = (uint64_t)postern__sqlite_int(&query, 2);
		channel->conflicts = (uint64_t)postern__sqlite_int(&query, 3);
		channel->dropped = (uint64_t)postern__sqlite_int(&query, 4);
		channel->parked = (uint64_t)postern__sqlite_int(&query, 5);
		channel->staged = (uint64_t)postern__sqlite_int(&query, 11);
		channel->refused = (uint64_t)postern__sqlite_int(&query, 12);
		channel->nodes = (uint64_t)postern__sqlite_int(&query, 13);
		struct postern_halt closed;
		postern__sqlite_halt(&query, 6, &closed);
		ok = ok && postern__closed_stats(&closed, memory, channel);
	}
	out->channels = stats;
	out->channel_count = count;
	r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

/* Reads when the oldest message was received that is pending for this owner. */
static int read_oldest(struct sqlite_store *self, int64_t owner,
		struct postern_handler_stats *stats, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			stats->pending <= SCAN_MAX
					? "SELECT received_at FROM postern_message WHERE seq ="
					  " (SELECT min(seq) FROM ("
					  "SELECT o.seq FROM postern_handler h"
					  " CROSS JOIN postern_open o INDEXED BY postern_open_due"
					  " ON o.handler = h.id WHERE h.owner = ?1"
					  " AND o.node IS NULL AND o.suspect = 0"
					  " UNION ALL SELECT o.seq FROM postern_open o"
					  " INDEXED BY postern_open_suspect"
					  " CROSS JOIN postern_handler h ON h.id = o.handler"
					  " WHERE o.suspect > 0 AND o.node IS NULL"
					  " AND h.owner = ?1))"
					: "SELECT received_at FROM postern_message WHERE seq ="
					  " (SELECT seq FROM postern_open WHERE node IS NULL"
					  " AND handler IN (SELECT id FROM postern_handler"
					  " WHERE owner = ?1) ORDER BY seq LIMIT 1)");
	postern__sqlite_bind_int(&query, 1, owner);
	if (postern__sqlite_row(&query)) {
		stats->oldest_pending_at_ms = postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

/* Counts the deliveries of this owner that are due later. */
static int read_waiting(struct sqlite_store *self, int64_t owner,
		struct postern_handler_stats *stats, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT count(*) FROM postern_handler h"
			" CROSS JOIN postern_open o INDEXED BY postern_open_due"
			" ON o.handler = h.id AND o.due_at > ?2 WHERE h.owner = ?1"
			" AND o.node IS NULL AND o.suspect = 0");
	postern__sqlite_bind_int(&query, 1, owner);
	postern__sqlite_bind_int(&query, 2, postern__sqlite_now_read(self));
	if (postern__sqlite_row(&query)) {
		stats->waiting = (uint64_t)postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

/* Reads when the oldest message was received that is open for this owner. The
   leased ones have no index; they are mostly near the beginning of the
   table. */
static int read_oldest_open(struct sqlite_store *self, int64_t owner,
		struct postern_handler_stats *stats, struct postern_error *error) {
	struct sqlite_query query;
	stats->oldest_open_at_ms = stats->oldest_pending_at_ms;
	if (stats->leased == 0) {
		return POSTERN_OK;
	}
	postern__sqlite_query(&query, &self->reader,
			"SELECT received_at FROM postern_message WHERE seq ="
			" (SELECT seq FROM postern_open WHERE handler IN"
			" (SELECT id FROM postern_handler WHERE owner = ?1)"
			" ORDER BY seq LIMIT 1)");
	postern__sqlite_bind_int(&query, 1, owner);
	if (postern__sqlite_row(&query)) {
		stats->oldest_open_at_ms = postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

static int read_open(struct sqlite_store *self, int64_t owner,
		struct postern_handler_stats *stats, struct postern_error *error) {
	int r = POSTERN_OK;
	if (stats->pending > 0) {
		r = read_oldest(self, owner, stats, error);
	}
	if (r == POSTERN_OK && stats->pending > 0) {
		r = read_waiting(self, owner, stats, error);
	}
	return r == POSTERN_OK ? read_oldest_open(self, owner, stats, error) : r;
}

static int read_handlers(struct sqlite_store *self,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	size_t room = 0;
	int r = count_rows(self, "SELECT count(*) FROM postern_handler", &room,
			error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_handler_stats *stats = postern_memory_alloc(memory,
			room * sizeof(struct postern_handler_stats));
	if (!stats) {
		return postern__sqlite_no_memory(error);
	}
	size_t count = 0;
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT h.id, h.key, sum(a.pending), sum(a.retrying),"
			" sum(a.leased), sum(a.poisoned), sum(a.done), sum(a.discarded),"
			" h.paused, h.paused_at, h.paused_until, h.pause_reason, h.pause_by"
			" FROM postern_handler a JOIN postern_handler h ON h.id = a.owner"
			" GROUP BY h.id ORDER BY h.id");
	while (r == POSTERN_OK && ok && count < room &&
			postern__sqlite_row(&query)) {
		struct postern_handler_stats *handler = &stats[count++];
		handler->channel = "";
		ok = postern__sqlite_text(query.statement, 1, memory, &handler->key);
		struct postern_halt pause;
		postern__sqlite_halt(&query, 8, &pause);
		ok = ok && postern__pause_stats(&pause, postern__sqlite_now_read(self),
						   memory, handler);
		handler->pending = (uint64_t)postern__sqlite_int(&query, 2);
		handler->retrying = (uint64_t)postern__sqlite_int(&query, 3);
		handler->leased = (uint64_t)postern__sqlite_int(&query, 4);
		handler->poisoned = (uint64_t)postern__sqlite_int(&query, 5);
		handler->done = (uint64_t)postern__sqlite_int(&query, 6);
		handler->discarded = (uint64_t)postern__sqlite_int(&query, 7);
		r = read_open(self, postern__sqlite_int(&query, 0), handler, error);
	}
	out->handlers = stats;
	out->handler_count = count;
	int ended = postern__sqlite_end(&query, r == POSTERN_OK ? error : NULL);
	r = r == POSTERN_OK ? ended : r;
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int read_keys(struct sqlite_store *self, struct postern_memory *memory,
		struct postern_stats *out, struct postern_error *error) {
	size_t room = 0;
	int r = count_rows(self, "SELECT count(*) FROM postern_handler_key", &room,
			error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_key_stats *stats = postern_memory_alloc(memory,
			room * sizeof(struct postern_key_stats));
	if (!stats) {
		return postern__sqlite_no_memory(error);
	}
	size_t count = 0;
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT k.key, o.key FROM postern_handler_key k"
			" JOIN postern_handler h ON h.id = k.handler"
			" JOIN postern_handler o ON o.id = h.owner ORDER BY k.key");
	while (ok && count < room && postern__sqlite_row(&query)) {
		struct postern_key_stats *key = &stats[count++];
		ok = postern__sqlite_text(query.statement, 0, memory, &key->key) &&
			 postern__sqlite_text(query.statement, 1, memory, &key->handler);
	}
	out->keys = stats;
	out->key_count = count;
	r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

static int read_names(struct sqlite_store *self, struct postern_memory *memory,
		struct postern_stats *out, struct postern_error *error) {
	size_t room = 0;
	int r = count_rows(self, "SELECT count(*) FROM postern_channel_name", &room,
			error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct postern_name_stats *stats = postern_memory_alloc(memory,
			room * sizeof(struct postern_name_stats));
	if (!stats) {
		return postern__sqlite_no_memory(error);
	}
	size_t count = 0;
	bool ok = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT n.name, c.name FROM postern_channel_name n"
			" JOIN postern_channel c ON c.id = n.channel ORDER BY n.name");
	while (ok && count < room && postern__sqlite_row(&query)) {
		struct postern_name_stats *name = &stats[count++];
		ok = postern__sqlite_text(query.statement, 0, memory, &name->name) &&
			 postern__sqlite_text(query.statement, 1, memory, &name->channel);
	}
	out->names = stats;
	out->name_count = count;
	r = postern__sqlite_end(&query, error);
	return r == POSTERN_OK && !ok ? postern__sqlite_no_memory(error) : r;
}

int postern__sqlite_stats(struct postern_store *store,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	struct postern_stats stats = { .store = store->ops->name };
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = read_channels(self, memory, &stats, error);
	if (r == POSTERN_OK) {
		r = read_handlers(self, memory, &stats, error);
	}
	if (r == POSTERN_OK) {
		r = read_keys(self, memory, &stats, error);
	}
	if (r == POSTERN_OK) {
		r = read_names(self, memory, &stats, error);
	}
	if (r == POSTERN_OK) {
		r = postern__sqlite_node_stats(self, memory, &stats, error);
	}
	postern__sqlite_read_end(self);
	if (r == POSTERN_OK) {
		*out = stats;
	}
	return r;
}
