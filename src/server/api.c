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

#include "base/percent.h"
#include "base/text.h"
#include "base/utf8.h"
#include "server/config.h"
#include "server/grant.h"
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
	/* Served on ingest_listen, too. */
	INGEST = 16,
	/* How a token that is narrowed to channels is checked: the first part is
	   a channel, the last one is a handler, or the route does it itself. A
	   route with none of these is about all channels. */
	OF_CHANNEL = 32,
	OF_HANDLER = 64,
	OF_ROUTE = 128,
	/* Not logged as a request of an operator. */
	ROUTINE = 256,
};

#define ANYONE POSTERN__PERMIT_NOTHING
#define SEND POSTERN__PERMIT_SEND
#define READ POSTERN__PERMIT_READ
#define BODIES POSTERN__PERMIT_BODIES
#define OPERATE POSTERN__PERMIT_OPERATE
#define ADMIN POSTERN__PERMIT_ADMIN

/* clang-format off */
static const struct route {
	const char *method;
	const char *pattern;
	enum postern__permission permission; /* of the token */
	unsigned flags;
	postern__route *run;
} routes[] = {
	{ "POST", "/v1/channels/{}/messages", SEND, QUICK | MESSAGE | INGEST | OF_CHANNEL, postern__route_accept },
	{ "POST", "/v1/channels/{}/webhooks/{}", ANYONE, QUICK | MESSAGE | INGEST, postern__route_webhook },
	{ "GET", "/v1/stats", READ, MARKERS, postern__route_stats },
	{ "GET", "/v1/channels", READ, MARKERS, postern__route_channels },
	{ "GET", "/v1/handlers", READ, MARKERS, postern__route_handlers },
	{ "GET", "/v1/nodes", READ, MARKERS, postern__route_nodes },
	{ "GET", "/v1/sources", READ, MARKERS, postern__route_sources },
	{ "GET", "/v1/deliveries", READ, OF_ROUTE, postern__route_list },
	{ "GET", "/v1/groups", READ, OF_ROUTE, postern__route_groups },
	{ "GET", "/v1/messages", READ, OF_ROUTE, postern__route_find },
	{ "GET", "/v1/messages/{}", READ, OF_ROUTE, postern__route_show },
	{ "GET", "/v1/messages/{}/body", BODIES, OF_ROUTE, postern__route_body },
	{ "POST", "/v1/deliveries/{}/{}/retry", OPERATE, OF_HANDLER, postern__route_retry },
	{ "POST", "/v1/deliveries/{}/{}/discard", OPERATE, OF_HANDLER, postern__route_discard },
	{ "POST", "/v1/deliveries/{}/{}/cancel", OPERATE, OF_HANDLER, postern__route_cancel },
	{ "POST", "/v1/deliveries/retry", OPERATE, OF_ROUTE, postern__route_retry_all },
	{ "POST", "/v1/deliveries/discard", OPERATE, OF_ROUTE, postern__route_discard_all },
	{ "POST", "/v1/deliveries/settle", OPERATE, OF_ROUTE | ROUTINE, postern__route_settle },
	{ "POST", "/v1/deliveries/{}/{}/extend", OPERATE, OF_HANDLER | ROUTINE, postern__route_extend },
	{ "POST", "/v1/handlers/{}/claim", OPERATE, QUICK | OF_HANDLER | ROUTINE, postern__route_claim },
	{ "POST", "/v1/handlers/{}/pause", OPERATE, OF_HANDLER, postern__route_pause },
	{ "POST", "/v1/handlers/{}/resume", OPERATE, OF_HANDLER, postern__route_resume },
	{ "POST", "/v1/channels/{}/close", OPERATE, OF_CHANNEL, postern__route_close },
	{ "POST", "/v1/channels/{}/open", OPERATE, OF_CHANNEL, postern__route_open },
	{ "POST", "/v1/cleanup", ADMIN, 0, postern__route_cleanup },
	{ "POST", "/v1/marks", SEND, MARKERS | OF_ROUTE, postern__route_marks },
	{ "GET", "/healthz", ANYONE, QUICK | PLAIN | MARKERS | INGEST, postern__route_health },
	{ "GET", "/readyz", ANYONE, QUICK | MARKERS, postern__route_ready },
	{ "GET", "/metrics", READ, MARKERS, postern__route_metrics },
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
	call->part_count = count;
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

/* Find the route of the request. NULL: refused. */
static const struct route *choose_route(struct postern__call *call,
		struct segments *path) {
	const struct postern__request *request = call->request;
	bool path_known = false;
	const struct route *route = NULL;
	if (cut_path(request->path, path)) {
		route = find_route(path, request->method, &path_known);
	}
	if (request->ingest_only && !(route && (route->flags & INGEST))) {
		route = NULL;
		path_known = false;
	}
	if (!route && path_known) {
		refuse_method(call, path);
	} else if (!route) {
		postern__call_refuse(call, 404, "there is nothing at '%s'",
				request->path);
	}
	return route;
}

static void refuse_role(struct postern__call *call,
		const struct postern__grant *grant, unsigned permission) {
	char roles[POSTERN__ROLES_TEXT_MAX];
	if (!grant->name) {
		postern__call_refuse(call, 401,
				grant->unknown
						? "the token is not one of this server's"
						: "a token is needed: send the header 'Authorization: "
						  "Bearer TOKEN' (on the command line: --token-file "
						  "FILE)");
		postern__response_header(call->response, "WWW-Authenticate",
				grant->unknown ? "Bearer error=\"invalid_token\"" : "Bearer");
		return;
	}
	postern__roles_with(permission, roles);
	postern__call_refuse(call, 403,
			"the role '%s' of the token '%.80s' does not allow this; it needs "
			"the role %s%s",
			grant->role, grant->name, roles,
			permission == BODIES ? ", or 'payloads: true'" : "");
}

/* What the request needs: more than its route if it asks for details. */
static unsigned permission_of(const struct postern__call *call,
		const struct route *route) {
	bool detailed = (route->flags & PLAIN) && call->request->query;
	return detailed ? READ : (unsigned)route->permission;
}

/* Whether the grant allows the route, as far as its parts say. False:
   refused. */
static bool check_grant(struct postern__call *call, const struct route *route) {
	const struct postern__grant *grant = call->request->grant;
	const unsigned permission = permission_of(call, route);
	if (!grant || permission == ANYONE) {
		return true;
	}
	if (!(grant->permissions & permission)) {
		refuse_role(call, grant, permission);
		return false;
	}
	if (grant->channel_count == 0 || (route->flags & OF_ROUTE)) {
		return true;
	}
	if (route->flags & OF_CHANNEL) {
		return postern__call_may_use(call, call->parts[0]);
	}
	if (route->flags & OF_HANDLER) {
		return postern__call_may_handle(call,
				call->parts[call->part_count - 1]);
	}
	postern__call_refuse(call, 403,
			"the token '%s' is for some channels only, and this is about all",
			grant->name);
	return false;
}

static void dispatch(struct postern__call *call) {
	struct segments path;
	if (!check_limits(call)) {
		return;
	}
	const struct route *route = choose_route(call, &path);
	if (route && fill_parts(call, &path, route->pattern) &&
			check_grant(call, route) &&
			postern__call_stores(call, (route->flags & MARKERS) == 0)) {
		route->run(call);
	}
}

bool postern__api_admit(const struct postern__api *api,
		const struct postern__request *request,
		struct postern__response *response) {
	struct postern__call call = {
		.api = api,
		.request = request,
		.response = response,
	};
	struct segments path;
	const struct route *route = choose_route(&call, &path);
	bool admitted = route && fill_parts(&call, &path, route->pattern) &&
					check_grant(&call, route);
	postern__arena_finish(&call.arena);
	return admitted;
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

bool postern__api_is_routine(const char *method, const char *path) {
	return flags_of(method, path) & ROUTINE;
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
