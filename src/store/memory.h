/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_MEMORY_H
#define POSTERN_STORE_MEMORY_H

/*
 * What the files of the memory store share.
 *
 * Everything hangs on one struct behind one mutex. Every message lives in an
 * array at its seq, and in a hash table by its identity. A delivery belongs to
 * its message and to the set of its state:
 *
 *   pending   the heap of its handler, by due time; a suspect is in the list
 *             of suspects too
 *   leased    the list of leased deliveries
 *   parked    the list of parked ones: a parked message has one delivery that
 *             has no handler
 *   done, poisoned, discarded   none
 *
 * Only the functions at the end of this header move a delivery between them,
 * and those cannot fail: whatever an operation may need is allocated before
 * it changes anything, so that it is done whole or not at all.
 *
 * Stored ids of channels and handlers are positions in their arrays + 1.
 */

#include <postern/sys/memory.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/siphash.h"

struct postern_clock;

/* One allocation, the texts behind the struct. */
struct memory_attempt {
	struct postern__list link;
	uint64_t fence;
	int64_t started_at_ms;
	int64_t finished_at_ms;
	const char *outcome;
	const char *error; /* may be NULL */
	size_t bytes;
};

struct memory_conflict {
	struct postern__list link;
	int64_t at_ms;
	size_t body_len;
	const char *transport; /* behind the struct */
	size_t bytes;
};

struct memory_delivery {
	struct postern__list of_message;
	struct postern__list set; /* of leased or parked ones */
	struct postern__list suspect;
	size_t heap_index; /* while pending */
	struct memory_message *message;
	int64_t handler; /* 0: parked */
	enum postern_state state;
	uint64_t fence;
	uint64_t node; /* 0 unless leased */
	uint32_t failures;
	uint32_t starts;
	uint32_t crashes;
	uint64_t group; /* of suspects; 0: under no suspicion */
	bool solo;      /* leased as the only one of its group */
	int64_t due_at_ms;
	int64_t since_ms; /* when it became pending */
	int64_t leased_at_ms;
	int64_t finished_at_ms;
	struct postern__list attempts; /* oldest first */
	size_t attempt_count;
};

/* One allocation: texts, headers and body are behind the struct. */
struct memory_message {
	struct memory_message *bucket_next;
	struct postern_message data;
	/* Only a trace is left: identity, time, and the digest of the body. */
	bool removed;
	uint8_t digest[POSTERN__SIPHASH_128_LEN];
	int64_t seq;
	int64_t channel;
	uint64_t hash;
	uint64_t duplicate_count;
	int64_t duplicate_at_ms;
	uint64_t conflict_count;
	struct postern__list conflicts; /* the first ones */
	size_t conflict_kept;
	struct postern__list deliveries; /* by handler */
	size_t delivery_count;
	size_t bytes;
};

struct memory_channel {
	char *name;
	uint64_t accepted;
	uint64_t duplicates;
	uint64_t conflicts;
	uint64_t dropped;
	uint64_t parked;
};

/* A binary heap, the delivery that is due first on top. */
struct memory_heap {
	struct memory_delivery **items;
	size_t count;
	size_t cap;
};

struct memory_handler {
	const char *key; /* the one it was last enrolled by; a name's */
	int64_t owner;   /* its own id, or the handler it is an alias of */
	int64_t next_id; /* of the same owner, which comes first; 0: the last */
	bool in_process;
	bool paused;
	uint32_t max_crashes;
	struct memory_heap pending;
	size_t delivery_count; /* in any state: so many may become pending */
	uint64_t done;
	uint64_t discarded;
};

/* A key, current or former. Names are never forgotten. */
struct memory_name {
	char *key;
	int64_t handler;
};

/* A time that runs out. */
struct memory_expiry {
	int64_t from_ms; /* when it was set */
	int64_t until_ms;
};

struct memory_node {
	uint64_t node;
	bool leased; /* lives until the end of its term */
	struct memory_expiry expiry;
	int64_t *handlers;
	size_t handler_count;
	bool engaged; /* it leases, under this lock; "": without one */
	char lock_name[POSTERN_LOCK_NAME_LEN_MAX + 1];
};

/* Locks are never forgotten: their fences only grow. */
struct memory_lock {
	char *name;
	uint64_t node; /* 0: free */
	uint64_t fence;
	struct memory_expiry expiry;
};

struct memory_store {
	struct postern_store base;
	pthread_mutex_t mutex;
	const struct postern_clock *clock;
	int64_t now_max_ms; /* the latest the clock has been */
	uint8_t hash_key[POSTERN__SIPHASH_KEY_LEN];
	size_t bytes;
	size_t bytes_max;
	uint64_t last_group;

