/* SPDX-License-Identifier: MIT */

/* CloudEvents in structured form and in batches. */

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api_fixture.h"
#include "tap.h"

#define ORDERS "POST /v1/channels/orders/messages"
#define STRUCTURED "Content-Type: application/cloudevents+json"
#define BATCH "Content-Type: application/cloudevents-batch+json; charset=utf-8"

/* The beginning of an event. */
#define EVENT(id)                                 \
	"{\"specversion\":\"1.0\",\"id\":\"" id "\"," \
	"\"source\":\"/shop\",\"type\":\"order.placed\""

static int send_as(struct fixture *self, const char *type, const char *body) {
	return fixture_send(self, ORDERS, (const char *const[]){ type, NULL }, body,
			strlen(body));
}

static void attributes_of_an_event(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(send_as(&self, STRUCTURED,
					  EVENT("caf\\u00e9") ",\"subject\":\"two words\","
										  "\"time\":\"2026-01-02T03:04:05Z\","
										  "\"correlationid\":\"c-1\","
										  "\"traceparent\":\"00-1-2-01\","
										  "\"extra\":\"x\",\"sampled\":true,"
										  "\"hops\":3,\"nothing\":null,"
										  "\"data\" : { \"a\" : [1, 2] } }"),
			202);
	CHECK_STR(fixture_text(&self, "status"), "accepted");
	CHECK_STR(fixture_text(&self, "id"), "caf\xc3\xa9");
	CHECK_INT(fixture_get(&self, "GET /v1/messages/1"), 200);
	CHECK_STR(fixture_text(&self, "source"), "/shop");
	CHECK_STR(fixture_text(&self, "type"), "order.placed");
	CHECK_STR(fixture_text(&self, "subject"), "two words");
	CHECK_STR(fixture_text(&self, "time"), "2026-01-02T03:04:05Z");
	CHECK_STR(fixture_text(&self, "correlation_id"), "c-1");
	CHECK_STR(fixture_text(&self, "traceparent"), "00-1-2-01");
	CHECK_STR(fixture_text(&self, "content_type"), "application/json");
	CHECK_STR(fixture_text(&self, "body"), "{ \"a\" : [1, 2] }");
	json_t *headers = fixture_value(&self, "headers");
	CHECK_INT(json_array_size(headers), 3);
	char *text = json_dumps(headers, JSON_COMPACT);
	CHECK_CONTAINS(text, "\"ce-extra\"");
	CHECK_CONTAINS(text, "\"ce-sampled\"");
	CHECK_CONTAINS(text, "\"true\"");
	CHECK_CONTAINS(text, "\"ce-hops\"");
	CHECK_CONTAINS(text, "\"3\"");
	free(text);
	fixture_finish(&self);
}

static void body_of_an_event(void) {
	static const struct {
		const char *data;
		const char *body; /* NULL: not text */
		long long len;
	} rows[] = {
		{ "", "", 0 },
		{ ",\"data\":\"text\"", "\"text\"", 6 },
		{ ",\"data\":null", "null", 4 },
		{ ",\"datacontenttype\":\"text/plain\",\"data\":\"a\\nb\"", "a\nb", 3 },
		{ ",\"datacontenttype\":\"text/plain\",\"data\":{\"a\":1}", "{\"a\":1}",
				7 },
		{ ",\"datacontenttype\":\"application/vnd.x+json;v=1\",\"data\":\"a\"",
				"\"a\"", 3 },
		{ ",\"data_base64\":\"aGVsbG8=\"", "hello", 5 },
		{ ",\"data_base64\":\"\\u0041AEC\"", NULL, 3 },
		{ ",\"data_base64\":\"\"", "", 0 },
		{ ",\"data_base64\":null,\"data\":1", "1", 1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct fixture self;
		char event[512];
		fixture_init(&self);
		(void)snprintf(event, sizeof event, "%s%s}", EVENT("a"), rows[i].data);
		CHECK_INT(send_as(&self, STRUCTURED, event), 202);
		CHECK_INT(fixture_get(&self, "GET /v1/messages/1"), 200);
		CHECK_INT(fixture_number(&self, "body_len"), rows[i].len);
		if (rows[i].body) {
			CHECK_STR(fixture_text(&self, "body"), rows[i].body);
		} else {
			CHECK_STR(fixture_text(&self, "body_base64"), "AAEC");
		}
		fixture_finish(&self);
	}
}

static void bad_events(void) {
	static const struct {
		const char *event;
		const char *detail;
	} rows[] = {
		{ "", "invalid JSON: the text is empty" },
		{ "{", "invalid JSON at byte 2: expected a member name" },
		{ "[]", "a CloudEvent is a JSON object" },
		{ "{}", "specversion is missing: not a CloudEvent" },
		{ EVENT("a") ",\"specversion\":\"1.0\"}",
				"'specversion' is given twice" },
		{ "{\"specversion\":\"0.3\"}", "specversion must be \"1.0\"" },
		{ "{\"specversion\":\"1.0\",\"source\":\"s\",\"type\":\"t\"}",
				"'id' is missing" },
		{ EVENT("") "}", "'id' is empty" },
		{ EVENT("a") ",\"id\":\"b\"}", "'id' is given twice" },
		{ EVENT("a") ",\"subject\":1}", "'subject' is not a string" },
		{ EVENT("a\\u0000b") "}", "'id' has a zero byte" },
		{ EVENT("a") ",\"id\\u0000\":\"b\"}", "a member name has a zero byte" },
		{ EVENT("a") ",\"x\":1,\"x\":2}", "'x' is given twice" },
		{ EVENT("a") ",\"x\":{}}",
				"attribute 'x' is neither a string nor a number nor a "
				"boolean" },
		{ EVENT("a") ",\"my-x\":1}",
				"'my-x' is not an attribute name: only lower-case letters and "
				"digits are allowed" },
		{ EVENT("a") ",\"data\":1,\"data_base64\":\"AA==\"}",
				"'data' and 'data_base64' may be given once, and not both" },
		{ EVENT("a") ",\"data_base64\":1}", "'data_base64' is not a string" },
		{ EVENT("a") ",\"data_base64\":\"AA=\"}",
				"'data_base64' is not valid base64" },
		{ EVENT("a") ",\"data_base64\":\"AB==\"}",
				"'data_base64' is not valid base64" },
		{ EVENT("a") ",\"time\":\"yesterday\"}", "ce-time: " },
	};
	struct fixture self;
	fixture_init(&self);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		CHECK_INT(send_as(&self, STRUCTURED, rows[i].event), 400);
		CHECK_CONTAINS(fixture_text(&self, "detail"), rows[i].detail);
	}
	CHECK_INT(fixture_get(&self, "GET /v1/messages/1"), 404);
	fixture_finish(&self);
}

