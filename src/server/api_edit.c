/* SPDX-License-Identifier: MIT */

/*
 * The routes by which an operator changes something: retry and discard, one or
 * many, pause and resume, cleanup.
 *
 * The filter of a bulk edit decides what is changed, so its JSON is read
 * strictly: an unknown member, a repeated one or one of the wrong type is
 * refused, and an empty filter is not the same as "all".
 */

#include <inttypes.h>
#include <jansson.h>
#include <postern/box.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json_text.h"
#include "base/text.h"
#include "server/route.h"

/* jansson's own limit is 2048 levels and cannot be changed. */
static bool is_too_deep(const char *text, size_t len) {
	unsigned depth = 0;
	bool in_string = false;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (in_string && c == '\\') {
			i++;
		} else if (c == '"') {
			in_string = !in_string;
		} else if (!in_string && (c == '{' || c == '[')) {
			if (++depth > POSTERN__API_JSON_DEPTH_MAX) {
				return true;
			}
		} else if (!in_string && (c == '}' || c == ']') && depth > 0) {
			depth--;
		}
	}
	return false;
}

static bool is_json_type(const char *type) {
	static const char json[] = "application/json";
	if (!type || strncasecmp(type, json, sizeof json - 1) != 0) {
		return false;
	}
	char next = type[sizeof json - 1];
	return next == '\0' || next == ';' || next == ' ' || next == '\t';
}

/* The body as a JSON object, yours to json_decref(). NULL: refused. */
static json_t *read_object(struct postern__call *call) {
	const struct postern__request *request = call->request;
	if (!is_json_type(postern__call_header(call, "content-type"))) {
		postern__call_refuse(call, 415,
				"the body must be JSON, with Content-Type: application/json");
		return NULL;
	}
	if (is_too_deep(request->body, request->body_len)) {
		postern__call_refuse(call, 400, "the JSON is nested too deeply");
		return NULL;
	}
	json_error_t trouble;
	json_t *json = json_loadb(request->body, request->body_len,
			JSON_REJECT_DUPLICATES, &trouble);
	if (!json) {
		postern__call_refuse(call, 400, "line %d, column %d of the JSON: %s",
				trouble.line, trouble.column, trouble.text);
		return NULL;
	}
	if (!json_is_object(json)) {
		json_decref(json);
		postern__call_refuse(call, 400, "the body must be a JSON object");
		return NULL;
	}
	return json;
}

/* For requests without parameters: no body, or {}. */
static bool check_no_body(struct postern__call *call) {
	if (call->request->body_len == 0) {
		return true;
	}
	json_t *json = read_object(call);
	if (!json) {
		return false;
	}
	bool empty = json_object_size(json) == 0;
	json_decref(json);
	if (!empty) {
		postern__call_refuse(call, 400, "the request must not have a body");
	}
	return empty;
}

typedef int edit_one(struct postern_box *box, int64_t seq, const char *handler,
		struct postern_error *error);

static void edit_one_delivery(struct postern__call *call, edit_one *edit,
		const char *status) {
	int64_t seq;
	if (!check_no_body(call) || !postern__call_store_query(call) ||
			!postern__call_seq(call, call->parts[0], &seq)) {
		return;
	}
	const struct postern__open_store *store = postern__call_of_seq(call, seq);
	if (!store) {
		return;
	}
	const char *handler = call->parts[1];
	struct postern_error error;
	int r = edit(store->box, seq, handler, &error);
	if (r == POSTERN_E_INVALID || r == POSTERN_E_BUSY) {
		/* The request is valid; the state of the delivery does not allow it. */
		postern__response_problem(call->response, 409, r, error.text);
		return;
	}
	if (r != POSTERN_OK) {
		postern__call_fail_in(call, store, &error);
		return;
	}
	struct postern__buf *body = &call->response->body;
	postern__json_open(body, '{');
	postern__json_pair_text(body, "status", status);
	postern__json_pair_text(body, "store", store->name);
	postern__json_pair_int(body, "seq", seq);
	postern__json_pair_text(body, "handler", handler);
	postern__json_close(body, '}');
	call->response->status = 200;
}

void postern__route_retry(struct postern__call *call) {
	edit_one_delivery(call, postern_box_retry, "retried");
}

