/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_SIM_ORACLE_H
#define POSTERN_TESTS_SIM_ORACLE_H

/*
 * The rules. The oracle is called between the nodes and the store and sees
 * every result of the store, also those that a node never receives, the runs of
 * handlers and the receipts of senders. From that it derives the state that
 * each delivery must have, and records the first rule that was broken.
 */

#include "sim/cast.h"

#include <postern/event.h>
#include <postern/handler.h>
#include <postern/inspect.h>
#include <postern/sys/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NODE_LEASE_MAX 256
/* No event reports a settlement later than after this many others. */
#define SIM_SETTLED_KEPT 16

struct sim;
struct sim_node;
struct sim_role;

struct sim_delivery {
	bool exists;
	enum postern_state state;
	uint64_t fence; /* the highest that was used */
	uint64_t node;  /* leased: to this node */
	uint32_t failures;
	unsigned lost; /* number of leases that were recovered */
	/* The node does not know about its lease: the reply of the store was
	   lost. */
	bool reply_lost;
	int64_t due_ms;   /* pending: due time by the store's clock; 0: unknown */
	int64_t ended_ms; /* by the store's clock */
	/* The last run under the fence. */
	uint64_t run_fence;
	unsigned run_generation; /* the one in place when it started */
	int64_t granted_at_ms;   /* monotonic, like run_at_ms */
	int64_t run_at_ms;
	int64_t run_took_ms;
	bool run_ended;
	int64_t run_end_ms; /* by the store's clock */
	enum postern_outcome_kind run_outcome;
	/* A run ended as POSTERN_HOLD; when the first one did, monotonic. */
	bool faulted;
	int64_t faulted_at_ms;
	uint64_t done_fence;
	/* How the last leases were settled, by their fence. */
	struct {
		uint64_t fence;
		enum postern_settle_to to;
		bool reported; /* by an event of the node */
	} settled[SIM_SETTLED_KEPT];
	unsigned effects; /* rows that its handler wrote */
	bool suspect;     /* a lease was recovered, and none has ended since */
	/* How often it was found waiting under this fence in a calm time. */
	unsigned waited;
	uint64_t waited_fence;
	bool found; /* in the current comparison */
};

struct sim_record {
	int64_t seq;
	unsigned number; /* the message's number in the plan */
	unsigned variant;
	bool acknowledged; /* a sender got a receipt that it is new */
	bool removed;      /* removed by cleanup */
	bool parked;       /* at any time */
	bool is_parked;    /* in the last comparison */
	bool discarded;    /* while parked */
	bool found;
	int64_t accepted_ms;
	/* Wanted in the generation that the accepting node had in place when the
	   message was sent. */
	bool expected[SIM_HANDLER_COUNT];
	struct sim_delivery deliveries[SIM_STORED_MAX];
};

/*
 * A handler as the store knows it: by an id. A handler of the cast that was
 * renamed has two ids until one becomes an alias of the other, which is then
 * its owner. Deliveries stay under the id they were made for.
 */
struct sim_stored {
	int64_t id;
	const char *key;  /* the key it was made for */
	unsigned handler; /* of the cast */
	unsigned owner;   /* an index: its own, or that of the owner of an alias */
	/* Valid for an owner only; the end by the store's clock, 0: none. */
	bool paused;
	int64_t paused_until_ms;
};

/* When a lease or lock expires: by the wall or the monotonic clock, whichever
   is first; 0: never. */
struct sim_expiry {
	int64_t wall_ms;
	int64_t monotonic_ms;
};

struct sim_node_lease {
	uint64_t node;
	bool ended;
	struct sim_expiry expiry;
	bool registered[SIM_STORED_MAX]; /* handlers, in its last enrolment */
};

#define SIM_LOCK_MAX 2

struct sim_lock {
	char name[64];
	uint64_t fence;
	uint64_t node; /* 0: no owner */
	struct sim_expiry expiry;
};

struct sim_oracle {
	struct sim *sim;
	const char *rule; /* the first rule that was broken; NULL: none */
	char text[400];