static void a_result_for_each_event(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(send_as(&self, BATCH,
					  "[" EVENT("a") ",\"data\":1}," EVENT("b") "}," EVENT(
							  "a") ",\"data\":1}," EVENT("a") ",\"data\":2},"
															  "{\"id\":1},7]"),
			200);
	CHECK_STR(fixture_text(&self, "items.0.status"), "accepted");
	CHECK_INT(fixture_number(&self, "items.0.seq"), 1);
	CHECK_STR(fixture_text(&self, "items.0.id"), "a");
	CHECK_STR(fixture_text(&self, "items.0.source"), "/shop");
	CHECK_STR(fixture_text(&self, "items.1.status"), "accepted");
	CHECK_STR(fixture_text(&self, "items.2.status"), "duplicate");
	CHECK_INT(fixture_number(&self, "items.2.seq"), 1);
	CHECK_STR(fixture_text(&self, "items.3.status"), "conflict");
	CHECK_INT(fixture_number(&self, "items.3.seq"), 1);
	CHECK_STR(fixture_text(&self, "items.4.status"), "rejected");
	CHECK_STR(fixture_text(&self, "items.4.detail"), "'id' is not a string");
	CHECK_STR(fixture_text(&self, "items.5.status"), "rejected");
	CHECK_STR(fixture_text(&self, "items.5.detail"),
			"a CloudEvent is a JSON object");
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 6);
	CHECK_INT(send_as(&self, BATCH, "[]"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 0);
	fixture_finish(&self);
}

static void bad_batches(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(send_as(&self, BATCH, "{}"), 400);
	CHECK_STR(fixture_text(&self, "detail"),
			"a batch is a JSON array of events");
	CHECK_INT(send_as(&self, BATCH, "[1,]"), 400);
	char *many = malloc(3 * 1001 + 2);
	if (CHECK(many != NULL)) {
		many[0] = '[';
		for (size_t i = 0; i < 1001; i++) {
			memcpy(many + 1 + 3 * i, "{},", 3);
		}
		memcpy(many + 3 * 1001, "]", 2);
		CHECK_INT(send_as(&self, BATCH, many), 413);
		CHECK_STR(fixture_text(&self, "detail"),
				"a batch has more than 1000 events");
	}
	free(many);
	CHECK_INT(fixture_send(&self, "POST /v1/channels/nothing/messages",
					  (const char *const[]){ BATCH, NULL }, "[" EVENT("a") "}]",
					  strlen("[" EVENT("a") "}]")),
			404);
	CHECK_INT(send_as(&self, "Content-Type: application/cloudevents+xml", "x"),
			415);
	CHECK_INT(send_as(&self, "Content-Type: application/cloudevents", "x"),
			415);
	CHECK_INT(send_as(&self, "Content-Type: application/cloudevents+jsonx",
					  EVENT("a") "}"),
			415);
	fixture_finish(&self);
}

static const struct tap_case cases[] = {
	{ "the attributes of a structured event become members and headers",
			attributes_of_an_event },
	{ "the data of a structured event is the body, byte for byte",
			body_of_an_event },
	{ "what is not a CloudEvent is refused with the reason", bad_events },
	{ "a batch has a result for each event", a_result_for_each_event },
	{ "a batch that cannot be read is refused as a whole", bad_batches },
};

TAP_MAIN(cases)
