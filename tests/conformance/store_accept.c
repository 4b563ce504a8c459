/* SPDX-License-Identifier: MIT */

/*
 * Accepting: which messages have the same identity, and that a stored message
 * is read back as it was sent.
 */

#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/stand.h"

static void new_message(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);

	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK(parcel.accept.seq > 0);
	CHECK_INT(parcel.accept.received_at_ms, stand_now(&stand));

	struct postern_detail detail = stand_get(&stand, parcel.accept.seq);
	CHECK_INT(detail.seq, parcel.accept.seq);
	CHECK_STR(detail.channel, "orders");
	CHECK_INT(detail.message->received_at_ms, stand_now(&stand));
	CHECK_INT(detail.duplicate_count, 0);
	CHECK_INT(detail.duplicate_at_ms, 0);
	CHECK_INT(detail.conflict_count, 0);
	stand_close(&stand);
}

static void second_accept(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t received_at = stand_now(&stand);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;

	fake_clock_advance(&stand.clock, 500);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK_INT(parcel.accept.seq, seq);
	CHECK_INT(parcel.accept.received_at_ms, received_at + 500);
	CHECK(!parcel.routes[0].opened);
	fake_clock_advance(&stand.clock, 500);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);

	struct postern_detail detail = stand_get(&stand, seq);
	CHECK_INT(detail.duplicate_count, 2);
	CHECK_INT(detail.duplicate_at_ms, received_at + 1000);
	CHECK_INT(detail.message->received_at_ms, received_at);
	CHECK_INT(detail.delivery_count, 1);
	CHECK_INT(stand_claim(&stand, stand.handlers[0], 10).count, 1);
	stand_close(&stand);
}

/* Send two messages that differ in one attribute only: both are new. */
static void check_both_new(struct stand *stand, struct parcel *one,
		struct parcel *other) {
	CHECK_INT(parcel_send(stand, one), POSTERN_OK);
	CHECK_INT(parcel_send(stand, other), POSTERN_OK);
	CHECK(one->accept.seq != other->accept.seq);
	CHECK_INT(parcel_send(stand, one), POSTERN_E_DUPLICATE);
	CHECK_INT(parcel_send(stand, other), POSTERN_E_DUPLICATE);
}

static void other_source(void) {
	struct stand stand;
	struct parcel one;
	struct parcel other;
	stand_open(&stand, "a", NULL);
	parcel_init(&one, &stand, "1", "body");
	parcel_init(&other, &stand, "1", "body");
	other.message.source = "warehouse";
	check_both_new(&stand, &one, &other);
	stand_close(&stand);
}

static void other_channel(void) {
	struct stand stand;
	struct parcel one;
	struct parcel other;
	stand_open(&stand, "a", NULL);
	parcel_init(&one, &stand, "1", "body");
	parcel_init(&other, &stand, "1", "body");
	other.accept.channel = stand.bills;
	check_both_new(&stand, &one, &other);
	stand_close(&stand);
}

static void source_and_id_are_apart(void) {
	struct stand stand;
	struct parcel one;
	struct parcel other;
	stand_open(&stand, "a", NULL);
	parcel_init(&one, &stand, "bc", "body");
	one.message.source = "a";
	parcel_init(&other, &stand, "c", "body");
	other.message.source = "ab";
	check_both_new(&stand, &one, &other);
	stand_close(&stand);
}

static void bytes_of_ids(void) {
	static const char *const ids[] = {
		"order-1",
		"Order-1",
		"order-1 ",
		" order-1",
		"order-01",
		"caf\xc3\xa9",  /* one code point */
		"cafe\xcc\x81", /* the same character as two code points */
		"\xef\xbc\x91", /* a full-width digit */
		"1",
		"%",
		"_",
		"'; --",
	};
	struct stand stand;
	stand_open(&stand, "a", NULL);
	for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
		struct parcel parcel;
		parcel_init(&parcel, &stand, ids[i], "body");
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
		CHECK_STR(stand_get(&stand, parcel.accept.seq).message->id, ids[i]);
	}
	stand_close(&stand);
}

