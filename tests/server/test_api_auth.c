/* SPDX-License-Identifier: MIT */

/* Who a sender is, and what an address for messages serves. */

#include "server/auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_fixture.h"
#include "server/grant.h"
#include "tap.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

/* The request's Authorization; NULL: none. Returns what it is granted. */
static const struct postern__grant *grant_for(const struct postern__auth *auth,
		const char *authorization) {
	const struct postern_header header = { "Authorization", authorization };
	struct postern__request request = {
		.method = "GET",
		.path = "/v1/stats",
		.headers = &header,
		.header_count = authorization ? 1 : 0,
	};
	struct postern__response response;
	postern__response_init(&response);
	CHECK(postern__auth_admit(auth, false, true, &request, &response));
	postern__response_finish(&response);
	return request.grant;
}

static void whole_token(void) {
	struct postern__token tokens[2] = {
		{ .grant = { .name = "a", .role = "admin" } },
		{ .grant = { .name = "b", .role = "send" } },
	};
	const struct postern__auth auth = { .tokens = tokens, .token_count = 2 };
	struct postern_error error;
	CHECK_OK(postern__token_hash(TOKEN, tokens[0].hash, &error), &error);
	CHECK_OK(postern__token_hash("b" TOKEN, tokens[1].hash, &error), &error);
	CHECK_STR(grant_for(&auth, "Bearer " TOKEN)->name, "a");
	CHECK_STR(grant_for(&auth, "bearer  b" TOKEN)->name, "b");
	static const char *const wrong[] = { "Bearer " TOKEN "0",
		"Bearer 0123456789abcdef0123456789abcde",
		"Bearer 0123456789abcdef01234567", "Bearer c" TOKEN, "Bearer ",
		"Bearer", "Basic " TOKEN, TOKEN, "Bearer " TOKEN " " TOKEN };
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		const struct postern__grant *grant = grant_for(&auth, wrong[i]);
		CHECK(grant && !grant->name && grant->unknown &&
				grant->permissions == POSTERN__PERMIT_NOTHING);
	}
	const struct postern__grant *none = grant_for(&auth, NULL);
	CHECK(none && !none->name && !none->unknown &&
			none->permissions == POSTERN__PERMIT_NOTHING);
}

static void bad_tokens(void) {
	uint8_t hash[POSTERN__TOKEN_HASH_LEN];
	struct postern_error error;
	char text[POSTERN__TOKEN_LEN_MAX + 2];
	memset(text, 'a', sizeof text);
	text[POSTERN__TOKEN_LEN_MAX + 1] = '\0';
	CHECK_INT(postern__token_hash(text, hash, &error), POSTERN_E_INVALID);
	text[POSTERN__TOKEN_LEN_MAX] = '\0';
	CHECK_OK(postern__token_hash(text, hash, &error), &error);
	text[POSTERN__TOKEN_LEN_MIN - 1] = '\0';
	CHECK_INT(postern__token_hash(text, hash, &error), POSTERN_E_INVALID);
	CHECK_INT(postern__token_hash("secret secret secret secret", hash, &error),
			POSTERN_E_INVALID);
	CHECK(!strstr(error.text, "secret secret"));
}

/* The status for a Host and an Origin, 200 if the sender is admitted. */
static int status_for(const struct postern__auth *auth, const char *host,
		const char *origin) {
	struct postern_header headers[2];
	struct postern__request request = { .headers = headers };
	struct postern__response response;
	if (host) {
		headers[request.header_count++] =
				(struct postern_header){ "Host", host };
	}
	if (origin) {
		headers[request.header_count++] =
				(struct postern_header){ "origin", origin };
	}
	postern__response_init(&response);
	int status = postern__auth_admit(auth, false, true, &request, &response)
						 ? 200
						 : response.status;
	CHECK(!request.grant);
	postern__response_finish(&response);
	return status;
}

static void web_pages(void) {
	const struct postern__auth auth = { .hosts = "shop.example, inbox" };
	static const char *const ours[] = { "localhost", "LocalHost:80",
		"127.0.0.1:7420", "192.0.2.7", "[::1]", "[2001:db8::1]:7420",
		"shop.example", "SHOP.example:443", "inbox" };
	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
		CHECK_INT(status_for(&auth, ours[i], NULL), 200);
	}
	static const char *const theirs[] = { "evil.example", "localhost.evil",
		"127.0.0.1.evil", "shop.example.evil", "inbox2", "op.example", "",
		":80", "[::1", "[]", "[evil]", "1.2.3", "shop.example," };
	for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++) {
		CHECK_INT(status_for(&auth, theirs[i], NULL), 421);
	}
	CHECK_INT(status_for(&auth, NULL, NULL), 200);
	CHECK_INT(status_for(&auth, "inbox:1", "https://inbox:1"), 200);
	CHECK_INT(status_for(&auth, "inbox:1", "http://inbox:2"), 403);
	CHECK_INT(status_for(&auth, "inbox:1", "http://inbox:1.evil"), 403);
	CHECK_INT(status_for(&auth, "inbox:1", "null"), 403);
	CHECK_INT(status_for(&auth, NULL, "http://evil"), 403);
}

static void ingest_only(void) {
	static const char *const closed[][2] = {
		{ "GET", "/v1/stats" },
		{ "GET", "/v1/messages/1" },
		{ "GET", "/metrics" },
		{ "POST", "/v1/handlers/ok/pause" },
		{ "POST", "/v1/deliveries/discard" },
		{ "POST", "/v1/cleanup" },
		{ "POST", "/v1/marks" },
	};
	const struct postern_header id = { "Idempotency-Key", "a" };
	struct fixture self;
	fixture_init(&self);
	for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++) {
		const struct postern__request request = {
			.method = closed[i][0],
			.path = closed[i][1],
			.ingest_only = true,
		};
		CHECK_INT(fixture_request(&self, &request), 404);
	}
	struct postern__request request = {
		.method = "GET",
		.path = "/healthz",
		.ingest_only = true,
	};
	CHECK_INT(fixture_request(&self, &request), 200);
	request.method = "POST";
	request.path = "/v1/channels/orders/messages";
	request.headers = &id;
	request.header_count = 1;
	request.body = "";
	CHECK_INT(fixture_request(&self, &request), 202);
	fixture_finish(&self);
}

static void lists_of_hosts(void) {
	static const char *const bad[] = { "https://a", "a:80", "a,,b", "a b",
		"a/b", "*" };
	CHECK_INT(postern__auth_hosts_check("a.example, b-2,c_d", NULL),
			POSTERN_OK);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		CHECK_INT(postern__auth_hosts_check(bad[i], NULL), POSTERN_E_INVALID);
	}
}

static const struct tap_case cases[] = {
	{ "only the whole token is the token", whole_token },
	{ "a token that is short or cannot be in a header is refused", bad_tokens },
	{ "without tokens a request must name this machine", web_pages },
	{ "an address for messages serves nothing else", ingest_only },
	{ "a list of hosts has names only", lists_of_hosts },
};

TAP_MAIN(cases)
