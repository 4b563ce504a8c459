/* SPDX-License-Identifier: MIT */

/* The responses of routes that only read, and how a request finds its route. */

#include <string.h>

#include "api_fixture.h"
#include "tap.h"

static void paths(void) {
	static const char *const lost[] = { "GET /", "GET /v1", "GET /v1/",
		"GET /v1/nothing", "GET //v1/stats", "GET /v1//stats",
		"GET /v1/./stats", "GET /v1/stats/", "GET /v1/../v1/stats",
		"GET /v1%2fstats", "GET /V1/stats", "GET v1/stats",
		"GET http://h/v1/stats", "GET *", "GET /a/b/c/d/e/f/g/h/i/j",
		"GET /v1/messages/1/nothing", "GET /v1/messages/1/body/",
		"GET /v1/nodes/", "POST /v1/cleanup/", "GET /v1/events",
		"GET /metrics/" };
	struct fixture self;
	fixture_init(&self);
	for (size_t i = 0; i < sizeof lost / sizeof lost[0]; i++) {
		if (!CHECK_INT(fixture_get(&self, lost[i]), 404)) {
			FAIL("%s", lost[i]);
		}
		CHECK_STR(self.response.content_type, "application/problem+json");
	}
	fixture_finish(&self);
}

static void methods(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_get(&self, "POST /v1/stats"), 405);
	CHECK_STR(fixture_header(&self, "Allow"), "GET, HEAD");
	CHECK_INT(fixture_get(&self, "GET /v1/channels/orders/messages"), 405);
	CHECK_STR(fixture_header(&self, "Allow"), "POST");
	CHECK_INT(fixture_get(&self, "DELETE /v1/messages/1"), 405);
	CHECK_INT(fixture_get(&self, "get /v1/stats"), 405);
	CHECK_INT(fixture_get(&self, "GET /v1/deliveries/1/ok/retry"), 405);
	CHECK_INT(fixture_get(&self, "GET /v1/handlers/ok/pause"), 405);
	CHECK_INT(fixture_get(&self, "HEAD /v1/stats"), 200);
	fixture_finish(&self);
}

static void long_lines(void) {
	struct fixture self;
	fixture_init(&self);
	static char line[20000];
	(void)snprintf(line, sizeof line, "GET /v1/messages/%05000d", 1);
	CHECK_INT(fixture_get(&self, line), 414);
	(void)snprintf(line, sizeof line, "GET /v1/deliveries?type=%09000d", 1);
	CHECK_INT(fixture_get(&self, line), 414);
	fixture_finish(&self);
}

static void stats(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 200);
	CHECK_INT(fixture_message(&self, "orders", "a", "y"), 409);
	CHECK_INT(fixture_message(&self, "parks", "a", "x"), 202);
	CHECK_INT(fixture_get(&self, "GET /v1/stats"), 200);
	CHECK_STR(fixture_text(&self, "stores.0.name"), "default");
	CHECK_STR(fixture_text(&self, "stores.0.kind"), "memory");
	CHECK_STR(fixture_text(&self, "handlers.0.store"), "default");
	CHECK_STR(fixture_text(&self, "channels.0.store"), "default");
	CHECK_INT(json_array_size(fixture_value(&self, "channels")), 4);
	CHECK_INT(json_array_size(fixture_value(&self, "handlers")), 4);
	CHECK_STR(fixture_text(&self, "handlers.0.oldest_pending_at"),
			"2026-01-02T03:04:05.678Z");
	fixture_process(&self);

	CHECK_INT(fixture_get(&self, "GET /v1/channels"), 200);
	json_t *row;
	size_t i;
	bool seen = false;
	json_array_foreach(fixture_value(&self, "items"), i, row) {
		if (strcmp(json_string_value(json_object_get(row, "name")), "orders") ==
				0) {
			seen = true;
			CHECK_INT(json_integer_value(json_object_get(row, "accepted")), 1);
			CHECK_INT(json_integer_value(json_object_get(row, "duplicates")),
					1);
			CHECK_INT(json_integer_value(json_object_get(row, "conflicts")), 1);
		}
	}
	CHECK(seen);
	CHECK_INT(fixture_get(&self, "GET /v1/handlers"), 200);
	seen = false;
	json_array_foreach(fixture_value(&self, "items"), i, row) {
		if (strcmp(json_string_value(json_object_get(row, "key")), "no/good") ==
				0) {
			seen = true;
			CHECK_INT(json_integer_value(json_object_get(row, "poisoned")), 1);
			CHECK_STR(json_string_value(json_object_get(row, "channel")),
					"orders");
			CHECK(json_is_true(json_object_get(row, "registered")));
			CHECK(json_is_false(json_object_get(row, "paused")));
			CHECK(json_is_null(json_object_get(row, "oldest_pending_at")));
		}
	}
	CHECK(seen);
	CHECK_INT(fixture_get(&self, "GET /v1/stats?x=1"), 400);
	fixture_finish(&self);
}

