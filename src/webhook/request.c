/* SPDX-License-Identifier: MIT */

/*
 * From a message to a request: a CloudEvent in binary form, with what libcurl
 * would do on its own switched off. Each value is percent-encoded or refused,
 * so nothing in a message ends a header.
 *
 * The guard asks twice. Before a socket is created, the address that it is for
 * is judged; before the request is sent, the address of the connection is, for
 * a connection may be that of an earlier request with another guard.
 */

#include "webhook/request.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <postern/sys/random.h>
#include <postern/version.h>

#include "base/container.h"
#include "base/fail.h"
#include "base/percent.h"
#include "base/text.h"
#include "base/trace.h"
#include "handler/kinds.h"
#include "source/cloudevent.h"

/* The longest header of a message: its name, and a value of which each byte is
   encoded. */
#define LINE_LEN_MAX \
	(POSTERN_HEADER_NAME_LEN_MAX + 8 + 3 * POSTERN_HEADER_VALUE_LEN_MAX)

static atomic_ulong sockets_refused;
static atomic_ulong sockets_opened;

struct postern__webhook_socket_counts postern__webhook_socket_counts(void) {
	return (struct postern__webhook_socket_counts){
		.refused = atomic_load(&sockets_refused),
		.opened = atomic_load(&sockets_opened),
	};
}

/* Headers of the exchange, and those that Postern sets. Names that end in '-'
   are prefixes. */
static const char *const reserved[] = { "ce-", "connection", "content-length",
	"content-type", "expect", "host", "keep-alive", "postern-", "proxy-", "te",
	"traceparent", "trailer", "transfer-encoding", "upgrade", "webhook-" };

/* And those that a message may not set: they belong to the receiver's
   definition, or claim who has sent the request. */
static const char *const reserved_in_messages[] = { "accept", "accept-",
	"api-key", "authorization", "cookie", "forwarded", "if-", "origin", "range",
	"referer", "sec-", "user-agent", "via", "x-access-token", "x-api-key",
	"x-auth-token", "x-forwarded-", "x-gitlab-token", "x-real-ip" };

static bool is_listed(const char *const *list, size_t count, const char *name,
		size_t len) {
	for (size_t i = 0; i < count; i++) {
		size_t known = strlen(list[i]);
		bool prefix = list[i][known - 1] == '-';
		if (strncasecmp(name, list[i], known) == 0 &&
				(prefix ? len >= known : len == known)) {
			return true;
		}
	}
	return false;
}

static bool is_token(const char *name, size_t len) {
	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)name[i]) &&
				!memchr("!#$%&'*+-.^_`|~", name[i], 15)) {
			return false;
		}
	}
	return len > 0;
}

bool postern__webhook_header_name_ok(const char *name, size_t len) {
	return is_token(name, len) &&
		   !is_listed(reserved, sizeof reserved / sizeof reserved[0], name,
				   len);
}

/* Whether a value can be sent as it is. */
static bool is_printable(const char *value) {
	for (; *value; value++) {
		if (*value < ' ' || *value > '~') {
			return false;
		}
	}
	return true;
}

/* The headers of a request as they are made. */
struct draft {
	struct curl_slist *list;
	struct postern__buf line;
	bool failed; /* out of memory */
};

static void add_line(struct draft *draft) {
	struct curl_slist *longer =
			draft->line.failed ? NULL
							   : curl_slist_append(draft->list,
										 postern__buf_text(&draft->line));
	draft->failed = draft->failed || !longer;
	draft->list = longer ? longer : draft->list;
}

enum encoding { PLAIN, ENCODED };

static void add(struct draft *draft, const char *prefix, const char *name,
		const char *value, enum encoding encoding) {
	if (!value) {
		return;
	}
	postern__buf_reset(&draft->line);
	postern__buf_append_text(&draft->line, prefix);
	postern__buf_append_text(&draft->line, name);
	/* libcurl's notation for a header without a value. */
	postern__buf_append_text(&draft->line, *value ? ": " : ";");
	if (encoding == ENCODED) {
		postern__percent_header(&draft->line, value);
	} else {
		postern__buf_append_text(&draft->line, value);
	}
	add_line(draft);
}

