/* SPDX-License-Identifier: MIT */

/*
 * How libmicrohttpd reads from its connections.
 *
 * libmicrohttpd 0.9.75 has no hook between the socket and its parser, but it
 * calls recv() as any program does. This file defines recv() for the process:
 * reads from a connection of the server go through its framing, all others (of
 * libcurl and libpq, say) straight to the system. recv() is recvfrom() without
 * an address, so nothing has to be looked up at run time.
 *
 * If recv() of this file were not the one in use, no request would be served:
 * an exchange whose head the framing has not counted is closed.
 */

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/http_exchange.h"

/* Descriptors that can be connections. A server has a few hundred of them per
   socket. */
#define FD_COUNT_MAX 65536

/* What is known of the memory of a connection holds for this version only. */
#define MHD_VERSION_KNOWN "0.9.75"

/* The rest of a unit, and some bytes behind it. */
#define HELD_SIZE (POSTERN__FRAMING_HEAD_LEN_MAX + 4096)

/* Unread bytes that are thrown away before a connection is closed. */
#define DRAIN_LEN_MAX ((size_t)1024 * 1024)

/* By descriptor: the connections of all servers in this process. An entry is
   used by the thread of its daemon only; others see that it is not theirs. */
static _Atomic(struct postern__http_peer *) connections[FD_COUNT_MAX];

bool postern__receive_begin(struct postern__http_peer *peer) {
	if (peer->fd < 0 || peer->fd >= FD_COUNT_MAX) {
		return false;
	}
	atomic_store(&connections[peer->fd], peer);
	return true;
}

void postern__receive_end(struct postern__http_peer *peer) {
	atomic_store(&connections[peer->fd], NULL);
	free(peer->held);
	peer->held = NULL;
	/* TCP resets a connection that is closed with unread bytes, and the reset
	   can overtake the answer that says why. */
	char bytes[16384];
	size_t len = 0;
	ssize_t n = 1;
	while (peer->framing.refused_number > 0 && n > 0 && len < DRAIN_LEN_MAX) {
		n = recvfrom(peer->fd, bytes, sizeof bytes, MSG_DONTWAIT, NULL, NULL);
		len += n > 0 ? (size_t)n : 0;
	}
}

/* Keep the rest of what was read. False: out of memory. */
static bool hold(struct postern__http_peer *peer, const char *rest,
		size_t len) {
	if (!peer->held) {
		peer->held = malloc(HELD_SIZE);
	}
	if (!peer->held) {
		return false;
	}
	memmove(peer->held, rest, len);
	peer->held_len = len;
	return true;
}

/* Most heads arrive in one piece, so the memory is not kept. */
static void release_held(struct postern__http_peer *peer) {
	free(peer->held);
	peer->held = NULL;
	peer->held_len = 0;
}

/*
 * Between two requests libmicrohttpd reads into the first half of the memory of
 * the connection, which it has from mmap().
 */
static void note_pool(struct postern__http_peer *peer, char *out, size_t size) {
	const uintptr_t page = 4096; /* a larger one has more zero bits, too */
	bool known = size == POSTERN__CONNECTION_MEMORY / 2 &&
				 (uintptr_t)out % page == 0 &&
				 strcmp(MHD_get_version(), MHD_VERSION_KNOWN) == 0;
	peer->pool = known ? out : peer->pool; /* it never moves */
}

/*
 * Read once, behind the bytes that are held. Returns as recv(); *again_out is
 * set if bytes came but no unit is complete, and then the result means nothing.
 */
static ssize_t receive_some(struct postern__http_peer *peer, char *out,
		size_t size, int flags, bool *again_out) {
	*again_out = false;
	char *bytes = peer->held_len > 0 ? peer->held : out;
	size_t room = peer->held_len > 0 && size > HELD_SIZE ? HELD_SIZE : size;
	if (room < POSTERN__FRAMING_ROOM + peer->held_len + 1) {
		errno = ECONNRESET;
		return -1;
	}
	if (peer->held_len == 0 && peer->framing.state == POSTERN__FRAMING_HEAD &&
			peer->framing.request_count == peer->exchange_count) {
		note_pool(peer, out, size);
	}
	ssize_t n = recvfrom(peer->fd, bytes + peer->held_len,
			room - POSTERN__FRAMING_ROOM - peer->held_len, flags, NULL, NULL);
	if (n <= 0) {
		return n;
	}
	postern__peer_wake(peer);
	size_t rest_len;
	size_t len = postern__framing_pass(&peer->framing, bytes,
			peer->held_len + (size_t)n, &rest_len);
	if (bytes != out) {
		memcpy(out, bytes, len);
	}
	if (rest_len == 0) {
		release_held(peer);
	} else if (!hold(peer, bytes + len, rest_len)) {
		errno = ECONNRESET;
		return -1;
	}
	*again_out = len == 0;
	return (ssize_t)len;
}

/*
 * With epoll, libmicrohttpd waits for a new event after it was given less than
 * it asked for, but that is always so here, and the event of bytes that came
 * before is over. Setting this option, to what it is, makes Linux report them
 * again; nothing happens if there are none. The same for the end of the stream.
 */
static void report_rest(const struct postern__http_peer *peer) {
	const int low = 1;
	if (peer->listener->address.tcp) {
		(void)setsockopt(peer->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
	}
}

static ssize_t receive(struct postern__http_peer *peer, char *out, size_t size,
		int flags) {
	if (peer->framing.state == POSTERN__FRAMING_ENDED) {
		return 0;
	}
	ssize_t n;
	bool again;
	do {
		/* Read until the system returns EAGAIN, which libmicrohttpd needs
		   when there is nothing for it. A unit has a limit, so this ends. */
		n = receive_some(peer, out, size, flags | MSG_DONTWAIT, &again);
	} while (again);
	if (n > 0) {
		report_rest(peer);
	}
	return n;
}

/* The name is given apart, because fortified headers define recv() inline. */
__attribute__((used, visibility("default"))) ssize_t postern__recv(int fd,
		void *bytes, size_t size, int flags) __asm__("recv");

ssize_t postern__recv(int fd, void *bytes, size_t size, int flags) {
	struct postern__http_peer *peer =
			fd >= 0 && fd < FD_COUNT_MAX ? atomic_load(&connections[fd]) : NULL;
	return peer ? receive(peer, bytes, size, flags)
				: recvfrom(fd, bytes, size, flags, NULL, NULL);
}