static void listing(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	fixture_process(&self);
	fake_clock_advance(&self.clock, 60000);
	CHECK_INT(fixture_message(&self, "strict", "b", "x"), 202);

	CHECK_INT(fixture_get(&self, "GET /v1/deliveries"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 3);
	CHECK(json_is_null(fixture_value(&self, "cursor")));
	CHECK_STR(fixture_text(&self, "items.0.message_id"), "b");
	CHECK_STR(fixture_text(&self, "items.0.state"), "pending");
	CHECK_STR(fixture_text(&self, "items.0.received_at"),
			"2026-01-02T03:05:05.678Z");
	CHECK_STR(fixture_text(&self, "items.0.next_at"),
			"2026-01-02T03:05:05.678Z");
	CHECK(json_is_null(fixture_value(&self, "items.0.leased_at")));
	CHECK(json_is_null(fixture_value(&self, "items.0.finished_at")));
	CHECK(json_is_null(fixture_value(&self, "items.0.last_error")));

	CHECK_INT(fixture_get(&self, "GET /v1/deliveries?state=poisoned"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 1);
	static const char *const members[] = { "seq", "message_id", "source",
		"channel", "handler", "type", "state", "failures", "starts", "crashes",
		"returns", "fence", "received_at", "next_at", "leased_at",
		"finished_at", "last_error" };
	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
		char path[64];
		(void)snprintf(path, sizeof path, "items.0.%s", members[i]);
		if (!fixture_value(&self, path)) {
			FAIL("there is no %s", members[i]);
		}
	}
	CHECK_STR(fixture_text(&self, "items.0.handler"), "no/good");
	CHECK_STR(fixture_text(&self, "items.0.last_error"), "it is <bad>");
	CHECK_STR(fixture_text(&self, "items.0.finished_at"),
			"2026-01-02T03:04:05.678Z");

	static const struct {
		const char *line;
		size_t count;
	} queries[] = {
		{ "GET /v1/deliveries?channel=orders", 2 },
		{ "GET /v1/deliveries?handler=no%2Fgood", 1 },
		{ "GET /v1/deliveries?handler=no/good&state=done", 0 },
		{ "GET /v1/deliveries?type=order.*", 3 },
		{ "GET /v1/deliveries?type=mail.*", 0 },
		{ "GET /v1/deliveries?since=30s", 1 },
		{ "GET /v1/deliveries?until=30s", 2 },
		{ "GET /v1/deliveries?since=2026-01-02T03:05:00Z", 1 },
		{ "GET /v1/deliveries?until=2026-01-02T04:05:00%2B01:00", 2 },
		{ "GET /v1/deliveries?until=2026-01-02T04:05:00+01:00", 2 },
		{ "GET /v1/deliveries?since=3650d", 3 },
		{ "GET /v1/deliveries?until=1960-01-01T00:00:00Z", 0 },
		{ "GET /v1/deliveries?until=1970-01-01T00:00:00Z", 0 },
		{ "GET /v1/deliveries?message_id=a", 2 },
		{ "GET /v1/deliveries?source=shop&seq=2", 1 },
		{ "GET /v1/deliveries?&&limit=2&", 2 },
	};
	for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
		CHECK_INT(fixture_get(&self, queries[i].line), 200);
		if (!CHECK_INT(json_array_size(fixture_value(&self, "items")),
					queries[i].count)) {
			FAIL("%s", queries[i].line);
		}
	}
	fixture_finish(&self);
}

