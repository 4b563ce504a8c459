/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_MODEL_H
#define POSTERN_TESTS_MODEL_H

/*
 * What a store should contain, as simply as possible: a table of messages with
 * a slot for the delivery of every handler, scanned completely by every
 * function. The model shares no code with any store.
 *
 * A function of the model returns what the store should return. The functions
 * for claims validate the deliveries that the store chose and then repeat the
 * choice, because the contract leaves some of it to the store.
 */

#include <postern/sys/store.h>
#include <stdbool.h>
#include <stdint.h>

#define MODEL_MESSAGE_MAX 2000
/* Slot 0 is used for a parked message. */
#define MODEL_HANDLER_MAX 5
#define MODEL_CHANNEL_MAX 2
#define MODEL_MAX_CRASHES 2
/* Why a route is refused. */
#define MODEL_NO_KEY "the message has no key"

struct model_delivery {
	enum postern_state state; /* POSTERN_STATE_ANY: no delivery */
	uint64_t fence;
	uint64_t node;
	uint32_t failures;
	uint32_t starts;
	uint32_t crashes;
	size_t attempts;
	int64_t due_at_ms;
	int64_t since_ms; /* when it became pending */
	int64_t finished_at_ms;
	uint64_t group; /* group of suspects; 0: none */
	bool solo;
	const char *error; /* the last one, whose group it has; NULL: none */
};

struct model_message {
	int64_t seq;
	int channel;
	int id;
	bool by_id;
	int body;
	uint64_t duplicates;
	uint64_t conflicts;
	struct model_delivery deliveries[MODEL_HANDLER_MAX];
};

/* What a handler remembers: the first message with this value. */
struct model_key {
	int channel;
	int handler;
	int value;
	struct model_message *first;
};

struct model {
	int64_t now;
	uint64_t node;
	struct model_message messages[MODEL_MESSAGE_MAX];
	size_t count;
	struct model_key keys[MODEL_MESSAGE_MAX * MODEL_HANDLER_MAX];
	size_t key_count;
	bool in_process[MODEL_HANDLER_MAX];
	/* Of owners; the end of a pause, 0: none. */
	bool paused[MODEL_HANDLER_MAX];
	int64_t paused_until[MODEL_HANDLER_MAX];
	bool closed[MODEL_CHANNEL_MAX];
	bool registered[MODEL_HANDLER_MAX];
	/* The owner of each handler: itself, or the handler it is an alias of. */
	int owner[MODEL_HANDLER_MAX];
	uint64_t done[MODEL_HANDLER_MAX];
	uint64_t discarded[MODEL_HANDLER_MAX];
	uint64_t last_group;
	uint64_t group_age[MODEL_MESSAGE_MAX *
					   8]; /* the recovery that made each group */
	uint64_t recoveries;
};

/* A message to be accepted. */
struct model_accept {
	int channel;
	int id; /* or the value of another rule's key */
	bool by_id;
	int body;
	enum postern_fate fate;
	bool wanted[MODEL_HANDLER_MAX];
	bool lease[MODEL_HANDLER_MAX];
	bool retry_poisoned[MODEL_HANDLER_MAX];
	int keys[MODEL_HANDLER_MAX]; /* of the handlers; 0: none */
	/* out */
	int code;
	struct model_message *message; /* NULL: dropped; seq is not set if new */
	struct model_message *suppressed_by[MODEL_HANDLER_MAX];
	bool refused[MODEL_HANDLER_MAX];
	bool opened[MODEL_HANDLER_MAX];
	bool leased[MODEL_HANDLER_MAX];
	uint64_t fence[MODEL_HANDLER_MAX];
};

void model_accept(struct model *model, struct model_accept *accept);
/* Returns POSTERN_OK or POSTERN_E_STALE. */
int model_settle(struct model *model, struct model_message *message,
		int handler, uint64_t fence, uint64_t node, enum postern_settle_to to,
		int64_t delay_ms, uint32_t failures, const char *error);

struct model_message *model_find(struct model *model, int64_t seq);
/* Whether a delivery can be claimed as due. */
bool model_is_due(const struct model *model, const struct model_delivery *d,
		int handler);
bool model_is_suspect(const struct model *model, const struct model_delivery *d,
		int handler);
/* Returns the number of deliveries in a group, pending or leased. */
size_t model_group_count(const struct model *model, uint64_t group);
void model_lease(struct model *model, struct model_delivery *delivery);

/* Pause or resume a handler, or the owner of an alias; for_ms: 0 without an
   end. */
void model_pause(struct model *model, int handler, bool pause, int64_t for_ms);
bool model_is_paused(const struct model *model, int handler);
/* One handler becomes an alias of another: the longer pause remains. */
void model_join_pauses(struct model *model, int alias, int owner);

/* The clock goes back, by more than a store may ignore. */
void model_set_back(struct model *model, int64_t ms);

struct postern_recovered model_recover(struct model *model);
/* Poisons orphans; returns how many. */
uint64_t model_orphans(struct model *model);
/* Routes every parked message of a channel to one handler; returns how many. */
uint64_t model_unpark(struct model *model, int channel, int handler, int key,
		bool refused);
/* Returns the code that postern_box_retry() documents. */
int model_edit(struct model *model, enum postern_change_kind kind,
		struct model_delivery *delivery, int handler);

struct stand;
/* groups.c: compares all groups together, and the filter by the group of one
   error, oldest first. */
void model_compare_groups(const struct model *model, struct stand *stand,
		const char *text);
/* counters.c: compare the counts of all handlers, by their keys. */
void model_compare_counters(const struct model *model, struct stand *stand,
		const char *const keys[MODEL_HANDLER_MAX]);

#endif
