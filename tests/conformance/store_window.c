/* SPDX-License-Identifier: MIT */

/*
 * How long a handler's own keys are remembered, which may be shorter or longer
 * than the message and its id.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#include <string.h>

#define PAYLOAD_MS 1000
#define DEDUPE_MS 5000

static void enrol_window(struct stand *stand, const char *key,
		const char *legacy_keys, int64_t window_ms) {
	struct stand_handler handler = {
		.key = key,
		.legacy_keys = legacy_keys,
		.dedupe_ms = window_ms,
	};
	CHECK_OK(stand_enrol(stand, &handler, 1), &stand->error);
}

/* Opens a store whose handler has this window. */
static void open_window(struct stand *stand, int64_t window_ms) {
	stand_open(stand, "a", NULL);
	enrol_window(stand, "a", NULL, window_ms);
}

struct sent {
	int64_t seq;
	bool opened;
};

static struct sent send_with_key(struct stand *stand, const char *id,
		int64_t handler, const char *value) {
	const struct postern_dedupe_key key = {
		.value = value,
		.value_len = strlen(value),
	};
	struct parcel parcel;
	parcel_init(&parcel, stand, id, "body");
	parcel_add_route(&parcel, handler)->key = &key;
	CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
	return (struct sent){ parcel.accept.seq, parcel.routes[0].opened };
}

static bool opens(struct stand *stand, const char *id, const char *value) {
	return send_with_key(stand, id, stand->handlers[0], value).opened;
}

static int64_t send_done(struct stand *stand, const char *id,
		const char *value) {
	struct sent sent = send_with_key(stand, id, stand->handlers[0], value);
	CHECK(sent.opened);
	stand_finish(stand, sent.seq, stand->handlers[0], POSTERN_SETTLE_DONE);
	return sent.seq;
}

struct total {
	uint64_t messages;
	uint64_t keys;
};

/* Cleans up completely, in batches of `max`; payload_ms 0: channels keep
   everything. */
static struct total clean_in(struct stand *stand, int64_t payload_ms,
		size_t max) {
	const struct postern_retention rule = {
		.channel = stand->orders,
		.payload_ms = payload_ms,
		.dedupe_ms = DEDUPE_MS,
	};
	struct postern_cleaning cleaning = {
		.rules = &rule,
		.rule_count = payload_ms > 0,
		.max = max,
		.bytes_max = SIZE_MAX,
	};
	struct total total = { 0 };
	do {
		CHECK_OK(stand->ops->clean(stand->store, &cleaning, &stand->error),
				&stand->error);
		total.messages += cleaning.messages;
		total.keys += cleaning.keys;
	} while (cleaning.more);
	return total;
}

static uint64_t clean(struct stand *stand) {
	return clean_in(stand, PAYLOAD_MS, 100).keys;
}

static void expires_before_message(void) {
	struct stand stand;
	open_window(&stand, 500);
	int64_t seq = send_done(&stand, "1", "17");
	fake_clock_advance(&stand.clock, 499);
	CHECK_INT(clean(&stand), 0);
	CHECK(!opens(&stand, "2", "17"));
	fake_clock_advance(&stand.clock, 1);
	CHECK_INT(clean(&stand), 1);
	CHECK(opens(&stand, "3", "17"));
	/* The message and its id are still there. */
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	struct parcel copy;
	parcel_init(&copy, &stand, "1", "body");
	CHECK_INT(parcel_send(&stand, &copy), POSTERN_E_DUPLICATE);
	stand_close(&stand);
}

static void expires_without_rules(void) {
	struct stand stand;
	open_window(&stand, 500);
	int64_t seq = send_done(&stand, "1", "17");
	fake_clock_advance(&stand.clock, 500);
	struct total total = clean_in(&stand, 0, 1);
	CHECK_INT(total.messages, 0);
	CHECK_INT(total.keys, 1);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	CHECK(opens(&stand, "2", "17"));
	stand_close(&stand);
}

static void outlives_id(void) {
	struct stand stand;
	open_window(&stand, 2 * (int64_t)DEDUPE_MS);
	send_done(&stand, "1", "17");
	fake_clock_advance(&stand.clock, DEDUPE_MS);
	struct total total = clean_in(&stand, PAYLOAD_MS, 100);
	CHECK_INT(total.messages, 1);
	CHECK_INT(total.keys, 1);
	/* The id is new, the handler's key is not. */
	CHECK(!opens(&stand, "1", "17"));
	fake_clock_advance(&stand.clock, DEDUPE_MS);
	CHECK(clean(&stand) > 0);
	CHECK(opens(&stand, "2", "17"));
	stand_close(&stand);
}

