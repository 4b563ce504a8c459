/* SPDX-License-Identifier: MIT */

/*
 * Counting. Open deliveries are counted in one scan: a stored counter would
 * have to be updated by every commit of every node, one after the other. Ended
 * ones are summed up from the appended counts, of which tally.c leaves few
 * rows.
 */

#include "store/common.h"
#include "store/postgres/postgres.h"

struct work {
	struct postern_memory *memory;
	struct postern_stats stats;
};

static bool copy_channels(const struct pg_query *query, struct work *work) {
	int count = postern__pg_rows(query);
	struct postern_channel_stats *stats = postern_memory_alloc(work->memory,
			(size_t)count * sizeof(struct postern_channel_stats));
	bool ok = stats;
	for (int row = 0; ok && row < count; row++) {
		struct postern_channel_stats *channel = &stats[row];
		ok = postern__pg_get_text(query, row, 0, work->memory, &channel->name);
		channel->accepted = (uint64_t)postern__pg_get(query, row, 1);
		channel->duplicates = (uint64_t)postern__pg_get(query, row, 2);
		channel->conflicts = (uint64_t)postern__pg_get(query, row, 3);
		channel->dropped = (uint64_t)postern__pg_get(query, row, 4);
		channel->parked = (uint64_t)postern__pg_get(query, row, 5);
		channel->staged = (uint64_t)postern__pg_get(query, row, 6);
		channel->refused = (uint64_t)postern__pg_get(query, row, 7);
		channel->nodes = (uint64_t)postern__pg_get(query, row, 8);
		struct postern_halt closed;
		ok = ok && postern__pg_halt(query, row, 9, work->memory, &closed) &&
			 postern__closed_stats(&closed, work->memory, channel);
	}
	work->stats.channels = stats;
	work->stats.channel_count = (size_t)count;
	return ok;
}

