/* SPDX-License-Identifier: MIT */

/* POST /v1/marks. */

#include <stdio.h>

#include "api_fixture.h"
#include "tap.h"

#define MARKS "POST /v1/marks"

/* The result of a request, which must succeed. */
static const char *result(struct fixture *self, const char *json) {
	CHECK_INT(fixture_post(self, MARKS, json), 200);
	const char *text = fixture_text(self, "result");
	return text ? text : "";
}

static void small_interface(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_STR(result(&self, "{\"do\":\"has\",\"handler\":\"h\",\"key\":\"k\"}"),
			"unknown");
	CHECK_STR(result(&self, "{\"do\":\"try\",\"handler\":\"h\",\"key\":\"k\"}"),
			"first");
	CHECK_STR(fixture_text(&self, "store"), "default");
	CHECK_STR(result(&self, "{\"do\":\"try\",\"handler\":\"h\",\"key\":\"k\"}"),
			"duplicate");
	CHECK_STR(result(&self, "{\"do\":\"has\",\"handler\":\"h\",\"key\":\"k\"}"),
			"done");
	CHECK_STR(result(&self,
					  "{\"do\":\"has\",\"handler\":\"h2\",\"key\":\"k\"}"),
			"unknown");
	CHECK_STR(result(&self,
					  "{\"do\":\"record\",\"handler\":\"h\",\"key\":\"k2\"}"),
			"recorded");
	CHECK_STR(result(&self,
					  "{\"do\":\"forget\",\"handler\":\"h\",\"key\":\"k\"}"),
			"forgotten");
	CHECK_STR(result(&self,
					  "{\"do\":\"forget\",\"handler\":\"h\",\"key\":\"k\"}"),
			"unknown");
	fixture_finish(&self);
}

static void repeated(void) {
	static const char json[] =
			"{\"do\":\"try\",\"handler\":\"h\",\"key\":\"k\",\"fence\":7}";
	struct fixture self;
	fixture_init(&self);
	CHECK_STR(result(&self, json), "first");
	CHECK_STR(result(&self, json), "first");
	CHECK_STR(result(&self, "{\"do\":\"try\",\"handler\":\"h\",\"key\":\"k\","
							"\"fence\":\"8\"}"),
			"duplicate");
	fixture_finish(&self);
}

#define HK "\"handler\":\"h\",\"key\":\"k\""

static void lease(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_STR(result(&self, "{\"do\":\"begin\"," HK
							",\"fence\":5,\"lease\":\"10s\"}"),
			"first");
	CHECK_STR(fixture_text(&self, "fence"), "5");
	CHECK_STR(result(&self, "{\"do\":\"begin\"," HK ",\"fence\":6}"), "busy");
	CHECK_INT(fixture_number(&self, "left_ms"), 10000);
	CHECK(!fixture_text(&self, "fence"));
	CHECK_STR(result(&self, "{\"do\":\"try\"," HK "}"), "busy");
	CHECK_STR(result(&self, "{\"do\":\"extend\"," HK
							",\"fence\":\"5\",\"lease\":\"20s\"}"),
			"extended");
	CHECK_STR(result(&self, "{\"do\":\"begin\"," HK "}"), "busy");
	CHECK_INT(fixture_number(&self, "left_ms"), 20000);
	CHECK_INT(fixture_post(&self, MARKS,
					  "{\"do\":\"finish\"," HK ",\"fence\":6}"),
			409);
	CHECK_STR(fixture_text(&self, "code"), "stale");
	CHECK_STR(result(&self, "{\"do\":\"release\"," HK ",\"fence\":5}"),
			"released");
	CHECK_STR(result(&self, "{\"do\":\"begin\"," HK "}"), "first");
	char finish[128];
	(void)snprintf(finish, sizeof finish,
			"{\"do\":\"finish\"," HK ",\"fence\":\"%s\"}",
			fixture_text(&self, "fence"));
	CHECK_STR(result(&self, finish), "recorded");
	CHECK_STR(result(&self, "{\"do\":\"begin\"," HK "}"), "duplicate");
	fixture_finish(&self);
}