void postern__route_discard(struct postern__call *call) {
	edit_one_delivery(call, postern_box_discard, "discarded");
}

/* Members of a filter are strings; a number may be written as a number. */
static bool set_filter(struct postern__call *call, json_t *json,
		struct postern_filter *filter) {
	if (!json_is_object(json) || json_object_size(json) == 0) {
		postern__call_refuse(call, 400,
				"'filter' must be an object with at least one of: %s",
				"state, channel, handler, type, since, until, message_id, "
				"source, seq, store");
		return false;
	}
	const char *name;
	json_t *value;
	json_object_foreach(json, name, value) {
		char number[24];
		const char *text = json_string_value(value);
		if (json_is_integer(value) && strcmp(name, "seq") == 0) {
			(void)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT,
					json_integer_value(value));
			text = number; /* parsed at once, not kept */
		}
		if (!text) {
			postern__call_refuse(call, 400,
					"filter member '%s' must be a string", name);
			return false;
		}
		bool set = strcmp(name, "store") == 0
						   ? postern__call_choose(call, text)
						   : postern__call_filter(call, name, text, filter);
		if (!set) {
			return false;
		}
	}
	return true;
}

static bool set_limit(struct postern__call *call, json_t *json,
		struct postern_filter *filter) {
	char number[24] = "";
	if (json_is_integer(json)) {
		(void)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT,
				json_integer_value(json));
	}
	return postern__call_limit(call, number, &filter->limit);
}

/* What filter points to lives as long as the JSON. False: refused. */
static bool read_bulk(struct postern__call *call, json_t *json,
		struct postern_filter *filter, bool *dry_run) {
	const char *name;
	json_t *value;
	bool filtered = false;
	json_object_foreach(json, name, value) {
		if (strcmp(name, "filter") == 0) {
			if (!set_filter(call, value, filter)) {
				return false;
			}
			filtered = true;
		} else if (strcmp(name, "limit") == 0) {
			if (!set_limit(call, value, filter)) {
				return false;
			}
		} else if (strcmp(name, "dry_run") == 0 && json_is_boolean(value)) {
			*dry_run = json_is_true(value);
		} else {
			postern__call_refuse(call, 400,
					"unknown member '%s', or wrong type", name);
			return false;
		}
	}
	if (!filtered) {
		postern__call_refuse(call, 400, "'filter' is required");
	}
	return filtered;
}

/* A state in which deliveries are never edited is refused, because a count of 0
   would not explain the mistake. */
bool postern__call_edit_state(struct postern__call *call,
		enum postern_state state, enum postern__edit edit) {
	const bool retry = edit == POSTERN__EDIT_RETRY;
	const char *why;
	if (edit == POSTERN__EDIT_NONE) {
		return true;
	}
	switch (state) {
	case POSTERN_STATE_DONE:
		why = retry ? "a delivery that is done is not run again"
					: "a delivery that is done has ended";
		break;
	case POSTERN_STATE_LEASED: why = "a leased delivery is running"; break;
	case POSTERN_STATE_PARKED:
		why = retry ? "a parked message has no handler to run" : NULL;
		break;
	case POSTERN_STATE_DISCARDED:
		why = retry ? NULL : "a discarded delivery has ended";
		break;
	default: why = NULL;
	}
	if (why) {
		postern__call_refuse(call, 400,
				"state: %s; %s accepts pending, retrying, poisoned and %s", why,
				retry ? "retry" : "discard", retry ? "discarded" : "parked");
	}
	return !why;
}

typedef int edit_all(struct postern_box *box,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out,
		struct postern_error *error);

/* The number of edits in each store. */
struct edited {
	struct postern__part parts[POSTERN__STORE_COUNT_MAX];
	uint64_t counts[POSTERN__STORE_COUNT_MAX];
	size_t part_count;
	uint64_t total;
};

/*
 * Edit in one store. A discarded delivery was ended by an operator: a retry
 * that names no state does not include it. *count_out is set on failure too.
 */
