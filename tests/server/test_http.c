/* SPDX-License-Identifier: MIT */

/*
 * The api over a real socket, with limits small enough to be reached. Requests
 * are written byte by byte as a client might, good or bad.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_fixture.h"
#include "tap.h"

static void answers(void) {
	struct server self;
	static struct answer answer;
	server_start(&self, NULL);
	CHECK_INT(ask(&self, "GET /v1/stats HTTP/1.1\r\nHost: x\r\n\r\n", &answer),
			200);
	CHECK_CONTAINS(answer.text, "Content-Type: application/json\r\n");
	CHECK_CONTAINS(answer.text, "X-Content-Type-Options: nosniff\r\n");
	CHECK_CONTAINS(answer.text, "\"kind\":\"memory\"");
	CHECK_INT(ask(&self, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", &answer),
			404);
	CHECK_CONTAINS(answer.text, "Content-Type: application/problem+json\r\n");
	CHECK_INT(ask(&self,
					  "POST /healthz HTTP/1.1\r\nHost: x\r\n"
					  "Content-Length: 0\r\n\r\n",
					  &answer),
			405);
	CHECK_CONTAINS(answer.text, "Allow: GET, HEAD\r\n");
	CHECK_INT(ask(&self, "HEAD /v1/stats HTTP/1.1\r\nHost: x\r\n\r\n", &answer),
			200);
	CHECK(strcmp(strstr(answer.text, "\r\n\r\n"), "\r\n\r\n") == 0);
	CHECK_INT(ask(&self, "GET /v1/stats HTTP/1.0\r\n\r\n", &answer), 200);
	/* The path and the query reach the api as they were sent. */
	CHECK_INT(ask(&self,
					  "POST /v1/handlers/no%2Fgood/pause HTTP/1.1\r\n"
					  "Host: x\r\nContent-Length: 0\r\n\r\n",
					  &answer),
			200);
	CHECK_INT(ask(&self,
					  "GET /v1/messages?id=a%26b HTTP/1.1\r\n"
					  "Host: x\r\n\r\n",
					  &answer),
			200);
	CHECK_INT(ask(&self, "GET /v1/stats?x HTTP/1.1\r\nHost: x\r\n\r\n",
					  &answer),
			400);
	server_stop(&self);
}

static void exact_bodies(void) {
	struct server self;
	static struct answer answer;
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
	CHECK(put_text(fd, head) && put(fd, body, LEN));
	hear(fd, &answer, "}");
	CHECK_CONTAINS(answer.text, " 202 ");

	/* The same in chunks of odd sizes, on the same connection. */
	CHECK(put_text(fd, MESSAGE("b") "Transfer-Encoding: chunked\r\n\r\n"));
	for (size_t at = 0, len = 1; at < LEN; at += len, len = len * 3 % 7001) {
		if (len > LEN - at) {
			len = LEN - at;
		}
		(void)snprintf(head, sizeof head, "%zx;x=y\r\n", len);
		CHECK(put_text(fd, head) && put(fd, body + at, len) &&
				put_text(fd, "\r\n"));
	}
	CHECK(put_text(fd, "0\r\n\r\n"));
	hear(fd, &answer, "}");
	CHECK_CONTAINS(answer.text, " 202 ");

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
	static struct answer answer;
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
	CHECK_INT(ask(&self, text, &answer), 431);
	(void)snprintf(text, 2000000, MESSAGE("a") "X-Long: %01000000d\r\n\r\n", 1);
	int status = ask(&self, text, &answer);
	CHECK(status == 431 || status == 413 || status == 0);
	(void)snprintf(text, 2000000, "GET /%01000000d HTTP/1.1\r\nHost: x\r\n\r\n",
			1);
	status = ask(&self, text, &answer);
	CHECK(status == 414 || status == 0);
	(void)snprintf(text, 2000000, "GET /%010000d HTTP/1.1\r\nHost: x\r\n\r\n",
			1);
	CHECK_INT(ask(&self, text, &answer), 414);
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
	CHECK_INT(ask(&self, largest, &answer), 202);
	free(largest);
	server_stop(&self);
}

