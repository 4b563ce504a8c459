/* SPDX-License-Identifier: MIT */

/*
 * Claiming: which deliveries a node gets, in what order, and how many.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

static void claimed_whole(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	fake_clock_advance(&stand.clock, 50);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 10);
	if (CHECK_INT(claims.count, 1)) {
		const struct postern_claimed *item = &claims.items[0];
		CHECK_INT(item->seq, seq);
		CHECK_INT(item->handler, stand.handlers[0]);
		CHECK_INT(item->channel, stand.orders);
		CHECK_INT(item->fence, 1);
		CHECK_INT(item->failures, 0);
		CHECK_INT(item->suspicion, POSTERN_NO_SUSPECT);
		CHECK_STR(item->message->id, "1");
		CHECK_STR(item->message->source, "shop");
		CHECK_STR(item->message->type, "order.paid");
		CHECK_MEM(item->message->body, item->message->body_len, "body", 4);
	}
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_LEASED);
	CHECK_INT(row.leased_at_ms, stand_now(&stand));
	CHECK_INT(row.next_at_ms, 0);
	CHECK_INT(row.starts, 1);
	CHECK_INT(row.fence, 1);
	stand_close(&stand);
}

static void claimed_once(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept_many(&stand, 10, stand.handlers[0]);
	struct postern_claims one = stand_claim(&stand, stand.handlers[0], 6);
	stand.node++;
	CHECK_INT(stand_enrol_one(&stand, "a", NULL), stand.handlers[0]);
	struct postern_claims other = stand_claim(&stand, stand.handlers[0], 6);
	CHECK_INT(one.count, 6);
	CHECK_INT(other.count, 4);
	for (size_t i = 0; i < one.count; i++) {
		for (size_t j = 0; j < other.count; j++) {
			CHECK(one.items[i].seq != other.items[j].seq);
		}
	}
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 6).count, 0);
	stand_close(&stand);
}

static void fences_grow(void) {
	static const enum postern_settle_to ways[] = {
		POSTERN_SETTLE_PENDING,
		POSTERN_SETTLE_RETURNED,
		POSTERN_SETTLE_POISONED,
		POSTERN_SETTLE_DISCARDED,
	};
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	uint64_t fence = 0;
	for (size_t round = 0; round < 3; round++) {
		for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
			struct postern_claims claims =
					stand_claim(&stand, stand.handlers[0], 1);
			if (!CHECK_INT(claims.count, 1)) {
				break;
			}
			CHECK_INT(claims.items[0].fence, fence + 1);
			fence = claims.items[0].fence;
			CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], fence,
							  ways[i]),
					POSTERN_OK);
			CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
					&stand.error);
			CHECK_INT(stand_row(&stand, seq, "a").fence, fence);
		}
	}
	stand_close(&stand);
}

static void unwanted(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	parcel_add_route(&parcel, stand.handlers[1]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[1], 10);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].handler, stand.handlers[1]);
	}
	CHECK_INT(stand_state(&stand, parcel.accept.seq, "a"),
			POSTERN_STATE_PENDING);
	CHECK_INT(stand_claim_wants(&stand, NULL, 0, 10).count, 0);
	stand_close(&stand);
}

static size_t count_of(const struct postern_claims *claims, int64_t handler) {
	size_t count = 0;
	for (size_t i = 0; i < claims->count; i++) {
		count += claims->items[i].handler == handler;
	}
	return count;
}

/* Ten messages, each for both handlers. */
static void open_with_ten(struct stand *stand) {
	static const char *const ids[] = { "0", "1", "2", "3", "4", "5", "6", "7",
		"8", "9" };
	struct parcel parcels[10];
	stand_open(stand, "a", "b", NULL);
	for (size_t i = 0; i < 10; i++) {
		parcel_init(&parcels[i], stand, ids[i], "0123456789");
		parcel_add_route(&parcels[i], stand->handlers[0]);
		parcel_add_route(&parcels[i], stand->handlers[1]);
	}
	parcel_send_all(stand, parcels, 10);
}

