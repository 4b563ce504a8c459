/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_CAST_H
#define POSTERN_TESTS_SIM_CAST_H

/*
 * The channels and handlers of the simulated program, which has had three
 * versions ("generations"). Nodes of different generations may run at the same
 * time, as in a rolling upgrade. Further generations are changes of the
 * configuration: no node starts with one, but a running node may replace its
 * generation by any of them.
 */

#include <postern/box.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_CHANNEL_COUNT 3
#define SIM_HANDLER_COUNT 6
/* One of the handlers can be stored under two ids. */
#define SIM_STORED_MAX (SIM_HANDLER_COUNT + 1)
#define SIM_TYPE_COUNT 3
#define SIM_GENERATION_COUNT 3
/* With the changes of the configuration. */
#define SIM_REPLACED_COUNT 6

struct sim_channel {
	const char *name;
	enum postern_unrouted unrouted;
};

struct sim_handler {
	const char *key;
	const char *old_key; /* its key in generation 0; NULL: the same */
	/* The first generation with old_key as a legacy key. */
	unsigned legacy_since;
	unsigned channel;
	const char *type;     /* a pattern; NULL: every type */
	const char *old_type; /* the pattern of generation 0; NULL: the same */
	unsigned since;       /* the first generation that has the handler */
	bool transactional;   /* if the store has transactions */
	bool callback;        /* through the library's own callback kind */
	bool in_process;
	bool retry_poisoned; /* a duplicate reopens a poisoned delivery */
	uint32_t max_attempts;
	uint32_t max_crashes;
	int64_t timeout_ms;
	uint32_t commit_batch;
};

/* A handler as one generation has it. */
struct sim_version {
	bool exists;
	const char *key;
	const char *legacy_key; /* NULL: none */
	const char *type;
	uint32_t max_attempts;
	int64_t timeout_ms;
	uint32_t commit_batch;
	uint32_t concurrency;
};

extern const struct sim_channel sim_channels[SIM_CHANNEL_COUNT];
extern const struct sim_handler sim_handlers[SIM_HANDLER_COUNT];
extern const char *const sim_types[SIM_TYPE_COUNT];

/* The lease of a run, of any handler. */
#define SIM_LEASE_MS ((int64_t)60 * 1000)
/* The node lease, if there are several nodes. */
#define SIM_NODE_LEASE_MS ((int64_t)15 * 1000)
/* If the plan has retention. */
#define SIM_PAYLOAD_MS ((int64_t)10 * 60 * 1000)
#define SIM_DEDUPE_MS ((int64_t)60 * 60 * 1000)

struct sim_version sim_cast_version(unsigned handler, unsigned generation);
bool sim_cast_has_channel(unsigned channel, unsigned generation);
/* The lowest and the highest max_attempts of a handler in all generations. */
void sim_cast_attempts(unsigned handler, uint32_t *lowest, uint32_t *highest);
/* Whether a generation has the handler and the handler wants the type. */
bool sim_cast_wants(unsigned handler, unsigned generation, unsigned channel,
		const char *type);
/* Returns the handler with this key, old or new; SIM_HANDLER_COUNT: none. */
unsigned sim_cast_find(const char *key);

#endif
