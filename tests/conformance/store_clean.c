/* SPDX-License-Identifier: MIT */

/*
 * Cleanup: what is removed when its retention has passed, and what is kept
 * forever. The remembered id outlives its message, never the other way round.
 */

#include "conformance/cases.h"
#include "conformance/stand.h"

#define PAYLOAD_MS 1000
#define DEDUPE_MS 5000

struct total {
	uint64_t messages;
	uint64_t keys;
	size_t calls;
};

/* Clean up completely, in batches of `max` messages and `bytes_max` bytes. Each
   body has at least `body_len` bytes. */
static struct total clean_bounded(struct stand *stand, int64_t dedupe_ms,
		size_t max, size_t bytes_max, size_t body_len) {
	struct postern_retention rule = {
		.channel = stand->orders,
		.payload_ms = PAYLOAD_MS,
		.dedupe_ms = dedupe_ms,
	};
	struct postern_cleaning cleaning = {
		.rules = &rule,
		.rule_count = 1,
		.max = max,
		.bytes_max = bytes_max,
	};
	struct total total = { 0 };
	do {
		CHECK_OK(stand->ops->clean(stand->store, &cleaning, &stand->error),
				&stand->error);
		CHECK(cleaning.messages <= max);
		CHECK(cleaning.keys <= max);
		/* All but the last message of a batch fit into bytes_max. */
		CHECK(cleaning.messages < 2 ||
				(cleaning.messages - 1) * body_len <= bytes_max);
		total.messages += cleaning.messages;
		total.keys += cleaning.keys;
		total.calls++;
	} while (cleaning.more && total.calls < 1000);
	CHECK(!cleaning.more);
	return total;
}

static struct total clean_all_of(struct stand *stand, int64_t dedupe_ms,
		size_t max) {
	return clean_bounded(stand, dedupe_ms, max, SIZE_MAX, 0);
}

static int64_t accept_ended(struct stand *stand, const char *id,
		enum postern_settle_to to) {
	int64_t seq = stand_accept_leased(stand, id, stand->handlers[0]);
	CHECK_INT(stand_settle_to(stand, seq, stand->handlers[0], 1, to),
			POSTERN_OK);
	return seq;
}

static bool message_exists(struct stand *stand, int64_t seq) {
	struct postern_detail detail;
	int r = stand->ops->get(stand->store, seq, stand->memory, &detail,
			&stand->error);
	CHECK(r == POSTERN_OK || r == POSTERN_E_NOTFOUND);
	return r == POSTERN_OK;
}

static int send_copy(struct stand *stand, const char *id, const char *body,
		int64_t *seq_out) {
	struct parcel parcel;
	parcel_init(&parcel, stand, id, body);
	parcel_add_route(&parcel, stand->handlers[0]);
	int code = parcel_send(stand, &parcel);
	*seq_out = parcel.accept.seq;
	return code;
}

/* The body of a stored message, as a text. */
static const char *body_of(struct stand *stand, int64_t seq) {
	struct postern_detail detail = stand_get(stand, seq);
	char *text =
			postern_memory_alloc(stand->memory, detail.message->body_len + 1);
	memcpy(text, detail.message->body, detail.message->body_len);
	text[detail.message->body_len] = '\0';
	return text;
}

static void goes_when_ended(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t done = accept_ended(&stand, "1", POSTERN_SETTLE_DONE);
	int64_t discarded = accept_ended(&stand, "2", POSTERN_SETTLE_DISCARDED);
	fake_clock_advance(&stand.clock, PAYLOAD_MS - 1);
	CHECK_INT(clean_all_of(&stand, DEDUPE_MS, 100).messages, 0);
	CHECK(message_exists(&stand, done));
	fake_clock_advance(&stand.clock, 1);
	struct total total = clean_all_of(&stand, DEDUPE_MS, 100);
	CHECK_INT(total.messages, 2);
	CHECK_INT(total.keys, 0);
	CHECK(!message_exists(&stand, done));
	CHECK(!message_exists(&stand, discarded));
	struct postern_filter all = { .size = sizeof all, .limit = 10 };
	CHECK_INT(stand_list(&stand, &all).count, 0);
	int64_t found[4];
	size_t count = 1;
	CHECK_OK(stand.ops->find(stand.store, "1", NULL, NULL, found, 4, &count,
					 &stand.error),
			&stand.error);
	CHECK_INT(count, 0);
	/* Cleanup does not change the counters. */
	CHECK_INT(stand_handler_stats(&stand, "a").done, 1);
	CHECK_INT(stand_channel_stats(&stand, "orders").accepted, 2);
	stand_close(&stand);
}