/* libcurl adds this header, unless it is in the list without a value. */
static void leave_out(struct draft *draft, const char *name) {
	postern__buf_reset(&draft->line);
	postern__buf_printf(&draft->line, "%s:", name);
	add_line(draft);
}

static void add_attributes(struct draft *draft,
		const struct postern_message *message) {
	/* A message without a type is no CloudEvent. */
	bool event = message->type && *message->type;
	add(draft, "ce-", "specversion", event ? "1.0" : NULL, PLAIN);
	add(draft, "ce-", "id", message->id, ENCODED);
	add(draft, "ce-", "source", message->source, ENCODED);
	add(draft, "ce-", "type", event ? message->type : NULL, ENCODED);
	add(draft, "ce-", "subject", message->subject, ENCODED);
	add(draft, "ce-", "time", message->time, ENCODED);
	add(draft, "ce-", "correlationid", message->correlation_id, ENCODED);
	if (message->content_type && *message->content_type &&
			is_printable(message->content_type)) {
		add(draft, "", "Content-Type", message->content_type, PLAIN);
	} else {
		leave_out(draft, "Content-Type");
	}
}

static bool has_header(const struct postern__webhook_target *target,
		const char *name, size_t len) {
	for (size_t i = 0; i < target->header_count; i++) {
		if (strncasecmp(target->headers[i], name, len) == 0 &&
				target->headers[i][len] == ':') {
			return true;
		}
	}
	return false;
}

/* "ce-NAME" is an extension; other headers are passed on as they are. */
static void add_message_headers(struct draft *draft,
		const struct postern__webhook_target *target,
		const struct postern_message *message) {
	for (size_t i = 0; i < message->header_count; i++) {
		const struct postern_header *header = &message->headers[i];
		size_t len = strlen(header->name);
		bool extension = postern__cloudevent_is_extension(header->name);
		bool passes = postern__webhook_header_name_ok(header->name, len) &&
					  !is_listed(reserved_in_messages,
							  sizeof reserved_in_messages /
									  sizeof reserved_in_messages[0],
							  header->name, len) &&
					  !has_header(target, header->name, len);
		if ((extension && is_token(header->name, len)) || passes) {
			add(draft, "", header->name, header->value,
					extension || !is_printable(header->value) ? ENCODED
															  : PLAIN);
		}
	}
}

/* The trace of the message, with a span of its own for each attempt. */
static void add_trace(struct draft *draft, const char *traceparent) {
	const struct postern_random *random = postern_random_system();
	char text[POSTERN__TRACE_LEN + 1];
	if (postern__trace_continue(traceparent, random->next(random->context),
				text)) {
		add(draft, "", "traceparent", text, PLAIN);
	}
}

static void add_delivery(struct draft *draft,
		const struct postern_delivery *delivery) {
	char number[24];
	add(draft, "", "Postern-Handler", delivery->handler, PLAIN);
	(void)snprintf(number, sizeof number, "%" PRIu32, delivery->attempt);
	add(draft, "", "Postern-Attempt", number, PLAIN);
	(void)snprintf(number, sizeof number, "%" PRIu64, delivery->fence);
	add(draft, "", "Postern-Fence", number, PLAIN);
}

