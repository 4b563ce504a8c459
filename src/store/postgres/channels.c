/* SPDX-License-Identifier: MIT */

/*
 * The names of channels, and the retention that each had when it was last
 * enrolled.
 */

#include "base/fail.h"
#include "store/common.h"
#include "store/postgres/postgres.h"

static int channel_find(void *context, const char *name, int64_t *id_out,
		struct postern_error *error) {
	struct pg_connection *connection = context;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	int r = postern__pg_run(&query,
			"SELECT channel FROM @channel_name WHERE name = $1", error);
	if (r == POSTERN_OK && postern__pg_rows(&query) > 0) {
		*id_out = postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r;
}

static int channel_add_name(void *context, int64_t id, const char *name,
		struct postern_error *error) {
	struct pg_connection *connection = context;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	postern__pg_int4(&query, id);
	int r = postern__pg_run(&query,
			"INSERT INTO @channel_name (name, channel) VALUES ($1, $2)", error);
	postern__pg_end(&query);
	return r;
}

static int channel_create(void *context, const char *name, int64_t *id_out,
		struct postern_error *error) {
	struct pg_connection *connection = context;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_text(&query, name);
	int r = postern__pg_run(&query,
			"WITH made AS (INSERT INTO @channel (name, max_size) VALUES ($1, 0)"
			" RETURNING id) SELECT id FROM made",
			error);
	if (r == POSTERN_OK) {
		*id_out = postern__pg_get(&query, 0, 0);
	}
	postern__pg_end(&query);
	return r == POSTERN_OK ? channel_add_name(connection, *id_out, name, error)
						   : r;
}

static int channel_rename(void *context, int64_t id, const char *name,
		const char *from, struct postern_error *error) {
	struct pg_connection *connection = context;
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int4(&query, id);
	postern__pg_text(&query, name);
	postern__pg_text(&query, from);
	int r = postern__pg_run(&query,
			"UPDATE @channel SET first_name = coalesce(first_name, name),"
			" name = $2 WHERE id = $1 AND name = coalesce($3, name)",
			error);
	postern__pg_end(&query);
	return r;
}

static const struct postern__channel_namer namer = {
	.find = channel_find,
	.create = channel_create,
	.add = channel_add_name,
	.rename = channel_rename,
};

static void add_ms(struct pg_query *query, int64_t ms) {
	if (ms > 0) {
		postern__pg_int8(query, ms);
	} else {
		postern__pg_null(query, PG_INT8);
	}
}

/* The last node to enrol a channel sets its limit of a message's size and its
   retention. */
static int write_settings(struct pg_connection *connection,
		const struct postern_enrol_channel *channel,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int4(&query, channel->id);
	postern__pg_int8(&query, (int64_t)channel->max_size);
	add_ms(&query, channel->retention.payload_ms);
	add_ms(&query, channel->retention.dedupe_ms);
	int r = postern__pg_run(&query,
			"UPDATE @channel SET max_size = $2, payload_ms = $3, dedupe_ms = $4"
			" WHERE id = $1 AND (max_size, payload_ms, dedupe_ms)"
			" IS DISTINCT FROM ($2, $3, $4)",
			error);
	postern__pg_end(&query);
	return r;
}

static int read_first_name(struct pg_connection *connection,
		struct postern_enrol_channel *channel, struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	postern__pg_int4(&query, channel->id);
	int r = postern__pg_run(&query,
			"SELECT coalesce(first_name, name) FROM @channel WHERE id = $1",
			error);
	if (r == POSTERN_OK) {
		size_t len; /* a text ends with a zero byte */
		postern__channel_set_first(channel,
				postern__pg_get_bytes(&query, 0, 0, &len));
	}
	postern__pg_end(&query);
	return r == POSTERN_OK ? postern__pg_note_channel(connection->store,
									 channel->id, channel->first_name, error)
						   : r;
}

int postern__pg_enrol_channel(struct pg_connection *connection,
		struct postern_enrol_channel *channel, struct postern_error *error) {
	int r = postern__channel_resolve(channel, &namer, connection, error);
	if (r == POSTERN_OK) {
		r = write_settings(connection, channel, error);
	}
	return r == POSTERN_OK ? read_first_name(connection, channel, error) : r;
}

struct rules {
	struct postern_memory *memory;
	struct postern_retention *items;
	size_t count;
};

static int read_rules(struct pg_connection *connection, void *context,
		bool again, struct postern_error *error) {
	struct rules *rules = context;
	(void)again;
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"SELECT id, payload_ms, coalesce(dedupe_ms, -1) FROM @channel"
			" WHERE payload_ms > 0 ORDER BY id",
			error);
	size_t count = r == POSTERN_OK ? (size_t)postern__pg_rows(&query) : 0;
	rules->items = postern_memory_alloc(rules->memory,
			(count + 1) * sizeof *rules->items);
	if (r == POSTERN_OK && !rules->items) {
		r = postern__pg_no_memory(error);
	}
	for (size_t i = 0; r == POSTERN_OK && rules->items && i < count; i++) {
		rules->items[i] = (struct postern_retention){
			.channel = postern__pg_get(&query, (int)i, 0),
			.payload_ms = postern__pg_get(&query, (int)i, 1),
			.dedupe_ms = postern__pg_get(&query, (int)i, 2),
		};
	}
	rules->count = count;
	postern__pg_end(&query);
	return r;
}

int postern__pg_read_retention(struct postern_store *store,
		struct postern_memory *memory, struct postern_retention **out,
		size_t *count_out, struct postern_error *error) {
	struct rules rules = { .memory = memory };
	int r = postern__pg_do(postern__pg_from_base(store), read_rules, &rules,
			error);
	*out = rules.items;
	*count_out = rules.count;
	return r;
}