static int count_channels(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			"WITH tally AS (SELECT channel, sum(accepted)::bigint AS accepted,"
			" sum(duplicates)::bigint AS duplicates,"
			" sum(conflicts)::bigint AS conflicts,"
			" sum(dropped)::bigint AS dropped"
			" FROM @channel_tally GROUP BY channel),"
			" parked AS (SELECT m.channel, count(*) AS parked"
			" FROM @parked p JOIN @message m ON m.seq = p.seq"
			" GROUP BY m.channel),"
			" staged AS (SELECT channel,"
			" count(*) FILTER (WHERE refused IS NULL) AS staged,"
			" count(refused) AS refused FROM @staged GROUP BY channel),"
			" served AS (SELECT n.channel, count(*) AS nodes"
			" FROM " PG_SERVED_CHANNELS " n GROUP BY n.channel)"
			" SELECT c.name, t.accepted, t.duplicates, t.conflicts, t.dropped,"
			" p.parked, s.staged, s.refused, n.nodes, c.closed, c.closed_at, 0,"
			" c.closed_reason, c.closed_by FROM @channel c"
			" LEFT JOIN tally t ON t.channel = c.id"
			" LEFT JOIN parked p ON p.channel = c.id"
			" LEFT JOIN staged s ON s.channel = c.id"
			" LEFT JOIN served n ON n.channel = c.id ORDER BY c.id",
			error);
	if (r == POSTERN_OK && !copy_channels(&query, work)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

static bool copy_handlers(const struct pg_query *query, struct work *work) {
	int count = postern__pg_rows(query);
	struct postern_handler_stats *stats = postern_memory_alloc(work->memory,
			(size_t)count * sizeof(struct postern_handler_stats));
	bool ok = stats;
	for (int row = 0; ok && row < count; row++) {
		struct postern_handler_stats *handler = &stats[row];
		handler->channel = "";
		ok = postern__pg_get_text(query, row, 0, work->memory, &handler->key);
		int64_t now = postern__pg_get(query, row, 1);
		struct postern_halt pause;
		ok = ok && postern__pg_halt(query, row, 9, work->memory, &pause) &&
			 postern__pause_stats(&pause, now, work->memory, handler);
		handler->pending = (uint64_t)postern__pg_get(query, row, 2);
		handler->retrying = (uint64_t)postern__pg_get(query, row, 3);
		handler->leased = (uint64_t)postern__pg_get(query, row, 4);
		handler->poisoned = (uint64_t)postern__pg_get(query, row, 5);
		handler->done = (uint64_t)postern__pg_get(query, row, 6);
		handler->discarded = (uint64_t)postern__pg_get(query, row, 7);
		handler->oldest_pending_at_ms = postern__pg_get(query, row, 8);
		handler->waiting = (uint64_t)postern__pg_get(query, row, 14);
		handler->oldest_open_at_ms = postern__pg_get(query, row, 15);
		handler->returned = (uint64_t)postern__pg_get(query, row, 16);
		handler->nodes = (uint64_t)postern__pg_get(query, row, 17);
	}
	work->stats.handlers = stats;
	work->stats.handler_count = (size_t)count;
	return ok;
}

/* How many nodes that are live at $1 have the handler h. */
#define PG_HANDLER_NODES                                  \
	"(SELECT count(DISTINCT s.node) FROM @node_handler s" \
	" JOIN @handler r ON r.id = s.handler"                \
	" JOIN @node_term live ON live.node = s.node"         \
	" WHERE r.owner = h.id AND (live.lives_until IS NULL" \
	" OR live.lives_until > coalesce($1, @now_ms())))"

/* Each table is counted by handler id, then summed up by owner. */
static int count_handlers(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	int r = postern__pg_run(&query,
			"WITH now AS (SELECT coalesce($1, @now_ms()) AS t),"
			" open AS (SELECT handler,"
			" count(*) FILTER (WHERE node IS NULL) AS pending,"
			" count(*) FILTER (WHERE node IS NULL AND failures > 0)"
			" AS retrying,"
			" count(*) FILTER (WHERE node IS NOT NULL) AS leased,"
			" min(seq) FILTER (WHERE node IS NULL) AS oldest,"
			" count(*) FILTER (WHERE node IS NULL AND due_at >"
			" (SELECT t FROM now)) AS waiting, min(seq) AS oldest_open"
			" FROM @open GROUP BY handler),"
			" ended AS (SELECT handler, count(*) AS poisoned FROM @ledger"
			" WHERE state = 4 AND state <> 3 GROUP BY handler),"
			" tally AS (SELECT handler, sum(done)::bigint AS done,"
			" sum(discarded)::bigint AS discarded,"
			" sum(returned)::bigint AS returned"
			" FROM @handler_tally GROUP BY handler),"
			" total AS (SELECT a.owner, sum(o.pending)::bigint AS pending,"
			" sum(o.retrying)::bigint AS retrying,"
			" sum(o.leased)::bigint AS leased,"
			" sum(e.poisoned)::bigint AS poisoned,"
			" sum(t.done)::bigint AS done,"
			" sum(t.discarded)::bigint AS discarded, min(o.oldest) AS oldest,"
			" sum(o.waiting)::bigint AS waiting,"
			" min(o.oldest_open) AS oldest_open,"
			" sum(t.returned)::bigint AS returned"
			" FROM @handler a LEFT JOIN open o ON o.handler = a.id"
			" LEFT JOIN ended e ON e.handler = a.id"
			" LEFT JOIN tally t ON t.handler = a.id GROUP BY a.owner)"
			" SELECT h.key, coalesce($1, @now_ms()), t.pending, t.retrying,"
			" t.leased, t.poisoned, t.done, t.discarded, m.received_at,"
			" h.paused, h.paused_at, h.paused_until, h.pause_reason, "
			"h.pause_by,"
			" t.waiting, n.received_at, t.returned, " PG_HANDLER_NODES
			" FROM total t JOIN @handler h ON h.id = t.owner"
			" LEFT JOIN @message m ON m.seq = t.oldest"
			" LEFT JOIN @message n ON n.seq = t.oldest_open ORDER BY h.id",
			error);
	if (r == POSTERN_OK && !copy_handlers(&query, work)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

static bool copy_keys(const struct pg_query *query, struct work *work) {
	int count = postern__pg_rows(query);
	struct postern_key_stats *stats = postern_memory_alloc(work->memory,
			(size_t)count * sizeof(struct postern_key_stats));
	bool ok = stats;
	for (int row = 0; ok && row < count; row++) {
		ok = postern__pg_get_text(query, row, 0, work->memory,
					 &stats[row].key) &&
			 postern__pg_get_text(query, row, 1, work->memory,
					 &stats[row].handler);
	}
	work->stats.keys = stats;
	work->stats.key_count = (size_t)count;
	return ok;
}

static int list_keys(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"SELECT k.key, o.key FROM @handler_key k"
			" JOIN @handler h ON h.id = k.handler"
			" JOIN @handler o ON o.id = h.owner ORDER BY k.key",
			error);
	if (r == POSTERN_OK && !copy_keys(&query, work)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

static bool copy_names(const struct pg_query *query, struct work *work) {
	int count = postern__pg_rows(query);
	struct postern_name_stats *stats = postern_memory_alloc(work->memory,
			(size_t)count * sizeof(struct postern_name_stats));
	bool ok = stats;
	for (int row = 0; ok && row < count; row++) {
		ok = postern__pg_get_text(query, row, 0, work->memory,
					 &stats[row].name) &&
			 postern__pg_get_text(query, row, 1, work->memory,
					 &stats[row].channel);
	}
	work->stats.names = stats;
	work->stats.name_count = (size_t)count;
	return ok;
}

static int list_names(struct pg_connection *connection, struct work *work,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"SELECT n.name, c.name FROM @channel_name n"
			" JOIN @channel c ON c.id = n.channel ORDER BY n.name",
			error);
	if (r == POSTERN_OK && !copy_names(&query, work)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

static int count(struct pg_connection *connection, void *context, bool again,
		struct postern_error *error) {
	struct work *work = context;
	(void)again;
	int r = postern__pg_begin_read(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = count_channels(connection, work, error);
	if (r == POSTERN_OK) {
		r = count_handlers(connection, work, error);
	}
	if (r == POSTERN_OK) {
		r = list_keys(connection, work, error);
	}
	if (r == POSTERN_OK) {
		r = list_names(connection, work, error);
	}
	if (r == POSTERN_OK) {
		r = postern__pg_node_stats(connection, work->memory, &work->stats,
				error);
	}
	return postern__pg_finish(connection, r, error);
}

int postern__pg_stats(struct postern_store *store,
		struct postern_memory *memory, struct postern_stats *out,
		struct postern_error *error) {
	struct work work = {
		.memory = memory,
		.stats = { .store = store->ops->name },
	};
	int r = postern__pg_do(postern__pg_from_base(store), count, &work, error);
	if (r == POSTERN_OK) {
		*out = work.stats;
	}
	return r;
}

struct stranded_work {
	size_t max;
	struct postern_memory *memory;
	struct postern_stranded *items;
	size_t count;
};

static bool copy_stranded(const struct pg_query *query,
		struct stranded_work *work) {
	int count = postern__pg_rows(query);
	struct postern_stranded *items = postern_memory_alloc(work->memory,
			(size_t)count * sizeof(struct postern_stranded));
	bool ok = items;
	for (int row = 0; ok && row < count; row++) {
		items[row].channel = postern__pg_get(query, row, 0);
		items[row].count = (uint64_t)postern__pg_get(query, row, 2);
		ok = postern__pg_get_text(query, row, 1, work->memory,
				&items[row].name);
	}
	work->items = items;
	work->count = (size_t)count;
	return ok;
}

static int count_stranded(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct stranded_work *work = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_now(&query);
	postern__pg_int8(&query, (int64_t)work->max);
	int r = postern__pg_run(&query,
			"SELECT c.id, c.name, count(*) FROM @staged s"
			" JOIN @channel c ON c.id = s.channel WHERE s.refused IS NULL"
			" AND s.channel <> ALL (ARRAY(" PG_SERVED_CHANNELS "))"
			" GROUP BY c.id, c.name ORDER BY c.id LIMIT $2",
			error);
	if (r == POSTERN_OK && !copy_stranded(&query, work)) {
		r = postern__pg_no_memory(error);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_stranded(struct postern_store *store, size_t max,
		struct postern_memory *memory, struct postern_stranded **out,
		size_t *count_out, struct postern_error *error) {
	struct stranded_work work = { .max = max, .memory = memory };
	int r = postern__pg_do(postern__pg_from_base(store), count_stranded, &work,
			error);
	if (r == POSTERN_OK) {
		*out = work.items;
		*count_out = work.count;
	}
	return r;
}