	struct memory_channel *channels;
	size_t channel_count;
	struct memory_handler *handlers;
	size_t handler_count;
	struct memory_name *names;
	size_t name_count;
	struct memory_node *nodes;
	size_t node_count;
	struct memory_lock *locks;
	size_t lock_count;

	/* By seq - 1; NULL: forgotten. */
	struct memory_message **messages;
	size_t message_count;
	size_t message_cap;
	struct memory_message **buckets;
	size_t bucket_count; /* a power of two */

	struct postern__list leased;
	struct postern__list parked;   /* by seq */
	struct postern__list suspects; /* by group */
};

/* The operations, each under the mutex from begin to end. */
int postern__mem_enrol(struct memory_store *self,
		struct postern_enrolment *enrolment, struct postern_error *error);
int postern__mem_apply(struct memory_store *self, struct postern_batch *batch,
		struct postern_error *error);
int postern__mem_claim(struct memory_store *self,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error);
int postern__mem_recover(struct memory_store *self,
		const struct postern_recovery *recovery, struct postern_recovered *out,
		struct postern_error *error);
int postern__mem_orphans(struct memory_store *self, uint64_t node,
		const char *only, bool poison, size_t max,
		struct postern_memory *memory, struct postern_orphan **orphans_out,
		size_t *count_out, struct postern_error *error);
int postern__mem_unpark(struct memory_store *self, postern_router *router,
		void *context, size_t max, int64_t *cursor, uint64_t *count_out,
		struct postern_error *error);
int postern__mem_edit(struct memory_store *self, struct postern_edit *edit,
		struct postern_error *error);
int postern__mem_list(struct memory_store *self,
		const struct postern_query *query, struct postern_memory *memory,
		struct postern_page *out, struct postern_error *error);
int postern__mem_get(struct memory_store *self, int64_t seq,
		struct postern_memory *memory, struct postern_detail *out,
		struct postern_error *error);
int postern__mem_find(struct memory_store *self, const char *id,
		const char *source, const char *channel, int64_t *seqs, size_t max,
		size_t *count_out, struct postern_error *error);
int postern__mem_stats(struct memory_store *self, struct postern_memory *memory,
		struct postern_stats *out, struct postern_error *error);

int postern__mem_clean(struct memory_store *self,
		struct postern_cleaning *cleaning, struct postern_error *error);

int64_t postern__mem_now(struct memory_store *self);

/* Nodes and locks (memory_tenure.c). */
void postern__mem_expiry_set(struct memory_expiry *term, int64_t now,
		int64_t ttl_ms);
/* NULL: not enrolled, or forgotten. */
struct memory_node *postern__mem_node(struct memory_store *self, uint64_t node);
bool postern__mem_node_is_live(struct memory_store *self, uint64_t node,
		int64_t now);
/* Forget the nodes whose time is over, but for one. */
void postern__mem_nodes_expire(struct memory_store *self, uint64_t self_node,
		int64_t now);
void postern__mem_renew(struct memory_store *self, uint64_t node,
		int64_t ttl_ms, bool *alive_out);
int postern__mem_lock(struct memory_store *self, const char *name,
		uint64_t node, int64_t ttl_ms, bool *held_out, uint64_t *fence_out,
		struct postern_error *error);
void postern__mem_unlock(struct memory_store *self,
		const struct postern_lock *lock, uint64_t node);
int postern__mem_engage(struct memory_store *self, uint64_t node,
		const char *lock_name, struct postern_error *error);
/* False: no memory. */
bool postern__mem_node_stats(struct memory_store *self,
		struct postern_memory *memory, struct postern_stats *out);
/* Whether the node has the lock under that fence; NULL: it needs none. */
bool postern__mem_holds_lock(struct memory_store *self, uint64_t node,
		const struct postern_lock *lock);
void postern__mem_locks_finish(struct memory_store *self);

/* A walk over the deliveries that match a filter, newest message first, by
   handler within one (memory_edit.c). What it has returned may be changed. */
struct memory_cursor {
	struct memory_store *store;
	const struct postern_filter *filter;
	int64_t seq;     /* the message to look at next */
	int64_t handler; /* its deliveries up to this one are behind us */
};

/* Begins behind a delivery; after_seq 0: at the newest message. */
void postern__mem_cursor_init(struct memory_cursor *cursor,
		struct memory_store *self, const struct postern_filter *filter,
		int64_t after_seq, int64_t after_handler);
/* NULL: no more. */
struct memory_delivery *postern__mem_cursor_next(struct memory_cursor *cursor);

/* memory_directory.c: channels and handlers. */

