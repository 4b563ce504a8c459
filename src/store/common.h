/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_STORE_COMMON_H
#define POSTERN_STORE_COMMON_H

/*
 * Functions that several stores share, independent of where they keep data.
 */

#include <postern/event.h>
#include <postern/sys/store.h>
#include <stdbool.h>
#include <stddef.h>

struct postern__buf;

/* Fails with POSTERN_E_INVALID if two handlers resolved to one stored id. */
int postern__enrolment_check(const struct postern_enrolment *enrolment,
		struct postern_error *error);

/*
 * How a store keeps the names of channels; all in the transaction of an
 * enrolment.
 *
 *   find    the channel with this name; 0: none has it.
 *   create  a channel with this name.
 *   add     give a channel another name.
 *   rename  this is its present name now, if that was `from` (NULL: whatever it
 *           was).
 */
struct postern__channel_namer {
	int (*find)(void *context, const char *name, int64_t *id_out,
			struct postern_error *error);
	int (*create)(void *context, const char *name, int64_t *id_out,
			struct postern_error *error);
	int (*add)(void *context, int64_t id, const char *name,
			struct postern_error *error);
	int (*rename)(void *context, int64_t id, const char *name, const char *from,
			struct postern_error *error);
};

/* Resolves the names of a channel and sets its id; POSTERN_E_INVALID if they
   belong to different channels. */
int postern__channel_resolve(struct postern_enrol_channel *channel,
		const struct postern__channel_namer *namer, void *context,
		struct postern_error *error);

/* Sets first_name. */
void postern__channel_set_first(struct postern_enrol_channel *channel,
		const char *name);

/* So long a pull lease may have ended before recover() makes it pending: the
   nodes that have its handler take it over at once. */
#define POSTERN__PULL_ABANDONED_MS ((int64_t)3600 * 1000)

/* Sets all units to their state before a run: POSTERN_OK and POSTERN_DONE. */
void postern__units_reset(struct postern_unit *units, size_t count);
/* Whether the unit's completion is to be written in the transaction. */
bool postern__unit_completes(const struct postern_unit *unit);
/* Sets the code of a unit whose writes are rolled back; reason NULL keeps the
   reason of its outcome. */
void postern__unit_refuse(struct postern_unit *unit, int code,
		const char *reason);

/* Sets of states, as bits. */
#define POSTERN__STATE_BIT(state) (1u << (state))
#define POSTERN__STATES_OPEN                     \
	(POSTERN__STATE_BIT(POSTERN_STATE_PENDING) | \
			POSTERN__STATE_BIT(POSTERN_STATE_LEASED))
#define POSTERN__STATES_ENDED                            \
	(POSTERN__STATE_BIT(POSTERN_STATE_DONE) |            \
			POSTERN__STATE_BIT(POSTERN_STATE_POISONED) | \
			POSTERN__STATE_BIT(POSTERN_STATE_DISCARDED))

/* The set of states that a filter matches. */
unsigned postern__filter_states(const struct postern_filter *filter);
/* Append that set as SQL conditions on rows `d`: of the open deliveries, and of
   the ledger. */
void postern__sql_add_open_states(struct postern__buf *sql, unsigned states);
void postern__sql_add_ended_states(struct postern__buf *sql, unsigned states);

/*
 * Fails with POSTERN_E_BUSY because another node leases under another lock.
 *
 *   host       NULL: not known.
 *   lock_name  the lock of the other node; NULL: it leases without one.
 */
int postern__rival_fail(uint64_t node, const char *host, int64_t pid,
		const char *lock_name, struct postern_error *error);

/* Whether a stored halt is in effect. */
bool postern__halt_holds(const struct postern_halt *stored, int64_t now);
/* What an edit (PAUSE, RESUME, CLOSE, OPEN) makes of a stored halt; the texts
   are those of the edit. False: nothing changes. */
bool postern__halt_edit(const struct postern_edit *edit,
		const struct postern_halt *stored, int64_t now,
		struct postern_halt *out);
/* Whether a halt lasts longer than another one: of two handlers that become
   one, the longer pause remains. */
bool postern__halt_outlasts(const struct postern_halt *halt,
		const struct postern_halt *other);
/* Fill in what a reader of a stored halt gets; false: out of memory. memory
   NULL: without texts. */
bool postern__halt_read(const struct postern_halt *stored, int64_t now,
		struct postern_memory *memory, struct postern_halt *out);
/* The same into the statistics. */
bool postern__pause_stats(const struct postern_halt *stored, int64_t now,
		struct postern_memory *memory, struct postern_handler_stats *out);
bool postern__closed_stats(const struct postern_halt *stored,
		struct postern_memory *memory, struct postern_channel_stats *out);
/* The errors of attempts that a store ends by itself. */
#define POSTERN__CRASH_ERROR "the process ended while this ran alone"
#define POSTERN__ORPHAN_ERROR "no handler is registered under its key"

/* How long after its last use a group of errors is recorded as used again, and
   how often a store searches for unused examples while there are too many. */
#define POSTERN__SAMPLE_STEP_MS 1000
#define POSTERN__SAMPLE_PURGE_MS 60000

/* Groups that are counted row by row, in the caller's memory. */
struct postern__tally {
	struct postern_memory *memory;
	struct postern_group *groups;
	size_t count;
	size_t cap;
};

/* Adds `count` to a group. Texts are copied if it is new; false: out of
   memory. */
bool postern__tally_add(struct postern__tally *tally,
		const struct postern_group *group);
/* Sorts the groups, most first. */
void postern__tally_sort(struct postern__tally *tally);

/* Whether the text contains the other one, regardless of the case of ASCII
   letters. NULL contains nothing. */
bool postern__error_contains(const char *text, const char *part);

/* A message whose id is not its key is searched for among so many of the latest
   numbers. */
#define POSTERN__FIND_SCAN_MAX 100000

#define POSTERN__SUPPRESSED_TEXT_MAX 48
/* The error of a delivery that a key of its handler suppresses. */
void postern__suppressed_text(int64_t seq,
		char out[POSTERN__SUPPRESSED_TEXT_MAX]);

/* Reports an event that consists of a text; error may be NULL. */
void postern__store_report(const struct postern_store *store,
		enum postern_event_kind kind, const char *error, const char *text);

/* The name under which a key rule is kept. */
#define POSTERN__RULE_NAME_MAX 64
void postern__rule_name(const struct postern_kept_rule *rule,
		char out[POSTERN__RULE_NAME_MAX]);
/* Whether the store has what the rule is for. */
bool postern__rule_is_known(const struct postern_kept_rule *rule);
/* Whether a rule differs from what is kept, `former`, so that keys are
   forgotten. accepted: the channel has accepted messages. */
bool postern__rule_changes(const struct postern_kept_rule *rule, bool accepted,
		bool marked);

#endif
