/* SPDX-License-Identifier: MIT */

/*
 * The routes of workers: claim deliveries of a pull handler, settle them, and
 * extend a lease. A claim may wait long, so it holds no thread: the box answers
 * it on a thread of its runner.
 */

#include <inttypes.h>
#include <jansson.h>
#include <postern/error.h>
#include <postern/pull.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "core/pull.h"
#include "server/route.h"

/* The bodies of one answer, as bytes; one that is longer is sent alone. */
#define ANSWER_BODIES_MAX ((size_t)4 * 1024 * 1024)

/* A number of the request, also as a text. False: refused. */
static bool read_number(struct postern__call *call, const char *name,
		const json_t *value, uint64_t max, uint64_t *out) {
	const char *text = json_string_value(value);
	bool good = json_is_integer(value) && json_integer_value(value) > 0 &&
				(uint64_t)json_integer_value(value) <= max;
	if (good) {
		*out = (uint64_t)json_integer_value(value);
	} else if (text) {
		good = postern__count_parse(text, 1, max, out, NULL) == POSTERN_OK;
	}
	if (!good) {
		postern__call_refuse(call, 400,
				"%s: it must be a number from 1 to %" PRIu64, name, max);
	}
	return good;
}

/* A duration such as "20s". False: refused. */
static bool read_span(struct postern__call *call, const char *name,
		const json_t *value, int64_t min, int64_t max, int64_t *out) {
	struct postern_error error;
	const char *text = json_string_value(value);
	char from[POSTERN__DURATION_TEXT_MAX];
	char to[POSTERN__DURATION_TEXT_MAX];
	if (!text) {
		postern__call_refuse(call, 400,
				"%s: it must be a duration in a text, such as \"20s\"", name);
		return false;
	}
	if (postern__duration_parse(text, out, &error) != POSTERN_OK) {
		postern__call_refuse(call, 400, "%s: %s", name, error.text);
		return false;
	}
	if (*out < min || *out > max) {
		postern__duration_format(min, from);
		postern__duration_format(max, to);
		postern__call_refuse(call, 400, "%s: it must be between %s and %s",
				name, from, to);
		return false;
	}
	return true;
}

static bool read_lease(struct postern__call *call, const json_t *value,
		int64_t *out) {
	return read_span(call, "lease", value, POSTERN_PULL_LEASE_MS_MIN,
			POSTERN_PULL_LEASE_MS_MAX, out);
}

static void refuse_member(struct postern__call *call, const char *name) {
	postern__call_refuse(call, 400, "unknown member '%.60s'", name);
}

/* The store that has this handler, which was perhaps a pull handler when its
   deliveries were claimed; NULL: none has. */
static const struct postern__open_store *
find_store(const struct postern__call *call, const char *handler) {
	const struct postern__open_store *found = NULL;
	for (size_t i = 0; i < call->store_count; i++) {
		if (postern__box_has_handler(call->stores[i]->box, handler, true)) {
			return call->stores[i];
		}
		if (!found && postern__box_has_handler(call->stores[i]->box, handler,
							  false)) {
			found = call->stores[i];
		}
	}
	return found;
}

/* The same for the handler in the path; for an unknown one any store, which
   will report that. */
static const struct postern__open_store *
store_of(const struct postern__call *call, const char *handler) {
	const struct postern__open_store *store = find_store(call, handler);
	return store ? store : call->stores[0];
}

/* A claim that waits. */
struct claiming {
	struct postern__response *response;
	bool (*reserve)(void *context, size_t len);
	void *sender_context;
	postern__api_done *done;
	void *done_context;
};

static void write_pulled(struct postern__buf *body,
		const struct postern_pulled *item, size_t *room) {
	postern__json_open(body, '{');
	postern__json_pair_int(body, "seq", item->seq);
	postern__json_pair_uint(body, "fence", item->fence);
	postern__json_pair_uint(body, "attempt", item->attempt);
	postern__json_pair_text(body, "handler", item->handler);
	postern__json_key(body, "message");
	postern__json_open(body, '{');
	postern__write_attributes(body, item->message, item->channel);
	postern__json_close(body, '}');
	postern__write_body(body, item->message, room);
	postern__json_close(body, '}');
}