	struct sim_record *records; /* ordered by seq */
	size_t count;
	size_t cap;
	int64_t seq_max;
	struct sim_node_lease node_leases[SIM_NODE_LEASE_MAX];
	size_t node_lease_count;
	struct sim_stored stored[SIM_STORED_MAX];
	unsigned stored_count;
	bool closed[SIM_CHANNEL_COUNT];
	int64_t success_at_ms[SIM_HANDLER_COUNT]; /* when it started */
	/* For each handler of the cast, what its key and its old key resolve to,
	   plus 1; 0: the store does not know the key. */
	unsigned names[SIM_HANDLER_COUNT][2];
	/* The store's clock was set back at some time: nothing counts as early. */
	bool set_back;
	struct sim_lock locks[SIM_LOCK_MAX];
	/* During a comparison after a recovery: that recovery. */
	const struct postern_recovery *recovery;
};

void sim_oracle_finish(struct sim_oracle *oracle);
/* Record that a rule was broken. */
void sim_oracle_broken(struct sim_oracle *oracle, const char *rule,
		const char *format, ...) __attribute__((format(printf, 3, 4)));

/* stored.c: these return an index, or SIM_STORED_MAX if there is none. */
void sim_stored_enrolled(struct sim_oracle *oracle,
		const struct postern_enrolment *enrolment);
unsigned sim_stored_find(const struct sim_oracle *oracle, int64_t id);
/* The owner that a key resolves to. */
unsigned sim_stored_resolve(const struct sim_oracle *oracle, const char *key);
/* The owner of a handler of the cast, for a node of this generation. */
unsigned sim_stored_of(const struct sim_oracle *oracle, unsigned handler,
		unsigned generation);
bool sim_stored_paused(const struct sim_oracle *oracle, unsigned stored);
/* The stored handler of a row. The store lists deliveries of an alias under the
   owner's key; those of one message are ordered by id. */
unsigned sim_stored_row(struct sim_oracle *oracle,
		const struct postern_page *page, size_t index);
/* The stored handler of the lease that an event reports. */
unsigned sim_stored_event(const struct sim_oracle *oracle,
		const struct sim_record *record, const struct postern_event *event);

/* How the lease under this fence was settled. */
enum postern_settle_to sim_delivery_settled(const struct sim_delivery *delivery,
		uint64_t fence);
/* The state that a settlement leads to. */
enum postern_state sim_settled_state(enum postern_settle_to to);
struct sim_record *sim_oracle_find(struct sim_oracle *oracle, int64_t seq);

/* Results of the store, whether or not the node receives them. */
void sim_oracle_enrolled(struct sim_oracle *oracle, const struct sim_node *node,
		const struct postern_enrolment *enrolment);
void sim_oracle_applied(struct sim_oracle *oracle, const struct sim_node *node,
		const struct postern_batch *batch, bool reply_lost);
void sim_oracle_claimed(struct sim_oracle *oracle,
		const struct postern_claim *claim, const struct postern_claims *claims,
		bool reply_lost);
void sim_oracle_transacted(struct sim_oracle *oracle, uint64_t node,
		const struct postern_lock *lock, const struct postern_unit *units,
		size_t count);
void sim_oracle_paused(struct sim_oracle *oracle, const char *key, bool paused,
		int64_t until_ms);
/* A channel of the cast was closed or opened. */
void sim_oracle_closed(struct sim_oracle *oracle, const char *name,
		bool closed);
/* A node read the pauses of these handlers. */
void sim_oracle_pauses_read(struct sim_oracle *oracle, const int64_t *handlers,
		size_t count, const struct postern_halt *pauses);

void sim_oracle_renewed(struct sim_oracle *oracle, uint64_t node,
		int64_t ttl_ms);
/* Returns whether the lock has a new owner. */
bool sim_oracle_locked(struct sim_oracle *oracle, const char *name,
		uint64_t node, int64_t ttl_ms, uint64_t fence);
void sim_oracle_unlocked(struct sim_oracle *oracle,
		const struct postern_lock *lock, uint64_t node);
/* Whether a node owns a lock that it believes to own. */
bool sim_oracle_owns(struct sim_oracle *oracle, const struct postern_lock *lock,
		uint64_t node);
