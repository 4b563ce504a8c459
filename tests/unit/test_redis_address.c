/* SPDX-License-Identifier: MIT */

/*
 * URLs of Redis: redis/address.c.
 */

#include <postern/guard.h>
#include <postern/redis.h>
#include <stdio.h>
#include <string.h>

#include "redis/redis.h"
#include "tap.h"

static struct postern__redis_address parse(const char *url) {
	struct postern__redis_address address;
	struct postern_error error = { 0 };
	CHECK_OK(postern__redis_address_parse(url, &address, &error), &error);
	return address;
}

static void defaults(void) {
	struct postern__redis_address address = parse("redis://cache");
	CHECK_STR(address.host, "cache");
	CHECK_STR(address.port, "6379");
	CHECK_STR(address.key_prefix, "postern:");
	CHECK_STR(address.place, "Redis at 'cache:6379'");
	CHECK_INT(address.ttl_ms, INT64_C(7) * 24 * 3600 * 1000);
	CHECK_INT(address.connections, 2);
	CHECK_INT(address.database, 0);
	CHECK(!address.tls && !address.has_password);
}

static void all_parts(void) {
	struct postern__redis_address address =
			parse("rediss://app:p%40ss%2Fw%25:rd@cache.example:7000/12"
				  "?key_prefix=shop:&ttl=90m&ca_file=%2Fetc/ca%20x.pem"
				  "&connections=64");
	CHECK(address.tls && address.has_password);
	CHECK_STR(address.user, "app");
	CHECK_STR(address.password, "p@ss/w%:rd");
	CHECK_STR(address.host, "cache.example");
	CHECK_STR(address.port, "7000");
	CHECK_STR(address.key_prefix, "shop:");
	CHECK_STR(address.ca_file, "/etc/ca x.pem");
	CHECK_INT(address.database, 12);
	CHECK_INT(address.ttl_ms, 90 * 60 * 1000);
	CHECK_INT(address.connections, 64);
	CHECK_STR(address.place, "Redis at 'cache.example:7000'");
	address = parse("redis://:only@h");
	CHECK_STR(address.user, "");
	CHECK_STR(address.password, "only");
	address = parse("redis://u:p@ss@h/");
	CHECK_STR(address.password, "p@ss");
	address = parse("redis://[::1]:6380");
	CHECK_STR(address.host, "::1");
	CHECK_STR(address.place, "Redis at '[::1]:6380'");
	address = parse("redis:///4?socket=/run/redis.sock");
	CHECK_STR(address.socket, "/run/redis.sock");
	CHECK_STR(address.place, "Redis at '/run/redis.sock'");
	CHECK_INT(address.database, 4);
}

