/* SPDX-License-Identifier: MIT */

/*
 * The rows of the kinds, and the one call that registers them.
 */

#include <openssl/crypto.h>
#include <postern/redis.h>

#include "redis/redis.h"

#define QUOTED(x) #x
#define TEXT_OF(x) QUOTED(x)

static int redis_check(const char *url, struct postern_error *error) {
	struct postern__redis_address address;
	int r = postern__redis_address_parse(url, &address, error);
	postern__redis_address_wipe(&address);
	return r;
}

static const char *redis_library(size_t index, const char **version_out) {
	static const char *const names[] = { "hiredis", "openssl" };
	/* hiredis has no function for it. */
	static const char hiredis[] = TEXT_OF(HIREDIS_MAJOR) "." TEXT_OF(
			HIREDIS_MINOR) "." TEXT_OF(HIREDIS_PATCH);
	*version_out =
			index == 0 ? hiredis : OpenSSL_version(OPENSSL_VERSION_STRING);
	return index < sizeof names / sizeof names[0] ? names[index] : NULL;
}

static const struct postern_marker_kind kinds[] = {
	{
			.size = sizeof(struct postern_marker_kind),
			.name = "redis",
			.scheme = "redis",
			.form = "redis://HOST",
			.check = redis_check,
			.open = postern__redis_open,
			.examine = postern__redis_examine,
			.library = redis_library,
	},
	{
			.size = sizeof(struct postern_marker_kind),
			.name = "redis",
			.scheme = "rediss",
			.form = "rediss://HOST",
			.check = redis_check,
			.open = postern__redis_open,
			.examine = postern__redis_examine,
			.library = redis_library,
	},
};

int postern_redis_register(struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; !r && i < sizeof kinds / sizeof kinds[0]; i++) {
		r = postern_marker_kind_register(&kinds[i], error);
	}
	return r;
}
