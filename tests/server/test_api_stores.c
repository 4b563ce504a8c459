/* SPDX-License-Identifier: MIT */

/*
 * The API on two memory stores: "left" with the channel "a", "right" with the
 * channel "b". No handler wants the messages, so each is one parked row.
 */

#include <stdio.h>
#include <string.h>

#include "api_fixture.h"
#include "server/config.h"
#include "tap.h"

#define EACH 4
#define LINE_MAX_LEN 200

struct pair {
	struct fixture fixture; /* its own box is not used */
	struct postern__config *config;
	struct postern__stores stores;
};

static void open_pair(struct pair *self) {
	static const char text[] = "stores: {left: {url: memory}, right: {url: "
							   "memory}}\n"
							   "channels: {a: {store: left}, b: {store: "
							   "right}}\n";
	struct postern_error error;
	fixture_init(&self->fixture);
	self->stores.count = 0;
	CHECK_OK(postern__config_parse("f", text, strlen(text), NULL, &self->config,
					 &error),
			&error);
	for (size_t i = 0; i < postern__config_store_count(self->config); i++) {
		const struct postern__config_store *store =
				postern__config_store(self->config, i);
		struct postern_box *box;
		struct postern_box_options options;
		postern__config_box_options(store, &options);
		CHECK_OK(postern_box_open("memory:", &options, &box, &error), &error);
		CHECK_OK(postern__config_apply(self->config, store, box, &error),
				&error);
		CHECK_OK(postern_box_start(box, &error), &error);
		CHECK_OK(postern__stores_take(&self->stores, store->name,
						 "memory:", box, &error),
				&error);
	}
	self->fixture.api.stores = &self->stores;
	self->fixture.api.config = self->config;
}

static void close_pair(struct pair *self) {
	postern__stores_finish(&self->stores);
	postern__config_destroy(self->config);
	fixture_finish(&self->fixture);
}

static void fill(struct pair *self) {
	for (int i = 1; i <= EACH; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "a%d", i);
		CHECK_INT(fixture_message(&self->fixture, "a", id, "x"), 202);
		CHECK_STR(fixture_text(&self->fixture, "store"), "left");
		(void)snprintf(id, sizeof id, "b%d", i);
		CHECK_INT(fixture_message(&self->fixture, "b", id, "x"), 202);
		CHECK_STR(fixture_text(&self->fixture, "store"), "right");
		CHECK_INT(fixture_number(&self->fixture, "seq"), i);
	}
}

/* Append the ids of a page to `ids`; returns whether there is another page. */
static bool append_page(struct pair *self, const char *line, char *ids,
		char *cursor) {
	CHECK_INT(fixture_get(&self->fixture, line), 200);
	size_t index;
	json_t *row;
	json_array_foreach(fixture_value(&self->fixture, "items"), index, row) {
		size_t len = strlen(ids);
		(void)snprintf(ids + len, LINE_MAX_LEN - len, "%s ",
				json_string_value(json_object_get(row, "message_id")));
	}
	const char *next = fixture_text(&self->fixture, "cursor");
	CHECK(index > 0);
	(void)snprintf(cursor, LINE_MAX_LEN, "%s", next ? next : "");
	return next != NULL;
}

static void paging(void) {
	struct pair self;
	open_pair(&self);
	fill(&self);
	for (int limit = 1; limit <= 2 * EACH + 1; limit++) {
		char ids[LINE_MAX_LEN] = "";
		char cursor[LINE_MAX_LEN] = "";
		char line[LINE_MAX_LEN + 100];
		int pages = 0;
		do {
			(void)snprintf(line, sizeof line,
					"GET /v1/deliveries?limit=%d&cursor=%s", limit, cursor);
		} while (append_page(&self, line, ids, cursor) && ++pages < 20);
		CHECK_STR(ids, "a4 a3 a2 a1 b4 b3 b2 b1 ");
		CHECK_INT(pages, (2 * EACH - 1) / limit);
	}
	static const char *const bad[] = { "left", "nobody:", ":", "left:zzz" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char line[100];
		(void)snprintf(line, sizeof line, "GET /v1/deliveries?cursor=%s",
				bad[i]);
		CHECK_INT(fixture_get(&self.fixture, line), 400);
	}
	close_pair(&self);
}

