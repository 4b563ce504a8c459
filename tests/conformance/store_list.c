/* SPDX-License-Identifier: MIT */

/*
 * Listing: which deliveries a filter finds, in what order, page by page.
 */

#include <stdio.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

static void nothing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ 0 });
	CHECK_INT(page.count, 0);
	CHECK(!page.more);
	stand_close(&stand);
}

static void order(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", "c", NULL);
	int64_t low = stand.handlers[0] < stand.handlers[2] ? 0 : 2;
	int64_t high = 2 - low;
	for (int i = 0; i < 3; i++) {
		static const char *const ids[] = { "z", "y", "x" };
		parcel_init(&parcel, &stand, ids[i], "body");
		parcel_add_route(&parcel, stand.handlers[high]);
		parcel_add_route(&parcel, stand.handlers[low]);
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	}
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ 0 });
	if (CHECK_INT(page.count, 6)) {
		for (size_t i = 0; i < 6; i++) {
			CHECK_INT(page.rows[i].seq, parcel.accept.seq - (int64_t)i / 2);
			CHECK_STR(page.rows[i].handler,
					i % 2 == (low == 0 ? 0 : 1) ? "a" : "c");
		}
	}
	stand_close(&stand);
}

static void row_is_full(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept_leased(&stand, "1", stand.handlers[0]);
	int64_t received_at = stand_now(&stand);
	fake_clock_advance(&stand.clock, 100);
	CHECK_INT(stand_settle(&stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand.handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .delay_ms = 50,
							  .failures = 1,
							  .outcome = "retry",
							  .error = "no luck",
					  }),
			POSTERN_OK);
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ 0 });
	if (CHECK_INT(page.count, 1)) {
		const struct postern_row *row = &page.rows[0];
		CHECK_INT(row->seq, seq);
		CHECK_STR(row->message_id, "1");
		CHECK_STR(row->source, "shop");
		CHECK_STR(row->channel, "orders");
		CHECK_STR(row->handler, "a");
		CHECK_STR(row->type, "order.paid");
		CHECK_INT(row->state, POSTERN_STATE_PENDING);
		CHECK_INT(row->failures, 1);
		CHECK_INT(row->starts, 1);
		CHECK_INT(row->crashes, 0);
		CHECK_INT(row->fence, 1);
		CHECK_INT(row->received_at_ms, received_at);
		CHECK_INT(row->next_at_ms, received_at + 150);
		CHECK_INT(row->leased_at_ms, 0);
		CHECK_INT(row->finished_at_ms, 0);
		CHECK_STR(row->last_error, "no luck");
	}
	CHECK_INT(page.last_seq, seq);
	CHECK_INT(page.last_handler, stand.handlers[0]);
	stand_close(&stand);
}

/* One delivery in each state; the message id is the name of the state. */
static void open_with_states(struct stand *stand) {
	static const struct {
		const char *id;
		enum postern_settle_to to;
	} ends[] = {
		{ "done", POSTERN_SETTLE_DONE },
		{ "poisoned", POSTERN_SETTLE_POISONED },
		{ "discarded", POSTERN_SETTLE_DISCARDED },
	};
	stand_open(stand, "a", NULL);
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		int64_t seq =
				stand_accept_leased(stand, ends[i].id, stand->handlers[0]);
		CHECK_INT(stand_settle_to(stand, seq, stand->handlers[0], 1,
						  ends[i].to),
				POSTERN_OK);
	}
	int64_t seq = stand_accept_leased(stand, "retrying", stand->handlers[0]);
	CHECK_INT(stand_settle(stand,
					  (struct postern_settlement){
							  .seq = seq,
							  .handler = stand->handlers[0],
							  .fence = 1,
							  .to = POSTERN_SETTLE_PENDING,
							  .failures = 1,
							  .outcome = "retry",
					  }),
			POSTERN_OK);
	stand_accept_leased(stand, "leased", stand->handlers[0]);
	stand_accept(stand, "pending", stand->handlers[0]);
	stand_park(stand, "parked");
}

