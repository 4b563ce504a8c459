/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_ORACLE_H
#define POSTERN_TESTS_SIM_ORACLE_H

/*
 * What must be true. The oracle stands between the nodes and the store and
 * sees every answer of the store, also those that a node never hears of; it
 * is told what handlers saw and what senders were told. From that it knows
 * the state that each delivery must be in, and remembers the first rule that
 * was broken.
 */

#include "sim/cast.h"

#include <postern/event.h>
#include <postern/handler.h>
#include <postern/inspect.h>
#include <postern/sys/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_LIFE_MAX 256
/* Nobody is told of a settlement later than this many others. */
#define SIM_SETTLED_KEPT 16

struct sim;
struct sim_node;

struct sim_delivery {
	bool exists;
	enum postern_state state;
	uint64_t fence; /* the highest that was given out */
	uint64_t node;  /* leased: to whom */
	uint32_t failures;
	unsigned lost; /* leases that were */
	/* The holder does not know it: the store's answer never came. */
	bool reply_lost;
	int64_t due_ms;   /* pending: by the store's clock */
	int64_t ended_ms; /* the same */
	/* The last run that was begun under the fence. */
	uint64_t run_fence;
	int64_t granted_at_ms; /* monotonic, as all of these */
	int64_t run_at_ms;
	int64_t run_took_ms;
	bool run_ended;
	int64_t run_end_ms; /* by the store's clock */
	enum postern_outcome_kind run_outcome;
	uint64_t done_fence;
	/* How its last leases were settled, by their fence. */
	struct {
		uint64_t fence;
		enum postern_settle_to to;
		bool told; /* by an event of the node */
	} settled[SIM_SETTLED_KEPT];
	unsigned effects; /* rows that it left */
	bool seen;        /* by the look that is going on */
};

struct sim_record {
	int64_t seq;
	unsigned number; /* of the message */
	unsigned variant;
	bool told;      /* somebody was told that it is new */
	bool gone;      /* cleaned up */
	bool parked;    /* at some time */
	bool is_parked; /* when it was last seen */
	bool discarded; /* while it was parked */
	bool seen;
	int64_t accepted_ms;
	bool expected[SIM_HANDLER_COUNT]; /* by the node that accepted it */
	struct sim_delivery deliveries[SIM_STORED_MAX];
};

/*
 * A handler as the store knows it: by an id. A handler of the cast that was
 * renamed has two of them, until one becomes an alias of the other: then the
 * other owns it. Deliveries stay where they were made.
 */
struct sim_stored {
	int64_t id;
	const char *key;  /* the one it was made for */
	unsigned handler; /* of the cast */
	unsigned owner;   /* an index, as its own; an alias has another's */
	bool paused;      /* counts for an owner only */
};

/* When something ends: by the wall and by the monotonic clock, whichever
   comes first; 0: by itself never. */
struct sim_term {
	int64_t wall_ms;
	int64_t monotonic_ms;
};

struct sim_life {
	uint64_t node;
	bool ended;
	struct sim_term term;
};

#define SIM_LOCK_MAX 2

struct sim_lock {
	char name[64];
	uint64_t fence;
	uint64_t node; /* 0: nobody */
	struct sim_term term;
};

struct sim_oracle {
	struct sim *sim;
	const char *rule; /* the first that was broken; NULL: none */
	char text[400];

	struct sim_record *records; /* by seq */
	size_t count;
	size_t cap;
	int64_t seq_max;
	struct sim_life lives[SIM_LIFE_MAX];
	size_t life_count;
	struct sim_stored stored[SIM_STORED_MAX];
	unsigned stored_count;
	/* Of each handler of the cast: what its key and its old key stand for,
	   plus 1; 0: the store does not know the key. */
	unsigned names[SIM_HANDLER_COUNT][2];
	/* The store's clock was set back at some time: nothing is early. */
	bool set_back;
	struct sim_lock locks[SIM_LOCK_MAX];
	/* During a look after a recovery: whose. */
	const struct postern_recovery *recovery;
};

void sim_oracle_finish(struct sim_oracle *oracle);
/* A rule is broken. */
void sim_oracle_broken(struct sim_oracle *oracle, const char *rule,
		const char *format, ...) __attribute__((format(printf, 3, 4)));

/* stored.c: these return an index, or SIM_STORED_MAX if there is none. */
void sim_stored_enrolled(struct sim_oracle *oracle,
		const struct postern_enrolment *enrolment);
unsigned sim_stored_find(const struct sim_oracle *oracle, int64_t id);
/* The owner that a key stands for. */
unsigned sim_stored_resolve(const struct sim_oracle *oracle, const char *key);
/* The owner that a node of this generation means by a handler of the cast. */
unsigned sim_stored_of(const struct sim_oracle *oracle, unsigned handler,
		unsigned generation);
