/* SPDX-License-Identifier: MIT */

/*
 * The API over a real socket, with limits small enough to be reached. Requests
 * are written byte by byte as a client might, good or bad.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_fixture.h"
#include "tap.h"

static void api_responses(void) {
	struct server self;
	static struct response response;
	server_start(&self, NULL);
	CHECK_INT(request_once(&self, "GET /v1/stats HTTP/1.1\r\nHost: x\r\n\r\n",
					  &response),
			200);
	CHECK_CONTAINS(response.text, "Content-Type: application/json\r\n");
	CHECK_CONTAINS(response.text, "X-Content-Type-Options: nosniff\r\n");
	CHECK_CONTAINS(response.text, "\"kind\":\"memory\"");
	CHECK_INT(request_once(&self, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n",
					  &response),
			404);
	CHECK_CONTAINS(response.text, "Content-Type: application/problem+json\r\n");
	CHECK_INT(request_once(&self,
					  "POST /healthz HTTP/1.1\r\nHost: x\r\n"
					  "Content-Length: 0\r\n\r\n",
					  &response),
			405);
	CHECK_CONTAINS(response.text, "Allow: GET, HEAD\r\n");
	CHECK_INT(request_once(&self, "HEAD /v1/stats HTTP/1.1\r\nHost: x\r\n\r\n",
					  &response),
			200);
	CHECK(strcmp(strstr(response.text, "\r\n\r\n"), "\r\n\r\n") == 0);
	CHECK_INT(request_once(&self, "GET /v1/stats HTTP/1.0\r\n\r\n", &response),
			200);
	/* The path and the query reach the api as they were sent. */
	CHECK_INT(request_once(&self,
					  "POST /v1/handlers/no%2Fgood/pause HTTP/1.1\r\n"
					  "Host: x\r\nContent-Length: 0\r\n\r\n",
					  &response),
			200);
	CHECK_INT(request_once(&self,
					  "GET /v1/messages?id=a%26b HTTP/1.1\r\n"
					  "Host: x\r\n\r\n",
					  &response),
			200);
	CHECK_INT(request_once(&self, "GET /v1/stats?x HTTP/1.1\r\nHost: x\r\n\r\n",
					  &response),
			400);
	server_stop(&self);
}

static void exact_bodies(void) {
	struct server self;
	static struct response response;
	server_start(&self, NULL);
	enum { LEN = 100000 };
	char *body = malloc(LEN);
	char *seen = malloc(LEN + 65536);
	if (!body || !seen) {
		abort();
	}
	for (int i = 0; i < LEN; i++) {
		body[i] = (char)(i * 7 + i / 256);
	}
	char head[256];
	int fd = server_dial(&self);
	(void)snprintf(head, sizeof head, MESSAGE("a") "Content-Length: %d\r\n\r\n",
			LEN);
	CHECK(put_text(fd, head) && put_bytes(fd, body, LEN));
	read_response(fd, &response, "}");
	CHECK_CONTAINS(response.text, " 202 ");

	/* The same in chunks of odd sizes, on the same connection. */
	CHECK(put_text(fd, MESSAGE("b") "Transfer-Encoding: chunked\r\n\r\n"));
	for (size_t at = 0, len = 1; at < LEN; at += len, len = len * 3 % 7001) {
		if (len > LEN - at) {
			len = LEN - at;
		}
		(void)snprintf(head, sizeof head, "%zx;x=y\r\n", len);
		CHECK(put_text(fd, head) && put_bytes(fd, body + at, len) &&
				put_text(fd, "\r\n"));
	}
	CHECK(put_text(fd, "0\r\n\r\n"));
	read_response(fd, &response, "}");
	CHECK_CONTAINS(response.text, " 202 ");

	for (int i = 1; i <= 2; i++) {
		(void)snprintf(head, sizeof head,
				"GET /v1/messages/%d/body HTTP/1.1\r\nHost: x\r\n\r\n", i);
		CHECK(put_text(fd, head));
		size_t len = 0;
		const char *start_of_body = NULL;
		while (!start_of_body || len - (size_t)(start_of_body - seen) < LEN) {
			ssize_t n = recv(fd, seen + len, LEN + 65535 - len, 0);
			if (!CHECK(n > 0)) {
				break;
			}
			len += (size_t)n;
			seen[len] = '\0';
			start_of_body = strstr(seen, "\r\n\r\n");
			start_of_body = start_of_body ? start_of_body + 4 : NULL;
		}
		if (start_of_body) {
			CHECK_MEM(start_of_body, len - (size_t)(start_of_body - seen), body,
					LEN);
		}
	}
	(void)close(fd);
	free(body);
	free(seen);
	server_stop(&self);
}

