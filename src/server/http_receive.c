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
 * A connection that speaks TLS is read by GnuTLS, which libmicrohttpd asks for
 * what was decrypted: gnutls_record_recv() is defined here for the same reason,
 * and gnutls_record_recv_seq() does the same under another name.
 *
 * If the functions of this file were not those in use, no request would be
 * served: an exchange whose head the framing has not counted is closed.
 */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

/* The first byte of a client that speaks TLS. */
#define TLS_HANDSHAKE 0x16

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

/* The connection with this descriptor; NULL: it is not ours. */
static struct postern__http_peer *find(int fd) {
	return fd >= 0 && fd < FD_COUNT_MAX ? atomic_load(&connections[fd]) : NULL;
}

/* Read what the framing is for. */
static ssize_t read_bytes(const struct postern__http_peer *peer, char *out,
		size_t size, int flags) {
	return peer->session
				   ? gnutls_record_recv_seq(peer->session, out, size, NULL)
				   : recvfrom(peer->fd, out, size, flags, NULL, NULL);
}

/* The result for a connection that cannot be read any more. */
static ssize_t lost(const struct postern__http_peer *peer) {
	errno = ECONNRESET;
	return peer->session ? GNUTLS_E_PULL_ERROR : -1;
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
		return lost(peer);
	}
	if (peer->held_len == 0 && peer->framing.state == POSTERN__FRAMING_HEAD &&
			peer->framing.request_count == peer->exchange_count) {
		note_pool(peer, out, size);
	}
	ssize_t n = read_bytes(peer, bytes + peer->held_len,
			room - POSTERN__FRAMING_ROOM - peer->held_len, flags);
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
		return lost(peer);
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
	if (peer->listener->address.tcp && !peer->session) {
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

/* Answer who does not begin with a record of TLS. */
static void greet(struct postern__http_peer *peer, const char *bytes) {
	static const char answer[] = "HTTP/1.1 400 Bad Request\r\n"
								 "Content-Type: application/problem+json\r\n"
								 "Content-Length: 94\r\n"
								 "Connection: close\r\n\r\n"
								 "{\"type\":\"about:blank\",\"title\":\"Bad "
								 "Request\",\"status\":400,"
								 "\"detail\":\"this address speaks https\"}";
	if (!peer->greeted && bytes[0] != TLS_HANDSHAKE) {
		/* It is the first thing that is sent, so there is room for it. */
		(void)send(peer->fd, answer, sizeof answer - 1,
				MSG_NOSIGNAL | MSG_DONTWAIT);
		peer->framing.refused_number = 1;
	}
	peer->greeted = true;
}

/*
 * Acknowledge at once what was read: a client that ends its handshake, and
 * holds its first request back until that is acknowledged, would wait for 40
 * ms.
 */
static void acknowledge(const struct postern__http_peer *peer) {
	const int on = 1;
	if (peer->framing.request_count == 0) {
		(void)setsockopt(peer->fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
	}
}

/* The name is given apart, because fortified headers define recv() inline. */
__attribute__((used, visibility("default"))) ssize_t postern__recv(int fd,
		void *bytes, size_t size, int flags) __asm__("recv");

ssize_t postern__recv(int fd, void *bytes, size_t size, int flags) {
	struct postern__http_peer *peer = find(fd);
	if (peer && !peer->session) {
		return receive(peer, bytes, size, flags);
	}
	ssize_t n = recvfrom(fd, bytes, size, flags, NULL, NULL);
	if (peer && n > 0) {
		greet(peer, bytes);
		acknowledge(peer);
	}
	return n;
}

__attribute__((used, visibility("default"))) ssize_t
gnutls_record_recv(gnutls_session_t session, void *data, size_t data_size) {
	struct postern__http_peer *peer = find(gnutls_transport_get_int(session));
	return peer && peer->session == session
				   ? receive(peer, data, data_size, 0)
				   : gnutls_record_recv_seq(session, data, data_size, NULL);
}

int postern__receive_identify(gnutls_session_t session,
		const gnutls_datum_t *names, int name_count,
		const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
		gnutls_pcert_st **chain_out, unsigned *chain_count_out,
		gnutls_privkey_t *key_out) {
	struct postern__http_peer *peer = find(gnutls_transport_get_int(session));
	(void)names;
	(void)name_count;
	(void)algorithms;
	(void)algorithm_count;
	if (!peer || peer->session != session) {
		return -1;
	}
	struct postern__http *http = peer->listener->http;
	if (!peer->tls) {
		(void)pthread_mutex_lock(&http->mutex);
		peer->tls = postern__tls_keep(http->tls);
		(void)pthread_mutex_unlock(&http->mutex);
	}
	*chain_out = peer->tls->chain;
	*chain_count_out = peer->tls->chain_count;
	*key_out = peer->tls->key;
	return 0;
}
