/* SPDX-License-Identifier: MIT */

/*
 * One request and its answer.
 *
 * libmicrohttpd calls postern__exchange_step() when the headers are there, for
 * each piece of the body, when the body is whole, and again after a suspended
 * connection was resumed. The body is collected up to its limit; what is over
 * it is read and thrown away, unless it is so much that hanging up is kinder.
 *
 * Handing a request out: the thread of the daemon suspends the connection, some
 * other thread completes the response, and whichever of the two comes second
 * resumes it. They agree by one atomic exchange of `state`.
 */

#include "server/http_exchange.h"

#include <postern/error.h>
#include <postern/sys/clock.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/text.h"
#include "server/log.h"

/* A body that is not wanted is read up to here, so that the client sees the
   answer instead of a broken connection. */
#define DISCARD_LEN_MAX ((size_t)4 * 1024 * 1024)

/* Requests that wait for a worker. */
#define JOB_COUNT_MAX 256

void *postern__exchange_create(void *context, const char *uri,
		struct MHD_Connection *connection) {
	struct postern__exchange *exchange = calloc(1, sizeof *exchange);
	char *path = strdup(uri);
	if (!exchange || !path) {
		free(exchange);
		free(path);
		return NULL;
	}
	exchange->http = context;
	exchange->connection = connection;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection,
			MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	exchange->peer = info ? info->socket_context : NULL;
	exchange->path = path;
	exchange->query = strchr(path, '?');
	if (exchange->query) {
		*exchange->query++ = '\0';
	}
	postern__arena_init(&exchange->arena);
	postern__response_init(&exchange->response);
	return exchange;
}

static const char too_much[] = "too much is asked at once, try again later";

/* Add to a sum that has a limit; false if it would be passed. */
static bool reserve(atomic_size_t *sum, size_t len, size_t max) {
	size_t before = atomic_fetch_add(sum, len);
	if (len > max || before > max - len) {
		(void)atomic_fetch_sub(sum, len);
		return false;
	}
	return true;
}

/* Take bytes from what all bodies may have. */
static bool reserve_body(struct postern__exchange *exchange, size_t len) {
	struct postern__http *http = exchange->http;
	if (!reserve(&http->bodies_len, len, http->options.bodies_len_max)) {
		return false;
	}
	exchange->body_len_reserved += len;
	return true;
}

static void release_body(struct postern__exchange *exchange) {
	(void)atomic_fetch_sub(&exchange->http->bodies_len,
			exchange->body_len_reserved);
	exchange->body_len_reserved = 0;
	postern__buf_finish(&exchange->body);
}

/* Clients that do not read their answers must not use up all memory. */
static bool reserve_answer(struct postern__exchange *exchange) {
	struct postern__http *http = exchange->http;
	size_t len = exchange->response.body.len;
	if (!reserve(&http->answers_len, len, http->options.answers_len_max)) {
		return false;
	}
	exchange->answer_len_reserved = len;
	return true;
}

static void release_answer(struct postern__exchange *exchange) {
	(void)atomic_fetch_sub(&exchange->http->answers_len,
			exchange->answer_len_reserved);
	exchange->answer_len_reserved = 0;
}

static void refuse(struct postern__exchange *exchange, int status,
		const char *detail) {
	exchange->refused = true;
	release_body(exchange);
	postern__response_problem(&exchange->response, status, POSTERN_OK, detail);
}

/* Refused only for now. */
static void put_off(struct postern__exchange *exchange, const char *detail) {
	refuse(exchange, 503, detail);
	exchange->response.headers[0] = (struct postern__response_header){
		.name = "Retry-After",
		.value = "1",
	};
	exchange->response.header_count = 1;
}

/* The headers on their way into the request. */
struct collector {
	struct postern__exchange *exchange;
	struct postern_header *headers;
	size_t count;
	bool too_many;
	const char *malformed; /* what is wrong, if something is */
	unsigned host_count;
	const char *content_length;
	const char *transfer_encoding;
};

static bool is_token(const char *name, size_t len) {
	static const char others[] = "!#$%&'*+-.^_`|~";
	for (size_t i = 0; i < len; i++) {
		char c = name[i];
		if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
					(c >= 'a' && c <= 'z') || (c && strchr(others, c)))) {
			return false;
		}
	}
	return len > 0;
}