static void large_headers(void) {
	struct server self;
	static struct response response;
	server_start(&self, NULL);
	char *text = malloc(2000000);
	if (!text) {
		abort();
	}
	int n = snprintf(text, 2000000, MESSAGE("a"));
	for (int i = 0; i < 1000; i++) {
		n += snprintf(text + n, 2000000 - (size_t)n, "X-%d: v\r\n", i);
	}
	(void)snprintf(text + n, 2000000 - (size_t)n, "\r\n");
	CHECK_INT(request_once(&self, text, &response), 431);
	(void)snprintf(text, 2000000, MESSAGE("a") "X-Long: %01000000d\r\n\r\n", 1);
	int status = request_once(&self, text, &response);
	CHECK(status == 431 || status == 413 || status == 0);
	(void)snprintf(text, 2000000, "GET /%01000000d HTTP/1.1\r\nHost: x\r\n\r\n",
			1);
	status = request_once(&self, text, &response);
	CHECK(status == 414 || status == 0);
	(void)snprintf(text, 2000000, "GET /%010000d HTTP/1.1\r\nHost: x\r\n\r\n",
			1);
	CHECK_INT(request_once(&self, text, &response), 414);
	free(text);
	/* The largest that a message may have go through. */
	char *largest = malloc(100000);
	if (!largest) {
		abort();
	}
	n = snprintf(largest, 100000, MESSAGE("b"));
	for (int i = 0; i < 7; i++) {
		n += snprintf(largest + n, 100000 - (size_t)n, "X-%d: %08192d\r\n", i,
				0);
	}
	(void)snprintf(largest + n, 100000 - (size_t)n,
			"Content-Length: 1\r\n\r\nx");
	CHECK_INT(request_once(&self, largest, &response), 202);
	free(largest);
	server_stop(&self);
}

static void large_bodies(void) {
	struct server self;
	static struct response response;
	server_start(&self, NULL);
	self.fixture.api.body_len_max = 1000;
	char text[4096];
	(void)snprintf(text, sizeof text,
			MESSAGE("a") "Content-Length: 1001\r\n\r\n%01001d" SECOND, 0);
	/* The body is read to its end, so the connection stays open. */
	int fd = server_dial(&self);
	CHECK(put_text(fd, text));
	read_response(fd, &response, "\"ok\"");
	CHECK_INT(status_of(&response), 413);
	(void)close(fd);
	(void)snprintf(text, sizeof text,
			MESSAGE("a") "Content-Length: 1000\r\n\r\n%01000d", 0);
	CHECK_INT(request_once(&self, text, &response), 202);

	/* A body declared as 4 GB is refused before it is sent. */
	fd = server_dial(&self);
	CHECK(put_text(fd, MESSAGE("b") "Content-Length: 4294967296\r\n\r\n"));
	read_response(fd, &response, NULL);
	CHECK_CONTAINS(response.text, " 413 ");
	CHECK(response.closed);
	(void)close(fd);

	/* A client that sends Expect gets the error at once. */
	fd = server_dial(&self);
	CHECK(put_text(fd, MESSAGE("b") "Content-Length: 2000\r\n"
									"Expect: 100-continue\r\n\r\n"));
	read_response(fd, &response, NULL);
	CHECK_CONTAINS(response.text, " 413 ");
	(void)close(fd);
	fd = server_dial(&self);
	CHECK(put_text(fd, MESSAGE("b") "Content-Length: 3\r\n"
									"Expect: 100-continue\r\n\r\n"));
	read_response(fd, &response, "\r\n\r\n");
	CHECK_CONTAINS(response.text, " 100 ");
	CHECK(put_text(fd, "abc"));
	read_response(fd, &response, "}");
	CHECK_CONTAINS(response.text, " 202 ");
	(void)close(fd);

	/* Endless chunks: the connection is closed, and nothing is stored. */
	fd = server_dial(&self);
	CHECK(put_text(fd, MESSAGE("c") "Transfer-Encoding: chunked\r\n\r\n"));
	static char chunk[65536 + 16];
	(void)snprintf(chunk, 16, "10000\r\n");
	memset(chunk + 7, 'x', 65536);
	memcpy(chunk + 7 + 65536, "\r\n", 2);
	int count = 0;
	while (count < 10000 && put_bytes(fd, chunk, 7 + 65536 + 2)) {
		count++;
	}
	CHECK(count < 200);
	(void)close(fd);
	/* Chunks just over the limit get an error. */
	(void)snprintf(text, sizeof text,
			MESSAGE("d") "Transfer-Encoding: chunked\r\n\r\n"
						 "3e9\r\n%01001d\r\n0\r\n\r\n",
			0);
	CHECK_INT(request_once(&self, text, &response), 413);

	CHECK_INT(fixture_get(&self.fixture, "GET /v1/stats"), 200);
	CHECK_INT(fixture_number(&self.fixture, "channels.0.accepted"), 2);
	server_stop(&self);
}

