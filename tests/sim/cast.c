/* SPDX-License-Identifier: MIT */
/*
 * The cast. Together the handlers have every property that the box treats
 * specially: in-process or not, transactional or not, batched, with and without
 * a timeout, renamed, added later, removed, wanting other types than before,
 * with another policy.
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

/* What the changes of the configuration have differently from the newest
   version; 0 or NULL: the same. */
static const struct sim_change {
	unsigned generation;
	unsigned handler;
	bool removed;
	const char *type;
	uint32_t max_attempts;
	int64_t timeout_ms;
	uint32_t commit_batch;
	uint32_t concurrency;
} changes[] = {
	{ .generation = 3, .handler = 0, .removed = true },
	{ .generation = 3, .handler = 1, .type = "*" },
	{ .generation = 3, .handler = 2, .max_attempts = 4 },
	{ .generation = 3, .handler = 5, .max_attempts = 1, .timeout_ms = 10000 },
	{ .generation = 4, .handler = 0, .type = "alpha", .max_attempts = 1 },
	{ .generation = 4, .handler = 2, .removed = true },
	{ .generation = 4, .handler = 3, .max_attempts = 2, .commit_batch = 1 },
	{ .generation = 4, .handler = 4, .max_attempts = 2, .concurrency = 1 },
	/* Nearly everything is removed, also a channel. */
	{ .generation = 5, .handler = 0, .removed = true },
	{ .generation = 5, .handler = 1, .removed = true },
	{ .generation = 5, .handler = 2, .removed = true },
	{ .generation = 5, .handler = 3, .removed = true },
	{ .generation = 5, .handler = 4, .removed = true },
};

#define CHANGE_COUNT (sizeof(changes) / sizeof(changes[0]))

static void apply_change(const struct sim_change *change,
		struct sim_version *version) {
	version->exists = version->exists && !change->removed;
	if (change->type) {
		version->type = change->type;
	}
	if (change->max_attempts > 0) {
		version->max_attempts = change->max_attempts;
	}
	if (change->timeout_ms > 0) {
		version->timeout_ms = change->timeout_ms;
	}
	if (change->commit_batch > 0) {
		version->commit_batch = change->commit_batch;
	}
	if (change->concurrency > 0) {
		version->concurrency = change->concurrency;
	}
}

struct sim_version sim_cast_version(unsigned handler, unsigned generation) {
	const struct sim_handler *cast = &sim_handlers[handler];
	bool old = generation == 0;
	bool legacy = cast->old_key && generation >= cast->legacy_since;
	struct sim_version version = {
		.exists = generation >= cast->since,
		.key = old && cast->old_key ? cast->old_key : cast->key,
		.legacy_key = legacy ? cast->old_key : NULL,
		.type = old && cast->old_type ? cast->old_type : cast->type,
		.max_attempts = cast->max_attempts,
		.timeout_ms = cast->timeout_ms,
		.commit_batch = cast->commit_batch,
	};
	for (size_t i = 0; i < CHANGE_COUNT; i++) {
		if (changes[i].generation == generation &&
				changes[i].handler == handler) {
			apply_change(&changes[i], &version);
		}
	}
	return version;
}

bool sim_cast_has_channel(unsigned channel, unsigned generation) {
	return generation != 5 || channel != 1;
}

void sim_cast_attempts(unsigned handler, uint32_t *lowest, uint32_t *highest) {
	*lowest = sim_handlers[handler].max_attempts;
	*highest = *lowest;
	for (unsigned i = 0; i < SIM_REPLACED_COUNT; i++) {
		uint32_t attempts = sim_cast_version(handler, i).max_attempts;
		*lowest = attempts < *lowest ? attempts : *lowest;
		*highest = attempts > *highest ? attempts : *highest;
	}
}

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
	struct sim_version version = sim_cast_version(handler, generation);
	return version.exists && sim_handlers[handler].channel == channel &&
		   pattern_matches(version.type, type);
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
