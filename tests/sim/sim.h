/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_SIM_H
#define POSTERN_TESTS_SIM_SIM_H

/*
 * The simulated world: a few nodes, each a box of its own, on one store and on
 * one thread. Time stands still until an operation advances it, and every
 * random number comes from the seed, so a plan has exactly one history.
 *
 * A node is paused by not returning to it: at a site (before or after a call of
 * the store, in a handler, at a crash point) the simulation runs the next
 * operations of the plan, those of the other nodes, on top of the paused node's
 * stack, and only then returns. A killed node can never use the store again;
 * its calls return errors and its box is destroyed.
 */

#include "sim/oracle.h"
#include "sim/plan.h"

#include "support/effects.h"
#include "support/fake_clock.h"

#include <postern/postern.h>
#include <postern/sys/store.h>
#include <stdio.h>

/* Runs that a node has started and not finished. */
#define SIM_HELD_MAX 8
#define SIM_BATCH_MAX 6
/* Messages that a node was sent and has not answered. */
#define SIM_SENT_MAX 256
#define SIM_URL_MAX 400
/* The workers of a node, if the plan has calm times. */
#define SIM_WORKERS 2
#define SIM_WORKERS_MAX 6

struct sim;
struct sim_parcel;

/* Where a fault can be injected. */
enum sim_site {
	SIM_SITE_BEFORE, /* before a call of the store */
	SIM_SITE_AFTER,  /* it took effect, and the node has no result yet */
	SIM_SITE_HANDLER,
	SIM_SITE_POINT
};

/* The context of a callback: its node and handler, in one generation. */
struct sim_role {
	struct sim_node *node;
	unsigned handler;
	const struct sim_generation *generation;
};

/* A generation that a node put in place, kept until its box is closed. */
struct sim_generation {
	struct sim_generation *next;
	unsigned number; /* of the cast */
	struct sim_role roles[SIM_HANDLER_COUNT];
};

struct sim_held {
	struct postern_run *run;
	const struct sim_role *role;
	/* A suspect keeps others waiting until this time at most; 0: it is none. */
	int64_t suspect_until_ms;
};

/* A message without a receipt, and the generation that routes it. */
struct sim_sent {
	unsigned number;
	unsigned variant;
	unsigned generation;
};

/* What may hold a handler on a node: its runs since the last success. */
struct sim_trouble {
	bool faulted;      /* one ended as POSTERN_HOLD */
	unsigned failures; /* so many failed */
};

struct sim_node {
	struct sim *sim;
	unsigned index;
	struct fake_clock clock;
	struct fake_random random;

	struct postern_box *box;            /* NULL: the node is not running */
	unsigned generation;                /* the number of the one in place */
	struct sim_generation *generations; /* the one in place first */
	bool dead;                          /* killed: what it does has no effect */
	struct sim_held held[SIM_HELD_MAX];
	size_t held_count;
	struct sim_trouble trouble[SIM_HANDLER_COUNT];
	struct sim_sent sent[SIM_SENT_MAX];
	size_t sent_count;

	/* The operation it is executing, NULL if none. */
	const struct sim_op *op;
	unsigned sites;
	bool fault_done;
	const char *paused_at; /* the site, NULL: not paused */
	/* The store refused its last enrolment: of two handlers of different
	   generations, one had become an alias of the other. */
	bool enrol_refused;
};

struct sim_counts {
	uint64_t ops;
	uint64_t errors;
	uint64_t crashes;
	uint64_t pauses;
	uint64_t runs;
	uint64_t messages;
	uint64_t recoveries; /* leases that were recovered */
	uint64_t fenced;
	uint64_t late_claims;   /* refused, because another node owns the lock */
	uint64_t double_owners; /* lock acquired while another node believed to own
							   it */
	uint64_t aliases;       /* ids that became an alias */
	uint64_t refused;       /* messages for closed channels */
	uint64_t replaced;      /* generations, and */
	uint64_t replaced_busy; /* those during another operation of the node */
	uint64_t calms;         /* calm times, and */
	uint64_t calm_starts;   /* runs that started in one */
};

void sim_counts_add(struct sim_counts *sum, const struct sim_counts *counts);

/* Called when a paused node continues. */
typedef void sim_resumed(void *context, struct sim_node *node,
		const char *site);

/* What a run writes and calls; each member may be NULL. */
struct sim_options {
	FILE *history; /* lines of JSON */
	FILE *dump;
	FILE *trace;            /* for people, one line for each step */
	const char *mutant;     /* a bug to add: see shared_store.c */
	const char *directory;  /* for files of a store */
	struct sim_counts *sum; /* the counts of the run are added */
	sim_resumed *resumed;
	void *resumed_context;
};