static int edit_store(struct postern_box *box, edit_all *edit,
		const struct postern_filter *filter, bool dry_run, uint64_t *count_out,
		struct postern_error *error) {
	static const enum postern_state states[] = { POSTERN_STATE_PENDING,
		POSTERN_STATE_POISONED };
	struct postern_filter one = *filter;
	int r = POSTERN_OK;
	*count_out = 0;
	if (edit != postern_box_retry_all || filter->state != POSTERN_STATE_ANY) {
		return edit(box, filter, dry_run, count_out, error);
	}
	for (size_t i = 0; i < sizeof states / sizeof states[0] &&
					   r == POSTERN_OK && *count_out < filter->limit;
			i++) {
		uint64_t count = 0;
		one.state = states[i];
		one.limit = filter->limit - (uint32_t)*count_out;
		r = edit(box, &one, dry_run, &count, error);
		*count_out += count;
	}
	return r;
}

/* Edit in one store after the other, until the limit is reached; a failure of
   one does not affect the others. */
static void edit_stores(struct postern__call *call, edit_all *edit,
		struct postern_filter *filter, bool dry_run, struct edited *out) {
	uint32_t limit = filter->limit > 0 ? filter->limit : POSTERN_LIST_LIMIT_MAX;
	*out = (struct edited){ .total = 0 };
	for (size_t i = 0; i < call->store_count && out->total < limit; i++) {
		struct postern__part *part = &out->parts[out->part_count++];
		part->store = call->stores[i];
		filter->limit = limit - (uint32_t)out->total;
		if (edit_store(part->store->box, edit, filter, dry_run, &out->counts[i],
					&part->error) == POSTERN_OK) {
			part->error.code = POSTERN_OK;
		}
		out->total += out->counts[i];
	}
}

static void write_edited(struct postern__call *call,
		const struct edited *edited, bool dry_run) {
	struct postern__buf *body = &call->response->body;
	postern__call_open_parts(call, edited->parts, edited->part_count,
			edited->total > 0);
	postern__json_pair_uint(body, "count", edited->total);
	postern__json_pair_bool(body, "dry_run", dry_run);
	postern__json_key(body, "stores");
	postern__json_open(body, '[');
	for (size_t i = 0; i < edited->part_count; i++) {
		postern__json_open(body, '{');
		postern__write_part(body, &edited->parts[i]);
		postern__json_pair_uint(body, "count", edited->counts[i]);
		postern__json_close(body, '}');
	}
	postern__json_close(body, ']');
	postern__json_close(body, '}');
}

static void edit_many_deliveries(struct postern__call *call, edit_all *edit) {
	json_t *json = read_object(call);
	if (!json) {
		return;
	}
	struct postern_filter filter = { .size = sizeof filter };
	bool dry_run = false;
	if (!read_bulk(call, json, &filter, &dry_run) ||
			!postern__call_edit_state(call, filter.state,
					edit == postern_box_retry_all ? POSTERN__EDIT_RETRY
												  : POSTERN__EDIT_DISCARD)) {
		goto out;
	}
	struct edited edited;
	edit_stores(call, edit, &filter, dry_run, &edited);
	write_edited(call, &edited, dry_run);
out:
	json_decref(json);
}

void postern__route_retry_all(struct postern__call *call) {
	edit_many_deliveries(call, postern_box_retry_all);
}

void postern__route_discard_all(struct postern__call *call) {
	edit_many_deliveries(call, postern_box_discard_all);
}

/* The stores in which a handler was paused or resumed, and where that
   failed. */
struct switched {
	struct postern__part done[POSTERN__STORE_COUNT_MAX];
	size_t done_count;
	struct postern__part failed[POSTERN__STORE_COUNT_MAX];
	size_t failed_count;
	struct postern_error unknown; /* error of a store without the key */
};

/* Pause or resume in every store that knows the key: it is one handler, also
   after it moved. */
static void pause_in_stores(const struct postern__call *call, bool paused,
		struct switched *out) {
	const char *handler = call->parts[0];
	*out = (struct switched){ .done_count = 0 };
	for (size_t i = 0; i < call->store_count; i++) {
		struct postern__part part = { .store = call->stores[i] };
		struct postern_box *box = part.store->box;
		int r = paused ? postern_box_pause(box, handler, &part.error)
					   : postern_box_resume(box, handler, &part.error);
		if (r == POSTERN_OK) {
			out->done[out->done_count++] = part;
		} else if (r == POSTERN_E_NOTFOUND) {
			out->unknown = part.error;
		} else {
			out->failed[out->failed_count++] = part;
		}
	}
}