static void counts_from_the_end(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	struct parcel parcel;
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	parcel_add_route(&parcel, stand.handlers[1])->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	fake_clock_advance(&stand.clock, 10 * PAYLOAD_MS);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[1], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	fake_clock_advance(&stand.clock, PAYLOAD_MS - 1);
	CHECK_INT(clean_all_of(&stand, -1, 100).messages, 0);
	fake_clock_advance(&stand.clock, 1);
	CHECK_INT(clean_all_of(&stand, -1, 100).messages, 1);
	stand_close(&stand);
}

static void what_stays(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seqs[] = {
		accept_ended(&stand, "poisoned", POSTERN_SETTLE_POISONED),
		stand_accept(&stand, "pending", stand.handlers[0]),
		stand_accept_leased(&stand, "leased", stand.handlers[0]),
		stand_park(&stand, "parked"),
	};
	fake_clock_advance(&stand.clock, 100 * DEDUPE_MS);
	struct total total = clean_all_of(&stand, DEDUPE_MS, 100);
	CHECK_INT(total.messages, 0);
	CHECK_INT(total.keys, 0);
	for (size_t i = 0; i < sizeof seqs / sizeof seqs[0]; i++) {
		CHECK(message_exists(&stand, seqs[i]));
	}
	int64_t again;
	CHECK_INT(send_copy(&stand, "pending", body_of(&stand, seqs[1]), &again),
			POSTERN_E_DUPLICATE);
	CHECK_INT(again, seqs[1]);
	stand_close(&stand);
}

static void one_of_two_is_poisoned(void) {
	struct stand stand;
	stand_open(&stand, "a", "b", NULL);
	struct parcel parcel;
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	parcel_add_route(&parcel, stand.handlers[1])->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_POISONED),
			POSTERN_OK);
	CHECK_INT(stand_settle_to(&stand, seq, stand.handlers[1], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	fake_clock_advance(&stand.clock, 100 * DEDUPE_MS);
	CHECK_INT(clean_all_of(&stand, DEDUPE_MS, 100).messages, 0);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_POISONED);
	CHECK_INT(stand_state(&stand, seq, "b"), POSTERN_STATE_DONE);
	stand_close(&stand);
}

static void remembered(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = accept_ended(&stand, "1", POSTERN_SETTLE_DONE);
	const char *body = body_of(&stand, seq);
	fake_clock_advance(&stand.clock, DEDUPE_MS - 1);
	CHECK_INT(clean_all_of(&stand, DEDUPE_MS, 100).messages, 1);
	int64_t again = 0;
	CHECK_INT(send_copy(&stand, "1", body, &again), POSTERN_E_DUPLICATE);
	CHECK_INT(again, seq);
	CHECK_INT(send_copy(&stand, "1", "another", &again), POSTERN_E_CONFLICT);
	CHECK_INT(again, seq);
	/* A copy does not restore the message. */
	CHECK(!message_exists(&stand, seq));
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 0);
	stand_close(&stand);
}

