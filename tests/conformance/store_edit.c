/* SPDX-License-Identifier: MIT */

/*
 * Editing: what an operator can do to deliveries and handlers.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

/* End the only delivery of "a", with two failures. */
static void end_delivery(struct stand *stand, int64_t seq,
		enum postern_settle_to to) {
	CHECK_INT(stand_claim(stand, stand->handlers[0], 1).count, 1);
	CHECK_INT(stand_settle(stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand->handlers[0],
							  .fence = 1,
							  .to = to,
							  .failures = 2,
							  .outcome = "whatever",
					  }),
			POSTERN_OK);
}

/* Open a store with a delivery of "a" in this state, claimed once under fence 1
   unless it is pending. */
static int64_t open_in_state(struct stand *stand, enum postern_state state) {
	stand_open(stand, "a", "b", NULL);
	int64_t seq = stand_accept(stand, "1", stand->handlers[0]);
	switch (state) {
	case POSTERN_STATE_LEASED:
		CHECK_INT(stand_claim(stand, stand->handlers[0], 1).count, 1);
		break;
	case POSTERN_STATE_DONE:
		end_delivery(stand, seq, POSTERN_SETTLE_DONE);
		break;
	case POSTERN_STATE_POISONED:
		end_delivery(stand, seq, POSTERN_SETTLE_POISONED);
		break;
	case POSTERN_STATE_DISCARDED:
		end_delivery(stand, seq, POSTERN_SETTLE_DISCARDED);
		break;
	default: break;
	}
	CHECK_INT(stand_state(stand, seq, "a"), state);
	fake_clock_advance(&stand->clock, 1000);
	return seq;
}

static void retry_opens(void) {
	static const enum postern_state states[] = {
		POSTERN_STATE_POISONED,
		POSTERN_STATE_DISCARDED,
	};
	for (size_t i = 0; i < 2; i++) {
		struct stand stand;
		uint64_t count = 0;
		int64_t seq = open_in_state(&stand, states[i]);
		CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", &count),
				&stand.error);
		CHECK_INT(count, 1);
		const struct postern_delivery_detail *delivery =
				stand_delivery(&stand, seq, "a");
		if (CHECK(delivery)) {
			CHECK_INT(delivery->row.state, POSTERN_STATE_PENDING);
			CHECK_INT(delivery->row.failures, 0);
			CHECK_INT(delivery->row.starts, 1);
			CHECK_INT(delivery->row.next_at_ms, stand_now(&stand));
			CHECK_INT(delivery->row.finished_at_ms, 0);
			CHECK_INT(delivery->attempt_count, 1);
		}
		struct postern_claims claims =
				stand_claim(&stand, stand.handlers[0], 1);
		if (CHECK_INT(claims.count, 1)) {
			CHECK_INT(claims.items[0].fence, 2);
			CHECK_INT(claims.items[0].failures, 0);
		}
		stand_close(&stand);
	}
}

static void retry_makes_due(void) {
	struct stand stand;
	uint64_t count = 0;
	int64_t seq = open_in_state(&stand, POSTERN_STATE_LEASED);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .delay_ms = 60000,
							  .failures = 2,
							  .outcome = "retry",
					  }),
			POSTERN_OK);
	for (int i = 0; i < 2; i++) {
		CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", &count),
				&stand.error);
		CHECK_INT(stand_row(&stand, seq, "a").next_at_ms, stand_now(&stand));
	}
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	if (CHECK_INT(claims.count, 1)) {
		CHECK_INT(claims.items[0].failures, 2);
	}
	stand_close(&stand);
}

static void discard_ends(void) {
	static const enum postern_state states[] = {
		POSTERN_STATE_PENDING,
		POSTERN_STATE_POISONED,
	};
	for (size_t i = 0; i < 2; i++) {
		struct stand stand;
		uint64_t count = 0;
		int64_t seq = open_in_state(&stand, states[i]);
		uint64_t fence = stand_row(&stand, seq, "a").fence;
		CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "a", &count),
				&stand.error);
		CHECK_INT(count, 1);
		struct postern_row row = stand_row(&stand, seq, "a");
		CHECK_INT(row.state, POSTERN_STATE_DISCARDED);
		CHECK_INT(row.fence, fence);
		CHECK_INT(row.next_at_ms, 0);
		CHECK_INT(row.finished_at_ms, stand_now(&stand));
		CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
		stand_close(&stand);
	}
}

static void discard_twice(void) {
	struct stand stand;
	uint64_t count = 7;
	int64_t seq = open_in_state(&stand, POSTERN_STATE_DISCARDED);
	int64_t finished_at = stand_row(&stand, seq, "a").finished_at_ms;
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "a", &count),
			&stand.error);
	CHECK_INT(count, 0);
	CHECK_INT(stand_row(&stand, seq, "a").finished_at_ms, finished_at);
	CHECK_INT(stand_handler_stats(&stand, "a").discarded, 1);
	stand_close(&stand);
}

