/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_MEMORY_H
#define POSTERN_STORE_MEMORY_H

/*
 * Declarations that the files of the memory store share.
 *
 * All data belongs to one struct behind one mutex. Every message is in an array
 * at its seq, and its keys are in a hash table. A delivery belongs to its
 * message and to the set of its state:
 *
 *   pending   the heap of its handler, by due time; a suspect is in the list
 *             of suspects too
 *   leased    the list of leased deliveries
 *   parked    the list of parked ones: a parked message has one delivery that
 *             has no handler
 *   done, poisoned, discarded   none
 *
 * Only the functions at the end of this header move a delivery between sets,
 * and they cannot fail: an operation allocates whatever it may need before it
 * changes anything, so that it is applied completely or not at all.
 *
 * Stored ids of channels and handlers are positions in their arrays + 1.
 */

#include <postern/handler.h>
#include <postern/sys/memory.h>
#include <postern/sys/store.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "core/identity.h"
#include "store/memory_marker.h"

struct postern_clock;

/* One allocation; the texts follow the struct. */
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
	const char *transport; /* stored after the struct */
	size_t bytes;
};

struct memory_delivery {
	struct postern__list of_message;
	struct postern__list set; /* in the leased or the parked list */
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
	uint32_t breaks;
	uint64_t group;       /* the suspect group; 0: not a suspect */
	uint64_t error_group; /* of the last error; 0: none */
	bool solo;            /* leased as the only suspect of its group */
	int64_t due_at_ms;
	int64_t since_ms; /* when the delivery became pending */
	int64_t leased_at_ms;
	int64_t finished_at_ms;
	struct postern__list attempts; /* oldest first */
	size_t attempt_count;
};

/* A remembered key; seq: of the message it belongs to. */
struct memory_key {
	struct memory_key *bucket_next;
	struct memory_key *next;
	int64_t seq;
	int64_t scope; /* a handler id; 0: the key of the message itself */
	uint8_t bytes[POSTERN__KEY_LEN];
};

/* One allocation: texts, headers and body follow the struct. */
struct memory_message {
	struct memory_key key;
	struct memory_key *handler_keys; /* in the scopes of handlers */
	struct postern_message data;
	/* The message was cleaned up; what is left is its remembered id: identity,
	   time, and the digest of the body. */
	bool removed;
	bool forgotten; /* removed, and its own key too: some of handlers are left
					 */
	uint8_t digest[POSTERN__DIGEST_LEN];
	int64_t seq;
	int64_t channel;
	uint64_t duplicate_count;
	int64_t duplicate_at_ms;
	uint64_t conflict_count;
	struct postern__list conflicts; /* the oldest */
	size_t conflict_kept;
	struct postern__list deliveries; /* by handler id */
	size_t delivery_count;
	size_t bytes;
};

struct memory_channel {
	/* In channel_names: the present name, and the one it was created with. */
	const char *name;
	const char *first_name;
	struct postern_retention retention;
	uint64_t accepted;
	uint64_t duplicates;
	uint64_t conflicts;
	uint64_t dropped;
	uint64_t parked;
	struct postern_halt closed; /* its texts are the channel's own */
};

/* A name that a channel has or had. */
struct memory_channel_name {
	char *name;
	int64_t channel;
};

/* A binary heap; the delivery that is due first is at the top. */
struct memory_heap {
	struct memory_delivery **items;
	size_t count;
	size_t cap;
};

struct memory_handler {
	const char *key; /* the key of the last enrolment; owned by a name */
	int64_t owner;   /* its own id, or that of the handler it is an alias of */
	int64_t next_id; /* the owner's next id, the owner's own first; 0: last */
	bool in_process;
	struct postern_halt pause; /* its texts are the handler's own */
	uint32_t max_crashes;
	int64_t dedupe_ms; /* 0: none of its own; read only from the owner */
	struct memory_heap pending;
	size_t delivery_count; /* in any state: the most that can become pending */
	uint64_t done;
	uint64_t discarded;
};

/* A key, current or legacy. Names are never removed. */
struct memory_name {
	char *key;
	int64_t handler;
};

/* When a node lease or a lock expires. */
struct memory_expiry {
	int64_t from_ms; /* when the lease or lock was last renewed */
	int64_t until_ms;
};

struct memory_node {
	uint64_t node;
	bool leased; /* the node lease expires; false: it never does */
	struct memory_expiry expiry;
	int64_t *handlers;
	size_t handler_count;
	bool engaged; /* the node leases, under lock_name; "": without one */
	char lock_name[POSTERN_LOCK_NAME_LEN_MAX + 1];
};

