/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_BENCH_WIRE_H
#define POSTERN_BENCH_WIRE_H

/*
 * What the programs of the benchmark that speak HTTP share: a connection to
 * this machine, and as much of the protocol as the requests and answers of the
 * benchmark need.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WIRE_BODY_LEN 256
/* Message ids are numbers in hex, behind the process id. */
#define WIRE_ID_SIZE 40

static inline void wire_check(bool good, const char *what) {
	if (!good) {
		(void)fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static inline int64_t wire_now_ns(void) {
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline struct sockaddr_in wire_address(unsigned port) {
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) },
	};
}

static inline int wire_dial(unsigned port) {
	const int on = 1;
	struct sockaddr_in address = wire_address(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	wire_check(fd >= 0, "socket");
	wire_check(connect(fd, (struct sockaddr *)&address, sizeof address) == 0,
			"connect");
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

/* Listens on a free port. */
static inline int wire_listen(unsigned *port_out) {
	struct sockaddr_in address = wire_address(0);
	socklen_t len = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	wire_check(fd >= 0, "socket");
	wire_check(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
					   listen(fd, 1024) == 0 &&
					   getsockname(fd, (struct sockaddr *)&address, &len) == 0,
			"listen");
	*port_out = ntohs(address.sin_port);
	return fd;
}

/*
 * The length of the first request or answer in `text`, which a NUL ends behind
 * its `len` bytes; 0: it is not complete.
 */
static inline size_t wire_message_len(const char *text, size_t len) {
	static const char name[] = "\r\ncontent-length:";
	const char *end = strstr(text, "\r\n\r\n");
	if (!end) {
		return 0;
	}
	size_t body_len = 0;
	for (const char *at = text; at < end; at++) {
		if (*at == '\r' && strncasecmp(at, name, sizeof name - 1) == 0) {
			body_len = strtoul(at + sizeof name - 1, NULL, 10);
			break;
		}
	}
	size_t all = (size_t)(end + 4 - text) + body_len;
	return all <= len ? all : 0;
}

/* Writes the id of a message. */
static inline void wire_id(char *out, uint64_t number) {
	(void)snprintf(out, WIRE_ID_SIZE, "%08x-%016llx", (unsigned)getpid(),
			(unsigned long long)number);
}

/* Writes all of it, on a socket that blocks. */
static inline void wire_send(int fd, const char *bytes, size_t len) {
	while (len > 0) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
		wire_check(n > 0, "send");
		bytes += n;
		len -= (size_t)n;
	}
}

#endif
