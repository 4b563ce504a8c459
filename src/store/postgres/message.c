/* SPDX-License-Identifier: MIT */

/*
 * Messages: their keys, their numbers, and reading them from the table.
 *
 * Numbers are allocated in blocks, so that a process knows the numbers of its
 * messages before it writes them, and finds them again after the connection was
 * lost. A block is used for a short time only: numbers are roughly in the order
 * of time.
 */

#include <postern/sys/clock.h>
#include <string.h>

#include "base/fail.h"
#include "base/headers.h"
#include "base/memory.h"
#include "store/postgres/postgres.h"

/* The increment of message_seq in the schema. */
#define SEQ_BLOCK 1000
#define SEQ_BLOCK_MS 1000

int64_t postern__pg_id_word(const struct pg_store *self, const char *id) {
	uint8_t first[POSTERN__KEY_LEN];
	uint8_t last[POSTERN__KEY_LEN];
	postern__key_range(self->hash_key, id, first, last);
	return postern__key_word(first, 0);
}

void postern__pg_key(const struct pg_store *self, int64_t channel,
		const struct postern_dedupe_key *key, struct pg_key *out) {
	uint8_t bytes[POSTERN__KEY_LEN];
	postern__key_hash(self->hash_key, channel, key, bytes);
	for (size_t i = 0; i < 3; i++) {
		out->words[i] = postern__key_word(bytes, i);
	}
}

/* The age of a block; by the test's clock, so that a test always gets the same
   numbers. */
static int64_t block_now_ms(const struct pg_store *self) {
	const struct postern_clock *clock =
			self->test_clock ? self->test_clock : self->clock;
	return clock->monotonic_ms(clock->context);
}

/* Allocates up to `count` numbers from the current block; returns how many. */
static size_t allocate_from_block(struct pg_store *self, size_t count,
		int64_t *out) {
	int64_t now = block_now_ms(self);
	size_t allocated = 0;
	(void)pthread_mutex_lock(&self->mutex);
	while (allocated < count && now < self->seq_until_ms &&
			self->next_seq < self->seq_end) {
		out[allocated++] = self->next_seq++;
	}
	(void)pthread_mutex_unlock(&self->mutex);
	return allocated;
}

static int allocate_block(struct pg_connection *connection,
		struct postern_error *error) {
	struct pg_store *self = connection->store;
	struct pg_query query;
	postern__pg_query(&query, connection);
	int r = postern__pg_run(&query, "SELECT nextval('@message_seq')", error);
	if (r == POSTERN_OK) {
		int64_t first = postern__pg_get(&query, 0, 0);
		int64_t now = block_now_ms(self);
		(void)pthread_mutex_lock(&self->mutex);
		/* Another thread may have allocated a later block meanwhile. */
		if (first > self->next_seq) {
			self->next_seq = first;
			self->seq_end = first + SEQ_BLOCK;
			self->seq_until_ms = now + SEQ_BLOCK_MS;
		}
		(void)pthread_mutex_unlock(&self->mutex);
	}
	postern__pg_end(&query);
	return r;
}

int postern__pg_allocate_seqs(struct pg_connection *connection, size_t count,
		int64_t *out, struct postern_error *error) {
	int r = POSTERN_OK;
	size_t allocated = allocate_from_block(connection->store, count, out);
	while (r == POSTERN_OK && allocated < count) {
		r = allocate_block(connection, error);
		allocated += allocate_from_block(connection->store, count - allocated,
				out + allocated);
	}
	return r;
}

int postern__pg_message_read(const struct pg_query *query, int row, int column,
		struct postern_memory *memory, struct postern_message *out,
		struct postern_error *error) {
	struct postern_message message = { .size = sizeof message };
	const char **const texts[] = { &message.id, &message.source, &message.type,
		&message.subject, &message.time, &message.content_type,
		&message.correlation_id, &message.traceparent, &message.transport };
	size_t text_count = sizeof texts / sizeof texts[0];
	for (size_t i = 0; i < text_count; i++, column++) {
		if (!postern__pg_get_text(query, row, column, memory, texts[i])) {
			return postern__pg_no_memory(error);
		}
	}
	message.transport = message.transport ? message.transport : "api";

	struct postern_header *headers;
	size_t len;
	const void *bytes = postern__pg_get_bytes(query, row, column, &len);
	int r = postern__headers_unpack(bytes, len, POSTERN_HEADER_COUNT_MAX,
			postern__memory_arena(memory), &headers, &message.header_count,
			error);
	if (r != POSTERN_OK) {
		return r;
	}
	message.headers = headers;

	bytes = postern__pg_get_bytes(query, row, column + 1, &message.body_len);
	message.body = postern_memory_copy(memory, bytes, message.body_len);
	if (!message.body) {
		return postern__pg_no_memory(error);
	}
	message.received_at_ms = postern__pg_get(query, row, column + 2);
	*out = message;
	return POSTERN_OK;
}
