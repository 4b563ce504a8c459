/* SPDX-License-Identifier: MIT */

/*
 * Malformed requests: each gets exactly one response, then its connection is
 * closed, the bytes that follow are never read as a request, and nothing is
 * stored.
 */

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_fixture.h"
#include "tap.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED MESSAGE("a") "Transfer-Encoding: chunked\r\n\r\n"

/* Bytes with NULs in them. */
#define BYTES(text) (text), sizeof(text) - 1

static const struct bad {
	const char *what;
	const char *request;
	size_t len;
	int status;
} bad[] = {
	/* NUL */
	{ "NUL in an id", BYTES(MESSAGE("order\0-1") "Content-Length: 1\r\n\r\nx"),
			400 },
	{ "NUL at the end of an id",
			BYTES(MESSAGE("order\0") "Content-Length: 1\r\n\r\nx"), 400 },
	{ "NUL at the beginning of an id",
			BYTES(MESSAGE("\0order") "Content-Length: 1\r\n\r\nx"), 400 },
	{ "NUL instead of CR",
			BYTES("POST /v1/channels/orders/messages HTTP/1.1\r\n"
				  "Host: x\r\nX-Message-Id: a\0\nContent-Length: 1\r\n\r\nx"),
			400 },
	{ "NUL instead of the CR that ends the head",
			BYTES(MESSAGE("a") "Content-Length: 1\r\n\0\nx"), 400 },
	{ "NUL in an empty line",
			BYTES(MESSAGE("a") "\0Content-Length: 1\r\n\r\nx"), 400 },
	{ "NUL that looks like another header",
			BYTES(MESSAGE("a\0\0X: b") "Content-Length: 1\r\n\r\nx"), 400 },
	{ "NUL in a path",
			BYTES("POST /v1/handlers/ok/pause\0/nothing HTTP/1.1\r\n"
				  "Host: x\r\nContent-Length: 0\r\n\r\n"),
			400 },
	{ "NUL at the end of a path", BYTES(GET("/healthz\0") "\r\n"), 400 },
	{ "NUL in a query", BYTES(GET("/v1/messages?id=a\0b") "\r\n"), 400 },
	{ "NUL in a method", BYTES("GET\0X /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
			400 },
	{ "NUL behind the version",
			BYTES("GET /healthz HTTP/1.1\0\r\nHost: x\r\n\r\n"), 400 },
	{ "NUL in a header's name",
			BYTES(MESSAGE("a") "X\0Y: z\r\nContent-Length: 1\r\n\r\nx"), 400 },
	{ "NUL in Content-Length",
			BYTES(MESSAGE("a") "Content-Length: 1\0002\r\n\r\nx"), 400 },
	{ "NUL in Transfer-Encoding",
			BYTES(MESSAGE("a") "Transfer-Encoding: chunked\0x\r\n\r\n"
							   "1\r\nx\r\n0\r\n\r\n"),
			400 },
	{ "NUL in Host", BYTES("GET /healthz HTTP/1.1\r\nHost: x\0y\r\n\r\n"),
			400 },
	{ "NUL in a chunk's size", BYTES(CHUNKED "1\0\r\nx\r\n0\r\n\r\n"), 400 },
	{ "NUL in a chunk's extension", BYTES(CHUNKED "1;a\0b\r\nx\r\n0\r\n\r\n"),
			400 },
	{ "NUL in a trailer", BYTES(CHUNKED "1\r\nx\r\n0\r\nA: b\0c\r\n\r\n"),
			400 },
	{ "NUL as the first byte", BYTES("\0" GET("/healthz") "\r\n"), 400 },

	/* Content-Length */
	{ "two lengths",
			BYTES(MESSAGE("a") "Content-Length: 3\r\nContent-Length: 3\r\n\r\n"
							   "abc"),
			400 },
	{ "two different lengths",
			BYTES(MESSAGE("a") "Content-Length: 3\r\nContent-Length: 5\r\n\r\n"
							   "abc"),
			400 },
	{ "two lengths in different cases",
			BYTES(MESSAGE("a") "content-length: 3\r\nCONTENT-LENGTH: 0\r\n\r\n"
							   "abc"),
			400 },
	{ "a negative length", BYTES(MESSAGE("a") "Content-Length: -1\r\n\r\nx"),
			400 },
	{ "a negative zero", BYTES(MESSAGE("a") "Content-Length: -0\r\n\r\n"),
			400 },
	{ "a length with a plus",
			BYTES(MESSAGE("a") "Content-Length: +3\r\n\r\nabc"), 400 },
	{ "a length in hex", BYTES(MESSAGE("a") "Content-Length: 0x3\r\n\r\nabc"),
			400 },
	{ "a length that is a letter",
			BYTES(MESSAGE("a") "Content-Length: a\r\n\r\nabc"), 400 },
	{ "a length followed by a letter",
			BYTES(MESSAGE("a") "Content-Length: 3a\r\n\r\nabc"), 400 },
	{ "a length with a blank in it",
			BYTES(MESSAGE("a") "Content-Length: 1 2\r\n\r\nabc"), 400 },
	{ "a length with a tab in it",
			BYTES(MESSAGE("a") "Content-Length: 1\t2\r\n\r\nabc"), 400 },
	{ "a length with a point",
			BYTES(MESSAGE("a") "Content-Length: 3.0\r\n\r\nabc"), 400 },
	{ "a length with an exponent",
			BYTES(MESSAGE("a") "Content-Length: 1e1\r\n\r\nabc"), 400 },
	{ "a length in quotes",
			BYTES(MESSAGE("a") "Content-Length: \"3\"\r\n\r\nabc"), 400 },
	{ "a length that is 2^64",
			BYTES(MESSAGE("a") "Content-Length: "
							   "18446744073709551616\r\n\r\nabc"),
			400 },
	{ "a length that is 2^64 - 1",
			BYTES(MESSAGE("a") "Content-Length: "
							   "18446744073709551615\r\n\r\nabc"),
			400 },
	{ "a length that is 2^63",
			BYTES(MESSAGE("a") "Content-Length: "
							   "9223372036854775808\r\n\r\nabc"),
			400 },
	{ "a length of 40 digits",
			BYTES(MESSAGE("a") "Content-Length: "
							   "1000000000000000000000000000000000000003"
							   "\r\n\r\nabc"),
			400 },
	{ "a list of lengths",
			BYTES(MESSAGE("a") "Content-Length: 3, 3\r\n\r\nabc"), 400 },
	{ "an empty length", BYTES(MESSAGE("a") "Content-Length: \r\n\r\nabc"),
			400 },
	{ "a length without a value",
			BYTES(MESSAGE("a") "Content-Length:\r\n\r\nabc"), 400 },
	{ "a length of another script",
			BYTES(MESSAGE("a") "Content-Length: \xd9\xa3\r\n\r\nabc"), 400 },
	{ "a length too large for the body",
			BYTES(MESSAGE("a") "Content-Length: 9223372036854775807\r\n\r\n"),
			413 },

	/* Transfer-Encoding */
	{ "a length and chunks",
			BYTES(MESSAGE("a") "Content-Length: 5\r\n"
							   "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
			400 },
	{ "chunks and a length",
			BYTES(MESSAGE("a") "Transfer-Encoding: chunked\r\n"
							   "Content-Length: 5\r\n\r\n0\r\n\r\n"),
			400 },
	{ "chunks and a bad length",
			BYTES(MESSAGE("a") "Transfer-Encoding: chunked\r\n"
							   "Content-Length: x\r\n\r\n0\r\n\r\n"),
			400 },
	{ "chunked twice",
			BYTES(MESSAGE("a") "Transfer-Encoding: chunked\r\n"
							   "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
			400 },
	{ "chunked, then identity",
			BYTES(MESSAGE("a") "Transfer-Encoding: chunked\r\n"
							   "Transfer-Encoding: identity\r\n\r\n"
							   "0\r\n\r\n"),
			400 },
	{ "identity", BYTES(MESSAGE("a") "Transfer-Encoding: identity\r\n\r\n"),
			501 },
	{ "an unknown encoding",
			BYTES(MESSAGE("a") "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n"),
			501 },
	{ "a list of encodings",
			BYTES(MESSAGE("a") "Transfer-Encoding: gzip, chunked\r\n\r\n"
							   "0\r\n\r\n"),
			501 },
	{ "chunked in a list",
			BYTES(MESSAGE("a") "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n"),
			501 },
	{ "chunked with a parameter",
			BYTES(MESSAGE("a") "Transfer-Encoding: chunked;q=1\r\n\r\n"
							   "0\r\n\r\n"),
			501 },
	{ "an empty encoding",
			BYTES(MESSAGE("a") "Transfer-Encoding:\r\n\r\n0\r\n\r\n"), 501 },
	{ "chunked with a vertical tab",
			BYTES(MESSAGE("a") "Transfer-Encoding: \vchunked\r\n\r\n"
							   "0\r\n\r\n"),
			400 },
	{ "chunks in HTTP/1.0",
			BYTES("POST /v1/channels/orders/messages HTTP/1.0\r\n"
				  "X-Message-Id: a\r\nTransfer-Encoding: chunked\r\n\r\n"
				  "1\r\nx\r\n0\r\n\r\n"),
			400 },

	/* Chunks */
	{ "a chunk's size that is not a number",
			BYTES(CHUNKED "zz\r\nabc\r\n0\r\n\r\n"), 400 },
	{ "an empty chunk's size", BYTES(CHUNKED "\r\nabc\r\n0\r\n\r\n"), 400 },
	{ "a chunk's size that is negative",
			BYTES(CHUNKED "-1\r\nabc\r\n0\r\n\r\n"), 400 },
	{ "a chunk's size with a plus", BYTES(CHUNKED "+3\r\nabc\r\n0\r\n\r\n"),
			400 },
	{ "a chunk's size with 0x", BYTES(CHUNKED "0x3\r\nabc\r\n0\r\n\r\n"), 400 },
	{ "a chunk's size after a blank", BYTES(CHUNKED " 3\r\nabc\r\n0\r\n\r\n"),
			400 },
	{ "a chunk's size before a blank", BYTES(CHUNKED "3 \r\nabc\r\n0\r\n\r\n"),
			400 },
	{ "a chunk's size with a blank in it",
			BYTES(CHUNKED "0 3\r\nabc\r\n0\r\n\r\n"), 400 },
	{ "a chunk's size that overflows",
			BYTES(CHUNKED "10000000000000003\r\nabc\r\n0\r\n\r\n"), 413 },
	{ "a chunk's size that is 2^63",
			BYTES(CHUNKED "8000000000000000\r\nabc\r\n0\r\n\r\n"), 413 },
	{ "a chunk's size of many zeros",
			BYTES(CHUNKED "000000000000000000000000000000000000000003\r\n"
						  "abc\r\n0\r\n\r\n"),
			413 },
	{ "a chunk longer than its size", BYTES(CHUNKED "3\r\nabcdef\r\n0\r\n\r\n"),
			400 },
	{ "a chunk shorter than its size", BYTES(CHUNKED "5\r\nabc\r\n0\r\n\r\n"),
			400 },
	{ "a chunk that ends with LF", BYTES(CHUNKED "3\r\nabc\n0\r\n\r\n"), 400 },
	{ "a chunk that ends with CR", BYTES(CHUNKED "3\r\nabc\r0\r\n\r\n\r\n"),
			400 },
	{ "a chunk's size that ends with LF", BYTES(CHUNKED "3\nabc\r\n0\r\n\r\n"),
			400 },
	{ "LF in a chunk's extension", BYTES(CHUNKED "3;a\nb\r\nabc\r\n0\r\n\r\n"),
			400 },
	{ "LF at the end of a chunk's extension",
			BYTES(CHUNKED "3;a\nabc\r\n0\r\n\r\n"), 400 },
	{ "LF in a chunk's quoted extension",
			BYTES(CHUNKED "3;a=\"\n\"\r\nabc\r\n0\r\n\r\n"), 400 },
	{ "CR in a chunk's extension", BYTES(CHUNKED "3;a\rb\r\nabc\r\n0\r\n\r\n"),
			400 },
	{ "a second chunk's size that is not a number",
			BYTES(CHUNKED "3\r\nabc\r\nx\r\n0\r\n\r\n"), 400 },
	{ "a last chunk that ends with LF", BYTES(CHUNKED "3\r\nabc\r\n0\n\n"),
			400 },
	{ "an end of the body that is LF", BYTES(CHUNKED "3\r\nabc\r\n0\r\n\n"),
			400 },
	{ "a trailer without a colon",
			BYTES(CHUNKED "3\r\nabc\r\n0\r\nnonsense\r\n\r\n"), 400 },
	{ "a folded trailer", BYTES(CHUNKED "3\r\nabc\r\n0\r\nA: b\r\n c\r\n\r\n"),
			400 },
	{ "a trailer with LF", BYTES(CHUNKED "3\r\nabc\r\n0\r\nA: b\nC: d\r\n\r\n"),
			400 },

	/* Lines */
	{ "LF behind the request line",
			BYTES("GET /healthz HTTP/1.1\nHost: x\r\n\r\n"), 400 },
	{ "LF behind a header", BYTES("GET /healthz HTTP/1.1\r\nHost: x\n\r\n"),
			400 },
	{ "LF everywhere", BYTES("GET /healthz HTTP/1.1\nHost: x\n\n"), 400 },
	{ "LF that ends the head", BYTES("GET /healthz HTTP/1.1\r\nHost: x\r\n\n"),
			400 },
	{ "LF before the request", BYTES("\n" GET("/healthz") "\r\n"), 400 },
	{ "two empty lines before the request",
			BYTES("\r\n\r\n" GET("/healthz") "\r\n"), 400 },
	{ "CR in a header", BYTES("GET /healthz HTTP/1.1\r\nHost: x\rX: a\r\n\r\n"),
			400 },
	{ "CR CR LF behind a header",
			BYTES("GET /healthz HTTP/1.1\r\nHost: x\r\r\n\r\n"), 400 },
	{ "CR in the request line",
			BYTES("GET /heal\rthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "CR behind the version",
			BYTES("GET /healthz HTTP/1.1\r\r\nHost: x\r\n\r\n"), 400 },

	/* Headers */
	{ "a folded id",
			BYTES("POST /v1/channels/orders/messages HTTP/1.1\r\nHost: x\r\n"
				  "X-Message-Id: a\r\n b\r\nContent-Length: 1\r\n\r\nx"),
			400 },
	{ "an id folded with a tab",
			BYTES("POST /v1/channels/orders/messages HTTP/1.1\r\nHost: x\r\n"
				  "X-Message-Id:\r\n\tb\r\nContent-Length: 1\r\n\r\nx"),
			400 },
	{ "a folded Transfer-Encoding",
			BYTES(MESSAGE("a") "Transfer-Encoding:\r\n chunked\r\n\r\n"
							   "1\r\nx\r\n0\r\n\r\n"),
			501 },
	{ "a first header that begins with a blank",
			BYTES("GET /healthz HTTP/1.1\r\n X: a\r\nHost: x\r\n\r\n"), 400 },
	{ "a line of blanks", BYTES(GET("/healthz") "  \r\n\r\n"), 400 },
	{ "a header without a colon",
			BYTES(MESSAGE("a") "nonsense\r\nContent-Length: 0\r\n\r\n"), 400 },
	{ "a header without a name", BYTES(GET("/healthz") ": x\r\n\r\n"), 400 },
	{ "a blank before the colon",
			BYTES(MESSAGE("a") "Content-Length : 1\r\n\r\nx"), 400 },
	{ "a tab before the colon",
			BYTES(MESSAGE("a") "Transfer-Encoding\t: chunked\r\n\r\n"
							   "0\r\n\r\n"),
			400 },
	{ "a blank in a name", BYTES(GET("/healthz") "X Y: z\r\n\r\n"), 400 },
	{ "a name with a slash", BYTES(GET("/healthz") "X/Y: z\r\n\r\n"), 400 },
	{ "a name that is not ASCII", BYTES(GET("/healthz") "X\xc3\xa4: z\r\n\r\n"),
			400 },
	{ "a control character in a value",
			BYTES(GET("/healthz") "X: \x01\r\n\r\n"), 400 },
	{ "DEL in a value", BYTES(GET("/healthz") "X: \x7f\r\n\r\n"), 400 },
	{ "ESC in a value", BYTES(GET("/healthz") "X: \033[31m\r\n\r\n"), 400 },

	/* Host */
	{ "no host", BYTES("GET /healthz HTTP/1.1\r\nX: a\r\n\r\n"), 400 },
	{ "no header", BYTES("GET /healthz HTTP/1.1\r\n\r\n"), 400 },
	{ "two hosts", BYTES(GET("/healthz") "Host: y\r\n\r\n"), 400 },
	{ "the same host twice", BYTES(GET("/healthz") "host: x\r\n\r\n"), 400 },
	{ "two hosts in HTTP/1.0",
			BYTES("GET /healthz HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n"), 400 },
	{ "a host with a blank",
			BYTES("GET /healthz HTTP/1.1\r\nHost: x y\r\n\r\n"), 400 },
	{ "a list of hosts", BYTES("GET /healthz HTTP/1.1\r\nHost: x,y\r\n\r\n"),
			400 },
	{ "a host with a path", BYTES("GET /healthz HTTP/1.1\r\nHost: x/y\r\n\r\n"),
			400 },
	{ "a host with a user", BYTES("GET /healthz HTTP/1.1\r\nHost: u@x\r\n\r\n"),
			400 },

	/* The request line */
	{ "no version", BYTES("GET /healthz\r\nHost: x\r\n\r\n"), 400 },
	{ "nothing but a method", BYTES("GET\r\nHost: x\r\n\r\n"), 400 },
	{ "no target", BYTES("GET HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "an empty target", BYTES("GET  HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "no method", BYTES(" /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "HTTP/2.7", BYTES("GET /healthz HTTP/2.7\r\nHost: x\r\n\r\n"), 505 },
	{ "HTTP/0.9", BYTES("GET /healthz HTTP/0.9\r\nHost: x\r\n\r\n"), 505 },
	{ "HTTP/1.2", BYTES("GET /healthz HTTP/1.2\r\nHost: x\r\n\r\n"), 505 },
	{ "HTTP/1.10", BYTES("GET /healthz HTTP/1.10\r\nHost: x\r\n\r\n"), 400 },
	{ "HTTP/11", BYTES("GET /healthz HTTP/11\r\nHost: x\r\n\r\n"), 400 },
	{ "http/1.1", BYTES("GET /healthz http/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "another protocol", BYTES("GET /healthz ICE/1.0\r\nHost: x\r\n\r\n"),
			400 },
	{ "the preface of HTTP/2", BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505 },
	{ "TLS", BYTES("\x16\x03\x01\x02\x00\x01\x00"), 400 },
	{ "a blank in the path", BYTES("GET /heal thz HTTP/1.1\r\nHost: x\r\n\r\n"),
			400 },
	{ "two blanks before the path",
			BYTES("GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "two blanks before the version",
			BYTES("GET /healthz  HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "a blank after the version",
			BYTES("GET /healthz HTTP/1.1 \r\nHost: x\r\n\r\n"), 400 },
	{ "a tab instead of a blank",
			BYTES("GET\t/healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "a method that is not a token",
			BYTES("GE(T /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "a question mark as the method", BYTES("? / HTTP/1.0\r\nHost: x\r\n\r\n"),
			400 },
	{ "a target without a slash",
			BYTES("GET healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "an absolute target",
			BYTES("GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "an authority as target",
			BYTES("CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"), 400 },
	{ "an asterisk as target", BYTES("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"),
			400 },
	{ "a fragment", BYTES(GET("/healthz#a") "\r\n"), 400 },
	{ "a path that is not ASCII", BYTES(GET("/\xc3\xa4") "\r\n"), 400 },
	{ "DEL in a path", BYTES(GET("/a\x7f") "\r\n"), 400 },
	{ "an escape sequence in a path", BYTES(GET("/\033[31m") "\r\n"), 400 },
};

static unsigned count_responses(const struct response *response) {
	unsigned count = 0;
	const char *at = response->text;
	while ((at = strstr(at, "HTTP/1.1 ")) != NULL) {
		count++;
		at++;
	}
	return count;
}

/* `step`: how many bytes are written at a time. */
static void must_refuse(const struct server *self, const struct bad *row,
		const char *follower, size_t step) {
	static struct response response;
	int fd = server_dial(self);
	for (size_t at = 0; at < row->len; at += step) {
		size_t left = row->len - at;
		if (!put_bytes(fd, row->request + at, left < step ? left : step)) {
			break;
		}
	}
	(void)put_text(fd, follower);
	read_response(fd, &response, NULL);
	(void)close(fd);
	if (!response.closed || count_responses(&response) != 1 ||
			status_of(&response) != row->status) {
		FAIL("%s, %zu bytes at a time: %u responses, the first is %d, not %d",
				row->what, step, count_responses(&response),
				status_of(&response), row->status);
	}
}

static void check_healthy(struct server *self) {
	static struct response response;
	CHECK_INT(request_once(self, SECOND, &response), 200);
	CHECK_INT(fixture_get(&self->fixture, "GET /v1/stats"), 200);
	CHECK_INT(fixture_number(&self->fixture, "channels.0.accepted"), 0);
	CHECK_INT(fixture_get(&self->fixture, "GET /v1/handlers"), 200);
	CHECK(fixture_value(&self->fixture, "items.0.paused") == json_false());
}

static void refuse_all(const char *follower, size_t step) {
	struct server self;
	server_start(&self, NULL);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		must_refuse(&self, &bad[i], follower, step);
	}
	check_healthy(&self);
	server_stop(&self);
}

static void in_one_piece(void) {
	refuse_all(SECOND, 100000);
}

static void without_followers(void) {
	refuse_all("", 100000);
}

static void byte_by_byte(void) {
	refuse_all(SECOND, 1);
}

static void in_pieces(void) {
	refuse_all(SECOND, 7);
}

/* A valid request gets its response first, even if the next one is refused. */
static void behind_good_ones(void) {
	struct server self;
	static struct response response;
	server_start(&self, NULL);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char text[4096];
		size_t len = (size_t)snprintf(text, sizeof text, SECOND SECOND);
		memcpy(text + len, bad[i].request, bad[i].len);
		int fd = server_dial(&self);
		(void)put_bytes(fd, text, len + bad[i].len);
		(void)put_text(fd, SECOND);
		read_response(fd, &response, NULL);
		(void)close(fd);
		char status[8];
		(void)snprintf(status, sizeof status, " %d ", bad[i].status);
		if (count_responses(&response) != 3 || status_of(&response) != 200 ||
				!strstr(response.text, status)) {
			FAIL("%s: %u responses", bad[i].what, count_responses(&response));
		}
	}
	check_healthy(&self);
	server_stop(&self);
}

/* A request with a line or with lines repeated. */
struct large {
	const char *what;
	const char *begin;
	const char *repeated;
	size_t count;
	const char *end;
	int status;
};

static void append(char *text, size_t *len, const char *part) {
	size_t part_len = strlen(part);
	memcpy(text + *len, part, part_len);
	*len += part_len;
}

static void too_large(void) {
	static const struct large rows[] = {
		{ "a header of 70 KB", MESSAGE("a") "User-Agent: ", "x", 70000,
				"\r\nContent-Length: 1\r\n\r\nx", 431 },
		{ "an id of 70 KB", MESSAGE("a") "Idempotency-Key: ", "x", 70000,
				"\r\nContent-Length: 1\r\n\r\nx", 431 },
		{ "a header of 70 KB of blanks", MESSAGE("a") "User-Agent: ", " ",
				70000, "\r\nContent-Length: 1\r\n\r\nx", 431 },
		{ "a name of 70 KB", MESSAGE("a"), "x", 70000,
				": y\r\nContent-Length: 1\r\n\r\nx", 431 },
		{ "129 headers", MESSAGE("a"), "X: y\r\n", 127,
				"Content-Length: 1\r\n\r\nx", 431 },
		{ "100,000 headers", MESSAGE("a"), "X: y\r\n", 100000, "\r\n", 431 },
		{ "long headers, 80 KB together", MESSAGE("a"),
				"X-Long: 0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789"
				"0123456789012345678901234567890123456789\r\n",
				120, "Content-Length: 1\r\n\r\nx", 431 },
		{ "a header that never ends", MESSAGE("a") "X: ", "x", 1000000, "",
				431 },
		{ "a path that never ends", "GET /", "x", 1000000, "", 414 },
		{ "a method that never ends", "", "X", 1000000, "", 414 },
		{ "a path of 40 KB", "GET /", "x", 40000,
				" HTTP/1.1\r\nHost: x\r\n\r\n", 414 },
		{ "a query of 4,000 parameters", "GET /v1/messages?", "a&", 4000,
				" HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
		{ "4,000 cookies", GET("/v1/messages") "Cookie: ", "a;", 4000,
				"\r\n\r\n", 431 },
		{ "4,000 cookies with commas", GET("/v1/messages") "Cookie: ", "a=b,",
				2000, "\r\n\r\n", 431 },
		{ "a cookie of 20 KB", GET("/v1/messages") "Cookie: a=", "x", 20000,
				"\r\n\r\n", 431 },
		{ "a chunk's extension of 70 KB", CHUNKED "1;", "x", 70000,
				"\r\nx\r\n0\r\n\r\n", 400 },
		{ "a chunk's extension that never ends", CHUNKED "1;", "x", 1000000, "",
				400 },
		{ "a chunk's size that never ends", CHUNKED, "0", 1000000, "", 400 },
		{ "trailers of 70 KB", CHUNKED "1\r\nx\r\n0\r\n", "X: y\r\n", 12000,
				"\r\n", 431 },
	};
	struct server self;
	static char text[1100000]; /* longer than any of them */
	server_start(&self, NULL);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		size_t len = 0;
		append(text, &len, rows[i].begin);
		for (size_t n = 0; n < rows[i].count; n++) {
			append(text, &len, rows[i].repeated);
		}
		append(text, &len, rows[i].end);
		struct bad row = { rows[i].what, text, len, rows[i].status };
		must_refuse(&self, &row, "", sizeof text);
		must_refuse(&self, &row, SECOND, 1000);
	}
	check_healthy(&self);
	server_stop(&self);
}

/* Well-formed HTTP, so each gets one response and the connection stays open;
   but a NUL is not allowed in a name or an id, however it is written. */
static void encoded_nul(void) {
	static const char *const requests[] = {
		GET("/v1/channels/orders%00x") "Connection: close\r\n\r\n",
		GET("/healthz%00") "Connection: close\r\n\r\n",
		GET("/v1/messages?id=a%00b") "Connection: close\r\n\r\n",
		GET("/v1/deliveries?handler=ok%00") "Connection: close\r\n\r\n",
		"POST /v1/handlers/ok%00/pause HTTP/1.1\r\nHost: x\r\n"
		"Content-Length: 0\r\nConnection: close\r\n\r\n",
		"POST /v1/channels/orders%00/messages HTTP/1.1\r\nHost: x\r\n"
		"X-Message-Id: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"POST /v1/channels/orders/messages HTTP/1.1\r\nHost: x\r\n"
		"ce-specversion: 1.0\r\nce-id: a%00b\r\nce-source: s\r\n"
		"ce-type: t\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"POST /v1/channels/orders/messages HTTP/1.1\r\nHost: x\r\n"
		"ce-specversion: 1.0\r\nce-id: a\r\nce-source: s%00\r\n"
		"ce-type: t\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	};
	struct server self;
	static struct response response;
	server_start(&self, NULL);
	for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
		int fd = server_dial(&self);
		(void)put_text(fd, requests[i]);
		read_response(fd, &response, NULL);
		(void)close(fd);
		int status = status_of(&response);
		if (count_responses(&response) != 1 ||
				(status != 400 && status != 404)) {
			FAIL("%s: %d", requests[i], status);
		}
	}
	check_healthy(&self);
	server_stop(&self);
}

/* Unusual but well-formed requests are served, on one connection. */
static void odd_but_good(void) {
	static const struct {
		const char *request;
		const char *response;
	} rows[] = {
		{ "\r\n" SECOND, "\"ok\"" },
		{ "GET /healthz HTTP/1.1\r\nhOsT:x\r\n\r\n", "\"ok\"" },
		{ "GET /healthz HTTP/1.1\r\nHost:\r\n\r\n", "\"ok\"" },
		{ GET("/healthz") "X:\r\nY: \t \r\nZ: a:b\r\n\r\n", "\"ok\"" },
		{ GET("/healthz") "X: \xc3\xa4\r\nCookie: a=b; c\r\n\r\n", "\"ok\"" },
		{ GET("/healthz") "Content-Length: 3 \t\r\n\r\nabc", "\"ok\"" },
		{ GET("/healthz") "!#$%&'*+-.^_`|~: x\r\n\r\n", "\"ok\"" },
		{ MESSAGE(" \t blanks \t ") "Content-Length:001\t\r\n\r\nx",
				"\"accepted\"" },
		{ MESSAGE("blanks") "Content-Length: 1\r\n\r\nx", "\"duplicate\"" },
		{ MESSAGE("b") "transfer-encoding: CHUNKED \r\n\r\n"
					   "1;a=\"b\"; c\r\nx\r\n00A\r\n0123456789\r\n"
					   "000\r\nTrailer: x \r\nY:\r\n\r\n",
				"\"accepted\"" },
		{ NULL, NULL },
	};
	struct server self;
	static struct response response;
	server_start(&self, NULL);
	for (size_t step = 1; step < 1000; step *= 31) {
		int fd = server_dial(&self);
		for (size_t i = 0; rows[i].response; i++) {
			size_t len = strlen(rows[i].request);
			for (size_t at = 0; at < len; at += step) {
				CHECK(put_bytes(fd, rows[i].request + at,
						len - at < step ? len - at : step));
			}
			read_response(fd, &response, "}");
			/* In the second round all messages are duplicates. */
			if (!strstr(response.text, rows[i].response) &&
					!strstr(response.text, "\"duplicate\"")) {
				FAIL("%s: %s", rows[i].request, response.text);
			}
		}
		(void)close(fd);
	}
	server_stop(&self);
}

static const struct tap_case cases[] = {
	{ "a malformed request gets one response and a close", in_one_piece },
	{ "a malformed request gets its response without waiting for more bytes",
			without_followers },
	{ "a malformed request is refused byte by byte", byte_by_byte },
	{ "a malformed request is refused in pieces", in_pieces },
	{ "requests before a malformed one get their responses", behind_good_ones },
	{ "a head or a line that is too large gets one response and a close",
			too_large },
	{ "a percent-encoded NUL is refused", encoded_nul },
	{ "an unusual request that is well-formed is served", odd_but_good },
};

TAP_MAIN(cases)