static void max_of_a_handler(void) {
	struct stand stand;
	open_with_ten(&stand);
	struct postern_want wants[] = {
		{ .handler = stand.handlers[0], .max = 3 },
		{ .handler = stand.handlers[1], .max = 5 },
	};
	struct postern_claims claims = stand_claim_wants(&stand, wants, 2, 100);
	CHECK_INT(claims.count, 8);
	CHECK_INT(count_of(&claims, stand.handlers[0]), 3);
	CHECK_INT(count_of(&claims, stand.handlers[1]), 5);
	CHECK_INT(claims.next_due_ms, 0);
	stand_close(&stand);
}

static void max_in_all(void) {
	struct stand stand;
	open_with_ten(&stand);
	struct postern_want wants[] = {
		{ .handler = stand.handlers[0], .max = 10 },
		{ .handler = stand.handlers[1], .max = 10 },
	};
	CHECK_INT(stand_claim_wants(&stand, wants, 2, 13).count, 13);
	CHECK_INT(stand_claim_wants(&stand, wants, 2, 13).count, 7);
	stand_close(&stand);
}

static void max_of_bytes(void) {
	struct stand stand;
	open_with_ten(&stand);
	struct postern_want wants[] = {
		{ .handler = stand.handlers[0], .max = 10 },
		{ .handler = stand.handlers[1], .max = 10 },
	};
	struct postern_claim claim = {
		.node = stand.node,
		.wants = wants,
		.want_count = 2,
		.max = 100,
		.bytes_max = 25,
	};
	CHECK_INT(stand_claim_full(&stand, &claim).count, 3);
	claim.bytes_max = 20; /* two bodies equal it, the third exceeds it */
	CHECK_INT(stand_claim_full(&stand, &claim).count, 3);
	claim.bytes_max = 5; /* one body is claimed even if it is longer */
	CHECK_INT(stand_claim_full(&stand, &claim).count, 1);
	claim.bytes_max = 1000;
	CHECK_INT(stand_claim_full(&stand, &claim).count, 13);
	stand_close(&stand);
}

static void more_than_there_are(void) {
	struct stand stand;
	open_with_ten(&stand);
	struct postern_want want = {
		.handler = stand.handlers[0],
		.max = UINT32_MAX,
	};
	CHECK_INT(stand_claim_wants(&stand, &want, 1, SIZE_MAX).count, 10);
	stand_close(&stand);
}

static void oldest_due_first(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	/* The later a message was accepted, the sooner it is due again. */
	int64_t first = stand_accept_many(&stand, 20, stand.handlers[0]);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 20);
	for (size_t i = 0; i < claims.count; i++) {
		int64_t seq = claims.items[i].seq;
		CHECK_INT(stand_settle(&stand,
						  (struct postern_settlement){
								  .seq = seq,
								  .handler = stand.handlers[0],
								  .fence = 1,
								  .to = POSTERN_SETTLE_PENDING,
								  .delay_ms = 1000 - 10 * (seq - first),
								  .outcome = "retry",
						  }),
				POSTERN_OK);
	}
	fake_clock_advance(&stand.clock, 2000);
	for (int64_t expected = first + 19; expected >= first;) {
		claims = stand_claim(&stand, stand.handlers[0], 7);
		if (!CHECK(claims.count > 0)) {
			break;
		}
		for (size_t i = 0; i < claims.count; i++, expected--) {
			CHECK_INT(claims.items[i].seq, expected);
		}
	}
	stand_close(&stand);
}

/* Claim one delivery and make it due again after `delay_ms`. */
static void snooze_one(struct stand *stand, int64_t handler, int64_t delay_ms) {
	struct postern_claims claims = stand_claim(stand, handler, 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(stand_settle(stand,
						  (struct postern_settlement){
								  .seq = claims.items[0].seq,
								  .handler = handler,
								  .fence = claims.items[0].fence,
								  .to = POSTERN_SETTLE_PENDING,
								  .delay_ms = delay_ms,
								  .outcome = "snooze",
						  }),
				POSTERN_OK);
	}
}