static void refused(void) {
	static const struct {
		const char *url;
		const char *part;
	} table[] = {
		{ "redis:cache", "does not begin with redis://" },
		{ "redis://", "the host is missing" },
		{ "redis://:canary@", "the host is missing" },
		{ "redis://:canary@:6379", "the host is missing" },
		{ "redis://canary@h", "neither 'user:password' nor ':password'" },
		{ "redis://canary:@h", "the password is empty" },
		{ "redis://:can%ary@h", "hexadecimal digits" },
		{ "redis://:canary%00@h", "other than 0" },
		{ "redis://:canary%4", "the host is missing" },
		{ "redis://:canary%4@h", "hexadecimal digits" },
		{ "redis://:canary#x@h", "written %23" },
		{ "redis://:canary/x@h", "the host is missing" },
		{ "redis://u:canary/x@h", "the port is not a number" },
		{ "redis://h:0", "the port is not a number" },
		{ "redis://h:65536", "the port is not a number" },
		{ "redis://h:", "the port is not a number" },
		{ "redis://h:123456", "the port is not a number" },
		{ "redis://h:1/x", "the database is not a number" },
		{ "redis://h/10000", "the database is not a number" },
		{ "redis://h/1/2", "the database is not a number" },
		{ "redis://h{x}", "the host is missing or not a valid name" },
		{ "redis://[::1", "the host is missing" },
		{ "redis://[::1]x", "']' is followed by neither" },
		{ "redis://[zz]", "the host is missing" },
		{ "redis://h?key_prefix={a}", "'key_prefix' must have" },
		{ "redis://h?key_prefix=", "'key_prefix' must have" },
		{ "redis://h?key_prefix=a%20b", "'key_prefix' must have" },
		{ "redis://h?ttl=1", "'ttl' must be a duration" },
		{ "redis://h?ttl=59s", "'ttl' must be a duration" },
		{ "redis://h?ttl=3651d", "'ttl' must be a duration" },
		{ "redis://h?ttl=0", "'ttl' must be a duration" },
		{ "redis://h?connections=0", "'connections' must be" },
		{ "redis://h?connections=65", "'connections' must be" },
		{ "redis://h?ttl=1h&ttl=1h", "'ttl' is there twice" },
		{ "redis://h?tls=1h", "unknown parameter 'tls'; did you mean 'ttl'?" },
		{ "redis://h?zzzzzz=canary", "unknown parameter 'zzzzzz'; there are" },
		{ "redis://h?Canary=1", "the URL has an unknown parameter" },
		{ "redis://h?ttl", "unknown parameter 'ttl'" },
		{ "redis://h?=1", "unknown parameter ''" },
		{ "redis://h?ca_file=/x", "'ca_file' is for TLS" },
		{ "redis://h?socket=/x", "'socket' excludes a host" },
		{ "rediss:///?socket=/x", "'socket' excludes a host" },
		{ "redis:///?socket=", "'socket' must be a path" },
		{ "redis://h/\n", "control character" },
		{ "redis://h/\xff", "not valid UTF-8" },
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct postern__redis_address address;
		struct postern_error error = { 0 };
		CHECK_INT(postern__redis_address_parse(table[i].url, &address, &error),
				POSTERN_E_INVALID);
		CHECK_CONTAINS(error.text, table[i].part);
		CHECK(!strstr(error.text, "canary"));
		CHECK(!address.password[0]);
	}
}

static void too_long(void) {
	char url[5100];
	struct postern__redis_address address;
	struct postern_error error = { 0 };
	static const size_t lens[] = { 300, 1100, 4990 };
	for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
		memcpy(url, "redis://u:", 10);
		memset(url + 10, 'x', lens[i]);
		memcpy(url + 10 + lens[i], "@h", 3);
		CHECK_INT(postern__redis_address_parse(url, &address, &error),
				lens[i] == 300 ? POSTERN_OK : POSTERN_E_INVALID);
		/* As a host. */
		memcpy(url + 8, "xx", 2);
		url[10 + lens[i]] = '\0';
		CHECK_INT(postern__redis_address_parse(url, &address, &error),
				POSTERN_E_INVALID);
	}
}

static void guard_refuses(void) {
	struct postern_error error = { 0 };
	struct postern_guard *guard = NULL;
	struct postern_store *store = NULL;
	CHECK_OK(postern_redis_register(&error), &error);
	CHECK_OK(postern_redis_register(&error), &error);
	CHECK_INT(postern_guard_open("redis://:canary@h:x", NULL, &guard, &error),
			POSTERN_E_INVALID);
	CHECK_CONTAINS(error.text, "the port is not a number");
	CHECK(!strstr(error.text, "canary"));
	CHECK_INT(postern_store_open("redis://:canary@h", NULL, &store, &error),
			POSTERN_E_UNSUPPORTED);
	CHECK_STR(error.text,
			"the store 'redis:' keeps markers only, for guarded functions, and "
			"no messages");
	CHECK_INT(postern_store_open("rediss://:canary@h", NULL, &store, &error),
			POSTERN_E_UNSUPPORTED);
}

static const struct tap_case cases[] = {
	{ "a host is enough", defaults },
	{ "every part of a URL is read, and decoded", all_parts },
	{ "a URL that is wrong is refused without its secrets", refused },
	{ "every part has a limit", too_long },
	{ "a guard refuses a wrong URL, and a store of messages every one",
			guard_refuses },
};

TAP_MAIN(cases)
