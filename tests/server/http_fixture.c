/* SPDX-License-Identifier: MIT */

/*
 * See the header. Each case sets its limits, so that they can be small enough
 * to be reached.
 */

#include "http_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tap.h"

/* Longer than any step takes; a test that waits so long has failed. */
#define PATIENCE_MS 20000

static bool is_over_tcp(void) {
	const char *over = getenv("HTTP_OVER");
	return over && strcmp(over, "tcp") == 0;
}

void server_start(struct server *self,
		const struct postern__http_options *limits) {
	struct postern_error error;
	fixture_init(&self->fixture);
	temp_dir_create(&self->directory);
	char path[TEMP_DIR_PATH_MAX + 16];
	temp_dir_name(&self->directory, "", "box.db", path, sizeof path);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	(void)close(fd);
	postern__log_init(&self->log, -1, false, POSTERN_LEVEL_ERROR, NULL);
	if (postern_runner_create(self->fixture.box, NULL, &self->runner, &error) ||
			postern_runner_start(self->runner, &error) ||
			postern__socket_init(&self->socket, path, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		abort();
	}
	self->fixture.stores.items[0].runner = self->runner;
	self->options = limits ? *limits : (struct postern__http_options){ 0 };
	self->options.api = &self->fixture.api;
	self->address = (struct postern__http_address){ .socket = &self->socket };
	if (is_over_tcp()) {
		if (postern__tcp_parse("127.0.0.1:0", &self->tcp, &error) ||
				postern__tcp_bind(&self->tcp, &error)) {
			(void)fprintf(stderr, "%s\n", error.text);
			abort();
		}
		self->address = (struct postern__http_address){ .tcp = &self->tcp };
		self->options.tcp_count_max = self->options.connection_count_max;
	}
	self->options.addresses = &self->address;
	self->options.address_count = 1;
	self->options.log = &self->log;
	if (postern__http_start(&self->options, &self->http, &error)) {
		(void)fprintf(stderr, "%s\n", error.text);
		abort();
	}
}

void server_stop(struct server *self) {
	postern__http_stop(self->http);
	CHECK_INT(access(self->socket.address, F_OK), -1);
	postern__socket_finish(&self->socket);
	postern_runner_destroy(self->runner);
	fixture_finish(&self->fixture);
	postern__log_finish(&self->log);
	temp_dir_destroy(&self->directory);
}

int server_dial(const struct server *self) {
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	const struct sockaddr *address = (const struct sockaddr *)&path;
	socklen_t len = sizeof path;
	memcpy(path.sun_path, self->socket.address, sizeof path.sun_path);
	if (is_over_tcp()) {
		address = &self->tcp.address.any;
		len = self->tcp.address_len;
	}
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, address, len) != 0) {
		FAIL("cannot connect: %s", strerror(errno));
	}
	return fd;
}

bool put_bytes(int fd, const void *bytes, size_t len) {
	const char *at = bytes;
	while (len > 0) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
		if (n < 0) {
			return false;
		}
		at += n;
		len -= (size_t)n;
	}
	return true;
}

bool put_text(int fd, const char *text) {
	return put_bytes(fd, text, strlen(text));
}

void read_response(int fd, struct response *response, const char *enough) {
	*response->text = '\0';
	response->len = 0;
	response->closed = false;
	while (!enough || !strstr(response->text, enough)) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		if (poll(&ready, 1, PATIENCE_MS) <= 0) {
			FAIL("no response");
			return;
		}
		ssize_t n = recv(fd, response->text + response->len,
				sizeof response->text - 1 - response->len, 0);
		if (n <= 0) {
			response->closed = true;
			return;
		}
		response->len += (size_t)n;
		response->text[response->len] = '\0';
	}
}

int status_of(const struct response *response) {
	return response->len > 12 ? (int)strtol(response->text + 9, NULL, 10) : 0;
}

int request_once(const struct server *self, const char *text,
		struct response *response) {
	static const char last[] = "Connection: close\r\n";
	const char *rest = strstr(text, "\r\n") + 2;
	int fd = server_dial(self);
	(void)(put_bytes(fd, text, (size_t)(rest - text)) && put_text(fd, last) &&
			put_text(fd, rest));
	read_response(fd, response, NULL);
	(void)close(fd);
	return status_of(response);
}
