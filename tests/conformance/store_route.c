/* SPDX-License-Identifier: MIT */

/*
 * Accepting: which deliveries a message gets, and which a copy of it adds.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

static void one_delivery_each(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", "c", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	parcel_add_route(&parcel, stand.handlers[2]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	CHECK_INT(stand_get(&stand, seq).delivery_count, 2);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_state(&stand, seq, "b"), POSTERN_STATE_ANY);
	CHECK_INT(stand_state(&stand, seq, "c"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void new_and_pending(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	struct postern_route *route = parcel_add_route(&parcel, stand.handlers[0]);
	route->leased = true;
	route->fence = 77;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(route->opened);
	CHECK(!route->leased);
	CHECK_INT(route->fence, 0);

	struct postern_row row = stand_row(&stand, parcel.accept.seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_PENDING);
	CHECK_INT(row.fence, 0);
	CHECK_INT(row.starts, 0);
	CHECK_INT(row.failures, 0);
	CHECK_INT(row.next_at_ms, stand_now(&stand));
	CHECK_INT(row.leased_at_ms, 0);
	CHECK_INT(row.finished_at_ms, 0);
	CHECK_STR(row.last_error, NULL);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].fence, 1);
	}
	stand_close(&stand);
}

static void new_and_leased(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	parcel_add_route(&parcel, stand.handlers[1]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(parcel.routes[0].opened);
	CHECK(parcel.routes[0].leased);
	CHECK_INT(parcel.routes[0].fence, 1);
	CHECK(!parcel.routes[1].leased);

	int64_t seq = parcel.accept.seq;
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_LEASED);
	CHECK_INT(row.fence, 1);
	CHECK_INT(row.starts, 1);
	CHECK_INT(row.next_at_ms, 0);
	CHECK_INT(row.leased_at_ms, stand_now(&stand));
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	CHECK_INT(stand_state(&stand, seq, "b"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void later_handler(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", "c", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);

	fake_clock_advance(&stand.clock, 100);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	parcel_add_route(&parcel, stand.handlers[1]);
	parcel_add_route(&parcel, stand.handlers[2])->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	CHECK(!parcel.routes[0].leased);
	CHECK(parcel.routes[1].opened);
	CHECK(!parcel.routes[1].leased);
	CHECK_INT(parcel.routes[1].fence, 0);
	CHECK(parcel.routes[2].opened);
	/* The caller has the body of the copy, not of the stored message. */
	CHECK(!parcel.routes[2].leased);
	CHECK_INT(parcel.routes[2].fence, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_row(&stand, seq, "b").next_at_ms, stand_now(&stand));
	CHECK_INT(stand_state(&stand, seq, "c"), POSTERN_STATE_PENDING);

	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[1].opened);
	CHECK_INT(stand_get(&stand, seq).delivery_count, 3);
	stand_close(&stand);
}

/* Also if the copy is in one batch with the first message, or if the message
   was parked before. */
static void copies_lease_nothing(void) {
	struct stand stand;
	struct parcel parcels[4];
	stand_open(&stand, "a", "b", NULL);
	int64_t parked = stand_park(&stand, "2");
	for (size_t i = 0; i < 3; i++) {
		parcel_init(&parcels[i], &stand, i < 2 ? "1" : "2", "body");
		parcel_add_route(&parcels[i], stand.handlers[0])->lease = true;
	}
	parcel_add_route(&parcels[1], stand.handlers[1])->lease = true;
	parcels[3] = parcels[1];
	parcel_send_all(&stand, parcels, 4);
	int64_t seq = parcels[0].accept.seq;
	CHECK_INT(parcels[0].accept.code, POSTERN_OK);
	CHECK(parcels[0].routes[0].leased);
	for (size_t i = 1; i < 4; i++) {
		CHECK_INT(parcels[i].accept.code, POSTERN_E_DUPLICATE);
		CHECK(!parcels[i].routes[0].leased);
		CHECK(!parcels[i].routes[1].leased);
	}
	CHECK(parcels[1].routes[1].opened);
	CHECK(!parcels[3].routes[1].opened);
	CHECK(parcels[2].routes[0].opened);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_LEASED);
	CHECK_INT(stand_state(&stand, seq, "b"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_state(&stand, parked, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_claim(&stand, stand.handlers[1], 9).count, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 9).count, 1);
	stand_close(&stand);
}

