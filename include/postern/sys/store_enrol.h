/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SYS_STORE_ENROL_H
#define POSTERN_SYS_STORE_ENROL_H

/*
 * What a node registers in a store: its channels and handlers, whose names
 * resolve to ids. Part of sys/store.h.
 */

#include <postern/box.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The retention of a channel. A message is removed, with its deliveries, when
   all of them have ended, none is poisoned, the message is not parked, and the
   last one ended (or, without any, the message was received) payload_ms ago.
   The remembered id is removed when the message is, and was received dedupe_ms
   ago; so are the keys that handlers have of the message, except those of a
   handler with a dedupe_ms of its own. */
struct postern_retention {
	int64_t channel;
	int64_t payload_ms;
	int64_t dedupe_ms; /* -1: forever; else never less than payload_ms */
};

/*
 * A name belongs to one channel for good. A channel that names a former one
 * continues it and gets the new name, unless both names belong to different
 * channels already: POSTERN_E_INVALID. A node that still uses a former name has
 * the same channel and does not change its name back.
 */
struct postern_enrol_channel {
	const char *name;
	const char *const *former_names;
	size_t former_name_count;
	size_t max_size; /* of the body of a staged message */
	/* Kept for read_retention(); `channel` is ignored. payload_ms 0: none. */
	struct postern_retention retention;
	/* out */
	int64_t id; /* positive, never changes */
	/* The name that it was created with, which is the source of messages that
	   have none, so that identities outlive a new name. Never changes. */
	char first_name[POSTERN_CHANNEL_NAME_LEN_MAX + 1];
};

struct postern_enrol_handler {
	const char *key;
	const char *const *legacy_keys;
	size_t legacy_key_count;
	bool in_process;
	uint32_t max_crashes;
	/* How long its keys are remembered, those of its aliases included: one is
	   removed so long after its message was received, whatever the channel's
	   retention, unless the handler's delivery of that message is open or
	   poisoned. 0: as the channel's retention says. */
	int64_t dedupe_ms;
	/* out */
	int64_t id; /* positive, never changes */
};

struct postern_enrolment {
	uint64_t node;
	/* The node was enrolled before: POSTERN_E_STALE, and nothing changes, if
	   it has expired. An expired node never becomes live again. */
	bool again;
	/* How long the node is live unless renewed; 0: until it is ended. */
	int64_t node_lease_ms;
	struct postern_enrol_channel *channels;
	size_t channel_count;
	struct postern_enrol_handler *handlers;
	size_t handler_count;
};

/*
 * The key rule of a channel or a handler that is enrolled, to be kept. One that
 * is kept already is changed if its text is another one that is not empty, and
 * the channel has accepted messages, whose keys another rule would not find.
 * The keys of a guarded rule are markers, so it is changed, also if it was
 * empty, as soon as the store has a marker. If a rule is changed and not
 * confirmed, nothing is written; else all are kept.
 *
 * A store that is open for reading only compares the rules and writes nothing.
 * Nothing is enrolled there, so it finds the ids by the names, and fills them
 * in; a rule whose names it does not know is not changed.
 */
struct postern_kept_rule {
	int64_t channel;  /* a channel id */
	int64_t handler;  /* a handler id; 0: the rule of the channel */
	const char *rule; /* "": none */
	bool confirmed;
	bool guarded;
	/* out */
	bool changed;
	const char *former; /* what was kept; NULL: nothing */
	/* in */
	const char *channel_name; /* a name that the channel has or had */
	const char *handler_key;  /* the same of the handler; NULL: of none */
};

#ifdef __cplusplus
}
#endif

#endif