static void next_due(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", "c", NULL);
	struct postern_want wants[] = {
		{ .handler = stand.handlers[0], .max = 10 },
		{ .handler = stand.handlers[1], .max = 10 },
	};
	CHECK_INT(stand_claim_wants(&stand, wants, 2, 10).next_due_ms, -1);

	for (size_t i = 0; i < 3; i++) {
		static const char *const ids[] = { "1", "2", "3" };
		static const int64_t delays[] = { 300, 200, 100 };
		stand_accept(&stand, ids[i], stand.handlers[i]);
		snooze_one(&stand, stand.handlers[i], delays[i]);
	}
	/* The third delivery is due sooner, but its handler is not wanted. */
	CHECK_INT(stand_claim_wants(&stand, wants, 2, 10).next_due_ms, 200);
	fake_clock_advance(&stand.clock, 150);
	CHECK_INT(stand_claim_wants(&stand, wants, 2, 10).next_due_ms, 50);
	fake_clock_advance(&stand.clock, 50);
	struct postern_claims claims = stand_claim_wants(&stand, wants, 2, 10);
	CHECK_INT(claims.count, 1);
	CHECK_INT(claims.next_due_ms, 100);
	stand_pause(&stand, "a");
	CHECK_INT(stand_claim_wants(&stand, wants, 2, 10).next_due_ms, -1);
	stand_close(&stand);
}

static void next_due_now(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept_many(&stand, 3, stand.handlers[0]);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 2).next_due_ms, 0);
	fake_clock_advance(&stand.clock, 100);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 2).next_due_ms, -1);
	stand_close(&stand);
}

static void paused(void) {
	struct stand stand;
	open_with_ten(&stand);
	struct postern_want wants[] = {
		{ .handler = stand.handlers[0], .max = 10 },
		{ .handler = stand.handlers[1], .max = 10 },
	};
	stand_pause(&stand, "a");
	struct postern_claims claims = stand_claim_wants(&stand, wants, 2, 100);
	CHECK_INT(claims.count, 10);
	CHECK_INT(count_of(&claims, stand.handlers[0]), 0);
	CHECK_INT(claims.next_due_ms, -1);
	stand_resume(&stand, "a");
	claims = stand_claim_wants(&stand, wants, 2, 100);
	CHECK_INT(count_of(&claims, stand.handlers[0]), 10);
	stand_close(&stand);
}

static void paused_settles(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	stand_pause(&stand, "a");
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand_close(&stand);
}

static void alias_is_claimed(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[1]);
	CHECK_INT(stand_enrol_one(&stand, "new", "old"), stand.handlers[0]);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].handler, stand.handlers[1]);
		CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
						  POSTERN_SETTLE_DONE),
				POSTERN_E_STALE);
		CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[1], 1,
						  POSTERN_SETTLE_DONE),
				POSTERN_OK);
	}
	stand_close(&stand);
}

static void alias_is_paused(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	stand_accept(&stand, "1", stand.handlers[1]);
	stand_enrol_one(&stand, "new", "old");
	stand_pause(&stand, "new");
	struct postern_claims claims = stand_claim(&stand, stand.handlers[1], 1);
	CHECK_INT(claims.count, 0);
	CHECK_INT(claims.next_due_ms, -1);
	stand_resume(&stand, "old");
	CHECK_INT(stand_claim(&stand, stand.handlers[1], 1).count, 1);
	stand_close(&stand);
}

const struct tap_case claim_cases[] = {
	{ "a claim leases a delivery and returns its message", claimed_whole },
	{ "a delivery is claimed once", claimed_once },
	{ "the fence grows by one with every claim, however the lease ended",
			fences_grow },
	{ "a claim returns no delivery of a handler it does not want", unwanted },
	{ "a claim returns at most the wanted number for each handler",
			max_of_a_handler },
	{ "a claim returns at most its maximum in all", max_in_all },
	{ "a claim stops after the body that exceeds its bytes", max_of_bytes },
	{ "a claim without limits returns every due delivery",
			more_than_there_are },
	{ "the delivery that has been due longest is claimed first",
			oldest_due_first },
	{ "a claim reports when the next wanted delivery is due", next_due },
	{ "a claim reports that more deliveries are due now", next_due_now },
	{ "a paused handler gets no delivery and delays no other handler", paused },
	{ "a paused handler can settle its leases", paused_settles },
	{ "a delivery of an alias is claimed and settled under its own id",
			alias_is_claimed },
	{ "an alias is paused with its handler", alias_is_paused },
	{ 0 },
};
