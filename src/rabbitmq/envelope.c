/* SPDX-License-Identifier: MIT */

/*
 * From the properties of a delivery to a message. Three forms: a CloudEvent in
 * binary form has its attributes in headers with a prefix, one in structured
 * form is the body, and any other message is described by its properties.
 *
 * Limits are left to the box. What is decided here is what has no text at all.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/json_scan.h"
#include "base/json_text.h"
#include "base/time.h"
#include "rabbitmq/rabbitmq.h"
#include "source/cloudevent.h"

/* "cloudEvents:" in the binding of CloudEvents to AMQP, "cloudEvents_" for
   clients that cannot have a colon. */
#define PREFIX "cloudEvents"
#define PREFIX_LEN (sizeof PREFIX) /* with the character that follows */

#define EVENT_TYPE "application/cloudevents"
#define VALUE_LEN_MAX ((size_t)POSTERN_HEADER_VALUE_LEN_MAX + 1)

struct reading {
	const amqp_basic_properties_t *properties;
	struct postern__arena *arena;
	struct postern_message *message;
	struct postern_header *headers;
	bool event; /* has attributes of a CloudEvent in headers */
	bool has_specversion;
	struct postern_error *error;
};

static int fail_memory(struct postern_error *error) {
	return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
}

/* Bytes of the broker as text. `what` names them. */
static int copy_text(struct postern__arena *arena, amqp_bytes_t bytes,
		const char *what, const char **out, struct postern_error *error) {
	if (bytes.len > 0 && memchr(bytes.bytes, '\0', bytes.len)) {
		return postern__fail(error, POSTERN_E_INVALID, "%s has a zero byte",
				what);
	}
	const char *text = postern__arena_copy(arena, bytes.bytes, bytes.len);
	if (!text) {
		return fail_memory(error);
	}
	*out = text;
	return POSTERN_OK;
}

static bool write_json(struct postern__buf *buf,
		const amqp_field_value_t *value);

static void write_table(struct postern__buf *buf, const amqp_table_t *table) {
	postern__json_open(buf, '{');
	for (int i = 0; i < table->num_entries && !buf->failed; i++) {
		const amqp_table_entry_t *entry = &table->entries[i];
		postern__json_string(buf, entry->key.bytes, entry->key.len);
		postern__buf_append_char(buf, ':');
		(void)write_json(buf, &entry->value);
	}
	postern__json_close(buf, '}');
}

static void write_array(struct postern__buf *buf, const amqp_array_t *array) {
	postern__json_open(buf, '[');
	for (int i = 0; i < array->num_entries && !buf->failed; i++) {
		(void)write_json(buf, &array->entries[i]);
	}
	postern__json_close(buf, ']');
}

/* A time in seconds; false: it has no text. */
static bool format_seconds(uint64_t seconds, char out[POSTERN__TIME_TEXT_MAX]) {
	if (seconds > (uint64_t)POSTERN__TIME_MS_MAX / 1000) {
		return false;
	}
	postern__time_format((int64_t)seconds * 1000, out);
	return true;
}