static void add_signature(struct draft *draft,
		const struct postern__webhook_secret *secrets, size_t count,
		const struct postern_message *message, int64_t time_s) {
	struct postern__buf id;
	struct postern__buf signature;
	char number[24];
	if (count == 0) {
		return;
	}
	postern__buf_init(&id, (size_t)3 * POSTERN_ID_LEN_MAX);
	postern__buf_init(&signature, (size_t)64 * WEBHOOK_SECRET_COUNT_MAX);
	/* What is signed is what the receiver reads in the header. */
	postern__percent_header(&id, message->id);
	postern__webhook_sign(secrets, count, postern__buf_text(&id), time_s,
			message->body, message->body_len, &signature);
	draft->failed = draft->failed || id.failed || signature.failed;
	(void)snprintf(number, sizeof number, "%" PRId64, time_s);
	add(draft, "", "webhook-id", postern__buf_text(&id), PLAIN);
	add(draft, "", "webhook-timestamp", number, PLAIN);
	add(draft, "", "webhook-signature", postern__buf_text(&signature), PLAIN);
	postern__buf_finish(&signature);
	postern__buf_finish(&id);
}

static bool make_headers(struct postern__webhook_request *request,
		const struct postern__webhook_secret *secrets, size_t secret_count,
		int64_t now_ms) {
	const struct postern_message *message = postern_run_message(request->run);
	struct draft draft = { 0 };
	postern__buf_init(&draft.line, LINE_LEN_MAX);
	add_attributes(&draft, message);
	add_message_headers(&draft, request->target, message);
	add_trace(&draft, message->traceparent);
	add_delivery(&draft, postern_run_delivery(request->run));
	add_signature(&draft, secrets, secret_count, message, now_ms / 1000);
	for (size_t i = 0; i < request->target->header_count; i++) {
		postern__buf_reset(&draft.line);
		postern__buf_append_text(&draft.line, request->target->headers[i]);
		add_line(&draft);
	}
	leave_out(&draft, "Expect");
	if (!has_header(request->target, "Accept", 6)) {
		leave_out(&draft, "Accept");
	}
	postern__buf_finish(&draft.line);
	request->headers = draft.list;
	return !draft.failed;
}

static void note_refused(struct postern__webhook_request *request,
		const char *why, const struct sockaddr *address) {
	request->refused = why;
	const void *bytes =
			address->sa_family == AF_INET6
					? (const void *)&(
							  (const struct sockaddr_in6 *)(const void *)
									  address)
							  ->sin6_addr
					: (const void *)&(
							  (const struct sockaddr_in *)(const void *)address)
							  ->sin_addr;
	if (!inet_ntop(address->sa_family, bytes, request->refused_address,
				sizeof request->refused_address)) {
		(void)snprintf(request->refused_address,
				sizeof request->refused_address, "?");
	}
}

static curl_socket_t open_socket(void *context, curlsocktype purpose,
		struct curl_sockaddr *address) {
	struct postern__webhook_request *request = context;
	(void)purpose;
	const char *why = postern__webhook_address_refuse(&request->target->guard,
			&address->addr);
	if (why) {
		note_refused(request, why, &address->addr);
		atomic_fetch_add(&sockets_refused, 1);
		return CURL_SOCKET_BAD;
	}
	atomic_fetch_add(&sockets_opened, 1);
	return socket(address->family, address->socktype | SOCK_CLOEXEC,
			address->protocol);
}

/* The type is that of libcurl.
   NOLINTNEXTLINE(readability-non-const-parameter) */
