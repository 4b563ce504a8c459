/* SPDX-License-Identifier: MIT */

/*
 * One pass over the members of the event. A member that is not an attribute of
 * CloudEvents costs nothing but a header; every member may occur once.
 */

#include "source/cloudevent.h"

#include <postern/error.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/fail.h"

#define NAME_LEN_MAX 128

/* The attributes that are members of a message. */
static const struct attribute {
	const char *name;
	size_t offset; /* in struct postern_message */
	bool required;
} attributes[] = {
	{ "id", offsetof(struct postern_message, id), true },
	{ "source", offsetof(struct postern_message, source), true },
	{ "type", offsetof(struct postern_message, type), true },
	{ "subject", offsetof(struct postern_message, subject), false },
	{ "time", offsetof(struct postern_message, time), false },
	{ "datacontenttype", offsetof(struct postern_message, content_type),
			false },
	{ "correlationid", offsetof(struct postern_message, correlation_id),
			false },
	{ "traceparent", offsetof(struct postern_message, traceparent), false },
};

#define ATTRIBUTE_COUNT (sizeof attributes / sizeof attributes[0])

/* An event that is being read. */
struct reading {
	struct postern__arena *arena;
	struct postern_message *message;
	struct postern_header headers[POSTERN_HEADER_COUNT_MAX];
	struct postern__json_value data; /* text NULL: none */
	bool has_base64;
	bool has_specversion;
	struct postern_error *error;
};

static int fail_memory(const struct reading *reading) {
	return postern__fail(reading->error, POSTERN_E_NOMEM, "out of memory");
}

/* The characters of a string, as text that ends in a zero byte. */
static int copy_string(const struct reading *reading, const char *name,
		const struct postern__json_value *value, const char **out,
		size_t *len_out) {
	char *text = postern__arena_alloc(reading->arena, value->len);
	if (!text) {
		return fail_memory(reading);
	}
	size_t len = postern__json_unescape(value, text);
	text[len] = '\0';
	*out = text;
	if (len_out) {
		*len_out = len;
	} else if (strlen(text) != len) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"'%s' has a zero byte", name);
	}
	return POSTERN_OK;
}

/* The value of an attribute as text: a string, a number as it stands, true or
   false. */
static int copy_attribute(const struct reading *reading, const char *name,
		const struct postern__json_value *value, const char **out) {
	switch (value->type) {
	case POSTERN__JSON_STRING:
		return copy_string(reading, name, value, out, NULL);
	case POSTERN__JSON_NUMBER:
	case POSTERN__JSON_TRUE:
	case POSTERN__JSON_FALSE:
		*out = postern__arena_copy(reading->arena, value->text, value->len);
		return *out ? POSTERN_OK : fail_memory(reading);
	case POSTERN__JSON_OBJECT:
	case POSTERN__JSON_ARRAY:
	case POSTERN__JSON_NULL:
	default:
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"attribute '%s' is neither a string nor a number nor a boolean",
				name);
	}
}

static int fail_twice(const struct reading *reading, const char *name) {
	return postern__fail(reading->error, POSTERN_E_INVALID,
			"'%s' is given twice", name);
}

static int read_specversion(struct reading *reading,
		const struct postern__json_value *value) {
	if (reading->has_specversion) {
		return fail_twice(reading, "specversion");
	}
	if (value->type != POSTERN__JSON_STRING ||
			!postern__json_equals(value, "1.0")) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"specversion must be \"1.0\"");
	}
	reading->has_specversion = true;
	return POSTERN_OK;
}

static int read_data(struct reading *reading, const char *name,
		const struct postern__json_value *value) {
	bool base64 = strcmp(name, "data_base64") == 0;
	if (base64 && value->type == POSTERN__JSON_NULL) {
		return POSTERN_OK;
	}
	if (reading->data.text) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"'data' and 'data_base64' may be given once, and not both");
	}
	reading->data = *value;
	reading->has_base64 = base64;
	if (base64 && value->type != POSTERN__JSON_STRING) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"'data_base64' is not a string");
	}
	return POSTERN_OK;
}

static bool is_attribute_name(const char *name) {
	return *name &&
		   name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789")] == '\0';
}

static int read_extension(struct reading *reading, const char *name,
		const struct postern__json_value *value) {
	struct postern_message *message = reading->message;
	if (!is_attribute_name(name)) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"'%s' is not an attribute name: only lower-case letters and "
				"digits are allowed",
				name);
	}
	size_t size = sizeof("ce-") + strlen(name);
	char *header = postern__arena_alloc(reading->arena, size);
	if (!header) {
		return fail_memory(reading);
	}
	(void)snprintf(header, size, "ce-%s", name);
	for (size_t i = 0; i < message->header_count; i++) {
		const char *present = reading->headers[i].name;
		if (present && strcmp(present, header) == 0) {
			return fail_twice(reading, name);
		}
	}
	if (message->header_count == POSTERN_HEADER_COUNT_MAX) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"more than %d extension attributes", POSTERN_HEADER_COUNT_MAX);
	}
	struct postern_header *slot = &reading->headers[message->header_count++];
	slot->name = header;
	return copy_attribute(reading, name, value, &slot->value);
}

static const char **member_of(struct postern_message *message,
		const struct attribute *attribute) {
	return (const char **)(void *)((char *)message + attribute->offset);
}

const char **postern__cloudevent_member(struct postern_message *message,
		const char *name) {
	for (size_t i = 0; i < ATTRIBUTE_COUNT; i++) {
		if (strcmp(name, attributes[i].name) == 0) {
			return member_of(message, &attributes[i]);
		}
	}
	return NULL;
}