static void pages(void) {
	struct fixture self;
	fixture_init(&self);
	char id[16];
	for (int i = 0; i < 7; i++) {
		(void)snprintf(id, sizeof id, "m%d", i);
		CHECK_INT(fixture_message(&self, "strict", id, "x"), 202);
	}
	char line[200] = "GET /v1/deliveries?limit=3";
	int seen = 0;
	int pages = 0;
	for (; pages < 10; pages++) {
		CHECK_INT(fixture_get(&self, line), 200);
		seen += (int)json_array_size(fixture_value(&self, "items"));
		const char *cursor = fixture_text(&self, "cursor");
		if (!cursor) {
			break;
		}
		(void)snprintf(line, sizeof line,
				"GET /v1/deliveries?limit=3&cursor=%s", cursor);
	}
	CHECK_INT(seen, 7);
	CHECK_INT(pages, 2);
	fixture_finish(&self);
}

static void bad_queries(void) {
	static const char *const lines[] = { "limit=0", "limit=-1", "limit=10001",
		"limit=1e9", "limit=99999999999999999999", "limit=", "limit=+5",
		"limit= 5", "state=gone", "state=", "state=POISONED", "since=yesterday",
		"since=5", "since=", "until=-5m", "since=2026-13-01T00:00:00Z", "seq=0",
		"seq=x", "type=", "type=a%0Ab", "type=*a*a*a*a*a*a*a*a*a*",
		"cursor=nonsense", "channel=", "handler=", "message_id=", "source=",
		"cursor=%27%20or%201=1", "sort=seq", "state", "state=done&state=done",
		"channel=%", "channel=%zz", "handler=%00", "handler=%FF", "q=x",
		"State=done" };
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		char line[200];
		(void)snprintf(line, sizeof line, "GET /v1/deliveries?%s", lines[i]);
		if (!CHECK_INT(fixture_get(&self, line), 400)) {
			FAIL("%s", lines[i]);
		}
		CHECK(fixture_text(&self, "detail") != NULL);
	}
	CHECK_INT(fixture_get(&self, "GET /v1/deliveries?state=poisond"), 400);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "did you mean 'poisoned'?");
	CHECK_INT(fixture_get(&self, "GET /v1/deliveries?chanel=x"), 400);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "did you mean 'channel'?");
	CHECK_INT(fixture_get(&self, "GET /v1/deliveries?q=x"), 400);
	CHECK_CONTAINS(fixture_text(&self, "detail"), "not in this version");
	CHECK_INT(fixture_get(&self, "GET /v1/groups?limit=1"), 400);
	fixture_finish(&self);
}

static void by_error(void) {
	/* "it is <bad>", as the poisoned delivery has it. */
	static const struct {
		const char *query;
		size_t count;
	} rows[] = {
		{ "error=BAD", 2 },
		{ "error=%25", 0 },
		{ "error=it%20is%20%3Cbad%3E", 2 },
		{ "oldest=true&error=bad", 2 },
		{ "oldest=false&error=bad", 2 },
		{ "group=0000000000000001", 0 },
	};
	static const char *const bad[] = { "group=0", "group=1",
		"group=", "group=xyz", "group=12345678901234567", "oldest=yes",
		"error=" };
	struct fixture self;
	char line[300];
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	CHECK_INT(fixture_message(&self, "orders", "b", "x"), 202);
	fixture_process(&self);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		(void)snprintf(line, sizeof line, "GET /v1/deliveries?%s",
				rows[i].query);
		CHECK_INT(fixture_get(&self, line), 200);
		CHECK_INT(json_array_size(fixture_value(&self, "items")),
				rows[i].count);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		(void)snprintf(line, sizeof line, "GET /v1/deliveries?%s", bad[i]);
		if (!CHECK_INT(fixture_get(&self, line), 400)) {
			FAIL("%s", line);
		}
	}
	(void)snprintf(line, sizeof line, "GET /v1/deliveries?error=%0*d",
			POSTERN_FILTER_ERROR_LEN_MAX + 1, 0);
	CHECK_INT(fixture_get(&self, line), 400);
	fixture_finish(&self);
}

