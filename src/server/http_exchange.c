/* SPDX-License-Identifier: MIT */

/*
 * One request and its response.
 *
 * libmicrohttpd calls postern__exchange_step() when the headers were read, for
 * each piece of the body, when the body is complete, and again after a
 * suspended connection was resumed. The body is collected up to its limit; the
 * rest is read and discarded, unless it is so long that the connection is
 * closed.
 *
 * Deferring a request: the thread of the daemon suspends the connection,
 * another thread completes the response, and the second of the two resumes the
 * connection. They synchronise by one atomic exchange of `state`.
 */

#include "server/http_exchange.h"

#include <assert.h>
#include <poll.h>
#include <postern/error.h>
#include <postern/sys/clock.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/text.h"
#include "server/auth.h"
#include "server/log.h"
#include "server/tcp.h"

/* A refused body is read up to here, so that the client sees the response
   instead of a broken connection. */
#define DISCARD_LEN_MAX ((size_t)4 * 1024 * 1024)

/* Requests that wait for a worker. */
#define JOB_COUNT_MAX 256

static struct postern__http_site *take_site(struct postern__http *http) {
	(void)pthread_mutex_lock(&http->mutex);
	struct postern__http_site *site = http->site;
	site->user_count++;
	(void)pthread_mutex_unlock(&http->mutex);
	return site;
}

static void release_site(struct postern__http *http,
		struct postern__http_site *site) {
	(void)pthread_mutex_lock(&http->mutex);
	site->user_count--;
	(void)pthread_mutex_unlock(&http->mutex);
}

void *postern__exchange_create(void *context, const char *uri,
		struct MHD_Connection *connection) {
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection,
			MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct postern__http_peer *peer = info ? info->socket_context : NULL;
	/* Only requests that the framing has validated are served. */
	if (!peer || peer->exchange_count >= peer->framing.request_count) {
		return NULL;
	}
	struct postern__exchange *exchange = calloc(1, sizeof *exchange);
	char *path = strdup(uri);
	if (!exchange || !path) {
		free(exchange);
		free(path);
		return NULL;
	}
	exchange->http = context;
	exchange->site = take_site(exchange->http);
	exchange->connection = connection;
	exchange->peer = peer;
	exchange->number = ++peer->exchange_count;
	postern__peer_begin(exchange->http, peer);
	exchange->path = path;
	exchange->query = strchr(path, '?');
	if (exchange->query) {
		*exchange->query++ = '\0';
	}
	postern__arena_init(&exchange->arena);
	postern__response_init(&exchange->response);
	return exchange;
}

static const char too_much[] = "too many concurrent requests; retry later";

/* Add to a sum that has a limit; false if the limit would be exceeded. */
static bool add_within_limit(atomic_size_t *sum, size_t len, size_t max) {
	size_t before = atomic_fetch_add(sum, len);
	if (len > max || before > max - len) {
		(void)atomic_fetch_sub(sum, len);
		return false;
	}
	return true;
}

/* Reserve bytes of one limit and of the limit for everything. */
static bool reserve(struct postern__http *http, atomic_size_t *sum, size_t len,
		size_t max) {
	if (!add_within_limit(&http->memory_len, len, http->options.memory_max)) {
		return false;
	}
	if (!add_within_limit(sum, len, max)) {
		(void)atomic_fetch_sub(&http->memory_len, len);
		return false;
	}
	return true;
}

static void release(struct postern__http *http, atomic_size_t *sum,
		size_t *len) {
	(void)atomic_fetch_sub(sum, *len);
	(void)atomic_fetch_sub(&http->memory_len, *len);
	*len = 0;
}

/* Reserve what a request needs whatever it is. */
static bool reserve_own(struct postern__exchange *exchange) {
	struct postern__http *http = exchange->http;
	if (!add_within_limit(&http->memory_len, POSTERN__CONNECTION_MEMORY,
				http->options.memory_max)) {
		return false;
	}
	exchange->own_len_reserved = POSTERN__CONNECTION_MEMORY;
	return true;
}

/* Reserve bytes of the limit for all bodies. */
static bool reserve_body(struct postern__exchange *exchange, size_t len) {
	struct postern__http *http = exchange->http;
	if (!reserve(http, &http->bodies_len, len, http->options.bodies_len_max)) {
		return false;
	}
	exchange->body_len_reserved += len;
	return true;
}

