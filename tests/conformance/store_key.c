/* SPDX-License-Identifier: MIT */

/*
 * Accepting by key: what makes two messages copies of each other, and the keys
 * that handlers have of their own.
 */

#include <stdio.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

#define PAYLOAD_MS 1000
#define DEDUPE_MS 5000

/* A key as a rule other than `id` makes it. */
static struct postern_dedupe_key key_of(const char *value) {
	return (struct postern_dedupe_key){
		.value = value,
		.value_len = strlen(value),
	};
}

/* A message that was sent to one handler with a key of its own. */
struct sent {
	int64_t seq;
	bool opened;
	int64_t suppressed_by;
};

static struct sent send_with_key(struct stand *stand, const char *id,
		int64_t handler, const char *value) {
	struct postern_dedupe_key key = key_of(value);
	struct parcel parcel;
	parcel_init(&parcel, stand, id, "body");
	parcel_add_route(&parcel, handler)->key = &key;
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
	CHECK_INT(parcel.routes[0].opened, parcel.routes[0].suppressed_by == 0);
	return (struct sent){
		.seq = parcel.accept.seq,
		.opened = parcel.routes[0].opened,
		.suppressed_by = parcel.routes[0].suppressed_by,
	};
}

/* Whether such a message gets a delivery. */
static bool opens(struct stand *stand, const char *id, int64_t handler,
		const char *value) {
	return send_with_key(stand, id, handler, value).opened;
}

static void other_ids_one_key(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("order 17");
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	parcel.key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	parcel.message.id = "2";
	parcel.message.source = "another shop";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK_INT(parcel.accept.seq, seq);
	parcel.message.body = "another body";
	parcel.message.body_len = strlen(parcel.message.body);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	parcel.accept.channel = stand.bills;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	stand_close(&stand);
}

static void key_with_source(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, NULL);
	parcel_init(&parcel, &stand, "17", "body");
	parcel.key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	key.source = "";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	key.source = "shop";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	/* The rule `id` has the source too. */
	parcel.key = NULL;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	stand_close(&stand);
}