struct memory_handler *postern__mem_handler(struct memory_store *self,
		int64_t id);
/* The handler that a stored id belongs to: itself unless it is an alias. */
struct memory_handler *postern__mem_owner(struct memory_store *self,
		int64_t id);
/* All ids of the handler that a stored id belongs to, the owner's first. */
#define postern__mem_each_id(self, each, id)                             \
	for (int64_t each = postern__mem_handler((self), (id))->owner; each; \
			each = postern__mem_handler((self), each)->next_id)
/* The id of the handler that a key belongs to, 0 if nobody has it. */
int64_t postern__mem_resolve(const struct memory_store *self, const char *key);
/* 0 if there is none. */
int64_t postern__mem_channel_id(const struct memory_store *self,
		const char *name);
void postern__mem_directory_finish(struct memory_store *self);
int postern__mem_read_pauses(struct memory_store *self, const int64_t *handlers,
		size_t count, bool *paused_out);

/* memory_message.c: messages. */

/* A copy that is in no store yet; NULL: no memory. */
struct memory_message *postern__mem_message_create(
		const struct postern_message *data);
void postern__mem_message_destroy(struct memory_message *message);
/* Room for `count` more messages. */
bool postern__mem_messages_reserve(struct memory_store *self, size_t count);
/* Give it the next seq and make it known. */
void postern__mem_message_add(struct memory_store *self,
		struct memory_message *message, int64_t channel);
/* Leave only a trace of a message that has ended; false: no memory, and
   nothing changed. */
bool postern__mem_message_remove(struct memory_store *self,
		struct memory_message *message);
/* Forget a trace. */
void postern__mem_remembered_remove(struct memory_store *self,
		struct memory_message *message);
/* Whether it has this body. */
bool postern__mem_message_same_body(const struct memory_store *self,
		const struct memory_message *message,
		const struct postern_message *other);
/* NULL: not known. It may be only a trace. */
struct memory_message *
postern__mem_message_find(const struct memory_store *self, int64_t channel,
		const char *source, const char *id);
/* NULL: not there, or only a trace. */
struct memory_message *postern__mem_message_get(const struct memory_store *self,
		int64_t seq);
/* A copy for somebody outside; false: no memory. */
bool postern__mem_message_export(const struct memory_message *message,
		struct postern_memory *memory, struct postern_message *out);
void postern__mem_messages_finish(struct memory_store *self);

/* memory_delivery.c: deliveries. */

struct memory_delivery *postern__mem_delivery_create(void);
/* Only one that belongs to no message, or whose message goes too. */
void postern__mem_delivery_destroy(struct memory_delivery *delivery);
/* The delivery of exactly this stored handler; NULL: none. */
struct memory_delivery *
postern__mem_delivery_find(const struct memory_message *message,
		int64_t handler);
/* Room for `count` more pending ones of a handler. */
bool postern__mem_pending_reserve(struct memory_handler *handler, size_t count);

/* Give it to its message; it is then in the state ANY, which is none, until
   one of the functions below moves it. */
void postern__mem_delivery_add(struct memory_store *self,
		struct memory_message *message, int64_t handler,
		struct memory_delivery *delivery);
/* Take a parked or ended delivery away and free it. */
void postern__mem_delivery_remove(struct memory_store *self,
		struct memory_delivery *delivery);

/* `group` 0: no suspicion. */
void postern__mem_make_pending(struct memory_store *self,
		struct memory_delivery *delivery, int64_t since_ms, int64_t due_at_ms,
		uint64_t group);
/* Make due at once what is pending since later than now: it became so before
   the clock was set back, and might be due a long time from now. */
void postern__mem_pending_repair(struct memory_store *self, int64_t now);
/* A claim: the fence and the starts grow. */
void postern__mem_make_leased(struct memory_store *self,
		struct memory_delivery *delivery, uint64_t node, int64_t now);
void postern__mem_make_ended(struct memory_store *self,
		struct memory_delivery *delivery, enum postern_state state,
		int64_t now);
void postern__mem_make_parked(struct memory_store *self,
		struct memory_delivery *delivery);

/* With texts copied; NULL: no memory. */
struct memory_attempt *postern__mem_attempt_create(const char *outcome,
		const char *text);
/* Takes the attempt; drops the oldest past POSTERN_ATTEMPTS_KEPT. */
void postern__mem_attempt_take(struct memory_store *self,
		struct memory_delivery *delivery, struct memory_attempt *attempt,
		int64_t started_at_ms, int64_t finished_at_ms);
/* The newest text kept, NULL: none. */
const char *postern__mem_last_error(const struct memory_delivery *delivery);

#endif
