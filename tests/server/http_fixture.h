/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_HTTP_FIXTURE_H
#define POSTERN_TESTS_HTTP_FIXTURE_H

/*
 * The API over a real socket (of TCP with HTTP_OVER=tcp in the environment),
 * and a client that can write any bytes.
 */

#include <stdbool.h>
#include <stddef.h>

#include "api_fixture.h"
#include "server/http.h"
#include "server/log.h"
#include "server/socket.h"
#include "server/tcp.h"
#include "support/temp_dir.h"

struct server {
	struct fixture fixture;
	struct postern_runner *runner;
	struct postern__log log;
	struct postern__socket socket;
	struct postern__tcp tcp;
	struct postern__http_address address;
	struct postern__http *http;
	struct postern__http_options options;
	struct temp_dir directory;
};

/* `limits`: NULL for the defaults. */
void server_start(struct server *self,
		const struct postern__http_options *limits);
void server_stop(struct server *self);

/* Returns a connected socket. */
int server_dial(const struct server *self);

/* Returns false if the other side has closed. */
bool put_bytes(int fd, const void *bytes, size_t len);
bool put_text(int fd, const char *text);

struct response {
	char text[262144];
	size_t len;
	bool closed;
};

/* Read until the other side closes, `enough` is found or the timeout passes. */
void read_response(int fd, struct response *response, const char *enough);

/* The status of the first response; 0 if there is none. */
int status_of(const struct response *response);

/* Send one request with "Connection: close"; returns the status. */
int request_once(const struct server *self, const char *text,
		struct response *response);

#define MESSAGE(id)                                             \
	"POST /v1/channels/orders/messages HTTP/1.1\r\nHost: x\r\n" \
	"X-Message-Id: " id "\r\n"

/* Follows a request that must end its connection: must not be answered. */
#define SECOND "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

#endif