static void twice_in_one_batch(void) {
	struct stand stand;
	struct parcel parcels[3];
	stand_open(&stand, "a", NULL);
	parcel_init(&parcels[0], &stand, "1", "body");
	parcel_init(&parcels[1], &stand, "1", "body");
	parcel_init(&parcels[2], &stand, "1", "other");
	for (size_t i = 0; i < 3; i++) {
		parcel_add_route(&parcels[i], stand.handlers[0]);
	}
	parcel_send_all(&stand, parcels, 3);
	CHECK_INT(parcels[0].accept.code, POSTERN_OK);
	CHECK_INT(parcels[1].accept.code, POSTERN_E_DUPLICATE);
	CHECK_INT(parcels[2].accept.code, POSTERN_E_CONFLICT);
	CHECK_INT(parcels[1].accept.seq, parcels[0].accept.seq);
	CHECK_INT(parcels[2].accept.seq, parcels[0].accept.seq);
	CHECK(parcels[0].routes[0].opened);
	CHECK(!parcels[1].routes[0].opened);
	CHECK(!parcels[2].routes[0].opened);

	struct postern_detail detail = stand_get(&stand, parcels[0].accept.seq);
	CHECK_INT(detail.delivery_count, 1);
	CHECK_INT(detail.duplicate_count, 1);
	CHECK_INT(detail.conflict_count, 1);
	CHECK_MEM(detail.message->body, detail.message->body_len, "body", 4);
	stand_close(&stand);
}

/* Items are accepted in the order of the batch: the first is dropped and not
   stored when the second is accepted, and the third is its duplicate. */
static void dropped_before_kept(void) {
	struct stand stand;
	struct parcel parcels[3];
	stand_open(&stand, "a", NULL);
	for (size_t i = 0; i < 3; i++) {
		parcel_init(&parcels[i], &stand, "1", "body");
		parcels[i].accept.fate = POSTERN_FATE_DROP;
	}
	parcel_add_route(&parcels[1], stand.handlers[0]);
	parcels[1].accept.fate = POSTERN_FATE_KEEP;
	parcel_send_all(&stand, parcels, 3);
	CHECK_INT(parcels[0].accept.code, POSTERN_OK);
	CHECK_INT(parcels[0].accept.seq, 0);
	CHECK_INT(parcels[1].accept.code, POSTERN_OK);
	CHECK_INT(parcels[2].accept.code, POSTERN_E_DUPLICATE);
	CHECK_INT(parcels[2].accept.seq, parcels[1].accept.seq);
	CHECK_INT(stand_channel_stats(&stand, "orders").dropped, 1);
	CHECK_INT(stand_channel_stats(&stand, "orders").duplicates, 1);
	stand_close(&stand);
}

static void conflict_keeps_the_first(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "first");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;

	fake_clock_advance(&stand.clock, 70);
	parcel_init(&parcel, &stand, "1", "the second");
	parcel.message.transport = "http";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	CHECK_INT(parcel.accept.seq, seq);

	struct postern_detail detail = stand_get(&stand, seq);
	CHECK_MEM(detail.message->body, detail.message->body_len, "first", 5);
	CHECK_INT(detail.conflict_count, 1);
	CHECK_INT(detail.duplicate_count, 0);
	if (CHECK_INT(detail.conflict_kept, 1)) {
		CHECK_INT(detail.conflicts[0].at_ms, stand_now(&stand));
		CHECK_INT(detail.conflicts[0].body_len, 10);
		CHECK_STR(detail.conflicts[0].transport, "http");
	}
	/* The first body is a duplicate, not a conflict. */
	parcel_init(&parcel, &stand, "1", "first");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	stand_close(&stand);
}

