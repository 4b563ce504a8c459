/* SPDX-License-Identifier: MIT */

/*
 * The collector of staged messages as a target. The staging table is an array
 * beside a store in memory, which accepts and removes under one mutex; that of
 * PostgreSQL is tested with the server.
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <postern/sys/memory.h>

#include "conformance/source_target.h"
#include "tap.h"

#define MESSAGE_MAX 4000
#define ID_MAX 32

enum staged_state { STAGED, COLLECTED, REFUSED };

static struct {
	pthread_mutex_t mutex;
	char ids[MESSAGE_MAX][ID_MAX];
	enum staged_state states[MESSAGE_MAX];
	size_t count;
} table;

static void open_table(void) {
	memset(&table, 0, sizeof table);
	(void)pthread_mutex_init(&table.mutex, NULL);
}

static void close_table(void) {
	(void)pthread_mutex_destroy(&table.mutex);
}

static void put(const char *id) {
	(void)pthread_mutex_lock(&table.mutex);
	(void)snprintf(table.ids[table.count++], ID_MAX, "%s", id);
	(void)pthread_mutex_unlock(&table.mutex);
}

static void put_bad(void) {
	put("");
}

static size_t acknowledged(bool exists) {
	(void)exists;
	size_t count = 0;
	(void)pthread_mutex_lock(&table.mutex);
	for (size_t i = 0; i < table.count; i++) {
		count += table.states[i] != STAGED;
	}
	(void)pthread_mutex_unlock(&table.mutex);
	return count;
}

/* With the mutex: have one message routed. */
static int place(struct postern_collection *collection, size_t index) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = table.ids[index],
		.source = "test",
		.type = "t",
		.body = table.ids[index],
		.body_len = strlen(table.ids[index]),
	};
	return collection->place(collection->context, collection->channels[0],
			&message, &collection->accepts[collection->accept_count], NULL);
}

static int collect_placed(struct postern_store *inner,
		struct postern_collection *collection, const size_t *indices,
		struct postern_error *error) {
	struct postern_batch batch = {
		.node = collection->node,
		.lock = collection->lock,
		.accepts = collection->accepts,
		.accept_count = collection->accept_count,
	};
	int r = collection->accept_count > 0
					? inner->ops->apply(inner, &batch, error)
					: POSTERN_OK;
	for (size_t i = 0; !r && i < collection->accept_count; i++) {
		table.states[indices[i]] = COLLECTED;
	}
	return r;
}

static int collect(struct postern_store *inner,
		struct postern_collection *collection, struct postern_memory *memory,
		struct postern_error *error) {
	size_t indices[MESSAGE_MAX];
	collection->accepts = postern_memory_alloc(memory,
			collection->max * sizeof *collection->accepts);
	(void)pthread_mutex_lock(&table.mutex);
	for (size_t i = 0; i < table.count; i++) {
		if (table.states[i] != STAGED) {
			continue;
		}
		/* A few at a time, so that a stop comes in the middle. */
		if (collection->accept_count == 20) {
			collection->more = true;
			break;
		}
		if (place(collection, i)) {
			table.states[i] = REFUSED;
			collection->refused++;
			continue;
		}
		indices[collection->accept_count++] = i;
	}
	int r = collect_placed(inner, collection, indices, error);
	(void)pthread_mutex_unlock(&table.mutex);
	return r;
}

const struct source_target source_target = {
	.name = "staged",
	.open = open_table,
	.close = close_table,
	.collect = collect,
	.put = put,
	.put_bad = put_bad,
	.acknowledged = acknowledged,
};
