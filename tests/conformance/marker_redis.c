/* SPDX-License-Identifier: MIT */

/*
 * Markers in the Redis server that $POSTERN_TEST_REDIS names. Each case has a
 * key prefix of its own. The script gets the time of the case's clock.
 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "conformance/marker_target.h"
#include "conformance/target.h"
#include "redis/redis.h"
#include "tap.h"

static unsigned case_number;

static struct postern_markers *open_prefix(
		const struct postern_store_options *options) {
	char url[512];
	struct postern_error error;
	struct postern_store_options full = *options;
	struct postern_markers *markers = NULL;
	const char *server = getenv("POSTERN_TEST_REDIS");
	(void)snprintf(url, sizeof url,
			"%s?key_prefix=case-%ld-%u:", server ? server : "redis://unset",
			(long)getpid(), case_number);
	full.clock = postern_clock_system();
	full.command_timeout_ms = 30000;
	full.command_retries = 3;
	CHECK_OK(postern__redis_open(url, &full, &markers, &error), &error);
	if (markers) {
		postern__redis_use_clock(markers, options->clock);
	}
	return markers;
}

static struct postern_markers *redis_open(
		const struct postern_store_options *options) {
	case_number++;
	return open_prefix(options);
}

static void redis_close(struct postern_markers *markers) {
	if (markers) {
		markers->ops->destroy(markers);
	}
}

static struct postern_markers *redis_reopen(struct postern_markers *markers,
		const struct postern_store_options *options) {
	redis_close(markers);
	return open_prefix(options);
}

static struct postern_store *redis_store(void) {
	return NULL;
}

const struct marker_target marker_target = {
	.open = redis_open,
	.reopen = redis_reopen,
	.close = redis_close,
	.store = redis_store,
};

/* Redis runs no units, so nothing of this is used. */
const struct conformance_target conformance_target = { 0 };
