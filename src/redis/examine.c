/* SPDX-License-Identifier: MIT */

/*
 * What the settings of the server can lose. A marker that is lost is a function
 * that runs again.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "redis/redis.h"

#define VALUE_SIZE 64

/* The version that replicates the effects of scripts: the script reads the time
   before it writes. */
#define MAJOR_MIN 5

struct settings {
	bool aof;
	bool limited; /* maxmemory is set */
	long replicas;
	long major;
	char policy[VALUE_SIZE];
	char fsync[VALUE_SIZE]; /* "": the server does not say */
};

/* The value of "name:value" in the text of INFO; "" if it is not there. */
static void info_value(const char *text, const char *name,
		char out[VALUE_SIZE]) {
	size_t len = strlen(name);
	out[0] = '\0';
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) == 0 && line[len] == ':') {
			size_t end = strcspn(line + len + 1, "\r\n");
			(void)snprintf(out, VALUE_SIZE, "%.*s",
					(int)(end < VALUE_SIZE ? end : VALUE_SIZE - 1),
					line + len + 1);
			return;
		}
	}
}

static int read_info(struct postern__redis_session *session,
		struct settings *out, struct postern_error *error) {
	static const char *const words[] = { "INFO" };
	redisReply *reply = NULL;
	char value[VALUE_SIZE];
	int r = postern__redis_session_call(session, words, 1, &reply, error);
	if (r) {
		return r;
	}
	if (reply->type != REDIS_REPLY_STRING) {
		freeReplyObject(reply);
		return postern__fail(error, POSTERN_E_UNSUPPORTED,
				"%s does not answer INFO, so its settings are unknown: permit "
				"it to the user",
				session->place);
	}
	info_value(reply->str, "aof_enabled", value);
	out->aof = value[0] == '1';
	info_value(reply->str, "maxmemory", value);
	out->limited = value[0] != '0';
	info_value(reply->str, "connected_slaves", value);
	out->replicas = strtol(value, NULL, 10);
	info_value(reply->str, "redis_version", value);
	out->major = strtol(value, NULL, 10);
	info_value(reply->str, "maxmemory_policy", out->policy);
	freeReplyObject(reply);
	return POSTERN_OK;
}

/* Hosted servers have no CONFIG: then the value stays unknown. */
static int read_fsync(struct postern__redis_session *session,
		struct settings *out, struct postern_error *error) {
	static const char *const words[] = { "CONFIG", "GET", "appendfsync" };
	redisReply *reply = NULL;
	int r = postern__redis_session_call(session, words, 3, &reply, error);
	if (r) {
		return r;
	}
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
			reply->element[1]->type == REDIS_REPLY_STRING) {
		(void)snprintf(out->fsync, sizeof out->fsync, "%s",
				reply->element[1]->str);
	}
	freeReplyObject(reply);
	return POSTERN_OK;
}

static const char *describe_log(const struct settings *settings) {
	if (!settings->aof) {
		return "appendonly is off: a restart of Redis forgets all that was "
			   "done since its last snapshot; set appendonly yes and "
			   "appendfsync always";
	}
	if (strcmp(settings->fsync, "always") == 0) {
		return NULL;
	}
	if (strcmp(settings->fsync, "everysec") == 0) {
		return "appendfsync is everysec: a power failure forgets what was done "
			   "in the last 2 seconds; set appendfsync always";
	}
	if (strcmp(settings->fsync, "no") == 0) {
		return "appendfsync is no: a power failure forgets what was done in "
			   "about the last 30 seconds; set appendfsync always";
	}
	return "appendfsync cannot be read: unless it is always, a power failure "
		   "forgets what was done in the last 2 seconds (everysec) or 30 "
		   "seconds (no)";
}

static void report(const struct settings *settings, postern_store_find *find,
		void *context) {
	char text[256];
	const char *log = describe_log(settings);
	if (settings->major > 0 && settings->major < MAJOR_MIN) {
		(void)snprintf(text, sizeof text,
				"the version of Redis is %ld: scripts that read the time need "
				"%d or newer",
				settings->major, MAJOR_MIN);
		find(context, POSTERN_E_INVALID, text);
	}
	if (log) {
		find(context, POSTERN_E_INVALID, log);
	}
	if (settings->policy[0] && strcmp(settings->policy, "noeviction") != 0) {
		(void)snprintf(text, sizeof text,
				"maxmemory-policy is %s: %s Redis forgets markers of any age; "
				"set maxmemory-policy noeviction",
				settings->policy,
				settings->limited ? "when its memory is full"
								  : "with a maxmemory");
		find(context, POSTERN_E_INVALID, text);
	}
	if (settings->replicas > 0) {
		find(context, POSTERN_E_INVALID,
				"replicas follow with a delay: one that is promoted forgets "
				"what it had not received");
	}
}

int postern__redis_examine(struct postern_markers *markers,
		postern_store_find *find, void *context, struct postern_error *error) {
	struct postern__redis_session session;
	struct settings settings = { 0 };
	int r = postern__redis_session_open(markers, &session, error);
	if (r) {
		return r;
	}
	r = read_info(&session, &settings, error);
	if (!r) {
		r = read_fsync(&session, &settings, error);
	}
	postern__redis_session_close(&session);
	if (!r) {
		report(&settings, find, context);
	}
	return r;
}