static void large_bodies(void) {
	struct server self;
	static struct answer answer;
	server_start(&self, NULL);
	self.fixture.api.body_len_max = 1000;
	char text[4096];
	(void)snprintf(text, sizeof text,
			MESSAGE("a") "Content-Length: 1001\r\n\r\n%01001d" SECOND, 0);
	/* Read to its end, so the connection goes on. */
	int fd = server_dial(&self);
	CHECK(put_text(fd, text));
	hear(fd, &answer, "\"ok\"");
	CHECK_INT(status_of(&answer), 413);
	(void)close(fd);
	(void)snprintf(text, sizeof text,
			MESSAGE("a") "Content-Length: 1000\r\n\r\n%01000d", 0);
	CHECK_INT(ask(&self, text, &answer), 202);

	/* Declared as 4 GB: refused before it comes. */
	fd = server_dial(&self);
	CHECK(put_text(fd, MESSAGE("b") "Content-Length: 4294967296\r\n\r\n"));
	hear(fd, &answer, NULL);
	CHECK_CONTAINS(answer.text, " 413 ");
	CHECK(answer.closed);
	(void)close(fd);

	/* A client that asks first is told at once. */
	fd = server_dial(&self);
	CHECK(put_text(fd, MESSAGE("b") "Content-Length: 2000\r\n"
									"Expect: 100-continue\r\n\r\n"));
	hear(fd, &answer, NULL);
	CHECK_CONTAINS(answer.text, " 413 ");
	(void)close(fd);
	fd = server_dial(&self);
	CHECK(put_text(fd, MESSAGE("b") "Content-Length: 3\r\n"
									"Expect: 100-continue\r\n\r\n"));
	hear(fd, &answer, "\r\n\r\n");
	CHECK_CONTAINS(answer.text, " 100 ");
	CHECK(put_text(fd, "abc"));
	hear(fd, &answer, "}");
	CHECK_CONTAINS(answer.text, " 202 ");
	(void)close(fd);

	/* Chunks without end: cut off, and never kept. */
	fd = server_dial(&self);
	CHECK(put_text(fd, MESSAGE("c") "Transfer-Encoding: chunked\r\n\r\n"));
	static char chunk[65536 + 16];
	(void)snprintf(chunk, 16, "10000\r\n");
	memset(chunk + 7, 'x', 65536);
	memcpy(chunk + 7 + 65536, "\r\n", 2);
	int count = 0;
	while (count < 10000 && put(fd, chunk, 7 + 65536 + 2)) {
		count++;
	}
	CHECK(count < 200);
	(void)close(fd);
	/* Chunks just over it: told so. */
	(void)snprintf(text, sizeof text,
			MESSAGE("d") "Transfer-Encoding: chunked\r\n\r\n"
						 "3e9\r\n%01001d\r\n0\r\n\r\n",
			0);
	CHECK_INT(ask(&self, text, &answer), 413);

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
	static struct answer answer;
	server_start(&self, NULL);
	for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++) {
		int fd = server_dial(&self);
		(void)put_text(fd, halves[i]);
		(void)shutdown(fd, SHUT_WR);
		hear(fd, &answer, NULL);
		if (status_of(&answer) != 0 && status_of(&answer) < 400) {
			FAIL("%zu: %s", i, answer.text);
		}
		(void)close(fd);
		/* And once more, hanging up at once. */
		fd = server_dial(&self);
		(void)put_text(fd, halves[i]);
		(void)close(fd);
	}
	CHECK_INT(ask(&self, SECOND, &answer), 200);
	CHECK_INT(fixture_get(&self.fixture, "GET /v1/stats"), 200);
	CHECK_INT(fixture_number(&self.fixture, "channels.0.accepted"), 0);
	server_stop(&self);
}