static void groups(void) {
	struct fixture self;
	char line[100];
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	CHECK_INT(fixture_message(&self, "orders", "b", "x"), 202);
	fixture_process(&self);
	CHECK_INT(fixture_get(&self, "GET /v1/groups"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 1);
	CHECK_INT(fixture_number(&self, "items.0.count"), 2);
	CHECK_STR(fixture_text(&self, "items.0.handler"), "no/good");
	CHECK_STR(fixture_text(&self, "items.0.example"), "it is <bad>");
	CHECK_INT(strlen(fixture_text(&self, "items.0.group")), 16);
	CHECK(json_is_string(fixture_value(&self, "items.0.first_at")));
	CHECK(json_is_string(fixture_value(&self, "items.0.last_at")));
	(void)snprintf(line, sizeof line, "GET /v1/deliveries?group=%s",
			fixture_text(&self, "items.0.group"));
	CHECK_INT(fixture_get(&self, line), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 2);
	CHECK_STR(strstr(line, "=") + 1, fixture_text(&self, "items.0.group"));
	CHECK_INT(fixture_get(&self, "GET /v1/groups?state=pending"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 0);
	fixture_finish(&self);
}

static void unknown_names(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	CHECK_INT(fixture_get(&self, "GET /v1/deliveries?handler=no%2Fgod"), 404);
	CHECK_CONTAINS(fixture_text(&self, "detail"),
			"no handler 'no/god'; did you mean 'no/good'?");
	CHECK_INT(fixture_get(&self, "GET /v1/deliveries?channel=order"), 404);
	CHECK_CONTAINS(fixture_text(&self, "detail"),
			"no channel 'order'; did you mean 'orders'?");
	CHECK_INT(fixture_get(&self, "GET /v1/groups?handler=zzz"), 404);
	CHECK_STR(fixture_text(&self, "detail"), "no handler 'zzz'");
	/* Known names of which there is nothing. */
	CHECK_INT(fixture_get(&self,
					  "GET /v1/deliveries?handler=no%2Fgood&state=poisoned"),
			200);
	fixture_finish(&self);
}

static void one_message(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "</script>\xe2\x80\xa8"),
			202);
	fixture_process(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "other"), 409);
	CHECK_INT(fixture_message(&self, "orders", "a", "</script>\xe2\x80\xa8"),
			200);
	CHECK_INT(fixture_get(&self, "GET /v1/messages/1"), 200);
	CHECK(!strstr(postern__buf_text(&self.response.body), "</script"));
	CHECK_STR(fixture_text(&self, "body"), "</script>\xe2\x80\xa8");
	CHECK_INT(fixture_number(&self, "body_len"), 12);
	CHECK_INT(fixture_number(&self, "duplicates"), 1);
	CHECK_STR(fixture_text(&self, "duplicate_at"), "2026-01-02T03:04:05.678Z");
	CHECK_INT(fixture_number(&self, "conflict_count"), 1);
	CHECK_INT(fixture_number(&self, "conflicts.0.body_len"), 5);
	CHECK_STR(fixture_text(&self, "conflicts.0.transport"), "test");
	CHECK_INT(json_array_size(fixture_value(&self, "deliveries")), 2);
	size_t bad =
			strcmp(fixture_text(&self, "deliveries.0.handler"), "no/good") == 0
					? 0
					: 1;
	char path[64];
	(void)snprintf(path, sizeof path, "deliveries.%zu.state", bad);
	CHECK_STR(fixture_text(&self, path), "poisoned");
	(void)snprintf(path, sizeof path, "deliveries.%zu.attempts.0.outcome", bad);
	CHECK_STR(fixture_text(&self, path), "poison");
	(void)snprintf(path, sizeof path, "deliveries.%zu.attempts.0.error", bad);
	CHECK_STR(fixture_text(&self, path), "it is <bad>");
	(void)snprintf(path, sizeof path, "deliveries.%zu.attempts.0.fence", bad);
	CHECK_INT(fixture_number(&self, path), 1);

	CHECK_INT(fixture_get(&self, "GET /v1/messages/2"), 404);
	CHECK_INT(fixture_get(&self, "GET /v1/messages/0"), 404);
	CHECK_INT(fixture_get(&self, "GET /v1/messages/-1"), 404);
	CHECK_INT(fixture_get(&self, "GET /v1/messages/1x"), 404);
	CHECK_INT(fixture_get(&self, "GET /v1/messages/9223372036854775808"), 404);
	CHECK_INT(fixture_get(&self, "GET /v1/messages//body"), 404);
	fixture_finish(&self);
}

