/* SPDX-License-Identifier: MIT */

/*
 * A socket that does not block, with a deadline for each step. The name of the
 * host is resolved without one: the system's resolver has its own timeout.
 */

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fail.h"
#include "redis/redis.h"

int postern__redis_socket_wait(int fd, short events,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	struct pollfd poll_fd = { .fd = fd, .events = events };
	for (;;) {
		int64_t left = deadline->until_ms -
					   deadline->clock->monotonic_ms(deadline->clock->context);
		if (left <= 0) {
			return postern__fail(error, POSTERN_E_UNAVAILABLE,
					"no answer in time");
		}
		int count = poll(&poll_fd, 1, left < 60000 ? (int)left : 60000);
		if (count > 0) {
			return POSTERN_OK;
		}
		if (count < 0 && errno != EINTR) {
			return postern__fail(error, POSTERN_E_UNAVAILABLE, "poll: %s",
					strerror(errno));
		}
	}
}

static int fail_errno(int number, struct postern_error *error) {
	return postern__fail(error, POSTERN_E_UNAVAILABLE, "%s", strerror(number));
}

/* Takes the descriptor. */
static int finish_connect(int fd, const struct sockaddr *to, socklen_t len,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	int r = POSTERN_OK;
	int number = connect(fd, to, len) == 0 ? 0 : errno;
	if (number == EINPROGRESS || number == EINTR) {
		socklen_t size = sizeof number;
		r = postern__redis_socket_wait(fd, POLLOUT, deadline, error);
		if (!r && getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size)) {
			number = errno;
		}
	}
	if (!r && number) {
		r = fail_errno(number, error);
	}
	if (r) {
		(void)close(fd);
	}
	return r;
}

static int connect_one(struct postern__redis_socket *self, int family,
		const struct sockaddr *to, socklen_t len,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	int on = 1;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		return fail_errno(errno, error);
	}
	if (family != AF_UNIX) {
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	}
	int r = finish_connect(fd, to, len, deadline, error);
	if (!r) {
		self->fd = fd;
	}
	return r;
}

static int connect_path(struct postern__redis_socket *self, const char *path,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	memcpy(to.sun_path, path, strlen(path) + 1);
	return connect_one(self, AF_UNIX, (const struct sockaddr *)&to, sizeof to,
			deadline, error);
}

static int connect_host(struct postern__redis_socket *self,
		const struct postern__redis_address *address,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG,
	};
	struct addrinfo *list = NULL;
	int number = getaddrinfo(address->host, address->port, &hints, &list);
	if (number == EAI_MEMORY) {
		return postern__fail(error, POSTERN_E_NOMEM, "out of memory");
	}
	if (number) {
		return postern__fail(error, POSTERN_E_UNAVAILABLE, "%s",
				gai_strerror(number));
	}
	int r = POSTERN_E_UNAVAILABLE;
	for (struct addrinfo *at = list; r && at; at = at->ai_next) {
		r = connect_one(self, at->ai_family, at->ai_addr, at->ai_addrlen,
				deadline, error);
	}
	freeaddrinfo(list);
	return r;
}

int postern__redis_socket_open(struct postern__redis_socket *self,
		const struct postern__redis_address *address, SSL_CTX *tls,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	*self = (struct postern__redis_socket){ .fd = -1 };
	int r = address->socket[0]
					? connect_path(self, address->socket, deadline, error)
					: connect_host(self, address, deadline, error);
	if (!r && tls) {
		r = postern__redis_tls_open(self, address, tls, deadline, error);
	}
	if (r) {
		postern__redis_socket_close(self);
	}
	return r;
}

void postern__redis_socket_close(struct postern__redis_socket *self) {
	SSL_free(self->ssl);
	self->ssl = NULL;
	if (self->fd >= 0) {
		(void)close(self->fd);
	}
	self->fd = -1;
}

int postern__redis_socket_send(struct postern__redis_socket *self,
		const char *bytes, size_t len,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	if (self->ssl) {
		return postern__redis_tls_send(self, bytes, len, deadline, error);
	}
	while (len > 0) {
		ssize_t sent = send(self->fd, bytes, len, MSG_NOSIGNAL);
		if (sent >= 0) {
			bytes += sent;
			len -= (size_t)sent;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR) {
			return fail_errno(errno, error);
		}
		int r = postern__redis_socket_wait(self->fd, POLLOUT, deadline, error);
		if (r) {
			return r;
		}
	}
	return POSTERN_OK;
}

int postern__redis_socket_receive(struct postern__redis_socket *self,
		char *bytes, size_t size, size_t *len_out,
		const struct postern__redis_deadline *deadline,
		struct postern_error *error) {
	if (self->ssl) {
		return postern__redis_tls_receive(self, bytes, size, len_out, deadline,
				error);
	}
	for (;;) {
		ssize_t received = recv(self->fd, bytes, size, 0);
		if (received > 0) {
			*len_out = (size_t)received;
			return POSTERN_OK;
		}
		if (received == 0) {
			return postern__fail(error, POSTERN_E_UNAVAILABLE,
					"the connection was closed");
		}
		if (errno != EAGAIN && errno != EINTR) {
			return fail_errno(errno, error);
		}
		int r = postern__redis_socket_wait(self->fd, POLLIN, deadline, error);
		if (r) {
			return r;
		}
	}
}
