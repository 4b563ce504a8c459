/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_EVENT_H
#define POSTERN_EVENT_H

/*
 * Events: everything that a box, its runner and its store report. Logs, metrics
 * and tests are subscribers. A kind of event has one row in the table below,
 * with its name, its level, its object and the fields that it carries.
 */

#include <postern/box.h>
#include <postern/error.h>
#include <postern/export.h>
#include <postern/inspect.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
/*
 * The fields of an event. A field is a member of struct postern_event with the
 * same name in lower case. New rows are added at the end.
 */
#define POSTERN_EVENT_FIELD_MAP(X) \
	/* name         member       bit */ \
	X(SEQ,          seq,         0)  \
	X(MESSAGE_ID,   message_id,  1)  \
	X(CHANNEL,      channel,     2)  \
	X(HANDLER,      handler,     3)  \
	X(ATTEMPT,      attempt,     4)  \
	X(FENCE,        fence,       5)  \
	X(OUTCOME,      outcome,     6)  \
	X(STATE,        state,       7)  \
	X(DURATION_MS,  duration_ms, 8)  \
	X(ERROR,        error,       9)  \
	X(COUNT,        count,       10) \
	X(BYTES,        bytes,       11) \
	X(ID_COUNT,     id_count,    12) \
	X(LOCK,         lock,        13) \
	X(NODE,         node,        14) \
	X(ACTION,       action,      15) \
	X(SOURCE,       source,      16) \
	X(TAG,          tag,         17) \
	X(REASON,       reason,      18) \
	X(BY,           by,          19) \
	X(UNTIL_MS,     until_ms,    20)

enum postern_event_field {
#define POSTERN_EVENT_FIELD(name, member, bit) \
	POSTERN_FIELD_##name = 1 << (bit),
	POSTERN_EVENT_FIELD_MAP(POSTERN_EVENT_FIELD)
#undef POSTERN_EVENT_FIELD

	/* Groups of fields that belong together. */
	POSTERN_FIELDS_MESSAGE = POSTERN_FIELD_SEQ | POSTERN_FIELD_MESSAGE_ID |
			POSTERN_FIELD_CHANNEL,
	POSTERN_FIELDS_RUN = POSTERN_FIELDS_MESSAGE | POSTERN_FIELD_HANDLER |
			POSTERN_FIELD_ATTEMPT | POSTERN_FIELD_FENCE,
	POSTERN_FIELDS_RUN_HELD = POSTERN_FIELDS_RUN | POSTERN_FIELD_DURATION_MS,
	POSTERN_FIELDS_ENDED = POSTERN_FIELDS_RUN | POSTERN_FIELD_OUTCOME |
			POSTERN_FIELD_DURATION_MS | POSTERN_FIELD_ERROR,
	POSTERN_FIELDS_SETTLED = POSTERN_FIELDS_ENDED | POSTERN_FIELD_STATE,
	POSTERN_FIELDS_ORPHANS = POSTERN_FIELD_HANDLER | POSTERN_FIELD_COUNT,
	POSTERN_FIELDS_EDIT = POSTERN_FIELDS_MESSAGE | POSTERN_FIELDS_ORPHANS |
			POSTERN_FIELD_ACTION | POSTERN_FIELD_REASON | POSTERN_FIELD_BY |
			POSTERN_FIELD_UNTIL_MS,
	POSTERN_FIELDS_LOCK = POSTERN_FIELD_LOCK | POSTERN_FIELD_NODE |
			POSTERN_FIELD_FENCE,
	POSTERN_FIELDS_LOCK_WAIT = POSTERN_FIELD_LOCK | POSTERN_FIELD_NODE |
			POSTERN_FIELD_DURATION_MS,
	POSTERN_FIELDS_NODE_WAIT = POSTERN_FIELD_NODE | POSTERN_FIELD_ERROR,
	POSTERN_FIELDS_COMMIT = POSTERN_FIELD_COUNT | POSTERN_FIELD_BYTES |
			POSTERN_FIELD_DURATION_MS,
	POSTERN_FIELDS_CLEANED = POSTERN_FIELD_COUNT | POSTERN_FIELD_ID_COUNT,
	POSTERN_FIELDS_STRANDED = POSTERN_FIELD_CHANNEL | POSTERN_FIELD_COUNT,
	POSTERN_FIELDS_RETENTION = POSTERN_FIELD_CHANNEL | POSTERN_FIELD_HANDLER,
	POSTERN_FIELDS_HOLD = POSTERN_FIELDS_RETENTION | POSTERN_FIELD_ERROR,
	POSTERN_FIELDS_SOURCE_ERROR = POSTERN_FIELD_SOURCE | POSTERN_FIELD_ERROR,
	POSTERN_FIELDS_SOURCE_REJECTED = POSTERN_FIELDS_SOURCE_ERROR |
			POSTERN_FIELD_TAG,
	POSTERN_FIELDS_NONE = 0
};