static void bodies_that_are_no_text(void) {
	struct fixture self;
	fixture_init(&self);
	static const struct {
		const char *bytes;
		size_t len;
		const char *base64;
	} bodies[] = {
		{ "\xff", 1, "/w==" },
		{ "\xff\xfe", 2, "//4=" },
		{ "\xff\xfe\xfd", 3, "//79" },
		{ "a\0b", 3, "YQBi" },
	};
	for (size_t i = 0; i < 4; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "X-Message-Id: %zu", i);
		const char *const headers[] = { id, NULL };
		CHECK_INT(fixture_send(&self, "POST /v1/channels/orders/messages",
						  headers, bodies[i].bytes, bodies[i].len),
				202);
		char line[64];
		(void)snprintf(line, sizeof line, "GET /v1/messages/%zu", i + 1);
		CHECK_INT(fixture_get(&self, line), 200);
		CHECK_STR(fixture_text(&self, "body_base64"), bodies[i].base64);
		CHECK(!fixture_value(&self, "body"));
	}
	fixture_finish(&self);
}

static void nodes(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a", "x"), 202);
	CHECK_INT(fixture_get(&self, "GET /v1/nodes"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 1);
	CHECK_STR(fixture_text(&self, "items.0.store"), "default");
	CHECK(json_is_true(fixture_value(&self, "items.0.own")));
	CHECK(json_is_false(fixture_value(&self, "items.0.sleeping")));
	CHECK(json_is_false(fixture_value(&self, "items.0.processor")));
	CHECK(json_is_string(fixture_value(&self, "items.0.renewed_at")));
	CHECK(json_is_integer(fixture_value(&self, "items.0.renewed_ago_ms")));
	/* The node has no lease: only this process uses the store. */
	CHECK(json_is_null(fixture_value(&self, "items.0.lives_until")));
	CHECK(json_is_null(fixture_value(&self, "items.0.left_ms")));
	CHECK_INT(json_array_size(fixture_value(&self, "items.0.locks")), 0);
	const char *node = fixture_text(&self, "items.0.node");
	char copy[32];
	(void)snprintf(copy, sizeof copy, "%s", node ? node : "");
	CHECK_INT(strlen(copy), 16);
	CHECK_INT(fixture_get(&self, "GET /v1/stats"), 200);
	CHECK_STR(fixture_text(&self, "nodes.0.node"), copy);
	CHECK_INT(fixture_get(&self, "GET /v1/nodes?store=nowhere"), 404);
	CHECK_INT(fixture_get(&self, "POST /v1/nodes"), 405);
	fixture_finish(&self);
}

static void finding(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_message(&self, "orders", "a%20b", "x"), 202);
	CHECK_INT(fixture_message(&self, "strict", "a%20b", "y"), 202);
	CHECK_INT(fixture_get(&self, "GET /v1/messages?id=a%20b"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 2);
	CHECK_STR(fixture_text(&self, "items.0.channel"), "strict");
	CHECK_STR(fixture_text(&self, "items.0.body"), "y");
	CHECK(json_is_array(fixture_value(&self, "items.0.deliveries")));
	CHECK_INT(fixture_get(&self, "GET /v1/messages?id=a%20b&channel=orders"),
			200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 1);
	CHECK_INT(fixture_get(&self, "GET /v1/messages?source=bar&id=a%20b"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 0);
	CHECK_INT(fixture_get(&self, "GET /v1/messages?id=nothing"), 200);
	CHECK_INT(json_array_size(fixture_value(&self, "items")), 0);
	CHECK_INT(fixture_get(&self, "GET /v1/messages"), 400);
	CHECK_INT(fixture_get(&self, "GET /v1/messages?id="), 400);
	CHECK_INT(fixture_get(&self, "GET /v1/messages?source=shop"), 400);
	fixture_finish(&self);
}

static bool always(void *context) {
	(void)context;
	return true;
}

static void health(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_INT(fixture_get(&self, "GET /healthz"), 200);
	/* Without a runner the server is not ready. */
	CHECK_INT(fixture_get(&self, "GET /readyz"), 503);
	CHECK_STR(fixture_header(&self, "Retry-After"), "5");
	struct postern_error error;
	struct postern_runner *runner;
	CHECK_OK(postern_runner_create(self.box, NULL, &runner, &error), &error);
	self.stores.items[0].runner = runner;
	CHECK_INT(fixture_get(&self, "GET /readyz"), 200);
	self.api.is_draining = always;
	CHECK_INT(fixture_get(&self, "GET /readyz"), 503);
	CHECK_INT(fixture_get(&self, "GET /healthz"), 200);
	postern_runner_destroy(runner);
	fixture_finish(&self);
}

static void quick_routes(void) {
	CHECK(postern__api_is_quick("POST", "/v1/channels/a/messages", NULL));
	CHECK(postern__api_is_quick("GET", "/healthz", NULL));
	CHECK(!postern__api_is_quick("GET", "/healthz", "verbose"));
	CHECK(postern__api_is_quick("GET", "/nothing", NULL));
	CHECK(!postern__api_is_quick("GET", "/v1/stats", NULL));
	CHECK(!postern__api_is_quick("HEAD", "/v1/stats", NULL));
	CHECK(!postern__api_is_quick("POST", "/v1/handlers/a/pause", NULL));
	struct postern__api api = { .body_len_max = 5 };
	struct postern_header type = { "Content-Type",
		"application/cloudevents-batch+json" };
	struct postern__request request = {
		.method = "POST",
		.path = "/v1/channels/a/messages",
		.headers = &type,
	};
	CHECK_INT(postern__api_body_len_max(&api, &request), 5);
	request.header_count = 1;
	CHECK_INT(postern__api_body_len_max(&api, &request), 10 + 128 * 1024);
	api.body_len_max = POSTERN_BODY_LEN_MAX;
	CHECK_INT(postern__api_body_len_max(&api, &request), POSTERN_BODY_LEN_MAX);
	request.path = "/v1/deliveries/retry";
	CHECK_INT(postern__api_body_len_max(&api, &request),
			POSTERN__API_JSON_LEN_MAX);
}

static const struct tap_case cases[] = {
	{ "a path that is not in the table is 404", paths },
	{ "another method is 405 with the allowed methods", methods },
	{ "long paths and queries are 414", long_lines },
	{ "stats count messages and deliveries", stats },
	{ "nodes are listed with their state", nodes },
	{ "a listing has every member and every filter", listing },
	{ "a cursor leads through all pages", pages },
	{ "an invalid query is 400", bad_queries },
	{ "a message is shown with deliveries, attempts and conflicts",
			one_message },
	{ "a body that is not text is shown in base64", bodies_that_are_no_text },
	{ "messages are found by id, source and channel", finding },
	{ "ready means that a runner runs and the server is not stopping", health },
	{ "only routes that do not wait are quick", quick_routes },
	{ "deliveries are found by their error and its group", by_error },
	{ "errors are counted by group, with an example", groups },
	{ "a handler or channel that does not exist is not found", unknown_names },
};

TAP_MAIN(cases)