static void open_or_poisoned_stays(void) {
	struct stand stand;
	open_window(&stand, 500);
	struct sent pending =
			send_with_key(&stand, "1", stand.handlers[0], "pending");
	fake_clock_advance(&stand.clock, 10 * (int64_t)DEDUPE_MS);
	CHECK_INT(clean(&stand), 0);
	CHECK(!opens(&stand, "2", "pending"));
	stand_finish(&stand, pending.seq, stand.handlers[0],
			POSTERN_SETTLE_POISONED);
	CHECK_INT(clean(&stand), 0);
	CHECK(!opens(&stand, "3", "pending"));
	uint64_t count;
	CHECK_INT(stand_edit(&stand, POSTERN_CHANGE_DISCARD, pending.seq, "a",
					  &count),
			POSTERN_OK);
	CHECK_INT(clean(&stand), 1);
	CHECK(opens(&stand, "4", "pending"));
	stand_close(&stand);
}

/* The key is in the scopes of both ids, the delivery under one of them. */
static void alias_has_window(void) {
	struct stand stand;
	stand_open(&stand, "old", NULL);
	int64_t seq = send_with_key(&stand, "1", stand.handlers[0], "17").seq;
	enrol_window(&stand, "new", NULL, 0);
	enrol_window(&stand, "new", "old", 500);
	CHECK(!opens(&stand, "2", "17")); /* now in both scopes */
	fake_clock_advance(&stand.clock, 500);
	CHECK_INT(clean(&stand), 0); /* the delivery is open */
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
	CHECK_INT(clean(&stand), 2);
	CHECK(opens(&stand, "3", "17"));
	stand_close(&stand);
}

static void without_window_again(void) {
	struct stand stand;
	open_window(&stand, 500);
	send_done(&stand, "1", "17");
	enrol_window(&stand, "a", NULL, 0);
	fake_clock_advance(&stand.clock, DEDUPE_MS - 1);
	CHECK_INT(clean(&stand), 0);
	CHECK(!opens(&stand, "2", "17"));
	fake_clock_advance(&stand.clock, 1);
	CHECK_INT(clean(&stand), 2);
	CHECK(opens(&stand, "3", "17"));
	stand_close(&stand);
}

static void counts_stay(void) {
	struct stand stand;
	struct parcel copy;
	open_window(&stand, 500);
	int64_t seq = send_done(&stand, "1", "17");
	parcel_init(&copy, &stand, "1", "body");
	CHECK_INT(parcel_send(&stand, &copy), POSTERN_E_DUPLICATE);
	parcel_init(&copy, &stand, "1", "another body");
	CHECK_INT(parcel_send(&stand, &copy), POSTERN_E_CONFLICT);
	fake_clock_advance(&stand.clock, 500);
	CHECK_INT(clean(&stand), 1);
	struct postern_detail detail = stand_get(&stand, seq);
	CHECK_INT(detail.duplicate_count, 1);
	CHECK_INT(detail.conflict_count, 1);
	stand_close(&stand);
}

/* A copy of the message itself remembers its key again, not for longer. */
static void own_copy_again(void) {
	struct stand stand;
	const struct postern_dedupe_key key = { .value = "17", .value_len = 2 };
	struct parcel copy;
	open_window(&stand, 500);
	send_done(&stand, "1", "17");
	fake_clock_advance(&stand.clock, 500);
	CHECK_INT(clean(&stand), 1);
	parcel_init(&copy, &stand, "1", "body");
	parcel_add_route(&copy, stand.handlers[0])->key = &key;
	CHECK_INT(parcel_send(&stand, &copy), POSTERN_E_DUPLICATE);
	CHECK(!copy.routes[0].opened);
	CHECK_INT(clean(&stand), 1);
	CHECK(opens(&stand, "2", "17"));
	stand_close(&stand);
}

const struct tap_case window_cases[] = {
	{ "a handler's key expires by its window, and its message stays",
			expires_before_message },
	{ "windows hold where no channel has a retention", expires_without_rules },
	{ "a handler's key outlives the id of its message by its window",
			outlives_id },
	{ "an open or poisoned delivery keeps its handler's key",
			open_or_poisoned_stays },
	{ "the window of a handler holds for keys under its aliases",
			alias_has_window },
	{ "a handler whose window was removed has the channel's retention",
			without_window_again },
	{ "an expired key of a handler leaves the counts of copies", counts_stay },
	{ "a copy renews no window", own_copy_again },
	{ 0 },
};