static void release_body(struct postern__exchange *exchange) {
	release(exchange->http, &exchange->http->bodies_len,
			&exchange->body_len_reserved);
	postern__buf_finish(&exchange->body);
}

/* Clients that do not read their responses must not exhaust the memory. */
static bool reserve_answer(struct postern__exchange *exchange, size_t len) {
	struct postern__http *http = exchange->http;
	size_t before = exchange->answer_len_reserved;
	if (len <= before) {
		return true;
	}
	if (!reserve(http, &http->answers_len, len - before,
				http->options.answers_len_max)) {
		return false;
	}
	exchange->answer_len_reserved = len;
	return true;
}

/* On the thread that completes the response. */
static bool reserve_early(void *context, size_t len) {
	return reserve_answer(context, len);
}

static void release_answer(struct postern__exchange *exchange) {
	release(exchange->http, &exchange->http->answers_len,
			&exchange->answer_len_reserved);
}

static void refuse_request(struct postern__exchange *exchange, int status,
		const char *detail) {
	exchange->refused = true;
	release_body(exchange);
	postern__response_problem(&exchange->response, status, POSTERN_OK, detail);
}

/* Refused with Retry-After. */
static void defer(struct postern__exchange *exchange, const char *detail) {
	refuse_request(exchange, 503, detail);
	exchange->response.headers[0] = (struct postern__response_header){
		.name = "Retry-After",
		.value = "1",
	};
	exchange->response.header_count = 1;
}

/* The same for want of memory, or of connections. */
static void defer_in_crowd(struct postern__exchange *exchange,
		const char *detail) {
	postern__http_relieve(exchange->http);
	defer(exchange, detail);
}

/* Copies the headers into the request. */
struct collector {
	struct postern_header *headers;
	size_t count;
	const char *content_length;
};

/* The framing has validated and counted them. */
static enum MHD_Result read_header(void *context, enum MHD_ValueKind kind,
		const char *name, size_t name_len, const char *value,
		size_t value_len) {
	struct collector *collector = context;
	(void)kind;
	(void)name_len;
	(void)value_len;
	assert(collector->count < POSTERN__API_HEADER_COUNT_MAX);
	if (!value) {
		value = "";
	}
	if (strcasecmp(name, "content-length") == 0) {
		collector->content_length = value;
	}
	collector->headers[collector->count++] =
			(struct postern_header){ name, value };
	return MHD_YES;
}

/* False: refused. */
static bool read_headers(struct postern__exchange *exchange,
		struct collector *collector) {
	collector->headers = postern__arena_array(&exchange->arena,
			POSTERN__API_HEADER_COUNT_MAX, sizeof *collector->headers);
	if (!collector->headers) {
		defer(exchange, too_much);
		return false;
	}
	(void)MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND,
			read_header, collector);
	exchange->request.headers = collector->headers;
	exchange->request.header_count = collector->count;
	return true;
}

/* Who sent a request, as fields of a log line that end with an empty one. */
#define SENDER_FIELD_COUNT 4
struct sender {
	char client[POSTERN__TCP_TEXT_MAX];
};

static void name_sender(const struct postern__exchange *exchange,
		struct sender *room, struct postern__log_field *out) {
	const struct postern__http_peer *peer = exchange->peer;
	size_t count = 0;
	if (peer->listener->address.socket) {
		out[count++] = postern__log_int("uid", (int64_t)peer->uid);
		out[count++] = postern__log_int("pid", peer->pid);
	} else {
		postern__tcp_peer(peer->fd, room->client);
		out[count++] = postern__log_text("client", room->client);
	}
	if (exchange->request.grant && exchange->request.grant->name) {
		out[count++] =
				postern__log_text("token", exchange->request.grant->name);
	}
	out[count] = (struct postern__log_field){ 0 };
}

/* Refuse the request if the framing did. True: refused. */
static bool check_framing(struct postern__exchange *exchange) {
	const struct postern__framing *framing = &exchange->peer->framing;
	if (framing->refused_number != exchange->number) {
		return false;
	}
	struct sender sender;
	struct postern__log_field fields[2 + SENDER_FIELD_COUNT] = {
		postern__log_int("status", framing->status),
		postern__log_text("problem", framing->problem),
	};
	name_sender(exchange, &sender, fields + 2);
	postern__log_write(exchange->http->options.log,
			postern__log_head(POSTERN__LOG_REFUSED, NULL), fields);
	refuse_request(exchange, framing->status, framing->problem);
	exchange->closing = true;
	return true;
}

