/* SPDX-License-Identifier: MIT */

/*
 * Messages of the memory store: an array by seq. Cleanup replaces a message by
 * its remembered id and removes that later.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "store/memory.h"

/* The text members of a message, so that code for all of them is written
   once. */
static const size_t text_offsets[] = {
	offsetof(struct postern_message, id),
	offsetof(struct postern_message, source),
	offsetof(struct postern_message, type),
	offsetof(struct postern_message, subject),
	offsetof(struct postern_message, time),
	offsetof(struct postern_message, content_type),
	offsetof(struct postern_message, correlation_id),
	offsetof(struct postern_message, traceparent),
	offsetof(struct postern_message, transport),
};
#define TEXT_COUNT (sizeof text_offsets / sizeof text_offsets[0])

static const char **text_at(struct postern_message *data, size_t index) {
	return (const char **)(void *)((char *)data + text_offsets[index]);
}

static size_t text_len(const char *text) {
	return text ? strlen(text) + 1 : 0;
}

static const char *text_copy_to(char **place, const char *text) {
	if (!text) {
		return NULL;
	}
	size_t len = strlen(text) + 1;
	char *copy = memcpy(*place, text, len);
	*place += len;
	return copy;
}

static size_t packed_len(struct postern_message *data) {
	size_t len = sizeof(struct memory_message) + data->body_len +
				 data->header_count * sizeof(struct postern_header);
	for (size_t i = 0; i < TEXT_COUNT; i++) {
		len += text_len(*text_at(data, i));
	}
	for (size_t i = 0; i < data->header_count; i++) {
		len += text_len(data->headers[i].name) +
			   text_len(data->headers[i].value);
	}
	return len;
}

struct memory_message *postern__mem_message_create(
		const struct postern_message *data) {
	struct postern_message copy = *data;
	copy.size = sizeof copy;
	copy.transport = data->transport ? data->transport : "api";

	size_t bytes = packed_len(&copy);
	struct memory_message *message = calloc(1, bytes);
	if (!message) {
		return NULL;
	}
	postern__list_init(&message->deliveries);
	postern__list_init(&message->conflicts);
	message->bytes = bytes;

	/* Headers come first, because they need alignment. */
	struct postern_header *headers = (struct postern_header *)(message + 1);
	char *place = (char *)(headers + copy.header_count);
	for (size_t i = 0; i < copy.header_count; i++) {
		headers[i].name = text_copy_to(&place, copy.headers[i].name);
		headers[i].value = text_copy_to(&place, copy.headers[i].value);
	}
	for (size_t i = 0; i < TEXT_COUNT; i++) {
		*text_at(&copy, i) = text_copy_to(&place, *text_at(&copy, i));
	}
	if (copy.body_len > 0) {
		copy.body = memcpy(place, copy.body, copy.body_len);
	} else {
		copy.body = place;
	}
	copy.headers = copy.header_count > 0 ? headers : NULL;
	message->data = copy;
	return message;
}

void postern__mem_message_destroy(struct memory_message *message) {
	if (!message) {
		return;
	}
	postern__list_each(item, &message->conflicts) {
		free(container_of(item, struct memory_conflict, link));
	}
	postern__list_each(item, &message->deliveries) {
		postern__mem_delivery_destroy(
				container_of(item, struct memory_delivery, of_message));
	}
	postern__mem_keys_destroy(message->handler_keys);
	free(message);
}

struct memory_message *
postern__mem_message_find(const struct memory_store *self,
		const uint8_t key[POSTERN__KEY_LEN]) {
	const struct memory_key *known = postern__mem_key_find(self, key);
	return known ? self->messages[known->seq - 1] : NULL;
}

bool postern__mem_messages_reserve(struct memory_store *self, size_t count) {
	size_t need = self->message_count + count;
	if (need > self->message_cap) {
		size_t cap =
				need > 2 * self->message_cap ? need : 2 * self->message_cap;
		void *messages =
				realloc(self->messages, cap * sizeof(struct memory_message *));
		if (!messages) {
			return false;
		}
		self->messages = messages;
		self->message_cap = cap;
	}
	return true;
}

