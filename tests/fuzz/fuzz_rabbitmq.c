/* SPDX-License-Identifier: MIT */

/*
 * The first byte chooses: a URL of RabbitMQ; a routing key; or what a broker
 * sends, which the library decodes and rabbitmq/envelope.c takes: the
 * properties of a message, behind a byte of flags of this file, and the body of
 * an event.
 */

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "rabbitmq/rabbitmq.h"

static void parse_url(const char *text) {
	struct postern__rabbitmq_address address;
	struct postern_error error = { 0 };
	if (postern__rabbitmq_address_parse(text, &address, &error)) {
		MUST(error.text[0] != '\0');
		MUST(address.password[0] == '\0' && address.host_count == 0);
		return;
	}
	MUST(address.host_count >= 1 &&
			address.host_count <= RABBITMQ_HOST_COUNT_MAX);
	for (size_t i = 0; i < address.host_count; i++) {
		MUST(address.hosts[i].name[0] != '\0');
		MUST(address.hosts[i].port > 0 && address.hosts[i].port < 65536);
	}
}

static void fill_key(const char *text) {
	const struct postern_message message = {
		.size = sizeof message,
		.id = "1",
		.source = "/s",
		.type = "a.b",
	};
	char out[RABBITMQ_SHORT_LEN_MAX + 1];
	if (postern__rabbitmq_template_check(text, NULL) == POSTERN_OK &&
			postern__rabbitmq_template_fill(text, &message, out)) {
		MUST(strlen(out) <= RABBITMQ_SHORT_LEN_MAX);
		MUST(strchr(text, '{') || strcmp(text, out) == 0);
	}
}

static void check_message(const struct postern_message *message) {
	for (size_t i = 0; i < message->header_count; i++) {
		MUST(message->headers[i].name && message->headers[i].value);
	}
	MUST(message->body || message->body_len == 0);
}

/* The properties as they are in a frame. */
static void take_properties(const uint8_t *data, size_t size) {
	const struct postern__rabbitmq_mapping mapping = { "/s" };
	struct postern__arena arena = { 0 };
	struct postern_message message = { 0 };
	struct postern_error error = { 0 };
	bool structured = false;
	amqp_pool_t pool;
	void *decoded = NULL;
	init_amqp_pool(&pool, 4096);
	amqp_bytes_t encoded = { size, (void *)data };
	if (amqp_decode_properties(AMQP_BASIC_CLASS, &pool, encoded, &decoded) ==
			AMQP_STATUS_OK) {
		int r = postern__rabbitmq_envelope_read(decoded, &mapping, &arena,
				&message, &structured, &error);
		MUST((r == POSTERN_OK) == (error.text[0] == '\0'));
		if (r == POSTERN_OK) {
			check_message(&message);
		}
		MUST(postern__rabbitmq_envelope_salvage(decoded, &arena, &message,
					 &error) == POSTERN_OK);
		check_message(&message);
	}
	postern__arena_finish(&arena);
	empty_amqp_pool(&pool);
}

static void take_event(const char *text, size_t len) {
	struct postern__arena arena = { 0 };
	struct postern_error error = { 0 };
	struct postern_message message = {
		.size = sizeof message,
		.content_type = "application/cloudevents+json",
		.transport = "rabbitmq",
		.body = text,
		.body_len = len,
	};
	int r = postern__rabbitmq_envelope_event(&message, &arena, &error);
	MUST((r == POSTERN_OK) == (error.text[0] == '\0'));
	if (r == POSTERN_OK) {
		check_message(&message);
	}
	postern__arena_finish(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size == 0 || size > 131072) {
		return 0;
	}
	char *text = malloc(size);
	if (!text) {
		return 0;
	}
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0]) {
	case 'u': parse_url(text); break;
	case 'k': fill_key(text); break;
	case 'e': take_event(text, size - 1); break;
	default: take_properties(data + 1, size - 1); break;
	}
	free(text);
	return 0;
}
