/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_STAND_H
#define POSTERN_TESTS_STAND_H

/*
 * What the cases of the suite stand on: a store of its own for each case, a
 * clock, a node, and short ways to say the usual things. A helper checks what
 * the case does not want to hear of, so a case is the rule and little else.
 */

#include <postern/sys/memory.h>
#include <postern/sys/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conformance/target.h"
#include "support/fake_clock.h"
#include "tap.h"

#define STAND_HANDLER_MAX 8

struct stand {
	struct postern_store *store;
	const struct postern_store_ops *ops;
	struct fake_clock clock;
	struct fake_random random;
	struct postern_memory *memory; /* of every result, until the end */
	struct postern_error error;
	uint64_t node;
	int64_t orders; /* two channels */
	int64_t bills;
	int64_t handlers[STAND_HANDLER_MAX]; /* of stand_open(), in its order */
};

/* A new store with the channels "orders" and "bills" and these handlers, which
   run outside the process; end them with NULL. */
void stand_open(struct stand *stand, ...) __attribute__((sentinel));
void stand_close(struct stand *stand);

/* The process dies and another takes over: a new node, nothing enrolled and
   nothing recovered yet. */
void stand_crash(struct stand *stand);
int64_t stand_now(struct stand *stand);

/* Enrolling. */

/* A handler to be enrolled; legacy keys in one text, "a b", or NULL. */
struct stand_handler {
	const char *key;
	const char *legacy_keys;
	bool in_process;
	uint32_t max_crashes;
	/* out */
	int64_t id;
	bool paused;
};

/* Enrol the stand's node with both channels and these handlers. */
int stand_enrol(struct stand *stand, struct stand_handler *handlers,
		size_t count);
/* With one handler, which must work; returns its id. */
int64_t stand_enrol_one(struct stand *stand, const char *key,
		const char *legacy_keys);
/* In-process handlers, ended with NULL; ids to stand->handlers. */
void stand_enrol_in_process(struct stand *stand, uint32_t max_crashes, ...)
		__attribute__((sentinel));

/* Accepting. */

/* A message with its routes, ready to be changed and sent. */
struct parcel {
	struct postern_message message;
	struct postern_accept accept;
	struct postern_route routes[STAND_HANDLER_MAX];
};

/* To "orders", of source "shop" and type "order.paid", with no routes yet, so
   it would be parked. */
void parcel_init(struct parcel *parcel, const struct stand *stand,
		const char *id, const char *body);
struct postern_route *parcel_add_route(struct parcel *parcel, int64_t handler);
/* Send it alone; returns the code of the item. */
int parcel_send(struct stand *stand, struct parcel *parcel);
/* Send several in one batch. */
void parcel_send_all(struct stand *stand, struct parcel *parcels, size_t count);

/* A new message for one handler, pending or leased; returns its seq. */
int64_t stand_accept(struct stand *stand, const char *id, int64_t handler);
int64_t stand_accept_leased(struct stand *stand, const char *id,
		int64_t handler);
/* `count` of them, "m0", "m1" …, pending; returns the first seq. */
int64_t stand_accept_many(struct stand *stand, size_t count, int64_t handler);
/* A parked one; returns its seq. */
int64_t stand_park(struct stand *stand, const char *id);

/* Settling and claiming. */

/* Apply one settlement; returns its code. */
int stand_settle(struct stand *stand, struct postern_settlement settlement);
/* The usual ones: no delay, no failures, no error. */
int stand_settle_to(struct stand *stand, int64_t seq, int64_t handler,
		uint64_t fence, enum postern_settle_to to);
/* Lease a pending delivery and settle it, which must work. */
void stand_finish(struct stand *stand, int64_t seq, int64_t handler,
		enum postern_settle_to to);

/* Claim whatever one handler has, at most `max`. */
struct postern_claims stand_claim(struct stand *stand, int64_t handler,
		uint32_t max);
struct postern_claims stand_claim_in_process(struct stand *stand,
		int64_t handler, uint32_t max);
struct postern_claims stand_claim_wants(struct stand *stand,
		const struct postern_want *wants, size_t count, size_t max);
struct postern_claims stand_claim_full(struct stand *stand,
		const struct postern_claim *claim);

/* Take back what the other nodes had, all of it. */
struct postern_recovered stand_recover(struct stand *stand);

/* Looking. */

/* Must be there; empty if it is not. */
struct postern_detail stand_get(struct stand *stand, int64_t seq);
/* The delivery shown under this key; NULL if there is none. */
const struct postern_delivery_detail *stand_delivery(struct stand *stand,
		int64_t seq, const char *key);
/* A row that is all zero if there is no such delivery. */
struct postern_row stand_row(struct stand *stand, int64_t seq, const char *key);
/* POSTERN_STATE_ANY if there is no such delivery. */
enum postern_state stand_state(struct stand *stand, int64_t seq,
		const char *key);
struct postern_page stand_list(struct stand *stand,
		const struct postern_filter *filter);
struct postern_stats stand_stats(struct stand *stand);
/* All zero if there is none. */
struct postern_handler_stats stand_handler_stats(struct stand *stand,
		const char *key);
struct postern_channel_stats stand_channel_stats(struct stand *stand,
		const char *name);

/* Editing. */

/* Returns what the store returned; count_out may be NULL. */
int stand_edit(struct stand *stand, enum postern_edit_kind kind, int64_t seq,
		const char *key, uint64_t *count_out);
int stand_edit_all(struct stand *stand, enum postern_edit_kind kind,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out);
/* Which must work. */
void stand_pause(struct stand *stand, const char *key);
void stand_resume(struct stand *stand, const char *key);

#endif
