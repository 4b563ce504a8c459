/* SPDX-License-Identifier: MIT */

/* Retry, discard, pause, resume and cleanup; and JSON that must be refused. */

#include <stdlib.h>
#include <string.h>

#include "api_fixture.h"
#include "core/box.h"
#include "tap.h"

#define POISONED "GET /v1/deliveries?state=poisoned"

static size_t count_of(struct fixture *self, const char *line) {
	CHECK_INT(fixture_get(self, line), 200);
	return json_array_size(fixture_value(self, "items"));
}

static void one_retry(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	fixture_process(&self);
	CHECK_INT(count_of(&self, POISONED), 1);
	CHECK_INT(fixture_number(&self, "items.0.fence"), 1);
	CHECK_INT(fixture_get(&self, "POST /v1/deliveries/1/no%2Fgood/retry"), 200);
	CHECK_STR(fixture_text(&self, "status"), "retried");
	CHECK_STR(fixture_text(&self, "handler"), "no/good");
	CHECK_INT(fixture_number(&self, "seq"), 1);
	CHECK_INT(count_of(&self, POISONED), 0);
	/* A second retry changes nothing: the delivery is open and due already. */
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/1/no%2fgood/retry",
					  "{}"),
			200);
	fixture_process(&self);
	CHECK_INT(count_of(&self, POISONED), 1);
	CHECK(fixture_number(&self, "items.0.fence") > 1);
	/* A done delivery stays done. */
	CHECK_INT(fixture_get(&self, "POST /v1/deliveries/1/ok/retry"), 409);
	CHECK_STR(fixture_text(&self, "code"), "invalid");
	fixture_finish(&self);
}

static void one_discard(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	CHECK_INT(fixture_get(&self, "POST /v1/deliveries/1/ok/discard"), 200);
	CHECK_STR(fixture_text(&self, "status"), "discarded");
	fixture_process(&self);
	CHECK_INT(count_of(&self, "GET /v1/deliveries?state=discarded"), 1);
	CHECK_INT(fixture_get(&self, "POST /v1/deliveries/1/no%2Fgood/discard"),
			200);
	CHECK_INT(count_of(&self, "GET /v1/deliveries?state=discarded"), 2);
	/* A parked message has no handler. */
	CHECK_INT(fixture_message(&self, "parks", "a", "x"), 202);
	CHECK_INT(count_of(&self, "GET /v1/deliveries?state=parked"), 1);
	CHECK_STR(fixture_text(&self, "items.0.handler"), "");
	CHECK_INT(fixture_get(&self, "POST /v1/deliveries/2//discard"), 200);
	CHECK_INT(count_of(&self, "GET /v1/deliveries?state=parked"), 0);
	fixture_finish(&self);
}

static void unknown_objects(void) {
	static const char *const lines[] = { "POST /v1/deliveries/9/ok/retry",
		"POST /v1/deliveries/1/nobody/retry",
		"POST /v1/deliveries/1/no/good/retry", "POST /v1/deliveries/0/ok/retry",
		"POST /v1/deliveries/x/ok/discard", "POST /v1/deliveries/1/ok/replay",
		"POST /v1/handlers/nobody/pause", "POST /v1/handlers/nobody/resume" };
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		if (!CHECK_INT(fixture_get(&self, lines[i]), 404)) {
			FAIL("%s", lines[i]);
		}
	}
	fixture_finish(&self);
}