static void half_requests(void) {
	static const char *const halves[] = { "", "G", "GET /healthz HTTP/1.1\r\n",
		MESSAGE("a") "Content-Length: 10\r\n\r\nabc",
		MESSAGE("a") "Transfer-Encoding: chunked\r\n\r\n5\r\nab", "\r\n\r\n",
		"\x16\x03\x01\x02", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" };
	struct server self;
	static struct response response;
	server_start(&self, NULL);
	for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++) {
		int fd = server_dial(&self);
		(void)put_text(fd, halves[i]);
		(void)shutdown(fd, SHUT_WR);
		read_response(fd, &response, NULL);
		if (status_of(&response) != 0 && status_of(&response) < 400) {
			FAIL("%zu: %s", i, response.text);
		}
		(void)close(fd);
		/* The same, but the client closes at once. */
		fd = server_dial(&self);
		(void)put_text(fd, halves[i]);
		(void)close(fd);
	}
	CHECK_INT(request_once(&self, SECOND, &response), 200);
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/stats"), 200);
	CHECK_INT(fixture_number(&self.fixture, "channels.0.accepted"), 0);
	server_stop(&self);
}

/* Single bytes at intervals do not keep a connection open. */
static void slow_clients(void) {
	struct postern__http_options limits = { .receive_ms = 1000,
		.send_ms = 1000 };
	struct server self;
	static struct response response;
	struct fake_clock clock;
	fake_clock_init(&clock);
	limits.clock = &clock.base;
	server_start(&self, &limits);
	int slow_header = server_dial(&self);
	CHECK(put_text(slow_header, "GET /healthz HTTP/1.1\r\nX: "));
	int slow_body = server_dial(&self);
	CHECK(put_text(slow_body, MESSAGE("a") "Content-Length: 100\r\n\r\nx"));
	int kept = server_dial(&self);
	CHECK(put_text(kept, SECOND));
	read_response(kept, &response, "}");
	fake_clock_advance(&clock, 999);
	postern__http_sweep(self.http);
	CHECK(put_text(slow_header, "x"));
	CHECK(put_text(slow_body, "x"));
	CHECK(put_text(kept, SECOND));
	read_response(kept, &response, "}");
	CHECK_CONTAINS(response.text, "200 OK");
	/* The client has the response, but the server records its end a moment
	   later; a second response shows that it has. */
	CHECK(put_text(kept, SECOND));
	read_response(kept, &response, "}");
	fake_clock_advance(&clock, 1);
	postern__http_sweep(self.http);
	read_response(slow_header, &response, NULL);
	CHECK(response.closed);
	read_response(slow_body, &response, NULL);
	CHECK(response.closed);
	/* A client that sent its request in time keeps its connection. */
	CHECK(put_text(kept, SECOND));
	read_response(kept, &response, "}");
	CHECK_CONTAINS(response.text, "200 OK");
	(void)close(slow_header);
	(void)close(slow_body);
	(void)close(kept);
	server_stop(&self);
}