/* The store was reopened: all nodes are expired and all locks released. */
void sim_oracle_reopened(struct sim_oracle *oracle);
/* Whether a store may record a node as expired. */
bool sim_oracle_expired(const struct sim_oracle *oracle, uint64_t node);

/* The call that changed deliveries without returning which. */
enum sim_cause {
	SIM_CAUSE_NONE,
	SIM_CAUSE_RECOVER,
	SIM_CAUSE_UNPARK,
	SIM_CAUSE_RETRY,
	SIM_CAUSE_DISCARD,
	SIM_CAUSE_CLEAN
};
/* Read the whole store and check that only `cause` changed it. */
void sim_oracle_compare(struct sim_oracle *oracle, enum sim_cause cause);
void sim_oracle_recovered(struct sim_oracle *oracle,
		const struct postern_recovery *recovery);

/* Runs of handlers and their outcomes, by the stored handler. */
void sim_oracle_run(struct sim_oracle *oracle, const struct sim_role *role,
		unsigned stored, const struct postern_delivery *run,
		const struct postern_message *message);
void sim_oracle_ran(struct sim_oracle *oracle, unsigned stored, int64_t seq,
		uint64_t fence, enum postern_outcome_kind kind);

/* A receipt that a sender got. */
void sim_oracle_receipt(struct sim_oracle *oracle, unsigned number,
		unsigned variant, int code, int64_t seq);

/* A row that a transactional handler wrote. */
void sim_oracle_effect(struct sim_oracle *oracle, int64_t seq,
		const char *handler, uint64_t fence);
/* All rows were reported. */
void sim_oracle_effects_end(struct sim_oracle *oracle);

/* A node stopped gracefully: it must have no leases. */
void sim_oracle_node_stopped(struct sim_oracle *oracle, uint64_t node);
/* The only node left has had the time to run every delivery that it can. */
void sim_oracle_check_survivor(struct sim_oracle *oracle,
		const struct sim_node *node);
/* Whether the generation in place at a node has the handler of this
   delivery. */
bool sim_oracle_has_handler(const struct sim_oracle *oracle,
		const struct sim_node *node, unsigned stored);
/* How long a run may take in a generation. */
int64_t sim_oracle_timeout(const struct sim_oracle *oracle, unsigned handler,
		unsigned generation);
/* waiting.c */
/* A run is about to start: check that the handler's share is free. */
void sim_oracle_check_share(struct sim_oracle *oracle,
		const struct sim_role *role);
/* A run has ended: note whether its handler may be held on the node. */
void sim_oracle_note_trouble(struct sim_oracle *oracle, struct sim_node *node,
		unsigned stored, const struct postern_delivery *run,
		enum postern_outcome_kind kind);
/* Until when a delivery that starts now keeps others waiting; 0: it does not.
 */
int64_t sim_oracle_suspect_until_ms(struct sim_oracle *oracle, unsigned stored,
		int64_t seq);
/* A calm time of a node begins; a poll of it has ended, and everything that
   could start then has started. */
void sim_oracle_calm_begin(struct sim_oracle *oracle);
void sim_oracle_calm(struct sim_oracle *oracle, const struct sim_node *node);
/* NULL: none. */
struct sim_node_lease *sim_oracle_node_lease(struct sim_oracle *oracle,
		uint64_t node);
/* registered.c */
/* A node has enrolled, and its lease is new. */
void sim_oracle_record_registered(struct sim_oracle *oracle,
		struct sim_node_lease *lease, const struct sim_node *node,
		const struct postern_enrolment *enrolment);
/* Nothing of a former generation is in use any more: check that the node has
   registered the handlers of the one in place, and no others. */
void sim_oracle_check_registered(struct sim_oracle *oracle,
		const struct sim_node *node, uint64_t node_id);
/* Check that every delivery has ended. */
void sim_oracle_check_drained(struct sim_oracle *oracle);
/* Returns how many deliveries are open; `forgotten` counts leases that their
   node does not know. With a node: only of its handlers. */
size_t sim_oracle_count_open(const struct sim_oracle *oracle,
		const struct sim_node *node, size_t *forgotten);
/* A node got this handler key as orphaned. */
void sim_oracle_orphaned(struct sim_oracle *oracle, const struct sim_node *node,
		const char *key);

#endif
