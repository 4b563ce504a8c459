/* SPDX-License-Identifier: MIT */

/*
 * From a request to its route.
 *
 * A path is split at its slashes first and then decoded, segment by segment and
 * once, so an encoded slash is data: a handler's key may have one. A path that
 * is not in the table is 404; one that is there for another method is 405 with
 * the allowed methods.
 */

#include "server/api.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/utf8.h"
#include "server/config.h"
#include "server/percent.h"
#include "server/receipt.h"
#include "server/route.h"

/* Longer than any pattern; deeper paths are 404. */
#define SEGMENT_COUNT_MAX 8

/* Room for attributes in the JSON of events, beside their data. */
#define EVENT_ATTRIBUTES_LEN_MAX ((size_t)128 * 1024)

enum route_flags {
	/* Responds at once, in any state of the store. */
	QUICK = 1,
	/* The body is a message, not JSON. */
	MESSAGE = 2,
	/* QUICK only without a query. */
	PLAIN = 4,
	/* Also about stores that keep markers only, which have no box. */
	MARKERS = 8,
};

/* clang-format off */
static const struct route {
	const char *method;
	const char *pattern;
	postern__route *run;
	unsigned flags;
} routes[] = {
	{ "POST", "/v1/channels/{}/messages", postern__route_accept, QUICK | MESSAGE },
	{ "GET", "/v1/stats", postern__route_stats, MARKERS },
	{ "GET", "/v1/channels", postern__route_channels, MARKERS },
	{ "GET", "/v1/handlers", postern__route_handlers, MARKERS },
	{ "GET", "/v1/nodes", postern__route_nodes, MARKERS },
	{ "GET", "/v1/sources", postern__route_sources, MARKERS },
	{ "GET", "/v1/deliveries", postern__route_list, 0 },
	{ "GET", "/v1/groups", postern__route_groups, 0 },
	{ "GET", "/v1/messages", postern__route_find, 0 },
	{ "GET", "/v1/messages/{}", postern__route_show, 0 },
	{ "GET", "/v1/messages/{}/body", postern__route_body, 0 },
	{ "POST", "/v1/deliveries/{}/{}/retry", postern__route_retry, 0 },
	{ "POST", "/v1/deliveries/{}/{}/discard", postern__route_discard, 0 },
	{ "POST", "/v1/deliveries/{}/{}/cancel", postern__route_cancel, 0 },
	{ "POST", "/v1/deliveries/retry", postern__route_retry_all, 0 },
	{ "POST", "/v1/deliveries/discard", postern__route_discard_all, 0 },
	{ "POST", "/v1/handlers/{}/pause", postern__route_pause, 0 },
	{ "POST", "/v1/handlers/{}/resume", postern__route_resume, 0 },
	{ "POST", "/v1/channels/{}/close", postern__route_close, 0 },
	{ "POST", "/v1/channels/{}/open", postern__route_open, 0 },
	{ "POST", "/v1/cleanup", postern__route_cleanup, 0 },
	{ "POST", "/v1/marks", postern__route_marks, MARKERS },
	{ "GET", "/healthz", postern__route_health, QUICK | PLAIN | MARKERS },
	{ "GET", "/readyz", postern__route_ready, QUICK | MARKERS },
	{ "GET", "/metrics", postern__route_metrics, MARKERS },
};
/* clang-format on */

#define ROUTE_COUNT (sizeof routes / sizeof routes[0])

/* A path, cut at its slashes; still encoded. */
struct segments {
	const char *text[SEGMENT_COUNT_MAX];
	size_t len[SEGMENT_COUNT_MAX];
	size_t count;
};

/* False if the path does not begin with a slash or is too deep. */
static bool cut_path(const char *path, struct segments *out) {
	out->count = 0;
	while (*path == '/') {
		if (out->count == SEGMENT_COUNT_MAX) {
			return false;
		}
		size_t len = strcspn(++path, "/");
		out->text[out->count] = path;
		out->len[out->count++] = len;
		path += len;
	}
	return out->count > 0;
}

