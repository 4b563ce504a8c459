/* SPDX-License-Identifier: MIT */

/*
 * Replies of Redis: redis/reply.c, with the reader of hiredis in front.
 */

#include <string.h>

#include "redis/redis.h"
#include "tap.h"

struct result {
	int code;
	enum postern__redis_action action;
	struct postern_mark_request request;
	struct postern_error error;
};

static struct result take(const char *bytes) {
	struct result result = { .request = { .left_ms = -1 } };
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	CHECK(redisReaderFeed(reader, bytes, strlen(bytes)) == REDIS_OK);
	CHECK(redisReaderGetReply(reader, &reply) == REDIS_OK);
	if (CHECK(reply)) {
		result.code = postern__redis_take_reply(reply, "Redis at 'h:1'",
				&result.request, &result.action, &result.error);
		freeReplyObject(reply);
	}
	redisReaderFree(reader);
	return result;
}

static void results(void) {
	struct result result = take("*3\r\n:0\r\n:1\r\n:2500\r\n");
	CHECK_INT(result.code, POSTERN_OK);
	CHECK_INT(result.request.before, POSTERN_MARK_RUNNING);
	CHECK_INT(result.request.left_ms, 2500);
	result = take("*3\r\n:1\r\n:0\r\n:0\r\n");
	CHECK_INT(result.code, POSTERN_E_STALE);
	CHECK_INT(result.action, REDIS_FAIL);
	CHECK_INT(result.request.left_ms, -1);
}

static void other_forms(void) {
	static const char *const replies[] = {
		"+OK\r\n",
		":1\r\n",
		"$-1\r\n",
		"*-1\r\n",
		"*0\r\n",
		"*2\r\n:0\r\n:0\r\n",
		"*4\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
		"*3\r\n:0\r\n:3\r\n:0\r\n",
		"*3\r\n:0\r\n:-1\r\n:0\r\n",
		"*3\r\n:2\r\n:0\r\n:0\r\n",
		"*3\r\n:0\r\n:0\r\n:-5\r\n",
		"*3\r\n:0\r\n$1\r\n0\r\n:0\r\n",
		"*3\r\n:0\r\n*0\r\n:0\r\n",
	};
	for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++) {
		struct result result = take(replies[i]);
		CHECK_INT(result.code, POSTERN_E_CORRUPT);
		CHECK_INT(result.action, REDIS_FAIL);
		CHECK_INT(result.request.left_ms, -1);
	}
}

static void errors(void) {
	static const struct {
		const char *reply;
		int code;
		enum postern__redis_action action;
		const char *text;
	} table[] = {
		{ "-NOSCRIPT No matching script.", POSTERN_E_UNAVAILABLE, REDIS_EVAL,
				"script" },
		{ "-LOADING Redis is loading the dataset in memory",
				POSTERN_E_UNAVAILABLE, REDIS_AGAIN, "is loading" },
		{ "-BUSY Redis is busy running a script.", POSTERN_E_UNAVAILABLE,
				REDIS_AGAIN, "is busy" },
		{ "-READONLY You can't write against a read only replica.",
				POSTERN_E_UNAVAILABLE, REDIS_RECONNECT, "read-only replica" },
		{ "-ERR Error running script (call to f_1): @user_script:1: "
		  "@user_script: 1: -READONLY You can't write",
				POSTERN_E_UNAVAILABLE, REDIS_RECONNECT, "read-only replica" },
		{ "-ERR Error running script: bad", POSTERN_E_UNAVAILABLE, REDIS_FAIL,
				"reports an error" },
		{ "-NOREPLICAS Not enough good replicas to write.",
				POSTERN_E_UNAVAILABLE, REDIS_AGAIN, "min-replicas-to-write" },
		{ "-OOM command not allowed when used memory > 'maxmemory'.",
				POSTERN_E_UNAVAILABLE, REDIS_FAIL, "no memory left" },
		{ "-MISCONF Redis is configured to save RDB snapshots",
				POSTERN_E_UNAVAILABLE, REDIS_FAIL, "cannot save" },
		{ "-NOAUTH Authentication required.", POSTERN_E_INVALID, REDIS_FAIL,
				"requires a password" },
		{ "-WRONGPASS invalid username-password pair", POSTERN_E_INVALID,
				REDIS_FAIL, "refuses the user" },
		{ "-NOPERM this user has no permissions", POSTERN_E_INVALID,
				REDIS_DENIED, "does not permit" },
		{ "-CLUSTERDOWN The cluster is down", POSTERN_E_UNSUPPORTED, REDIS_FAIL,
				"cluster" },
		{ "-ASK 1 h:1", POSTERN_E_UNSUPPORTED, REDIS_FAIL, "cluster" },
		{ "-WRONGTYPE Operation against a key", POSTERN_E_CORRUPT, REDIS_FAIL,
				"key_prefix" },
		{ "-", POSTERN_E_UNAVAILABLE, REDIS_FAIL, "reports an error" },
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		char bytes[256];
		(void)snprintf(bytes, sizeof bytes, "%s\r\n", table[i].reply);
		struct result result = take(bytes);
		CHECK_INT(result.code, table[i].code);
		CHECK_INT(result.action, table[i].action);
		CHECK_CONTAINS(result.error.text, table[i].text);
		CHECK_CONTAINS(result.error.text, "Redis at 'h:1'");
	}
}

static const struct tap_case cases[] = {
	{ "the script's answer has three numbers", results },
	{ "an answer of another form is refused and changes nothing", other_forms },
	{ "each error of the server has its outcome", errors },
};

TAP_MAIN(cases)