static enum MHD_Result collect(void *context, enum MHD_ValueKind kind,
		const char *name, size_t name_len, const char *value,
		size_t value_len) {
	struct collector *collector = context;
	(void)kind;
	if (collector->count == POSTERN__API_HEADER_COUNT_MAX) {
		collector->too_many = true;
		return MHD_NO;
	}
	if (!is_token(name, name_len)) {
		collector->malformed = "a header's name is malformed";
		return MHD_NO;
	}
	if (!value) {
		value = "";
	}
	if (memchr(value, '\0', value_len) || strpbrk(value, "\r\n")) {
		collector->malformed = "a header's value is malformed";
		return MHD_NO;
	}
	if (strcasecmp(name, "host") == 0 && ++collector->host_count > 1) {
		collector->malformed = "Host is given twice";
		return MHD_NO;
	}
	const char **framing = NULL;
	if (strcasecmp(name, "content-length") == 0) {
		framing = &collector->content_length;
	} else if (strcasecmp(name, "transfer-encoding") == 0) {
		framing = &collector->transfer_encoding;
	}
	if (framing && *framing) {
		collector->malformed = "the length of the body is given twice";
		return MHD_NO;
	}
	if (framing) {
		*framing = value;
	}
	collector->headers[collector->count++] =
			(struct postern_header){ name, value };
	return MHD_YES;
}

/*
 * What two readers could take for requests of different lengths is refused,
 * and the connection closed. False: refused.
 */
static bool read_headers(struct postern__exchange *exchange,
		struct collector *collector) {
	collector->headers = postern__arena_array(&exchange->arena,
			POSTERN__API_HEADER_COUNT_MAX, sizeof *collector->headers);
	if (!collector->headers) {
		put_off(exchange, too_much);
		return false;
	}
	(void)MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND,
			collect, collector);
	if (collector->too_many) {
		refuse(exchange, 431, "there are too many headers");
		exchange->closing = true;
		return false;
	}
	const char *wrong = collector->malformed;
	if (!wrong && collector->content_length && collector->transfer_encoding) {
		wrong = "Content-Length and Transfer-Encoding contradict each other";
	}
	if (!wrong && collector->transfer_encoding &&
			strcasecmp(collector->transfer_encoding, "chunked") != 0) {
		wrong = "no Transfer-Encoding but chunked is known";
	}
	if (wrong) {
		refuse(exchange, 400, wrong);
		exchange->closing = true;
		return false;
	}
	exchange->request.headers = collector->headers;
	exchange->request.header_count = collector->count;
	return true;
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

/*
 * The headers are there. True: the body may come. False: answer now, the rest
 * of the connection is lost.
 */
static bool begin(struct postern__exchange *exchange, const char *method) {
	struct postern__http *http = exchange->http;
	struct collector collector = { .exchange = exchange };
	exchange->begun = true;
	exchange->request.method = method;
	exchange->request.path = exchange->path;
	exchange->request.query = exchange->query;
	exchange->request.transport = transport_of(exchange);

	size_t len_max = postern__api_body_len_max(http->options.api, method,
			exchange->path);
	postern__buf_init(&exchange->body, len_max);
	if (!read_headers(exchange, &collector)) {
		return false;
	}
	uint64_t len = 0;
	if (collector.content_length &&
			postern__count_parse(collector.content_length, 0, UINT64_MAX, &len,
					NULL) != POSTERN_OK) {
		refuse(exchange, 400, "Content-Length is malformed");
		exchange->closing = true;
		return false;
	}
	if (len > len_max) {
		struct postern_error error;
		(void)postern__fail(&error, POSTERN_E_INVALID,
				"the body is over %zu bytes", len_max);
		refuse(exchange, 413, error.text);
	} else if (!reserve_body(exchange, (size_t)len)) {
		put_off(exchange, too_much);
	}
	if (exchange->refused &&
			(len > DISCARD_LEN_MAX || expects_continue(exchange))) {
		exchange->closing = true;
		return false;
	}
	return true;
}

/* One more piece of the body. False: hang up. */
static bool take_piece(struct postern__exchange *exchange, const char *piece,
		size_t len) {
	if (!exchange->refused) {
		size_t need = exchange->body.len + len;
		if (need > exchange->body.len_max) {
			struct postern_error error;
			(void)postern__fail(&error, POSTERN_E_INVALID,
					"the body is over %zu bytes", exchange->body.len_max);
			refuse(exchange, 413, error.text);
		} else if (need > exchange->body_len_reserved &&
				   !reserve_body(exchange,
						   need - exchange->body_len_reserved)) {
			put_off(exchange, too_much);
		}
	}
	if (exchange->refused) {
		exchange->discarded_len += len;
		return exchange->discarded_len <= DISCARD_LEN_MAX;
	}
	postern__buf_append(&exchange->body, piece, len);
	if (exchange->body.failed != POSTERN_OK) {
		put_off(exchange, too_much);
	}
	return true;
}

