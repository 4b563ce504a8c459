/* SPDX-License-Identifier: MIT */

/*
 * Frames of a delivery, in the order that AMQP has for them; anything else ends
 * the connection. What cannot be a message arrives as far as it has a text and
 * a body that is not too large, so that it can be quarantined.
 */

#include "rabbitmq/arrival.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "rabbitmq/rabbitmq.h"
#include "rabbitmq/retry.h"

static int fail_protocol(const struct postern__rabbitmq_arrival *arrival,
		const char *what, struct postern_error *error) {
	return postern__fail(error, POSTERN_E_UNAVAILABLE, "%s sent %s",
			arrival->place ? arrival->place : "the broker", what);
}

static bool is_expected(const struct postern__rabbitmq_arrival *arrival) {
	return arrival->to || arrival->returned;
}

static bool keep_raw(struct postern__rabbitmq_delivery *to, amqp_bytes_t raw) {
	to->raw = (amqp_bytes_t){
		raw.len,
		postern__arena_copy(&to->arena, raw.bytes, raw.len),
	};
	return to->raw.bytes != NULL;
}

/* What the properties are as a message, or why they are none. */
static int read_properties(struct postern__rabbitmq_arrival *arrival,
		const amqp_basic_properties_t *properties,
		const struct postern__rabbitmq_mapping *mapping,
		struct postern_error *error) {
	struct postern__rabbitmq_delivery *to = arrival->to;
	int r = postern__rabbitmq_envelope_read(properties, mapping, &to->arena,
			&to->message, &arrival->structured, error);
	if (r && r != POSTERN_E_NOMEM) {
		(void)snprintf(arrival->why, sizeof arrival->why, "%s", error->text);
		arrival->structured = false;
		r = postern__rabbitmq_envelope_salvage(properties, &to->arena,
				&to->message, error);
	}
	return r;
}

int postern__rabbitmq_arrival_header(struct postern__rabbitmq_arrival *arrival,
		const amqp_frame_t *frame,
		const struct postern__rabbitmq_mapping *mapping, bool keeps_raw,
		struct postern_error *error) {
	const amqp_basic_properties_t *properties =
			frame->payload.properties.decoded;
	struct postern__rabbitmq_delivery *to = arrival->to;
	if (!is_expected(arrival) || arrival->has_header) {
		return fail_protocol(arrival, "a header without a delivery", error);
	}
	arrival->has_header = true;
	arrival->size = frame->payload.properties.body_size;
	if (!to) {
		return POSTERN_OK;
	}
	to->retries = postern__rabbitmq_retries(properties);
	if (keeps_raw && !keep_raw(to, frame->payload.properties.raw)) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	int r = read_properties(arrival, properties, mapping, error);
	if (r) {
		return r;
	}
	if (arrival->size > POSTERN_BODY_LEN_MAX) {
		(void)snprintf(arrival->why, sizeof arrival->why,
				"the body has %llu bytes, the limit is %zu",
				(unsigned long long)arrival->size, POSTERN_BODY_LEN_MAX);
		return POSTERN_OK;
	}
	arrival->body = postern__arena_alloc(&to->arena, (size_t)arrival->size + 1);
	return arrival->body
				   ? POSTERN_OK
				   : postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

int postern__rabbitmq_arrival_body(struct postern__rabbitmq_arrival *arrival,
		amqp_bytes_t fragment, struct postern_error *error) {
	if (!is_expected(arrival) || !arrival->has_header ||
			fragment.len > arrival->size - arrival->received) {
		return fail_protocol(arrival, "a body that belongs to nothing", error);
	}
	if (arrival->body) {
		memcpy(arrival->body + arrival->received, fragment.bytes, fragment.len);
	}
	arrival->received += fragment.len;
	return POSTERN_OK;
}

bool postern__rabbitmq_arrival_complete(
		const struct postern__rabbitmq_arrival *arrival) {
	return arrival->has_header && arrival->received == arrival->size;
}

void postern__rabbitmq_arrival_end(struct postern__rabbitmq_arrival *arrival) {
	struct postern__rabbitmq_delivery *to = arrival->to;
	struct postern_error error;
	if (!to) {
		return;
	}
	to->given_up = false;
	to->body = (amqp_bytes_t){ (size_t)arrival->size, arrival->body };
	if (arrival->body) {
		to->message.body = arrival->body;
		to->message.body_len = (size_t)arrival->size;
	}
	if (!arrival->why[0] && arrival->structured &&
			postern__rabbitmq_envelope_event(&to->message, &to->arena,
					&error)) {
		(void)snprintf(arrival->why, sizeof arrival->why, "%s", error.text);
	}
	to->why = NULL;
	if (arrival->why[0]) {
		const char *why = postern__arena_strdup(&to->arena, arrival->why);
		to->why = why ? why : "out of memory";
	}
}