/* False: the answer does not fit into memory. */
static bool write_batch(struct postern__response *response,
		const struct postern_pull_batch *batch) {
	struct postern__buf *body = &response->body;
	size_t room = SIZE_MAX;
	postern__json_open(body, '{');
	postern__json_key(body, "items");
	postern__json_open(body, '[');
	for (size_t i = 0; i < postern_pull_batch_count(batch); i++) {
		write_pulled(body, postern_pull_batch_get(batch, i), &room);
	}
	postern__json_close(body, ']');
	postern__json_close(body, '}');
	response->status = 200;
	bool ok = body->failed == POSTERN_OK;
	postern__response_check(response);
	return ok;
}

static void write_error(struct postern__response *response,
		const struct postern_error *error) {
	if (error->code == POSTERN_E_BUSY) {
		postern__response_problem(response, 503, error->code, error->text);
		postern__response_header(response, "Retry-After", "1");
	} else {
		postern__response_fail(response, error);
	}
}

/* Without room for the answer its deliveries are returned: a worker that never
   got them would lose an attempt of each. False: refused. */
static bool reserve_answer(const struct claiming *claiming) {
	struct postern__response *response = claiming->response;
	if (!claiming->reserve ||
			claiming->reserve(claiming->sender_context, response->body.len)) {
		return true;
	}
	postern__response_problem(response, 503, POSTERN_E_BUSY,
			"too many concurrent requests; retry later");
	postern__response_header(response, "Retry-After", "1");
	return false;
}

static bool finish_claim(void *context, struct postern_pull_batch *batch,
		const struct postern_error *error) {
	struct claiming *claiming = context;
	bool kept = batch && write_batch(claiming->response, batch) &&
				reserve_answer(claiming);
	if (error) {
		write_error(claiming->response, error);
	}
	if (kept) {
		postern_pull_batch_destroy(batch);
	}
	claiming->done(claiming->done_context);
	free(claiming);
	return kept;
}

/* False: refused. */
static bool read_claim(struct postern__call *call, const json_t *json,
		struct postern_pull_options *options) {
	const char *name;
	json_t *value;
	uint64_t max = 1;
	json_object_foreach((json_t *)(uintptr_t)json, name, value) {
		bool good = false;
		if (strcmp(name, "max") == 0) {
			good = read_number(call, name, value, POSTERN_PULL_COUNT_MAX, &max);
		} else if (strcmp(name, "wait") == 0) {
			good = read_span(call, name, value, 0, POSTERN_PULL_WAIT_MS_MAX,
					&options->wait_ms);
		} else if (strcmp(name, "lease") == 0) {
			good = read_lease(call, value, &options->lease_ms);
		} else {
			refuse_member(call, name);
		}
		if (!good) {
			return false;
		}
	}
	options->max = (uint32_t)max;
	return true;
}

/* Without a server: wait here. */
static int claim_now(struct postern__call *call, struct postern_box *box,
		const struct postern_pull_options *options,
		struct postern_error *error) {
	struct postern_pull_batch *batch = NULL;
	int r = postern_box_pull(box, options, &batch, error);
	if (r == POSTERN_OK) {
		(void)write_batch(call->response, batch);
		postern_pull_batch_destroy(batch);
	}
	return r;
}

static int claim_later(struct postern__call *call, struct postern_box *box,
		const struct postern_pull_options *options,
		struct postern_error *error) {
	struct claiming *claiming = malloc(sizeof *claiming);
	if (!claiming) {
		error->code = POSTERN_E_NOMEM;
		return error->code;
	}
	*claiming = (struct claiming){
		.response = call->response,
		.reserve = call->request->reserve,
		.sender_context = call->request->sender_context,
		.done = call->done,
		.done_context = call->done_context,
	};
	/* From here on another thread may complete the response. */
	int r = postern_box_pull_async(box, options, finish_claim, claiming, error);
	call->pending = r == POSTERN_OK;
	if (r != POSTERN_OK) {
		free(claiming);
	}
	return r;
}

void postern__route_claim(struct postern__call *call) {
	struct postern_error error = { 0 };
	struct postern_pull_options options = {
		.size = sizeof options,
		.handler = call->parts[0],
		.bytes_max = ANSWER_BODIES_MAX,
		.wanted = call->request->wanted,
		.wanted_context = call->request->sender_context,
	};
	if (!postern__call_store_query(call)) {
		return;
	}
	json_t *json = call->request->body_len > 0 ? postern__call_object(call)
											   : json_object();
	if (!json || !read_claim(call, json, &options)) {
		json_decref(json);
		return;
	}
	json_decref(json);
	struct postern_box *box = store_of(call, call->parts[0])->box;
	int r = call->done ? claim_later(call, box, &options, &error)
					   : claim_now(call, box, &options, &error);
	if (r != POSTERN_OK) {
		error.code = r;
		write_error(call->response, &error);
	}
}