/* Locks are never removed: their fences only grow. */
struct memory_lock {
	char *name;
	uint64_t node; /* 0: free */
	uint64_t fence;
	struct memory_expiry expiry;
};

/* An example of a group of errors; group 0 of a handler: of all that exceed
   POSTERN_GROUP_COUNT_MAX. */
struct memory_sample {
	uint64_t group;
	int64_t handler;
	int64_t first_at_ms;
	int64_t last_at_ms;
	bool used; /* while unused ones are removed */
	char text[POSTERN_REASON_LEN_MAX + 1];
};

struct memory_store {
	struct postern_store base;
	struct memory_markers markers;
	pthread_mutex_t mutex;
	const struct postern_clock *clock;
	int64_t now_max_ms; /* the latest time that the clock has shown */
	uint8_t hash_key[POSTERN__SIPHASH_KEY_LEN];
	size_t bytes;
	size_t bytes_max;
	uint64_t last_group;

	struct memory_channel *channels;
	size_t channel_count;
	struct memory_channel_name *channel_names;
	size_t channel_name_count;
	struct memory_handler *handlers;
	size_t handler_count;
	struct memory_name *names;
	size_t name_count;
	struct memory_node *nodes;
	size_t node_count;
	struct memory_lock *locks;
	size_t lock_count;
	struct memory_sample *samples;
	size_t sample_count; /* with those of group 0 */
	size_t sample_cap;
	int64_t samples_purged_at_ms;

	/* By seq - 1; NULL: the remembered id was cleaned up. */
	struct memory_message **messages;
	size_t message_count;
	size_t message_cap;
	struct memory_key **buckets;
	size_t bucket_count; /* a power of two */
	size_t key_count;

	struct postern__list leased;
	struct postern__list parked;   /* by seq */
	struct postern__list suspects; /* by group */
};

/* The operations; the caller holds the mutex. */
int postern__mem_enrol(struct memory_store *self,
		struct postern_enrolment *enrolment, struct postern_error *error);
int postern__mem_apply(struct memory_store *self, struct postern_batch *batch,
		struct postern_error *error);
int postern__mem_claim(struct memory_store *self,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error);
/* memory_pull.c: pull leases. */
int postern__mem_claim_ended(struct memory_store *self,
		const struct postern_claim *claim, struct postern_memory *memory,
		struct postern_claims *out, struct postern_error *error);
int postern__mem_read_pulls(struct memory_store *self,
		struct postern_pull_row *rows, size_t count,
		struct postern_memory *memory, struct postern_error *error);
void postern__mem_extend(struct memory_store *self,
		struct postern_pull_row *row, int64_t lease_ms, int64_t *until_ms_out);
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

int postern__mem_groups(struct memory_store *self,
		const struct postern_filter *filter, struct postern_memory *memory,
		struct postern_group **out, size_t *count_out,
		struct postern_error *error);

/* memory_groups.c: examples of groups of errors. */

/* Reserves room for `count` more examples; false: out of memory. */
bool postern__mem_samples_reserve(struct memory_store *self, size_t count);
/* Sets the group of a delivery's last error, and keeps an example in room that
   was reserved. Group 0: nothing changes. */
void postern__mem_error_group_set(struct memory_store *self,
		struct memory_delivery *delivery, uint64_t group, const char *text,
		int64_t now);
/* Removes the examples that no delivery uses. */
void postern__mem_samples_purge(struct memory_store *self, int64_t now);

int64_t postern__mem_now(struct memory_store *self);

/* Nodes and locks (memory_tenure.c). */
void postern__mem_expiry_set(struct memory_expiry *expiry, int64_t now,
		int64_t ttl_ms);
/* NULL: not enrolled, or expired. */
struct memory_node *postern__mem_node(struct memory_store *self, uint64_t node);
bool postern__mem_node_is_live(struct memory_store *self, uint64_t node,
		int64_t now);
/* Removes nodes whose lease has expired, except self_node. */
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
/* False: out of memory. */
bool postern__mem_node_stats(struct memory_store *self,
		struct postern_memory *memory, struct postern_stats *out);
/* Whether the node holds the lock under that fence; true if lock is NULL. */
bool postern__mem_holds_lock(struct memory_store *self, uint64_t node,
		const struct postern_lock *lock);
void postern__mem_locks_finish(struct memory_store *self);

