/* SPDX-License-Identifier: MIT */

/* Requests that POST …/messages accepts, and its responses to all others. */

#include <stdlib.h>
#include <string.h>

#include "api_fixture.h"
#include "tap.h"

#define ORDERS "POST /v1/channels/orders/messages"

/* Send a message with these headers to `orders`. */
#define SEND(self, body, ...)                                                \
	fixture_send((self), ORDERS, (const char *const[]){ __VA_ARGS__, NULL }, \
			(body), strlen(body))

/* The four headers that every event has, with this id. */
#define EVENT(id)                                           \
	"ce-specversion: 1.0", "ce-id: " id, "ce-source: shop", \
			"ce-type: order.placed"

static void accepted_once(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "one"), 202);
	CHECK_STR(fixture_text(&self, "status"), "accepted");
	CHECK_STR(fixture_text(&self, "id"), "a");
	CHECK_STR(fixture_text(&self, "source"), "shop");
	CHECK_STR(self.response.content_type, "application/json");
	long long seq = fixture_number(&self, "seq");
	CHECK(seq > 0);

	CHECK_INT(fixture_message(&self, "orders", "a", "one"), 200);
	CHECK_STR(fixture_text(&self, "status"), "duplicate");
	CHECK_INT(fixture_number(&self, "seq"), seq);

	CHECK_INT(fixture_message(&self, "orders", "a", "two"), 409);
	CHECK_STR(self.response.content_type, "application/problem+json");
	CHECK_INT(fixture_number(&self, "status"), 409);
	CHECK_STR(fixture_text(&self, "code"), "conflict");
	CHECK_STR(fixture_text(&self, "title"), "Conflict");
	CHECK_STR(fixture_text(&self, "type"), "about:blank");
	CHECK_STR(fixture_text(&self, "id"), "a");
	CHECK_INT(fixture_number(&self, "seq"), seq);
	CHECK(!strstr(postern__buf_text(&self.response.body), "one"));
	fixture_finish(&self);
}

static void whole_event(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(SEND(&self, "{\"a\":1}", "Ce-SpecVersion: 1.0",
					  "CE-ID: caf%C3%A9%20%22x%22", "ce-source: /shop/1",
					  "ce-type: order.placed", "ce-subject: \"two words\"",
					  "ce-time: 2026-01-02T03:04:05Z", "ce-correlationid: c-1",
					  "ce-Extra: x%0x%78", "Content-Type: application/json",
					  "X-Shop: main", "traceparent: 00-1-2-01", "Host: h",
					  "User-Agent: u", "Authorization: Bearer secret",
					  "Cookie: secret", "X-Forwarded-For: 1.2.3.4"),
			400); /* the extension is not encoded correctly */
	CHECK_INT(SEND(&self, "{\"a\":1}", "Ce-SpecVersion: 1.0",
					  "CE-ID: caf%C3%A9%20%22x%22", "ce-source: /shop/1",
					  "ce-type: order.placed", "ce-subject: \"two words\"",
					  "ce-time: 2026-01-02T03:04:05Z", "ce-correlationid: c-1",
					  "ce-Extra: x%78", "Content-Type: application/json",
					  "X-Shop: main", "traceparent: 00-1-2-01", "Host: h",
					  "User-Agent: u", "Authorization: Bearer secret",
					  "Cookie: secret", "X-Forwarded-For: 1.2.3.4",
					  "X-Gitlab-Token: secret", "Api-Key: secret"),
			202);
	CHECK_STR(fixture_text(&self, "id"), "caf\xc3\xa9 \"x\"");
	CHECK_INT(fixture_get(&self, "GET /v1/messages/1"), 200);
	CHECK_STR(fixture_text(&self, "id"), "caf\xc3\xa9 \"x\"");
	CHECK_STR(fixture_text(&self, "source"), "/shop/1");
	CHECK_STR(fixture_text(&self, "channel"), "orders");
	CHECK_STR(fixture_text(&self, "type"), "order.placed");
	CHECK_STR(fixture_text(&self, "subject"), "two words");
	CHECK_STR(fixture_text(&self, "time"), "2026-01-02T03:04:05Z");
	CHECK_STR(fixture_text(&self, "correlation_id"), "c-1");
	CHECK_STR(fixture_text(&self, "traceparent"), "00-1-2-01");
	CHECK_STR(fixture_text(&self, "content_type"), "application/json");
	CHECK_STR(fixture_text(&self, "transport"), "test");
	CHECK_STR(fixture_text(&self, "body"), "{\"a\":1}");
	CHECK_INT(json_array_size(fixture_value(&self, "headers")), 2);
	CHECK_STR(fixture_text(&self, "headers.0.name"), "ce-extra");
	CHECK_STR(fixture_text(&self, "headers.0.value"), "xx");
	CHECK_STR(fixture_text(&self, "headers.1.name"), "X-Shop");
	CHECK_STR(fixture_text(&self, "headers.1.value"), "main");
	CHECK(!strstr(postern__buf_text(&self.response.body), "secret"));
	fixture_finish(&self);
}