/* One byte now and then is not enough to keep a connection. */
static void slow_clients(void) {
	struct postern__http_options limits = { .receive_ms = 1000,
		.send_ms = 1000 };
	struct server self;
	static struct answer answer;
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
	hear(kept, &answer, "}");
	fake_clock_advance(&clock, 999);
	postern__http_sweep(self.http);
	CHECK(put_text(slow_header, "x"));
	CHECK(put_text(slow_body, "x"));
	CHECK(put_text(kept, SECOND));
	hear(kept, &answer, "}");
	CHECK_CONTAINS(answer.text, "200 OK");
	/* The answer is here; that its end was noted there takes a moment more,
	   which another answer shows to be over. */
	CHECK(put_text(kept, SECOND));
	hear(kept, &answer, "}");
	fake_clock_advance(&clock, 1);
	postern__http_sweep(self.http);
	hear(slow_header, &answer, NULL);
	CHECK(answer.closed);
	hear(slow_body, &answer, NULL);
	CHECK(answer.closed);
	/* Who asked in time is served on. */
	CHECK(put_text(kept, SECOND));
	hear(kept, &answer, "}");
	CHECK_CONTAINS(answer.text, "200 OK");
	(void)close(slow_header);
	(void)close(slow_body);
	(void)close(kept);
	server_stop(&self);
}

static void many_connections(void) {
	struct postern__http_options limits = { .connection_count_max = 4 };
	struct server self;
	static struct answer answer;
	server_start(&self, &limits);
	int fds[20];
	for (int i = 0; i < 20; i++) {
		fds[i] = server_dial(&self);
		CHECK(put_text(fds[i], SECOND));
	}
	for (int i = 0; i < 20; i++) {
		hear(fds[i], &answer, "}");
		CHECK_CONTAINS(answer.text, "200 OK");
		(void)close(fds[i]);
	}
	server_stop(&self);
}

static void pipelines(void) {
	struct server self;
	server_start(&self, NULL);
	int fd = server_dial(&self);
	enum { COUNT = 2000 };
	/* Short enough that neither side blocks the other for good. */
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
			/* "HTTP/1.1 200" has the only "P/" there is. */
			answered += last == 'P' && text[i] == '/';
			last = text[i];
		}
	}
	CHECK_INT(answered, COUNT);
	(void)close(fd);
	server_stop(&self);
}

static void pressure(void) {
	struct postern__http_options limits = { .bodies_len_max = 1500 };
	struct server self;
	static struct answer answer;
	server_start(&self, &limits);
	int first = server_dial(&self);
	CHECK(put_text(first, MESSAGE("a") "Content-Length: 1000\r\n\r\nx"));
	/* The first has its room once it was heard; another connection's answer
	   cannot come before, as one thread serves both. */
	CHECK_INT(ask(&self, SECOND, &answer), 200);
	char text[2048];
	(void)snprintf(text, sizeof text,
			MESSAGE("b") "Content-Length: 1000\r\n\r\n%01000d", 0);
	CHECK_INT(ask(&self, text, &answer), 503);
	CHECK_CONTAINS(answer.text, "Retry-After: 1\r\n");
	(void)snprintf(text, sizeof text,
			MESSAGE("b") "Transfer-Encoding: chunked\r\n\r\n"
						 "3e8\r\n%01000d\r\n0\r\n\r\n",
			0);
	CHECK_INT(ask(&self, text, &answer), 503);
	(void)snprintf(text, sizeof text, "%0999d", 0);
	CHECK(put_text(first, text));
	hear(first, &answer, "}");
	CHECK_CONTAINS(answer.text, " 202 ");
	(void)close(first);
	(void)snprintf(text, sizeof text,
			MESSAGE("b") "Content-Length: 1000\r\n\r\n%01000d", 0);
	CHECK_INT(ask(&self, text, &answer), 202);
	server_stop(&self);
}

