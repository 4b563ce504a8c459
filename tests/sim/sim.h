/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_SIM_H
#define POSTERN_TESTS_SIM_SIM_H

/*
 * The simulated world: a few nodes, each a box of its own, around one store,
 * on one thread. Time stands still until an operation moves it, and every
 * number comes from the seed, so a plan has exactly one history.
 *
 * A node is paused by not returning to it: at a site (before or after a call
 * of the store, in a handler, at a named point) the simulation carries out
 * the next operations of the plan, those of the other nodes, on top of the
 * paused one's stack, and only then goes on. A node dies by never being
 * allowed to touch the store again; its box comes back with errors and is
 * thrown away.
 */

#include "sim/oracle.h"
#include "sim/plan.h"

#include "support/effects.h"
#include "support/fake_clock.h"

#include <postern/postern.h>
#include <postern/sys/store.h>
#include <stdio.h>

/* Runs that a node has begun and not finished. */
#define SIM_HELD_MAX 8
#define SIM_BATCH_MAX 6
#define SIM_URL_MAX 400

struct sim;

/* Where a node can be struck. */
enum sim_site {
	SIM_SITE_BEFORE, /* a call of the store */
	SIM_SITE_AFTER,  /* it took effect, and the node has not heard of it */
	SIM_SITE_HANDLER,
	SIM_SITE_POINT
};

/* What a callback is given: who it is. */
struct sim_role {
	struct sim_node *node;
	unsigned handler;
};

struct sim_held {
	struct postern_run *run;
	unsigned handler;
};

struct sim_node {
	struct sim *sim;
	unsigned index;
	struct fake_clock clock;
	struct fake_random random;
	struct sim_role roles[SIM_HANDLER_COUNT];

	struct postern_box *box; /* NULL: the node is down */
	unsigned generation;     /* of its configuration */
	bool dead;               /* nothing it does counts any more */
	struct sim_held held[SIM_HELD_MAX];
	size_t held_count;
	/* Messages given to accept_async and not answered. */
	size_t waiting;

	/* The operation it is carrying out, NULL if none. */
	const struct sim_op *op;
	unsigned sites;
	bool struck;
};

struct sim_counts {
	uint64_t ops;
	uint64_t errors;
	uint64_t crashes;
	uint64_t pauses;
	uint64_t runs;
	uint64_t messages;
	uint64_t takeovers; /* leases that were lost */
	uint64_t fenced;
	uint64_t late_claims; /* refused, because the lock is another's */
	uint64_t rivals;      /* given the lock while another believed it had it */
	uint64_t aliases;     /* ids that became one handler with another */
};

void sim_counts_add(struct sim_counts *sum, const struct sim_counts *counts);

/* Told when a node that was paused goes on. */
typedef void sim_resumed(void *context, struct sim_node *node,
		const char *site);

/* How a run is watched: all of it may be left out. */
struct sim_options {
	FILE *history; /* lines of JSON */
	FILE *dump;
	FILE *words;            /* for people */
	const char *mutant;     /* a bug to bring in: see shared_store.c */
	const char *directory;  /* for files of a store */
	struct sim_counts *sum; /* is added to */
	sim_resumed *resumed;
	void *resumed_context;
};

struct sim {
	const struct sim_plan *plan;
	struct sim_options options;
	struct fake_clock clock; /* the store's */
	struct fake_random random;
	struct postern_store *store;
	char url[SIM_URL_MAX];
	struct effects effects;
	unsigned file; /* how often the store's file was left behind */
	struct sim_node nodes[SIM_NODE_MAX];
	struct sim_oracle oracle;
	struct sim_counts counts;

	size_t cursor;       /* the next operation of the plan */
	unsigned depth;      /* of operations under way */
	bool in_store;       /* inside the store's own operation */
	bool calm;           /* no more blows: everything is to come to an end */
	uint64_t number;     /* of the next line of the history */
	bool effect_written; /* to the dump */
	struct sim_node *current;
};

/*
 * Carry out a plan. Returns true if no rule was broken; otherwise *rule_out
 * (may be NULL) names the rule and `text` (room for `size`) says how.
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
/* leasing: as if a runner were there, accepted messages are leased. */
void sim_node_start(struct sim_node *node, unsigned generation, bool leasing);
void sim_node_stop(struct sim_node *node);
/* At once; its box is thrown away as soon as it is on no stack. */
void sim_node_die(struct sim_node *node);
void sim_node_bury(struct sim_node *node);
/* Finish one run that a handler has kept. */
void sim_node_finish(struct sim_node *node, size_t index);

/* site.c */
/* A node passes a site: POSTERN_OK to go on, or the store's answer. */
int sim_site(struct sim_node *node, enum sim_site site, const char *name,
		struct postern_error *error);
/* Have the named points of the code told as sites, where they are built. */
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
	char id[SIM_TEXT_MAX];
	char body[SIM_TEXT_MAX];
};
void sim_parcel_make(const struct sim *sim, unsigned number, unsigned variant,
		struct sim_parcel *out);
/* The same, from a message that came back. */
void sim_parcel_read(const struct sim *sim,
		const struct postern_message *message, struct sim_parcel *out);

/* step.c */
void sim_step(struct sim *sim, const struct sim_op *op);
/* Carry out the next operation of the plan; false at its end. */
bool sim_step_next(struct sim *sim);

/* history.c: all do nothing where nobody wants it. */
void sim_say(struct sim *sim, const char *format, ...)
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
/* When the store gives it: the node itself may hear of it late. */
void sim_history_locked(struct sim_node *node, uint64_t fence);
void sim_history_edit(struct sim *sim, const char *op, int64_t seq,
		const char *handler);
void sim_history_clock(struct sim *sim, int64_t by);
/* What is stored for one key is from now on of the handler with another. */
void sim_history_alias(struct sim *sim, const char *alias, const char *owner);
void sim_history_cleaned(struct sim *sim, uint64_t messages, uint64_t keys);
/* The dump: all that the store holds, then the effects. */
void sim_dump_begin(struct sim *sim);
void sim_dump_effect(struct sim *sim, int64_t seq, const char *handler,
		uint64_t fence);
void sim_dump_end(struct sim *sim);

#endif