/* The results of one request, and the store of each. */
struct results {
	struct postern_pull_result items[POSTERN_PULL_COUNT_MAX];
	const struct postern__open_store *stores[POSTERN_PULL_COUNT_MAX];
	struct postern_pull_result chosen[POSTERN_PULL_COUNT_MAX];
	size_t count;
};

static bool read_outcome(struct postern__call *call, const char *text,
		enum postern_outcome_kind *out) {
	static const struct {
		const char *name;
		enum postern_outcome_kind kind;
	} outcomes[] = {
		{ "done", POSTERN_DONE },
		{ "retry", POSTERN_RETRY },
		{ "retry_after", POSTERN_RETRY_AFTER },
		{ "snooze", POSTERN_SNOOZE },
		{ "poison", POSTERN_POISON },
		{ "discard", POSTERN_DISCARD },
		{ "hold", POSTERN_HOLD },
	};
	for (size_t i = 0; text && i < sizeof outcomes / sizeof outcomes[0]; i++) {
		if (strcmp(outcomes[i].name, text) == 0) {
			*out = outcomes[i].kind;
			return true;
		}
	}
	postern__call_refuse(call, 400,
			"outcome: it must be done, retry, retry_after, snooze, poison, "
			"discard or hold");
	return false;
}

static bool read_string(struct postern__call *call, const char *name,
		const json_t *value, const char **out) {
	*out = json_string_value(value);
	if (!*out) {
		postern__call_refuse(call, 400, "%s: it must be a text", name);
	}
	return *out != NULL;
}

/* Read one member of an item. False: refused. */
static bool read_result_member(struct postern__call *call, const char *name,
		const json_t *value, struct postern_pull_result *out) {
	uint64_t seq = 0;
	if (strcmp(name, "seq") == 0) {
		bool good = read_number(call, name, value, INT64_MAX, &seq);
		out->seq = (int64_t)seq;
		return good;
	}
	if (strcmp(name, "fence") == 0) {
		return read_number(call, name, value, INT64_MAX, &out->fence);
	}
	if (strcmp(name, "handler") == 0) {
		return read_string(call, name, value, &out->handler);
	}
	if (strcmp(name, "outcome") == 0) {
		return read_outcome(call, json_string_value(value), &out->outcome);
	}
	if (strcmp(name, "delay") == 0) {
		return read_span(call, name, value, 0, POSTERN_DURATION_MS_MAX,
				&out->delay_ms);
	}
	if (strcmp(name, "reason") == 0) {
		return json_is_null(value) ||
			   read_string(call, name, value, &out->reason);
	}
	refuse_member(call, name);
	return false;
}

/* Read one item; its texts belong to the JSON. False: refused. */
static bool read_result(struct postern__call *call, const json_t *json,
		struct postern_pull_result *out) {
	static const char *const required[] = { "seq", "handler", "fence",
		"outcome" };
	const char *name;
	json_t *value;
	*out = (struct postern_pull_result){ .size = sizeof *out };
	if (!json_is_object(json)) {
		postern__call_refuse(call, 400, "an item must be a JSON object");
		return false;
	}
	for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
		if (!json_object_get(json, required[i])) {
			postern__call_refuse(call, 400, "an item needs the member '%s'",
					required[i]);
			return false;
		}
	}
	json_object_foreach((json_t *)(uintptr_t)json, name, value) {
		if (!read_result_member(call, name, value, out)) {
			return false;
		}
	}
	if (out->outcome == POSTERN_RETRY && json_object_get(json, "delay")) {
		out->outcome = POSTERN_RETRY_AFTER;
	}
	return postern__call_may_handle(call, out->handler);
}

static bool read_results(struct postern__call *call, const json_t *json,
		struct results *out) {
	const json_t *items = json_object_get(json, "items");
	size_t count = json_array_size(items);
	if (!json_is_array(items) || json_object_size(json) != 1 || count == 0 ||
			count > POSTERN_PULL_COUNT_MAX) {
		postern__call_refuse(call, 400,
				"the body must be {\"items\":[...]} with 1 to %d items",
				POSTERN_PULL_COUNT_MAX);
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		if (!read_result(call, json_array_get(items, i), &out->items[i])) {
			return false;
		}
		out->stores[i] = find_store(call, out->items[i].handler);
		out->items[i].code = POSTERN_E_NOTFOUND;
	}
	out->count = count;
	return true;
}