static void raw_messages(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(SEND(&self, "x", "X-Message-Id: m"), 202);
	CHECK_STR(fixture_text(&self, "id"), "m");
	CHECK_STR(fixture_text(&self, "source"), "orders");
	CHECK_INT(SEND(&self, "x", "X-Message-Id: m", "Webhook-Id: w"), 202);
	CHECK_STR(fixture_text(&self, "id"), "w");
	CHECK_INT(SEND(&self, "x", "webhook-id: w", "Idempotency-Key: k"), 202);
	CHECK_STR(fixture_text(&self, "id"), "k");
	CHECK_INT(SEND(&self, "x", "Idempotency-Key: \"k\""), 200);
	CHECK_STR(fixture_text(&self, "id"), "k");
	CHECK_INT(SEND(&self, "x", "Idempotency-Key: \" a \\\"b\\\\\""), 202);
	CHECK_STR(fixture_text(&self, "id"), " a \"b\\");
	/* Nothing is decoded in a raw message. */
	CHECK_INT(SEND(&self, "x", "X-Message-Id: a%20b"), 202);
	CHECK_STR(fixture_text(&self, "id"), "a%20b");
	CHECK_INT(SEND(&self, "x", "X-Message-Id: \"q\""), 202);
	CHECK_STR(fixture_text(&self, "id"), "\"q\"");
	fixture_finish(&self);
}

static void no_identity(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(SEND(&self, "x", "X-Other: 1"), 422);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "Idempotency-Key");
	CHECK(!strstr(fixture_text(&self, "detail"), "cloudevents"));
	CHECK_INT(SEND(&self, "{\"specversion\":\"1.0\",\"id\":\"a\"}",
					  "Content-Type: application/json"),
			422);
	CHECK_CONTAINS(fixture_text(&self, "detail"),
			"or is this application/cloudevents+json?");
	CHECK_INT(SEND(&self, "x", "X-Message-Id: "), 422);
	CHECK_INT(SEND(&self, "x", "Idempotency-Key: \"\""), 422);
	CHECK_INT(SEND(&self, "x", EVENT("")), 422);
	/* The first header that is present counts, also when it is empty. */
	CHECK_INT(SEND(&self, "x", "Idempotency-Key: ", "webhook-id: w"), 422);
	fixture_finish(&self);
}

static void bad_ids(void) {
	struct fixture self;
	fixture_init(&self);
	char id[1000];
	/* 200 characters of three bytes each are allowed, 201 are not. */
	id[0] = '\0';
	for (int i = 0; i < 200; i++) {
		memcpy(id + strlen(id), "\xe2\x82\xac", 4);
	}
	char header[1100];
	(void)snprintf(header, sizeof header, "X-Message-Id: %s", id);
	CHECK_INT(SEND(&self, "x", header), 202);
	CHECK_STR(fixture_text(&self, "id"), id);
	(void)snprintf(header, sizeof header, "X-Message-Id: %sa", id);
	CHECK_INT(SEND(&self, "x", header), 422);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "201 characters");

	CHECK_INT(SEND(&self, "x", EVENT("a%00b")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a%0D%0Ab")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a%7F")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a%C2%80")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("%FF")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("%C0%AF")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("%ED%A0%80")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("\xff")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("\"a")), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a%")), 400);
	CHECK_INT(SEND(&self, "x", "X-Message-Id: a\tb"), 400);
	CHECK_INT(SEND(&self, "x", "Idempotency-Key: \"a\"b"), 400);
	CHECK_INT(SEND(&self, "x", "Idempotency-Key: \"a\\\""), 400);
	CHECK_INT(SEND(&self, "x", "Idempotency-Key: \"a\"b\""), 400);
	CHECK_INT(SEND(&self, "x", "X-Message-Id: \xff"), 400);
	CHECK_INT(SEND(&self, "x", "X-Message-Id: a", "X-Message-Id: b"), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-id: a"), 400);
	CHECK_INT(fixture_get(&self, "GET /v1/stats"), 200);
	CHECK_INT(fixture_number(&self, "channels.0.accepted"), 1);
	fixture_finish(&self);
}