static void many_connections(void) {
	struct postern__http_options limits = { .connection_count_max = 4 };
	struct server self;
	static struct response response;
	server_start(&self, &limits);
	int fds[20];
	for (int i = 0; i < 20; i++) {
		fds[i] = server_dial(&self);
		CHECK(put_text(fds[i], SECOND));
	}
	for (int i = 0; i < 20; i++) {
		read_response(fds[i], &response, "}");
		CHECK_CONTAINS(response.text, "200 OK");
		(void)close(fds[i]);
	}
	server_stop(&self);
}

static void pipelines(void) {
	struct server self;
	server_start(&self, NULL);
	int fd = server_dial(&self);
	enum { COUNT = 2000 };
	/* Short enough that neither side blocks the other for ever. */
	int asked = 0;
	int answered = 0;
	char last = '\0';
	while (answered < COUNT) {
		while (asked < COUNT && asked - answered < 50) {
			CHECK(put_text(fd, asked % 100 == 0
									   ? "GET /v1/channels HTTP/1.1\r\n"
										 "Host: x\r\n\r\n"
									   : SECOND));
			asked++;
		}
		char text[65536];
		ssize_t n = recv(fd, text, sizeof text, 0);
		if (!CHECK(n > 0)) {
			break;
		}
		for (ssize_t i = 0; i < n; i++) {
			/* "P/" occurs only in "HTTP/1.1 200". */
			answered += last == 'P' && text[i] == '/';
			last = text[i];
		}
	}
	CHECK_INT(answered, COUNT);
	(void)close(fd);
	server_stop(&self);
}

static void bodies_limit(void) {
	struct postern__http_options limits = { .bodies_len_max = 1500 };
	struct server self;
	static struct response response;
	server_start(&self, &limits);
	int first = server_dial(&self);
	CHECK(put_text(first, MESSAGE("a") "Content-Length: 1000\r\n\r\nx"));
	/* Memory for the first body is reserved once the server has read its head.
	   The response on another connection cannot precede that, because one
	   thread serves both. */
	CHECK_INT(request_once(&self, SECOND, &response), 200);
	char text[2048];
	(void)snprintf(text, sizeof text,
			MESSAGE("b") "Content-Length: 1000\r\n\r\n%01000d", 0);
	CHECK_INT(request_once(&self, text, &response), 503);
	CHECK_CONTAINS(response.text, "Retry-After: 1\r\n");
	(void)snprintf(text, sizeof text,
			MESSAGE("b") "Transfer-Encoding: chunked\r\n\r\n"
						 "3e8\r\n%01000d\r\n0\r\n\r\n",
			0);
	CHECK_INT(request_once(&self, text, &response), 503);
	(void)snprintf(text, sizeof text, "%0999d", 0);
	CHECK(put_text(first, text));
	read_response(first, &response, "}");
	CHECK_CONTAINS(response.text, " 202 ");
	(void)close(first);
	(void)snprintf(text, sizeof text,
			MESSAGE("b") "Content-Length: 1000\r\n\r\n%01000d", 0);
	CHECK_INT(request_once(&self, text, &response), 202);
	server_stop(&self);
}

static void slow_readers(void) {
	struct postern__http_options limits = { .answers_len_max = 2000000 };
	struct server self;
	static struct response response;
	server_start(&self, &limits);
	/* More than a socket buffers, so the response stays in the server. */
	enum { LEN = 1000000 };
	char *text = malloc(LEN + 1000);
	if (!text) {
		abort();
	}
	(void)snprintf(text, LEN + 1000,
			MESSAGE("a") "Content-Length: %d\r\n\r\n%01000000d", LEN, 0);
	CHECK_INT(request_once(&self, text, &response), 202);
	free(text);
	static const char get[] = "GET /v1/messages/1/body HTTP/1.1\r\n"
							  "Host: x\r\n\r\n";
	int fds[2];
	for (int i = 0; i < 2; i++) {
		fds[i] = server_dial(&self);
		CHECK(put_text(fds[i], get));
		read_response(fds[i], &response, "\r\n\r\n");
		CHECK_INT(status_of(&response), 200);
	}
	CHECK_INT(request_once(&self, get, &response), 503);
	CHECK_CONTAINS(response.text, "Retry-After: 1\r\n");
	/* A client that closes frees memory. */
	(void)close(fds[0]);
	(void)close(fds[1]);
	int status = 503;
	for (int i = 0; i < 1000 && status == 503; i++) {
		int fd = server_dial(&self);
		CHECK(put_text(fd, get));
		read_response(fd, &response, "\r\n\r\n");
		status = status_of(&response);
		(void)close(fd);
	}
	CHECK_INT(status, 200);
	server_stop(&self);
}

