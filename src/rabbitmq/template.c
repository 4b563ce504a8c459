/* SPDX-License-Identifier: MIT */

/*
 * The routing key of a message, from a text with names in braces. The parts are
 * found once, when the handler is created.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rabbitmq/rabbitmq.h"

#define HEADER "header:"

static const struct part_name {
	const char *name;
	size_t offset; /* in struct postern_message */
} names[] = {
	{ "id", offsetof(struct postern_message, id) },
	{ "source", offsetof(struct postern_message, source) },
	{ "type", offsetof(struct postern_message, type) },
	{ "subject", offsetof(struct postern_message, subject) },
};
#define NAME_COUNT (sizeof names / sizeof names[0])

static const struct part_name *find_name(const char *at, size_t len) {
	for (size_t i = 0; i < NAME_COUNT; i++) {
		if (strlen(names[i].name) == len &&
				memcmp(names[i].name, at, len) == 0) {
			return &names[i];
		}
	}
	return NULL;
}

static bool is_header(const char *at, size_t len) {
	return len > strlen(HEADER) && strncmp(at, HEADER, strlen(HEADER)) == 0;
}

int postern__rabbitmq_template_check(const char *text,
		struct postern_error *error) {
	if (strlen(text) > RABBITMQ_SHORT_LEN_MAX) {
		return postern__fail(error, POSTERN_E_INVALID, "over %d bytes",
				RABBITMQ_SHORT_LEN_MAX);
	}
	for (const char *open = strchr(text, '{'); open;
			open = strchr(open + 1, '{')) {
		size_t len = strcspn(open + 1, "}");
		if (!open[1 + len] ||
				(!find_name(open + 1, len) && !is_header(open + 1, len))) {
			return postern__fail(error, POSTERN_E_INVALID,
					"'%.*s' is none of {id}, {source}, {type}, {subject} and "
					"{header:NAME}",
					(int)len + 2, open);
		}
	}
	return POSTERN_OK;
}

static const char *header_value(const struct postern_message *message,
		const char *name, size_t len) {
	for (size_t i = 0; i < message->header_count; i++) {
		const char *given = message->headers[i].name;
		if (strlen(given) == len && memcmp(given, name, len) == 0) {
			return message->headers[i].value;
		}
	}
	return NULL;
}

/* The value of the name between two braces; NULL: the message has none. */
static const char *value_of(const struct postern_message *message,
		const char *at, size_t len) {
	const struct part_name *name = find_name(at, len);
	if (!name) {
		return header_value(message, at + strlen(HEADER), len - strlen(HEADER));
	}
	const char *const *member =
			(const char *const *)(const void *)((const char *)message +
												name->offset);
	return *member;
}

static bool append(char *out, size_t *len, const char *text, size_t text_len) {
	if (text_len > RABBITMQ_SHORT_LEN_MAX - *len) {
		return false;
	}
	memcpy(out + *len, text, text_len);
	*len += text_len;
	return true;
}

bool postern__rabbitmq_template_fill(const char *text,
		const struct postern_message *message,
		char out[RABBITMQ_SHORT_LEN_MAX + 1]) {
	size_t len = 0;
	bool fits = true;
	while (fits && *text) {
		size_t plain = strcspn(text, "{");
		fits = append(out, &len, text, plain);
		text += plain;
		if (fits && *text) {
			size_t name = strcspn(text + 1, "}");
			const char *value = value_of(message, text + 1, name);
			fits = !value || append(out, &len, value, strlen(value));
			text += name + 2;
		}
	}
	out[len] = '\0';
	return fits;
}
