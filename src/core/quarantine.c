/* SPDX-License-Identifier: MIT */
/*
 * Quarantine: a message that can never be accepted is kept as a message of its
 * own, so that its transport can forget it and a person can examine it. It has
 * an id of its own, made of its content, so that a copy of it is a duplicate,
 * and a poisoned delivery for each handler that wants its type (for each one,
 * if none does), with the reason. No handler runs until an operator retries
 * one of them.
 *
 * What cannot be stored as it was is cleaned or cut. The id and the time it had
 * are headers, and so is the reason, which the deliveries refer to.
 */

#include "core/quarantine.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/siphash.h"
#include "base/text.h"
#include "base/time.h"
#include "base/utf8.h"
#include "core/accept.h"
#include "core/box.h"
#include "core/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The headers that are added: reason, id, time. */
#define ADDED_COUNT 3
#define ADDED_BYTES_MAX 4096
#define ID_PREFIX "quarantine:"

struct kept {
	struct postern__arena arena;
	struct postern_message message;
	struct postern_header headers[POSTERN_HEADER_COUNT_MAX];
	char id[sizeof ID_PREFIX + (size_t)2 * POSTERN__SIPHASH_128_LEN];
	bool failed; /* out of memory */
};

/* A text that can be stored; NULL stays NULL. */
static const char *clean(struct kept *kept, const char *text, size_t len_max) {
	if (!text) {
		return NULL;
	}
	size_t len = strlen(text);
	/* A malformed byte becomes a character of three bytes. */
	size_t room = len < len_max / 3 ? 3 * len + 1 : len_max + 1;
	char *copy = postern__arena_alloc(&kept->arena, room);
	if (!copy) {
		kept->failed = true;
		return NULL;
	}
	(void)postern__utf8_clean(text, len, copy, room);
	return copy;
}

static void add_header(struct kept *kept, const char *name, const char *value) {
	if (name && *name && value) {
		kept->headers[kept->message.header_count++] =
				(struct postern_header){ name, value };
	}
}

/* As many headers as there is room for. */
static void add_headers(struct kept *kept,
		const struct postern_message *given) {
	size_t left = POSTERN_HEADERS_LEN_MAX - ADDED_BYTES_MAX;
	for (size_t i = 0; i < given->header_count && !kept->failed &&
					   kept->message.header_count < POSTERN_HEADER_COUNT_MAX;
			i++) {
		const struct postern_header *header = &given->headers[i];
		const char *name =
				clean(kept, header->name, POSTERN_HEADER_NAME_LEN_MAX);
		const char *value =
				clean(kept, header->value, POSTERN_HEADER_VALUE_LEN_MAX);
		size_t len = name && value ? strlen(name) + strlen(value) : 0;
		if (len <= left) {
			left -= len;
			add_header(kept, name, value);
		}
	}
}

static void hash_text(struct postern__siphash *hash, const char *text) {
	postern__siphash_update_field(hash, text ? text : "",
			text ? strlen(text) : 0);
}

/* Headers "x-…" are those of the transport: how often it delivered a message,
   and where it has been. */
static void hash_headers(struct postern__siphash *hash,
		const struct postern_message *given) {
	for (size_t i = 0; i < given->header_count; i++) {
		const struct postern_header *header = &given->headers[i];
		if (header->name && strncmp(header->name, "x-", 2) != 0) {
			hash_text(hash, header->name);
			hash_text(hash, header->value);
		}
	}
}

static void make_id(struct kept *kept, const struct postern_message *given) {
	static const uint8_t key[POSTERN__SIPHASH_KEY_LEN];
	const char *const texts[] = { given->id, given->source, given->type,
		given->subject, given->time, given->content_type,
		given->correlation_id };
	uint8_t digest[POSTERN__SIPHASH_128_LEN];
	struct postern__siphash hash;
	postern__siphash_init_128(&hash, key);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		hash_text(&hash, texts[i]);
	}
	hash_headers(&hash, given);
	postern__siphash_update_field(&hash, given->body, given->body_len);
	postern__siphash_finish_128(&hash, digest);
	size_t len = (size_t)snprintf(kept->id, sizeof kept->id, ID_PREFIX);
	for (size_t i = 0; i < sizeof digest; i++) {
		len += (size_t)snprintf(kept->id + len, sizeof kept->id - len, "%02x",
				digest[i]);
	}
}

