/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_PLAN_H
#define POSTERN_TESTS_SIM_PLAN_H

/*
 * A plan contains everything random of a run of the simulation: a list of
 * operations, each with the fault that is injected during it. The same plan
 * gives the same history. The meaning of an operation depends on the current
 * state, never on its position in the list, so any part of a plan is a plan
 * too: that is how a failing plan is made smaller.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NODE_MAX 3
#define SIM_OP_MAX 200
/* Messages with different ids; numbered from 0. */
#define SIM_MESSAGE_MAX 200

enum sim_kind {
	SIM_SEND,
	SIM_SEND_BATCH,
	SIM_SEND_ASYNC,
	SIM_COMMIT,
	SIM_CLAIM,
	SIM_RUN,
	SIM_PUMP,    /* what a runner's threads would do now */
	SIM_PROCESS, /* postern_box_process() */
	SIM_SWEEP,
	SIM_FINISH, /* a held run finishes */
	SIM_RETRY,
	SIM_DISCARD,
	SIM_RETRY_ALL,
	SIM_DISCARD_ALL,
	SIM_PAUSE,
	SIM_RESUME,
	SIM_COMPARE,
	SIM_START,
	SIM_STOP,      /* stops gracefully */
	SIM_CRASH,     /* one node is killed */
	SIM_CRASH_ALL, /* the process with the store is killed */
	SIM_WAIT,
	SIM_JUMP, /* a clock is set */
	SIM_CLEANUP,
	SIM_REPLACE, /* of the generation; also while the node is paused */
	SIM_CALM,    /* what a runner's threads do in a few undisturbed seconds */
	SIM_KIND_COUNT
};

enum sim_fault {
	SIM_FAULT_NONE,
	SIM_FAULT_ERROR, /* the call of the store returns `code` */
	SIM_FAULT_CRASH, /* the node is killed */
	SIM_FAULT_PAUSE  /* the next `span` operations run during it */
};

struct sim_op {
	enum sim_kind kind;
	unsigned node;
	/* Arguments; their meaning depends on the kind. */
	uint32_t a;
	uint32_t b;
	/* Injected at the first suitable site after `at` sites: before or after a
	   call of the store, in a handler, at a crash point. */
	enum sim_fault fault;
	unsigned at;
	int code; /* of a pause: UNAVAILABLE makes it longer than the node lease */
	unsigned span;
};

/* The kind of the shared store. Only memory has no transactions. */
enum sim_store { SIM_MEMORY, SIM_SQLITE, SIM_POSTGRES };

struct sim_plan {
	uint64_t seed;
	enum sim_store store;
	unsigned nodes;
	int64_t node_lease_ms; /* 0: one node, which is the process */
	bool exclusive;
	bool retention;
	bool ignore_conflicts;
	bool replaces; /* running nodes replace their generation */
	bool holds;    /* handlers may return POSTERN_HOLD */
	bool calms;    /* nodes have a limited number of workers, and calm times */
	/* At the end, this node, counted from 1, runs alone and must run every
	   delivery whose handler it has; 0: none. */
	unsigned survivor;
	bool instant; /* runs take no time and none is held */
	size_t op_count;
	struct sim_op ops[SIM_OP_MAX];
};

/* Make the plan of a seed. */
void sim_plan_make(struct sim_plan *plan, uint64_t seed, enum sim_store store);

const char *sim_store_name(enum sim_store store);
/* The name of an operation: "send", "claim", … */
const char *sim_kind_name(enum sim_kind kind);

/* 64 bits that depend only on the arguments. */
uint64_t sim_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

#endif
