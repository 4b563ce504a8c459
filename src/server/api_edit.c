/* SPDX-License-Identifier: MIT */

/*
 * The routes by which an operator changes deliveries: retry and discard, one or
 * many; and cleanup.
 *
 * The filter of a bulk edit decides what is changed, so its JSON is read
 * strictly: an unknown member, a repeated one or one of the wrong type is
 * refused, and an empty filter is not the same as "all".
 */

#include <inttypes.h>
#include <jansson.h>
#include <postern/box.h>
#include <postern/change.h>
#include <postern/error.h>
#include <postern/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "server/route.h"

static void edit_one_delivery(struct postern__call *call,
		enum postern_change_kind kind, const char *status) {
	int64_t seq;
	struct postern__change_body words;
	if (kind == POSTERN_CHANGE_CANCEL
					? !postern__call_cancel_body(call, &words)
					: !postern__call_change_body(call, false, &words)) {
		return;
	}
	if (!postern__call_store_query(call) ||
			!postern__call_seq(call, call->parts[0], &seq)) {
		goto out;
	}
	const struct postern__open_store *store = postern__call_of_seq(call, seq);
	if (!store || !postern__call_may_edit(call, store->box, seq)) {
		goto out;
	}
	struct postern_change change = {
		.size = sizeof change,
		.kind = kind,
		.seq = seq,
		.handler = call->parts[1],
		.uncounted = words.uncounted,
		.reason = words.reason,
		.by = words.by,
	};
	struct postern_error error;
	int r = postern_box_change(store->box, &change, &error);
	if (r == POSTERN_E_INVALID || r == POSTERN_E_BUSY) {
		/* The request is valid; the state of the delivery does not allow it. */
		postern__response_problem(call->response, 409, r, error.text);
	} else if (r != POSTERN_OK) {
		postern__call_fail_in(call, store, &error);
	} else {
		struct postern__buf *body = &call->response->body;
		postern__json_open(body, '{');
		postern__json_pair_text(body, "status", status);
		postern__json_pair_text(body, "store", store->name);
		postern__json_pair_int(body, "seq", seq);
		postern__json_pair_text(body, "handler", change.handler);
		postern__json_close(body, '}');
		call->response->status = 200;
	}
out:
	json_decref(words.json);
}

void postern__route_retry(struct postern__call *call) {
	edit_one_delivery(call, POSTERN_CHANGE_RETRY, "retried");
}

void postern__route_discard(struct postern__call *call) {
	edit_one_delivery(call, POSTERN_CHANGE_DISCARD, "discarded");
}

/* The ids live as long as the JSON, their array until it is freed. */
static bool set_ids(struct postern__call *call, const json_t *json,
		struct postern_filter *filter) {
	size_t count = json_array_size(json);
	if (count == 0 || count > POSTERN_FILTER_ID_COUNT_MAX) {
		postern__call_refuse(call, 400,
				"filter member 'message_ids' must be an array of 1 to %d "
				"strings",
				POSTERN_FILTER_ID_COUNT_MAX);
		return false;
	}
	const char **ids = calloc(count, sizeof *ids);
	filter->message_ids = ids;
	filter->message_id_count = count;
	for (size_t i = 0; ids && i < count; i++) {
		ids[i] = json_string_value(json_array_get(json, i));
		if (!ids[i] || !*ids[i]) {
			postern__call_refuse(call, 400,
					"item %zu of 'message_ids' is not a string, or empty",
					i + 1);
			return false;
		}
	}
	if (!ids) {
		postern__call_refuse(call, 503, "out of memory");
	}
	return ids;
}

void postern__route_cancel(struct postern__call *call) {
	edit_one_delivery(call, POSTERN_CHANGE_CANCEL, "cancelled");
}