bool sim_stored_paused(const struct sim_oracle *oracle, unsigned stored);
/* The stored handler of a row. The store shows what is stored under an alias
   under its owner's key; those of one message are in the order of their ids. */
unsigned sim_stored_row(struct sim_oracle *oracle,
		const struct postern_page *page, size_t index);
/* The stored handler whose lease an event is about. */
unsigned sim_stored_event(const struct sim_oracle *oracle,
		const struct sim_record *record, const struct postern_event *event);

/* How the lease under this fence was settled. */
enum postern_settle_to sim_delivery_settled(const struct sim_delivery *delivery,
		uint64_t fence);
/* The state that a settlement leads to. */
enum postern_state sim_settled_state(enum postern_settle_to to);
struct sim_record *sim_oracle_find(struct sim_oracle *oracle, int64_t seq);

/* What the store did, whether or not the node hears of it. */
void sim_oracle_enrolled(struct sim_oracle *oracle,
		const struct postern_enrolment *enrolment);
void sim_oracle_applied(struct sim_oracle *oracle, const struct sim_node *node,
		const struct postern_batch *batch, bool reply_lost);
void sim_oracle_claimed(struct sim_oracle *oracle,
		const struct postern_claim *claim, const struct postern_claims *claims,
		bool reply_lost);
void sim_oracle_transacted(struct sim_oracle *oracle, uint64_t node,
		const struct postern_lock *lock, const struct postern_unit *units,
		size_t count);
void sim_oracle_paused(struct sim_oracle *oracle, const char *key, bool paused);
/* A node read which handlers are paused. */
void sim_oracle_pauses_read(struct sim_oracle *oracle, const int64_t *handlers,
		size_t count, const bool *paused);

void sim_oracle_renewed(struct sim_oracle *oracle, uint64_t node,
		int64_t ttl_ms);
/* Returns whether the lock has a new owner. */
bool sim_oracle_locked(struct sim_oracle *oracle, const char *name,
		uint64_t node, int64_t ttl_ms, uint64_t fence);
void sim_oracle_unlocked(struct sim_oracle *oracle,
		const struct postern_lock *lock, uint64_t node);
/* Whether a node really has a lock that it believes to have. */
bool sim_oracle_owns(struct sim_oracle *oracle, const struct postern_lock *lock,
		uint64_t node);
/* The store was opened again: nobody is there, and nobody has a lock. */
void sim_oracle_reopened(struct sim_oracle *oracle);
/* Whether a store may take a node for gone. */
bool sim_oracle_gone(const struct sim_oracle *oracle, uint64_t node);

/* Something changed deliveries without saying which. */
enum sim_cause {
	SIM_CAUSE_NONE,
	SIM_CAUSE_RECOVER,
	SIM_CAUSE_UNPARK,
	SIM_CAUSE_RETRY,
	SIM_CAUSE_DISCARD,
	SIM_CAUSE_CLEAN
};
/* Read all of the store and see that only that can have happened. */
void sim_oracle_look(struct sim_oracle *oracle, enum sim_cause cause);
void sim_oracle_recovered(struct sim_oracle *oracle,
		const struct postern_recovery *recovery);

/* What handlers saw and said, by the stored handler. */
void sim_oracle_run(struct sim_oracle *oracle, unsigned stored,
		const struct postern_delivery *run,
		const struct postern_message *message);
void sim_oracle_ran(struct sim_oracle *oracle, unsigned stored, int64_t seq,
		uint64_t fence, enum postern_outcome_kind kind);

/* What a sender was told. */
void sim_oracle_told(struct sim_oracle *oracle, unsigned number,
		unsigned variant, int code, int64_t seq);

/* A row that a transactional handler wrote. */
void sim_oracle_effect(struct sim_oracle *oracle, int64_t seq,
		const char *handler, uint64_t fence);
/* All rows were told. */
void sim_oracle_effects_end(struct sim_oracle *oracle);

/* A node stopped in peace: it holds nothing any more. */
void sim_oracle_left(struct sim_oracle *oracle, uint64_t node);
/* The only node that is left has had the time to run all that it can. */
void sim_oracle_survived(struct sim_oracle *oracle,
		const struct sim_node *node);
/* Everything has come to its end: has it? */
void sim_oracle_drained(struct sim_oracle *oracle);
/* How many deliveries are open; `forgotten` counts those whose holder does
   not know them. With a node: of the handlers that it has. */
size_t sim_oracle_open(const struct sim_oracle *oracle,
		const struct sim_node *node, size_t *forgotten);
/* A node was told that nobody has the handler with this key. */
void sim_oracle_orphaned(struct sim_oracle *oracle, const struct sim_node *node,
		const char *key);

#endif