struct sender {
	pthread_t thread;
	int fd; /* dialled before the thread starts: the server may stop soon */
	int number;
	int accepted;
};

static void *send_many(void *context) {
	struct sender *self = context;
	struct response *response = malloc(sizeof *response);
	int fd = self->fd;
	for (int i = 0; response && i < 200; i++) {
		char text[512];
		(void)snprintf(text, sizeof text,
				"POST /v1/channels/strict/messages HTTP/1.1\r\nHost: x\r\n"
				"ce-specversion: 1.0\r\nce-id: %d-%d\r\nce-source: s\r\n"
				"ce-type: order.x\r\nContent-Length: 5\r\n\r\nhello",
				self->number, i);
		if (!put_text(fd, text)) {
			break;
		}
		read_response(fd, response, "}");
		self->accepted += strstr(response->text, " 202 ") != NULL;
		if (response->closed) {
			break;
		}
	}
	(void)close(fd);
	free(response);
	return NULL;
}

static void many_clients(void) {
	struct server self;
	server_start(&self, NULL);
	struct sender senders[16];
	for (int i = 0; i < 16; i++) {
		senders[i] = (struct sender){ .fd = server_dial(&self), .number = i };
		(void)pthread_create(&senders[i].thread, NULL, send_many, &senders[i]);
	}
	static struct response response;
	for (int i = 0; i < 20; i++) {
		CHECK_INT(request_once(&self,
						  "GET /v1/deliveries HTTP/1.1\r\nHost: x\r\n\r\n",
						  &response),
				200);
	}
	int accepted = 0;
	for (int i = 0; i < 16; i++) {
		(void)pthread_join(senders[i].thread, NULL);
		accepted += senders[i].accepted;
	}
	CHECK_INT(accepted, 16 * 200);
	server_stop(&self);
}

/* A message that got a 202 is stored, whenever the server stops. */
static void stop_amid(void) {
	struct server self;
	server_start(&self, NULL);
	struct sender senders[8];
	for (int i = 0; i < 8; i++) {
		senders[i] = (struct sender){ .fd = server_dial(&self), .number = i };
		(void)pthread_create(&senders[i].thread, NULL, send_many, &senders[i]);
	}
	static struct response response;
	CHECK_INT(request_once(&self, SECOND, &response), 200);
	postern__http_stop(self.http);
	self.http = NULL;
	int accepted = 0;
	for (int i = 0; i < 8; i++) {
		(void)pthread_join(senders[i].thread, NULL);
		accepted += senders[i].accepted;
	}
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/channels"), 200);
	long long kept = -1;
	json_t *row;
	size_t i;
	json_array_foreach(fixture_value(&self.fixture, "items"), i, row) {
		if (strcmp(json_string_value(json_object_get(row, "name")), "strict") ==
				0) {
			kept = json_integer_value(json_object_get(row, "accepted"));
		}
	}
	CHECK(kept >= accepted);
	server_stop(&self);
}

static const struct tap_case cases[] = {
	{ "requests get the responses of the API", api_responses },
	{ "bodies arrive byte for byte, whole and in chunks", exact_bodies },
	{ "headers have limits", large_headers },
	{ "a body over the limit is refused and never kept", large_bodies },
	{ "an incomplete request is not processed", half_requests },
	{ "a slow client loses its connection, a quick one keeps it",
			slow_clients },
	{ "health checks on more connections than allowed are served",
			many_connections },
	{ "pipelined requests are all answered", pipelines },
	{ "all bodies together have a limit", bodies_limit },
	{ "all responses together have a limit", slow_readers },
	{ "many senders and readers at once are served", many_clients },
	{ "stopping loses nothing that was accepted", stop_amid },
};

TAP_MAIN(cases)