static bool is_time(const char *text) {
	int64_t ms;
	return strlen(text) <= POSTERN_TIME_LEN_MAX &&
		   postern__time_parse(text, strlen(text), &ms, NULL) == 0;
}

static void make(struct kept *kept, const struct postern_message *given,
		const char *reason) {
	const size_t most = POSTERN_ATTRIBUTE_LEN_MAX;
	bool timed = given->time && is_time(given->time);
	make_id(kept, given);
	kept->message = (struct postern_message){
		.size = sizeof kept->message,
		.id = kept->id,
		.source = given->source && *given->source
						  ? clean(kept, given->source, most)
						  : NULL,
		.type = clean(kept, given->type, most),
		.subject = clean(kept, given->subject, most),
		.time = timed ? given->time : NULL,
		.content_type = clean(kept, given->content_type, most),
		.correlation_id = clean(kept, given->correlation_id, most),
		.traceparent =
				clean(kept, given->traceparent, POSTERN_TRACEPARENT_LEN_MAX),
		.transport = given->transport,
		.headers = kept->headers,
		.body = given->body,
		.body_len = given->body_len,
	};
	add_header(kept, POSTERN_QUARANTINE_REASON,
			clean(kept, reason, POSTERN_REASON_LEN_MAX));
	add_header(kept, POSTERN_QUARANTINE_ID,
			clean(kept, given->id, POSTERN_ID_LEN_MAX));
	add_header(kept, POSTERN_QUARANTINE_TIME,
			timed ? NULL : clean(kept, given->time, POSTERN_TIME_LEN_MAX));
	add_headers(kept, given);
}

/* The handlers that want the type; all of them, if none does. */
static size_t count_wanting(const struct postern__channel *channel,
		const char *type) {
	size_t count = 0;
	for (size_t i = 0; i < channel->handler_count; i++) {
		count += postern__handler_wants(channel->handlers[i], type);
	}
	return count;
}

static void fill_routes(struct postern__content *content, bool wanted) {
	const struct postern__channel *channel = content->channel;
	size_t count = 0;
	for (size_t i = 0; i < channel->handler_count; i++) {
		struct postern__handler *handler = channel->handlers[i];
		if (wanted && !postern__handler_wants(handler, content->message.type)) {
			continue;
		}
		content->runs[count].handler = handler;
		content->accept.routes[count++] = (struct postern_route){
			.handler = handler->id,
			.refusal = content->message.headers[0].value,
		};
	}
	content->accept.route_count = count;
	if (count == 0) {
		content->accept.fate = POSTERN_FATE_PARK;
	}
}

int postern__quarantine_content(struct postern__channel *channel,
		const struct postern_message *message, const char *reason,
		struct postern__content **out, struct postern_error *error) {
	struct kept kept;
	if (message->body_len > POSTERN_QUARANTINE_BODY_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID,
				"%s; a body of %zu bytes is not quarantined, the limit is %zu",
				reason, message->body_len, POSTERN_QUARANTINE_BODY_LEN_MAX);
	}
	memset(&kept, 0, sizeof kept);
	make(&kept, message, reason);
	const char *type = kept.message.type ? kept.message.type : "";
	size_t wanted = count_wanting(channel, type);
	struct postern__content *content =
			kept.failed ? NULL
						: postern__content_create(channel, &kept.message,
								  wanted ? wanted : channel->handler_count);
	postern__arena_finish(&kept.arena);
	if (!content) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	fill_routes(content, wanted > 0);
	content->accept.key = postern__dedupe_key_by_id(&content->message);
	*out = content;
	return POSTERN_OK;
}