static void busy(void) {
	struct stand stand;
	int64_t seq = open_in_state(&stand, POSTERN_STATE_LEASED);
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
			POSTERN_E_BUSY);
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "a", NULL),
			POSTERN_E_BUSY);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	stand_close(&stand);
}

static void done_stays(void) {
	struct stand stand;
	int64_t seq = open_in_state(&stand, POSTERN_STATE_DONE);
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
			POSTERN_E_INVALID);
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "a", NULL),
			POSTERN_E_INVALID);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	stand_close(&stand);
}

static void parked_is_not_retried(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_park(&stand, "1");
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "", NULL),
			POSTERN_E_INVALID);
	CHECK_INT(stand_state(&stand, seq, ""), POSTERN_STATE_PARKED);
	stand_close(&stand);
}

static void not_there(void) {
	static const enum postern_change_kind kinds[] = {
		POSTERN_CHANGE_RETRY,
		POSTERN_CHANGE_DISCARD,
	};
	struct stand stand;
	int64_t seq = open_in_state(&stand, POSTERN_STATE_PENDING);
	for (size_t i = 0; i < 2; i++) {
		CHECK_INT(stand_edit(&stand, kinds[i], seq, "b", NULL),
				POSTERN_E_NOTFOUND);
		CHECK_INT(stand_edit(&stand, kinds[i], seq, "unknown", NULL),
				POSTERN_E_NOTFOUND);
		CHECK_INT(stand_edit(&stand, kinds[i], seq, "", NULL),
				POSTERN_E_NOTFOUND);
		CHECK_INT(stand_edit(&stand, kinds[i], seq + 1, "a", NULL),
				POSTERN_E_NOTFOUND);
		CHECK_INT(stand_edit(&stand, kinds[i], 0, "a", NULL),
				POSTERN_E_NOTFOUND);
		CHECK_INT(stand_edit(&stand, kinds[i], -1, "a", NULL),
				POSTERN_E_NOTFOUND);
		CHECK_INT(stand_edit(&stand, kinds[i], INT64_MAX, "a", NULL),
				POSTERN_E_NOTFOUND);
	}
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void by_any_name(void) {
	struct stand stand;
	int64_t seq = open_in_state(&stand, POSTERN_STATE_POISONED);
	stand_enrol_one(&stand, "new", "a");
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
			&stand.error);
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "new", NULL),
			&stand.error);
	stand_close(&stand);
}

static void of_an_alias(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "new", "old", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	parcel_add_route(&parcel, stand.handlers[1]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
	stand_finish(&stand, seq, stand.handlers[1], POSTERN_SETTLE_POISONED);
	stand_enrol_one(&stand, "new", "old");
	/* Of the two deliveries, the one that can be retried is retried. */
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "new", NULL),
			&stand.error);
	CHECK_INT(stand_claim(&stand, stand.handlers[1], 1).count, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	stand_close(&stand);
}

static void dry_run_of_one(void) {
	struct stand stand;
	int64_t seq = open_in_state(&stand, POSTERN_STATE_POISONED);
	struct postern_edit edit = {
		.kind = POSTERN_CHANGE_RETRY,
		.seq = seq,
		.handler = "a",
		.dry_run = true,
	};
	CHECK_OK(stand.ops->edit(stand.store, &edit, &stand.error), &stand.error);
	CHECK_INT(edit.count, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_POISONED);
	stand_close(&stand);
}

/* Six messages of "a": two pending, two poisoned, one done, one leased; and one
   parked message. */
static void open_mixed(struct stand *stand) {
	stand_open(stand, "a", "b", NULL);
	int64_t first = stand_accept_many(stand, 6, stand->handlers[0]);
	stand_finish(stand, first, stand->handlers[0], POSTERN_SETTLE_POISONED);
	stand_finish(stand, first + 1, stand->handlers[0], POSTERN_SETTLE_POISONED);
	stand_finish(stand, first + 2, stand->handlers[0], POSTERN_SETTLE_DONE);
	CHECK_INT(stand_claim(stand, stand->handlers[0], 1).count, 1);
	stand_park(stand, "parked");
	fake_clock_advance(&stand->clock, 1000);
}

static void many_retried(void) {
	struct stand stand;
	uint64_t count = 0;
	open_mixed(&stand);
	struct postern_filter filter = { .state = POSTERN_STATE_POISONED };
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_RETRY, &filter, true,
					 &count),
			&stand.error);
	CHECK_INT(count, 2);
	CHECK_INT(stand_handler_stats(&stand, "a").poisoned, 2);
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_RETRY, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 2);
	struct postern_handler_stats stats = stand_handler_stats(&stand, "a");
	CHECK_INT(stats.poisoned, 0);
	CHECK_INT(stats.pending, 4);
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_RETRY, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 0);
	stand_close(&stand);
}