static bool is_health_check(const struct postern__exchange *exchange) {
	return strcmp(exchange->path, "/healthz") == 0 ||
		   strcmp(exchange->path, "/readyz") == 0;
}

/* A connection over the limit serves health checks only. True: refused. */
static bool refuse_crowd(struct postern__exchange *exchange) {
	struct postern__http_peer *peer = exchange->peer;
	if (!peer->reserved || is_health_check(exchange) ||
			postern__peer_is_regular(peer)) {
		return false;
	}
	defer_in_crowd(exchange, "too many connections; retry later");
	exchange->closing = true;
	return true;
}

/* Whether the sender may make this request; false: the response says why. */
static bool admit(struct postern__exchange *exchange) {
	const struct postern__http_address *address =
			&exchange->peer->listener->address;
	struct postern__request *request = &exchange->request;
	const struct postern__http_site *site = exchange->site;
	bool admitted = !site->auth ||
					postern__auth_admit(site->auth, address->local,
							address->tcp != NULL, request, &exchange->response);
	if (admitted && (request->grant || request->ingest_only)) {
		admitted = postern__api_admit(site->api, request, &exchange->response);
	}
	return admitted;
}

static bool expects_continue(const struct postern__exchange *exchange) {
	return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND,
				   "Expect") != NULL;
}

static const char *transport_of(const struct postern__exchange *exchange) {
	static const char command[] = POSTERN__API_COMMAND_AGENT;
	const char *agent = MHD_lookup_connection_value(exchange->connection,
			MHD_HEADER_KIND, "User-Agent");
	return agent && strncmp(agent, command, sizeof command - 1) == 0 ? "cli"
																	 : "http";
}

/* Whether the client is still there; on any thread, while the connection is
   suspended, so nobody else reads from it. */
