/* SPDX-License-Identifier: MIT */
/*
 * Clients that send messages over connections that stay open, in one thread:
 * each sends one and waits for its answer, which has to be 202.
 *
 *   load_http PORT PATH CONNECTIONS MESSAGES [RATE]
 *
 * With RATE, so many are sent per second by whoever is free, and the latency is
 * that since the moment at which a message was due.
 */

#include <sys/epoll.h>

#include "wire.h"

#define ANSWER_SIZE 4096
#define REQUEST_SIZE 1024
#define CONNECTIONS_MAX 20000
#define EVENTS_MAX 64

struct connection {
	int fd;
	int64_t begun_ns;
	size_t len;
	char answer[ANSWER_SIZE];
	struct connection *next; /* that is free */
};

static struct {
	const char *path;
	uint64_t total;
	uint64_t sent;
	uint64_t answered;
	int64_t interval_ns; /* 0: as fast as it goes */
	int64_t started_ns;
	struct connection *free;
	double *latencies_ms;
} load;

static void send_next(struct connection *self, int64_t due_ns) {
	char id[WIRE_ID_SIZE];
	char body[WIRE_BODY_LEN + 1];
	char request[REQUEST_SIZE];
	wire_id(id, load.sent++);
	memset(body, 'x', WIRE_BODY_LEN);
	memcpy(body, id, strlen(id));
	body[WIRE_BODY_LEN] = '\0';
	int len = snprintf(request, sizeof request,
			"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
			"Content-Type: text/plain\r\nIdempotency-Key: %s\r\n"
			"Content-Length: %d\r\n\r\n%s",
			load.path, id, WIRE_BODY_LEN, body);
	wire_check(len > 0 && (size_t)len < sizeof request, "request");
	self->begun_ns = due_ns;
	self->len = 0;
	wire_send(self->fd, request, (size_t)len);
}

/* Sends what is due, on the connections that are free. Returns how long to wait
   for more, in ms; -1: until an answer comes. */
static int send_due(void) {
	while (load.free && load.sent < load.total) {
		int64_t now = wire_now_ns();
		int64_t due = load.interval_ns == 0
							  ? now
							  : load.started_ns +
										(int64_t)load.sent * load.interval_ns;
		if (due > now) {
			return (int)((due - now) / 1000000);
		}
		struct connection *self = load.free;
		load.free = self->next;
		send_next(self, due);
	}
	return -1;
}

/* Reads a part of an answer. */
static void receive(struct connection *self) {
	ssize_t n = recv(self->fd, self->answer + self->len,
			sizeof self->answer - 1 - self->len, 0);
	wire_check(n > 0, "the server closed a connection");
	self->len += (size_t)n;
	self->answer[self->len] = '\0';
	if (wire_message_len(self->answer, self->len) == 0) {
		return;
	}
	if (strncmp(self->answer, "HTTP/1.1 202 ", 13) != 0) {
		(void)fprintf(stderr, "not accepted: %s\n", self->answer);
		exit(1);
	}
	load.latencies_ms[load.answered++] =
			(double)(wire_now_ns() - self->begun_ns) / 1e6;
	self->next = load.free;
	load.free = self;
}

static int compare(const void *a, const void *b) {
	double one = *(const double *)a;
	double other = *(const double *)b;
	return (one > other) - (one < other);
}

static double percentile(double part) {
	return load.latencies_ms[(size_t)(part * (double)(load.answered - 1))];
}

static void report(void) {
	double seconds = (double)(wire_now_ns() - load.started_ns) / 1e9;
	qsort(load.latencies_ms, load.answered, sizeof *load.latencies_ms, compare);
	(void)printf("{\"accepted\": %llu, \"seconds\": %.6f,"
				 " \"messages_per_second\": %.0f,"
				 " \"latency_ms\": {\"p50\": %.3f, \"p99\": %.3f}}\n",
			(unsigned long long)load.answered, seconds,
			(double)load.answered / seconds, percentile(0.5), percentile(0.99));
}

static struct connection *dial_all(int epoll, unsigned port, size_t count) {
	struct connection *all = calloc(count, sizeof *all);
	wire_check(all != NULL, "connections");
	for (size_t i = 0; i < count; i++) {
		struct epoll_event event = { .events = EPOLLIN,
			.data = { .ptr = &all[i] } };
		all[i].fd = wire_dial(port);
		wire_check(epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event) == 0,
				"epoll");
		all[i].next = load.free;
		load.free = &all[i];
	}
	return all;
}

int main(int argc, char **argv) {
	size_t count = argc > 4 ? strtoul(argv[3], NULL, 10) : 0;
	double rate = argc > 5 ? strtod(argv[5], NULL) : 0;
	load.total = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
	if (argc > 6 || count == 0 || count > CONNECTIONS_MAX || load.total == 0) {
		(void)fprintf(stderr, "usage: load_http PORT PATH CONNECTIONS MESSAGES"
							  " [RATE]\n");
		return 2;
	}
	load.path = argv[2];
	load.interval_ns = rate > 0 ? (int64_t)(1e9 / rate) : 0;
	load.latencies_ms = calloc(load.total, sizeof *load.latencies_ms);
	wire_check(load.latencies_ms != NULL, "latencies");
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct connection *all =
			dial_all(epoll, (unsigned)strtoul(argv[1], NULL, 10), count);
	load.started_ns = wire_now_ns();
	while (load.answered < load.total) {
		struct epoll_event events[EVENTS_MAX];
		int n = epoll_wait(epoll, events, EVENTS_MAX, send_due());
		for (int i = 0; i < n; i++) {
			receive(events[i].data.ptr);
		}
	}
	report();
	free(load.latencies_ms);
	free(all);
	return 0;
}
