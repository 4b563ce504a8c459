/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_HTTP_EXCHANGE_H
#define POSTERN_SERVER_HTTP_EXCHANGE_H

/*
 * One request and its response, between libmicrohttpd and the api. Shared by
 * http.c, which owns the daemons, and http_exchange.c.
 */

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/list.h"
#include "server/api.h"
#include "server/http.h"
#include "server/http_framing.h"
#include "server/tls.h"

struct postern__http_listener;

/* A connection, for as long as libmicrohttpd has it. Members without a mutex
   belong to the daemon's thread. */
struct postern__http_peer {
	struct postern__list link; /* in http->peers, longest idle first; mutex */
	struct postern__http_listener *listener;
	int fd;
	bool busy;     /* a request is in progress, from its head to its response */
	bool reserved; /* over the limit: for health checks only */
	bool evicted;  /* shut down to make room */
	pid_t pid;     /* of the process that connected; 0: unknown */
	uid_t uid;
	int64_t deadline_ms; /* monotonic; 0: waiting for the server; mutex */
	/* Since when the server waits for the client within an exchange; 0: it does
	   not; mutex. */
	int64_t turn_ms;

	/* Of an address that speaks TLS. */
	gnutls_session_t session; /* libmicrohttpd's; NULL: plain */
	struct postern__tls *tls; /* in use since the handshake; NULL: not yet */
	bool greeted;             /* the first bytes came */

	struct postern__framing framing;
	char *held; /* bytes of an incomplete head or line; NULL: none */
	size_t held_len;
	uint64_t exchange_count; /* requests that libmicrohttpd has read */

	struct postern__list warm; /* in listener->warm, or by itself */
	char *pool;                /* its memory in libmicrohttpd; NULL: unknown */
};

/* Per connection, in libmicrohttpd: it reads into the first half, which must
   hold the longest head, and clears all of it after each request. */
#define POSTERN__CONNECTION_MEMORY \
	((size_t)2 * (POSTERN__FRAMING_HEAD_LEN_MAX + (size_t)8 * 1024))

/* One address and its daemon. */
struct postern__http_listener {
	struct postern__http *http;
	struct postern__http_address address;
	unsigned peer_count_max;
	struct MHD_Daemon *daemon; /* NULL: not started */
	int listen_fd;
	unsigned peer_count; /* without evicted ones; the daemon's thread's */
	/* Idle connections whose memory was used, longest idle first; the daemon's
	   thread's. */
	struct postern__list warm;
	unsigned warm_count;
};

struct postern__http {
	struct postern__http_options options;
	struct postern__http_listener *listeners;
	size_t listener_count; /* whose socket listens */

	struct postern__http_site first; /* of the options */
	bool secure;                     /* addresses of TCP speak TLS */

	pthread_mutex_t mutex; /* for all below */
	struct postern__http_site *site;
	struct postern__tls *tls; /* of new connections; NULL: none */
	pthread_cond_t changed;   /* a count below: for who stops the server */
	pthread_cond_t queued;    /* jobs or stopping: for the workers */
	struct postern__list peers;
	struct postern__list jobs; /* exchanges for the workers, oldest first */
	unsigned job_count;
	bool stopping;         /* the workers are to end */
	bool closing;          /* new requests are refused */
	unsigned asked_count;  /* exchanges that may be suspended */
	unsigned active_count; /* exchanges whose response is being sent */

	pthread_t *workers;
	unsigned worker_count; /* that were started */

	atomic_size_t bodies_len;  /* reserved by all exchanges */
	atomic_size_t answers_len; /* the same, for responses */
	atomic_size_t
			memory_len; /* both, and POSTERN__CONNECTION_MEMORY for each */
};

/* The progress of an exchange that was deferred: see response_complete(). */
enum postern__exchange_state {
	POSTERN__EXCHANGE_ASKED = 0,
	POSTERN__EXCHANGE_SUSPENDED, /* the daemon has suspended the connection */
	POSTERN__EXCHANGE_ANSWERED   /* the response is complete */
};

struct postern__exchange {
	struct postern__http *http;
	struct postern__http_site *site; /* as it was when the request began */
	struct MHD_Connection *connection;
	struct postern__http_peer *peer;
	struct postern__list link; /* in http->jobs */
	uint64_t number;           /* of the connection's requests, from 1 */

	char *path;  /* as sent; the query is cut off */
	char *query; /* in path's memory; NULL: none */
	struct postern__arena arena;
	struct postern__request request;
	struct postern__buf body;
	size_t body_len_reserved;
	size_t answer_len_reserved;
	size_t own_len_reserved; /* what it needs besides */
	size_t discarded_len;    /* of a body that is discarded */

	bool begun;   /* the headers were read */
	bool refused; /* response has the reason; the body is discarded */
	bool asked;   /* the api has, or had, the request */
	bool waiting; /* for its response; counted in asked_count */
	bool closing; /* the connection must not be used again */
	atomic_int state;
	struct postern__response response;
};

/* libmicrohttpd calls these. */
void *postern__exchange_create(void *context, const char *uri,
		struct MHD_Connection *connection);
enum MHD_Result postern__exchange_step(void *context,
		struct MHD_Connection *connection, const char *url, const char *method,
		const char *version, const char *upload, size_t *upload_len,
		void **own_context);
void postern__exchange_end(void *context, struct MHD_Connection *connection,
		void **own_context, enum MHD_RequestTerminationCode why);

/* Run by a worker: call the api, and wait for it. */
void postern__exchange_run(struct postern__exchange *exchange);

/* The connection begins to wait for its next request. */
void postern__peer_rest(struct postern__http *http,
		struct postern__http_peer *peer);

/* Whether the connection may serve more than health checks. */
bool postern__peer_is_regular(struct postern__http_peer *peer);

/* Validate all reads from the connection; end() before it is closed. False: its
   descriptor is out of range. */
bool postern__receive_begin(struct postern__http_peer *peer);
void postern__receive_end(struct postern__http_peer *peer);

/* What MHD_OPTION_HTTPS_CERT_CALLBACK is: chooses the certificate. */
gnutls_certificate_retrieve_function2 postern__receive_identify;

/* The connection begins a request, or is closed: its memory is in use. */
void postern__peer_wake(struct postern__http_peer *peer);

/* Give the client this long for its next step; 0: waiting for the server. */
void postern__peer_deadline(struct postern__http *http,
		struct postern__http_peer *peer, int64_t ms);

/* The client has begun a request, and is to send the rest of it. */
void postern__peer_begin(struct postern__http *http,
		struct postern__http_peer *peer);

/*
 * There is no room for a request: close the connection whose client has kept
 * the server waiting longest, in the middle of a request or of an answer, if
 * that is longer than slow_ms.
 */
void postern__http_relieve(struct postern__http *http);

#endif