/* An iteration over the deliveries that match a filter, newest message first,
   by handler within a message (memory_edit.c). Deliveries that it has returned
   may be changed. */
struct memory_cursor {
	struct memory_store *store;
	const struct postern_filter *filter;
	int64_t seq;     /* the message to visit next */
	int64_t handler; /* its deliveries up to this id were visited */
};

/* Starts after a delivery; after_seq 0: at the newest message. */
void postern__mem_cursor_init(struct memory_cursor *cursor,
		struct memory_store *self, const struct postern_filter *filter,
		int64_t after_seq, int64_t after_handler);
/* NULL: at the end. */
struct memory_delivery *postern__mem_cursor_next(struct memory_cursor *cursor);

/* memory_channels.c: channels and their names. */

/* The channel with this name, present or former; 0: there is none. */
int64_t postern__mem_channel_id(const struct memory_store *self,
		const char *name);
/* Whether the message has this source; each name of its channel means that it
   came without one. */
bool postern__mem_has_source(const struct memory_store *self,
		const struct memory_message *message, const char *source);
/* The channels before an enrolment, to restore them if it fails. */
struct memory_channels_saved {
	struct memory_channel *channels;
	size_t count;
	size_t name_count;
};
/* Also reserves room for new names. */
bool postern__mem_channels_save(struct memory_channels_saved *saved,
		struct memory_store *self, const struct postern_enrolment *enrolment);
void postern__mem_channels_restore(const struct memory_channels_saved *saved,
		struct memory_store *self);
int postern__mem_channel_enrol(struct memory_store *self,
		struct postern_enrol_channel *channel, struct postern_error *error);
int postern__mem_read_retention(struct memory_store *self,
		struct postern_memory *memory, struct postern_retention **out,
		size_t *count_out, struct postern_error *error);
void postern__mem_channels_finish(struct memory_store *self);

/* memory_directory.c: channels and handlers. */

struct memory_handler *postern__mem_handler(struct memory_store *self,
		int64_t id);
/* The owner of a stored id: the same handler unless it is an alias. */
struct memory_handler *postern__mem_owner(struct memory_store *self,
		int64_t id);
/* All ids of the handler that owns a stored id, the owner's first. */
#define postern__mem_each_id(self, each, id)                             \
	for (int64_t each = postern__mem_handler((self), (id))->owner; each; \
			each = postern__mem_handler((self), each)->next_id)
/* The id of the handler that has this key; 0: no handler has it. */
int64_t postern__mem_resolve(const struct memory_store *self, const char *key);
void postern__mem_directory_finish(struct memory_store *self);
int postern__mem_read_pauses(struct memory_store *self, const int64_t *handlers,
		size_t count, struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error);
int postern__mem_read_closed(struct memory_store *self, int64_t channel,
		struct postern_memory *memory, struct postern_halt *out,
		struct postern_error *error);
/* Whether the handler that this one is, or is an alias of, is paused now. */
bool postern__mem_is_paused(struct memory_store *self, int64_t id);
void postern__mem_halt_finish(struct postern_halt *halt);

/* memory_message.c: messages. */

/* A copy that is not in the store yet; NULL: out of memory. */
struct memory_message *postern__mem_message_create(
		const struct postern_message *data);
void postern__mem_message_destroy(struct memory_message *message);
/* Reserves room for `count` more messages; false: out of memory. */
bool postern__mem_messages_reserve(struct memory_store *self, size_t count);
/* Assigns the next seq and adds the message to the store. */
void postern__mem_message_add(struct memory_store *self,
		struct memory_message *message, int64_t channel,
		const uint8_t key[POSTERN__KEY_LEN]);
/* Replaces a message that has ended by its remembered id; false: out of memory,
   and nothing changed. */
bool postern__mem_message_remove(struct memory_store *self,
		struct memory_message *message);
/* Removes the remembered id of a removed message. */
void postern__mem_remembered_remove(struct memory_store *self,
		struct memory_message *message);
/* Destroys what is left of a message once nothing of it is remembered. */
void postern__mem_remembered_trim(struct memory_store *self,
		struct memory_message *message);
/* Whether both messages have the same body. */
bool postern__mem_message_same_body(const struct memory_store *self,
		const struct memory_message *message,
		const struct postern_message *other);
/* NULL: not known. The result may be only a remembered id. */
struct memory_message *
postern__mem_message_find(const struct memory_store *self,
		const uint8_t key[POSTERN__KEY_LEN]);
