/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_SERVER_LISTENING_H
#define POSTERN_SERVER_LISTENING_H

/*
 * Where a server is reached: a socket beside the file of each store, and the
 * addresses of the configuration.
 */

#include <stdbool.h>
#include <stddef.h>

#include "server/config.h"
#include "server/http.h"
#include "server/passed.h"
#include "server/socket.h"
#include "server/tcp.h"

struct postern__buf;
struct postern__stores;

#define POSTERN__LISTENING_TCP_MAX \
	((size_t)2 * POSTERN__LISTEN_COUNT_MAX + POSTERN__PASSED_COUNT_MAX)
#define POSTERN__LISTENING_SOCKET_MAX \
	(POSTERN__STORE_COUNT_MAX + POSTERN__LISTENING_TCP_MAX)

struct postern__listening {
	/* The first are beside the files of the stores, in their order. */
	struct postern__socket sockets[POSTERN__LISTENING_SOCKET_MAX];
	size_t socket_count;
	struct postern__tcp tcps[POSTERN__LISTENING_TCP_MAX];
	size_t tcp_count;
	struct postern__http_address addresses[POSTERN__LISTENING_SOCKET_MAX];
	size_t count;
	size_t beside_count; /* of the addresses */
	bool secure;         /* those of TCP speak TLS */
};

/*
 * Take all addresses, so that one that is in use is found before anything runs.
 * Nobody can connect yet. Finish it, also if this fails.
 */
int postern__listening_open(struct postern__listening *self,
		const struct postern__config *config,
		const struct postern__stores *stores, struct postern_error *error);

/* Whether another configuration may be put in place: POSTERN_E_INVALID if other
   machines can reach an address, and it has no tokens. */
int postern__listening_check(const struct postern__listening *self,
		const struct postern__config *config, struct postern_error *error);

/* After the server has stopped. */
void postern__listening_finish(struct postern__listening *self);

/* Append the configured addresses, with the ports that were chosen. */
void postern__listening_write(const struct postern__listening *self,
		struct postern__buf *out);

/* The first address of TCP that serves everything; NULL: none. */
const char *postern__listening_tcp(const struct postern__listening *self);

#endif