static int before_request(void *context, char *remote_ip, char *local_ip,
		int remote_port, int local_port) {
	struct postern__webhook_request *request = context;
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	const struct sockaddr *address = NULL;
	(void)local_ip;
	(void)remote_port;
	(void)local_port;
	if (inet_pton(AF_INET, remote_ip, &in.sin_addr) == 1) {
		address = (const struct sockaddr *)(const void *)&in;
	} else if (inet_pton(AF_INET6, remote_ip, &in6.sin6_addr) == 1) {
		address = (const struct sockaddr *)(const void *)&in6;
	}
	const char *why =
			address ? postern__webhook_address_refuse(&request->target->guard,
							  address)
					: "an address that cannot be read";
	if (why) {
		request->refused = why;
		(void)snprintf(request->refused_address,
				sizeof request->refused_address, "%.60s", remote_ip);
	}
	/* Also if one of several addresses of the name was refused. */
	return request->refused ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static size_t take_header(char *bytes, size_t size, size_t count,
		void *context) {
	struct postern__webhook_request *request = context;
	return postern__webhook_answer_header(&request->answer, bytes, size * count)
				   ? size * count
				   : 0;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context) {
	struct postern__webhook_request *request = context;
	/* Any return value but the length makes libcurl stop. */
	return postern__webhook_answer_body(&request->answer, bytes, size * count)
				   ? size * count
				   : 0;
}

#define SET(option, value) (bad |= curl_easy_setopt(easy, (option), (value)))

static bool set_network(struct postern__webhook_request *request) {
	const struct postern__webhook_target *target = request->target;
	CURL *easy = request->transfer.easy;
	unsigned bad = CURLE_OK;
	int64_t left_ms = postern_run_remaining_ms(request->run);
	int64_t connect_ms = target->connect_timeout_ms;
	/* A receiver that cannot be reached is noticed before the deadline. */
	if (left_ms >= 0) {
		connect_ms = connect_ms < left_ms / 2 ? connect_ms : left_ms / 2;
		SET(CURLOPT_TIMEOUT_MS, (long)(left_ms > 0 ? left_ms : 1));
	}
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(connect_ms > 0 ? connect_ms : 1));
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_PROXY, "");
	SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_PATH_AS_IS, 1L);
	/* Else the end of a transfer waits for the answer to a name. */
	SET(CURLOPT_QUICK_EXIT, 1L);
	SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
	SET(CURLOPT_OPENSOCKETDATA, (void *)request);
	SET(CURLOPT_PREREQFUNCTION, before_request);
	SET(CURLOPT_PREREQDATA, (void *)request);
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
	if (target->ca_file) {
		SET(CURLOPT_CAINFO, target->ca_file);
		SET(CURLOPT_CAPATH, NULL);
	}
	if (target->client_cert_file) {
		SET(CURLOPT_SSLCERT, target->client_cert_file);
		SET(CURLOPT_SSLKEY, target->client_key_file);
	}
	return bad == CURLE_OK;
}

static bool set_exchange(struct postern__webhook_request *request,
		const char *url) {
	const struct postern_message *message = postern_run_message(request->run);
	CURL *easy = request->transfer.easy;
	unsigned bad = CURLE_OK;
	SET(CURLOPT_ERRORBUFFER, request->error);
	SET(CURLOPT_URL, url);
	SET(CURLOPT_USERAGENT, "Postern/" POSTERN_VERSION);
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)message->body_len);
	SET(CURLOPT_POSTFIELDS, message->body ? message->body : "");
	SET(CURLOPT_HTTPHEADER, request->headers);
	SET(CURLOPT_HEADERFUNCTION, take_header);
	SET(CURLOPT_HEADERDATA, (void *)request);
	SET(CURLOPT_WRITEFUNCTION, take_body);
	SET(CURLOPT_WRITEDATA, (void *)request);
	return bad == CURLE_OK;
}

int postern__webhook_request_create(const struct postern__webhook_target
											*target,
		const struct postern__webhook_secret *secrets, size_t secret_count,
		struct postern_run *run, int64_t now_ms,
		struct postern__webhook_request **out, struct postern_error *error) {
	struct postern__buf url;
	struct postern__webhook_request *request = calloc(1, sizeof *request);
	postern__buf_init(&url, WEBHOOK_URL_FILLED_LEN_MAX);
	int r = request ? postern__webhook_url_fill(target->url,
							  postern_run_message(run), &url, error)
					: postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	if (r) {
		goto out;
	}
	request->target = target;
	request->run = run;
	request->transfer.easy = curl_easy_init();
	if (!request->transfer.easy ||
			!make_headers(request, secrets, secret_count, now_ms) ||
			!set_network(request) ||
			!set_exchange(request, postern__buf_text(&url))) {
		r = postern__fail(error, POSTERN_E_NOMEM, "out of memory");
		goto out;
	}
	*out = request;
	request = NULL;
out:
	postern__webhook_request_destroy(request);
	postern__buf_finish(&url);
	return r;
}

