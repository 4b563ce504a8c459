/* SPDX-License-Identifier: MIT */

/*
 * The meaning of replies. Each error of the server has a row with one outcome;
 * docs/redis.md has the same table. Replies come from outside: their form is
 * checked before anything in them is used.
 */

#include <string.h>

#include "base/fail.h"
#include "redis/redis.h"

static const struct outcome {
	const char *begins; /* the reply's first words */
	enum postern__redis_action action;
	int code; /* if the call fails */
	const char *text;
} outcomes[] = {
	{ "NOSCRIPT", REDIS_EVAL, POSTERN_E_UNAVAILABLE,
			"does not keep the script" },
	{ "LOADING", REDIS_AGAIN, POSTERN_E_UNAVAILABLE, "is loading its data" },
	{ "BUSY ", REDIS_AGAIN, POSTERN_E_UNAVAILABLE,
			"is busy with a script of another client" },
	{ "READONLY", REDIS_RECONNECT, POSTERN_E_UNAVAILABLE,
			"is a read-only replica; use the address of the primary" },
	{ "MASTERDOWN", REDIS_RECONNECT, POSTERN_E_UNAVAILABLE,
			"is a replica without a primary; use the address of the primary" },
	{ "UNBLOCKED", REDIS_RECONNECT, POSTERN_E_UNAVAILABLE,
			"has become a replica; use the address of the primary" },
	{ "ERR max number of clients", REDIS_RECONNECT, POSTERN_E_UNAVAILABLE,
			"has as many clients as 'maxclients' allows" },
	{ "NOREPLICAS", REDIS_AGAIN, POSTERN_E_UNAVAILABLE,
			"has fewer replicas than 'min-replicas-to-write' demands" },
	{ "OOM", REDIS_FAIL, POSTERN_E_UNAVAILABLE,
			"has no memory left: raise 'maxmemory' or lower the ttl" },
	{ "MISCONF", REDIS_FAIL, POSTERN_E_UNAVAILABLE,
			"refuses writes, because it cannot save to its disk" },
	{ "NOAUTH", REDIS_FAIL, POSTERN_E_INVALID,
			"requires a password: write redis://:PASSWORD@HOST or "
			"redis://USER:PASSWORD@HOST" },
	{ "WRONGPASS", REDIS_FAIL, POSTERN_E_INVALID,
			"refuses the user or the password" },
	{ "ERR invalid password", REDIS_FAIL, POSTERN_E_INVALID,
			"refuses the user or the password" },
	{ "ERR AUTH", REDIS_FAIL, POSTERN_E_INVALID,
			"has no password for the default user; leave it out" },
	{ "ERR Client sent AUTH", REDIS_FAIL, POSTERN_E_INVALID,
			"has no password; leave it out" },
	{ "NOPERM", REDIS_DENIED, POSTERN_E_INVALID,
			"does not permit the user what markers need: see docs/redis.md" },
	{ "DENIED", REDIS_FAIL, POSTERN_E_INVALID,
			"is in protected mode: give it a password or set "
			"'protected-mode no'" },
	{ "ERR DB index", REDIS_FAIL, POSTERN_E_INVALID,
			"does not have the database of the URL" },
	{ "ERR SELECT", REDIS_FAIL, POSTERN_E_UNSUPPORTED,
			"is a node of a cluster, which is not supported" },
	{ "MOVED", REDIS_FAIL, POSTERN_E_UNSUPPORTED,
			"is a node of a cluster, which is not supported" },
	{ "ASK ", REDIS_FAIL, POSTERN_E_UNSUPPORTED,
			"is a node of a cluster, which is not supported" },
	{ "CLUSTERDOWN", REDIS_FAIL, POSTERN_E_UNSUPPORTED,
			"is a node of a cluster, which is not supported" },
	{ "WRONGTYPE", REDIS_FAIL, POSTERN_E_CORRUPT,
			"has other data in the place of a marker: use another "
			"'key_prefix'" },
};

/* Until Redis 6 the error of a command of a script followed this. */
static const char *find_code(const redisReply *reply) {
	const char *text = reply->str ? reply->str : "";
	static const char wrapped[] = "ERR Error running script";
	if (strncmp(text, wrapped, sizeof wrapped - 1) == 0) {
		const char *code = strstr(text, ": -");
		return code ? code + strlen(": -") : text;
	}
	/* The script's own, which an older server passes on unchanged. */
	return text[0] == '-' ? text + 1 : text;
}

int postern__redis_fail_reply(const redisReply *reply, const char *place,
		enum postern__redis_action *action_out, struct postern_error *error) {
	const char *text = find_code(reply);
	for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
		const struct outcome *row = &outcomes[i];
		if (strncmp(text, row->begins, strlen(row->begins)) == 0) {
			*action_out = row->action;
			return postern__fail(error, row->code, "%s %s", place, row->text);
		}
	}
	*action_out = REDIS_FAIL;
	return postern__fail(error, POSTERN_E_UNAVAILABLE,
			"%s reports an error: %.80s", place, text);
}

static bool is_number(const redisReply *reply, int64_t min, int64_t max) {
	return reply->type == REDIS_REPLY_INTEGER && reply->integer >= min &&
		   reply->integer <= max;
}

int postern__redis_take_reply(const redisReply *reply, const char *place,
		struct postern_mark_request *request,
		enum postern__redis_action *action_out, struct postern_error *error) {
	*action_out = REDIS_FAIL;
	if (reply->type == REDIS_REPLY_ERROR) {
		return postern__redis_fail_reply(reply, place, action_out, error);
	}
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
			!is_number(reply->element[0], 0, 1) ||
			!is_number(reply->element[1], POSTERN_MARK_UNKNOWN,
					POSTERN_MARK_DONE) ||
			!is_number(reply->element[2], 0, INT64_MAX)) {
		return postern__fail(error, POSTERN_E_CORRUPT,
				"the script's answer of %s has another form than it should",
				place);
	}
	if (reply->element[0]->integer == 1) {
		return postern__fail(error, POSTERN_E_STALE,
				"the lease of the marker was lost");
	}
	request->before = (enum postern_mark_state)reply->element[1]->integer;
	request->left_ms = reply->element[2]->integer;
	return POSTERN_OK;
}