static void many_that_allow_it(void) {
	struct stand stand;
	uint64_t count = 0;
	open_mixed(&stand);
	struct postern_filter filter = { .channel = "orders" };
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_RETRY, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 4); /* not leased, done or parked */
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 5); /* also the parked one */
	struct postern_handler_stats stats = stand_handler_stats(&stand, "a");
	CHECK_INT(stats.pending, 0);
	CHECK_INT(stats.leased, 1);
	CHECK_INT(stats.done, 1);
	CHECK_INT(stats.discarded, 4);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 0);
	stand_close(&stand);
}

static void many_with_a_limit(void) {
	struct stand stand;
	uint64_t count = 0;
	stand_open(&stand, "a", NULL);
	stand_accept_many(&stand, 10, stand.handlers[0]);
	struct postern_filter filter = { .handler = "a", .limit = 4 };
	static const uint64_t counts[] = { 4, 4, 2, 0 };
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, true,
						 &count),
				&stand.error);
		CHECK_INT(count, counts[i]);
		CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, false,
						 &count),
				&stand.error);
		CHECK_INT(count, counts[i]);
	}
	CHECK_INT(stand_handler_stats(&stand, "a").discarded, 10);
	stand_close(&stand);
}

static void many_of_a_handler(void) {
	struct stand stand;
	uint64_t count = 0;
	open_mixed(&stand);
	stand_accept(&stand, "for b", stand.handlers[1]);
	struct postern_filter filter = { .handler = "b" };
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 1);
	filter.handler = "unknown";
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 0);
	CHECK_INT(stand_handler_stats(&stand, "a").pending, 2);
	stand_close(&stand);
}

static void only_parked(void) {
	struct stand stand;
	uint64_t count = 0;
	open_mixed(&stand);
	struct postern_filter filter = { .state = POSTERN_STATE_PARKED };
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_DISCARD, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 1);
	CHECK_INT(stand_handler_stats(&stand, "a").discarded, 0);
	/* A message that was parked has no handler to be retried. */
	filter.state = POSTERN_STATE_DISCARDED;
	CHECK_OK(stand_edit_all(&stand, POSTERN_CHANGE_RETRY, &filter, false,
					 &count),
			&stand.error);
	CHECK_INT(count, 0);
	stand_close(&stand);
}

static void pause_twice(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	stand_pause(&stand, "a");
	stand_pause(&stand, "a");
	CHECK(stand_handler_stats(&stand, "a").paused);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	stand_resume(&stand, "a");
	stand_resume(&stand, "a");
	CHECK(!stand_handler_stats(&stand, "a").paused);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 1);
	stand_close(&stand);
}

static void pause_unknown(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_PAUSE, 0, "b", NULL),
			POSTERN_E_NOTFOUND);
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_RESUME, 0, "b", NULL),
			POSTERN_E_NOTFOUND);
	stand_close(&stand);
}

static void paused_for_good(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	stand_pause(&stand, "a");
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	stand_recover(&stand);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	CHECK(stand_handler_stats(&stand, "a").paused);
	stand_close(&stand);
}

const struct tap_case edit_cases[] = {
	{ "retry reopens a poisoned or discarded delivery without failures",
			retry_opens },
	{ "retry makes a pending delivery due and keeps its failures",
			retry_makes_due },
	{ "discard ends a pending or poisoned delivery", discard_ends },
	{ "a second discard changes nothing", discard_twice },
	{ "editing a leased delivery fails as busy", busy },
	{ "a done delivery is neither retried nor discarded", done_stays },
	{ "a parked message is not retried", parked_is_not_retried },
	{ "editing a delivery that does not exist fails as not found", not_there },
	{ "a delivery can be edited by any key of its handler", by_any_name },
	{ "a delivery of an alias can be edited by its handler's key",
			of_an_alias },
	{ "a dry run changes nothing", dry_run_of_one },
	{ "a retry by filter changes what its dry run counted", many_retried },
	{ "an edit by filter skips deliveries whose state does not allow it",
			many_that_allow_it },
	{ "an edit by filter stops at its limit", many_with_a_limit },
	{ "an edit by filter changes only matching deliveries", many_of_a_handler },
	{ "parked messages are discarded by filter, not retried", only_parked },
	{ "a second pause or resume changes nothing", pause_twice },
	{ "pausing a handler that the store does not know fails as not found",
			pause_unknown },
	{ "a paused handler is still paused after a crash", paused_for_good },
	{ 0 },
};