static void by_state(void) {
	static const struct {
		enum postern_state state;
		const char *id;
	} expected[] = {
		{ POSTERN_STATE_LEASED, "leased" },
		{ POSTERN_STATE_DONE, "done" },
		{ POSTERN_STATE_POISONED, "poisoned" },
		{ POSTERN_STATE_DISCARDED, "discarded" },
		{ POSTERN_STATE_PARKED, "parked" },
		{ POSTERN_STATE_RETRYING, "retrying" },
	};
	struct stand stand;
	open_with_states(&stand);
	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
		struct postern_page page = stand_list(&stand,
				&(struct postern_filter){ .state = expected[i].state });
		if (CHECK_INT(page.count, 1)) {
			CHECK_STR(page.rows[0].message_id, expected[i].id);
			CHECK_INT(page.rows[0].state,
					expected[i].state == POSTERN_STATE_RETRYING
							? POSTERN_STATE_PENDING
							: expected[i].state);
		}
	}
	/* A retrying delivery is also pending. */
	CHECK_INT(stand_list(&stand,
					  &(struct postern_filter){
							  .state = POSTERN_STATE_PENDING })
					  .count,
			2);
	CHECK_INT(stand_list(&stand, &(struct postern_filter){ 0 }).count, 7);
	stand_close(&stand);
}

/* Accept four messages, "1" to "4", a second apart, different in every
   attribute. */
static void open_with_four(struct stand *stand, int64_t *seqs) {
	static const struct {
		const char *id;
		const char *source;
		const char *type;
		bool bill;
		int handler;
	} messages[] = {
		{ "1", "shop", "order.paid", false, 0 },
		{ "2", "depot", "order.sent", false, 1 },
		{ "3", "shop", "bill.paid", true, 0 },
		{ "1", "depot", "", true, -1 },
	};
	stand_open(stand, "a", "b", NULL);
	for (size_t i = 0; i < 4; i++) {
		struct parcel parcel;
		parcel_init(&parcel, stand, messages[i].id, "body");
		parcel.message.source = messages[i].source;
		parcel.message.type = messages[i].type;
		parcel.accept.channel = messages[i].bill ? stand->bills : stand->orders;
		if (messages[i].handler >= 0) {
			parcel_add_route(&parcel, stand->handlers[messages[i].handler]);
		}
		CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
		seqs[i] = parcel.accept.seq;
		fake_clock_advance(&stand->clock, 1000);
	}
}

/* Check which of the four messages the filter finds, as a text like "4 2". */
static void check_found(struct stand *stand, const int64_t *seqs,
		struct postern_filter filter, const char *expected) {
	char found[64] = "";
	struct postern_page page = stand_list(stand, &filter);
	for (size_t i = 0; i < page.count && i < 8; i++) {
		for (int j = 0; j < 4; j++) {
			if (seqs[j] == page.rows[i].seq) {
				size_t len = strlen(found);
				(void)snprintf(found + len, sizeof found - len, "%s%d",
						len ? " " : "", j + 1);
			}
		}
	}
	CHECK_STR(found, expected);
}

static void by_message(void) {
	int64_t seqs[4];
	struct stand stand;
	open_with_four(&stand, seqs);
	check_found(&stand, seqs, (struct postern_filter){ 0 }, "4 3 2 1");
	check_found(&stand, seqs, (struct postern_filter){ .channel = "orders" },
			"2 1");
	check_found(&stand, seqs, (struct postern_filter){ .channel = "none" }, "");
	check_found(&stand, seqs, (struct postern_filter){ .message_id = "1" },
			"4 1");
	check_found(&stand, seqs, (struct postern_filter){ .message_id = "x" }, "");
	check_found(&stand, seqs, (struct postern_filter){ .source = "depot" },
			"4 2");
	check_found(&stand, seqs,
			(struct postern_filter){ .message_id = "1", .source = "depot" },
			"4");
	check_found(&stand, seqs, (struct postern_filter){ .seq = seqs[2] }, "3");
	check_found(&stand, seqs, (struct postern_filter){ .seq = 999999 }, "");
	stand_close(&stand);
}

