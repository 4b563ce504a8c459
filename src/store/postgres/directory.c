/* SPDX-License-Identifier: MIT */

/*
 * Enrolled channels and handlers: the first names of channels and the ids of
 * handlers as they are stored. Neither ever changes, so this cache is valid
 * whatever other processes do; what they have added is loaded when an unknown
 * id is requested.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/postgres/postgres.h"

/* Ids are assigned one by one; a database with higher ones has been tampered
   with. */
#define ID_MAX 1000000

/* Grow the array to hold this id; returns NULL if out of memory. */
static void *reserve_id(void *items, size_t *count, int64_t id, size_t size) {
	if ((size_t)id < *count) {
		return items;
	}
	size_t want = ((size_t)id + 1) * 2;
	char *grown = realloc(items, want * size);
	if (grown) {
		memset(grown + *count * size, 0, (want - *count) * size);
		*count = want;
	}
	return grown;
}

static int check_id(int64_t id, struct postern_error *error) {
	return id > 0 && id <= ID_MAX ? POSTERN_OK
								  : postern__fail(error, POSTERN_E_CORRUPT,
											"the database has a channel or "
											"handler with invalid id %lld",
											(long long)id);
}

int postern__pg_note_channel(struct pg_store *self, int64_t id,
		const char *name, struct postern_error *error) {
	int r = check_id(id, error);
	if (r != POSTERN_OK) {
		return r;
	}
	(void)pthread_mutex_lock(&self->mutex);
	char **channels = reserve_id(self->channels, &self->channel_count, id,
			sizeof *channels);
	if (channels) {
		self->channels = channels;
		if (!channels[id]) {
			channels[id] = strdup(name);
		}
	}
	if (!channels || !channels[id]) {
		r = postern__pg_no_memory(error);
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

int postern__pg_note_handler(struct pg_store *self, int64_t id,
		struct postern_error *error) {
	int r = check_id(id, error);
	if (r != POSTERN_OK) {
		return r;
	}
	(void)pthread_mutex_lock(&self->mutex);
	bool *handlers = reserve_id(self->handlers, &self->handler_count, id,
			sizeof *handlers);
	if (handlers) {
		self->handlers = handlers;
		handlers[id] = true;
	} else {
		r = postern__pg_no_memory(error);
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return r;
}

const char *postern__pg_channel(struct pg_store *self, int64_t id) {
	const char *name = NULL;
	(void)pthread_mutex_lock(&self->mutex);
	if (id > 0 && (size_t)id < self->channel_count) {
		name = self->channels[id];
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return name;
}

bool postern__pg_handler(struct pg_store *self, int64_t id) {
	(void)pthread_mutex_lock(&self->mutex);
	bool known =
			id > 0 && (size_t)id < self->handler_count && self->handlers[id];
	(void)pthread_mutex_unlock(&self->mutex);
	return known;
}

static int load_channels(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query,
			"SELECT id, coalesce(first_name, name)"
			" FROM @channel",
			error);
	for (int row = 0; r == POSTERN_OK && row < postern__pg_rows(&query);
			row++) {
		size_t len;
		r = postern__pg_note_channel(connection->store,
				postern__pg_get(&query, row, 0),
				postern__pg_get_bytes(&query, row, 1, &len), error);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_directory_load(struct pg_connection *connection,
		struct postern_error *error) {
	int r = load_channels(connection, error);
	if (r != POSTERN_OK) {
		return r;
	}
	struct pg_query query;
	postern__pg_query(&query, connection);
	r = postern__pg_run(&query, "SELECT id FROM @handler", error);
	for (int row = 0; r == POSTERN_OK && row < postern__pg_rows(&query);
			row++) {
		r = postern__pg_note_handler(connection->store,
				postern__pg_get(&query, row, 0), error);
	}
	postern__pg_end(&query);
	return r;
}

void postern__pg_directory_finish(struct pg_store *self) {
	for (size_t i = 0; i < self->channel_count; i++) {
		free(self->channels[i]);
	}
	free(self->channels);
	free(self->handlers);
}