static void bulk(void) {
	struct fixture self;
	fixture_init(&self);
	char id[16];
	for (int i = 0; i < 5; i++) {
		(void)snprintf(id, sizeof id, "m%d", i);
		CHECK_INT(fixture_message(&self, "orders", id, "x"), 202);
	}
	fixture_process(&self);
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry",
					  "{\"filter\":{\"state\":\"poisoned\"},\"dry_run\":true}"),
			200);
	CHECK_INT(fixture_number(&self, "count"), 5);
	CHECK(json_is_true(fixture_value(&self, "dry_run")));
	CHECK_INT(count_of(&self, POISONED), 5);
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry",
					  "{\"filter\":{\"handler\":\"no/good\"},\"limit\":3,"
					  "\"dry_run\":true}"),
			200);
	CHECK_INT(fixture_number(&self, "count"), 3);
	CHECK_INT(fixture_number(&self, "total"), 5);
	CHECK_INT(fixture_number(&self, "limit"), 3);
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry",
					  "{\"filter\":{\"message_ids\":[\"m1\",\"m3\",\"x\"],"
					  "\"handler\":\"no/good\"},\"dry_run\":true}"),
			200);
	CHECK_INT(fixture_number(&self, "total"), 2);
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/discard",
					  "{\"filter\":{\"handler\":\"no/godo\"}}"),
			404);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "did you mean 'no/good'?");
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry",
					  "{\"limit\":2,\"filter\":{\"state\":\"poisoned\","
					  "\"handler\":\"no/good\",\"since\":\"1h\"}}"),
			200);
	CHECK_INT(fixture_number(&self, "count"), 2);
	CHECK(json_is_false(fixture_value(&self, "dry_run")));
	CHECK_INT(count_of(&self, POISONED), 3);
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/discard",
					  "{\"filter\":{\"seq\":1,\"state\":\"poisoned\"}}"),
			200);
	CHECK_INT(fixture_number(&self, "count"), 1);
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/discard",
					  "{\"filter\":{\"state\":\"poisoned\",\"message_id\":"
					  "\"nothing\"}}"),
			200);
	CHECK_INT(fixture_number(&self, "count"), 0);
	fixture_finish(&self);
}

static void bad_bulk(void) {
	static const char *const texts[] = { "", "{", "[]", "1", "null",
		"\"filter\"", "{}", "{\"limit\":5}", "{\"filter\":null}",
		"{\"filter\":{}}", "{\"filter\":[]}", "{\"filter\":\"all\"}",
		"{\"filter\":{\"state\":1}}", "{\"filter\":{\"channel\":\"\"}}",
		"{\"filter\":{\"state\":\"\"}}", "{\"filter\":{\"state\":\"gone\"}}",
		"{\"filter\":{\"state\":\"done\"}}",
		"{\"filter\":{\"state\":\"leased\"}}",
		"{\"filter\":{\"state\":\"discarded\",\"seq\":1}}",
		"{\"filter\":{\"oldest\":true}}", "{\"filter\":{\"group\":\"0x1\"}}",
		"{\"filter\":{\"group\":1}}", "{\"filter\":{\"error\":\"\"}}",
		"{\"filter\":{\"message_ids\":[]}}",
		"{\"filter\":{\"message_ids\":\"a\"}}",
		"{\"filter\":{\"message_ids\":[\"a\",1]}}",
		"{\"filter\":{\"message_ids\":[\"\"]}}",
		"{\"filter\":{\"status\":\"x\"}}", "{\"filter\":{\"seq\":0}}",
		"{\"filter\":{\"seq\":-1}}", "{\"filter\":{\"seq\":1.5}}",
		"{\"filter\":{\"limit\":\"1\"}}", "{\"filter\":{\"cursor\":\"x\"}}",
		"{\"filter\":{\"handler\":\"a\\u0000b\"}}",
		"{\"filter\":{\"state\":\"poisoned\"},\"limit\":0}",
		"{\"filter\":{\"state\":\"poisoned\"},\"limit\":\"5\"}",
		"{\"filter\":{\"state\":\"poisoned\"},\"limit\":10001}",
		"{\"filter\":{\"state\":\"poisoned\"},\"limit\":1e3}",
		"{\"filter\":{\"state\":\"poisoned\"},\"dry_run\":1}",
		"{\"filter\":{\"state\":\"poisoned\"},\"dryrun\":true}",
		"{\"filter\":{\"state\":\"poisoned\"},\"filter\":{\"state\":\"done\"}}",
		"{\"filter\":{\"state\":\"poisoned\",\"state\":\"done\"}}",
		"{\"filter\":{\"state\":\"poisoned\"}} x",
		"{\"filter\":{\"state\":\"poisoned\"},\"limit\":NaN}",
		"{\"filter\":{\"state\":\"poisoned\"},\"limit\":99999999999999999999}",
		"{\"filter\":{\"state\":\"poisoned\xff\"}}" };
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	fixture_process(&self);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		if (!CHECK_INT(fixture_post(&self, "POST /v1/deliveries/discard",
							   texts[i]),
					400)) {
			FAIL("%s", texts[i]);
		}
	}
	CHECK_INT(count_of(&self, POISONED), 1);
	fixture_finish(&self);
}

