/* SPDX-License-Identifier: MIT */

/*
 * More connections than a socket may have: the idlest is closed, and health
 * checks are always accepted.
 */

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_fixture.h"
#include "support/fake_clock.h"
#include "tap.h"

#define STATS "GET /v1/stats HTTP/1.1\r\nHost: x\r\n\r\n"

/* Send a request on a connection that stays open. */
static void use_connection(int fd, const char *request) {
	static struct response response;
	CHECK(put_text(fd, request));
	read_response(fd, &response, "}");
	CHECK_INT(status_of(&response), 200);
}

static bool is_closed(int fd) {
	char byte;
	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static void must_be_closed(int fd) {
	static struct response response;
	read_response(fd, &response, NULL);
	CHECK(response.closed);
	CHECK_INT(response.len, 0);
}

static void idle_connections(void) {
	struct server self;
	static struct response response;
	enum { COUNT = 256 };
	int fds[COUNT];
	server_start(&self, NULL);
	for (int i = 0; i < COUNT; i++) {
		fds[i] = server_dial(&self);
		use_connection(fds[i], SECOND);
	}
	for (int i = 0; i < 10; i++) {
		CHECK_INT(request_once(&self, SECOND, &response), 200);
		CHECK_INT(request_once(&self, STATS, &response), 200);
	}
	for (int i = 0; i < COUNT; i++) {
		(void)close(fds[i]);
	}
	server_stop(&self);
}

/* Connections that never sent a byte are as idle as others. */
static void silent_connections(void) {
	struct postern__http_options limits = { .connection_count_max = 4 };
	struct server self;
	static struct response response;
	int fds[40];
	server_start(&self, &limits);
	for (int i = 0; i < 40; i++) {
		fds[i] = server_dial(&self);
	}
	CHECK_INT(request_once(&self, SECOND, &response), 200);
	CHECK_INT(request_once(&self, STATS, &response), 200);
	must_be_closed(fds[0]);
	for (int i = 0; i < 40; i++) {
		(void)close(fds[i]);
	}
	server_stop(&self);
}

static void the_idlest(void) {
	struct postern__http_options limits = { .connection_count_max = 4 };
	struct server self;
	int fds[5];
	server_start(&self, &limits);
	for (int i = 0; i < 4; i++) {
		fds[i] = server_dial(&self);
		use_connection(fds[i], SECOND);
	}
	use_connection(fds[0], SECOND);
	fds[4] = server_dial(&self);
	use_connection(fds[4], STATS);
	must_be_closed(fds[1]);
	use_connection(fds[0], STATS);
	use_connection(fds[2], STATS);
	use_connection(fds[3], STATS);
	use_connection(fds[4], STATS);
	for (int i = 0; i < 5; i++) {
		(void)close(fds[i]);
	}
	server_stop(&self);
}

/* A connection with half a head is closed after idle ones, and before one with
   a body. */
static void half_heads(void) {
	struct postern__http_options limits = { .connection_count_max = 3 };
	struct server self;
	static struct response response;
	server_start(&self, &limits);
	int head = server_dial(&self);
	CHECK(put_text(head, "GET /healthz HTTP/1.1\r\nX: "));
	int body = server_dial(&self);
	CHECK(put_text(body, MESSAGE("a") "Content-Length: 2\r\n\r\nx"));
	int idle = server_dial(&self);
	use_connection(idle, SECOND);
	int first = server_dial(&self);
	use_connection(first, STATS);
	must_be_closed(idle);
	CHECK(!is_closed(head));
	CHECK(put_text(first, "GET /healthz HTTP/1.1\r\n"));
	/* The server has read it when it has answered another request. */
	int second = server_dial(&self);
	use_connection(second, SECOND);
	must_be_closed(head);
	CHECK(put_text(body, "y"));
	read_response(body, &response, "}");
	CHECK_INT(status_of(&response), 202);
	(void)close(head);
	(void)close(body);
	(void)close(idle);
	(void)close(first);
	(void)close(second);
	server_stop(&self);
}

/* If every connection has a request in progress, only health checks are
   served. */
static void busy_connections(void) {
	struct postern__http_options limits = { .connection_count_max = 3,
		.slow_ms = 3600000 };
	struct server self;
	static struct response response;
	int fds[3];
	server_start(&self, &limits);
	for (int i = 0; i < 3; i++) {
		char text[256];
		fds[i] = server_dial(&self);
		(void)snprintf(text, sizeof text,
				MESSAGE("%d") "Content-Length: 2\r\n\r\nx", i);
		CHECK(put_text(fds[i], text));
	}
	for (int i = 0; i < 3 * POSTERN__HTTP_RESERVE_COUNT; i++) {
		CHECK_INT(request_once(&self, SECOND, &response), 200);
		CHECK_INT(request_once(&self, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n",
						  &response),
				200);
		CHECK_INT(request_once(&self, STATS, &response), 503);
		CHECK_CONTAINS(response.text, "Retry-After: 1\r\n");
		CHECK_CONTAINS(response.text, "Connection: close\r\n");
	}
	/* A connection for health checks becomes one like the others when there is
	   room for it. */
	int late = server_dial(&self);
	use_connection(late, SECOND);
	CHECK(put_text(fds[0], "y"));
	read_response(fds[0], &response, "}");
	CHECK_INT(status_of(&response), 202);
	(void)close(fds[0]);
	int status = 503;
	for (int i = 0; i < 1000 && status == 503; i++) {
		status = request_once(&self, STATS, &response);
	}
	CHECK_INT(status, 200);
	for (int i = 1; i < 3; i++) {
		CHECK(put_text(fds[i], "y"));
		read_response(fds[i], &response, "}");
		CHECK_INT(status_of(&response), 202);
		(void)close(fds[i]);
	}
	(void)close(late);
	server_stop(&self);
}

#define BODY(id) MESSAGE(id) "Content-Length: 1000\r\n\r\n"

/* Clients that hold the memory are disconnected for others, the slowest first,
   but not before they are slow. */
static void slow_clients(void) {
	struct postern__http_options limits = { .bodies_len_max = 2500,
		.slow_ms = 5000,
		.receive_ms = 60000 };
	struct server self;
	struct fake_clock clock;
	static struct response response;
	char text[2048];
	fake_clock_init(&clock);
	limits.clock = &clock.base;
	server_start(&self, &limits);
	int first = server_dial(&self);
	CHECK(put_text(first, BODY("a") "x"));
	CHECK_INT(request_once(&self, SECOND, &response), 200);
	fake_clock_advance(&clock, 4999);
	int second = server_dial(&self);
	CHECK(put_text(second, BODY("b") "x"));
	CHECK_INT(request_once(&self, SECOND, &response), 200);
	(void)snprintf(text, sizeof text, BODY("c") "%01000d", 0);
	CHECK_INT(request_once(&self, text, &response), 503);
	CHECK(!is_closed(first));
	fake_clock_advance(&clock, 1);
	CHECK_INT(request_once(&self, text, &response), 503);
	must_be_closed(first);
	int status = 503;
	for (int i = 0; i < 1000 && status == 503; i++) {
		status = request_once(&self, text, &response);
	}
	CHECK_INT(status, 202);
	(void)snprintf(text, sizeof text, "%0999d", 0);
	CHECK(put_text(second, text));
	read_response(second, &response, "}");
	CHECK_INT(status_of(&response), 202);
	(void)close(first);
	(void)close(second);
	server_stop(&self);
}

static const struct tap_case cases[] = {
	{ "256 idle connections do not block new ones", idle_connections },
	{ "connections that send nothing do not block new ones",
			silent_connections },
	{ "the connection that is idle longest is closed", the_idlest },
	{ "half a head is closed after idle connections, half a body is not",
			half_heads },
	{ "health checks are accepted where all connections are busy",
			busy_connections },
	{ "where there is no room, the client that is slow longest is closed",
			slow_clients },
};

TAP_MAIN(cases)