static void zero_bytes_count(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = { .value = "a\0b", .value_len = 3 };
	stand_open(&stand, NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel.key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	key.value = "a\0c";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	key.value_len = 1;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	key.value_len = 0;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	stand_close(&stand);
}

/* Send a parcel that the store must refuse as damaged. */
static void check_corrupt(struct stand *stand, struct parcel *parcel) {
	parcel_pack(parcel);
	struct postern_batch batch = {
		.node = stand->node,
		.accepts = &parcel->accept,
		.accept_count = 1,
	};
	CHECK_INT(stand->ops->apply(stand->store, &batch, &stand->error),
			POSTERN_E_CORRUPT);
}

static void id_is_compared(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel.key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	/* As if the hash of another id were the same. */
	key.is_id = true;
	parcel.message.id = "2";
	check_corrupt(&stand, &parcel);
	parcel.message.id = "1";
	parcel.message.source = "another shop";
	check_corrupt(&stand, &parcel);
	parcel.message.source = "shop";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	stand_close(&stand);
}

/* The first delivery of a message has ended, with this attempt. */
static void check_ended(struct stand *stand, int64_t seq, size_t index,
		enum postern_state state, const char *outcome, const char *text) {
	struct postern_detail detail = stand_get(stand, seq);
	if (!CHECK(index < detail.delivery_count)) {
		return;
	}
	const struct postern_delivery_detail *delivery = &detail.deliveries[index];
	CHECK_INT(delivery->row.state, state);
	CHECK_STR(delivery->row.last_error, text);
	if (CHECK_INT(delivery->attempt_count, 1)) {
		CHECK_STR(delivery->attempts[0].outcome, outcome);
		CHECK_STR(delivery->attempts[0].error, text);
	}
}

static void suppressed_route(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("order 17");
	stand_open(&stand, "a", "b", NULL);
	int64_t first =
			send_with_key(&stand, "1", stand.handlers[0], "order 17").seq;
	parcel_init(&parcel, &stand, "2", "another body");
	parcel_add_route(&parcel, stand.handlers[0])->key = &key;
	parcel_add_route(&parcel, stand.handlers[1])->lease = true;
	parcel.routes[0].lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(!parcel.routes[0].opened);
	CHECK(!parcel.routes[0].leased);
	CHECK_INT(parcel.routes[0].fence, 0);
	CHECK_INT(parcel.routes[0].suppressed_by, first);
	CHECK(parcel.routes[1].opened);
	CHECK(parcel.routes[1].leased);
	CHECK_INT(parcel.routes[1].suppressed_by, 0);
	char text[64];
	(void)snprintf(text, sizeof text, "suppressed by #%lld", (long long)first);
	check_ended(&stand, parcel.accept.seq, 0, POSTERN_STATE_DISCARDED,
			"discard", text);
	CHECK_INT(stand_state(&stand, parcel.accept.seq, "b"),
			POSTERN_STATE_LEASED);
	CHECK_INT(stand_handler_stats(&stand, "a").discarded, 1);
	CHECK_INT(stand_handler_stats(&stand, "a").pending, 1);
	stand_close(&stand);
}

static void refused_route(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", "b", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->refusal =
			"the message has no key";
	parcel_add_route(&parcel, stand.handlers[1]);
	parcel.routes[0].lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(!parcel.routes[0].opened);
	CHECK(!parcel.routes[0].leased);
	CHECK(parcel.routes[1].opened);
	check_ended(&stand, parcel.accept.seq, 0, POSTERN_STATE_POISONED, "poison",
			"the message has no key");
	CHECK_INT(stand_handler_stats(&stand, "a").poisoned, 1);
	/* A copy opens nothing, unless it reopens what is poisoned. */
	parcel.routes[0].refusal = NULL;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	parcel.routes[0].retry_poisoned = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(parcel.routes[0].opened);
	CHECK_INT(stand_state(&stand, parcel.accept.seq, "a"),
			POSTERN_STATE_PENDING);
	stand_close(&stand);
}

/* A copy adds a handler that finds no key, and later again. */
static void copy_is_refused(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_park(&stand, "1");
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->refusal =
			"the message has no key";
	parcel.routes[0].retry_poisoned = true;
	for (int i = 0; i < 2; i++) {
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
		CHECK(!parcel.routes[0].opened);
		CHECK_INT(stand_get(&stand, seq).delivery_count, 1);
		check_ended(&stand, seq, 0, POSTERN_STATE_POISONED, "poison",
				"the message has no key");
	}
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	CHECK_INT(stand_handler_stats(&stand, "a").poisoned, 1);
	stand_close(&stand);
}

/* Several copies of one message in a batch end its delivery once. */
static void copies_end_one_delivery(void) {
	struct stand stand;
	struct parcel parcels[3];
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", "b", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[1]);
	CHECK(opens(&stand, "2", stand.handlers[0], "17"));
	for (size_t i = 0; i < 3; i++) {
		parcel_init(&parcels[i], &stand, "1", "body");
		parcel_add_route(&parcels[i], stand.handlers[0])->key = &key;
	}
	parcel_send_all(&stand, parcels, 3);
	CHECK_INT(parcels[2].accept.code, POSTERN_E_DUPLICATE);
	struct postern_detail detail = stand_get(&stand, seq);
	CHECK_INT(detail.delivery_count, 2);
	CHECK_INT(detail.deliveries[0].attempt_count, 1);
	CHECK_INT(stand_handler_stats(&stand, "a").discarded, 1);
	CHECK_INT(stand_state(&stand, seq, "b"), POSTERN_STATE_PENDING);
	stand_close(&stand);
}

static void scopes_are_apart(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	CHECK(opens(&stand, "1", stand.handlers[0], "17"));
	CHECK(opens(&stand, "2", stand.handlers[1], "17"));
	CHECK(opens(&stand, "3", stand.handlers[0], "18"));
	CHECK(!opens(&stand, "4", stand.handlers[0], "17"));
	CHECK(!opens(&stand, "5", stand.handlers[1], "17"));
	/* The message's own key is in another scope. */
	CHECK(opens(&stand, "17", stand.handlers[0], "1"));
	stand_close(&stand);
}

static void channels_are_apart(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", NULL);
	CHECK(opens(&stand, "1", stand.handlers[0], "17"));
	parcel_init(&parcel, &stand, "2", "body");
	parcel.accept.channel = stand.bills;
	parcel_add_route(&parcel, stand.handlers[0])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(parcel.routes[0].opened);
	stand_close(&stand);
}

static void twice_in_a_batch(void) {
	struct stand stand;
	struct parcel parcels[4];
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", NULL);
	for (size_t i = 0; i < 4; i++) {
		static const char *const ids[] = { "1", "2", "2", "1" };
		parcel_init(&parcels[i], &stand, ids[i], "body");
		parcel_add_route(&parcels[i], stand.handlers[0])->key = &key;
	}
	parcel_send_all(&stand, parcels, 4);
	int64_t first = parcels[0].accept.seq;
	CHECK(parcels[0].routes[0].opened);
	CHECK_INT(parcels[1].accept.code, POSTERN_OK);
	CHECK(!parcels[1].routes[0].opened);
	CHECK_INT(parcels[1].routes[0].suppressed_by, first);
	CHECK_INT(parcels[2].accept.code, POSTERN_E_DUPLICATE);
	CHECK(!parcels[2].routes[0].opened);
	CHECK_INT(parcels[2].routes[0].suppressed_by, first);
	CHECK_INT(parcels[3].accept.code, POSTERN_E_DUPLICATE);
	CHECK(!parcels[3].routes[0].opened);
	CHECK_INT(parcels[3].routes[0].suppressed_by, 0);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 9).count, 1);
	stand_close(&stand);
}

