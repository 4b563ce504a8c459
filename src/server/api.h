/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_API_H
#define POSTERN_SERVER_API_H

/*
 * The admin API: one table of routes, one function per route, and no HTTP
 * library inside. The server calls it for what comes in over the socket, the
 * command line calls it in its own process when no server holds the store:
 * one implementation, whichever way a request takes.
 *
 *   struct postern__api api = { .stores = &stores };
 *   struct postern__request request = { .method = "GET", .path = "/v1/stats" };
 *   struct postern__response response;
 *   postern__response_init(&response);
 *   postern__api_handle(&api, &request, &response);
 *   if (response.status == 200) … postern__buf_text(&response.body) …
 *   postern__response_finish(&response);
 *
 * Requests that fail answer with a problem of RFC 9457, so `detail` in the
 * body is the sentence for people, and `status` is also the response's. Two
 * more members appear where they help: `code`, a POSTERN_E_ name in lower case
 * ("busy"), and, for a conflict, `id`, `source` and `seq`.
 *
 * A message is sent as a CloudEvent in binary form: the headers ce-specversion
 * (1.0), ce-id, ce-source and ce-type, and if wanted ce-subject, ce-time,
 * ce-correlationid, ce-traceparent and any other ce-*, all of them encoded with
 * postern__percent_header(); Content-Type; and as headers of the message
 * whatever else is not part of the HTTP exchange itself. Or raw, without any
 * ce-*, with an Idempotency-Key, webhook-id or X-Message-Id.
 *
 * A request is about all stores together: rows carry the name of theirs in
 * `store`, and a parameter `store` chooses one. A header Postern-Store, once
 * for each store, says which ones the sender means, by name or by their id
 * (store_open.h); the request is then about those, and is refused with 421 if
 * one is missing.
 *
 * A parked message has no handler: discard it under the handler "", which is an
 * empty part of the path. JSON is sent as Content-Type: application/json.
 *
 * Threads: an api may be used from any thread once it is filled in.
 */

#include <postern/message.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct postern__config;
struct postern__grant;
struct postern__stores;
struct postern_clock;

/* In bytes. A longer path or query is answered with 414, more or longer
   headers with 431. */
#define POSTERN__API_PATH_LEN_MAX 4096
#define POSTERN__API_QUERY_LEN_MAX 8192
#define POSTERN__API_HEADER_COUNT_MAX 128
#define POSTERN__API_HEADERS_LEN_MAX 131072
/* Of requests that carry JSON instead of a message. */
#define POSTERN__API_JSON_LEN_MAX 65536
#define POSTERN__API_JSON_DEPTH_MAX 16
/* A longer body is left out of GET /v1/messages/{seq}; …/body has it. */
#define POSTERN__API_BODY_SHOWN_MAX ((size_t)16 * 1024 * 1024)

struct postern_channel_stats;

#define POSTERN__STRANDED_TEXT_MAX 384

/* Write the warning about staged messages in a channel that no running node
   has. */
void postern__stranded_text(const struct postern_channel_stats *channel,
		char out[POSTERN__STRANDED_TEXT_MAX]);

/* Zero it and set members. What it points to must outlive it. */
struct postern__api {
	/* At least one. Runners are needed for postern__api_begin() to be
	   asynchronous, and for /readyz. */
	const struct postern__stores *stores;
	/* For settings of channels and handlers: their store, their limits. NULL
	   only if there is one store. */
	const struct postern__config *config;
	size_t body_len_max;               /* 0: POSTERN_BODY_LEN_DEFAULT */
	const struct postern_clock *clock; /* NULL: the system's */
	/* One for each store, set while a cleanup of it runs: a second cleanup
	   would make a thread wait for the first. NULL: there is only one
	   thread. */
	atomic_bool *cleaning;
	/* Set while the server stops: /readyz returns 503. May be NULL. */
	bool (*is_draining)(void *context);
	void *is_draining_context;
};

/* The stores of a request; see above. */
#define POSTERN__API_STORE_HEADER "Postern-Store"

/* Prefix of the User-Agent of the command: what it sends through a server has
   the transport "cli", as without a server. Any client of the socket may send
   it; nothing else depends on it. */