void postern__mem_message_add(struct memory_store *self,
		struct memory_message *message, int64_t channel,
		const uint8_t key[POSTERN__KEY_LEN]) {
	assert(self->message_count < self->message_cap);
	self->messages[self->message_count] = message;
	self->message_count++;
	message->seq = (int64_t)self->message_count;
	message->channel = channel;
	message->key.seq = message->seq;
	memcpy(message->key.bytes, key, sizeof message->key.bytes);
	postern__mem_key_insert(self, &message->key);
	self->bytes += message->bytes;
}

struct memory_message *postern__mem_message_get(const struct memory_store *self,
		int64_t seq) {
	struct memory_message *message =
			seq >= 1 && (uint64_t)seq <= self->message_count
					? self->messages[seq - 1]
					: NULL;
	return message && !message->removed ? message : NULL;
}

bool postern__mem_message_remove(struct memory_store *self,
		struct memory_message *message) {
	struct postern_message left = {
		.size = sizeof left,
		.id = message->data.id,
		.source = message->data.source,
		.type = "",
		.received_at_ms = message->data.received_at_ms,
	};
	struct memory_message *remembered = postern__mem_message_create(&left);
	if (!remembered) {
		return false;
	}
	remembered->removed = true;
	remembered->seq = message->seq;
	remembered->channel = message->channel;
	remembered->key = message->key;
	remembered->handler_keys = message->handler_keys;
	message->handler_keys = NULL; /* its new owner has them */
	postern__body_digest(self->hash_key, &message->data, remembered->digest);
	postern__list_each(item, &message->deliveries) {
		postern__mem_delivery_remove(self,
				container_of(item, struct memory_delivery, of_message));
	}
	postern__list_each(item, &message->conflicts) {
		self->bytes -= container_of(item, struct memory_conflict, link)->bytes;
	}
	postern__mem_key_remove(self, &message->key);
	postern__mem_key_insert(self, &remembered->key);
	self->messages[message->seq - 1] = remembered;
	self->bytes += remembered->bytes;
	self->bytes -= message->bytes;
	postern__mem_message_destroy(message);
	return true;
}

void postern__mem_remembered_remove(struct memory_store *self,
		struct memory_message *message) {
	postern__mem_key_remove(self, &message->key);
	message->forgotten = true;
}

void postern__mem_remembered_trim(struct memory_store *self,
		struct memory_message *message) {
	if (!message->forgotten || message->handler_keys) {
		return;
	}
	self->messages[message->seq - 1] = NULL;
	self->bytes -= message->bytes;
	postern__list_each(item, &message->conflicts) {
		self->bytes -= container_of(item, struct memory_conflict, link)->bytes;
	}
	postern__mem_message_destroy(message);
}

bool postern__mem_message_same_body(const struct memory_store *self,
		const struct memory_message *message,
		const struct postern_message *other) {
	if (message->removed) {
		uint8_t of_other[POSTERN__DIGEST_LEN];
		postern__body_digest(self->hash_key, other, of_other);
		return memcmp(message->digest, of_other, sizeof of_other) == 0;
	}
	const struct postern_message *data = &message->data;
	return data->body_len == other->body_len &&
		   (data->body_len == 0 ||
				   memcmp(data->body, other->body, data->body_len) == 0);
}

bool postern__mem_message_export(const struct memory_message *message,
		struct postern_memory *memory, struct postern_message *out) {
	struct postern_message copy = message->data;
	for (size_t i = 0; i < TEXT_COUNT; i++) {
		const char **text = text_at(&copy, i);
		if (*text && !(*text = postern_memory_text(memory, *text))) {
			return false;
		}
	}
	copy.body = postern_memory_copy(memory, copy.body, copy.body_len);
	struct postern_header *headers = postern_memory_alloc(memory,
			copy.header_count * sizeof(struct postern_header));
	if (!copy.body || !headers) {
		return false;
	}
	for (size_t i = 0; i < copy.header_count; i++) {
		headers[i].name = postern_memory_text(memory, copy.headers[i].name);
		headers[i].value = postern_memory_text(memory, copy.headers[i].value);
		if (!headers[i].name || !headers[i].value) {
			return false;
		}
	}
	copy.headers = copy.header_count > 0 ? headers : NULL;
	*out = copy;
	return true;
}

void postern__mem_messages_finish(struct memory_store *self) {
	for (size_t i = 0; i < self->message_count; i++) {
		postern__mem_message_destroy(self->messages[i]);
	}
	free(self->messages);
	free(self->buckets);
}