/* Numbers and the like; false for what is a string or has parts. */
static bool format_scalar(const amqp_field_value_t *value, char *out,
		size_t size) {
	switch (value->kind) {
	case AMQP_FIELD_KIND_BOOLEAN:
		(void)snprintf(out, size, "%s",
				value->value.boolean ? "true" : "false");
		return true;
	case AMQP_FIELD_KIND_I8:
		(void)snprintf(out, size, "%d", value->value.i8);
		return true;
	case AMQP_FIELD_KIND_U8:
		(void)snprintf(out, size, "%u", value->value.u8);
		return true;
	case AMQP_FIELD_KIND_I16:
		(void)snprintf(out, size, "%d", value->value.i16);
		return true;
	case AMQP_FIELD_KIND_U16:
		(void)snprintf(out, size, "%u", value->value.u16);
		return true;
	case AMQP_FIELD_KIND_I32:
		(void)snprintf(out, size, "%" PRId32, value->value.i32);
		return true;
	case AMQP_FIELD_KIND_U32:
		(void)snprintf(out, size, "%" PRIu32, value->value.u32);
		return true;
	case AMQP_FIELD_KIND_I64:
		(void)snprintf(out, size, "%" PRId64, value->value.i64);
		return true;
	case AMQP_FIELD_KIND_U64:
		(void)snprintf(out, size, "%" PRIu64, value->value.u64);
		return true;
	case AMQP_FIELD_KIND_F32:
		(void)snprintf(out, size, "%.9g", (double)value->value.f32);
		return true;
	case AMQP_FIELD_KIND_F64:
		(void)snprintf(out, size, "%.17g", value->value.f64);
		return true;
	case AMQP_FIELD_KIND_DECIMAL:
		(void)snprintf(out, size, "%" PRIu32 "e-%u", value->value.decimal.value,
				value->value.decimal.decimals);
		return true;
	default: return false;
	}
}

/* JSON has neither infinity nor NaN. */
static bool is_json_number(const char *text) {
	return !strpbrk(text, "in");
}

static bool write_json(struct postern__buf *buf,
		const amqp_field_value_t *value) {
	char text[64];
	if (format_scalar(value, text, sizeof text)) {
		if (value->kind == AMQP_FIELD_KIND_BOOLEAN || is_json_number(text)) {
			postern__json_raw(buf, text, strlen(text));
		} else {
			postern__json_text(buf, text);
		}
		return true;
	}
	switch (value->kind) {
	case AMQP_FIELD_KIND_UTF8:
	case AMQP_FIELD_KIND_BYTES:
		postern__json_string(buf, value->value.bytes.bytes,
				value->value.bytes.len);
		return true;
	case AMQP_FIELD_KIND_TIMESTAMP:
		if (format_seconds(value->value.u64, text)) {
			postern__json_text(buf, text);
		} else {
			postern__json_uint(buf, value->value.u64);
		}
		return true;
	case AMQP_FIELD_KIND_ARRAY:
		write_array(buf, &value->value.array);
		return true;
	case AMQP_FIELD_KIND_TABLE:
		write_table(buf, &value->value.table);
		return true;
	default: postern__json_null(buf); return true;
	}
}

static int nested_text(const amqp_field_value_t *value,
		struct postern__arena *arena, const char **out,
		struct postern_error *error) {
	struct postern__buf buf;
	postern__buf_init(&buf, VALUE_LEN_MAX);
	(void)write_json(&buf, value);
	int r = postern__buf_check(&buf, "the value of a header", error);
	const char *text =
			r ? NULL : postern__arena_strdup(arena, postern__buf_text(&buf));
	if (!r && !text) {
		r = fail_memory(error);
	}
	if (!r) {
		*out = text;
	}
	postern__buf_finish(&buf);
	return r;
}

int postern__rabbitmq_value_text(const amqp_field_value_t *value,
		struct postern__arena *arena, const char **out,
		struct postern_error *error) {
	char text[64];
	bool simple = format_scalar(value, text, sizeof text);
	switch (value->kind) {
	case AMQP_FIELD_KIND_UTF8:
	case AMQP_FIELD_KIND_BYTES:
		return copy_text(arena, value->value.bytes, "the value of a header",
				out, error);
	case AMQP_FIELD_KIND_ARRAY:
	case AMQP_FIELD_KIND_TABLE: return nested_text(value, arena, out, error);
	case AMQP_FIELD_KIND_TIMESTAMP:
		if (!format_seconds(value->value.u64, text)) {
			(void)snprintf(text, sizeof text, "%" PRIu64, value->value.u64);
		}
		break;
	default:
		if (!simple) {
			text[0] = '\0';
		}
	}
	const char *copy = postern__arena_strdup(arena, text);
	if (!copy) {
		return fail_memory(error);
	}
	*out = copy;
	return POSTERN_OK;
}

