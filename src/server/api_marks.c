/* SPDX-License-Identifier: MIT */

/*
 * POST /v1/marks: one change of one marker, in the first store of the request
 * that keeps markers.
 *
 *   {"handler": "backup", "key": "2026-01-31", "do": "try"}
 *
 * A fence makes the request repeatable: sent again because the response was
 * lost, it has the same result. It is a number, or the same as text for clients
 * whose numbers have 53 bits.
 */

#include <inttypes.h>
#include <jansson.h>
#include <postern/error.h>
#include <postern/guard.h>
#include <postern/message.h>
#include <postern/sys/marker.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "runner/guard.h"
#include "server/route.h"

#define LEASE_MS_DEFAULT ((int64_t)30000)

/* Members beside "do", "handler" and "key". */
enum member {
	FENCE = 1,
	FENCE_REQUIRED = 2,
	LEASE = 4,
	AGE = 8,
};

struct verb {
	const char *name;
	enum postern_mark_kind kind;
	unsigned members; /* that it has */
	/* The results, by the state that the marker had. */
	const char *unknown;
	const char *running;
	const char *done;
};

/* clang-format off */
static const struct verb verbs[] = {
	{ "try", POSTERN_MARK_TRY, FENCE, "first", "busy", "duplicate" },
	{ "has", POSTERN_MARK_READ, 0, "unknown", "unknown", "done" },
	{ "record", POSTERN_MARK_RECORD, FENCE, "recorded", "recorded", "recorded" },
	{ "forget", POSTERN_MARK_FORGET, 0, "unknown", "forgotten", "forgotten" },
	{ "begin", POSTERN_MARK_BEGIN, FENCE | LEASE, "first", "busy", "duplicate" },
	{ "extend", POSTERN_MARK_EXTEND, FENCE | FENCE_REQUIRED | LEASE, "extended", "extended", "extended" },
	{ "finish", POSTERN_MARK_FINISH, FENCE | FENCE_REQUIRED, "recorded", "recorded", "recorded" },
	{ "release", POSTERN_MARK_RELEASE, FENCE | FENCE_REQUIRED, "released", "released", "released" },
	{ "expire", POSTERN_MARK_FORGET, AGE, "expired", "expired", "expired" },
};
/* clang-format on */

#define VERB_COUNT (sizeof verbs / sizeof verbs[0])

/* The request, read. */
struct order {
	const struct verb *verb;
	const char *handler; /* NULL: every handler, for expire only */
	const char *key;
	uint64_t fence; /* 0: not given */
	int64_t lease_ms;
	int64_t older_ms; /* negative: not given */
};

static const struct verb *find_verb(struct postern__call *call,
		const char *name) {
	const char *names[VERB_COUNT];
	for (size_t i = 0; i < VERB_COUNT; i++) {
		if (strcmp(verbs[i].name, name) == 0) {
			return &verbs[i];
		}
		names[i] = verbs[i].name;
	}
	const char *near = postern__closest(name, names, VERB_COUNT);
	postern__call_refuse(call, 400,
			"do: unknown '%s'%s%s%s It is try, has, record, forget, begin, "
			"extend, finish, release or expire",
			name, near ? ", did you mean '" : ".", near ? near : "",
			near ? "'?" : "");
	return NULL;
}

/* A text of the request; NULL: refused. */
static const char *read_text(struct postern__call *call, const char *name,
		const json_t *value) {
	const char *text = json_string_value(value);
	if (!text) {
		postern__call_refuse(call, 400, "%s: it must be a text", name);
	}
	return text;
}

static bool read_fence(struct postern__call *call, const json_t *value,
		uint64_t *out) {
	const char *text = json_string_value(value);
	bool good = json_is_integer(value) && json_integer_value(value) > 0;
	if (good) {
		*out = (uint64_t)json_integer_value(value);
	} else if (text) {
		good = postern__count_parse(text, 1, INT64_MAX, out, NULL) ==
			   POSTERN_OK;
	}
	if (!good) {
		postern__call_refuse(call, 400,
				"fence: it must be a number from 1 to %" PRId64, INT64_MAX);
	}
	return good;
}

static bool read_duration(struct postern__call *call, const char *name,
		const json_t *value, int64_t *out) {
	struct postern_error error;
	const char *text = read_text(call, name, value);
	if (text && postern__duration_parse(text, out, &error)) {
		postern__call_refuse(call, 400, "%s: %s", name, error.text);
		return false;
	}
	return text != NULL;
}

/* Whether the verb has this member; "handler" may be left out by expire. */
static bool has_member(const struct verb *verb, const char *name) {
	return strcmp(name, "do") == 0 || strcmp(name, "handler") == 0 ||
		   (strcmp(name, "key") == 0 && !(verb->members & AGE)) ||
		   (strcmp(name, "fence") == 0 && (verb->members & FENCE)) ||
		   (strcmp(name, "lease") == 0 && (verb->members & LEASE)) ||
		   (strcmp(name, "older_than") == 0 && (verb->members & AGE));
}

