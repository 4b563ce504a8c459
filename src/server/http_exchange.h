/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_HTTP_EXCHANGE_H
#define POSTERN_SERVER_HTTP_EXCHANGE_H

/*
 * One request and its answer, between libmicrohttpd and the api. Shared by
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

/* A connection, for as long as libmicrohttpd has it. */
struct postern__http_peer {
	struct postern__list link; /* in http->peers */
	int fd;
	pid_t pid; /* of the process that connected; 0: unknown */
	uid_t uid;
	int64_t deadline_ms; /* monotonic; 0: not the client's turn */
};

/* One socket and who serves it. */
struct postern__http_door {
	const struct postern__socket *socket;
	struct MHD_Daemon *daemon; /* NULL: not started */
	int listen_fd;
};

struct postern__http {
	struct postern__http_options options;
	struct postern__http_door *doors;
	size_t door_count; /* whose socket listens */

	pthread_mutex_t mutex; /* for all below */
	pthread_cond_t changed;
	struct postern__list peers;
	struct postern__list jobs; /* exchanges for the workers, oldest first */
	unsigned job_count;
	bool stopping;         /* the workers are to end */
	bool closing;          /* what is asked from now on is refused */
	unsigned asked_count;  /* exchanges that may be suspended */
	unsigned active_count; /* and those whose answer is on its way */

	pthread_t *workers;
	unsigned worker_count; /* that were started */

	atomic_size_t bodies_len;  /* reserved by all exchanges */
	atomic_size_t answers_len; /* the same, for answers */
};

/* How far an exchange that was handed out is: see settle in the .c. */
enum postern__exchange_state {
	POSTERN__EXCHANGE_ASKED = 0,
	POSTERN__EXCHANGE_SUSPENDED, /* the daemon has let go of the connection */
	POSTERN__EXCHANGE_ANSWERED   /* the response is complete */
};

struct postern__exchange {
	struct postern__http *http;
	struct MHD_Connection *connection;
	struct postern__http_peer *peer;
	struct postern__list link; /* in http->jobs */

	char *path;  /* as sent; the query is cut off */
	char *query; /* in path's memory; NULL: none */
	struct postern__arena arena;
	struct postern__request request;
	struct postern__buf body;
	size_t body_len_reserved;
	size_t answer_len_reserved;
	size_t discarded_len; /* of a body that is not taken */

	bool begun;   /* the headers were looked at */
	bool refused; /* response says why; the body is discarded */
	bool asked;   /* the api has it, or had */
	bool waiting; /* for its answer; counted in asked_count */
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

/* A worker's part: ask the api, and wait for it. */
void postern__exchange_run(struct postern__exchange *exchange);

/* Give the client this long for what it does next; 0: it is our turn. */
void postern__peer_deadline(struct postern__http *http,
		struct postern__http_peer *peer, int64_t ms);

#endif