static void numbers(void) {
	struct pair self;
	open_pair(&self);
	fill(&self);
	CHECK_INT(fixture_message(&self.fixture, "b", "more", "x"), 202);
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages/1"), 409);
	CHECK_CONTAINS(fixture_text(&self.fixture, "detail"),
			"1 (left, right): choose one with ?store=NAME");
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages/1/body"), 409);
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages/1?store=right"),
			200);
	CHECK_STR(fixture_text(&self.fixture, "id"), "b1");
	/* Only one store has this number. */
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages/5"), 200);
	CHECK_STR(fixture_text(&self.fixture, "store"), "right");
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages/6"), 404);
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages/1?store=rihgt"),
			404);
	CHECK_CONTAINS(fixture_text(&self.fixture, "detail"), "'right'?");
	CHECK_INT(fixture_get(&self.fixture, "POST /v1/deliveries/1//discard"),
			409);
	CHECK_INT(fixture_get(&self.fixture,
					  "POST /v1/deliveries/1//discard?store=left"),
			200);
	CHECK_STR(fixture_text(&self.fixture, "store"), "left");
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages?id=b2"), 200);
	CHECK_STR(fixture_text(&self.fixture, "items.0.store"), "right");
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages?id=b2&store=left"),
			200);
	CHECK(!fixture_value(&self.fixture, "items.0"));
	close_pair(&self);
}

static void bulk(void) {
	struct pair self;
	open_pair(&self);
	fill(&self);
	CHECK_INT(fixture_post(&self.fixture, "POST /v1/deliveries/discard",
					  "{\"filter\":{\"store\":\"right\"}}"),
			400);
	CHECK_INT(fixture_post(&self.fixture, "POST /v1/deliveries/discard",
					  "{\"filter\":{\"state\":\"parked\"},\"limit\":5}"),
			200);
	CHECK_INT(fixture_number(&self.fixture, "count"), 5);
	CHECK_INT(fixture_post(&self.fixture, "POST /v1/deliveries/discard",
					  "{\"filter\":{\"state\":\"parked\",\"store\":"
					  "\"left\"}}"),
			200);
	CHECK_INT(fixture_number(&self.fixture, "count"), 0);
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/deliveries?state=parked"),
			200);
	CHECK_INT(json_array_size(fixture_value(&self.fixture, "items")), 3);
	CHECK_STR(fixture_text(&self.fixture, "items.0.store"), "right");
	close_pair(&self);
}

static size_t count_with(struct pair *self, const char *const *headers) {
	int status = fixture_send(&self->fixture, "GET /v1/deliveries", headers,
			NULL, 0);
	return status == 200
				   ? json_array_size(fixture_value(&self->fixture, "items"))
				   : (size_t)status;
}

static void scopes(void) {
	static const char *const one[] = { "Postern-Store: right", NULL };
	static const char *const both[] = { "postern-store: right",
		"Postern-Store: left", "Postern-Store: right", NULL };
	static const char *const lost[] = { "Postern-Store: right",
		"Postern-Store: 1:2", NULL };
	struct pair self;
	open_pair(&self);
	fill(&self);
	CHECK_INT(count_with(&self, one), EACH);
	CHECK_STR(fixture_text(&self.fixture, "items.0.store"), "right");
	CHECK_INT(count_with(&self, both), 2 * EACH);
	CHECK_INT(count_with(&self, lost), 421);
	CHECK_INT(count_with(&self, NULL), 2 * EACH);
	/* A message for a channel of a store that is not named is not accepted. */
	static const char *const other[] = { "Postern-Store: left",
		"Idempotency-Key: x", NULL };
	CHECK_INT(fixture_send(&self.fixture, "POST /v1/channels/b/messages", other,
					  "x", 1),
			404);
	CHECK_INT(fixture_send(&self.fixture, "POST /v1/channels/a/messages", other,
					  "x", 1),
			202);
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/messages/5"), 200);
	CHECK_INT(json_array_size(fixture_value(&self.fixture, "headers")), 0);
	close_pair(&self);
}

static void cleaning(void) {
	struct pair self;
	atomic_bool flags[2] = { true, false };
	open_pair(&self);
	self.fixture.api.cleaning = flags;
	CHECK_INT(fixture_get(&self.fixture, "POST /v1/cleanup"), 200);
	CHECK_STR(fixture_text(&self.fixture, "stores.0.store"), "left");
	CHECK(json_is_true(fixture_value(&self.fixture, "stores.0.busy")));
	CHECK_STR(fixture_text(&self.fixture, "stores.1.store"), "right");
	CHECK(json_is_false(fixture_value(&self.fixture, "stores.1.busy")));
	CHECK_INT(fixture_get(&self.fixture, "POST /v1/cleanup?store=right"), 200);
	CHECK(json_is_false(fixture_value(&self.fixture, "stores.0.busy")));
	CHECK(atomic_load(&flags[0]));
	CHECK(!atomic_load(&flags[1]));
	close_pair(&self);
}

static const struct tap_case cases[] = {
	{ "a listing continues in the next store, whatever the page size", paging },
	{ "a number that two stores have needs the name of a store", numbers },
	{ "the limit of a bulk edit is one for all stores", bulk },
	{ "a request uses the stores that it names, and fails if one is missing",
			scopes },
	{ "a cleanup of one store does not keep another busy", cleaning },
};

TAP_MAIN(cases)
