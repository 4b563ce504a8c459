/* SPDX-License-Identifier: MIT */

/*
 * The first byte chooses: the URL of Redis, or the bytes of a server's reply,
 * which the reader of hiredis and redis/reply.c take.
 */

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "redis/redis.h"

static void parse_url(const uint8_t *data, size_t size) {
	struct postern__redis_address address;
	struct postern_error error = { 0 };
	char *url = malloc(size + 1);
	if (!url) {
		return;
	}
	memcpy(url, data, size);
	url[size] = '\0';
	if (postern__redis_address_parse(url, &address, &error) == POSTERN_OK) {
		MUST((address.host[0] != '\0') != (address.socket[0] != '\0'));
		MUST(address.has_password == (address.password[0] != '\0'));
		MUST(!strpbrk(address.key_prefix, "{}"));
		MUST(address.ttl_ms >= REDIS_TTL_MS_MIN);
		MUST(address.connections >= 1 &&
				address.connections <= REDIS_CONNECTION_MAX);
	} else {
		MUST(error.text[0] != '\0');
		MUST(address.password[0] == '\0');
	}
	free(url);
}

static void take_replies(const uint8_t *data, size_t size) {
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	if (!reader) {
		return;
	}
	(void)redisReaderFeed(reader, (const char *)data, size);
	while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
		struct postern_mark_request request = { .left_ms = -1 };
		struct postern_error error = { 0 };
		enum postern__redis_action action = REDIS_AGAIN;
		int r = postern__redis_take_reply(reply, "Redis", &request, &action,
				&error);
		MUST((r == POSTERN_OK) == (request.left_ms >= 0));
		MUST((r == POSTERN_OK) == (error.text[0] == '\0'));
		freeReplyObject(reply);
		reply = NULL;
	}
	redisReaderFree(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size > 0 && data[0] == 'u') {
		parse_url(data + 1, size - 1);
	} else if (size > 0) {
		take_replies(data + 1, size - 1);
	}
	return 0;
}
