/* SPDX-License-Identifier: MIT */
#ifndef POSTERN_TESTS_HTTP_FIXTURE_H
#define POSTERN_TESTS_HTTP_FIXTURE_H

/*
 * The api over a real socket, and a client that writes bytes as it likes.
 */

#include <stdbool.h>
#include <stddef.h>

#include "api_fixture.h"
#include "server/http.h"
#include "server/log.h"
#include "server/socket.h"
#include "support/temp_dir.h"

struct server {
	struct fixture fixture;
	struct postern_runner *runner;
	struct postern__log log;
	struct postern__socket socket;
	struct postern__http *http;
	struct postern__http_options options;
	struct temp_dir directory;
};

/* limits: NULL for the defaults. */
void server_start(struct server *self,
		const struct postern__http_options *limits);
void server_stop(struct server *self);

/* Connect. */
int server_dial(const struct server *self);

/* False if the other side has hung up. */
bool put(int fd, const void *bytes, size_t len);
bool put_text(int fd, const char *text);

struct answer {
	char text[262144];
	size_t len;
	bool closed;
};

/* Read until the other side closes, `enough` is seen or patience is over. */
void hear(int fd, struct answer *answer, const char *enough);

/* Of the first answer; 0 if there is none. */
int status_of(const struct answer *answer);

/* One request, and we say that it is the only one. */
int ask(const struct server *self, const char *text, struct answer *answer);

#define MESSAGE(id)                                             \
	"POST /v1/channels/orders/messages HTTP/1.1\r\nHost: x\r\n" \
	"X-Message-Id: " id "\r\n"

/* Behind a request that must end its connection: never to be answered. */
#define SECOND "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

#endif