static void by_handler(void) {
	int64_t seqs[4];
	struct stand stand;
	open_with_four(&stand, seqs);
	check_found(&stand, seqs, (struct postern_filter){ .handler = "a" }, "3 1");
	check_found(&stand, seqs, (struct postern_filter){ .handler = "b" }, "2");
	check_found(&stand, seqs, (struct postern_filter){ .handler = "c" }, "");
	check_found(&stand, seqs,
			(struct postern_filter){ .handler = "a", .channel = "bills" }, "3");
	stand_enrol_one(&stand, "new", "a");
	check_found(&stand, seqs, (struct postern_filter){ .handler = "a" }, "3 1");
	check_found(&stand, seqs, (struct postern_filter){ .handler = "new" },
			"3 1");
	stand_enrol_one(&stand, "new", "b");
	check_found(&stand, seqs, (struct postern_filter){ .handler = "b" },
			"3 2 1");
	stand_close(&stand);
}

static void by_type(void) {
	int64_t seqs[4];
	struct stand stand;
	open_with_four(&stand, seqs);
	check_found(&stand, seqs, (struct postern_filter){ .type = "order.paid" },
			"1");
	check_found(&stand, seqs, (struct postern_filter){ .type = "order.*" },
			"2 1");
	check_found(&stand, seqs, (struct postern_filter){ .type = "*.paid" },
			"3 1");
	check_found(&stand, seqs, (struct postern_filter){ .type = "*r*e*" },
			"2 1");
	check_found(&stand, seqs, (struct postern_filter){ .type = "*" },
			"4 3 2 1");
	check_found(&stand, seqs, (struct postern_filter){ .type = "order" }, "");
	check_found(&stand, seqs, (struct postern_filter){ .type = "ORDER.*" }, "");
	check_found(&stand, seqs, (struct postern_filter){ .type = "order_paid" },
			"");
	check_found(&stand, seqs, (struct postern_filter){ .type = "order.%" }, "");
	check_found(&stand, seqs, (struct postern_filter){ .type = "order?paid" },
			"");
	stand_close(&stand);
}

static void by_time(void) {
	int64_t seqs[4];
	struct stand stand;
	open_with_four(&stand, seqs);
	int64_t start = FAKE_CLOCK_START_MS;
	check_found(&stand, seqs, (struct postern_filter){ .since_ms = start },
			"4 3 2 1");
	check_found(&stand, seqs,
			(struct postern_filter){ .since_ms = start + 1000 }, "4 3 2");
	check_found(&stand, seqs,
			(struct postern_filter){ .since_ms = start + 1001 }, "4 3");
	check_found(&stand, seqs,
			(struct postern_filter){ .until_ms = start + 1000 }, "1");
	check_found(&stand, seqs,
			(struct postern_filter){ .since_ms = start + 1000,
					.until_ms = start + 3000 },
			"3 2");
	stand_close(&stand);
}

/* All pages of `limit` rows must make up the whole list. */
static void check_pages(struct stand *stand, struct postern_filter filter,
		uint32_t limit) {
	struct postern_page whole = stand_list(stand, &filter);
	filter.size = sizeof filter;
	filter.limit = limit;
	struct postern_query query = { .filter = &filter };
	size_t count = 0;
	for (int i = 0; i < 100; i++) {
		struct postern_page page = { 0 };
		CHECK_OK(stand->ops->list(stand->store, &query, stand->memory, &page,
						 &stand->error),
				&stand->error);
		CHECK(page.count <= limit);
		for (size_t j = 0; j < page.count; j++, count++) {
			if (CHECK(count < whole.count)) {
				CHECK_INT(page.rows[j].seq, whole.rows[count].seq);
				CHECK_STR(page.rows[j].handler, whole.rows[count].handler);
			}
		}
		CHECK_INT(page.more, count < whole.count);
		if (!page.more) {
			break;
		}
		CHECK_INT(page.count, limit);
		query.after_seq = page.last_seq;
		query.after_handler = page.last_handler;
	}
	CHECK_INT(count, whole.count);
}

