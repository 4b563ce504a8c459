/* SPDX-License-Identifier: MIT */

/*
 * A TCP proxy whose connections can be cut after any byte.
 *
 * One thread moves all bytes, so that they have an order, and the moment of a
 * cut is the same for all connections. Bytes that arrive after a cut are read
 * and discarded: closing a socket with unread bytes would also drop bytes it
 * has sent.
 */

#include "support/cutter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Far more than the connections of a store. */
#define RELAY_COUNT_MAX 64
#define CHUNK_LEN 65536
/* Longer than any step takes. */
#define PATIENCE_S 60

/* One relayed connection: its two sockets, indexed by the direction of bytes to
   them. */
struct relay {
	int sides[2];
	bool ended[2]; /* this side has closed */
	bool broken;   /* no bytes are passed on */
};

struct cutter {
	int listener;
	int port;
	int server_port;
	int wake[2]; /* a pipe; closing one end stops the thread */
	pthread_t thread;
	bool started;
	struct relay relays[RELAY_COUNT_MAX]; /* used by the thread only */
	size_t relay_count;

	pthread_mutex_t mutex; /* protects all members below */
	pthread_cond_t cut;
	uint64_t counts[2];
	bool armed;
	enum cutter_way way;
	uint64_t left;
	enum cutter_end end;
	bool cut_done;
};