static bool has_prefix(amqp_bytes_t key) {
	const char *text = key.bytes;
	return key.len > PREFIX_LEN && memcmp(text, PREFIX, PREFIX_LEN - 1) == 0 &&
		   (text[PREFIX_LEN - 1] == ':' || text[PREFIX_LEN - 1] == '_');
}

static bool is_event_in_headers(const amqp_basic_properties_t *properties) {
	if (!(properties->_flags & AMQP_BASIC_HEADERS_FLAG)) {
		return false;
	}
	for (int i = 0; i < properties->headers.num_entries; i++) {
		if (has_prefix(properties->headers.entries[i].key)) {
			return true;
		}
	}
	return false;
}

static void add_header(const struct reading *reading, const char *name,
		const char *value) {
	reading->headers[reading->message->header_count++] =
			(struct postern_header){ name, value };
}

/* An attribute of a CloudEvent that is not a member of a message. */
static int add_extension(const struct reading *reading, const char *name,
		const char *value) {
	size_t size = strlen(name) + sizeof "ce-";
	char *header = postern__arena_alloc(reading->arena, size);
	if (!header) {
		return fail_memory(reading->error);
	}
	(void)snprintf(header, size, "ce-%s", name);
	add_header(reading, header, value);
	return POSTERN_OK;
}

static int read_attribute(struct reading *reading, amqp_bytes_t key,
		const amqp_field_value_t *given) {
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	const char *name = NULL;
	const char *value = NULL;
	amqp_bytes_t rest = { key.len - PREFIX_LEN,
		(char *)key.bytes + PREFIX_LEN };
	int r = copy_text(reading->arena, rest, "the name of a header", &name,
			reading->error);
	if (!r) {
		r = postern__rabbitmq_value_text(given, reading->arena, &value,
				reading->error);
	}
	if (r) {
		return r;
	}
	if (name[strspn(name, letters)] != '\0') {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"'%.60s' is not the name of an attribute: only lower-case "
				"letters and digits may follow '" PREFIX ":'",
				name);
	}
	bool specversion = strcmp(name, "specversion") == 0;
	const char **member = postern__cloudevent_member(reading->message, name);
	if ((specversion && reading->has_specversion) || (member && *member)) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"the attribute '%s' is given twice", name);
	}
	if (specversion) {
		reading->has_specversion = true;
		return strcmp(value, "1.0") == 0
					   ? POSTERN_OK
					   : postern__fail(reading->error, POSTERN_E_INVALID,
								 "specversion is not \"1.0\"");
	}
	if (member) {
		*member = value;
		return POSTERN_OK;
	}
	return add_extension(reading, name, value);
}

static int read_header(struct reading *reading,
		const amqp_table_entry_t *entry) {
	if (has_prefix(entry->key)) {
		return read_attribute(reading, entry->key, &entry->value);
	}
	if (entry->value.kind == AMQP_FIELD_KIND_VOID) {
		return POSTERN_OK;
	}
	const char *name = NULL;
	const char *value = NULL;
	int r = copy_text(reading->arena, entry->key, "the name of a header", &name,
			reading->error);
	if (!r) {
		r = postern__rabbitmq_value_text(&entry->value, reading->arena, &value,
				reading->error);
	}
	if (r) {
		return r;
	}
	if (strcmp(name, "traceparent") == 0 && !reading->message->traceparent) {
		reading->message->traceparent = value;
	} else {
		add_header(reading, name, value);
	}
	return POSTERN_OK;
}

/* A property that is text. An empty one is absent. */
static int read_property(const struct reading *reading, amqp_flags_t flag,
		amqp_bytes_t value, const char *what, const char **out) {
	if (!(reading->properties->_flags & flag) || value.len == 0 || *out) {
		return POSTERN_OK;
	}
	return copy_text(reading->arena, value, what, out, reading->error);
}

