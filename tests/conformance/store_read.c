/* SPDX-License-Identifier: MIT */

/*
 * Reading: one message, messages by id, and the counters.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

static void no_such_message(void) {
	struct stand stand;
	struct postern_detail detail;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	const int64_t seqs[] = { 0, -1, seq + 1, INT64_MAX, INT64_MIN };
	for (size_t i = 0; i < sizeof seqs / sizeof seqs[0]; i++) {
		CHECK_INT(stand.ops->get(stand.store, seqs[i], stand.memory, &detail,
						  &stand.error),
				POSTERN_E_NOTFOUND);
	}
	stand_close(&stand);
}

static void deliveries_in_order(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", "c", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	for (size_t i = 3; i > 0; i--) {
		parcel_add_route(&parcel, stand.handlers[i - 1]);
	}
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	struct postern_detail detail = stand_get(&stand, parcel.accept.seq);
	if (CHECK_INT(detail.delivery_count, 3)) {
		/* Ordered by handler id, which need not be the order of enrolling. */
		int64_t last = 0;
		for (size_t i = 0; i < 3; i++) {
			int64_t id =
					stand.handlers[detail.deliveries[i].row.handler[0] - 'a'];
			CHECK(id > last);
			last = id;
		}
	}
	stand_close(&stand);
}

static size_t find_seqs(struct stand *stand, const char *id, const char *source,
		const char *channel, int64_t *seqs, size_t max) {
	size_t count = 99;
	CHECK_OK(stand->ops->find(stand->store, id, source, channel, seqs, max,
					 &count, &stand->error),
			&stand->error);
	return count;
}

static void found_by_id(void) {
	int64_t seqs[8] = { 0 };
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t first = stand_park(&stand, "1");
	stand_park(&stand, "2");
	parcel_init(&parcel, &stand, "1", "body");
	parcel.message.source = "depot";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t second = parcel.accept.seq;
	parcel.accept.channel = stand.bills;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t third = parcel.accept.seq;

	if (CHECK_INT(find_seqs(&stand, "1", NULL, NULL, seqs, 8), 3)) {
		CHECK_INT(seqs[0], third);
		CHECK_INT(seqs[1], second);
		CHECK_INT(seqs[2], first);
	}
	if (CHECK_INT(find_seqs(&stand, "1", "depot", NULL, seqs, 8), 2)) {
		CHECK_INT(seqs[0], third);
		CHECK_INT(seqs[1], second);
	}
	if (CHECK_INT(find_seqs(&stand, "1", NULL, "orders", seqs, 8), 2)) {
		CHECK_INT(seqs[0], second);
		CHECK_INT(seqs[1], first);
	}
	if (CHECK_INT(find_seqs(&stand, "1", "depot", "bills", seqs, 8), 1)) {
		CHECK_INT(seqs[0], third);
	}
	if (CHECK_INT(find_seqs(&stand, "1", NULL, NULL, seqs, 2), 2)) {
		CHECK_INT(seqs[0], third);
		CHECK_INT(seqs[1], second);
	}
	CHECK_INT(find_seqs(&stand, "3", NULL, NULL, seqs, 8), 0);
	CHECK_INT(find_seqs(&stand, "1", "nobody", NULL, seqs, 8), 0);
	CHECK_INT(find_seqs(&stand, "1", NULL, "nowhere", seqs, 8), 0);
	stand_close(&stand);
}