/* The response is complete: on whatever thread completed it. */
static void settle(void *context) {
	struct postern__exchange *exchange = context;
	int before = atomic_exchange(&exchange->state, POSTERN__EXCHANGE_ANSWERED);
	if (before == POSTERN__EXCHANGE_SUSPENDED) {
		/* After this the exchange may be gone at any moment. */
		MHD_resume_connection(exchange->connection);
	}
}

/* The daemon's side of it. */
static void suspend(struct postern__exchange *exchange) {
	MHD_suspend_connection(exchange->connection);
	int expected = POSTERN__EXCHANGE_ASKED;
	if (!atomic_compare_exchange_strong(&exchange->state, &expected,
				POSTERN__EXCHANGE_SUSPENDED)) {
		MHD_resume_connection(exchange->connection);
	}
}

/* Who changed what by hand is worth a line. */
static void log_change(const struct postern__exchange *exchange) {
	const struct postern__http_peer *peer = exchange->peer;
	postern__log(exchange->http->options.log, POSTERN__LOG_INFO,
			"asked for a change",
			postern__log_text("method", exchange->request.method),
			postern__log_text("path", exchange->path),
			postern__log_int("status", exchange->response.status),
			postern__log_int("uid", peer ? (int64_t)peer->uid : -1),
			postern__log_int("pid", peer ? peer->pid : 0));
}

void postern__exchange_run(struct postern__exchange *exchange) {
	postern__api_handle(exchange->http->options.api, &exchange->request,
			&exchange->response);
	if (strcmp(exchange->request.method, "POST") == 0) {
		log_change(exchange);
	}
	settle(exchange);
}

/* Give it to a worker; false if too many wait. */
static bool queue_job(struct postern__exchange *exchange) {
	struct postern__http *http = exchange->http;
	(void)pthread_mutex_lock(&http->mutex);
	bool room = http->job_count < JOB_COUNT_MAX;
	if (room) {
		http->job_count++;
		postern__list_push_back(&http->jobs, &exchange->link);
		(void)pthread_cond_broadcast(&http->changed);
	}
	(void)pthread_mutex_unlock(&http->mutex);
	return room;
}

/* The request is whole. True: the response is complete as well. */
static bool ask(struct postern__exchange *exchange) {
	struct postern__http *http = exchange->http;
	exchange->request.body = postern__buf_text(&exchange->body);
	exchange->request.body_len = exchange->body.len;
	if (postern__api_is_quick(exchange->request.method, exchange->path)) {
		return postern__api_begin(http->options.api, &exchange->request,
				&exchange->response, settle, exchange);
	}
	if (queue_job(exchange)) {
		return false;
	}
	put_off(exchange, too_much);
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

static enum MHD_Result answer(struct postern__exchange *exchange) {
	postern__response_check(&exchange->response);
	if (!reserve_answer(exchange)) {
		put_off(exchange, too_much);
	}
	/* What was asked need not be kept while the answer is on its way. */
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

/* Have it counted. False: the server is about to end and must not be kept. */
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

/* It is not suspended any more, and will not be again. */
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
		return MHD_NO; /* no memory */
	}
	if (!exchange->begun) {
		return begin(exchange, method) ? MHD_YES : answer(exchange);
	}
	if (*upload_len > 0) {
		bool go_on = take_piece(exchange, upload, *upload_len);
		*upload_len = 0;
		return go_on ? MHD_YES : MHD_NO;
	}
	if (exchange->asked || exchange->refused) {
		count_answered(exchange);
		return answer(exchange);
	}
	if (!count_in(exchange)) {
		put_off(exchange, "the server is stopping, try again later");
		exchange->closing = true;
		return answer(exchange);
	}
	postern__peer_deadline(exchange->http, exchange->peer, 0);
	if (ask(exchange)) {
		count_answered(exchange);
		return answer(exchange);
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
	postern__peer_deadline(http, exchange->peer, http->options.receive_ms);
	release_body(exchange);
	release_answer(exchange);
	postern__response_finish(&exchange->response);
	postern__arena_finish(&exchange->arena);
	free(exchange->path);
	free(exchange);
}