static void own_copies(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", "b", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_POISONED);
	/* A copy adds a handler, with its key, and reopens for the first one. */
	parcel.routes[0].retry_poisoned = true;
	parcel_add_route(&parcel, stand.handlers[1])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(parcel.routes[0].opened);
	CHECK(parcel.routes[1].opened);
	CHECK_INT(parcel.routes[0].suppressed_by, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_PENDING);
	struct sent late = send_with_key(&stand, "2", stand.handlers[1], "17");
	CHECK(!late.opened);
	CHECK_INT(late.suppressed_by, seq);
	stand_close(&stand);
}

static void copy_stays_suppressed(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", NULL);
	int64_t first = send_with_key(&stand, "1", stand.handlers[0], "17").seq;
	CHECK(!opens(&stand, "2", stand.handlers[0], "17"));
	parcel_init(&parcel, &stand, "2", "body");
	parcel_add_route(&parcel, stand.handlers[0])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	CHECK_INT(parcel.routes[0].suppressed_by, first);
	CHECK_INT(stand_state(&stand, parcel.accept.seq, "a"),
			POSTERN_STATE_DISCARDED);
	stand_close(&stand);
}

static void conflict_has_no_key(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", NULL);
	stand_park(&stand, "1");
	parcel_init(&parcel, &stand, "1", "another body");
	parcel_add_route(&parcel, stand.handlers[0])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	CHECK(opens(&stand, "2", stand.handlers[0], "17"));
	stand_close(&stand);
}

static void suppressed_is_not_parked(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_park(&stand, "1");
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 1);
	CHECK(opens(&stand, "2", stand.handlers[0], "17"));
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	CHECK_INT(stand_channel_stats(&stand, "orders").parked, 0);
	char text[64];
	(void)snprintf(text, sizeof text, "suppressed by #%lld",
			(long long)parcel.routes[0].suppressed_by);
	CHECK_INT(stand_get(&stand, seq).delivery_count, 1);
	check_ended(&stand, seq, 0, POSTERN_STATE_DISCARDED, "discard", text);
	CHECK_INT(stand_handler_stats(&stand, "a").discarded, 1);
	stand_close(&stand);
}

/* The handlers "old" and "new" become one. */
static void make_alias(struct stand *stand) {
	CHECK_INT(stand_enrol_one(stand, "new", "old"), stand->handlers[1]);
}

static void alias_key_counts(void) {
	struct stand stand;
	stand_open(&stand, "old", "new", NULL);
	int64_t first = send_with_key(&stand, "1", stand.handlers[0], "17").seq;
	CHECK(opens(&stand, "2", stand.handlers[1], "18"));
	make_alias(&stand);
	struct sent second = send_with_key(&stand, "3", stand.handlers[1], "17");
	CHECK(!second.opened);
	CHECK_INT(second.suppressed_by, first);
	CHECK(!opens(&stand, "4", stand.handlers[0], "17"));
	CHECK(!opens(&stand, "5", stand.handlers[0], "18"));
	stand_close(&stand);
}