void postern__webhook_request_destroy(
		struct postern__webhook_request *request) {
	if (request) {
		curl_easy_cleanup(request->transfer.easy);
		curl_slist_free_all(request->headers);
		free(request);
	}
}

static bool is_connected(const struct postern__webhook_request *request) {
	curl_off_t sent_us = 0;
	return curl_easy_getinfo(request->transfer.easy,
				   CURLINFO_PRETRANSFER_TIME_T, &sent_us) == CURLE_OK &&
		   sent_us > 0;
}

/* What an error of libcurl is. A receiver that cannot be reached is the
   handler's fault, unless the message has chosen it. */
static enum postern_outcome_kind
kind_of(const struct postern__webhook_request *request, CURLcode code) {
	enum postern_outcome_kind unreachable =
			request->target->templated_host ? POSTERN_RETRY : POSTERN_HOLD;
	if (request->refused) {
		return request->target->templated_host ? POSTERN_POISON : POSTERN_HOLD;
	}
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_CACERT_BADFILE: return unreachable;
	case CURLE_OPERATION_TIMEDOUT:
		return is_connected(request) ? POSTERN_RETRY : unreachable;
	case CURLE_OUT_OF_MEMORY: return POSTERN_SNOOZE;
	default: return POSTERN_RETRY;
	}
}

static void judge_failure(struct postern__webhook_request *request,
		CURLcode code) {
	struct postern_outcome *outcome = &request->verdict.outcome;
	enum postern_outcome_kind kind = kind_of(request, code);
	const char *place = request->target->shown;
	if (request->refused) {
		postern__outcome_setf(outcome, kind,
				"cannot send to '%s': %s is %s, which is not allowed", place,
				request->refused_address, request->refused);
	} else if (request->answer.headers_len > WEBHOOK_ANSWER_HEADERS_LEN_MAX) {
		postern__outcome_setf(outcome, kind,
				"'%s' answered with over %zu KiB of headers", place,
				WEBHOOK_ANSWER_HEADERS_LEN_MAX / 1024);
	} else if (code == CURLE_OUT_OF_MEMORY) {
		postern__outcome_unavailable(outcome, "out of memory");
	} else if (code == CURLE_OPERATION_TIMEDOUT && is_connected(request)) {
		postern__outcome_setf(outcome, kind,
				"timed out: '%s' has not answered completely", place);
	} else {
		postern__outcome_setf(outcome, kind, "cannot send to '%s': %s", place,
				request->error[0] ? request->error : curl_easy_strerror(code));
	}
}

/* A receiver that the message has chosen decides about that message, not about
   those of others. */
static void judge_alone(struct postern__webhook_verdict *verdict) {
	if (verdict->pauses) {
		verdict->outcome.kind = POSTERN_POISON;
	} else if (verdict->hold_ms > 0) {
		verdict->outcome.kind = POSTERN_RETRY_AFTER;
		verdict->outcome.delay_ms = verdict->hold_ms;
	}
	verdict->pauses = false;
	verdict->hold_ms = 0;
}

void postern__webhook_request_judge(struct postern__webhook_request *request,
		CURLcode code, int64_t now_ms) {
	long status = 0;
	(void)curl_easy_getinfo(request->transfer.easy, CURLINFO_RESPONSE_CODE,
			&status);
	request->verdict = (struct postern__webhook_verdict){ 0 };
	bool complete = code == CURLE_OK ||
					(code == CURLE_WRITE_ERROR && request->answer.cut);
	if (complete && !request->refused) {
		postern__webhook_answer_judge(&request->answer, status, now_ms,
				&request->verdict);
		if (request->target->templated_host) {
			judge_alone(&request->verdict);
		}
	} else {
		judge_failure(request, code);
	}
}