static void expiry(void) {
	struct fixture self;
	fixture_init(&self);
	CHECK_STR(result(&self, "{\"do\":\"record\"," HK "}"), "recorded");
	fake_clock_advance(&self.clock, 3600 * 1000);
	CHECK_STR(result(&self,
					  "{\"do\":\"record\",\"handler\":\"h\",\"key\":\"k2\"}"),
			"recorded");
	CHECK_STR(result(&self, "{\"do\":\"expire\",\"older_than\":\"2h\"}"),
			"expired");
	CHECK_INT(fixture_number(&self, "count"), 0);
	CHECK_STR(result(&self, "{\"do\":\"expire\",\"handler\":\"h\","
							"\"older_than\":\"1h\"}"),
			"expired");
	CHECK_INT(fixture_number(&self, "count"), 1);
	CHECK_STR(result(&self, "{\"do\":\"has\"," HK "}"), "unknown");
	fixture_finish(&self);
}

static void bad_requests(void) {
	static const char *const texts[] = { "", "{}", "[]", "{\"do\":1}",
		"{\"do\":\"trie\"," HK "}", "{\"do\":\"try\"}",
		"{\"do\":\"try\",\"handler\":\"h\"}", "{\"do\":\"try\",\"key\":\"k\"}",
		"{\"do\":\"try\",\"handler\":\"\",\"key\":\"k\"}",
		"{\"do\":\"try\",\"handler\":\"h\",\"key\":\"\"}",
		"{\"do\":\"try\",\"handler\":\"h\",\"key\":7}",
		"{\"do\":\"try\",\"handler\":[],\"key\":\"k\"}",
		"{\"do\":\"try\",\"handler\":\"h\",\"key\":\"a\\u0000b\"}",
		"{\"do\":\"try\"," HK ",\"extra\":1}",
		"{\"do\":\"try\"," HK ",\"lease\":\"10s\"}",
		"{\"do\":\"try\"," HK ",\"key\":\"twice\"}",
		"{\"do\":\"has\"," HK ",\"fence\":1}",
		"{\"do\":\"begin\"," HK ",\"fence\":0}",
		"{\"do\":\"begin\"," HK ",\"fence\":-1}",
		"{\"do\":\"begin\"," HK ",\"fence\":1.5}",
		"{\"do\":\"begin\"," HK ",\"fence\":\"x\"}",
		"{\"do\":\"begin\"," HK ",\"lease\":5}",
		"{\"do\":\"begin\"," HK ",\"lease\":\"999ms\"}",
		"{\"do\":\"begin\"," HK ",\"lease\":\"soon\"}",
		"{\"do\":\"extend\"," HK "}", "{\"do\":\"finish\"," HK "}",
		"{\"do\":\"release\"," HK "}", "{\"do\":\"expire\"}",
		"{\"do\":\"expire\",\"older_than\":1}",
		"{\"do\":\"expire\",\"older_than\":\"1h\",\"key\":\"k\"}",
		"{\"do\":\"expire\",\"older_than\":\"1h\",\"handler\":\"\"}" };
	struct fixture self;
	fixture_init(&self);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		if (!CHECK_INT(fixture_post(&self, MARKS, texts[i]), 400)) {
			FAIL("%s", texts[i]);
		}
	}
	CHECK_INT(fixture_post(&self, MARKS "?store=none",
					  "{\"do\":\"try\"," HK "}"),
			404);
	CHECK_INT(fixture_get(&self, "GET /v1/marks"), 405);
	CHECK_STR(result(&self, "{\"do\":\"has\"," HK "}"), "unknown");
	fixture_finish(&self);
}

static void no_markers(void) {
	struct fixture self;
	fixture_init(&self);
	struct postern_guard *guard = self.stores.items[0].guard;
	self.stores.items[0].guard = NULL;
	CHECK_INT(fixture_post(&self, MARKS, "{\"do\":\"try\"," HK "}"), 501);
	self.stores.items[0].guard = guard;
	fixture_finish(&self);
}

static const struct tap_case cases[] = {
	{ "try, has, record and forget answer with what was known",
			small_interface },
	{ "a repeated request with a fence has the same result", repeated },
	{ "a lease belongs to its fence", lease },
	{ "expire forgets what was done longer ago", expiry },
	{ "a request that is not exact is refused", bad_requests },
	{ "a store without markers refuses", no_markers },
};

TAP_MAIN(cases)
