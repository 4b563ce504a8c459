/* SPDX-License-Identifier: MIT */

/* See the header. A failure here is not a failed test: it aborts. */

#include "api_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int code, const struct postern_error *error) {
	if (code != POSTERN_OK) {
		(void)fprintf(stderr, "the fixture failed: %s\n", error->text);
		abort();
	}
}

static void run_done(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)message;
	(void)delivery;
	(void)outcome;
}

static void run_poison(void *context, const struct postern_message *message,
		const struct postern_delivery *delivery,
		struct postern_outcome *outcome) {
	(void)context;
	(void)message;
	(void)delivery;
	postern_outcome_set(outcome, POSTERN_POISON, 0, "it is <bad>");
}

static void add_handler(struct fixture *self, const char *channel,
		const char *key, const char *type, postern_callback *callback) {
	struct postern_error error;
	struct postern_handler_options options = {
		.size = sizeof options,
		.key = key,
		.types = &type,
		.type_count = 1,
		.callback = callback,
	};
	must(postern_box_add_handler(self->box, channel, &options, &error), &error);
}

static void add_channel(struct fixture *self, const char *name,
		enum postern_unrouted unrouted, int64_t retention_ms) {
	struct postern_error error;
	struct postern_channel_options options = {
		.size = sizeof options,
		.unrouted = unrouted,
		.retention_payload_ms = retention_ms,
	};
	must(postern_box_add_channel(self->box, name, &options, &error), &error);
}

void fixture_init(struct fixture *self) {
	struct postern_error error;
	*self = (struct fixture){ .status = 0 };
	postern__response_init(&self->response);
	fake_clock_init(&self->clock);
	struct postern_box_options options = {
		.size = sizeof options,
		.clock = &self->clock.base,
	};
	must(postern_box_open("memory:", &options, &self->box, &error), &error);
	add_channel(self, "orders", POSTERN_UNROUTED_PARK, 0);
	add_handler(self, "orders", "ok", "*", run_done);
	add_handler(self, "orders", "no/good", "*", run_poison);
	add_channel(self, "strict", POSTERN_UNROUTED_REJECT, 0);
	add_handler(self, "strict", "only-order", "order.*", run_done);
	add_channel(self, "drops", POSTERN_UNROUTED_DROP, FIXTURE_RETENTION_MS);
	add_handler(self, "drops", "drop-order", "order.*", run_done);
	add_channel(self, "parks", POSTERN_UNROUTED_PARK, 0);
	must(postern_box_start(self->box, &error), &error);
	self->stores.items[0] = (struct postern__open_store){
		.name = "default",
		.box = self->box,
	};
	must(postern_guard_create(self->box, NULL, &self->stores.items[0].guard,
				 &error),
			&error);
	self->stores.count = 1;
	self->api = (struct postern__api){
		.stores = &self->stores,
		.clock = &self->clock.base,
	};
}

static void release_response(struct fixture *self) {
	postern__response_finish(&self->response);
	json_decref(self->json);
	self->json = NULL;
}

void fixture_finish(struct fixture *self) {
	release_response(self);
	postern_guard_destroy(self->stores.items[0].guard);
	postern_box_destroy(self->box);
}

int fixture_request(struct fixture *self,
		const struct postern__request *request) {
	release_response(self);
	postern__response_init(&self->response);
	postern__api_handle(&self->api, request, &self->response);
	self->status = self->response.status;
	self->json = json_loadb(postern__buf_text(&self->response.body),
			self->response.body.len, JSON_REJECT_DUPLICATES, NULL);
	return self->status;
}

#define HEADER_COUNT_MAX 200

int fixture_send(struct fixture *self, const char *line,
		const char *const *lines, const void *body, size_t body_len) {
	struct postern_header headers[HEADER_COUNT_MAX];
	size_t count = 0;
	char *copy = strdup(line);
	char *names[HEADER_COUNT_MAX];
	char *path = copy ? strchr(copy, ' ') : NULL;
	if (!path) {
		abort();
	}
	*path++ = '\0';
	char *query = strchr(path, '?');
	if (query) {
		*query++ = '\0';
	}
	for (; lines && lines[count]; count++) {
		char *colon = strstr(names[count] = strdup(lines[count]), ": ");
		*colon = '\0';
		headers[count] = (struct postern_header){ names[count], colon + 2 };
	}
	struct postern__request request = {
		.method = copy,
		.path = path,
		.query = query,
		.transport = "test",
		.headers = headers,
		.header_count = count,
		.body = body,
		.body_len = body_len,
	};
	(void)fixture_request(self, &request);
	while (count > 0) {
		free(names[--count]);
	}
	free(copy);
	return self->status;
}

int fixture_get(struct fixture *self, const char *line) {
	return fixture_send(self, line, NULL, NULL, 0);
}

int fixture_post(struct fixture *self, const char *line, const char *json) {
	const char *const headers[] = { "Content-Type: application/json", NULL };
	return fixture_send(self, line, headers, json, strlen(json));
}

int fixture_message(struct fixture *self, const char *channel, const char *id,
		const char *body) {
	char line[400];
	char ce_id[400];
	(void)snprintf(line, sizeof line, "POST /v1/channels/%s/messages", channel);
	(void)snprintf(ce_id, sizeof ce_id, "ce-id: %s", id);
	const char *const headers[] = { "ce-specversion: 1.0", ce_id,
		"ce-source: shop", "ce-type: order.placed", NULL };
	return fixture_send(self, line, headers, body, strlen(body));
}

void fixture_process(struct fixture *self) {
	struct postern_error error;
	must(postern_box_process(self->box, 0, NULL, &error), &error);
}

json_t *fixture_value(const struct fixture *self, const char *path) {
	json_t *json = self->json;
	while (json && *path) {
		char part[64];
		size_t len = strcspn(path, ".");
		(void)snprintf(part, sizeof part, "%.*s", (int)len, path);
		json = json_is_array(json)
					   ? json_array_get(json, strtoul(part, NULL, 10))
					   : json_object_get(json, part);
		path += len + (path[len] == '.');
	}
	return json;
}

const char *fixture_text(const struct fixture *self, const char *path) {
	return json_string_value(fixture_value(self, path));
}

long long fixture_number(const struct fixture *self, const char *path) {
	json_t *json = fixture_value(self, path);
	return json_is_integer(json) ? json_integer_value(json) : -1;
}

const char *fixture_header(const struct fixture *self, const char *name) {
	for (size_t i = 0; i < self->response.header_count; i++) {
		if (strcmp(self->response.headers[i].name, name) == 0) {
			return self->response.headers[i].value;
		}
	}
	return NULL;
}