static int read_timestamp(const struct reading *reading) {
	const amqp_basic_properties_t *properties = reading->properties;
	char text[32];
	if (!(properties->_flags & AMQP_BASIC_TIMESTAMP_FLAG) ||
			reading->message->time) {
		return POSTERN_OK;
	}
	bool valid = format_seconds(properties->timestamp, text);
	if (!valid) {
		(void)snprintf(text, sizeof text, "%" PRIu64, properties->timestamp);
	}
	const char *copy = postern__arena_strdup(reading->arena, text);
	if (!copy) {
		return fail_memory(reading->error);
	}
	if (valid) {
		reading->message->time = copy;
	} else {
		add_header(reading, "amqp-timestamp", copy);
	}
	return POSTERN_OK;
}

static int read_encoding(const struct reading *reading) {
	const char *value = NULL;
	int r = read_property(reading, AMQP_BASIC_CONTENT_ENCODING_FLAG,
			reading->properties->content_encoding, "content-encoding", &value);
	if (value) {
		add_header(reading, "content-encoding", value);
	}
	return r;
}

/* What a CloudEvent and any other message have in common. */
static int read_shared(const struct reading *reading) {
	const amqp_basic_properties_t *properties = reading->properties;
	struct postern_message *message = reading->message;
	int r = read_property(reading, AMQP_BASIC_CONTENT_TYPE_FLAG,
			properties->content_type, "content-type", &message->content_type);
	if (!r) {
		r = read_property(reading, AMQP_BASIC_CORRELATION_ID_FLAG,
				properties->correlation_id, "correlation-id",
				&message->correlation_id);
	}
	if (!r) {
		r = read_encoding(reading);
	}
	return r ? r : read_timestamp(reading);
}

static int read_plain(const struct reading *reading) {
	const amqp_basic_properties_t *properties = reading->properties;
	struct postern_message *message = reading->message;
	int r = read_property(reading, AMQP_BASIC_MESSAGE_ID_FLAG,
			properties->message_id, "message-id", &message->id);
	if (!r) {
		r = read_property(reading, AMQP_BASIC_TYPE_FLAG, properties->type,
				"type", &message->type);
	}
	return r;
}

static int check_event(const struct reading *reading) {
	static const char *const names[] = { "id", "source", "type" };
	if (!reading->has_specversion) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"the attribute 'specversion' of a CloudEvent is missing");
	}
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		const char *value =
				*postern__cloudevent_member(reading->message, names[i]);
		if (!value || !*value) {
			return postern__fail(reading->error, POSTERN_E_INVALID,
					"the attribute '%s' of a CloudEvent is missing or empty",
					names[i]);
		}
	}
	return POSTERN_OK;
}

static int read_headers(struct reading *reading) {
	const amqp_basic_properties_t *properties = reading->properties;
	bool present = properties->_flags & AMQP_BASIC_HEADERS_FLAG;
	int count = present ? properties->headers.num_entries : 0;
	/* And those that are made of properties. */
	reading->headers = postern__arena_array(reading->arena, (size_t)count + 2,
			sizeof reading->headers[0]);
	if (!reading->headers) {
		return fail_memory(reading->error);
	}
	reading->message->headers = reading->headers;
	int r = POSTERN_OK;
	for (int i = 0; !r && i < count; i++) {
		r = read_header(reading, &properties->headers.entries[i]);
	}
	return r;
}

static bool is_structured(const char *content_type) {
	return content_type &&
		   strncasecmp(content_type, EVENT_TYPE, strlen(EVENT_TYPE)) == 0;
}

