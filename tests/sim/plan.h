/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_PLAN_H
#define POSTERN_TESTS_SIM_PLAN_H

/*
 * A plan is all that chance decides about a run of the simulation: a list of
 * operations, each with the blow that will be struck while it is under way.
 * The same plan gives the same history. What an operation means depends on
 * the state it meets, never on its place in the list, so any part of a plan
 * is a plan too: that is how a failing one is made smaller.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NODE_MAX 3
#define SIM_OP_MAX 200
/* Messages that differ in more than their body; numbered from 0. */
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
	SIM_FINISH, /* a handler that took its time finishes */
	SIM_RETRY,
	SIM_DISCARD,
	SIM_RETRY_ALL,
	SIM_DISCARD_ALL,
	SIM_PAUSE,
	SIM_RESUME,
	SIM_LOOK,
	SIM_START,
	SIM_STOP,      /* gracefully */
	SIM_CRASH,     /* one node */
	SIM_CRASH_ALL, /* the process with the store in it */
	SIM_WAIT,      /* time passes */
	SIM_JUMP,      /* somebody sets a clock */
	SIM_CLEANUP,
	SIM_KIND_COUNT
};

enum sim_blow {
	SIM_BLOW_NONE,
	SIM_BLOW_ERROR, /* the store's answer is `code` */
	SIM_BLOW_CRASH, /* the node dies */
	SIM_BLOW_PAUSE  /* the next `span` operations happen meanwhile */
};

struct sim_op {
	enum sim_kind kind;
	unsigned node;
	/* What it is about; read by the operation as it likes. */
	uint32_t a;
	uint32_t b;
	/* Struck at the first fitting site after `at` of them: before or after a
	   call of the store, in a handler, at a named point. */
	enum sim_blow blow;
	unsigned at;
	int code; /* of a pause: UNAVAILABLE makes it a long one */
	unsigned span;
};

/* What the nodes share. Only in memory there are no transactions. */
enum sim_store { SIM_MEMORY, SIM_SQLITE, SIM_POSTGRES };

struct sim_plan {
	uint64_t seed;
	enum sim_store store;
	unsigned nodes;
	int64_t node_lease_ms; /* 0: the one node is the process */
	bool exclusive;
	bool retention;
	bool ignore_conflicts;
	/* At the end: this node, counted from 1, is left alone with all that it
	   can run and must run it; 0: no node is. */
	unsigned survivor;
	bool prompt; /* handlers take no time and keep no run */
	size_t op_count;
	struct sim_op ops[SIM_OP_MAX];
};

/* The plan of a seed. */
void sim_plan_make(struct sim_plan *plan, uint64_t seed, enum sim_store store);

const char *sim_store_name(enum sim_store store);
/* What an operation is called: "send", "claim", … */
const char *sim_kind_name(enum sim_kind kind);

/* 64 bits that depend on nothing else but these. */
uint64_t sim_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

#endif