/* Read one member. False: refused. */
static bool read_member(struct postern__call *call, const char *name,
		const json_t *value, struct order *order) {
	if (!has_member(order->verb, name)) {
		postern__call_refuse(call, 400, "'%s' takes no member '%s'",
				order->verb->name, name);
		return false;
	}
	switch (name[0]) {
	case 'h': order->handler = read_text(call, name, value); break;
	case 'k': order->key = read_text(call, name, value); break;
	case 'f': return read_fence(call, value, &order->fence);
	case 'l': return read_duration(call, name, value, &order->lease_ms);
	case 'o': return read_duration(call, name, value, &order->older_ms);
	default: return true; /* "do" was read first */
	}
	return json_is_string(value);
}

static const char *missing_member(const struct order *order) {
	bool is_expire = order->verb->members & AGE;
	if (!is_expire && !order->handler) {
		return "handler";
	}
	if (!is_expire && !order->key) {
		return "key";
	}
	if (is_expire && order->older_ms < 0) {
		return "older_than";
	}
	return (order->verb->members & FENCE_REQUIRED) && order->fence == 0
				   ? "fence"
				   : NULL;
}

/* False: refused. The texts belong to the JSON. */
static bool read_order(struct postern__call *call, json_t *json,
		struct order *order) {
	const char *name;
	json_t *value;
	*order = (struct order){
		.lease_ms = LEASE_MS_DEFAULT,
		.older_ms = -1,
	};
	const char *verb = json_string_value(json_object_get(json, "do"));
	order->verb = find_verb(call, verb ? verb : "");
	if (!order->verb) {
		return false;
	}
	json_object_foreach(json, name, value) {
		if (!read_member(call, name, value, order)) {
			return false;
		}
	}
	const char *missing = missing_member(order);
	if (missing) {
		postern__call_refuse(call, 400, "'%s' needs the member '%s'",
				order->verb->name, missing);
	}
	return !missing;
}

/* The first store that keeps markers. NULL: refused. */
static const struct postern__open_store *choose_store(
		struct postern__call *call) {
	for (size_t i = 0; i < call->store_count; i++) {
		if (call->stores[i]->guard) {
			return call->stores[i];
		}
	}
	postern__call_refuse(call, 501, "the store '%s' keeps no markers",
			call->stores[0]->name);
	return NULL;
}

static void open_result(struct postern__call *call,
		const struct postern__open_store *store, const char *result) {
	struct postern__buf *body = &call->response->body;
	call->response->status = 200;
	postern__json_open(body, '{');
	postern__json_pair_text(body, "result", result);
	postern__json_pair_text(body, "store", store->name);
}

static void write_changed(struct postern__call *call,
		const struct postern__open_store *store, const struct order *order,
		const struct postern_mark_request *request) {
	struct postern__buf *body = &call->response->body;
	char fence[24];
	const char *const results[] = {
		[POSTERN_MARK_UNKNOWN] = order->verb->unknown,
		[POSTERN_MARK_RUNNING] = order->verb->running,
		[POSTERN_MARK_DONE] = order->verb->done,
	};
	open_result(call, store, results[request->before]);
	postern__json_pair_text(body, "handler", order->handler);
	postern__json_pair_text(body, "key", order->key);
	if (request->kind == POSTERN_MARK_BEGIN &&
			request->before == POSTERN_MARK_UNKNOWN) {
		(void)snprintf(fence, sizeof fence, "%" PRIu64, request->fence);
		postern__json_pair_text(body, "fence", fence);
	}
	if (request->left_ms > 0) {
		postern__json_pair_int(body, "left_ms", request->left_ms);
	}
	postern__json_close(body, '}');
}

static void change(struct postern__call *call,
		const struct postern__open_store *store, const struct order *order) {
	struct postern_error error;
	struct postern_mark_request request = {
		.kind = order->verb->kind,
		.fence = order->fence ? order->fence
							  : postern__guard_fence(store->guard),
		.lease_ms = order->lease_ms,
	};
	if ((order->verb->members & LEASE) &&
			(order->lease_ms < POSTERN_GUARD_LEASE_MS_MIN ||
					order->lease_ms > POSTERN_DURATION_MS_MAX)) {
		postern__call_refuse(call, 400, "lease: it is 1 s to ten years");
		return;
	}
	if (postern__guard_change(store->guard, order->handler, order->key,
				&request, &error)) {
		postern__call_fail_in(call, store, &error);
		return;
	}
	write_changed(call, store, order, &request);
}

static void expire(struct postern__call *call,
		const struct postern__open_store *store, const struct order *order) {
	struct postern_error error;
	uint64_t count = 0;
	if (postern_mark_expire(store->guard, order->handler, order->older_ms,
				&count, &error)) {
		postern__call_fail_in(call, store, &error);
		return;
	}
	open_result(call, store, order->verb->unknown);
	postern__json_pair_uint(&call->response->body, "count", count);
	postern__json_close(&call->response->body, '}');
}

void postern__route_marks(struct postern__call *call) {
	struct order order;
	if (!postern__call_store_query(call)) {
		return;
	}
	json_t *json = postern__call_object(call);
	if (!json) {
		return;
	}
	const struct postern__open_store *store =
			read_order(call, json, &order) &&
							postern__call_may_handle(call,
									order.handler ? order.handler : "")
					? choose_store(call)
					: NULL;
	if (store && (order.verb->members & AGE)) {
		expire(call, store, &order);
	} else if (store) {
		change(call, store, &order);
	}
	json_decref(json);
}