static void depth_bombs(void) {
	struct fixture self;
	fixture_init(&self);
	char *text = malloc(70000);
	if (!text) {
		abort();
	}
	memset(text, '[', 60000);
	text[60000] = '\0';
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry", text), 400);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "deep");
	/* Brackets in strings do not count as depth. */
	(void)snprintf(text, 70000,
			"{\"filter\":{\"source\":\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[\"}}");
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry", text), 200);
	memset(text, ' ', 65537);
	text[65537] = '\0';
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry", text), 413);
	free(text);
	fixture_finish(&self);
}

static void only_json(void) {
	struct fixture self;
	fixture_init(&self);
	static const char text[] = "{\"filter\":{\"state\":\"poisoned\"}}";
	static const char *const form[] = {
		"Content-Type: application/x-www-form-urlencoded", NULL
	};
	static const char *const parameters[] = {
		"content-type: Application/JSON; charset=utf-8", NULL
	};
	static const char *const other[] = { "Content-Type: application/jsonp",
		NULL };
	CHECK_INT(fixture_send(&self, "POST /v1/deliveries/retry", NULL, text,
					  strlen(text)),
			415);
	CHECK_INT(fixture_send(&self, "POST /v1/deliveries/retry", form, text,
					  strlen(text)),
			415);
	CHECK_INT(fixture_send(&self, "POST /v1/deliveries/retry", other, text,
					  strlen(text)),
			415);
	CHECK_INT(fixture_send(&self, "POST /v1/deliveries/retry", parameters, text,
					  strlen(text)),
			200);
	CHECK_INT(fixture_post(&self, "POST /v1/handlers/ok/pause", "{\"a\":1}"),
			400);
	fixture_finish(&self);
}

static void ended_on_purpose(void) {
	struct fixture self;
	fixture_init(&self);
	static const char *const ids[] = { "a", "b", "c" };
	for (int i = 0; i < 3; i++) {
		CHECK_INT(fixture_message(&self, "orders", ids[i], "x"), 202);
	}
	fixture_process(&self);
	CHECK_INT(fixture_get(&self, "POST /v1/deliveries/1/no%2Fgood/discard"),
			200);
	CHECK_INT(fixture_message(&self, "orders", "d", "x"), 202);
	/* Two poisoned deliveries and two pending ones. */
	static const char all[] = "{\"filter\":{\"channel\":\"orders\"},"
							  "\"dry_run\":true}";
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry", all), 200);
	CHECK_INT(fixture_number(&self, "count"), 4);
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry",
					  "{\"filter\":{\"channel\":\"orders\"},\"limit\":3}"),
			200);
	CHECK_INT(fixture_number(&self, "count"), 3);
	CHECK_INT(count_of(&self, "GET /v1/deliveries?state=discarded"), 1);
	CHECK_INT(count_of(&self, POISONED), 1);
	CHECK_INT(fixture_post(&self, "POST /v1/deliveries/retry",
					  "{\"filter\":{\"state\":\"discarded\"}}"),
			200);
	CHECK_INT(fixture_number(&self, "count"), 1);
	CHECK_INT(count_of(&self, "GET /v1/deliveries?state=discarded"), 0);
	fixture_finish(&self);
}

static void pausing(void) {
	struct fixture self;
	fixture_init(&self);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(fixture_get(&self, "POST /v1/handlers/no%2Fgood/pause"), 200);
		CHECK_STR(fixture_text(&self, "handler"), "no/good");
		CHECK(json_is_true(fixture_value(&self, "paused")));
	}
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	fixture_process(&self);
	CHECK_INT(count_of(&self, "GET /v1/deliveries?state=pending"), 1);
	CHECK_INT(fixture_get(&self, "POST /v1/handlers/no%2Fgood/resume"), 200);
	CHECK(json_is_false(fixture_value(&self, "paused")));
	fixture_process(&self);
	CHECK_INT(count_of(&self, "GET /v1/deliveries?state=pending"), 0);
	fixture_finish(&self);
}