int postern__rabbitmq_envelope_read(const amqp_basic_properties_t *properties,
		const struct postern__rabbitmq_mapping *mapping,
		struct postern__arena *arena, struct postern_message *out,
		bool *structured_out, struct postern_error *error) {
	struct postern_message message = {
		.size = sizeof message,
		.transport = "rabbitmq",
	};
	struct reading reading = {
		.properties = properties,
		.arena = arena,
		.message = &message,
		.event = is_event_in_headers(properties),
		.error = error,
	};
	int r = read_headers(&reading);
	if (!r) {
		r = read_shared(&reading);
	}
	bool structured = !reading.event && is_structured(message.content_type);
	if (!r && reading.event) {
		r = check_event(&reading);
	} else if (!r && !structured) {
		r = read_plain(&reading);
		message.source = mapping->source;
	}
	if (!r) {
		*out = message;
		*structured_out = structured;
	}
	return r;
}

/* A text up to its first zero byte; NULL: absent, or out of memory. */
static const char *salvage_text(struct postern__arena *arena, bool present,
		amqp_bytes_t bytes) {
	return present ? postern__arena_copy(arena, bytes.bytes, bytes.len) : NULL;
}

/* All headers with a value that is text, and the prefix of attributes. */
static int salvage_headers(const amqp_basic_properties_t *properties,
		struct postern__arena *arena, struct postern_message *message,
		struct postern_error *error) {
	bool present = properties->_flags & AMQP_BASIC_HEADERS_FLAG;
	int count = present ? properties->headers.num_entries : 0;
	count = count < POSTERN_HEADER_COUNT_MAX ? count : POSTERN_HEADER_COUNT_MAX;
	struct postern_header *headers =
			postern__arena_array(arena, (size_t)count + 1, sizeof *headers);
	if (!headers) {
		return fail_memory(error);
	}
	message->headers = headers;
	for (int i = 0; i < count; i++) {
		const amqp_table_entry_t *entry = &properties->headers.entries[i];
		const char *value;
		int r = postern__rabbitmq_value_text(&entry->value, arena, &value,
				error);
		const char *name = r ? NULL : salvage_text(arena, true, entry->key);
		if (r == POSTERN_E_NOMEM) {
			return r;
		}
		if (name) {
			headers[message->header_count++] =
					(struct postern_header){ name, value };
		}
	}
	return POSTERN_OK;
}

int postern__rabbitmq_envelope_salvage(const amqp_basic_properties_t
											   *properties,
		struct postern__arena *arena, struct postern_message *out,
		struct postern_error *error) {
	amqp_flags_t flags = properties->_flags;
	*out = (struct postern_message){
		.size = sizeof *out,
		.transport = "rabbitmq",
		.id = salvage_text(arena, flags & AMQP_BASIC_MESSAGE_ID_FLAG,
				properties->message_id),
		.type = salvage_text(arena, flags & AMQP_BASIC_TYPE_FLAG,
				properties->type),
		.content_type = salvage_text(arena,
				flags & AMQP_BASIC_CONTENT_TYPE_FLAG, properties->content_type),
		.correlation_id =
				salvage_text(arena, flags & AMQP_BASIC_CORRELATION_ID_FLAG,
						properties->correlation_id),
	};
	return salvage_headers(properties, arena, out, error);
}

int postern__rabbitmq_envelope_event(struct postern_message *message,
		struct postern__arena *arena, struct postern_error *error) {
	struct postern__json_value event;
	struct postern_message read;
	const char *form = message->content_type + strlen(EVENT_TYPE);
	if (strncasecmp(form, "+json", 5) != 0 || !strchr("; \t", form[5])) {
		return postern__fail(error, POSTERN_E_INVALID,
				"the content type '%.80s' is not supported; a CloudEvent is "
				"sent as application/cloudevents+json, or with its attributes "
				"in headers",
				message->content_type);
	}
	int r = postern__json_scan(message->body ? message->body : "",
			message->body_len, &event, error);
	if (!r) {
		r = postern__cloudevent_read(&event, arena, &read, error);
	}
	if (!r) {
		read.transport = message->transport;
		if (!read.correlation_id) {
			read.correlation_id = message->correlation_id;
		}
		*message = read;
	}
	return r;
}