static void either_id_of_an_alias(void) {
	struct stand stand;
	stand_open(&stand, "old", "new", NULL);
	make_alias(&stand);
	CHECK(opens(&stand, "1", stand.handlers[0], "17"));
	CHECK(!opens(&stand, "2", stand.handlers[1], "17"));
	CHECK(opens(&stand, "3", stand.handlers[1], "18"));
	CHECK(!opens(&stand, "4", stand.handlers[0], "18"));
	stand_close(&stand);
}

/* A suppressed message must not get the key in another scope of the handler:
   its next copy would be taken for the first message. */
static void suppressed_by_alias_stays(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "old", "new", NULL);
	int64_t first = send_with_key(&stand, "1", stand.handlers[0], "17").seq;
	make_alias(&stand);
	parcel_init(&parcel, &stand, "2", "body");
	parcel_add_route(&parcel, stand.handlers[1])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK_INT(parcel.routes[0].suppressed_by, first);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	CHECK_INT(parcel.routes[0].suppressed_by, first);
	/* The first message's own copy still reopens. */
	stand_finish(&stand, first, stand.handlers[0], POSTERN_SETTLE_POISONED);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[1])->key = &key;
	parcel.routes[0].retry_poisoned = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(parcel.routes[0].opened);
	stand_close(&stand);
}

static void both_ids_in_one_accept(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "old", "new", NULL);
	make_alias(&stand);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->key = &key;
	parcel_add_route(&parcel, stand.handlers[1])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(parcel.routes[0].opened);
	CHECK(!parcel.routes[1].opened);
	CHECK_INT(stand_get(&stand, parcel.accept.seq).delivery_count, 1);
	stand_close(&stand);
}

static void found_once(void) {
	struct stand stand;
	int64_t seqs[4];
	size_t count;
	stand_open(&stand, "a", NULL);
	int64_t seq = send_with_key(&stand, "1", stand.handlers[0], "1").seq;
	CHECK_OK(stand.ops->find(stand.store, "1", NULL, NULL, seqs, 4, &count,
					 &stand.error),
			&stand.error);
	CHECK_INT(count, 1);
	CHECK_INT(seqs[0], seq);
	struct postern_filter filter = { .size = sizeof filter, .message_id = "1" };
	CHECK_INT(stand_list(&stand, &filter).count, 1);
	stand_close(&stand);
}

/* Clean up completely; returns how many keys were removed. */
static uint64_t clean_all(struct stand *stand) {
	const struct postern_retention rule = {
		.channel = stand->orders,
		.payload_ms = PAYLOAD_MS,
		.dedupe_ms = DEDUPE_MS,
	};
	struct postern_cleaning cleaning = {
		.rules = &rule,
		.rule_count = 1,
		.max = 100,
		.bytes_max = SIZE_MAX,
	};
	uint64_t keys = 0;
	do {
		CHECK_OK(stand->ops->clean(stand->store, &cleaning, &stand->error),
				&stand->error);
		keys += cleaning.keys;
	} while (cleaning.more);
	return keys;
}

static void keys_are_cleaned(void) {
	struct stand stand;
	stand_open(&stand, "old", "new", NULL);
	make_alias(&stand);
	int64_t seq = send_with_key(&stand, "1", stand.handlers[1], "17").seq;
	fake_clock_advance(&stand.clock, DEDUPE_MS);
	CHECK_INT(clean_all(&stand), 0); /* the delivery is open */
	stand_finish(&stand, seq, stand.handlers[1], POSTERN_SETTLE_DONE);
	CHECK_INT(clean_all(&stand), 0); /* the message is stored */
	CHECK(!opens(&stand, "2", stand.handlers[1], "17"));
	fake_clock_advance(&stand.clock, PAYLOAD_MS);
	/* The id of the message, and the key of each id of the handler. */
	CHECK_INT(clean_all(&stand), 3);
	CHECK(opens(&stand, "3", stand.handlers[1], "17"));
	stand_close(&stand);
}

