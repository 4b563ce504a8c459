/* SPDX-License-Identifier: MIT */

/*
 * The bodies of changes, and the routes that stop and continue something: pause
 * and resume a handler, close and open a channel.
 *
 * What a change says about itself decides nothing, but it is stored and shown:
 * an unknown member, a repeated one or one of the wrong type is refused.
 */

#include <jansson.h>
#include <postern/change.h>
#include <postern/error.h>
#include <postern/sys/clock.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json_text.h"
#include "base/text.h"
#include "base/time.h"
#include "core/box.h"
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
json_t *postern__call_object(struct postern__call *call) {
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
bool postern__call_no_body(struct postern__call *call) {
	if (call->request->body_len == 0) {
		return true;
	}
	json_t *json = postern__call_object(call);
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

/* How long a pause lasts: "2h", or until a time. */
static bool set_span(struct postern__call *call, const char *name,
		const char *text, struct postern__change_body *out) {
	int64_t ms = 0;
	struct postern_error error;
	int r;
	if (out->for_ms > 0) {
		postern__call_refuse(call, 400, "give 'for' or 'until', not both");
		return false;
	}
	if (strcmp(name, "for") == 0) {
		r = postern__duration_parse(text, &ms, &error);
	} else {
		const struct postern_clock *clock =
				call->api->clock ? call->api->clock : postern_clock_system();
		r = postern__time_parse(text, strlen(text), &ms, &error);
		ms -= clock->wall_ms(clock->context);
	}
	if (r == POSTERN_OK && (ms < 1 || ms > POSTERN_DURATION_MS_MAX)) {
		r = POSTERN_E_INVALID;
		(void)snprintf(error.text, sizeof error.text, "%s",
				ms < 1 ? "the end of a pause is in the future; a pause without "
						 "an end has neither 'for' nor 'until'"
					   : "a pause ends after at most 10 years (3650 days)");
	}
	if (r != POSTERN_OK) {
		postern__call_refuse(call, 400, "%s: %s", name, error.text);
		return false;
	}
	out->for_ms = ms;
	return true;
}

bool postern__call_change_member(struct postern__call *call, const char *name,
		json_t *value, bool timed, struct postern__change_body *out) {
	const char *text = json_string_value(value);
	bool reason = strcmp(name, "reason") == 0;
	if (text && (reason || strcmp(name, "by") == 0)) {
		struct postern_error error;
		if (postern__change_text_check(name, text,
					reason ? POSTERN_CHANGE_REASON_LEN_MAX
						   : POSTERN_CHANGE_BY_LEN_MAX,
					&error) != POSTERN_OK) {
			postern__call_refuse(call, 400, "%s", error.text);
			return false;
		}
		*(reason ? &out->reason : &out->by) = text;
		return true;
	}
	if (timed && text &&
			(strcmp(name, "for") == 0 || strcmp(name, "until") == 0)) {
		return set_span(call, name, text, out);
	}
	if (out->cancels && strcmp(name, "uncounted") == 0 &&
			json_is_boolean(value)) {
		out->uncounted = json_is_true(value);
		return true;
	}
	postern__call_refuse(call, 400, "unknown member '%s', or wrong type", name);
	return false;
}

static bool read_change_body(struct postern__call *call, bool timed,
		struct postern__change_body *out) {
	if (call->request->body_len == 0) {
		return true;
	}
	out->json = postern__call_object(call);
	const char *name;
	json_t *value;
	bool ok = out->json;
	json_object_foreach(out->json, name, value) {
		ok = ok && postern__call_change_member(call, name, value, timed, out);
	}
	if (!ok) {
		json_decref(out->json);
		out->json = NULL;
	}
	return ok;
}

bool postern__call_change_body(struct postern__call *call, bool timed,
		struct postern__change_body *out) {
	*out = (struct postern__change_body){ 0 };
	return read_change_body(call, timed, out);
}

bool postern__call_cancel_body(struct postern__call *call,
		struct postern__change_body *out) {
	*out = (struct postern__change_body){ .cancels = true };
	return read_change_body(call, false, out);
}

/* What can be stopped, and the words for it in the response. */
struct halting {
	enum postern_change_kind kind;
	const char *object; /* "handler" */
	const char *state;  /* "paused" */
	bool on;
};

/* The stores in which it was changed, and where that failed. */
struct halted {
	struct postern__part done[POSTERN__STORE_COUNT_MAX];
	size_t done_count;
	struct postern__part failed[POSTERN__STORE_COUNT_MAX];
	size_t failed_count;
	struct postern_error unknown; /* error of a store without the name */
};

/* Change it in every store that has the name: it is one handler or channel,
   also after it moved. */
static void change_in_stores(const struct postern__call *call,
		const struct postern_change *change, struct halted *out) {
	*out = (struct halted){ .done_count = 0 };
	for (size_t i = 0; i < call->store_count; i++) {
		struct postern__part part = { .store = call->stores[i] };
		struct postern_change one = *change;
		int r = postern_box_change(part.store->box, &one, &part.error);
		if (r == POSTERN_OK) {
			out->done[out->done_count++] = part;
		} else if (r == POSTERN_E_NOTFOUND) {
			out->unknown = part.error;
		} else {
			out->failed[out->failed_count++] = part;
		}
	}
}

static void write_halted(struct postern__call *call,
		const struct halting *halting, const struct halted *halted) {
	struct postern__buf *body = &call->response->body;
	postern__call_open_parts(call, halted->failed, halted->failed_count,
			halted->done_count > 0);
	postern__json_pair_text(body, halting->object, call->parts[0]);
	postern__json_pair_bool(body, halting->state, halting->on);
	postern__json_key(body, "stores");
	postern__json_open(body, '[');
	for (size_t i = 0; i < halted->done_count; i++) {
		postern__json_text(body, halted->done[i].store->name);
	}
	postern__json_close(body, ']');
	if (halted->failed_count > 0) {
		postern__json_key(body, "failed");
		postern__json_open(body, '[');
		for (size_t i = 0; i < halted->failed_count; i++) {
			postern__json_open(body, '{');
			postern__write_part(body, &halted->failed[i]);
			postern__json_close(body, '}');
		}
		postern__json_close(body, ']');
	}
	postern__json_close(body, '}');
}

static void halt_route(struct postern__call *call,
		const struct halting *halting) {
	struct postern__change_body words;
	struct halted halted;
	bool timed = halting->kind == POSTERN_CHANGE_PAUSE;
	if (!postern__call_change_body(call, timed, &words)) {
		return;
	}
	bool of_handler = strcmp(halting->object, "handler") == 0;
	const struct postern_change change = {
		.size = sizeof change,
		.kind = halting->kind,
		.handler = of_handler ? call->parts[0] : NULL,
		.channel = of_handler ? NULL : call->parts[0],
		.for_ms = words.for_ms,
		.reason = words.reason,
		.by = words.by,
	};
	if (postern__call_store_query(call)) {
		change_in_stores(call, &change, &halted);
		if (halted.done_count + halted.failed_count == 0) {
			postern__call_fail(call, &halted.unknown);
		} else {
			write_halted(call, halting, &halted);
		}
	}
	json_decref(words.json);
}

void postern__route_pause(struct postern__call *call) {
	halt_route(call, &(struct halting){ POSTERN_CHANGE_PAUSE, "handler",
							 "paused", true });
}

void postern__route_resume(struct postern__call *call) {
	halt_route(call, &(struct halting){ POSTERN_CHANGE_RESUME, "handler",
							 "paused", false });
}

void postern__route_close(struct postern__call *call) {
	halt_route(call, &(struct halting){ POSTERN_CHANGE_CLOSE, "channel",
							 "closed", true });
}

void postern__route_open(struct postern__call *call) {
	halt_route(call, &(struct halting){ POSTERN_CHANGE_OPEN, "channel",
							 "closed", false });
}