/* What an event is about. */
enum postern_event_object {
	POSTERN_OBJECT_MESSAGE,
	POSTERN_OBJECT_DELIVERY,
	POSTERN_OBJECT_HANDLER,
	POSTERN_OBJECT_STAGED, /* messages that are staged and not accepted */
	POSTERN_OBJECT_SOURCE,
	POSTERN_OBJECT_NODE,
	POSTERN_OBJECT_LOCK, /* the processing lock */
	POSTERN_OBJECT_STORE,
	POSTERN_OBJECT_CONFIGURATION
};

/*
 * The kinds of events. A name never changes, and new rows are added at the end.
 * The settlement of a run is durable with the kinds DONE, RETURNED, SNOOZED,
 * HINDERED, HELD, FAILED, POISONED and DISCARDED: those that have a state.
 */
#define POSTERN_EVENT_MAP(X) \
	/* kind, name, level, object, fields (one or a group of them), and the
	   summary: the sentence for people where an event has no text */ \
	X(ACCEPTED, message_accepted, DEBUG, MESSAGE, FIELDS_MESSAGE, \
			"message accepted") \
	X(DUPLICATE, message_duplicate, DEBUG, MESSAGE, FIELDS_MESSAGE, \
			"duplicate of a message that was accepted before") \
	X(CONFLICT, message_conflict, WARN, MESSAGE, FIELDS_MESSAGE, \
			"conflict: known id with another body") \
	X(STARTED, delivery_started, DEBUG, DELIVERY, FIELDS_RUN, \
			"run started") \
	X(DONE, delivery_done, DEBUG, DELIVERY, FIELDS_SETTLED, \
			"delivery done") \
	X(RETURNED, delivery_returned, DEBUG, DELIVERY, FIELDS_SETTLED, \
			"lease returned") \
	X(SNOOZED, delivery_snoozed, DEBUG, DELIVERY, FIELDS_SETTLED, \
			"delivery snoozed by its handler") \
	X(HINDERED, delivery_hindered, WARN, DELIVERY, FIELDS_SETTLED, \
			"delivery snoozed for a reason that is not the message") \
	X(HELD, delivery_held, WARN, DELIVERY, FIELDS_SETTLED, \
			"delivery held: its handler is at fault") \
	X(FAILED, delivery_failed, WARN, DELIVERY, FIELDS_SETTLED, \
			"delivery failed") \
	X(POISONED, delivery_poisoned, ERROR, DELIVERY, FIELDS_SETTLED, \
			"delivery poisoned") \
	X(DISCARDED, delivery_discarded, DEBUG, DELIVERY, FIELDS_SETTLED, \
			"delivery discarded") \
	X(FENCED, delivery_fenced, WARN, DELIVERY, FIELDS_ENDED, \
			"settlement refused: stale fence") \
	X(STUCK, delivery_stuck, ERROR, DELIVERY, FIELDS_RUN, \
			"run is past its lease") \
	X(RECOVERED, deliveries_recovered, INFO, DELIVERY, FIELD_COUNT, \
			"deliveries of expired nodes recovered") \
	X(SUSPECTS_POISONED, suspects_poisoned, ERROR, DELIVERY, FIELD_COUNT, \
			"deliveries poisoned that crashed their process too often") \
	X(ORPHANED, handler_orphaned, WARN, HANDLER, FIELDS_ORPHANS, \
			"no running node has the handler configured") \
	X(ORPHANS_POISONED, orphans_poisoned, ERROR, HANDLER, FIELDS_ORPHANS, \
			"orphaned deliveries poisoned") \
	X(EDITED, operator_edited, INFO, HANDLER, FIELDS_EDIT, \
			"changed by an operator") \
	X(LOCKED, lock_acquired, INFO, LOCK, FIELDS_LOCK, \
			"processing lock acquired") \
	X(LOCK_LOST, lock_lost, WARN, LOCK, FIELDS_LOCK, \
			"processing lock lost; another node may be processing") \
	X(LOCK_WAITING, lock_waiting, INFO, LOCK, FIELDS_LOCK_WAIT, \
			"waiting for the processing lock") \
	X(NODE_WAITING, node_waiting, INFO, NODE, FIELDS_NODE_WAIT, \
			"waiting to process: another node processes in another way") \
	X(NODE_EXPIRED, node_expired, ERROR, NODE, FIELD_NODE, \
			"node lease expired: it was not renewed in time, and other nodes " \
			"recovered the deliveries; registering as a new node") \
	X(COMMITTED, commit_written, DEBUG, STORE, FIELDS_COMMIT, \
			"commit written") \
	X(STORE_CREATED, store_created, INFO, STORE, FIELDS_NONE, \
			"created store") \
	X(STORE_UNSAFE, store_unsafe, WARN, STORE, FIELDS_NONE, \
			"store may lose accepted messages or markers") \
	X(STORE_FAILED, store_failed, ERROR, STORE, FIELD_ERROR, \
			"store unavailable") \
	X(STORE_WORKS, store_available, INFO, STORE, FIELDS_NONE, \
			"store available again") \
	X(CLEANED, store_cleaned, INFO, STORE, FIELDS_CLEANED, \
			"cleaned up messages and remembered ids") \
	X(NOTIFICATIONS_FAILED, notifications_failed, ERROR, STORE, FIELD_ERROR, \
			"cannot wait for notifications of other nodes; polling instead") \
	X(STRANDED, staged_stranded, WARN, STAGED, FIELDS_STRANDED, \
			"staged messages wait: no running node has the channel") \
	X(STAGED_REFUSED, staged_refused, ERROR, STAGED, FIELD_COUNT, \
			"staged messages cannot be accepted") \
	X(STAGED_LEFT, staged_left, WARN, STAGED, FIELD_ERROR, \
			"a staged message cannot be accepted yet and stays staged") \
	X(SOURCE_CONNECTED, source_connected, INFO, SOURCE, FIELD_SOURCE, \
			"source connected") \
	X(SOURCE_DISCONNECTED, source_disconnected, ERROR, SOURCE, \
			FIELDS_SOURCE_ERROR, \
			"source disconnected") \
	X(SOURCE_REJECTED, source_rejected, WARN, SOURCE, FIELDS_SOURCE_REJECTED, \
			"message of a source rejected") \
	X(WITHOUT_INBOX, channel_without_inbox, WARN, CONFIGURATION, \
			FIELD_CHANNEL, \
			"channel has no inbox, but require_inbox is set") \
	X(RETENTION_SHORT, retention_short, WARN, CONFIGURATION, FIELDS_RETENTION, \
			"channel forgets ids before its handler has ended its retries") \
	X(CONFIGURED, configuration_changed, INFO, CONFIGURATION, FIELD_COUNT, \
			"channels and handlers replaced") \
	X(HANDLER_HELD, handler_held, ERROR, HANDLER, FIELDS_HOLD, \
			"handler held on this node: it is at fault, or its last messages " \
			"all failed; one delivery at a time probes it") \
	X(HANDLER_RELEASED, handler_released, INFO, HANDLER, FIELDS_RETENTION, \
			"handler released: a run succeeded") \
	X(WRITER_HELD, writer_held, WARN, DELIVERY, FIELDS_RUN_HELD, \
			"a transactional run has the only writer of the store for more " \
			"than a second; all other writes wait for it") \
	X(SOURCE_QUARANTINED, source_quarantined, WARN, SOURCE, \
			FIELDS_SOURCE_REJECTED, \
			"message of a source quarantined") \
	X(DEDUPE_IN_MEMORY, dedupe_in_memory, INFO, CONFIGURATION, \
			FIELDS_RETENTION, \
			"handler remembers its keys in memory: a restart forgets them, " \
			"and a copy that comes after it runs again") \
	X(DEDUPE_FULL, dedupe_full, WARN, HANDLER, FIELDS_RETENTION, \
			"handler forgets keys before their time: it remembers as many as " \
			"dedupe_max allows")