static void pause_route(struct postern__call *call, bool paused) {
	struct switched switched;
	struct postern__buf *body = &call->response->body;
	if (!check_no_body(call) || !postern__call_store_query(call)) {
		return;
	}
	pause_in_stores(call, paused, &switched);
	if (switched.done_count + switched.failed_count == 0) {
		postern__call_fail(call, &switched.unknown);
		return;
	}
	postern__call_open_parts(call, switched.failed, switched.failed_count,
			switched.done_count > 0);
	postern__json_pair_text(body, "handler", call->parts[0]);
	postern__json_pair_bool(body, "paused", paused);
	postern__json_key(body, "stores");
	postern__json_open(body, '[');
	for (size_t i = 0; i < switched.done_count; i++) {
		postern__json_text(body, switched.done[i].store->name);
	}
	postern__json_close(body, ']');
	if (switched.failed_count > 0) {
		postern__json_key(body, "failed");
		postern__json_open(body, '[');
		for (size_t i = 0; i < switched.failed_count; i++) {
			postern__json_open(body, '{');
			postern__write_part(body, &switched.failed[i]);
			postern__json_close(body, '}');
		}
		postern__json_close(body, ']');
	}
	postern__json_close(body, '}');
}

void postern__route_pause(struct postern__call *call) {
	pause_route(call, true);
}

void postern__route_resume(struct postern__call *call) {
	pause_route(call, false);
}

/* What was removed from each store. */
struct cleaned {
	struct postern__part parts[POSTERN__STORE_COUNT_MAX];
	struct postern_cleanup results[POSTERN__STORE_COUNT_MAX];
};

static void write_cleaned_in(struct postern__buf *body,
		const struct postern__part *part,
		const struct postern_cleanup *result) {
	postern__json_open(body, '{');
	postern__write_part(body, part);
	postern__json_pair_uint(body, "messages", result->messages);
	postern__json_pair_uint(body, "keys", result->keys);
	postern__json_pair_bool(body, "busy", result->busy);
	postern__json_pair_bool(body, "complete",
			part->error.code == POSTERN_OK && !result->busy &&
					!result->stopped);
	postern__json_close(body, '}');
}

/* The sums come first. */
static void write_cleaned(struct postern__call *call,
		const struct cleaned *cleaned) {
	struct postern__buf *body = &call->response->body;
	uint64_t messages = 0;
	uint64_t keys = 0;
	for (size_t i = 0; i < call->store_count; i++) {
		messages += cleaned->results[i].messages;
		keys += cleaned->results[i].keys;
	}
	postern__call_open_parts(call, cleaned->parts, call->store_count,
			messages + keys > 0);
	postern__json_pair_uint(body, "messages", messages);
	postern__json_pair_uint(body, "keys", keys);
	postern__json_key(body, "stores");
	postern__json_open(body, '[');
	for (size_t i = 0; i < call->store_count; i++) {
		write_cleaned_in(body, &cleaned->parts[i], &cleaned->results[i]);
	}
	postern__json_close(body, ']');
	postern__json_close(body, '}');
}

static void clean_store(struct postern__call *call, struct postern__part *part,
		struct postern_cleanup *result) {
	const struct postern__api *api = call->api;
	atomic_bool *cleaning =
			api->cleaning ? &api->cleaning[part->store - api->stores->items]
						  : NULL;
	if (cleaning && atomic_exchange(cleaning, true)) {
		result->busy = true;
		return;
	}
	int r = postern_box_cleanup(part->store->box, result, &part->error);
	if (r == POSTERN_OK) {
		part->error.code = POSTERN_OK;
	}
	if (cleaning) {
		atomic_store(cleaning, false);
	}
}

void postern__route_cleanup(struct postern__call *call) {
	struct cleaned cleaned = { 0 };
	if (!check_no_body(call) || !postern__call_store_query(call)) {
		return;
	}
	for (size_t i = 0; i < call->store_count; i++) {
		cleaned.parts[i].store = call->stores[i];
		cleaned.results[i].size = sizeof cleaned.results[i];
		clean_store(call, &cleaned.parts[i], &cleaned.results[i]);
	}
	write_cleaned(call, &cleaned);
}