static void not_by_a_conflict(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	parcel_init(&parcel, &stand, "1", "other");
	parcel_add_route(&parcel, stand.handlers[1]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	CHECK(!parcel.routes[0].opened);
	CHECK_INT(stand_get(&stand, seq).delivery_count, 1);
	stand_close(&stand);
}

static void any_state_suppresses(void) {
	static const struct {
		enum postern_settle_to to;
		enum postern_state state;
	} ends[] = {
		{ POSTERN_SETTLE_DONE, POSTERN_STATE_DONE },
		{ POSTERN_SETTLE_POISONED, POSTERN_STATE_POISONED },
		{ POSTERN_SETTLE_DISCARDED, POSTERN_STATE_DISCARDED },
		{ POSTERN_SETTLE_PENDING, POSTERN_STATE_PENDING },
	};
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		struct stand stand;
		struct parcel parcel;
		stand_open(&stand, "a", NULL);
		int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
		stand_finish(&stand, seq, stand.handlers[0], ends[i].to);
		parcel_init(&parcel, &stand, "1", "body");
		parcel_add_route(&parcel, stand.handlers[0])->lease = true;
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
		CHECK(!parcel.routes[0].opened);
		struct postern_row row = stand_row(&stand, seq, "a");
		CHECK_INT(row.state, ends[i].state);
		CHECK_INT(row.fence, 1);
		stand_close(&stand);
	}
}

static void alias_suppresses(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "new", "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[1]);
	stand_finish(&stand, seq, stand.handlers[1], POSTERN_SETTLE_DONE);
	CHECK_INT(stand_enrol_one(&stand, "new", "old"), stand.handlers[0]);

	parcel_init(&parcel, &stand, "1", "body");
	struct postern_route *route = parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!route->opened);
	CHECK_INT(stand_get(&stand, seq).delivery_count, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	stand_close(&stand);
}

static void poisoned_stays(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_POISONED);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_POISONED);
	stand_close(&stand);
}

/* Poison the delivery with two failures, under fence 2. */
static void poison_after_two(struct stand *stand, int64_t seq,
		int64_t handler) {
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = handler,
		.fence = 1,
		.to = POSTERN_SETTLE_PENDING,
		.failures = 1,
		.outcome = "retry",
		.error = "no luck",
	};
	CHECK_INT(stand_claim(stand, handler, 1).count, 1);
	CHECK_INT(stand_settle(stand, settlement), POSTERN_OK);
	settlement.fence = 2;
	settlement.to = POSTERN_SETTLE_POISONED;
	settlement.failures = 2;
	CHECK_INT(stand_claim(stand, handler, 1).count, 1);
	CHECK_INT(stand_settle(stand, settlement), POSTERN_OK);
}

static void poisoned_is_opened(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	poison_after_two(&stand, seq, stand.handlers[0]);
	fake_clock_advance(&stand.clock, 100);

	parcel_init(&parcel, &stand, "1", "body");
	struct postern_route *route = parcel_add_route(&parcel, stand.handlers[0]);
	route->retry_poisoned = true;
	route->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(route->opened);
	CHECK(!route->leased);
	CHECK_INT(route->fence, 2);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_PENDING);
	CHECK_INT(row.failures, 0);
	CHECK_INT(row.fence, 2);
	CHECK_INT(row.next_at_ms, stand_now(&stand));
	CHECK_INT(row.finished_at_ms, 0);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].fence, 3);
		CHECK_INT(claims.items[0].failures, 0);
	}
	stand_close(&stand);
}

static void poisoned_alias_is_opened(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "new", "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[1]);
	poison_after_two(&stand, seq, stand.handlers[1]);
	stand_enrol_one(&stand, "new", "old");

	parcel_init(&parcel, &stand, "1", "body");
	struct postern_route *route = parcel_add_route(&parcel, stand.handlers[0]);
	route->retry_poisoned = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(route->opened);
	CHECK_INT(route->fence, 2);
	CHECK_INT(stand_get(&stand, seq).delivery_count, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[1], 1).count, 1);
	stand_close(&stand);
}

