/* SPDX-License-Identifier: MIT */

/*
 * Parked messages that a handler with a key of its own wants: the key is made
 * of the stored message, whose body is the key here.
 */

#include <stdio.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

#define KEYED_MAX 2

/* Every parked message is wanted by these handlers. */
struct keyed {
	int64_t handlers[KEYED_MAX];
	size_t handler_count;
	const char *refusal; /* NULL: the body is the key */
	struct postern_dedupe_key key;
	size_t read_count; /* calls with a message */
};

static size_t route_keyed(void *context, int64_t channel, const char *type,
		const struct postern_message *message, struct postern_route *routes,
		size_t max) {
	struct keyed *keyed = context;
	(void)channel;
	if (!CHECK(max >= keyed->handler_count)) {
		return 0;
	}
	if (message) {
		CHECK_STR(message->type, type);
		keyed->read_count++;
		keyed->key = (struct postern_dedupe_key){
			.value = message->body,
			.value_len = message->body_len,
		};
	}
	for (size_t i = 0; i < keyed->handler_count; i++) {
		routes[i] = (struct postern_route){
			.handler = keyed->handlers[i],
			.key = message && !keyed->refusal ? &keyed->key : NULL,
			.refusal = message ? keyed->refusal : NULL,
			.by_message = !message,
		};
	}
	return keyed->handler_count;
}

static uint64_t unpark_keyed(struct stand *stand, struct keyed *keyed) {
	int64_t cursor = 0;
	uint64_t count = 0;
	CHECK_OK(stand->ops->unpark(stand->store, route_keyed, keyed, 100, &cursor,
					 &count, &stand->error),
			&stand->error);
	CHECK_INT(cursor, 0);
	return count;
}

static int64_t park_body(struct stand *stand, const char *id,
		const char *body) {
	struct parcel parcel;
	parcel_init(&parcel, stand, id, body);
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
	return parcel.accept.seq;
}

/* Sends a message whose handler has this key; returns what suppressed it. */
static int64_t suppressor(struct stand *stand, const char *id, int64_t handler,
		const char *value) {
	struct parcel parcel;
	const struct postern_dedupe_key key = {
		.value = value,
		.value_len = strlen(value),
	};
	parcel_init(&parcel, stand, id, "another body");
	parcel_add_route(&parcel, handler)->key = &key;
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
	CHECK_INT(parcel.routes[0].opened, parcel.routes[0].suppressed_by == 0);
	return parcel.routes[0].suppressed_by;
}

static void check_suppressed(struct stand *stand, int64_t seq,
		int64_t suppressed_by) {
	char text[64];
	struct postern_detail detail = stand_get(stand, seq);
	(void)snprintf(text, sizeof text, "suppressed by #%lld",
			(long long)suppressed_by);
	if (CHECK_INT(detail.delivery_count, 1)) {
		CHECK_INT(detail.deliveries[0].row.state, POSTERN_STATE_DISCARDED);
		CHECK_STR(detail.deliveries[0].row.last_error, text);
		CHECK_INT(detail.deliveries[0].attempt_count, 1);
	}
}

static void key_is_remembered(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = park_body(&stand, "1", "17");
	struct keyed keyed = {
		.handlers = { stand.handlers[0] },
		.handler_count = 1,
	};
	CHECK_INT(unpark_keyed(&stand, &keyed), 1);
	CHECK_INT(keyed.read_count, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	CHECK_INT(suppressor(&stand, "2", stand.handlers[0], "17"), seq);
	CHECK_INT(suppressor(&stand, "3", stand.handlers[0], "18"), 0);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 9).count, 2);
	stand_close(&stand);
}

static void known_key_suppresses(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = park_body(&stand, "1", "17");
	CHECK_INT(suppressor(&stand, "2", stand.handlers[0], "17"), 0);
	struct keyed keyed = {
		.handlers = { stand.handlers[0] },
		.handler_count = 1,
	};
	CHECK_INT(unpark_keyed(&stand, &keyed), 1);
	check_suppressed(&stand, seq, seq + 1);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	CHECK_INT(stand_handler_stats(&stand, "a").discarded, 1);
	/* The row is found by a copy, which opens nothing. */
	parcel_init(&parcel, &stand, "1", "17");
	parcel_add_route(&parcel, stand.handlers[0])->key = &keyed.key;
	keyed.key = (struct postern_dedupe_key){ .value = "17", .value_len = 2 };
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	check_suppressed(&stand, seq, seq + 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 9).count, 1);
	stand_close(&stand);
}

static void first_parked_wins(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	int64_t first = park_body(&stand, "1", "17");
	int64_t second = park_body(&stand, "2", "17");
	int64_t other = park_body(&stand, "3", "18");
	struct keyed keyed = {
		.handlers = { stand.handlers[0] },
		.handler_count = 1,
	};
	CHECK_INT(unpark_keyed(&stand, &keyed), 3);
	CHECK_INT(stand_state(&stand, first, "a"), POSTERN_STATE_PENDING);
	check_suppressed(&stand, second, first);
	CHECK_INT(stand_state(&stand, other, "a"), POSTERN_STATE_PENDING);
	CHECK_INT(suppressor(&stand, "4", stand.handlers[1], "17"), 0);
	stand_close(&stand);
}

static void refused_is_poisoned(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = park_body(&stand, "1", "17");
	struct keyed keyed = {
		.handlers = { stand.handlers[0] },
		.handler_count = 1,
		.refusal = "the message has no key",
	};
	CHECK_INT(unpark_keyed(&stand, &keyed), 1);
	struct postern_row row = stand_row(&stand, seq, "a");
	CHECK_INT(row.state, POSTERN_STATE_POISONED);
	CHECK_STR(row.last_error, "the message has no key");
	CHECK(row.group != 0);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	CHECK_INT(stand_handler_stats(&stand, "a").poisoned, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 9).count, 0);
	stand_close(&stand);
}

/* An alias and its owner are one handler, whose key is remembered for both. */
static void aliases_are_one(void) {
	struct stand stand;
	stand_open(&stand, "old", "new", NULL);
	int64_t seq = park_body(&stand, "1", "17");
	CHECK_INT(stand_enrol_one(&stand, "new", "old"), stand.handlers[1]);
	struct keyed keyed = {
		.handlers = { stand.handlers[0], stand.handlers[1] },
		.handler_count = 2,
	};
	CHECK_INT(unpark_keyed(&stand, &keyed), 1);
	CHECK_INT(stand_get(&stand, seq).delivery_count, 1);
	CHECK_INT(stand_state(&stand, seq, "new"), POSTERN_STATE_PENDING);
	CHECK_INT(suppressor(&stand, "2", stand.handlers[0], "17"), seq);
	CHECK_INT(suppressor(&stand, "3", stand.handlers[1], "17"), seq);
	stand_close(&stand);
}

const struct tap_case unpark_cases[] = {
	{ "the key of an unparked message is remembered", key_is_remembered },
	{ "an unparked message whose key the handler had is suppressed",
			known_key_suppresses },
	{ "of two parked messages with one key the first is delivered",
			first_parked_wins },
	{ "an unparked message without a key is poisoned", refused_is_poisoned },
	{ "unparking knows a handler under all its ids", aliases_are_one },
	{ 0 },
};