static void conflicts_are_capped(void) {
	struct stand stand;
	struct parcel parcel;
	char body[POSTERN_CONFLICTS_KEPT + 8];
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);

	memset(body, 'x', sizeof body);
	for (size_t len = 1; len <= POSTERN_CONFLICTS_KEPT + 5; len++) {
		parcel.message.body = body;
		parcel.message.body_len = len;
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	}
	struct postern_detail detail = stand_get(&stand, parcel.accept.seq);
	CHECK_INT(detail.conflict_count, POSTERN_CONFLICTS_KEPT + 5);
	if (CHECK_INT(detail.conflict_kept, POSTERN_CONFLICTS_KEPT)) {
		for (size_t i = 0; i < POSTERN_CONFLICTS_KEPT; i++) {
			CHECK_INT(detail.conflicts[i].body_len, i + 1);
		}
	}
	stand_close(&stand);
}

static void every_byte_counts(void) {
	static const struct {
		const char *bytes;
		size_t len;
	} others[] = {
		{ "", 0 },
		{ "a\0b", 3 },
		{ "a\0bd", 4 },
		{ "a\0bc\0", 5 },
		{ "A\0bc", 4 },
		{ "a", 1 },
	};
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "");
	parcel.message.body = "a\0bc";
	parcel.message.body_len = 4;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		parcel.message.body = others[i].bytes;
		parcel.message.body_len = others[i].len;
		CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	}
	stand_close(&stand);
}

static void empty_body(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "");
	parcel.message.body = NULL;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	parcel.message.body = "";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	parcel.message.body_len = 1; /* a zero byte */
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	CHECK_INT(stand_get(&stand, parcel.accept.seq).message->body_len, 0);
	stand_close(&stand);
}

static void only_the_body_is_compared(void) {
	struct postern_header header = { .name = "a", .value = "b" };
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);

	parcel.message.type = "order.sent";
	parcel.message.subject = "other";
	parcel.message.headers = &header;
	parcel.message.header_count = 1;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	struct postern_message message =
			*stand_get(&stand, parcel.accept.seq).message;
	CHECK_STR(message.type, "order.paid");
	CHECK_STR(message.subject, NULL);
	CHECK_INT(message.header_count, 0);
	stand_close(&stand);
}

static const struct postern_header full_headers[] = {
	{ .name = "X-One", .value = "1" },
	{ .name = "x-empty", .value = "" },
	{ .name = "X-One", .value = "again, \xc3\xbc" },
};

static void set_all_attributes(struct postern_message *message) {
	message->subject = "";
	message->time = "2026-01-01T00:00:00Z";
	message->content_type = "application/json";
	message->correlation_id = "c-1";
	message->traceparent = "00-0-0-01";
	message->transport = "rabbitmq";
	message->headers = full_headers;
	message->header_count = 3;
	message->body = "{\0}\xff";
	message->body_len = 4;
}

static void check_full(const struct postern_message *message,
		int64_t received_at) {
	CHECK_INT(message->size, sizeof *message);
	CHECK_STR(message->id, "1");
	CHECK_STR(message->source, "shop");
	CHECK_STR(message->type, "order.paid");
	CHECK_STR(message->subject, "");
	CHECK_STR(message->time, "2026-01-01T00:00:00Z");
	CHECK_STR(message->content_type, "application/json");
	CHECK_STR(message->correlation_id, "c-1");
	CHECK_STR(message->traceparent, "00-0-0-01");
	CHECK_STR(message->transport, "rabbitmq");
	CHECK_INT(message->received_at_ms, received_at);
	CHECK_MEM(message->body, message->body_len, "{\0}\xff", 4);
	if (CHECK_INT(message->header_count, 3)) {
		for (size_t i = 0; i < 3; i++) {
			CHECK_STR(message->headers[i].name, full_headers[i].name);
			CHECK_STR(message->headers[i].value, full_headers[i].value);
		}
	}
}

static void comes_back_as_sent(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t received_at = stand_now(&stand);
	parcel_init(&parcel, &stand, "1", "");
	set_all_attributes(&parcel.message);
	parcel.message.received_at_ms = 5; /* ignored */
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);

	stand_crash(&stand);
	fake_clock_advance(&stand.clock, 1000);
	CHECK_INT(stand_enrol_one(&stand, "a", NULL), stand.handlers[0]);
	struct postern_detail detail = stand_get(&stand, parcel.accept.seq);
	check_full(detail.message, received_at);
	struct postern_claims claims = stand_claim(&stand, stand.handlers[0], 1);
	if (CHECK_INT(claims.count, 1)) {
		check_full(claims.items[0].message, received_at);
	}
	stand_close(&stand);
}