static void only_poisoned_is_opened(void) {
	static const enum postern_settle_to ends[] = {
		POSTERN_SETTLE_DONE,
		POSTERN_SETTLE_DISCARDED,
	};
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		struct stand stand;
		struct parcel parcel;
		stand_open(&stand, "a", NULL);
		int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
		stand_finish(&stand, seq, stand.handlers[0], ends[i]);
		parcel_init(&parcel, &stand, "1", "body");
		parcel_add_route(&parcel, stand.handlers[0])->retry_poisoned = true;
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
		CHECK(!parcel.routes[0].opened);
		CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
		stand_close(&stand);
	}
}

static void conflict_opens_nothing(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_POISONED);
	parcel_init(&parcel, &stand, "1", "other");
	parcel_add_route(&parcel, stand.handlers[0])->retry_poisoned = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	CHECK(!parcel.routes[0].opened);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_POISONED);
	stand_close(&stand);
}

static void settled_first(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	struct postern_settlement settlement = {
		.seq = seq,
		.handler = stand.handlers[0],
		.fence = 1,
		.to = POSTERN_SETTLE_POISONED,
		.outcome = "poison",
	};
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->retry_poisoned = true;
	parcel_pack(&parcel);
	struct postern_batch batch = {
		.node = stand.node,
		.settlements = &settlement,
		.settlement_count = 1,
		.accepts = &parcel.accept,
		.accept_count = 1,
	};
	CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error), &stand.error);
	CHECK_INT(settlement.code, POSTERN_OK);
	CHECK_INT(parcel.accept.code, POSTERN_E_DUPLICATE);
	CHECK(parcel.routes[0].opened);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void dropped(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel.accept.fate = POSTERN_FATE_DROP;
	parcel.accept.seq = 5;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK_INT(parcel.accept.seq, 0);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	struct postern_channel_stats stats = stand_channel_stats(&stand, "orders");
	CHECK_INT(stats.dropped, 2);
	CHECK_INT(stats.accepted, 0);
	CHECK_INT(stats.duplicates, 0);

	parcel.accept.fate = POSTERN_FATE_KEEP;
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(parcel.accept.seq > 0);
	stand_close(&stand);
}

static void dropped_but_known(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	parcel_init(&parcel, &stand, "1", "body");
	parcel.accept.fate = POSTERN_FATE_DROP;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK_INT(parcel.accept.seq, seq);
	parcel.message.body = "BODY";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	CHECK_INT(parcel.accept.seq, seq);
	CHECK_INT(stand_channel_stats(&stand, "orders").dropped, 0);
	stand_close(&stand);
}

const struct tap_case route_cases[] = {
	{ "a message gets one delivery for each route", one_delivery_each },
	{ "a new delivery is pending, due now, under fence 0", new_and_pending },
	{ "a delivery can be leased at accept, under fence 1", new_and_leased },
	{ "a duplicate makes the delivery of a handler that was added later",
			later_handler },
	{ "a copy leases none of the deliveries that it makes",
			copies_lease_nothing },
	{ "a conflict makes no delivery", not_by_a_conflict },
	{ "a delivery in any state suppresses a second one", any_state_suppresses },
	{ "a delivery of an alias suppresses one of its owner", alias_suppresses },
	{ "a duplicate does not change a poisoned delivery", poisoned_stays },
	{ "a duplicate can reopen a poisoned delivery, not leased",
			poisoned_is_opened },
	{ "a duplicate can reopen the poisoned delivery of an alias",
			poisoned_alias_is_opened },
	{ "a duplicate reopens no done or discarded delivery",
			only_poisoned_is_opened },
	{ "a conflict reopens no delivery", conflict_opens_nothing },
	{ "the settlements of a batch are applied before its accepts",
			settled_first },
	{ "a dropped message is counted and not remembered", dropped },
	{ "a copy of a stored message is a duplicate even if it would be dropped",
			dropped_but_known },
	{ 0 },
};