/* NULL: no such message, or only its remembered id is left. */
struct memory_message *postern__mem_message_get(const struct memory_store *self,
		int64_t seq);
/* Copies the message into the caller's memory; false: out of memory. */
bool postern__mem_message_export(const struct memory_message *message,
		struct postern_memory *memory, struct postern_message *out);
void postern__mem_messages_finish(struct memory_store *self);

/* memory_key.c: the dedupe memory. */

/* Reserves room for `count` more keys; false: out of memory. */
bool postern__mem_keys_reserve(struct memory_store *self, size_t count);
/* NULL: not remembered. */
struct memory_key *postern__mem_key_find(const struct memory_store *self,
		const uint8_t bytes[POSTERN__KEY_LEN]);
void postern__mem_key_insert(struct memory_store *self, struct memory_key *key);
void postern__mem_key_remove(struct memory_store *self, struct memory_key *key);
/* Remembers the key of a route to a handler; returns the message that
   suppresses the route, 0: none. Takes what it needs from `spare`, at most one
   for each id of the handler. */
int64_t postern__mem_route_key_take(struct memory_store *self,
		const struct memory_message *message, int64_t handler,
		const uint8_t bytes[POSTERN__KEY_LEN], struct memory_key **spare);
/* Allocates a spare key for each id of a handler; false: out of memory. */
bool postern__mem_spare_keys_add(struct memory_store *self, int64_t handler,
		struct memory_key **spare, size_t *count);
/* Frees a list of keys that are not in the table. */
void postern__mem_keys_destroy(struct memory_key *keys);

/* memory_delivery.c: deliveries. */

struct memory_delivery *postern__mem_delivery_create(void);
/* Only for a delivery that has no message, or whose message is destroyed
   too. */
void postern__mem_delivery_destroy(struct memory_delivery *delivery);
/* The delivery with exactly this handler id; NULL: none. */
struct memory_delivery *
postern__mem_delivery_find(const struct memory_message *message,
		int64_t handler);
/* Reserves room for `count` more pending deliveries of a handler; false: out of
   memory. */
bool postern__mem_pending_reserve(struct memory_handler *handler, size_t count);

/* Adds the delivery to its message, in the state ANY, which belongs to no set,
   until one of the functions below moves it. */
void postern__mem_delivery_add(struct memory_store *self,
		struct memory_message *message, int64_t handler,
		struct memory_delivery *delivery);
/* Removes and frees a parked or ended delivery. */
void postern__mem_delivery_remove(struct memory_store *self,
		struct memory_delivery *delivery);

/* `group` 0: not a suspect. */
void postern__mem_make_pending(struct memory_store *self,
		struct memory_delivery *delivery, int64_t since_ms, int64_t due_at_ms,
		uint64_t group);
/* Makes due at once each delivery that became pending later than now: that was
   before the clock was set back, and its due time may be far away. */
void postern__mem_pending_repair(struct memory_store *self, int64_t now);
/* A claim: increments the fence and the number of starts. */
void postern__mem_make_leased(struct memory_store *self,
		struct memory_delivery *delivery, uint64_t node, int64_t now);
void postern__mem_make_ended(struct memory_store *self,
		struct memory_delivery *delivery, enum postern_state state,
		int64_t now);
void postern__mem_make_parked(struct memory_store *self,
		struct memory_delivery *delivery);

/* Copies the texts; NULL: out of memory. */
void postern__mem_attempt_destroy(struct memory_attempt *attempt);
struct memory_attempt *postern__mem_attempt_create(const char *outcome,
		const char *text);
/* Takes the attempt; frees the oldest above POSTERN_ATTEMPTS_KEPT. */
void postern__mem_attempt_take(struct memory_store *self,
		struct memory_delivery *delivery, struct memory_attempt *attempt,
		int64_t started_at_ms, int64_t finished_at_ms);
/* Creates the attempt of a delivery that ends at once: of a refused route, or,
   NULL, of one that may be suppressed. NULL: out of memory. */
struct memory_attempt *postern__mem_end_attempt_create(const char *refusal);
/* Adds a delivery that has ended. suppressed_by 0: the route was refused, and
   the attempt has its reason. Takes delivery and attempt. */
void postern__mem_delivery_end(struct memory_store *self,
		struct memory_message *message, int64_t owner,
		struct memory_delivery *delivery, struct memory_attempt *attempt,
		int64_t suppressed_by, int64_t now);
/* The newest error text that is kept; NULL: none. */
const char *postern__mem_last_error(const struct memory_delivery *delivery);

#endif