/* Settle the items of one store. */
static int settle_in(const struct postern__open_store *store,
		struct results *results, struct postern_error *error) {
	size_t count = 0;
	for (size_t i = 0; i < results->count; i++) {
		if (results->stores[i] == store) {
			results->chosen[count++] = results->items[i];
		}
	}
	int r = count > 0 ? postern_box_settle(store->box, results->chosen, count,
								error)
					  : POSTERN_OK;
	count = 0;
	for (size_t i = 0; r == POSTERN_OK && i < results->count; i++) {
		if (results->stores[i] == store) {
			results->items[i].code = results->chosen[count++].code;
		}
	}
	return r;
}

static void write_items(struct postern__buf *body,
		const struct results *results) {
	postern__json_key(body, "items");
	postern__json_open(body, '[');
	for (size_t i = 0; i < results->count; i++) {
		const struct postern_pull_result *item = &results->items[i];
		postern__json_open(body, '{');
		postern__json_pair_int(body, "seq", item->seq);
		postern__json_pair_text(body, "handler", item->handler);
		postern__json_pair_text(body, "status",
				item->code == POSTERN_OK        ? "settled"
				: item->code == POSTERN_E_STALE ? "late"
												: "unknown");
		postern__json_close(body, '}');
	}
	postern__json_close(body, ']');
}

static void write_results(struct postern__call *call,
		const struct results *results) {
	struct postern__buf *body = &call->response->body;
	if (results->count == 1 && results->items[0].code == POSTERN_E_STALE) {
		postern__response_open_problem(call->response, 409, POSTERN_E_STALE,
				"the result is too late: the lease has ended, or the delivery "
				"was claimed again");
	} else {
		call->response->status = 200;
		postern__json_open(body, '{');
	}
	write_items(body, results);
	postern__json_close(body, '}');
}

void postern__route_settle(struct postern__call *call) {
	struct postern_error error;
	int r = POSTERN_OK;
	json_t *json = NULL;
	struct results *results = calloc(1, sizeof *results);
	if (!results) {
		postern__call_refuse(call, 503, "out of memory");
		return;
	}
	if (!postern__call_store_query(call) ||
			!(json = postern__call_object(call)) ||
			!read_results(call, json, results)) {
		goto out;
	}
	/* An item that was settled before another store failed is settled again
	   when the request is repeated, which changes nothing. */
	for (size_t i = 0; r == POSTERN_OK && i < call->store_count; i++) {
		r = settle_in(call->stores[i], results, &error);
		if (r != POSTERN_OK) {
			postern__call_fail_in(call, call->stores[i], &error);
		}
	}
	if (r == POSTERN_OK) {
		write_results(call, results);
	}
out:
	json_decref(json);
	free(results);
}

/* False: refused. */
static bool read_extension(struct postern__call *call, json_t *json,
		uint64_t *fence, int64_t *lease_ms) {
	const char *name;
	json_t *value;
	json_object_foreach(json, name, value) {
		bool is_fence = strcmp(name, "fence") == 0;
		if (!is_fence && strcmp(name, "lease") != 0) {
			refuse_member(call, name);
			return false;
		}
		if (is_fence ? !read_number(call, name, value, INT64_MAX, fence)
					 : !read_lease(call, value, lease_ms)) {
			return false;
		}
	}
	if (*fence == 0 || *lease_ms == 0) {
		postern__call_refuse(call, 400,
				"the body must be {\"fence\":7,\"lease\":\"60s\"}");
	}
	return *fence > 0 && *lease_ms > 0;
}

void postern__route_extend(struct postern__call *call) {
	int64_t seq;
	uint64_t fence = 0;
	int64_t lease_ms = 0;
	int64_t until_ms = 0;
	struct postern_error error;
	if (!postern__call_store_query(call) ||
			!postern__call_seq(call, call->parts[0], &seq)) {
		return;
	}
	json_t *json = postern__call_object(call);
	if (!json || !read_extension(call, json, &fence, &lease_ms)) {
		json_decref(json);
		return;
	}
	json_decref(json);
	const struct postern__open_store *store = store_of(call, call->parts[1]);
	int r = postern_box_extend(store->box, seq, call->parts[1], fence, lease_ms,
			&until_ms, &error);
	if (r == POSTERN_E_STALE) {
		postern__response_problem(call->response, 409, r, error.text);
	} else if (r != POSTERN_OK) {
		postern__call_fail_in(call, store, &error);
	} else {
		struct postern__buf *body = &call->response->body;
		call->response->status = 200;
		postern__json_open(body, '{');
		postern__json_pair_time(body, "lease_until", until_ms);
		postern__json_close(body, '}');
	}
}
