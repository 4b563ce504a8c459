/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_HTTP_H
#define POSTERN_SERVER_HTTP_H

/*
 * The API over HTTP, on the sockets beside the stores' files and on the
 * addresses of the configuration: each serves the same API, except those that
 * only accept messages.
 *
 * One thread serves all connections of an address and never waits for a store:
 * messages are queued, and all other work that may wait is done by a few worker
 * threads. Everything has a limit: connections, headers, bodies, the bytes of
 * all bodies together, and the time a client may take.
 *
 * A request that is not well-formed HTTP/1.1 (http_framing.h) is answered once,
 * with 400 or a more specific status, and its connection is closed.
 *
 * A connection over the limit of an address replaces the one that has waited
 * for a request longest: first of those that have sent nothing of it, then of
 * those whose head is incomplete. If every connection has a request in
 * progress, the new one is accepted for GET /healthz and /readyz only, and
 * anything else is answered with 503; POSTERN__HTTP_RESERVE_COUNT connections
 * are kept for that.
 *
 * A request that is answered with 503 for want of memory or of connections also
 * ends the one whose client has kept the server waiting longest, if that is
 * longer than slow_ms. So slow clients cannot keep all others away.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct postern__api;
struct postern__auth;
struct postern__http;
struct postern__log;
struct postern__socket;
struct postern__tcp;
struct postern__tls;
struct postern_clock;
struct postern_error;

/* An address to listen on: a socket, or an address of TCP that is bound. */
struct postern__http_address {
	const struct postern__socket *socket; /* NULL: tcp */
	struct postern__tcp *tcp;
	bool ingest_only;
	bool local; /* nobody but the server's own user can connect */
};

/* Per address, beyond connection_count_max: for health checks. */
#define POSTERN__HTTP_RESERVE_COUNT 16

/* Zero it; a zero means the default named here. Everything must outlive the
   server. */
struct postern__http_options {
	const struct postern__api *api; /* with runners */
	const struct postern__http_address *addresses;
	size_t address_count;             /* may be 0 */
	const struct postern__auth *auth; /* NULL: everyone is an admin */
	struct postern__tls *tls; /* of addresses of TCP; NULL: they are plain */
	struct postern__log *log;
	const struct postern_clock *clock; /* NULL: the system's */

	unsigned connection_count_max; /* 256 per socket */
	unsigned tcp_count_max;        /* 256 per address of TCP */
	unsigned worker_count;         /* 4: threads that may wait for the store */
	size_t bodies_len_max;         /* 128 MiB: all bodies in memory */
	size_t answers_len_max;        /* 512 MiB: all answers on their way */
	size_t memory_max; /* 256 MiB: both together, and what each request needs */
	int64_t idle_ms;   /* 30 s without a head or part of a body */
	int64_t receive_ms; /* 60 s for a whole request */
	int64_t send_ms;    /* 5 min for a whole answer */
	int64_t slow_ms;    /* 10 s of either, while there is no room for others */
};

/* What requests are handled by; zero the rest. */
struct postern__http_site {
	const struct postern__api *api;
	const struct postern__auth *auth; /* NULL: everyone is an admin */
	unsigned user_count;              /* requests in progress; the server's */
};

/* Handle requests that begin from now on by another site, whose api has the
   same stores. */
void postern__http_replace(struct postern__http *http,
		struct postern__http_site *site);
/* Whether no request uses a site that was replaced. */
bool postern__http_is_unused(struct postern__http *http,
		const struct postern__http_site *site);

/* Identify by another certificate in handshakes that begin from now on, if the
   server speaks TLS. */
void postern__http_replace_tls(struct postern__http *http,
		struct postern__tls *tls);

/* Create the socket files, listen and serve. */
int postern__http_start(const struct postern__http_options *options,
		struct postern__http **out, struct postern_error *error);

/* Close connections that exceeded their deadline. To be called about once a
   second. */
void postern__http_sweep(struct postern__http *http);

/*
 * Accept no more connections, finish requests in progress, remove the socket
 * files and free everything. The stores and their runners must still work. NULL
 * is fine.
 */
void postern__http_stop(struct postern__http *http);

#endif
