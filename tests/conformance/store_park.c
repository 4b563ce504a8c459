/* SPDX-License-Identifier: MIT */

/*
 * Parked messages: accepted, but no handler wants them yet.
 */

#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

static void parked(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_park(&stand, "1");
	CHECK(seq > 0);
	struct postern_page page =
			stand_list(&stand, &(struct postern_filter){ 0 });
	if (CHECK_INT(page.count, 1)) {
		CHECK_INT(page.rows[0].seq, seq);
		CHECK_INT(page.rows[0].state, POSTERN_STATE_PARKED);
		CHECK_STR(page.rows[0].handler, "");
		CHECK_STR(page.rows[0].message_id, "1");
		CHECK_INT(page.rows[0].fence, 0);
		CHECK_INT(page.rows[0].next_at_ms, 0);
		CHECK_INT(page.rows[0].finished_at_ms, 0);
	}
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 1);
	CHECK_INT(stand_channel_stats(&stand, "orders").accepted, 1);
	CHECK_INT(stand_get(&stand, seq).completed_at_ms, 0);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 1).count, 0);
	stand_close(&stand);
}

static void duplicate_stays_parked(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_park(&stand, "1");
	parcel_init(&parcel, &stand, "1", "body");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK_INT(parcel.accept.seq, seq);
	CHECK_INT(stand_state(&stand, seq, ""), POSTERN_STATE_PARKED);
	CHECK_INT(stand_get(&stand, seq).delivery_count, 1);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 1);
	stand_close(&stand);
}

static void duplicate_wakes(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	int64_t seq = stand_park(&stand, "1");
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	parcel_add_route(&parcel, stand.handlers[1])->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(parcel.routes[0].opened);
	CHECK(parcel.routes[1].opened);
	CHECK_INT(stand_get(&stand, seq).delivery_count, 2);
	CHECK_INT(stand_state(&stand, seq, ""), POSTERN_STATE_ANY);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_state(&stand, seq, "b"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	stand_close(&stand);
}

static void conflict_wakes_nothing(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_park(&stand, "1");
	parcel_init(&parcel, &stand, "1", "other");
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	CHECK_INT(stand_state(&stand, seq, ""), POSTERN_STATE_PARKED);
	stand_close(&stand);
}

static void never_parked_later(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	parcel_init(&parcel, &stand, "1", "body");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK_INT(stand_state(&stand, seq, ""), POSTERN_STATE_ANY);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	stand_close(&stand);
}

/* A router that routes one type in one channel to one or two handlers. */
struct routing {
	int64_t channel;
	const char *type;
	int64_t handlers[2];
	size_t handler_count;
	size_t call_count;
};

static size_t route_by_type(void *context, int64_t channel, const char *type,
		const struct postern_message *message, struct postern_route *routes,
		size_t max) {
	struct routing *routing = context;
	CHECK(!message);
	routing->call_count++;
	if (channel != routing->channel || strcmp(type, routing->type) != 0 ||
			!CHECK(max >= routing->handler_count)) {
		return 0;
	}
	for (size_t i = 0; i < routing->handler_count; i++) {
		routes[i] = (struct postern_route){ .handler = routing->handlers[i] };
	}
	return routing->handler_count;
}

static uint64_t unpark_step(struct stand *stand, struct routing *routing,
		size_t max, int64_t *cursor) {
	uint64_t count = 0;
	CHECK_OK(stand->ops->unpark(stand->store, route_by_type, routing, max,
					 cursor, &count, &stand->error),
			&stand->error);
	return count;
}

static void wakes_what_is_wanted(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	int64_t wanted = stand_park(&stand, "1");
	parcel_init(&parcel, &stand, "2", "body");
	parcel.message.type = "order.lost";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t other_type = parcel.accept.seq;
	parcel_init(&parcel, &stand, "3", "body");
	parcel.accept.channel = stand.bills;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t other_channel = parcel.accept.seq;

	fake_clock_advance(&stand.clock, 1000);
	struct routing routing = {
		.channel = stand.orders,
		.type = "order.paid",
		.handlers = { stand.handlers[0], stand.handlers[1] },
		.handler_count = 2,
	};
	int64_t cursor = 0;
	CHECK_INT(unpark_step(&stand, &routing, 100, &cursor), 1);
	CHECK_INT(cursor, 0);
	CHECK_INT(routing.call_count, 3);
	CHECK_INT(stand_get(&stand, wanted).delivery_count, 2);
	struct postern_row row = stand_row(&stand, wanted, "a");
	CHECK_INT(row.state, POSTERN_STATE_PENDING);
	CHECK_INT(row.next_at_ms, stand_now(&stand));
	CHECK_INT(row.fence, 0);
	CHECK_INT(stand_state(&stand, wanted, "b"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_state(&stand, other_type, ""), POSTERN_STATE_PARKED);
	CHECK_INT(stand_state(&stand, other_channel, ""), POSTERN_STATE_PARKED);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 1);

	routing.call_count = 0;
	CHECK_INT(unpark_step(&stand, &routing, 100, &cursor), 0);
	CHECK_INT(routing.call_count, 2);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 1);
	stand_close(&stand);
}