bool postern__cloudevent_is_extension(const char *header) {
	if (strncasecmp(header, "ce-", 3) != 0 || header[3] == '\0') {
		return false;
	}
	bool is = strcasecmp(header + 3, "specversion") != 0;
	for (size_t i = 0; is && i < ATTRIBUTE_COUNT; i++) {
		is = strcasecmp(header + 3, attributes[i].name) != 0;
	}
	return is;
}

static int read_attribute(struct reading *reading, const char *name,
		const struct postern__json_value *value) {
	/* The format defines null as "not set". */
	if (value->type == POSTERN__JSON_NULL) {
		return POSTERN_OK;
	}
	const char **member = postern__cloudevent_member(reading->message, name);
	if (!member) {
		return read_extension(reading, name, value);
	}
	if (*member) {
		return fail_twice(reading, name);
	}
	if (value->type != POSTERN__JSON_STRING) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"'%s' is not a string", name);
	}
	return copy_string(reading, name, value, member, NULL);
}

static int read_member(struct reading *reading,
		const struct postern__json_value *key,
		const struct postern__json_value *value) {
	char name[NAME_LEN_MAX + 2];
	if (key->len > NAME_LEN_MAX) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"a member name is longer than %d bytes", NAME_LEN_MAX);
	}
	size_t len = postern__json_unescape(key, name);
	name[len] = '\0';
	if (memchr(name, '\0', len)) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"a member name has a zero byte");
	}
	if (strcmp(name, "specversion") == 0) {
		return read_specversion(reading, value);
	}
	if (strcmp(name, "data") == 0 || strcmp(name, "data_base64") == 0) {
		return read_data(reading, name, value);
	}
	return read_attribute(reading, name, value);
}

static int check_required(const struct reading *reading) {
	if (!reading->has_specversion) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"specversion is missing: not a CloudEvent");
	}
	for (size_t i = 0; i < ATTRIBUTE_COUNT; i++) {
		const char *value = *member_of(reading->message, &attributes[i]);
		if (!value && attributes[i].required) {
			return postern__fail(reading->error, POSTERN_E_INVALID,
					"'%s' is missing", attributes[i].name);
		}
		if (value && !*value) {
			return postern__fail(reading->error, POSTERN_E_INVALID,
					"'%s' is empty", attributes[i].name);
		}
	}
	return POSTERN_OK;
}

bool postern__is_json_type(const char *content_type) {
	if (!content_type) {
		return true;
	}
	size_t len = strcspn(content_type, "; \t");
	const char *slash = memchr(content_type, '/', len);
	if (!slash) {
		return false;
	}
	const char *subtype = slash + 1;
	size_t subtype_len = len - (size_t)(subtype - content_type);
	return (subtype_len == 4 && strncasecmp(subtype, "json", 4) == 0) ||
		   (subtype_len > 5 &&
				   strncasecmp(subtype + subtype_len - 5, "+json", 5) == 0);
}

static int decode_body(const struct reading *reading) {
	struct postern_message *message = reading->message;
	const char *text;
	size_t len;
	int r = copy_string(reading, "data_base64", &reading->data, &text, &len);
	if (r) {
		return r;
	}
	void *bytes = postern__arena_alloc(reading->arena,
			POSTERN__BASE64_DECODED_MAX(len) + 1);
	if (!bytes) {
		return fail_memory(reading);
	}
	if (!postern__base64_decode(text, len, bytes, &message->body_len)) {
		return postern__fail(reading->error, POSTERN_E_INVALID,
				"'data_base64' is not valid base64");
	}
	message->body = bytes;
	return POSTERN_OK;
}

static int read_body(const struct reading *reading) {
	struct postern_message *message = reading->message;
	const struct postern__json_value *data = &reading->data;
	if (!data->text) {
		return POSTERN_OK;
	}
	if (reading->has_base64) {
		return decode_body(reading);
	}
	bool json = postern__is_json_type(message->content_type);
	if (!json && data->type == POSTERN__JSON_STRING) {
		const char *text = NULL;
		int r = copy_string(reading, "data", data, &text, &message->body_len);
		message->body = text;
		return r;
	}
	if (!message->content_type) {
		message->content_type = "application/json";
	}
	message->body = data->text;
	message->body_len = data->len;
	return POSTERN_OK;
}

static int copy_headers(const struct reading *reading) {
	struct postern_message *message = reading->message;
	size_t size = message->header_count * sizeof reading->headers[0];
	struct postern_header *headers = postern__arena_alloc(reading->arena, size);
	if (!headers) {
		return fail_memory(reading);
	}
	memcpy(headers, reading->headers, size);
	message->headers = headers;
	return POSTERN_OK;
}

int postern__cloudevent_read(const struct postern__json_value *event,
		struct postern__arena *arena, struct postern_message *out,
		struct postern_error *error) {
	struct postern_message message = { .size = sizeof message };
	struct reading reading = {
		.arena = arena,
		.message = &message,
		.error = error,
	};
	if (event->type != POSTERN__JSON_OBJECT) {
		return postern__fail(error, POSTERN_E_INVALID,
				"a CloudEvent is a JSON object");
	}
	struct postern__json_walk walk = postern__json_enter(event);
	struct postern__json_value key;
	struct postern__json_value value;
	int r = POSTERN_OK;
	while (!r && postern__json_next(&walk, &key, &value)) {
		r = read_member(&reading, &key, &value);
	}
	if (!r) {
		r = check_required(&reading);
	}
	if (!r) {
		r = read_body(&reading);
	}
	if (!r) {
		r = copy_headers(&reading);
	}
	if (!r) {
		*out = message;
	}
	return r;
}
