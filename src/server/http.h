/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_HTTP_H
#define POSTERN_SERVER_HTTP_H

/*
 * The API over HTTP, on the sockets beside the stores' files: whichever of them
 * a client finds, it is the same API.
 *
 * One thread talks to all connections of a socket and never waits for a store:
 * messages are queued, and everything else that takes time goes to a few
 * threads of its own. Nothing grows without limit: connections, headers,
 * bodies, the bytes of all bodies together, and the time a client may take over
 * any of it.
 */

#include <stddef.h>
#include <stdint.h>

struct postern__api;
struct postern__http;
struct postern__log;
struct postern__socket;
struct postern_clock;
struct postern_error;

/* Zero it; what is zero takes the default named here. All of it must outlive
   the server. */
struct postern__http_options {
	const struct postern__api *api; /* with runners */
	const struct postern__socket *sockets;
	size_t socket_count; /* at least 1 */
	struct postern__log *log;
	const struct postern_clock *clock; /* NULL: the system's */

	unsigned connection_count_max; /* 256 per socket; more wait to be let in */
	unsigned worker_count;         /* 4: threads that may wait for the store */
	size_t bodies_len_max;         /* 128 MiB: all bodies in memory */
	size_t answers_len_max;        /* 512 MiB: all answers on their way */
	int64_t idle_ms;               /* 30 s without a byte */
	int64_t receive_ms;            /* 60 s for a whole request */
	int64_t send_ms;               /* 5 min for a whole answer */
};

/* Create the socket files and serve. */
int postern__http_start(const struct postern__http_options *options,
		struct postern__http **out, struct postern_error *error);

/* End connections that took too long. To be called about once a second. */
void postern__http_sweep(struct postern__http *http);

/*
 * Let nobody in any more, finish what was asked, remove the socket files and
 * free everything. The stores and their runners must still work. NULL is fine.
 */
void postern__http_stop(struct postern__http *http);

#endif