static void check_bare(const struct postern_message *message,
		const char *source) {
	CHECK_STR(message->source, source);
	CHECK_STR(message->type, "order.paid");
	CHECK_STR(message->subject, NULL);
	CHECK_STR(message->time, NULL);
	CHECK_STR(message->content_type, NULL);
	CHECK_STR(message->correlation_id, NULL);
	CHECK_STR(message->traceparent, NULL);
	CHECK_STR(message->transport, "api");
	CHECK_INT(message->header_count, 0);
}

static void absent_stays_absent(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "");
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	struct postern_message message =
			*stand_get(&stand, parcel.accept.seq).message;
	check_bare(&message, "shop");
	stand_close(&stand);
}

/* One message that has every attribute, at each position among messages that
   have none; the source of the first of those has the name of its channel. */
static void own_in_a_batch(void) {
	static const char *const ids[] = { "1", "2", "3" };
	for (size_t full = 0; full < 3; full++) {
		struct stand stand;
		struct parcel parcels[3];
		stand_open(&stand, "a", NULL);
		for (size_t i = 0; i < 3; i++) {
			parcel_init(&parcels[i], &stand, ids[(i + 3 - full) % 3], "");
			if (i == full) {
				set_all_attributes(&parcels[i].message);
			} else if (i == (full + 1) % 3) {
				parcels[i].message.source = "orders";
			}
		}
		parcel_send_all(&stand, parcels, 3);
		for (size_t i = 0; i < 3; i++) {
			struct postern_detail detail =
					stand_get(&stand, parcels[i].accept.seq);
			if (i == full) {
				check_full(detail.message, stand_now(&stand));
			} else {
				check_bare(detail.message, parcels[i].message.source);
			}
		}
		stand_close(&stand);
	}
}

/* Returns a text of `len` bytes that lives until the end of the case. */
static char *long_text(struct stand *stand, size_t len) {
	char *text = postern_memory_alloc(stand->memory, len + 1);
	memset(text, 'x', len);
	return text;
}

static void largest_message(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, long_text(&stand, POSTERN_ID_LEN_MAX), "");
	char *attribute = long_text(&stand, POSTERN_ATTRIBUTE_LEN_MAX);
	char *body = long_text(&stand, POSTERN_BODY_LEN_DEFAULT);
	struct postern_header headers[POSTERN_HEADER_COUNT_MAX];
	for (size_t i = 0; i < POSTERN_HEADER_COUNT_MAX; i++) {
		headers[i].name = long_text(&stand, POSTERN_HEADER_NAME_LEN_MAX);
		headers[i].value = long_text(&stand, 800);
	}
	parcel.message.source = attribute;
	parcel.message.type = attribute;
	parcel.message.headers = headers;
	parcel.message.header_count = POSTERN_HEADER_COUNT_MAX;
	parcel.message.body = body;
	parcel.message.body_len = POSTERN_BODY_LEN_DEFAULT;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);

	struct postern_message message =
			*stand_get(&stand, parcel.accept.seq).message;
	CHECK_STR(message.id, parcel.message.id);
	CHECK_STR(message.source, attribute);
	CHECK_STR(message.type, attribute);
	CHECK_MEM(message.body, message.body_len, body, POSTERN_BODY_LEN_DEFAULT);
	CHECK_INT(message.header_count, POSTERN_HEADER_COUNT_MAX);
	stand_close(&stand);
}

static void seqs_ascend(void) {
	static const char *const ids[] = { "z", "y", "z", "x", "w" };
	struct stand stand;
	struct parcel parcels[5];
	stand_open(&stand, "a", NULL);
	for (size_t i = 0; i < 5; i++) {
		parcel_init(&parcels[i], &stand, ids[i], "body");
	}
	parcel_send_all(&stand, parcels, 5);
	CHECK(parcels[0].accept.seq > 0);
	CHECK(parcels[1].accept.seq > parcels[0].accept.seq);
	CHECK_INT(parcels[2].accept.seq, parcels[0].accept.seq);
	CHECK(parcels[3].accept.seq > parcels[1].accept.seq);
	CHECK(parcels[4].accept.seq > parcels[3].accept.seq);
	stand_close(&stand);
}