static void pages(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", "c", NULL);
	for (int i = 0; i < 12; i++) {
		struct parcel parcel;
		char id[8];
		(void)snprintf(id, sizeof id, "%d", i);
		parcel_init(&parcel, &stand, id, "body");
		/* Messages with no route to three routes. */
		for (int j = 0; j < i % 4; j++) {
			parcel_add_route(&parcel, stand.handlers[j])->lease = i % 3 == 0;
		}
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	}
	for (uint32_t limit = 1; limit <= 22; limit++) {
		check_pages(&stand, (struct postern_filter){ 0 }, limit);
		check_pages(&stand, (struct postern_filter){ .handler = "b" }, limit);
		check_pages(&stand,
				(struct postern_filter){ .state = POSTERN_STATE_LEASED },
				limit);
	}
	CHECK_INT(stand_list(&stand, &(struct postern_filter){ 0 }).count, 21);
	stand_close(&stand);
}

static void pages_while_growing(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t first = stand_accept_many(&stand, 6, stand.handlers[0]);
	struct postern_filter filter = { .size = sizeof filter, .limit = 3 };
	struct postern_query query = { .filter = &filter };
	struct postern_page page = { 0 };
	CHECK_OK(stand.ops->list(stand.store, &query, stand.memory, &page,
					 &stand.error),
			&stand.error);
	query.after_seq = page.last_seq;
	query.after_handler = page.last_handler;
	stand_accept(&stand, "new", stand.handlers[0]);
	CHECK_OK(stand.ops->list(stand.store, &query, stand.memory, &page,
					 &stand.error),
			&stand.error);
	if (CHECK_INT(page.count, 3)) {
		CHECK_INT(page.rows[0].seq, first + 2);
		CHECK_INT(page.rows[2].seq, first);
	}
	CHECK(!page.more);
	stand_close(&stand);
}

static void behind_anything(void) {
	static const struct {
		int64_t seq; /* relative to the first message's */
		int64_t handler;
		size_t count;
	} places[] = {
		{ 1, INT64_MAX, 1 },
		{ 2, 0, 2 },
		{ 1000, INT64_MAX, 2 },
		{ INT64_MAX / 2, 0, 2 },
		{ 0, INT64_MAX, 0 },
	};
	struct stand stand;
	struct postern_filter filter = { .size = sizeof filter, .limit = 10 };
	stand_open(&stand, "a", NULL);
	int64_t first = stand_accept_many(&stand, 2, stand.handlers[0]);
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		struct postern_query query = {
			.filter = &filter,
			.after_seq = first + places[i].seq,
			.after_handler = places[i].handler,
		};
		struct postern_page page = { 0 };
		CHECK_OK(stand.ops->list(stand.store, &query, stand.memory, &page,
						 &stand.error),
				&stand.error);
		CHECK_INT(page.count, places[i].count);
	}
	stand_close(&stand);
}

const struct tap_case list_cases[] = {
	{ "an empty store lists nothing", nothing },
	{ "the newest message is first, its handlers by handler id", order },
	{ "a row has every field of a delivery", row_is_full },
	{ "deliveries are found by state", by_state },
	{ "deliveries are found by channel, id, source and number", by_message },
	{ "deliveries are found by any key of their handler", by_handler },
	{ "deliveries are found by a pattern of types", by_type },
	{ "deliveries are found by when they were received", by_time },
	{ "pages have no gaps and no repeats", pages },
	{ "a page can start after a position that does not exist",
			behind_anything },
	{ "messages accepted between two pages do not shift the second",
			pages_while_growing },
	{ 0 },
};