static void slow_readers(void) {
	struct postern__http_options limits = { .answers_len_max = 2000000 };
	struct server self;
	static struct answer answer;
	server_start(&self, &limits);
	/* More than a socket takes, so it stays with the server. */
	enum { LEN = 1000000 };
	char *text = malloc(LEN + 1000);
	if (!text) {
		abort();
	}
	(void)snprintf(text, LEN + 1000,
			MESSAGE("a") "Content-Length: %d\r\n\r\n%01000000d", LEN, 0);
	CHECK_INT(ask(&self, text, &answer), 202);
	free(text);
	static const char get[] = "GET /v1/messages/1/body HTTP/1.1\r\n"
							  "Host: x\r\n\r\n";
	int fds[2];
	for (int i = 0; i < 2; i++) {
		fds[i] = server_dial(&self);
		CHECK(put_text(fds[i], get));
		hear(fds[i], &answer, "\r\n\r\n");
		CHECK_INT(status_of(&answer), 200);
	}
	CHECK_INT(ask(&self, get, &answer), 503);
	CHECK_CONTAINS(answer.text, "Retry-After: 1\r\n");
	/* Who goes leaves room. */
	(void)close(fds[0]);
	(void)close(fds[1]);
	int status = 503;
	for (int i = 0; i < 1000 && status == 503; i++) {
		int fd = server_dial(&self);
		CHECK(put_text(fd, get));
		hear(fd, &answer, "\r\n\r\n");
		status = status_of(&answer);
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
	struct answer *answer = malloc(sizeof *answer);
	int fd = self->fd;
	for (int i = 0; answer && i < 200; i++) {
		char text[512];
		(void)snprintf(text, sizeof text,
				"POST /v1/channels/strict/messages HTTP/1.1\r\nHost: x\r\n"
				"ce-specversion: 1.0\r\nce-id: %d-%d\r\nce-source: s\r\n"
				"ce-type: order.x\r\nContent-Length: 5\r\n\r\nhello",
				self->number, i);
		if (!put_text(fd, text)) {
			break;
		}
		hear(fd, answer, "}");
		self->accepted += strstr(answer->text, " 202 ") != NULL;
		if (answer->closed) {
			break;
		}
	}
	(void)close(fd);
	free(answer);
	return NULL;
}

static void crowds(void) {
	struct server self;
	server_start(&self, NULL);
	struct sender senders[16];
	for (int i = 0; i < 16; i++) {
		senders[i] = (struct sender){ .fd = server_dial(&self), .number = i };
		(void)pthread_create(&senders[i].thread, NULL, send_many, &senders[i]);
	}
	static struct answer answer;
	for (int i = 0; i < 20; i++) {
		CHECK_INT(ask(&self, "GET /v1/deliveries HTTP/1.1\r\nHost: x\r\n\r\n",
						  &answer),
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

/* What was answered with 202 is there, whenever we stop. */
static void stop_amid(void) {
	struct server self;
	server_start(&self, NULL);
	struct sender senders[8];
	for (int i = 0; i < 8; i++) {
		senders[i] = (struct sender){ .fd = server_dial(&self), .number = i };
		(void)pthread_create(&senders[i].thread, NULL, send_many, &senders[i]);
	}
	static struct answer answer;
	CHECK_INT(ask(&self, SECOND, &answer), 200);
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
	{ "requests are answered as the api says", answers },
	{ "bodies arrive byte for byte, whole and in chunks", exact_bodies },
	{ "headers have limits", large_headers },
	{ "a body over the limit is refused and never kept", large_bodies },
	{ "half a request is no request", half_requests },
	{ "a slow client loses its connection, a quick one keeps it",
			slow_clients },
	{ "health checks on more connections than allowed are served",
			many_connections },
	{ "pipelined requests are all answered", pipelines },
	{ "all bodies together have a limit", pressure },
	{ "all answers together have a limit", slow_readers },
	{ "many senders and readers at once are served", crowds },
	{ "stopping loses nothing that was accepted", stop_amid },
};

TAP_MAIN(cases)