/* Messages are UTF-8; a search text may be any bytes. */
static void garbage_is_not_there(void) {
	static const char garbage[] = "\xff\xfe(";
	int64_t seqs[4] = { 0 };
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	CHECK_INT(find_seqs(&stand, garbage, NULL, NULL, seqs, 4), 0);
	CHECK_INT(find_seqs(&stand, "1", garbage, NULL, seqs, 4), 0);
	CHECK_INT(find_seqs(&stand, "1", NULL, garbage, seqs, 4), 0);
	const struct postern_filter filters[] = {
		{ .channel = garbage },
		{ .handler = garbage },
		{ .message_id = garbage },
		{ .source = garbage },
		{ .type = garbage },
	};
	for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
		CHECK_INT(stand_list(&stand, &filters[i]).count, 0);
	}
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, garbage, NULL),
			POSTERN_E_NOTFOUND);
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_PAUSE, 0, garbage, NULL),
			POSTERN_E_NOTFOUND);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void empty_counters(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	struct postern_stats stats = stand_stats(&stand);
	CHECK_STR(stats.store, conformance_target.name);
	CHECK_INT(stats.channel_count, 2);
	if (CHECK_INT(stats.handler_count, 2)) {
		for (size_t i = 0; i < 2; i++) {
			CHECK_INT(stats.handlers[i].pending, 0);
			CHECK_INT(stats.handlers[i].done, 0);
			CHECK_INT(stats.handlers[i].oldest_pending_at_ms, 0);
			CHECK(!stats.handlers[i].paused);
		}
	}
	stand_close(&stand);
}

static void channel_counters(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	(void)parcel_send(&stand, &parcel);
	(void)parcel_send(&stand, &parcel);
	(void)parcel_send(&stand, &parcel);
	parcel.message.body = "BODY";
	(void)parcel_send(&stand, &parcel);
	stand_park(&stand, "2");
	parcel_init(&parcel, &stand, "3", "body");
	parcel.accept.channel = stand.bills;
	parcel.accept.fate = POSTERN_FATE_DROP;
	(void)parcel_send(&stand, &parcel);

	for (int life = 0; life < 2; life++) {
		struct postern_channel_stats stats =
				stand_channel_stats(&stand, "orders");
		CHECK_INT(stats.accepted, 2);
		CHECK_INT(stats.duplicates, 2);
		CHECK_INT(stats.conflicts, 1);
		CHECK_INT(stats.dropped, 0);
		CHECK_INT(stats.parked, 1);
		stats = stand_channel_stats(&stand, "bills");
		CHECK_INT(stats.accepted, 0);
		CHECK_INT(stats.dropped, 1);
		stand_crash(&stand);
	}
	stand_close(&stand);
}

static void counted_one_by_one(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel.accept.fate = POSTERN_FATE_DROP;
	/* More changes than a store keeps before it adds them up. */
	for (int i = 0; i < 1100; i++) {
		(void)parcel_send(&stand, &parcel);
	}
	for (uint64_t more = 0; more < 3; more++) {
		CHECK_INT(stand_channel_stats(&stand, "orders").dropped, 1100 + more);
		stand_recover(&stand);
		CHECK_INT(stand_channel_stats(&stand, "orders").dropped, 1100 + more);
		(void)parcel_send(&stand, &parcel);
	}
	CHECK_INT(stand_channel_stats(&stand, "bills").dropped, 0);
	stand_close(&stand);
}

static void handler_counters(void) {
	static const enum postern_settle_to ends[] = {
		POSTERN_SETTLE_DONE,
		POSTERN_SETTLE_DONE,
		POSTERN_SETTLE_DONE,
		POSTERN_SETTLE_POISONED,
		POSTERN_SETTLE_POISONED,
		POSTERN_SETTLE_DISCARDED,
	};
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	stand_accept_many(&stand, 12, stand.handlers[0]);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 9);
	CHECK_INT(claims.count, 9);
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		CHECK_INT(stand_settle_to(&stand, claims.items[i].seq,
						  stand.handlers[0], 1, ends[i]),
				POSTERN_OK);
	}
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = claims.items[6].seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .failures = 1,
							  .outcome = "retry",
					  }),
			POSTERN_OK);
	for (uint64_t life = 0; life < 2; life++) {
		struct postern_handler_stats stats = stand_handler_stats(&stand, "a");
		CHECK_INT(stats.pending, life == 0 ? 4 : 6);
		CHECK_INT(stats.retrying, 1);
		CHECK_INT(stats.leased, life == 0 ? 2 : 0);
		CHECK_INT(stats.poisoned, 2);
		CHECK_INT(stats.done, 3);
		CHECK_INT(stats.discarded, 1);
		CHECK_INT(stand_handler_stats(&stand, "b").pending, 0);
		stand_crash(&stand);
		stand_enrol_one(&stand, "a", NULL);
		stand_recover(&stand);
	}
	stand_close(&stand);
}

