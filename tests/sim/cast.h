/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_CAST_H
#define POSTERN_TESTS_SIM_CAST_H

/*
 * Who takes part: the channels and handlers of the simulated program, which
 * has had three versions ("generations"). Nodes of different generations may
 * run side by side, as in a rolling upgrade.
 */

#include <postern/box.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_CHANNEL_COUNT 3
#define SIM_HANDLER_COUNT 6
/* Of the handlers, one may be stored under two ids. */
#define SIM_STORED_MAX (SIM_HANDLER_COUNT + 1)
#define SIM_TYPE_COUNT 3
#define SIM_GENERATION_COUNT 3

struct sim_channel {
	const char *name;
	enum postern_unrouted unrouted;
};

struct sim_handler {
	const char *key;
	const char *old_key;   /* what generation 0 called it; NULL: the same */
	unsigned legacy_since; /* the first generation with it as a legacy key */
	unsigned channel;
	const char *type;     /* a pattern; NULL: every type */
	const char *old_type; /* what generation 0 wanted; NULL: the same */
	unsigned since;       /* the first generation that has it */
	bool transactional;   /* where the store can */
	bool callback;        /* through the library's own kind of handler */
	bool in_process;
	bool retry_poisoned; /* a duplicate opens a poisoned delivery */
	uint32_t max_attempts;
	uint32_t max_crashes;
	int64_t timeout_ms;
	uint32_t commit_batch;
};

extern const struct sim_channel sim_channels[SIM_CHANNEL_COUNT];
extern const struct sim_handler sim_handlers[SIM_HANDLER_COUNT];
extern const char *const sim_types[SIM_TYPE_COUNT];

/* How long one run of any handler may take. */
#define SIM_LEASE_MS ((int64_t)60 * 1000)
/* How long a node lives without being heard of, where there are several. */
#define SIM_NODE_LEASE_MS ((int64_t)15 * 1000)
/* Where there is retention. */
#define SIM_PAYLOAD_MS ((int64_t)10 * 60 * 1000)
#define SIM_DEDUPE_MS ((int64_t)60 * 60 * 1000)

/* Whether a handler is there in a generation and wants a type. */
bool sim_cast_wants(unsigned handler, unsigned generation, unsigned channel,
		const char *type);
/* Which handler has this key, old or new; SIM_HANDLER_COUNT: none. */
unsigned sim_cast_find(const char *key);

#endif