static void seqs_go_on(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t first = stand_accept(&stand, "1", stand.handlers[0]);
	stand_finish(&stand, first, stand.handlers[0], POSTERN_SETTLE_DISCARDED);
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK(stand_accept(&stand, "2", stand.handlers[0]) > first);
	stand_close(&stand);
}

static void known_after_a_crash(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0]);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_OK);
	int64_t seq = parcel.accept.seq;
	stand_crash(&stand);
	stand_enrol_one(&stand, "a", NULL);
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK_INT(parcel.accept.seq, seq);
	parcel.message.body = "other";
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_CONFLICT);
	stand_close(&stand);
}

static void known_when_done(void) {
	struct stand stand;
	struct parcel parcel;
	stand_open(&stand, "a", NULL);
	int64_t seq = stand_accept(&stand, "1", stand.handlers[0]);
	stand_finish(&stand, seq, stand.handlers[0], POSTERN_SETTLE_DONE);
	parcel_init(&parcel, &stand, "1", "body");
	parcel_add_route(&parcel, stand.handlers[0])->lease = true;
	CHECK_INT(parcel_send(&stand, &parcel), POSTERN_E_DUPLICATE);
	CHECK(!parcel.routes[0].opened);
	CHECK_INT(stand_state(&stand, seq, "a"), POSTERN_STATE_DONE);
	stand_close(&stand);
}

static void largest_batch(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	int64_t first = stand_accept_many(&stand, POSTERN_ACCEPT_BATCH_MAX,
			stand.handlers[0]);
	CHECK(first > 0);
	CHECK_INT(stand_channel_stats(&stand, "orders").accepted,
			POSTERN_ACCEPT_BATCH_MAX);
	CHECK_INT(stand_handler_stats(&stand, "a").pending,
			POSTERN_ACCEPT_BATCH_MAX);
	stand_close(&stand);
}

static void empty_batch(void) {
	struct stand stand;
	stand_open(&stand, "a", NULL);
	struct postern_batch batch = { .node = stand.node };
	CHECK_OK(stand.ops->apply(stand.store, &batch, &stand.error), &stand.error);
	stand_close(&stand);
}

const struct tap_case accept_cases[] = {
	{ "a new message gets a number and the store's time", new_message },
	{ "a second accept of the same identity is a duplicate", second_accept },
	{ "the same id of another source is another message", other_source },
	{ "the same id in another channel is another message", other_channel },
	{ "source and id are compared separately, not concatenated",
			source_and_id_are_apart },
	{ "ids are compared byte for byte", bytes_of_ids },
	{ "the same id again in one batch is a duplicate or a conflict",
			twice_in_one_batch },
	{ "a dropped message leaves no identity for the rest of its batch",
			dropped_before_kept },
	{ "a conflict keeps the first body and is recorded",
			conflict_keeps_the_first },
	{ "all conflicts are counted, the first ten are recorded",
			conflicts_are_capped },
	{ "any other byte or length of the body is a conflict", every_byte_counts },
	{ "an empty body is valid and differs from a zero byte", empty_body },
	{ "a copy that differs outside the body is a duplicate",
			only_the_body_is_compared },
	{ "a message is read as it was sent, also after a crash",
			comes_back_as_sent },
	{ "attributes that a message does not have stay absent",
			absent_stays_absent },
	{ "each message of a batch keeps its own attributes", own_in_a_batch },
	{ "a message at the size limits is stored completely", largest_message },
	{ "seqs ascend in the order of the batch", seqs_ascend },
	{ "seqs continue after a crash", seqs_go_on },
	{ "a copy after a crash is a duplicate or a conflict",
			known_after_a_crash },
	{ "a copy of a done message is a duplicate", known_when_done },
	{ "a batch can have ten thousand messages", largest_batch },
	{ "an empty batch succeeds", empty_batch },
	{ 0 },
};