static bool is_hole(const struct segments *pattern, size_t index) {
	return pattern->len[index] == 2 &&
		   memcmp(pattern->text[index], "{}", 2) == 0;
}

/* A "{}" matches any segment, even an empty one: a parked message is retried
   and discarded under the handler "". */
static bool matches(const struct segments *path, const char *pattern_text) {
	struct segments pattern;
	bool cut = cut_path(pattern_text, &pattern);
	assert(cut);
	(void)cut;
	if (path->count != pattern.count) {
		return false;
	}
	for (size_t i = 0; i < path->count; i++) {
		if (!is_hole(&pattern, i) &&
				(path->len[i] != pattern.len[i] ||
						memcmp(path->text[i], pattern.text[i], path->len[i]) !=
								0)) {
			return false;
		}
	}
	return true;
}

static bool is_method(const char *method, const struct route *route) {
	return strcmp(method, route->method) == 0 ||
		   (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* Returns NULL if there is no route; *path_known_out: there is one for another
   method. */
static const struct route *find_route(const struct segments *path,
		const char *method, bool *path_known_out) {
	*path_known_out = false;
	for (size_t i = 0; i < ROUTE_COUNT; i++) {
		if (!matches(path, routes[i].pattern)) {
			continue;
		}
		*path_known_out = true;
		if (is_method(method, &routes[i])) {
			return &routes[i];
		}
	}
	return NULL;
}

static void refuse_method(struct postern__call *call,
		const struct segments *path) {
	char allow[64] = "";
	for (size_t i = 0; i < ROUTE_COUNT; i++) {
		if (matches(path, routes[i].pattern)) {
			const char *method = routes[i].method;
			size_t len = strlen(allow);
			(void)snprintf(allow + len, sizeof allow - len, "%s%s%s",
					len > 0 ? ", " : "", method,
					strcmp(method, "GET") == 0 ? ", HEAD" : "");
		}
	}
	postern__call_refuse(call, 405,
			"'%s' is not supported for this path; use %s",
			call->request->method, allow);
	postern__response_header(call->response, "Allow", allow);
}

/* Decode one segment of a path or a query. NULL: refused. */
static const char *decode(struct postern__call *call, const char *text,
		size_t len, const char *what) {
	size_t decoded_len;
	bool malformed;
	char *decoded = postern__percent_decode(&call->arena, text, len,
			&decoded_len, &malformed);
	if (!decoded && !malformed) {
		postern__call_refuse(call, 503, "out of memory");
		return NULL;
	}
	if (malformed || !postern__utf8_valid(decoded, decoded_len) ||
			postern__utf8_has_control(decoded, decoded_len)) {
		postern__call_refuse(call, 400,
				"%s must be percent-encoded UTF-8 without control characters",
				what);
		return NULL;
	}
	return decoded;
}

static bool fill_parts(struct postern__call *call, const struct segments *path,
		const char *pattern_text) {
	struct segments pattern;
	(void)cut_path(pattern_text, &pattern);
	size_t count = 0;
	for (size_t i = 0; i < path->count; i++) {
		if (!is_hole(&pattern, i)) {
			continue;
		}
		const char *part =
				decode(call, path->text[i], path->len[i], "the path");
		if (!part) {
			return false;
		}
		assert(count < POSTERN__ROUTE_PART_COUNT_MAX);
		call->parts[count++] = part;
	}
	return true;
}

/* Callers have limits of their own; these apply to every caller. */
static bool check_limits(struct postern__call *call) {
	const struct postern__request *request = call->request;
	if (strlen(request->path) > POSTERN__API_PATH_LEN_MAX) {
		postern__call_refuse(call, 414, "the path exceeds %d bytes",
				POSTERN__API_PATH_LEN_MAX);
		return false;
	}
	if (request->query && strlen(request->query) > POSTERN__API_QUERY_LEN_MAX) {
		postern__call_refuse(call, 414, "the query exceeds %d bytes",
				POSTERN__API_QUERY_LEN_MAX);
		return false;
	}
	if (request->header_count > POSTERN__API_HEADER_COUNT_MAX) {
		postern__call_refuse(call, 431, "there are more than %d headers",
				POSTERN__API_HEADER_COUNT_MAX);
		return false;
	}
	size_t len = 0;
	for (size_t i = 0; i < request->header_count; i++) {
		len += strlen(request->headers[i].name) +
			   strlen(request->headers[i].value);
	}
	if (len > POSTERN__API_HEADERS_LEN_MAX) {
		postern__call_refuse(call, 431, "the headers exceed %d bytes",
				POSTERN__API_HEADERS_LEN_MAX);
		return false;
	}
	size_t body_len_max = postern__api_body_len_max(call->api, request);
	if (request->body_len > body_len_max) {
		postern__call_refuse(call, 413, "the body exceeds %zu bytes",
				body_len_max);
		return false;
	}
	return true;
}

static void dispatch(struct postern__call *call) {
	if (!check_limits(call)) {
		return;
	}
	struct segments path;
	bool path_known = false;
	const struct route *route = NULL;
	if (cut_path(call->request->path, &path)) {
		route = find_route(&path, call->request->method, &path_known);
	}
	if (!route && path_known) {
		refuse_method(call, &path);
	} else if (!route) {
		postern__call_refuse(call, 404, "there is nothing at '%s'",
				call->request->path);
	} else if (fill_parts(call, &path, route->pattern) &&
			   postern__call_stores(call, (route->flags & MARKERS) == 0)) {
		route->run(call);
	}
}

void postern__api_handle(const struct postern__api *api,
		const struct postern__request *request,
		struct postern__response *response) {
	struct postern__call call = {
		.api = api,
		.request = request,
		.response = response,
	};
	dispatch(&call);
	assert(!call.pending);
	postern__response_check(response);
	postern__arena_finish(&call.arena);
}

bool postern__api_begin(const struct postern__api *api,
		const struct postern__request *request,
		struct postern__response *response, postern__api_done *done,
		void *context) {
	assert(api->stores->items[0].runner || !api->stores->items[0].box);
	struct postern__call call = {
		.api = api,
		.request = request,
		.response = response,
		.done = done,
		.done_context = context,
	};
	dispatch(&call);
	bool pending = call.pending;
	if (!pending) {
		postern__response_check(response);
	}
	postern__arena_finish(&call.arena);
	return !pending;
}

static unsigned flags_of(const char *method, const char *path) {
	struct segments segments;
	bool path_known;
	const struct route *route =
			cut_path(path, &segments)
					? find_route(&segments, method, &path_known)
					: NULL;
	/* Refusing does not wait, either. */
	return route ? route->flags : QUICK;
}

static bool is_text(const char *name, const char *text, size_t len) {
	/* No character of a channel name needs to be encoded. */
	return strlen(name) == len && memcmp(name, text, len) == 0;
}

static bool is_named(const struct postern__config_channel *channel,
		const char *text, size_t len) {
	bool is = is_text(channel->name, text, len);
	for (size_t i = 0; !is && i < channel->former_name_count; i++) {
		is = is_text(channel->former_names[i], text, len);
	}
	return is;
}

/* The body limit of the channel in the path; 0: not configured. */
static size_t channel_body_len_max(const struct postern__api *api,
		const char *path) {
	struct segments segments;
	if (!api->config || !cut_path(path, &segments) || segments.count < 3) {
		return 0;
	}
	size_t count = postern__config_channel_count(api->config);
	for (size_t i = 0; i < count; i++) {
		const struct postern__config_channel *channel =
				postern__config_channel(api->config, i);
		if (is_named(channel, segments.text[2], segments.len[2])) {
			return (size_t)channel->values.max_message_size;
		}
	}
	return 0;
}

size_t postern__api_message_len_max(const struct postern__api *api,
		const char *path) {
	size_t len_max = channel_body_len_max(api, path);
	if (len_max == 0) {
		len_max = api->body_len_max;
	}
	return len_max ? len_max : POSTERN_BODY_LEN_DEFAULT;
}

size_t postern__api_body_len_max(const struct postern__api *api,
		const struct postern__request *request) {
	if (!(flags_of(request->method, request->path) & MESSAGE)) {
		return POSTERN__API_JSON_LEN_MAX;
	}
	size_t len_max = postern__api_message_len_max(api, request->path);
	if (postern__request_has_event(request)) {
		len_max = 2 * len_max + EVENT_ATTRIBUTES_LEN_MAX;
	}
	return len_max < POSTERN_BODY_LEN_MAX ? len_max : POSTERN_BODY_LEN_MAX;
}

bool postern__api_is_quick(const char *method, const char *path,
		const char *query) {
	unsigned flags = flags_of(method, path);
	return (flags & QUICK) && !((flags & PLAIN) && query);
}

const char *postern__request_header(const struct postern__request *request,
		const char *name) {
	for (size_t i = 0; i < request->header_count; i++) {
		if (strcasecmp(request->headers[i].name, name) == 0) {
			return request->headers[i].value;
		}
	}
	return NULL;
}

const char *postern__call_header(const struct postern__call *call,
		const char *name) {
	return postern__request_header(call->request, name);
}

bool postern__call_seq(struct postern__call *call, const char *text,
		int64_t *out) {
	uint64_t seq;
	if (postern__count_parse(text, 1, INT64_MAX, &seq, NULL) != POSTERN_OK) {
		postern__call_refuse(call, 404, "'%s' is not the number of a message",
				text);
		return false;
	}
	*out = (int64_t)seq;
	return true;
}

/* The entry of `names` that equals this name; NULL: refused. */
static const char *known_name(struct postern__call *call, const char *name,
		const char *const *names) {
	size_t count = 0;
	for (; names[count]; count++) {
		if (strcmp(names[count], name) == 0) {
			return names[count];
		}
	}
	const char *near = postern__closest(name, names, count);
	postern__call_refuse(call, 400, "unknown parameter '%s'%s%s%s", name,
			near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
	return NULL;
}

/* Parse one "name=value". False: refused. */
static bool read_parameter(struct postern__call *call, const char *text,
		size_t len, const char *const *names, struct postern__parameter *out) {
	const char *equals = memchr(text, '=', len);
	size_t name_len = equals ? (size_t)(equals - text) : len;
	const char *name = decode(call, text, name_len, "the query");
	if (!name) {
		return false;
	}
	out->name = known_name(call, name, names);
	if (!out->name) {
		return false;
	}
	out->value =
			equals ? decode(call, equals + 1, len - name_len - 1, "the query")
				   : "";
	return out->value != NULL;
}

bool postern__call_query(struct postern__call *call, const char *const *names,
		struct postern__parameter out[POSTERN__PARAMETER_COUNT_MAX],
		size_t *count_out) {
	size_t count = 0;
	const char *query = call->request->query;
	while (query && *query) {
		size_t len = strcspn(query, "&");
		if (len > 0) {
			struct postern__parameter parameter;
			if (!read_parameter(call, query, len, names, &parameter)) {
				return false;
			}
			for (size_t i = 0; i < count; i++) {
				if (out[i].name == parameter.name) {
					postern__call_refuse(call, 400, "'%s' is given twice",
							parameter.name);
					return false;
				}
			}
			assert(count < POSTERN__PARAMETER_COUNT_MAX);
			out[count++] = parameter;
		}
		query += len + (query[len] == '&');
	}
	*count_out = count;
	return true;
}
