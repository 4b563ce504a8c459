/* SPDX-License-Identifier: MIT */
/*
 * A header becomes CE_HEADER_NAME, in capital letters and with '_' for all that
 * a shell does not allow in a name. Of headers that become the same name the
 * first is passed. No name that a sender chooses is a variable without that
 * prefix, so a sender cannot set LD_PRELOAD.
 */

#include "handler/exec_env.h"

#include <inttypes.h>
#include <postern/error.h>
#include <postern/handler.h>
#include <postern/message.h>
#include <postern/sys/random.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/trace.h"

/* Programs that Debian installs are found; the server's own PATH is not
   used. */
#define PATH_DEFAULT \
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define LANG_DEFAULT "LANG=C.UTF-8"

#define HEADER_PREFIX "CE_HEADER_"

/* The variables of a run besides headers and those of the handler. */
#define RUN_COUNT 12

static bool is_name_byte(char c) {
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
		   (c >= '0' && c <= '9') || c == '_';
}

/* The length of the name in "NAME=value"; 0: it is none. */
static size_t name_len(const char *pair) {
	size_t len = 0;
	while (is_name_byte(pair[len])) {
		len++;
	}
	bool digit = pair[0] >= '0' && pair[0] <= '9';
	return pair[len] == '=' && !digit ? len : 0;
}

static bool is_of_message(const char *pair) {
	return strncmp(pair, "CE_", 3) == 0 || strncmp(pair, "POSTERN_", 8) == 0 ||
		   strncmp(pair, "TRACEPARENT=", 12) == 0;
}

/* Whether a pair before this one has the same name. */
static bool is_named_before(char *const *items, size_t count, const char *pair,
		size_t len) {
	for (size_t i = 0; i < count; i++) {
		if (strncmp(items[i], pair, len + 1) == 0) {
			return true;
		}
	}
	return false;
}

int postern__exec_env_check(const char *const *given, size_t count,
		struct postern_error *error) {
	for (size_t i = 0; i < count; i++) {
		size_t len = name_len(given[i]);
		if (len == 0) {
			return postern__fail(error, POSTERN_E_INVALID,
					"env: '%.*s' is not a name of a variable: letters, digits "
					"and '_'",
					(int)strcspn(given[i], "="), given[i]);
		}
		if (is_of_message(given[i])) {
			return postern__fail(error, POSTERN_E_INVALID,
					"env: '%.*s' is set by the message; choose a name that "
					"does not begin with CE_ or POSTERN_",
					(int)len, given[i]);
		}
	}
	return POSTERN_OK;
}

/* Append NAME=value, unless the name is there; nothing for NULL. False: out of
   memory. */
static bool add(struct postern__exec_env *self, const char *name,
		const char *value, struct postern__arena *arena) {
	if (!value) {
		return true;
	}
	size_t len = strlen(name);
	size_t value_len = strlen(value);
	char *pair = postern__arena_alloc(arena, len + 1 + value_len + 1);
	if (!pair) {
		return false;
	}
	memcpy(pair, name, len);
	pair[len] = '=';
	memcpy(pair + len + 1, value, value_len + 1);
	if (!is_named_before(self->items, self->count, pair, len)) {
		self->items[self->count++] = pair;
	}
	return true;
}

static bool add_pair(struct postern__exec_env *self, const char *pair,
		struct postern__arena *arena) {
	char *copy = postern__arena_strdup(arena, pair);
	if (copy &&
			!is_named_before(self->items, self->count, pair, name_len(pair))) {
		self->items[self->count++] = copy;
	}
	return copy != NULL;
}

bool postern__exec_env_init(struct postern__exec_env *self,
		const char *const *given, size_t count, const char *user,
		const char *home, struct postern__arena *arena) {
	self->count = 0;
	self->items = postern__arena_array(arena, count + 5, sizeof *self->items);
	bool good = self->items != NULL;
	for (size_t i = 0; good && i < count; i++) {
		good = add_pair(self, given[i], arena);
	}
	return good && add_pair(self, PATH_DEFAULT, arena) &&
		   add_pair(self, LANG_DEFAULT, arena) &&
		   add(self, "HOME", home, arena) && add(self, "USER", user, arena) &&
		   add(self, "LOGNAME", user, arena);
}

static bool add_header(struct postern__exec_env *self,
		const struct postern_header *header, struct postern__arena *arena) {
	size_t len = strlen(header->name);
	char *name =
			postern__arena_alloc(arena, sizeof HEADER_PREFIX - 1 + len + 1);
	if (!name) {
		return false;
	}
	memcpy(name, HEADER_PREFIX, sizeof HEADER_PREFIX - 1);
	char *end = name + sizeof HEADER_PREFIX - 1;
	for (size_t i = 0; i < len; i++) {
		char c = header->name[i];
		*end++ = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A')
				 : is_name_byte(c)    ? c
									  : '_';
	}
	*end = '\0';
	return add(self, name, header->value, arena);
}

static bool add_message(struct postern__exec_env *self,
		const struct postern_message *message, struct postern__arena *arena) {
	const struct postern_random *random = postern_random_system();
	char trace[POSTERN__TRACE_LEN + 1];
	bool traced = postern__trace_continue(message->traceparent,
			random->next(random->context), trace);
	return add(self, "CE_ID", message->id, arena) &&
		   add(self, "CE_SOURCE", message->source, arena) &&
		   add(self, "CE_TYPE", message->type, arena) &&
		   add(self, "CE_SUBJECT", message->subject, arena) &&
		   add(self, "CE_TIME", message->time, arena) &&
		   add(self, "CE_DATACONTENTTYPE", message->content_type, arena) &&
		   add(self, "CE_CORRELATIONID", message->correlation_id, arena) &&
		   add(self, "TRACEPARENT", traced ? trace : NULL, arena);
}

char **postern__exec_env_make(const struct postern__exec_env *self,
		const struct postern_message *message,
		const struct postern_delivery *delivery, struct postern__arena *arena) {
	struct postern__exec_env all = { .count = self->count };
	char attempt[16];
	char fence[24];
	all.items = postern__arena_array(arena,
			self->count + RUN_COUNT + message->header_count + 1,
			sizeof *all.items);
	if (!all.items) {
		return NULL;
	}
	memcpy(all.items, self->items, self->count * sizeof *all.items);
	(void)snprintf(attempt, sizeof attempt, "%" PRIu32, delivery->attempt);
	(void)snprintf(fence, sizeof fence, "%" PRIu64, delivery->fence);
	bool good = add_message(&all, message, arena) &&
				add(&all, "POSTERN_HANDLER", delivery->handler, arena) &&
				add(&all, "POSTERN_CHANNEL", delivery->channel, arena) &&
				add(&all, "POSTERN_ATTEMPT", attempt, arena) &&
				add(&all, "POSTERN_FENCE", fence, arena);
	for (size_t i = 0; good && i < message->header_count; i++) {
		good = add_header(&all, &message->headers[i], arena);
	}
	all.items[all.count] = NULL;
	return good ? all.items : NULL;
}
