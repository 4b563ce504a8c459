/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_CORE_GENERATION_H
#define POSTERN_CORE_GENERATION_H

/*
 * The channels and handlers of a box.
 */

#include "base/list.h"
#include "core/key_rules.h"
#include "core/meter.h"

#include <stdatomic.h>

#include <postern/box.h>
#include <postern/handler.h>
#include <postern/sys/handler.h>
#include <postern/sys/store.h>

struct postern__breaker;

struct postern__channel {
	char *name;
	char **former_names;
	size_t former_name_count;
	/* The source of messages without one: the name that the channel was created
	   with, once the store has assigned it. */
	char first_name[POSTERN_CHANNEL_NAME_LEN_MAX + 1];
	enum postern_unrouted unrouted;
	enum postern_on_conflict on_conflict;
	enum postern_channel_mode mode;
	bool allow_without_inbox;
	/* Of mode GUARD: what is guarded; neither: everything. */
	char **guarded_types;
	size_t guarded_type_count;
	char **guarded_handlers;
	size_t guarded_handler_count;
	char *marker; /* shared; NULL: one of each handler */
	int64_t guard_wait_ms;
	char *fault_channel; /* NULL: none */
	size_t max_message_size;
	int64_t retention_payload_ms;
	int64_t retention_dedupe_ms;
	struct postern__key_rules key_rules;
	enum postern_missing_key missing_key;
	bool accepts_key_change; /* its rules may differ from those in the store */
	/* The channel, or a handler of it, has a rule other than `id`. */
	bool has_key_rules;
	struct postern_policy policy;
	int64_t id;                            /* assigned by the store */
	struct postern_generation *generation; /* to which it belongs */
	struct postern__handler **handlers;
	size_t handler_count;
	struct postern__channel_state *state;
};

/* What changes while a channel works. A channel of the same name in the next
   generation takes it over. Guarded by the box's mutex. */
struct postern__channel_state {
	size_t refs; /* channels, of one generation each */
	struct postern__channel_meter meter;
};

/* A registered handler. */
struct postern__handler {
	struct postern_handler *impl;
	char *key;
	char **legacy_keys;
	size_t legacy_key_count;
	char **types;
	size_t type_count;
	struct postern__key_rules key_rules;
	int64_t retention_dedupe_ms; /* of its keys; 0: as the channel's */
	enum postern_dedupe dedupe;
	size_t dedupe_count_max;
	struct postern_policy policy;
	struct postern__channel *channel;
	int64_t id;                            /* assigned by the store */
	struct postern_generation *generation; /* to which it belongs */
	struct postern__handler_state *state;
};

/*
 * What changes while a handler works. A handler of the next generation with the
 * same key, or with this one as a legacy key, takes it over, so that limits
 * hold across both. Guarded by the box's mutex.
 */
struct postern__handler_state {
	size_t refs; /* handlers, of one generation each */
	/* Of the newest generation that has it; NULL: that one was destroyed. */
	struct postern__handler *handler;
	/* Whether the store had the handler paused, as read last, and when that
	   ends by the monotonic clock (0: it does not): pause.c. */
	bool paused;
	int64_t paused_until_ms;
	/* Of the pause, as the store has it: since when and until when (0: for
	   ever), why and by whom; NULL: not given. */
	int64_t pause_at_ms;
	int64_t pause_until_ms;
	char *pause_reason;
	char *pause_by;
	struct postern__recent *recent;   /* NULL: no key was needed yet */
	struct postern__breaker *breaker; /* NULL: no run has failed yet */
	struct postern__list queue; /* of postern_run.link: leased, not started */
	size_t queued;
	struct postern__list ready; /* box->ready, while `queued` is not 0 */
	uint64_t run_count; /* runs that have ended, and their mean duration */
	int64_t run_mean;   /* in units of window.c */
	/* Starts that are reserved and not used, until when they may be used, and
	   when to reserve again, by the monotonic clock. */
	size_t rate_left;
	int64_t rate_until_ms;
	int64_t rate_at_ms;
	bool rate_reserving;                  /* a thread is reserving starts */
	struct postern_rate_slots rate_slots; /* in stores without reserve() */
	size_t running; /* started, and not finished by the implementation */
	/* Leases that this process keeps in memory, and their bytes: counted from
	   the reservation before the accept is written until the settlement is
	   durable. */
	size_t held;
	size_t held_bytes;
	/* When the store may have a delivery due for this handler, by the
	   monotonic clock; POSTERN__NEVER if none is known. */
	int64_t due_at_ms;
	struct postern__list due; /* box->due, unless due_at_ms is NEVER */
	/* Of a pull handler: claims that wait, of postern__pull.link, and when one
	   was made last (0: never), by the monotonic clock. */
	struct postern__list pulls;
	int64_t pulled_ms;
	struct postern__handler_meter meter;
	/* For health.c, by the monotonic clock: when the queue began to have runs,
	   when a run ended last, when the handler was resumed. */
	int64_t queued_ms;
	int64_t ended_ms;
	int64_t freed_ms;
	size_t lost; /* abandoned runs that have not returned */
	/* share.c: whether the store has recorded that the node is idle for it; its
	   queue waits for longer than the window allows, and run_count + 1 of that
	   moment (0: it does not). */
	bool idle_told;
	uint64_t behind;
};

struct postern_generation {
	struct postern_box *box;
	/* The box, while it is in place; contents and calls in progress. */
	atomic_size_t refs;
	struct postern__list link; /* box->generations, once it is in place */
	struct postern__channel **channels;
	struct postern__channel **by_name; /* sorted */
	struct postern__channel **by_id;   /* sorted */
	size_t channel_count;
	struct postern__handler **handlers;
	size_t handler_count;
	size_t transactional_count; /* of its handlers */
	size_t rated_count;         /* of them: those with a rate */
	size_t pulled_count;        /* of them: those that workers claim */
};

/* The generation in place, with a reference of the caller. */
struct postern_generation *postern__generation_acquire(struct postern_box *box);
/* Also with the box's mutex held. */
void postern__generation_release(struct postern_generation *generation);
/* With the mutex: whether its generation is the one in place. */
bool postern__handler_in_place(const struct postern__handler *handler);
/* Whether this is the channel's name or a former one. */
bool postern__channel_has_name(const struct postern__channel *channel,
		const char *name);
/* Whether a name of one is a name of the other: the store has both as one. */
bool postern__channels_share_name(const struct postern__channel *left,
		const struct postern__channel *right);
/* By a name or former name; NULL: none. */
struct postern__channel *
postern__generation_channel(const struct postern_generation *generation,
		const char *name);
struct postern__channel *
postern__generation_channel_by_id(const struct postern_generation *generation,
		int64_t id);
/* After all ids were assigned. */
void postern__generation_sort_ids(struct postern_generation *generation);
/* Register a handler of any kind; becomes the owner of `impl`, also on
   failure. */
int postern__generation_register_taking(struct postern_generation *generation,
		const char *channel, const struct postern_handler_options *options,
		struct postern_handler *impl, struct postern_error *error);

/* replace.c */
/* Whether a key or legacy key of one is one of the other. */
bool postern__handlers_share_key(const struct postern__handler *a,
		const struct postern__handler *b);
/* Without the mutex. */
/* Destroy the generations that nothing uses any more, and register only what
   is left in the store. */
int postern__generations_reap(struct postern_box *box,
		struct postern_error *error);
#endif
