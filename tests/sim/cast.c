/* SPDX-License-Identifier: MIT */
/*
 * The cast. Together the handlers have every property that the box treats
 * specially: in-process or not, transactional or not, batched, with and without
 * a timeout, renamed, added later, wanting more types than before.
 */

#include "sim/cast.h"

#include <string.h>

const char *const sim_types[SIM_TYPE_COUNT] = { "alpha", "beta", "gamma" };

const struct sim_channel sim_channels[SIM_CHANNEL_COUNT] = {
	{ "orders", POSTERN_UNROUTED_PARK },
	{ "mail", POSTERN_UNROUTED_DROP },
	/* No handler wants type gamma, and in generation 0 none wants beta. */
	{ "audit", POSTERN_UNROUTED_PARK },
};

const struct sim_handler sim_handlers[SIM_HANDLER_COUNT] = {
	{ .key = "ship",
			.channel = 0,
			.callback = true,
			.in_process = true,
			.max_attempts = 3,
			.max_crashes = 2 },
	{ .key = "bill",
			.channel = 0,
			.type = "b*",
			.callback = true,
			.transactional = true,
			.in_process = true,
			.max_attempts = 3,
			.max_crashes = 2 },
	{ .key = "count",
			.channel = 0,
			.since = 1,
			.in_process = true,
			.max_attempts = 2,
			.max_crashes = 3 },
	{ .key = "notify",
			.old_key = "notify-old",
			/* Generation 1 has the new key without the old one as legacy
			   key. */
			.legacy_since = 2,
			.channel = 1,
			.transactional = true,
			.max_attempts = 4,
			.max_crashes = 3,
			.commit_batch = 3 },
	{ .key = "archive",
			.channel = 1,
			.type = "alpha",
			.retry_poisoned = true,
			.max_attempts = 1,
			.max_crashes = 3 },
	{ .key = "watch",
			.channel = 2,
			.type = "*eta",
			.old_type = "alpha",
			.max_attempts = 3,
			.max_crashes = 3,
			.timeout_ms = 30 * 1000 },
};

/* '*' matches any text, at one end only. */
static bool pattern_matches(const char *pattern, const char *type) {
	if (!pattern) {
		return true;
	}
	size_t len = strlen(pattern);
	size_t type_len = strlen(type);
	if (pattern[0] == '*') {
		return type_len >= len - 1 &&
			   strcmp(type + type_len - (len - 1), pattern + 1) == 0;
	}
	if (pattern[len - 1] == '*') {
		return strncmp(pattern, type, len - 1) == 0;
	}
	return strcmp(pattern, type) == 0;
}

bool sim_cast_wants(unsigned handler, unsigned generation, unsigned channel,
		const char *type) {
	const struct sim_handler *cast = &sim_handlers[handler];
	if (cast->channel != channel || generation < cast->since) {
		return false;
	}
	return pattern_matches(generation == 0 && cast->old_type ? cast->old_type
															 : cast->type,
			type);
}

unsigned sim_cast_find(const char *key) {
	for (unsigned i = 0; i < SIM_HANDLER_COUNT; i++) {
		const struct sim_handler *cast = &sim_handlers[i];
		if (strcmp(key, cast->key) == 0 ||
				(cast->old_key && strcmp(key, cast->old_key) == 0)) {
			return i;
		}
	}
	return SIM_HANDLER_COUNT;
}
