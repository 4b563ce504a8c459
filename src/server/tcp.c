/* SPDX-License-Identifier: MIT */
/*
 * Addresses of TCP. An IPv6 address accepts IPv6 only: "[::]" together with
 * "0.0.0.0" is two addresses, whatever the system's default is.
 */

#include "server/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"

/* The system keeps twice as much for each connection, outside of all our
   limits; by itself it would let a buffer grow to several megabytes. */
#define BUFFER_LEN (128 * 1024)

#define FORM "write ADDRESS:PORT, [IPv6]:PORT, unix:PATH, systemd, or none"

/* "127.0.0.1:7420" or "[::1]:7420". */
static void format(const struct sockaddr *address, char *out) {
	char host[INET6_ADDRSTRLEN] = "";
	*out = '\0';
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
		(void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
		(void)snprintf(out, POSTERN__TCP_TEXT_MAX, "%s:%u", host,
				ntohs(v4->sin_port));
	} else if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
		(void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
		(void)snprintf(out, POSTERN__TCP_TEXT_MAX, "[%s]:%u", host,
				ntohs(v6->sin6_port));
	}
}

/* The length of the host; *port_out is behind it. 0: malformed. */
static size_t split(const char *text, const char **port_out) {
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	bool bracketed = len > 1 && text[0] == '[' && text[len - 1] == ']';
	if (!colon || (!bracketed && memchr(text, ':', len))) {
		return 0;
	}
	*port_out = colon + 1;
	return len;
}

static bool set_host(struct postern__tcp *self, const char *host, size_t len,
		uint16_t port) {
	char name[INET6_ADDRSTRLEN] = "";
	bool v6 = host[0] == '[';
	host += v6;
	len -= v6 ? 2 : 0;
	if (len >= sizeof name) {
		return false;
	}
	memcpy(name, host, len);
	if (v6) {
		self->address.v6 = (struct sockaddr_in6){
			.sin6_family = AF_INET6,
			.sin6_port = htons(port),
		};
		self->address_len = sizeof self->address.v6;
		return inet_pton(AF_INET6, name, &self->address.v6.sin6_addr) == 1;
	}
	self->address.v4 = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
	};
	self->address_len = sizeof self->address.v4;
	return inet_pton(AF_INET,
				   strcmp(name, "localhost") == 0 ? "127.0.0.1" : name,
				   &self->address.v4.sin_addr) == 1;
}

int postern__tcp_parse(const char *text, struct postern__tcp *out,
		struct postern_error *error) {
	struct postern__tcp self = { .fd = -1 };
	const char *port_text;
	uint64_t port;
	size_t len = split(text, &port_text);
	if (len == 0) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' is not an address; " FORM, text);
	}
	if (postern__count_parse(port_text, 0, UINT16_MAX, &port, NULL) !=
			POSTERN_OK) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.80s' has no port from 0 to 65535; " FORM, text);
	}
	if (!set_host(&self, text, len, (uint16_t)port)) {
		return postern__fail(error, POSTERN_E_INVALID,
				"'%.*s' is not an IP address or 'localhost'; " FORM,
				(int)(len < 80 ? len : 80), text);
	}
	format(&self.address.any, self.text);
	*out = self;
	return POSTERN_OK;
}

bool postern__tcp_is_loopback(const struct postern__tcp *self) {
	if (self->address.any.sa_family == AF_INET6) {
		return IN6_IS_ADDR_LOOPBACK(&self->address.v6.sin6_addr);
	}
	return ntohl(self->address.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

uint16_t postern__tcp_port(const struct postern__tcp *self) {
	return ntohs(self->address.any.sa_family == AF_INET6
						 ? self->address.v6.sin6_port
						 : self->address.v4.sin_port);
}

static int fail_bind(const struct postern__tcp *self, int number,
		struct postern_error *error) {
	switch (number) {
	case EADDRINUSE:
		return postern__fail(error, POSTERN_E_BUSY,
				"cannot listen on '%s': the port is in use by another process; "
				"stop it, or set 'listen' to another address (none: no TCP), "
				"such as --listen 127.0.0.1:7421",
				self->text);
	case EACCES:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot listen on '%s': this port needs the capability "
				"CAP_NET_BIND_SERVICE; choose one from 1024",
				self->text);
	case EADDRNOTAVAIL:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot listen on '%s': this machine does not have that "
				"address; choose one of its own, or 0.0.0.0 for all",
				self->text);
	default:
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"cannot listen on '%s': %s", self->text, strerror(number));
	}
}

/* Connections inherit these. */
static void limit_buffers(int fd) {
	const int len = BUFFER_LEN;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &len, sizeof len);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &len, sizeof len);
}

int postern__tcp_init_passed(struct postern__tcp *self, int fd,
		struct postern_error *error) {
	*self = (struct postern__tcp){ .fd = -1,
		.address_len = sizeof self->address };
	if (getsockname(fd, &self->address.any, &self->address_len) != 0) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE,
				"a socket of the service manager has no address: %s",
				strerror(errno));
	}
	limit_buffers(fd);
	format(&self->address.any, self->text);
	self->fd = fd;
	return POSTERN_OK;
}

int postern__tcp_bind(struct postern__tcp *self, struct postern_error *error) {
	const int on = 1;
	bool v6 = self->address.any.sa_family == AF_INET6;
	int fd = socket(self->address.any.sa_family,
			SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		return fail_bind(self, errno, error);
	}
	/* Connections of a former server may still be closing. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	limit_buffers(fd);
	if ((v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on)) ||
			bind(fd, &self->address.any, self->address_len) != 0 ||
			getsockname(fd, &self->address.any, &self->address_len) != 0) {
		int r = fail_bind(self, errno, error);
		(void)close(fd);
		return r;
	}
	format(&self->address.any, self->text);
	self->fd = fd;
	return POSTERN_OK;
}

int postern__tcp_listen(struct postern__tcp *self, int backlog, int *fd_out,
		struct postern_error *error) {
	if (listen(self->fd, backlog) != 0) {
		return fail_bind(self, errno, error);
	}
	*fd_out = self->fd;
	self->fd = -1;
	return POSTERN_OK;
}

void postern__tcp_finish(struct postern__tcp *self) {
	if (self->fd >= 0) {
		(void)close(self->fd);
		self->fd = -1;
	}
}

void postern__tcp_peer(int fd, char out[POSTERN__TCP_TEXT_MAX]) {
	struct sockaddr_in6 address = { 0 };
	socklen_t len = sizeof address;
	*out = '\0';
	if (getpeername(fd, (struct sockaddr *)&address, &len) == 0) {
		format((const struct sockaddr *)&address, out);
	}
}