struct sim {
	const struct sim_plan *plan;
	struct sim_options options;
	struct fake_clock clock; /* the store's clock */
	struct fake_random random;
	struct postern_store *store;
	char url[SIM_URL_MAX];
	struct effects effects;
	unsigned file; /* how often the store's file was copied */
	struct sim_node nodes[SIM_NODE_MAX];
	struct sim_oracle oracle;
	struct sim_counts counts;

	size_t cursor;       /* the next operation of the plan */
	unsigned depth;      /* of nested operations */
	bool in_store;       /* inside the store's own operation */
	bool quiet;          /* no more faults: everything must end */
	uint64_t number;     /* of the next line of the history */
	bool effect_written; /* in the dump */
	struct sim_node *current;
};

/*
 * Run a plan. Returns true if no rule was broken; otherwise *rule_out (may be
 * NULL) names the rule and `text` (room for `size`) describes how.
 */
bool sim_run(const struct sim_plan *plan, const struct sim_options *options,
		const char **rule_out, char *text, size_t size);

/* world.c */
int sim_world_open(struct sim *sim);
void sim_world_close(struct sim *sim);
/* Leave the file as a killed process would and open a copy of it. */
void sim_world_reopen(struct sim *sim);
/* Read what transactional handlers wrote; the store is closed. */
void sim_world_effects(struct sim *sim);
void sim_advance(struct sim *sim, int64_t ms);

/* node.c */
void sim_node_init(struct sim *sim, struct sim_node *node, unsigned index);
/* leasing: as with a runner, accepted messages are leased. */
void sim_node_start(struct sim_node *node, unsigned generation, bool leasing);
/* Put another generation in place; false: the box refused it. */
bool sim_node_replace(struct sim_node *node, unsigned generation);
void sim_node_stop(struct sim_node *node);
/* Kill the node; its box is destroyed as soon as it is on no stack. */
void sim_node_kill(struct sim_node *node);
void sim_node_close_dead(struct sim_node *node);
/* Finish one held run. */
void sim_node_finish(struct sim_node *node, size_t index);
/* A message was sent to the node; it was answered. */
void sim_node_sent(struct sim_node *node, const struct sim_parcel *parcel);
void sim_node_answered(struct sim_node *node, const struct sim_parcel *parcel);

/* site.c */
/* A node passes a site: POSTERN_OK to continue, or the error of the store. */
int sim_site(struct sim_node *node, enum sim_site site, const char *name,
		struct postern_error *error);
/* Make the crash points of the code sites, where they are built. */
void sim_points_watch(struct sim *sim);
void sim_points_end(void);

/* shared_store.c */
struct postern_store *sim_store_create(struct sim_node *node);

/* message.c: message `number` with one of two bodies. */
#define SIM_TEXT_MAX 32
struct sim_parcel {
	struct postern_message message;
	unsigned number;
	unsigned variant;
	unsigned channel;
	unsigned generation; /* of the node that it was sent to */
	char id[SIM_TEXT_MAX];
	char body[SIM_TEXT_MAX];
};
void sim_parcel_make(const struct sim *sim, unsigned number, unsigned variant,
		struct sim_parcel *out);
/* The same, from a message that was read back. */
void sim_parcel_read(const struct sim *sim,
		const struct postern_message *message, struct sim_parcel *out);

/* step.c */
void sim_step(struct sim *sim, const struct sim_op *op);
/* Run the next operation of the plan; false at its end. */
bool sim_step_next(struct sim *sim);

/* history.c: these do nothing if the file is NULL. */
void sim_trace(struct sim *sim, const char *format, ...)
		__attribute__((format(printf, 2, 3)));
void sim_history_config(struct sim *sim);
void sim_history_send(struct sim_node *node, const struct sim_parcel *parcel);
void sim_history_receipt(struct sim_node *node, const struct sim_parcel *parcel,
		int code, int64_t seq);
void sim_history_run(struct sim_node *node, const struct postern_delivery *run,
		const struct postern_message *message, unsigned stored);
void sim_history_ran(struct sim_node *node, const struct postern_delivery *run,
		unsigned stored, enum postern_outcome_kind kind);
void sim_history_event(struct sim_node *node,
		const struct postern_event *event);
void sim_history_node(struct sim_node *node, const char *what);
/* At the call of the store: the node itself may get the result late. */
void sim_history_locked(struct sim_node *node, uint64_t fence);
void sim_history_edit(struct sim *sim, const char *op, int64_t seq,
		const char *handler);
void sim_history_clock(struct sim *sim, int64_t by);
/* One key is an alias of another from now on. */
void sim_history_alias(struct sim *sim, const char *alias, const char *owner);
void sim_history_cleaned(struct sim *sim, uint64_t messages, uint64_t keys);
/* The dump: the contents of the store, then the effects. */
void sim_dump_begin(struct sim *sim);
void sim_dump_effect(struct sim *sim, int64_t seq, const char *handler,
		uint64_t fence);
void sim_dump_end(struct sim *sim);

#endif
