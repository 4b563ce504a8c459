/* SPDX-License-Identifier: MIT */
/*
 * A receiver that answers each request with 200 and does nothing else, in one
 * thread.
 *
 *   sink_http REQUESTS
 *
 * Its first line is the port. After so many requests it prints how long they
 * took, from the first one on, and how many connections there were.
 */

#include <sys/epoll.h>

#include "wire.h"

#define BUFFER_SIZE 16384
#define EVENTS_MAX 64
#define CONNECTIONS_MAX 1024

/* Its index is that of its descriptor. */
struct connection {
	size_t len;
	char bytes[BUFFER_SIZE];
};

static struct connection connections[CONNECTIONS_MAX];

static struct {
	uint64_t total;
	uint64_t count;
	uint64_t connections;
	int64_t started_ns;
	int64_t ended_ns;
} sink;

static void accept_one(int epoll, int listener) {
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	wire_check(fd >= 0 && fd < CONNECTIONS_MAX, "accept");
	struct epoll_event event = { .events = EPOLLIN, .data = { .fd = fd } };
	wire_check(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll");
	connections[fd].len = 0;
	sink.connections++;
}

static void answer(int fd, struct connection *self) {
	static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	size_t len;
	self->bytes[self->len] = '\0';
	while ((len = wire_message_len(self->bytes, self->len)) > 0) {
		memmove(self->bytes, self->bytes + len, self->len - len + 1);
		self->len -= len;
		sink.ended_ns = wire_now_ns();
		sink.started_ns = sink.count == 0 ? sink.ended_ns : sink.started_ns;
		sink.count++;
		wire_send(fd, text, sizeof text - 1);
	}
}

static void receive(int fd) {
	struct connection *self = &connections[fd];
	ssize_t n = recv(fd, self->bytes + self->len,
			sizeof self->bytes - 1 - self->len, 0);
	if (n <= 0) {
		(void)close(fd);
		return;
	}
	self->len += (size_t)n;
	answer(fd, self);
}

int main(int argc, char **argv) {
	sink.total = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	if (sink.total == 0) {
		(void)fprintf(stderr, "usage: sink_http REQUESTS\n");
		return 2;
	}
	unsigned port;
	int listener = wire_listen(&port);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN,
		.data = { .fd = listener } };
	wire_check(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) == 0, "epoll");
	(void)printf("%u\n", port);
	(void)fflush(stdout);
	while (sink.count < sink.total) {
		struct epoll_event events[EVENTS_MAX];
		int n = epoll_wait(epoll, events, EVENTS_MAX, -1);
		for (int i = 0; i < n; i++) {
			if (events[i].data.fd == listener) {
				accept_one(epoll, listener);
			} else {
				receive(events[i].data.fd);
			}
		}
	}
	double seconds = (double)(sink.ended_ns - sink.started_ns) / 1e9;
	(void)printf("{\"requests\": %llu, \"connections\": %llu,"
				 " \"seconds\": %.6f, \"messages_per_second\": %.0f}\n",
			(unsigned long long)sink.count,
			(unsigned long long)sink.connections, seconds,
			(double)sink.count / seconds);
	return 0;
}
