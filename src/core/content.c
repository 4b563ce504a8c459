/* SPDX-License-Identifier: MIT */
/*
 * A message in memory: one allocation that holds the copy of the message, the
 * routes and runs of its deliveries and what is needed to accept it, so that
 * each message costs one malloc and one free.
 */

#include "core/accept.h"
#include "core/box.h"
#include "core/run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t text_len(const char *text) {
	return text ? strlen(text) + 1 : 0;
}

static size_t texts_len(const struct postern_message *message) {
	size_t len = text_len(message->id) + text_len(message->source) +
				 text_len(message->type) + text_len(message->subject) +
				 text_len(message->time) + text_len(message->content_type) +
				 text_len(message->correlation_id) +
				 text_len(message->traceparent) + text_len(message->transport);
	for (size_t i = 0; i < message->header_count; i++) {
		len += text_len(message->headers[i].name) +
			   text_len(message->headers[i].value);
	}
	return len;
}

static const char *put_text(char **place, const char *text) {
	if (!text) {
		return NULL;
	}
	size_t len = strlen(text) + 1;
	char *copy = *place;
	memcpy(copy, text, len);
	*place += len;
	return copy;
}

static void put_message(struct postern_message *to,
		const struct postern_message *from, struct postern_header *headers,
		char *texts) {
	*to = *from;
	char *place = texts;
	to->id = put_text(&place, from->id);
	to->source = put_text(&place, from->source);
	to->type = put_text(&place, from->type);
	to->subject = put_text(&place, from->subject);
	to->time = put_text(&place, from->time);
	to->content_type = put_text(&place, from->content_type);
	to->correlation_id = put_text(&place, from->correlation_id);
	to->traceparent = put_text(&place, from->traceparent);
	to->transport = put_text(&place, from->transport);
	for (size_t i = 0; i < from->header_count; i++) {
		headers[i].name = put_text(&place, from->headers[i].name);
		headers[i].value = put_text(&place, from->headers[i].value);
	}
	to->headers = headers;
	if (from->body_len > 0) {
		memcpy(place, from->body, from->body_len);
	}
	/* With a zero byte after the body, handlers can use it as text without a
	   copy. */
	place[from->body_len] = '\0';
	to->body = place;
}

/* The channel's names mean that there is no source. */
static const char *source_or_none(const struct postern__channel *channel,
		const char *given) {
	return given && strcmp(given, channel->first_name) != 0 &&
						   !postern__channel_has_name(channel, given)
				   ? given
				   : channel->first_name;
}

struct postern__content *
postern__content_create(struct postern__channel *channel,
		const struct postern_message *message, size_t run_count) {
	struct postern_message full = *message;
	full.source = source_or_none(channel, full.source);
	full.type = full.type ? full.type : "";
	full.transport = full.transport ? full.transport : "api";

	struct postern__content *content;
	size_t runs_at = sizeof(*content);
	size_t routes_at = runs_at + run_count * sizeof(struct postern_run);
	size_t headers_at = routes_at + run_count * sizeof(struct postern_route);
	size_t texts_at =
			headers_at + full.header_count * sizeof(struct postern_header);
	size_t size = texts_at + texts_len(&full) + full.body_len + 1;
	char *memory = malloc(size);
	if (!memory) {
		return NULL;
	}
	/* The body may have megabytes: do not zero the texts and the body. */
	memset(memory, 0, texts_at);
	content = (struct postern__content *)(void *)memory;
	content->refs = 1;
	content->bytes = size;
	content->channel = channel;
	atomic_fetch_add(&channel->generation->refs, 1);
	content->runs = (struct postern_run *)(void *)(memory + runs_at);
	content->run_count = run_count;
	content->accept.routes =
			(struct postern_route *)(void *)(memory + routes_at);
	put_message(&content->message, &full,
			(struct postern_header *)(void *)(memory + headers_at),
			memory + texts_at);
	content->accept.message = &content->message;
	content->accept.channel = channel->id;
	content->item.kind = POSTERN__ITEM_ACCEPT;
	content->item.bytes = size;
	return content;
}

void postern__content_release(struct postern__content *content) {
	assert(content->refs > 0);
	content->refs--;
	if (content->refs == 0) {
		struct postern_generation *generation = content->channel->generation;
		free(content->keys);
		free(content);
		postern__generation_release(generation);
	}
}