static void exact_ids(void) {
	static const char *const ids[] = { "A", "a", "%20a", "a%20", "%20%20",
		"%C3%A9", "e%CC%81", "%E2%80%8Fa", "';--", "$1", "../", "%252e",
		"<script>", "%5C", "*", "a.b" };
	struct fixture self;
	fixture_init(&self);
	for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
		if (!CHECK_INT(fixture_message(&self, "orders", ids[i], "x"), 202)) {
			FAIL("%s", ids[i]);
		}
	}
	fixture_finish(&self);
}

static void malformed_events(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(SEND(&self, "x", "ce-id: a", "ce-source: s", "ce-type: t"), 400);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "ce-specversion");
	CHECK_INT(SEND(&self, "x", "ce-specversion: 0.3", "ce-id: a",
					  "ce-source: s", "ce-type: t"),
			400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-specversion: 1.0"), 400);
	CHECK_INT(SEND(&self, "x", "ce-specversion: 1.0", "ce-source: s",
					  "ce-type: t"),
			400);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "ce-id");
	CHECK_INT(SEND(&self, "x", "ce-specversion: 1.0", "ce-id: a", "ce-type: t"),
			400);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "ce-source");
	CHECK_INT(SEND(&self, "x", "ce-specversion: 1.0", "ce-id: a",
					  "ce-source: s"),
			400);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "ce-type");
	CHECK_INT(SEND(&self, "x", "ce-specversion: 1.0", "ce-id: a",
					  "ce-source: ", "ce-type: t"),
			400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-subject: "), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-time: yesterday"), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-time: 2026-02-30T00:00:00Z"),
			400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-datacontenttype: text/plain"),
			400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-: x"), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-a_b: x"), 400);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "ce-x: 1", "ce-X: 1"), 400);
	/* An event without ce-id is malformed, whatever other id headers it has. */
	CHECK_INT(SEND(&self, "x", "ce-specversion: 1.0", "ce-source: s",
					  "ce-type: t", "Idempotency-Key: k"),
			400);
	CHECK_INT(fixture_get(&self, "GET /v1/stats"), 200);
	CHECK_INT(fixture_number(&self, "channels.0.accepted"), 0);
	fixture_finish(&self);
}

static void encoded_bodies(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "Content-Encoding: gzip"), 415);
	CHECK_INT(SEND(&self, "x", EVENT("a"), "Content-Encoding: identity"), 202);
	fixture_finish(&self);
}

static void long_attributes(void) {
	struct fixture self;
	fixture_init(&self);
	char *header = malloc(20000);
	if (!header) {
		abort();
	}
	static const char *const names[] = { "ce-source", "ce-type", "ce-subject",
		"ce-correlationid" };
	for (size_t i = 0; i < 4; i++) {
		(void)snprintf(header, 20000, "%s: %01025d", names[i], 0);
		/* EVENT() has source and type already, and a second header of a name is
		   another error. */
		CHECK_INT(i < 2 ? SEND(&self, "x", "ce-specversion: 1.0", "ce-id: a",
								  header, i ? "ce-source: s" : "ce-type: t")
						: SEND(&self, "x", EVENT("a"), header),
				400);
		CHECK_CONTAINS(fixture_text(&self, "detail"), "1024");
	}
	(void)snprintf(header, 20000, "X-Long: %08193d", 0);
	CHECK_INT(SEND(&self, "x", EVENT("a"), header), 422);
	free(header);

	char names_of[65][32];
	const char *lines[70] = { EVENT("b") };
	for (int i = 0; i < 65; i++) {
		(void)snprintf(names_of[i], sizeof names_of[i], "X-%d: v", i);
		lines[4 + i] = names_of[i];
	}
	CHECK_INT(fixture_send(&self, ORDERS, lines, "x", 1), 422);
	lines[4 + 64] = NULL;
	CHECK_INT(fixture_send(&self, ORDERS, lines, "x", 1), 202);
	fixture_finish(&self);
}