static struct sockaddr_in address_of(int port) {
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

static void send_all(int side, const char *bytes, size_t len) {
	while (len > 0) {
		ssize_t sent = send(side, bytes, len, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR) {
			continue;
		}
		if (sent <= 0) {
			return; /* this side has closed; the other one is closed next */
		}
		bytes += sent;
		len -= (size_t)sent;
	}
}

static void cut_relay(struct relay *relay, enum cutter_end end) {
	for (int i = 0; i < 2; i++) {
		if (end == CUTTER_CLOSE) {
			(void)shutdown(relay->sides[i], SHUT_WR);
			continue;
		}
		const struct linger none = { .l_onoff = 1 };
		(void)setsockopt(relay->sides[i], SOL_SOCKET, SO_LINGER, &none,
				sizeof none);
		relay->ended[i] = true; /* so that it is closed, with a reset */
	}
	relay->broken = true;
}

/* How many of these bytes pass; the caller holds the mutex. */
static size_t count_passing(struct cutter *cutter, enum cutter_way way,
		size_t len, bool *due_out) {
	if (cutter->armed && cutter->way == way) {
		*due_out = len >= cutter->left;
		len = *due_out ? (size_t)cutter->left : len;
		cutter->left -= len;
		cutter->armed = !*due_out;
	}
	cutter->counts[way] += len;
	return len;
}

static void pass_on(struct cutter *cutter, struct relay *relay,
		enum cutter_way way, const char *bytes, size_t len) {
	bool due = false;
	(void)pthread_mutex_lock(&cutter->mutex);
	len = count_passing(cutter, way, len, &due);
	enum cutter_end end = cutter->end;
	(void)pthread_mutex_unlock(&cutter->mutex);
	send_all(relay->sides[way], bytes, len);
	if (!due) {
		return;
	}
	for (size_t i = 0; i < cutter->relay_count; i++) {
		if (!cutter->relays[i].broken) {
			cut_relay(&cutter->relays[i], end);
		}
	}
}

/* Passes bytes from one side to the other. */
static void relay_bytes(struct cutter *cutter, struct relay *relay,
		enum cutter_way way) {
	static char bytes[CHUNK_LEN]; /* only one thread uses it */
	int source = way == CUTTER_TO_SERVER ? CUTTER_TO_CLIENT : CUTTER_TO_SERVER;
	ssize_t len = recv(relay->sides[source], bytes, sizeof bytes, 0);
	if (len < 0 && errno == EINTR) {
		return;
	}
	if (len <= 0) {
		relay->ended[source] = true;
		(void)shutdown(relay->sides[way], SHUT_WR);
	} else if (!relay->broken) {
		pass_on(cutter, relay, way, bytes, (size_t)len);
	}
}

static void add_relay(struct cutter *cutter) {
	const struct sockaddr_in address = address_of(cutter->server_port);
	const int on = 1;
	int client = accept(cutter->listener, NULL, NULL);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client < 0 || server < 0 || cutter->relay_count == RELAY_COUNT_MAX ||
			connect(server, (const struct sockaddr *)&address,
					sizeof address) != 0) {
		(void)close(client);
		(void)close(server);
		return;
	}
	(void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	cutter->relays[cutter->relay_count++] = (struct relay){
		.sides = { [CUTTER_TO_SERVER] = server, [CUTTER_TO_CLIENT] = client },
	};
}

static void close_relay(const struct relay *relay) {
	(void)close(relay->sides[0]);
	(void)close(relay->sides[1]);
}

/* Closes connections that have ended on both sides, and reports a finished cut
   to cutter_wait(). */
static void close_ended(struct cutter *cutter) {
	size_t kept = 0;
	for (size_t i = 0; i < cutter->relay_count; i++) {
		const struct relay relay = cutter->relays[i];
		if (relay.ended[0] && relay.ended[1]) {
			close_relay(&relay);
			continue;
		}
		cutter->relays[kept++] = relay;
	}
	cutter->relay_count = kept;
	(void)pthread_mutex_lock(&cutter->mutex);
	if (!cutter->armed && !cutter->cut_done) {
		cutter->cut_done = true;
		(void)pthread_cond_broadcast(&cutter->cut);
	}
	(void)pthread_mutex_unlock(&cutter->mutex);
}

static void *relay_thread(void *context) {
	struct cutter *cutter = context;
	struct pollfd polls[2 + 2 * RELAY_COUNT_MAX];
	for (;;) {
		size_t count = cutter->relay_count;
		polls[0] = (struct pollfd){ .fd = cutter->wake[0], .events = POLLIN };
		polls[1] = (struct pollfd){ .fd = cutter->listener, .events = POLLIN };
		for (size_t i = 0; i < 2 * count; i++) {
			const struct relay *relay = &cutter->relays[i / 2];
			polls[2 + i] = (struct pollfd){
				.fd = relay->ended[i % 2] ? -1 : relay->sides[i % 2],
				.events = POLLIN,
			};
		}
		(void)poll(polls, (nfds_t)(2 + 2 * count), -1);
		if (polls[0].revents) {
			return NULL;
		}
		for (size_t i = 0; i < 2 * count; i++) {
			struct relay *relay = &cutter->relays[i / 2];
			/* The connection may have been cut since. */
			if (polls[2 + i].revents && !relay->ended[i % 2]) {
				relay_bytes(cutter, relay,
						i % 2 == CUTTER_TO_CLIENT ? CUTTER_TO_SERVER
												  : CUTTER_TO_CLIENT);
			}
		}
		if (polls[1].revents) {
			add_relay(cutter);
		}
		close_ended(cutter);
	}
}

static bool listen_on_any_port(struct cutter *cutter) {
	struct sockaddr_in address = address_of(0);
	socklen_t len = sizeof address;
	cutter->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (cutter->listener < 0 ||
			bind(cutter->listener, (const struct sockaddr *)&address,
					sizeof address) != 0 ||
			listen(cutter->listener, RELAY_COUNT_MAX) != 0 ||
			getsockname(cutter->listener, (struct sockaddr *)&address, &len) !=
					0) {
		return false;
	}
	cutter->port = ntohs(address.sin_port);
	return true;
}

struct cutter *cutter_create(int server_port) {
	struct cutter *cutter = calloc(1, sizeof *cutter);
	if (!cutter) {
		return NULL;
	}
	cutter->server_port = server_port;
	cutter->listener = -1;
	cutter->wake[0] = -1;
	cutter->wake[1] = -1;
	cutter->cut_done = true;
	(void)pthread_mutex_init(&cutter->mutex, NULL);
	(void)pthread_cond_init(&cutter->cut, NULL);
	cutter->started =
			listen_on_any_port(cutter) && pipe(cutter->wake) == 0 &&
			pthread_create(&cutter->thread, NULL, relay_thread, cutter) == 0;
	if (!cutter->started) {
		cutter_destroy(cutter);
		return NULL;
	}
	return cutter;
}

void cutter_destroy(struct cutter *cutter) {
	if (!cutter) {
		return;
	}
	(void)close(cutter->wake[1]);
	if (cutter->started) {
		(void)pthread_join(cutter->thread, NULL);
	}
	for (size_t i = 0; i < cutter->relay_count; i++) {
		close_relay(&cutter->relays[i]);
	}
	(void)close(cutter->wake[0]);
	(void)close(cutter->listener);
	(void)pthread_cond_destroy(&cutter->cut);
	(void)pthread_mutex_destroy(&cutter->mutex);
	free(cutter);
}

int cutter_port(const struct cutter *cutter) {
	return cutter->port;
}

uint64_t cutter_count(struct cutter *cutter, enum cutter_way way) {
	(void)pthread_mutex_lock(&cutter->mutex);
	uint64_t count = cutter->counts[way];
	(void)pthread_mutex_unlock(&cutter->mutex);
	return count;
}

void cutter_arm(struct cutter *cutter, enum cutter_way way, uint64_t after,
		enum cutter_end end) {
	(void)pthread_mutex_lock(&cutter->mutex);
	cutter->armed = true;
	cutter->way = way;
	cutter->left = after;
	cutter->end = end;
	cutter->cut_done = false;
	(void)pthread_mutex_unlock(&cutter->mutex);
}

bool cutter_wait(struct cutter *cutter) {
	struct timespec end;
	int r = clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += PATIENCE_S;
	(void)pthread_mutex_lock(&cutter->mutex);
	while (r == 0 && !cutter->cut_done) {
		r = pthread_cond_timedwait(&cutter->cut, &cutter->mutex, &end);
	}
	bool cut_done = cutter->cut_done;
	/* Disarm, or the cut would hit a later connection. */
	cutter->armed = false;
	cutter->cut_done = true;
	(void)pthread_mutex_unlock(&cutter->mutex);
	return cut_done;
}