/* Members of a filter are strings; a number may be written as a number. */
static bool set_filter(struct postern__call *call, json_t *json,
		struct postern_filter *filter) {
	/* An order is no condition. */
	size_t orders = json_object_get(json, "oldest") != NULL;
	if (!json_is_object(json) || json_object_size(json) <= orders) {
		postern__call_refuse(call, 400,
				"'filter' must be an object with at least one of: %s",
				"state, channel, handler, type, since, until, message_id, "
				"message_ids, source, seq, error, group, oldest, store");
		return false;
	}
	const char *name;
	json_t *value;
	json_object_foreach(json, name, value) {
		char number[24];
		const char *text = json_string_value(value);
		if (strcmp(name, "message_ids") == 0) {
			if (!set_ids(call, value, filter)) {
				return false;
			}
			continue;
		}
		if (json_is_boolean(value) && strcmp(name, "oldest") == 0) {
			text = json_is_true(value) ? "true" : "false";
		} else if (json_is_integer(value) && strcmp(name, "seq") == 0) {
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
		struct postern_filter *filter, bool *dry_run,
		struct postern__change_body *words) {
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
		} else if (!postern__call_change_member(call, name, value, false,
						   words)) {
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

/* How many were changed, and how many match in all. */
struct counts {
	uint64_t count;
	uint64_t total;
};

/* The number of edits in each store. */
struct edited {
	struct postern__part parts[POSTERN__STORE_COUNT_MAX];
	struct counts counts[POSTERN__STORE_COUNT_MAX];
	size_t part_count;
	struct counts sum;
	uint32_t limit;
};

/*
 * Edit at most `room` in one store; what matches beyond that is only counted. A
 * discarded delivery was ended by an operator: a retry that names no state does
 * not include it. *out is set on failure too.
 */
static int edit_store(struct postern_box *box,
		const struct postern_change *change, uint32_t room, struct counts *out,
		struct postern_error *error) {
	static const enum postern_state states[] = { POSTERN_STATE_PENDING,
		POSTERN_STATE_POISONED };
	struct postern_filter one = *change->filter;
	bool both = change->kind == POSTERN_CHANGE_RETRY &&
				one.state == POSTERN_STATE_ANY;
	int r = POSTERN_OK;
	for (size_t i = 0; i < (both ? 2 : 1) && r == POSTERN_OK; i++) {
		struct postern_change part = *change;
		one.state = both ? states[i] : one.state;
		one.limit = room > 0 ? room : 1;
		part.filter = &one;
		part.dry_run = change->dry_run || room == 0;
		r = postern_box_change(box, &part, error);
		uint32_t count = room > 0 ? (uint32_t)part.count : 0;
		room -= count;
		out->count += count;
		out->total += part.total;
	}
	return r;
}

/* A handler or channel that some stores do not have is an error only if no
   store has it. */
static void forgive_unknown(struct edited *edited) {
	bool known = false;
	for (size_t i = 0; i < edited->part_count; i++) {
		known = known || edited->parts[i].error.code != POSTERN_E_NOTFOUND;
	}
	for (size_t i = 0; known && i < edited->part_count; i++) {
		if (edited->parts[i].error.code == POSTERN_E_NOTFOUND) {
			edited->parts[i].error.code = POSTERN_OK;
		}
	}
}

/* Edit in one store after the other, until the limit is reached; a failure of
   one does not affect the others. */
static void edit_stores(struct postern__call *call,
		struct postern_change *change, struct postern_filter *filter,
		struct edited *out) {
	*out = (struct edited){
		.limit = filter->limit > 0 ? filter->limit : POSTERN_LIST_LIMIT_MAX,
	};
	change->filter = filter;
	for (size_t i = 0; i < call->store_count; i++) {
		struct postern__part *part = &out->parts[out->part_count++];
		part->store = call->stores[i];
		if (edit_store(part->store->box, change,
					out->limit - (uint32_t)out->sum.count, &out->counts[i],
					&part->error) == POSTERN_OK) {
			part->error.code = POSTERN_OK;
		}
		out->sum.count += out->counts[i].count;
		out->sum.total += out->counts[i].total;
	}
	forgive_unknown(out);
}

static void write_edited(struct postern__call *call,
		const struct edited *edited, bool dry_run) {
	struct postern__buf *body = &call->response->body;
	postern__call_open_parts(call, edited->parts, edited->part_count,
			edited->sum.count > 0);
	postern__json_pair_uint(body, "count", edited->sum.count);
	postern__json_pair_uint(body, "total", edited->sum.total);
	postern__json_pair_uint(body, "limit", edited->limit);
	postern__json_pair_bool(body, "dry_run", dry_run);
	postern__json_key(body, "stores");
	postern__json_open(body, '[');
	for (size_t i = 0; i < edited->part_count; i++) {
		postern__json_open(body, '{');
		postern__write_part(body, &edited->parts[i]);
		postern__json_pair_uint(body, "count", edited->counts[i].count);
		postern__json_pair_uint(body, "total", edited->counts[i].total);
		postern__json_close(body, '}');
	}
	postern__json_close(body, ']');
	postern__json_close(body, '}');
}

static void edit_many_deliveries(struct postern__call *call,
		enum postern_change_kind kind) {
	json_t *json = postern__call_object(call);
	if (!json) {
		return;
	}
	struct postern_filter filter = { .size = sizeof filter };
	struct postern_change change = { .size = sizeof change, .kind = kind };
	struct postern__change_body words = { 0 };
	if (!read_bulk(call, json, &filter, &change.dry_run, &words) ||
			!postern__call_may_filter(call, &filter) ||
			!postern__call_edit_state(call, filter.state,
					kind == POSTERN_CHANGE_RETRY ? POSTERN__EDIT_RETRY
												 : POSTERN__EDIT_DISCARD)) {
		goto out;
	}
	struct edited edited;
	change.reason = words.reason;
	change.by = words.by;
	edit_stores(call, &change, &filter, &edited);
	write_edited(call, &edited, change.dry_run);
out:
	free((void *)(uintptr_t)filter.message_ids);
	json_decref(json);
}

void postern__route_retry_all(struct postern__call *call) {
	edit_many_deliveries(call, POSTERN_CHANGE_RETRY);
}

void postern__route_discard_all(struct postern__call *call) {
	edit_many_deliveries(call, POSTERN_CHANGE_DISCARD);
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
	if (!postern__call_no_body(call) || !postern__call_store_query(call)) {
		return;
	}
	for (size_t i = 0; i < call->store_count; i++) {
		cleaned.parts[i].store = call->stores[i];
		cleaned.results[i].size = sizeof cleaned.results[i];
		clean_store(call, &cleaned.parts[i], &cleaned.results[i]);
	}
	write_cleaned(call, &cleaned);
}
