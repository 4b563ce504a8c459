/* SPDX-License-Identifier: MIT */

/*
 * The rows of the kinds, and the one call that registers them.
 */

#include <postern/redis.h>

#include "redis/redis.h"

static int redis_check(const char *url, struct postern_error *error) {
	struct postern__redis_address address;
	int r = postern__redis_address_parse(url, &address, error);
	postern__redis_address_wipe(&address);
	return r;
}

static const struct postern_marker_kind kinds[] = {
	{
			.size = sizeof(struct postern_marker_kind),
			.name = "redis",
			.scheme = "redis",
			.form = "redis://HOST[:PORT][/DATABASE]",
			.check = redis_check,
			.open = postern__redis_open,
			.examine = postern__redis_examine,
	},
	{
			.size = sizeof(struct postern_marker_kind),
			.name = "redis",
			.scheme = "rediss",
			.form = "rediss://HOST[:PORT][/DATABASE]",
			.check = redis_check,
			.open = postern__redis_open,
			.examine = postern__redis_examine,
	},
};

int postern_redis_register(struct postern_error *error) {
	int r = POSTERN_OK;
	for (size_t i = 0; !r && i < sizeof kinds / sizeof kinds[0]; i++) {
		r = postern_marker_kind_register(&kinds[i], error);
	}
	return r;
}
