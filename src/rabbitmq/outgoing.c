/* SPDX-License-Identifier: MIT */

/*
 * From a message to what is published: a CloudEvent in binary form, with its
 * attributes in headers, and the same in the properties of AMQP as far as they
 * have room. A message without a type is no CloudEvent and has the properties
 * only.
 */

#include <string.h>
#include <strings.h>

#include "base/time.h"
#include "rabbitmq/rabbitmq.h"
#include "source/cloudevent.h"

#define PREFIX "cloudEvents_"
#define EXTENSION "ce-"
#define ENCODING "content-encoding"

static bool fits(const char *text) {
	return text && *text && strlen(text) <= RABBITMQ_SHORT_LEN_MAX;
}

static bool add(struct postern__rabbitmq_outgoing *self, const char *name,
		const char *value) {
	if (!value) {
		return true;
	}
	struct amqp_table_entry_t_ *entry =
			&self->headers[self->properties.headers.num_entries];
	/* A name longer than a short string cannot be sent. */
	if (strlen(name) > RABBITMQ_SHORT_LEN_MAX) {
		return false;
	}
	entry->key = amqp_cstring_bytes(name);
	entry->value.kind = AMQP_FIELD_KIND_UTF8;
	entry->value.value.bytes = amqp_cstring_bytes(value);
	self->properties.headers.num_entries++;
	self->size += strlen(name) + strlen(value) + 6;
	return true;
}

static bool add_attributes(struct postern__rabbitmq_outgoing *self,
		const struct postern_message *message) {
	return add(self, PREFIX "specversion", "1.0") &&
		   add(self, PREFIX "id", message->id) &&
		   add(self, PREFIX "source", message->source) &&
		   add(self, PREFIX "type", message->type) &&
		   add(self, PREFIX "subject", message->subject) &&
		   add(self, PREFIX "time", message->time) &&
		   add(self, PREFIX "correlationid", message->correlation_id) &&
		   add(self, PREFIX "traceparent", message->traceparent);
}

/* Whether readers would take a header for an attribute that the message has, or
   has not. */
static bool looks_like_attribute(const char *name, bool event) {
	size_t len = strlen(PREFIX) - 1;
	bool prefixed = strncasecmp(name, PREFIX, len) == 0 &&
					(name[len] == '_' || name[len] == ':');
	return prefixed ||
		   (event && strncasecmp(name, EXTENSION, strlen(EXTENSION)) == 0 &&
				   !postern__cloudevent_is_extension(name));
}

/* "ce-NAME" is an attribute again. False: out of memory, or too long. */
static bool add_header(struct postern__rabbitmq_outgoing *self,
		const struct postern_header *header, bool event) {
	size_t skipped = strlen(EXTENSION);
	if (strcmp(header->name, ENCODING) == 0 && fits(header->value)) {
		self->properties._flags |= AMQP_BASIC_CONTENT_ENCODING_FLAG;
		self->properties.content_encoding = amqp_cstring_bytes(header->value);
		return true;
	}
	if (looks_like_attribute(header->name, event)) {
		return true;
	}
	if (!event || strncmp(header->name, EXTENSION, skipped) != 0) {
		return add(self, header->name, header->value);
	}
	size_t size = sizeof PREFIX + strlen(header->name);
	char *name = postern__arena_alloc(&self->arena, size);
	if (name) {
		memcpy(name, PREFIX, strlen(PREFIX));
		memcpy(name + strlen(PREFIX), header->name + skipped,
				strlen(header->name + skipped) + 1);
	}
	return name && add(self, name, header->value);
}

static void set_property(amqp_basic_properties_t *properties, amqp_flags_t flag,
		amqp_bytes_t *member, const char *value) {
	if (fits(value)) {
		properties->_flags |= flag;
		*member = amqp_cstring_bytes(value);
	}
}

static void set_properties(amqp_basic_properties_t *properties,
		const struct postern_message *message) {
	int64_t ms;
	properties->_flags |=
			AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_HEADERS_FLAG;
	properties->delivery_mode = AMQP_DELIVERY_PERSISTENT;
	set_property(properties, AMQP_BASIC_MESSAGE_ID_FLAG,
			&properties->message_id, message->id);
	set_property(properties, AMQP_BASIC_TYPE_FLAG, &properties->type,
			message->type);
	set_property(properties, AMQP_BASIC_CORRELATION_ID_FLAG,
			&properties->correlation_id, message->correlation_id);
	set_property(properties, AMQP_BASIC_CONTENT_TYPE_FLAG,
			&properties->content_type, message->content_type);
	if (message->time &&
			!postern__time_parse(message->time, strlen(message->time), &ms,
					NULL) &&
			ms >= 0) {
		properties->_flags |= AMQP_BASIC_TIMESTAMP_FLAG;
		properties->timestamp = (uint64_t)(ms / 1000);
	}
}

bool postern__rabbitmq_outgoing_fill(struct postern__rabbitmq_outgoing *self,
		const struct postern_message *message) {
	bool event = message->type && *message->type;
	postern__arena_reset(&self->arena);
	self->properties = (amqp_basic_properties_t){ 0 };
	/* The properties, each at most a short string. */
	self->size = 2048;
	self->headers = postern__arena_array(&self->arena,
			message->header_count + RABBITMQ_ATTRIBUTE_COUNT,
			sizeof *self->headers);
	if (!self->headers) {
		return false;
	}
	self->properties.headers.entries = self->headers;
	set_properties(&self->properties, message);
	bool complete = event ? add_attributes(self, message)
						  : add(self, "traceparent", message->traceparent);
	for (size_t i = 0; complete && i < message->header_count; i++) {
		complete = add_header(self, &message->headers[i], event);
	}
	return complete;
}