static void forgotten(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t seq = accept_ended(&stand, "1", POSTERN_SETTLE_DONE);
	fake_clock_advance(&stand.clock, PAYLOAD_MS);
	CHECK_INT(clean_all_of(&stand, DEDUPE_MS, 100).messages, 1);
	int64_t again = 0;
	CHECK_INT(send_copy(&stand, "1", "copy", &again), POSTERN_E_CONFLICT);
	fake_clock_advance(&stand.clock, DEDUPE_MS - PAYLOAD_MS);
	CHECK_INT(clean_all_of(&stand, DEDUPE_MS, 100).keys, 1);
	CHECK_INT(send_copy(&stand, "1", "copy", &again), POSTERN_OK);
	CHECK(again > seq);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 1);
	CHECK_INT(stand_get(&stand, again).conflict_count, 0);
	stand_close(&stand);
}

static void both_at_once(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	accept_ended(&stand, "1", POSTERN_SETTLE_DONE);
	fake_clock_advance(&stand.clock, DEDUPE_MS);
	struct total total = clean_all_of(&stand, DEDUPE_MS, 100);
	CHECK_INT(total.messages, 1);
	CHECK_INT(total.keys, 1);
	stand_close(&stand);
}

static void remembered_for_good(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	accept_ended(&stand, "1", POSTERN_SETTLE_DONE);
	fake_clock_advance(&stand.clock, 1000 * DEDUPE_MS);
	struct total total = clean_all_of(&stand, -1, 100);
	CHECK_INT(total.messages, 1);
	CHECK_INT(total.keys, 0);
	int64_t again;
	CHECK_INT(send_copy(&stand, "1", "another", &again), POSTERN_E_CONFLICT);
	stand_close(&stand);
}

static void other_channels(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct parcel parcel;
	parcel_init(&parcel, &stand, "1", "body");
	parcel.accept.channel = stand.bills;
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK_INT(stand_settle_to(&stand, parcel.accept.seq, stand.handlers[0], 1,
					  POSTERN_SETTLE_DONE),
			POSTERN_OK);
	int64_t seq = accept_ended(&stand, "2", POSTERN_SETTLE_DONE);
	fake_clock_advance(&stand.clock, 100 * DEDUPE_MS);
	struct total total = clean_all_of(&stand, DEDUPE_MS, 100);
	CHECK_INT(total.messages, 1);
	CHECK_INT(total.keys, 1);
	CHECK(message_exists(&stand, parcel.accept.seq));
	CHECK(!message_exists(&stand, seq));
	stand_close(&stand);
}

/* Every fifth message is open. */
static void clean_in_batches(int count, size_t max) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	for (int i = 0; i < count; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "%d", i);
		if (i % 5 == 4) {
			stand_accept(&stand, id, stand.handlers[0]);
		} else {
			accept_ended(&stand, id, POSTERN_SETTLE_DONE);
		}
	}
	fake_clock_advance(&stand.clock, DEDUPE_MS);
	struct total total = clean_all_of(&stand, DEDUPE_MS, max);
	CHECK_INT(total.messages, count / 5 * 4);
	CHECK_INT(total.keys, count / 5 * 4);
	CHECK(total.calls >= ((size_t)count + max - 1) / max);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 100).count, count / 5);
	stand_close(&stand);
}

static void in_batches(void) {
	clean_in_batches(25, 3);
}

/* More rows than a store reads at once. */
static void over_pages(void) {
	clean_in_batches(300, 50);
}

#define LARGE_LEN 10000

/* Accept messages with bodies of LARGE_LEN bytes; every fifth stays open. */
static void accept_large(struct stand *stand, int count) {
	char *body = postern_memory_alloc(stand->memory, LARGE_LEN + 1);
	memset(body, 'b', LARGE_LEN);
	body[LARGE_LEN] = '\0';
	for (int i = 0; i < count; i++) {
		char id[16];
		struct parcel parcel;
		(void)snprintf(id, sizeof id, "%d", i);
		parcel_init(&parcel, stand, id, body);
		parcel_add_route(&parcel, stand->handlers[0])->lease = i % 5 != 4;
		CHECK_INT(parcel_send(stand, &parcel), POSTERN_OK);
		if (i % 5 != 4) {
			CHECK_INT(stand_settle_to(stand, parcel.accept.seq,
							  stand->handlers[0], 1, POSTERN_SETTLE_DONE),
					POSTERN_OK);
		}
	}
}