static void cleaning(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "drops", "a", "x"), 202);
	CHECK_INT(fixture_message(&self, "strict", "b", "x"), 202);
	fixture_process(&self);
	CHECK_INT(fixture_get(&self, "POST /v1/cleanup"), 200);
	CHECK_INT(fixture_number(&self, "messages"), 0);
	fake_clock_advance(&self.clock, FIXTURE_RETENTION_MS + 1);
	CHECK_INT(fixture_get(&self, "POST /v1/cleanup?store=other"), 404);
	CHECK_INT(fixture_post(&self, "POST /v1/cleanup", "{\"a\":1}"), 400);
	CHECK_INT(fixture_get(&self, "POST /v1/cleanup?store=default"), 200);
	CHECK_INT(fixture_number(&self, "messages"), 1);
	CHECK_INT(fixture_number(&self, "keys"), 0);
	CHECK_STR(fixture_text(&self, "stores.0.store"), "default");
	CHECK_INT(fixture_number(&self, "stores.0.messages"), 1);
	CHECK(json_is_false(fixture_value(&self, "stores.0.busy")));
	CHECK_INT(count_of(&self, "GET /v1/deliveries"), 1);
	fixture_finish(&self);
}

static void cleaning_twice(void) {
	struct fixture self;
	atomic_bool cleaning = true;
	fixture_init(&self);
	self.api.cleaning = &cleaning;
	CHECK_INT(fixture_message(&self, "drops", "a", "x"), 202);
	fixture_process(&self);
	fake_clock_advance(&self.clock, FIXTURE_RETENTION_MS + 1);
	CHECK_INT(fixture_get(&self, "POST /v1/cleanup"), 200);
	CHECK_INT(fixture_number(&self, "messages"), 0);
	CHECK(json_is_true(fixture_value(&self, "stores.0.busy")));
	CHECK(json_is_false(fixture_value(&self, "stores.0.complete")));
	atomic_store(&cleaning, false);
	CHECK_INT(fixture_get(&self, "POST /v1/cleanup"), 200);
	CHECK_INT(fixture_number(&self, "messages"), 1);
	CHECK(!atomic_load(&cleaning));
	CHECK(json_is_true(fixture_value(&self, "stores.0.complete")));
	fixture_finish(&self);
}

static void cleaning_stopped(void) {
	struct fixture self;
	fixture_init(&self);
	self.box->options.cleanup_batch = 1;
	CHECK_INT(fixture_message(&self, "drops", "a", "x"), 202);
	CHECK_INT(fixture_message(&self, "drops", "b", "x"), 202);
	fixture_process(&self);
	fake_clock_advance(&self.clock, FIXTURE_RETENTION_MS + 1);
	self.box->draining = true;
	CHECK_INT(fixture_get(&self, "POST /v1/cleanup"), 200);
	CHECK_INT(fixture_number(&self, "messages"), 1);
	CHECK(json_is_false(fixture_value(&self, "stores.0.busy")));
	CHECK(json_is_false(fixture_value(&self, "stores.0.complete")));
	self.box->draining = false;
	CHECK_INT(fixture_get(&self, "POST /v1/cleanup"), 200);
	CHECK_INT(fixture_number(&self, "messages"), 1);
	CHECK(json_is_true(fixture_value(&self, "stores.0.complete")));
	fixture_finish(&self);
}

static const struct tap_case cases[] = {
	{ "a poisoned delivery is retried once, with a higher fence", one_retry },
	{ "pending, poisoned and parked deliveries are discarded", one_discard },
	{ "unknown deliveries and handlers are 404", unknown_objects },
	{ "bulk edits can be counted first, have a limit and change only matches",
			bulk },
	{ "an invalid bulk edit changes nothing", bad_bulk },
	{ "deep and long JSON is refused", depth_bombs },
	{ "a request with another content type than JSON is 415", only_json },
	{ "a bulk retry leaves out discarded deliveries unless named",
			ended_on_purpose },
	{ "a paused handler gets nothing until it is resumed", pausing },
	{ "a cleanup removes what has expired, and returns how much", cleaning },
	{ "one cleanup at a time: another gets busy", cleaning_twice },
	{ "a cleanup that a stop interrupts is reported as incomplete",
			cleaning_stopped },
};

TAP_MAIN(cases)
