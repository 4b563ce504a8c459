/* SPDX-License-Identifier: MIT */

/*
 * The names of channels, and the retention that each had when it was last
 * enrolled.
 */

#include "base/fail.h"
#include "store/common.h"
#include "store/sqlite/sqlite.h"

int postern__sqlite_channel_find(struct sqlite_store *self, const char *name,
		int64_t *id_out, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT channel FROM postern_channel_name WHERE name = ?1");
	postern__sqlite_bind_text(&query, 1, name);
	if (postern__sqlite_row(&query)) {
		*id_out = postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

static int channel_find(void *context, const char *name, int64_t *id_out,
		struct postern_error *error) {
	return postern__sqlite_channel_find(context, name, id_out, error);
}

static int channel_add_name(void *context, int64_t id, const char *name,
		struct postern_error *error) {
	struct sqlite_store *self = context;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_channel_name (name, channel) VALUES (?1, ?2)");
	postern__sqlite_bind_text(&query, 1, name);
	postern__sqlite_bind_int(&query, 2, id);
	return postern__sqlite_end(&query, error);
}

static int channel_create(void *context, const char *name, int64_t *id_out,
		struct postern_error *error) {
	struct sqlite_store *self = context;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"INSERT INTO postern_channel (name) VALUES (?1)");
	postern__sqlite_bind_text(&query, 1, name);
	int r = postern__sqlite_end(&query, error);
	if (r != POSTERN_OK) {
		return r;
	}
	*id_out = sqlite3_last_insert_rowid(self->writer.db);
	return channel_add_name(self, *id_out, name, error);
}

static int channel_rename(void *context, int64_t id, const char *name,
		const char *from, struct postern_error *error) {
	struct sqlite_store *self = context;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_channel SET first_name = coalesce(first_name, "
			"name),"
			" name = ?2 WHERE id = ?1 AND name = coalesce(?3, name)");
	postern__sqlite_bind_int(&query, 1, id);
	postern__sqlite_bind_text(&query, 2, name);
	postern__sqlite_bind_text(&query, 3, from);
	return postern__sqlite_end(&query, error);
}

static const struct postern__channel_namer namer = {
	.find = channel_find,
	.create = channel_create,
	.add = channel_add_name,
	.rename = channel_rename,
};

static void bind_ms(struct sqlite_query *query, int index, int64_t ms) {
	if (ms > 0) {
		postern__sqlite_bind_int(query, index, ms);
	} else {
		postern__sqlite_bind_null(query, index);
	}
}

static int settings_write(struct sqlite_store *self,
		const struct postern_enrol_channel *channel,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_channel SET payload_ms = ?2, dedupe_ms = ?3,"
			" max_size = ?4 WHERE id = ?1 AND (payload_ms IS NOT ?2"
			" OR dedupe_ms IS NOT ?3 OR max_size <> ?4)");
	postern__sqlite_bind_int(&query, 1, channel->id);
	bind_ms(&query, 2, channel->retention.payload_ms);
	bind_ms(&query, 3, channel->retention.dedupe_ms);
	postern__sqlite_bind_int(&query, 4, (int64_t)channel->max_size);
	return postern__sqlite_end(&query, error);
}

static int first_name_read(struct sqlite_store *self,
		struct postern_enrol_channel *channel, struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT coalesce(first_name, name) FROM postern_channel"
			" WHERE id = ?1");
	postern__sqlite_bind_int(&query, 1, channel->id);
	if (postern__sqlite_row(&query)) {
		postern__channel_set_first(channel,
				(const char *)sqlite3_column_text(query.statement, 0));
	}
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_channel_enrol(struct sqlite_store *self,
		struct postern_enrol_channel *channel, struct postern_error *error) {
	int r = postern__channel_resolve(channel, &namer, self, error);
	if (r == POSTERN_OK) {
		r = settings_write(self, channel, error);
	}
	return r == POSTERN_OK ? first_name_read(self, channel, error) : r;
}

static int count_rules(struct sqlite_store *self, size_t *out,
		struct postern_error *error) {
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT count(*) FROM postern_channel WHERE payload_ms > 0");
	if (postern__sqlite_row(&query)) {
		*out = (size_t)postern__sqlite_int(&query, 0);
	}
	return postern__sqlite_end(&query, error);
}

static int read_rules(struct sqlite_store *self, struct postern_memory *memory,
		struct postern_retention **out, size_t *count_out,
		struct postern_error *error) {
	size_t room = 0;
	size_t count = 0;
	int r = count_rules(self, &room, error);
	struct postern_retention *rules =
			postern_memory_alloc(memory, (room + 1) * sizeof *rules);
	if (r != POSTERN_OK || !rules) {
		return r != POSTERN_OK ? r : postern__sqlite_no_memory(error);
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->reader,
			"SELECT id, payload_ms, coalesce(dedupe_ms, -1)"
			" FROM postern_channel WHERE payload_ms > 0 ORDER BY id");
	while (count < room && postern__sqlite_row(&query)) {
		rules[count++] = (struct postern_retention){
			.channel = postern__sqlite_int(&query, 0),
			.payload_ms = postern__sqlite_int(&query, 1),
			.dedupe_ms = postern__sqlite_int(&query, 2),
		};
	}
	r = postern__sqlite_end(&query, error);
	*out = rules;
	*count_out = count;
	return r;
}

int postern__sqlite_read_retention(struct postern_store *store,
		struct postern_memory *memory, struct postern_retention **out,
		size_t *count_out, struct postern_error *error) {
	struct sqlite_store *self = postern__sqlite_from_base(store);
	int r = postern__sqlite_read_begin(self, error);
	if (r != POSTERN_OK) {
		return r;
	}
	r = read_rules(self, memory, out, count_out, error);
	postern__sqlite_read_end(self);
	return r;
}