/* clang-format on */

enum postern_event_kind {
#define POSTERN_EVENT_KIND(kind, name, level, object, fields, summary) \
	POSTERN_EVENT_##kind,
	POSTERN_EVENT_MAP(POSTERN_EVENT_KIND)
#undef POSTERN_EVENT_KIND
};

/* What is known of a kind of event. */
struct postern_event_info {
	const char *name; /* "delivery_poisoned": never changes */
	enum postern_level level;
	enum postern_event_object object;
	uint32_t fields; /* of enum postern_event_field */
	/* A sentence for people, which may change. */
	const char *summary;
};

/* A static row; NULL if this version does not know the kind. */
POSTERN_EXPORT const struct postern_event_info *postern_event_info(
		enum postern_event_kind kind);

/*
 * Valid until the subscriber returns. A field that the kind does not carry, or
 * that has no value, is NULL or 0.
 */
struct postern_event {
	size_t size;
	enum postern_event_kind kind;
	int64_t seq;
	const char *channel;
	const char *handler;
	uint64_t fence; /* of the delivery, or of the lock */
	uint32_t attempt;
	const char *outcome; /* as in struct postern_attempt */
	const char *error;   /* the reason; NULL if none */
	int64_t duration_ms; /* of the run, the commit or the wait */
	/* The new state of the delivery: done, poisoned, discarded or pending;
	   POSTERN_STATE_ANY unless a settlement is durable. */
	enum postern_state state;
	const char *message_id; /* with every seq */
	const char *text;       /* a sentence for people; NULL: the summary */
	/* Of the deliveries or messages; COMMITTED: of items; CONFIGURED: of
	   handlers. */
	uint64_t count;
	uint64_t bytes;    /* of the bodies */
	uint64_t id_count; /* of remembered ids */
	const char *lock;  /* its name */
	uint64_t node;     /* the node id of this process */
	/* What an operator did: "retry", "discard", "pause", "resume", "cancel",
	   "close", "open". */
	const char *action;
	const char *source; /* its name */
	uint64_t tag;       /* the source's number for a message */
	/* Why an operator made the change, who, and until when it holds. */
	const char *reason;
	const char *by;
	int64_t until_ms;
};

/* The sentence for people: the event's text, or the summary of its kind. */
POSTERN_EXPORT const char *postern_event_text(
		const struct postern_event *event);

#define POSTERN_LISTENER_COUNT_MAX 8

/*
 * Add a subscriber, which gets the events of this level and above until the box
 * is destroyed. Before postern_box_start() only; to get the events of
 * postern_box_open() too, set the option `listener`.
 *
 * A listener is called on the thread where the event happens, which waits for
 * it: it must return quickly and must not call functions of the box. Events of
 * level POSTERN_LEVEL_DEBUG happen for every message; without a subscriber that
 * wants them they cost nothing.
 */
POSTERN_EXPORT int postern_box_subscribe(struct postern_box *box,
		enum postern_level level, postern_listener *listener, void *context,
		struct postern_error *error);

#ifdef __cplusplus
}
#endif

#endif