static void counters_only_grow(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	for (uint64_t i = 1; i <= 3; i++) {
		CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "a", NULL),
				&stand.error);
		CHECK_INT(stand_handler_stats(&stand, "a").discarded, i);
		CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_RETRY, seq, "a", NULL),
				&stand.error);
		CHECK_INT(stand_handler_stats(&stand, "a").discarded, i);
	}
	stand_close(&stand);
}

static void oldest_pending(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t start = stand_now(&stand);
	int64_t first = stand_accept(&stand, "1", stand.handlers[0]);
	fake_clock_advance(&stand.clock, 1000);
	stand_accept(&stand, "2", stand.handlers[0]);
	fake_clock_advance(&stand.clock, 1000);
	CHECK_INT(stand_handler_stats(&stand, "a").oldest_pending_at_ms, start);
	stand_finish(&stand, first, stand.handlers[0], POSTERN_SETTLE_DONE);
	CHECK_INT(stand_handler_stats(&stand, "a").oldest_pending_at_ms,
			start + 1000);
	stand_close(&stand);
}

static void counted_with_the_owner(void) {
	struct stand stand;
	stand_open(&stand, "new", "old", NULL);
	int64_t done = stand_accept(&stand, "1", stand.handlers[1]);
	stand_finish(&stand, done, stand.handlers[1], POSTERN_SETTLE_DONE);
	stand_accept(&stand, "2", stand.handlers[1]);
	stand_accept(&stand, "3", stand.handlers[0]);
	stand_enrol_one(&stand, "new", "old");
	CHECK_INT(stand_stats(&stand).handler_count, 1);
	struct postern_handler_stats stats = stand_handler_stats(&stand, "new");
	CHECK_INT(stats.pending, 2);
	CHECK_INT(stats.done, 1);
	stand_close(&stand);
}

static void results_are_copies(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	struct postern_detail before = stand_get(&stand, seq);
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ 0 });
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	/* The results outlive the store. */
	conformance_target.close(stand.store);
	CHECK_STR(before.message->id, "1");
	CHECK_MEM(before.message->body, before.message->body_len, "body", 4);
	CHECK_STR(before.channel, "orders");
	CHECK_STR(before.deliveries[0].row.handler, "a");
	CHECK_STR(page.rows[0].message_id, "1");
	CHECK_STR(claims.items[0].message->source, "shop");
	postern_memory_destroy(stand.memory);
}

const struct tap_case read_cases[] = {
	{ "reading a message that does not exist fails as not found",
			no_such_message },
	{ "the deliveries of a message are ordered by handler id",
			deliveries_in_order },
	{ "messages are found by id, newest first", found_by_id },
	{ "a search text that is not UTF-8 matches nothing", garbage_is_not_there },
	{ "the counters of a new store are zero", empty_counters },
	{ "channels count accepted, duplicate, conflicting and dropped messages",
			channel_counters },
	{ "counts of many commits add up", counted_one_by_one },
	{ "handlers count their deliveries in each state", handler_counters },
	{ "each discard of a delivery is counted", counters_only_grow },
	{ "a handler's oldest pending message is the one received first",
			oldest_pending },
	{ "deliveries of an alias are counted with its handler",
			counted_with_the_owner },
	{ "results live in the caller's memory, not in the store",
			results_are_copies },
	{ 0 },
};
