/* SPDX-License-Identifier: MIT */

/*
 * The stores in libraries of their own: Redis.
 */

#include <postern/redis.h>
#include <stddef.h>

#include "cli/stores.h"

void postern__cli_stores_register(void) {
	/* If memory is exhausted, the URL is refused as one without a library. */
	(void)postern_redis_register(NULL);
}