#define POSTERN__API_COMMAND_AGENT "postern-cli/"

/* Borrowed for the call; all text ends in a zero byte. */
struct postern__request {
	const char *method; /* "GET", "POST", … */
	const char *path;   /* as sent: percent-encoded, without the query */
	const char *query;  /* as sent, without '?'; NULL: none */
	/* "cli" for the command, over HTTP or not; "http"; NULL: "api". */
	const char *transport;
	const struct postern_header *headers;
	size_t header_count;
	const void *body;
	size_t body_len;
	/* What the sender may do; NULL: everything. Outlives the request. */
	const struct postern__grant *grant;
	bool ingest_only; /* it came over ingest_listen */
	/* Whether the sender still waits for the response; NULL: not known. Valid
	   until the response is complete. */
	bool (*wanted)(void *context);
	/* Reserve memory for a response of this length, which cannot be undone;
	   false: there is none. NULL: not needed. Valid as long. */
	bool (*reserve)(void *context, size_t len);
	void *sender_context; /* of both */
};

#define POSTERN__RESPONSE_HEADER_COUNT_MAX 4

struct postern__response_header {
	const char *name; /* static */
	char value[64];
};

struct postern__response {
	int status;
	const char *content_type; /* static */
	struct postern__buf body;
	/* Beside Content-Type and Content-Length: Allow, Retry-After, … */
	struct postern__response_header headers[POSTERN__RESPONSE_HEADER_COUNT_MAX];
	size_t header_count;
};

void postern__response_init(struct postern__response *response);
void postern__response_finish(struct postern__response *response);

/*
 * Handle a request. Blocks while the store is used. Never fails: errors are in
 * the response, which must be fresh from postern__response_init().
 */
void postern__api_handle(const struct postern__api *api,
		const struct postern__request *request,
		struct postern__response *response);

/* The response is complete. Called on the thread that committed the message: be
   quick, queue and return. */
typedef void postern__api_done(void *context);

/*
 * The same, but a message to accept is only queued.
 *
 * Returns true if the response is complete. On false `done` is called exactly
 * once, possibly before this returns, and until then the response belongs to
 * the api; the request may go at once. Needs runners.
 */
bool postern__api_begin(const struct postern__api *api,
		const struct postern__request *request,
		struct postern__response *response, postern__api_done *done,
		void *context);

/*
 * Whether the request has a route and its sender may use it, by method, path
 * and grant: so that a server can refuse it before it reads the body. False:
 * the response says why.
 */
bool postern__api_admit(const struct postern__api *api,
		const struct postern__request *request,
		struct postern__response *response);

/* The longest body of a message in the channel of this path. */
size_t postern__api_message_len_max(const struct postern__api *api,
		const char *path);

/*
 * The body limit of this request, by its method, path and headers, so that a
 * server can refuse the rest while reading. Events as JSON may be longer than
 * the messages in them: a body in base64 is a third longer.
 */
size_t postern__api_body_len_max(const struct postern__api *api,
		const struct postern__request *request);

/* Whether postern__api_begin() handles this request without waiting for the
   store; other requests need a thread that may wait. query: NULL if there is
   none. */
bool postern__api_is_quick(const char *method, const char *path,
		const char *query);

/* Whether the request is one of those that programs make all the time, and that
   no log needs. */
bool postern__api_is_routine(const char *method, const char *path);

/*
 * Whether a request's header of this name is stored with the message. Not for
 * headers of the HTTP exchange itself, and not for ce-*.
 */
bool postern__api_keeps_header(const char *name);

/*
 * Make the response a problem of RFC 9457, replacing what was written before.
 *
 * code    a POSTERN_E_ code, or POSTERN_OK to leave the member out.
 * detail  the sentence; NULL: none.
 */
void postern__response_problem(struct postern__response *response, int status,
		int code, const char *detail);

/* Replace an incomplete body (too long, or out of memory) by a problem. */
void postern__response_check(struct postern__response *response);

/* The reason phrase of a status: "Not Found". */
const char *postern__status_text(int status);

#endif
