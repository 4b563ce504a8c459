/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_STAND_H
#define POSTERN_TESTS_STAND_H

/*
 * The fixture of the cases: a store of its own for each case, a clock, a node,
 * and short helpers for the usual operations. A helper checks that its
 * operation succeeded, so that a case contains its rule and little else.
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
	struct postern_memory *memory; /* owns every result until stand_close() */
	struct postern_error error;
	uint64_t node;
	int64_t orders; /* ids of the two channels */
	int64_t bills;
	int64_t handlers[STAND_HANDLER_MAX]; /* in the order of stand_open() */
};

/* Open a new store with the channels "orders" and "bills" and these handlers,
   which run outside the process; the list ends with NULL. */
void stand_open(struct stand *stand, ...) __attribute__((sentinel));
void stand_close(struct stand *stand);

/* The process dies and another one starts: a new node id, nothing enrolled and
   nothing recovered yet. */
void stand_crash(struct stand *stand);
int64_t stand_now(struct stand *stand);

/* A handler to enrol; legacy keys in one text, "a b", or NULL. */
struct stand_handler {
	const char *key;
	const char *legacy_keys;
	bool in_process;
	uint32_t max_crashes;
	int64_t dedupe_ms;
	/* out */
	int64_t id;
	bool paused;
};

/* Enrol the stand's node with both channels and these handlers. */
int stand_enrol(struct stand *stand, struct stand_handler *handlers,
		size_t count);
/* Enrol one handler, which must succeed; returns its id. */
int64_t stand_enrol_one(struct stand *stand, const char *key,
		const char *legacy_keys);
/* Enrol in-process handlers, a list that ends with NULL; their ids are written
   to stand->handlers. */
void stand_enrol_in_process(struct stand *stand, uint32_t max_crashes, ...)
		__attribute__((sentinel));

/* A message with its routes, which a case can change before it sends it. */
struct parcel {
	struct postern_message message;
	const struct postern_dedupe_key *key; /* NULL: by the rule `id` */
	struct postern_accept accept;
	struct postern_route routes[STAND_HANDLER_MAX];
};

/* A message to "orders" with source "shop" and type "order.paid". It has no
   routes yet, so it would be parked. */
void parcel_init(struct parcel *parcel, const struct stand *stand,
		const char *id, const char *body);
struct postern_route *parcel_add_route(struct parcel *parcel, int64_t handler);
/* Set what the accept points to; a parcel may have been copied or changed since
   parcel_init(). */
void parcel_pack(struct parcel *parcel);
/* Send the message in a batch of its own; returns the code of the item. */
int parcel_send(struct stand *stand, struct parcel *parcel);
/* Send several messages in one batch. */
void parcel_send_all(struct stand *stand, struct parcel *parcels, size_t count);

/* A new message for one handler, pending or leased; returns its seq. */
int64_t stand_accept(struct stand *stand, const char *id, int64_t handler);
int64_t stand_accept_leased(struct stand *stand, const char *id,
		int64_t handler);
/* Accept `count` messages, "m0", "m1" …, pending; returns the first seq. */
int64_t stand_accept_many(struct stand *stand, size_t count, int64_t handler);
/* Accept a message that is parked; returns its seq. */
int64_t stand_park(struct stand *stand, const char *id);

/* Apply one settlement, with the group of its error; returns its code. */
int stand_settle(struct stand *stand, struct postern_settlement settlement);
/* A settlement without delay, failures or error. */
int stand_settle_to(struct stand *stand, int64_t seq, int64_t handler,
		uint64_t fence, enum postern_settle_to to);
/* Claim a pending delivery and settle it, which must succeed. */
void stand_finish(struct stand *stand, int64_t seq, int64_t handler,
		enum postern_settle_to to);

/* Claim the due deliveries of one handler, at most `max`. */
struct postern_claims stand_claim(struct stand *stand, int64_t handler,
		uint32_t max);
struct postern_claims stand_claim_in_process(struct stand *stand,
		int64_t handler, uint32_t max);
struct postern_claims stand_claim_wants(struct stand *stand,
		const struct postern_want *wants, size_t count, size_t max);
struct postern_claims stand_claim_full(struct stand *stand,
		const struct postern_claim *claim);

/* Recover all leases of expired nodes. */
struct postern_recovered stand_recover(struct stand *stand);

/* Read a message, which must exist; all zero if it does not. */
struct postern_detail stand_get(struct stand *stand, int64_t seq);
/* Find the delivery with this handler key; NULL if there is none. */
const struct postern_delivery_detail *stand_delivery(struct stand *stand,
		int64_t seq, const char *key);
/* All zero if there is no such delivery. */
struct postern_row stand_row(struct stand *stand, int64_t seq, const char *key);
/* POSTERN_STATE_ANY if there is no such delivery. */
enum postern_state stand_state(struct stand *stand, int64_t seq,
		const char *key);
struct postern_page stand_list(struct stand *stand,
		const struct postern_filter *filter);
struct postern_stats stand_stats(struct stand *stand);
/* All zero if there is no such handler or channel. */
struct postern_handler_stats stand_handler_stats(struct stand *stand,
		const char *key);
struct postern_channel_stats stand_channel_stats(struct stand *stand,
		const char *name);

/* Returns the code of the store; count_out may be NULL. */
int stand_edit(struct stand *stand, enum postern_change_kind kind, int64_t seq,
		const char *key, uint64_t *count_out);
int stand_edit_all(struct stand *stand, enum postern_change_kind kind,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out);
/* Pause or resume a handler, which must succeed. */
void stand_pause(struct stand *stand, const char *key);
void stand_resume(struct stand *stand, const char *key);

#endif