/* A copy adds a handler late; its key is remembered as long as the id. */
static void late_keys_are_cleaned(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", "b", NULL);
	int64_t seq = send_with_key(&stand, "1", stand.handlers[0], "17").seq;
	fake_clock_advance(&stand.clock, DEDUPE_MS - PAYLOAD_MS);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[1])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(parcel.routes[0].opened);
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
	stand_finish(&stand, seq, stand.handlers[1], POSTERN_SETTLE_DONE);
	fake_clock_advance(&stand.clock, PAYLOAD_MS - 1);
	CHECK_INT(clean_all(&stand), 0);
	fake_clock_advance(&stand.clock, 1);
	CHECK_INT(clean_all(&stand), 3);
	/* The same id is another message now. */
	CHECK(opens(&stand, "1", stand.handlers[1], "17"));
	stand_close(&stand);
}

/* An alias that came later gets the keys that its owner has, not longer. */
static void keys_of_a_late_alias_are_cleaned(void) {
	struct stand stand;
	stand_open(&stand, "old", "new", NULL);
	int64_t seq = send_with_key(&stand, "1", stand.handlers[0], "17").seq;
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
	make_alias(&stand);
	fake_clock_advance(&stand.clock, DEDUPE_MS - 1);
	CHECK_INT(clean_all(&stand), 0);
	/* The message is removed; its key is now also the alias's. */
	CHECK(!opens(&stand, "2", stand.handlers[1], "17"));
	fake_clock_advance(&stand.clock, 1);
	CHECK_INT(clean_all(&stand), 3);
	CHECK(opens(&stand, "3", stand.handlers[1], "17"));
	stand_close(&stand);
}

static void key_outlives_message(void) {
	struct stand stand;
	struct parcel parcel;
	struct postern_dedupe_key key = key_of("17");
	stand_open(&stand, "a", "b", NULL);
	int64_t seq = send_with_key(&stand, "1", stand.handlers[0], "17").seq;
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
	fake_clock_advance(&stand.clock, PAYLOAD_MS);
	CHECK_INT(clean_all(&stand), 0);
	struct sent second = send_with_key(&stand, "2", stand.handlers[0], "17");
	CHECK_INT(second.suppressed_by, seq);
	/* A copy of a removed message opens nothing, so it has no key either. */
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[1])->key = &key;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	CHECK(opens(&stand, "3", stand.handlers[1], "17"));
	stand_close(&stand);
}

const struct tap_case key_cases[] = {
	{ "messages with the same key are copies, whatever their ids",
			other_ids_one_key },
	{ "a source is part of a key that has one", key_with_source },
	{ "every byte of a key counts", zero_bytes_count },
	{ "the stored id is compared if the key was made of the id, else not",
			id_is_compared },
	{ "a key that the handler has suppresses its route and no other",
			suppressed_route },
	{ "keys of handlers and of messages are apart", scopes_are_apart },
	{ "keys of handlers are apart in each channel", channels_are_apart },
	{ "a handler's key that is twice in a batch opens one delivery",
			twice_in_a_batch },
	{ "a message's own key suppresses nothing, and a copy adds keys",
			own_copies },
	{ "a refused route is poisoned from the beginning", refused_route },
	{ "a refused copy is poisoned, and stays so", copy_is_refused },
	{ "copies that are suppressed end one delivery", copies_end_one_delivery },
	{ "a copy of a suppressed message is suppressed", copy_stays_suppressed },
	{ "a conflict remembers no key of a handler", conflict_has_no_key },
	{ "a parked message whose copy is suppressed is not parked any more",
			suppressed_is_not_parked },
	{ "a key under an alias counts for its owner", alias_key_counts },
	{ "a key is remembered for every id of a handler", either_id_of_an_alias },
	{ "a message that an alias suppresses stays suppressed",
			suppressed_by_alias_stays },
	{ "two ids of one handler in an accept are one key",
			both_ids_in_one_accept },
	{ "a message with keys of handlers is found once", found_once },
	{ "keys of handlers are cleaned up like the id of the message",
			keys_are_cleaned },
	{ "keys that a copy added are cleaned up with the id",
			late_keys_are_cleaned },
	{ "keys that an alias got later are cleaned up with the id",
			keys_of_a_late_alias_are_cleaned },
	{ "keys of handlers outlive their message", key_outlives_message },
	{ 0 },
};
