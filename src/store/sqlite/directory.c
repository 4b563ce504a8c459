/* SPDX-License-Identifier: MIT */

/*
 * Channels and handlers with their counts, in memory.
 *
 * Stored ids are 1, 2, 3, …: rows are never removed, so the ids index an array.
 * The changes that a transaction makes to the counts are collected here, for
 * any number of deliveries, and written as one row per changed handler and
 * channel.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/sqlite/sqlite.h"

static int ids_damaged_fail(const struct sqlite_store *self,
		struct postern_error *error) {
	return postern__fail(error, POSTERN_E_CORRUPT,
			"'%s' is damaged: the ids of channels or handlers have gaps",
			self->file.path);
}

void postern__sqlite_directory_unload(struct sqlite_store *self) {
	for (size_t i = 1; i <= self->channel_count; i++) {
		free(self->channels[i].first_name);
	}
	free(self->channels);
	free(self->handlers);
	self->channels = NULL;
	self->handlers = NULL;
	self->channel_count = 0;
	self->handler_count = 0;
}

static int load_channels(struct sqlite_store *self,
		struct postern_error *error) {
	int64_t count;
	int r = postern__sqlite_number(&self->writer,
			"SELECT count(*) FROM postern_channel", &count, error);
	if (r != POSTERN_OK) {
		return r;
	}
	self->channels = calloc((size_t)count + 1, sizeof *self->channels);
	if (!self->channels) {
		return postern__sqlite_no_memory(error);
	}
	bool memory = true;
	bool dense = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT id, coalesce(first_name, name), closed FROM postern_channel"
			" ORDER BY id");
	while (memory && dense && postern__sqlite_row(&query)) {
		size_t index = self->channel_count + 1;
		dense = postern__sqlite_int(&query, 0) == (int64_t)index &&
				(int64_t)index <= count;
		const char *name =
				(const char *)sqlite3_column_text(query.statement, 1);
		if (dense) {
			self->channels[index].first_name = name ? strdup(name) : NULL;
			self->channels[index].closed = postern__sqlite_int(&query, 2) != 0;
			self->channel_count++;
			memory = self->channels[index].first_name;
		}
	}
	r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK && !dense) {
		r = ids_damaged_fail(self, error);
	} else if (r == POSTERN_OK && !memory) {
		r = postern__sqlite_no_memory(error);
	}
	return r;
}

static void read_handler(const struct sqlite_query *query,
		struct sqlite_handler *handler) {
	*handler = (struct sqlite_handler){
		.owner = postern__sqlite_int(query, 1),
		.pause = {
			.on = postern__sqlite_int(query, 2) != 0,
			.at_ms = postern__sqlite_int(query, 11),
			.until_ms = postern__sqlite_int(query, 12),
		},
		.in_process = postern__sqlite_int(query, 3) != 0,
		.max_crashes = (uint32_t)postern__sqlite_int(query, 4),
		.counts = {
			.pending = postern__sqlite_int(query, 5),
			.retrying = postern__sqlite_int(query, 6),
			.leased = postern__sqlite_int(query, 7),
			.poisoned = postern__sqlite_int(query, 8),
			.done = postern__sqlite_int(query, 9),
			.discarded = postern__sqlite_int(query, 10),
		},
	};
}

static void chain_ids(struct sqlite_store *self) {
	for (size_t id = self->handler_count; id > 0; id--) {
		struct sqlite_handler *handler = &self->handlers[id];
		if (handler->owner != (int64_t)id) {
			struct sqlite_handler *owner = &self->handlers[handler->owner];
			handler->next_id = owner->next_id;
			owner->next_id = (int64_t)id;
		}
	}
}

static int load_handlers(struct sqlite_store *self,
		struct postern_error *error) {
	int64_t count;
	int r = postern__sqlite_number(&self->writer,
			"SELECT count(*) FROM postern_handler", &count, error);
	if (r != POSTERN_OK) {
		return r;
	}
	self->handlers = calloc((size_t)count + 1, sizeof *self->handlers);
	if (!self->handlers) {
		return postern__sqlite_no_memory(error);
	}
	bool dense = true;
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"SELECT id, owner, paused, in_process, max_crashes, pending,"
			" retrying, leased, poisoned, done, discarded, paused_at,"
			" paused_until FROM postern_handler ORDER BY id");
	while (dense && postern__sqlite_row(&query)) {
		size_t index = self->handler_count + 1;
		int64_t owner = postern__sqlite_int(&query, 1);
		dense = postern__sqlite_int(&query, 0) == (int64_t)index &&
				(int64_t)index <= count && owner >= 1 && owner <= count;
		if (dense) {
			read_handler(&query, &self->handlers[index]);
			self->handler_count++;
		}
	}
	r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK && dense) {
		chain_ids(self);
	}
	return r == POSTERN_OK && !dense ? ids_damaged_fail(self, error) : r;
}

int postern__sqlite_directory_load(struct sqlite_store *self,
		struct postern_error *error) {
	postern__sqlite_directory_unload(self);
	int64_t last_seq;
	int r = postern__sqlite_number(&self->writer,
			"SELECT max("
			"coalesce((SELECT max(seq) FROM postern_message), 0),"
			"(SELECT value FROM postern_meta WHERE name = 'last_seq'))",
			&last_seq, error);
	if (r == POSTERN_OK) {
		self->next_seq = last_seq + 1;
		r = load_channels(self, error);
	}
	if (r == POSTERN_OK) {
		r = load_handlers(self, error);
	}
	return r;
}

struct sqlite_handler *postern__sqlite_handler(struct sqlite_store *self,
		int64_t id) {
	return id >= 1 && (uint64_t)id <= self->handler_count ? &self->handlers[id]
														  : NULL;
}

struct sqlite_handler *postern__sqlite_owner(struct sqlite_store *self,
		int64_t id) {
	struct sqlite_handler *handler = postern__sqlite_handler(self, id);
	return handler ? postern__sqlite_handler(self, handler->owner) : NULL;
}

bool postern__sqlite_route_repeats(struct sqlite_store *self,
		const struct postern_route *routes, size_t index) {
	const struct sqlite_handler *owner =
			postern__sqlite_owner(self, routes[index].handler);
	for (size_t i = 0; i < index; i++) {
		if (postern__sqlite_owner(self, routes[i].handler) == owner) {
			return true;
		}
	}
	return false;
}

struct sqlite_channel *postern__sqlite_channel(struct sqlite_store *self,
		int64_t id) {
	return id >= 1 && (uint64_t)id <= self->channel_count ? &self->channels[id]
														  : NULL;
}

static int write_handler(struct sqlite_store *self, size_t id,
		struct postern_error *error) {
	const struct sqlite_counts *changes = &self->handlers[id].changes;
	static const struct sqlite_counts none;
	if (memcmp(changes, &none, sizeof none) == 0) {
		return POSTERN_OK;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_handler SET pending = pending + ?2,"
			" retrying = retrying + ?3, leased = leased + ?4,"
			" poisoned = poisoned + ?5, done = done + ?6,"
			" discarded = discarded + ?7 WHERE id = ?1");
	postern__sqlite_bind_int(&query, 1, (int64_t)id);
	postern__sqlite_bind_int(&query, 2, changes->pending);
	postern__sqlite_bind_int(&query, 3, changes->retrying);
	postern__sqlite_bind_int(&query, 4, changes->leased);
	postern__sqlite_bind_int(&query, 5, changes->poisoned);
	postern__sqlite_bind_int(&query, 6, changes->done);
	postern__sqlite_bind_int(&query, 7, changes->discarded);
	return postern__sqlite_end(&query, error);
}

static int write_channel(struct sqlite_store *self, size_t id,
		struct postern_error *error) {
	const struct sqlite_channel_counts *changes = &self->channels[id].changes;
	static const struct sqlite_channel_counts none;
	if (memcmp(changes, &none, sizeof none) == 0) {
		return POSTERN_OK;
	}
	struct sqlite_query query;
	postern__sqlite_query(&query, &self->writer,
			"UPDATE postern_channel SET accepted = accepted + ?2,"
			" duplicates = duplicates + ?3, conflicts = conflicts + ?4,"
			" dropped = dropped + ?5, parked = parked + ?6 WHERE id = ?1");
	postern__sqlite_bind_int(&query, 1, (int64_t)id);
	postern__sqlite_bind_int(&query, 2, changes->accepted);
	postern__sqlite_bind_int(&query, 3, changes->duplicates);
	postern__sqlite_bind_int(&query, 4, changes->conflicts);
	postern__sqlite_bind_int(&query, 5, changes->dropped);
	postern__sqlite_bind_int(&query, 6, changes->parked);
	return postern__sqlite_end(&query, error);
}

int postern__sqlite_counts_write(struct sqlite_store *self,
		struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 1; r == POSTERN_OK && i <= self->handler_count; i++) {
		r = write_handler(self, i, error);
	}
	for (size_t i = 1; r == POSTERN_OK && i <= self->channel_count; i++) {
		r = write_channel(self, i, error);
	}
	return r;
}

void postern__sqlite_counts_end(struct sqlite_store *self, bool committed) {
	for (size_t i = 1; i <= self->handler_count; i++) {
		struct sqlite_handler *handler = &self->handlers[i];
		if (committed) {
			handler->counts.pending += handler->changes.pending;
			handler->counts.retrying += handler->changes.retrying;
			handler->counts.leased += handler->changes.leased;
			handler->counts.poisoned += handler->changes.poisoned;
			handler->counts.done += handler->changes.done;
			handler->counts.discarded += handler->changes.discarded;
		}
		handler->changes = (struct sqlite_counts){ 0 };
	}
	for (size_t i = 1; i <= self->channel_count; i++) {
		self->channels[i].changes = (struct sqlite_channel_counts){ 0 };
	}
}

void postern__sqlite_count(struct sqlite_store *self, int64_t handler,
		enum postern_state state, uint32_t failures, int n) {
	struct sqlite_handler *known = postern__sqlite_handler(self, handler);
	if (!known) {
		return; /* handler 0: a parked message that was discarded */
	}
	struct sqlite_counts *changes = &known->changes;
	switch (state) {
	case POSTERN_STATE_PENDING:
		changes->pending += n;
		changes->retrying += failures > 0 ? n : 0;
		break;
	case POSTERN_STATE_LEASED: changes->leased += n; break;
	case POSTERN_STATE_POISONED: changes->poisoned += n; break;
	/* These two count all deliveries ever ended: reopening one does not
	   subtract it. */
	case POSTERN_STATE_DONE: changes->done += n > 0 ? n : 0; break;
	case POSTERN_STATE_DISCARDED: changes->discarded += n > 0 ? n : 0; break;
	default: break;
	}
}

int postern__sqlite_resolve(struct sqlite_connection *connection,
		const char *key, int64_t *id_out, struct postern_error *error) {
	int64_t id = 0;
	struct sqlite_query query;
	postern__sqlite_query(&query, connection,
			"SELECT h.owner FROM postern_handler_key k"
			" JOIN postern_handler h ON h.id = k.handler WHERE k.key = ?1");
	postern__sqlite_bind_text(&query, 1, key);
	if (postern__sqlite_row(&query)) {
		id = postern__sqlite_int(&query, 0);
	}
	int r = postern__sqlite_end(&query, error);
	if (r == POSTERN_OK) {
		*id_out = id;
	}
	return r;
}