static void clean_large(size_t bytes_max, size_t calls_min) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	accept_large(&stand, 20);
	fake_clock_advance(&stand.clock, DEDUPE_MS);
	struct total total =
			clean_bounded(&stand, DEDUPE_MS, 1000, bytes_max, LARGE_LEN);
	CHECK_INT(total.messages, 16);
	CHECK_INT(total.keys, 16);
	CHECK(total.calls >= calls_min);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 100).count, 4);
	stand_close(&stand);
}

static void bounded_by_bytes(void) {
	clean_large(2 * LARGE_LEN, 6);
}

static void larger_than_a_batch(void) {
	clean_large(LARGE_LEN / 2, 16);
}

static void never_again(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	accept_ended(&stand, "1", POSTERN_SETTLE_DONE);
	int64_t last = accept_ended(&stand, "2", POSTERN_SETTLE_DONE);
	fake_clock_advance(&stand.clock, DEDUPE_MS);
	CHECK_INT(clean_all_of(&stand, DEDUPE_MS, 100).messages, 2);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK(stand_accept(&stand, "3", stand.handlers[0]) > last);
	stand_close(&stand);
}

static void wrong_clock(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	accept_ended(&stand, "1", POSTERN_SETTLE_DONE);
	fake_clock_jump(&stand.clock, 1000 * DEDUPE_MS);
	int64_t future = accept_ended(&stand, "2", POSTERN_SETTLE_DONE);
	fake_clock_jump(&stand.clock, -1000 * DEDUPE_MS);
	accept_ended(&stand, "3", POSTERN_SETTLE_DONE);
	fake_clock_advance(&stand.clock, PAYLOAD_MS);
	CHECK_INT(clean_all_of(&stand, DEDUPE_MS, 100).messages, 2);
	CHECK(message_exists(&stand, future));
	stand_close(&stand);
}

static void handlers_after(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	for (int round = 0; round < 3; round++) {
		char id[16];
		for (int i = 0; i < 10; i++) {
			(void)snprintf(id, sizeof id, "%d-%d", round, i);
			int64_t seq = stand_accept(&stand, id, stand.handlers[0]);
			stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
		}
		fake_clock_advance(&stand.clock, DEDUPE_MS);
		struct total total = clean_all_of(&stand, DEDUPE_MS, 4);
		CHECK_INT(total.messages, 10);
		CHECK_INT(total.keys, 10);
	}
	CHECK_INT(stand_handler_stats(&stand, "a").done, 30);
	CHECK_INT(stand_handler_stats(&stand, "a").pending, 0);
	stand_close(&stand);
}

const struct tap_case clean_cases[] = {
	{ "a message is removed when its retention has passed", goes_when_ended },
	{ "a message's retention starts when its last delivery ends",
			counts_from_the_end },
	{ "open, parked and poisoned messages are kept", what_stays },
	{ "a message with one poisoned delivery is kept", one_of_two_is_poisoned },
	{ "the id of a removed message is remembered", remembered },
	{ "a message whose id is no longer remembered is new", forgotten },
	{ "message and remembered id are removed together if both are due",
			both_at_once },
	{ "remembered ids without a retention are kept forever",
			remembered_for_good },
	{ "a channel without a retention rule keeps everything", other_channels },
	{ "a cleanup batch is bounded, and the next one continues", in_batches },
	{ "a cleanup batch is bounded by the bytes of its bodies",
			bounded_by_bytes },
	{ "cleanup removes a body that is larger than a batch",
			larger_than_a_batch },
	{ "cleanup removes everything due, however many messages there are",
			over_pages },
	{ "the number of a removed message is never reused", never_again },
	{ "a message with a time in the future delays no other", wrong_clock },
	{ "a store works as before after a cleanup", handlers_after },
	{ 0 },
};