static void too_many_headers(void) {
	struct fixture self;
	fixture_init(&self);
	static char names[140][16];
	const char *lines[141] = { NULL };
	for (int i = 0; i < 140; i++) {
		(void)snprintf(names[i], sizeof names[i], "X-%d: v", i);
		lines[i] = names[i];
	}
	CHECK_INT(fixture_send(&self, ORDERS, lines, "x", 1), 431);
	fixture_finish(&self);
}

static void bodies(void) {
	struct fixture self;
	fixture_init(&self);
	self.api.body_len_max = 100;
	static const char *const headers[] = { EVENT("a"), NULL };
	static char body[101];
	CHECK_INT(fixture_send(&self, ORDERS, headers, body, 101), 413);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "100 bytes");
	for (int i = 0; i < 100; i++) {
		body[i] = (char)(i + 200);
	}
	CHECK_INT(fixture_send(&self, ORDERS, headers, body, 100), 202);
	CHECK_INT(fixture_get(&self, "GET /v1/messages/1/body"), 200);
	CHECK_MEM(postern__buf_text(&self.response.body), self.response.body.len,
			body, 100);
	CHECK_STR(self.response.content_type, "application/octet-stream");

	static const char *const empty[] = { EVENT("b"), NULL };
	CHECK_INT(fixture_send(&self, ORDERS, empty, NULL, 0), 202);
	CHECK_INT(fixture_get(&self, "GET /v1/messages/2/body"), 200);
	CHECK_INT(self.response.body.len, 0);
	fixture_finish(&self);
}

static void unrouted(void) {
	struct fixture self;
	fixture_init(&self);
	static const char *const other[] = { "ce-specversion: 1.0", "ce-id: a",
		"ce-source: s", "ce-type: mail.sent", NULL };
	CHECK_INT(fixture_send(&self, "POST /v1/channels/strict/messages", other,
					  "x", 1),
			422);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "mail.sent");
	CHECK_INT(fixture_message(&self, "strict", "a", "x"), 202);
	CHECK_INT(fixture_send(&self, "POST /v1/channels/drops/messages", other,
					  "x", 1),
			202);
	CHECK(json_is_null(fixture_value(&self, "seq")));
	CHECK(json_is_true(fixture_value(&self, "dropped")));
	CHECK_INT(fixture_message(&self, "parks", "a", "x"), 202);
	CHECK(fixture_number(&self, "seq") > 0);
	fixture_finish(&self);
}

static void unknown_channels(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "nothing", "a", "x"), 404);
	CHECK_STR(fixture_text(&self, "detail"), "no channel 'nothing'");
	CHECK_INT(fixture_message(&self, "order", "a", "x"), 404);
	CHECK_STR(fixture_text(&self, "detail"),
			"no channel 'order'; did you mean 'orders'?");
	CHECK_INT(fixture_message(&self, "", "a", "x"), 404);
	CHECK_INT(fixture_message(&self, "%6frders", "a", "x"), 202);
	CHECK_INT(fixture_message(&self, "orders%00", "a", "x"), 400);
	CHECK_INT(fixture_message(&self, "orders%2", "a", "x"), 400);
	CHECK_INT(fixture_message(&self, "orders%FF", "a", "x"), 400);
	CHECK_INT(fixture_message(&self, "..%2forders", "a", "x"), 404);
	static const char *const headers[] = { EVENT("z"), NULL };
	CHECK_INT(fixture_send(&self, ORDERS "?x=1", headers, "x", 1), 400);
	fixture_finish(&self);
}

static const struct tap_case cases[] = {
	{ "a message is accepted, then a duplicate, then a conflict",
			accepted_once },
	{ "every attribute of an event reaches the message", whole_event },
	{ "a raw message has the first of three ids, byte for byte", raw_messages },
	{ "a message without an id is 422", no_identity },
	{ "ids that cannot be stored are refused", bad_ids },
	{ "ids are never trimmed, folded or normalised", exact_ids },
	{ "malformed events are 400", malformed_events },
	{ "encoded bodies are 415", encoded_bodies },
	{ "attributes and headers have limits", long_attributes },
	{ "too many headers are 431", too_many_headers },
	{ "a body may be anything up to its limit", bodies },
	{ "unrouted messages are rejected, dropped or parked", unrouted },
	{ "unknown channels are 404", unknown_channels },
};

TAP_MAIN(cases)
