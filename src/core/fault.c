/* SPDX-License-Identifier: MIT */
/*
 * Fault events: a message that its transport has given up, published to the
 * channel that the message's channel names for that. The event has the body and
 * the identity of the message, so that it can be sent again, and headers that
 * say what failed, why and how often. Given up twice, it is a duplicate.
 */

#include "core/fault.h"

#include "base/fail.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "core/content_keys.h"

#include <stdio.h>
#include <string.h>

static void add_header(struct postern__fault *fault, const char *name,
		const char *value) {
	fault->headers[fault->message.header_count++] =
			(struct postern_header){ name, value };
}

static size_t header_len(const struct postern_header *header) {
	return strlen(header->name) + strlen(header->value);
}

/* As many headers of the message as there is room for, after those that were
   added. One that is not valid is left to the check of the event. */
static void copy_headers(struct postern__fault *fault,
		const struct postern_message *message) {
	size_t left = POSTERN_HEADERS_LEN_MAX;
	for (size_t i = 0; i < fault->message.header_count; i++) {
		left -= header_len(&fault->headers[i]);
	}
	for (size_t i = 0; i < message->header_count &&
					   fault->message.header_count < POSTERN_HEADER_COUNT_MAX;
			i++) {
		const struct postern_header *header = &message->headers[i];
		size_t len = header->name && header->value ? header_len(header) : 0;
		if (len <= left) {
			left -= len;
			fault->headers[fault->message.header_count++] = *header;
		}
	}
}

static void fill(struct postern__fault *fault,
		const struct postern__channel *channel,
		const struct postern_message *message, uint32_t attempts,
		const char *reason) {
	(void)snprintf(fault->from, sizeof(fault->from), "%s", channel->name);
	(void)snprintf(fault->to, sizeof(fault->to), "%s", channel->fault_channel);
	(void)snprintf(fault->attempts, sizeof(fault->attempts), "%u", attempts);
	reason = reason ? reason : "";
	(void)postern__utf8_clean(reason, strlen(reason), fault->reason,
			sizeof(fault->reason));
	fault->message = *message;
	fault->message.headers = fault->headers;
	fault->message.header_count = 0;
	if (!message->id) {
		postern__generated_id(channel->generation->box, fault->id);
		fault->message.id = fault->id;
	}
	fault->message.source = message->source ? message->source : fault->from;
	fault->message.type = POSTERN_FAULT_TYPE;
	add_header(fault, "postern-fault-channel", fault->from);
	add_header(fault, "postern-fault-type", message->type ? message->type : "");
	add_header(fault, "postern-fault-reason", fault->reason);
	add_header(fault, "postern-fault-attempts", fault->attempts);
	copy_headers(fault, message);
}

int postern__fault_init(struct postern__fault *fault, struct postern_box *box,
		const char *channel_name, const struct postern_message *given,
		uint32_t attempts, const char *reason, struct postern_error *error) {
	struct postern_message message = { 0 };
	int r = postern__sized_copy(&message, sizeof(message), given,
			"struct postern_message", error);
	if (r) {
		return r;
	}
	struct postern_generation *generation = postern__generation_acquire(box);
	const struct postern__channel *channel =
			postern__generation_channel(generation, channel_name);
	*fault = (struct postern__fault){ .to = "" };
	if (!channel) {
		r = postern__fail(error, POSTERN_E_NOTFOUND, "no channel '%s'",
				channel_name ? channel_name : "");
	} else if (channel->fault_channel) {
		fill(fault, channel, &message, attempts, reason);
	}
	postern__generation_release(generation);
	return r;
}

int postern_box_fault(struct postern_box *box, const char *channel,
		const struct postern_message *message, uint32_t attempts,
		const char *reason, struct postern_error *error) {
	struct postern__fault fault;
	int r = postern__fault_init(&fault, box, channel, message, attempts, reason,
			error);
	if (r || !fault.to[0]) {
		return r;
	}
	r = postern_box_accept(box, fault.to, &fault.message, NULL, error);
	return r == POSTERN_E_DUPLICATE ? POSTERN_OK : r;
}