static void wakes_in_steps(void) {
	static const char *const ids[] = { "0", "1", "2", "3", "4", "5", "6" };
	struct stand stand;
	stand_open(&stand, "a", NULL);
	for (size_t i = 0; i < 7; i++) {
		struct parcel parcel;
		parcel_init(&parcel, &stand, ids[i], "body");
		parcel.message.type = i % 2 ? "order.lost" : "order.paid";
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	}
	struct routing routing = {
		.channel = stand.orders,
		.type = "order.paid",
		.handlers = { stand.handlers[0] },
		.handler_count = 1,
	};
	int64_t cursor = 0;
	uint64_t count = 0;
	for (int step = 0; step < 20; step++) {
		routing.call_count = 0;
		int64_t before = cursor;
		count += unpark_step(&stand, &routing, 2, &cursor);
		CHECK(routing.call_count <= 2);
		CHECK(cursor == 0 || cursor > before);
		if (cursor == 0) {
			break;
		}
	}
	CHECK_INT(cursor, 0);
	CHECK_INT(count, 4);
	CHECK_INT(stand_handler_stats(&stand, "a").pending, 4);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 3);
	stand_close(&stand);
}

static void nothing_parked(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	stand_accept(&stand, "1", stand.handlers[0]);
	struct routing routing = { .channel = stand.orders, .type = "order.paid" };
	int64_t cursor = 0;
	CHECK_INT(unpark_step(&stand, &routing, 100, &cursor), 0);
	CHECK_INT(cursor, 0);
	CHECK_INT(routing.call_count, 0);
	stand_close(&stand);
}

static void discarded(void) {
	struct stand stand;
	struct parcel parcel;
	uint64_t count = 0;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_park(&stand, "1");
	fake_clock_advance(&stand.clock, 10);
	CHECK_OK(stand_edit(&stand, POSTERN_CHANGE_DISCARD, seq, "", &count),
			&stand.error);
	CHECK_INT(count, 1);
	struct postern_row row = stand_row(&stand, seq, "");
	CHECK_INT(row.state, POSTERN_STATE_DISCARDED);
	CHECK_INT(row.finished_at_ms, stand_now(&stand));
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	CHECK_INT(stand_get(&stand, seq).completed_at_ms, stand_now(&stand));

	struct routing routing = {
		.channel = stand.orders,
		.type = "order.paid",
		.handlers = { stand.handlers[0] },
		.handler_count = 1,
	};
	int64_t cursor = 0;
	CHECK_INT(unpark_step(&stand, &routing, 100, &cursor), 0);
	CHECK_INT(routing.call_count, 0);
	/* The message id is still remembered. */
	parcel_init(&parcel, &stand, "1", "body");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK_INT(parcel.accept.seq, seq);
	CHECK_INT(stand_state(&stand, seq, ""), POSTERN_STATE_DISCARDED);
	stand_close(&stand);
}

static void parked_after_crash(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_park(&stand, "1");
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	stand_recover(&stand);
	CHECK_INT(stand_state(&stand, seq, ""), POSTERN_STATE_PARKED);
	stand_close(&stand);
}

const struct tap_case park_cases[] = {
	{ "a parked message is stored and listed without a handler", parked },
	{ "a duplicate that no handler wants leaves the message parked",
			duplicate_stays_parked },
	{ "a duplicate that a handler wants unparks the message", duplicate_wakes },
	{ "a conflict does not unpark the message", conflict_wakes_nothing },
	{ "a duplicate does not park a message that has deliveries",
			never_parked_later },
	{ "unparking makes deliveries for the messages that a handler wants",
			wakes_what_is_wanted },
	{ "parked messages are routed in steps, each once", wakes_in_steps },
	{ "without parked messages the router is not called", nothing_parked },
	{ "a parked message can be discarded and its id stays remembered",
			discarded },
	{ "a parked message is still parked after a crash", parked_after_crash },
	{ 0 },
};