static bool is_wanted(void *context) {
	const struct postern__exchange *exchange = context;
	struct pollfd fd = { .fd = exchange->peer->fd, .events = POLLRDHUP };
	return poll(&fd, 1, 0) <= 0 ||
		   !(fd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/*
 * The headers were read. True: read the body. False: respond now and close the
 * connection.
 */
static bool request_begin(struct postern__exchange *exchange,
		const char *method) {
	struct collector collector = { 0 };
	exchange->begun = true;
	exchange->request.method = method;
	exchange->request.path = exchange->path;
	exchange->request.query = exchange->query;
	exchange->request.transport = transport_of(exchange);
	exchange->request.ingest_only =
			exchange->peer->listener->address.ingest_only;
	exchange->request.wanted = is_wanted;
	exchange->request.reserve = reserve_early;
	exchange->request.sender_context = exchange;
	if (check_framing(exchange) || refuse_crowd(exchange)) {
		return false;
	}

	postern__buf_init(&exchange->body, 0);
	if (!read_headers(exchange, &collector)) {
		return false;
	}
	size_t len_max =
			postern__api_body_len_max(exchange->site->api, &exchange->request);
	postern__buf_init(&exchange->body, len_max);
	uint64_t len = 0;
	if (collector.content_length &&
			postern__count_parse(collector.content_length, 0, UINT64_MAX, &len,
					NULL) != POSTERN_OK) {
		refuse_request(exchange, 400, "Content-Length is malformed");
		exchange->closing = true;
		return false;
	}
	if (len > len_max) {
		struct postern_error error;
		(void)postern__fail(&error, POSTERN_E_INVALID,
				"the body exceeds %zu bytes", len_max);
		refuse_request(exchange, 413, error.text);
	} else if (!admit(exchange)) {
		exchange->refused = true;
	} else if ((!is_health_check(exchange) && !reserve_own(exchange)) ||
			   !reserve_body(exchange, (size_t)len)) {
		defer_in_crowd(exchange, too_much);
	}
	if (exchange->refused &&
			(len > DISCARD_LEN_MAX || expects_continue(exchange))) {
		exchange->closing = true;
		return false;
	}
	return true;
}

/* Append one more piece of the body. False: close the connection. */
static bool append_body(struct postern__exchange *exchange, const char *piece,
		size_t len) {
	if (!exchange->refused) {
		size_t need = exchange->body.len + len;
		if (need > exchange->body.len_max) {
			struct postern_error error;
			(void)postern__fail(&error, POSTERN_E_INVALID,
					"the body exceeds %zu bytes", exchange->body.len_max);
			refuse_request(exchange, 413, error.text);
		} else if (need > exchange->body_len_reserved &&
				   !reserve_body(exchange,
						   need - exchange->body_len_reserved)) {
			defer_in_crowd(exchange, too_much);
		}
	}
	if (exchange->refused) {
		exchange->discarded_len += len;
		return exchange->discarded_len <= DISCARD_LEN_MAX;
	}
	postern__buf_append(&exchange->body, piece, len);
	if (exchange->body.failed != POSTERN_OK) {
		defer(exchange, too_much);
	}
	return true;
}

/* The response is complete; called on the thread that completed it. */
static void response_complete(void *context) {
	struct postern__exchange *exchange = context;
	int before = atomic_exchange(&exchange->state, POSTERN__EXCHANGE_ANSWERED);
	if (before == POSTERN__EXCHANGE_SUSPENDED) {
		/* After this another thread may free the exchange. */
		MHD_resume_connection(exchange->connection);
	}
}

/* The same on the daemon's thread: suspend the connection. */
static void suspend(struct postern__exchange *exchange) {
	MHD_suspend_connection(exchange->connection);
	int expected = POSTERN__EXCHANGE_ASKED;
	if (!atomic_compare_exchange_strong(&exchange->state, &expected,
				POSTERN__EXCHANGE_SUSPENDED)) {
		MHD_resume_connection(exchange->connection);
	}
}

/* The log message of an operator's request, by its last path segment. */
static const char *change_message(const char *path) {
	static const char *const messages[][2] = {
		{ "/retry", "retry requested by operator" },
		{ "/discard", "discard requested by operator" },
		{ "/pause", "pause requested by operator" },
		{ "/resume", "resume requested by operator" },
		{ "/cleanup", "cleanup requested by operator" },
	};
	const char *last = strrchr(path, '/');
	for (size_t i = 0; last && i < sizeof messages / sizeof messages[0]; i++) {
		if (strcmp(last, messages[i][0]) == 0) {
			return messages[i][1];
		}
	}
	return NULL; /* the general one */
}

/* Every change by an operator is logged with its sender. */
static void log_change(const struct postern__exchange *exchange) {
	struct sender sender;
	struct postern__log_field fields[3 + SENDER_FIELD_COUNT] = {
		postern__log_text("method", exchange->request.method),
		postern__log_text("path", exchange->path),
		postern__log_int("status", exchange->response.status),
	};
	name_sender(exchange, &sender, fields + 3);
	postern__log_write(exchange->http->options.log,
			postern__log_head(POSTERN__LOG_OPERATOR,
					change_message(exchange->path)),
			fields);
}

void postern__exchange_run(struct postern__exchange *exchange) {
	postern__api_handle(exchange->site->api, &exchange->request,
			&exchange->response);
	if (strcmp(exchange->request.method, "POST") == 0 &&
			!postern__api_is_routine(exchange->request.method,
					exchange->path)) {
		log_change(exchange);
	}
	response_complete(exchange);
}

/* Queue the exchange for a worker; false if too many wait. */
static bool queue_job(struct postern__exchange *exchange) {
	struct postern__http *http = exchange->http;
	(void)pthread_mutex_lock(&http->mutex);
	bool room = http->job_count < JOB_COUNT_MAX;
	if (room) {
		http->job_count++;
		postern__list_push_back(&http->jobs, &exchange->link);
		(void)pthread_cond_signal(&http->queued);
	}
	(void)pthread_mutex_unlock(&http->mutex);
	return room;
}

/* The request is complete. True: the response is complete as well. */
static bool dispatch(struct postern__exchange *exchange) {
	exchange->request.body = postern__buf_text(&exchange->body);
	exchange->request.body_len = exchange->body.len;
	if (postern__api_is_quick(exchange->request.method, exchange->path,
				exchange->query)) {
		return postern__api_begin(exchange->site->api, &exchange->request,
				&exchange->response, response_complete, exchange);
	}
	if (queue_job(exchange)) {
		return false;
	}
	defer(exchange, too_much);
	return true;
}

static enum MHD_Result add_headers(struct MHD_Response *out,
		const struct postern__exchange *exchange) {
	const struct postern__response *response = &exchange->response;
	enum MHD_Result r = MHD_add_response_header(out, "Content-Type",
			response->content_type);
	r &= MHD_add_response_header(out, "X-Content-Type-Options", "nosniff");
	r &= MHD_add_response_header(out, "Cache-Control", "no-store");
	for (size_t i = 0; i < response->header_count; i++) {
		r &= MHD_add_response_header(out, response->headers[i].name,
				response->headers[i].value);
	}
	if (exchange->closing) {
		r &= MHD_add_response_header(out, "Connection", "close");
	}
	return r;
}

static enum MHD_Result send_response(struct postern__exchange *exchange) {
	postern__response_check(&exchange->response);
	if (!reserve_answer(exchange, exchange->response.body.len)) {
		defer_in_crowd(exchange, too_much);
	}
	/* The request is freed while the response is sent. */
	release_body(exchange);
	postern__peer_deadline(exchange->http, exchange->peer,
			exchange->http->options.send_ms);

	size_t len;
	char *bytes = postern__buf_detach(&exchange->response.body, &len);
	if (!bytes) {
		return MHD_NO;
	}
	struct MHD_Response *out =
			MHD_create_response_from_buffer(len, bytes, MHD_RESPMEM_MUST_FREE);
	if (!out) {
		free(bytes);
		return MHD_NO;
	}
	enum MHD_Result r = add_headers(out, exchange);
	if (r == MHD_YES) {
		r = MHD_queue_response(exchange->connection,
				(unsigned)exchange->response.status, out);
	}
	MHD_destroy_response(out);
	return r;
}

/* Count the exchange. False: the server is about to end and must not wait for
   it. */
static bool count_in(struct postern__exchange *exchange) {
	struct postern__http *http = exchange->http;
	(void)pthread_mutex_lock(&http->mutex);
	bool open = !http->closing;
	if (open) {
		http->asked_count++;
		http->active_count++;
		exchange->asked = true;
		exchange->waiting = true;
	}
	(void)pthread_mutex_unlock(&http->mutex);
	return open;
}

/* The connection is not suspended any more, and will not be again. */
static void count_answered(struct postern__exchange *exchange) {
	struct postern__http *http = exchange->http;
	if (exchange->waiting) {
		exchange->waiting = false;
		(void)pthread_mutex_lock(&http->mutex);
		http->asked_count--;
		(void)pthread_cond_broadcast(&http->changed);
		(void)pthread_mutex_unlock(&http->mutex);
	}
}

static void count_out(struct postern__exchange *exchange) {
	struct postern__http *http = exchange->http;
	count_answered(exchange);
	if (exchange->asked) {
		(void)pthread_mutex_lock(&http->mutex);
		http->active_count--;
		(void)pthread_cond_broadcast(&http->changed);
		(void)pthread_mutex_unlock(&http->mutex);
	}
}

enum MHD_Result postern__exchange_step(void *context,
		struct MHD_Connection *connection, const char *url, const char *method,
		const char *version, const char *upload, size_t *upload_len,
		void **own_context) {
	struct postern__exchange *exchange = *own_context;
	(void)context;
	(void)connection;
	(void)url; /* decoded, which is too early */
	(void)version;

	if (!exchange) {
		return MHD_NO; /* no memory, or not validated */
	}
	if (!exchange->begun) {
		return request_begin(exchange, method) ? MHD_YES
											   : send_response(exchange);
	}
	if (*upload_len > 0) {
		bool go_on = append_body(exchange, upload, *upload_len);
		*upload_len = 0;
		return go_on ? MHD_YES : MHD_NO;
	}
	if (exchange->asked || exchange->refused || check_framing(exchange)) {
		count_answered(exchange);
		return send_response(exchange);
	}
	if (!count_in(exchange)) {
		defer(exchange, "the server is stopping; retry later");
		exchange->closing = true;
		return send_response(exchange);
	}
	postern__peer_deadline(exchange->http, exchange->peer, 0);
	if (dispatch(exchange)) {
		count_answered(exchange);
		return send_response(exchange);
	}
	suspend(exchange);
	return MHD_YES;
}

void postern__exchange_end(void *context, struct MHD_Connection *connection,
		void **own_context, enum MHD_RequestTerminationCode why) {
	struct postern__exchange *exchange = *own_context;
	struct postern__http *http = context;
	(void)connection;
	(void)why;

	if (!exchange) {
		return;
	}
	*own_context = NULL;
	count_out(exchange);
	postern__peer_rest(http, exchange->peer);
	release_body(exchange);
	release_answer(exchange);
	(void)atomic_fetch_sub(&http->memory_len, exchange->own_len_reserved);
	postern__response_finish(&exchange->response);
	postern__arena_finish(&exchange->arena);
	release_site(http, exchange->site);
	free(exchange->path);
	free(exchange);
}
